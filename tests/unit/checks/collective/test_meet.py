"""The facts that a rank collects about itself."""

from __future__ import annotations

import hashlib
import json
import socket
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ascendboot.checks.collective.findings import DOING, MARK, PACKAGES, rank_notes
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
