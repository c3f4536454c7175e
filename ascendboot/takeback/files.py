"""What `setup` and `train` left on a node, told apart from what is not theirs, and taken back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ascendboot.errors import CommandError, NotUnderstoodError
from ascendboot.facts.own import base_script
from ascendboot.transport.api import Command, Effect

if TYPE_CHECKING:
    from ascendboot.transport.api import Result

_SCRIPT: Final = r"""
shopt -s extglob
declare -A made of_job
loaded= ours=() foreign=() empty=()
is_of_job() {  # job, path in its folder
  local line
  [ -e "jobs/$1/making" ] && return 0  # cut off while it was made ready: nothing ran there
  if [ "$loaded" != "$1" ]; then
    of_job=() loaded=$1
    while IFS= read -r line; do [ -z "$line" ] || of_job[$line]=1; done 2>/dev/null <"jobs/$1/made"
  fi
  [ -n "${of_job[./$2]-}" ] && return 0
  case $2 in +([0-9a-f])/beat | torchelastic/*) return 0 ;; esac
  return 1
}
is_ours() {
  local rest
  case $1 in
    made | lock | trust/cluster_key | trust/.new.??????/*) return 0 ;;
    sshd/@(made|sshd.pid|started|started.new|sshd.log|host_key) | sshd/.new.??????/*) return 0 ;;
    code/@(pushed|links|folders|incoming|stage)) return 0 ;;
    jobs/*/*)
      rest=${1#jobs/}
      is_of_job "${rest%%/*}" "${rest#*/}"
      return ;;
  esac
  [ -n "${made[$1]-}" ] || [ -n "${made[${1%.??????}]-}" ]  # the second: one that was being written
}
is_our_folder() {
  case $1 in
    code | jobs | sshd | trust | env | resources | @(sshd|trust)/.new.??????) return 0 ;;
    jobs/*/*)
      case ${1#jobs/*/} in code | torchelastic | torchelastic/* | +([0-9a-f])) return 0 ;; esac
      return 1 ;;
    jobs/*) return 0 ;;
  esac
  return 1
}
look() {
  local path
  [ -d "$b" ] && cd -- "$b" || return 0
  while IFS= read -r path; do [ -z "$path" ] || made[$path]=1; done 2>/dev/null <made
  while IFS= read -r -d '' path; do
    if [ -d "$path" ] && [ ! -L "$path" ] && is_our_folder "$path"; then empty+=("$path")
    elif [ -f "$path" ] && [ ! -L "$path" ] && is_ours "$path"; then ours+=("$path")
    else foreign+=("$path"); fi
  done < <(find . -mindepth 1 \( ! -type d -o -empty \) -printf '%P\0')
}
# The fields of a process's stat after its name, read at once: it may go between two looks. Zombies
# do not count: the first process of a container may be one that never asks how others ended.
is_alive() {
  local line
  { read -r line <"/proc/$1/stat"; } 2>/dev/null || return 1
  fields=(${line##*) })
  [ "${fields[0]}" != Z ]
}
find_sshd() {
  local start
  { read -r sshd start _ <"$b/sshd/started"; } 2>/dev/null || return 1
  [ -n "$sshd" ] && is_alive "$sshd" && [ "${fields[19]}" = "$start" ]
}
some_sshd_runs() {
  local process
  for process in /proc/[0-9]*; do
    case $(cat "$process/comm" 2>/dev/null) in
      sshd*) ! is_alive "${process#/proc/}" || return 0 ;;
    esac
  done
  return 1
}
take_back() {
  local path folder run_sshd=
  if find_sshd; then
    kill -TERM "$sshd"
    for _ in {1..100}; do find_sshd || break; sleep 0.05; done
    if find_sshd; then echo "problem the sshd with pid $sshd did not end"; return; fi
  fi
  grep -qsx /run/sshd sshd/made && run_sshd=1
  [ "${#ours[@]}" = 0 ] || printf '%s\0' "${ours[@]}" | xargs -0 rm -f --
  {
    for path in "${ours[@]}" "${empty[@]/%//}"; do
      while [ "$path" != "${path%/*}" ]; do path=${path%/*}; printf '%s\n' "$path"; done
    done
  } | sort -ru | while IFS= read -r folder; do rmdir -- "$folder" 2>/dev/null; done
  cd /
  rmdir -- "$b" 2>/dev/null && rmdir -- "${b%/*}" 2>/dev/null
  [ -z "$run_sshd" ] || some_sshd_runs || rmdir /run/sshd
  for path in "${ours[@]}"; do
    [ ! -e "$b/$path" ] || printf 'problem could not remove %q\n' "$b/$path"
  done
}
look
printf 'base %s\nours %s\n' "$b" "${#ours[@]}"
if [ -d "$b" ] && [ "${#ours[@]} ${#empty[@]} ${#foreign[@]}" = '0 0 0' ]; then empty=(.); fi
[ "${#empty[@]}" = 0 ] || echo empty
for path in "${foreign[@]}"; do printf 'foreign %q\n' "$path"; done
if find_sshd; then echo "sshd $sshd"; fi
[ "$mode" != remove ] || [ ! -d "$b" ] || take_back
echo end
"""


@dataclass(frozen=True)
class Leftovers:
    """What of ascendboot was on a node, and what else lies in its folder."""

    base: str
    files: int
    """How many files are ascendboot's."""
    has_empty: bool
    """Whether there are empty folders of its own."""
    foreign: tuple[str, ...]
    """Files in its folder that are not; they are never touched."""
    sshd: int | None
    """Pid of the cluster's own sshd; None: it does not run."""
    problems: tuple[str, ...] = ()
    """What could not be taken back."""

    @property
    def is_nothing(self) -> bool:
        """Whether there is nothing to take back."""
        return not self.files and self.sshd is None and not self.has_empty


def leftovers_question(cluster: str) -> Command:
    """Asks what there is to take back; `parse_leftovers` reads the answer."""
    return _command(cluster, "look", "look for what ascendboot left", Effect.READ)


def removal(cluster: str) -> Command:
    """Ends the cluster's own sshd and removes all files that ascendboot made, and no others."""
    return _command(cluster, "remove", "take back what ascendboot left", Effect.WRITE)


def parse_leftovers(result: Result) -> Leftovers:
    """What was there before, by the answer to either command.

    Raises:
        CommandError: the command failed on the node, or its answer was not understood.
    """
    lines = result.checked().lines
    values: dict[str, list[str]] = {}
    for number, line in enumerate(lines, 1):
        kind, _, rest = line.partition(" ")
        if kind not in {"base", "ours", "empty", "foreign", "sshd", "problem", "end"}:
            problem = NotUnderstoodError("leftovers", number, line, "base, ours, foreign, sshd")
            raise CommandError(result.node, f"could not {result.command.purpose}: {problem}")
        values.setdefault(kind, []).append(rest)
    if lines[-1:] != ("end",):
        raise CommandError(result.node, f"could not {result.command.purpose}: it did not end")
    return Leftovers(
        base=values["base"][0],
        has_empty="empty" in values,
        files=int(values["ours"][0]),
        foreign=tuple(values.get("foreign", ())),
        sshd=int(values["sshd"][0]) if "sshd" in values else None,
        problems=tuple(values.get("problem", ())),
    )


def _command(cluster: str, mode: str, purpose: str, effect: Effect) -> Command:
    head = f"mode={mode}\n{base_script(cluster)}"
    return Command(
        argv=("bash", "-c", head + _SCRIPT),
        purpose=purpose,
        effect=effect,
        timeout_s=60.0,
    )
