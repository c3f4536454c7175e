"""Remedies for what engines say when they refuse; times of nodes by the operator's clock."""

from __future__ import annotations

import pytest

from ascendboot.model.cluster import ContainerExec, NodeClocks

# podman 4.3.1, of a user without ranges of ids
ROOTLESS = (
    "Error: command required for rootless mode with multiple IDs: "
    'exec: "newuidmap": executable file not found in $PATH'
)
WAY = ContainerExec("/usr/bin/podman", "rec-sdk")


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        ("Cannot connect to the Docker daemon at unix:///x.", "start the engine: systemctl start"),
        ("Error response from daemon: Container x is paused", "let it go on: podman unpause"),
        ("can only create exec sessions on running containers", "start it: podman start rec-sdk"),
        ("Error: No such container: rec-sdk", "start it, or correct `container`"),
        ("crun: executable file `bash` not found in $PATH: No such file", "install bash in its"),
        ('exec: "bash": executable file not found in $PATH: unknown', "install bash in its"),
        (ROOTLESS, "log in as the user who started it; podman shows each user nothing but his own"),
        ("/usr/bin/podman: No such file or directory", "is podman still on the host side?"),
        ("Error: mkdir /var/x: no space left on device", "free space on the node (df -h"),
        ("something new", "look at it: podman ps -a"),
    ],
)
def test_what_an_engine_says_has_a_remedy(words: str, remedy: str) -> None:
    assert WAY.remedy(words).startswith(remedy)


def test_a_clock_that_is_ahead_or_behind_or_not_known() -> None:
    clocks = NodeClocks({"a-1": 2.5, "a-2": -1.0})
    assert [clocks.here(node, 10.0) for node in ("a-1", "a-2", "a-3")] == [7.5, 11.0, 10.0]
    assert [clocks.there(node, 10.0) for node in ("a-1", "a-2", "a-3")] == [12.5, 9.0, 10.0]
