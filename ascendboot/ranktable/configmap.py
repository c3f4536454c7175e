"""Rank tables in ConfigMaps of Kubernetes, as Volcano's plugin and MindCluster write them."""

from __future__ import annotations

import base64
import json
import re
import textwrap
import zlib
from collections.abc import Iterator

import yaml

from ascendboot.errors import RankTableError, UsageError

KEYS = {"rings-config-": "hccl.json", "ranktable-": "jobstart_hccl.json"}
"""By the beginning of a name, the key with the table: MindCluster's, and that of the plugin
configmap1980 of Volcano."""
_LARGEST = 4 << 20
"""Kubernetes holds 1 MiB in a ConfigMap; the text of `kubectl` escapes some of it."""
_LARGEST_TABLE = 256 << 20
_PACKED = re.compile(r"[A-Za-z0-9+/=\s]+")
_GZIP = 16 + zlib.MAX_WBITS
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


def table_within(name: str, text: str) -> tuple[str, str] | None:
    """The rank table in what `kubectl get configmap` prints, and what to call it in messages.

    A table that stands in its file as it is keeps its line numbers. None: the text is no ConfigMap.
    """
    if len(text) > _LARGEST or not re.search(r"\bkind\W{1,4}(ConfigMap|List)\b", text):
        return None
    try:
        document = json.loads(text) if text.lstrip().startswith("{") else yaml.safe_load(text)
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        reason = str(error).splitlines()[0]
        raise RankTableError(f"{name}: could not be read as a ConfigMap: {reason}") from None
    found = [*_tables(document)]
    if len(found) != 1:
        keys = " or ".join(KEYS.values())
        remedy = "print one ConfigMap with its table: kubectl get configmap NAME -o yaml"
        raise RankTableError(
            f"{name}: {len(found)} rank tables in its ConfigMaps, under {keys}: {remedy}"
        )
    # The option --rank-table-compress of the plugin packs the table.
    table = unpacked(name, found[0]) if _PACKED.fullmatch(found[0]) else found[0]
    block = re.search(rf"^ +({'|'.join(KEYS.values())}): \|-?\n", text, re.MULTILINE)
    if block and table == found[0]:
        return name, "\n" * text.count("\n", 0, block.end()) + table
    return f"{name}, the table in it", table


def _tables(document: object) -> Iterator[str]:
    """The rank tables in a ConfigMap, or in a list that has ConfigMaps."""
    items = document.get("items", [document]) if isinstance(document, dict) else []
    for item in items if isinstance(items, list) else []:
        is_configmap = isinstance(item, dict) and item.get("kind") == "ConfigMap"
        data = item.get("data") if is_configmap else None
        tables = [data.get(key) for key in KEYS.values()] if isinstance(data, dict) else []
        yield from (table for table in tables if isinstance(table, str))


def unpacked(name: str, text: str) -> str:
    """The text in base64 of gzip, as large files reach a pod; RankTableError if it is not so."""
    unpacker = zlib.decompressobj(_GZIP)
    try:
        content = unpacker.decompress(base64.b64decode(text), _LARGEST_TABLE)
        if unpacker.eof:
            return content.decode()
        problem = "it ends too early, or is too large"
    except (ValueError, zlib.error) as error:
        problem = str(error)
    raise RankTableError(f"{name}: the packed rank table could not be read: {problem}")


def configmap(name: str, table: str) -> str:
    """The YAML of a ConfigMap with a rank table; UsageError if pods look for none of this name.

    It has no label of a controller, which would write its own table there.
    """
    key = next((key for begin, key in KEYS.items() if name.startswith(begin)), None)
    if key is None or not _NAME.fullmatch(name):
        known = ", ".join(f"{begin}JOB" for begin in KEYS)
        raise UsageError(f'--configmap: "{name}" is not one of {known} in lower case')
    block = textwrap.indent(table if table.endswith("\n") else f"{table}\n", "    ")
    head = f"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\ndata:\n  {key}: |\n"
    return head + block
