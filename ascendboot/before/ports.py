"""Who has the ports that a job needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ascendboot.judge.finding import Finding, numbers

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ascendboot.before.wanted import Wanted
    from ascendboot.judge.finding import Level
    from ascendboot.parse.ss import Listener


def port_findings(job: Wanted, node: str, listeners: Iterable[Listener]) -> Iterator[Finding]:
    """Ports of the job at which somebody listens."""
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
            yield _finding(
                "error" if fails else "warning",
                node,
                f"port{'s' if len(hccl) > 1 else ''} {numbers(hccl)} of HCCL's "
                f"{numbers(wanted)} {'are' if len(hccl) > 1 else 'is'} "
                f"taken by {holder}",
                "end it, or move HCCL: HCCL_IF_BASE_PORT",
            )


def _one_port(job: Wanted, node: str, port: int, holder: str) -> Iterator[Finding]:
    if port == job.meeting_port and node == job.primary:
        text = f"port {port}, where the ranks are to meet, is taken by {holder}"
        remedy = "end it, or state another resources.chief_port"
        yield _finding("error", node, text, remedy)
    elif port == job.sshd_port:
        # Ours keeps it while it runs: asked only where it does not.
        text = f"port {port} of the cluster's sshd, which does not run, is taken by {holder}"
        yield _finding("error", node, text, "end it and run setup")


def _listens(listener: Listener) -> str:
    if listener.pid is None:
        return "a program that cannot be seen from here"
    return f"{listener.program} (pid {listener.pid})"


def _finding(level: Level, node: str, text: str, remedy: str) -> Finding:
    return Finding(id="ports", level=level, nodes=(node,), text=text, remedy=remedy)
