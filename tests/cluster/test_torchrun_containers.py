"""Real torchrun with the ranks in containers."""

from __future__ import annotations

import pytest
import yaml

from ascendboot.lab.cluster import Lab
from tests.cluster.operating import Operator
from tests.needs import LONG, with_torch

# test_secrets.py runs torchrun in containers, too.
pytestmark = [pytest.mark.cluster, LONG]
SCRIPT = """\
import os, sys, time
print("host", os.uname().nodename, "nic", os.environ["GLOO_SOCKET_IFNAME"], flush=True)
print("unbuffered", os.environ["PYTHONUNBUFFERED"])
if "fail" in sys.argv and os.environ["RANK"] == "3":
    sys.exit(7)
if "fail" in sys.argv:
    time.sleep(600)
"""


@pytest.mark.parametrize("via", ["sshd", "engine"])
def test_ranks_in_containers(container_cluster: Lab, pytestconfig: pytest.Config, via: str) -> None:
    python = with_torch(pytestconfig)
    operator = Operator(container_cluster)
    document = yaml.safe_load(operator.lab.inventory.read_text())
    document |= {"launcher": {"kind": "torchrun"}, "code": {"python": str(python)}}
    document["ssh"] = {"via": via}
    path = operator.lab.directory / "torchrun.yaml"
    path.write_text(yaml.safe_dump(document))
    (operator.lab.directory / "job.py").write_text(SCRIPT)
    setup = operator.setup(inventory=path)
    assert setup.code == 0, setup.out + setup.err
    job = operator.call("train", "job.py")
    assert job.code == 0, job.err + job.out
    assert (job.out.count("host"), job.out.count("unbuffered 1")) == (4, 4)
    failed = operator.call("train", "job.py", "--", "fail")
    assert failed.code == 7, failed.err + failed.out
    assert "rank 3 on device 1 failed first, with exit code 7" in failed.err
    assert operator.call("reset", "--yes").code == 0
