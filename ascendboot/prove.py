"""The live proof: the primary logs in to every node as a launch will, and looks around there."""

from __future__ import annotations

import base64
import shlex
from dataclasses import dataclass
from hashlib import sha256
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from ascendboot.errors import NotUnderstoodError
from ascendboot.transport.api import Command, Effect

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ascendboot.model.cluster import Cluster, Node
    from ascendboot.transport.api import Result

# One line of output per node, whatever happens there: name, exit code, stdout, stderr. What it
# reads of a node: its name and address, and the names of the variables that it alone has.
# At the level of our ssh_config ssh does not say when it finds no host key of the kind it wants.
_PROVE = """\
one() {{
  timeout -k 2 {limit} ssh -F {config} -o LogLevel=INFO "$2" {probe} "${{@:3}}" \\
    </dev/null >"$t/$1.out" 2>"$t/$1.err"
  printf '%s %s %s %s\\n' "$1" "$?" "$(head -c 1200 "$t/$1.out" | base64 -w0)" \
    "$(tail -c 1200 "$t/$1.err" | base64 -w0)"
}}
t=$(mktemp -d) || exit 1
trap 'rm -rf -- "$t"' EXIT
export t; export -f one
xargs -P 32 -L 1 bash -c 'one "$@"' _
"""

_PROBE = """\
. {base}/env/node.env || exit 1
for ascendboot_n in {names} "$@"; do
  printf "%s=%s\\\\0" "$ascendboot_n" "${{!ascendboot_n}}"
done | sha256sum
for ascendboot_f in {files}; do sha256sum < {base}/$ascendboot_f; done
for ascendboot_f in {programs}; do test -x "$ascendboot_f" && echo "can run $ascendboot_f"; done
"""


@dataclass(frozen=True, kw_only=True)
class Expectation:
    """What a login must find on every node."""

    cluster: Cluster
    base: PurePosixPath
    files: Mapping[str, str]
    """Text by path below `base`; equal on all nodes."""
    programs: Mapping[str, str]
    """By path, what to do where it cannot be run."""
    timeout_s: float = 20.0


def rank_wrapper(base: PurePosixPath) -> dict[str, str]:
    """The program by which ranks start, as one that must run."""
    return {str(base / "env/rank-exec"): f"mount the file system of {base} without noexec"}


def daemon_of(mpirun: str) -> dict[str, str]:
    """The program by which mpirun starts ranks elsewhere, as one that must run."""
    orted = PurePosixPath(mpirun).parent / "orted"
    return {str(orted): "install the same Open MPI on every node"}


def proof(expected: Expectation) -> Command:
    """The command that, on the primary, logs in to every node in parallel."""
    cluster, base = expected.cluster, expected.base
    probe = _PROBE.format(
        base=shlex.quote(str(base)),
        names=" ".join(sorted(cluster.env)),
        files=" ".join(shlex.quote(path) for path in expected.files),
        programs=" ".join(shlex.quote(path) for path in expected.programs),
    )
    words = (
        (node.name, node.cluster_address, *_own_names(expected, node)) for node in cluster.nodes
    )
    targets = "".join(f"{' '.join(of_node)}\n" for of_node in words)
    script = _PROVE.format(
        limit=int(expected.timeout_s),
        config=shlex.quote(str(base / "trust/ssh_config")),
        probe=shlex.quote(f"bash -c {shlex.quote(probe)} ascendboot"),
    )
    waves = 1 + len(cluster.nodes) // 32
    return Command(
        argv=("bash", "-c", script),
        purpose="log in from the primary",
        effect=Effect.READ,
        timeout_s=10.0 + waves * expected.timeout_s,
        stdin=targets.encode(),
    )


def read_proof(expected: Expectation, result: Result) -> dict[str, tuple[str, ...]]:
    """What is wrong at each node, by node name; an empty tuple where all is as it should be.

    Raises:
        CommandError: the proof itself could not be run on the primary.
        NotUnderstoodError: a line of its answer has an unknown form.
    """
    lines = enumerate(result.checked().text.splitlines(), 1)
    answers = dict(_answer(number, line) for number, line in lines)
    alike = (*_digests(expected.files.values()), *map(_can_run, expected.programs))
    return {
        node.name: _problems(
            expected, (_of_variables(expected, node), *alike), answers.get(node.name)
        )
        for node in expected.cluster.nodes
    }


def wanted_answer(expected: Expectation, node: Node) -> tuple[str, ...]:
    """The lines that a login prints on a node where all is well."""
    digests = _digests(expected.files.values())
    return (_of_variables(expected, node), *digests, *map(_can_run, expected.programs))


def _can_run(path: str) -> str:
    return f"can run {path}"


def _of_variables(expected: Expectation, node: Node) -> str:
    names = (*sorted(expected.cluster.env), *_own_names(expected, node))
    env = expected.cluster.env_of(node)
    [digest] = _digests(["".join(f"{name}={env[name]}\0" for name in names)])
    return digest


def _digests(texts: Iterable[str]) -> tuple[str, ...]:
    """As `sha256sum` prints them."""
    return tuple(f"{sha256(text.encode()).hexdigest()}  -" for text in texts)


def _own_names(expected: Expectation, node: Node) -> list[str]:
    """The variables that a node has and the others need not have."""
    return sorted(node.env.keys() - expected.cluster.env.keys())


def _answer(number: int, line: str) -> tuple[str, tuple[int, str, str]]:
    """The node's name; the exit code of its login, what it said, and what it complained of."""
    try:
        name, code, out, err = line.split(" ")
        return name, (int(code), _decoded(out), _decoded(err))
    except ValueError as error:
        expected = "a node's name, an exit code and what was said, in base64"
        raise NotUnderstoodError("proof", number, line, expected) from error


def _problems(
    expected: Expectation, wanted: tuple[str, ...], answer: tuple[int, str, str] | None
) -> tuple[str, ...]:
    if answer is None:
        return ("could not log in from the primary: it gave no answer",)
    code, out, err = answer
    lines = out.splitlines()
    if len(lines) < len(wanted) - len(expected.programs):
        words = err.strip().splitlines() or out.strip().splitlines() or ["nothing was said"]
        seen = "no answer in time" if code in (124, 137) else words[-1]
        return (f"could not log in from {expected.cluster.primary_name}: {seen}",)
    noise = [line for line in lines if line not in wanted and not line.endswith("  -")]
    found = []
    if noise:
        found.append(f'the login prints "{noise[0]}" before a command runs; silence it')
    answers = [line for line in lines if line not in noise]
    subjects = ["the inventory's environment", *expected.files]
    for subject, want, got in zip(subjects, wanted, answers, strict=False):
        if want != got:
            found.append(f"{subject} does not arrive as it was written")
    found += [
        f"{path} cannot be run; {remedy}"
        for path, remedy in expected.programs.items()
        if _can_run(path) not in lines
    ]
    return tuple(found)


def _decoded(text: str) -> str:
    return base64.b64decode(text, validate=True).decode(errors="replace")
