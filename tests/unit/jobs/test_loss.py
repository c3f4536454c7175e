"""Losses that go wrong in the output of ranks."""

from __future__ import annotations

from pathlib import Path

import pytest

from ascendboot.errors import AscendbootError
from ascendboot.jobs import loss
from ascendboot.jobs.run import Following
from ascendboot.launch.planner import plan
from ascendboot.value import replace
from tests.fake_transport import FakeTransport
from tests.unit.launch.request import REQUEST

MEGATRON = (
    b" [2026-01-02 03:04:05] iteration       12/     100 | consumed samples: 192 | elapsed time "
    b"per iteration (ms): 100.1 | learning rate: 1.5E-04 | lm loss: %b | loss scale: 1.0 | "
    b"grad norm: 3.1 | number of nan iterations:   0 |\n"
)
BAD = loss.BadLoss(rank=3, node="a-2", value="nan", step="120", at=1767323045.0)


def found(text: bytes, form: str = "") -> list[tuple[str, str]]:
    return [(bad.value, bad.step) for bad in loss.LossWatch(0, "a-1", form).look(text)]


@pytest.mark.parametrize(
    ("line", "value", "step"),
    [
        (b"step 12 loss nan\n", "nan", "12"),
        (b"INFO:tensorflow:loss = nan, step = 100 (1.2 sec)\n", "nan", "100"),
        (b"ERROR:tensorflow:Model diverged with loss = NaN.\n", "nan", ""),
        (b"global_step = 12, total_loss=-inf\n", "-inf", "12"),
        (MEGATRON % b"NAN", "nan", "12"),
        (b"{'loss': nan, 'grad_norm': nan, 'epoch': 0.5}\n", "nan", ""),
        (b"Step: 7 train loss: tensor(inf, device='npu:0')\n", "inf", "7"),
        (b" 12/100 [==>.....] - ETA: 3s - loss: nan - accuracy: 0.1\n", "nan", "12"),
        (b" 5%| | 12/100 [00:05<00:40, 2.1it/s, loss=nan]\rstep 13", "nan", "12"),
        (b"step 1 loss 0.5\nstep 2 loss 0.4\nstep 3 loss nan\nstep 4 loss nan\n", "nan", "3"),
        (b"iteration 9/10 | lm loss: 1.5 | moe loss: Infinity |\n", "infinity", "9"),
        (b"ValueError: loss is nan", "nan", ""),
    ],
)
def test_a_loss_that_is_no_number_is_found_with_its_step(
    line: bytes, value: str, step: str
) -> None:
    assert found(line) == [(value, step)]


@pytest.mark.parametrize(
    "line",
    [
        MEGATRON % b"1.08E+01",
        b"check_for_nan_in_loss_and_grad ......... True\n",
        b"loss: info about it\n",
        b"loss nan_count=0\n",
        b"loss: inf/nan checks are on\n",
        b"lossless: nan\n",
        b"gradient: nan\n",
        b"loss scale: inf\n",
        b"loss:\nnan\n",
    ],
)
def test_other_lines_are_no_such_loss(line: bytes) -> None:
    assert found(line) == []


def test_the_operator_states_another_form() -> None:
    form = "cost (mean) is <NUMBER>;"
    assert found(b"step 4 cost (mean) is nan; loss: nan\n", form) == [("nan", "4")]
    assert found(b"step 4 cost (mean) is nan, loss: nan\n", form) == []


def seen(values: list[bytes], apart_s: float) -> list[tuple[int, str, int, str]]:
    """Which lines, from 0, complete a fault, with value, number of lines and step."""
    watch = loss.LossWatch(0, "a-1")
    return [
        (number, bad.value, bad.lines, bad.step)
        for number, value in enumerate(values)
        for bad in watch.look(
            b"step %d loss: %b aux_loss: 0.0\n" % (number, value), number * apart_s
        )
    ]


def test_a_loss_that_stays_the_same_is_found_after_20_lines_and_60_seconds_once() -> None:
    assert seen([b"0.5", *[b"0.6931"] * 50], 10.0) == [(20, "0.6931", 20, "20")]
    assert seen([b"0.6931"] * 50, 2.0) == [(30, "0.6931", 31, "30")]
    assert seen([b"0.6931"] * 50, 1.0) == []
    assert seen([b"0.6931"] * 19, 100.0) == []
    assert seen([b"0.6931", b"0.6932"] * 50, 10.0) == []


def test_after_an_unchanged_loss_one_that_is_no_number_is_found_too() -> None:
    assert [value for _, value, *_ in seen([b"1.0"] * 30 + [b"nan"] * 30, 10.0)] == ["1.0", "nan"]


def test_only_the_first_bad_loss_of_a_job_is_shown_at_once(tmp_path: Path) -> None:
    shown: list[str] = []
    made = plan(REQUEST)
    following = Following(
        plan=made,
        transports={name: FakeTransport(name) for name in made.nodes},
        folder=tmp_path,
        sink=lambda _: None,
        warn=shown.append,
        forks=1,
    )
    same = replace(BAD, value="0.5", lines=20)
    for bad in (BAD, replace(BAD, rank=1), same, replace(same, rank=1)):
        following._on_loss(bad)
    first, second = loss.loss_words((BAD, same))
    assert shown == [f"job job-1: {first}", f"job job-1: {second}"]
    assert loss.recorded_losses(tmp_path) == following.progress.losses
    assert len(following.progress.losses) == 4


def test_the_first_rank_is_named_and_the_others_are_listed() -> None:
    others = [replace(BAD, rank=rank, at=1767323046.0) for rank in (0, 1, 2)]
    same = loss.BadLoss(rank=0, node="a-1", value="0.6931", step="40", at=1767323045.0, lines=20)
    assert loss.loss_words([*others, same, BAD]) == (
        "a-2: the loss of rank 3 was nan from step 120 on, at 03:04:05 UTC; also ranks 0-2",
        "a-1: the loss of rank 0 was 0.6931 on 20 lines in a row until step 40, at 03:04:05 UTC",
    )
    late = replace(BAD, is_first=False, at=None)
    assert loss.loss_words([late]) == ("a-2: the loss of rank 3 was nan at step 120",)
    assert loss.loss_words([replace(late, step="")]) == ("a-2: the loss of rank 3 was nan",)


def test_losses_are_read_as_they_were_kept(tmp_path: Path) -> None:
    assert loss.recorded_losses(tmp_path) == ()
    other = replace(BAD, rank=1, lines=20, step="")
    loss.record_loss(tmp_path, BAD)
    loss.record_loss(tmp_path, other)
    with (tmp_path / loss.LOSSES_FILE).open("a") as file:
        file.write('{"rank": 2, "no')
    assert loss.recorded_losses(tmp_path) == (BAD, other)
    (tmp_path / loss.LOSSES_FILE).write_text("{}\n")
    with pytest.raises(AscendbootError, match=r"losses\.jsonl: could not be read"):
        loss.recorded_losses(tmp_path)
