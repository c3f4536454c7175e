"""The container of a node: when there can be one, what it is made of, what it leaves behind."""

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
PROGRAMS = ("podman", "runc", "conmon")


@pytest.fixture
def programs(tmp_path: Path) -> str:
    for name in PROGRAMS:
        (tmp_path / name).touch(mode=0o755)
    return str(tmp_path)


def test_a_machine_with_podman_and_a_root_of_its_own_will_do(programs: str) -> None:
    need_containers(EXT4, programs)


def test_what_is_missing_is_named_with_its_packages(programs: str) -> None:
    (Path(programs) / "podman").unlink()
    (Path(programs) / "runc").unlink()
    with pytest.raises(LabError) as caught:
        need_containers(EXT4, programs)
    assert str(caught.value) == (
        "lab.up: --containers: could not start: not installed: podman, runc; the Debian packages"
        " are podman runc; run invoke lab.up --no-containers, where ranks run on the servers"
        " themselves"
    )


def test_a_root_that_is_an_overlay_is_refused(programs: str) -> None:
    with pytest.raises(LabError) as caught:
        need_containers("overlay / overlay rw,lowerdir=/a 0 0\n", programs)
    assert str(caught.value) == (
        "lab.up: --containers: could not start: this machine's / is an overlay already (a"
        " container?), and the kernel stacks no more than two; run invoke lab.up --no-containers,"
        " where ranks run on the servers themselves"
    )


def test_what_is_mounted_last_counts(programs: str) -> None:
    need_containers(f"overlay / overlay rw 0 0\n{EXT4}", programs)


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
        " --device=/dev/null:/dev/davinci0 --device=/dev/null:/dev/davinci3"
        " --device=/dev/null:/dev/davinci_manager --device=/dev/null:/dev/devmm_svm"
        " --device=/dev/null:/dev/hisi_hdc)"
    )
    assert options in script.splitlines()
    assert "--hostname lab-1-rec-sdk " in script
    assert re.findall(r"@[A-Z]+@", script) == []


def test_cgroups_of_our_containers_go_and_those_of_others_stay(tmp_path: Path) -> None:
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
