"""Logins between nodes: certificates and pinned keys, forged hosts, foreign keys, lost CAs."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ascendboot.lab.cluster import Lab
from tests.cluster.operating import BASE, PROGRAM, Ended, Operator
from tests.needs import LONG

pytestmark = pytest.mark.cluster

SSH_KEYGEN = shutil.which("ssh-keygen") or "ssh-keygen"
DENIED = "Permission denied (publickey)."
PAST = "20200101:20200102"
LOGIN = f"ssh -F {BASE}/trust/ssh_config -o LogLevel=INFO {{address}} echo in 2>&1; true"
OF_CA = ["sshd/host_key-cert.pub", "trust/cluster_key-cert.pub"]


@pytest.fixture(scope="module")
def lab(bring_up_once: Callable[..., Lab]) -> Lab:
    return bring_up_once(nodes=3, devices=1)


@pytest.fixture
def operator(lab: Lab) -> Operator:
    """Servers that ascendboot has never seen, and an operator without CA keys."""
    operator = Operator(lab)
    operator.wipe()
    shutil.rmtree(ca_folder(operator), ignore_errors=True)
    return operator


@pytest.fixture(scope="module")
def set_up(lab: Lab) -> Operator:
    operator = Operator(lab)
    operator.wipe()
    return operator


@pytest.fixture
def ready(set_up: Operator) -> Operator:
    """A cluster that is set up with certificates, or repaired."""
    set_up.setup(exits=0)
    return set_up


def inventory(operator: Operator, *, nodes: int = 3, **keys: Any) -> Path:
    """The lab's inventory with only its first nodes, and other keys."""
    kept = dict(list(operator.document()["nodes"].items())[:nodes])
    return operator.inventory("variant.yaml", nodes=kept, **keys)


def ca_folder(operator: Operator) -> Path:
    return operator.lab.directory / ".ascendboot" / "clusters" / "lab" / "ca"


def address(operator: Operator, name: str) -> str:
    return str(next(node.address for node in operator.lab.nodes if node.name == name))


def login(operator: Operator, to: str = "lab-2") -> str:
    """What a login from the primary to another node says."""
    return operator.sh("lab-1", LOGIN.format(address=address(operator, to)))


def changed(operator: Operator, path: Path | None = None) -> list[tuple[str, str]]:
    """Run a setup that must succeed; what it changes."""
    ended = operator.setup(inventory=path, exits=0)
    return [(node, step) for node, step, _ in ended.outcomes("changed")]


def ours(operator: Operator, name: str) -> list[str]:
    """Files of trust on a node."""
    script = f"cd {BASE} && ls -d trust/* sshd/*key* | sort"
    return operator.sh(name, script).split()


def signed(operator: Operator, name: str, key: str, *options: str, ca: str = "user_ca") -> str:
    """A certificate for the public half of a node's `key`, made by hand by the operator's CA."""
    folder = operator.lab.directory / "by_hand"
    folder.mkdir(exist_ok=True)
    (folder / "key.pub").write_text(operator.sh(name, f"ssh-keygen -y -P '' -f {key}"))
    by = str(ca_folder(operator) / ca)
    argv = [SSH_KEYGEN, "-q", "-s", by, *options, str(folder / "key.pub")]
    subprocess.run(argv, check=True)
    return (folder / "key-cert.pub").read_text()


# ------------------------------------------------------------------------------ what setup leaves


def test_one_line_lets_in_and_one_line_knows_all(ready: Operator) -> None:
    user, host = (
        " ".join((ca_folder(ready) / f"{kind}_ca.pub").read_text().split()[:2])
        for kind in ("user", "host")
    )
    source = address(ready, "lab-1")
    assert (
        ready.on_all(f"cat {BASE}/trust/authorized_keys")
        == [f'cert-authority,restrict,from="{source}",principals="mpi-lab" {user} ascendboot lab\n']
        * 3
    )
    assert (
        ready.sh("lab-1", f"cat {BASE}/trust/known_hosts") == f"@cert-authority [*]:12345 {host}\n"
    )
    printed = ready.sh("lab-1", f"TZ=UTC ssh-keygen -L -f {BASE}/trust/cluster_key-cert.pub")
    said = [line.strip() for line in printed.splitlines()]
    assert said[1] == "Type: ssh-ed25519-cert-v01@openssh.com user certificate"
    assert said[7:] == [
        *("Principals:", "mpi-lab"),
        *("Critical Options:", f"source-address {source}/32"),
        "Extensions: (none)",
    ]


def test_private_ca_keys_are_on_the_operator_s_side_alone(ready: Operator) -> None:
    folder = ca_folder(ready)
    assert folder.stat().st_mode & 0o777 == 0o700
    private = []
    for kind in ("user_ca", "host_ca"):
        assert (folder / kind).stat().st_mode & 0o777 == 0o600
        private.append((folder / kind).read_text().splitlines()[4])  # the first with secret bytes
        public = (folder / f"{kind}.pub").read_text().split()[1]
        assert ready.sh("lab-1", f"grep -rlF -- {public} {BASE}/trust; true") != ""
    either = " ".join(f"-e {line}" for line in private)
    # What a machine keeps of Python below /root is much, and no place of ours.
    places = "--exclude-dir=.pyenv --exclude-dir=.cache /var/lib/ascendboot /root /run /etc"
    assert ready.on_all(f"grep -rlF {either} {places} 2>/dev/null; true") == [""] * 3
    kept = (ready.lab.directory / ".ascendboot" / "runs").rglob("*.*")
    assert [path for path in kept if b"PRIVATE KEY" in path.read_bytes()] == []


# ------------------------------------------------------------------------------ who is refused


_FORGE = f"""\
rm -rf /run/forged; mkdir -p /run/forged; cd /run/forged
read -r pid _ <{BASE}/sshd/started; kill "$pid"; timeout 5 tail --pid="$pid" -s 0.05 -f /dev/null
ssh-keygen -q -t ed25519 -N '' -f host_key
{{prepare}}
sed '/^HostKey/d; /^HostCert/d; s|^PidFile.*|PidFile /run/forged/pid|' \\
  {BASE}/sshd/sshd_config >config
echo 'HostKey /run/forged/host_key' >>config
[ ! -e host_key-cert.pub ] || echo 'HostCertificate /run/forged/host_key-cert.pub' >>config
/usr/sbin/sshd -f /run/forged/config -E /run/forged/log
until [ -s pid ]; do sleep 0.05; done
"""
_SELF_SIGNED = (
    "ssh-keygen -q -t ed25519 -N '' -f ca; "
    "ssh-keygen -q -s ca -h -I x -n {address},lab-2 host_key.pub"
)


@pytest.mark.parametrize(
    ("prepare", "says"),
    [
        ("true", "no matching host key type found"),
        (_SELF_SIGNED, "Host key verification failed"),
        # It has stolen another node's key and certificate.
        (
            "cat >host_key; chmod 600 host_key; cp /run/stolen-cert.pub host_key-cert.pub",
            "Certificate invalid: name is not a listed principal",
        ),
    ],
    ids=["plain-key", "other-ca", "another-node's-certificate"],
)
def test_a_forged_host_is_refused_by_the_primary(ready: Operator, prepare: str, says: str) -> None:
    where = address(ready, "lab-2")
    certificate = ready.sh("lab-3", f"cat {BASE}/sshd/host_key-cert.pub")
    ready.put("lab-2", "/run/stolen-cert.pub", certificate, "644")
    stolen = ready.sh("lab-3", f"cat {BASE}/sshd/host_key")
    assert login(ready) == "in\n"
    script = _FORGE.format(prepare=prepare.format(address=where))
    ready.lab.exec("lab-2", ["bash", "-c", script], input=stolen.encode())
    try:
        answer = login(ready)
    finally:
        ready.sh("lab-2", "kill $(cat /run/forged/pid)")
    assert says in answer
    assert "in\n" not in answer.splitlines(keepends=True)
    assert changed(ready) == [("lab-2", "sshd")]
    assert login(ready) == "in\n"


def test_only_a_certificate_for_this_cluster_opens_a_node(ready: Operator) -> None:
    said = {
        name: with_certificate(ready, options)
        for name, options in {
            "right": ["-I", "x", "-n", "mpi-lab"],
            "none": None,
            "other cluster": ["-I", "x", "-n", "mpi-other"],
            "expired": ["-I", "x", "-n", "mpi-lab", "-V", PAST],
            "other source": ["-I", "x", "-n", "mpi-lab", "-O", "source-address=198.51.100.0/24"],
            "no principal": ["-I", "x"],
        }.items()
    }
    assert said == {**dict.fromkeys(said, DENIED), "right": "in"}


def with_certificate(ready: Operator, options: list[str] | None) -> str:
    """The last words of a login with the cluster's key and such a certificate."""
    ready.sh(
        "lab-1", f"rm -rf /run/k; install -d -m 700 /run/k; cp {BASE}/trust/cluster_key /run/k"
    )
    if options is not None:
        text = signed(ready, "lab-1", "/run/k/cluster_key", *options)
        ready.put("lab-1", "/run/k/cluster_key-cert.pub", text, "644")
    ready.sh(
        "lab-1",
        f"sed -e '/CertificateFile/d; s|{BASE}/trust/cluster_key|/run/k/cluster_key|' "
        f"{BASE}/trust/ssh_config >/run/k/config",
    )
    where = address(ready, "lab-2")
    answer = ready.sh("lab-1", f"ssh -F /run/k/config {where} echo in 2>&1; true")
    return answer.splitlines()[-1].rpartition(": ")[2]


# --------------------------------------------------------------------- expired, lost, changed


def test_an_expired_certificate_of_the_primary_is_refused_and_renewed(ready: Operator) -> None:
    text = signed(
        ready,
        *("lab-1", f"{BASE}/trust/cluster_key", "-I", "lab-1 of lab", "-n", "mpi-lab"),
        *("-O", "clear", "-O", f"source-address={address(ready, 'lab-1')}/32", "-V", PAST),
    )
    ready.put("lab-1", f"{BASE}/trust/cluster_key-cert.pub", text, "644")
    [kept] = (ready.lab.directory / ".ascendboot").rglob("applied.json")
    document = json.loads(kept.read_text())  # what setup noted, when the years have gone by
    document["nodes"]["lab-1"]["expires"]["trust/cluster_key-cert.pub"] = 1577923200.0
    kept.write_text(json.dumps(document))
    answer = login(ready)
    assert "Permission denied (publickey)" in answer
    job = ready.call("train", "main.py", exits=125)
    assert "trust/cluster_key-cert.pub has expired" in job.err
    ended = ready.setup(exits=0)
    [detail] = ended.details("changed")
    assert detail.startswith("trust/cluster_key-cert.pub expired ")
    assert changed(ready) == []


def test_an_expired_host_certificate_is_refused_and_renewed(ready: Operator) -> None:
    where = address(ready, "lab-2")
    options = ("-h", "-I", "lab-2 of lab", "-n", f"{where},lab-2", "-V", PAST)
    text = signed(ready, "lab-2", f"{BASE}/sshd/host_key", *options, ca="host_ca")
    ready.put("lab-2", f"{BASE}/sshd/host_key-cert.pub", text, "644")
    ready.sh("lab-2", f"kill -HUP $(cat {BASE}/sshd/sshd.pid)")
    answer = login(ready)
    assert answer.splitlines()[-1] == "Host key verification failed."
    assert changed(ready) == [("lab-2", "sshd/host_key-cert.pub")]
    assert changed(ready) == []


def test_keys_are_rotated_by_the_commands_of_the_page(ready: Operator) -> None:
    page = (Path(__file__).parents[2] / "docs/how-to/keys.md").read_text()
    named = page.partition("## Rotate keys")[2].replace("atlas-", "lab-").replace("two-node", "lab")
    one, everything = re.findall(r"(?ms)^```\n(.*?)^```", named)[:2]

    shown = f"cd {BASE}; cat trust/cluster_key.pub 2>/dev/null; ssh-keygen -y -f sshd/host_key"

    def keys() -> list[str]:
        return [*ready.on_all(shown), (ca_folder(ready) / "user_ca.pub").read_text()]

    def run(lines: str) -> None:
        script = f'set -e; ascendboot() {{ {PROGRAM} "$@"; }}; {lines}'
        subprocess.run(["/bin/bash", "-c", script], cwd=ready.lab.directory, check=True)

    before = keys()
    run(one)
    after = keys()
    assert [at for at in range(4) if before[at] != after[at]] == [0, 1]  # the keys of two nodes
    assert login(ready) == "in\n"
    run(everything)
    assert {*after}.isdisjoint(keys())
    assert login(ready) == "in\n"


@pytest.mark.parametrize("trust", ["ca", pytest.param("pinned", marks=LONG)])
def test_hostile_7_a_second_control_folder_changes_nothing_unless_it_takes_over(
    operator: Operator, tmp_path: Path, trust: str
) -> None:
    path = inventory(operator, ssh={"trust": trust})
    changed(operator, path)
    operator.start_long_job("--inventory", str(path))
    content = f"cd {BASE} && find owner sshd trust env resources -type f ! -name '*.log'"
    question = f"{content} | sort | xargs sha256sum"
    before = operator.on_all(question)

    def second(*flags: str, verb: str = "setup") -> Ended:
        accepts = () if "remove" in verb else ("--accept-new",)
        argv = [PROGRAM, *verb.split(), "--inventory", str(path), *accepts, "--json", *flags]
        done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)
        return Ended(done.returncode, done.stdout, done.stderr)

    by = f"{operator.lab.directory}/.ascendboot of "
    for flags in ((), ("--plan",), ("--take-over",)):
        refused = second(*flags)
        assert refused.code == 1
        steps = {step for _, step, _ in refused.outcomes("blocked")}
        assert steps == {"job-needs-keys" if "--take-over" in flags else "set-up-elsewhere"}
        words = [r["detail"] for r in refused.json["results"] if r["step"] == "set-up-elsewhere"]
        assert len(words) == 3
        assert all(by in word for word in words)
    removed = second("--yes", verb="remove lab-2")
    assert (removed.code, "lab is not set up from here: " in removed.err) == (2, True)
    assert operator.on_all(question) == before
    assert not (tmp_path / ".ascendboot/clusters/lab/ca").exists()

    operator.call("stop", "--grace", "0.5", inventory=path, exits=0)
    taken = second(verb="adopt") if trust == "ca" else second("--take-over")
    assert taken.code == 0, taken.err
    assert second().outcomes("changed") == []
    operator.setup(inventory=path, exits=1)
    job = operator.call("train", "main.py", inventory=path, exits=125)
    told = "lab-[1-3]: not ready: another control folder has set up the cluster since; "
    assert f"{told}setup --plan names it; adopt takes the cluster back\n" in job.err
    assert login(operator).splitlines()[-1] == "in"


def test_from_pinned_to_certificates_and_back_leaves_nothing_of_the_former(
    operator: Operator,
) -> None:
    names = [node.name for node in operator.lab.nodes]
    pinned = inventory(operator, ssh={"trust": "pinned"})
    changed(operator, pinned)
    assert not ca_folder(operator).exists()
    before = {name: ours(operator, name) for name in names}
    assert before["lab-2"] == ["sshd/host_key", "trust/authorized_keys"]
    known = operator.sh("lab-1", f"cut -d' ' -f1 {BASE}/trust/known_hosts").split()
    assert known == [f"[{address(operator, name)}]:12345" for name in names]
    operator.script("job.py", "print('hello')\n")
    job = operator.call("train", "job.py")
    assert (job.code, job.out.count("| hello")) == (0, 3), job.err
    assert ("lab-2", "sshd") in changed(operator)
    job = operator.call("train", "job.py")
    assert (job.code, job.out.count("| hello")) == (0, 3), job.err
    assert changed(operator) == []
    assert {name: ours(operator, name) for name in names} == {
        "lab-1": sorted([*before["lab-1"], *OF_CA, "trust/cluster_key.pub"]),
        "lab-2": sorted([*before["lab-2"], OF_CA[0]]),
        "lab-3": sorted([*before["lab-3"], OF_CA[0]]),
    }
    changed(operator, inventory(operator, ssh={"trust": "pinned"}))
    assert {name: ours(operator, name) for name in names} == before
    assert changed(operator, inventory(operator, ssh={"trust": "pinned"})) == []


# ------------------------------------------------------------------------------- a node that left


OLD_KEY = (
    "ssh -F /dev/null -i /run/old/cluster_key -o IdentitiesOnly=yes -o BatchMode=yes"
    " -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=INFO"
    " -p $(grep -oP '^Port \\K.*' /run/old/sshd_config) {address} echo in 2>&1; true"
)
COPY = (
    f"rm -rf /run/old; cp -a {BASE}/trust /run/old; cp {BASE}/sshd/sshd_config /run/old;"
    f" rm -rf /run/base; cp -a {BASE} /run/base"
)
COMES_BACK = (
    f"mkdir -p {BASE} && cp -a /run/base/. {BASE} && /usr/sbin/sshd -f {BASE}/sshd/sshd_config"
)
UNCHECKED = "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null"


def left_the_inventory(operator: Operator, trust: str) -> Path:
    """Set up with three nodes, then with two; copies of all keys are kept on the nodes."""
    ssh = {"trust": trust}
    changed(operator, inventory(operator, ssh=ssh))
    operator.on_all(COPY)
    two = inventory(operator, nodes=2, ssh=ssh)
    for verb in ("setup", "check"):
        ended = operator.call(verb, "--json", inventory=two, exits=0)
        named = [r for r in ended.json["results"] if r["step"] == "node-left"]
        assert [(r["node"], r["level"]) for r in named] == [("lab-3", "warning")]
        assert "remove lab-3" in named[0]["detail"]
    return two


def assert_no_trust(operator: Operator) -> None:
    """Neither side can log in to the other, even with copies of all former files."""
    operator.sh("lab-3", COMES_BACK)
    unchecked = LOGIN.replace("-o LogLevel", f"{UNCHECKED} -o LogLevel")
    assert login(operator, "lab-3").splitlines()[-1] != "in"
    plain = unchecked.format(address=address(operator, "lab-3")).replace(
        "-o LogLevel", "-o HostKeyAlgorithms=ssh-ed25519 -o LogLevel"
    )
    assert DENIED in operator.sh("lab-1", plain)
    for name in ("lab-1", "lab-2"):
        with_old = OLD_KEY.format(address=address(operator, name))
        assert DENIED in operator.sh("lab-1", with_old), name
    assert login(operator).splitlines()[-1] == "in"


@pytest.mark.parametrize("trust", ["ca", pytest.param("pinned", marks=LONG)])
def test_hostile_7_a_node_that_left_is_named_and_taken_back(operator: Operator, trust: str) -> None:
    two = left_the_inventory(operator, trust)
    both = operator.call("reset", "--node", "lab-[2-3]", "--yes", inventory=two, exits=2)
    assert "lab-3 left the inventory, lab-2 did not: reset one after the other" in both.err
    done = operator.call("reset", "--node", "lab-3", "--yes", "--json", inventory=two, exits=0)
    assert ("lab-3", "sshd", "changed") in done.outcomes("changed")
    assert operator.sh("lab-3", f"ls {BASE} 2>&1; pgrep -f {BASE}/[s]shd; true").count("\n") == 1
    assert_no_trust(operator)
    again = operator.setup(inventory=two)
    assert (again.code, again.outcomes("changed")) == (0, [])
    assert not [r for r in again.json["results"] if r["step"] == "node-left"]


def test_hostile_7_a_node_that_left_and_is_gone_is_forgotten(operator: Operator) -> None:
    two = left_the_inventory(operator, "ca")
    flags = ("--inventory", str(two), "--yes", "--json")
    with operator.fault("lab-3", "no-sshd"):
        gone = operator.call("reset", "--node", "lab-3", *flags)
        assert (gone.code, gone.outcomes("changed")) == (4, [])
        assert "remove lab-3 --forget" in gone.err
        operator.call("reset", "--node", "lab-3", "--forget", *flags, exits=0)
    assert_no_trust(operator)
    operator.call("reset", "--node", "lab-3", *flags, exits=2)

    one = operator.call("reset", "--node", "lab-2", *flags, exits=0)
    assert {node for node, *_ in one.outcomes("changed")} == {"lab-2"}
    again = operator.setup(inventory=two, exits=0)
    assert ("lab-2", "sshd", "changed") in again.outcomes("changed")
    assert "trust/cluster_key" not in {step for _, step, _ in again.outcomes("changed")}
