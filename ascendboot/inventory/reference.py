"""The JSON schema for editors and the tables of the reference, both made from the keys."""

from __future__ import annotations

import copy
from typing import Any

import yaml

from ascendboot.inventory import messages

_ABBREVIATIONS = {"id": "ID", "ip": "IP", "ssh": "SSH"}
_DIALECT = "https://json-schema.org/draft/2020-12/schema"
TABLE_HEAD = "| key | value | default | meaning | example |"


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


def reference_tables() -> list[str]:
    """The tables of `docs/reference/inventory.md`: the file, a node, a device, the sections."""
    top, definitions = messages.whole()["properties"], messages.whole()["$defs"]
    sections = {
        name: messages.resolve(top[name])
        for name in top
        if name in ("ssh", "resources", "launcher", "code", "logs")
    }
    flat = {
        f"{name}.{key}": inner
        for name, section in sections.items()
        for key, inner in section["properties"].items()
    }
    return [
        _table({name: inner for name, inner in top.items() if name not in sections}),
        _table(definitions["NodeKeys"]["properties"]),
        _table(definitions["DeviceKeys"]["properties"]),
        _table(flat),
    ]


def _table(properties: dict[str, messages.Shape]) -> str:
    rows = [TABLE_HEAD, "|---|---|---|---|---|"]
    for name, given in properties.items():
        inner = messages.resolve(given)
        default = inner.get("x-default") or (f"`{inner['default']}`" if "default" in inner else "")
        example: str = yaml.safe_dump(inner["examples"][0], default_flow_style=True, width=1000)
        example = example.removesuffix("\n").removesuffix("\n...")
        cells = (f"`{name}`", inner["x-kind"], default or "none", given["description"])
        rows.append("| " + " | ".join(c.replace("|", r"\|") for c in cells) + f" | `{example}` |")
    return "\n".join(rows) + "\n"
