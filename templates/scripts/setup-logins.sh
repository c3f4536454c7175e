#!/usr/bin/env bash
# Logs in from the primary to every node and runs `probe` there. Standard input has a line per node:
# its name, its address, and the names of the variables that it alone has. Prints a line per node,
# whatever happens there: name, exit code, standard output and standard error in base64.
# mpirun itself logs in to the other nodes alone: what it sends is put around the probe there.
: "${primary:?}" "${limit:?}" "${config:?}" "${probe:?}" "${mpirun_before=}" "${mpirun_after=}"
one() {
  local before=$mpirun_before after=$mpirun_after
  [ "$1" != "$primary" ] || before='' after=''
  # At the level of our ssh_config ssh does not tell that it finds no host key of the wanted kind.
  timeout -k 2 "$limit" ssh -F "$config" -o LogLevel=INFO "$2" \
    "$before" "$probe" "${@:3}" "$after" </dev/null >"$t/$1.out" 2>"$t/$1.err"
  printf '%s %s %s %s\n' "$1" "$?" "$(head -c 1200 "$t/$1.out" | base64 -w0)" \
    "$(tail -c 4096 "$t/$1.err" | base64 -w0)"
}
t=$(mktemp -d) || exit 1
trap 'rm -rf -- "$t"' EXIT
export t primary limit config probe mpirun_before mpirun_after; export -f one
xargs -P 32 -L 1 bash -c 'one "$@"' _
