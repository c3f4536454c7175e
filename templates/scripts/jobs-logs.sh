#!/usr/bin/env bash
# Sends the missing bytes of files in a job's folder; to follow them, also all new bytes until stdin
# closes.
#
#   JOB_FOLDER MODE BEAT SAMPLE_EVERY [NAME SIZE]...
#
# MODE is `once`, `follow`, or `record`: as `follow`, and records in the events a launcher that is
# gone without a recorded end. BEAT: number of polls between two signs of life. Every SAMPLE_EVERY
# whole seconds (0: never) it includes what the ranks use. SIZE: bytes that the caller already has.
# Prints `bytes COUNT NAME` before COUNT bytes of a file; `gap COUNT NAME` in place of bytes that
# the node has dropped; `absent` without such a folder; `beat` or `sample …` (rank-usage.sh) as
# signs of life; `lost` when a launcher is gone without a recorded end; `end`.
# shellcheck source=templates/scripts/launcher-lost.sh
. launcher-lost.sh
# shellcheck source=templates/scripts/rank-usage.sh
. rank-usage.sh
job=$1 mode=$2 beat=$3 every=$4; shift 4
cd -- "$job" 2>/dev/null || { echo absent; echo end; exit 0; }
declare -A at descriptor
while [ "$#" -gt 0 ]; do at[$1]=$2; shift 2; done

send() {
  local size name
  while read -r size name; do
    [ $((size - at[$name])) -lt 4194304 ] || send_gap "$name"
    send_bytes "$name" "$size"
  done < <(stat -c '%s %n' -- "${!at[@]}" 2>/dev/null)
}

# send_bytes NAME END
send_bytes() {
  local more=$(($2 - at[$1])) opened
  [ "$more" -gt 0 ] || return
  if [ -z "${descriptor[$1]-}" ]; then
    exec {opened}<"$1" || return
    descriptor[$1]=$opened
    skip "$1" "${at[$1]}"
  fi
  printf 'bytes %s %s\n' "$more" "$1"
  # head reads exactly that much; the next call continues where it stopped.
  head -c "$more" <&"${descriptor[$1]}"
  at[$1]=$2
}

# skip NAME COUNT: skips so many bytes.
skip() {
  [ "$2" = 0 ] || [ -z "${descriptor[$1]-}" ] || dd bs=1 skip="$2" count=0 <&"${descriptor[$1]}" 2>/dev/null
}

send_gap() {
  local line from=0 to=0
  while IFS= read -r line; do  # a line without its end is not whole: a full disk, or not yet
    [[ "$line" =~ ^[^\ ]+\ [0-9]+\ ([0-9]+)\ ([0-9]+)$ ]] || continue
    from=${BASH_REMATCH[1]} to=${BASH_REMATCH[2]}
  done < <(tail -n 2 -- "${1%.log}.marks" 2>/dev/null)
  if [ "$to" -lt "$from" ] || [ "$to" -le "${at[$1]}" ]; then return; fi
  send_bytes "$1" "$from"
  printf 'gap %s %s\n' $((to - at[$1])) "$1"
  skip "$1" $((to - at[$1]))
  at[$1]=$to
}

send_beat() {
  local up
  sampled=beat
  read_uptime
  if [ "$every" -gt 0 ] && [ "$up" -ge "$next" ]; then
    sample
    next=$((up + every))
  fi
  printf '%s\n' "$sampled"
  is_lost || return
  if [ "$mode" = record ]; then printf '%s lost\n' "$lost" >>events; else echo lost; fi
}

# wait_for_end: waits 0.2 s, or less if a rank or the launcher ends meanwhile: a job is over for you
# only when this has seen it. Fails when stdin has closed.
wait_for_end() {
  local wait event has_ended=''
  for ((wait = 0; wait < 5; wait++)); do
    IFS= read -r -t 0.04 _
    [ "$?" -gt 128 ] || return 1
    while [ "$events" ] && IFS= read -r event <&"$events"; do
      case $event in *' exit '*) has_ended=1 ;; esac
    done
    [ -z "$has_ended" ] || break
  done
  return 0
}

send
polls=0 next=0 events=''
[ ! -e events ] || exec {events}<events
while [ "$mode" != once ]; do
  if [ $((polls++ % beat)) = 0 ]; then send_beat; fi
  # Costs 2 % of a processor, and 5 % while eight ranks write all the time. inotify would wake up,
  # and delay the rank, at each write. A longer interval would be cheaper.
  wait_for_end || break
  send
done
echo end
