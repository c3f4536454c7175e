"""`report`: the page and the bundle, from values and from folders of the control machine."""

from __future__ import annotations

import io
import json
import re
import tarfile
from functools import partial
from html.parser import HTMLParser
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from invoke.context import Context
from invoke.exceptions import Exit

from ascendboot.cli.report_file import packed, report
from ascendboot.cli.report_page import Known, legible, page, page_values
from ascendboot.launch.plan import JobRecord, PlannedRank
from ascendboot.model.cluster import Cluster, Device, NodeClocks, Parallel
from ascendboot.model.job import (
    CauseKind,
    FirstFailure,
    Followed,
    JobCause,
    JobReport,
    RankEnd,
    RankTimes,
)
from ascendboot.model.report import Finding, Outcome, StepResult
from ascendboot.model.secrets import masked
from ascendboot.supervise.core import Core
from ascendboot.supervise.history import Supervision
from ascendboot.supervise.policy import Limits
from ascendboot.templates import installed_templates
from ascendboot.value import asdict, replace
from tests.unit.checks import well
from tests.unit.checks.collective.ranks import report as job_report
from tests.unit.cli.calls import called
from tests.unit.transport.builders import node

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>"
INVENTORY = """\
cluster: lab
nodes:
  a-1: {address: 192.0.2.11, devices: [{device_id: 0}]}
  a-2: {address: 192.0.2.12, devices: [{device_id: 0}]}
env: {HF_TOKEN: planted-secret-value}
"""


def cluster(nodes: int = 16, devices: int = 8) -> Cluster:
    made = [
        replace(
            node(f"atlas-{number:02}", f"192.0.2.{number}"),
            devices=tuple(map(Device, range(devices))),
            leaf=f"leaf-{'ab'[number % 2]}",
        )
        for number in range(1, nodes + 1)
    ]
    return well.cluster(*made, name="big", source="big.yaml")


def record(of: Cluster) -> JobRecord:
    ranks = [(node.name, device.device_id) for node in of.nodes for device in node.devices]
    return JobRecord(
        job_id="20260102-030405-train-ab12",
        cluster=of.name,
        job_folder=PurePosixPath("/var/lib/ascendboot/big/jobs/j"),
        nodes=tuple(node.name for node in of.nodes),
        ranks=tuple(PlannedRank(n, *place, place[1]) for n, place in enumerate(ranks)),
        started_on=(of.primary_name,),
        grace_s=3.0,
        command_line="mpirun main.py",
        started="2026-01-02T03:04:05.000+00:00",
        clocks=NodeClocks(),
        log_limit=0,
        addresses={},
        notes=(),
        script={"path": None, "copied_from": None},
        launcher_kind="mpirun",
        python="",
    )


def at(second: float) -> str:
    return f"2026-01-02T03:{4 + int(5 + second) // 60:02}:{(5 + second) % 60:06.3f}+00:00"


def failed(of: JobRecord, *, rank: int = 77, words: str = "ValueError: loss is nan") -> JobReport:
    ends = []
    for place in of.ranks:
        last = 40.0 if place.rank == rank else 58.0
        times = RankTimes(
            started=at(1.0 + place.rank / 100),
            first_output=at(3.0 + place.rank / 50),
            last_output=at(last),
            silent_s=60.0 - last,
            silent_since=at(last - 30.0),
            ended=at(60.0 if place.rank == rank else 61.0 + place.rank / 100),
        )
        code, signal = (1, None) if place.rank == rank else (143, 15)
        whole: dict[str, Any] = {"exit_code": code, "signal": signal, "times": times}
        end = {"rank": place.rank, "node": place.node, "device": place.device_id, **whole}
        ends.append(RankEnd(**end))
    bad = ends[rank]
    others = tuple(end.rank for end in ends if end.rank != rank)
    return job_report(
        1,
        job_id=of.job_id,
        started=of.started,
        first_failure=FirstFailure(**asdict(bad), message=f"step 40\n{words}", log="rank.77.log"),
        ranks=tuple(ends),
        duration_s=62.5,
        cause=JobCause(
            kind=CauseKind.RANK,
            title=f"{bad.node}: rank {rank} on device {bad.device} failed first, with exit code 1",
            ranks=(rank,),
            nodes=(bad.node,),
            device=bad.device,
            words=words,
            why="no other rank failed on its own",
            devices=(f"{bad.node} device {bad.device}: its link was down 3 times",),
            followed=(Followed(others, "ended with the job"),),
        ),
    )


def result(node: str, words: str, remedy: str = "Replace it", level: Any = "error") -> StepResult:
    outcome = Outcome.BLOCKED if level == "error" else Outcome.OK
    finding = Finding("device-health", level, (node,), words, remedy)
    return StepResult(node, "judge", "devices", outcome, f"{words}. {remedy}.", cause=finding)


def known(of: Cluster, **others: Any) -> Known:
    return Known(run_id="run-1", made="2026-01-02T04:00:00+00:00", cluster=of, **others)


def failed_on_16() -> Known:
    of = cluster()
    job = record(of)
    return known(
        of,
        record=job,
        job=failed(job),
        results=(
            result("atlas-03", "device 5 is missing from npu-smi info -m"),
            result("atlas-07", "the driver is older than on the others", "Upgrade it", "warning"),
        ),
        results_of="20260102-030000-check-0001",
        outputs={
            "atlas-01": [
                "| npu-smi 24.1.0     Version: 24.1.0    |\n",
                "@@ cann_version 0 7\n8.1.RC1\n",
            ]
        },
        files={"job.json": 100},
    )


class Tags(HTMLParser):
    """What a browser would find in a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs


def test_a_failed_job_on_16_nodes_is_drawn_with_what_is_bad() -> None:
    values = page_values(failed_on_16())
    drawn = values["cluster"]
    levels = {each["node"]: each["level"] for each in drawn["nodes"]}
    assert len(levels) == 16
    assert bad_devices(values) == [("atlas-03", 5, 21), ("atlas-10", 5, 77)]
    unwell = {name: level for name, level in levels.items() if level != "ok"}
    assert unwell == {"atlas-03": "error", "atlas-07": "warning"}
    red = [(link["node"], link["leaf"]) for link in drawn["links"] if link["level"] == "error"]
    assert (drawn["leaves"], red) == (["leaf-a", "leaf-b"], [("atlas-10", "leaf-a")])
    row = values["timeline"]["rows"][77]
    assert row["after"] == {
        "started": "1.8 s",
        "first_output": "4.5 s",
        "last_output": "40.0 s",
        "silent_since": "10.0 s",
        "ended": "60.0 s",
    }
    assert row["words"] == "ended with 1, the cause; at most 20 s without output"
    assert values["findings"][0] == {
        "level": "error",
        "id": "device-health",
        "nodes": "atlas-03",
        "text": "device 5 is missing from npu-smi info -m.",
        "remedy": "Replace it",
    }
    assert values["results_when"] == "before"
    assert ["version of driver", "24.1.0 (atlas-01)"] in values["inventory"]
    assert ["version of cann", "8.1.RC1 (atlas-01)"] in values["inventory"]
    assert ["longest silence", "20 s (rank 77)"] in values["figures"]
    assert json.loads(json.dumps(values)) == values
    text = page(values)
    assert "rank 77 on device 5 failed first" in text
    assert Tags(text).tags.count("line") == 16


def test_what_a_hostile_node_printed_is_text_and_nothing_is_loaded_or_run() -> None:
    of = cluster(2, 1)
    evil = replace(of, source=HOSTILE, nodes=tuple(replace(n, leaf=HOSTILE) for n in of.nodes))
    job = record(evil)
    seen = known(
        evil,
        record=job,
        job=replace(failed(job, rank=1, words=HOSTILE), notes=(HOSTILE,)),
        results=(result("atlas-01", HOSTILE, HOSTILE),),
        results_of=HOSTILE,
        outputs={"atlas-01": [f"@@ x_version 0 9\n1.2 {HOSTILE}\n"]},
        files={HOSTILE: 1},
    )
    values = legible(page_values(seen), lambda text: text)
    text = page(values)
    found = Tags(text)
    assert not {"script", "img", "link", "iframe", "object"} & set(found.tags)
    assert not [
        name for name, _ in found.attributes if name.startswith("on") or name in ("src", "style")
    ]
    assert ["version of x", f"1.2 {HOSTILE} (atlas-01)"] in values["inventory"]
    assert {value for name, value in found.attributes if name == "href" and value} <= {
        f"#{part}" for part in ("verdict", "cluster", "timeline", "findings", "inventory", "files")
    }
    assert "default-src 'none'; style-src 'sha256-" in text.replace("&#39;", "'")
    assert "http:" not in text
    assert "https:" not in text


def test_secrets_and_control_characters_are_in_no_text() -> None:
    job = record(cluster(2, 1))
    words = "planted-secret-value \x1b[31m API_KEY=other-secret"
    seen = known(cluster(2, 1), record=job, job=failed(job, rank=1, words=words))
    change = partial(masked, secrets=["planted-secret-value"])
    text = page(legible(page_values(seen), change))
    assert "planted-secret" not in text
    assert "\x1b" not in text
    assert "***" in text


def bad_devices(values: dict[str, Any]) -> list[tuple[str, int, int | None]]:
    """Node, device and rank of each that is drawn as bad."""
    return [
        (each["node"], device["device"], device["rank"])
        for each in values["cluster"]["nodes"]
        for device in each["devices"]
        if device["level"] == "error"
    ]


@pytest.mark.parametrize(
    ("nodes", "text", "bad"),
    [
        (
            ("05", "06"),
            "device IP 198.51.100.1 is used twice: atlas-05 device 1 and atlas-06 device 4",
            [("05", 1), ("06", 4)],
        ),
        (
            ("11", "12"),
            "device 0 of atlas-11 (198.51.100.2) cannot reach device 7 of atlas-12 (198.51.100.3)",
            [("11", 0), ("12", 7)],
        ),
        (
            *(("05", "06"), "the link of devices 2-3 is down"),
            [("05", 2), ("05", 3), ("06", 2), ("06", 3)],
        ),
        (("16",), "15 nodes have devices 0-7, atlas-16 has 0-3", []),
    ],
)
def test_of_two_nodes_only_the_device_named_with_each_is_bad(
    nodes: tuple[str, ...], text: str, bad: list[tuple[str, int]]
) -> None:
    results = tuple(result(f"atlas-{number}", text) for number in nodes)
    values = page_values(known(cluster(), results=results, results_of="check-1"))
    assert bad_devices(values) == [(f"atlas-{number}", device, None) for number, device in bad]


def versions(**outputs: str) -> list[list[str]]:
    by_node = {f"atlas-0{name[-1]}": [text] for name, text in outputs.items()}
    values = page_values(known(cluster(2, 1), outputs=by_node))
    return [row for row in values["inventory"] if row[0].startswith("version of ")]


OLD_SSHD = "unknown option -- V\nOpenSSH_8.9p1 Ubuntu-3\nusage: sshd [-46DdeiqTt]"


@pytest.mark.parametrize(
    ("name", "printed", "shown"),
    [
        ("sshd", OLD_SSHD, ["OpenSSH_8.9p1 Ubuntu-3"]),
        ("horovod", "2026-11-23 01:02: W: no AVX2\nv0.28.1", ["0.28.1"]),
        ("mpirun", "mpirun (Open MPI) 4.1.5\n\nReport bugs to x 1.2", ["mpirun (Open MPI) 4.1.5"]),
        ("python", "Traceback (most recent call last):\n@@ disk 0 3\n4.5", []),
    ],
)
def test_a_version_is_the_first_line_that_holds_one(
    name: str, printed: str, shown: list[str]
) -> None:
    rows = versions(node1=f"@@ {name}_version 0 9\n{printed}\n@@ end 0 0\n\n")
    assert rows == [[f"version of {name}", f"{version} (atlas-01)"] for version in shown]


def test_a_version_that_not_all_nodes_have_stands_out() -> None:
    section = "@@ {}_version 0 9\n{}\n"
    first = section.format("cann", "8.1.RC1") + section.format("torch", "2.5.1")
    rows = versions(node1=first, node2=section.format("cann", "8.0.RC3"))
    assert rows == [
        ["version of cann", "8.0.RC3 (atlas-02): not on all nodes"],
        ["version of cann", "8.1.RC1 (atlas-01): not on all nodes"],
        ["version of torch", "2.5.1 (atlas-01): not on all nodes"],
    ]
    assert versions(node1=first, node2=first)[0] == ["version of cann", "8.1.RC1 (atlas-[01-02])"]
    values = page_values(known(cluster(2, 1), outputs={"atlas-01": [first], "atlas-02": ["4.1"]}))
    assert 'class="odd"' not in page(values)
    values["inventory"] += rows
    assert page(values).count('<dd class="odd">') == len(rows)


def test_a_rank_that_printed_nothing_is_named_so() -> None:
    seen = failed_on_16()
    assert seen.job
    ends = list(seen.job.ranks)
    ends[100] = replace(ends[100], times=RankTimes(started=at(1.0), ended=at(61.0)))
    values = page_values(replace(seen, job=replace(seen.job, ranks=tuple(ends))))
    assert values["timeline"]["rows"][100]["words"] == "ended with 143; no output"


def test_long_names_of_nodes_are_told_apart_and_devices_without_ranks_have_their_ids() -> None:
    of = cluster(2, 2)
    nodes = tuple(replace(node, name=f"training-cluster-east-{node.name}") for node in of.nodes)
    text = page(page_values(known(replace(of, nodes=nodes, primary_name=nodes[0].name))))
    assert "…east-atlas-01<title>training-cluster-east-atlas-01: ok" in text
    assert "…east-atlas-02<title>" in text
    assert "Each square is a device with its id" in text
    assert [text.count(f">{device}</text>") for device in (0, 1)] == [2, 2]


def luminance(colour: str) -> float:
    full = "".join(digit * 2 for digit in colour) if len(colour) == 3 else colour
    parts = [int(full[place : place + 2], 16) / 255 for place in (0, 2, 4)]
    red, green, blue = (p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_texts_and_lines_contrast_with_what_is_behind_them_in_each_scheme() -> None:
    style = (installed_templates() / "report/report.css").read_text()
    schemes = [dict(re.findall(r"--([\w-]+): #(\w+)", part)) for part in style.split(":root")[1:]]
    assert len(schemes) == 3
    texts = ("ink", "soft", "error", "warning", "ok")
    pairs = [(text, behind, 4.5) for text in texts for behind in ("paper", "shade")]
    pairs += [(f"on-{level}", level, 4.5) for level in ("error", "warning", "ok")]
    pairs += [(shape, "paper", 3.0) for shape in ("link", "bar")]
    for names in schemes:
        for one, other, least in pairs:
            dark, light = sorted((luminance(names[one]), luminance(names[other])))
            assert (light + 0.05) / (dark + 0.05) >= least, (one, other, names)


def test_a_job_without_a_report_and_a_cluster_without_anything() -> None:
    of = cluster(2, 1)
    values = page_values(known(of, record=record(of), verdict=("rank 1 failed first",)))
    assert ["state", "no final report"] in values["figures"]
    assert "This job has no final report yet" in page(values)
    assert "No run of <code>setup</code>" in page(page_values(known(replace(of, nodes=()))))


def test_generations_of_a_supervised_job_are_on_a_timeline() -> None:
    core = Core(("atlas-01", "atlas-02"), 1, Parallel(), Limits(), on_event=lambda _event: None)
    events = (
        {"event": "launching", "generation": 1, "nodes": ["atlas-01", "atlas-02"], "time": at(0)},
        {"event": "cause", "generation": 1, "kind": "npu-fault", "words": HOSTILE, "time": at(30)},
        {"event": "diagnosing", "generation": 1, "words": "", "time": at(30)},
        {"event": "launching", "generation": 2, "nodes": ["atlas-01"], "time": at(30)},
        {"event": "done", "generation": 2, "words": "the job has completed", "time": at(40)},
    )
    seen = Supervision(
        job_id="j",
        core=core,
        events=tuple({"node": "", "words": "", **event} for event in events),
        exit_codes={1: 137, 2: 0},
        is_followed=False,
    )
    values = page_values(known(cluster(2, 1), supervised=seen))
    rows = values["supervision"]["rows"]
    assert [(row["left"], row["width"], row["exit_code"]) for row in rows] == [
        (0.0, 75.0, 137),
        (75.0, 25.0, 0),
    ]
    text = page(values)
    assert "g2 on atlas-01" in text
    assert (text.count("30 s ✕</div>"), text.count("10.0 s ✕</div>")) == (1, 0)


def test_a_bundle_is_masked_bounded_and_says_what_it_lacks(tmp_path: Path) -> None:
    big = tmp_path / "rank.0.log"
    big.write_bytes(b"first\n" + b"planted \xff line\n" * 200_000 + b"last\n")
    files = [("run/rank.0.log", big), ("run/gone", tmp_path / "gone")]
    change = partial(masked, secrets=["planted"])
    content, left_out = packed("ascendboot-report-x", {}, files, change)
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        log, lacks = [file.read() for m in archive if (file := archive.extractfile(m))]
    assert log.startswith(b"first\n*** \xff line\n")
    assert log.endswith(b"*** \xff line\nlast\n")
    assert b"bytes are left out here" in log
    assert b"planted" not in log
    assert [each["name"] for each in left_out] == ["run/rank.0.log", "run/gone"]
    assert b"run/gone: could not be read" in lacks


def test_the_verb_writes_a_run_of_check_and_overwrites_only_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lab.yaml").write_text(INVENTORY)
    run = tmp_path / ".ascendboot/runs/20260102-030405-check-00ab"
    (run / "a-1").mkdir(parents=True)
    words = "a-1: device 0 is Alarm: planted-secret-value"
    results = [replace(result("a-1", words), detail=words).to_json()]
    (run / "report.json").write_text(json.dumps({"cluster": "lab", "results": results}))
    (run / "a-1/01.txt").write_text("$ npu-smi\nHF_TOKEN=planted-secret-value\n")
    (run / "a-1/link.txt").symlink_to("/etc/passwd")
    answer = called("report --inventory lab.yaml --json --output page.html", tmp_path)
    assert answer.returncode == 0, answer.stderr
    document = json.loads(answer.stdout)
    assert (document["file"], document["exit_code"]) == ("page.html", 0)
    assert document["report"]["findings"][0]["text"] == "device 0 is Alarm: ***"
    assert "planted" not in (tmp_path / "page.html").read_text() + answer.stdout

    other = tmp_path / "notes.html"
    other.write_text("mine")
    flags: dict[str, Any] = {"inventory": "lab.yaml", "run": run.name}
    report(Context(), output="page.html", **flags)
    with pytest.raises(Exit, match=r"notes.html: exists and is no report") as refused:
        report(Context(), output="notes.html", **flags)
    assert refused.value.code == 2
    assert other.read_text() == "mine"
    report(Context(), output="page.html", inventory="lab.yaml", run="00ab")  # a short id
    for _ in range(2):  # the second time it overwrites its own bundle
        report(Context(), bundle=True, **flags)
    with tarfile.open(tmp_path / f"ascendboot-report-{run.name}.tar.gz") as archive:
        names = [name.partition("/")[2] for name in archive.getnames()]
        texts = b"".join(f.read() for m in archive if (f := archive.extractfile(m)))
    assert [name for name in names if "run/" in name] == ["run/a-1/01.txt", "run/report.json"]
    assert b"planted" not in texts
    with pytest.raises(Exit, match='no job "20260102-030405-train-ab12" was started from here'):
        report(Context(), job="20260102-030405-train-ab12", inventory="lab.yaml")
