"""`check`: one report of everything that setup would judge or prove; changes nothing."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING

from ascendboot.cli.collective import check_collective
from ascendboot.cli.common import end, on_interrupt
from ascendboot.cli.progress import survey_of
from ascendboot.cli.session import code_sender
from ascendboot.cli.verbs import Call, cluster_verb
from ascendboot.setup.check import check_cluster
from ascendboot.setup.results import Stopped

if TYPE_CHECKING:
    from ascendboot.checks.probes import Coverage
    from ascendboot.cli.session import Session
    from ascendboot.console.screen import Screen
    from ascendboot.model.report import Report


@cluster_verb(
    help={
        "collective": "Then start a rank per device, let all meet, and name those that differ",
        "all-pairs": "Let every NPU ping every NPU of the other nodes, and every node every node",
    }
)
def check(
    call: Call,
    *,
    all_pairs: bool = False,
    collective: bool = False,
) -> None:
    """Look at everything that setup would judge or prove, and change nothing.

    --collective alone writes on the nodes, and takes it back: all ranks start as for a job, meet,
    compare what they see, and add up a known sum.

    Goes on after findings, so that all problems come in one report: the nodes against the inventory
    and each other, what setup would change, logins from the primary, pings between NPUs, and TCP.

    Examples:
      invoke check --inventory two-node.yaml      is this cluster fit for a job?
      invoke check --all-pairs                    the whole mesh of NPUs, before acceptance
      invoke check --collective                   and will a job's ranks meet and agree?
      invoke check --json | jq '.results[] | select(.level == "error")'

    Exit codes: 0 no error found (warnings allowed), 1 an error, 2 wrong inventory, 4 a node is
    unreachable, 130 interrupted.
    """
    screen = call.screen
    with call.session("check", call.cluster(with_own_table=True), reads=True) as session:
        report = _walk(session, screen, "all-pairs" if all_pairs else "ring")
        if collective and not report.interrupted:
            report = _with_collective(session, screen, report)
    session.run.write_json("report.json", report.to_json())
    screen.verdict(report, session.run.shown)
    end(screen, report.exit_code, report.to_json() if call.json else None)


def _with_collective(session: Session, screen: Screen, report: Report) -> Report:
    results, interrupted = check_collective(session, screen)
    if results:
        screen.phase("Let all ranks meet", results)
    whole = (*report.results, *results)
    return replace(report, results=whole, interrupted=interrupted)


def _walk(session: Session, screen: Screen, coverage: Coverage) -> Report:
    interrupted = threading.Event()
    promise = "what was found so far is reported; press Ctrl-C again to stop at once"
    with on_interrupt(interrupted.set, screen, promise):
        survey = survey_of(
            session,
            screen,
            interrupted,
            sender=code_sender(session.cluster, interrupted),
        )
        try:
            check_cluster(survey, session.connect_hosts_to_look, coverage)
        except Stopped:
            pass
        finally:
            screen.rest()
        return survey.progress.report(session.run.run_id)
