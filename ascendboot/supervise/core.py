"""The decisions of supervision: which generation runs on which nodes, as a state machine."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeAlias

from ascendboot.errors import AscendbootError, UsageError
from ascendboot.model.names import counted, fold
from ascendboot.supervise import policy
from ascendboot.supervise.memory import (
    ACTIVE,
    ENDED,
    SCHEMA,
    Action,
    Choice,
    End,
    Launch,
    Memory,
    State,
    Stop,
    Wait,
)
from ascendboot.supervise.policy import OF_JOB, Fault, FaultKind, NodeState, Status, Treatment
from ascendboot.value import as_json, asdict, from_json, replace

__all__ = ["ACTIVE", "ENDED", "Action", "Choice", "Core", "End", "Launch", "State", "Stop", "Wait"]

PERSISTS_S = 60.0
"""A fault of the levels RESTART_REQUEST and RESTART_BUSINESS stops a generation after this time."""
NET_PERSISTS_S = 300.0
"""A fault of the network health alone stops a generation after this time."""
EARLY_S = 120.0
"""A rank that ends earlier twice, with the same code, has a bug."""
CODE_GAVE_UP, CODE_NEEDS_OPERATOR, CODE_INTERRUPTED = 75, 93, 130


Pick: TypeAlias = Callable[[Sequence[str], int, Sequence[str]], tuple[str, ...]]
"""Chooses so many of the candidates, rather the last members; empty: a job can start on none."""
OnEvent: TypeAlias = Callable[[Mapping[str, object]], None]


def keep_members(candidates: Sequence[str], count: int, keep: Sequence[str]) -> tuple[str, ...]:
    """Choose nodes that run already before others; the result is in the order of `candidates`."""
    kept = set(keep)
    chosen = set(sorted(candidates, key=lambda name: name not in kept)[:count])
    return tuple(n for n in candidates if n in chosen)


class Core(Memory, eq=False):
    """The state machine of one supervised job; it reads no clock and touches no machine.

    Every call takes the time (seconds since the job was begun, without those in which nothing
    supervised it) and returns what is to be done. After each call the caller saves `to_json`, then
    does it. Calls that no longer apply return nothing.
    """

    pick: Pick = keep_members
    on_event: OnEvent = lambda _event: None

    def __post_init__(self) -> None:
        self.nodes = self.nodes or {name: NodeState() for name in self.order}

    @property
    def spares(self) -> tuple[str, ...]:
        """Healthy nodes that are not members."""
        members = set(self.members)
        return tuple(name for name in self._healthy() if name not in members)

    @property
    def due(self) -> float | None:
        """When `tick` has something to do next; None: nothing is due."""
        due = [until for until, _ in self.pending]
        due += [now.until for now in self.nodes.values() if now.until is not None]
        if self.state in (State.WAITING, State.DIAGNOSING):
            due.append(self.deadline)
        return min(due, default=None) if self.state not in ENDED else None

    def to_json(self) -> dict[str, Any]:
        """Return the contents of the state file."""
        memory = {name: getattr(self, name) for name in Memory.__struct_fields__}
        return {"schema": SCHEMA, **as_json(memory)}

    @classmethod
    def from_json(
        cls,
        document: Mapping[str, Any],
        *,
        pick: Pick = keep_members,
        on_event: OnEvent = lambda _event: None,
    ) -> Core:
        """Continue from a state file, at the time of the last call; call `resume` next."""
        where, schema = "state of supervision", document.get("schema")
        if schema != SCHEMA:
            do = "use the version of ascendboot that wrote it"
            raise AscendbootError(f"{where}: schema is {schema!r}, not {SCHEMA}; {do}")
        try:
            memory = from_json(document, Memory)
        except ValueError as error:
            raise AscendbootError(f"{where}: {error}; remove the file to start again") from error
        return cls(**asdict(memory), pick=pick, on_event=on_event)

    def begin(self, at: float) -> tuple[Action, ...]:
        """Launch the first generation on the nodes that no call has excluded."""
        self._now(at)
        if self.state is not State.IDLE:
            return ()
        total = counted(len(self.order), "node")
        self._enter(State.PREFLIGHT, f"{len(self._healthy())} of {total} passed")
        return self._plan()

    def resume(self, at: float, *, alive: bool) -> tuple[Action, ...]:
        """Repeat what may not have been done when the last supervisor ended.

        `alive` states that all ranks of the current generation run, and none of another one.
        """
        self._now(at)
        if self.end:
            return (self.end,)
        if self.state in ACTIVE and alive:
            return self.launched(at) if self.state is State.LAUNCHING else self._wake()
        if self.state in ACTIVE:
            return self._stop(self._by_operator("the supervisor was started again"))
        if self.state is State.STOPPING:
            return (Stop(self.generation, self._cause()),)
        if self.state in (State.PREFLIGHT, State.PLANNING):
            return self._plan()
        return self._wake()

    def launched(self, at: float) -> tuple[Action, ...]:
        """All ranks of the generation have begun."""
        self._now(at)
        if self.state is not State.LAUNCHING:
            return ()
        self.launched_at = self.at
        self._enter(State.RUNNING, "all ranks have begun")
        return self._resize()

    def completed(self, at: float) -> tuple[Action, ...]:
        """The generation has ended with exit code 0."""
        self._now(at)
        if self.state not in ACTIVE:
            return ()
        return self._finish(State.DONE, 0, "the job has completed")

    def fault(self, fault: Fault) -> tuple[Action, ...]:
        """Take note of a fault, and stop the generation if it demands that."""
        self._now(fault.at)
        if self.state in ENDED:
            return ()
        needs_node = fault.kind not in (*OF_JOB, FaultKind.PREEMPTED_BY_OPERATOR)
        if (fault.node or needs_node) and fault.node not in self.nodes:
            self._event("ignored", fault.shown)
            return ()
        return self._of_node(fault) if needs_node else self._of_job(fault)

    @property
    def persisting(self) -> tuple[Fault, ...]:
        """Faults that stop the generation if they persist."""
        return tuple(fault for _, fault in self.pending)

    def passed(self, at: float, fault: Fault) -> tuple[Action, ...]:
        """A persisting fault is not seen any more, and does not stop the generation."""
        self._now(at)
        left = [each for each in self.pending if each[1] != fault]
        if len(left) < len(self.pending):
            self.pending = left
            self._event("passed", fault.shown, fault.node)
        return ()

    def stopped(self, at: float, unverified: Collection[str]) -> tuple[Action, ...]:
        """Nothing of the generation is left, except possibly on nodes that were not verified."""
        self._now(at)
        if self.state is not State.STOPPING:
            return ()
        words = f"not verified that generation {self.generation} has ended here"
        for name in self.order:
            if name in unverified and self.nodes[name].status not in ("quarantined", "absent"):
                down = Fault(kind=FaultKind.NODE_DOWN, at=self.at, node=name, words=words)
                self._mark(down, "drop")
        if self.is_interrupted:
            return self._finish(State.GAVE_UP, CODE_INTERRUPTED, "interrupted by the operator")
        is_by_operator = self._cause().kind is FaultKind.PREEMPTED_BY_OPERATOR
        wait_s = 0.0 if is_by_operator else self.limits.correlate_s
        self.deadline = min(fault.at for fault in self.faults) + wait_s
        self._enter(State.DIAGNOSING, "no process of it is left")
        return self._diagnose() or self._wake()

    def node_up(self, at: float, *nodes: str) -> tuple[Action, ...]:
        """The nodes answer, and their NPUs and links are healthy again."""
        self._now(at)
        is_new = False
        for node in nodes:
            now = self._known(node)
            self.pending = [(due, fault) for due, fault in self.pending if fault.node != node]
            if now.status in ("healthy", "quarantined") or now.until is not None:
                continue
            is_new = True
            if node in self.excused:
                self.excused = [name for name in self.excused if name != node]
                self._set(node, policy.healthy_again(now))
            else:
                until = self.at + policy.hold_s(self.limits.stable_for_s, now.relapses)
                status = "soft-quarantine" if now.status == "absent" else now.status
                self._set(node, replace(now, status=status, until=until))
                if self.state is State.WAITING and not now.relapses:
                    self.deadline = max(self.deadline, until)
        return (self._reconsider() or self._wake()) if is_new else ()

    def checkpoint(self, at: float, step: int) -> tuple[Action, ...]:
        """`step` is that of the newest complete checkpoint now."""
        self._now(at)
        if step != self.step:
            self.step = step
            self._event("checkpoint", f"step {step}")
        if step <= self.best_step:
            return ()
        self.best_step = step
        self.exits = self.common_restarts = 0
        self.early_exit = None
        if self.state is not State.DRAINING:
            return ()
        return self._stop(self._by_operator("the number of nodes changes after this checkpoint"))

    def quarantine(
        self, at: float, nodes: Sequence[str], reason: str, *, status: Status = "quarantined"
    ) -> tuple[Action, ...]:
        """Do not use nodes until they are released; stops a generation that uses one of them.

        With the status `soft-quarantine` they are also used when they were well for some time.
        """
        self._now(at)
        for node, now in [(node, self._known(node)) for node in nodes]:
            self._set(node, replace(now, status=status, until=None, reason=reason))
        if self.state in ACTIVE and (used := [node for node in nodes if node in self.members]):
            words = f"{fold(used)}: quarantined: {reason}"
            return self._stop(self._by_operator(words, "" if used[1:] else used[0]))
        return self._reconsider()

    def release(self, at: float, *nodes: str) -> tuple[Action, ...]:
        """Use nodes again at once, whatever was seen of them."""
        self._now(at)
        for node, _ in [(node, self._known(node)) for node in nodes]:
            self.pending = [each for each in self.pending if each[1].node != node]
            self._set(node, NodeState(reason="released"))
        return self._reconsider()

    def resize(self, at: float, count: int) -> tuple[Action, ...]:
        """Use at most this number of nodes from the next checkpoint on."""
        self._now(at)
        least = self.limits.min_nodes
        if policy.legal_world(self.shape, count, self.devices, at_least=least) is None:
            why = policy.why_not_legal(self.shape, count, self.devices, least)
            raise UsageError(f"resize {count}: {why}")
        self.size = count
        self._event("resize", f"at most {counted(count, 'node')}")
        return self._reconsider()

    def interrupt(self, at: float, words: str = "") -> tuple[Action, ...]:
        """Stop the generation and end; `words` say why, if not by Ctrl-C."""
        self._now(at)
        words = words or "interrupted by the operator"
        if self.state in ENDED or self.is_interrupted:
            return ()
        self.is_interrupted = True
        self._event("interrupt", words)
        if self.state is State.STOPPING:
            return ()
        if self.state in ACTIVE:
            return self._stop(self._by_operator(words))
        return self._finish(State.GAVE_UP, CODE_INTERRUPTED, "interrupted by the operator")

    def tick(self, at: float) -> tuple[Action, ...]:
        """Do what is due at this time."""
        self._now(at)
        if self.state in ENDED:
            return ()
        for name, now in self.nodes.items():
            if now.until is not None and now.until <= self.at:
                self._set(name, policy.healthy_again(now))
        due = [fault for until, fault in self.pending if until <= self.at]
        if due and self.state in ACTIVE:
            return self._stop(due[0])
        actions = self._diagnose() or self._reconsider()
        if actions or self.state is not State.WAITING or self.at < self.deadline:
            return actions
        waited = f"no nodes to run on after a wait: {self._why_none()}"
        return self._finish(State.GAVE_UP, CODE_GAVE_UP, waited)

    def _now(self, at: float) -> None:
        """Observations may come late; the time of the machine does not go back."""
        self.at = max(self.at, at)

    def _of_job(self, fault: Fault) -> tuple[Action, ...]:
        """Ranks of this generation ended, hang or did not start, or the operator ends them."""
        if fault.node and fault.node not in self.members:
            self._event("ignored", fault.shown, fault.node)
        elif self.state in ACTIVE:
            return self._stop(fault)
        elif self.state in (State.STOPPING, State.DIAGNOSING) and fault.kind in OF_JOB:
            first = self.faults[0]
            # What ranks do after the order to stop is its effect, unless a rank ended before.
            if fault.at <= first.at or first.kind is FaultKind.RANK_EXIT:
                self._event("fault", fault.shown, fault.node)
                self.faults.append(fault)
        return ()

    def _of_node(self, fault: Fault) -> tuple[Action, ...]:
        treatment: Treatment = "drop"
        if fault.kind is FaultKind.NPU_FAULT:
            treatment = fault.severity.treatment
        if treatment == "log":
            self._event("fault", fault.shown, fault.node)
            return ()
        if fault.is_slow:
            return self._may_persist(fault)
        self._mark(fault, treatment)
        if treatment != "suspect" and fault.node in self.members:
            if self.state in ACTIVE:
                return self._stop(fault)
            if self.state in (State.STOPPING, State.DIAGNOSING):
                self.faults.append(fault)
        return self._reconsider()

    def _may_persist(self, fault: Fault) -> tuple[Action, ...]:
        """Such a fault stops the generation later, or explains why its ranks end."""
        is_known = (fault.node, fault.kind) in {(each.node, each.kind) for _, each in self.pending}
        is_member = fault.node in self.members
        if is_known or not is_member or self.state not in (*ACTIVE, State.STOPPING):
            return ()
        self._event("fault", fault.shown, fault.node)
        if self.state is State.STOPPING:
            self.faults.append(fault)
            return ()
        wait_s = NET_PERSISTS_S if fault.kind is FaultKind.NET_FAULT else PERSISTS_S
        self.pending.append((fault.at + wait_s, fault))
        return (Wait(fault.at + wait_s),)

    def _mark(self, fault: Fault, treatment: Treatment) -> None:
        """Change the condition of the node of a fault; undo it if many nodes have the same one."""
        node, now = fault.node, self.nodes[fault.node]
        self._event("fault", fault.shown, node)
        self.recent = [each for each in self.recent if fault.at - each.at <= self.limits.common_s]
        self.before = {each.node: self.before[each.node] for each in self.recent}
        if not (fault.kind is FaultKind.NODE_DOWN and now.status == "absent"):
            if node not in self.before or now.status == "absent":
                self.before[node] = now
            self.recent.append(fault)
            self.excused = [name for name in self.excused if name != node]
            self._set(node, policy.after_fault(now, fault, treatment, self.limits.stable_for_s))
        runs_none = self.state in (State.IDLE, State.WAITING)
        among = self.order if runs_none else {*self.members, *self.before}
        found = policy.common_nodes(self.recent, among, self.limits.common_s)
        if found:
            self.common_at = fault.at
            words = f"{fault.shown}: also on {fold(found - {node})}"
            self._event("common-cause", words, node)
        for name in sorted(found):  # takes back what it did; a node that is down stays absent
            is_down = self.nodes[name].status == "absent"
            if is_down and name not in self.excused:
                self.excused.append(name)
            status = "absent" if is_down else self.before[name].status
            self._set(name, replace(self.before[name], status=status, reason="a common cause"))

    def _stop(self, cause: Fault) -> tuple[Action, ...]:
        self.faults = [fault for _, fault in self.pending if fault is not cause]
        self.faults = [replace(fault, at=max(fault.at, cause.at)) for fault in self.faults]
        self.faults.insert(0, cause)
        self.pending = []
        self._enter(State.STOPPING, cause.shown, cause.node)
        return (Stop(self.generation, cause),)

    def _cause(self) -> Fault:
        return policy.first_cause(self.faults, self.limits.correlate_s)

    def _by_operator(self, words: str, node: str = "") -> Fault:
        kind = FaultKind.PREEMPTED_BY_OPERATOR
        return Fault(kind=kind, at=self.at, node=node, words=words)

    def _diagnose(self) -> tuple[Action, ...]:
        """Judge the end of the generation once all evidence can be here; plan the next one."""
        if self.state is not State.DIAGNOSING or self.at < self.deadline:
            return ()
        cause = self._cause()
        self._event("cause", cause.shown, cause.node, {"kind": cause.kind.value})
        if cause.kind is FaultKind.PREEMPTED_BY_OPERATOR:
            self.exits = 0
            self.no_progress = 0 if self.best_step > self.step_at_launch else self.no_progress
            return self._plan()
        return self._decide(cause) or self._plan()

    def _decide(self, cause: Fault) -> tuple[Action, ...]:
        """Charge the budgets; the end of supervision if one is used up."""
        limits = self.limits
        has_evidence = any(fault.kind not in OF_JOB for fault in self.faults)
        if cause.kind is FaultKind.NET_FAULT:
            self._mark(cause, "suspect")
        if self.best_step > self.step_at_launch:
            self.no_progress = 0
        elif self.launched_at is not None or cause.kind in OF_JOB:
            # A node that was found lost before the ranks began does not count.
            self.no_progress += 1
        is_common = self.common_at is not None and cause.at - self.common_at <= limits.common_s
        self.common_restarts += is_common
        # A node whose ranks failed twice in a row is replaced, if the size stays the same.
        node = "" if has_evidence else cause.node
        is_doubted = not has_evidence and cause.kind is FaultKind.START_FAILED
        self.doubted = node if is_doubted or node == self.failed_node else ""
        self.failed_node = node
        why = ""
        if not has_evidence and self._is_bug(cause):
            why = f"{cause.shown}: the same failure twice; correct the program"
        elif is_common and self.common_restarts > 1:
            why = f"{cause.shown}: a common cause twice; check switches, storage and settings"
        elif self.no_progress >= limits.no_progress_limit:
            count = counted(self.no_progress, "generation")
            why = f"no newer checkpoint in {count}; last cause: {cause.shown}"
        if why:
            return self._finish(State.NEEDS_OPERATOR, CODE_NEEDS_OPERATOR, why)
        if self.restarts >= limits.max_restarts:
            times = counted(self.restarts, "time")
            why = f"restarted {times}, max_restarts is {limits.max_restarts}; "
            return self._finish(State.GAVE_UP, CODE_GAVE_UP, f"{why}last cause: {cause.shown}")
        self.restarts += 1
        is_exit = cause.kind is FaultKind.RANK_EXIT and not has_evidence
        self.exits = self.exits + 1 if is_exit else 0
        return ()

    def _is_bug(self, cause: Fault) -> bool:
        """Whether a rank ended soon after its start, as it did last time."""
        if cause.kind is not FaultKind.RANK_EXIT:
            return False
        last, self.early_exit = self.early_exit, None
        if self.launched_at is not None and cause.at - self.launched_at > EARLY_S:
            return False
        self.early_exit = cause.exit_code, cause.rank
        if last is None:
            return False
        # Where several ranks end at once, it may be unknown which of them was the first.
        is_rank = None in (last[1], cause.rank) or last[1] == cause.rank
        return is_rank and last[0] == cause.exit_code

    def _plan(self) -> tuple[Action, ...]:
        """Same nodes, spares, fewer nodes, or wait."""
        self._enter(State.PLANNING, counted(len(self._healthy()), "healthy node"))
        chosen = self._choose()
        if chosen:
            return (self._launch(chosen),)
        first = [n.until for n in self.nodes.values() if n.until is not None and not n.relapses]
        self.deadline = max(self.at + self.limits.rejoin_wait_s, min(first, default=0.0))
        self._enter(State.WAITING, self._why_none())
        return self._wake()

    def _launch(self, chosen: tuple[str, ...]) -> Launch:
        limits = self.limits
        delay_s = 0.0
        if self.exits:
            delay_s = min(limits.backoff_s * 2.0 ** min(self.exits - 1, 60), limits.backoff_cap_s)
        self.generation += 1
        self.members = chosen
        for name in chosen:
            if policy.is_back(self.nodes[name]):
                self._set(name, policy.healthy_again(self.nodes[name]))
        self.launched_at, self.step_at_launch = None, self.best_step
        self.faults, self.pending = [], []
        words = f"{counted(len(chosen), 'node')}: {fold(chosen)}"
        self._enter(State.LAUNCHING, words, more={"nodes": list(chosen)})
        return Launch(self.generation, chosen, self.at + delay_s)

    def _choose(self) -> tuple[str, ...] | None:
        """The nodes of the largest legal world, if need be with others, suspect first; or None."""
        usable = self._healthy()
        others = [name for name in self.order if self.nodes[name].status == "suspect"]
        others += [name for name in self.order if policy.is_back(self.nodes[name])]
        if self._world(len(usable) + len(others)) is None:
            return None
        for more in range(len(others) + 1):
            count = self._world(len(usable) + more)
            if count is None:
                continue
            known = {*usable, *others[:more]}
            names = [name for name in self.order if name in known]
            sure = [name for name in names if name != self.doubted]
            chosen = self._picked(sure, count) if len(sure) >= count else ()
            if chosen := chosen or self._picked(names, count):
                return chosen
        return None

    def _picked(self, candidates: Sequence[str], count: int) -> tuple[str, ...]:
        """So many of the candidates; empty if a job can start on none of them."""
        known = set(candidates)
        return self.pick(candidates, count, [n for n in self.members if n in known])

    def _world(self, available: int) -> int | None:
        limits = self.limits
        most = [count for count in (limits.max_nodes, self.size) if count is not None]
        at_most = min(most, default=None)
        return policy.legal_world(
            self.shape, available, self.devices, at_least=limits.min_nodes, at_most=at_most
        )

    def _why_none(self) -> str:
        count = sum(n.status in ("healthy", "suspect") for n in self.nodes.values())
        if self._world(count):
            return "no node is left from which a job can start: neither the primary nor a standby"
        return policy.why_not_legal(self.shape, count, self.devices, self.limits.min_nodes)

    def _healthy(self) -> list[str]:
        return [name for name in self.order if self.nodes[name].status == "healthy"]

    def _reconsider(self) -> tuple[Action, ...]:
        """Nodes came or went: launch if that was waited for, else see whether the size changes."""
        if self.state is State.WAITING:
            chosen = self._choose()
            return (self._launch(chosen),) if chosen else ()
        return self._resize()

    def _resize(self) -> tuple[Action, ...]:
        """Drain while another number of nodes is better; the change happens at a checkpoint."""
        if self.state not in (State.RUNNING, State.DRAINING):
            return ()
        size, count = self._world(len(self._healthy())) or 0, len(self.members)
        wants = size > count or (self.size is not None and 0 < size < count and self.size < count)
        if wants and self.state is State.RUNNING:
            better = counted(size, "node")
            self._enter(State.DRAINING, f"from {count} to {better} at the next checkpoint")
        elif not wants and self.state is State.DRAINING:
            self._enter(State.RUNNING, f"stays at {counted(count, 'node')}")
        return ()

    def _wake(self) -> tuple[Action, ...]:
        return (Wait(self.due),) if self.due is not None else ()

    def _finish(self, state: State, exit_code: int, words: str) -> tuple[Action, ...]:
        self.end = End(state, exit_code, words)
        self._enter(state, words)
        return (self.end,)

    def _known(self, node: str) -> NodeState:
        if node not in self.nodes:
            raise UsageError(f"{node}: no such node; the nodes are {', '.join(self.order)}")
        return self.nodes[node]

    def _set(self, name: str, new: NodeState) -> None:
        if new != self.nodes[name]:
            self.nodes[name] = new
            self._event(f"node-{new.status}", new.reason, name)

    def _enter(
        self, state: State, words: str, node: str = "", more: Mapping[str, object] | None = None
    ) -> None:
        self.state = state
        self._event(state.value.lower(), words, node, more)

    def _event(
        self, event: str, words: str, node: str = "", more: Mapping[str, object] | None = None
    ) -> None:
        self.on_event(
            {
                "at": self.at,
                "event": event,
                "generation": self.generation,
                "state": self.state.value,
                "node": node,
                "words": words,
                **(more or {}),
            }
        )
