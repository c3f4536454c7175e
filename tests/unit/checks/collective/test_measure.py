"""The measurements of `check --level full`, as a rank makes them."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ascendboot.checks.collective.findings import RankNotes, rank_notes
from templates.scripts import measure


def outcome(
    tmp_path: Path, *changes: tuple[str, str], words: Sequence[str] = ("device",)
) -> RankNotes:
    """What rank 1 notes of a measurement, with something of the program or its modules changed."""
    text = Path(measure.__file__).read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    program = tmp_path / "preflight.py"
    program.write_text(text)
    argv = [sys.executable, str(program), *words]
    env = {"DEVICE_ID": "1", "RANK": "1", "RANK_TABLE_FILE": "/x", "PYTHONPATH": str(tmp_path)}
    env |= {"TORCHELASTIC_USE_AGENT_STORE": "True", "CM_CHIEF_IP": "192.0.2.1"}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=True)
    return rank_notes(done.stdout)


def test_a_device_is_measured_in_a_process_of_its_own(tmp_path: Path) -> None:
    found = outcome(tmp_path)
    assert (found.failed, (found.measured or {})["by"]) == ("", "processor")
    assert all((found.measured or {})[what] > 0 for what in ("product", "memory"))


LAB = 'LAB_NPU = "/run/ascendboot-lab/npu-load"'


@pytest.mark.parametrize(
    ("change", "failed"),
    [
        (("    times, side", "    os.abort()\n    times, side"), "no message (signal 6)"),
        (("!= right", "== right"), "WrongProductError: the matrix product is wrong (code 1)"),
        (('"device": 150.0', '"device": 0.01'), "no result within 0.01 s"),
        ((LAB, 'LAB_NPU = "/bin/false"'), "OSError (code 1)"),
    ],
)
def test_why_a_device_does_not_compute(
    tmp_path: Path, change: tuple[str, str], failed: str
) -> None:
    found = outcome(tmp_path, change)
    assert found.measured is None
    assert found.failed.endswith(failed)


TORCH = """\
float16 = float32 = npu = None
class Npu:
    def __getattr__(self, name): return lambda *_: None
class Tensor:
    def __init__(self, *_, **__): pass
    def __eq__(self, other): return self
    def copy_(self, other): pass
    def all(self): return self
    def item(self): return True
npu, ones, randn, zeros, empty_like = Npu(), Tensor, Tensor, Tensor, Tensor
def matmul(a, b): return a
"""


DISTRIBUTED = """\
import os
assert not {"RANK_TABLE_FILE", "CM_CHIEF_IP", "TORCHELASTIC_USE_AGENT_STORE"} & {*os.environ}
def init_process_group(backend, *, init_method, rank, world_size, timeout):
    assert (backend, init_method, rank, world_size) == ("hccl", "tcp://[fd00::1]:61001", 0, 2)
def all_reduce(data): pass
destroy_process_group = lambda: None
"""


def test_npus_are_measured_where_torch_npu_is(tmp_path: Path) -> None:
    """With a stand-in for torch: the calls are those of its documentation, the NPU is not there."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/__init__.py").write_text(TORCH)
    (tmp_path / "torch/distributed.py").write_text(DISTRIBUTED)
    (tmp_path / "torch_npu.py").write_text("")
    found = outcome(tmp_path)
    assert (found.failed, (found.measured or {})["by"]) == ("", "NPU")
    pairs = json.dumps([["fd00::1", 61001, [1, 3]], ["fd00::2", 61001, [0, 2]]])
    found = outcome(tmp_path, words=("pair", "NPU", pairs))
    assert (found.failed, [*(found.measured or {})]) == ("", ["bandwidth"])


def test_two_nodes_exchange_data(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with ThreadPoolExecutor() as pool:
        first = pool.submit(measure.sockets_here, "127.0.0.1", port, 0)
        second = pool.submit(measure.sockets_here, "127.0.0.1", port, 1)
    assert (first.result(), second.result()["bandwidth"] > 0) == ({}, True)
    pairs = json.dumps([["127.0.0.1", port, [0, 1]]])
    for rank, local in (("2", "0"), ("1", "1")):  # of no pair, and not the first of its node
        monkeypatch.setenv("RANK", rank)
        monkeypatch.setenv("LOCAL_RANK", local)
        assert measure.pair_here("processor", pairs) == {}


def test_a_partner_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "MEET_S", 0.1)
    with pytest.raises(OSError, match="no connection to 127"):
        measure.sockets_here("127.0.0.1", 1, 1)
    with pytest.raises(OSError, match=r"the other node did not connect within 0\.1 s"):
        measure.sockets_here("127.0.0.1", 0, 0)
