"""Verifies that nodes reach each other as a job needs it."""

from __future__ import annotations

import base64
import re
import shlex
import time
from collections.abc import Mapping
from functools import cached_property
from hashlib import sha256
from pathlib import PurePosixPath

from ascendboot.checks.connections import probe_findings
from ascendboot.checks.probes import NodeProbes, ProbeResults, probe_command, probes_of, read_probes
from ascendboot.errors import AscendbootError, NodeError, NotUnderstoodError, excerpt
from ascendboot.launch.launchers import traits_of
from ascendboot.model.cluster import Cluster, Node
from ascendboot.model.names import counted
from ascendboot.model.report import Outcome, StepResult
from ascendboot.setup.cluster_plan import Context
from ascendboot.setup.phases import NETWORK, VERIFY
from ascendboot.setup.results import Progress, failed, found
from ascendboot.setup.trust import has_logins
from ascendboot.templates import script
from ascendboot.transport.api import Command, Result, Sides, read_script
from ascendboot.value import Value, replace

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
# Of every login, of TCP connections that only test whether it answers, and of its own start.
_ROUTINE = re.compile(
    "Accepted |Connection (from|closed|reset) |Postponed |Starting session: |Close session: "
    "|User child|Closing connection to |Received (disconnect|signal) |Disconnected from "
    "|Transferred: |Server listening |kex_exchange_id|Could not load host certificate "
    "|banner exchange: |Did not receive identification string "
    "|.* line [0-9]+: Unsupported option "
)
_SSH_FAILED = 255
_TIMED_OUT = (124, 137)
_NO_SHELL = (_SSH_FAILED, *_TIMED_OUT)
"""Exit codes of a login that did not reach its shell, or did not get past it."""
_CSH = ("csh", "tcsh", "bsd-csh")
_SH = ("sh", "bash", "dash", "ash", "zsh", "ksh", "ksh93", "mksh")


class Expectation(Value, kw_only=True, dict=True):
    """What a login must find on every node."""

    cluster: Cluster
    base: PurePosixPath
    files: Mapping[str, str]
    """Text by path below `base`; equal on all nodes."""
    mpirun: str = ""
    """Its path where it starts jobs: the logins then use its own form of command line."""
    has_wrapper: bool = True
    """Whether the program that starts ranks is on every node."""
    timeout_s: float = 20.0

    @cached_property
    def programs(self) -> Mapping[str, str]:
        """By path, what to do where a program cannot be run."""
        wrapper = f"mount the file system of {self.base} without noexec"
        orted = str(PurePosixPath(self.mpirun).parent / "orted")
        return {
            **({str(self.base / "env/rank-exec"): wrapper} if self.has_wrapper else {}),
            **({orted: "install the same Open MPI on every node"} if self.mpirun else {}),
        }

    def wanted_answer(self, node: Node) -> tuple[str, ...]:
        """All lines that a good login prints on a node."""
        env = self.cluster.env_of(node)
        names = (*sorted(self.cluster.env), *self.names_of(node))
        texts = ("".join(f"{name}={env[name]}\0" for name in names), *self.files.values())
        # As `sha256sum` prints them.
        digests = (f"{sha256(text.encode()).hexdigest()}  -" for text in texts)
        return (*digests, *map(_can_run, self.programs))

    def names_of(self, node: Node) -> list[str]:
        """The variables that a node has and the others need not have."""
        return sorted(node.env.keys() - self.cluster.env.keys())


def verification_command(expected: Expectation) -> Command:
    """The command that logs in from the primary to every node in parallel."""
    cluster, base = expected.cluster, expected.base
    names, folder = " ".join(sorted(cluster.env)), shlex.quote(str(base))
    files, programs = shlex.join(expected.files), shlex.join(expected.programs)
    probe = _PROBE.format(base=folder, names=names, files=files, programs=programs)
    targets = "".join(
        f"{' '.join((node.name, node.cluster_address, *expected.names_of(node)))}\n"
        for node in cluster.nodes
    )
    config, primary = base / "trust/ssh_config", cluster.primary_name
    limit, login = int(expected.timeout_s), f"bash -c {shlex.quote(probe)} ascendboot"
    text = script("setup-logins.sh", limit=limit, config=config, primary=primary, probe=login)
    waves = 1 + len(cluster.nodes) // 32
    head = mpirun_shell(expected.mpirun) if expected.mpirun else ""
    purpose, timeout_s = "log in from the primary", 10.0 + waves * expected.timeout_s
    return read_script(head + text, purpose=purpose, timeout_s=timeout_s, stdin=targets.encode())


def mpirun_shell(mpirun: str) -> str:
    """Bash that sets what mpirun puts around the command of its daemon on another node."""
    return script("setup-login-shell.sh", prefix=PurePosixPath(mpirun).parent.parent)


class Login(Value):
    """How the login to one node went."""

    problems: tuple[str, ...] = ()
    """What it found wrong on the node."""
    broke_off: str = ""
    """Why it found out nothing, as far as the primary saw."""
    exit_code: int = 0


def read_verification(expected: Expectation, result: Result) -> dict[str, Login]:
    """How the login to each node went, by node name.

    Raises:
        CommandError: the script could not be run on the primary.
        NotUnderstoodError: a line of its answer has an unknown form.
    """
    lines = result.checked().text.splitlines()
    answers = dict(_parsed(number, line) for number, line in enumerate(lines, 1))
    no_answer = Login(broke_off="it gave no answer", exit_code=_SSH_FAILED)
    return {
        node.name: _login(expected, node, *answers[node.name])
        if node.name in answers
        else no_answer
        for node in expected.cluster.nodes
    }


def _parsed(number: int, line: str) -> tuple[str, tuple[int, str, str]]:
    """The node's name; exit code, stdout and stderr of its login."""
    try:
        name, code, *texts = line.split(" ")
        out, err = (
            base64.b64decode(text, validate=True).decode(errors="replace") for text in texts
        )
        return name, (int(code), out, err)
    except ValueError as error:
        form = "a node's name, an exit code, stdout and stderr in base64"
        raise NotUnderstoodError("logins", number, line, form) from error


def _login(expected: Expectation, node: Node, code: int, out: str, err: str) -> Login:
    wanted, lines = expected.wanted_answer(node), out.splitlines()
    if len(lines) < len(wanted) - len(expected.programs):
        words = err.strip().splitlines() or out.strip().splitlines() or ["no output"]
        reason = words[-1 if code == _SSH_FAILED else 0]
        if code in _TIMED_OUT:
            reason = f"no answer within {expected.timeout_s:g} s"
        return Login(broke_off=excerpt(reason), exit_code=code)
    noise = [line for line in lines if line not in wanted and not line.endswith("  -")]
    answers = [line for line in lines if line not in noise]
    problems = []
    if noise:
        problems.append(f'the login prints "{noise[0]}" before a command runs; silence it')
    subjects = ["the inventory's environment", *expected.files]
    for subject, want, got in zip(subjects, wanted, answers, strict=False):
        if want != got:
            problems.append(f"{subject} does not arrive as it was written")
    problems += [
        f"{path} cannot be run; {remedy}"
        for path, remedy in expected.programs.items()
        if _can_run(path) not in lines
    ]
    return Login(tuple(problems))


def _can_run(path: str) -> str:
    return f"can run {path}"


class Evidence(Value):
    """What a node shows about a login that broke off."""

    user: str = ""
    shell: str = ""
    log: tuple[str, ...] = ()
    """The last lines of its sshd's log."""

    @property
    def complaint(self) -> str:
        """The last line of the log that is not written of every login."""
        lines = [line for line in self.log if not _ROUTINE.match(line)]
        return excerpt(lines[-1]) if lines else ""


def read_evidence(result: Result) -> Evidence:
    """Parses the answer to `_EVIDENCE`; empty where it has none."""
    entry, *log = result.lines or ("",)
    user, *fields = entry.split(":")
    return Evidence(user, fields[-1] if fields else "", tuple(line.rstrip() for line in log))


def login_problems(
    expected: Expectation, node: Node, login: Login, evidence: Mapping[str, Evidence | NodeError]
) -> tuple[str, ...]:
    """The problems of a login, or why it broke off and what to do about it.

    `evidence` is of this node and of the primary, by name, as far as they gave any.
    """
    if not login.broke_off:
        return login.problems
    cluster, reason = expected.cluster, login.broke_off
    both = (evidence.get(name) for name in (node.name, cluster.primary_name))
    here, primary = (each if isinstance(each, Evidence) else Evidence() for each in both)
    has_shell = login.exit_code not in _NO_SHELL
    if expected.mpirun and node != cluster.primary and has_shell:
        is_csh = PurePosixPath(primary.shell).name in _CSH
        shell = "sh" if cluster.serves_from_host(node) else PurePosixPath(here.shell).name
        if here.shell and shell not in (_CSH if is_csh else _SH):
            place = f" in the container {node.container}" if node.container else ""
            writes = ""
            if is_csh:
                of_primary = f"{primary.shell}, the login shell on {cluster.primary_name}"
                writes = f" (it writes for {of_primary})"
            words = (
                f"{here.user} has the login shell {here.shell}{place}, which does not run the "
                f'line by which mpirun starts its daemon{writes}: "{reason}"; give {here.user} '
                f"the same shell of the family of sh on all nodes: usermod -s /bin/bash {here.user}"
            )
            return (words,)
    what = f"could not log in from {cluster.primary_name}: {reason}"
    if here.complaint:
        what += f'; its sshd.log says "{here.complaint}"'
    remedy = f"read {expected.base}/sshd/sshd.log there"
    if has_shell:
        user = here.user or "the user"
        remedy = f"see what the start-up files of {user} do without a terminal, and {remedy}"
    elif login.exit_code in _TIMED_OUT:
        way = f"ping {node.cluster_address} on {cluster.primary_name}"
        remedy = f"is the way there slow ({way}), or the node overloaded? Else {remedy}"
    return (f"{what}; {remedy}",)


def verify_cluster(progress: Progress, context: Context, sides: Mapping[str, Sides]) -> None:
    """Log in from the primary to every node and check what is there; try the network.

    Each NPU pings at least one of another node; `check` tries more. A node alone has no logins.

    Raises:
        Stopped: a node is not as it should be, or the operator interrupted.
    """
    cluster, plan, files = context.cluster, context.plan, context.resources
    mpirun = plan.mpirun if traits_of(plan.launcher).openmpi else ""
    expected = Expectation(cluster=cluster, base=plan.base, mpirun=mpirun, files=files)
    ports = dict.fromkeys(context.facts.nodes, plan.port)
    probes = probes_of(cluster, context.facts.nodes, "once", ssh_ports=ports)
    run_verification(progress, expected if has_logins(context) else None, probes, sides)
    progress.stop_if_bad()


def run_verification(
    progress: Progress,
    expected: Expectation | None,
    probes: Mapping[str, NodeProbes],
    sides: Mapping[str, Sides],
) -> None:
    """Run all logins and probes, in one execution per side that has a part.

    `expected` is None where the primary cannot log in yet.

    Raises:
        Stopped: the operator interrupted.
    """

    def work(node: Node) -> tuple[float, dict[str, Login], ProbeResults | None]:
        logs_in = expected if node.name == progress.cluster.primary_name else None
        return _verify(logs_in, probes.get(node.name, NodeProbes()), node, sides[node.name])

    progress.begin(VERIFY)
    parts = progress.for_each(sides, work)
    primary = parts.get(progress.cluster.primary_name)
    if expected is not None and primary is not None:
        if isinstance(primary, NodeError):
            results = [failed("prove", "login", primary)]
        else:
            results = _login_results(progress, expected, primary[0], primary[1], sides)
        progress.end(VERIFY, results)
    network = [failed("network", "attempts", p) for p in parts.values() if isinstance(p, NodeError)]
    done, texts = dict[str, ProbeResults](), dict[str, str]()
    for name, part in parts.items():
        probed = None if isinstance(part, NodeError) else part[2]
        if probed is not None:
            pings, tcp = len(probed.pings), len(probed.tcp)
            words = [f"{counted(pings, 'ping')} between NPUs"] if pings else []
            words += [counted(tcp, "TCP connection")] if tcp else []
            done[name], texts[name] = probed, f"reaches the other nodes: {' and '.join(words)}"
    network += found("network", "attempts", texts, probe_findings(probes, done))
    if network:
        progress.end(NETWORK, network)


def _verify(
    expected: Expectation | None, probes: NodeProbes, node: Node, sides: Sides
) -> tuple[float, dict[str, Login], ProbeResults | None]:
    """Run one node's part. Returns its duration, logins by node, and probes if there were any.

    Ranks and their launcher log in from the workload side; NPUs are the host side's.
    """
    of_work = [verification_command(expected)] if expected else []
    of_host = [probe_command(probes)] if probes.pings or probes.tcp else []
    began = time.monotonic()
    if sides.is_one:
        results = [*sides.work.run_all([*of_work, *of_host])]
    else:
        results = [*sides.work.run_all(of_work), *sides.host.run_all(of_host)]
    took = time.monotonic() - began
    logins: dict[str, Login] = {}
    if expected:
        try:
            logins = read_verification(expected, results[0])
        except AscendbootError as error:
            logins = {node.name: Login((str(error).removeprefix(f"{node.name}: "),))}
    try:
        tried = read_probes(probes, results[-1]) if of_host else None
    except AscendbootError as error:
        raise NodeError(node.name, f"could not try the network: {error}") from error
    return took, logins, tried


def _login_results(
    progress: Progress,
    expected: Expectation,
    took: float,
    logins: Mapping[str, Login],
    sides: Mapping[str, Sides],
) -> list[StepResult]:
    """The results of the logins, node by node; evidence is read only where one broke off."""
    log = shlex.quote(str(expected.base / "sshd/sshd.log"))
    purpose = "read the log of the cluster's sshd"
    query = read_script(_EVIDENCE.format(log=log), purpose=purpose)

    def gather(node: Node) -> Evidence:
        both = sides[node.name]
        evidence = read_evidence(both.work.run(query))
        if expected.cluster.serves_from_host(node) and not both.is_one:
            return replace(evidence, log=read_evidence(both.host.run(query)).log)
        return evidence

    broken = {name for name, login in logins.items() if login.broke_off}
    asked = ({*broken, expected.cluster.primary_name} & sides.keys()) if broken else set()
    evidence, results = progress.for_each(asked, gather), []
    for node in (node for node in expected.cluster.nodes if node.name in logins):
        problems = login_problems(expected, node, logins[node.name], evidence)
        outcome, texts = Outcome.FAILED, [f"{node.name}: {problem}" for problem in problems]
        if not problems:
            outcome, texts = Outcome.OK, ["the primary logs in and finds all as installed"]
        results += [StepResult(node.name, "prove", "login", outcome, t, took) for t in texts]
    return results
