"""Runs commands of nodes on this machine, with stand-ins for programs that it lacks."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from ascendboot.model.cluster import CheckpointKind, CheckpointRules
from ascendboot.supervise.checkpoints import Found, checkpoint_query, newest
from ascendboot.transport.api import Command
from tests.fake_transport import Answer, FakeTransport


@dataclass
class Here:
    """Programs are found in `folder`, then on `path`; may be a rule of `FakeTransport`."""

    folder: Path
    path: str = "/usr/sbin:/usr/bin:/sbin:/bin"

    def link(self, *names: str) -> None:
        """Put programs of this machine into the folder, for an empty `path`."""
        for name in names:
            found = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
            assert found is not None, f"{name} is needed"
            (self.folder / name).symlink_to(found)

    def put(self, name: str, script: str) -> str:
        """Put a bash script into the folder, instead of a program that was linked; its path."""
        path = self.folder / name
        path.unlink(missing_ok=True)
        path.write_text(f"#!/bin/bash\n{script}\n")
        path.chmod(0o755)
        return str(path)

    def __call__(self, command: Command) -> Answer:
        """Run one command; its home is the folder."""
        path = f"{self.folder}:{self.path}".rstrip(":")
        done = subprocess.run(
            command.argv,
            env={"PATH": path, "HOME": str(self.folder)},
            input=command.stdin,
            capture_output=True,
            check=False,
            timeout=300,
        )
        return Answer(done.stdout, done.stderr, done.returncode)


def node_here(name: str = "lab-1", programs: Path = Path("/")) -> FakeTransport:
    """A node that is this machine, with a folder of programs before its own."""
    return FakeTransport(name, rules=[Here(programs, path=os.environ["PATH"])])


def resumes_from(folder: Path, kind: CheckpointKind) -> Found:
    """The checkpoint from which a job would go on whose folder is one of this machine."""
    rules = CheckpointRules(kind=kind, dir=str(folder))
    fact = checkpoint_query(rules)
    return newest({"n1": fact.parse(Here(folder)(fact.command).to(fact.command))}, rules)
