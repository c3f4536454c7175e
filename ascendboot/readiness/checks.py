"""Checks just before a job starts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import Literal, TypeAlias

from ascendboot.checks import finding
from ascendboot.checks.collective.findings import PACKAGES
from ascendboot.checks.devices import health_findings
from ascendboot.checks.hosts import device_node_findings
from ascendboot.checks.network import link_down, tls_findings, unanswered_devices
from ascendboot.errors import UsageError
from ascendboot.facts.parsers.system import FileSystem, Listener
from ascendboot.facts.query import Unanswered, value_of
from ascendboot.model.cluster import Cluster
from ascendboot.model.topology import LEAST_ORDERED
from ascendboot.readiness import queries
from ascendboot.value import Value, replace

Job: TypeAlias = queries.JobRequirements
Probes: TypeAlias = Mapping[str, queries.NodeProbe]
CHECKS = {
    "setup": "",
    "open-folders": "others could change what runs as your user",
    "code": "",
    "script": "no rank starts without it",
    "data": "",
    "programs": "no rank starts without them",
    "jobs": "two jobs would spoil each other",
    "leftovers": "end them: --stop-leftovers",
    "rank-table": "ranks would take the wrong places",
    **dict.fromkeys(("packages", "devices", "device-ips", "links", "tls", "ports", "disk"), ""),
    "topology": "",
}
"""All checks in their order, with the reason why one cannot be skipped."""
ORDER = tuple(CHECKS)
SKIPPABLE = tuple(check for check, always in CHECKS.items() if not always)
_UNCHECKED = "it was not checked"


def skipped_checks(words: str | Literal[True] | None) -> tuple[str, ...]:
    """The ids that `--skip-checks` names, in the order of the checks; alone it means all."""
    if not words:
        return ()
    if words is True or words == "all":
        return SKIPPABLE
    requested = [word.strip() for word in words.split(",")]
    problems = [
        f'"{check}" cannot be skipped: {always}'
        for check, always in CHECKS.items()
        if check in requested and always
    ]
    problems += [f'there is no check "{word}"' for word in requested if word not in CHECKS]
    if problems:
        known = ", ".join(SKIPPABLE)
        raise UsageError(f"--skip-checks: {'; '.join(problems)}. What can be skipped: {known}")
    return tuple(id_ for id_ in SKIPPABLE if id_ in requested)


def readiness_findings(
    job: Job, probes: Probes, imported: Iterable[str] = (), others: finding.Findings = ()
) -> list[finding.Finding]:
    """Returns all findings in the order of the checks; equal findings of several nodes are one.

    `imported`: the packages that a script on the control machine imports; `others`: more findings.
    """
    found = [
        *others,
        *_jobs(job.own_job, probes),
        *_packages(job, probes, imported),
        *(each for node, probe in probes.items() for each in _of_node(job, node, probe)),
    ]
    tls = {name: ports.tls for name, probe in probes.items() if (ports := value_of(probe.ports))}
    found += _as_check("tls", tls_findings(tls, "error"))
    made = [each for each in finding.in_order(found) if job.makes(each.id)]
    return sorted(made, key=lambda each: ORDER.index(each.id))


def _as_check(check: str, findings: finding.Findings) -> finding.Findings:
    """Findings of setup's rules as those of a check, whose remedies follow a semicolon."""
    for each in findings:
        yield replace(each, id=check, remedy=each.remedy[:1].lower() + each.remedy[1:])


def _of_node(job: Job, node: str, probe: queries.NodeProbe) -> finding.Findings:
    yield from _unanswered(node, probe)
    for lack in value_of(probe.lacks) or ():
        text, _, remedy = lack.partition("; ")
        yield finding.error("programs", (node,), text, remedy)
    yield from script_findings(str(job.script or ""), value_of(probe.opening) or "", (node,))
    for state, path in value_of(probe.data) or ():
        remedy = "bring it there, or correct `data` in the inventory"
        yield finding.error("data", (node,), _LACKS_DATA[state].format(path), remedy)
    packages = value_of(probe.packages)
    if packages is not None and packages.lacks:
        text = f"no module {packages.lacks} for {job.python}"
        yield finding.error("programs", (node,), text, "install it or state another code.python")
    yield from _devices(job, node, probe)
    if addresses := value_of(probe.device_ips):
        yield from _addresses(job, node, addresses)
    yield from _links(node, probe)
    reported = {process.pid for process in _known_jobs(probe).processes}
    listeners = value_of(probe.listeners) or ()
    others = [each for each in listeners if each.pid is None or each.pid not in reported]
    yield from _ports(job, node, others)
    if system := value_of(probe.disk):
        yield from disk_findings(system, node)


_CHECK_OF_ANSWER = {
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
"""If `present` is unknown, so is `holders`."""


def _unanswered(node: str, probe: queries.NodeProbe) -> finding.Findings:
    """Queries without an answer, without those that another finding reports."""
    for name, check in _CHECK_OF_ANSWER.items():
        answer = getattr(probe, name)
        if not isinstance(answer, Unanswered) or answer.kind == "not-queried":
            continue
        if name in ("packages", "opening") and answer.kind == "missing":
            continue  # one of the missing programs, or the missing script
        if name == "health" and isinstance(probe.holders, Unanswered):
            continue  # they come from the same table
        yield finding.warning(check, (node,), answer.message, _UNCHECKED)


_COMES_WITH = {"torch": ("torch_npu",), "tensorflow": ("tensorflow_cpu", "npu_bridge")}
"""Packages that a job uses whenever it uses another one."""


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


def _packages(job: Job, probes: Probes, imported: Iterable[str]) -> finding.Findings:
    """An error if the job uses the package, else a warning."""
    seen = {node: found for node, probe in probes.items() if (found := value_of(probe.packages))}
    used = {"Python", *job.used, *imported}.union(*(packages.used for packages in seen.values()))
    used |= {other for name in used for other in _COMES_WITH.get(name, ())}
    versions = {"Python": {node: packages.python for node, packages in seen.items()}}
    for name in PACKAGES:
        versions[name] = {node: found.versions.get(name, "none") for node, found in seen.items()}
    for name, of_nodes in versions.items():
        # 2.1.0 and 2.1.1 are of one series, and so are 2.1.0 and 2.1.0+cpu.
        series = {".".join(version.split(".")[:2]) for version in of_nodes.values()}
        level: finding.Level = "error" if name in used and len(series) > 1 else "warning"
        remedy = "install the same version on all nodes"
        yield from finding.differences(
            "packages", of_nodes, has=f"{name} ", level=level, remedy=remedy
        )


def _ports(job: Job, node: str, listeners: Iterable[Listener]) -> finding.Findings:
    holders, wanted = finding.port_holders(listeners), job.hccl_ports[node]
    if node == job.primary and job.meeting_port in holders:
        text = f"port {job.meeting_port}, where the ranks are to meet, is taken by "
        text += holders[job.meeting_port]
        yield finding.error("ports", (node,), text, "end it, or state another resources.chief_port")
    if job.sshd_port in holders:  # while our sshd runs, the script does not query its port
        text = f"port {job.sshd_port} of the cluster's sshd, which does not run, is taken by "
        text += holders[job.sshd_port]
        yield finding.error("ports", (node,), text, "end it and run setup")
    free = [port for port in wanted if port not in holders]
    fails = node in job.hccl_is_stated or len(free) < len(job.devices[node])
    for text in finding.hccl_ports_taken(holders, wanted):
        remedy = "end it, or move HCCL: HCCL_IF_BASE_PORT"
        yield finding.Finding("ports", "error" if fails else "warning", (node,), text, remedy)


ENOUGH_BYTES = 1000**3
"""With less, a long job may fill the disk with its logs."""
_LACKS_DATA = {
    "absent": "there is no {}",
    "unreadable": "{} cannot be read",
    "silent": "{} did not answer within 5 s",
}
_PYTHONS = ("python", "pypy", "uv run")
_SHOWN_OPENING = 80


def disk_findings(system: FileSystem, node: str) -> finding.Findings:
    """Checks the free space of a node for the logs of a job."""
    purpose = "for the logs of ranks"
    if lacks := finding.disk_lacks(system):
        yield finding.error("disk", (node,), f"{lacks} {purpose}", f"free {finding.LEAST_FREE}")
    elif system.free_bytes < ENOUGH_BYTES:
        text = f"only {system.free_bytes // 1000**2} MB are free on {system.mount_point} {purpose}"
        remedy = f"free {ENOUGH_BYTES // 1000**3} GB for a long job"
        yield finding.warning("disk", (node,), text, remedy)


def script_findings(script: str, opening: str, nodes: tuple[str, ...]) -> finding.Findings:
    """Finds a script whose first line (`opening`) names an interpreter other than Python.

    A file named `.py` may start as a shell script that runs Python: that is only a warning.
    """
    if opening.startswith("#!") and not any(word in opening for word in _PYTHONS):
        text = f"{script} is no script of Python: it begins with {opening[:_SHOWN_OPENING].strip()}"
        remedy = "give train the script of Python that it starts, and what it sets as `env`"
        level: finding.Level = "warning" if script.endswith(".py") else "error"
        yield finding.Finding("script", level, nodes, text, remedy)


def topology_findings(cluster: Cluster, probes: Probes, text: str) -> finding.Findings:
    """Finds a script (`text`: of one here) with own ranks although ranks follow leaf switches."""
    if cluster.master_index is None or len(cluster.nodes) < LEAST_ORDERED:
        return
    lines = [line.partition("#")[0] for line in text.split("\n")]
    packages = (value_of(probe.packages) for probe in probes.values())
    here = any(word in line for line in lines for word in queries.SPAWNS)
    if here or any(each.spawns for each in packages if each):
        words = "the script calls mp.spawn: ranks that it starts do not follow the leaf switches"
        remedy = "train starts one rank per device itself: use its RANK and LOCAL_RANK"
        yield finding.warning("topology", (), words, remedy)


def _devices(job: Job, node: str, probe: queries.NodeProbe) -> finding.Findings:
    used, present = job.devices[node], value_of(probe.present) or ()
    absent = [id_ for id_ in sorted(used) if present and id_ not in present]
    if absent:
        listed = finding.devices(present)
        text = f"{finding.devices_are(absent)} not there: npu-smi info lists {listed}"
        remedy = "look for the cause with dmesg; bring it back, or state the others under "
        remedy += "`devices` and run setup"
        yield finding.error("devices", (node,), text, remedy)
    health = value_of(probe.health) or {}
    yield from _as_check("devices", health_findings(node, used, health))
    reported = {process.job_id for process in _known_jobs(probe).processes}
    for holder in value_of(probe.holders) or ():
        ids = [id_ for id_ in holder.devices if id_ in used]
        if not ids or holder.job_id in reported:
            continue
        who = f"pid {holder.pid} ({holder.command or 'a process that cannot be seen from here'})"
        remedy = "end it, or state the other devices under `devices`"
        if holder.job_id:
            who = f"job {holder.job_id} (pid {holder.pid})"
            remedy = f"end it: stop --job {holder.job_id}"
        yield finding.error("devices", (node,), f"{finding.devices_are(ids)} used by {who}", remedy)
    if given := value_of(probe.surroundings):
        container = job.containers[node] or ""
        # setup has checked the device nodes that only some products need
        found = device_node_findings(node, container, tuple(used), given, is_950=True)
        yield from _as_check("devices", found)


def _addresses(job: Job, node: str, seen: queries.DeviceIps) -> finding.Findings:
    """Where /etc/hccn.conf and the rank table differ; the device itself decides."""
    for device_id, stated in job.devices[node].items():
        at_boot = seen.at_boot.get(device_id)
        if stated is None or at_boot is None or at_boot == stated:
            continue
        answer = seen.now.get(device_id)
        level: finding.Level = "warning"
        text = f"the rank table has {stated} for device {device_id}"
        if answer is None or isinstance(answer, Unanswered):
            why = f" ({answer.message})" if answer else ""
            text += f", /etc/hccn.conf has {at_boot}, and the device did not answer{why}"
            remedy = "run check"
        elif answer.value != stated:
            text += f", and the device has {answer.value or 'none'}"
            level, remedy = "error", "run setup"
        else:
            text += f", as the device has it, and /etc/hccn.conf has {at_boot}"
            remedy = "correct the file before the server restarts"
        yield finding.Finding("device-ips", level, (node,), text, remedy)


def _links(node: str, probe: queries.NodeProbe) -> finding.Findings:
    ports = value_of(probe.ports)
    if ports is None:
        return
    down = [id_ for id_, answer in ports.link.items() if value_of(answer) is False]
    if down:
        yield from _as_check("links", [link_down(node, down, "error")])
    for check, answers in (("links", ports.link), ("tls", ports.tls)):
        for (why, kind), ids in unanswered_devices(answers).items():
            if (check, kind) != ("tls", "failed"):  # some tools cannot report the switch
                text = f"no answer for {finding.devices(ids)}: {why}"
                yield finding.warning(check, (node,), text, _UNCHECKED)


_SHOWN = 8


class Leftover(Value):
    """Processes that remain of a job whose launcher has ended, or that another one replaces."""

    job_id: str
    folder: PurePosixPath
    """The folder of the job, the same on every node."""
    pids: Mapping[str, tuple[int, ...]]


def leftovers(probes: Probes, own_job: str = "") -> tuple[Leftover, ...]:
    """The jobs whose launcher started on one of these nodes and runs on none of them.

    Generations of `own_job` are always left over: the next one is to start here.
    """

    def is_left(folder: queries.JobFolder) -> bool:
        is_own = bool(own_job) and folder.job_id.startswith(f"{own_job}.g")
        return is_own or (folder.launcher == "gone" and folder.job_id not in runs)

    jobs = {node: _known_jobs(probe) for node, probe in probes.items()}
    folders = [folder for of_node in jobs.values() for folder in of_node.folders]
    pids: dict[str, dict[str, tuple[int, ...]]] = {}
    for node, of_node in jobs.items():
        its = finding.grouped((process.job_id, process.pid) for process in of_node.processes)
        for job_id, of_job in its.items():
            pids.setdefault(job_id, {})[node] = tuple(of_job)
    runs = {folder.job_id for folder in folders if folder.launcher == "runs"}
    left = dict.fromkeys(folder.job_id for folder in folders if is_left(folder))
    paths = {folder.job_id: PurePosixPath(folder.path) for folder in reversed(folders)}
    return tuple(Leftover(job_id, paths[job_id], pids[job_id]) for job_id in left if job_id in pids)


def _jobs(own_job: str, probes: Probes) -> finding.Findings:
    left = {leftover.job_id for leftover in leftovers(probes, own_job)}
    jobs = {node: _known_jobs(probe) for node, probe in probes.items()}
    recorded = {folder.job_id for of_node in jobs.values() for folder in of_node.folders}
    for node, of_node in jobs.items():
        for job_id, its in finding.grouped((p.job_id, p) for p in of_node.processes).items():
            pids = ", ".join(str(process.pid) for process in its[:_SHOWN])
            more = f" and {len(its) - _SHOWN} more" if len(its) > _SHOWN else ""
            named = f"pid {pids}{more} ({its[0].command})"
            id_ = "jobs"
            if job_id in left:
                id_, what = "leftovers", "process is" if len(its) == 1 else "processes are"
                text = f"{len(its)} {what} left of job {job_id}, whose launcher is gone: {named}"
                remedy = f"end them: stop --job {job_id}, or train with --stop-leftovers"
            elif job_id in recorded:
                text = f"job {job_id} runs on this node"
                remedy = f"wait for its end, or end it: stop --job {job_id}"
            else:  # `stop` ends only jobs that have a record
                text = f"processes carry the id of job {job_id}, and no node has a folder of it: "
                text += named
                remedy = "end them with kill, or start them without the variable ASCENDBOOT_JOB_ID"
            yield finding.error(id_, (node,), text, remedy)


def _known_jobs(probe: queries.NodeProbe) -> queries.Jobs:
    return value_of(probe.jobs) or queries.Jobs()
