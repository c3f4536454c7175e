"""The keys of an inventory that say how a job resumes: checkpoints and parallel sizes."""

from __future__ import annotations

import pytest

from ascendboot.model.cluster import CheckpointRules, Parallel
from tests.unit.inventory.written import loaded, refused

HEAD = "cluster: c\nnodes: {n1: {address: 192.0.2.1}, n2: {address: 192.0.2.2}}\n"
NPU_PORTS = "HCCL_NPU_SOCKET_PORT_RANGE"
EIGHT = "defaults: {devices: 8}\n"


def test_all_keys_of_checkpoints_and_sizes_reach_the_cluster() -> None:
    cluster = loaded(
        f"{HEAD}{EIGHT}"
        "checkpoint: {kind: megatron, dir: /data/ckpt/, resume_arg: '--load {path}',"
        " reshardable: true, shared: true}\n"
        "parallel: {tp: 4, pp: 2, cp: 1, gbs: 256, mbs: 2, dp_min: 2}\n"
    )
    assert cluster.checkpoint == CheckpointRules(
        kind="megatron",
        dir="/data/ckpt",
        resume_arg="--load {path}",
        reshardable=True,
        shared=True,
        model_parts=8,
    )
    assert cluster.parallel == Parallel(tp=4, pp=2, cp=1, gbs=256, mbs=2, dp_min=2)
    assert cluster.parallel.model_devices == 8


def test_only_the_kind_and_the_folder_must_be_stated() -> None:
    cluster = loaded(f"{HEAD}checkpoint: {{kind: torch, dir: /d}}\nparallel: {{}}\n")
    assert cluster.checkpoint == CheckpointRules(
        kind="torch", dir="/d", reshardable=True, model_parts=1
    )
    assert cluster.parallel == Parallel()
    plain = loaded(HEAD)
    assert (plain.checkpoint, plain.parallel) == (None, None)


@pytest.mark.parametrize("kind", ["megatron", "mindspore"])
def test_kinds_that_save_shards_are_not_reshardable_unless_stated(kind: str) -> None:
    rules = loaded(f"{HEAD}checkpoint: {{kind: {kind}, dir: /d}}\n").checkpoint
    assert rules is not None
    assert not rules.reshardable


MISSING = "is missing; write for example"
KINDS = "megatron, tensorflow, torch, mindspore, manifest; write for example `kind: megatron`"
FILLED = "only {path} and {step} are filled in, and one of the two must be there"
DIVIDE = "does not divide the 16 devices of all nodes; state sizes that divide them"
OF_16 = "16 devices hold 2 of a model on 8; state less"


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("checkpoint", "dir: /d", f": kind {MISSING} `kind: megatron`"),
        ("checkpoint", "kind: torch", f": dir {MISSING} `dir: /data/checkpoints`"),
        ("checkpoint", "kind: jax, dir: /d", f'.kind: "jax" is not one of {KINDS}'),
        (
            "checkpoint",
            "kind: torch, dir: /d, resume_arg: '--load {ckpt}'",
            f'.resume_arg: "--load {{ckpt}}": {FILLED}; write for example --load {{path}}',
        ),
        (
            "checkpoint",
            'kind: torch, dir: /d, resume_arg: "--load \'{path}"',
            '.resume_arg: "--load \'{path}": a quotation mark has no partner; close it',
        ),
        (
            "checkpoint",
            "kind: torch, dir: /d, shared: yes",
            ".shared: yes is true in YAML, not the word true or false; write true or false",
        ),
        ("parallel", "tp: 0", ".tp: 0 is not a whole number: 1 or more; write for example `tp: 8`"),
        ("parallel", "tp: 3", f": tp * pp * cp is 3, which {DIVIDE}"),
        (
            "parallel",
            "gbs: 9, mbs: 2",
            ".gbs: gbs is 9, which mbs 2 does not divide; write a multiple of it",
        ),
        ("parallel", "tp: 8, dp_min: 3", f".dp_min: dp_min is 3, and {OF_16}"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_line(key: str, value: str, problem: str) -> None:
    assert refused(f"{HEAD}{EIGHT}{key}: {{{value}}}\n") == [f"i.yaml:4: {key}{problem}"]


def test_sizes_are_not_compared_with_devices_that_nobody_stated() -> None:
    assert loaded(f"{HEAD}parallel: {{tp: 3}}\n").parallel == Parallel(tp=3)


def test_other_numbers_of_ranks_need_no_rank_table() -> None:
    one = loaded(f"{HEAD}launcher: {{ranks_per_node: 1}}\n")
    assert (one.ranks_per_node, one.resource_mode, dict(one.env)) == (1, "root-info", {})
    many = loaded(f"{HEAD}launcher: {{ranks_per_device: 2}}\nhccl: {{{NPU_PORTS}: 61000-61050}}\n")
    assert (many.ranks_per_device, many.resource_mode) == (2, "root-info")
    assert many.env == {"HCCL_HOST_SOCKET_PORT_RANGE": "auto", NPU_PORTS: "61000-61050"}
    own = "launcher: {ranks_per_node: 1}\nresources: {file: t.json}\n"
    why = "root-info has no use for a rank table; leave one of the two out"
    assert refused(f"{HEAD}{own}") == [f"i.yaml:4: resources.file: {why}"]
