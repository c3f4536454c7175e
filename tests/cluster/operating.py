"""An operator at the practice cluster: calls ascendboot as people do and looks at the nodes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ascendboot.lab.cluster import Lab

PROGRAM = str(Path(sys.executable).with_name("ascendboot"))
BASE = "/var/lib/ascendboot/lab"
CUT = 'for pid in $(ps -o pid= --ppid "$(cat /run/sshd.pid)"); do kill -9 "$pid"; done'
"""Ends every login that somebody has from outside; the servers themselves stay."""

_MEASURE = """\
import os, signal, subprocess, sys
signal.signal(signal.SIGINT, lambda *_: None)
process = subprocess.Popen(sys.argv[2:])
_, status, usage = os.wait4(process.pid, 0)
with open(sys.argv[1], "w") as file: file.write(str(usage.ru_maxrss))
sys.exit(os.waitstatus_to_exitcode(status))
"""


def measured(to: Path, *words: str) -> list[str]:
    """ascendboot called with `words`; its peak memory in KiB is written to the file `to`.

    From a small process: Linux counts what the caller of a program takes at that moment as the
    program's own, and of a pytest that is hundreds of MB. Ctrl-C is for both, as of a terminal.
    """
    return [sys.executable, "-c", _MEASURE, str(to), PROGRAM, *words]


_WIPE = f"""\
if read -r pid start _ 2>/dev/null <{BASE}/sshd/started; then kill "$pid" 2>/dev/null; fi
rm -rf /var/lib/ascendboot /root/.bashrc.test
"""


@dataclass(frozen=True)
class Ended:
    """How one call of ascendboot ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The document on standard output, which holds nothing else."""
        return json.loads(self.out)

    def outcomes(self, *wanted: str) -> list[tuple[str, str, str]]:
        """Node, step and outcome of the results of a report, of the wanted outcomes alone."""
        return [
            (r["node"], r["step"], r["outcome"])
            for r in self.json["results"]
            if not wanted or r["outcome"] in wanted
        ]

    def details(self, outcome: str) -> list[str]:
        """What a report says about every result with this outcome."""
        return [r["detail"] for r in self.json["results"] if r["outcome"] == outcome]


def ascendboot(directory: Path, *words: str, stdin: str = "") -> tuple[int, str, str]:
    """Exit code and what was said on both streams, of ascendboot called in a directory."""
    done = subprocess.run(
        [PROGRAM, *words],
        capture_output=True,
        text=True,
        check=False,
        cwd=directory,
        input=stdin,
        timeout=300,
    )
    return done.returncode, done.stdout, done.stderr


@dataclass(frozen=True)
class Operator:
    """Works in the lab's working directory."""

    lab: Lab

    def start(self, *args: str, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
        """Call ascendboot and do not wait."""
        return subprocess.Popen(
            [PROGRAM, *args],
            cwd=self.lab.directory,
            env={**os.environ, "NO_COLOR": "1", **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )

    def call(self, *args: str, timeout_s: float = 300.0) -> Ended:
        """Call ascendboot and wait for its end."""
        process = self.start(*args)
        try:
            out, err = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()  # else it would go on under the tests that follow
            raise
        return Ended(process.returncode, out, err)

    def setup(self, *args: str, inventory: Path | None = None) -> Ended:
        """`setup --json` with the lab's inventory or another."""
        path = str(inventory or self.lab.inventory)
        return self.call("setup", "--inventory", path, "--json", *args)

    def sh(self, node: str, script: str) -> str:
        """What a shell script prints on a node, run past every sshd."""
        done = self.lab.exec(node, ["bash", "-c", script])
        return done.stdout.decode(errors="replace")

    def inside(self, node: str, script: str) -> str:
        """What a shell script prints in the container of a node."""
        argv = ["podman", "exec", "-i", "rec-sdk", "bash", "-s"]
        return self.lab.exec(node, argv, input=script.encode()).stdout.decode(errors="replace")

    def put(self, node: str, path: str, text: str, mode: str = "755") -> None:
        """A file on a node."""
        script = f'mkdir -p "$(dirname {path})"; cat >{path}; chmod {mode} {path}'
        self.lab.exec(node, ["bash", "-c", script], input=text.encode())

    def wipe(self) -> None:
        """Take everything of ascendboot away from all nodes."""
        for node in self.lab.nodes:
            self.lab.exec(node.name, ["bash", "-c", _WIPE])

    def inventory_with(self, name: str, *changes: tuple[str, str]) -> Path:
        """A copy of the lab's inventory with some texts replaced, each of which must occur."""
        text = self.lab.inventory.read_text()
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        path = self.lab.directory / name
        path.write_text(text)
        return path

    def job_processes(self) -> dict[str, str]:
        """Command lines of processes on each node that belong to any job of ascendboot."""
        script = (
            "for f in $(grep -lsz '^ASCENDBOOT_JOB_ID=' /proc/[0-9]*/environ); do "
            "tr '\\0' ' ' <${f%environ}cmdline; echo; done 2>/dev/null; true"
        )
        found = {node.name: self.sh(node.name, script).strip() for node in self.lab.nodes}
        return {name: text for name, text in found.items() if text}


def ssh(
    lab: Lab, node: str, *argv: str, identity: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command over OpenSSH with the lab's key, or another; host keys are checked."""
    options = {
        "IdentityFile": identity or lab.identity,
        "IdentitiesOnly": "yes",
        "UserKnownHostsFile": lab.known_hosts,
        "GlobalKnownHostsFile": "/dev/null",
        "StrictHostKeyChecking": "yes",
        "BatchMode": "yes",
    }
    words = [word for key, value in options.items() for word in ("-o", f"{key}={value}")]
    command = ["ssh", "-n", "-F", "none", *words, f"root@{lab.node(node).address}", *argv]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


def heal(lab: Lab) -> None:
    """End every fault of every node."""
    for node in lab.nodes:
        for fault in lab.faults(node.name):
            lab.undo(node.name, fault.kind, device=fault.device)


def set_up(lab: Lab, **scripts: str) -> Operator:
    """An operator of a cluster that is set up, with `NAME=TEXT` as NAME.py in the directory."""
    operator = Operator(lab)
    ended = operator.setup()
    assert ended.code == 0, ended.err
    for name, text in scripts.items():
        (lab.directory / f"{name}.py").write_text(text)
    return operator
