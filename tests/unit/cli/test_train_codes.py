"""What the exit code of `train` says where the job was started and where it was not."""

from __future__ import annotations

import pytest
from invoke.context import Context
from invoke.exceptions import Exit

from ascendboot.cli.verbs import Call, cluster_verb
from ascendboot.errors import LaunchError, OutputError


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (LaunchError("no script"), 125, "no script"),
        (OSError(28, "No space"), 125, "this machine: could not be used: No space"),
        (OutputError("standard output: could not be written"), 1, "standard output: could not"),
    ],
)
def test_only_a_job_that_was_not_started_gives_125(error: Exception, code: int, said: str) -> None:
    @cluster_verb(help={}, unstarted=lambda _: {})
    def verb(_: Call) -> None:
        raise error

    with pytest.raises(Exit) as ended:
        verb(Context(), inventory=None, forks="1", json=False)
    assert ended.value.code == code
    assert str(ended.value.message).startswith(said)
