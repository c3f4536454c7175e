"""`quarantine`, `release`, `resize`, `events`: change a supervised job, and follow what happens."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Final

from ascendboot.cli.common import whole_number
from ascendboot.cli.known_jobs import SUPERVISE_FOLDER, now, recorded, supervised_run
from ascendboot.cli.verbs import ANSWER_HELP, STOPPED, Call, verb
from ascendboot.console.screen import Screen
from ascendboot.errors import AscendbootError, UsageError
from ascendboot.model.names import names_among
from ascendboot.supervise.core import ENDED, Core
from ascendboot.supervise.history import event_line
from ascendboot.supervise.requests import Answer, Request, carry_out
from ascendboot.supervise.store import Store, SupervisedError, Writer
from ascendboot.value import Value, replace

ANSWER_S: Final = 60.0
"""`train` answers between two queries of the nodes, which may take seconds each."""
_TAKEN_S: Final = 10.0
"""For the answer to a request that was taken."""
_PAUSE_S: Final = 0.5
_HELP: Final = {
    "job": "The id of a supervised job. Default: the one that runs, otherwise the last one",
    "json": ANSWER_HELP,
}

_NODES_HELP: Final = {
    "node": "The nodes, as atlas-[3-4] or @group",
    "inventory": "The inventory that has the groups. Default: as for other verbs",
    **_HELP,
}


@verb(
    shared=("inventory", "json"),
    help={"reason": "Why; stands in the events and in status", **_NODES_HELP},
)
def quarantine(call: Call, *, node: str, job: str = "", reason: str = "by the operator") -> None:
    """Keep nodes out of a supervised job until `release`.

    Other jobs use them as before. If the running generation uses one of them,
    it ends, and the next one starts on other nodes. This is no restart for
    --max-restarts.

    Examples:
      invoke quarantine atlas-[3-4]
      invoke quarantine atlas-3 --reason "fan 2 is loud"

    Exit codes: 0 done, 1 train did not answer, 2 no such job or node, or the
    job has ended.
    """
    shown = "".join(c if c.isprintable() else " " for c in reason)[:200]
    _request(call, job, Request(verb="quarantine", reason=shown), node)


@verb(shared=("inventory", "json"), help=_NODES_HELP)
def release(call: Call, *, node: str, job: str = "") -> None:
    """Let a supervised job use nodes again at once, whatever was seen of them.

    A running job takes them in after its next checkpoint, if more nodes are of
    use, without `checkpoint` in the inventory at its next restart. A job that
    waits for nodes starts at once. If checkpoints are on local disks, first
    copy the newest one to these nodes, or the job begins at an older step.

    Examples:
      invoke release atlas-3
      invoke release atlas-3 --job 20260102-030405-train-ab12

    Exit codes: 0 done, 1 train did not answer, 2 no such job or node, or the
    job has ended.
    """
    _request(call, job, Request(verb="release"), node)


@verb(help={"count": "The largest number of nodes", **_HELP})
def resize(call: Call, *, count: str, job: str = "") -> None:
    """Let a supervised job use at most N nodes, from its next checkpoint on.

    Without `checkpoint` in the inventory it does so at its next restart. For
    more nodes and checkpoints on local disks see `release`.

    Examples:
      invoke resize 2
      invoke resize 8 --job 20260102-030405-train-ab12

    Exit codes: 0 done, 1 train did not answer, 2 no such job, no such number
    of nodes is possible, or the job has ended.
    """
    nodes = whole_number("resize", count, at_least=1)
    _request(call, job, Request(verb="resize", count=nodes))


@verb(
    stopped=STOPPED,
    help={
        "job": _HELP["job"],
        "follow": "Continue until the job ends; Ctrl-C ends only this verb",
        "json": "Print one JSON object per line",
    },
)
def events(call: Call, *, job: str = "", follow: bool = False) -> None:
    """Print what happened to a supervised job, one line per event, times in UTC.

    Examples:
      invoke events
      invoke events --follow
      invoke events --json | jq -c 'select(.event == "cause")'

    Exit codes: 0 printed, 2 no such job.
    """
    run = supervised_run(call.state, job)
    store, place = Store(run.folder / SUPERVISE_FOLDER), 0
    write = Screen.raw(to_stderr=False)
    while True:
        new, place = store.events_from(place)
        for event in new:
            line = json.dumps(event) if call.json else event_line(event)
            if not call.json:  # what does not fit continues below the name of the event
                at, number, words = line.split(" ", 2)
                begin = f"{at} {number} "
                line = begin + "\n".join(call.screen.fitted(words, len(begin)))
            try:
                write(f"{line}\n".encode(errors="backslashreplace"))
            except BrokenPipeError:  # the reader has exited (`| head -1`)
                return
        state = store.read_state() or {}
        if not follow or (not new and state.get("state") in ENDED):
            return
        time.sleep(_PAUSE_S)


def _request(call: Call, job: str, request: Request, nodes: str | None = None) -> None:
    run = supervised_run(call.state, job)
    store = Store(run.folder / SUPERVISE_FOLDER)
    if nodes is not None:
        known = (store.read_state() or {}).get("order", ())
        groups = call.cluster().groups if "@" in nodes.replace("@*", "") else {}
        request = replace(request, nodes=names_among(request.verb, nodes, known, groups))
    answer = Ask(store, run.run_id, call.screen)(request)
    if answer.is_refused:
        raise UsageError(f"{run.run_id}: {answer.words}")
    for line in answer.words.splitlines():
        call.screen.say(line)
    call.end(0, {"job_id": run.run_id, "words": answer.words})


class Ask(Value):
    """Passes requests to the `train` of a job, or changes the state of a job without one."""

    store: Store
    job_id: str
    screen: Screen
    clock: Callable[[], float] = time.monotonic
    pause: Callable[[float], None] = time.sleep

    def __call__(self, request: Request) -> Answer:
        """Return what was decided; UsageError if that is impossible, AscendbootError if unknown."""
        try:
            with self.store.writing(now().isoformat(timespec="seconds")) as writer:
                return self._changed(writer, request)
        except SupervisedError:
            return self._answered(request) or self(request)

    def end(self) -> str:
        """End the job; return what was decided, once its `train` can start nothing more."""
        answer = self(Request(verb="stop"))
        if answer.is_refused:
            raise UsageError(f"{self.job_id}: {answer.words}")
        until = self.clock() + ANSWER_S
        while (
            self.store.is_supervised and (self.store.read_state() or {}).get("state") not in ENDED
        ):
            if self.clock() >= until:
                why = f"after {ANSWER_S:g} s its train still ends it; see status, and repeat stop"
                raise AscendbootError(f"{self.job_id}: {answer.words}; {why}")
            self.pause(_PAUSE_S)
        return answer.words

    def _changed(self, writer: Writer, request: Request) -> Answer:
        """Change the state file; the next `train --resume` acts on it."""
        state, on_event = self.store.read_state() or {}, recorded(writer.event)
        core = Core.from_json(state, on_event=on_event)
        _, words = carry_out(core, core.at, request)
        if request.verb == "stop":
            core.stopped(core.at, ())  # the verb itself has ended the processes
        else:
            words += f"\nno train supervises {self.job_id} now: this counts from "
            words += f"train SCRIPT --resume {self.job_id} on"
        writer.state(core.to_json())
        return Answer(words)

    def _answered(self, request: Request) -> Answer | None:
        """Hand over a request and wait for the answer; None: `train` has ended before."""
        inbox = self.store.inbox
        request_id = inbox.hand_over(request)
        self.screen.working(f"{self.job_id}: waiting for its train to answer")
        try:
            answer = self._waited_for(request_id, ANSWER_S, lambda: self.store.is_supervised)
        finally:  # also after Ctrl-C: what the operator gave up is not carried out later
            is_withdrawn = inbox.withdraw(request_id)
            self.screen.rest()
        if answer is None and not is_withdrawn:
            answer = self._waited_for(request_id, _TAKEN_S, lambda: True)
        if answer or (is_withdrawn and not self.store.is_supervised):
            return answer
        why = f"no answer within {ANSWER_S:g} s; the request was withdrawn; repeat it later"
        if not is_withdrawn:
            why = "it took the request and gave no answer; see status and events"
        raise AscendbootError(f"{self.job_id}: could not ask its train to {request.verb}: {why}")

    def _waited_for(
        self, request_id: str, at_most_s: float, goes_on: Callable[[], bool]
    ) -> Answer | None:
        until = self.clock() + at_most_s
        while goes_on() and self.clock() < until:
            if answer := self.store.inbox.answer(request_id):
                return answer
            self.pause(_PAUSE_S)
        return None
