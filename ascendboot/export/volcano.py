"""The job of an inventory as YAML of a VolcanoJob."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal

import yaml
from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from ascendboot.errors import UsageError
from ascendboot.inventory.load import load, shown
from ascendboot.inventory.messages import validate
from ascendboot.inventory.schema import InventoryKeys
from ascendboot.inventory.yaml import Mark, read
from ascendboot.model.cluster import Cluster
from ascendboot.model.names import names_file_here
from ascendboot.model.secrets import is_secret_value
from ascendboot.templates import installed_templates, script
from ascendboot.value import Value, data_file, replace

Profile = Literal["lite", "cabinet", "mindcluster"]
PROFILES: tuple[Profile, ...] = ("lite", "cabinet", "mindcluster")
ANNOTATION = "ascendboot/inventory"
"""Holds the keys that Kubernetes has no field for."""
BAD_WORDS = "an argument is not UTF-8, or a secret, which belongs under `env`: change it"
_ROUTED, _LONGEST_JOB, _LONGEST_POD = 3, 52, 63


class Job(Value, kw_only=True):
    """What an inventory does not state of a job in Kubernetes."""

    script: str
    args: tuple[str, ...] = ()
    profile: Profile = "lite"
    image: str
    name: str | None = None
    namespace: str = "default"
    queue: str = "default"
    max_retry: int | None = None
    """How often Volcano starts the job again; None: never."""
    region: str | None = None
    """Where the vendor's cloud has the script of cabinet routing."""


def export(path: Path, job: Job) -> tuple[str, list[str]]:
    """The YAML of a job on the cluster of an inventory, and what it does not carry over."""
    cluster = load(path, with_own_table=False)
    inventory, kept, notes = accounted(path, facts()["keys"])
    cluster = replace(cluster, mpi_args=tuple(inventory.launcher.mpi_args))  # without a firewall's
    values, own_notes = _values(cluster, job)
    own_notes[", ".join(kept)] = f"the annotation {ANNOTATION} keeps this for import.volcano"
    return rendered("job.yaml.j2", values, cluster, job, kept), notes + noted(cluster, own_notes)


def accounted(
    path: Path, keys: Mapping[str, Any]
) -> tuple[InventoryKeys, dict[str, Any], list[str]]:
    """The keys of an inventory, those to keep beside the job, and a note for each left out."""
    sheet = read(path, file=shown(path))
    inventory = validate(sheet)
    kept = inventory.model_dump(mode="json", exclude_unset=True, include=keys["kept"])
    marks = dict(reversed([*stated(sheet.data, sheet.mark)]))
    reasons = {key: why for why, left in keys["left"].items() for key in left if key in marks}
    notes = [
        f"{sheet.file}:{marks[key].line}: {marks[key].path}: left out: {reasons[key]}"
        for key in sorted(reasons, key=lambda key: marks[key].line)
    ]
    return inventory, kept, notes


def rendered(
    name: str, values: Mapping[str, object], cluster: Cluster, job: object, kept: Mapping[str, Any]
) -> str:
    """The text of a job, which has no value of a secret."""
    more = {"annotation": ANNOTATION, "kept": json.dumps(kept) if kept else ""}
    text = template(name).render({**values, **more}, cluster=cluster, job=job)
    if any(secret in text for secret in cluster.secrets):
        refuse(cluster, ["the value of a secret variable stands elsewhere, too: choose another"])
    return text


def noted(cluster: Cluster, notes: Mapping[str, str]) -> list[str]:
    """A line for each note that has a key and a text."""
    return [f"{cluster.source}: {key}: {what}" for key, what in notes.items() if key and what]


def launcher_of(cluster: Cluster) -> str:
    """The launcher that is stated, or what `auto` becomes."""
    usual = "torchrun" if cluster.resource_mode == "root-info" else "mpirun"
    return usual if cluster.launcher == "auto" else cluster.launcher


def refuse(cluster: Cluster, problems: Iterable[str]) -> None:
    """Raise a UsageError if there are problems."""
    lines = [f"{cluster.source}: could not be exported: {text}" for text in problems]
    if lines:
        raise UsageError(*lines)


def _values(cluster: Cluster, job: Job) -> tuple[dict[str, object], dict[str, str]]:
    """What the template needs besides cluster and job, and notes by key."""
    product = f" {cluster.product}" if job.profile == "mindcluster" else ""
    known, name = facts()["clusters"].get(job.profile + product), job.name or label_of(cluster.name)
    mode, launcher, driver = cluster.resource_mode, launcher_of(cluster), facts()["driver"]
    is_cabinet = job.profile == "cabinet"
    is_routed = is_cabinet and len(cluster.nodes) >= _ROUTED
    has_table = mode != "root-info" or is_cabinet
    counts = {node.device_count or len(node.devices) for node in cluster.nodes}
    lacks_region = is_routed and not job.region
    lacks_torchrun = is_cabinet and launcher != "torchrun"
    differ = counts == {0} or len(counts) > 1
    is_here = names_file_here(job.script)
    is_no_name = not _is_job_name(name, len(cluster.nodes))
    problems = {
        "product: is auto: state it; MindCluster's labels differ by product": known is None,
        "--region: is missing: cabinet routing loads its script there": lacks_region,
        "launcher.kind: is not torchrun, which cabinet routing needs": lacks_torchrun,
        "devices: differ, or are not stated: state `defaults: {devices: 8}`": differ,
        f"{job.script}: is here, not in the pods: name it as seen from code.path": is_here,
        BAD_WORDS: has_bad_words(job.args),
        f"name: {name} is too long, or not lower case, digits and -: choose another": is_no_name,
    }
    refuse(cluster, (text for text, is_so in problems.items() if is_so))
    container = label_of(cluster.primary.container or "worker")
    of_env, notes = _env(cluster)
    own = dict.fromkeys((*filter(None, [cluster.code_path]), *cluster.data))
    mounts = driver | {f"data-{n}": path for n, path in enumerate(own)}
    if cluster.checkpoint and cluster.checkpoint.dir not in own:
        mounts |= {"ascendboot-checkpoint": cluster.checkpoint.dir}
    folders = ", ".join(path for volume, path in mounts.items() if volume not in driver)
    same_container = {container} == {node.container for node in cluster.nodes}
    same_mode = mode == ("rank-table" if has_table else "root-info")
    notes |= {
        "cluster": "" if name == cluster.name else f"the job is called {name}",
        "launcher.kind": f"auto becomes {launcher}" if cluster.launcher == "auto" else "",
        "resources.mode": "" if same_mode else f"{mode} becomes rank-table",
        "nodes": "too few for cabinet routing" if is_cabinet and not is_routed else "",
        "container": "" if same_container else f"ranks run in the container {container}",
        "container.image": "left out, with mounts, shm and env: pods have an image of --image"
        if any(node.creation for node in cluster.nodes)
        else "",
        "code.path": "" if cluster.code_path else f"not stated: the image must have {job.script}",
        folders: "on every server of Kubernetes; or replace hostPath by a claim",
    }
    words = (launcher, *cluster.mpi_args, "--", cluster.python, job.script, *job.args)
    values = {**known, **of_env, "name": name, "container": container, "launcher": launcher}
    values |= {"routed": is_routed, "has_table": has_table, "devices": max(counts)}
    values |= {"start": script("volcano-start.sh"), "args": [_literal(word) for word in words]}
    return values | {"mounts": mounts}, notes


def _env(cluster: Cluster) -> tuple[dict[str, object], dict[str, str]]:
    """The variables that all pods have, the names of secrets among them, and notes."""
    plain, secrets, left = shared_env(cluster, facts()["variables"])
    notes = {f"env {left}": "left out: differs between nodes, or the pod sets it"} if left else {}
    if secrets:
        notes[f"env {', '.join(secrets)}"] = "secret: create the Secret that the YAML names"
    return {"env": {n: _literal(v) for n, v in plain.items()}, "secrets": secrets}, notes


def shared_env(cluster: Cluster, taken: Collection[str]) -> tuple[dict[str, str], list[str], str]:
    """The variables that all nodes share, the names of secret ones, and those of all others."""
    envs = [cluster.env_of(node) for node in cluster.nodes]
    common = [n for n, value in envs[0].items() if all(env.get(n) == value for env in envs)]
    common = [name for name in common if name not in taken]
    left = ", ".join(sorted({name for env in envs for name in env}.difference(common)))
    secrets = [name for name in common if cluster.is_secret(name, envs[0][name])]
    return {name: envs[0][name] for name in common if name not in secrets}, secrets, left


def has_bad_words(args: Iterable[str]) -> bool:
    """Whether an argument cannot stand in a text that others read."""
    return any(is_secret_value(w) or re.search("[\ud800-\udfff]", w) for w in args)


def _literal(word: str) -> str:
    """A word in which Kubernetes replaces no $(NAME)."""
    return word.replace("$", "$$")


def label_of(name: str) -> str:
    """A name as Kubernetes takes it."""
    return re.sub("[^a-z0-9]+", "-", name.lower()).strip("-")


def stated(value: object, mark: Mark, key: str = "") -> Iterator[tuple[str, Mark]]:
    """Every key in an inventory as `kubernetes.yaml` calls it, with its place."""
    yield f"{key}[]" if isinstance(value, list) else key, mark
    for name, inner in value.items() if isinstance(value, dict) else ():
        is_node = key in ("nodes", "groups") or (name == "defaults" and not key)
        yield from stated(inner, mark.at(name), "node" if is_node else f"{key}.{name}".lstrip("."))


def _is_job_name(name: str, pods: int) -> bool:
    """Whether Volcano's webhook, which checks more than the CRD, accepts the name of a job."""
    is_short = len(name) <= _LONGEST_JOB and len(f"{name}-worker-{pods - 1}") <= _LONGEST_POD
    return is_short and re.fullmatch("[a-z0-9]([-a-z0-9]*[a-z0-9])?", name) is not None


@cache
def facts(name: str = "kubernetes.yaml") -> dict[str, Any]:
    """The contents of a file beside this module."""
    return data_file(f"export/{name}", dict[str, Any])


@cache
def template(name: str) -> Template:
    """A template; `q` quotes text, `yaml` and `flow` write any value, `sh` a word of a shell."""
    folders = ("volcano", "slurm", "inventory")
    loader = FileSystemLoader([installed_templates() / name for name in folders])
    made = Environment(loader=loader, undefined=StrictUndefined, autoescape=False)  # noqa: S701 - YAML
    made.trim_blocks = made.lstrip_blocks = made.keep_trailing_newline = True
    made.filters["q"] = partial(_dumped, default_style='"')
    made.filters["yaml"] = _dumped
    made.filters["flow"] = partial(_dumped, default_flow_style=True)
    made.filters["sh"] = shlex.quote
    return made.get_template(name)


def _dumped(value: object, default_style: str | None = None, **more: bool) -> str:
    plain = str(value) if default_style else value
    options: dict[str, Any] = {"default_style": default_style, "sort_keys": False, **more}
    return str(yaml.safe_dump(plain, **options, allow_unicode=True, width=1 << 20)).strip()
