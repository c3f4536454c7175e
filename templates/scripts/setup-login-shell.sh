#!/usr/bin/env bash
# Sets what mpirun puts before its daemon and behind it: `mpirun_before` and `mpirun_after`.
# mpirun takes the login shell of its own user for that of every node, and an unknown one for bash.
# `posix` and `csh` set PATH and libraries in these languages.
: "${posix:?}" "${csh:?}"
export mpirun_before='' mpirun_after=''
shell=$(getent passwd "$EUID"); shell=${shell##*:}
case ${shell##*/} in *sh*) ;; *) shell=${SHELL-} ;; esac
case ${shell##*/} in
  *bash* | *zsh*) mpirun_before=$posix ;;
  *csh*) mpirun_before=$csh ;;
  *sh*) mpirun_before="( test ! -r ./.profile || . ./.profile; $posix" mpirun_after=')' ;;
  *) mpirun_before=$posix ;;
esac
