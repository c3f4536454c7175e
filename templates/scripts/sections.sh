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
stdout_of() { set -o pipefail; "$@" 2>/dev/null </dev/null | head -c "$((most + 1))"; }
both_of() { set -o pipefail; "$@" 2>&1 </dev/null | head -c "$((most + 1))"; }
# Prints stdout alone; if the program fails, it runs again and both streams are printed.
query() {
  local name=$1 out code=0; shift
  type -P -- "$1" >/dev/null || { section "$name" 127 "$1 is not on PATH"; return; }
  out=$(stdout_of "$@") ||
    { code=$?; [ "${#out}" -gt "$most" ] || out=$(both_of "$@"); }
  section "$name" "$code" "$out"
}
query_both() {
  local name=$1 out code=0; shift
  out=$(both_of "$@") || code=$?
  section "$name" "$code" "$out"
}
content() {
  local out
  if [ ! -e "$2" ]; then section "$1" 127 "$2 does not exist"
  elif out=$(head -c "$((most + 1))" -- "$2" 2>/dev/null); then section "$1" 0 "$out"
  else section "$1" 1 "$2 cannot be read by ${USER:-this user}"; fi
}
# locate NAME PLACE...: the program on PATH, else the first place where there is one
locate() {
  found=$(type -P -- "$1") && return
  shift
  for found in "$@"; do [ -x "$found" ] && return; done
  found=; return 1
}
