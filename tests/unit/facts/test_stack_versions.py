"""The versions of CANN and of training packages, which `report` shows per node."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from ascendboot.templates import script


def test_versions_are_read_without_importing_anything(tmp_path: Path) -> None:
    packages = tmp_path / "packages"
    for name in ("torch-2.1.0+cpu.dist-info", "torch_npu-2.1.0.post6.dist-info", "x-1.dist-info"):
        (packages / name).mkdir(parents=True)
    (packages / "tensorflow-1.15.0-py3.7.egg-info").mkdir()
    info = tmp_path / "cann/x86_64-linux/ascend_toolkit_install.info"
    info.parent.mkdir(parents=True)
    info.write_text("package_name=Ascend-cann-toolkit\nversion=8.1.RC1\ninnerversion=V100\n")
    python = tmp_path / "python3"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={packages} exec python3 "$@"\n')
    python.chmod(0o755)
    argv = ["bash", "-c", f"b={tmp_path}\n{script('facts-work.sh')}", "facts", str(python), ""]
    env = {**os.environ, "ASCEND_HOME_PATH": str(tmp_path / "cann")}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=True)
    names = "cann|torch|torch_npu|tensorflow|x"
    found = re.findall(rf"^@@ ({names})_version .*\n(.+)", done.stdout, re.MULTILINE)
    assert dict(found) == {
        "cann": "8.1.RC1",
        "torch": "2.1.0+cpu",
        "torch_npu": "2.1.0.post6",
        "tensorflow": "1.15.0",
    }
