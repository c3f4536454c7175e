"""An inventory and the `train` command from the YAML of a VolcanoJob."""

from __future__ import annotations

import json
import posixpath
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ascendboot.errors import UsageError
from ascendboot.export.volcano import ANNOTATION, facts, template
from ascendboot.inventory.cross_checks import why_not_env
from ascendboot.inventory.load import shown
from ascendboot.inventory.yaml import Location, Mark, Raw, Sheet, read
from ascendboot.model.secrets import is_secret_name, is_secret_value

_API = "batch.volcano.sh/v1alpha1"
_START = "/ascendboot/start.sh"
_NPU = re.compile(r"huawei\.com/(ascend|npu)", re.IGNORECASE)
_PYTHON = re.compile(r"(.*/)?python[0-9.]*")
_LAUNCHER = re.compile(
    "(?P<torchrun>torchrun|torch.distributed)|(?P<horovod>horovodrun)|(?P<mpirun>mpi(run|exec))"
)


class _Document:
    """A VolcanoJob that is being read; `used` has the places that need no note."""

    def __init__(self, sheet: Sheet, base: Location) -> None:
        self.sheet, self.base = sheet, base
        self.used: set[Location] = set()

    def peek(self, *location: str | int) -> Any:  # noqa: ANN401 - any value of YAML
        """The value at a location; None: there is none."""
        value: Any = self.sheet.data
        try:
            for step in (*self.base, *location):
                value = value[step]
        except (KeyError, IndexError, TypeError):
            return None
        return value

    def text(self, *location: str | int, uses: bool = False) -> str:
        """The scalar at a location, empty if there is none; with `uses` it needs no note."""
        value = self.peek(*location)
        if isinstance(value, dict | list) or value is None:
            return ""
        self.used |= {location} if uses else set()
        return (value.text if isinstance(value, Raw) else str(value)).replace("$$", "$")

    def each(self, *location: str | int) -> list[Location]:
        """The locations within a list or mapping."""
        found = self.peek(*location)
        if isinstance(found, list):
            return [(*location, index) for index in range(len(found))]
        return [(*location, key) for key in found] if isinstance(found, dict) else []

    def unused(self, *location: str | int) -> Iterator[Mark]:
        """The places that need a note; where nothing inside was used, the outermost."""
        inside = any(used[: len(location)] == location for used in self.used)
        if location not in self.used and not (inside and self.each(*location)):
            yield self.sheet.mark.at(*self.base, *location)
        for place in self.each(*location) if inside and location not in self.used else ():
            yield from self.unused(*place)


def read_job(path: Path) -> tuple[str, list[str], list[str]]:
    """The text of an inventory, the words of `train`, and what of the YAML has no counterpart."""
    sheet = read(path, file=shown(path), begins=f"`apiVersion: {_API}`", has_nulls=True)
    sheet.refuse_if_problems()
    whole = _Document(sheet, ())
    places: list[Location] = whole.each("items") if "items" in sheet.data else [()]
    kind = f"{_API} Job"
    jobs = [p for p in places if f"{whole.text(*p, 'apiVersion')} {whole.text(*p, 'kind')}" == kind]
    if len(jobs) != 1 or not whole.each(*jobs[0], "spec", "tasks"):
        remedy = f"give one with `apiVersion: {_API}`, `kind: Job` and spec.tasks"
        why = f"it holds {len(jobs)} VolcanoJobs: {remedy}"
        raise UsageError(f"{sheet.file}: could not be imported: {why}")
    job = _Document(sheet, jobs[0])
    values, words = _inventory(job)
    text = template("inventory.yaml.j2").render(values, train=shlex.join(words), file=sheet.file)
    notes = [f"{sheet.file}: env {name}: secret: state its value" for name in values["secrets"]]
    of_job = [place for place in places if values["name"] in whole.text(*place, "metadata", "name")]
    others = [sheet.mark.at(*place) for place in places if place not in of_job]
    for mark in sorted([*others, *job.unused()], key=lambda mark: mark.line):
        key = re.sub(r".*\.|\[.*", "", mark.path)
        why = facts()["unlike"].get(key, "ascendboot has no counterpart")
        notes.append(f"{sheet.file}:{mark.line}: {mark.path}: left out: {why}")
    return text, words, notes


def _inventory(job: _Document) -> tuple[dict[str, Any], list[str]]:
    """What the template of an inventory needs, and the words of `train`."""
    tasks = job.each("spec", "tasks")
    tasks = [task for task in tasks if _devices(job, task)] or tasks[:1]
    nodes = [_nodes(job, task) for task in tasks]
    pod = (*tasks[0], "template")
    container = (*pod, "spec", "containers", 0)
    alike = [*facts()["alike"]["job"], *((*pod, *at) for at in facts()["alike"]["pod"])]
    job.used.update(map(tuple, alike))
    if job.text("spec", "minAvailable") == str(sum(number for _, number, _ in nodes)):
        job.used.add(("spec", "minAvailable"))
    launcher, program, args = _command(job, container)
    python, script = program[0], program[1]
    env, secrets, own = _env(job, container)
    workdir = job.text(*container, "workingDir", uses=True)
    if script.startswith("/"):
        inside = workdir and script.startswith(f"{workdir}/")
        workdir = workdir if inside else posixpath.dirname(script)
        script = posixpath.relpath(script, workdir)
    is_ours = any(job.text(*place) == _START for place in job.each(*container, "command"))
    has_table = "RANK_TABLE_FILE" in own or "configmap1980" in str(job.each("spec", "plugins"))
    has_table |= not is_ours and "ring-controller" in str(job.each("metadata", "labels"))
    by_root_info = not has_table and launcher[:1] == ["torchrun"]
    keys: dict[str, Any] = {
        "resources": {"mode": "rank-table" if has_table else "root-info" if by_root_info else ""},
        "launcher": {"kind": "".join(launcher[:1]), "mpi_args": launcher[1:]},
        "code": {"path": workdir, "python": python},
        "data": [path for path in _folders(job, (*pod, "spec")) if path != workdir],
        "env": env,
    }
    if own.get("MASTER_PORT", "").isdecimal():
        keys["resources"]["chief_port"] = int(own["MASTER_PORT"][:6])
    for key, value in _annotated(job).items():
        keys[key] = {**keys.get(key, {}), **value} if isinstance(value, dict) else value
    sections = {
        key: of if not isinstance(of, dict) else {n: v for n, v in of.items() if v}
        for key, of in keys.items()
    }
    rest = {key: value for key, value in sections.items() if value}
    values: dict[str, Any] = {"rest": rest, "nodes": nodes, "secrets": secrets}
    values |= {"container": job.text(*container, "name", uses=True)}
    values |= {"name": job.text("metadata", "name", uses=True) or "imported"}
    values |= {"image": job.text(*container, "image")}
    return values, ["train", script, *_supervision(job, tasks), *(["--", *args] if args else [])]


def _devices(job: _Document, task: Location) -> int:
    """How many NPUs a pod of a task has; 0: none."""
    resources, found = (*task, "template", "spec", "containers", 0, "resources"), 0
    for place in (*job.each(*resources, "requests"), *job.each(*resources, "limits")):
        if _NPU.match(str(place[-1])) and re.fullmatch("[1-9][0-9]{0,3}", job.text(*place)):
            found = int(job.text(*place, uses=True))
    return found


def _nodes(job: _Document, task: Location) -> tuple[str, int, int]:
    """The names of the pods of a task, as one range, their number, and the devices of each."""
    name, replicas = (job.text(*task, key, uses=True) for key in ("name", "replicas"))
    number = int(replicas) if re.fullmatch("[1-9][0-9]{0,5}", replicas) else 1
    pods = f"{name or 'worker'}-{'0' if number == 1 else f'[0-{number - 1}]'}"
    return pods, number, _devices(job, task)


def _command(job: _Document, container: Location) -> tuple[list[str], list[str], list[str]]:
    """The launcher with its options, interpreter and script, and the script's arguments."""
    places = [*job.each(*container, "command"), *job.each(*container, "args")]
    words = [job.text(*place, uses=True) for place in places]
    if words[1:2] == [_START] and "--" in words[3:-2]:
        begin = words.index("--") + 1
        return words[2 : begin - 1], words[begin : begin + 2], words[begin + 2 :]
    if "-c" in words[:-1]:
        shell = shlex.shlex(words[words.index("-c") + 1], posix=True, punctuation_chars=True)
        shell.whitespace_split = True
        try:
            words = list(shell)
        except ValueError:  # a quote without its partner
            words = []
    found = _LAUNCHER.search(" ".join(words))
    launcher = [found.lastgroup or ""] if found else []
    at = next((index for index, word in enumerate(words) if word.endswith(".py")), None)
    if at is None:
        job.used.difference_update(places)
        return launcher, ["", "SCRIPT"], []
    end = next((n for n in range(at, len(words)) if re.fullmatch("[;&|]+", words[n])), len(words))
    python = [*filter(_PYTHON.fullmatch, words[:at]), ""]
    return launcher, [python[0], words[at]], words[at + 1 : end]


def _env(job: _Document, container: Location) -> tuple[dict[str, str], list[str], dict[str, str]]:
    """The variables of the ranks, the names of secrets, and what an export sets itself."""
    env: dict[str, str] = {}
    own: dict[str, str] = {}
    secrets: list[str] = []
    for place in job.each(*container, "env"):
        name, value = job.text(*place, "name"), job.text(*place, "value")
        is_secret = is_secret_name(name) or is_secret_value(value)
        if name in facts()["variables"]:
            own[name] = value
        elif is_secret or job.each(*place, "valueFrom", "secretKeyRef"):
            secrets.append(name)
        elif job.each(*place, "valueFrom") or why_not_env(name):
            continue
        else:
            env[name] = value
        job.used.add(place)
    return env, secrets, own


def _folders(job: _Document, spec: Location) -> list[str]:
    """The paths of mounts that are neither of the driver nor made by an export."""
    volumes = {job.text(*place, "name"): place for place in job.each(*spec, "volumes")}
    found: list[str] = []
    for place in job.each(*spec, "containers", 0, "volumeMounts"):
        name, path = job.text(*place, "name"), job.text(*place, "mountPath")
        volume = volumes.get(name, place)
        is_ours = path in facts()["driver"].values() or name in facts()["volumes"]
        found += [path] if path and not is_ours else []
        is_alike = is_ours or job.text(*volume, "hostPath", "path") == path
        job.used |= {place, volume} if is_alike else {place}
    return found


def _supervision(job: _Document, tasks: list[Location]) -> list[str]:
    """The flags of `train` for what Volcano does when a pod fails."""
    flags: list[str] = []
    for place in (
        *job.each("spec", "policies"),
        *(p for t in tasks for p in job.each(*t, "policies")),
    ):
        events = {job.text(*at) for at in ((*place, "event"), *job.each(*place, "events"))}
        if events & {"PodFailed", "*", "TaskCompleted"}:
            job.used.add(place)
        if events & {"PodFailed", "*"} and job.text(*place, "action") == "RestartJob":
            retries = job.text("spec", "maxRetry", uses=True) or "3"
            flags = ["--supervise", "--max-restarts", retries]
    return flags


def _annotated(job: _Document) -> dict[str, Any]:
    """The keys that an export keeps in its annotation."""
    place = ("metadata", "annotations", ANNOTATION)
    try:
        found = json.loads(job.text(*place, uses=True) or "{}")
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        job.used.discard(place)
        return {}
    return {key: found[key] for key in facts()["keys"]["kept"] if key in found}
