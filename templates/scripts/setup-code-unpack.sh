#!/usr/bin/env bash
# Puts the code that has arrived in place.
# Arguments: the cluster's folder; how many bytes have arrived; the root of the code. On standard
# input one line per file: kind (f, l or d), size, mode, SHA-256 or target, and path, with tabs
# between; `-` stands for nothing.
set -e -o pipefail; umask 022; export LC_ALL=C
notes=$1/code total=$2 path=$3
mkdir -p -- "$notes"; touch "$notes"/{pushed,links,folders,incoming}
[ "$total" != 0 ] || : >"$notes/incoming" # nothing was to come
there=$(stat -c %s -- "$notes/incoming")
[ "$there" = "$total" ] || { echo "$there bytes have arrived, not $total" >&2; exit 1; }
stop() { printf '%s\n' "$1" >&2; exit 1; }
# The folders on the way to a file: real ones inside the tree, made and noted where missing.
declare -A known
need_folder() {
  local way='' part rest=$1/
  [ -z "${known[/$1]-}" ] || return 0
  while [ "$rest" ]; do
    part=${rest%%/*} rest=${rest#*/}
    way=${way:+$way/}$part
    if [ -L "$way" ]; then
      case $(readlink -f -- "$way")/ in "$PWD"/*) ;; *) stop "$way leads out of $PWD" ;; esac
    elif [ ! -e "$way" ]; then
      printf '%s\n' "$PWD/$way" >>"$notes/folders"
      mkdir -- "$way"
    fi
    [ -d "$way" ] || stop "$PWD/$way is no folder, but code lies in it"
  done
  known[/$1]=1
}
make_root() {
  local way=$path missing=()
  while [ ! -e "$way" ] && [ -n "$way" ]; do missing+=("$way"); way=${way%/*}; done
  for way in "${missing[@]}"; do printf '%s\n' "$way"; done >>"$notes/folders"
  mkdir -p -- "$path"
}
[ -d "$path" ] || make_root
cd -P -- "$path"
declare -A ours
while IFS= read -r line; do ours[${line#*  }]=1; done <"$notes/pushed"
while IFS= read -r line; do ours[${line#*$'\t'}]=1; done <"$notes/links"
rm -rf -- .ascendboot-sending.?????? # what a setup that was cut off was writing
stage=$(mktemp -d -- .ascendboot-sending.XXXXXX)
printf '%s\n' "$PWD/$stage" >"$notes/stage"
trap 'rm -rf -- "$PWD/$stage" "$notes/stage"' EXIT
declare -A of_mode of_folder
gone=
exec 3<"$notes/incoming"
# All is laid out beside first, then moved folder by folder: many files, few programs.
while IFS=$'\t' read -r kind size mode what name; do
  folder=.
  case $name in */*) folder=${name%/*} ;; esac
  need_folder "$folder"
  [ ! -d "$name" ] || [ -L "$name" ] || stop "$PWD/$name is a folder, but a file in the source"
  is_ours=; [ -n "${ours[$PWD/$name]-}" ] || { [ ! -e "$name" ] && [ ! -L "$name" ]; } || is_ours=no
  [ -d "$stage/$folder" ] || mkdir -p -- "$stage/$folder"
  case $kind in
    f)
      [ "$is_ours" ] || printf '%s  %s\n' "$what" "$PWD/$name" >>"$notes/pushed"
      if [ "$size" = 0 ]; then : >"$stage/$name"; else head -c "$size" <&3 >"$stage/$name"; fi
      of_mode[$mode]+=$stage/$name$'\n' ;;
    l)
      [ "$is_ours" ] || printf '%s\t%s\n' "$what" "$PWD/$name" >>"$notes/links"
      ln -s -- "$what" "$stage/$name" ;;
    d) gone+=$name$'\n'; continue ;;
  esac
  of_folder[/$folder]+=$stage/$name$'\n'
done
lines() { printf %s "$1" | tr '\n' '\0'; }
for mode in "${!of_mode[@]}"; do lines "${of_mode[$mode]}" | xargs -0 chmod "$mode" --; done
for folder in "${!of_folder[@]}"; do
  lines "${of_folder[$folder]}" | xargs -0 mv -f -t "./${folder#/}" --
done
[ -z "$gone" ] || lines "$gone" | xargs -0 rm -f --
rm -f -- "$notes/incoming"
