"""Variables of a single node, as its ranks see them under every launcher."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ascendboot.lab.cluster import Lab
from tests.cluster.operating import Ended, Operator
from tests.needs import LONG, with_torch

pytestmark = pytest.mark.cluster

JOB = """\
import json, os
names = ["CACHE", "SHARED", "ALONE", "PYTHONPATH"]
names += ["OMPI_MCA_btl_tcp_sndbuf", "HCCL_CONNECT_TIMEOUT"]
print(json.dumps([os.environ.get(name) for name in names]))
"""
SHARED = {
    "CACHE": "of all",
    "SHARED": "of all",
    "OMPI_MCA_btl_tcp_sndbuf": 131072,
    "HCCL_CONNECT_TIMEOUT": 600,
}
OWN = {
    "lab-1": {"CACHE": "it's $HOME", "PYTHONPATH": "/opt/one", "HCCL_CONNECT_TIMEOUT": 900},
    "lab-2": {"PYTHONPATH": "/opt/two", "ALONE": "", "OMPI_MCA_btl_tcp_sndbuf": 262144},
}
SEEN = {
    "lab-1": ["it's $HOME", "of all", None, "/opt/one", "131072", "900"],
    "lab-2": ["of all", "of all", "", "/opt/two", "262144", "600"],
}


@pytest.fixture(scope="module")
def operator(bring_up_once: Callable[..., Lab]) -> Operator:
    operator = Operator(bring_up_once(nodes=2, devices=2))
    operator.script("job.py", JOB)
    return operator


def inventory(operator: Operator, own: dict[str, dict[str, Any]], **changes: object) -> Path:
    document = operator.document()
    for node in operator.lab.nodes:
        document["nodes"][node.name]["env"] = own[node.name]
    document["env"] = {**document.get("env", {}), **SHARED}
    return operator.inventory("own.yaml", document, **changes)


def seen(job: Ended) -> dict[str, list[list[str | None]]]:
    """What the ranks of each node printed."""
    assert job.code == 0, job.err + job.out
    found: dict[str, list[list[str | None]]] = {}
    for name, printed in re.findall(r"^(lab-\d):\d \| (\[.*)$", job.out, re.MULTILINE):
        found.setdefault(name, []).append(json.loads(printed))
    return found


@pytest.mark.parametrize("kind", ["mpirun", pytest.param("horovod", marks=LONG), "torchrun"])
def test_row_15_a_node_has_values_of_its_own_under_every_launcher(
    operator: Operator, pytestconfig: pytest.Config, kind: str
) -> None:
    changes: dict[str, object] = {"launcher": {"kind": kind}}
    if kind != "mpirun":
        changes["code"] = {"python": str(with_torch(pytestconfig))}
    operator.setup(inventory=inventory(operator, OWN, **changes), exits=0)
    job = operator.call("train", "job.py", "--preflight")
    assert seen(job) == {name: [values, values] for name, values in SEEN.items()}
    assert re.search(r"^preflight: passed: 4 ranks met by ", job.err, re.MULTILINE), job.err


def test_a_plan_shows_what_changes_on_the_node_that_it_is_stated_for(operator: Operator) -> None:
    operator.setup(inventory=inventory(operator, OWN, launcher={"kind": "mpirun"}), exits=0)
    other = {**OWN, "lab-2": {**OWN["lab-2"], "ALONE": "now"}}
    changed = inventory(operator, other, launcher={"kind": "mpirun"})
    plan = operator.setup("--plan", inventory=changed)
    [change] = [r for r in plan.json["results"] if r["outcome"] == "would_change"]
    assert (change["node"], change["step"]) == ("lab-2", "env/node.env")
    assert "-export ALONE=''\n+export ALONE=now\n" in change["diff"]
    assert "changed since" in operator.call("train", "job.py").err
    assert operator.setup(inventory=changed).outcomes("changed") == [
        ("lab-2", "env/node.env", "changed")
    ]
    operator.call("check", "--collective", "--json", exits=0)


SET_ENV = """\
export ASCEND_HOME_PATH=/usr/local/Ascend/cann
export LD_LIBRARY_PATH=/usr/local/Ascend/cann/lib64${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
"""
WHERE = """\
import os, only_here, sys
names = ["ASCEND_HOME_PATH", "LD_LIBRARY_PATH", "OF_A_PROFILE"]
print([sys.prefix, *(os.environ.get(name) for name in names)])
"""
VENV = """\
python3 -m venv --without-pip /opt/train
touch "$(echo /opt/train/lib/python3*/site-packages)/only_here.py"
for file in ~/.bashrc ~/.profile /etc/environment; do echo 'export OF_A_PROFILE=yes' >>"$file"; done
"""


def test_the_wrapper_of_the_page_brings_set_env_and_a_venv(
    operator: Operator, pytestconfig: pytest.Config
) -> None:
    page = (pytestconfig.rootpath / "docs/how-to/environment.md").read_text()
    [wrapper] = re.findall(r"```bash\n(.*?)```", page, re.DOTALL)
    for node in operator.lab.nodes:
        operator.sh(node.name, VENV)
        operator.put(node.name, "/usr/local/Ascend/ascend-toolkit/set_env.sh", SET_ENV)
        operator.put(node.name, "/opt/train/bin/python-cann", wrapper)
    changes = {"python": "/opt/train/bin/python-cann"}
    own = operator.inventory("venv.yaml", code=changes, env={"LD_LIBRARY_PATH": "/stated"})
    operator.setup(inventory=own, exits=0)
    operator.script("where.py", WHERE)
    job = operator.call("train", "where.py", exits=0)
    printed = re.findall(r"^lab-\d:\d \| (.*)$", job.out, re.MULTILINE)
    libraries = "/usr/local/Ascend/cann/lib64:/stated"
    assert printed == [f"['/opt/train', '/usr/local/Ascend/cann', '{libraries}', None]"] * 4
