"""A measurement of `check --level full`, which each rank of a job runs instead of training.

This file is copied to the nodes as it is: Python 3.7, and nothing but torch, where it is there.

    preflight.py device           measure the rank's device
    preflight.py pair BY PAIRS    exchange data with the other rank of a pair of nodes

It measures in a process of its own, which may crash, or hang in the driver: `preflight.py here …`.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

MARK = "ascendboot-preflight "
"""Begins the line of the rank's log that `checks/collective/findings.py` reads."""
MEASURES = {"device": 150.0, "pair": 200.0}
"""The measurements, each with its limit in seconds. HCCL itself gives up connecting after 120 s,
and 20 s more."""
MEET_S = 30.0
"""How long the nodes of a pair wait for each other."""
LAB_NPU = "/run/ascendboot-lab/npu-load"
"""Of the practice cluster: how often a stand-in NPU repeats its work, or why it fails."""


def main() -> None:
    """Measure in a process of its own, or as that process."""
    what, words = sys.argv[1], sys.argv[2:]
    if what == "here":
        found = device_here() if words[0] == "device" else pair_here(*words[1:])
        os.write(1, json.dumps(found).encode() + b"\n")
    else:
        measure(what, words)


def note(**what: object) -> None:
    """Write one line to the rank's log."""
    os.write(1, (MARK + json.dumps(what) + "\n").encode())


def measure(what: str, words: list[str]) -> None:
    """Note what a measurement found, or why it failed.

    The rank itself ends well, so that the launcher does not end the others. A process that hangs
    in the driver cannot be waited for.
    """
    # Each pair makes its own group; with those of torchrun, PyTorch would join the group of all.
    others = ("RANK_TABLE_FILE", "CM_", "TORCHELASTIC_")
    env = {name: value for name, value in os.environ.items() if not name.startswith(others)}
    env.setdefault("HCCL_CONNECT_TIMEOUT", "120")
    argv = [sys.executable, sys.argv[0], "here", what, *words]
    with subprocess.Popen(argv, env=env, stdout=-1, stderr=-1, universal_newlines=True) as here:
        try:
            out, errors = here.communicate(timeout=MEASURES[what])
        except subprocess.TimeoutExpired:
            here.kill()
            note(failed=f"no result within {MEASURES[what]:g} s", after_s=MEASURES[what])
            os._exit(0)
    lines, last = out.splitlines(), errors.strip().splitlines()[-1:] or ["no message"]
    if here.returncode == 0 and lines and lines[-1].startswith("{"):
        note(measured=json.loads(lines[-1]))
    else:
        how = f"signal {-here.returncode}" if here.returncode < 0 else f"code {here.returncode}"
        note(failed=f"{last[0][:600]} ({how})")


def device_here() -> dict[str, Any]:
    """TFLOPS of a matrix product and GB/s of the memory of this rank's device.

    Without torch_npu the processor does the same, so that the check can be tried.

    Raises:
        WrongProductError: the device computes wrong numbers.
    """
    if importlib.util.find_spec("torch_npu"):
        return npu_here(int(os.environ["DEVICE_ID"]))
    times, side = lab_npu(), 96
    rows = [[float(i + k) for k in range(side)] for i in range(side)]
    columns = [[float(k - j) for k in range(side)] for j in range(side)]
    source, target = bytearray(1 << 24), bytearray(1 << 24)

    def product() -> list[list[float]]:
        return [
            [sum(a * b for a, b in zip(row, column)) for column in columns]  # noqa: B905
            for row in rows
        ]

    def copy() -> None:
        target[:] = source

    in_rows = [sum(column[k] for column in columns) for k in range(side)]
    right = sum(sum(row[k] for row in rows) * in_rows[k] for k in range(side))
    if sum(map(sum, product())) != right:
        raise WrongProductError("the matrix product is wrong")
    product_s, copy_s = shortest(product, times), shortest(copy, times)
    product_rate, memory = 2 * side**3 / product_s / 1e12, 2 * len(source) / copy_s / 1e9
    return {"by": "processor", "product": product_rate, "memory": memory}


class WrongProductError(Exception):
    """A device computes wrong numbers."""


def lab_npu() -> int:
    """How often a stand-in NPU of the practice cluster repeats its work; 1 on any other node.

    Raises:
        OSError: the stand-in fails.
    """
    if not Path(LAB_NPU).exists():
        return 1
    done = subprocess.run([LAB_NPU, os.environ["DEVICE_ID"]], stdout=-1, stderr=-1, check=False)
    if done.returncode:
        raise OSError(done.stderr.decode().strip())
    return int(done.stdout)


def shortest(work: Callable[[], object], times: int) -> float:
    """The least time of three that some work takes the processor, which other ranks use, too."""
    found = []
    for _ in range(3):
        began_s = time.process_time()
        for _ in range(times):
            work()
        found.append(time.process_time() - began_s)
    return max(min(found), 1e-6)


def npu_here(device: int) -> dict[str, Any]:
    """The same on an NPU: 200 products of 8192 x 8192 in fp16, and 20 copies of 1 GiB.

    Raises:
        WrongProductError: the device computes wrong numbers.
    """
    torch: Any = importlib.import_module("torch")
    importlib.import_module("torch_npu")
    place, side = f"npu:{device}", 8192
    torch.npu.set_device(place)
    ones = torch.ones(side, side, dtype=torch.float16, device=place)
    if not bool((torch.matmul(ones, ones) == side).all().item()):
        raise WrongProductError("the matrix product is wrong")
    matrix = torch.randn(side, side, dtype=torch.float16, device=place)
    source = torch.zeros(1 << 28, dtype=torch.float32, device=place)
    target = torch.empty_like(source)

    product_s = mean_s(torch, lambda: torch.matmul(matrix, matrix), 200)
    copy_s = mean_s(torch, lambda: target.copy_(source), 20)
    product, memory = 2 * side**3 / product_s / 1e12, 2 * (1 << 30) / copy_s / 1e9
    return {"by": "NPU", "product": product, "memory": memory}


def mean_s(torch: Any, work: Callable[[], object], count: int) -> float:  # noqa: ANN401
    """The time that some work takes on an NPU, after five times that are not measured."""
    for _ in range(5):
        work()
    torch.npu.synchronize()
    began_s = time.perf_counter()
    for _ in range(count):
        work()
    torch.npu.synchronize()
    return (time.perf_counter() - began_s) / count


def pair_here(by: str, pairs: str) -> dict[str, Any]:
    """GB/s within this rank's pair of nodes; nothing for a rank that takes no part.

    `pairs` is JSON: for each pair its address, its port and its ranks.

    Raises:
        WrongProductError: the data are wrong on arrival.
    """
    rank = int(os.environ["RANK"])
    own = [pair for pair in json.loads(pairs) if rank in pair[2]]
    if not own:
        return {}
    address, port, ranks = own[0]
    place = ranks.index(rank)
    if by == "processor":
        if place and os.environ["LOCAL_RANK"] != "0":
            return {}
        return {} if not lab_npu() else sockets_here(address, port, place)
    torch: Any = importlib.import_module("torch")
    importlib.import_module("torch_npu")
    distributed: Any = importlib.import_module("torch.distributed")
    torch.npu.set_device(f"npu:{os.environ['DEVICE_ID']}")
    where = f"tcp://[{address}]:{port}" if ":" in address else f"tcp://{address}:{port}"
    limit = timedelta(seconds=MEASURES["pair"])
    distributed.init_process_group(
        "hccl", init_method=where, rank=place, world_size=len(ranks), timeout=limit
    )
    data = torch.ones(1 << 26, dtype=torch.float32, device="npu")
    distributed.all_reduce(data)
    if not bool((data == len(ranks)).all().item()):
        raise WrongProductError("the allreduce is wrong")
    took_s = mean_s(torch, lambda: distributed.all_reduce(data), 20)
    distributed.destroy_process_group()
    return {"bandwidth": (1 << 28) / took_s / 1e9}


def sockets_here(address: str, port: int, place: int) -> dict[str, Any]:
    """The same by one TCP connection: the first node sends back what the second one sends."""
    data = bytes(range(256)) * (1 << 16)
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    if place == 0:
        with socket.socket(family, socket.SOCK_STREAM) as door:
            door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            door.bind((address, port))
            door.listen(1)
            door.settimeout(MEET_S)
            try:
                connection = door.accept()[0]
            except socket.timeout as error:  # noqa: UP041 - another class before Python 3.10
                raise OSError(f"the other node did not connect within {MEET_S:g} s") from error
        with connection:
            connection.settimeout(MEET_S)
            connection.sendall(connection.makefile("rb").read(len(data)))
        return {}
    with connected(address, port) as connection:
        began_s = time.perf_counter()
        connection.sendall(data)
        back = connection.makefile("rb").read(len(data))
        if back != data:
            raise WrongProductError(f"{len(back)} of {len(data)} bytes came back, or wrong ones")
        return {"bandwidth": 2 * len(data) / (time.perf_counter() - began_s) / 1e9}


def connected(address: str, port: int) -> socket.socket:
    """A connection to the other node, which may not listen yet.

    Raises:
        OSError: there was none in time.
    """
    until = time.monotonic() + MEET_S
    while True:
        try:
            return socket.create_connection((address, port), timeout=MEET_S)
        except OSError as error:  # noqa: PERF203 - one attempt, and a pause
            if time.monotonic() > until:
                raise OSError(f"no connection to {address} port {port}: {error}") from error
            time.sleep(0.1)


if __name__ == "__main__":
    main()
