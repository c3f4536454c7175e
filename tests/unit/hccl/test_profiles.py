"""Profiles: defaults that an inventory can override, their limits, paths and checks."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest

from ascendboot.facts.installed import Installed
from ascendboot.facts.parsers.software import Horovod, Program
from ascendboot.facts.query import Answered
from ascendboot.hccl import profiles
from ascendboot.setup.cluster_plan import ClusterFacts, ClusterPlan, plan_cluster
from tests.engine.simulated import Simulation
from tests.unit.checks import well
from tests.unit.hccl.test_guides import loaded

PACKAGES = profiles.packages_of("/usr/bin/python3", "3.10.4")


def test_defaults_lie_within_the_limits() -> None:
    defaults = profiles.profile_env("rec-sdk-tf")
    assert [n for n, default in defaults.items() if profiles.why_not_value(n, default)] == []
    assert len(defaults) == 28


LIMITED = {name: it.limits for name, it in profiles.rec_sdk_tf().items() if it.limits}


@pytest.mark.parametrize("name", LIMITED)
def test_limits_hold_at_both_ends(name: str) -> None:
    least, most = LIMITED[name].least, LIMITED[name].most
    values = [str(n) for n in (least - 1, least, most, most + 1)]
    are_allowed = [profiles.why_not_value(name, value) is None for value in values]
    assert are_allowed == [False, True, True, False]
    assert profiles.why_not_value(name, "x") is not None


def test_the_inventory_counts_before_the_profile(tmp_path: Path) -> None:
    text = "env: {CACHE_MODE: DDR, MORE: 1}\n"
    assert dict(loaded(tmp_path, text).env) == {"CACHE_MODE": "DDR", "MORE": "1"}
    wanted = {**profiles.profile_env("rec-sdk-tf"), "CACHE_MODE": "DDR", "MORE": "1"}
    assert dict(loaded(tmp_path, text + "profile: rec-sdk-tf\n").env) == wanted
    assert wanted["BIND_INFO"] == "0:12 12:48 60:48"
    assert wanted["HCCL_CONNECT_TIMEOUT"] == "1200"


def test_each_node_gets_its_own_nic_and_paths() -> None:
    cluster = Simulation.of(2, profile="rec-sdk-tf", env={"PYTHONPATH": "/mine"})
    assert cluster.walk().exit_code == 0
    env = cluster.nodes[1].text("env/node.env")
    packages = "/usr/lib/python3.10/site-packages"
    assert "export NCCL_SOCKET_IFNAME=eth0\n" in env
    libraries = f"{packages}/mx_rec/libasc:{packages}/rec_sdk_common/lib:/usr/local/lib"
    assert f"export LD_LIBRARY_PATH={libraries}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}\n" in env
    assert env.count("PYTHONPATH") == 1
    assert "export PYTHONPATH=/mine\n" in env


def test_horovodrun_gets_the_paths_of_the_profile() -> None:
    horovod = Answered(Horovod("/opt/py/bin/horovodrun", "0.28.1", has_mpi=True))
    facts = well.facts(1, horovod=horovod, ssh=Answered(Program("/usr/bin/ssh", "9.2p1")))
    own = Installed(base=PurePosixPath("/var/lib/ascendboot/lab"))
    paths = profiles.profile_paths("rec-sdk-tf", PACKAGES)
    for profile, wanted in (("none", {}), ("rec-sdk-tf", paths)):
        wish = well.cluster(well.node(1), profile=profile)
        decided = plan_cluster(wish, ClusterFacts({"lab-1": facts}, {"lab-1": own}))
        assert isinstance(decided, ClusterPlan)
        assert decided.launcher_env == wanted


def test_devices_must_be_the_same_in_the_same_order() -> None:
    nodes = (well.node(1, device_count=8), well.node(2, device_count=4))
    facts = well.facts(1), well.facts(2, **well.npus(*range(4)))
    for profile, level in (("none", "warning"), ("rec-sdk-tf", "error")):
        message, *_ = well.messages(well.cluster(*nodes, profile=profile), *facts)
        assert message.startswith(f"devices-differ {level} ")
