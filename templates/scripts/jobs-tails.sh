#!/usr/bin/env bash
# Prints `tail NAME FROM BASE64` for each log that is not empty, then `end`. Writes nothing. Behind the
# named logs come the stack of each rank, and up to three of CANN's own logs of each rank: those with
# errors first, then the newest.
# Arguments: job folder, how many bytes, names.
bytes=$2
cd -- "$1" 2>/dev/null || { echo end; exit 0; }
shift 2
plogs() {
  local folder name
  for folder in rank.*.plog; do
    find "$folder" -type f -size +0 -name 'plog-*.log' -printf '%T@ %p\n' 2>/dev/null | sort -rn | head -n 50 |
      while read -r _ name; do
        case $name in *[!A-Za-z0-9._/-]*) continue ;; esac
        if tail -c "$bytes" -- "$name" | grep -qaF '[ERROR]'; then echo "0 $name"; else echo "1 $name"; fi
      done | sort -s -n -k 1,1 | head -n 3 | cut -d ' ' -f 2
  done
}
stacks() {
  local name
  for name in rank.*.stack; do
    case $name in *[!A-Za-z0-9._-]*) ;; *) echo "$name" ;; esac
  done
}
{ printf '%s\n' "$@"; stacks; plogs; } | while IFS= read -r name; do
  [ -s "$name" ] || continue
  size=$(stat -c %s -- "$name")
  from=$((size > bytes ? size - bytes : 0))
  printf 'tail %s %s ' "$name" "$from"
  tail -c "+$((from + 1))" -- "$name" | head -c "$bytes" | base64 -w 0
  echo
done
echo end
