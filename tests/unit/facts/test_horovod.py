"""What horovodrun says of itself."""

from __future__ import annotations

import pytest

from ascendboot.errors import NotUnderstoodError
from ascendboot.facts.parsers.software import parse_has_mpi, parse_horovod_version

BUILD = """\
Horovod v0.28.1:

Available Frameworks:
    [ ] TensorFlow
    [X] PyTorch
    [ ] MXNet

Available Controllers:
    [X] MPI
    [X] Gloo

Available Tensor Operations:
    [ ] NCCL
    [ ] MPI
"""


def test_the_version_is_the_last_line() -> None:
    assert parse_horovod_version("0.28.1\n") == "0.28.1"
    assert parse_horovod_version("a library warns\n0.19.5\n\n") == "0.19.5"


def test_only_the_controllers_count() -> None:
    assert parse_has_mpi(BUILD) is True
    assert parse_has_mpi(BUILD.replace("[X] MPI", "[ ] MPI")) is False


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "",
            'horovodrun --check-build: line 1 not understood: ""; expected Available Controllers:',
        ),
        (
            BUILD.replace("[X] MPI", "MPI: yes"),
            (
                'horovodrun --check-build: line 9 not understood: "MPI: yes"; '
                "expected [X] MPI or [ ] MPI"
            ),
        ),
        (
            "Available Controllers:\n[X] Gloo\n",
            (
                'horovodrun --check-build: line 1 not understood: ""; '
                "expected MPI among the controllers"
            ),
        ),
    ],
)
def test_another_build_list_is_refused(text: str, message: str) -> None:
    with pytest.raises(NotUnderstoodError) as refused:
        parse_has_mpi(text)
    assert str(refused.value) == message


@pytest.mark.parametrize("text", ["", "Traceback: no module named horovod"])
def test_another_version_is_refused(text: str) -> None:
    with pytest.raises(NotUnderstoodError, match="expected a version"):
        parse_horovod_version(text)
