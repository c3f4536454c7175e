"""The function for scripts that marks a checkpoint as complete."""

from __future__ import annotations

import ast
import json
import runpy
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"
MANIFEST = EXAMPLES / "checkpoint_manifest.py"
mark_checkpoint = runpy.run_path(str(MANIFEST))["mark_checkpoint"]


def test_both_manifests_list_the_files_with_their_sizes(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    files = [tmp_path / "weights-7", tmp_path / "m/more"]
    for file, text in zip(files, ("12345", "1"), strict=True):
        file.write_text(text)
    mark_checkpoint(7, files)
    listed = [{"path": "weights-7", "bytes": 5}, {"path": "m/more", "bytes": 1}]
    for name in ("step-7.json", "LATEST.json"):
        assert json.loads((tmp_path / name).read_text()) == {"step": 7, "files": listed}
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "LATEST.json",
        "m",
        "step-7.json",
        "weights-7",
    ]


def test_the_little_demo_has_the_same_function() -> None:
    functions = [
        ast.dump(node)
        for file in (MANIFEST, EXAMPLES / "little_demo/main.py")
        for node in ast.parse(file.read_text()).body
        if isinstance(node, ast.FunctionDef) and node.name == "mark_checkpoint"
    ]
    assert len(functions) == 2
    assert functions[0] == functions[1]


def test_it_runs_on_python_3_7() -> None:
    for file in (MANIFEST, EXAMPLES / "ddp/main.py"):
        ast.parse(file.read_text(), feature_version=(3, 7))
