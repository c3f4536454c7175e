"""Horovod's own examples, unchanged; they need a checkout of Horovod."""

from __future__ import annotations

import io
import os
import random
import re
import struct
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ascendboot.lab.cluster import Lab
from tests.cluster.operating import BASE, Ended, Operator

EXAMPLES = os.environ.get("ASCENDBOOT_HOROVOD_EXAMPLES", "")
"""The folder `examples` of Horovod's repository; no package of Horovod has them."""

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(
        not EXAMPLES,
        reason="ASCENDBOOT_HOROVOD_EXAMPLES names no folder; "
        "docs/reference/horovod-examples.md says where Horovod's examples are",
    ),
]

TORCH = ".venv-horovod/.examples"
TENSORFLOW = ".venv-tf/.installed"
BUILT_BY = {TORCH: "scripts/horovod examples", TENSORFLOW: "scripts/horovod tf"}
ONCE = "--num-warmup-batches 1 --num-batches-per-iter 1 --num-iters 1"
LEARNED = r"^lab-1:0 \| Test set: Average loss: \S+, Accuracy: (9\d|100)\.\d\d%$"
PICTURES = (
    "--epochs 1 --batch-size 2 --val-batch-size 2"
    " --train-dir /root/data/pictures --val-dir /root/data/pictures"
)
VALIDATED = r"^lab-1:0 \| Validate Epoch  #1: 100%"
CHECKPOINT = "checkpoint-1.pth.tar"
SPEED = r"^lab-1:0 \| Total img/sec on 4 CPU\(s\): \d"


@dataclass(frozen=True)
class Example:
    """A script of Horovod, its arguments, and what rank 0 prints and leaves on success."""

    script: str
    args: str
    says: str
    leaves: tuple[str, ...] = ()
    stack: str = TORCH


WHOLE = {
    "adasum-average": Example(
        "adasum/adasum_small_model.py", "", r"^lab-1:0 \| 1\.0 Average 0\.1 4 \d+$"
    ),
    "adasum": Example(
        "adasum/adasum_small_model.py", "--op Adasum", r"^lab-1:0 \| 1\.0 Adasum 0\.1 4 \d+$"
    ),
    "mnist": Example(
        "pytorch/pytorch_mnist.py", "--epochs 2 --batch-size 16 --data-dir /root/data", LEARNED
    ),
    "mnist-elastic": Example(
        "elastic/pytorch/pytorch_mnist_elastic.py",
        "--epochs 4 --batch-size 16 --data-dir /root/data",
        LEARNED,
    ),
    "synthetic": Example(
        "pytorch/pytorch_synthetic_benchmark.py", f"--model resnet18 --batch-size 1 {ONCE}", SPEED
    ),
    "synthetic-elastic": Example(
        "elastic/pytorch/pytorch_synthetic_benchmark_elastic.py",
        f"--model resnet18 --batch-size 1 {ONCE}",
        SPEED,
    ),
    "imagenet": Example(
        "pytorch/pytorch_imagenet_resnet50.py", PICTURES, VALIDATED, leaves=(CHECKPOINT,)
    ),
    "imagenet-elastic": Example(
        "elastic/pytorch/pytorch_imagenet_resnet50_elastic.py",
        PICTURES,
        VALIDATED,
        leaves=(CHECKPOINT,),
    ),
    "tensorflow-synthetic": Example(
        "tensorflow/tensorflow_synthetic_benchmark.py",
        f"--model MobileNet --batch-size 1 --no-cuda {ONCE}",
        SPEED,
        stack=TENSORFLOW,
    ),
}


@pytest.fixture(scope="module")
def operator(bring_up_once: Callable[..., Lab]) -> Operator:
    """Two nodes of two devices, both with small files to train on."""
    operator = Operator(bring_up_once(nodes=2, devices=2))
    for node in operator.lab.nodes:
        operator.lab.exec(node.name, ["tar", "-x", "-C", "/root"], input=archive())
    return operator


@pytest.mark.parametrize("kind", ["horovod", "mpirun"])
@pytest.mark.parametrize("example", WHOLE.values(), ids=WHOLE)
def test_an_example_of_horovod(
    operator: Operator, pytestconfig: pytest.Config, kind: str, example: Example
) -> None:
    stamp = pytestconfig.rootpath / example.stack
    if not stamp.exists():
        pytest.skip(f"there is no {example.stack} here; {BUILT_BY[example.stack]} makes it")
    job = train(operator, stamp.with_name("bin") / "python", kind, example)
    assert job.code == 0, job.err + job.out
    assert re.search(example.says, job.out, re.MULTILINE), job.out
    [job_id] = re.findall(r"^job (\S+) succeeded", job.err, re.MULTILINE)
    left = operator.sh("lab-1", f"ls {BASE}/jobs/{job_id}/code").split()
    assert {Path(example.script).name, *example.leaves} <= set(left)


def train(operator: Operator, python: Path, kind: str, example: Example) -> Ended:
    keys = {"code": {"python": str(python)}, "launcher": {"kind": kind}}
    inventory = operator.inventory("examples.yaml", **keys)
    # Horovod imports the frameworks several times to say what it was built with.
    operator.call("setup", "--json", inventory=inventory, timeout_s=240, exits=0)
    script = str(Path(EXAMPLES) / example.script)
    return operator.call("train", script, "--", *example.args.split(), timeout_s=600)


def archive() -> bytes:
    """A tar of what the examples train on."""
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w") as tar:
        for name, content in [*digits("train", 1024), *digits("t10k", 128), *pictures()]:
            entry = tarfile.TarInfo(f"data/{name}")
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return whole.getvalue()


def digits(part: str, count: int) -> Iterator[tuple[str, bytes]]:
    """Files in the format of MNIST: each digit is a bar at a different place."""
    chance = random.Random(count)  # noqa: S311 - no secret
    labels = bytes(chance.randrange(10) for _ in range(count))
    bars = [bytes(255 * (2 <= x - 2 * label < 6) for x in range(28)) * 28 for label in range(10)]
    images = b"".join(bars[label] for label in labels)
    yield f"MNIST/raw/{part}-images-idx3-ubyte", struct.pack(">4I", 2051, count, 28, 28) + images
    yield f"MNIST/raw/{part}-labels-idx1-ubyte", struct.pack(">2I", 2049, count) + labels


def pictures() -> Iterator[tuple[str, bytes]]:
    """Four pictures of each of two classes."""
    for place, colour in (("red", b"\xff\0\0"), ("blue", b"\0\0\xff")):
        for number in range(4):
            yield f"pictures/{place}/{number}.ppm", b"P6 8 8 255\n" + 64 * colour
