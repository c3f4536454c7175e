"""`reset`: take back what setup did."""

from __future__ import annotations

import os
import sys
import threading
import time
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from invoke.context import Context  # noqa: TC002 - Invoke reads the signature
from invoke.exceptions import Exit

from ascendboot.console import Screen
from ascendboot.errors import CommandError, NodeError, UsageError
from ascendboot.facts.api import Answered, ask
from ascendboot.launch.look import living
from ascendboot.model.report import Outcome, Report, StepResult
from ascendboot.outcomes import failed, ok
from ascendboot.state import State, whoami
from ascendboot.steps.lock import lock
from ascendboot.tasks.common import (
    FORKS,
    FORKS_HELP,
    INVENTORY_HELP,
    JSON_HELP,
    forks_of,
    on_interrupt,
    reports_errors,
    wanted_cluster,
)
from ascendboot.tasks.flags import task
from ascendboot.tasks.leftovers import Found, find, results, take_back
from ascendboot.tasks.session import Session
from ascendboot.transport.pool import for_each

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from ascendboot.launch.look import JobLook
    from ascendboot.model.cluster import Cluster

HERE = "here"
"""Stands for the operator's side where a report names nodes."""


@task(
    help={
        "inventory": INVENTORY_HELP,
        "plan": "Show what would be taken back, and change nothing",
        "yes": "Do not ask; needed where there is no terminal to ask on",
        "forks": FORKS_HELP,
        "json": JSON_HELP,
    }
)
@reports_errors
def reset(  # noqa: PLR0917 - Invoke makes a flag of each
    c: Context,
    inventory: str | None = None,
    plan: bool = False,
    yes: bool = False,
    forks: str = FORKS,
    json: bool = False,
) -> None:
    """Take back what setup did on the nodes and here, and nothing else.

    Ends the cluster's own sshd and removes the cluster's folder on every node, logs of jobs there
    included. Files that ascendboot did not make, such as checkpoints, are left and named. The runs
    kept here stay, and so do the host keys that were accepted. Refused while a job runs.

    Examples:
      invoke reset --plan                     what would be taken back; changes nothing
      invoke reset --inventory two-node.yaml --yes

    Exit codes: 0 done, 1 a job runs or something could not be taken back, 2 wrong use, 4 a node is
    unreachable, 130 interrupted.
    """
    workers = forks_of(forks)
    path, cluster = wanted_cluster(inventory, with_own_table=False)
    state, screen = State.here(), Screen(json_mode=json)
    run = state.new_run("reset")
    guard = nullcontext() if plan else state.locked(cluster.name, run.run_id)
    interrupted = threading.Event()
    promise = "what runs on the nodes is let finish; press Ctrl-C again to stop at once"
    with (
        on_interrupt(interrupted.set, screen, promise),
        guard,
        Session.opened(cluster, state, run, accept_new=False, forks=workers) as session,
    ):
        walk = Reset(session, path, screen, interrupted)
        if walk.look():
            if plan:
                walk.plan()
            elif not walk.has_work:
                walk.say_nothing()
            elif _agreed(walk, screen, yes=yes, asks=not json):
                walk.apply()
    report = walk.report()
    run.write_json("report.json", report.to_json())
    if json:
        screen.json(report.to_json())
    screen.summary(report, run.shown, planned=plan)
    if report.exit_code:
        raise Exit(code=report.exit_code)


@dataclass
class Reset:
    """One reset: what was found, and what came of it."""

    session: Session
    inventory: Path
    screen: Screen
    interrupted: threading.Event
    results: list[StepResult] = field(default_factory=list)
    found: dict[str, Found] = field(default_factory=dict)

    @property
    def cluster(self) -> Cluster:
        """The cluster that is taken back."""
        return self.session.cluster

    @property
    def here(self) -> list[Path]:
        """The files on the operator's side that would go."""
        return self.session.state.setup_left_here(self.cluster.name, self.inventory)

    @property
    def has_work(self) -> bool:
        """Whether there is anything to take back."""
        return bool(self.here) or any(not found.is_nothing for found in self.found.values())

    def look(self) -> bool:
        """Ask every node, in one execution; False where something stands in the way."""
        began = time.monotonic()
        hosts, errors = self.session.connect_hosts_to_look(self.cluster.nodes)
        nodes = [node for node in self.cluster.nodes if node.name in hosts]
        former = self.session.former
        answers = for_each(
            nodes,
            lambda node: find(self.cluster, node, hosts[node.name], former.get(node.name)),
            forks=self._forks,
        )
        took = time.monotonic() - began
        told: list[StepResult] = []
        for node in self.cluster.nodes:
            answer = errors.get(node.name) or answers[node.name]
            if isinstance(answer, NodeError):
                told.append(failed("ask", "questions", answer, took))
            else:
                self.found[node.name] = answer
                told.append(ok(node.name, "ask", "questions", "answered", took))
        told += _of_running({name: found.jobs for name, found in self.found.items()})
        self._end("Ask every node", told)
        return all(result.outcome is Outcome.OK for result in told)

    def plan(self) -> None:
        """What would be taken back."""
        told = [
            result
            for node, found in self.found.items()
            for result in results(node, found, Outcome.WOULD_CHANGE)
        ]
        told += [self._of_file(path, Outcome.WOULD_CHANGE) for path in self.here]
        self._end("What reset would take back", told or [_nothing_here()])

    def say_nothing(self) -> None:
        """There was nothing to take back."""
        told = [r for n, found in self.found.items() for r in results(n, found, Outcome.OK)]
        self._end("Take back what setup did", [*told, _nothing_here()])

    def apply(self) -> None:
        """Take it all back: under the cluster's lock, in one execution per node."""
        if self.interrupted.is_set():
            return
        if any(not found.is_nothing for found in self.found.values()):
            problem = self._lock()
            if problem is not None:
                self._end("Lock the cluster", [failed("ask", "lock", problem, 0.0)])
                return
        began = time.monotonic()
        hosts = self.session.hosts
        answers = for_each(
            self.cluster.nodes,
            lambda node: take_back(self.cluster, self.found[node.name], hosts[node.name]),
            forks=self._forks,
        )
        took = time.monotonic() - began
        told: list[StepResult] = []
        for node, answer in answers.items():
            if isinstance(answer, NodeError):
                told.append(failed("reset", "files", answer, took))
            else:
                told += results(node, answer, Outcome.CHANGED, took)
        if not any(r.outcome in {Outcome.FAILED, Outcome.UNREACHABLE} for r in told):
            told += self._clear_here()
        self._end("Take back what setup did", told)

    def report(self) -> Report:
        """Everything that happened."""
        return Report(
            run_id=self.session.run.run_id,
            cluster=self.cluster.name,
            results=tuple(self.results),
            interrupted=self.interrupted.is_set(),
        )

    @property
    def _forks(self) -> int:
        return self.session.forks

    def _lock(self) -> NodeError | None:
        primary = self.cluster.primary_name
        holder = f"run {self.session.run.run_id} of {whoami()}"
        asked = {"lock": lock(self.cluster.name, holder)}
        answer = ask(self.session.hosts[primary], asked)["lock"]
        if isinstance(answer, Answered):
            if not answer.value.holder:
                return None
            words = (
                f"another setup or reset holds it: {answer.value.holder}; wait until it has ended"
            )
            return CommandError(primary, f"could not lock the cluster: {words}")
        return CommandError(primary, answer.message)

    def _clear_here(self) -> list[StepResult]:
        results = []
        for path in self.here:
            path.unlink()
            results.append(self._of_file(path, Outcome.CHANGED))
            if path.parent.name == "ca":
                with suppress(OSError):  # not empty: what else is there is not ours
                    path.parent.rmdir()
        return results or [_nothing_here()]

    @staticmethod
    def _of_file(path: Path, outcome: Outcome) -> StepResult:
        words = "removed" if outcome is Outcome.CHANGED else "would be removed"
        detail = f"{os.path.relpath(path)} {words}"
        return StepResult(node=HERE, phase="reset", step="files", outcome=outcome, detail=detail)

    def _end(self, title: str, results: Sequence[StepResult]) -> None:
        self.results += results
        self.screen.phase(title, results)


def _agreed(walk: Reset, screen: Screen, *, yes: bool, asks: bool) -> bool:
    if yes:
        return True
    if not (asks and sys.stdin.isatty()):
        raise UsageError(
            f"reset: could not ask whether to take back the setup of {walk.cluster.name}: there "
            "is no terminal; see --plan, and say --yes"
        )
    for node, found in walk.found.items():
        for result in results(node, found, Outcome.WOULD_CHANGE):
            screen.say(f"  {node}  {result.detail}")
    for path in walk.here:
        screen.say(f"  {HERE}  {os.path.relpath(path)} would be removed")
    if screen.agrees(f"Take back the setup of {walk.cluster.name}?"):
        return True
    raise Exit("nothing was changed", code=1)


def _of_running(looks: Mapping[str, dict[str, JobLook]]) -> list[StepResult]:
    """One result per job of which something lives, on every node where it does."""
    return [
        StepResult(
            node=node,
            phase="ask",
            step="jobs",
            outcome=Outcome.BLOCKED,
            detail=f"{node}: job {job_id} runs; end it first with: stop --job {job_id}",
        )
        for job_id, nodes in living(dict(looks)).items()
        for node in nodes
    ]


def _nothing_here() -> StepResult:
    detail = "nothing to take back on this side"
    return StepResult(node=HERE, phase="reset", step="files", outcome=Outcome.OK, detail=detail)
