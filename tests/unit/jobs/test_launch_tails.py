"""The ends of logs, as a node sends them."""

from __future__ import annotations

import base64
import json
import subprocess
from typing import TYPE_CHECKING

from ascendboot.errors import CommandError, UnreachableError
from ascendboot.jobs.evidence import TAIL_BYTES, tail_of
from ascendboot.jobs.logs import fetch_tails
from ascendboot.launch.plan import PLAN_FILE, JobRecord, read_record, record_of
from ascendboot.launch.planner import plan
from ascendboot.model.cluster import NodeClocks
from ascendboot.templates import script
from ascendboot.transport.fake import Answer, FakeTransport
from tests.unit.launch.request import REQUEST

if TYPE_CHECKING:
    from pathlib import Path


def record(folder: Path) -> JobRecord:
    document = record_of(plan(REQUEST), started="", clocks=NodeClocks())
    (folder / PLAN_FILE).write_text(json.dumps(document))
    found = read_record(folder)
    assert found is not None
    return found


def sent(folder: Path, *names: str) -> str:
    words = (
        "bash",
        "-c",
        script("jobs-tails.sh"),
        "tails",
        str(folder),
        str(TAIL_BYTES + 1),
        *names,
    )
    return subprocess.run(words, capture_output=True, check=True, text=True).stdout


def answering(node: str, text: str) -> FakeTransport:
    return FakeTransport(node, rules=[lambda _: Answer(text)])


def test_what_is_read_of_it_is_what_is_read_of_the_whole_log(tmp_path: Path) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    there.mkdir()
    here.mkdir()
    for size in (0, 10, TAIL_BYTES, TAIL_BYTES + 1, 3 * TAIL_BYTES):
        (there / "rank.0.log").write_bytes(b"a\xff line\n" * (size // 8))
        answer = sent(there, "rank.0.log", "rank.1.log")
        node = answering("a-1", answer)
        (here / "rank.0.log").write_bytes(b"")
        assert fetch_tails(record(tmp_path), {"a-1": node}, here, forks=4) == {}
        for since in (0, size // 2, size - size // 100):
            seen = [tail_of(place / "rank.0.log", since=since) for place in (here, there)]
            assert seen[0] == seen[1]


def test_a_node_without_the_job_has_nothing(tmp_path: Path) -> None:
    assert sent(tmp_path / "gone", "rank.0.log") == "end\n"


def test_who_could_not_give_them(tmp_path: Path) -> None:
    tail = base64.b64encode(b"x").decode()
    cut = answering("a-1", f"tail rank.0.log 0 {tail}\n")
    gone = FakeTransport("a-2", unreachable="off")
    errors = fetch_tails(record(tmp_path), {"a-1": cut, "a-2": gone}, tmp_path, forks=4)
    assert isinstance(errors["a-1"], CommandError)
    assert str(errors["a-1"]) == (
        "a-1: could not read the ends of the logs of job job-1: the logs: line 1 not understood: "
        f'"tail rank.0.log 0 {tail}"; expected tail or end'
    )
    assert isinstance(errors["a-2"], UnreachableError)


def test_a_file_that_is_none_of_the_job_is_not_written(tmp_path: Path) -> None:
    tail = base64.b64encode(b"x").decode()
    odd = answering("a-1", f"tail other 0 {tail}\nend\n")
    assert fetch_tails(record(tmp_path), {"a-1": odd}, tmp_path, forks=4) == {}
    assert not (tmp_path / "other").exists()
