"""The decisions of supervision: which generation runs on which nodes, as a state machine."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias

from ascendboot.errors import AscendbootError, UsageError
from ascendboot.model.cluster import Parallel
from ascendboot.supervise.memory import (
    ACTIVE,
    ENDED,
    SCHEMA,
    Action,
    End,
    Launch,
    Memory,
    State,
    Stop,
    Wait,
    from_document,
    shifted,
)
from ascendboot.supervise.policy import (
    OF_JOB,
    Fault,
    FaultKind,
    Limits,
    NodeState,
    Status,
    Treatment,
    after_fault,
    common_nodes,
    first_cause,
    healthy_again,
    hold_s,
    is_back,
)
from ascendboot.supervise.shape import World, legal_world, why_not_legal
from ascendboot.value import as_json, replace

__all__ = ["ACTIVE", "ENDED", "Action", "Core", "End", "Launch", "State", "Stop", "Wait"]

PERSISTS_S = 60.0
"""A fault of the levels RESTART_REQUEST and RESTART_BUSINESS stops a generation after this time."""
NET_PERSISTS_S = 300.0
"""A fault of the network health alone stops a generation after this time."""
EARLY_S = 120.0
"""A rank that ends earlier twice, with the same code and no step, has a bug."""
NO_MORE: Mapping[str, object] = MappingProxyType({})
CODE_GAVE_UP, CODE_NEEDS_OPERATOR, CODE_INTERRUPTED = 75, 93, 130


Pick: TypeAlias = Callable[[Sequence[str], int, Sequence[str]], tuple[str, ...]]
"""Chooses so many of the candidates, rather the last members; empty: a job can start on none."""
OnEvent: TypeAlias = Callable[[Mapping[str, object]], None]


def keep_members(candidates: Sequence[str], count: int, keep: Sequence[str]) -> tuple[str, ...]:
    """Choose nodes that run already before others; the result is in the order of `candidates`."""
    kept = set(keep)
    chosen = set(sorted(candidates, key=lambda name: name not in kept)[:count])
    return tuple(n for n in candidates if n in chosen)


def no_events(_event: Mapping[str, object]) -> None:
    """Report nothing."""


class Core:
    """The state machine of one supervised job; it reads no clock and touches no machine.

    Every call takes the time (monotonic seconds) and returns what is to be done. After each call
    the caller saves `to_json`, then does it. Calls that no longer apply return nothing.
    """

    def __init__(
        self,
        nodes: Sequence[str],
        devices: int,
        shape: Parallel,
        limits: Limits,
        pick: Pick = keep_members,
        *,
        on_event: OnEvent = no_events,
    ) -> None:
        self._m = Memory(
            order=tuple(nodes),
            nodes={name: NodeState() for name in nodes},
            devices=devices,
            shape=shape,
            limits=limits,
        )
        self._pick = pick
        self._on_event = on_event

    @property
    def state(self) -> State:
        """What supervision does now."""
        return self._m.state

    @property
    def generation(self) -> int:
        """The number of the last generation launched; 0: none yet."""
        return self._m.generation

    @property
    def members(self) -> tuple[str, ...]:
        """The nodes of the last generation, in inventory order."""
        return self._m.members

    @property
    def spares(self) -> tuple[str, ...]:
        """Healthy nodes that are not members."""
        members = set(self._m.members)
        return tuple(name for name in self._healthy() if name not in members)

    @property
    def nodes(self) -> Mapping[str, NodeState]:
        """The condition of every node."""
        return MappingProxyType(self._m.nodes)

    @property
    def restarts(self) -> int:
        """How many faults led to a restart."""
        return self._m.restarts

    @property
    def end(self) -> End | None:
        """How supervision ended; None: it has not."""
        return self._m.end

    @property
    def is_ending(self) -> bool:
        """Whether no further generation is launched: it has ended, or was interrupted."""
        return self._m.end is not None or self._m.is_interrupted

    @property
    def step(self) -> int | None:
        """The step of the newest checkpoint; None: none is known."""
        return self._m.step

    @property
    def next_nodes(self) -> tuple[str, ...]:
        """The nodes of a generation that would be launched now; empty: none is possible."""
        return self._choose() or ()

    @property
    def due(self) -> float | None:
        """When `tick` has something to do next (monotonic seconds); None: nothing is due."""
        m = self._m
        due = [until for until, _ in m.pending]
        due += [now.until for now in m.nodes.values() if now.until is not None]
        if m.state in (State.WAITING, State.DIAGNOSING):
            due.append(m.deadline)
        return min(due, default=None) if m.state not in ENDED else None

    def to_json(self) -> dict[str, Any]:
        """Return the contents of the state file."""
        return {"schema": SCHEMA, **as_json(self._m)}

    @classmethod
    def from_json(
        cls,
        document: Mapping[str, Any],
        *,
        at: float | None = None,
        pick: Pick = keep_members,
        on_event: OnEvent = no_events,
    ) -> Core:
        """Continue from a state file; call `resume` next.

        With `at`, all times are shifted so that this is the time of the last call. This is needed
        after a reboot, because monotonic time begins again. The time in between does not count.

        Raises:
            AscendbootError: the document is not a state file of this version.
        """
        memory = from_document(document)
        core = cls((), memory.devices, memory.shape, memory.limits, pick, on_event=on_event)
        core._m = memory if at is None else shifted(memory, at - memory.at)
        return core

    def begin(self, at: float) -> tuple[Action, ...]:
        """Launch the first generation on the nodes that no call has excluded."""
        self._now(at)
        if self._m.state is not State.IDLE:
            return ()
        self._enter(State.PREFLIGHT, f"{len(self._healthy())} of {len(self._m.order)} nodes pass")
        return self._plan()

    def resume(self, at: float, *, alive: bool) -> tuple[Action, ...]:
        """Repeat what may not have been done when the last supervisor ended.

        `alive` states that all ranks of the current generation run, and none of another one.
        """
        self._now(at)
        m = self._m
        if m.end:
            return (m.end,)
        if m.state in ACTIVE and alive:
            return self.launched(at) if m.state is State.LAUNCHING else self._wake()
        if m.state in ACTIVE:
            return self._stop(self._by_operator("the supervisor was started again"))
        if m.state is State.STOPPING:
            return (Stop(m.generation, self._cause()),)
        if m.state in (State.PREFLIGHT, State.PLANNING):
            return self._plan()
        return self._wake()

    def launched(self, at: float, *, generation: int | None = None) -> tuple[Action, ...]:
        """All ranks of the generation have begun."""
        self._now(at)
        if self._m.state is not State.LAUNCHING or self._is_old(generation):
            return ()
        self._m.launched_at = self._m.at
        self._enter(State.RUNNING, "all ranks have begun")
        return self._resize()

    def ended(
        self, at: float, exit_code: int, *, generation: int | None = None
    ) -> tuple[Action, ...]:
        """The launcher of the generation has ended."""
        self._now(at)
        m = self._m
        is_early = generation is None and at < m.not_before
        if m.state not in ACTIVE or is_early or self._is_old(generation):
            self._event("ignored", f"the launcher ended with exit code {exit_code}")
            return ()
        if exit_code == 0:
            return self._finish(State.DONE, 0, "the job has completed")
        kind = FaultKind.RANK_EXIT
        return self.fault(Fault(kind=kind, at=at, exit_code=exit_code, generation=generation))

    def fault(self, fault: Fault) -> tuple[Action, ...]:
        """Take note of a fault, and stop the generation if it demands that."""
        self._now(fault.at)
        if self._m.state in ENDED:
            return ()
        needs_node = fault.kind not in (*OF_JOB, FaultKind.PREEMPTED_BY_OPERATOR)
        if (fault.node or needs_node) and fault.node not in self._m.nodes:
            self._event("ignored", fault.shown)
            return ()
        return self._of_node(fault) if needs_node else self._of_job(fault)

    @property
    def persisting(self) -> tuple[Fault, ...]:
        """Faults that stop the generation if they persist."""
        return tuple(fault for _, fault in self._m.pending)

    def passed(self, at: float, fault: Fault) -> tuple[Action, ...]:
        """A persisting fault is not seen any more, and does not stop the generation."""
        self._now(at)
        m = self._m
        left = [each for each in m.pending if each[1] != fault]
        if len(left) < len(m.pending):
            m.pending = left
            self._event("passed", fault.shown, fault.node)
        return ()

    def stopped(
        self, at: float, unverified: Collection[str], *, generation: int | None = None
    ) -> tuple[Action, ...]:
        """Nothing of the generation is left, except possibly on nodes that were not verified."""
        self._now(at)
        m = self._m
        if m.state is not State.STOPPING or self._is_old(generation):
            return ()
        words = f"not verified that generation {m.generation} has ended here"
        for name in m.order:
            if name in unverified and m.nodes[name].status not in ("quarantined", "absent"):
                down = Fault(kind=FaultKind.NODE_DOWN, at=m.at, node=name, words=words)
                self._mark(down, "drop")
        if m.is_interrupted:
            return self._finish(State.GAVE_UP, CODE_INTERRUPTED, "interrupted by the operator")
        since = min(fault.at for fault in m.faults)
        wait_s = 0.0 if self._is_by_operator() else m.limits.correlate_s
        m.deadline = since + wait_s
        self._enter(State.DIAGNOSING, "no process of it is left")
        return self._diagnose() or self._wake()

    def node_up(self, at: float, *nodes: str) -> tuple[Action, ...]:
        """The nodes answer, and their NPUs and links are healthy again."""
        self._now(at)
        is_new = [self._came_up(node) for node in nodes]
        return (self._reconsider() or self._wake()) if any(is_new) else ()

    def _came_up(self, node: str) -> bool:
        """Take note of a node that answers; whether this changes its condition."""
        m = self._m
        now = self._known(node)
        m.pending = [(due, fault) for due, fault in m.pending if fault.node != node]
        if now.status in ("healthy", "quarantined") or now.until is not None:
            return False
        if node in m.excused:
            m.excused = [name for name in m.excused if name != node]
            self._set(node, healthy_again(now))
        else:
            until = m.at + hold_s(m.limits.stable_for_s, now.relapses)
            status = "soft-quarantine" if now.status == "absent" else now.status
            self._set(node, replace(now, status=status, until=until))
            if m.state is State.WAITING and not now.relapses:
                m.deadline = max(m.deadline, until)
        return True

    def checkpoint(self, at: float, step: int) -> tuple[Action, ...]:
        """`step` is that of the newest complete checkpoint now."""
        self._now(at)
        m = self._m
        is_newer = step > m.best_step
        if step != m.step:
            m.step = step
            self._event("checkpoint", f"step {step}")
        if not is_newer:
            return ()
        m.best_step = step
        m.exits = m.common_restarts = 0
        m.last_exit = None
        if m.state is not State.DRAINING:
            return ()
        return self._stop(self._by_operator("the number of nodes changes after this checkpoint"))

    def quarantine(
        self, at: float, node: str, reason: str, *, status: Status = "quarantined"
    ) -> tuple[Action, ...]:
        """Do not use a node until it is released; stops a generation that uses it.

        With the status `soft-quarantine` it is also used when it was well for some time.
        """
        self._now(at)
        m = self._m
        self._set(node, replace(self._known(node), status=status, until=None, reason=reason))
        if m.state in ACTIVE and node in m.members:
            return self._stop(self._by_operator(f"{node} was quarantined: {reason}", node))
        return self._reconsider()

    def release(self, at: float, node: str) -> tuple[Action, ...]:
        """Use a node again at once, whatever was seen of it."""
        self._now(at)
        self._known(node)
        self._m.pending = [each for each in self._m.pending if each[1].node != node]
        self._set(node, NodeState(reason="released"))
        return self._reconsider()

    def resize(self, at: float, count: int) -> tuple[Action, ...]:
        """Use at most this number of nodes from the next checkpoint on.

        Raises:
            UsageError: no world of so many nodes or fewer is legal.
        """
        self._now(at)
        m = self._m
        if legal_world(m.shape, count, m.devices, at_least=m.limits.min_nodes) is None:
            why = why_not_legal(m.shape, count, m.devices, m.limits.min_nodes)
            raise UsageError(f"resize {count}: {why}")
        m.size = count
        self._event("resize", f"at most {count} nodes")
        return self._reconsider()

    def interrupt(self, at: float) -> tuple[Action, ...]:
        """Stop the generation and end."""
        self._now(at)
        m = self._m
        if m.state in ENDED or m.is_interrupted:
            return ()
        m.is_interrupted = True
        self._event("interrupt", "by the operator")
        if m.state is State.STOPPING:
            return ()
        if m.state in ACTIVE:
            return self._stop(self._by_operator("interrupted"))
        return self._finish(State.GAVE_UP, CODE_INTERRUPTED, "interrupted by the operator")

    def tick(self, at: float) -> tuple[Action, ...]:
        """Do what is due at this time."""
        self._now(at)
        m = self._m
        if m.state in ENDED:
            return ()
        for name, now in m.nodes.items():
            if now.until is not None and now.until <= m.at:
                self._set(name, healthy_again(now))
        due = [fault for until, fault in m.pending if until <= m.at]
        if due and m.state in ACTIVE:
            return self._stop(due[0])
        return self._diagnose() or self._reconsider() or self._give_up()

    def _now(self, at: float) -> None:
        """Observations may come late; the time of the machine does not go back."""
        self._m.at = max(self._m.at, at)

    def _is_old(self, generation: int | None) -> bool:
        return generation is not None and generation != self._m.generation

    def _of_job(self, fault: Fault) -> tuple[Action, ...]:
        """Ranks of this generation ended, hang or did not start, or the operator ends them."""
        m = self._m
        is_start = fault.kind is FaultKind.START_FAILED or fault.generation is not None
        is_early = not is_start and fault.at < m.not_before
        if (
            is_early
            or self._is_old(fault.generation)
            or (fault.node and fault.node not in m.members)
        ):
            self._event("ignored", fault.shown, fault.node)
        elif m.state in ACTIVE:
            return self._stop(fault)
        elif m.state in (State.STOPPING, State.DIAGNOSING) and self._may_be_cause(fault):
            self._event("fault", fault.shown, fault.node)
            m.faults.append(fault)
        return ()

    def _may_be_cause(self, fault: Fault) -> bool:
        """What ranks do after the order to stop is its effect, unless a rank ended before."""
        first = self._m.faults[0]
        if fault.kind is FaultKind.PREEMPTED_BY_OPERATOR:
            return False
        return fault.at <= first.at or first.kind is FaultKind.RANK_EXIT

    def _of_node(self, fault: Fault) -> tuple[Action, ...]:
        m = self._m
        treatment: Treatment = "drop"
        if fault.kind is FaultKind.NPU_FAULT:
            treatment = fault.severity.treatment
        if treatment == "log":
            self._event("fault", fault.shown, fault.node)
            return ()
        if fault.is_slow:
            return self._may_persist(fault)
        self._mark(fault, treatment)
        if treatment != "suspect" and fault.node in m.members:
            if m.state in ACTIVE:
                return self._stop(fault)
            if m.state in (State.STOPPING, State.DIAGNOSING):
                m.faults.append(fault)
        return self._reconsider()

    def _may_persist(self, fault: Fault) -> tuple[Action, ...]:
        """Such a fault stops the generation later, or explains why its ranks end."""
        m = self._m
        same = [each for _, each in m.pending if (each.node, each.kind) == (fault.node, fault.kind)]
        if same or fault.node not in m.members or m.state not in (*ACTIVE, State.STOPPING):
            return ()
        self._event("fault", fault.shown, fault.node)
        if m.state is State.STOPPING:
            m.faults.append(fault)
            return ()
        wait_s = NET_PERSISTS_S if fault.kind is FaultKind.NET_FAULT else PERSISTS_S
        m.pending.append((fault.at + wait_s, fault))
        return (Wait(fault.at + wait_s),)

    def _mark(self, fault: Fault, treatment: Treatment) -> None:
        """Change the condition of the node of a fault; undo it if many nodes have the same one."""
        m = self._m
        node, now = fault.node, m.nodes[fault.node]
        self._event("fault", fault.shown, node)
        m.recent = [each for each in m.recent if fault.at - each.at <= m.limits.common_s]
        m.before = {each.node: m.before[each.node] for each in m.recent}
        if not (fault.kind is FaultKind.NODE_DOWN and now.status == "absent"):
            if node not in m.before or now.status == "absent":
                m.before[node] = now
            m.recent.append(fault)
            m.excused = [name for name in m.excused if name != node]
            self._set(node, after_fault(now, fault, treatment, m.limits.stable_for_s))
        among = {*m.members, *m.before} if m.state not in (State.IDLE, State.WAITING) else m.order
        found = common_nodes(m.recent, among, m.limits.common_s)
        if found:
            m.common_at = fault.at
            others = ", ".join(sorted(found - {node}))
            self._event("common-cause", f"{fault.shown}: also on {others}", node)
        for name in sorted(found):
            self._excuse(name)

    def _excuse(self, name: str) -> None:
        """Take back what a common cause did to a node; a node that is down stays absent."""
        m = self._m
        is_down = m.nodes[name].status == "absent"
        if is_down and name not in m.excused:
            m.excused.append(name)
        status = "absent" if is_down else m.before[name].status
        self._set(name, replace(m.before[name], status=status, reason="a common cause"))

    def _stop(self, cause: Fault) -> tuple[Action, ...]:
        m = self._m
        m.faults = [fault for _, fault in m.pending if fault is not cause]
        m.faults = [replace(fault, at=max(fault.at, cause.at)) for fault in m.faults]
        m.faults.insert(0, cause)
        m.pending = []
        self._enter(State.STOPPING, cause.shown, cause.node)
        return (Stop(m.generation, cause),)

    def _cause(self) -> Fault:
        return first_cause(self._m.faults, self._m.limits.correlate_s)

    def _by_operator(self, words: str, node: str = "") -> Fault:
        kind = FaultKind.PREEMPTED_BY_OPERATOR
        return Fault(kind=kind, at=self._m.at, node=node, words=words)

    def _is_by_operator(self) -> bool:
        return self._cause().kind is FaultKind.PREEMPTED_BY_OPERATOR

    def _diagnose(self) -> tuple[Action, ...]:
        """Judge the end of the generation once all evidence can be here; plan the next one."""
        m = self._m
        if m.state is not State.DIAGNOSING or m.at < m.deadline:
            return ()
        cause = self._cause()
        self._event("cause", cause.shown, cause.node, {"kind": cause.kind.value})
        if cause.kind is FaultKind.PREEMPTED_BY_OPERATOR:
            m.exits = 0
            m.no_progress = 0 if m.best_step > m.step_at_launch else m.no_progress
            return self._plan()
        return self._decide(cause) or self._plan()

    def _decide(self, cause: Fault) -> tuple[Action, ...]:
        """Charge the budgets; the end of supervision if one is used up."""
        m, limits = self._m, self._m.limits
        has_evidence = any(fault.kind not in OF_JOB for fault in m.faults)
        if cause.kind is FaultKind.NET_FAULT:
            self._mark(cause, "suspect")
        if m.best_step > m.step_at_launch:
            m.no_progress = 0
        elif m.launched_at is not None or cause.kind in OF_JOB:
            m.no_progress += 1  # a node that was found lost before the ranks began does not count
        is_common = m.common_at is not None and cause.at - m.common_at <= limits.common_s
        m.common_restarts += is_common
        self._doubt(cause if not has_evidence else None)
        why = ""
        if not has_evidence and self._is_bug(cause):
            why = f"{cause.shown}: the same failure twice; correct the program"
        elif is_common and m.common_restarts > 1:
            why = f"{cause.shown}: a common cause twice; check switches, storage and settings"
        elif m.no_progress >= limits.no_progress_limit:
            why = f"no newer checkpoint in {m.no_progress} generations; last cause: {cause.shown}"
        if why:
            return self._finish(State.NEEDS_OPERATOR, CODE_NEEDS_OPERATOR, why)
        if m.restarts >= limits.max_restarts:
            why = f"restarted {m.restarts} times, max_restarts is {limits.max_restarts}; "
            return self._finish(State.GAVE_UP, CODE_GAVE_UP, f"{why}last cause: {cause.shown}")
        m.restarts += 1
        is_exit = cause.kind is FaultKind.RANK_EXIT and not has_evidence
        m.exits = m.exits + 1 if is_exit else 0
        return ()

    def _doubt(self, cause: Fault | None) -> None:
        """A node whose ranks failed twice in a row is replaced, if the size stays the same."""
        m = self._m
        node = cause.node if cause else ""
        is_doubted = cause is not None and cause.kind is FaultKind.START_FAILED
        m.doubted = node if is_doubted or node == m.failed_node else ""
        m.failed_node = node

    def _is_bug(self, cause: Fault) -> bool:
        """Whether a rank ended as it did last time: at the same step, or twice after its start."""
        m = self._m
        if cause.kind is not FaultKind.RANK_EXIT:
            return False
        last, sign = m.last_exit, (cause.exit_code, cause.rank, cause.step)
        began = m.launched_at if m.launched_at is not None else cause.at
        is_early = cause.at - began <= EARLY_S
        m.last_exit = sign if cause.step is not None or is_early else None
        if last is None or m.last_exit is None:
            return False
        # Where several ranks end at once, it may be unknown which of them was the first.
        is_rank = None in (last[1], cause.rank) or last[1] == cause.rank
        return is_rank and (last[0], last[2]) == (cause.exit_code, cause.step)

    def _plan(self) -> tuple[Action, ...]:
        """Same nodes, spares, fewer nodes, or wait."""
        m = self._m
        self._enter(State.PLANNING, f"{len(self._healthy())} healthy nodes")
        chosen = self._choose()
        if chosen:
            return (self._launch(chosen),)
        first = [n.until for n in m.nodes.values() if n.until is not None and not n.relapses]
        m.deadline = max(m.at + m.limits.rejoin_wait_s, min(first, default=0.0))
        self._enter(State.WAITING, self._why_none())
        return self._wake()

    def _launch(self, chosen: tuple[str, ...]) -> Launch:
        m, limits = self._m, self._m.limits
        delay_s = 0.0
        if m.exits:
            delay_s = min(limits.backoff_s * 2.0 ** min(m.exits - 1, 60), limits.backoff_cap_s)
        m.generation += 1
        m.members = chosen
        for name in chosen:
            if is_back(m.nodes[name]):
                self._set(name, healthy_again(m.nodes[name]))
        m.not_before = m.at + delay_s
        m.launched_at, m.step_at_launch = None, m.best_step
        m.faults, m.pending = [], []
        words = f"{len(chosen)} nodes: {', '.join(chosen)}"
        self._enter(State.LAUNCHING, words, more={"nodes": list(chosen)})
        return Launch(m.generation, chosen, m.not_before, m.step)

    def _choose(self) -> tuple[str, ...] | None:
        """The nodes of the largest legal world; None: there is none.

        Nodes that are used only if needed are added one by one until a job can start.
        """
        m = self._m
        usable, others = self._healthy(), self._if_needed()
        if self._world(len(usable) + len(others)) is None:
            return None
        for more in range(len(others) + 1):
            world = self._world(len(usable) + more)
            if world is None:
                continue
            known = {*usable, *others[:more]}
            names = [name for name in m.order if name in known]
            sure = [name for name in names if name != m.doubted]
            chosen = self._picked(sure, world.nodes) if len(sure) >= world.nodes else ()
            if chosen := chosen or self._picked(names, world.nodes):
                return chosen
        return None

    def _picked(self, candidates: Sequence[str], count: int) -> tuple[str, ...]:
        """So many of the candidates; empty if a job can start on none of them."""
        known = set(candidates)
        chosen = self._pick(candidates, count, [n for n in self._m.members if n in known])
        if chosen and (len(set(chosen)) != count or not set(chosen) <= known):
            raise AscendbootError(f"pick: {chosen} are not {count} of {candidates}; a bug")
        return chosen

    def _world(self, available: int) -> World | None:
        m, limits = self._m, self._m.limits
        most = [count for count in (limits.max_nodes, m.size) if count is not None]
        at_most = min(most, default=None)
        return legal_world(
            m.shape, available, m.devices, at_least=limits.min_nodes, at_most=at_most
        )

    def _why_none(self) -> str:
        m = self._m
        count = sum(n.status in ("healthy", "suspect") for n in m.nodes.values())
        if self._world(count):
            return "no node is left from which a job can start: neither the primary nor a standby"
        return why_not_legal(m.shape, count, m.devices, m.limits.min_nodes)

    def _if_needed(self) -> list[str]:
        """Nodes to use only if there is no legal world without them: suspect ones, then others."""
        m = self._m
        suspect = [name for name in m.order if m.nodes[name].status == "suspect"]
        return [*suspect, *(name for name in m.order if is_back(m.nodes[name]))]

    def _healthy(self) -> list[str]:
        return [name for name in self._m.order if self._m.nodes[name].status == "healthy"]

    def _reconsider(self) -> tuple[Action, ...]:
        """Nodes came or went: launch if that was waited for, else see whether the size changes."""
        if self._m.state is State.WAITING:
            chosen = self._choose()
            return (self._launch(chosen),) if chosen else ()
        return self._resize()

    def _resize(self) -> tuple[Action, ...]:
        """Drain while another number of nodes is better; the change happens at a checkpoint."""
        m = self._m
        if m.state not in (State.RUNNING, State.DRAINING):
            return ()
        world = self._world(len(self._healthy()))
        size, count = world.nodes if world else 0, len(m.members)
        wants = size > count or (m.size is not None and 0 < size < count and m.size < count)
        if wants and m.state is State.RUNNING:
            self._enter(State.DRAINING, f"from {count} to {size} nodes at the next checkpoint")
        elif not wants and m.state is State.DRAINING:
            self._enter(State.RUNNING, f"stays at {count} nodes")
        return ()

    def _give_up(self) -> tuple[Action, ...]:
        m = self._m
        if m.state is not State.WAITING or m.at < m.deadline:
            return ()
        waited = f"no nodes to run on after a wait: {self._why_none()}"
        return self._finish(State.GAVE_UP, CODE_GAVE_UP, waited)

    def _wake(self) -> tuple[Action, ...]:
        return (Wait(self.due),) if self.due is not None else ()

    def _finish(self, state: State, exit_code: int, words: str) -> tuple[Action, ...]:
        self._m.end = End(state, exit_code, words)
        self._enter(state, words)
        return (self._m.end,)

    def _known(self, node: str) -> NodeState:
        if node not in self._m.nodes:
            raise UsageError(f"{node}: no such node; the nodes are {', '.join(self._m.order)}")
        return self._m.nodes[node]

    def _set(self, name: str, new: NodeState) -> None:
        if new != self._m.nodes[name]:
            self._m.nodes[name] = new
            self._event(f"node-{new.status}", new.reason, name)

    def _enter(
        self, state: State, words: str, node: str = "", more: Mapping[str, object] = NO_MORE
    ) -> None:
        self._m.state = state
        self._event(state.value.lower(), words, node, more)

    def _event(
        self, event: str, words: str, node: str = "", more: Mapping[str, object] = NO_MORE
    ) -> None:
        m = self._m
        self._on_event(
            {
                "at": m.at,
                "event": event,
                "generation": m.generation,
                "state": m.state.value,
                "node": node,
                "words": words,
                **more,
            }
        )
