"""A job as YAML of a VolcanoJob: valid, and nothing lost in silence."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from ascendboot.errors import UsageError
from ascendboot.export.volcano import PROFILES, Job, export, facts, refusals
from ascendboot.inventory.schema import resolve, whole
from ascendboot.value import replace
from tests.unit.cli.calls import called

DATA = Path(__file__).parent.parent.parent / "data/volcano"
PAGE = DATA / "routing-page.yaml"
SCHEMA = json.loads((DATA / "vcjob-schema.json").read_text())
JOB = Job(script="main.py", args=("--text", "it's $(HOME) ✓"), image="swr.example/x:1", region="r")
INVENTORY = (DATA / "inventory.yaml").read_text()
CASES = yaml.safe_load((DATA / "cases.yaml").read_text())


@pytest.fixture(autouse=True)
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("demo").mkdir()
    Path("i.yaml").write_text(INVENTORY)


def exported(job: Job = JOB, *changes: tuple[str, str]) -> tuple[str, list[str]]:
    text = INVENTORY
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    Path("i.yaml").write_text(text)
    return export(Path("i.yaml"), job)


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    for key, below in inner:
        place = f"{path}.{key}"
        yield from leaves(below, place) if isinstance(below, dict | list) else [(place, below)]


def keys_of(shape: dict[str, Any], path: str = "") -> Iterator[str]:
    for name, of in resolve(shape).get("properties", {}).items():
        key = "node" if name == "defaults" else f"{path}.{name}".lstrip(".")
        if name not in ("nodes", "groups") or path:
            yield from ([] if name == "hccl" else [*keys_of(of, key)]) or [key]


def keys_of_all() -> set[str]:
    return {*keys_of(whole())}


def accounted_keys(file: str) -> set[str]:
    keys = facts(file)["keys"]
    known = {
        *keys["carried"],
        *(key.removesuffix("[]") for of in keys["left"].values() for key in of),
    }
    for top, of in keys["kept"].items():
        inner = {key for key in keys_of_all() if key.partition(".")[0] == top}
        known |= inner if of is True else {f"{top}.{key}" for key in of}
    return known


def test_every_key_of_an_inventory_is_carried_over_kept_or_left_with_a_reason() -> None:
    assert accounted_keys("kubernetes.yaml") == keys_of_all()


LAUNCHERS = ("torchrun", "root-info"), ("mpirun", "root-info"), ("horovod", "rank-table")


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize(("launcher", "mode"), [*LAUNCHERS, ("torchrun", "rank-table")])
def test_every_export_is_valid_for_the_crd_and_the_webhook(
    profile: Any, launcher: str, mode: str
) -> None:
    job = replace(JOB, profile=profile, max_retry=3 if mode == "rank-table" else None)
    changes = ("kind: torchrun", f"kind: {launcher}"), ("root-info, chief", f"{mode}, chief")
    if profile == "cabinet" and launcher != "torchrun":
        with pytest.raises(UsageError, match="cabinet routing needs"):
            exported(job, *changes)
        return
    *maps, made = yaml.safe_load(exported(job, *changes)[0])["items"]
    jsonschema.validate(made, SCHEMA)
    assert [*refusals(made)] == []
    has_table = profile == "cabinet" or mode == "rank-table"
    by_profile = {"lite": "configmap1980-two-node", "mindcluster": "rings-config-two-node"}
    wanted = [by_profile[profile]] if has_table and profile in by_profile else []
    assert [each["metadata"]["name"] for each in maps] == ["two-node-start", *wanted]
    assert ("configmap1980" in made["spec"]["plugins"]) == (has_table and profile != "mindcluster")
    assert ("ssh" in made["spec"]["plugins"]) == (launcher != "torchrun")
    assert made["spec"]["minAvailable"] == made["spec"]["tasks"][0]["replicas"] == 4
    assert [policy["action"] for policy in made["spec"]["policies"]] == [
        "RestartJob",
        "RestartJob" if mode == "rank-table" else "TerminateJob",
    ]


def test_cabinet_routing_is_as_on_its_page() -> None:
    made = yaml.safe_load(exported(replace(JOB, profile="cabinet", name="yourvcjobname"))[0])
    ours, page = dict(leaves(made["items"][-1])), dict(leaves(yaml.safe_load(PAGE.read_text())))
    by_name = [{value for path, value in of.items() if ".env." not in path} for of in (ours, page)]
    assert by_name[1] - by_name[0] == {
        *("pytorch-npu", "swr.xxxxxx.com/xxxx/custom_pytorch_npu:v1", 6, 1, "-c", "OnFailure"),
        *(value for value in page.values() if str(value).startswith("wget")),
    }
    env = [{v for p, v in of.items() if ".env." in p and p.endswith("name")} for of in (ours, page)]
    assert env[1] - env[0] == set()


def test_what_kubernetes_has_no_field_for_is_listed_and_kept() -> None:
    text, left = exported()
    assert [note.split(": ")[1] for note in left] == [
        *("nodes.atlas-[1-4].address", "nodes.atlas-[1-4].leaf", "defaults.user", "firewall"),
        *("env HF_TOKEN", "/workspace/demo, /data/criteo, /data/checkpoints"),
        "product, resources, code, logs, checkpoint, parallel",
    ]
    annotations = yaml.safe_load(text)["items"][-1]["metadata"]["annotations"]
    kept, stated = json.loads(annotations["ascendboot/inventory"]), yaml.safe_load(INVENTORY)
    assert kept["parallel"] == stated["parallel"]
    assert kept["product"] == stated["product"]


def test_the_words_of_a_job_reach_its_container_unchanged() -> None:
    made = yaml.safe_load(exported()[0])["items"][-1]
    args = made["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["args"]
    # Kubernetes turns $$ into $.
    assert [word.replace("$$", "$") for word in args][-3:] == ["main.py", *JOB.args]


def test_values_of_secrets_stand_nowhere() -> None:
    text, notes = exported()
    assert "not-to-be-seen" not in text + "".join(notes)
    assert "secretKeyRef: {name: two-node-secrets, key: HF_TOKEN}" in text


@pytest.mark.parametrize("case", CASES["refused"], ids=lambda case: case["message"])
def test_what_cannot_be_exported_is_refused(case: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as caught:
        exported(replace(JOB, **case["job"]), *case["changes"])
    assert case["message"] in str(caught.value)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("case", CASES["webhook"], ids=lambda case: case["message"])
def test_the_rules_of_the_webhook(case: dict[str, Any]) -> None:
    spec = {"minAvailable": 0, "tasks": [{"name": "a", "replicas": 2}], **case["spec"]}
    [message] = refusals({"metadata": {"name": "j"}, "spec": spec})
    assert case["message"] in message


def test_the_verb_prints_yaml_and_lists_what_is_left_out(tmp_path: Path) -> None:
    line = "export.volcano main.py --inventory i.yaml --image x:1"
    done = called(f"{line} -- --steps 3", tmp_path)
    assert (done.returncode, yaml.safe_load(done.stdout)["kind"]) == (0, "List")
    assert "i.yaml:3: nodes.atlas-[1-4].address: left out: Kubernetes chooses" in done.stderr
    assert json.loads(called(f"{line} --json -- --steps 3", tmp_path).stdout) == {
        "yaml": done.stdout,
        "not_carried_over": done.stderr.splitlines(),
    }
    without = called("export.volcano main.py --inventory i.yaml", tmp_path)
    assert (without.returncode, without.stdout) == (2, "")
    assert without.stderr.startswith("--image: is missing: ")
