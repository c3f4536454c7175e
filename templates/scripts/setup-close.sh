#!/usr/bin/env bash
# Takes from others the right to write to files and folders of the cluster's folder, the argument.
# Standard input has a line per path: the mode that it should have, and its name in the folder.
# From the top down: once a folder is closed, nobody can put a link in the place of what is in it. A
# file is copied, for who has it open could write to it even then; not one that others have open.
close() { { [ -O "$path" ] || chown -- "$EUID" "$path"; } && chmod -- "$mode" "$path"; }
while IFS= read -r line; do
  mode=${line%% *} path=$1/${line#* }
  if [ "$path" = "$1/.." ]; then path=${1%/*} && close
  elif [ -L "$path" ]; then rm -f -- "$path"
  elif [ -d "$path" ]; then close
  elif [ ! -f "$path" ]; then rm -f -- "$path"
  elif [[ $path = "$1/lock" || $path = *.log ]]; then close
  else
    new=$(mktemp -- "$path.XXXXXX") && cat <"$path" >"$new" && chmod -- "$mode" "$new" &&
      mv -fT -- "$new" "$path"
  fi || exit 1
done
