"""Containers that setup creates from an image, by a real podman and a real dockerd on each node."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ascendboot.lab.cluster import Lab
from tests.cluster.operating import Ended, Operator
from tests.needs import missing

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("containers_possible")]

IMAGE = "localhost/small:1"
# A root without programs, which containers mount from their node.
ROOT = """
cd "$(mktemp -d)"
mkdir -p dev etc proc root run sys usr var/lib workspace && mkdir -m 1777 tmp
for name in bin sbin lib lib64; do ln -s "usr/$name" "$name"; done
printf '%s\n' root:x:0:0:root:/root:/bin/bash sshd:x:100:65534::/run/sshd:/bin/false >etc/passwd
printf '%s\n' root:x:0: nogroup:x:65534: >etc/group
echo 'root:*:19000:0:99999:7:::' >etc/shadow
tar -c . | {engine} import - localhost/small:1
"""
# The practice nodes have no driver: its device nodes are those of /dev/null.
DEVICES = """
for name in davinci{0,1} davinci_manager devmm_svm hisi_hdc; do
  mknod -m 666 "/dev/$name" c 1 3
done
"""
DOCKERD = """
rm -f /usr/local/bin/docker  # which calls podman
setsid dockerd --iptables=false --ip6tables=false --ip-forward=false --bridge=none \
  --data-root /var/lib/containers/docker --exec-root /run/docker --pidfile /run/dockerd.pid \
  --add-runtime ascend=/usr/sbin/runc \
  >/tmp/dockerd.log 2>&1 </dev/null &
for _ in {1..150}; do ! docker version >/dev/null 2>&1 || exit 0; sleep 0.2; done
cat /tmp/dockerd.log >&2; exit 1
"""
KEY = "sha256sum </var/lib/ascendboot/lab/sshd/host_key"


def mounts(project: Path) -> list[str]:
    """Programs and this interpreter, at their places."""
    wanted = [*map(Path, ("/usr", "/etc/alternatives", "/etc/ld.so.cache", "/workspace")), project]
    wanted += [Path(sys.prefix), Path(sys.base_prefix), Path(sys.base_prefix).resolve()]
    outer = [p for p in dict.fromkeys(wanted) if not {*p.parents} & {*wanted}]
    return [f"{path}:{path}:ro" for path in outer]


@dataclass(frozen=True)
class Made:
    """A cluster whose containers `made` setup creates."""

    operator: Operator
    engine: str
    mounts: list[str]

    def inventory(self, **container: Any) -> Path:
        whole = {"name": "made", "image": IMAGE, "mounts": self.mounts, **container}
        document = self.operator.document()
        document["defaults"] |= {"engine": self.engine, "container": whole}
        return self.operator.inventory("made.yaml", document)

    def setup(self, *words: str, **container: Any) -> Ended:
        return self.operator.setup(*words, inventory=self.inventory(**container))

    def ids(self, name: str = "made") -> list[str]:
        form = f"{self.engine} inspect --type container --format '{{{{.Id}}}}' {name} 2>&1 || true"
        return self.operator.on_all(form)

    def inside(self, script: str) -> list[str]:
        return self.operator.on_all(f"{self.engine} exec made bash -c '{script}'")

    def errors(self, ended: Ended) -> set[str]:
        assert ended.code == 1, ended.err
        return {result["id"] for result in ended.json["results"] if result.get("level") == "error"}


@pytest.fixture(scope="module", params=["podman", "docker"])
def made(
    request: pytest.FixtureRequest, bring_up_once: Callable[..., Lab], pytestconfig: pytest.Config
) -> Made:
    if request.param == "docker" and not Path("/usr/sbin/dockerd").exists():
        missing("there is no dockerd; scripts/test installs it")
    lab = bring_up_once(nodes=2, devices=2, containers=True)
    operator = Operator(lab)
    operator.on_all(DEVICES)
    operator.on_all(f"( {DOCKERD} )" if request.param == "docker" else "true")
    operator.on_all(ROOT.replace("{engine}", request.param))
    return Made(operator, request.param, mounts(pytestconfig.rootpath))


def test_they_are_created_once_and_ranks_run_in_them(made: Made) -> None:
    plan = made.setup("--plan", env={"OF_THE_CONTAINER": "a b=c #d"})
    created = [("lab-1", "container", "would_change"), ("lab-2", "container", "would_change")]
    assert plan.outcomes("would_change")[:2] == created
    assert "no such" in made.ids()[0].lower()
    assert made.setup(env={"OF_THE_CONTAINER": "a b=c #d"}).code == 0
    assert made.setup(env={"OF_THE_CONTAINER": "a b=c #d"}).outcomes("changed") == []
    script = "import os; print('has', os.environ['OF_THE_CONTAINER'], os.listdir('/dev/'))"
    made.operator.script("has.py", script)
    job = made.operator.call("train", "has.py")
    assert job.code == 0, job.err
    assert job.out.count("has a b=c #d") == 4
    assert "davinci1" in job.out


def test_a_changed_description_recreates_them_with_their_keys(made: Made) -> None:
    assert made.setup().code == 0
    key, before = made.inside(KEY), made.ids()
    plan = made.setup("--plan", shm="2 GiB")
    assert "differs in shm: it would be re-created" in plan.details("would_change")[0]
    assert made.ids() == before
    changed = made.setup(shm="2 GiB")
    assert changed.code == 0, changed.err
    steps = {step for _, step, _ in changed.outcomes("changed")}
    assert steps == {"container", "sshd"}
    assert made.inside(KEY) == key
    assert not {*made.ids()} & {*before}
    assert {text.split()[-1] for text in made.inside("df --output=size -BG /dev/shm")} == {"2G"}


def test_one_that_is_in_use_stays(made: Made) -> None:
    assert made.setup().code == 0
    before = made.ids()
    (made.operator.lab.directory / "long.py").write_text("import time\ntime.sleep(1000)\n")
    job_id = made.operator.call("train", "long.py", "--detach").out.strip()
    begun = (
        f'until grep -q " pid " /var/lib/ascendboot/lab/jobs/{job_id}/events; do sleep 0.1; done'
    )
    made.inside(begun)
    assert made.errors(made.setup(shm="3 GiB")) == {"container-busy"}
    assert made.operator.call("stop", "--job", job_id).code == 0
    use = "echo $$ >/tmp/user; exec sleep 99"
    made.operator.sh("lab-2", f"{made.engine} exec -d made bash -c '{use}'")
    refused = made.setup("--plan", shm="3 GiB")
    assert made.errors(refused) == {"container-busy"}
    assert "(sleep). End it" in refused.out
    made.operator.sh("lab-2", f"{made.engine} exec made bash -c 'kill $(cat /tmp/user)'")
    assert made.ids() == before


def test_what_cannot_be_started_is_put_back(made: Made) -> None:
    assert made.setup().code == 0
    before = made.ids()
    failed = made.setup(mounts=[], shm="4 GiB")
    assert failed.code == 1
    assert all("could not re-create the container made" in x for x in failed.details("failed"))
    assert made.ids() == before
    assert made.setup().outcomes("changed") == []
    left = made.operator.on_all(f"{made.engine} ps -a --format '{{{{.Names}}}}'")
    assert "made-" not in "".join(left)


def test_a_runtime_gets_the_ids_of_the_devices(made: Made) -> None:
    ended = made.setup(runtime="ascend")
    if made.engine == "podman":
        assert 'runtime "ascend" not found' in ended.details("failed")[0]
        return
    # The stand-in for ascend-docker-runtime is plain runc, which adds no device.
    assert made.errors(ended) == {"device-node-missing"}
    form = "{{.HostConfig.Runtime}} {{json .Config.Env}} {{len .HostConfig.Devices}}"
    shown = made.operator.sh("lab-1", f"docker inspect --format '{form}' made")
    assert shown.startswith("ascend ")
    assert '"ASCEND_VISIBLE_DEVICES=0-1"' in shown
    assert shown.endswith(" 0\n")


def test_a_stopped_one_is_started(made: Made) -> None:
    assert made.setup().code == 0
    before = made.ids()
    made.operator.sh("lab-2", f"{made.engine} stop made")
    assert ("lab-2", "container", "changed") in made.setup().outcomes("changed")
    assert made.ids() == before


def test_others_are_never_touched(made: Made) -> None:
    flags = " ".join(f"-v {mount}" for mount in made.mounts)
    start = f"{made.engine} run -d --name theirs --network host {flags} {IMAGE} sleep 1000"
    made.operator.on_all(start)
    before = made.ids("theirs")
    assert "container-not-ours" in made.errors(made.setup(name="theirs"))
    assert made.setup().code == 0
    ours, reset = made.ids(), ("reset", "--yes", "--inventory", str(made.inventory()))
    made.inside("touch /var/lib/ascendboot/lab/mine")
    assert made.operator.call(*reset).code == 0
    assert made.ids() == ours
    made.inside("rm /var/lib/ascendboot/lab/mine")
    assert made.operator.call(*reset).code == 0
    assert made.ids("theirs") == before
    assert made.operator.on_all(f"{made.engine} exec theirs ls /var/lib") == ["", ""]
    assert "no such" in made.ids()[0].lower()
    assert "ascendboot" not in "".join(made.operator.on_all(f"{made.engine} volume ls"))


def test_what_is_missing_is_named_and_nothing_is_left_of_the_attempt(made: Made) -> None:
    for wrong, words in (
        ({"image": "localhost/other:1"}, "localhost/other:1"),
        ({"mounts": [*made.mounts, "/nowhere:/data"]}, "/nowhere"),
    ):
        failed = made.setup(**wrong)
        for name, detail in zip(("lab-1", "lab-2"), failed.details("failed"), strict=True):
            assert detail.startswith(f"{name}: could not create the container made: ")
            assert words in detail
    made.operator.on_all("rm /dev/hisi_hdc")
    assert "/dev/hisi_hdc" in made.setup().details("failed")[0]
    made.operator.on_all("mknod -m 666 /dev/hisi_hdc c 1 3")
    assert "made" not in "".join(made.operator.on_all(f"{made.engine} ps -a"))


def test_a_job_on_the_servers_outlives_a_change_to_containers(made: Made) -> None:
    operator, document = made.operator, made.operator.document()
    with_it = ("--inventory", str(made.inventory()))
    operator.call("reset", "--yes", *with_it, exits=0)
    del document["defaults"]["container"]
    operator.setup(inventory=operator.inventory("plain.yaml", document), exits=0)
    job_id = operator.start_long_job()
    assert "ssh-via-changed" in made.errors(made.setup())
    assert "no such" in made.ids()[0].lower()
    assert operator.call("status", "--json", *with_it, exits=0).json["state"] == "running"
    refused = operator.call("reset", "--yes", *with_it)
    assert (refused.code, job_id in refused.err + refused.out) == (1, True)
    operator.call("stop", *with_it, exits=0)
    assert operator.job_processes() == {}
    operator.call("reset", "--yes", *with_it, exits=0)
