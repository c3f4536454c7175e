"""The little demo: its rank-table checks, its arithmetic, and that the ranks decide together."""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.unit.ranktable.examples import Document, changed, v10

FIRST_RANK = "server_list/0/device/0/rank_id"
ROOT = Path(__file__).parents[2]
LITTLE_DEMO = ROOT / "examples" / "little_demo" / "main.py"


def load_demo() -> Any:
    spec = importlib.util.spec_from_file_location("little_demo_main", LITTLE_DEMO)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


demo = load_demo()


def a_table(**changes: object) -> Document:
    """Two servers of two devices, 4 and 6, so that no id is a position by chance."""
    table = v10()
    for server in table["server_list"]:
        for device, number in zip(server["device"], ("4", "6"), strict=True):
            device["device_id"] = number
    return table | changes


def levelled_table() -> Document:
    """The same in the form of 950."""
    ranks = [
        {
            "rank_id": rank,
            "device_id": (4, 6)[rank % 2],
            "level_list": [{"net_instance_id": f"srv_{rank // 2}"}],
        }
        for rank in range(4)
    ]
    return {"status": "completed", "version": "2.0", "rank_count": 4, "rank_list": ranks}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the rank table is; it fits unless a test writes another."""
    path = tmp_path.resolve() / "hccl_json_4p_2_host.json"
    path.write_text(json.dumps(a_table()))
    path.chmod(0o644)
    return path


def problems(path: Path, rank: int = 3, size: int = 4, **changes: Any) -> list[str]:
    """The problems of rank 3 of 4: the second on its server, on device 6."""
    environ = {
        "RANK_TABLE_FILE": str(path),
        "OMPI_COMM_WORLD_RANK": "3",
        "OMPI_COMM_WORLD_LOCAL_RANK": "1",
        "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
        "RANK_ID": "3",
        "RANK_SIZE": "4",
        "DEVICE_ID": "6",
    } | changes
    is_set = {name: value for name, value in environ.items() if value is not None}
    found: list[str] = demo.resource_problems(is_set, rank, size)
    return found


@pytest.mark.parametrize("table", [a_table(), a_table(version="1.2"), levelled_table()])
def test_a_table_that_fits_gives_no_problem(path: Path, table: Document) -> None:
    path.write_text(json.dumps(table))
    assert problems(path) == []
    assert problems(path, DEVICE_ID="4") == ["DEVICE_ID is 4; expected 6"]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"DEVICE_ID": None}, ["DEVICE_ID is not set; expected 6"]),
        (
            {"DEVICE_ID": "0", "RANK_ID": "0"},
            ["RANK_ID is 0; expected 3", "DEVICE_ID is 0; expected 6"],
        ),
        ({"RANK_SIZE": "8"}, ["RANK_SIZE is 8; expected 4"]),
        ({"OMPI_COMM_WORLD_RANK": None}, ["OMPI_COMM_WORLD_RANK is not set; expected 3"]),
        ({"OMPI_COMM_WORLD_LOCAL_RANK": "3"}, ["OMPI_COMM_WORLD_LOCAL_RANK is 3; expected 1"]),
        ({"OMPI_COMM_WORLD_LOCAL_SIZE": "4"}, ["OMPI_COMM_WORLD_LOCAL_SIZE is 4; expected 2"]),
        (
            {"CM_WORKER_SIZE": "4", "CM_CHIEF_IP": "192.0.2.1"},
            ["RANK_TABLE_FILE is set together with CM_CHIEF_IP, CM_WORKER_SIZE; expected one kind"],
        ),
        (
            {"RANK_TABLE_FILE": None},
            ["RANK_TABLE_FILE is not set; expected the absolute path of a rank table"],
        ),
        (
            {"RANK_TABLE_FILE": "table.json"},
            ["RANK_TABLE_FILE table.json: a relative path; expected an absolute one"],
        ),
    ],
)
def test_what_the_launcher_says_must_fit_the_table(
    path: Path, changes: dict[str, Any], expected: list[str]
) -> None:
    assert problems(path, **changes) == expected


CHIEF = {
    "CM_CHIEF_IP": "192.0.2.1",
    "CM_CHIEF_PORT": "61000",
    "CM_CHIEF_DEVICE": "0",
    "CM_WORKER_IP": "127.0.0.1",
    "CM_WORKER_SIZE": "4",
}
BOTH = "RANK_SIZE is set together with CM_ variables, which it disables; expected it to be unset"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, []),
        ({"CM_WORKER_SIZE": "2"}, ["CM_WORKER_SIZE is 2; expected 4, all ranks of the job"]),
        ({"RANK_SIZE": "4"}, [BOTH]),
        (
            {"CM_CHIEF_PORT": "", "CM_WORKER_IP": ""},
            [f"CM_CHIEF_PORT, CM_WORKER_IP is not set; expected all of {', '.join(CHIEF)}"],
        ),
        (
            {"CM_WORKER_IP": "192.0.2.1"},
            [f"CM_WORKER_IP is 192.0.2.1; expected an address of {socket.gethostname()}"],
        ),
    ],
)
def test_without_a_table_the_variables_must_fit_the_launcher(
    changes: dict[str, str], expected: list[str]
) -> None:
    assert demo.resource_problems(CHIEF | changes, 3, 4) == expected


def test_more_or_fewer_ranks_than_in_the_table(path: Path) -> None:
    added = {"OMPI_COMM_WORLD_RANK": "4", "RANK_ID": "4", "RANK_SIZE": "5"}
    assert problems(path, 4, 5, **added) == [
        "5 ranks were started; expected 4 by the table",
        "rank 4 was started; expected one of those in the table",
    ]
    assert problems(path, 3, 3, RANK_SIZE="3") == ["3 ranks were started; expected 4 by the table"]


def test_a_rank_that_stands_twice_is_refused(path: Path) -> None:
    path.write_text(json.dumps(changed(a_table(), FIRST_RANK, "3")))
    assert problems(path) == ["rank_id 3 stands twice in the table; expected once"]


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        (a_table(status="initializing"), "status is 'initializing'; expected \"completed\""),
        (a_table(version="1.1"), "version is '1.1'; expected one of ('1.0', '1.2', '2.0')"),
        (a_table(version="2.0"), "the key 'rank_list' is missing; expected a rank table"),
        (a_table(server_count="3"), "server_count is '3'; expected '2', as many as listed"),
        ([], "not a rank table: list indices must be integers or slices, not str"),
        (changed(v10(), FIRST_RANK, 0), "0 stands for a rank_id or device_id; expected digits in"),
        (changed(v10(), FIRST_RANK, "²"), "'²' stands for a rank_id or device_id; expected digit"),
        ('{"status":', "not JSON: Expecting value: line 1 column 11 (char 10)"),
    ],
)
def test_a_table_that_hccl_would_not_read_is_refused(
    path: Path, table: object, expected: str
) -> None:
    path.write_text(table if isinstance(table, str) else json.dumps(table))
    [problem] = problems(path)
    assert problem.startswith(f"RANK_TABLE_FILE {path}: {expected}")


def test_a_file_that_mx_rec_would_not_read_is_refused(path: Path) -> None:
    link = path.with_name("link.json")
    words = f"RANK_TABLE_FILE {link}: no such file; expected the rank table there on every node"
    assert problems(link) == [words]
    link.symlink_to(path)
    words = f"RANK_TABLE_FILE {link}: leads to {path}; expected no symbolic link and no '..' in it"
    assert problems(link) == [words]
    for mode in (0o664, 0o646):
        path.chmod(mode)
        words = f"{path}: has mode {mode:04o}; expected that only its owner may write it"
        assert problems(path) == [f"RANK_TABLE_FILE {words}"]


class OneOfTwo:
    """Rank 0 of two; `other` is what rank 1 contributes to every gathering."""

    def __init__(self, other: object) -> None:
        self.other = other

    def Get_rank(self) -> int:  # noqa: N802  # mpi4py's name
        return 0

    def Get_size(self) -> int:  # noqa: N802  # mpi4py's name
        return 2

    def allgather(self, mine: object) -> list[object]:
        return [mine, self.other]


@pytest.mark.parametrize(
    ("other", "mine", "words"),
    [
        (True, [], "not started: refused by rank 1"),
        (False, ["seen; expected"], "could not start: seen; expected"),
    ],
)
def test_a_problem_of_one_rank_stops_all(
    capsys: pytest.CaptureFixture[str], mine: list[str], words: str, *, other: bool
) -> None:
    assert demo.all_agree(OneOfTwo(other=other), mine) is False
    assert capsys.readouterr().err == f"{os.uname().nodename} rank 0: {words}\n"


def test_the_ranks_whose_weights_differ_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert demo.odd_ranks(["a", "a", "a"]) == []
    assert demo.odd_ranks(["b", "a", "a", "c"]) == [0, 3]
    model = demo.Model(2, seed=1)
    assert demo.same_weights_everywhere(OneOfTwo(other="something else"), model) is False
    assert capsys.readouterr().err == "the weights of rank 1 differ from the others'\n"


def test_a_batch_smaller_than_the_job_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--no-rank-table", "--batch", "1"]
    assert demo.main(OneOfTwo(other=False), arguments, {}) == 2
    assert "could not start: --batch is 1; expected at least 2, one" in capsys.readouterr().err


def some_clicks(rows: int) -> Any:
    random = np.random.default_rng(5)
    limits = (demo.USERS, demo.ITEMS, demo.CONTEXTS)
    shown = np.stack([random.integers(limit, size=rows) for limit in limits], axis=1)
    shown[::3, 0] = 7  # the same user in many rows: their gradients must add up
    return demo.Clicks(shown, (random.random(rows) < 0.4).astype(np.float32))


@pytest.mark.parametrize("table", ["user", "item", "context", "into", "bias", "out"])
def test_the_gradient_is_the_slope_of_the_loss(table: str) -> None:
    model, clicks, nudge = demo.Model(4, seed=3), some_clicks(50), 1e-5
    gradient = model.gradient_of(clicks, 50)
    assert gradient[-1] == pytest.approx(
        demo.log_loss(model.predict(clicks.shown), clicks.clicked), rel=1e-5
    )
    weight = model._weight[table] = model._weight[table].astype(np.float64)
    slope = model._slope[table].ravel()
    for at in np.argsort(-np.abs(slope))[:10]:
        losses = []
        for shift in (nudge, -2 * nudge):
            weight.ravel()[at] += shift
            losses.append(demo.log_loss(model.predict(clicks.shown), clicks.clicked))
        weight.ravel()[at] += nudge
        assert slope[at] == pytest.approx((losses[0] - losses[1]) / (2 * nudge), rel=1e-3)


def test_shares_of_a_batch_add_up_to_the_whole() -> None:
    model, clicks = demo.Model(4, seed=3), some_clicks(60)
    whole = model.gradient_of(clicks, 60).copy()
    shares = sum(model.gradient_of(clicks.part(slice(r, None, 4)), 60).copy() for r in range(4))
    np.testing.assert_allclose(shares, whole, atol=1e-6)
