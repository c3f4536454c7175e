"""What `train` is told about hangs."""

from __future__ import annotations

import pytest

from ascendboot.cli.launch import HangOptions, hang_options
from ascendboot.errors import UsageError


def test_the_flags_stand_for_a_wish() -> None:
    assert hang_options(None, "tell", detach=True) == HangOptions(timeout_s=1800, stops=False)
    assert hang_options("0", "tell", detach=True) == HangOptions(timeout_s=0, stops=False)
    assert hang_options("90", "stop", detach=False) == HangOptions(timeout_s=90, stops=True)
    assert hang_options("0", "tell", detach=False) == HangOptions(timeout_s=0, stops=False)


@pytest.mark.parametrize(
    ("timeout", "on_hang", "why"),
    [
        ("soon", "tell", '--hang-timeout: "soon" is not a time such as 90s, 10m, 2h or 1d'),
        ("1.9", "tell", '--hang-timeout: "1.9" is less than 2 s'),
        ("1m", "cry", '--on-hang: "cry" is neither tell nor stop'),
        (
            "1m",
            "stop",
            "--on-hang stop: a job that is started with --detach is not checked for han",
        ),
        (
            None,
            "stop",
            "--on-hang stop: a job that is started with --detach is not checked for han",
        ),
        (
            "1m",
            "tell",
            "--hang-timeout 1m: a job that is started with --detach is not checked for ",
        ),
        ("", "tell", '--hang-timeout: "" is not a time'),
    ],
)
def test_what_they_do_not_take_is_refused(timeout: str | None, on_hang: str, why: str) -> None:
    with pytest.raises(UsageError) as refused:
        hang_options(timeout, on_hang, detach=True)
    assert str(refused.value).startswith(why)
