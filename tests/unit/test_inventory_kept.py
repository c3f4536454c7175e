"""An inventory that was found right: known again as long as nothing that counts has changed."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ascendboot
from ascendboot.inventory import kept
from ascendboot.inventory.kept import cluster_of, digest, record_of
from ascendboot.inventory.load import load
from ascendboot.tasks import common
from ascendboot.tasks.common import remember_inventory, wanted_cluster

ROOT = Path(__file__).parent.parent.parent
EXAMPLES = sorted((ROOT / "inventories").glob("*.yaml"))

FULL = """\
cluster: full
product: a2
profile: rec-sdk-tf
defaults: {user: root, port: 2222, identity: ~/key, container: train, engine: podman}
nodes:
  atlas-[1-3]: {address: "192.0.2.[1-3]", leaf: leaf-1, interface: eth0}
  atlas-4:
    address: 192.0.2.4
    cluster_address: 198.51.100.4
    devices: [{device_id: 1, device_ip: 198.51.100.40}, 3]
    env: {C: d}
    fingerprint: SHA256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA
primary: atlas-2
ssh: {port: 7722, via: engine, trust: pinned}
resources: {mode: no-rank-table, chief_port: 61001}
launcher: {kind: mpirun, mpi_args: [--mca, btl_tcp_links, "2"]}
code: {path: /w, source: ./code, exclude: ["*.log"], python: /usr/bin/python3}
data: [/data/criteo]
logs: {max_size: 256 MiB}
env: {A: b}
"""


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ASCENDBOOT_INVENTORY", raising=False)


def full(tmp_path: Path) -> Path:
    path = tmp_path / "full.yaml"
    path.write_text(FULL)
    return path


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.name)
def test_every_example_comes_back_as_it_was_read(path: Path) -> None:
    cluster = load(path)
    record = json.loads(json.dumps(record_of(cluster, "x")))
    assert cluster_of(record, "x") == cluster
    assert cluster_of(record, "y") is None


def test_every_kind_of_value_comes_back(tmp_path: Path) -> None:
    cluster = load(full(tmp_path))
    record = json.loads(json.dumps(record_of(cluster, "x")))
    assert cluster_of(record, "x") == cluster
    assert repr(cluster_of(record, "x")) == repr(cluster)


def test_a_verb_after_setup_does_not_read_the_inventory_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = full(tmp_path)
    cluster = load(path)
    remember_inventory(path, cluster)
    monkeypatch.setattr(common, "read_cluster", lambda *_, **__: pytest.fail("read again"))
    assert wanted_cluster(None) == (path, cluster)


def test_a_changed_inventory_is_read_again(tmp_path: Path) -> None:
    path = full(tmp_path)
    remember_inventory(path, load(path))
    path.write_text(FULL.replace("chief_port: 61001", "chief_port: 61002"))
    _, cluster = wanted_cluster(None)
    assert cluster.chief_port == 61002


@pytest.mark.parametrize("text", ["cluster: full\nnodes: {a: {addr", "cluster: full\n", ""])
def test_an_inventory_that_is_half_edited_when_setup_ends_is_no_trouble_of_setup(
    tmp_path: Path, text: str
) -> None:
    path = full(tmp_path)
    before = load(path)
    path.write_text(text)
    remember_inventory(path, before)
    assert not (tmp_path / ".ascendboot/read.json").exists()
    assert (tmp_path / ".ascendboot/current").read_text() == "full.yaml\n"


def test_an_inventory_that_changed_while_setup_ran_is_not_remembered(tmp_path: Path) -> None:
    path = full(tmp_path)
    before = load(path)
    path.write_text(FULL.replace("chief_port: 61001", "chief_port: 61002"))
    remember_inventory(path, before)
    _, cluster = wanted_cluster(None)
    assert cluster.chief_port == 61002


@pytest.mark.parametrize("variable", ["HOME", "version", "user"])
def test_the_digest_depends_on_what_else_counts(
    variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = full(tmp_path)
    before = digest(path)
    if variable == "HOME":
        monkeypatch.setenv("HOME", "/elsewhere")
    elif variable == "version":
        monkeypatch.setattr(kept, "__version__", "99")
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 4711)
    assert digest(path) not in (before, None)


def test_a_pipe_is_left_to_be_read_once(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.yaml"
    os.mkfifo(pipe)
    assert digest(pipe) is None


def test_what_is_missing_or_too_large_has_no_digest(tmp_path: Path) -> None:
    large = tmp_path / "large.yaml"
    large.write_bytes(b"#" * (1024 * 1024 + 1))
    assert digest(large) is None
    assert digest(tmp_path / "none.yaml") is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@given(document=st.dictionaries(st.sampled_from(["digest", "cluster", "x"]), JSON))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_record_of_another_form_counts_as_none(document: dict[str, object]) -> None:
    assert cluster_of(document, "x") is None


def test_a_record_that_is_not_as_it_was_written_counts_as_none(tmp_path: Path) -> None:
    record = record_of(load(full(tmp_path)), "x")
    text = record["cluster"]
    assert isinstance(text, str)
    for damaged in (text.replace("2222", '"2"'), text.replace("192.0.2.3", "192.0.2.8"), "", "{}"):
        assert damaged != text
        assert cluster_of({**record, "cluster": damaged}, "x") is None


@pytest.mark.parametrize(
    "room", ["inventory/load.py", "hccl/page.py", "model/cluster.py", "profiles.py"]
)
def test_the_digest_depends_on_what_reads_inventories(
    room: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clone = tmp_path / "clone"
    shutil.copytree(ROOT / "ascendboot", clone, ignore=shutil.ignore_patterns("__pycache__", "lab"))
    monkeypatch.setattr(ascendboot, "__path__", [str(clone)])
    path = full(tmp_path)
    before = digest(path)
    assert before is not None
    assert digest(path) == before
    os.utime(clone / room, ns=(0, 1))
    assert digest(path) not in (before, None)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"digest": "x"}', "[" * 100_000])
def test_a_broken_record_costs_only_the_reading(text: str, tmp_path: Path) -> None:
    path = full(tmp_path)
    cluster = load(path)
    remember_inventory(path, cluster)
    (tmp_path / ".ascendboot" / "read.json").write_text(text)
    assert wanted_cluster(None) == (path, cluster)
