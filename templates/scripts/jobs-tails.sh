#!/usr/bin/env bash
# Prints `tail NAME FROM BASE64` for each log that is not empty, then `end`. Writes nothing.
# Arguments: job folder, how many bytes, names.
bytes=$2
cd -- "$1" 2>/dev/null || { echo end; exit 0; }
shift 2
for name; do
  [ -s "$name" ] || continue
  size=$(stat -c %s -- "$name")
  from=$((size > bytes ? size - bytes : 0))
  printf 'tail %s %s ' "$name" "$from"
  tail -c "+$((from + 1))" -- "$name" | head -c "$bytes" | base64 -w 0
  echo
done
echo end
