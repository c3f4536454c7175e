"""Marks a checkpoint as complete, for training scripts: copy the function into yours.

`checkpoint: {kind: manifest}` in the inventory reads what it writes. Python 3.7 or later.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def mark_checkpoint(step: int, files: Sequence[Path], folder: Path | None = None) -> None:
    """Write `step-N.json` and `LATEST.json`, by rename, after the files are on disk.

    `files` are below `folder`, by default the folder of the first file.
    """
    folder = folder or files[0].parent
    for path in files:
        with path.open("rb") as file:
            os.fsync(file.fileno())
    listed = [{"path": str(f.relative_to(folder)), "bytes": f.stat().st_size} for f in files]
    for name in (f"step-{step}.json", "LATEST.json"):
        beside = folder / f".{name}.{os.uname().nodename}.{os.getpid()}"
        with beside.open("w") as file:
            json.dump({"step": step, "files": listed}, file)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(folder / name)
