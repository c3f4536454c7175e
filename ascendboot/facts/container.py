"""The question to the host side which engine knows a node's container, and in what state."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ascendboot.errors import ToolError
from ascendboot.facts.api import ENDED_BY_TIMEOUT, Fact, part_of, sections_of, value_of
from ascendboot.facts.scripts import COMMON
from ascendboot.model.container import Inside, is_absent
from ascendboot.parse import system
from ascendboot.parse.container import FORMAT, RUNNING, Engines, parse_inspect, parse_names
from ascendboot.parse.reading import ToolMissingError
from ascendboot.transport.api import HANGS, Command, Effect

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ascendboot.facts.api import Answer
    from ascendboot.model.cluster import Engine, Node
    from ascendboot.parse.container import Container
    from ascendboot.parse.sections import Section
    from ascendboot.transport.api import Result

_SCRIPT: Final = "the script that looks for the container"
_LIMIT_S: Final = 20

ENGINES: Final[Mapping[Engine, tuple[str, ...]]] = {
    "auto": ("docker", "podman"),
    "docker": ("docker",),
    "podman": ("podman",),
}
"""Programs to ask, in this order, by what the inventory says."""

PROGRAMS: Final = {
    "coreutils": (
        *("base64", "cat", "chmod", "cut", "date", "df", "head", "id", "mkdir", "mktemp", "mv"),
        *("readlink", "rm", "seq", "sha256sum", "sleep", "sort", "stat", "tail", "timeout", "tr"),
        "uname",
    ),
    "findutils": ("find", "xargs"),
    "grep": ("grep",),
    "util-linux": ("flock", "setsid"),
}
"""What our own scripts need where ranks run, by the package of most systems."""

_TRY: Final = r"""
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
for program; do type -P -- "$program" >/dev/null || echo "lacks $program"; done
while read -r key value; do
  [ "$key" != CapEff: ] || echo "may $value $EUID"
done </proc/self/status
"""

CONTAINER: Final = (
    COMMON
    + rf"""
format=$1 name=$2 try=$3 programs=$4; shift 4
limit='timeout -k 1 {_LIMIT_S}'
"""
    + r"""
for engine; do
  locate "$engine" "/usr/local/bin/$engine" "/usr/bin/$engine" ||
    { section "$engine" 127 "$engine is not on PATH"; continue; }
  section "$engine" 0 "$found"
  if out=$(stdout_of $limit "$found" inspect --type container --format "$format" "$name"); then
    section "$engine/inspect" 0 "$out"
    case $out in *' running '* | *' running')
      ask_both "$engine/bash" $limit "$found" exec -e BASH_ENV= "$name" \
        bash -c "$try" - $programs ;;
    esac
    break
  fi
  ask_both "$engine/inspect" $limit "$found" inspect --type container --format "$format" "$name"
  ask "$engine/names" $limit "$found" ps -a --format '{{.Names}}'
done
section end 0 ''
"""
)
"""Arguments: a format for `inspect`, the name of the container, what is run in it, with which
words, the engines to ask."""


_OF_SSHD: Final = sum(1 << number for number in (6, 7, 18))
"""CAP_SETGID, CAP_SETUID and CAP_SYS_CHROOT: without one of them an sshd of root lets nobody in."""


def container_question(node: Node) -> dict[str, Fact[Engines]]:
    """The question about the node's container, if it has one, under the name of its fact."""
    if node.container is None:
        return {}
    engines = ENGINES[node.engine]
    words = " ".join(name for names in PROGRAMS.values() for name in names)
    command = Command(
        argv=("bash", "-c", CONTAINER, "ascendboot", FORMAT, node.container, _TRY, words, *engines),
        purpose=f"look for the container {node.container}",
        effect=Effect.READ,
        timeout_s=5.0 * _LIMIT_S,
    )
    return {"container": Fact("container", command, _parse)}


def way_into(node: Node, answer: Answer[Engines]) -> Inside | None:
    """The way into the node's container; None where nothing can be run in it."""
    engines = value_of(answer)
    container = engines.container if engines else None
    if node.container is None or container is None or not container.is_ready:
        return None
    return Inside(container.engine, node.container)


def _parse(result: Result) -> Engines:
    sections = sections_of(result, _SCRIPT)
    names: set[str] = set()
    refused: dict[str, str] = {}
    known = [engine for engine in ENGINES["auto"] if engine in sections]
    for engine in known:
        if sections[engine].exit_code:
            continue
        path = system.parse_path(part_of(sections, engine, _SCRIPT), f"path of {engine}")
        said = sections[f"{engine}/inspect"]
        if said.exit_code == 0:
            return Engines(container=_container(path, said.text, sections.get(f"{engine}/bash")))
        if not is_absent(said.text):
            refused[path] = _words(said)
        elif sections[f"{engine}/names"].exit_code == 0:
            names.update(parse_names(sections[f"{engine}/names"].text))
    if all(sections[engine].exit_code for engine in known):
        raise ToolMissingError(f"there is no {' and no '.join(known)} on the host side")
    return Engines(names=tuple(sorted(names)), refused=refused)


def _container(path: str, said: str, tried: Section | None) -> Container:
    found = parse_inspect(said, path)
    if found.status == RUNNING and tried is None:
        raise ToolError("nothing was run in it")
    if tried is None:
        return found
    if tried.exit_code:
        return replace(found, obstacle=_words(tried))
    lines = [line.split() for line in tried.text.splitlines()]
    return replace(
        found,
        lacks=tuple(words[1] for words in lines if words[:1] == ["lacks"]),
        lacks_capabilities=any(
            words[::2] == ["may", "0"] and ~int(words[1], 16) & _OF_SSHD for words in lines
        ),
    )


def _words(said: Section) -> str:
    """What an engine said when it failed, on one line."""
    words = " ".join(said.text.split())
    if said.exit_code in ENDED_BY_TIMEOUT and not words:
        return f"no answer within {_LIMIT_S} s; {HANGS}"
    return words or f"it ended with code {said.exit_code} and said nothing"
