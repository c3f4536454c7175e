"""`exec`, `shell`, `copy`, `fetch`: run commands on nodes, and bring files there and back."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import IO, TypeVar, cast

from invoke.exceptions import Exit

from ascendboot.checks.finding import grouped
from ascendboot.cli.common import duration
from ascendboot.cli.session import Session
from ascendboot.cli.verbs import Call, cluster_verb, verb
from ascendboot.errors import (
    CommandError,
    InterruptedRunError,
    NodeError,
    UnreachableError,
    UsageError,
    excerpt,
)
from ascendboot.facts.query import ENDED_BY_TIMEOUT
from ascendboot.model.cluster import Node
from ascendboot.model.names import counted, fold
from ascendboot.readiness.ready import script_arguments
from ascendboot.state import State
from ascendboot.templates import script
from ascendboot.transport.api import Command, Effect, Result, amount, write_script
from ascendboot.transport.connection import lost
from ascendboot.transport.login_session import Pipe, SshTransport
from ascendboot.transport.pool import results_and_errors

R = TypeVar("R")
_DAY_S = 86400
_PIECE = 1 << 20
_BETWEEN_FILES = 1 << 20
"""How many bytes of a tar may stand between two files: tarfile keeps them all."""
_DEPTH = 256
_SPARE, _FEW = 1 << 30, 1 << 26
"""How much of the disk stays free, once so many bytes were fetched."""
_LINKS = 100_000
_MODES = 0o755
"""Which bits of a mode a node decides: others here may change nothing."""
_TAR_ERRORS = (tarfile.TarError, OSError, ValueError, LookupError, ArithmeticError, RecursionError)
"""What tarfile raises if a tar is none."""
_NODES_HELP = "Only these nodes, as atlas-[1-4] or @group. Default: all"
_HOST_HELP = "On the server itself, also if the inventory states a container"


@cluster_verb(
    help={
        "nodes": _NODES_HELP,
        "host": _HOST_HELP,
        "timeout": "End the command after this time on a node (90s, 10m). Default: 60s",
    }
)
def exec(call: Call, *, nodes: str | None = None, host: bool = False, timeout: str = "60s") -> None:  # noqa: A001 - the word of docker and kubectl
    """Run a command on all nodes, or on some.

    It runs where ranks run: in the container, if the inventory states one. It
    has no terminal, no input and no shell. Nodes with equal output share it.

    Examples:
      invoke exec --host -- npu-smi info
      invoke exec --nodes atlas-[2-4] -- cat /etc/os-release
      invoke exec -- bash -c 'df -h / | tail -1'

    Exit codes: 0 done, otherwise the highest of all nodes, 2 wrong usage, 4 a
    node is unreachable, 124 --timeout is over, 130 interrupted.
    """
    argv = script_arguments(sys.argv)
    if not argv:
        raise UsageError("exec: no command; put it after --: exec -- npu-smi info")
    limit_s = duration("--timeout", timeout)
    if not 1 <= limit_s <= _DAY_S:
        raise UsageError(f"exec: --timeout: {timeout} is not from 1s to 1d")
    command = Command(
        argv=argv,
        purpose=f"run {argv[0]}",
        effect=Effect.WRITE,
        timeout_s=limit_s,
        expect=frozenset(range(256)),
    )
    cluster = call.cluster()
    chosen = cluster.chosen(nodes)
    with call.session("exec", cluster, reads=True) as session:
        results, errors = _on_each(
            session, chosen, lambda _node, side: _whole(side.run(command)), host=host
        )
    answers = {
        name: (r.exit_code, r.text, r.stderr.decode(errors="replace"), "")
        for name, r in results.items()
    }
    answers |= {name: (error.exit_code, "", "", error.message) for name, error in errors.items()}
    alike = grouped((answers[node.name], node.name) for node in chosen)
    for (code, out, err, problem), names in sorted(alike.items(), key=lambda item: len(item[1])):
        if problem:
            call.screen.error(f"{fold(names)}: {problem}")
            continue
        call.screen.say(f"{fold(names)}{f': exit code {code}' if code else ''}", "bold")
        for line in (*out.splitlines(), *err.splitlines()):
            call.screen.say(f"  {line}")
    late = [
        n for n, r in results.items() if r.exit_code in ENDED_BY_TIMEOUT and r.duration_s >= limit_s
    ]
    if late:
        words = f"no end after {timeout} (--timeout); its processes were ended"
        call.screen.error(f"{fold(late)}: {words}")
    is_lost = any(isinstance(error, UnreachableError) for error in errors.values())
    code = UnreachableError.exit_code if is_lost else max(code for code, *_ in alike)
    rows = [
        {"node": n, "exit_code": c, "stdout": out, "stderr": err, "problem": str(errors.get(n, ""))}
        for n, (c, out, err, _) in answers.items()
    ]
    call.end(code, {"exit_code": code, "nodes": rows})


def _whole(result: Result) -> Result:
    """Return the result of a command; CommandError if it printed too much."""
    if result.is_cut:
        most = f"printed more than {amount(result.command.most_bytes)}, the most that exec shows"
        remedy = "write the output into a file on the node, then fetch it"
        raise CommandError(result.node, f"{result.command.argv[0]} {most}; {remedy}")
    return result


def _on_each(
    session: Session, nodes: Sequence[Node], work: Callable[[Node, SshTransport], R], *, host: bool
) -> tuple[dict[str, R], dict[str, NodeError]]:
    """Connect to nodes, on the side where ranks run or on the server; results and errors."""
    done: list[str] = []

    def noted(node: Node) -> R:
        result = work(node, cast("SshTransport", sides[node.name]))
        done.append(node.name)
        return result

    try:
        sides, errors = session.connect_hosts(nodes) if host else session.connect(nodes)
        reached = [node for node in nodes if node.name in sides]
        results, failed = results_and_errors(reached, noted, forks=session.forks)
    except KeyboardInterrupt as error:
        left = [node.name for node in nodes if node.name not in done]
        parts = (("done on", done), ("not done, or not known, on", left))
        words = "; ".join(f"{what} {fold(names)}" for what, names in parts if names)
        raise InterruptedRunError(f"Stopped: {words}.") from error
    return results, {**errors, **failed}


@verb(
    shared=("inventory",),
    positional=["node"],
    help={
        "node": "The node, for example atlas-1",
        "host": _HOST_HELP,
        "container": "In the container; refused if the inventory states none",
    },
)
def shell(call: Call, *, node: str, host: bool = False, container: bool = False) -> None:
    """Open an interactive shell on a node, where its ranks run.

    In the container if the inventory states one, otherwise on the server.

    Examples:
      invoke shell atlas-1
      invoke shell atlas-1 --host  on the server, beside the container

    Exit codes: that of the shell, such as 0; 2 wrong usage, or there is no
    terminal, 4 the node is unreachable.
    """
    cluster = call.cluster()
    [chosen, *more] = cluster.chosen(node, "shell")
    if more:
        raise UsageError(f"shell: {node} is {len(more) + 1} nodes; name one, or use exec")
    if container and (host or chosen.container is None):
        seen = "--host is set, too" if host else f"{cluster.source} states none for {chosen.name}"
        raise UsageError(f"shell: --container: {seen}; leave --container out")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError(
            f"shell: there is no terminal; run commands with: exec --nodes {chosen.name} -- COMMAND"
        )
    with call.session("shell", cluster, reads=True) as session:
        ended, errors = _on_each(session, [chosen], lambda _node, side: side, host=host)
        for error in errors.values():
            raise error
        code = ended[chosen.name].terminal()
    if code:
        raise Exit(code=code)


@cluster_verb(
    positional=["source", "dest"],
    help={
        "source": "A file or folder of the control machine",
        "dest": "An absolute path on the nodes; in a folder, or with / at its end, the name stays",
        "nodes": _NODES_HELP,
        "host": _HOST_HELP,
    },
)
def copy(
    call: Call, *, source: str, dest: str, nodes: str | None = None, host: bool = False
) -> None:
    """Copy a file or folder to all nodes, or to some.

    Files appear at once and keep their modes; they belong to the user of the
    nodes. Files of a folder that is there already are replaced, others stay.
    The control folder, and folders with the keys of a CA, are never copied.

    Examples:
      invoke copy tokenizer.json /data/
      invoke copy weights/ /data/weights --nodes @rack2

    Exit codes: 0 done, 1 a node failed, 2 wrong usage, 4 a node is unreachable,
    130 interrupted.
    """
    _check_path("copy: DEST", dest)
    path, cluster = Path(source), call.cluster()
    if not path.exists():
        raise UsageError(f"copy: {path}: there is no such file or folder here; correct the path")
    whole, state = path.resolve(), call.state
    if any(map(state.keeps, (whole, *whole.parents))):
        raise UsageError(
            f"copy: {path}: it is of the control folder or holds the cluster's keys, which no "
            "node may have"
        )
    paths = list(_below(whole, state))
    sizes = [each.stat().st_size for each in paths if each.is_file() and not each.is_symlink()]
    chosen = cluster.chosen(nodes)
    name, moved = Path(os.path.abspath(path)).name, _Moved(call, sum(sizes) * len(chosen))  # noqa: PTH100 - resolve() follows the link
    purpose = f"copy {source} to {dest}"
    command = write_script(script("copy-receive.sh"), dest, name, purpose=purpose)
    with call.session("copy", cluster, reads=True) as session:
        places, errors = _on_each(
            *(session, chosen, lambda _node, side: _send(side, command, paths, sum(sizes), moved)),
            host=host,
        )
    what = f"{counted(len(sizes), 'file')}, {_size(sum(sizes))}"
    _end(call, chosen, {n: (place, f"{place}: {what}") for n, place in places.items()}, errors)


@cluster_verb(
    positional=["source"],
    bare="folder",
    help={
        "source": "An absolute path of a file or folder on the nodes",
        "folder": "Where each node gets a folder on the control machine. Default: here",
        "nodes": _NODES_HELP,
        "host": _HOST_HELP,
        "force": "Replace what was fetched before",
    },
)
def fetch(
    call: Call,
    *,
    source: str,
    folder: str = ".",
    nodes: str | None = None,
    host: bool = False,
    force: bool = False,
) -> None:
    """Fetch a file or folder from all nodes, or from some, into FOLDER/NODE/.

    Links are kept if they lead nowhere else. Devices and sockets are left out.
    It stops before the disk here is full: 1 GiB stays free.

    Examples:
      invoke fetch /var/log/dmesg --host
      invoke fetch /data/checkpoints results --nodes atlas-1

    Exit codes: 0 done, 1 a node failed, 2 wrong usage, 4 a node is unreachable,
    130 interrupted.
    """
    _check_path("fetch: SOURCE", source)
    path, cluster = PurePosixPath(source), call.cluster()
    if path.parts[1] in ("proc", "sys"):
        remedy = f"use exec -- cat {source}"
        raise UsageError(f"fetch: {source}: files of /proc and /sys have no true size; {remedy}")
    moved, chosen = _Moved(call, keeps_free=Path(folder)), cluster.chosen(nodes)
    places = {node.name: Path(folder, node.name, path.name) for node in chosen}
    there = [place for place in places.values() if os.path.lexists(place)]
    if there and not force:
        raise UsageError(f"fetch: {there[0]} exists; use --force to replace it, or another FOLDER")
    made = [each for each in (Path(folder), *Path(folder).parents) if not each.exists()]
    for place in places.values():
        place.parent.mkdir(parents=True, exist_ok=True)
    command = Command(
        argv=("tar", "--hard-dereference", "-cf-", "-C", str(path.parent), "--", path.name),
        purpose=f"fetch {source}",
        effect=Effect.READ,
    )

    def receive(node: Node, side: SshTransport) -> tuple[str, str]:
        place = places[node.name]
        words = _receive(side, command, place, Path(part, node.name), moved)
        return str(place), f"{Path(folder, 'NODE', path.name)}: {words}"

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, lambda number, _frame: sys.exit(128 + number))  # as of a shell
    # Here, because Ctrl-C ends the threads of the nodes where they are.
    halves = tempfile.TemporaryDirectory(
        prefix=".ascendboot-", dir=folder, ignore_cleanup_errors=True
    )
    with (
        _removed_if_empty(made),
        halves as part,
        put_back(Path(part), places),
        call.session("fetch", cluster, reads=True) as session,
    ):
        found, errors = _on_each(session, chosen, receive, host=host)
    _end(call, chosen, found, errors)


@contextmanager
def put_back(part: Path, places: Mapping[str, Path]) -> Iterator[None]:
    """At the end, put back what made room for something that did not come; drop empty folders."""
    try:
        yield
    finally:
        for node, place in places.items():
            if os.path.lexists(before := part / f".{node}") and not os.path.lexists(place):
                before.rename(place)
            with suppress(OSError):  # it is not empty
                place.parent.rmdir()


@contextmanager
def _removed_if_empty(folders: Sequence[Path]) -> Iterator[None]:
    """At the end, remove folders up to the first that is not empty."""
    try:
        yield
    finally:
        with suppress(OSError):
            for folder in folders:
                folder.rmdir()


def _check_path(what: str, path: str) -> None:
    if not path.startswith("/"):
        raise UsageError(f'{what}: "{path}" is not an absolute path of a file or folder')
    if PurePosixPath(path).name == "":
        raise UsageError(f'{what}: "{path}" is the whole disk: state a file or folder in it')
    if PurePosixPath(path).name == "..":
        raise UsageError(f'{what}: "{path}" ends with ..: state the name of the folder')


def _end(
    call: Call,
    nodes: Sequence[Node],
    found: Mapping[str, tuple[str, str]],
    errors: Mapping[str, NodeError],
) -> None:
    """Show path and words of each node, equal words once, and the errors; end the verb."""
    call.screen.rest()
    for words, names in grouped((words, name) for name, (_, words) in found.items()).items():
        call.screen.say(f"{fold(names)}  {words}")
    for message, names in grouped((e.message, name) for name, e in errors.items()).items():
        call.screen.error(f"{fold(names)}: {message}")
    code = max((error.exit_code for error in errors.values()), default=0)
    rows = [
        {
            "node": node.name,
            "path": found[node.name][0] if node.name in found else "",
            "problem": str(errors.get(node.name, "")),
        }
        for node in nodes
    ]
    call.end(code, {"exit_code": code, "nodes": rows})


def _size(size: int) -> str:
    return amount(size) if size >= 1 << 10 else counted(size, "byte")


class _Moved:
    """Counts the bytes of all nodes, and shows them at a terminal each second.

    With `keeps_free` they are written into that folder, and ValueError means that it gets full.
    """

    def __init__(self, call: Call, total: int = 0, *, keeps_free: Path | None = None) -> None:
        self._call, self._lock, self._into = call, threading.Lock(), keeps_free
        self._of, self._bytes, self._due = f" of {_size(total)}" if total else "", 0, 0.0

    def __call__(self, more: int) -> None:
        if not more:  # the end: nothing comes that needs room
            return
        with self._lock:
            self._bytes += more
            if self._into is not None and self._bytes > _FEW:
                free = shutil.disk_usage(self._into).free
                if free < _SPARE:
                    raise ValueError(f"only {_size(free)} are free in {self._into}; make room")
            if time.monotonic() >= self._due:
                self._due = time.monotonic() + 1
                self._call.screen.working(f"{_size(self._bytes)}{self._of}")


def _below(path: Path, state: State) -> Iterator[Path]:
    """A file or folder, and all below it that nodes may have."""
    yield path
    for each in sorted(path.iterdir()) if path.is_dir() and not path.is_symlink() else ():
        if not state.keeps(each):
            yield from _below(each, state)


def _send(
    side: SshTransport, command: Command, paths: Sequence[Path], size: int, moved: _Moved
) -> str:
    """Send a file, or a folder and all below it, to a node as a tar; returns its path there."""
    with side.pipe(command, moved) as pipe:
        try:
            with tarfile.open(mode="w|", fileobj=cast("IO[bytes]", pipe), bufsize=_PIECE) as tar:
                for path in paths:
                    tar.add(path, Path("it", path.relative_to(paths[0])), recursive=False)
                tar.addfile(tarfile.TarInfo("whole"))  # without it, half a tar is a tar
        except BrokenPipeError:
            pass  # the node has the reason
        except OSError as error:
            why = f"{error.filename or paths[0]}: {error.strerror or error}"
            raise CommandError(side.node, f"could not {command.purpose}: {why}") from error
        return _ended(side.node, command, pipe, needed=size)


def _receive(
    side: SshTransport, command: Command, place: Path, part: Path, moved: Callable[[int], None]
) -> str:
    """Fetch a file or folder as a tar, or keep what was there before; returns words about it."""
    part.mkdir()
    with side.pipe(command, moved) as pipe:
        try:
            words = unpack(cast("IO[bytes]", pipe), place.name, part)
            _ended(side.node, command, pipe, also=_CHANGED)
            if not Path(part, place.name).exists():
                raise ValueError("the node sent nothing")
            if os.path.lexists(place):
                place.rename(part.with_name(f".{side.node}"))
            Path(part, place.name).rename(place)
        except _TAR_ERRORS as error:
            if pipe.is_over:
                _ended(side.node, command, pipe)  # it may know more
            raise CommandError(side.node, f"could not {command.purpose}: {error}") from error
    return words


_FULL = ("No space left on device", "Wrote only ")
"""What programs, and GNU tar in the middle of a block, say of a full disk."""
_SHRANK = "; padding with zeros"
"""What GNU tar says of a file that has less content than its size, or became shorter."""
_CHANGED = 1
"""How GNU tar exits if a file has changed while it was read."""


def _ended(node: str, command: Command, pipe: Pipe, *, also: int = 0, needed: int = 0) -> str:
    """Wait for the end of a command; returns the rest of its output.

    `needed`: how many bytes its disk must have room for.
    """
    code, output, errors = pipe.ended()
    if code < 0:
        raise lost(node, command.purpose, "the node sent no exit code")
    if code not in (0, also) or _SHRANK in errors:
        said = [line for line in errors.splitlines() if "xiting " not in line]  # as tar does last
        why = excerpt(said[-1]) if said else f"it exited {code}"
        if any(words in errors for words in _FULL):
            why = f"no space left on device, {_size(needed)} needed"
        raise CommandError(node, f"could not {command.purpose}: {why}")
    return output.decode(errors="replace")


class _Bounded:
    """What a node sends, of which `left` bytes may follow."""

    def __init__(self, source: IO[bytes]) -> None:
        self._source, self.left = source, _BETWEEN_FILES

    def read(self, size: int) -> bytes:
        data = self._source.read(size)
        self.left -= len(data)
        if self.left < 0:
            raise ValueError(f"the node sent more than {amount(_BETWEEN_FILES)} between two files")
        return data


def unpack(source: IO[bytes], name: str, into: Path) -> str:
    """Unpack a tar with the file or folder `name` into an empty folder; returns words about it.

    Nodes are not trusted: names stay below the folder, links are made last and lead nowhere else.
    One of _TAR_ERRORS if it is no such tar, or there is no room for it.
    """
    files, size, left_out, links = 0, 0, 0, list[tuple[Path, str]]()
    bounded = _Bounded(source)
    with tarfile.open(mode="r|", fileobj=cast("IO[bytes]", bounded)) as tar:
        for member in tar:
            tar.members = []  # type: ignore[attr-defined]  # otherwise it keeps them all
            tar.pax_headers.clear()  # type: ignore[attr-defined]
            bounded.left = _BETWEEN_FILES
            parts, target = PurePosixPath(member.name).parts, PurePosixPath(member.linkname)
            if parts[:1] != (name,) or ".." in parts:
                raise ValueError(f"the node sent {member.name!a}, which is not of {name}")
            if len(parts) > _DEPTH:
                raise ValueError(f"the node sent more than {_DEPTH} folders in each other")
            path = into.joinpath(*parts)
            path.parent.mkdir(parents=True, exist_ok=True)
            if member.isdir():
                path.mkdir(exist_ok=True)
                path.chmod(member.mode & _MODES | 0o700)
            elif member.isreg() and not member.issparse():
                bounded.left += member.size
                with path.open("xb") as file:
                    shutil.copyfileobj(cast("IO[bytes]", tar.extractfile(member)), file, _PIECE)
                path.chmod(member.mode & _MODES)
                files, size = files + 1, size + member.size
            elif len(parts) == 1:
                leads = f"leads to {member.linkname!a}; fetch that"
                what = leads if member.linkname else "is a device or pipe"
                raise ValueError(f"it is no file or folder, but {what}")
            elif (
                member.issym()
                and not target.is_absolute()
                and ".." not in target.parts
                and len(links) < _LINKS
            ):
                links.append((path, member.linkname))
            else:
                left_out += 1
    for path, to in links:
        path.symlink_to(to)
    words = f"{counted(files, 'file')}, {_size(size)}"
    return f"{words}; left out: {left_out} links or devices" if left_out else words
