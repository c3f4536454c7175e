"""The templates of what `setup` lays out on nodes: where they lie, and which they are."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import ascendboot


def installed_templates() -> Path:
    """The templates: those inside the installed package, else those of the checkout around it."""
    package = Path(*ascendboot.__path__)
    inside = package / "templates"
    return inside if inside.is_dir() else package.parent / "templates"


def digest() -> str:
    """Of all templates: in a clone they change, and the version does not."""
    folder, whole = installed_templates(), sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        content = path.read_bytes()
        whole.update(f"{path.relative_to(folder)} {len(content)} ".encode() + content)
    return whole.hexdigest()
