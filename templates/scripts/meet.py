"""The program of each rank of a preflight: notes what it sees of itself, then meets the others.

This file is copied to the nodes as it is: Python 3.7, and nothing but mpi4py or torch. Every note
is one line of the rank's log and is written before the stage that it names, so that the log of a
rank that hangs, or is killed, shows where.

    preflight.py mpi|gloo FIRSTS PACKAGES NAMES

The last three are lists with commas: the first rank of each node, in rank order; packages whose
versions are noted; variables that the inventory states.
"""

from __future__ import annotations

import array
import faulthandler
import fcntl
import hashlib
import importlib
import json
import os
import re
import resource
import socket
import struct
import sys
import time
from collections.abc import Collection, Mapping
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

MARK = "ascendboot-preflight "
"""Begins the lines of the rank's log that `checks/collective/findings.py` reads."""
STAGES = {
    "load": 120.0,
    "meet": 60.0,
    "neighbours": 30.0,
    "gather": 30.0,
    "sum": 30.0,
    "done": 30.0,
}
"""The stages of a rank in their order, each with its limit in seconds."""
MEET_S = STAGES["meet"] / 2
"""How long gloo waits for ranks that have not started, before it raises an error."""
EXCHANGE_S = 10.0
LINGER_S = 2.0
NUMBERS = 1 << 15
"""Length of the vector: 256 kB are sent as a large message."""
PERIOD = 1009
FAILED = 3

SHM = "/dev/shm"  # noqa: S108 - shared memory, where libraries of one node's ranks talk
COMPARED = (
    *("PATH", "LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH", "PYTHONHOME", "RANK_TABLE_FILE"),
    *("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK_SIZE", "LANG", "LC_ALL", "TZ"),
    *("CM_CHIEF_IP", "CM_CHIEF_PORT", "CM_CHIEF_DEVICE", "CM_WORKER_SIZE", "OMP_NUM_THREADS"),
)
PREFIXES = ("HCCL_", "ASCEND_", "HOROVOD_", "OMPI_MCA_", "ACL_", "TASK_QUEUE_", "PYTORCH_NPU_")
OWN = re.compile(
    # The address, the NIC and the devices of a node or a rank, the folder of its logs …
    r"HCCL_(IF_IP|SOCKET_IFNAME)|ASCEND_(RT_VISIBLE_DEVICES|DEVICE_ID|VISIBLE_DEVICES)"
    r"|ASCEND_PROCESS_LOG_PATH"
    # … its numbers in Horovod, and variables for parts of the launcher.
    r"|HOROVOD_(RANK|LOCAL_RANK|CROSS_RANK|LOCAL_SIZE|CROSS_SIZE|HOSTNAME)"
    r"|OMPI_MCA_(orte|ess|pmix|plm|shmem|initial_wdir|rmaps|oob|routed|orted|mpi_oversubscribe).*"
    # Copies within a node: setup chooses where a container forbids them.
    r"|OMPI_MCA_btl_vader_single_copy_mechanism"
)
SECRET = re.compile("TOKEN|SECRET|PASSW|CREDENTIAL|PRIVATE|_KEY", re.IGNORECASE)
URL = re.compile("://[^/@ ]+@")
ADDRESSES = ("ASCENDBOOT_NODE_ADDRESS", "HCCL_IF_IP", "CM_WORKER_IP")
_SIOCGIFADDR = 0x8915


def main() -> None:
    """Run the stages of one rank."""
    by, (firsts, packages, stated) = sys.argv[1], (word.split(",") for word in sys.argv[2:5])
    facts = json.dumps(seen_here(dict(os.environ), packages, stated), sort_keys=True)
    note(at="start", facts=facts)
    began_s = time.monotonic()
    try:
        began_s = begin("load")
        library = importlib.import_module("mpi4py" if by == "mpi" else "torch.distributed")
        began_s = begin("meet")
        group = (Mpi if by == "mpi" else Gloo)(library)
        note(library=group.library)
        began_s = begin("neighbours")
        check_numbers(group, os.environ)
        group.exchange([int(rank) for rank in firsts])
        began_s = begin("gather")
        note(digests=group.gather(hashlib.sha256(facts.encode()).hexdigest()))
        began_s = begin("sum")
        note(wrong=first_wrong(group.sum(vector(group.rank + 1)), group.size))
        began_s = begin("done")
        group.leave()
    except BaseException as error:  # noqa: BLE001 - every error is noted, and no exit may hang
        give_up(error, time.monotonic() - began_s)


def note(**what: object) -> None:
    """Write one line to the rank's log."""
    os.write(1, (MARK + json.dumps(what) + "\n").encode())


def begin(stage: str) -> float:
    """Note the stage that begins; a rank that exceeds its limit ends, with its stack in the log.

    The timer is a thread of C: it also ends a rank whose library holds the interpreter's lock.
    """
    note(at=stage)
    faulthandler.dump_traceback_later(STAGES[stage], exit=True)
    return time.monotonic()


def give_up(error: BaseException, after_s: float) -> None:
    """Note why, and end without finalizing the library, which would wait for the others."""
    silent = error.rank if isinstance(error, SilentError) else None
    why = f"{type(error).__name__}: {error}"[:600]
    note(failed=why, silent=silent, after_s=after_s, waited=after_s >= MEET_S)
    # The launcher then ends all others at once: they may be about to note the same.
    time.sleep(LINGER_S)
    os._exit(FAILED)


def check_numbers(group: Mpi | Gloo, env: Mapping[str, str]) -> None:
    """Check that the ranks that met are those that the launcher started.

    Raises:
        OtherNumbersError: they are not; with an mpi4py of another MPI each rank is alone.
    """
    rank, size = int(env["RANK"]), int(env["WORLD_SIZE"])
    if (group.rank, group.size) != (rank, size):
        raise OtherNumbersError(
            f"it is rank {group.rank} of {group.size} to {group.library}, rank {rank} of {size} "
            "to the launcher"
        )


class OtherNumbersError(Exception):
    """The launcher and the library of the collective number the ranks differently."""


class SilentError(Exception):
    """No message came from the first rank of another node."""

    def __init__(self, rank: int) -> None:
        super().__init__(f"nothing came from rank {rank} within {EXCHANGE_S:g} s")
        self.rank = rank


def vector(factor: int) -> array.array[float]:
    """A rank's part of the sum."""
    return array.array("d", [float(factor * (i % PERIOD)) for i in range(NUMBERS)])


def first_wrong(found: array.array[float], size: int) -> list[float] | None:
    """Place, value and right value of the first number that is not the sum; None: all are."""
    right = vector(size * (size + 1) // 2)
    wrong = (place for place in range(NUMBERS) if found[place] != right[place])
    return next(([place, found[place], right[place]] for place in wrong), None)


class Mpi:
    """All ranks by MPI."""

    def __init__(self, mpi4py: ModuleType) -> None:
        # Importing it initializes MPI: here the ranks meet.
        self._mpi: Any = importlib.import_module("mpi4py.MPI")
        self._comm = self._mpi.COMM_WORLD
        self.rank: int = self._comm.Get_rank()
        self.size: int = self._comm.Get_size()
        version = self._mpi.Get_library_version().split(",")[0].strip("\0 \n")
        self.library = f"{version} (mpi4py {mpi4py.__version__})"

    def exchange(self, firsts: list[int]) -> None:
        """Exchange a message with the next nodes of the ring, if this is a node's first rank.

        Raises:
            SilentError: no message came from the node before.
        """
        if self.rank not in firsts or len(firsts) == 1:
            return
        place = firsts.index(self.rank)
        after, before = firsts[(place + 1) % len(firsts)], firsts[place - 1]
        sent = self._comm.isend(self.rank, dest=after, tag=1)
        received = self._comm.irecv(source=before, tag=1)
        until = time.monotonic() + EXCHANGE_S
        while not received.test()[0]:
            if time.monotonic() > until:
                raise SilentError(before)
            time.sleep(0.002)
        sent.wait()

    def gather(self, digest: str) -> list[str] | None:
        """The digests of all ranks, at rank 0 only."""
        found: list[str] | None = self._comm.gather(digest)
        return found

    def sum(self, mine: array.array[float]) -> array.array[float]:
        """The sum of the vectors of all ranks."""
        total = array.array("d", bytes(8 * len(mine)))
        self._comm.Allreduce([mine, self._mpi.DOUBLE], [total, self._mpi.DOUBLE])
        return total

    def leave(self) -> None:
        """Finalize the library."""
        self._mpi.Finalize()


class Gloo:
    """All ranks by gloo of torch.distributed."""

    def __init__(self, distributed: ModuleType) -> None:
        self._distributed = distributed
        self._torch: Any = importlib.import_module("torch")
        address = os.environ.get("ASCENDBOOT_NODE_ADDRESS", "")
        if address and "GLOO_SOCKET_IFNAME" not in os.environ and nic_of(address):
            os.environ["GLOO_SOCKET_IFNAME"] = nic_of(address)
        distributed.init_process_group("gloo", timeout=timedelta(seconds=MEET_S))
        self.rank: int = distributed.get_rank()
        self.size: int = distributed.get_world_size()
        self.library = f"gloo (torch {self._torch.__version__})"

    def exchange(self, firsts: list[int]) -> None:
        """Do nothing: gloo connects every rank with every other when it meets."""

    def gather(self, digest: str) -> list[str] | None:
        """The digests of all ranks, at rank 0 only."""
        mine = self._torch.tensor(list(bytes.fromhex(digest)), dtype=self._torch.uint8)
        found = [self._torch.zeros_like(mine) for _ in range(self.size)]
        self._distributed.all_gather(found, mine)
        return [bytes(one.tolist()).hex() for one in found] if self.rank == 0 else None

    def sum(self, mine: array.array[float]) -> array.array[float]:
        """The sum of the vectors of all ranks."""
        total = self._torch.tensor(mine.tolist(), dtype=self._torch.float64)
        self._distributed.all_reduce(total)
        return array.array("d", total.tolist())

    def leave(self) -> None:
        """Finalize the library."""
        self._distributed.barrier()
        self._distributed.destroy_process_group()


def seen_here(
    env: Mapping[str, str], packages: Collection[str], stated: Collection[str]
) -> dict[str, Any]:
    """Place, rank table, versions, environment and limits of this process."""
    rank = env.get("RANK", "")
    return {
        "rank": rank,
        "size": env.get("WORLD_SIZE", ""),
        "local_rank": env.get("LOCAL_RANK", ""),
        "device": env.get("DEVICE_ID", ""),
        "visible": env.get("ASCEND_RT_VISIBLE_DEVICES", ""),
        "logic_ids": env.get("ASCENDBOOT_LOGIC_IDS", ""),
        "host": socket.gethostname(),
        "container": container_id(),
        "elsewhere": {n: env[n] for n in ADDRESSES if env.get(n) and not is_here(env[n])},
        "table": table_seen(env.get("RANK_TABLE_FILE", ""), rank),
        "versions": versions(packages),
        "env": {name: shown(name, value) for name, value in env.items() if is_compared(name)},
        "unset": [name for name in stated if is_compared(name) and name not in env],
        "limits": limits(),
    }


def is_compared(name: str) -> bool:
    """Whether a variable must be the same for all ranks."""
    return (name in COMPARED or name.startswith(PREFIXES)) and not OWN.fullmatch(name)


def shown(name: str, value: str) -> str | dict[str, str]:
    """The value; for what looks like a secret, a digest that shows whether two differ."""
    marked = os.environ.get("ASCENDBOOT_SECRETS", "").split()
    if SECRET.search(name) or name in marked or URL.search(value):
        return {"digest": hashlib.sha256(os.fsencode(value)).hexdigest()[:8]}
    return value


def table_seen(path: str, rank: str) -> dict[str, str] | None:
    """The rank table as this rank reads it, with the place of this rank in it."""
    if not path:
        return None
    try:
        text = Path(path).read_bytes()
        server, device = entry_of(json.loads(text.decode()), rank) or ("", "")
    except (OSError, ValueError) as error:
        return {"sha256": "", "server": "", "device": "", "problem": str(error)}
    digest = hashlib.sha256(text).hexdigest()
    return {"sha256": digest, "server": server, "device": device, "problem": ""}


def entry_of(part: object, rank: str, server: str = "") -> tuple[str, str] | None:
    """Server and device of a rank in a rank table of any generation; None: it has no entry."""
    if isinstance(part, dict):
        server = str(part.get("server_id", server))
        if "rank_id" in part and str(part["rank_id"]) == rank:
            devices = part.get("devices") or [part]
            return server, str(devices[0].get("device_id", ""))
        part = list(part.values())
    if isinstance(part, list):
        for inner in part:
            found = entry_of(inner, rank, server)
            if found:
                return found
    return None


def versions(packages: Collection[str]) -> dict[str, str]:
    """Of Python and of these packages, by the folders beside them.

    Nothing is loaded, and Python 3.7 has no module that knows versions.
    """
    found = {"Python": ".".join(map(str, sys.version_info[:3]))}
    for folder in sys.path:
        for info in sorted(Path(folder or ".").glob("*-*.*-info")):
            name, _, version = info.name.rpartition(".")[0].partition("-")
            if name.lower() in packages:
                found.setdefault(name.lower(), version.partition("-")[0])
    return found


def limits() -> dict[str, str]:
    """The limits of the process."""
    shm = os.statvfs(SHM) if Path(SHM).is_dir() else None
    found = {SHM: f"{shm.f_blocks * shm.f_frsize >> 20} MiB" if shm else "not there"}
    for name, which in (("-l", resource.RLIMIT_MEMLOCK), ("-n", resource.RLIMIT_NOFILE)):
        soft, _ = resource.getrlimit(which)
        found[f"ulimit {name}"] = "unlimited" if soft == resource.RLIM_INFINITY else str(soft)
    return found


def container_id() -> str:
    """The beginning of the id of the container in which this runs, from its mounts."""
    for path in ("/proc/self/mountinfo", "/proc/self/cgroup"):
        try:
            found = re.search("[0-9a-f]{64}", Path(path).read_text(errors="replace"))
        except OSError:
            continue
        if found:
            return found[0][:12]
    return ""


def is_here(address: str) -> bool:
    """Whether an interface of this node has the address."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as one:
        try:
            one.bind((address, 0))
        except OSError:
            return False
    return True


def nic_of(address: str) -> str:
    """The interface that has the address first; empty where none does."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(one, _SIOCGIFADDR, struct.pack("256s", name.encode()))
            except OSError:
                continue
            if socket.inet_ntoa(answer[20:24]) == address:
                return name
    return ""


if __name__ == "__main__":
    main()
