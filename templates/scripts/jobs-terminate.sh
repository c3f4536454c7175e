#!/usr/bin/env bash
# Sends SIGTERM to the launcher of a job.
#
#   JOB_FOLDER MARK
#
# MARK is "stop" to record that `stop` ended the job, else empty.
# shellcheck source=templates/scripts/processes.sh
. processes.sh
job=$1 mark=$2
if [ -n "$mark" ]; then
  ended=0
  while read -r line; do
    case $line in 'launcher - exit'* | 'launcher - lost' | 'launcher - stop'*) ended=1 ;; esac
  done <"$job/events" || exit 1
  [ "$ended" = 1 ] || printf 'launcher - stop at %s\n' "$(date +%s.%6N)" >>"$job/events"
fi
while read -r who _ key pid _ start; do
  if [ "$who $key" = 'launcher pid' ] && runs "$pid" "$start"; then kill -TERM "$pid"; fi
done <"$job/events"
:
