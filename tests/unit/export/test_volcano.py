"""A job as YAML of a VolcanoJob and back: valid, nothing lost in silence, nothing hostile read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from ascendboot.errors import InventoryError, UsageError
from ascendboot.export.from_volcano import read_job
from ascendboot.export.volcano import PROFILES, Job, export, facts
from ascendboot.inventory.load import load
from ascendboot.inventory.schema import resolve, whole
from ascendboot.value import replace
from tests.unit.cli.calls import called

DATA = Path(__file__).parent.parent.parent / "data/volcano"
GUIDE, PAGE = DATA / "guide.yaml", DATA / "routing-page.yaml"
SCHEMA = json.loads((DATA / "vcjob-schema.json").read_text())
JOB = Job(script="main.py", args=("--text", "it's $(HOME) ✓"), image="swr.example/x:1", region="r")
INVENTORY = (DATA / "inventory.yaml").read_text()
CASES = yaml.safe_load((DATA / "cases.yaml").read_text())


@pytest.fixture(autouse=True)
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("demo").mkdir()
    Path("i.yaml").write_text(INVENTORY)


def changed(*changes: tuple[str, str]) -> Path:
    """The inventory in this folder, with these words replaced."""
    text = INVENTORY
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    Path("i.yaml").write_text(text)
    return Path("i.yaml")


def exported(job: Job = JOB, *changes: tuple[str, str]) -> tuple[str, list[str]]:
    return export(changed(*changes), job)


def imported(text: str) -> tuple[dict[str, Any], list[str], list[str]]:
    Path("job.yaml").write_text(text)
    inventory, words, notes = read_job(Path("job.yaml"))
    return yaml.safe_load(inventory), words, notes


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
    left = {key.removesuffix("[]") for of in keys["left"].values() for key in of}
    known = {*keys["carried"]} | left
    for top, of in keys["kept"].items():
        inner = {key for key in keys_of_all() if key.partition(".")[0] == top}
        known |= inner if of is True else {f"{top}.{key}" for key in of}
    return known


def test_every_key_of_an_inventory_is_carried_over_kept_or_left_with_a_reason() -> None:
    assert accounted_keys("kubernetes.yaml") == keys_of_all()


# Of volcano ed72c7c8.
EVENTS = {
    *("PodFailed", "PodEvicted", "PodPending", "Unknown"),
    *("TaskCompleted", "TaskFailed", "JobUpdated"),
}
ACTIONS = {
    *("AbortJob", "RestartJob", "RestartTask", "RestartPod", "RestartPartition"),
    *("TerminateJob", "CompleteJob", "ResumeJob"),
}


def has_what_the_webhook_accepts(made: dict[str, Any]) -> bool:
    """Whether names, numbers and policies are such that Volcano starts the job."""
    [task] = made["spec"]["tasks"]
    all_policies = made["spec"]["policies"], task["policies"]
    return (
        (task["name"], made["spec"]["minAvailable"]) == ("worker", task["replicas"])
        and all({*policy} == {"event", "action"} for of in all_policies for policy in of)
        and all(len({p["event"] for p in of} & EVENTS) == len(of) for of in all_policies)
        and {p["action"] for of in all_policies for p in of} <= ACTIONS
    )


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
    assert has_what_the_webhook_accepts(made)
    has_table = profile == "cabinet" or mode == "rank-table"
    by_profile = {"lite": "configmap1980-two-node", "mindcluster": "rings-config-two-node"}
    wanted = [by_profile[profile]] if has_table and profile in by_profile else []
    assert [each["metadata"]["name"] for each in maps] == ["two-node-start", *wanted]
    assert ("configmap1980" in made["spec"]["plugins"]) == (has_table and profile != "mindcluster")
    assert ("ssh" in made["spec"]["plugins"]) == (launcher != "torchrun")
    assert made["spec"]["minAvailable"] == made["spec"]["tasks"][0]["replicas"] == 4
    last = "RestartJob" if mode == "rank-table" else "TerminateJob"
    assert [policy["action"] for policy in made["spec"]["policies"]] == ["RestartJob", last]


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


def test_the_way_there_and_back_loses_nothing_that_is_not_listed() -> None:
    text, left = exported()
    before = load(Path("i.yaml"))
    inventory, words, notes = imported(text)
    for name in inventory["nodes"]:
        inventory["nodes"][name]["address"] = "192.0.2.[11-14]"
    Path("back.yaml").write_text(yaml.safe_dump(inventory))
    after = load(Path("back.yaml"))
    env = before.env_of(before.nodes[0])
    assert env.pop("HF_TOKEN") == "not-to-be-seen"
    folder: Any = {"mpi_args": (), "firewall": False, "env": env}
    changed: Any = {"nodes": after.nodes, "primary_name": "worker-0", "source": "back.yaml"}
    assert after == replace(before, **folder, **changed)
    assert [(n.container, n.device_count) for n in after.nodes] == [("rec-sdk", 8)] * 4
    assert words == ["train", "main.py", "--", *JOB.args]
    again = imported(exported(replace(JOB, max_retry=5))[0])[1]
    assert again[:5] == ["train", "main.py", "--supervise", "--max-restarts", "5"]
    assert [note.split(": ")[1] for note in left] == [
        *("nodes.atlas-[1-4].address", "nodes.atlas-[1-4].leaf", "defaults.user", "firewall"),
        *("env HF_TOKEN", "/workspace/demo, /data/criteo, /data/checkpoints"),
        "product, resources, code, logs, checkpoint, parallel",
    ]
    assert [note.split(": ")[1].rpartition(".")[2] for note in notes] == [
        *("env HF_TOKEN", "namespace", "fault-scheduling", "queue", "policies[0]"),
        *("restartPolicy", "image", "imagePullPolicy"),
    ]


def test_the_words_of_a_job_reach_its_container_unchanged() -> None:
    made = yaml.safe_load(exported()[0])["items"][-1]
    args = made["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["args"]
    # Kubernetes turns $$ into $.
    assert [word.replace("$$", "$") for word in args][-3:] == ["main.py", *JOB.args]


def test_values_of_secrets_stand_nowhere() -> None:
    text, notes = exported()
    assert "not-to-be-seen" not in text + "".join(notes)
    assert "secretKeyRef: {name: two-node-secrets, key: HF_TOKEN}" in text
    Path("job.yaml").write_text(text.replace("OF_NODES", "MY_PASSWORD"))
    inventory, _, notes = read_job(Path("job.yaml"))
    assert "MY_PASSWORD: secret" in "".join(notes)
    assert '#  "MY_PASSWORD": "?"\n' in inventory


@pytest.mark.parametrize("case", CASES["refused"], ids=lambda case: case["message"])
def test_what_cannot_be_exported_is_refused(case: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as caught:
        exported(replace(JOB, **case["job"]), *case["changes"])
    assert case["message"] in str(caught.value)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("name", ["guide", "routing-page", "shell-line"])
def test_the_yaml_of_the_guides_is_read(name: str) -> None:
    text = (DATA / f"{name}.yaml").read_text()
    jsonschema.validate(yaml.safe_load(text), SCHEMA)
    inventory, words, notes = imported(text)
    left_out = [note.split(": ")[1] for note in notes]
    wanted = json.loads((DATA / f"{name}.json").read_text())
    assert {"inventory": inventory, "train": words, "left_out": left_out} == wanted


def test_nothing_of_the_yaml_is_dropped_in_silence() -> None:
    whole_job = yaml.safe_load(GUIDE.read_text())
    spec = whole_job["spec"]["tasks"][0]["template"]["spec"]
    for place in (whole_job, whole_job["spec"], spec, spec["containers"][0]):
        place["unheardOf"] = {"a": [1, {"b": None, "c": True}]}
    spec["containers"][0]["env"] = [{"name": "RANK", "value": "1"}, {"name": "A", "value": 2}]
    inventory, _, notes = imported(yaml.safe_dump(whole_job))
    assert sum("unheardOf: left out" in note for note in notes) == 4
    assert sum("env[0]: left out" in note for note in notes) == 1
    assert inventory["env"] == {"A": "2"}


@pytest.mark.parametrize("case", CASES["hostile"], ids=lambda case: case["message"])
def test_hostile_yaml_is_refused(case: dict[str, str]) -> None:
    Path("job.yaml").write_text(case["text"])
    with pytest.raises((InventoryError, UsageError)) as caught:
        read_job(Path("job.yaml"))
    assert case["message"] in str(caught.value)


@pytest.mark.parametrize("hostile", ["x", {"a": 1}, [{"name": ["\n#"]}]], ids=str)
def test_odd_values_anywhere_raise_nothing(hostile: Any) -> None:
    """Every value of the page is replaced, each alone."""
    page = yaml.safe_load(PAGE.read_text())
    ends = [tuple(place[1:].split(".")) for place, _ in leaves(page)]
    for path in {end[:depth] for end in ends for depth in range(1, len(end))}:
        inner = whole_job = deepcopy(page)
        *way, last = (int(step) if step.isdigit() else step for step in path)
        for step in way:
            inner = inner[step] if step in inner or isinstance(step, int) else {}
        inner[last] = hostile
        try:
            found, words, notes = imported(json.dumps(whole_job))
        except UsageError:
            assert path[0] in ("apiVersion", "kind", "spec")
        else:
            assert isinstance(found["nodes"], dict)
            assert words[0] == "train"
            assert notes


def test_both_verbs_print_yaml_and_list_what_is_left_out(tmp_path: Path) -> None:
    line = "export.volcano main.py --inventory i.yaml --image x:1"
    done = called(f"{line} -- --steps 3", tmp_path)
    assert (done.returncode, yaml.safe_load(done.stdout)["kind"]) == (0, "List")
    assert "i.yaml:3: nodes.atlas-[1-4].address: left out: Kubernetes chooses" in done.stderr
    (tmp_path / "job.yaml").write_text(done.stdout)
    plain = called("import.volcano job.yaml", tmp_path)
    assert "#    ascendboot train main.py -- --steps 3\n" in plain.stdout
    assert json.loads(called("import.volcano job.yaml --json", tmp_path).stdout) == {
        "inventory": plain.stdout,
        "train": ["train", "main.py", "--", "--steps", "3"],
        "not_carried_over": plain.stderr.splitlines(),
    }
    (tmp_path / "new.yaml").write_text(plain.stdout)
    refused = called("export.volcano a.py --image x --inventory new.yaml", tmp_path)
    assert (refused.returncode, "address" in refused.stderr) == (2, True)
    without = called("export.volcano main.py --inventory i.yaml", tmp_path)
    assert (without.returncode, without.stdout) == (2, "")
    assert without.stderr.startswith("--image: is missing: ")
