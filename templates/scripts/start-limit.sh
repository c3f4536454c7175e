#!/usr/bin/env bash
# Functions that find ranks which have not begun; they run in the job's folder.
: "${who:?}" "${within:?}"
# Prints the ranks of this node without an event, then `end`.
behind() {
  local who number
  local -A begun=()
  while read -r who number _; do [ "$who" != rank ] || begun[$number]=1; done <events
  while read -r who number _; do [ -n "${begun[$number]}" ] || echo "$number"; done <ranks
  echo end
}
# take ANSWER: adds the ranks of a complete answer of `behind` to `late`.
take() {
  # shellcheck disable=SC2206 # one word for each rank
  case $'\n'$1 in *$'\nend') late+=(${1%end}) ;; *) return 1 ;; esac
}
note_late() {
  local IFS=,
  now
  # shellcheck disable=SC2154 # the callers set `awaited`, and `now` sets `time`
  printf '%s late %s awaited %s after %s at %s\n' \
    "$who" "${late[*]}" "${awaited[*]:--}" "$within" "$time" >>events
}
