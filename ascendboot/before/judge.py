"""What stands in the way of a job, and what is worth a word, from what the nodes say; pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ascendboot.before.checks import ORDER
from ascendboot.before.leftovers import job_rules
from ascendboot.before.packages import package_rules
from ascendboot.facts.api import Unanswered, value_of
from ascendboot.judge.finding import Finding, devices, in_order
from ascendboot.judge.limits import LEAST_FREE_BYTES, LEAST_FREE_INODES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ascendboot.before.answers import DeviceIps, Holder, JobProcess, NodeLook
    from ascendboot.before.wanted import Wanted
    from ascendboot.facts.surroundings import Surroundings
    from ascendboot.judge.finding import Level
    from ascendboot.parse.disk import FileSystem

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
"""Which check an answer is for; where `present` is not known, `holders` is not either."""


def judged(
    job: Wanted, looks: Mapping[str, NodeLook], imported: Iterable[str] = ()
) -> tuple[Finding, ...]:
    """All findings by check, of each error before warning, equal ones of several nodes as one.

    `imported` are the packages that a script on this side imports.
    """
    found = [
        *job_rules(looks),
        *package_rules(job, looks, imported),
        *(finding for node, look in looks.items() for finding in _of_node(job, node, look)),
        *_switches(looks),
    ]
    made = [finding for finding in in_order(found) if job.makes(finding.id)]
    return tuple(sorted(made, key=lambda finding: ORDER.index(finding.id)))


def disk_findings(system: FileSystem, nodes: Sequence[str], *, what_for: str) -> Iterator[Finding]:
    """Whether there is room for the logs of a job."""
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
    """Whether a script says of itself that Python is not to run it; `opening` is its first line.

    What is called `.py` may be run by a shell that hands it to Python.
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


def _of_node(job: Wanted, node: str, look: NodeLook) -> Iterator[Finding]:
    for name, check in _LOOKS.items():
        answer = getattr(look, name)
        if isinstance(answer, Unanswered) and not _is_told(look, name, answer):
            yield _finding(check, "warning", node, answer.message, "it was not checked")
    for lack in value_of(look.lacks) or ():
        text, _, remedy = lack.partition("; ")
        yield _finding("programs", "error", node, text, remedy)
    yield from script_findings(str(job.script or ""), value_of(look.opening) or "", (node,))
    for state, path in value_of(look.data) or ():
        remedy = "bring it there, or correct `data` in the inventory"
        yield _finding("data", "error", node, _LACKS_DATA[state].format(path), remedy)
    packages = value_of(look.packages)
    if packages is not None and packages.lacks:
        text = f"no module {packages.lacks} for {job.python}"
        yield _finding("programs", "error", node, text, "install it or state another code.python")
    yield from _absent(job, node, value_of(look.present) or ())
    yield from _ill(job, node, value_of(look.health) or {})
    yield from _users(job, node, look)
    if given := value_of(look.surroundings):
        yield from _in_container(job, node, given)
    if addresses := value_of(look.device_ips):
        yield from _addresses(job, node, addresses)
    yield from _links(node, look)
    if listeners := value_of(look.listeners):
        from ascendboot.before.ports import port_findings  # noqa: PLC0415 - seldom needed

        told = {process.pid for process in _processes(look)}
        yield from port_findings(
            job, node, [each for each in listeners if each.pid is None or each.pid not in told]
        )
    if system := value_of(look.disk):
        yield from disk_findings(system, (node,), what_for="for the logs of ranks")


def _is_told(look: NodeLook, name: str, answer: Unanswered) -> bool:
    """Whether another answer says it, or there was no question."""
    match name, answer.kind:
        case _, "not-asked":
            return True
        case "packages", "missing":
            return True  # it is one of the programs that lack
        case "health", _:
            return isinstance(look.holders, Unanswered)  # which come from the same table
        case _:
            return False


def _finding(check: str, level: Level, node: str, text: str, remedy: str) -> Finding:
    return Finding(id=check, level=level, nodes=(node,), text=text, remedy=remedy)


def _absent(job: Wanted, node: str, present: Sequence[int]) -> Iterator[Finding]:
    """Devices of the job that the server does not have, where it tells which it has."""
    absent = [id_ for id_ in sorted(job.devices[node]) if present and id_ not in present]
    if absent:
        verb = "is" if len(absent) == 1 else "are"
        yield _finding(
            "devices",
            "error",
            node,
            f"{devices(absent)} {verb} not there: npu-smi info lists {devices(present)}",
            "look for the cause with dmesg; bring it back, or state the others under `devices` and "
            "run setup",
        )


def _ill(job: Wanted, node: str, health: Mapping[int, str]) -> Iterator[Finding]:
    """Devices of the job that npu-smi does not call OK."""
    if any(word != "OK" for word in health.values()):
        from ascendboot.judge import device_health  # noqa: PLC0415 - seldom needed

        used = job.devices[node]
        remedy = (
            "look at the error codes of npu-smi info -t health; reset or replace the NPU, or state "
            "the others under `devices` and run setup"
        )
        yield from device_health.health_findings("devices", node, used, health, remedy)
        unchecked = "it was not checked"
        yield from device_health.not_understood("devices", node, used, health, unchecked)


def _users(job: Wanted, node: str, look: NodeLook) -> Iterator[Finding]:
    """Who uses devices of the job; jobs that are told of anyhow are left out."""
    told = {process.job_id for process in _processes(look)}
    for holder in value_of(look.holders) or ():
        used = [id_ for id_ in holder.devices if id_ in job.devices[node]]
        if used and holder.job_id not in told:
            many = "are" if len(used) > 1 else "is"
            yield _finding(
                "devices",
                "error",
                node,
                f"{devices(used)} {many} used by {_who(holder)}",
                f"end it: stop --job {holder.job_id}"
                if holder.job_id
                else "end it, or state the other devices under `devices`",
            )


def _in_container(job: Wanted, node: str, given: Surroundings) -> Iterator[Finding]:
    """Devices of the job that its container does not have."""
    from ascendboot.judge.surroundings import device_node_findings  # noqa: PLC0415 - seldom needed

    # setup has looked for what only some products want
    place, used = job.containers[node] or "", tuple(job.devices[node])
    yield from device_node_findings(node, place, used, given, is_950=True, id_="devices")


def _who(holder: Holder) -> str:
    if holder.job_id:
        return f"job {holder.job_id} (pid {holder.pid})"
    return f"pid {holder.pid} ({holder.command or 'a process that cannot be seen from here'})"


def _addresses(job: Wanted, node: str, seen: DeviceIps) -> Iterator[Finding]:
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
            yield _finding("device-ips", "warning", node, text, "run check")
        elif answer.value != stated:
            text = f"{table}, and the device has {answer.value or 'none'}"
            yield _finding("device-ips", "error", node, text, "run setup")
        else:
            text = f"{table}, as the device has it, and /etc/hccn.conf has {at_boot}"
            remedy = "correct the file before the server starts anew"
            yield _finding("device-ips", "warning", node, text, remedy)


def _links(node: str, look: NodeLook) -> Iterator[Finding]:
    """Devices that reach no other node, and those of which nothing was heard, by reason."""
    ports = value_of(look.ports)
    if ports is None:
        return
    down = [id_ for id_, answer in ports.link.items() if value_of(answer) is False]
    if down:
        remedy = (
            f"look at cable and switch port, hccn_tool -i {down[0]} -link_stat -g shows since "
            "when; or state the other devices under `devices`"
        )
        yield _finding("links", "error", node, f"the link of {devices(down)} is down", remedy)
    reasons: dict[tuple[str, str], list[int]] = {}
    for check, answers in (("links", ports.link), ("tls", ports.tls)):
        for id_, answer in answers.items():
            # Some tools cannot tell the switch, which setup says.
            if isinstance(answer, Unanswered) and (check, answer.kind) != ("tls", "failed"):
                why = answer.why.replace(f"-i {id_} ", "-i ID ")
                reasons.setdefault((check, why), []).append(id_)
    for (check, why), ids in reasons.items():
        text = f"nothing was heard of {devices(ids)}: {why}"
        yield _finding(check, "warning", node, text, "it was not checked")


def _switches(looks: Mapping[str, NodeLook]) -> Iterator[Finding]:
    """TLS on at some devices and off at others of those that talk to each other."""
    known = {name: ports.tls for name, look in looks.items() if (ports := value_of(look.ports))}
    switches = {
        name: {
            id_: is_on for id_, answer in of_node.items() if (is_on := value_of(answer)) is not None
        }
        for name, of_node in known.items()
    }
    if len({is_on for of_node in switches.values() for is_on in of_node.values()}) > 1:
        from ascendboot.judge.ports import tls_findings  # noqa: PLC0415 - seldom needed

        for finding in tls_findings(switches, "error"):
            yield replace(finding, id="tls", remedy=f"s{finding.remedy[1:]}")


def _processes(look: NodeLook) -> Sequence[JobProcess]:
    jobs = value_of(look.jobs)
    return jobs.processes if jobs else ()
