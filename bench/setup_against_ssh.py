#!/usr/bin/env python3
"""`setup`, the whole process, against its own scripts sent by bare parallel OpenSSH."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from itertools import zip_longest
from operator import truediv
from pathlib import Path
from typing import Any
from unittest.mock import patch

from common import BASE, Practice, Verdict, in_pairs, options, practice, show
from invoke.program import Program

from ascendboot.cli.program import namespace
from ascendboot.transport.api import Command, Result
from ascendboot.transport.login_session import SshTransport
from ascendboot.transport.script import Reply, compile_script, launch_line
from ascendboot.value import replace

PROMISE = "at most 2 times as long as the same scripts over one shared connection per node"
LIMIT = 2.0

Batch = tuple["Command", ...]
Barrier = dict[str, Batch]
"""What every node is sent at the same time."""

_SSH = shutil.which("ssh") or "/usr/bin/ssh"
_SSH_CONFIG = """\
Host {name}
    HostName {address}
    User root
    IdentityFile {identity}
    IdentitiesOnly yes
    UserKnownHostsFile {known_hosts}
    BatchMode yes
    ControlMaster auto
    ControlPath {folder}/%n
    ControlPersist yes
"""
_KEYS = f"""\
for key in {BASE}/sshd/host_key {BASE}/trust/cluster_key; do
  [ ! -e $key ] || ssh-keygen -y -P '' -f $key | cut -d' ' -f1,2
done
"""


@dataclass(frozen=True)
class Recording:
    """One setup: what it sent, barrier by barrier, and the public keys that it left, by node."""

    barriers: tuple[Barrier, ...]
    keys: Mapping[str, Sequence[str]]


def main() -> None:
    """Measure first and second setups on clusters of the sizes asked for."""
    parser = options("Compares setup with its own scripts sent by bare parallel ssh.")
    parser.add_argument("--nodes", type=int, nargs="+", default=[2, 8], help="cluster sizes (2 8)")
    asked = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for nodes in asked.nodes:
        with practice(nodes) as cluster:
            rows += _rows(cluster, nodes, asked)
    notes = (
        "setup: from the start of the process to its end; ssh: from the first ssh to the end of "
        "the last,\nno interpreter to start; a script waits for those before it as in setup\n"
    )
    show("setup against bare ssh", PROMISE, rows, as_json=asked.json, notes=notes)


def _rows(cluster: Practice, nodes: int, asked: Namespace) -> list[dict[str, Any]]:
    first, second = _recorded(cluster), _recorded(cluster)

    def setups() -> tuple[float, float]:
        cluster.wipe()
        return cluster.call("setup")[0], cluster.call("setup")[0]

    def by_ssh() -> tuple[float, float]:
        cluster.wipe()
        return _sent(cluster, first), _sent(cluster, second)

    measured = in_pairs(asked, setups, by_ssh)
    return [
        _row(nodes, which, [(ours[turn], theirs[turn]) for ours, theirs in measured])
        for turn, which in enumerate(("first", "second"))
    ]


def _row(nodes: int, which: str, measured: Sequence[tuple[float, float]]) -> dict[str, Any]:
    verdict = Verdict(measured, truediv, LIMIT)
    setup_s, ssh_s = verdict.seconds()
    return {
        "nodes": nodes,
        "setup": which,
        "pairs": len(measured),
        "setup s": setup_s,
        "ssh s": ssh_s,
        "ratio": verdict.median,
        "min": min(verdict.values),
        "max": max(verdict.values),
        "fastest": verdict.fastest,
        "promise": verdict.word,
    }


def _recorded(cluster: Practice) -> Recording:
    """What a setup sends, taken where ascendboot hands it to SSH."""
    sent: dict[str, list[Batch]] = {node.name: [] for node in cluster.lab.nodes}
    run_all = SshTransport.run_all

    def recording(self: SshTransport, commands: Sequence[Command]) -> tuple[Result, ...]:
        sent[self.node].append(tuple(commands))
        return run_all(self, commands)

    program = Program(name="ascendboot", binary="ascendboot", namespace=namespace())
    with patch.object(SshTransport, "run_all", recording), _quietly_in(cluster.lab.directory):
        program.run(cluster.argv("setup"), exit=False)
    barriers = zip_longest(*([(name, batch) for batch in sent[name]] for name in sent))
    return Recording(
        tuple(dict(filter(None, barrier)) for barrier in barriers),
        {name: _public_keys(cluster, name) for name in sent},
    )


def _sent(cluster: Practice, recording: Recording) -> float:
    """How long bare ssh takes for the same scripts, each barrier on all nodes in parallel."""
    took = 0.0
    with _ssh_config(cluster) as config, ThreadPoolExecutor(len(cluster.lab.nodes)) as pool:
        for barrier in recording.barriers:
            current = {name: _public_keys(cluster, name) for name in recording.keys}
            batches = _with_keys(barrier, recording.keys, current)
            began = time.perf_counter()
            done = [pool.submit(_send, config, name, batch) for name, batch in batches.items()]
            for each in done:
                each.result()
            took += time.perf_counter() - began
    return took


def _send(config: Path, node: str, commands: Batch) -> None:
    script = compile_script(commands)
    with (config.parent / f"{node}.err").open("wb") as errors:
        done = subprocess.run(
            [_SSH, "-F", str(config), node, launch_line(script.program)],
            input=script.program,
            stdout=subprocess.PIPE,
            stderr=errors,
            check=False,
        )
    reply = Reply(node, script, done.stdout)
    for result in reply.results:
        result.checked()
    if not reply.ended:
        sys.exit(f"bench: {node}: {commands[0].purpose}: ssh exited {done.returncode}")


def _public_keys(cluster: Practice, node: str) -> Sequence[str]:
    return cluster.sh(node, _KEYS)[1].splitlines()


def _with_keys(
    barrier: Barrier, old: Mapping[str, Sequence[str]], new: Mapping[str, Sequence[str]]
) -> Barrier:
    """The barrier with the keys that the nodes have made now, for its proof to succeed."""
    pairs = [
        (then.encode(), now.encode())
        for name in old
        for then, now in zip(old[name], new[name], strict=False)
    ]

    def current(command: Command) -> Command:
        text = command.stdin
        for then, now in pairs:
            text = text.replace(then, now)
        return replace(command, stdin=text)

    return {name: tuple(map(current, batch)) for name, batch in barrier.items()}


@contextmanager
def _ssh_config(cluster: Practice) -> Iterator[Path]:
    lab = cluster.lab
    with tempfile.TemporaryDirectory(prefix="ssh-") as name, ExitStack() as afterwards:
        folder = Path(name)
        path = folder / "config"
        text = ""
        for node in lab.nodes:
            text += _SSH_CONFIG.format(
                name=node.name,
                address=node.address,
                identity=lab.identity,
                known_hosts=lab.known_hosts,
                folder=folder,
            )
            leave = [_SSH, "-F", str(path), "-O", "exit", node.name]
            afterwards.callback(subprocess.run, leave, capture_output=True, check=False)
        path.write_text(text)
        yield path


@contextmanager
def _quietly_in(directory: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(directory)
    try:
        with Path(os.devnull).open("w") as nowhere:  # noqa: SIM117
            with redirect_stdout(nowhere), redirect_stderr(nowhere):
                yield
    finally:
        os.chdir(before)


if __name__ == "__main__":
    main()
