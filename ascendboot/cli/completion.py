"""The verbs: where each of them is, and what a shell completes, without importing any."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

VERBS: Final[Mapping[str, Mapping[str, str]]] = {
    "Set up a cluster": {
        "init": "init",
        **dict.fromkeys(("setup", "check", "adopt"), "setup"),
        "reset": "reset",
    },
    "Run jobs": {
        "train": "train",
        "jobs": "status",
        "status": "status",
        "logs": "logs",
        "stop": "stop",
        "exec": "exec",
    },
    "Change a supervised job": dict.fromkeys(
        ("events", "quarantine", "release", "resize"), "operate"
    ),
    "Find what failed": {"doctor": "doctor", "report": "report_file"},
    "Rank tables, leaf switches, other tools": {
        "ranktable": "ranktable.collection",
        "topology": "topology.collection",
        "export": "export.collection",
        "import": "export.imports",
    },
    "Practice without NPUs": {"lab": "lab.collection"},
}
"""Under their headings the verbs and groups of verbs: the module, and the object in it unless it
has the name of the verb."""
PLACES: Final = {name: place for verbs in VERBS.values() for name, place in verbs.items()}
