"""Events and figures of a supervised job for other programs."""

from __future__ import annotations

import json
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from ascendboot.cli import hooks
from ascendboot.cli.common import Outputs
from ascendboot.cli.hooks import MetricsFile, hook
from ascendboot.cli.known_jobs import recorded
from ascendboot.errors import UsageError
from ascendboot.model.cluster import Parallel
from ascendboot.supervise.core import Core
from ascendboot.supervise.history import Generation, metrics_text
from ascendboot.supervise.policy import Limits
from ascendboot.supervise.store import Store
from tests.waiting import wait_until

EVENT = {"event": "cause", "node": "n-2", "words": "device 3 is Alarm"}


def python(program: str, *words: Path) -> str:
    return " ".join(map(str, (sys.executable, "-c", f"'{program}'", *words)))


def test_a_command_gets_every_event_in_order_before_the_hook_ends(tmp_path: Path) -> None:
    problems: list[str] = []
    program = 'import sys; open(sys.argv[1], "a").write(sys.stdin.read() + "\\n")'
    with hook(python(program, tmp_path / "seen"), problems.append) as send:
        for number in range(5):
            send({**EVENT, "generation": number})
    seen = [json.loads(line) for line in (tmp_path / "seen").read_text().splitlines()]
    assert seen == [{**EVENT, "generation": number} for number in range(5)]
    assert problems == []


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (python("raise SystemExit(3)"), "ended with exit code 3"),
        ("/no/such/program", "No such file or directory: '/no/such/program'"),
        ("http://127.0.0.1:9/", "127.0.0.1: "),
    ],
)
def test_a_hook_that_fails_is_reported_once_and_stops_nothing(target: str, words: str) -> None:
    problems: list[str] = []
    with hook(target, problems.append) as send:
        for _ in range(3):
            send(EVENT)
    assert len(problems) == 1
    assert words in problems[0]


def test_a_command_that_hangs_is_ended_with_its_children(tmp_path: Path) -> None:
    child = tmp_path / "child"
    script = tmp_path / "slow.sh"
    script.write_text(f"sleep 1000 & echo $! >{child}; wait\n")
    with pytest.raises(hooks.HookError, match=r"bash: ran for 0\.5 s and was ended"):
        hooks._run(["bash", str(script)], b"{}", timeout_s=0.5)
    state = Path(f"/proc/{child.read_text().strip()}/stat")

    def has_ended() -> bool:
        try:
            return ") Z " in state.read_text()
        except (FileNotFoundError, ProcessLookupError):
            return True

    wait_until(has_ended, seconds=10.0)  # the kernel ends a process some time after the call


def test_events_beyond_the_bound_are_dropped_and_sending_never_waits() -> None:
    problems: list[str] = []
    sender = hooks._Sender(lambda _document: pytest.fail("it does not run"), problems.append)
    for _ in range(300):
        sender.put(EVENT)
    assert sender.waiting.qsize() == 100
    assert ["100 events wait, and newer ones are dropped" in each for each in problems] == [True]


@dataclass
class Server:
    url: str = ""
    bodies: list[Any] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)


@contextmanager
def serving(code: int, location: str = "") -> Iterator[Server]:
    seen = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            seen.bodies.append(json.loads(self.rfile.read(length)))
            seen.kinds.append(self.headers["Content-Type"])
            self.send_response(code)
            if location:
                self.send_header("Location", location)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    worker = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    worker.start()
    try:
        seen.url = f"http://127.0.0.1:{server.server_address[1]}/hook?token=hidden"
        yield seen
    finally:
        server.shutdown()
        worker.join()
        server.server_close()


def test_a_url_gets_each_event_as_json() -> None:
    problems: list[str] = []
    with serving(204) as server, hook(server.url, problems.append) as send:
        send(EVENT)
        send(EVENT)
    assert (server.bodies, set(server.kinds)) == ([EVENT, EVENT], {"application/json"})
    assert problems == []


@pytest.mark.parametrize("location", ["file:///etc/passwd", "ftp://127.0.0.1/x", "/elsewhere"])
def test_redirects_and_errors_of_a_url_are_reported_without_its_token(location: str) -> None:
    problems: list[str] = []
    with serving(302, location) as moved, hook(moved.url, problems.append) as send:
        send(EVENT)
    with serving(500) as broken, hook(broken.url, problems.append) as send:
        send(EVENT)
    assert len(moved.bodies) == 1
    assert "redirect" in problems[0].lower()
    assert "HTTP Error 500" in problems[1]
    assert "hidden" not in "".join(problems)


@pytest.mark.parametrize(
    ("outputs", "words"),
    [
        (Outputs(on_event="file:///etc/passwd"), "a URL begins with http:// or https://"),
        (Outputs(on_event="ftp://host/"), "a URL begins with http:// or https://"),
        (Outputs(on_event="https://user:word@host/"), "without a user"),
        (Outputs(on_event="notify 'me"), "is not a command line: No closing quotation"),
        (Outputs(on_event=" "), "is empty"),
        (Outputs(metrics="job.txt"), "node_exporter reads only files *.prom"),
        (Outputs(metrics="/no/such/job.prom"), "/no/such: is no folder"),
    ],
)
def test_what_cannot_be_used_is_refused_before_the_start(outputs: Outputs, words: str) -> None:
    with pytest.raises(UsageError) as raised:
        outputs.check()
    assert words in str(raised.value)


def test_words_of_nodes_are_bounded_and_carry_no_control_characters_or_secrets() -> None:
    seen: list[Any] = []
    record = recorded(seen.append, seen.append, secrets=["hunter2secret"])
    record({"event": "fault", "words": "\x1b[2Jhunter2secret\nend" + "x" * 5000})
    first, second = seen
    assert first == second
    assert first["words"].startswith(" [2J*** endxxx")
    assert len(first["words"]) <= 1000


SAMPLE = re.compile(
    r'([a-z_:][a-z0-9_:]*)\{((?:[a-z_]+="(?:[^"\\\n]|\\["\\n])*",?)+)\} (-?[0-9.e+]+)'
)


def samples(text: str) -> dict[str, float]:
    """The values of a text by name and labels; every line must have the form of Prometheus."""
    assert text.endswith("\n")
    found: dict[str, float] = {}
    typed: dict[str, str] = {}
    for line in text.splitlines():
        if line.startswith("#"):
            _, word, name, rest = line.split(" ", 3)
            assert word in ("HELP", "TYPE")
            assert rest
            if word == "TYPE":
                assert name not in typed
                typed[name] = rest
            continue
        match = SAMPLE.fullmatch(line)
        assert match, line
        name, labels, value = match.groups()
        assert typed[name] == ("counter" if name.endswith("_total") else "gauge")
        key = f"{name}{{{labels}}}"
        assert key not in found
        found[key] = float(value)
    return found


def a_core(**limits: Any) -> Core:
    core = Core(("n-1", "n-2", "n-3"), 8, Parallel(), Limits(**limits))
    core.begin(0.0)
    core.launched(1.0)
    return core


def test_figures_are_text_of_prometheus() -> None:
    core = a_core()
    core.checkpoint(5.0, 1_700_000_001)
    core.quarantine(6.0, ["n-2"], "loud")
    ended = Generation(generation=1, nodes=(), started="", kind="node-down")
    runs = Generation(generation=2, nodes=(), started="", kind="hang")
    found = samples(metrics_text('a"\\\nb', core, [ended, runs], last_event=1.5, now=2e9))
    job = r'job="a\"\\\nb"'
    assert found[f'ascendboot_job_state{{{job},state="stopping"}}'] == 1.0
    assert sum(v for k, v in found.items() if k.startswith("ascendboot_job_state{")) == 1.0
    assert found[f'ascendboot_job_nodes{{{job},status="quarantined"}}'] == 1.0
    assert found[f'ascendboot_job_nodes{{{job},status="healthy"}}'] == 2.0
    assert found[f'ascendboot_job_restarts_total{{{job},cause="node-down"}}'] == 1.0
    assert found[f'ascendboot_job_restarts_total{{{job},cause="hang"}}'] == 0.0
    assert found[f"ascendboot_job_checkpoint_step{{{job}}}"] == 1_700_000_001
    assert found[f"ascendboot_job_heartbeat_timestamp_seconds{{{job}}}"] == 2e9


def test_the_file_of_figures_is_there_at_once_and_has_the_last_state(tmp_path: Path) -> None:
    store, core = Store(tmp_path / "job"), a_core()
    problems: list[str] = []
    path = tmp_path / "job.prom"
    figures = MetricsFile(path, "job-1", store, problems.append)
    with figures.of(core):
        before = samples(path.read_text())
        core.completed(2.0)
    after = samples(path.read_text())
    state = 'ascendboot_job_state{job="job-1",state="%s"}'
    assert (before[state % "running"], after[state % "done"]) == (1.0, 1.0)
    assert path.stat().st_mode & 0o777 == 0o644
    assert sorted(each.name for each in tmp_path.iterdir()) == ["job.prom"]
    assert problems == []


def test_a_disk_without_room_is_reported_once_and_the_job_continues(tmp_path: Path) -> None:
    problems: list[str] = []
    place = tmp_path / "folder"
    place.mkdir()
    figures = MetricsFile(place / "job.prom", "job-1", Store(tmp_path / "job"), problems.append)
    with figures.of(a_core()):
        (place / "job.prom").unlink()
        (place / "job.prom").mkdir()
        figures.changed({})
    figures._write_or_warn(a_core())
    assert len(problems) == 1
    assert "warning: --metrics: " in problems[0]
