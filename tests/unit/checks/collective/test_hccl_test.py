"""`check --hccl-test`: the flags, the program on the nodes, and what pairs and tables show."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from ascendboot.checks.collective.findings import RankNotes, rank_notes
from ascendboot.checks.collective.hccl_test import HcclPlan, HcclTest, check_hccl, pairings
from ascendboot.cli.collective import _for_hccl_test
from ascendboot.errors import LaunchError, UsageError
from ascendboot.launch.planner import plan
from ascendboot.model.cluster import MPIRUN, Placement, Slot
from ascendboot.model.job import CauseKind, JobCause, JobReport, JobState
from ascendboot.templates import installed_templates
from ascendboot.value import replace
from tests.here import Here
from tests.unit.checks.collective.ranks import lines, noted, report
from tests.unit.checks.well import node
from tests.unit.launch.request import REQUEST, TORCHRUN

PROGRAM = installed_templates() / "scripts/hccl_test.py"
program = runpy.run_path(str(PROGRAM))
FLAGS: dict[str, Any] = {"operation": "all_reduce", "sizes": "8K-64M", "floor": "", "devices": ""}
HEADER = "data_size(Bytes): |   avg_time(us): | alg_bandwidth(GB/s): | check_result:"
GIB = 1 << 30


def wanted(**flags: str) -> HcclPlan:
    return HcclPlan.of(is_wanted=True, **{**FLAGS, **flags})


# ------------------------------------------------------------------------------------- the flags


def test_flags_are_read() -> None:
    found = wanted(sizes="64k-1G", floor="19.5", devices="0-2,5")
    assert (found.least, found.most, found.floor) == (64 << 10, GIB, 19.5)
    assert found.devices == frozenset((0, 1, 2, 5))
    assert wanted(sizes="64M").least == wanted(sizes="64M").most == 64 << 20


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"operation": "all_redux"}, 'no operation "all_redux" in HCCL Test; there are all_reduce'),
        *(({"sizes": sizes}, f'--sizes is "{sizes}"') for sizes in ("", "8Q", "8M-8K", "17G", "1")),
        *(({"sizes": sizes}, f'--sizes is "{sizes}"') for sizes in ("8K-", "-8K", "8K-64M-1G")),
        *(
            ({"floor": rate}, f'--floor is "{rate}"')
            for rate in ("x", "0", "-1", "nan", "1e9", "0.0")
        ),
        ({"devices": "0-"}, "--devices: "),
    ],
)
def test_impossible_flags_are_refused(flags: Mapping[str, str], words: str) -> None:
    with pytest.raises(UsageError) as refused:
        wanted(**flags)
    assert str(refused.value).startswith(f"check: {words}")


def test_flags_without_the_test_are_refused() -> None:
    none: dict[str, Any] = {"operation": None, "sizes": None, "floor": "", "devices": ""}
    assert HcclPlan.of(is_wanted=False, **none) == HcclPlan() == wanted(sizes="8K-256M")
    for flag, value in (FLAGS | {"floor": "20", "devices": "0"}).items():
        with pytest.raises(UsageError, match="belong to --hccl-test; add it"):
            HcclPlan.of(is_wanted=False, **{**none, flag: value})


# ----------------------------------------------------------------------- the program on the nodes


def rows(count: int, result: str = "success") -> list[str]:
    return [
        f"{8 << i}  |  {9.5 + i:.2f}    |   {1.5 * (i + 1):.5f}   | {result}" for i in range(count)
    ]


def test_the_table_of_the_manual_is_read() -> None:
    """Its other form, with `aveg_time` and mpirun's tags, is the one of the stand-in."""
    lines = ["the minbytes is 8192", HEADER, *rows(2), "[WARN] something | else", *rows(1)]
    found, why = program["table"](lines, 3)
    assert ([row[0] for row in found], found[1], why) == ([8, 16, 8], [16, 3.0, "success"], "")
    tagged = [f"[1,0]<stdout>:{line}" for line in (HEADER.replace("avg", "aveg"), *rows(2))]
    assert program["table"](tagged, 2) == ([[8, 1.5, "success"], [16, 3.0, "success"]], "")


@pytest.mark.parametrize(
    ("lines", "sizes", "why"),
    [
        ([], 2, "its table ends after 0 of 2 sizes"),
        ([HEADER, *rows(1)], 2, "its table ends after 1 of 2 sizes"),
        ([HEADER, *rows(1), "16 | 10.5"], 2, 'line 3 not understood: "16 | 10.5"; expected four'),
        ([HEADER, "8 | nan | inf | success"], 1, "line 2 not understood"),
        ([HEADER, "8 | 1.0 | 2.0 | maybe"], 1, "line 2 not understood"),
        ([HEADER, f"{'9' * 400} | 1.0 | 2.0 | success"], 1, "line 2 not understood"),
        ([*rows(2)], 2, "its table ends after 0 of 2 sizes"),  # no header
        ([HEADER, *rows(1), HEADER, *rows(1)], 1, "its ranks do not find each other"),
        ([HEADER, *rows(1)], 0, "its ranks do not find each other"),  # not of rank 0
        ([HEADER, *rows(2, "failed")], 2, "wrong results at 8, 16 bytes"),
        (
            [HEADER, "acl interface return err ./a.cc:5, retcode: 507033."],
            2,
            "acl interface return",
        ),
        (["hccl interface return errreturn err ./a.cc:5, retcode: 4 "], 0, "hccl interface return"),
        (["This is an error in parse_cmd_line."], 1, "This is an error in parse_cmd_line."),
    ],
)
def test_a_broken_table_has_its_reason(lines: list[str], sizes: int, why: str) -> None:
    assert program["table"](lines, sizes)[1].startswith(why)


def test_results_that_cannot_be_verified_count() -> None:
    assert program["table"]([HEADER, *rows(1, "NULL")], 1) == ([[8, 1.5, "NULL"]], "")


def run(tmp_path: Path, tool: str, *words: str, **env: str) -> tuple[int, str]:
    """Run the program where the tool is this script."""
    place = tmp_path / "cann/tools/hccl_test/bin"
    place.mkdir(parents=True, exist_ok=True)
    Here(place).put("all_reduce_test", tool)
    whole = {"RANK": "0", "WORLD_SIZE": "4", "DEVICE_ID": "6", "RANK_TABLE_FILE": "/t", **env}
    found = {**os.environ, "ASCEND_HOME_PATH": str(tmp_path / "cann"), **whole}
    argv = [sys.executable, str(PROGRAM), *words]
    done = subprocess.run(argv, env=found, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.returncode, done.stdout


def test_the_command_of_one_rank_is_the_documented_one(tmp_path: Path) -> None:
    show = 'echo "$@"; env | grep -E "^(HCCL|LD_LIB|RANK_TABLE)" | sort'
    code, out = run(tmp_path, show, "whole", "/opt/mpi/bin/mpirun", "all_reduce", "8192", str(GIB))
    argv, *env = out.splitlines()[:-1]
    assert argv == f"-p 1 -b 8192 -e {GIB} -f 2 -d fp32 -o sum -n 20 -w 5 -c 1"
    assert env == [
        "HCCL_BUFFSIZE=1025",
        "HCCL_CONNECT_TIMEOUT=120",
        "HCCL_TEST_USE_DEVS=6",
        f"LD_LIBRARY_PATH={tmp_path}/cann/lib64:/opt/mpi/lib",
    ]
    assert rank_notes(out).failed == "its table ends after 0 of 18 sizes"
    assert code == 0


def test_variables_of_the_inventory_stay(tmp_path: Path) -> None:
    stated = {"HCCL_BUFFSIZE": "64", "HCCL_CONNECT_TIMEOUT": "1200", "WORLD_SIZE": "4000"}
    _, out = run(tmp_path, "env", "whole", "mpirun", "all_reduce", "8", "64", **stated)
    assert "HCCL_BUFFSIZE=64\n" in out
    assert "HCCL_CONNECT_TIMEOUT=1200\n" in out


def test_the_table_of_rank_0_becomes_a_note_and_its_exit_code_stays(tmp_path: Path) -> None:
    table = "\n".join([HEADER, *rows(2)])
    words = ("whole", "mpirun", "all_reduce", "8", "16")
    code, out = run(tmp_path, f"cat <<EOF\n{table}\nEOF", *words)
    assert rank_notes(out).measured == {"rows": [[8, 1.5, "success"], [16, 3.0, "success"]]}
    assert code == 0
    fails = "echo acl interface return err ./a.cc:5, retcode: 507033.; exit 153"
    code, out = run(tmp_path, fails, *words, RANK="3")
    assert (code, rank_notes(out)) == (1, RankNotes(others=(fails[5:].partition(";")[0],)))


def test_the_tool_cannot_forge_a_note(tmp_path: Path) -> None:
    forged = 'echo \'ascendboot-preflight {"measured": {"rows": [[1, 9.9, "success"]]}}\''
    _, out = run(tmp_path, forged, "whole", "mpirun", "all_reduce", "8", "8")
    assert (rank_notes(out).measured, rank_notes(out).failed[:9]) == (None, "its table")


def test_a_pair_gets_an_mpi_world_of_its_own(tmp_path: Path) -> None:
    show = 'env | grep -E "^(OMPI|PMIX|HCCL_TEST)" | sort\necho "$@"'
    mpirun = Here(tmp_path).put("mpirun", show)
    ranks = json.dumps([[[2, 5, 0], [3, 4, 1]]])
    words = ("pairs", mpirun, "all_reduce", "8", "64", ranks)
    env = {"OMPI_COMM_WORLD_RANK": "2", "PMIX_RANK": "2", "RANK": "2"}
    code, out = run(tmp_path, "", *words, **env)
    devices, argv, note = out.splitlines()
    assert devices == "HCCL_TEST_USE_DEVS=4,5"
    tool = f"{tmp_path}/cann/tools/hccl_test/bin/all_reduce_test"
    assert argv.endswith(f"-np 2 {tool} -p 2 -b 64 -e 64 -f 2 -d fp32 -o sum -n 20 -w 5 -c 1")
    assert (code, note.endswith('"its table ends after 0 of 1 sizes"}')) == (0, True)
    for seen, used in ((("", "5=1,4=0,"), "0,1"), (("4,5", ""), "0,1")):
        more = dict(zip(("ASCEND_RT_VISIBLE_DEVICES", "ASCENDBOOT_LOGIC_IDS"), seen, strict=True))
        _, out = run(tmp_path, "", *words, **env, **more)
        assert out.startswith(f"HCCL_TEST_USE_DEVS={used}\n")
    assert run(tmp_path, "", *words, RANK="3")[1] == 'ascendboot-preflight {"measured": {}}\n'


def test_where_the_tool_is_not_built_the_command_is_shown(tmp_path: Path) -> None:
    code, out = run(tmp_path, "", "find", "/opt/mpi/bin/mpirun", "all_reduce")
    assert (code, out) == (0, f"tool {tmp_path}/cann/tools/hccl_test/bin/all_reduce_test\n")
    folder = f"{tmp_path}/cann/tools/hccl_test"
    _, out = run(tmp_path, "", "find", "/opt/mpi/bin/mpirun", "scatter")
    assert out.splitlines() == [
        f"no scatter_test: it was not built in {folder}",
        f"Build it: cd {folder} && make MPI_HOME=/opt/mpi ASCEND_DIR={tmp_path}/cann",
    ]


# ------------------------------------------------------------------------- pairs, table, comparison

SLOTS = tuple(Slot(node(1 + rank // 4), rank % 4, None, rank % 4) for rank in range(8))
ONE, TWO = (each.name for each in Placement(SLOTS).nodes)
WHOLE = {"rows": [[8192, 0.5, "success"], [16384, 20.0, "success"]]}


def test_pairs_of_one_way_are_linked_alike() -> None:
    near = [(0, 1), (2, 3), (4, 5), (6, 7)]
    assert pairings(Placement(SLOTS)) == [near, [(0, 2), (1, 3), (4, 6), (5, 7)]]
    some = tuple(Slot(node(1), device, None, i) for i, device in enumerate((6, 0, 3)))
    assert pairings(Placement(some)) == [[(1, 2)], [(2, 0)]]
    assert pairings(Placement(SLOTS[:1])) == []


def checked(
    bad: Mapping[tuple[int, int], float | str] | None = None,
    *,
    slots: Sequence[Slot] = SLOTS,
    whole: Any = WHOLE,
    ended: JobReport | None = None,
    **more: Any,
) -> tuple[HcclTest, list[str]]:
    """A check in which these pairs are slow or fail; what it started."""
    started = []

    def start(words: tuple[str, ...]) -> tuple[dict[int, RankNotes], JobReport]:
        started.append(words[0])
        notes = {rank: RankNotes(measured={}) for rank in range(len(slots))}
        if words[0] == "whole":
            notes[0] = noted(whole)
            return notes, ended or report()
        for pair in json.loads(words[-1]):
            first, second = (place[0] for place in pair)
            found = (bad or {}).get((first, second), 24.0)
            rows = {"rows": [[64, found, "success"]]}
            notes[first] = noted(found if isinstance(found, str) else rows)
        return notes, report()

    request = replace(REQUEST, placement=Placement(tuple(slots)))
    given = {"before": {}, "floor": None, **more}
    check = check_hccl(request, start, replace(HcclPlan(), floor=given["floor"]), given["before"])
    return check, started


def test_a_healthy_cluster_has_a_rate_and_no_finding() -> None:
    check, started = checked(before={"last": 19.0, "best": 21.0})
    assert (lines(check), started) == ([], ["pairs", "whole"])
    assert check.line == "20 GB/s, 19 in the run before"


def test_a_device_that_is_slow_with_two_partners_is_named() -> None:
    check, started = checked({(4, 5): 8.0, (5, 7): 8.0})
    text = "device 1: slow in HCCL Test, 33% of the median of all pairs"
    assert lines(check) == [("hccl-test-slow", "error", (TWO,), text)]
    assert started == ["pairs", "pairs"]
    check, started = checked({(4, 5): 16.0, (5, 7): 16.0})
    assert [(f.level, f.text[:8]) for f in check.findings] == [("warning", "device 1")]
    assert started == ["pairs", "pairs", "whole"]


CODE_9 = "hccl interface return err ./common/src/hccl_test_common.cc:538, retcode: 9"
OF_ONE_NODE = [pair for way in pairings(Placement(SLOTS[:4])) for pair in way]


@pytest.mark.parametrize(
    ("pairs", "why", "who"),
    [
        ([(0, 1), (0, 2)], CODE_9, "device 0"),  # its meaning follows
        ([(2, 3)], "no result within 240 s", "devices 2-3 together"),
        (OF_ONE_NODE, "cannot open libhccl.so", "devices 0-3"),
    ],
    ids=["with two partners", "a link", "all of a node alike"],
)
def test_failed_devices_are_one_finding(pairs: list[tuple[int, int]], why: str, who: str) -> None:
    [(id_, _, where, text)] = lines(checked(dict.fromkeys(pairs, why))[0])
    assert (id_, where) == ("hccl-test-failed", (ONE,))
    start = f"{who}: HCCL Test failed: {why}"
    assert text.startswith(f"{start} (") if why == CODE_9 else text == start


@pytest.mark.parametrize(
    ("more", "level", "text"),
    [
        ({"floor": 20.0}, "", ""),
        ({"floor": 25.0}, "error", "HCCL Test reaches 20 GB/s; 25 GB/s are expected"),
        ({"before": {"last": 25.0, "best": 25.9}}, "", ""),
        (
            {"before": {"last": 25.0, "best": 30.0}},
            "warning",
            "HCCL Test reaches 20 GB/s, 25 in the run before; 30 in the best run of these devices",
        ),
        (
            {"before": {"last": 1.0, "best": 50.0}},
            "error",
            "HCCL Test reaches 20 GB/s, 1 in the run",
        ),
        ({"before": {"last": 1.0, "best": 50.0}, "floor": 10.0}, "error", "HCCL Test reaches 20"),
    ],
)
def test_the_whole_is_compared(more: Mapping[str, Any], level: str, text: str) -> None:
    found = [(*rest, words[: len(text)]) for *rest, words in lines(checked(**more)[0])]
    assert found == ([("hccl-test-slow", level, (ONE, TWO), text)] if level else [])


CAUSE = JobCause(kind=CauseKind.RANK, title="rank 5 failed", ranks=(5,), nodes=(TWO,), words="boom")
CUT_OFF = "its table ends after 4 of 16 sizes"


@pytest.mark.parametrize(
    ("ended", "whole", "where", "why"),
    [
        (report(1, cause=CAUSE), {}, (TWO,), "rank 5 failed; boom"),
        (None, CUT_OFF, (ONE, TWO), f"rank 0 on device 0: {CUT_OFF}"),
        (
            report(125, message="lab-1: no mpirun\nThe job was not started."),
            {},
            (ONE, TWO),
            "lab-1: no mpirun; The job was not started.",
        ),
    ],
)
def test_a_run_that_fails_has_the_reason(
    ended: JobReport | None, whole: Any, where: tuple[str, ...], why: str
) -> None:
    check, _ = checked(ended=ended, whole=whole)
    text = f"HCCL Test failed on 8 devices: {why}"
    assert lines(check) == [("hccl-test-failed", "error", where, text)]
    assert check.rows == ()


def test_an_interrupted_run_has_no_findings() -> None:
    check, _ = checked(ended=report(state=JobState.INTERRUPTED))
    assert (lines(check), check.interrupted) == ([], True)


def test_the_request_has_the_chosen_devices_and_a_launcher_of_mpi() -> None:
    whole = replace(TORCHRUN, placement=Placement(SLOTS))
    made = _for_hccl_test(whole, frozenset((1, 3)))
    places = [(s.node.name, s.device_id, s.local_rank) for s in made.placement.slots]
    assert places == [(ONE, 1, 0), (ONE, 3, 1), (TWO, 1, 0), (TWO, 3, 1)]
    assert made.launcher is MPIRUN
    command = plan(made).starts[0].command
    assert command[0] == str(made.mpirun)
    assert "ASCENDBOOT_DEVICES=1,3,1,3" in command
    assert not [word for word in command if word.startswith("RANK_TABLE_FILE=")]
    assert _for_hccl_test(whole, frozenset[int]()).placement == whole.placement
    with pytest.raises(LaunchError, match="the primary has none of the devices 9"):
        _for_hccl_test(whole, frozenset((9,)))
