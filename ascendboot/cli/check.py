"""`check`: report everything that setup checks or verifies, without changes."""

from __future__ import annotations

import threading
from dataclasses import replace

from ascendboot.checks.probes import Coverage
from ascendboot.cli.collective import check_collective
from ascendboot.cli.common import end, on_interrupt
from ascendboot.cli.session import Session, code_sender
from ascendboot.cli.setup import survey_of
from ascendboot.cli.verbs import Call, cluster_verb
from ascendboot.console.screen import Screen
from ascendboot.model.report import Report
from ascendboot.setup.apply import check_cluster
from ascendboot.setup.results import Stopped


@cluster_verb(
    help={
        "collective": "Also start one rank per device, and check that all ranks can communicate",
        "all-pairs": "Test every pair of NPUs and every pair of nodes",
    }
)
def check(call: Call, *, all_pairs: bool = False, collective: bool = False) -> None:
    """Check nodes, NPUs, network and cluster files. Read-only.

    One report contains all problems: differences between nodes and inventory,
    changes that setup would make, logins from the primary, pings between NPUs,
    and TCP connections.

    Only --collective writes on the nodes, into a folder that it removes: all
    ranks start as for a job, connect, compare their environment, and compute a
    known sum.

    Examples:
      invoke check --inventory two-node.yaml  check a cluster
      invoke check --all-pairs                test all pairs of NPUs
      invoke check --collective               also check that ranks communicate
      invoke check --json | jq '.results[] | select(.level == "error")'

    Exit codes: 0 no errors (warnings allowed), 1 errors found, 2 invalid
    inventory, 4 a node is unreachable, 130 interrupted.
    """
    screen = call.screen
    with call.session("check", call.cluster(with_own_table=True), reads=True) as session:
        report = _walk(session, screen, "all-pairs" if all_pairs else "ring")
        if collective and not report.interrupted:
            results, interrupted = check_collective(session, screen)
            if results:
                screen.phase("Check communication between ranks", results)
            whole = (*report.results, *results)
            report = replace(report, results=whole, interrupted=interrupted)
    session.run.write_json("report.json", report.to_json())
    screen.verdict(report, session.run.shown)
    end(screen, report.exit_code, report.to_json() if call.json else None)


def _walk(session: Session, screen: Screen, coverage: Coverage) -> Report:
    interrupted = threading.Event()
    promise = "reporting the results so far; press Ctrl-C again to abort"
    with on_interrupt(interrupted.set, screen, promise):
        sender = code_sender(session.cluster, interrupted)
        survey = survey_of(session, screen, interrupted, sender=sender)
        try:
            check_cluster(survey, session.connect_hosts_to_look, coverage)
        except Stopped:
            pass
        finally:
            screen.rest()
        return survey.progress.report(session.run.run_id)
