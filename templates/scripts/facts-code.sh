#!/usr/bin/env bash
# Queries the files below the path of the training code. Records end with a NUL, so that any name
# passes; sha256sum escapes names in its own way.
# Arguments: what to print, the root, patterns to leave out. `all` and `light` print the tree, `light`
# large files by size alone; `listed` the files whose paths stand on stdin, one a line; `names` these
# and the names of all others.
: "${large_bytes:?}" "${most_files:?}" "${most_bytes:?}"
export LC_ALL=C
ways=$1 path=$2; shift 2
state() { printf '%s\0' "$1"; }
files=() count=0 bytes=0
show='f %m %s %p\0'
take() {
  local record rest kind
  while IFS= read -r -d '' record; do
    kind=${record%% *} rest=${record#* * }
    if [ "$ways" = light ] && [ "${rest%% *}" -gt "$large_bytes" ]; then
      case $rest in
        *.py | *.sh | *.so) ;;
        *) kind=b record=b${record#f} rest="0 ${rest#* }" ;;
      esac
    fi
    count=$((count + 1)) bytes=$((bytes + ${rest%% *}))
    if [ "$count" -gt "$most_files" ] || [ "$bytes" -gt "$most_bytes" ]; then
      printf 'excess %s %s\0' "$count" "$bytes"; return 1
    fi
    [ "$kind" != f ] || files+=("${rest#* }")
    printf '%s\0' "$record"
  done
}
if [ -e "$path" ] && [ ! -r "$path" ]; then state unreadable; exit 0
elif [ -d "$path" ]; then cd -P -- "$path" 2>/dev/null || { state unreadable; exit 0; }
elif [ -f "$path" ]; then ways=; cd -P -- "${path%/*}/" && files=("./${path##*/}")
else state absent; exit 0; fi
state present
prune=(-name .git)
for pattern; do
  case $pattern in */*) prune+=(-o -path "./$pattern") ;; *) prune+=(-o -name "$pattern") ;; esac
done
# shellcheck disable=SC2016 # the inner bash expands what stands in single quotes
case $ways in
  '') find "${files[@]}" -printf "$show" ;;
  all | light) take < <(find . -mindepth 1 \( "${prune[@]}" \) -prune -o -type f -printf "$show" \
    -o -type l -printf 'l 0 0 %p\0t 0 0 %l\0') || exit 0 ;;
  *)
    take < <(while IFS= read -r name; do
      [ ! -L "$name" ] && [ ! -f "$name" ] || printf './%s\0' "$name"
    done | xargs -0 -r bash -c 'find "$@" -maxdepth 0 \( -type f -printf "$0" \
      -o -type l -printf "l 0 0 %p\0t 0 0 %l\0" \)' "$show") || exit 0
    [ "$ways" != names ] || find . -mindepth 1 \( "${prune[@]}" \) -prune \
      -o \( -type f -o -type l \) -printf 'n 0 0 %p\0' ;;
esac
state sums
[ "${#files[@]}" = 0 ] || printf '%s\0' "${files[@]}" | xargs -0 sha256sum -- 2>/dev/null
echo end
