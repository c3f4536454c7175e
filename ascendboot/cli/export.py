"""Jobs and nodes for other systems: `export.volcano`, `.sbatch`, `.ansible`, `import.volcano`."""

from __future__ import annotations

import sys
from pathlib import Path

from invoke.collection import Collection

from ascendboot.cli.common import among, whole_number
from ascendboot.cli.verbs import Call, verb
from ascendboot.errors import UsageError
from ascendboot.export import slurm
from ascendboot.export.from_volcano import read_job
from ascendboot.export.volcano import PROFILES, Job, export
from ascendboot.inventory.sources import ansible_inventory
from ascendboot.readiness.ready import script_arguments

_JSON = "Print YAML and notes as one JSON document"


@verb(
    name="volcano",
    shared=("inventory", "json"),
    help={
        "script": "The training script, as seen from code.path",
        "image": "The image of the pods; required",
        "profile": "The cluster: lite (ModelArts Lite, the default), cabinet (the same with"
        " rank-table routing) or mindcluster",
        "name": "The name of the job. Default: that of the cluster",
        "namespace": "The namespace of the job. Default: default",
        "queue": "The queue of Volcano. Default: default",
        "max-retry": "How often Volcano starts the job again after a failure. Default: never",
        "region": "With cabinet: the region of the cloud, such as cn-southwest-2",
        "inventory": "The inventory, as for train",
        "json": _JSON,
    },
)
def export_volcano(
    call: Call,
    *,
    script: str,
    image: str | None = None,
    profile: str = "lite",
    name: str | None = None,
    namespace: str = "default",
    queue: str = "default",
    max_retry: str | None = None,
    region: str | None = None,
) -> None:
    """Print a job as YAML of a VolcanoJob. Connects to no node.

    Standard error lists what the YAML does not carry over.

    Examples:
      invoke export.volcano main.py --image swr.example/x:1 | kubectl apply -f -
      invoke export.volcano main.py --image I --max-retry 3 -- --steps 100
      invoke export.volcano main.py --image I --profile mindcluster

    Exit codes: 0 done, 2 something is missing or cannot be exported.
    """
    if not image:
        raise UsageError("--image: is missing: pods need an image with the training stack; name it")
    job = Job(
        script=script,
        args=script_arguments(sys.argv),
        profile=among("--profile", profile, PROFILES) or "lite",
        image=image,
        name=name,
        namespace=namespace,
        queue=queue,
        # Volcano reads 0 as its default, 3.
        max_retry=whole_number("--max-retry", max_retry, at_least=1) if max_retry else None,
        region=region,
    )
    text, notes = export(call.path, job)
    _deliver(call, text, notes, {"yaml": text})


@verb(
    name="sbatch",
    shared=("inventory", "json"),
    help={
        "script": "The training script, as seen from code.path",
        "name": "The name of the job. Default: that of the cluster",
        "time": "The time limit, as for sbatch. Default: that of the partition",
        "partition": "The partition of Slurm. Default: that of the site",
        "account": "The account of Slurm. Default: yours",
        "gres": "How the site's slurm.conf names NPUs, such as npu:910b. Default: npu",
        "inventory": "The inventory, as for train",
        "json": "Print script and notes as one JSON document",
    },
)
def export_sbatch(
    call: Call,
    *,
    script: str,
    name: str | None = None,
    time: str | None = None,
    partition: str | None = None,
    account: str | None = None,
    gres: str = "npu",
) -> None:
    """Print a job as a script for sbatch. Connects to no node and to no Slurm.

    Standard error lists what the script does not carry over.

    Examples:
      invoke export.sbatch main.py | sbatch
      invoke export.sbatch main.py --time 1-12 --gres npu:910b -- --steps 100

    Exit codes: 0 done, 2 something is missing or cannot be exported.
    """
    job = slurm.Job(
        script=script,
        args=script_arguments(sys.argv),
        name=name,
        gres=gres,
        time=time,
        partition=partition,
        account=account,
    )
    text, notes = slurm.export(call.path, job)
    _deliver(call, text, notes, {"script": text})


@verb(name="volcano", help={"file": "The YAML, such as /dev/stdin", "json": _JSON})
def import_volcano(call: Call, *, file: str) -> None:
    """Print an inventory for the YAML of a VolcanoJob, and the command that trains.

    Fill in the addresses of the servers. Standard error lists what ascendboot
    has no counterpart for.

    Examples:
      invoke import.volcano config.yaml > atlas.yaml
      kubectl get vcjob my-job -o yaml | invoke import.volcano /dev/stdin

    Exit codes: 0 done, 2 the file does not hold one VolcanoJob.
    """
    text, train, notes = read_job(Path(file))
    _deliver(call, text, notes, {"inventory": text, "train": train})


@verb(name="ansible", shared=("inventory",), help={"inventory": "The inventory, as for setup"})
def export_ansible(call: Call) -> None:
    """Print the nodes as JSON of a dynamic inventory of Ansible.

    Connects to no node. Groups are the cluster, `primary` and the groups of the
    inventory. A script that Ansible runs does not need its arguments:
      #!/bin/sh
      exec ascendboot export.ansible --inventory atlas.yaml

    Examples:
      invoke export.ansible --inventory atlas.yaml
      ansible -i ./inventory.sh all -m ping

    Exit codes: 0 done, 2 invalid inventory.
    """
    call.screen.json(ansible_inventory(call.cluster()))


def _deliver(call: Call, text: str, notes: list[str], document: dict[str, object]) -> None:
    for note in notes:
        call.screen.error(note)
    if not call.json:
        call.screen.text(text.removesuffix("\n"))
    call.end(0, {**document, "not_carried_over": notes})


collection = Collection("export", export_volcano, export_sbatch, export_ansible)
imports = Collection("import", import_volcano)
