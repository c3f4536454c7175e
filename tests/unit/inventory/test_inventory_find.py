"""Which file is meant by an inventory's name, or by none."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from ascendboot.errors import UsageError
from ascendboot.inventory.yaml import locate


def found(name: str | None, cwd: Path, environ: Mapping[str, str]) -> Path:
    return locate(name, cwd=cwd, environ=environ, current=cwd / ".ascendboot/current")


def touch(*names: str) -> None:
    for name in names:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).touch()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a.yaml", "a.yaml"),
        ("a", "a.yaml"),
        ("b", "inventories/b.yaml"),
        ("b.yaml", "inventories/b.yaml"),
        ("inventories/b", "inventories/b.yaml"),
        ("c.yml", "inventories/c.yml"),
        ("plain", "plain"),
        ("folder", "inventories/folder.yaml"),
    ],
)
def test_an_inventory_is_looked_up_by_name(name: str, expected: str, tmp_path: Path) -> None:
    touch("a.yaml", "inventories/a.yaml", "inventories/b.yaml", "inventories/c.yml", "plain")
    touch("folder/x", "inventories/folder.yaml")
    assert found(name, tmp_path, {}) == tmp_path / expected
    assert found(None, tmp_path, {"ASCENDBOOT_INVENTORY": name}) == tmp_path / expected


def test_an_absolute_name_is_taken_as_it_is(tmp_path: Path) -> None:
    touch("a.yaml")
    assert found(f"{tmp_path}/a", Path("/nowhere"), {}) == tmp_path / "a.yaml"


def test_without_a_name_it_is_the_one_in_the_environment_then_the_one_last_set_up(
    tmp_path: Path,
) -> None:
    touch("a.yaml", "inventories/b.yaml", ".ascendboot/current")
    Path(".ascendboot/current").write_text("inventories/b.yaml\n", encoding="utf-8")
    environ = {"ASCENDBOOT_INVENTORY": "a.yaml"}
    assert found(None, tmp_path, environ) == tmp_path / "a.yaml"
    assert found(None, tmp_path, {"ASCENDBOOT_INVENTORY": ""}) == (tmp_path / "inventories/b.yaml")
    Path(".ascendboot/current").write_text(f"{tmp_path}/a.yaml", encoding="utf-8")
    touch(".ascendboot/lab.yaml")
    assert found(None, tmp_path, {}) == tmp_path / "a.yaml"
    Path(".ascendboot/current").unlink()
    assert found(None, tmp_path, {}) == tmp_path / ".ascendboot/lab.yaml"


def not_found(name: str | None, cwd: Path, **environ: str) -> str:
    with pytest.raises(UsageError) as caught:
        found(name, cwd, environ)
    assert caught.value.exit_code == 2
    return str(caught.value)


def test_what_was_tried_is_said(tmp_path: Path) -> None:
    assert not_found("x", tmp_path) == (
        "could not find the inventory x: tried x, x.yaml, inventories/x, "
        "inventories/x.yaml; name a YAML file"
    )
    assert not_found(" ", tmp_path) == '"" names no inventory; name a YAML file'
    assert not_found(None, tmp_path) == (
        "no inventory is named: --inventory is not given, $ASCENDBOOT_INVENTORY is not set, and "
        "no cluster was set up from here (.ascendboot/current is not there); use --inventory FILE"
    )
    touch("inventories/lab.yaml", "inventories/two-node.yaml", ".ascendboot/current")
    assert not_found(None, tmp_path, ASCENDBOOT_INVENTORY="x.yaml") == (
        "$ASCENDBOOT_INVENTORY: could not find the inventory x.yaml: tried x.yaml, "
        "inventories/x.yaml; inventories/ holds lab, two-node"
    )
    assert not_found(None, tmp_path) == (
        ".ascendboot/current: names the inventory (nothing), which is not there; "
        "use --inventory, or run setup again"
    )
    Path(".ascendboot/current").write_text("gone.yaml", encoding="utf-8")
    assert not_found(None, tmp_path) == (
        ".ascendboot/current: names the inventory gone.yaml, which is not there; "
        "use --inventory, or run setup again"
    )
    Path(".ascendboot/current").unlink()
    Path(".ascendboot/current").mkdir()
    assert not_found(None, tmp_path).startswith(".ascendboot/current: could not be read: ")
