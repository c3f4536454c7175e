#!/usr/bin/env bash
# Functions that print answers as sections, read by ascendboot/facts/parsers/base.py.
export LC_ALL=C
most=1048576
# Output that is too long is cut off and replaced by an error.
section() {
  local first
  if [ "${#3}" -gt "$most" ]; then
    first=${3:0:100}; first=${first//[[:cntrl:]]/ }
    set -- "$1" 124 "it printed more than $((most >> 10)) KiB, which began: \"$first\"; run it on\
 the node to see what it prints"
  fi
  printf '@@ %s %s %s\n%s\n' "$1" "$2" "${#3}" "$3"
}
# stdout_of and both_of PROGRAM...: set `output` to what it prints, to stdout or to both streams, and
# `code` to its exit code. What is too long ends the program. No shell but this one is needed: a node
# runs these for each of its devices before every job.
shopt -s lastpipe
stdout_of() { "$@" 2>/dev/null </dev/null | take; code=${PIPESTATUS[0]}; }
both_of() { "$@" 2>&1 </dev/null | take; code=${PIPESTATUS[0]}; }
take() {
  IFS= read -r -N "$((most + 1))" output
  # bash 4.2 takes minutes for `%` in a long text that does not end so
  case $output in *$'\n') output=${output%?} ;; esac
}
# As stdout_of; if the program fails, it runs again as both_of, unless it hung or printed too much.
answer_of() {
  stdout_of "$@"
  case $code in 0 | 124 | 137 | 141) ;; *) both_of "$@" ;; esac
}
query() {
  local name=$1 output code; shift
  type -P -- "$1" >/dev/null || { section "$name" 127 "$1 is not on PATH"; return; }
  answer_of "$@"
  section "$name" "$code" "$output"
}
query_both() {
  local name=$1 output code; shift
  both_of "$@"
  section "$name" "$code" "$output"
}
# content NAME FILE: sets `output`, too
content() {
  local code=127
  [ ! -e "$2" ] || stdout_of head -c "$((most + 1))" -- "$2"
  case $code in
    0) section "$1" 0 "$output" ;;
    127) section "$1" 127 "$2 does not exist" ;;
    *) section "$1" 1 "$2 cannot be read by ${USER:-this user}" ;;
  esac
}
# locate NAME PLACE...: sets `found` to the program on PATH, else in the first place that has one
locate() {
  hash -- "$1" 2>/dev/null
  for found in "${BASH_CMDS[$1]-$1}" "${@:2}"; do
    case $found in */*) [ ! -f "$found" ] || [ ! -x "$found" ] || return 0 ;; esac
  done
  found=; return 1
}
