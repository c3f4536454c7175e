"""Rank tables in ConfigMaps, read and written."""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path

import pytest
import yaml
from invoke.exceptions import Exit

from ascendboot.cli import ranktable
from ascendboot.errors import RankTableError
from ascendboot.ranktable.formats import table_of
from ascendboot.ranktable.text import read
from tests.unit.ranktable.examples import call
from tests.unit.ranktable.test_verbs import GOOD

TABLE = Path(GOOD).read_text()
PACKED = base64.b64encode(gzip.compress(TABLE.encode())).decode()


def shown(key: str, value: object) -> dict[str, object]:
    """A ConfigMap as `kubectl get configmap` prints it."""
    metadata = {"name": "x"}
    return {"apiVersion": "v1", "data": {key: value}, "kind": "ConfigMap", "metadata": metadata}


@pytest.mark.parametrize("as_text", [json.dumps, yaml.safe_dump])
@pytest.mark.parametrize(
    "configmap",
    [
        shown("hccl.json", TABLE),
        shown("jobstart_hccl.json", TABLE),
        shown("jobstart_hccl.json", PACKED),
        {"kind": "List", "items": [shown("ranktable_tor.json", PACKED), shown("hccl.json", TABLE)]},
    ],
)
def test_a_table_in_a_configmap_means_the_same(
    configmap: object, as_text: object, tmp_path: Path
) -> None:
    assert callable(as_text)
    file = tmp_path / "configmap"
    file.write_text(as_text(configmap))
    call(ranktable.diff, GOOD, second=str(file))  # exit code 0


@pytest.mark.parametrize(
    ("name", "key"), [("rings-config-job", "hccl.json"), ("ranktable-job", "jobstart_hccl.json")]
)
def test_a_written_configmap_holds_the_table_and_keeps_its_lines(
    name: str, key: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "configmap.yaml"
    call(ranktable.convert, GOOD, configmap=name, output=str(file))
    document = yaml.safe_load(file.read_text())
    assert (document["metadata"], list(document["data"])) == ({"name": name}, [key])
    call(ranktable.diff, GOOD, second=str(file))
    lines = file.read_text().replace('"server_count": "2"', '"server_count": "3"')
    file.write_text(lines)
    capfd.readouterr()
    with pytest.raises(Exit):
        call(ranktable.validate, str(file))
    line = next(n for n, text in enumerate(lines.splitlines(), 1) if "server_count" in text)
    assert capfd.readouterr().out.startswith(f"{file}:{line}: ")


@pytest.mark.parametrize(
    ("configmap", "what"),
    [
        (shown("hccl.json", '{"status":"initializing"}'), "its controller writes the devices when"),
        (shown("other", TABLE), "0 rank tables in its ConfigMaps, under hccl.json or jobstart"),
        ({"kind": "List", "items": [shown("hccl.json", TABLE)] * 2}, "2 rank tables"),
        (shown("hccl.json", PACKED[:80]), "it ends too early, or is too large"),
        (shown("hccl.json", "abcd"), "could not be read: Error -3"),
        (shown("hccl.json", "{"), "line 1, column 2"),
        (shown("hccl.json", ["no text"]), "0 rank tables"),
    ],
)
def test_what_holds_no_table_is_named(configmap: object, what: str, tmp_path: Path) -> None:
    file = tmp_path / "configmap.json"
    file.write_text(json.dumps(configmap))
    with pytest.raises(RankTableError) as caught:
        table_of(read(str(file)))
    assert str(file) in str(caught.value)
    assert what in str(caught.value)


def test_broken_yaml_is_no_traceback(tmp_path: Path) -> None:
    file = tmp_path / "configmap.yaml"
    file.write_text("kind: ConfigMap\ndata: {\n")
    with pytest.raises(RankTableError, match="could not be read as a ConfigMap: while parsing"):
        read(str(file))


@pytest.mark.parametrize("name", ["hccl", "rings-config-Job", "ranktable-", "ranktable-a\nb: c"])
def test_a_name_that_no_pod_looks_for_is_refused(name: str) -> None:
    with pytest.raises(Exit, match="rings-config-JOB, ranktable-JOB in lower case"):
        call(ranktable.convert, GOOD, configmap=name)
