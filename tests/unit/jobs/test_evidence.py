"""Errors in logs: which counts, when it came, and which peer it names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ascendboot.jobs.error_codes import known_errors, known_words
from ascendboot.jobs.evidence import Peers, error_in, time_in
from ascendboot.launch.plan import PlannedRank
from ascendboot.launch.planner import plan
from ascendboot.value import replace
from tests.unit.launch.request import REQUEST

RECORDED = sorted((Path(__file__).parents[2] / "data/rank-log").glob("*/*.txt"))
OWN = b"Traceback (most recent call last):\n  File x\nValueError: loss is nan\n"
PEER = b"RuntimeError: [pair.cc:537] Read error [127.0.0.1]:1: Connection reset by peer\n"


IPS = {0: "127.11.0.1", 4: "127.11.0.2", 5: "192.0.2.199"}
JOB = replace(
    plan(REQUEST),
    ranks=tuple(PlannedRank(n, f"a-{1 + n // 4}", n % 4, n % 4, IPS.get(n)) for n in range(8)),
    addresses={
        "a-1": ("a-1", "127.10.0.1", "127.0.0.1"),
        "a-2": ("a-2", "127.10.0.2", "127.0.0.2", "192.168.200.100"),
    },
)
"""Eight ranks on two servers with the addresses of the samples; their rank 0 writes."""


@pytest.mark.parametrize("path", RECORDED, ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_recorded_logs(path: Path) -> None:
    said = error_in(path.read_bytes())
    assert said is not None
    named = Peers(JOB.ranks, JOB.addresses).named_in(said.trouble, JOB.ranks[0])
    assert {
        "words": said.words,
        "of_a_peer": said.of_a_peer,
        "blames": list(named.ranks),
        "nodes": list(named.nodes),
        "at": time_in(said.line, zone_s=0, until=None),
    } == json.loads(path.with_suffix(".json").read_text())["value"]


def test_the_first_of_several_errors_counts_with_its_place() -> None:
    found = error_in(b"step 1\n" + OWN + PEER, begins_at=100)
    assert found is not None
    assert (found.words, found.of_a_peer, found.offset) == ("ValueError: loss is nan", False, 107)


WEAK = b"2026-01-02 03:04:05.6: E tensorflow/core/x.cc:1] failed call to cuInit\n"
OPTIONAL = b"Traceback (most recent call last):\n  x\nModuleNotFoundError: No module named 'apex'\n"
CHAINED = b"\nDuring handling of the above exception, another exception occurred:\n\n"


@pytest.mark.parametrize(
    ("log", "words"),
    [
        (OWN + CHAINED + b"Traceback (most recent call last):\n  y\n" + PEER, OWN),
        (OWN + b"step\n" * 201, None),
        (OWN + b"step\n" * 100, OWN),
        (OPTIONAL + b"step\n" * 30 + OWN, OWN),
        (WEAK + OWN, OWN),
        (WEAK, WEAK),
        (OWN.replace(b"ValueError: loss is nan", b"KeyboardInterrupt"), None),
        (OWN.replace(b"ValueError: loss is nan", b"torch.x.SignalException: got signal: 15"), None),
        (b"epoch 3 error: 0.35 loss 2\nvalidation errors 17\n\n", None),
        (b"", None),
    ],
    ids=[
        *("chained", "overcome", "not-overcome", "last-of-two", "certain-before-weak", "weak"),
        *("interrupted", "terminated", "no-error", "empty"),
    ],
)
def test_which_error_of_a_log_counts(log: bytes, words: bytes | None) -> None:
    found = error_in(log)
    expected = None if words is None else words.splitlines()[-1].decode()
    assert (found and found.words) == expected


TORCH_NPU = """\
[rank1]: Traceback (most recent call last):
[rank1]:   File "main.py", line 7, in <module>
[rank1]: RuntimeError: OPS function error: HcclAllreduce, error code is 6
[rank1]: [ERROR] 2026-01-02-03:04:05 (PID:7, Device:1, RankID:1) ERR01100 OPS call acl api failed.
[rank1]: {0}
[rank1]:         Solution: look at the other ranks
"""
"""The form of torch_npu's exceptions: its own code, then CANN's words."""


@pytest.mark.parametrize(
    ("cann", "of_a_peer"),
    [
        ("EI0006: [PID: 7] 2026-01-02-03:04:05.444.436 Getting socket times out.", True),
        ("EI0011: [PID: 7] 2026-01-02-03:04:05.444.436 Failed to allocate 1 bytes.", False),
        ("EJ0001: Failed to initialize. Maybe the last training process is running.", False),
    ],
)
def test_an_exception_of_torch_npu_is_judged_by_the_words_of_cann(
    cann: str, *, of_a_peer: bool
) -> None:
    said = error_in(TORCH_NPU.format(cann).encode())
    assert said is not None
    first = "RuntimeError: OPS function error: HcclAllreduce, error code is 6"
    assert (said.words, said.of_a_peer) == (f"{first} … {cann}", of_a_peer)
    assert time_in(said.line, zone_s=0, until=None) == 1767323045.0
    assert known_words(said.words) is known_words(cann) is not None


@pytest.mark.parametrize("code", [f"EI{number:04}" for number in range(1, 21)])
def test_every_code_of_hccl_has_a_meaning_and_a_remedy(code: str) -> None:
    known = known_words(f"Some_Error({code}): …")
    assert known is next(e for e in known_errors().entries if e.id == code)
    assert known.meaning
    assert known.remedy


UNTIL = 1767323050.0  # 2026-01-02 03:04:10 UTC


@pytest.mark.parametrize(
    ("line", "zone_s", "at"),
    [
        ("[ERROR] HCCL(1,python):2026-01-02-03:04:05.123.456 [x.cc:1] no", 0, 1767323045.123456),
        ("2026-01-02 03:04:05,678 ERROR no", 0, 1767323045.678),
        ("2026-01-02 11:04:05,678 ERROR no", 8 * 3600, 1767323045.678),
        ("[2026-01-02T03:04:05Z] ERROR no", None, 1767323045.0),
        ("2026-01-02 05:34:05.5+02:30 ERROR no", None, 1767323045.5),
        ("2026/01/02 03:04:05 ERROR no", 0, 1767323045.0),
        ("[rank0]:[E102 03:04:05.5", 0, None),
        ("[E0102 03:04:05.678 ProcessGroupGloo.cpp:1] no", 0, 1767323045.678),
        ("E1231 23:59:59.000001 77 x.cc:1] no", 0, 1767225599.000001),
        ("2026-01-02 03:04:05,678 ERROR no", None, None),
        ("2026-13-02 03:04:05,678 ERROR no", 0, None),
        ("2026-01-02 03:04:05+99:00 ERROR no", 0, None),
        ("2019-01-02 03:04:05 ERROR an old checkpoint", 0, None),
        ("2026-01-02 03:05:05 ERROR later than its end", 0, None),
        ("ValueError: no", 0, None),
    ],
)
def test_the_time_of_a_line(line: str, zone_s: int | None, at: float | None) -> None:
    assert time_in(line, zone_s=zone_s, until=UNTIL) == pytest.approx(at)


def test_a_time_without_a_year_needs_the_end_of_the_rank() -> None:
    assert time_in("E0102 03:04:05.678 1 x.cc:1] no", zone_s=0, until=None) is None


STALLED = b"""\
[2026-01-02 03:04:05.345988: %s /tmp/horovod/common/stall_inspector.cc:105] One or more tensors \
were submitted to be reduced, gathered or broadcasted by subset of ranks and are waiting for \
remainder of ranks for more than 60 seconds. This may indicate that different ranks are trying to \
submit different tensors or that only subset of ranks is submitting tensors, which will cause \
deadlock.%s
"""


@pytest.mark.parametrize(
    ("level", "listed", "ranks"),
    [
        (b"W", b"Missing ranks:\n2: [allreduce.g0, allreduce.g1 ...]\n3: [allreduce.g0]\n", (2, 3)),
        (b"W", b"Stalled ranks:\n5: [grads_0]\n", (5,)),
        (b"W", b"Stalled ops:grads_0 [missing ranks: 1, 4]\n", (1, 4)),
        (
            b"E",
            b"Missing ranks:\n2: [g1]\n3!: [g0, g1]\nOne or more rank is stalled. Will shutdown.\n",
            (3,),
        ),
    ],
)
def test_item_09_horovod_names_the_ranks_that_stall(
    level: bytes, listed: bytes, ranks: tuple[int, ...]
) -> None:
    said = error_in(b"step 7\n" + STALLED % (level, b" ") + listed)
    assert said is not None
    assert (said.of_a_peer, "stall_inspector" in said.words) == (True, True)
    assert Peers(JOB.ranks, JOB.addresses).named_in(said.trouble, JOB.ranks[0]).ranks == ranks


@pytest.mark.parametrize(
    ("line", "ranks"),
    [
        ("[2168] cqe error status[12] remoteIP:[127.11.0.2]", (4,)),
        ("cqe error status[12] remoteIP{deviceId[6],deviceIp[192.0.2.199]}", (5,)),
        ("[Heartbeat]cqe err status[12], time:[x], ip:[127.11.0.2]", (4,)),
        ("connected p2p timeout, timeout:120 s. local logicDevid:0, remote physic id:2", (2,)),
        ("tasks are unhealthy (stopped sending heartbeats): /job:worker/replica:0/task:3", (3,)),
        ("GRPC error from remote target /job:worker/replica:0/task:6:", (6,)),
        ("cqe error status[12] remoteIP:[203.0.113.9]", ()),
        ("connected p2p timeout. local logicDevid:0, remote physic id:12", ()),
    ],
)
def test_whom_a_line_names(line: str, ranks: tuple[int, ...]) -> None:
    assert Peers(JOB.ranks, JOB.addresses).named_in(line, JOB.ranks[0]).ranks == ranks


NOTIFY = "[ERROR] HCCL(7,python3):2024-04-08-02:55:04.903.511 [x.cc:1]taskType[Notify Wait]\n"
LOST_HEART = "[ERROR] RUNTIME(7,python3):2024-04-08-02:55:05.1 [x.cc:1]Device lost heartbeat\n"
VAGUE = "RuntimeError: ACL stream synchronize failed, error code:507048\n"


@pytest.mark.parametrize(
    ("log", "of_a_peer", "end"),
    [
        (VAGUE + NOTIFY, True, "taskType[Notify Wait]"),
        (VAGUE + "ValueError: loss is nan\n", False, "error code:507048"),
        (NOTIFY + LOST_HEART, False, "Device lost heartbeat"),
        (NOTIFY + "ValueError: no such step\n", True, "taskType[Notify Wait]"),
        ("ValueError: loss is nan\n" + NOTIFY, False, "ValueError: loss is nan"),
        (NOTIFY.replace("ERROR", "INFO") + "step 3\n", None, ""),
    ],
    ids=["vague-peer", "vague-own", "root-later", "peer-first", "own-first", "no-error"],
)
def test_all_lines_of_a_failure_count(log: str, *, of_a_peer: bool | None, end: str) -> None:
    found = error_in(log.encode())
    assert (found and found.of_a_peer) == of_a_peer
    assert end == "" or (found is not None and found.words.endswith(end))
