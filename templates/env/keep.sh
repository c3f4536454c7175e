# shellcheck shell=bash
# Bash functions that keep a log within its limit; written by ascendboot. rank-exec holds the same.

now() {
  ascendboot_time=${EPOCHREALTIME-}
  ascendboot_time=${ascendboot_time/,/.}
  [ -n "$ascendboot_time" ] || ascendboot_time=$(date +%s.%6N)
}

# How long the log has become, without a program: by descriptor 3, which its writers share.
size_at_the_end() {
  local word value
  while read -r word value; do
    [ "$word" != pos: ] || [ "$value" -le "$size" ] || size=$value
  done </proc/self/fdinfo/3
}

# keep LOG LIMIT: beside who writes the log without us. Notes how long the log is by when, and has what
# lies between its beginning and its end dropped once it outgrows its limit. Ends with its input.
# Descriptor 3 is the log, as its writers have it open.
keep() {
  local log=$1 marks=${1%.log}.marks limit=${2:-0} size=0 last=-1 start=0 end=0 to over='' line torn=''
  trap '' TERM INT
  unset LD_LIBRARY_PATH LD_PRELOAD
  # A rank that begins again goes on with its log, and with what was dropped of it.
  if [ -s "$marks" ]; then
    while IFS= read -r line; do
      if [[ "$line" =~ ^[^\ ]+\ [0-9]+\ ([0-9]+)\ ([0-9]+)$ ]]; then
        start=${BASH_REMATCH[1]} end=${BASH_REMATCH[2]}
      fi
    done < <(tail -n 2 -- "$marks")
    [ -z "$line" ] || torn=$'\n'  # a full disk took the rest of the line
    size_at_the_end
  fi
  until
    if [ "$limit" -gt 0 ] && [ $((size - end + start)) -gt "$limit" ]; then
      start=$(((limit / 4) >> 20 << 20))
      to=$(((size - limit / 2) >> 20 << 20))
      [ "$end" -gt "$start" ] || end=$start
      if fallocate -p -o "$end" -l $((to - end)) -- "$log"; then end=$to last=-1; else limit=0; fi
    fi
    now
    if [ "$size" != "$last" ]; then
      printf '%s%s %s %s %s\n' "$torn" "$ascendboot_time" "$size" "$start" "$end" >>"$marks" && torn= || torn=$'\n'
    fi
    last=$size
    [ -n "$over" ]
  do
    IFS= read -r -t 5 _
    if [ "$?" -gt 128 ]; then size=$(stat -c %s -- "$log"); else over=1 && size_at_the_end; fi
  done
}
