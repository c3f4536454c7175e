"""The command line of horovodrun, and the parameters that horovodrun writes itself."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from ascendboot.errors import InventoryError
from ascendboot.launch.planner import plan
from ascendboot.model.cluster import LauncherChoice, Placement, Slot
from ascendboot.value import replace
from tests.unit.hccl.test_guides import loaded
from tests.unit.launch.request import BASE, REQUEST, command_of, node

WANTED = replace(
    REQUEST,
    launcher=LauncherChoice("horovod", "it works", "/opt/py/bin/horovodrun"),
    ssh_port=12345,
    mpi_args=("-x", "BIND_INFO=0:12 12:48"),
    launcher_env={"LD_LIBRARY_PATH": "/opt/lib"},
)


def test_the_command() -> None:
    assert command_of(WANTED)[:13] == (
        "/opt/py/bin/horovodrun",
        *("-np", "4", "-H", "192.0.2.11:2,192.0.2.12:2", "-p", "12345"),
        *("--network-interface", "192.0.2.0/24,198.51.100.0/24", "--disable-cache", "--mpi"),
        (
            "--mpi-args=--prefix /usr/local/openmpi -mca orte_keep_fqdn_hostnames 1 "
            "-mca odls_base_sigkill_timeout 5 -mca plm_rsh_no_tree_spawn 1 "
            "-mca oob_tcp_if_include 192.0.2.0/24,198.51.100.0/24 -x 'BIND_INFO=0:12 12:48'"
        ),
        f"{BASE}/env/rank-exec",
    )
    assert command_of(WANTED)[12:] == command_of(REQUEST)[-len(command_of(WANTED)) + 12 :]


def test_the_ssh_of_ascendboot_is_first_in_path() -> None:
    env = plan(WANTED).starts[0].env
    assert env["PATH"].startswith(f"{BASE}/env/bin:/usr/local/openmpi/bin:")
    assert env["LD_LIBRARY_PATH"] == "/opt/lib"
    assert f"{BASE}/env/bin" not in plan(REQUEST).starts[0].env["PATH"]


def test_on_64_hosts_horovodrun_turns_tree_spawn_off_itself() -> None:
    def slots(count: int) -> Placement:
        hosts = (node(f"n-{i}", f"192.0.2.{i}") for i in range(1, count + 1))
        return Placement(tuple(Slot(host, 0, None, 0) for host in hosts))

    few, many = (command_of(replace(WANTED, placement=slots(n)))[11] for n in (63, 64))
    assert "-mca plm_rsh_no_tree_spawn 1 " in few
    assert "plm_rsh_no_tree_spawn" not in many
    by_mpirun = command_of(replace(REQUEST, placement=slots(64)))
    assert by_mpirun[by_mpirun.index("plm_rsh_no_tree_spawn") + 1] == "1"


def test_mpirun_also_gets_the_mpi_args_of_the_inventory() -> None:
    command = command_of(replace(REQUEST, mpi_args=("--mca", "btl_tcp_links", "2")))
    at = command.index("btl_tcp_links")
    assert command[at - 1 : at + 4] == (
        *("--mca", "btl_tcp_links", "2", "-x", "ASCENDBOOT_JOB_ID"),
    )


WRITTEN_BY_HOROVODRUN = {"pml", "btl", "plm_rsh_args", "btl_tcp_if_include"}
"""Horovod 0.28.1, mpi_run.py."""


def test_mpi_args_cannot_repeat_a_parameter_of_ascendboot(tmp_path: Path) -> None:
    """Mpirun ends a job whose command line has a parameter twice."""
    words = [*command_of(REQUEST), *shlex.split(command_of(WANTED)[11])]
    ours = {words[i + 1] for i, word in enumerate(words) if re.fullmatch("--?mca", word)}
    assert ours > WRITTEN_BY_HOROVODRUN
    for name in sorted(ours):
        with pytest.raises(InventoryError, match=f"sets {name}, and mpirun refuses it"):
            loaded(tmp_path, f"launcher: {{mpi_args: [--mca, {name}, x]}}\n")
