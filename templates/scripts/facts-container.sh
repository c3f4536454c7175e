#!/usr/bin/env bash
# Queries the container engines about one container.
# Arguments: a format for `inspect`, the container, a script to run in it and its arguments (split),
# the engines to try in order. `limit_s`: seconds for each call.
# shellcheck source=templates/scripts/sections.sh
. sections.sh
: "${limit_s:?}"
format=$1 name=$2 try=$3 programs=$4; shift 4
limit=(timeout -k 1 "$limit_s")

for engine; do
  locate "$engine" "/usr/local/bin/$engine" "/usr/bin/$engine" ||
    { section "$engine" 127 "$engine is not on PATH"; continue; }
  section "$engine" 0 "$found"
  stdout_of "${limit[@]}" "$found" inspect --type container --format "$format" "$name"
  if [ "$code" = 0 ]; then
    section "$engine/inspect" 0 "$output"
    case ${output%%$'\n'*} in *' running '* | *' running')
      # shellcheck disable=SC2086 # names of programs
      query_both "$engine/bash" "${limit[@]}" "$found" exec -e BASH_ENV= "$name" \
        bash -c "$try" - $programs ;;
    esac
    break
  fi
  query_both "$engine/inspect" "${limit[@]}" "$found" inspect --type container --format "$format" "$name"
  query "$engine/names" "${limit[@]}" "$found" ps -a --format '{{.Names}}'
done
section end 0 ''
