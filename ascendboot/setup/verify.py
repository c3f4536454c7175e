"""Verifies that nodes reach each other as a job needs it."""

from __future__ import annotations

import base64
import re
import shlex
import time
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from ascendboot.checks.connections import probe_findings
from ascendboot.checks.probes import NodeProbes, ProbeResults, probe_command, probes_of, read_probes
from ascendboot.errors import AscendbootError, NodeError, NotUnderstoodError, excerpt
from ascendboot.launch.launchers.registry import traits_of
from ascendboot.setup.phases import NETWORK, VERIFY
from ascendboot.setup.results import Progress, failed, found, verified
from ascendboot.templates import script
from ascendboot.transport.api import Command, Effect, Result, Sides

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ascendboot.model.cluster import Cluster, Node
    from ascendboot.model.report import StepResult
    from ascendboot.setup.context import Context

# On one line and without an exclamation mark: csh takes neither between quotes.
_PROBE = (
    ". {base}/env/node.env || exit 1; "
    'for ascendboot_n in {names} "$@"; do '
    'eval "ascendboot_v=\\$$ascendboot_n"; printf "%s=%s\\0" "$ascendboot_n" "$ascendboot_v"; '
    "done | sha256sum; "
    "for ascendboot_f in {files}; do sha256sum < {base}/$ascendboot_f; done; "
    "for ascendboot_f in {programs}; do "
    'test -x "$ascendboot_f" && echo "can run $ascendboot_f"; done'
)


_EVIDENCE = """\
getent passwd "$EUID" || printf '%s\\n' "::::::${{SHELL-}}"
tail -n 30 -- {log} 2>/dev/null
exit 0
"""
# Of every login, of TCP connections that only look whether it answers, and of its own start.
_ROUTINE = re.compile(
    "Accepted |Connection (from|closed|reset) |Postponed |Starting session: |Close session: "
    "|User child|Closing connection to |Received (disconnect|signal) |Disconnected from "
    "|Transferred: |Server listening |kex_exchange_id|Could not load host certificate "
    "|banner exchange: "
)
_SSH_FAILED = 255
_TIMED_OUT = (124, 137)
_NO_SHELL = (_SSH_FAILED, *_TIMED_OUT)
"""Exit codes of a login that did not get as far as its shell, or not past it."""


@dataclass(frozen=True, kw_only=True)
class Expectation:
    """What a login must find on every node."""

    cluster: Cluster
    base: PurePosixPath
    files: Mapping[str, str]
    """Text by path below `base`; equal on all nodes."""
    programs: Mapping[str, str]
    """By path, what to do where it cannot be run."""
    mpirun: str = ""
    """What starts jobs, where that is mpirun: its own kind of line then tries the login shells."""
    timeout_s: float = 20.0


def rank_wrapper(base: PurePosixPath) -> dict[str, str]:
    """The program by which ranks start, as one that must run."""
    return {str(base / "env/rank-exec"): f"mount the file system of {base} without noexec"}


def daemon_of(mpirun: str) -> dict[str, str]:
    """The program by which mpirun starts ranks elsewhere, as one that must run."""
    orted = PurePosixPath(mpirun).parent / "orted"
    return {str(orted): "install the same Open MPI on every node"}


def verification_command(expected: Expectation) -> Command:
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
    shell = mpirun_shell(expected.mpirun) if expected.mpirun else ""
    text = shell + script(
        "setup-logins.sh",
        limit=int(expected.timeout_s),
        config=base / "trust/ssh_config",
        primary=cluster.primary_name,
        probe=f"bash -c {shlex.quote(probe)} ascendboot",
    )
    waves = 1 + len(cluster.nodes) // 32
    return Command(
        argv=("bash", "-c", text),
        purpose="log in from the primary",
        effect=Effect.READ,
        timeout_s=10.0 + waves * expected.timeout_s,
        stdin=targets.encode(),
    )


def mpirun_shell(mpirun: str) -> str:
    """Bash that sets what mpirun 4.1 puts before its daemon and behind it when it starts it by ssh.

    As in its orte/mca/plm/rsh/plm_rsh_module.c: `mpirun_before` and `mpirun_after`.
    """
    prefix = PurePosixPath(mpirun).parent.parent
    lib = prefix / "lib"
    names = {"LD_LIBRARY_PATH": "OMPI_have_llp", "DYLD_LIBRARY_PATH": "OMPI_have_dllp"}
    posix, csh = (
        f"PATH={prefix}/bin:$PATH ; export PATH ; ",
        f"set path = ( {prefix}/bin $path ) ; ",
    )
    for name, have in names.items():
        posix += f"{name}={lib}:${{{name}:-}} ; export {name} ; "
        csh += f"if ( $?{name} == 1 ) set {have} ; if ( $?{name} == 0 ) setenv {name} {lib} ; "
        csh += f"if ( $?{have} == 1 ) setenv {name} {lib}:${name} ; "
    return script("setup-login-shell.sh", posix=posix, csh=csh)


@dataclass(frozen=True)
class Login:
    """How the login to one node went."""

    problems: tuple[str, ...] = ()
    """What it found wrong there; nothing where all is as it should be."""
    broke_off: str = ""
    """Why it found out nothing, as far as the primary saw."""
    exit_code: int = 0


@dataclass(frozen=True)
class Evidence:
    """A node's evidence of a login that broke off."""

    user: str = ""
    shell: str = ""
    log: tuple[str, ...] = ()
    """The last lines of its sshd's log."""

    @property
    def complaint(self) -> str:
        """The last line of the log that is not written of every login."""
        found = [line for line in self.log if not _ROUTINE.match(line)]
        return excerpt(found[-1]) if found else ""


def evidence_query(base: PurePosixPath) -> Command:
    """Queries a node for evidence of a login that broke off; `read_evidence` parses the answer."""
    text = _EVIDENCE.format(log=shlex.quote(str(base / "sshd/sshd.log")))
    purpose = "read the log of the cluster's sshd"
    return Command(argv=("bash", "-c", text), purpose=purpose, effect=Effect.READ)


def read_evidence(result: Result) -> Evidence:
    """Parses the answer to `evidence_query`; empty where it has none."""
    entry, *log = result.lines or ("",)
    user, *fields = entry.split(":")
    return Evidence(user, fields[-1] if fields else "", tuple(log))


def login_problems(
    expected: Expectation, node: Node, login: Login, evidence: Mapping[str, Evidence]
) -> tuple[str, ...]:
    """The problems of a login, or why it broke off and what to do about it.

    `evidence` is of this node and of the primary, by name, as far as they gave any.
    """
    if not login.broke_off:
        return login.problems
    cluster, reason = expected.cluster, login.broke_off
    here, primary = (evidence.get(name, Evidence()) for name in (node.name, cluster.primary_name))
    if expected.mpirun and node != cluster.primary and login.exit_code not in _NO_SHELL:
        language = "csh" if _language(primary.shell) == "csh" else "sh"
        of_node = "sh" if cluster.serves_from_host(node) else _language(here.shell)
        if here.shell and of_node != language:
            return (_wrong_shell(cluster, node, here, primary, reason),)
    what = f"could not log in from {cluster.primary_name}: {reason}"
    if here.complaint:
        what += f'; its sshd.log says "{here.complaint}"'
    remedy = f"read {expected.base}/sshd/sshd.log there"
    if login.exit_code not in _NO_SHELL:
        user = here.user or "the user"
        remedy = f"see what the start-up files of {user} do without a terminal, and {remedy}"
    elif login.exit_code in _TIMED_OUT:
        way = f"ping {node.cluster_address} on {cluster.primary_name}"
        remedy = f"is the way there slow ({way}), or the node overloaded? Else {remedy}"
    return (f"{what}; {remedy}",)


def _wrong_shell(
    cluster: Cluster, node: Node, here: Evidence, primary: Evidence, reason: str
) -> str:
    place = f" in the container {node.container}" if node.container else ""
    writes = ""
    if _language(primary.shell) == "csh":
        writes = f" (it writes for {primary.shell}, the login shell on {cluster.primary_name})"
    return (
        f"{here.user} has the login shell {here.shell}{place}, which does not run the line by "
        f'which mpirun starts its daemon{writes}: "{reason}"; give {here.user} the same '
        f"shell of the family of sh on all nodes: usermod -s /bin/bash {here.user}"
    )


def _language(shell: str) -> str:
    name = PurePosixPath(shell).name
    if name in ("csh", "tcsh", "bsd-csh"):
        return "csh"
    return "sh" if name in ("sh", "bash", "dash", "ash", "zsh", "ksh", "ksh93", "mksh") else ""


def read_verification(expected: Expectation, result: Result) -> dict[str, Login]:
    """How the login to each node went, by node name.

    Raises:
        CommandError: the script could not be run on the primary.
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
    """The node's name; exit code, stdout and stderr of its login."""
    try:
        name, code, out, err = line.split(" ")
        return name, (int(code), _decoded(out), _decoded(err))
    except ValueError as error:
        expected = "a node's name, an exit code, stdout and stderr in base64"
        raise NotUnderstoodError("logins", number, line, expected) from error


def _problems(
    expected: Expectation, probes: tuple[str, ...], answer: tuple[int, str, str] | None
) -> Login:
    if answer is None:
        return Login(broke_off="it gave no answer", exit_code=_SSH_FAILED)
    code, out, err = answer
    lines = out.splitlines()
    if len(lines) < len(probes) - len(expected.programs):
        words = err.strip().splitlines() or out.strip().splitlines() or ["no output"]
        reason = words[-1 if code == _SSH_FAILED else 0]
        if code in _TIMED_OUT:
            reason = f"no answer within {expected.timeout_s:g} s"
        return Login(broke_off=excerpt(reason), exit_code=code)
    noise = [line for line in lines if line not in probes and not line.endswith("  -")]
    found = []
    if noise:
        found.append(f'the login prints "{noise[0]}" before a command runs; silence it')
    answers = [line for line in lines if line not in noise]
    subjects = ["the inventory's environment", *expected.files]
    for subject, want, got in zip(subjects, probes, answers, strict=False):
        if want != got:
            found.append(f"{subject} does not arrive as it was written")
    found += [
        f"{path} cannot be run; {remedy}"
        for path, remedy in expected.programs.items()
        if _can_run(path) not in lines
    ]
    return Login(tuple(found))


def _decoded(text: str) -> str:
    return base64.b64decode(text, validate=True).decode(errors="replace")


@dataclass(frozen=True)
class NodeVerification:
    """The results of one node's part."""

    duration_s: float
    logins: Mapping[str, Login] | None = None
    """How the login to each node went, as seen from the primary; None elsewhere."""
    results: ProbeResults | None = None
    """None where the node had no probes."""


@dataclass(frozen=True)
class Verification:
    """The logins and probes to run."""

    primary_name: str
    logins: Expectation | None
    """What a login must find; None: there is nothing to log in to yet."""
    probes: Mapping[str, NodeProbes]
    """What each node tries, by name."""

    def run(self, node: Node, sides: Sides) -> NodeVerification:
        """One node's part, in one execution per side; none where it has no part.

        Ranks and their launcher log in from the workload side; NPUs are the host side's.

        Raises:
            NodeError: it could not be run, or its answer was not understood.
        """
        expected = self.logins if node.name == self.primary_name else None
        mine = self.probes.get(node.name, NodeProbes())
        logins_too = [verification_command(expected)] if expected else []
        attempts = [probe_command(mine)] if mine.pings or mine.tcp else []
        began = time.monotonic()
        results = _run(sides, logins_too, attempts)
        took = time.monotonic() - began
        logins = _read_logins(expected, results.pop(0)) if expected else None
        try:
            probed = read_probes(mine, results.pop(0)) if results else None
        except AscendbootError as error:
            raise NodeError(node.name, f"could not try the network: {error}") from error
        return NodeVerification(took, logins, probed)

    def broken(self, parts: Mapping[str, NodeVerification | NodeError]) -> frozenset[str]:
        """Nodes with evidence of logins that broke off: their own and the primary; or none."""
        part = parts.get(self.primary_name)
        logins = part.logins if isinstance(part, NodeVerification) and part.logins else {}
        found = {name for name, login in logins.items() if login.broke_off}
        return frozenset({*found, self.primary_name} if found else ())

    def evidence(self, node: Node, sides: Sides) -> Evidence:
        """A node's evidence of a login that broke off.

        Raises:
            NodeError: it could not be queried.
        """
        if self.logins is None:
            return Evidence()
        question = evidence_query(self.logins.base)
        found = read_evidence(sides.work.run(question))
        if not self.logins.cluster.serves_from_host(node) or sides.is_one:
            return found
        return replace(found, log=read_evidence(sides.host.run(question)).log)

    def login_results(
        self,
        parts: Mapping[str, NodeVerification | NodeError],
        evidence: Mapping[str, Evidence | NodeError],
    ) -> list[StepResult]:
        """The results of the logins, node by node."""
        part = parts.get(self.primary_name)
        if self.logins is None or part is None:
            return []
        if isinstance(part, NodeError):
            return [failed("prove", "login", part)]
        known = {name: e for name, e in evidence.items() if isinstance(e, Evidence)}
        logins, expected = part.logins or {}, self.logins
        nodes = [node for node in expected.cluster.nodes if node.name in logins]
        return [
            result
            for node in nodes
            for result in verified(
                node.name, login_problems(expected, node, logins[node.name], known), part.duration_s
            )
        ]

    def network_results(
        self, parts: Mapping[str, NodeVerification | NodeError]
    ) -> list[StepResult]:
        """The results of the probes, node by node."""
        lost = [
            failed("network", "attempts", p) for p in parts.values() if isinstance(p, NodeError)
        ]
        results = {
            name: part.results
            for name, part in parts.items()
            if isinstance(part, NodeVerification) and part.results is not None
        }
        findings = probe_findings(self.probes, results)
        texts = {name: _probes_text(part) for name, part in results.items()}
        return [*lost, *found("network", "attempts", texts, findings)]


def _run(sides: Sides, at_work: list[Command], on_host: list[Command]) -> list[Result]:
    if sides.is_one:
        return list(sides.work.run_all([*at_work, *on_host]))
    return [*sides.work.run_all(at_work), *sides.host.run_all(on_host)]


def _read_logins(expected: Expectation, result: Result) -> Mapping[str, Login]:
    try:
        return read_verification(expected, result)
    except AscendbootError as error:
        problem = str(error).removeprefix(f"{result.node}: ")
        return {expected.cluster.primary_name: Login((problem,))}


def _probes_text(results: ProbeResults) -> str:
    pings, tcp = len(results.pings), len(results.tcp)
    parts = [f"{pings} ping{'s' * (pings != 1)} between NPUs"] if pings else []
    parts += [f"{tcp} TCP connection{'s' * (tcp != 1)}"] if tcp else []
    return f"reaches the other nodes: {' and '.join(parts)}"


def verify_cluster(progress: Progress, context: Context, sides: Mapping[str, Sides]) -> None:
    """Log in from the primary to every node and look around there; try the network.

    Each NPU pings at least one of another node; `check` tries more.

    Raises:
        Stopped: a node is not as it should be, or the operator interrupted.
    """
    ports = dict.fromkeys(context.facts.nodes, context.plan.port)
    probes = probes_of(context.cluster, context.facts.nodes, "once", ssh_ports=ports)
    verification = Verification(context.cluster.primary_name, _expectation(context), probes)
    run_verification(progress, verification, sides)
    progress.stop_if_bad()


def run_verification(
    progress: Progress, verification: Verification, sides: Mapping[str, Sides]
) -> None:
    """Run all logins and probes, in one execution per node that has a part.

    Raises:
        Stopped: the operator interrupted.
    """
    progress.begin(VERIFY)
    parts = progress.for_each(sides, lambda node: verification.run(node, sides[node.name]))
    # Evidence is gathered only for logins that failed.
    broken = verification.broken(parts) & sides.keys()
    evidence = progress.for_each(broken, lambda node: verification.evidence(node, sides[node.name]))
    if logins := verification.login_results(parts, evidence):
        progress.end(VERIFY, logins)
    if results := verification.network_results(parts):
        progress.end(NETWORK, results)


def _expectation(context: Context) -> Expectation:
    """What a login must find on every node."""
    plan = context.plan
    base, with_mpi = plan.base, traits_of(plan.launcher).openmpi
    daemon = daemon_of(plan.mpirun) if with_mpi else {}
    return Expectation(
        cluster=context.cluster,
        base=base,
        mpirun=plan.mpirun if with_mpi else "",
        programs={**rank_wrapper(base), **daemon},
        files={f"resources/{name}": text for name, text in context.resources.items()},
    )
