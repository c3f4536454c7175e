"""The bash and the Python that look at a node before a job; values come as arguments.

All of it runs before every job: where nothing is wrong, few programs are started.
"""

from __future__ import annotations

from typing import Final

from ascendboot.facts.scripts import COMMON, VENDOR_TOOLS
from ascendboot.launch.scripts import JOB_PROCESSES, RUNS

PACKAGES: Final = (
    "torch",
    "torch_npu",
    "tensorflow",
    "tensorflow_cpu",
    "npu_bridge",
    "npu_device",
    "horovod",
    "mindspore",
    "mpi4py",
    "numpy",
)
"""Packages whose version a job depends on, by the names of their distributions."""

# importlib.metadata is not there before Python 3.8 and takes 30 ms where it is; the folders beside
# a package say the same. Nothing is imported: a framework takes seconds.
VERSIONS: Final = f"""
import os, sys
module, script = sys.argv[1:3]
known, seen = {PACKAGES!r}, set()
print("python %d.%d.%d" % sys.version_info[:3])
for folder in sys.path[1:]:
    try:
        entries = sorted(os.listdir(folder))
    except OSError:
        continue
    for entry in entries:
        stem, _, kind = entry.rpartition(".")
        name, _, version = stem.partition("-")
        name = name.replace("-", "_").replace(".", "_").lower()
        if kind in ("dist-info", "egg-info") and name in known and name not in seen and version:
            seen.add(name)
            print(name + " " + version.partition("-")[0])
try:
    lines = open(script, encoding="utf-8", errors="replace").readlines() if script else []
except OSError:
    lines = []
for line in lines:
    words = line.replace(",", " ").split()
    if words[:1] == ["from"]:
        words = words[:2]
    elif words[:1] != ["import"]:
        continue
    for word in words[1:]:
        if word.partition(".")[0] in known:
            print("uses " + word.partition(".")[0])
if module:
    import importlib.util
    if importlib.util.find_spec(module) is None:
        print("lacks " + module)
"""
"""Arguments: a module that must be there, and the script, or "" for none of them."""

WORDS_OF: Final = r"""
words_of() {
  # Where the process ends meanwhile, bash's `read` leaves in `word` what it was.
  local word
  words=
  while word= && [ "${#words}" -lt 120 ] && { IFS= read -r -d '' word || [ -n "$word" ]; }; do
    words+="${words:+ }${word//[$'\n\t']/ }"
  done 2>/dev/null <"/proc/$1/cmdline"
  words=${words:0:120}
}
"""

WORK: Final = (
    COMMON
    + RUNS
    + JOB_PROCESSES
    + WORDS_OF
    + r"""
base=$1 python=$2 module=$3 script=$4 mpirun=$5 ports=$6 versions=$7 sshd=$8
shift 8
lacks=
lack() { lacks+="$1"$'\n'; }
if [ -n "$mpirun" ]; then
  for program in "$mpirun" "${mpirun%/*}/orted"; do
    [ -x "$program" ] || lack "no program $program; install Open MPI or run setup"
  done
fi
packages() (
  set -- "$base" "$python" "$versions" "$module" "$script"
  # the inventory may have variables of any name
  [ ! -r "$1/env/node.env" ] || . "$1/env/node.env" >/dev/null 2>&1
  command -v -- "$2" >/dev/null || exit 127
  [ -n "$3" ] || exit 0  # to be started, it takes longer than all the rest
  exec "$2" -c "$3" "$4" "$5"
)
said=$(both_of packages)
code=$?
if [ "$code" = 127 ]; then
  lack "no program $python; install it or state another as code.python in the inventory"
fi
section lacks 0 "$lacks"
opening=
[ ! -f "$script" ] || { IFS= read -r -n 80 opening; } 2>/dev/null <"$script"
case $opening in '#!'*) ;; *) opening= ;; esac
section opening 0 "$opening"
section packages "$code" "$said"
# What lies on a server that does not answer would hold up everything.
told=
for path; do
  timeout -k 1 5 bash -c '[ -e "$1" ] || exit 3
    [ -r "$1" ] && { [ ! -d "$1" ] || [ -x "$1" ]; } || exit 4' - "$path" 2>/dev/null
  case $? in 0) ;; 3) told+="absent $path"$'\n' ;; 4) told+="unreadable $path"$'\n' ;;
    *) told+="silent $path"$'\n' ;; esac
done
section data 0 "$told"

told= ids=' '
while read -r pid id; do
  words_of "$pid"
  told+="process $pid $id $words"$'\n'
  case $ids in *" $id "*) ;; *) ids+="$id " ;; esac
done < <(job_processes)
# The launcher of a job began where the job is still open, be it that its ranks live elsewhere.
for open in "${base%/*}"/*/jobs/*/open; do
  id=${open%/open}; id=${id##*/}
  [ "$id" = '*' ] || case $ids in *" $id "*) ;; *) ids+="$id " ;; esac
done
for id in $ids; do
  for events in "${base%/*}"/*/jobs/"$id"/events; do
    [ -r "$events" ] || continue
    state=
    while read -r who number key pid word start; do
      case "$who $key" in
        'launcher pid' | 'supervisor pid')
          [ "$state" = runs ] || state=gone
          ! runs "$pid" "$start" || state=runs ;;
        rank*) break ;;
      esac
    done <"$events"
    told+="folder ${state:-none} $id ${events%/events}"$'\n'
  done
done
section jobs 0 "$told"

# Who answers there is only asked when somebody does: ss looks through all processes.
pid=; { read -r pid _; } 2>/dev/null <"$base/sshd/started"
[ -n "$pid" ] && [ -e "/proc/$pid" ] || { pid=; [ -z "$sshd" ] || ports+="${ports:+|}$sshd"; }
section sshd 0 "$pid"
if [ -n "$ports" ] && grep -qsE ":($ports) [0-9A-F]+:0000 0A " /proc/net/tcp /proc/net/tcp6
then ask listeners ss -Hltnp
else section listeners 0 ''
fi
ask disk df -B1 --output=avail,itotal,iavail,target -- "$base"
section end 0 ''
"""
)
"""Arguments: base, python, a module that it must have, script, mpirun ("" for none of them), ports
in capital hexadecimal digits joined by `|`, `VERSIONS`, our sshd's port, paths that must be
readable."""

HOST: Final = (
    COMMON
    + VENDOR_TOOLS
    + JOB_PROCESSES
    + WORDS_OF
    + r"""
left=5 enough=20
# In a table without physical ids the NPUs' own are taken for them while these count up from 0, as
# is the one id that an NPU of 950 has. Else the tool is asked once more: that takes time.
counts_up() {
  local bar id name next=0
  case $1 in *Phy-ID*) return ;; esac
  while read -r bar id name _; do
    case $bar$id in '|' | '|'*[!0-9]* | [!\|]*) continue ;; esac
    case $name in *[!0-9\|]*) [ "$id" = "$next" ] || return 1; next=$((next + 1)) ;; esac
  done <<<"${1%%Process id*}"
}
processes=$1 questions=$2 linked=$3; shift 3
table=
if [ -z "$processes" ]; then :
elif locate npu-smi /usr/local/bin/npu-smi /usr/local/sbin/npu-smi; then
  tell processes merged timeout -k 1 10 "$found" info
  table=$said
  counts_up "$table" || tell mapping '' timeout -k 1 10 "$found" info -m
  told= seen=' '
  while IFS='|' read -r _ _ pid _; do
    pid=${pid//[[:space:]]/}
    case $pid in '' | *[!0-9]*) continue ;; esac
    case $seen in *" $pid "*) continue ;; esac
    seen+="$pid " id=
    [ -e "/proc/$pid" ] || continue
    while IFS= read -r -d '' entry; do
      case $entry in ASCENDBOOT_JOB_ID=*) id=${entry#*=} ;; esac
    done 2>/dev/null <"/proc/$pid/environ"
    is_ours "$pid" || id=
    words_of "$pid"
    told+="$pid ${id:--} $words"$'\n'
  done <<<"${table#*Process id}"
  section holders 0 "$told"
else
  section processes 127 'npu-smi is neither on PATH nor in /usr/local/bin or /usr/local/sbin'
fi
suspects=
if [ "$#" -gt 0 ] && [ -e /etc/hccn.conf ]; then
  content hccn_conf /etc/hccn.conf
  { conf=$'\n'$(</etc/hccn.conf); } 2>/dev/null
  for pair; do
    id=${pair%%=*}
    case $conf in *$'\n'"address_$id="*) ;; *) continue ;; esac
    value=${conf#*$'\n'"address_$id="}; value=${value%%[$'\r\n ']*}
    [ "$value" = "${pair#*=}" ] || suspects+=" $id"
  done
fi
# Inside a super pod devices of A3, whose table says Phy-ID, need neither link nor TLS.
case $table in *Phy-ID*) questions= ;; esac
# The tool takes up to a second for each device: of addresses it is asked only where the file
# already disagrees, and of links before TLS: without a link no job runs.
if [ -z "$suspects$questions" ]; then :
elif locate hccn_tool /usr/local/Ascend/driver/tools/hccn_tool; then
  section hccn_tool 0 "$found"
  for id in $suspects; do tell "$id/ip" merged timeout -k 1 10 "$found" -i "$id" -ip -g; done
  for what in $questions; do
    for id in $linked; do
      tell "$id/$what" merged timeout -k 1 10 "$found" -i "$id" "-$what" -g
    done
  done
else
  section hccn_tool 127 'hccn_tool is neither on PATH nor in /usr/local/Ascend/driver/tools'
fi
section end 0 ''
"""
)
"""Arguments: something where the users of the devices are wanted; of `link` and `tls` what is asked
of the devices whose ids come next; then DEVICE=IP as the rank table has them. How long a busy tool
is waited for is short: the job waits with it."""
