#!/usr/bin/env bash
# Queries what a job needs on the workload side. It runs before every job: where nothing is wrong, it
# starts few programs. Arguments: base, python, a module that it must have, script, mpirun ("" for
# none of them), ports in capital hexadecimal digits joined by `|`, a Python program that prints
# versions, the port of our sshd, paths that must be readable.
# shellcheck source=templates/scripts/sections.sh
. sections.sh
# shellcheck source=templates/scripts/processes.sh
. processes.sh
base=$1 python=$2 module=$3 script=$4 mpirun=$5 ports=$6 versions=$7 sshd=$8
shift 8
lacks=
lack() { lacks+="$1"$'\n'; }
if [ -n "$mpirun" ]; then
  for program in "$mpirun" "${mpirun%/*}/orted"; do
    [ -x "$program" ] || lack "no program $program; install Open MPI or run setup"
  done
fi
packages() { # runs in a process of its own
  set -- "$base" "$python" "$versions" "$module" "$script"
  # the inventory may set variables of any name
  [ ! -r "$1/env/node.env" ] || . "$1/env/node.env" >/dev/null 2>&1
  command -v -- "$2" >/dev/null || exit 127
  [ -n "$3" ] || exit 0  # Python takes longer to start than all the rest
  exec "$2" -c "$3" "$4" "$5"
}
both_of packages
if [ "$code" = 127 ]; then
  lack "no program $python; install it or state another as code.python in the inventory"
fi
section lacks 0 "$lacks"
opening=
if [ -z "$script" ]; then section opening 0 ''
elif [ ! -f "$script" ] || [ ! -r "$script" ]; then section opening 127 "there is no readable $script"
else
  IFS= read -r -n 80 opening <"$script"
  case $opening in '#!'*) ;; *) opening= ;; esac
  section opening 0 "$opening"
fi
section packages "$code" "$output"
# A path on a file server that does not answer would block everything.
out=
for path; do
  # shellcheck disable=SC2016 # the inner bash expands it
  timeout -k 1 5 bash -c '[ -e "$1" ] || exit 3
    [ -r "$1" ] && { [ ! -d "$1" ] || [ -x "$1" ]; } || exit 4' - "$path" 2>/dev/null
  case $? in 0) ;; 3) out+="absent $path"$'\n' ;; 4) out+="unreadable $path"$'\n' ;;
    *) out+="silent $path"$'\n' ;; esac
done
section data 0 "$out"

out=''; ids=' '
while read -r pid id; do
  words_of "$pid"
  out+="process $pid $id $words"$'\n'
  case $ids in *" $id "*) ;; *) ids+="$id " ;; esac
done < <(job_processes)
# A launcher runs where its job is still open, even if its ranks run on other nodes.
for open in "${base%/*}"/*/jobs/*/open; do
  id=${open%/open}; id=${id##*/}
  [ "$id" = '*' ] || case $ids in *" $id "*) ;; *) ids+="$id " ;; esac
done
for id in $ids; do
  for events in "${base%/*}"/*/jobs/"$id"/events; do
    [ -r "$events" ] || continue
    state=
    while read -r who _ key pid _ start; do
      case "$who $key" in
        'launcher pid' | 'supervisor pid')
          [ "$state" = runs ] || state=gone
          ! runs "$pid" "$start" || state=runs ;;
        rank*) break ;;
      esac
    done <"$events"
    out+="folder ${state:-none} $id ${events%/events}"$'\n'
  done
done
section jobs 0 "$out"

# ss searches all processes, so it runs only if one of the ports is taken.
pid=; { read -r pid _; } 2>/dev/null <"$base/sshd/started"
if [ -z "$pid" ] || [ ! -e "/proc/$pid" ]; then
  pid=; [ -z "$sshd" ] || ports+="${ports:+|}$sshd"
fi
section sshd 0 "$pid"
if [ -n "$ports" ] && grep -qsE ":($ports) [0-9A-F]+:0000 0A " /proc/net/tcp /proc/net/tcp6
then query listeners ss -Hltnp
else section listeners 0 ''
fi
query disk df -B1 --output=avail,itotal,iavail,target -- "$base"
section end 0 ''
