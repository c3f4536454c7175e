#!/usr/bin/env bash
# Lists the code that setup sent, and removes it where `mode` is remove: files that are as they were
# sent, and folders that setup made. `b` is the cluster's folder.
: "${b:?}" "${mode:?}"
export LC_ALL=C
cd -- "$b/code" 2>/dev/null || { echo end; exit 0; }
same=() left=()
while IFS= read -r line; do
  case $line in *': OK') same+=("${line%: OK}") ;; esac
done < <(sort -u pushed 2>/dev/null | sha256sum -c 2>/dev/null)
while IFS=$'\t' read -r target path; do
  [ -L "$path" ] && [ "$(readlink -- "$path")" = "$target" ] && same+=("$path")
done < <(sort -u links 2>/dev/null)
declare -A unchanged; for path in "${same[@]}"; do unchanged[$path]=1; done
while IFS= read -r path; do
  [ -n "${unchanged[$path]-}" ] || { [ ! -e "$path" ] && [ ! -L "$path" ]; } || left+=("$path")
done < <({
  while IFS= read -r line; do printf '%s\n' "${line#*  }"; done <pushed
  while IFS= read -r line; do printf '%s\n' "${line#*$'\t'}"; done <links
} 2>/dev/null | sort -u)
echo "files ${#unchanged[@]}"
for path in "${left[@]}"; do printf 'changed %s\n' "$path"; done
if [ "$mode" = remove ]; then
  stage=''; { read -r stage <./stage; } 2>/dev/null
  case $stage in /*/.ascendboot-sending.??????) rm -rf -- "$stage" ;; esac
  [ "${#unchanged[@]}" = 0 ] || printf '%s\0' "${!unchanged[@]}" | xargs -0 rm -f --
  sort -ru folders 2>/dev/null | while IFS= read -r folder; do
    [ -L "$folder" ] || rmdir -- "$folder" 2>/dev/null
  done
  for path in "${!unchanged[@]}"; do
    [ ! -e "$path" ] || printf 'problem could not remove %s\n' "$path"
  done
fi
echo end
