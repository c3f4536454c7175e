#!/usr/bin/env python3
"""From the death of one rank to the last process gone on all nodes, ours and the launchers' own."""

from __future__ import annotations

import shlex
import statistics
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from common import BASE, CODE, PROGRAM, PROJECT, Practice, options, practice, show, timed

from ascendboot.lab.host import ProcessId, kill_all
from ascendboot.lab.node import entry

PROMISE = "with ascendboot, watched or not, at most 3 s, and the grace where ranks ignore SIGTERM"
LIMIT_S = 3.0
GRACE_S = 3.0
JOB = "one_dies.py"
LAUNCHERS = ("mpirun", "horovod", "torchrun")
DEATHS = (("exit", "heed"), ("kill", "heed"), ("exit", "stubborn"))
"""How one rank dies, and what the others think of SIGTERM."""
MASTER_PORT = 61500
_LOOK_S = 0.02
_START_S = 120.0


@dataclass(frozen=True)
class Ending:
    """One job from its start to the end of all its processes."""

    cluster: Practice
    ranks: int
    cap_s: float
    how: str
    others: str

    @property
    def words(self) -> tuple[str, str, str]:
        """The arguments of the job: the last node's last rank but one dies."""
        return str(self.ranks - 2), self.how, self.others

    def took(self, argvs: Sequence[Sequence[str]]) -> float:
        """Start the job and have the rank die; more than the cap counts as the cap."""
        self._everywhere(f"rm -f {CODE}/up.* {CODE}/go {CODE}/died")
        before = set(self._processes())
        started = [
            subprocess.Popen(
                argv,
                cwd=self.cluster.lab.directory,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            for argv in argvs
        ]
        try:
            self._wait_for_all()
            self._everywhere(f"touch {CODE}/go")
            return self._until_gone(before)
        finally:
            kill_all(set(self._processes()) - before, timeout_s=10.0)
            for process in started:
                process.kill()
                process.wait()

    def _wait_for_all(self) -> None:
        deadline = time.monotonic() + _START_S
        while sum(len(up.split()) for up in self._everywhere(f"ls {CODE}/up.* || :")) < self.ranks:
            if time.monotonic() > deadline:
                sys.exit("bench: the job did not start")
            time.sleep(0.2)

    def _until_gone(self, before: set[ProcessId]) -> float:
        began = time.monotonic()
        while set(self._processes()) - before:
            if time.monotonic() > began + self.cap_s:
                return self.cap_s
            time.sleep(_LOOK_S)
        gone = time.time()
        died = "".join(self._everywhere(f"cat {CODE}/died || :"))
        return gone - float(died)

    def _everywhere(self, script: str) -> list[str]:
        return [self.cluster.sh(node.name, script)[1] for node in self.cluster.lab.nodes]

    def _processes(self) -> Iterator[ProcessId]:
        """Everything that runs on the nodes, logins and followers included."""
        lab = self.cluster.lab
        inits = [lab.process(node.name) for node in lab.nodes]
        nodes = {Path(f"/proc/{init.pid}/ns/pid").readlink() for init in inits if init}
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError, IndexError):  # it ended meanwhile
                if (folder / "ns/pid").readlink() in nodes:
                    fields = (folder / "stat").read_text().rpartition(")")[2].split()
                    yield ProcessId(int(folder.name), int(fields[19]))


def main() -> None:
    """Have a rank die in each way under each launcher, with ascendboot and without."""
    parser = options("From the death of one rank to the last process gone on all nodes.", pairs=3)
    parser.add_argument("--devices", type=int, default=8, help="ranks per node (8)")
    parser.add_argument("--cap", type=float, default=60.0, help="seconds to wait at most (60)")
    parser.add_argument("--launchers", nargs="+", default=LAUNCHERS, choices=LAUNCHERS)
    python = PROJECT / ".venv-horovod/bin/python"
    parser.add_argument("--python", type=Path, default=python, help="one with torch and Horovod")
    asked = parser.parse_args()
    if not asked.python.exists():
        sys.exit(f"bench: no {asked.python}; scripts/horovod torch builds it")
    rows = []
    with practice(2, asked.devices) as cluster:
        cluster.put_job(JOB)
        for launcher in asked.launchers:
            _set_up(cluster, launcher, asked.python)
            rows += [_row(cluster, launcher, *death, asked) for death in DEATHS]
    notes = (
        f"2 nodes of {asked.devices} ranks; medians of seconds from the death of one rank until no "
        "process of the job,\nand no login for it, is left on any node. train, --detach: with "
        f"--grace {GRACE_S:g}\nalone: the launcher's own command, as its manual has it; "
        "mpirun gives ranks one second after SIGTERM\n"
    )
    show("the end of a job", PROMISE, rows, as_json=asked.json, notes=notes)


def _set_up(cluster: Practice, launcher: str, python: Path) -> None:
    lab = cluster.lab
    document = yaml.safe_load(lab.inventory.read_text())
    document["launcher"] = {"kind": launcher}
    document["code"]["python"] = str(python)
    (lab.directory / "wish.yaml").write_text(yaml.safe_dump(document))
    timed([str(PROGRAM), "setup", "--inventory", "wish.yaml"], cwd=lab.directory)


def _row(
    cluster: Practice, launcher: str, how: str, others: str, asked: Namespace
) -> dict[str, Any]:
    ranks = 2 * asked.devices
    ending = Ending(cluster, ranks, asked.cap, how, others)
    words = (JOB, "--grace", f"{GRACE_S:g}", "--", *ending.words)
    train = [str(PROGRAM), "train", *words]
    alone = _alone(cluster, launcher, asked.python, ranks, ending.words)
    rounds = [
        (ending.took([train]), ending.took([[*train[:2], "--detach", *train[2:]]]))
        for _ in range(asked.pairs)
    ]
    theirs: list[float] = []
    while len(theirs) < asked.pairs and asked.cap not in theirs:
        theirs.append(ending.took(alone))
    watched, detached = (statistics.median(column) for column in zip(*rounds, strict=True))
    limit = LIMIT_S + (GRACE_S if others == "stubborn" else 0.0)
    their = statistics.median_high(theirs)
    return {
        "launcher": "horovodrun" if launcher == "horovod" else launcher,
        "one rank": "exits 3" if how == "exit" else "kill -9",
        "others": "ignore SIGTERM" if others == "stubborn" else "end at SIGTERM",
        "rounds": asked.pairs,
        "train s": watched,
        "--detach s": detached,
        "slowest": max(max(pair) for pair in rounds),
        "alone s": f"> {asked.cap:g}" if asked.cap in theirs else their,
        "promise": "kept" if max(watched, detached) <= limit else "broken",
    }


def _alone(
    cluster: Practice, launcher: str, python: Path, ranks: int, words: Sequence[str]
) -> list[list[str]]:
    """What starts the same ranks without ascendboot, on the primary or on every node."""
    nodes, program = cluster.lab.nodes, [str(python), f"{CODE}/{JOB}", *words]
    hosts = ",".join(f"{node.address}:{ranks // 2}" for node in nodes)
    path = f"{BASE}/env/bin:{python.parent}:/usr/bin:/bin"
    if launcher == "torchrun":
        start = [str(python), "-m", "torch.distributed.run", "--nnodes=2", "--no-python"]
        start += [f"--nproc-per-node={ranks // 2}", f"--master-addr={nodes[0].address}"]
        commands = [
            [*start, f"--master-port={MASTER_PORT}", f"--node-rank={number}", *program]
            for number in range(2)
        ]
    elif launcher == "horovod":
        network = f"{nodes[0].address}/24"
        start = ["horovodrun", "--disable-cache", "--mpi", "--network-interface", network]
        commands = [[*start, "-np", str(ranks), "-H", hosts, *program]]
    else:
        mpi = ["mpirun", "--allow-run-as-root", "--bind-to", "none", "--prefix", "/usr"]
        rsh = ["--mca", "plm_rsh_args", f"-F {BASE}/trust/ssh_config"]
        commands = [[*mpi, *rsh, "-np", str(ranks), "-H", hosts, *program]]
    shells = ["bash", "-c"]
    return [
        _on(cluster, node.name, [*shells, f"PATH={path} exec {shlex.join(command)}"])
        for node, command in zip(nodes, commands, strict=False)
    ]


def _on(cluster: Practice, node: str, argv: list[str]) -> list[str]:
    process = cluster.lab.process(node)
    if process is None:
        sys.exit(f"bench: {node} is down")
    return entry(process, argv)


if __name__ == "__main__":
    main()
