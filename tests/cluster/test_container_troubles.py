"""Containers in which no ranks can run, or which end during a job: reported and repaired."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from ascendboot.errors import UsageError
from ascendboot.lab.cluster import Lab
from tests.cluster.operating import BASE, Operator
from tests.needs import LONG

pytestmark = pytest.mark.cluster

NODES = ("lab-1", "lab-2")
START = "/usr/local/Ascend/lab/start-container"
REMOVE = f"podman rm --force --ignore --time 0 rec-sdk && rm -rf {BASE}"
SLEEPS = "s/bash -c .trap.*/sleep infinity/"
"""The first process of most containers is `sleep`, which reaps no processes."""


SERVERS = f"pgrep -cf 'sshd.* -f {BASE}/sshd/sshd_confi[g]'; true"
"""Counts the cluster's running sshds, in containers or not."""


def start(change: str = "") -> str:
    """A shell command that creates a new container on a node, with a changed start script."""
    return f"{REMOVE} && sed '{SLEEPS}; {change}' {START} | bash -s"


@pytest.fixture(scope="module")
def servers(container_cluster: Lab) -> Iterator[Operator]:
    """The servers; afterwards they have their usual containers again."""
    operator = Operator(container_cluster)
    yield operator
    operator.on_all(f"{REMOVE} && {START}")


@pytest.fixture
def operator(servers: Operator) -> Operator:
    """Servers and containers that ascendboot has never seen."""
    servers.on_all(start())
    return servers


def refused(operator: Operator, inventory: Path | None = None) -> list[str]:
    """The reasons for which `setup` changed nothing."""
    ended = operator.setup(inventory=inventory)
    look = f"find {BASE} ! -type d ! -name lock 2>/dev/null; true"
    written = f"{look}; podman exec rec-sdk sh -c '{look}' 2>/dev/null; true"
    assert operator.on_all(written) == ["", ""]
    assert (ended.code, ended.outcomes("changed", "failed")) == (1, [])
    return list(dict.fromkeys(ended.details("blocked")))  # what is said of both is there twice


NO_BASH = (
    'Error: runc: exec failed: unable to start container process: exec: "bash": executable file not'
    " found in $PATH: OCI runtime attempted to invoke a command that was not found"
)


def test_containers_that_nothing_can_be_run_in_are_told_apart(operator: Operator) -> None:
    operator.sh("lab-1", "podman stop --time 0 rec-sdk")
    operator.sh("lab-2", "podman rename rec-sdk other")
    stopped = "the container rec-sdk is exited. Start it: docker start rec-sdk."
    absent = "there is no container rec-sdk; there are other. Start it, or correct `container`."
    assert refused(operator) == [f"lab-1: {stopped}", f"lab-2: {absent}"]

    operator.sh("lab-1", "podman start rec-sdk && podman pause rec-sdk")
    operator.sh("lab-2", "podman rename other rec-sdk")
    operator.inside("lab-2", "mv /usr/bin/bash /usr/bin/bash.away")
    paused = "the container rec-sdk is paused. Resume it: docker unpause rec-sdk."
    without = f"could not run bash in the container rec-sdk: {NO_BASH}. Install bash in its image."
    assert refused(operator) == [f"lab-1: {paused}", f"lab-2: {without}"]
    operator.sh("lab-1", "podman unpause rec-sdk")


# docker 20.10, of a user who is not in its group
DENIED = (
    "permission denied while trying to connect to the Docker daemon socket at"
    ' unix:///var/run/docker.sock: Get "http://%2Fvar%2Frun%2Fdocker.sock/v1.24/containers/rec-sdk'
    '/json": dial unix /var/run/docker.sock: connect: permission denied'
)
# Where `python3 --version` is asked, another version; else the interpreter of the practice cluster.
OLDER = """\
mv /usr/local/bin/python3 /tmp/python3
cat >/usr/local/bin/python3 <<'END'
#!/bin/sh
[ "$*" != --version ] || { echo Python 3.7.5; exit; }
exec /tmp/python3 "$@"
END
chmod 755 /usr/local/bin/python3
"""
ALONE = (
    "the container rec-sdk has a network of its own: the other nodes do not reach its ranks at the"
    " cluster address. Re-create it with --network host."
)
NO_SSHD = (
    "could not find the OpenSSH server in the container rec-sdk: sshd is neither on PATH nor in"
    " /usr/sbin. Install openssh-server in the image of rec-sdk, or state `ssh: {via: engine}`."
)


def test_containers_without_what_ranks_need_are_told_apart(operator: Operator) -> None:
    operator.sh("lab-1", start("s/--network host/--network none/"))
    docker = operator.sh("lab-2", "cat /usr/local/bin/docker")
    operator.put("lab-2", "/usr/local/bin/docker", f"#!/bin/sh\necho '{DENIED}' >&2\nexit 1\n")
    stated = operator.inventory_with("other.yaml", ("container: ", "engine: docker\n  container: "))
    found = refused(operator, stated)
    operator.put("lab-2", "/usr/local/bin/docker", docker)
    remedy = "Let this user use docker (group docker), or log in as root."
    assert found == [f"lab-1: {ALONE}", f"lab-2: docker refused: {DENIED}. {remedy}"]

    operator.sh("lab-1", start())
    operator.lab.fault("lab-1", "no-container-sshd")
    operator.inside("lab-2", OLDER)
    version = operator.sh("lab-1", "python3 --version").split()[1]
    found = refused(operator)
    operator.lab.undo("lab-1", "no-container-sshd")
    differs = f"lab-1 has Python {version}, lab-2 has 3.7.5. Install the same version on all nodes."
    assert found == [f"lab-1: {NO_SSHD}", f"lab-[1-2]: {differs}"]


WITHOUT = "for p in find setsid sed; do mv $(type -P $p) /root/$p.away; done"
NO_PROGRAMS = (
    "the container rec-sdk has no find, setsid, which our scripts need. "
    "Install findutils, util-linux in its image."
)
NO_CAPABILITIES = (
    "root in the container rec-sdk lacks one of the capabilities SETUID, SETGID and SYS_CHROOT: the"
    " cluster's sshd would refuse every login. Re-create it with --cap-add"
    " SETUID,SETGID,SYS_CHROOT, or state `ssh: {via: engine}`."
)
NAMELESS = "s|--network host|& --user 4321:4321 --passwd=false|"
NO_NAME = (
    "could not read the names of the system in the container rec-sdk: user id 4321 has no name; add"
    " it to /etc/passwd, in a container of its image."
)


def test_hostile_16_bare_containers_are_told_by_what_they_lack(operator: Operator) -> None:
    operator.inside("lab-1", WITHOUT)
    operator.sh("lab-2", start("s/--network host/& --cap-drop ALL/"))
    found = refused(operator)
    check = operator.call("check", "--json", inventory=operator.lab.inventory)
    assert found == [f"lab-1: {NO_PROGRAMS}", f"lab-2: {NO_CAPABILITIES}"]
    assert set(found) <= set(check.details("blocked"))

    operator.sh("lab-1", start(NAMELESS))
    operator.sh("lab-2", start("s|--network host|& --workdir /media|"))
    operator.sh("lab-2", "podman exec -w / rec-sdk rmdir /media")
    found = refused(operator)
    assert f"lab-1: {NO_NAME}" in found
    [gone] = [words for words in found if words.startswith("lab-2")]
    assert gone.startswith("lab-2: could not run bash in the container rec-sdk: ")
    assert 'chdir to cwd ("/media")' in gone
    assert gone.endswith("Make its working directory again: docker exec -w / rec-sdk mkdir -p ….")


NO_SHELL = "User root not allowed because shell /no/shell does not exist"


def test_item_16_a_login_that_fails_quotes_the_log_of_the_clusters_sshd(operator: Operator) -> None:
    """podman needs no login shell in the container, sshd does."""
    operator.inside("lab-2", "sed -i '/^root:/s|[^:]*$|/no/shell|' /etc/passwd")
    stated = str(operator.lab.inventory)
    for ended in (operator.setup(), operator.call("check", "--json", "--inventory", stated)):
        assert ended.code == 1
        [told] = [detail for detail in ended.details("failed") if "could not log in" in detail]
        assert told.startswith("lab-2: could not log in from lab-1: ")
        assert f'its sshd.log says "{NO_SHELL}"' in told


def test_setup_repairs_a_container_that_was_restarted(operator: Operator) -> None:
    operator.setup(exits=0)
    operator.inside("lab-2", "echo kept >/root/file")
    operator.lab.fault("lab-2", "container-restart")
    ended = operator.call("train", "main.py", exits=125)
    assert "lab-2: not ready: the cluster's sshd does not run; run setup\n" in ended.err
    assert operator.setup(exits=0).outcomes("changed") == [("lab-2", "sshd", "changed")]
    assert operator.inside("lab-2", "cat /root/file") == "kept\n"
    with pytest.raises(UsageError, match="--undo: not possible: a restart has no end"):
        operator.lab.undo("lab-2", "container-restart")


NO_CONTAINER = ("  container: rec-sdk\n", "")


def test_a_container_that_the_inventory_no_longer_names_keeps_no_sshd(operator: Operator) -> None:
    operator.setup(exits=0)
    plain = operator.inventory_with("plain.yaml", NO_CONTAINER)
    with_it = ("--inventory", str(plain))
    blocked = operator.setup(inventory=plain)
    assert (blocked.code, blocked.outcomes("changed")) == (1, [])
    [left] = set(blocked.details("blocked"))
    assert "what setup installed is still in the container rec-sdk, which the" in left
    assert operator.sh("lab-1", SERVERS) == "1\n"
    reset = operator.call("reset", "--yes", *with_it, exits=0)
    assert "stopped the cluster's sshd in the container rec-sdk" in reset.out
    assert operator.on_all(SERVERS) == ["0\n", "0\n"]
    operator.setup(inventory=plain, exits=0)
    assert operator.on_all(SERVERS) == ["1\n", "1\n"]
    operator.call("reset", "--yes", *with_it)


def test_what_ranks_cannot_have_of_the_image_is_said(servers: Operator) -> None:
    operator = servers
    given = "s/--network host/& --env OF_THE_IMAGE=seen/"
    other_user = "s/sleep infinity$/setpriv --reuid 1234 --clear-groups sleep infinity/"
    operator.sh("lab-1", start(given))
    operator.sh("lab-2", start(f"{given}; {other_user}"))
    first = operator.setup(exits=0)
    [told] = [r for r in first.json["results"] if r.get("id") == "container-environment"]
    assert (told["node"], told["level"]) == ("lab-2", "warning")
    assert (
        "could not read what the image and `run -e` set in the container rec-sdk: root may not read"
        " it: process 1 is of "
    ) in told["detail"]
    operator.script("given.py", "import os; print(os.environ.get('OF_THE_IMAGE'))\n")
    ended = operator.call("train", "given.py")
    said = {(line[:5], line.rpartition(" ")[2]) for line in ended.out.splitlines()}
    assert said == {("lab-1", "seen"), ("lab-2", "None")}


LIMITED = (
    "s/--network host/& --ulimit memlock=65536:65536 --ulimit nofile=3000:3000 --ulimit nproc=4096/"
)
SECOND_ONLY = (
    "s#--device=/dev/null:/dev/davinci0##; s/--network host/& -e ASCEND_VISIBLE_DEVICES={}/"
)
GIVEN = """\
import os, resource
limits = [resource.getrlimit(which) for which in (resource.RLIMIT_MEMLOCK, resource.RLIMIT_NOFILE)]
print(os.environ["DEVICE_ID"], limits)
"""


@pytest.mark.parametrize("via", ["sshd", pytest.param("engine", marks=LONG)])
def test_ranks_get_the_devices_and_limits_of_their_container(servers: Operator, via: str) -> None:
    operator = servers
    operator.on_all(start(f"{LIMITED}; {SECOND_ONLY.format('1')}"))
    [why] = {detail.partition(": ")[2] for detail in refused(operator)}
    assert why.startswith(
        "device 0 is not granted to the container rec-sdk: its ASCEND_VISIBLE_DEVICES=1 grants "
        "device 1. Re-create it with ASCEND_VISIBLE_DEVICES=0-1, or state"
    )
    one = ("  devices: 2\n", "  devices: [1]\n")
    via_ = ("code:\n", f"ssh: {{via: {via}}}\ncode:\n")
    stated = operator.inventory_with("one.yaml", one, via_)
    ended = operator.setup(inventory=stated, exits=0)
    found = {(r["node"], r["id"], r["level"]) for r in ended.json["results"] if r.get("id")}
    assert {(node, "memlock-small", "warning") for node in NODES} <= found
    operator.script("given.py", GIVEN)
    ended = operator.call("train", "given.py")
    said = {line.partition(" | ")[2] for line in ended.out.splitlines()}
    # device 1 is the only one there, and the driver counts from 0
    assert said == {"0 [(65536, 65536), (3000, 3000)]"}, ended.err
    operator.inside("lab-2", "rm /dev/davinci1 /dev/hisi_hdc")
    ended = operator.call("train", "given.py", exits=125)
    assert "lab-2: the container rec-sdk has no /dev/davinci1, /dev/hisi_hdc" in ended.err
    operator.call("reset", "--yes", inventory=stated, exits=0)


IS_TRAINER = (
    "s|--network host|& --user 1234:1234 -v /srv/trainer:/home/trainer"
    " --passwd-entry=trainer:x:1234:1234::/home/trainer:/bin/bash|"
)
PYTHON = "/usr/bin/python3"
"""An interpreter that any user may run."""


@pytest.mark.skipif(not Path(PYTHON).exists(), reason=f"there is no {PYTHON}")
def test_an_image_may_have_a_user_of_its_own(servers: Operator) -> None:
    operator = servers
    home = "install -d -o 1234 -g 1234 /srv/trainer"
    operator.on_all(f"{home}; {start(IS_TRAINER)}")
    stated = operator.inventory_with("other.yaml", ("code:\n", f"code:\n  python: {PYTHON}\n"))
    operator.setup(inventory=stated, exits=0)
    assert operator.setup(inventory=stated).outcomes("changed", "blocked") == []
    operator.script("who.py", "import os; print(os.getuid(), os.environ['HOME'], os.getcwd())\n")
    ended = operator.call("train", "who.py", exits=0)
    said = {line.partition(" | ")[2] for line in ended.out.splitlines()}
    [(user, user_home, place)] = [line.split() for line in said]
    assert (user, user_home) == ("1234", "/home/trainer")
    assert place.startswith("/home/trainer/.ascendboot/lab/jobs/")
    operator.call("reset", "--yes", inventory=stated, exits=0)
    left = "find /srv/trainer -mindepth 1; rm -r /srv/trainer"
    assert operator.on_all(left) == ["", ""]


def test_a_container_that_is_killed_in_the_middle_of_a_job_is_named(operator: Operator) -> None:
    operator.setup(exits=0)
    job = operator.lab.directory / "job.py"
    job.write_text("import time\nprint('ready', flush=True)\ntime.sleep(1000)\n")
    process = operator.start("train", "job.py", "--json")
    ready = (line for line in iter(process.err.readline, "") if "ready" in line)
    assert len(list(islice(ready, 4))) == 4
    operator.sh("lab-2", "podman kill rec-sdk")
    report = process.end().json
    assert (report["state"], report["first_failure"]) == ("failed", None)
    assert process.returncode == report["exit_code"] != 0
    assert report["message"] == "lab-2: was lost in the middle of the job, with ranks 2-3"
    assert report["cause"]["title"] == report["message"]
    assert report["cause"]["remedy"].startswith("check that the node and its container run")
    [note] = report["notes"]
    assert note.startswith(
        f"lab-2: could not find remaining processes of job {report['job_id']} in the"
    )
    assert "start it: docker start rec-sdk" in note
    assert operator.job_processes() == {}

    operator.sh("lab-2", "podman start rec-sdk")
    assert operator.setup().outcomes("changed", "blocked") == [("lab-2", "sshd", "changed")]
