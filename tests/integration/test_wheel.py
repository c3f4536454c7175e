"""The wheel contains everything that a machine without the checkout needs."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PRINT_DATA = (
    "from ascendboot.jobs.error_codes import known_errors;"
    "from ascendboot.setup.cluster_plan import rendered;"
    "print(rendered('env/ssh.j2', ssh='/bin/ssh', config='C'));"
    "print(*(entry.id for entry in known_errors().entries))"
)


@pytest.mark.integration
def test_the_wheel_holds_the_templates_and_finds_them(tmp_path: Path) -> None:
    build = ["-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), str(ROOT)]
    subprocess.run([sys.executable, *build], check=True, timeout=300)
    [wheel] = tmp_path.glob("ascendboot-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        held = {n for n in archive.namelist() if n.startswith("ascendboot/templates/")}
        archive.extractall(tmp_path / "installed")
    wanted = {
        f"ascendboot/{path.relative_to(ROOT)}"
        for path in (ROOT / "templates").rglob("*")
        if path.is_file()
    }
    assert held == wanted
    shown = subprocess.run(
        [sys.executable, "-c", PRINT_DATA],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path / "installed")},
        check=True,
        capture_output=True,
        text=True,
    )
    assert "/bin/ssh -F C" in shown.stdout
    assert "EI0020" in shown.stdout
