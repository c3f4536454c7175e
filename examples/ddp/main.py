#!/usr/bin/env python3
"""DistributedDataParallel as PyTorch's users write it, with checkpoints.

On Ascend NPUs (torch_npu) the ranks talk by HCCL, elsewhere by gloo on CPUs: so it runs on the
practice cluster as it does on servers. It learns y = X w + noise from data that it makes itself.

Rank 0 alone reads a checkpoint and sends it to the other ranks, so that the nodes need no disk in
common. With `STEP` in the name of the checkpoint every one is kept, and each node writes its own: a
job that lost a node resumes on the others. With --global-batch the number of ranks may change: the
samples of each step, and so the losses, stay the same. Python 3.7 or later.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

try:
    import torch_npu  # noqa: F401 - it adds torch.npu
except ImportError:
    HAS_NPU = False
else:
    HAS_NPU = torch.npu.is_available()

FEATURES = 8
SAMPLES = 512


def wanted() -> argparse.Namespace:
    """What was asked for on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20, help="how far to train, in steps")
    parser.add_argument("--batch", type=int, default=16, help="samples of one pass on one rank")
    parser.add_argument("--global-batch", type=int, help="samples of one step over all ranks")
    parser.add_argument(
        "--checkpoint", type=Path, help="file; STEP in it becomes the step, else rank 0 keeps one"
    )
    parser.add_argument("--resume", type=Path, help="checkpoint to resume from")
    parser.add_argument("--every", type=int, default=5, help="steps between checkpoints")
    return parser.parse_args()


def set_up() -> torch.device:
    """Join the other ranks; this rank's device."""
    local_rank = int(os.environ["LOCAL_RANK"])
    if HAS_NPU:
        torch.npu.set_device(local_rank)
        dist.init_process_group("hccl")
        return torch.device("npu", local_rank)
    dist.init_process_group("gloo")
    return torch.device("cpu")


def share_of(args: argparse.Namespace) -> int:
    """The samples of one step on this rank; --global-batch stays the same on fewer ranks."""
    ranks = int(os.environ.get("ASCENDBOOT_DP") or dist.get_world_size())
    whole = args.global_batch or args.batch * ranks
    if whole % (args.batch * ranks):
        raise SystemExit(f"--global-batch {whole} is no multiple of {args.batch} on {ranks} ranks")
    return whole // ranks


def data(batch: int) -> tuple[DataLoader, DistributedSampler]:
    """The same data on every rank, of which each takes its own part."""
    generator = torch.Generator().manual_seed(7)
    samples = torch.randn(SAMPLES, FEATURES, generator=generator)
    noise = 0.3 * torch.randn(SAMPLES, 1, generator=generator)
    answers = samples @ torch.arange(1.0, FEATURES + 1).unsqueeze(1) + noise
    dataset = TensorDataset(samples, answers)
    sampler = DistributedSampler(dataset, seed=7)
    return DataLoader(dataset, batch_size=batch, sampler=sampler, drop_last=True), sampler


def resumed(args: argparse.Namespace) -> Path | None:
    """The checkpoint to load: as stated, of the step that ascendboot chose, or the one kept."""
    step = os.environ.get("ASCENDBOOT_RESUME_STEP") or "0"
    if args.resume or not args.checkpoint:
        return args.resume
    if "STEP" in args.checkpoint.name:
        return None if step == "0" else of_step(args.checkpoint, step)
    return args.checkpoint if args.checkpoint.exists() else None


def of_step(path: Path, step: object) -> Path:
    """The file of one step."""
    return path.with_name(path.name.replace("STEP", str(step)))


def load(
    args: argparse.Namespace,
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    device: torch.device,
) -> int:
    """Continue from the checkpoint that rank 0 loads, if there is one; the step to go on with."""
    found = [None]
    path = resumed(args) if dist.get_rank() == 0 else None
    if path is not None:
        found = [torch.load(path, map_location="cpu")]
    dist.broadcast_object_list(found, src=0, device=device if HAS_NPU else None)
    if found[0] is None:
        return 0
    model.load_state_dict(found[0]["model"])
    optimizer.load_state_dict(found[0]["optimizer"])
    return found[0]["step"]


def is_saver(path: Path | None) -> bool:
    """Whether this rank writes checkpoints: the first of each node, or rank 0 alone."""
    if path is None:
        return False
    rank = int(os.environ["LOCAL_RANK"]) if "STEP" in path.name else dist.get_rank()
    return rank == 0


def save(path: Path, step: int, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Write beside and rename: a process that is killed while writing leaves the one before."""
    path = of_step(path, step)
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f"{path.name}.{dist.get_rank()}.new")
    state = {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
    with beside.open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)


def gradients(
    model: DistributedDataParallel, batch: int, samples: torch.Tensor, answers: torch.Tensor
) -> torch.Tensor:
    """Add up gradients over passes of `batch` samples; the loss, averaged over all ranks."""
    parts = list(zip(samples.split(batch), answers.split(batch)))  # noqa: B905 - Python 3.7
    loss = torch.zeros(1, device=samples.device)
    for number, (some, right) in enumerate(parts, 1):
        is_last = number == len(parts)  # only then do the ranks exchange gradients
        with contextlib.nullcontext() if is_last else model.no_sync():
            part = torch.nn.functional.mse_loss(model(some), right) / len(parts)
            part.backward()
        loss += part.detach()
    dist.all_reduce(loss)
    return loss / dist.get_world_size()


def train(args: argparse.Namespace, device: torch.device) -> float:
    """Train to the last step that was asked for; the loss there, averaged over the ranks."""
    torch.manual_seed(7)
    plain = torch.nn.Linear(FEATURES, 1).to(device)
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.05, momentum=0.5)
    step = load(args, plain, optimizer, device)
    print(f"begins at step {step} of {args.steps}", flush=True)
    model = DistributedDataParallel(plain, device_ids=[device.index] if HAS_NPU else None)
    loader, sampler = data(share_of(args))
    loss = torch.zeros(1)
    while step < args.steps:
        epoch, skipped = divmod(step, len(loader))
        sampler.set_epoch(epoch)
        for number, (samples, answers) in enumerate(loader):
            if number < skipped or step == args.steps:
                continue
            optimizer.zero_grad()
            loss = gradients(model, args.batch, samples.to(device), answers.to(device))
            optimizer.step()
            step += 1
            print(f"step {step} loss {loss.item():.6f}", flush=True)
            is_due = step % args.every == 0 or step == args.steps
            if is_due and is_saver(args.checkpoint):
                save(args.checkpoint, step, plain, optimizer)
    return loss.item()


@record
def main() -> None:
    """Train, and say how it ended."""
    args = wanted()
    device = set_up()
    loss = train(args, device)
    place = f"rank {dist.get_rank()} of {dist.get_world_size()} on {device}"
    print(f"{place}: loss {loss:.4f}", flush=True)
    # The model is part of reference cycles and keeps gloo's threads running. If Python frees it at
    # its end, the process may abort: "terminate called without an active exception" (torch 2.13).
    gc.collect()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
