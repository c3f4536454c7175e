"""The hints of `check --advise`, each with a text to which it applies and one to which not."""

from __future__ import annotations

import pytest

from ascendboot.cli.advice import Hint
from ascendboot.value import data_file

HINTS = {hint.id: hint for hint in data_file("cli/advice.yaml", list[Hint])}
OVERFLOW = "Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to"
DEEPSPEED = "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to"
LOADER = "DataLoader(data, num_workers=4)\nDataLoader(data, num_workers = {})"


@pytest.mark.parametrize(
    ("id_", "text", "where", "words"),
    [
        ("data-parallel", "model = nn.DataParallel(model)", "t:1", "DataParallel is one process"),
        ("backend", "\ndist.init_process_group(backend='nccl')", "t:2", "NCCL is for GPUs"),
        ("bucket-size", "\n\nm = DDP(model)", "t:3", "buckets of 25 MiB"),
        ("loader-workers", LOADER.format(8), "t:1", "8 workers of a DataLoader for each of 8 "),
        ("loader-restarts", "DataLoader(data, num_workers=4)", "t:1", "start anew in each epoch"),
        ("sampler-epoch", "DistributedSampler(data)", "t:1", "in the same order"),
        ("threads", "A=1\nOMP_NUM_THREADS=8\n", "t", "8 threads for each of 8 ranks are 64 on 40"),
        ("loss-scale", f"{OVERFLOW} 64.0\nx\n{OVERFLOW} 32.0", "t", "2 steps … scale is 32.0"),
        ("loss-scale", f"{DEEPSPEED} 32768", "t", "1 steps … scale is 32768"),
    ],
)
def test_a_hint_tells_where_it_applies(id_: str, text: str, where: str, words: str) -> None:
    found = HINTS[id_].applied("t", text, 8, 40)
    assert found["where"] == where
    assert all(part in found["text"] for part in words.split(" … "))
    assert set(found) == {"id", "where", "text", "remedy", "source"}
    assert "{" not in found["text"] + found["remedy"].replace("{ranks_per_node: 1}", "")


@pytest.mark.parametrize(
    ("id_", "text"),
    [
        ("data-parallel", "model = DistributedDataParallel(model)"),
        ("data-parallel", "model = nn.DataParallel(model)\nranks_per_node: 1"),
        ("backend", "dist.init_process_group('hccl')"),
        ("bucket-size", "m = DDP(model, bucket_cap_mb=50)"),
        ("loader-workers", LOADER.format(5)),
        ("loader-restarts", "DataLoader(data, num_workers=4, persistent_workers=True)"),
        ("loader-restarts", "DataLoader(data, num_workers=0)"),
        ("sampler-epoch", "s = DistributedSampler(data)\ns.set_epoch(1)"),
        ("threads", "OMP_NUM_THREADS=5\n"),
        ("loss-scale", "loss scale: 64.0"),
    ],
)
def test_a_hint_is_silent_where_its_advice_is_followed(id_: str, text: str) -> None:
    assert HINTS[id_].applied("t", text, 8, 40) == {}


def test_without_the_number_of_processors_nothing_exceeds_it() -> None:
    assert HINTS["threads"].applied("t", "OMP_NUM_THREADS=99", 8, 0) == {}


def test_every_hint_has_a_source() -> None:
    assert all("guide" in h.source or "torchrun" in h.source for h in HINTS.values())
