#!/usr/bin/env bash
# Sets what mpirun 4.1 puts before its daemon and behind it when it starts it by ssh, as in its
# orte/mca/plm/rsh/plm_rsh_module.c: `mpirun_before` and `mpirun_after`.
# mpirun takes the login shell of its own user for that of every node, and an unknown one for bash.
# `prefix` is the folder of its installation.
: "${prefix:?}"
posix="PATH=$prefix/bin:\$PATH ; export PATH ; "
csh="set path = ( $prefix/bin \$path ) ; "
for name in LD_LIBRARY_PATH DYLD_LIBRARY_PATH; do
  have=OMPI_have_llp
  [ "$name" = LD_LIBRARY_PATH ] || have=OMPI_have_dllp
  posix+="$name=$prefix/lib:\${$name:-} ; export $name ; "
  csh+="if ( \$?$name == 1 ) set $have ; if ( \$?$name == 0 ) setenv $name $prefix/lib ; "
  csh+="if ( \$?$have == 1 ) setenv $name $prefix/lib:\$$name ; "
done
export mpirun_before='' mpirun_after=''
shell=$(getent passwd "$EUID"); shell=${shell##*:}
case ${shell##*/} in *sh*) ;; *) shell=${SHELL-} ;; esac
case ${shell##*/} in
  *bash* | *zsh*) mpirun_before=$posix ;;
  *csh*) mpirun_before=$csh ;;
  *sh*) mpirun_before="( test ! -r ./.profile || . ./.profile; $posix" mpirun_after=')' ;;
  *) mpirun_before=$posix ;;
esac
