"""Reference pages, man page and schema for editors, as far as the code knows their content.

`python -m tests.reference_pages` writes them; tests compare them. The prose of the pages is written
by hand.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import yaml

from ascendboot.hccl.profiles import rec_sdk_tf
from ascendboot.hccl.variables import ByProduct, Choice, Items, Ports, Text, Whole, variables
from ascendboot.inventory.schema import resolve, whole
from ascendboot.jobs.error_codes import known_errors
from ascendboot.model.names import ranks_named
from ascendboot.ranktable.rules import rules
from tests.man_page import man_page
from tests.scenarios import scenarios

ROOT = Path(__file__).parents[1]
SCHEMA = ROOT / "inventories/inventory.schema.json"
MAN_PAGE = ROOT / "docs/ascendboot.1"
_ABBREVIATIONS = {"id": "ID", "ip": "IP", "ssh": "SSH"}
SECTIONS = ["ssh", "resources", "topology", "launcher", "code", "logs", "checkpoint", "parallel"]
_PORTS = "[0-9]{1,5}(-[0-9]{1,5})?"
_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def editor_schema() -> dict[str, Any]:
    """The JSON schema of an inventory (draft 2020-12), every key with title and description."""
    schema = deepcopy(whole())
    of_hccl = schema["properties"]["hccl"]["properties"]
    for name, shape in of_hccl.items():
        of_hccl[name] = {**_limits(variables()[name].kind), **shape}
    return {"$schema": _DIALECT, **_for_editors(schema)}


def _limits(kind: object) -> dict[str, Any]:
    """What a value of HCCL's may be, as far as a schema can say it."""
    if isinstance(kind, ByProduct):
        ranges = kind.kinds.values()
        kind = Whole(least=min(r.least for r in ranges), most=max(r.most for r in ranges))
    match kind:
        case Whole():
            multiple = {"multipleOf": kind.multiple_of} if kind.multiple_of > 1 else {}
            number = {"type": "integer", "minimum": kind.least, "maximum": kind.most, **multiple}
            return {"anyOf": [number, {"type": "string", "pattern": "^[0-9]+$"}]}
        case Choice(values=words):
            return {"enum": [*words, *(int(word) for word in words if word.isdecimal())]}
        case Text(pattern=pattern):
            return {"type": ["string", "integer"], "pattern": pattern}
        case Ports():
            return {"type": ["string", "integer"], "pattern": f"^(auto|{_PORTS}(,{_PORTS})*)$"}
        case Items(kinds=kinds):
            return {"type": "string", "pattern": f"({'|'.join(kinds)}):"}
        case _:
            return {"type": "string"}


def _for_editors(value: Any) -> Any:
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


def inventory_tables() -> list[str]:
    """The tables of `docs/reference/inventory.md`: the file, a node, its devices, the sections."""
    top, definitions = whole()["properties"], whole()["$defs"]
    sections = {name: resolve(top[name]) for name in top if name in SECTIONS}
    flat = {
        f"{name}.{key}": inner
        for name, section in sections.items()
        for key, inner in section["properties"].items()
    }
    return [
        _table({name: inner for name, inner in top.items() if name not in sections}),
        _table(definitions["NodeKeys"]["properties"]),
        _table(definitions["DeviceKeys"]["properties"]),
        _table(definitions["NpuNetworkKeys"]["properties"]),
        _table(definitions["ContainerKeys"]["properties"]),
        _table(flat),
    ]


def _table(properties: dict[str, dict[str, Any]]) -> str:
    rows = []
    for name, given in properties.items():
        inner = resolve(given)
        default = inner.get("x-default") or (f"`{inner['default']}`" if "default" in inner else "")
        example: str = yaml.safe_dump(inner["examples"][0], default_flow_style=True, width=1000)
        example = example.removesuffix("\n").removesuffix("\n...")
        cells = (f"`{name}`", inner["x-kind"], default or "none", given["description"])
        rows.append((*cells, f"`{example}`"))
    return _rows(rows)


def _rows(table: Iterable[Sequence[str]]) -> str:
    escaped = (" | ".join(cell.replace("|", r"\|") for cell in row) for row in table)
    return "".join(f"| {row} |\n" for row in escaped)


def variable_rows() -> str:
    """The rows of the table in `docs/reference/hccl.md`."""
    return _rows(
        (f"`{v.name}`", v.kind.words, v.default and f"`{v.default}`", v.product_names, v.meaning)
        for v in variables().values()
    )


def profile_rows() -> str:
    """The rows of the table in `docs/reference/rec-sdk-tf.md`."""
    profile = rec_sdk_tf().values()
    limits = {v.name: f"{v.limits.least} to {v.limits.most}" for v in profile if v.limits}
    limits |= {name: variable.kind.words for name, variable in variables().items()}
    return _rows(
        (f"`{v.name}`", f"`{v.default}`", limits.get(v.name, ""), v.meaning) for v in profile
    )


def rule_rows() -> str:
    """The rows of the table in `docs/reference/rank-table-rules.md`."""
    rows = []
    for rule in rules().values():
        messages = dict.fromkeys(f"`{text}`" for text in (rule.hccl, rule.hccl_v2) if text)
        hccl = ", in 2.0 ".join(messages) or "nothing"
        rows.append((f"`{rule.id}`", rule.level, rule.about, rule.meaning, hccl, rule.remedy))
    return _rows(rows)


def known_error_rows() -> str:
    """The rows of the table in `docs/reference/known-errors.md`."""
    table = known_errors()
    rows = []
    for entry in (*table.entries, *table.of_launcher):
        texts = ", ".join(f"`{' … '.join(form)}`" for form in entry.text)
        peer = "yes" if entry.of_a_peer else ""
        cells = (f"`{entry.id}`", entry.product, texts, entry.meaning, entry.remedy, peer)
        rows.append((*cells, entry.source))
    return _rows(rows)


def scenario_rows() -> str:
    """The rows of the table in `docs/reference/diagnosed-failures.md`."""
    rows = []
    for one in scenarios():
        expected, of_logs = one.cause(), one.cause(of_logs=True)
        assert expected
        who = ranks_named(expected["ranks"])
        who = f"one of {who}" if expected["kind"] == "one_of" else who
        sure = [found["certainty"] if found else "no error" for found in (expected, of_logs)]
        known = f"`{expected['known']}`" if expected["known"] else "none"
        rows.append((one.name, who, known, *sure))
    return _rows(rows)


def schema_text() -> str:
    """The text of the schema for editors."""
    return json.dumps(editor_schema(), indent=2) + "\n"


def page_tables() -> dict[str, list[str]]:
    """The tables by the page of `docs/reference` that has them first, without their heads."""
    return {
        "inventory.md": inventory_tables(),
        "hccl.md": [variable_rows()],
        "rec-sdk-tf.md": [profile_rows()],
        "rank-table-rules.md": [rule_rows()],
        "known-errors.md": [known_error_rows()],
        "diagnosed-failures.md": [scenario_rows()],
    }


def with_tables(page: str, tables: list[str]) -> str:
    """The text of a page with the rows of its first tables replaced."""
    before = ""
    for rows in tables:
        head, rule, rest = page.partition("\n|---")
        columns, _, body = rest.partition("\n")
        _, gap, page = body.partition("\n\n")
        before += f"{head}{rule}{columns}\n{rows.rstrip()}{gap}"
    return before + page


def main() -> None:
    """Write the schema, the man page and the tables of all pages."""
    SCHEMA.write_text(schema_text(), encoding="utf-8")
    MAN_PAGE.write_text(man_page(), encoding="utf-8")
    for name, tables in page_tables().items():
        path = ROOT / "docs/reference" / name
        path.write_text(with_tables(path.read_text(encoding="utf-8"), tables), encoding="utf-8")


if __name__ == "__main__":
    main()
