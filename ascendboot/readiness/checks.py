"""Checks just before a job starts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from ascendboot.checks.devices import health_findings, not_understood
from ascendboot.checks.finding import Finding, Level, devices, differences, in_order, numbers
from ascendboot.checks.hosts import device_node_findings
from ascendboot.checks.launchers import LEAST_FREE_BYTES, LEAST_FREE_INODES
from ascendboot.checks.network import tls_findings
from ascendboot.errors import UsageError
from ascendboot.facts.query import Unanswered, value_of
from ascendboot.readiness.queries import (
    PACKAGES,
    DeviceIps,
    Holder,
    JobProcess,
    NodeProbe,
    Packages,
)
from ascendboot.readiness.requirements import JobRequirements, job_rules

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ascendboot.facts.environment import NodeEnvironment
    from ascendboot.facts.parsers.system import FileSystem, Listener


@dataclass(frozen=True)
class Check:
    """One check on all nodes; `always` is the reason why it cannot be skipped."""

    id: str
    always: str = ""


CHECKS = (
    Check("setup"),
    Check("open-folders", "others could change what runs as your user"),
    Check("code"),
    Check("script", "no rank starts without it"),
    Check("data"),
    Check("programs", "no rank starts without them"),
    Check("jobs", "two jobs would spoil each other"),
    Check("leftovers", "end them: --stop-leftovers"),
    Check("rank-table", "ranks would take the wrong places"),
    Check("packages"),
    Check("devices"),
    Check("device-ips"),
    Check("links"),
    Check("tls"),
    Check("ports"),
    Check("disk"),
)
ORDER = tuple(check.id for check in CHECKS)
SKIPPABLE = tuple(check.id for check in CHECKS if not check.always)
_ALL = "all"


def skipped_checks(words: str | Literal[True] | None) -> tuple[str, ...]:
    """The ids that `--skip-checks` names, in the order of the checks; alone it means all.

    Raises:
        UsageError: there is no such check, or it cannot be skipped.
    """
    if not words:
        return ()
    if words is True or words == _ALL:
        return SKIPPABLE
    requested = [word.strip() for word in words.split(",")]
    problems = [
        f'"{check.id}" cannot be skipped: {check.always}'
        for check in CHECKS
        if check.id in requested and check.always
    ]
    problems += [f'there is no check "{word}"' for word in requested if word not in ORDER]
    if problems:
        known = ", ".join(SKIPPABLE)
        raise UsageError(f"--skip-checks: {'; '.join(problems)}. What can be skipped: {known}")
    return tuple(id_ for id_ in SKIPPABLE if id_ in requested)


_COMES_WITH = {"torch": ("torch_npu",), "tensorflow": ("tensorflow_cpu", "npu_bridge")}
"""Packages that a job uses whenever it uses another one."""
_ABSENT = "none"


def imported_by(text: str) -> frozenset[str]:
    """The packages of `PACKAGES` that a script imports; modules that it imports are not read."""
    found = set()
    for line in text.split("\n"):
        match line.replace(",", " ").split():
            case ["from", module, *_]:
                found.add(module.partition(".")[0])
            case ["import", *modules]:
                found |= {module.partition(".")[0] for module in modules}
            case _:
                pass
    return frozenset(found & set(PACKAGES))


def package_rules(
    job: JobRequirements, probes: Mapping[str, NodeProbe], imported: Iterable[str]
) -> Iterator[Finding]:
    """Compares package versions: an error if the job uses the package, else a warning."""
    seen = {node: found for node, probe in probes.items() if (found := value_of(probe.packages))}
    used = {*job.used, *imported}.union(*(packages.used for packages in seen.values()))
    used |= {other for name in used for other in _COMES_WITH.get(name, ())}
    python = {node: packages.python for node, packages in seen.items()}
    yield from _differing("Python", python, is_used=True)
    for name in PACKAGES:
        versions = {node: _version(packages, name) for node, packages in seen.items()}
        yield from _differing(name, versions, is_used=name in used)


def _version(packages: Packages, name: str) -> str:
    return packages.versions.get(name, _ABSENT)


def _differing(name: str, versions: Mapping[str, str], *, is_used: bool) -> Iterator[Finding]:
    # 2.1.0 and 2.1.1 are of one series, and so are 2.1.0 and 2.1.0+cpu.
    series = {".".join(version.split(".")[:2]) for version in versions.values()}
    yield from differences(
        "packages",
        versions,
        has=f"{name} ",
        level="error" if is_used and len(series) > 1 else "warning",
        remedy="install the same version on all nodes",
    )


def port_findings(
    job: JobRequirements, node: str, listeners: Iterable[Listener]
) -> Iterator[Finding]:
    """Finds ports of the job that another program listens on."""
    holders: dict[str, dict[int, None]] = {}
    for listener in listeners:
        holders.setdefault(_listens(listener), {})[listener.port] = None
    taken = {port for ports in holders.values() for port in ports}
    wanted = job.hccl_ports[node]
    for holder, ports in holders.items():
        for port in ports:
            yield from _one_port(job, node, port, holder)
        hccl = sorted(port for port in ports if port in wanted)
        if hccl:
            free = len(wanted) - len(taken & set(wanted))
            fails = node in job.hccl_is_stated or free < len(job.devices[node])
            yield _finding_of(
                "ports",
                "error" if fails else "warning",
                node,
                f"port{'s' if len(hccl) > 1 else ''} {numbers(hccl)} of HCCL's "
                f"{numbers(wanted)} {'are' if len(hccl) > 1 else 'is'} "
                f"taken by {holder}",
                "end it, or move HCCL: HCCL_IF_BASE_PORT",
            )


def _one_port(job: JobRequirements, node: str, port: int, holder: str) -> Iterator[Finding]:
    if port == job.meeting_port and node == job.primary:
        text = f"port {port}, where the ranks are to meet, is taken by {holder}"
        remedy = "end it, or state another resources.chief_port"
        yield _finding_of("ports", "error", node, text, remedy)
    elif port == job.sshd_port:
        # While our sshd runs, the script does not query its port.
        text = f"port {port} of the cluster's sshd, which does not run, is taken by {holder}"
        yield _finding_of("ports", "error", node, text, "end it and run setup")


def _listens(listener: Listener) -> str:
    if listener.pid is None:
        return "a program that cannot be seen from here"
    return f"{listener.program} (pid {listener.pid})"


ENOUGH_BYTES = 1000**3
"""With less, a long job may fill the disk with its logs."""
_LACKS_DATA = {
    "absent": "there is no {}",
    "unreadable": "{} cannot be read",
    "silent": "{} did not answer within 5 s",
}
_PYTHONS = ("python", "pypy", "uv run")
_SHOWN_OPENING = 80

_LOOKS = {
    "lacks": "programs",
    "opening": "script",
    "packages": "packages",
    "data": "data",
    "jobs": "jobs",
    "listeners": "ports",
    "disk": "disk",
    "holders": "devices",
    "health": "devices",
    "device_ips": "device-ips",
    "surroundings": "devices",
    "ports": "links",
}
"""The check that an answer belongs to; if `present` is unknown, so is `holders`."""


def readiness_findings(
    job: JobRequirements, probes: Mapping[str, NodeProbe], imported: Iterable[str] = ()
) -> tuple[Finding, ...]:
    """Returns all findings in the order of the checks; equal findings of several nodes are one.

    `imported`: the packages that a script on the control machine imports.
    """
    found = [
        *job_rules(probes),
        *package_rules(job, probes, imported),
        *(finding for node, probe in probes.items() for finding in _of_node(job, node, probe)),
        *_switches(probes),
    ]
    made = [finding for finding in in_order(found) if job.makes(finding.id)]
    return tuple(sorted(made, key=lambda finding: ORDER.index(finding.id)))


def disk_findings(system: FileSystem, nodes: Sequence[str], *, what_for: str) -> Iterator[Finding]:
    """Checks the free space for the logs of a job."""
    free = f"{max(system.free_bytes, 0) // 1000**2} MB"
    inodes = system.free_inodes
    lacks = [free] if system.free_bytes < LEAST_FREE_BYTES else []
    if inodes is not None and inodes < LEAST_FREE_INODES:
        lacks.append(f"{inodes} inodes")
    least = f"{LEAST_FREE_BYTES // 1000**2} MB and {LEAST_FREE_INODES} inodes"
    level: Level = "error"
    if not lacks and system.free_bytes < ENOUGH_BYTES:
        lacks, least, level = [free], f"{ENOUGH_BYTES // 1000**3} GB for a long job", "warning"
    if lacks:
        yield Finding(
            id="disk",
            level=level,
            nodes=tuple(nodes),
            text=f"only {' and '.join(lacks)} are free on {system.mount_point} {what_for}",
            remedy=f"free {least}",
        )


def script_findings(script: str, opening: str, nodes: Sequence[str]) -> Iterator[Finding]:
    """Finds a script whose first line (`opening`) names an interpreter other than Python.

    A file named `.py` may start as a shell script that runs Python: that is only a warning.
    """
    if not opening.startswith("#!") or any(word in opening for word in _PYTHONS):
        return
    yield Finding(
        id="script",
        level="warning" if script.endswith(".py") else "error",
        nodes=tuple(nodes),
        text=f"{script} is no script of Python: it begins with {opening[:_SHOWN_OPENING].strip()}",
        remedy="give train the script of Python that it starts, and what it sets as `env`",
    )


def _of_node(job: JobRequirements, node: str, probe: NodeProbe) -> Iterator[Finding]:
    for name, check in _LOOKS.items():
        answer = getattr(probe, name)
        if isinstance(answer, Unanswered) and not _is_reported(probe, name, answer):
            yield _finding_of(check, "warning", node, answer.message, "it was not checked")
    for lack in value_of(probe.lacks) or ():
        text, _, remedy = lack.partition("; ")
        yield _finding_of("programs", "error", node, text, remedy)
    yield from script_findings(str(job.script or ""), value_of(probe.opening) or "", (node,))
    for state, path in value_of(probe.data) or ():
        remedy = "bring it there, or correct `data` in the inventory"
        yield _finding_of("data", "error", node, _LACKS_DATA[state].format(path), remedy)
    packages = value_of(probe.packages)
    if packages is not None and packages.lacks:
        text = f"no module {packages.lacks} for {job.python}"
        yield _finding_of(
            "programs", "error", node, text, "install it or state another code.python"
        )
    yield from _absent(job, node, value_of(probe.present) or ())
    yield from _ill(job, node, value_of(probe.health) or {})
    yield from _users(job, node, probe)
    if given := value_of(probe.surroundings):
        yield from _in_container(job, node, given)
    if addresses := value_of(probe.device_ips):
        yield from _addresses(job, node, addresses)
    yield from _links(node, probe)
    if listeners := value_of(probe.listeners):
        reported = {process.pid for process in _processes(probe)}
        yield from port_findings(
            job, node, [each for each in listeners if each.pid is None or each.pid not in reported]
        )
    if system := value_of(probe.disk):
        yield from disk_findings(system, (node,), what_for="for the logs of ranks")


def _is_reported(probe: NodeProbe, name: str, answer: Unanswered) -> bool:
    """Whether another answer reports it, or there was no query."""
    match name, answer.kind:
        case _, "not-asked":
            return True
        case "packages", "missing":
            return True  # one of the missing programs
        case "health", _:
            return isinstance(probe.holders, Unanswered)  # they come from the same table
        case _:
            return False


def _finding_of(check: str, level: Level, node: str, text: str, remedy: str) -> Finding:
    return Finding(id=check, level=level, nodes=(node,), text=text, remedy=remedy)


def _absent(job: JobRequirements, node: str, present: Sequence[int]) -> Iterator[Finding]:
    """Finds devices of the job that npu-smi does not list."""
    absent = [id_ for id_ in sorted(job.devices[node]) if present and id_ not in present]
    if absent:
        verb = "is" if len(absent) == 1 else "are"
        yield _finding_of(
            "devices",
            "error",
            node,
            f"{devices(absent)} {verb} not there: npu-smi info lists {devices(present)}",
            "look for the cause with dmesg; bring it back, or state the others under `devices` and "
            "run setup",
        )


def _ill(job: JobRequirements, node: str, health: Mapping[int, str]) -> Iterator[Finding]:
    """Finds devices of the job that npu-smi does not report as OK."""
    if any(word != "OK" for word in health.values()):
        used = job.devices[node]
        remedy = (
            "look at the error codes of npu-smi info -t health; reset or replace the NPU, or state "
            "the others under `devices` and run setup"
        )
        yield from health_findings("devices", node, used, health, remedy)
        unchecked = "it was not checked"
        yield from not_understood("devices", node, used, health, unchecked)


def _users(job: JobRequirements, node: str, probe: NodeProbe) -> Iterator[Finding]:
    """Finds processes that use devices of the job, without those of jobs reported anyway."""
    reported = {process.job_id for process in _processes(probe)}
    for holder in value_of(probe.holders) or ():
        used = [id_ for id_ in holder.devices if id_ in job.devices[node]]
        if used and holder.job_id not in reported:
            many = "are" if len(used) > 1 else "is"
            yield _finding_of(
                "devices",
                "error",
                node,
                f"{devices(used)} {many} used by {_who(holder)}",
                f"end it: stop --job {holder.job_id}"
                if holder.job_id
                else "end it, or state the other devices under `devices`",
            )


def _in_container(job: JobRequirements, node: str, given: NodeEnvironment) -> Iterator[Finding]:
    """Finds devices of the job that the container does not have."""
    # setup has checked the device nodes that only some products need
    place, used = job.containers[node] or "", tuple(job.devices[node])
    yield from device_node_findings(node, place, used, given, is_950=True, id_="devices")


def _who(holder: Holder) -> str:
    if holder.job_id:
        return f"job {holder.job_id} (pid {holder.pid})"
    return f"pid {holder.pid} ({holder.command or 'a process that cannot be seen from here'})"


def _addresses(job: JobRequirements, node: str, seen: DeviceIps) -> Iterator[Finding]:
    """Where /etc/hccn.conf and the rank table differ; the device itself decides."""
    for device_id, stated in job.devices[node].items():
        at_boot = seen.at_boot.get(device_id)
        if stated is None or at_boot is None or at_boot == stated:
            continue
        answer = seen.now.get(device_id)
        table = f"the rank table has {stated} for device {device_id}"
        if answer is None or isinstance(answer, Unanswered):
            why = f" ({answer.message})" if answer else ""
            text = f"{table}, /etc/hccn.conf has {at_boot}, and the device was not heard{why}"
            yield _finding_of("device-ips", "warning", node, text, "run check")
        elif answer.value != stated:
            text = f"{table}, and the device has {answer.value or 'none'}"
            yield _finding_of("device-ips", "error", node, text, "run setup")
        else:
            text = f"{table}, as the device has it, and /etc/hccn.conf has {at_boot}"
            remedy = "correct the file before the server starts anew"
            yield _finding_of("device-ips", "warning", node, text, remedy)


def _links(node: str, probe: NodeProbe) -> Iterator[Finding]:
    """Finds devices whose link is down, and those without an answer, by reason."""
    ports = value_of(probe.ports)
    if ports is None:
        return
    down = [id_ for id_, answer in ports.link.items() if value_of(answer) is False]
    if down:
        remedy = (
            f"look at cable and switch port, hccn_tool -i {down[0]} -link_stat -g shows since "
            "when; or state the other devices under `devices`"
        )
        yield _finding_of("links", "error", node, f"the link of {devices(down)} is down", remedy)
    reasons: dict[tuple[str, str], list[int]] = {}
    for check, answers in (("links", ports.link), ("tls", ports.tls)):
        for id_, answer in answers.items():
            # Some tools cannot report the switch; setup has said so.
            if isinstance(answer, Unanswered) and (check, answer.kind) != ("tls", "failed"):
                why = answer.why.replace(f"-i {id_} ", "-i ID ")
                reasons.setdefault((check, why), []).append(id_)
    for (check, why), ids in reasons.items():
        text = f"nothing was heard of {devices(ids)}: {why}"
        yield _finding_of(check, "warning", node, text, "it was not checked")


def _switches(probes: Mapping[str, NodeProbe]) -> Iterator[Finding]:
    """Finds devices of one job that differ in TLS."""
    known = {name: ports.tls for name, probe in probes.items() if (ports := value_of(probe.ports))}
    switches = {
        name: {
            id_: is_on for id_, answer in of_node.items() if (is_on := value_of(answer)) is not None
        }
        for name, of_node in known.items()
    }
    if len({is_on for of_node in switches.values() for is_on in of_node.values()}) > 1:
        for finding in tls_findings(switches, "error"):
            yield replace(finding, id="tls", remedy=f"s{finding.remedy[1:]}")


def _processes(probe: NodeProbe) -> Sequence[JobProcess]:
    jobs = value_of(probe.jobs)
    return jobs.processes if jobs else ()
