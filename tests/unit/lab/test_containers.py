"""The container of a node: requirements, settings, and its removal."""

from __future__ import annotations

import re
import resource
from pathlib import Path

import pytest

from ascendboot.lab.cluster import inventory_text
from ascendboot.lab.host import LabError
from ascendboot.lab.node import need_containers, remove_cgroups, stage_engine, start_script
from ascendboot.lab.shape import Shape

EXT4 = "/dev/a / ext4 rw 0 0\nproc /proc proc rw 0 0\noverlay /mnt overlay rw 0 0\n"
OVERLAY = "overlay / overlay rw,lowerdir=/a 0 0\n"
PROGRAMS = ("podman", "runc", "conmon")


@pytest.fixture
def programs(tmp_path: Path) -> str:
    for name in PROGRAMS:
        (tmp_path / name).touch(mode=0o755)
    return str(tmp_path)


@pytest.mark.parametrize("table", [EXT4, f"{OVERLAY}{EXT4}"])
def test_a_machine_with_podman_and_a_root_of_its_own_is_fine(programs: str, table: str) -> None:
    need_containers(table, programs)


@pytest.mark.parametrize(
    ("table", "away", "reason"),
    [
        (EXT4, ("podman", "runc"), "not installed: podman, runc; the Debian packages are podman"),
        (OVERLAY, (), "this machine's / is an overlay already (a container?), and the kernel "),
    ],
    ids=["no podman", "overlay"],
)
def test_the_reason_against_containers_is_named(
    programs: str, table: str, away: tuple[str, ...], reason: str
) -> None:
    for name in away:
        (Path(programs) / name).unlink()
    message = f"^lab.up: --containers: could not start: {re.escape(reason)}.*--no-containers, "
    with pytest.raises(LabError, match=message):
        need_containers(table, programs)


def test_limits_are_never_above_those_of_the_machine(tmp_path: Path) -> None:
    stage_engine(tmp_path)
    text = (tmp_path / "etc/containers/containers.conf").read_text()
    limits = dict(re.findall(r'"(\w+)=(\d+):\2"', text))
    assert set(limits) == {"nofile", "nproc"}
    for name, kind in (("nofile", resource.RLIMIT_NOFILE), ("nproc", resource.RLIMIT_NPROC)):
        hard = resource.getrlimit(kind)[1]
        assert hard == resource.RLIM_INFINITY or int(limits[name]) <= hard


def test_the_start_script_has_all_volumes_and_devices_and_no_placeholder() -> None:
    script = start_script("lab-1-rec-sdk", [Path("/a b"), Path("/c")], ["/usr"], [0, 3])
    options = (
        "options=('--volume=/a b:/a b:ro' --volume=/c:/c:ro"
        " --volume=/run/ascendboot-lab/image/usr:/usr:O"
        " --volume=/usr/local/Ascend/lab/faults:/run/ascendboot-lab/faults:ro"
        " --volume=/usr/local/Ascend/lab/npu-load:/run/ascendboot-lab/npu-load:ro"
        " --device=/dev/null:/dev/davinci0 --device=/dev/null:/dev/davinci3"
        " --device=/dev/null:/dev/davinci_manager --device=/dev/null:/dev/devmm_svm"
        " --device=/dev/null:/dev/hisi_hdc)"
    )
    assert options in script.splitlines()
    assert "--hostname lab-1-rec-sdk " in script
    assert re.findall(r"@[A-Z]+@", script) == []


def test_only_cgroups_of_the_containers_on_the_disk_are_removed(tmp_path: Path) -> None:
    ours, other = "a" * 64, "b" * 64
    (tmp_path / f"disk/containers/storage/overlay-containers/{ours}/userdata").mkdir(parents=True)
    for place in ("cpu/libpod_parent", "libpod_parent"):
        for name in (f"libpod-{ours}/inner", f"libpod-conmon-{ours}", "conmon"):
            (tmp_path / "cgroup" / place / name).mkdir(parents=True)
    (tmp_path / f"cgroup/cpu/libpod_parent/libpod-{other}").mkdir()
    remove_cgroups(tmp_path / "disk", tmp_path / "cgroup")
    left = [str(p.relative_to(tmp_path / "cgroup")) for p in (tmp_path / "cgroup").rglob("*")]
    assert sorted(left) == ["cpu", "cpu/libpod_parent", f"cpu/libpod_parent/libpod-{other}"]


@pytest.mark.parametrize("containers", [True, False])
def test_only_a_lab_with_containers_states_one(*, containers: bool) -> None:
    shape = Shape.requested(1, 1, "198.18.64.0/20,198.19.64.0/20", containers=containers)
    text = inventory_text(shape, Path("/k"), {"lab-1": ("ssh-ed25519 AAAA",)})
    assert ("  container: rec-sdk" in text.splitlines()) is containers
