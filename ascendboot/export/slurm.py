"""The job of an inventory as a script for sbatch."""

from __future__ import annotations

import re
from pathlib import Path

from ascendboot.export import volcano
from ascendboot.inventory.load import load
from ascendboot.model.names import names_file_here
from ascendboot.value import Value

_WORD = re.compile(r"[^\s\"'#\\]+")
"""sbatch reads a value of this form unchanged."""


class Job(Value, kw_only=True):
    """What an inventory does not state of a job of Slurm."""

    script: str
    args: tuple[str, ...] = ()
    name: str | None = None
    gres: str = "npu"
    """How the site's slurm.conf names NPUs."""
    time: str | None = None
    partition: str | None = None
    account: str | None = None


def export(path: Path, job: Job) -> tuple[str, list[str]]:
    """The script of a job on the nodes of an inventory, and what it does not carry over."""
    cluster, facts = load(path, with_own_table=False), volcano.facts("slurm.yaml")
    _, kept, notes = volcano.accounted(path, facts["keys"])
    env, secrets, left = volcano.shared_env(cluster, facts["variables"])
    launcher, mode = volcano.launcher_of(cluster), cluster.resource_mode
    by_chief = mode != "root-info" and launcher != "torchrun"
    counts = {node.device_count or len(node.devices) for node in cluster.nodes}
    problems = _problems(job, counts)
    if by_chief and mode == "rank-table" and cluster.product in ("a3", "a5"):
        problems.append("resources.mode: is rank-table, which Slurm cannot make: state root-info")
    volcano.refuse(cluster, problems)
    become = "root-info" if launcher == "torchrun" else "no-rank-table"
    folders = [*cluster.data, *((cluster.checkpoint.dir,) if cluster.checkpoint else ())]
    own_notes = {
        "launcher.kind": {"torchrun": "", "srun": ""}.get(launcher, f"{launcher} becomes srun"),
        "resources.mode": f"{mode} becomes {become}: Slurm chooses the nodes when the job starts"
        if mode == "rank-table"
        else "",
        "code.path": "" if cluster.code_path else "not stated: the job runs where you call sbatch",
        ", ".join(folders): "must be on every node",
        f"env {left}": "left out: differs between nodes, or the script sets it" if left else "",
        f"env {', '.join(secrets)}": "secret: export it before sbatch" if secrets else "",
        ", ".join(kept): "a comment in the script keeps this",
    }
    values = {"name": job.name or cluster.name, "launcher": launcher, "devices": max(counts)}
    values |= {"by_chief": by_chief, "env": env, "secrets": secrets}
    values["mpi"] = {"torchrun": "--mpi=none ", "srun": ""}.get(launcher, "--mpi=pmix ")
    values["words"] = (cluster.python, job.script, *job.args)
    text = volcano.rendered("job.sbatch.j2", values, cluster, job, kept)
    return text, notes + volcano.noted(cluster, own_notes)


def _problems(job: Job, counts: set[int]) -> list[str]:
    flags = {f"--{name}": getattr(job, name) for name in ("name", "gres", "time", "partition")}
    flags["--account"] = job.account
    problems = [
        f"{flag}: has a character that sbatch does not read as it is: choose another"
        for flag, value in flags.items()
        if value is not None and not _WORD.fullmatch(value)
    ]
    if counts == {0} or len(counts) > 1:
        problems.append("devices: differ, or are not stated: state `defaults: {devices: 8}`")
    if names_file_here(job.script):
        problems.append(f"{job.script}: is here, not on the nodes: name it as seen from code.path")
    if volcano.has_bad_words(job.args):
        problems.append(volcano.BAD_WORDS)
    return problems
