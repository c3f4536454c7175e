"""Jobs for other systems: `export.volcano`."""

from __future__ import annotations

import sys

from invoke.collection import Collection

from ascendboot.cli.common import among, whole_number
from ascendboot.cli.verbs import Call, verb
from ascendboot.errors import UsageError
from ascendboot.export.volcano import PROFILES, Job, export
from ascendboot.readiness.ready import script_arguments


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
        "json": "Print YAML and notes as one JSON document",
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
    for note in notes:
        call.screen.error(note)
    if not call.json:
        call.screen.text(text.removesuffix("\n"))
    call.end(0, {"yaml": text, "not_carried_over": notes})


collection = Collection("export", export_volcano)
