"""The table of failures as jobs under mpirun: `train` names the cause, and `doctor` as well."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ascendboot.doctor.verdict import Verdict
from ascendboot.lab.cluster import Lab
from ascendboot.model.job import JobReport
from tests.cluster.operating import BASE, Operator, set_up
from tests.needs import LONG
from tests.scenarios import Place, Scenario, scenarios, wrong_parts

pytestmark = pytest.mark.cluster
PORT = 50_007
RANK = """\
import json, os, socket, sys, time
from datetime import datetime
row, me = json.loads(ROW), int(os.environ["RANK"])
if me == 0:  # all ranks begin together
    server = socket.create_server(("", row["port"]))
    for other in [server.accept()[0] for _ in range(3)]:
        other.send(b".")
else:
    while True:
        try:
            socket.create_connection((row["host"], row["port"])).recv(1)
            break
        except OSError:
            time.sleep(0.05)
began = time.monotonic()
text, at, code, ends_at = row["parts"][me]
time.sleep(at)
now = datetime.now()
stamp = f"{now:%Y-%m-%d-%H:%M:%S}.{now.microsecond // 1000:03}.{now.microsecond % 1000:03}"
print(text.replace("<t>", stamp), end="", flush=True)
if code is None:
    time.sleep(600)
time.sleep(max(0.0, began + ends_at - time.monotonic()))
if code > 128:
    os.kill(os.getpid(), code - 128)
os._exit(code)
"""
LONG_ROWS = [pytest.param(one, id=one.name, marks=LONG) for one in scenarios() if one.is_long]
ROWS = [*(pytest.param(one, id=one.name) for one in scenarios() if not one.is_long), *LONG_ROWS]
CLOCKS_DIFFER_S = 0.1
"""A busy machine reads the clocks of nodes less exactly, and then rightly is less certain."""
OF_THE_KERNEL = "SIGKILL from outside"
"""The meaning of an OOM kill here: no kernel takes part."""


@pytest.fixture(scope="module")
def operator(bring_up_once: Callable[..., Lab]) -> Operator:
    return set_up(bring_up_once(nodes=2, devices=2))


@pytest.fixture(scope="module")
def table(operator: Operator) -> Path:
    """The rank table of the cluster."""
    path = operator.lab.directory / "hccl.json"
    path.write_text(operator.sh("lab-1", f"cat {BASE}/resources/hccl_json_4p_2_host.json"))
    return path


@pytest.fixture(scope="module")
def places(table: Path) -> list[Place]:
    return [
        Place(int(d["rank_id"]), f"lab-{n}", one["server_id"], int(d["device_id"]), d["device_ip"])
        for n, one in enumerate(json.loads(table.read_text())["server_list"], 1)
        for d in one["device"]
    ]


def script(row: Scenario, places: list[Place]) -> str:
    parts = [(p.text, p.at, p.exit_code, p.ends_at) for p in row.parts(places)]
    made = {"parts": parts, "host": places[0].host, "port": PORT}
    return f"ROW = {json.dumps(made)!r}\n{RANK}"


@pytest.mark.parametrize("row", ROWS)
def test_a_job_that_fails_in_this_way(
    row: Scenario, operator: Operator, places: list[Place], table: Path, tmp_path: Path
) -> None:
    directory = operator.lab.directory
    (directory / "row.py").write_text(script(row, places))
    power = row.row.get("power")
    report = report_of(operator, places[2 * power].node if power else "")
    expected = row.cause() or {}
    if "kernel" in row.row:
        expected["meaning"] = OF_THE_KERNEL
    folder, cause = Path(report["folder"]), JobReport.from_json(report).cause
    assert cause, report
    found = Verdict.of_report(cause, folder).to_json()
    plan = json.loads((folder / "plan.json").read_text())
    is_busy = 2 * plan["clock_uncertainty_s"] > CLOCKS_DIFFER_S
    if is_busy:
        expected["certainty"] = found["certainty"]
    assert wrong_parts(found, expected) == {}, found
    nodes = list(dict.fromkeys(places[rank].node for rank in expected["ranks"]))
    assert found["nodes"] == nodes
    # The logs alone, as of a job of another tool.
    for log in [*folder.glob("rank.*.log"), folder / "launcher.log"]:
        shutil.copy(log, tmp_path)
    call = operator.call("doctor", str(tmp_path), "--rank-table", str(table), "--json")
    of_logs = call.json["verdicts"]
    expected_of_logs = row.cause(of_logs=True)
    if is_busy and of_logs and expected_of_logs:
        expected_of_logs["certainty"] = of_logs[0]["certainty"]
    assert wrong_parts(of_logs[0] if of_logs else None, expected_of_logs) == {}, of_logs


def report_of(operator: Operator, node_to_lose: str) -> Any:
    """Run a job that fails, and return its report."""
    process = operator.start("train", "row.py", "--json")
    if node_to_lose:
        began = f"until grep -q ' pid ' {BASE}/jobs/*/events; do sleep 0.1; done; sleep 3"
        operator.sh(node_to_lose, f"timeout 50 bash -c {began!r}")
        operator.lab.fault(node_to_lose, "node-down")
    ended = process.end()
    assert ended.code, ended.err
    if node_to_lose:
        operator.lab.undo(node_to_lose, "node-down")
        operator.setup(exits=0)
    return ended.json
