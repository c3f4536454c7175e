"""`setup`: the survey, then the changes, then the proof; or the survey and the plan."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ascendboot.engine.changes import apply, plan
from ascendboot.engine.progress import Stopped
from ascendboot.engine.proving import prove

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ascendboot.context import Context
    from ascendboot.engine.survey import Connect, Survey
    from ascendboot.transport.api import Sides


def plan_setup(survey: Survey, connect: Connect) -> None:
    """What setup would change; `connect` gives transports that refuse to write.

    Raises:
        Stopped: something stands in the way, or the operator interrupted; the results say what.
    """
    context, sides = _ground(survey, connect)
    plan(survey.progress, context, sides, survey.sending)


def set_up(survey: Survey, connect: Connect) -> Context:
    """Make all nodes as they should be, and prove it; what is there then.

    Raises:
        Stopped: something stands in the way or went wrong, or the operator interrupted; the
            results say what.
    """
    context, sides = _ground(survey, connect)
    if survey.before_writing is not None:
        authority, control = survey.before_writing(context.seen)
        context = replace(context, authority=authority, control=control)
    context = apply(survey.progress, context, sides, survey.sending)
    prove(survey.progress, context, sides)
    return context


def _ground(survey: Survey, connect: Connect) -> tuple[Context, Mapping[str, Sides]]:
    """What wishes are made from, and where they are made true; nothing stands in their way."""
    found = survey.look(connect)
    survey.progress.stop_if_bad()
    if found.context is None:
        raise Stopped
    return found.context, found.sides
