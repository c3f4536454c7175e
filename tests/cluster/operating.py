"""An operator of the practice cluster: runs ascendboot and inspects the nodes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import yaml

from ascendboot.lab.cluster import Lab

PROGRAM = str(Path(sys.executable).with_name("ascendboot"))
BASE = "/var/lib/ascendboot/lab"
CUT = 'for pid in $(ps -o pid= --ppid "$(cat /run/sshd.pid)"); do kill -9 "$pid"; done'
"""Ends every login from outside; the SSH server itself keeps running."""

_MEASURE = """\
import os, signal, subprocess, sys
signal.signal(signal.SIGINT, lambda *_: None)
process = subprocess.Popen(sys.argv[2:])
_, status, usage = os.wait4(process.pid, 0)
with open(sys.argv[1], "w") as file: file.write(str(usage.ru_maxrss))
sys.exit(os.waitstatus_to_exitcode(status))
"""


def measured(to: Path, *words: str) -> list[str]:
    """Return a command that runs ascendboot and writes its peak memory in KiB to the file `to`.

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
        """Node, step and outcome of each result, or of those with the wanted outcomes."""
        return [
            (r["node"], r["step"], r["outcome"])
            for r in self.json["results"]
            if not wanted or r["outcome"] in wanted
        ]

    def details(self, outcome: str) -> list[str]:
        """The details of all results with this outcome."""
        return [r["detail"] for r in self.json["results"] if r["outcome"] == outcome]


def ascendboot(directory: Path, *words: str, stdin: str = "") -> tuple[int, str, str]:
    """Run ascendboot in a directory; exit code, standard output and standard error."""
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


class Program(subprocess.Popen[str]):
    """A call of ascendboot that runs."""

    @property
    def out(self) -> IO[str]:
        """Its standard output."""
        assert self.stdout is not None
        return self.stdout

    @property
    def err(self) -> IO[str]:
        """Its standard error."""
        assert self.stderr is not None
        return self.stderr

    def job_id(self) -> str:
        """The id of the job that it starts, from what it prints next on standard error."""
        told = (re.match(r"job (\S+): starting", line) for line in self.err)
        return next(match[1] for match in told if match)

    def end(self, *, exits: int | None = None, timeout_s: float = 300.0) -> Ended:
        """Wait for its end, if stated with this exit code."""
        try:
            out, err = self.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()  # else it would go on under the tests that follow
            raise
        assert exits in (None, self.returncode), f"exit code {self.returncode}: {err}{out}"
        return Ended(self.returncode, out, err)

    def die(self) -> None:
        """Kill it with SIGKILL."""
        self.kill()
        self.communicate()


@dataclass(frozen=True)
class Operator:
    """Works in the lab's working directory."""

    lab: Lab

    def start(self, *args: str, env: dict[str, str] | None = None) -> Program:
        """Call ascendboot and do not wait."""
        return Program(
            [PROGRAM, *args],
            cwd=self.lab.directory,
            env={**os.environ, "NO_COLOR": "1", **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )

    def call(
        self,
        verb: str,
        *args: str,
        inventory: Path | None = None,
        exits: int | None = None,
        timeout_s: float = 300.0,
    ) -> Ended:
        """Call ascendboot and wait for its end, if stated with this exit code."""
        stated = ("--inventory", str(inventory)) if inventory else ()
        return self.start(verb, *stated, *args).end(exits=exits, timeout_s=timeout_s)

    def setup(self, *args: str, inventory: Path | None = None, exits: int | None = None) -> Ended:
        """`setup --json` with the lab's inventory or another."""
        stated = inventory or self.lab.inventory
        return self.call("setup", "--json", *args, inventory=stated, exits=exits)

    @contextmanager
    def fault(
        self, node: str, kind: str, *, device: int | None = None, seconds: int | None = None
    ) -> Iterator[None]:
        """A fault of a node for the duration of the block."""
        self.lab.fault(node, kind, device=device, seconds=seconds)
        try:
            yield
        finally:
            self.lab.undo(node, kind, device=device)

    @contextmanager
    def changed(self, node: str, do: str, undo: str) -> Iterator[str]:
        """A change of a node by a shell script for the duration of the block; the output."""
        said = self.sh(node, do)
        try:
            yield said
        finally:
            self.sh(node, undo)

    def sh(self, node: str, script: str) -> str:
        """Run a shell script on a node, without SSH; its output."""
        done = self.lab.exec(node, ["bash", "-c", script])
        return done.stdout.decode(errors="replace")

    def on_all(self, script: str) -> list[str]:
        """Run a shell script on every node; the outputs in order."""
        return [self.sh(node.name, script) for node in self.lab.nodes]

    def inside(self, node: str, script: str) -> str:
        """Run a shell script in a node's container; its output."""
        argv = ["podman", "exec", "-i", "rec-sdk", "bash", "-s"]
        return self.lab.exec(node, argv, input=script.encode()).stdout.decode(errors="replace")

    def put(self, node: str, path: str, text: str, mode: str = "755") -> None:
        """Write a file on a node."""
        script = f'mkdir -p "$(dirname {path})"; cat >{path}; chmod {mode} {path}'
        self.lab.exec(node, ["bash", "-c", script], input=text.encode())

    @contextmanager
    def port_taken(self, node: str, port: int) -> Iterator[str]:
        """A program listens on a port of a node for the duration of the block; its pid."""
        listen = (
            f'python3 -c \'import socket,time; s=socket.create_server(("0.0.0.0",{port}));'
            ' print("up",flush=True); time.sleep(1000)\' </dev/null >/tmp/up 2>&1 &'
            " echo $! | tee /run/up; until grep -q up /tmp/up; do sleep 0.05; done"
        )
        with self.changed(node, listen, "kill $(cat /run/up)") as pid:
            yield pid.strip()

    def start_long_job(self, *args: str) -> str:
        """Start a job that does not end by itself; its id, once it has begun on all nodes."""
        (self.lab.directory / "long.py").write_text("import time\ntime.sleep(1000)\n")
        job_id = self.call("train", "long.py", "--detach", *args).out.strip()
        begun = f"until grep -q ' pid ' {BASE}/jobs/{job_id}/events; do sleep 0.1; done"
        self.on_all(f'timeout 50 bash -c "{begun}"')
        return job_id

    def script(self, name: str, text: str) -> Path:
        """Write a file of the working directory."""
        path = self.lab.directory / name
        path.write_text(text)
        return path

    def wipe(self) -> None:
        """Remove everything of ascendboot from all nodes."""
        self.on_all(_WIPE)

    def document(self) -> Any:
        """The lab's inventory as a value, which a test may change."""
        return yaml.safe_load(self.lab.inventory.read_text())

    def inventory(self, name: str, document: Any = None, **keys: object) -> Path:
        """Write the lab's inventory, or a document made from it, with other top-level keys."""
        path = self.lab.directory / name
        path.write_text(yaml.safe_dump({**(document or self.document()), **keys}))
        return path

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
        found = zip(self.lab.nodes, self.on_all(script), strict=True)
        return {node.name: text.strip() for node, text in found if text.strip()}


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
    operator.setup(exits=0)
    for name, text in scripts.items():
        operator.script(f"{name}.py", text)
    return operator
