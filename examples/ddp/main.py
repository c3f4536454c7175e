#!/usr/bin/env python3
"""DistributedDataParallel as PyTorch's users write it, with checkpoints.

On Ascend NPUs (torch_npu) the ranks talk by HCCL, elsewhere by gloo on CPUs: so it runs on the
practice cluster as it does on servers. It learns y = X w from data that it makes itself.

Only rank 0 reads and writes the checkpoint, on its own disk: the other ranks are told by it, so
that the nodes need no disk in common. Python 3.7 or later.
"""

from __future__ import annotations

import argparse
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
    parser.add_argument("--batch", type=int, default=16, help="samples per rank and step")
    parser.add_argument("--checkpoint", type=Path, help="file on the primary; begun from if there")
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


def data(batch: int) -> tuple[DataLoader, DistributedSampler]:
    """The same data on every rank, of which each takes its own part."""
    generator = torch.Generator().manual_seed(7)
    samples = torch.randn(SAMPLES, FEATURES, generator=generator)
    answers = samples @ torch.arange(1.0, FEATURES + 1).unsqueeze(1)
    dataset = TensorDataset(samples, answers)
    sampler = DistributedSampler(dataset, seed=7)
    return DataLoader(dataset, batch_size=batch, sampler=sampler, drop_last=True), sampler


def load(
    path: Path | None,
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    device: torch.device,
) -> int:
    """Continue from the checkpoint that rank 0 has, if it has one; the step to go on with."""
    found = [None]
    if dist.get_rank() == 0 and path is not None and path.exists():
        found = [torch.load(path, map_location="cpu")]
    dist.broadcast_object_list(found, src=0, device=device if HAS_NPU else None)
    if found[0] is None:
        return 0
    model.load_state_dict(found[0]["model"])
    optimizer.load_state_dict(found[0]["optimizer"])
    return found[0]["step"]


def save(path: Path, step: int, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Beside and renamed: whoever is killed while writing leaves the one before."""
    beside = path.with_suffix(".new")
    state = {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save(state, beside)
    beside.replace(path)


def train(args: argparse.Namespace, device: torch.device) -> float:
    """Train to the last step that was asked for; the loss there, averaged over the ranks."""
    torch.manual_seed(7)
    plain = torch.nn.Linear(FEATURES, 1).to(device)
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.05, momentum=0.5)
    step = load(args.checkpoint, plain, optimizer, device)
    print(f"begins at step {step} of {args.steps}", flush=True)
    model = DistributedDataParallel(plain, device_ids=[device.index] if HAS_NPU else None)
    loader, sampler = data(args.batch)
    loss = torch.zeros(1)
    while step < args.steps:
        epoch, skipped = divmod(step, len(loader))
        sampler.set_epoch(epoch)
        for number, (samples, answers) in enumerate(loader):
            if number < skipped or step == args.steps:
                continue
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(samples.to(device)), answers.to(device))
            loss.backward()
            optimizer.step()
            step += 1
            print(f"step {step} loss {loss.item():.4f}", flush=True)
            is_due = step % args.every == 0 or step == args.steps
            if args.checkpoint is not None and is_due and dist.get_rank() == 0:
                save(args.checkpoint, step, plain, optimizer)
    mean = loss.detach().reshape(1).to(device)
    dist.all_reduce(mean)
    return mean.item() / dist.get_world_size()


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
