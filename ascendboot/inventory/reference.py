"""The JSON schema for editors and the page of the reference, both made from the keys."""

from __future__ import annotations

import copy
from typing import Any

import yaml

from ascendboot.inventory import messages
from ascendboot.inventory.messages import ENV_SET_BY_US
from ascendboot.inventory.yaml import LIMIT

_ABBREVIATIONS = {"id": "ID", "ip": "IP", "ssh": "SSH"}
_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema() -> dict[str, Any]:
    """The JSON schema of an inventory (draft 2020-12), every key with title and description."""
    return {"$schema": _DIALECT, **_for_editors(copy.deepcopy(messages.whole()))}


def _for_editors(value: Any) -> Any:  # noqa: ANN401 (any part of a JSON schema)
    if isinstance(value, list):
        return [_for_editors(item) for item in value]
    if not isinstance(value, dict):
        return value
    value.pop("x-kind", None)
    default = value.pop("x-default", None)
    if default:
        end = "Required." if default == "required" else f"Default: {default}."
        value["description"] = f"{value['description']} {end}"
    for key, inner in value.get("properties", {}).items():
        words = [_ABBREVIATIONS.get(word, word) for word in key.split("_")]
        inner["title"] = " ".join(words)[:1].upper() + " ".join(words)[1:]
    return {key: _for_editors(inner) for key, inner in value.items()}


def reference_markdown() -> str:
    """The page `docs/reference/inventory.md`."""
    top = messages.whole()
    sections = {
        name: messages.resolve(inner)
        for name, inner in top["properties"].items()
        if name in ("ssh", "resources", "launcher", "code", "logs")
    }
    definitions = top["$defs"]
    parts = [
        _INTRODUCTION.format(mib=LIMIT // 1024**2),
        _table({k: v for k, v in top["properties"].items() if k not in sections}),
        "## Keys of a node\n\n" + _NODE,
        _table(definitions["NodeKeys"]["properties"]),
        "A device in the list `devices` is an id, or a mapping:",
        _table(definitions["DeviceKeys"]["properties"]),
        "## Settings of the cluster",
        _table(_flat(sections)),
        _RANGES,
        _NEVER.format(env=ENV_SET_BY_US.replace("*", r"\*")),
    ]
    return "\n\n".join(parts) + "\n"


def _flat(sections: dict[str, messages.Shape]) -> dict[str, messages.Shape]:
    return {
        f"{name}.{key}": inner
        for name, section in sections.items()
        for key, inner in section["properties"].items()
    }


def _table(properties: dict[str, messages.Shape]) -> str:
    rows = ["| key | value | default | meaning | example |", "|---|---|---|---|---|"]
    for name, given in properties.items():
        inner = messages.resolve(given)
        default = inner.get("x-default") or (f"`{inner['default']}`" if "default" in inner else "")
        example = _flow(inner["examples"][0])
        cells = (f"`{name}`", inner["x-kind"], default or "none", given["description"])
        rows.append("| " + " | ".join(c.replace("|", r"\|") for c in cells) + f" | `{example}` |")
    return "\n".join(rows)


def _flow(example: object) -> str:
    """An example as it is written in YAML on one line."""
    text: str = yaml.safe_dump(example, default_flow_style=True, width=1000)
    return text.removesuffix("\n").removesuffix("\n...")


_INTRODUCTION = """\
# Inventory keys

An inventory is one YAML file (UTF-8, at most {mib} MiB) that says what cluster you want.
`cluster` and `nodes` are required; everything else has a default. `inventories/two-node.yaml` is
a complete one, and an editor that knows `inventories/inventory.schema.json` completes and checks
keys as you write.

Every problem is reported at once as `FILE:LINE: key: what was seen; what to do`, with exit code 2.
Anchors, aliases and merge keys (`&x`, `*x`, `<<`) are refused: `defaults` and `groups` do what
they are used for. A key without a value is refused too."""

_NODE = """\
They stand under `nodes.NAME`, under `defaults` and under `groups.NAME`. What a node states itself
counts first, then its groups in the order in which it lists them, then `defaults`. A group takes
over no other group."""

_RANGES = """\
## Ranges

A node's name, its addresses and its `server_id` take ranges: `atlas-[01-16]`, `192.0.2.[11-26]`,
`r[1-2]n[1-8]`, `lab-[1,3,5-7]`. Numbers are decimal and keep the width in which they are written.
A range stands for its values in the order written, the last brackets counting fastest, so the
third name gets the third address; both must stand for equally many. Between `{` and `}` a range
must stand in quotes."""

_NEVER = """\
## What never stands in an inventory

* Passwords and passphrases of logins. Secrets that jobs need stand under `env`: those whose name or
  value shows it, and those that `secret_env` names, are shown nowhere, and on the nodes only the
  user of the ranks can read them ([how](hostile.md#5-secrets)). Then `chmod 600` the inventory.
* In `env`: variables that ascendboot itself sets for every rank ({env})."""
