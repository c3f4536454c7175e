#!/usr/bin/env bash
# Sends the content of files in the job's folder and all that is added, until stdin closes. Records in
# the events a launcher that is gone without having recorded its end.
#
#   JOB_FOLDER NONCE BEAT SAMPLE_EVERY FILE...
#
# NONCE is a name that nobody can guess, BEAT the seconds between signs of life. Every SAMPLE_EVERY
# whole seconds (0: never) such a sign also has what the ranks use.
# shellcheck source=templates/scripts/launcher-lost.sh
. launcher-lost.sh
# shellcheck source=templates/scripts/rank-usage.sh
. rank-usage.sh
job=$1 nonce=$2 beat=$3 every=$4; shift 4
cd -- "$job" && mkdir -- "$nonce" && : >"$nonce/beat" || exit 1
fallocate -n -l 65536 "$nonce/beat" 2>/dev/null  # signs of life, also on a full disk
names=()
for name; do names+=("$nonce/../$name"); done
# Polling twenty times a second (0.1 % of a processor) is cheaper than inotify, which wakes up, and
# delays the rank, at each write: 1.5 s of CPU for 200,000 lines (coreutils 9.1). A longer interval
# would be cheaper still, but a job is over for you only when this has seen it.
tail ---disable-inotify -v -n +1 -s 0.05 -f -- "${names[@]}" "$nonce/beat" &
tail=$!
trap 'kill "$tail" 2>/dev/null; rm -rf -- "$nonce"' EXIT
bytes=0 next=0
while :; do
  IFS= read -r -t "$beat" _
  [ "$?" -gt 128 ] || break
  sampled=''
  read_uptime
  if [ "$every" -gt 0 ] && [ "$up" -ge "$next" ]; then
    sample
    next=$((up + every))
  fi
  # A job may run for weeks: tail starts again at the beginning of a file that has become shorter.
  bytes=$((bytes + ${#sampled} + 1))
  if [ "$bytes" -gt 65536 ]; then
    bytes=${#sampled}
    : >"$nonce/beat"
    fallocate -n -l 65536 "$nonce/beat" 2>/dev/null
  fi
  printf '%s\n' "$sampled" >>"$nonce/beat"
  if is_lost; then echo "$lost lost" >>events; fi
done
