#!/usr/bin/env bash
# Lists what a finder of checkpoints needs of a folder. Arguments: kind of checkpoints, folder.
# A file server that does not answer would block everything: one inner bash reads, for 5 s at most.
# shellcheck source=templates/scripts/sections.sh
. sections.sh
export most most_entries=10000 most_listed=900000 most_marker=65536 most_markers=16
# list DEPTH FOLDER: type, size, time of modification and path of all below but symbolic links
list() {
  find "$2" -mindepth 1 -maxdepth "$1" ! -type l ! -name '*[[:cntrl:]]*' -printf '%y %s %T@ %p\n'
}
# Of names with numbers the highest come first: where there are too many, only old ones are left out.
newest_first() { sort -rV -k 4; }
keep() {
  local lines
  lines=$(grep -c '' <<<"$1")
  if [ "$((entries + lines))" -gt "$most_entries" ] ||
    [ "$((${#listed} + ${#1}))" -gt "$most_listed" ]; then return 1; fi
  listed+=$1$'\n' entries=$((entries + lines))
}
marker() {
  local out
  out=$(head -c "$((most_marker + 1))" -- "$1") ||
    { section "marker/$1" 1 "$1 cannot be read by ${USER:-this user}"; return; }
  if [ "${#out}" -gt "$most_marker" ]; then
    section "marker/$1" 1 "$1 is larger than $((most_marker >> 10)) KiB"
  else section "marker/$1" 0 "$out"; fi
}
markers() {
  local name count=0
  case $1 in
    megatron) set -- latest_checkpointed_iteration.txt ;;
    tensorflow) set -- checkpoint ;;
    manifest)
      set -- LATEST.json
      while read -r name; do
        set -- "$@" "$name"
      done < <(sed -n 's|^f .* \./\(step-[0-9]*\.json\)$|\1|p' <<<"$top") ;;
    *) return ;;
  esac
  for name; do
    [ -f "$name" ] || continue
    count=$((count + 1))
    [ "$count" -le "$most_markers" ] || return
    marker "$name"
  done
}
look() {
  local top line name rest listed='' entries=0 state=whole
  if [ ! -e "$2" ]; then section folder 0 absent; return; fi
  if ! cd -P -- "$2" || [ ! -r . ]; then
    section folder 1 "$2 cannot be read by ${USER:-this user}"; return
  fi
  section folder 0 present
  top=$(set -o pipefail; list 1 . | newest_first) ||
    { section files 1 "$2 could not be listed"; return; }
  markers "$1"
  while IFS= read -r line; do
    [ -n "$line" ] || continue
    name=${line#* * * } rest=
    case $1 in tensorflow) ;; *) [ "${line:0:1}" != d ] || rest=$(list 3 "$name") ;; esac
    keep "$line${rest:+$'\n'$rest}" || { state='cut'; break; }
  done <<<"$top"
  section files 0 "$listed"
  section state 0 "$state"
}
export -f section list newest_first keep marker markers look
# shellcheck disable=SC2016 # the inner bash expands it
printed=$(timeout -k 1 5 bash -c 'look "$1" "$2"' ascendboot "$1" "$2" 2>/dev/null)
code=$?
case $code in
  0) printf '%s\n' "$printed" ;;
  124 | 137) section folder "$code" "$2 was not listed within 5 s; does its file server answer?" ;;
  *) section folder 1 "$2 was not listed: bash exited $code" ;;
esac
section end 0 ''
