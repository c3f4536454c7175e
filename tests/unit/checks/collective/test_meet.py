"""The facts that a rank collects, and the measurements of `check --level full`."""

from __future__ import annotations

import hashlib
import json
import socket
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ascendboot.checks.collective.findings import DOING, MARK, PACKAGES, RankNotes, rank_notes
from ascendboot.ranktable.formats.servers import RankedDevice, RankTable, Server
from templates.scripts import measure, meet

DEVICE = RankedDevice(device_id=4, device_ip="198.19.0.1", rank_id=0)
TABLE = RankTable(server_list=(Server(server_id="198.18.0.1", device=(DEVICE,)),)).to_json()


@settings(deadline=None, derandomize=True, max_examples=20)
@given(st.integers(2, 2000), st.integers(0, meet.NUMBERS - 1))
def test_a_sum_is_right_or_its_first_wrong_number_is_found(size: int, place: int) -> None:
    total = meet.vector(size * (size + 1) // 2)
    assert meet.first_wrong(total, size) is None
    right = total[place]
    total[place] += 1
    assert meet.first_wrong(total, size) == [place, right + 1, right]


GROUPED = {"rank_id": "0", "server_id": "a", "devices": [{"device_id": "6", "device_ip": "x"}]}


@pytest.mark.parametrize(
    ("table", "rank", "entry"),
    [
        (json.loads(TABLE), "0", ("198.18.0.1", "4")),
        (json.loads(TABLE), "1", None),
        ({"rank_list": [{"rank_id": 3, "device_id": 5}]}, "3", ("", "5")),
        ({"group_list": [{"instance_list": [GROUPED]}]}, "0", ("a", "6")),
        ([], "0", None),
        ("text", "0", None),
    ],
)
def test_the_entry_of_a_rank_in_tables_of_every_generation(
    table: Any, rank: str, entry: tuple[str, str] | None
) -> None:
    assert meet.entry_of(table, rank) == entry


def test_a_rank_table_as_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    assert meet.table_seen("", "0") is None
    missing = meet.table_seen(str(path), "0") or {}
    assert "No such file" in missing["problem"]
    path.write_text(TABLE)
    assert meet.table_seen(str(path), "0") == {
        "sha256": hashlib.sha256(TABLE.encode()).hexdigest(),
        "server": "198.18.0.1",
        "device": "4",
        "problem": "",
    }
    path.write_bytes(b"\xff")
    assert (meet.table_seen(str(path), "0") or {})["problem"]


def test_which_variables_must_be_the_same_and_what_is_shown_of_them() -> None:
    compared = ["PATH", "HCCL_BUFFSIZE", "CM_CHIEF_IP", "OMPI_MCA_btl_tcp_links", "ASCEND_HOME"]
    own = [
        *("HCCL_IF_IP", "CM_WORKER_IP", "RANK", "RANK_ID", "DEVICE_ID", "HOME", "HOROVOD_RANK"),
        *("OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_hnp_uri", "ASCEND_RT_VISIBLE_DEVICES", "X"),
        "ASCEND_PROCESS_LOG_PATH",
    ]
    assert [name for name in compared + own if meet.is_compared(name)] == compared
    assert meet.shown("HCCL_BUFFSIZE", "200") == "200"
    digest = hashlib.sha256(b"hidden").hexdigest()[:8]
    assert meet.shown("ASCEND_API_KEY", "hidden") == {"digest": digest}
    assert meet.shown("HCCL_Token", "hidden") == {"digest": digest}


def test_an_address_is_here_or_not() -> None:
    assert meet.is_here("127.0.0.1")
    assert not meet.is_here("192.0.2.1")
    assert not meet.is_here("no address")
    assert meet.nic_of("127.0.0.1") == "lo"
    assert meet.nic_of("192.0.2.1") == ""


def test_versions_are_read_without_loading_anything_on_old_pythons_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = meet.versions(PACKAGES)
    assert found["Python"] == ".".join(map(str, sys.version_info[:3]))
    assert found["mpi4py"] == version("mpi4py")
    (tmp_path / "torch-1.11.0.dist-info").mkdir()
    (tmp_path / "horovod-0.28.1-py3.7.egg-info").mkdir()
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    expected = {"Python": found["Python"], "torch": "1.11.0", "horovod": "0.28.1"}
    assert meet.versions(PACKAGES) == expected


def test_the_programs_and_what_reads_their_notes_fit_together() -> None:
    assert list(DOING) == ["start", *meet.STAGES]
    assert meet.MARK == measure.MARK == MARK


def test_the_facts_of_a_rank_can_be_read_from_its_note(capfd: pytest.CaptureFixture[str]) -> None:
    env = {"RANK": "2", "WORLD_SIZE": "4", "ASCENDBOOT_NODE_ADDRESS": "192.0.2.1", "PATH": "/bin"}
    seen = meet.seen_here(env, PACKAGES, ["PATH", "HCCL_BUFFSIZE", "MINE"])
    assert (seen["rank"], seen["size"], seen["host"]) == ("2", "4", socket.gethostname())
    assert seen["elsewhere"] == {"ASCENDBOOT_NODE_ADDRESS": "192.0.2.1"}
    assert seen["env"] == {"PATH": "/bin", "WORLD_SIZE": "4"}
    assert seen["unset"] == ["HCCL_BUFFSIZE"]
    assert set(seen["limits"]) == {"ulimit -l", "ulimit -n", meet.SHM}
    facts = json.dumps(seen, sort_keys=True)
    meet.note(at="start", facts=facts)
    read = rank_notes(capfd.readouterr().out)
    assert (read.at, read.facts) == ("start", seen)
    assert read.digest == hashlib.sha256(facts.encode()).hexdigest()


def test_ranks_that_the_library_numbers_differently_are_refused() -> None:
    group = type("Group", (), {"rank": 0, "size": 1, "library": "MPICH"})()
    meet.check_numbers(group, {"RANK": "0", "WORLD_SIZE": "1"})
    message = "it is rank 0 of 1 to MPICH, rank 3 of 4 to"
    with pytest.raises(meet.OtherNumbersError, match=message):
        meet.check_numbers(group, {"RANK": "3", "WORLD_SIZE": "4"})


def outcome(
    tmp_path: Path, *changes: tuple[str, str], words: Sequence[str] = ("device",)
) -> RankNotes:
    """What rank 1 notes of a measurement, with something of the program or its modules changed."""
    text = Path(measure.__file__).read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    program = tmp_path / "preflight.py"
    program.write_text(text)
    argv = [sys.executable, str(program), *words]
    env = {"DEVICE_ID": "1", "RANK": "1", "RANK_TABLE_FILE": "/x", "PYTHONPATH": str(tmp_path)}
    env |= {"TORCHELASTIC_USE_AGENT_STORE": "True", "CM_CHIEF_IP": "192.0.2.1"}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=True)
    return rank_notes(done.stdout)


def test_a_device_is_measured_in_a_process_of_its_own(tmp_path: Path) -> None:
    found = outcome(tmp_path)
    assert (found.failed, (found.measured or {})["by"]) == ("", "processor")
    assert all((found.measured or {})[what] > 0 for what in ("product", "memory"))


LAB = 'LAB_NPU = "/run/ascendboot-lab/npu-load"'


@pytest.mark.parametrize(
    ("change", "failed"),
    [
        (("    times, side", "    os.abort()\n    times, side"), "no message (signal 6)"),
        (("!= right", "== right"), "WrongProductError: the matrix product is wrong (code 1)"),
        (('"device": 150.0', '"device": 0.01'), "no result within 0.01 s"),
        ((LAB, 'LAB_NPU = "/bin/false"'), "OSError (code 1)"),
    ],
)
def test_why_a_device_does_not_compute(
    tmp_path: Path, change: tuple[str, str], failed: str
) -> None:
    found = outcome(tmp_path, change)
    assert found.measured is None
    assert found.failed.endswith(failed)


TORCH = """\
float16 = float32 = npu = None
class Npu:
    def __getattr__(self, name): return lambda *_: None
class Tensor:
    def __init__(self, *_, **__): pass
    def __eq__(self, other): return self
    def copy_(self, other): pass
    def all(self): return self
    def item(self): return True
npu, ones, randn, zeros, empty_like = Npu(), Tensor, Tensor, Tensor, Tensor
def matmul(a, b): return a
"""


DISTRIBUTED = """\
import os
assert not {"RANK_TABLE_FILE", "CM_CHIEF_IP", "TORCHELASTIC_USE_AGENT_STORE"} & {*os.environ}
def init_process_group(backend, *, init_method, rank, world_size, timeout):
    assert (backend, init_method, rank, world_size) == ("hccl", "tcp://[fd00::1]:61001", 0, 2)
def all_reduce(data): pass
destroy_process_group = lambda: None
"""


def test_npus_are_measured_where_torch_npu_is(tmp_path: Path) -> None:
    """With a stand-in for torch: the calls are those of its documentation, the NPU is not there."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/__init__.py").write_text(TORCH)
    (tmp_path / "torch/distributed.py").write_text(DISTRIBUTED)
    (tmp_path / "torch_npu.py").write_text("")
    found = outcome(tmp_path)
    assert (found.failed, (found.measured or {})["by"]) == ("", "NPU")
    pairs = json.dumps([["fd00::1", 61001, [1, 3]], ["fd00::2", 61001, [0, 2]]])
    found = outcome(tmp_path, words=("pair", "NPU", pairs))
    assert (found.failed, [*(found.measured or {})]) == ("", ["bandwidth"])


def test_two_nodes_exchange_data(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with ThreadPoolExecutor() as pool:
        first = pool.submit(measure.sockets_here, "127.0.0.1", port, 0)
        second = pool.submit(measure.sockets_here, "127.0.0.1", port, 1)
    assert (first.result(), second.result()["bandwidth"] > 0) == ({}, True)
    pairs = json.dumps([["127.0.0.1", port, [0, 1]]])
    for rank, local in (("2", "0"), ("1", "1")):  # of no pair, and not the first of its node
        monkeypatch.setenv("RANK", rank)
        monkeypatch.setenv("LOCAL_RANK", local)
        assert measure.pair_here("processor", pairs) == {}


def test_a_partner_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "MEET_S", 0.1)
    with pytest.raises(OSError, match="no connection to 127"):
        measure.sockets_here("127.0.0.1", 1, 1)
    with pytest.raises(OSError, match=r"the other node did not connect within 0\.1 s"):
        measure.sockets_here("127.0.0.1", 0, 0)
