"""The job container of a node, and the training code on it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

from ascendboot.errors import NotUnderstoodError, ToolError
from ascendboot.facts import query
from ascendboot.facts.parsers import system
from ascendboot.facts.parsers.base import Section, ToolMissingError
from ascendboot.model.cluster import Cluster, ContainerExec, Engine, Node, is_absent
from ascendboot.model.files import ALWAYS_LEFT_OUT, MOST_BYTES, MOST_FILES, CodeTree, Entry
from ascendboot.templates import script
from ascendboot.transport.api import HANGS, Result, read_script
from ascendboot.value import replace

_LIMIT_S: Final = 20

ENGINES: Final[Mapping[Engine, tuple[str, ...]]] = {
    "auto": ("docker", "podman"),
    "docker": ("docker",),
    "podman": ("podman",),
}

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
"""Programs that our scripts need where ranks run, by the package of most systems."""

_OF_SSHD: Final = sum(1 << number for number in (6, 7, 18))
"""CAP_SETGID, CAP_SETUID and CAP_SYS_CHROOT: an sshd of root needs them for any login."""


def container_query(node: Node) -> dict[str, query.Fact[system.Engines]]:
    """The query about the node's container, if it has one, by the name of its fact."""
    if node.container is None:
        return {}
    programs = " ".join(name for names in PROGRAMS.values() for name in names)
    inside = script("facts-container-inside.sh")
    if node.creation is not None:
        inside += script("facts-container-processes.sh")
    command = read_script(
        script("facts-container.sh", limit_s=_LIMIT_S),
        *(system.FORMAT, node.container, inside, programs),
        *ENGINES[node.engine],
        purpose=f"look for the container {node.container}",
        timeout_s=5.0 * _LIMIT_S,
    )
    return {"container": query.of_sections(command, _engines)}


def running_queries() -> dict[str, query.Fact[Mapping[str, str]]]:
    """The queries of each engine for the images of the containers that it runs, by name."""
    text, queries = script("facts-running.sh", limit_s=_LIMIT_S), {}
    for engine in ENGINES["auto"]:
        purpose = f"list the running containers of {engine}"
        command = read_script(text, engine, purpose=purpose, timeout_s=1.5 * _LIMIT_S)
        queries[engine] = query.of_sections(command, _running)
    return queries


def _running(sections: query.Sections) -> Mapping[str, str]:
    lines: list[list[str]] = []
    for reply in sections.values():
        if reply.exit_code:
            raise ToolError(_message(reply))
        lines += filter(None, map(str.split, reply.text.splitlines()))
    return {name.split(",")[0]: "".join(image) for name, *image in sorted(lines)}


def container_in(answer: query.Answer[system.Engines]) -> system.Container | None:
    """The node's container, if an engine knows it."""
    engines = query.value_of(answer)
    return engines.container if engines else None


def container_exec(node: Node, answer: query.Answer[system.Engines]) -> ContainerExec | None:
    """How to run commands in the node's container; None if that is not possible."""
    container = container_in(answer)
    if node.container is None or container is None or not container.is_ready:
        return None
    return ContainerExec(container.engine, node.container)


def is_foreign(cluster: Cluster, node: Node, answer: query.Answer[system.Engines]) -> bool:
    """Whether setup did not create the container that it should: it may not even enter that."""
    found = container_in(answer)
    return node.creation is not None and found is not None and found.cluster != cluster.name


def _engines(sections: query.Sections) -> system.Engines:
    names, paths, refused = set[str](), list[str](), dict[str, str]()
    known = [engine for engine in ENGINES["auto"] if engine in sections]
    for engine in known:
        if sections[engine].exit_code:
            continue
        path = system.parse_path(sections.text(engine), f"path of {engine}")
        reply = sections[f"{engine}/inspect"]
        if reply.exit_code == 0:
            container = _container(path, reply.text, sections.get(f"{engine}/bash"))
            return system.Engines(container=container)
        if not is_absent(reply.text):
            refused[path] = _message(reply)
            continue
        paths.append(path)
        if sections[f"{engine}/names"].exit_code == 0:
            names.update(system.parse_names(sections[f"{engine}/names"].text))
    if all(sections[engine].exit_code for engine in known):
        raise ToolMissingError(f"there is no {' and no '.join(known)} on the host side")
    return system.Engines(names=tuple(sorted(names)), refused=refused, paths=tuple(paths))


def _container(path: str, reply: str, inside: Section | None) -> system.Container:
    found = system.parse_inspect(reply, path)
    if inside is None:
        if found.status == system.RUNNING:
            raise ToolError("nothing was run in it")
        return found
    if inside.exit_code:
        return replace(found, obstacle=_message(inside))
    lines = [line.split() for line in inside.text.splitlines()]
    return replace(
        found,
        processes=tuple(" ".join(words[1:]) for words in lines if words[:1] == ["runs"]),
        lacks=tuple(words[1] for words in lines if words[:1] == ["lacks"]),
        lacks_capabilities=any(
            words[::2] == ["may", "0"] and ~int(words[1], 16) & _OF_SSHD for words in lines
        ),
    )


def _message(reply: Section) -> str:
    """The error message of an engine, on one line, without podman's warnings."""
    lines = [line for line in reply.text.splitlines() if " level=warning " not in line]
    words = " ".join(" ".join(lines).split())
    if reply.exit_code in query.ENDED_BY_TIMEOUT and not words:
        return f"no answer within {_LIMIT_S} s; {HANGS}"
    return words or f"it ended with code {reply.exit_code} and printed nothing"


_TOOL = "the script that looks at the code"
_TIMEOUT_S = 120.0
_MOST_ANSWER = 16 << 20
_MOST_RECORDS = 250_000
"""With so many records the answer takes some 100 MB of memory on the control machine."""
LARGE_BYTES = 32 * 1024**2
"""Larger files are data, such as checkpoints of a job."""
_WITHOUT_FILES: Final[Mapping[str, CodeTree]] = {
    "absent": CodeTree(state="absent"),
    "unreadable": CodeTree(state="unreadable"),
}


TreeMode: TypeAlias = Literal["all", "light", "listed", "names"]
"""All files; of large data files only the size; only some files; also the names of all others."""


def code_queries(cluster: Cluster) -> dict[str, query.Fact[Any]]:
    """The query for all files below the code's path, unless the control machine sends them."""
    if cluster.code_path is None or cluster.code_folder is not None:
        return {}
    mode: TreeMode = "light" if cluster.code_source is None else "all"
    return {"code_tree": tree_query(mode, cluster.code_path, cluster.code_exclude)}


def tree_query(
    mode: TreeMode, path: str, exclude: Sequence[str], paths: Iterable[str] = ()
) -> query.Fact[CodeTree]:
    """Queries the files at `path`; `paths` are the wanted ones of `listed` and `names`."""
    sizes = {"large_bytes": LARGE_BYTES, "most_files": MOST_FILES, "most_bytes": MOST_BYTES}
    command = read_script(
        script("facts-code.sh", **sizes),
        *(mode, path, *ALWAYS_LEFT_OUT, *exclude),
        purpose=f"look at the files of {path}",
        timeout_s=_TIMEOUT_S,
        most_bytes=_MOST_ANSWER,
        stdin="".join(f"{name}\n" for name in paths).encode(),
    )
    return query.Fact(command, _tree)


def _tree(result: Result) -> CodeTree:
    """The files of a tree, in the form that facts-code.sh prints."""
    query.output_of(result)
    if result.stdout.count(b"\0") > _MOST_RECORDS:
        raise ToolError(
            f"there are more than {_MOST_RECORDS} files; leave out those that are no code with "
            "`code.exclude`"
        )
    state, *records = result.stdout.decode(errors="surrogateescape").split("\0")
    if state in _WITHOUT_FILES:
        return _WITHOUT_FILES[state]
    if records[-2:-1] and records[-2].startswith("excess "):
        _, files, size = records[-2].split(" ")
        return CodeTree(excess=(int(files), int(size)))
    if state != "present" or "sums" not in records:
        raise NotUnderstoodError(_TOOL, 1, state, "a state, records and sums")
    at = records.index("sums")
    sums = _sums("\0".join(records[at + 1 :]))
    entries, others = dict[str, Entry](), set[str]()
    rest = iter(records[:at])
    for number, record in enumerate(rest, 1):
        *words, name = record.split(" ", 3)
        name = name.removeprefix("./")
        match words:
            case ["f", mode, size]:
                entries[name] = Entry(sums.get(name, ""), int(mode, 8), size=int(size))
            case ["b", mode, size]:
                entries[name] = Entry(f"{size} bytes", int(mode, 8), size=int(size))
            case ["l", _, _]:
                entries[name] = Entry(target=next(rest, "").split(" ", 3)[-1])
            case ["n", _, _]:
                others.add(name)
            case _:
                expected = "f, b, l or n, mode, size and name"
                raise NotUnderstoodError(_TOOL, number, record, expected)
    ordered = dict(sorted(entries.items()))
    return CodeTree(entries=ordered, others=tuple(sorted(others - {*entries})))


def _sums(text: str) -> dict[str, str]:
    """Maps paths to checksums, as sha256sum prints them, which escapes some names."""
    lines = text.split("\n")
    if lines[-2:] != ["end", ""]:
        raise NotUnderstoodError(_TOOL, len(lines), lines[-1], "end")
    sums = {}
    for line in lines[:-2]:
        sha256, _, name = line.removeprefix("\\").partition("  ")
        if line.startswith("\\"):
            name = name.replace("\\\\", "\0").replace("\\n", "\n").replace("\0", "\\")
        sums[name.removeprefix("./")] = sha256
    return sums
