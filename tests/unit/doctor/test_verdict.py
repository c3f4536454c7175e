"""What `doctor` finds in logs: the rank, its place, and how sure that is."""

from __future__ import annotations

import gzip
import json
import os
import re
from pathlib import Path
from typing import TypeAlias

import pytest

from ascendboot.doctor.scan import LogFile, _blocks
from ascendboot.doctor.verdict import Examined, Layout, Verdict, examine
from ascendboot.errors import UsageError
from ascendboot.ranktable.formats.servers import RankedDevice, RankTable, Server

Files: TypeAlias = dict[str, str | bytes]
NO_LAYOUT = Layout()
RECORDED = Path(__file__).parents[2] / "data/doctor"
OWN = (
    'Traceback (most recent call last):\n  File "main.py", line 7, in <module>\n    loss()\n'
    "ValueError: loss is nan\n"
)
RESET = "RuntimeError: [pair.cc:537] Read error [192.0.2.11]:1: Connection reset by peer\n"


def cann(words: str, *, pid: int = 7, module: str = "HCCL") -> str:
    return f"[ERROR] {module}({pid},python3):2026-01-02-03:04:05.000.000 [x.cc:1] [7]{words}\n"


def identity(rank: int, size: int = 4, *, pid: int = 7, job: str = "1") -> str:
    """The line with which HCCL names the rank of a process; two devices for each node."""
    return (
        f"[INFO] HCCL({pid},python3):2026-01-02-03:04:00.000.000 [topoinfo_detect.cc:221][7]"
        f"[HCCL_TRACE]SetupAgent rankNum[{size}], rank[{rank}], rootInfo identifier[{job}],"
        f" server[192.0.2.{1 + rank // 2}%eth0], logicDevId[{rank % 2}], phydevId[{rank % 2}],"
        f" deviceIp[198.51.100.{rank}]\n"
    )


def waits(rank: int) -> str:
    """A rank reports that it waits for another."""
    words = f"Task run failed, base information is taskType[Notify Wait], remote rank:[{rank}]."
    return cann(words) + cann("groupRank information is group:[x], rankSize[4].")


DEVICES = [RankedDevice(device_id=n % 2, device_ip=f"198.51.100.{n}", rank_id=n) for n in range(4)]
SERVERS = tuple(
    Server(server_id=f"192.0.2.{n + 1}", device=tuple(DEVICES[2 * n : 2 * n + 2])) for n in (0, 1)
)
TABLE = RankTable(server_list=SERVERS).to_json()


def written(folder: Path, files: Files) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def examined(folder: Path, files: Files, layout: Layout = NO_LAYOUT) -> Examined:
    return examine([written(folder, files)], layout)


def verdict(folder: Path, files: Files, layout: Layout = NO_LAYOUT) -> Verdict:
    found = examined(folder, files, layout)
    assert len(found.verdicts) == 1, found
    return found.verdicts[0]


def with_table(folder: Path, table: str = TABLE) -> Layout:
    (folder.parent / "hccl.json").write_text(table)
    return Layout.of_table(str(folder.parent / "hccl.json"))


def plogs(*texts: str) -> Files:
    """A plog tree: who a process is stands in `run`, its errors in `debug`."""
    files: Files = {}
    for rank, text in enumerate(texts):
        files[f"worker-{rank}/run/plog/plog-{70 + rank}_1.log"] = identity(rank, len(texts))
        files[f"worker-{rank}/debug/plog/plog-{70 + rank}_2.log"] = text
    return files


@pytest.mark.parametrize(
    ("name", "ranks", "certainty"),
    [
        ("plog_example", [[7], [3]], ["likely", "likely"]),
        ("plog_st_aicpu_notify_testcase", [[0]], ["likely"]),
        ("plog_st_event_timeout_testcase", [[0, 1, 2]], ["undecided"]),
        ("plog_st_transport_init_testcase", [[0]], ["likely"]),
        ("A3_hccl_tools_run_with_SDID", [], []),
    ],
)
def test_recorded_plogs(name: str, ranks: list[list[int]], certainty: list[str]) -> None:
    found = examine([RECORDED / f"{name}.log"], Layout()).verdicts
    assert [list(one.cause.ranks) for one in found] == ranks
    assert [one.certainty for one in found] == certainty


SCENARIOS: dict[str, tuple[Files, list[int], str, str]] = {
    "one rank with an exception, the others lost it": (
        {
            **{f"rank.{n}.log": "step 1\n" + RESET for n in (0, 1, 3)},
            "rank.2.log": "step 1\nstep 2\n" + OWN,
        },
        *([2], "rank.2.log:3", "certain"),
    ),
    "the silent rank": (
        plogs(waits(1), waits(0), waits(1), ""),
        *([3], "plog-70_2.log:1", "likely"),
    ),
    "the rank that others name": (
        plogs(waits(2), waits(2), "", waits(2)),
        *([2], "plog-70_2.log:1", "likely"),
    ),
    "several silent ranks": (
        plogs(cann("Recv timeout"), cann("Recv timeout"), "", ""),
        *([2, 3], "plog-70_2.log:1", "undecided"),
    ),
    "a lost device among ranks that lost a peer": (
        plogs(waits(1), waits(0) + cann("Device lost heartbeat", module="RUNTIME"), waits(1), ""),
        *([1], "plog-71_2.log:3", "certain"),
    ),
    "an address of a device names the rank": (
        plogs(
            cann("cqe error status[12] remoteIP:[198.51.100.3]"),
            cann("Recv timeout"),
            cann("Recv timeout"),
            "",
        ),
        *([3], "plog-70_2.log:1", "likely"),
    ),
    "mpirun's tags in one file": (
        {
            "job.txt": "".join(f"[1,{n}]<stderr>:{RESET}" for n in (0, 1))
            + "".join(f"[1,2]<stderr>:{line}\n" for line in OWN.splitlines())
        },
        *([2], "job.txt:3", "certain"),
    ),
    "the prefix of ascendboot's own output": (
        {"out.txt": "".join(f"a-2:3 | {line}\n" for line in OWN.splitlines()) + f"a-1:0 | {RESET}"},
        *([3], "out.txt:1", "certain"),
    ),
    "pods with times, as kubectl prints them": (
        {
            "pods.txt": f"[pod/job-0/main] 2026-01-02T03:04:07.123456789Z [rank0]: {RESET}"
            + "".join(
                f"[pod/job-1/main] 2026-01-02T03:04:05.123456789Z [rank1]: {line}\n"
                for line in OWN.splitlines()
            )
        },
        *([1], "pods.txt:2", "certain"),
    ),
    "a container engine's JSON log": (
        {
            "rank.0.log": RESET,
            "rank.1.log": json.dumps(
                {"log": "ValueError: x\n", "stream": "stderr", "time": "2026-01-02T03:04:05.1Z"}
            )
            + "\n",
        },
        *([1], "rank.1.log:1", "certain"),
    ),
    "compressed": (
        {f"rank.{n}.log.gz": gzip.compress(text.encode()) for n, text in enumerate((RESET, OWN))},
        *([1], "rank.1.log.gz:1", "certain"),
    ),
    "UTF-16": (
        {"rank.0.log": RESET.encode("utf-16"), "rank.1.log": OWN.encode("utf-16")},
        *([1], "rank.1.log:1", "certain"),
    ),
    "Chinese in two encodings": (
        {
            "rank.0.log": "训练开始\n".encode("gb18030") + RESET.encode(),
            "rank.1.log": "训练开始\nValueError: 损失无效\n".encode(),
        },
        *([1], "rank.1.log:2", "certain"),
    ),
    "two encodings in one file": (
        {
            "rank.0.log": RESET,
            "rank.1.log": "训练开始\n".encode("gb18030") + "ValueError: 损失无效\n".encode(),
        },
        *([1], "rank.1.log:2", "certain"),
    ),
    "without times, one rank on its own": (
        {"rank.0.log": OWN, "rank.1.log": "KeyError: 1\n"},
        *([0], "rank.0.log:1", "likely"),
    ),
    "a plog beside the log of its rank": (
        {
            "rank.3.plog/debug/plog/plog-9_1.log": cann(
                "[a.cc:1]7 Aicore kernel execute failed, device_id=1", pid=9, module="RUNTIME"
            ),
            "rank.3.log": "step 1\n",
        },
        *([3], "plog-9_1.log:1", "certain"),
    ),
    "a log that invents millions of ranks": (
        {"a.log": identity(1, 4).replace("rankNum[4]", "rankNum[9999999]") + waits(3)},
        *([], "a.log:2", "undecided"),
    ),
    "a rank that went on after its error": (
        {"rank.0.log": OWN + "step\n" * 300},
        *([0], "rank.0.log:1", "certain"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenarios(tmp_path: Path, name: str) -> None:
    files, ranks, place, certainty = SCENARIOS[name]
    found = verdict(tmp_path, files)
    assert (list(found.cause.ranks), found.certainty) == (ranks, certainty)
    assert found.place.endswith(place)


def test_a_rank_table_names_node_and_device(tmp_path: Path) -> None:
    text = cann("cqe error status[12] remoteIP:[198.51.100.3]")
    files: Files = {f"rank.{n}.log": text for n in (0, 1, 2)}
    found = verdict(tmp_path / "logs", files, with_table(tmp_path / "logs"))
    words = {"words", "why", "meaning", "remedy", "followed"}
    assert {k: v for k, v in found.to_json().items() if k not in words} == {
        "kind": "left",
        "title": "rank 3 (node 192.0.2.2, device 1): did not answer while others waited, and logged"
        " no error",
        "rank": 3,
        "ranks": [3],
        "node": "192.0.2.2",
        "nodes": ["192.0.2.2"],
        "device": 1,
        "place": str(tmp_path / "logs/rank.0.log:1"),
        "at": None,
        "known_error": "hccl-cqe",
        "certainty": "certain",
        "unsure": "",
    }


def test_a_rank_table_of_another_job_is_not_used(tmp_path: Path) -> None:
    files = plogs(waits(2), waits(2), "", waits(2))
    other = TABLE.replace("198.51.100.", "203.0.113.")
    found = examined(tmp_path / "logs", files, with_table(tmp_path / "logs", other))
    assert [one.cause.ranks for one in found.verdicts] == [(2,)]
    why = "of another job: its rank 0 has the device address"
    assert [note for note in found.notes if why in note]


def test_two_jobs_in_the_same_folder_are_two_verdicts(tmp_path: Path) -> None:
    files: Files = {
        f"{job}-{n}.log": identity(n, 2, pid=job * 10 + n, job=str(job))
        + cann("Recv timeout" if n else words, pid=job * 10 + n)
        for job, words in ((1, "Device lost heartbeat"), (2, "EI0011"))
        for n in (0, 1)
    }
    found = examined(tmp_path, files)
    assert sorted(one.known_id for one in found.verdicts) == ["EI0011", "device-lost"]
    assert any("2 jobs" in note for note in found.notes)


def test_two_jobs_with_their_lines_in_turns_are_two_verdicts(tmp_path: Path) -> None:
    lines = {
        job: [
            identity(n, 2, pid=job * 10 + n, job=str(job))
            + cann("Recv timeout" if n != job - 1 else "Device lost heartbeat", pid=job * 10 + n)
            for n in (0, 1)
        ]
        for job in (1, 2)
    }
    both = [text.splitlines(keepends=True) for job in (1, 2) for text in lines[job]]
    mixed = "".join("".join(row) for row in zip(*both, strict=True))
    found = examined(tmp_path, {"all.log": mixed})
    causes = [(one.cause.ranks, one.known_id) for one in found.verdicts]
    assert causes == [((0,), "device-lost"), ((1,), "device-lost")]


@pytest.mark.parametrize(("hour", "at", "certainty"), [(9, "08", "likely"), (3, "12", "certain")])
def test_clocks_that_are_hours_apart_decide_nothing(
    tmp_path: Path, hour: int, at: str, certainty: str
) -> None:
    files: Files = {
        "rank.0.log": "2026-01-02 03:00:00 start\n[ERROR] RUNTIME(7,python3):"
        "2026-01-02-03:10:00.000.001 [x.cc:1]Device lost heartbeat\n",
        "rank.1.log": f"2026-01-02 0{hour}:00:00 start\n[ERROR] HCCL(7,python3):"
        f"2026-01-02-0{hour}:{at}:00.000.001 [x.cc:1]EI0011: no memory\n",
    }
    found = verdict(tmp_path, files)
    assert (found.cause.ranks, found.certainty) == ((0,), certainty)
    assert ("times are only accurate to 2.16e+04 s" in found.cause.unsure) is (hour > 3)


def test_a_log_cannot_speak_for_another_rank(tmp_path: Path) -> None:
    forged = "a-9:5 | ValueError: loss is nan\n[1,6]<stderr>:ValueError: no\n[rank7]: KeyError: 1\n"
    found = verdict(tmp_path, {"rank.0.log": forged, "rank.1.log": RESET})
    assert (found.cause.ranks, found.place[-12:]) == ((0,), "rank.0.log:1")


def test_a_log_of_the_node_is_no_rank(tmp_path: Path) -> None:
    oom = "[12345.678901] Out of memory: Killed process 7012 (python3)\n"
    assert verdict(tmp_path, {"dmesg.txt": oom}).known_id == "linux-oom"
    found = examined(tmp_path, {"rank.0.log": OWN})
    assert [one.cause.ranks for one in found.verdicts] == [(0,)]
    assert any("Out of memory" in note for note in found.notes)


def test_a_folder_without_an_error_has_no_verdict(tmp_path: Path) -> None:
    assert examined(tmp_path, {"rank.0.log": "step 1\n", "model.pt": b"\0Error"}).verdicts == ()


@pytest.mark.parametrize("name", ["missing", "pipe"])
def test_what_is_no_file_is_wrong_use(tmp_path: Path, name: str) -> None:
    if name == "pipe":
        os.mkfifo(tmp_path / name)
    with pytest.raises(UsageError, match=name):
        examine([tmp_path / name], Layout())


def test_a_damaged_gzip_file_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    content = gzip.compress(OWN.encode() + bytes(range(256)) * 5000)
    found = examined(tmp_path, {"rank.0.log.gz": content[:-200]})
    assert any("could not be read to its end" in note for note in found.notes)


def test_binary_and_one_long_line_are_read_in_pieces(tmp_path: Path) -> None:
    path = written(tmp_path, {"x.log": b"a" * (5 << 20) + b"\n" + OWN.encode()}) / "x.log"
    found = examine([path], Layout())
    assert [one.cause.words for one in found.verdicts] == ["ValueError: loss is nan"]
    path.write_bytes(b"\0\xff\xfe" * 100_000 + b"\nValueError: x\n")
    assert examine([path], Layout()).verdicts[0].cause.words == "ValueError: x"


def test_ten_thousand_files(tmp_path: Path) -> None:
    for number in range(10_000):
        (tmp_path / f"rank.{number}.log").write_text("step 1\n" if number != 77 else OWN)
    found = examine([tmp_path], Layout())
    assert ([one.cause.ranks for one in found.verdicts], found.files) == ([(77,)], 10_000)


def test_of_a_file_full_of_errors_the_beginning_and_the_end_count(tmp_path: Path) -> None:
    found = examined(tmp_path, {"rank.0.log": "ERROR no link\n" * 60_000 + OWN})
    assert [one.place[-16:] for one in found.verdicts] == ["rank.0.log:60001"]
    assert found.notes == (
        f"{tmp_path}/rank.0.log: 20005 lines with errors in its middle were not examined",
    )


def test_a_rank_that_only_the_launcher_reports_as_killed(tmp_path: Path) -> None:
    noticed = "process rank 3 with PID 0 on node a-2 exited on signal 9 (Killed).\n"
    files: Files = {f"rank.{n}.log": RESET for n in range(3)}
    found = verdict(tmp_path, {**files, "launcher.log": noticed})
    assert found.lines()[0] == "rank 3: failed first, with signal 9"
    assert (found.cause.meaning[:7], found.place) == ("SIGKILL", "")


def test_logs_of_unknown_ranks_beside_known_ones(tmp_path: Path) -> None:
    files = plogs(waits(2), waits(2), "", waits(2)) | {"train.txt": RESET, "more.txt": RESET}
    found = verdict(tmp_path, files)
    assert found.cause.ranks == (2,)
    assert not any("1000000" in line for line in found.lines()), found.lines()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("\x1b[31mValueError: red\x1b[0m\n", "ValueError: red"),
        (" 10%|#  |\r 20%|## |\rKeyError: 1\n", "KeyError: 1"),  # a progress bar
        ("ValueError: \x1b[2J\x07<b>x</b>\u202e\n", "ValueError: ?[2J?<b>x</b>?"),
    ],
)
def test_words_of_an_error_are_found_and_fit_for_a_terminal(
    tmp_path: Path, text: str, words: str
) -> None:
    found = verdict(tmp_path, {"rank.0.log": text})
    assert found.cause.words == words
    assert all(re.search("[\x00-\x1f]", line) is None for line in found.lines())


def test_a_file_that_may_not_be_read_is_a_remark(tmp_path: Path) -> None:
    files = written(tmp_path, {"rank.0.log": OWN})
    (files / "rank.1.log").symlink_to(files / "nothing")
    found = examine([files], Layout())
    assert [one.cause.ranks for one in found.verdicts] == [(0,)]
    assert any("rank.1.log: could not be read" in note for note in found.notes)


def test_error_files_of_torchelastic(tmp_path: Path) -> None:
    error = {"message": "ValueError: loss is nan", "extraInfo": {"timestamp": "1767323045"}}
    content = json.dumps({"message": error}) + "\n"
    cause = verdict(tmp_path, {"attempt_0/3/error.json": content}).cause
    assert (cause.words, cause.at) == ("ValueError: loss is nan", "2026-01-02T03:04:05.000+00:00")


def test_what_is_added_while_a_file_is_read_is_left(tmp_path: Path) -> None:
    path = tmp_path / "plog.log"
    path.write_bytes(b"step 1\n" * 200_000)
    size = path.stat().st_size
    blocks = _blocks(LogFile(path), 0)
    first = next(blocks)
    with path.open("ab") as file:
        file.write(b"later\n" * 1_000_000)
    assert len(first) + sum(map(len, blocks)) == size


def group(rank: int) -> str:
    return cann(f"groupRank information is group:[192.0.2.1%eth0_1], rankSize[2], rankId[{rank}].")


def test_a_rank_in_a_smaller_communicator_is_not_that_of_the_job(tmp_path: Path) -> None:
    lost = cann("Recv timeout") + group(0)
    named = verdict(tmp_path / "a", {"rank.5.log": lost, "rank.7.log": group(1) + OWN})
    assert named.cause.ranks == (7,)
    unnamed = verdict(tmp_path / "b", {"x.log": lost, "y.log": group(1) + OWN})
    assert (unnamed.cause.ranks, unnamed.certainty) == ((1,), "likely")
    two: Files = {"x.log": lost, "y.log": group(1) + OWN, "z.log": group(1) + "step\n"}
    assert verdict(tmp_path / "c", two).cause.ranks == ()


MANUAL = "| Code | Meaning |\n|---|---|\n| EI0006 | Getting socket times out. Check the links. |\n"


@pytest.mark.parametrize(
    ("text", "certainty", "doubt"),
    [
        (MANUAL, "undecided", "it may only describe an error"),
        ("如果出现 EI0006 错误,请检查链路。\n", "undecided", "it may only describe an error"),
        ("For RuntimeError: EI0006 see page 7.\n", "undecided", "it may only describe an error"),
        (
            cann("EI0011: no memory") + cann("EI0006", pid=8).replace("2026-01", "2026-03"),
            *("undecided", "the errors are 59 days apart"),
        ),
        (cann("EI0011: no memory"), "certain", ""),
        ("ERROR:root:EI0011: no memory\n", "certain", ""),
        ("[1,0]<stderr>:EI0011: no memory\n", "certain", ""),
        (OWN, "certain", ""),
    ],
)
def test_text_that_describes_errors_is_no_log(
    tmp_path: Path, text: str, certainty: str, doubt: str
) -> None:
    found = verdict(tmp_path, {"page.txt": text})
    assert (found.certainty, doubt in found.cause.unsure) == (certainty, True)
    assert bool(found.cause.unsure) is bool(doubt)


def test_a_gzip_bomb_is_read_in_part(tmp_path: Path) -> None:
    path = tmp_path / "rank.0.log.gz"
    path.write_bytes(gzip.compress(OWN.encode() + b"step 1 \n" * (6 << 20)))
    file = LogFile(path)
    assert sum(map(len, _blocks(file, 1 << 20))) == 100 * path.stat().st_size
    assert "more than 100 times its size" in file.problem
    found = examine([path], Layout())  # this one fits in what all files may unpack to
    assert found.notes == ()


@pytest.mark.parametrize("begin", [b"BZh91AY", b"\xfd7zXZ\0", b"\x28\xb5\x2f\xfd"])
def test_other_compressed_files_are_named(tmp_path: Path, begin: bytes) -> None:
    found = examine([written(tmp_path, {"x.log": begin}) / "x.log"], Layout())
    assert "unpack it first" in found.notes[0]


GLOG = "{}1121 10:00:{:09.6f} {} file.cc:12] {}\n"


def test_lines_of_glog_have_level_time_and_process(tmp_path: Path) -> None:
    text = GLOG.format("E", 7, 71, "EI0011: no memory") + GLOG.format("E", 5, 72, "Aicore error")
    text += GLOG.format("W", 1, 73, "EI0006: retried") + "step 1\n" * 30
    text += GLOG.format("E", 5, 72, "Device lost heartbeat")
    path = written(tmp_path, {"all.log": text}) / "all.log"
    os.utime(path, (1_764_000_000, 1_764_000_000))  # 2025-11-24
    found = examine([path], Layout()).verdicts[0]
    assert (found.place, found.cause.at) == (f"{path}:34", "2025-11-21T10:00:05.000+00:00")
    assert found.lines()[0] == f"{path}, process 72: failed first"


@pytest.mark.parametrize(
    ("level", "count"), [("ERROR", 1), ("CRITICAL", 1), ("EXCEPTION", 1), ("WARNING", 0)]
)
@pytest.mark.parametrize("form", ["[{}] ME(7:281473,MainProcess):", "[{}]HCCL(7,python3):"])
def test_levels_of_mindspore_and_cann(tmp_path: Path, form: str, level: str, count: int) -> None:
    line = f"{form.format(level)}2026-01-02-03:04:05.678.901 [a.cc:1] no connection, Error 7\n"
    found = examined(tmp_path, {"x.log": f"step 1\n{line}"}).verdicts
    assert [(one.certainty, one.cause.at) for one in found] == count * [
        ("certain", "2026-01-02T03:04:05.678+00:00")
    ]
