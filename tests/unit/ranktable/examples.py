"""Sound tables of every generation, as documents to break."""

from __future__ import annotations

import copy
import inspect
import json
from typing import Any

from invoke.context import Context
from invoke.tasks import Task

from ascendboot.ranktable.text import Source, from_text

Document = dict[str, Any]
DROP = "(dropped)"
"""In place of a value, also in the files of tests/data/ranktables: the member is not there."""


def _level(layer: int, instance: str, net: str, address: str) -> Document:
    return {
        "net_layer": layer,
        "net_instance_id": instance,
        "net_type": net,
        "net_attr": "",
        "rank_addr_list": [{"addr_type": "IPV4", "addr": address, "ports": ["0/0"]}],
    }


def source_of(document: object) -> Source:
    return from_text("table.json", json.dumps(document, indent=1))


def v10(servers: int = 2, devices: int = 2) -> Document:
    return {
        "status": "completed",
        "version": "1.0",
        "server_count": str(servers),
        "server_list": [
            {
                "server_id": f"node_{s}",
                "device": [
                    {
                        "device_id": str(d),
                        "device_ip": f"198.51.100.{10 * s + d}",
                        "rank_id": str(devices * s + d),
                    }
                    for d in range(devices)
                ],
            }
            for s in range(servers)
        ],
    }


def v12(servers: int = 4, devices: int = 2) -> Document:
    """Two super pods."""
    table = v10(servers, devices) | {"version": "1.2"}
    half = servers // 2
    for s, server in enumerate(table["server_list"]):
        for d, device in enumerate(server["device"]):
            device["super_device_id"] = str((s % half) << 22 | d // 2 << 18 | d % 2 << 16 | d)
            device["backup_device_ip"] = f"198.51.100.{10 * s + (d ^ 1)}"
            device["device_port"] = "16666"
            device["backup_device_port"] = "16667"
    names = [server["server_id"] for server in table["server_list"]]
    table["super_pod_list"] = [
        {"super_pod_id": str(pod), "server_list": [{"server_id": name} for name in part]}
        for pod, part in enumerate((names[:half], names[half:]))
    ]
    return table


def v20(ranks: int = 2) -> Document:
    return {
        "version": "2.0",
        "status": "completed",
        "rank_count": ranks,
        "rank_list": [
            {
                "rank_id": r,
                "local_id": r,
                "device_id": r,
                "device_port": 16666,
                "level_list": [
                    _level(0, "az0-rack0", "TOPO_FILE_DESC", f"203.0.113.{r}"),
                    _level(1, "az0", "CLOS", f"198.51.100.{r}"),
                ],
            }
            for r in range(ranks)
        ],
    }


def groups() -> Document:
    return {
        "status": "completed",
        "group_count": "1",
        "group_list": [
            {
                "group_name": "hccl_world_group",
                "instance_count": "2",
                "device_count": "2",
                "instance_list": [
                    {
                        "pod_name": f"pod-{i}",
                        "server_id": f"node_{i}",
                        "devices": [{"device_id": "0", "device_ip": f"198.51.100.{i}"}],
                    }
                    for i in range(2)
                ],
            }
        ],
    }


ALL = {"1.0": v10(), "1.2": v12(), "2.0": v20(), "group list": groups()}


def changed(document: Document, path: str, value: object) -> Document:
    """A copy in which one value is another; `DROP` takes it out."""
    result = copy.deepcopy(document)
    *way, last = [int(part) if part.isdigit() else part for part in path.split("/")]
    inner: Any = result
    for part in way:
        inner = inner[part]
    if value == DROP:
        del inner[last]
    elif isinstance(inner, list) and last == len(inner):
        inner.append(value)
    else:
        inner[last] = value
    return result


def call(verb: Task[Any], *arguments: str, **flags: Any) -> None:
    """Call a verb as Invoke does: every flag by name, with its default."""
    parameters = list(inspect.signature(verb.body).parameters.values())[1:]
    defaults = {p.name: p.default for p in parameters if p.default is not p.empty}
    named = dict(zip((p.name for p in parameters), arguments, strict=False))
    verb(Context(), **{**defaults, **named, **flags})
