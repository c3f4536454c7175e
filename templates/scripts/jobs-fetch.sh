#!/usr/bin/env bash
# Sends what is missing of some files of a job's folder; to follow it, also all that is added until
# its stdin closes. Writes nothing.
# Arguments: job folder, 1 to follow, then name and size on the control machine of each file.
# Sends `bytes COUNT NAME` and a newline before so many bytes of a file; `gap COUNT NAME` in place
# of bytes that the node has dropped; `absent` when there is no such folder; now and then `beat`,
# and `lost` when a launcher that started is gone without a recorded end; `end`.
job=$1 follow=$2; shift 2
# shellcheck source=templates/scripts/processes.sh
. processes.sh
# shellcheck source=templates/scripts/launcher-lost.sh
. launcher-lost.sh
cd -- "$job" 2>/dev/null || { echo absent; echo end; exit 0; }
declare -A at
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
  local more=$(($2 - at[$1]))
  [ "$more" -gt 0 ] || return
  printf 'bytes %s %s\n' "$more" "$1"
  tail -c +$((at[$1] + 1)) -- "$1" | head -c "$more"
  at[$1]=$2
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
  at[$1]=$to
}

send
ticks=0
while [ "$follow" = 1 ]; do
  if [ $((ticks++ % 20)) = 0 ]; then
    echo beat
    if is_lost; then echo lost; fi
  fi
  IFS= read -r -t 0.5 _
  [ "$?" -gt 128 ] || break
  send
done
echo end
