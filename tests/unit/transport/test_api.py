"""Messages about results."""

from __future__ import annotations

import pytest

from ascendboot.errors import CommandError
from ascendboot.transport.api import Command, Effect, Result
from tests.fake_transport import Answer

LIST = Command(
    argv=("npu-smi", "info", "-m"), purpose="list the NPUs", effect=Effect.READ, timeout_s=3
)

HANGS = "is the node overloaded, or does it hang? Run it there by hand"


def result(code: int, stderr: str = "", stdout: str = "", duration_s: float = 0.1) -> Result:
    return Answer(stdout, stderr, code, duration_s).to(LIST)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (result(1), "npu-smi info -m exited 1"),
        (result(1, "first\nlast\n"), "npu-smi info -m exited 1: last"),
        (result(1, stdout="only here\n"), "npu-smi info -m exited 1: only here"),
        (result(124, duration_s=3.0), f"npu-smi info -m gave no answer within 3 s; {HANGS}"),
        (result(137, duration_s=8.1), f"npu-smi info -m gave no answer within 3 s; {HANGS}"),
        (result(124), "npu-smi info -m exited 124"),
        (
            result(127, "timeout: failed to run command 'npu-smi': No such file or directory\n"),
            "npu-smi info -m exited 127: No such file or directory",
        ),
    ],
)
def test_the_outcome_of_a_result_in_messages(given: Result, said: str) -> None:
    assert given.outcome() == said


def test_an_unexpected_code_is_an_error_when_checked() -> None:
    assert result(0).checked() == result(0)
    with pytest.raises(CommandError) as caught:
        result(2, "busy").checked()
    assert str(caught.value) == "n1: could not list the NPUs: npu-smi info -m exited 2: busy"


def test_scripts_are_not_shown() -> None:
    script = Command(argv=("bash", "-c", "echo hunter2"), purpose="", effect=Effect.READ)
    assert script.shown() == "a script"
