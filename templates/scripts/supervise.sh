#!/usr/bin/env bash
# Functions of `launch.sh` for torchrun, which runs on every node: `launcher` runs `agent` and
# supervises it; `clean CODE` ends what it left.
#
# torchrun ignores the other nodes when one fails (torch 2.13: 400 s until the last had ended, and
# SIGTERM had no effect while it waited for them). So its supervisor on the primary also holds one ssh
# to every other node, over the cluster's own trust. supervise-watch.sh runs at the other end: it
# reports a failure there, and ends the job there once the primary closes the connection.
#
# Needs: `nodes` and `addresses` to watch; `watch`, the path of their `watch.sh`, shell-quoted;
# `is_watched`, not empty where the primary watches this node; `within`, in how many seconds every rank
# of the node must have begun; `grace` in tenths of a second; `ending`, which begins the line that says
# why the job ends; the functions of launch-start.sh.
# shellcheck source=templates/scripts/processes.sh
. processes.sh
# shellcheck source=templates/scripts/start-limit.sh
. start-limit.sh
# shellcheck source=templates/scripts/supervise-events.sh
. supervise-events.sh
: "${base:?}" "${job:?}" "${who:?}" "${grace:?}" "${watch:?}" "${is_watched?}" "${ending:?}"
agent() { run; }
clean() { [ "$1" = 0 ] || end_processes find_marked "$job" "$grace"; }
is_over() { ! kill -0 "$1" 2>/dev/null; }
# watch_node NUMBER: becomes the ssh to another node.
watch_node() {
  local fd
  exec <"/dev/fd/${beats[$1]}" >"/dev/fd/$reports_fd"
  for fd in "${beats[@]}" "$reports_fd"; do exec {fd}>&-; done
  # shellcheck disable=SC2154 # `launch.sh` begins with it
  exec ssh -F "$base/trust/ssh_config" -o ServerAliveInterval=5 -o ServerAliveCountMax=3 \
    "${addresses[$1]}" "exec bash $watch"
}
primary_is_gone() {
  local pid start
  [ -n "$is_watched" ] || return 1
  { read -r pid start <watched; } 2>/dev/null
  read_uptime
  if [ -n "$pid" ]; then ! is_alive "$pid" "$start"; else [ "$up" -ge "$watched_by" ]; fi
}
is_overdue() {
  local late=() awaited=()
  read_uptime
  [ -n "$begun_by" ] && [ "$up" -ge "$begun_by" ] || return 1
  begun_by=''
  take "$(behind)"
  [ "${#late[@]}" != 0 ] || return 1
  note_late
  why="not every rank has begun within $within s"
}
launcher() {
  local agent number fd beat line code=0 why='' tick=0 up watched_by begun_by
  local terminated='' reports_fd='' beats=() watchers=()
  read_uptime
  watched_by=$((up + 60)) begun_by=$((up + within))
  trap 'terminated=1' TERM INT HUP
  agent &
  agent=$!
  # Unnamed pipes, open at both ends: reading waits, and no file is left behind.
  exec {reports_fd}<> <(:)
  for number in "${!addresses[@]}"; do
    exec {fd}<> <(:)
    beats[number]=$fd
  done
  for number in "${!addresses[@]}"; do
    watch_node "$number" &
    watchers[number]=$!
  done
  while :; do
    if read -r -t 0.2 -u "$reports_fd" line; then why=$line; break; fi
    if [ -n "$terminated" ]; then why='ended by a signal' code=143; break; fi
    if [ -n "$agent" ] && is_over "$agent"; then
      wait "$agent"
      code=$? agent=''
      if [ "$code" != 0 ]; then why="torchrun ended with $code"; break; fi
    fi
    for number in "${!watchers[@]}"; do
      is_over "${watchers[number]}" || continue
      wait "${watchers[number]}"
      fd=$?
      # Beats that nothing reads would fill the pipe, and one day block this shell.
      beat=${beats[number]}
      exec {beat}>&-
      unset "watchers[number]" "beats[number]"
      # shellcheck disable=SC2154 # `launch.sh` begins with `nodes`
      if [ "$fd" != 0 ]; then why="${nodes[number]}: lost it: ssh ended with $fd"; break 2; fi
    done
    [ -n "$agent" ] || [ "${#watchers[@]}" != 0 ] || return 0
    read_events
    if [ -n "$failed" ]; then why=$failed; break; fi
    tick=$((tick + 1))
    if [ $((tick % 5)) = 0 ] && primary_is_gone; then why='the primary is gone'; break; fi
    if [ $((tick % 5)) = 0 ] && is_overdue; then break; fi
    if [ $((tick % 25)) = 0 ]; then for fd in "${beats[@]}"; do echo >&"$fd"; done; fi
  done
  now
  # shellcheck disable=SC2154 # set by `now`
  printf '%s ends at %s\n' "$who" "$time" >>events
  printf '%s%s\n' "$ending" "$why"
  for fd in "${beats[@]}"; do exec {fd}>&-; done
  end_agent
  for ((tick = 0; tick < grace + 50 && ${#watchers[@]}; tick++)); do
    for number in "${!watchers[@]}"; do
      if is_over "${watchers[number]}"; then unset "watchers[number]"; fi
    done
    sleep 0.1
  done
  [ "${#watchers[@]}" = 0 ] || kill -KILL "${watchers[@]}"
  [ "$code" != 0 ] || code=1
  return "$code"
}
end_agent() {
  local tick tenths=$grace idle=0
  if [ -n "$agent" ]; then
    leave_stacks "$job"
    # torchrun then notices a rank that failed here: it ends the others, and logs what it saw.
    if [ -n "$failed" ]; then tenths=$((grace + 15)); else kill -TERM "$agent"; fi
    # Without ranks torchrun needs a moment to log, and seconds to unload torch: do not wait for that.
    for ((tick = 0; tick < tenths && idle < 10; tick++)); do
      is_over "$agent" && break
      read_events
      if [ "${#ascendboot_running[@]}" = 0 ]; then idle=$((idle + 1)); fi
      sleep 0.1
    done
    is_over "$agent" || kill_processes find_marked "$job"
    wait "$agent"
  fi
  end_processes find_marked "$job" "$grace"
}
