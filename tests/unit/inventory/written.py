"""An inventory as text: loaded, or refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from ascendboot.errors import InventoryError
from ascendboot.inventory.load import load
from ascendboot.model.cluster import Cluster


def loaded(text: str | bytes) -> Cluster:
    Path("i.yaml").write_bytes(text if isinstance(text, bytes) else text.encode())
    return load(Path("i.yaml"))


def refused(text: str | bytes) -> list[str]:
    with pytest.raises(InventoryError) as caught:
        loaded(text)
    assert caught.value.exit_code == 2
    return list(caught.value.problems)
