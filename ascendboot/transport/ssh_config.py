"""Applies the operator's ~/.ssh/config to a node, as OpenSSH itself resolves it (`ssh -G`)."""

from __future__ import annotations

import getpass
import os
import re
import subprocess
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache

from ascendboot.errors import UsageError
from ascendboot.model.cluster import Node, jump_of
from ascendboot.value import replace

_ASK_S = 30.0


class ProxyCommandError(UsageError):
    """A ProxyCommand that is no jump host."""


def configured(node: Node, file: str = "") -> Node:
    """Return the node with what ~/.ssh/config states for its address; the inventory wins.

    Raises:
        ProxyCommandError: the file states one.
        UsageError: ssh does not understand the file.
    """
    file = file or os.path.expanduser("~/.ssh/config")  # noqa: PTH111 - never raises
    if not os.path.exists(file):  # noqa: PTH110 - also without a home
        return node
    ssh, address = node.ssh, node.address
    own = [] if "user" in ssh.unstated else ["-l", ssh.user]
    own += [] if "port" in ssh.unstated else ["-p", str(ssh.port)]
    # The defaults are the same for all hosts, but the name; one process per node is enough.
    defaults, said = _options("/dev/null", "localhost", ()), _options(file, address, tuple(own))
    stated = {key: values for key, values in said.items() if values != defaults.get(key)}
    first = {key: values[0] for key, values in stated.items() if values[0] != "none"}
    command = first.get("proxycommand", "")
    jump = ssh.jump or first.get("proxyjump") or jump_of(command)
    if command and jump is None:
        raise ProxyCommandError(
            f"{file}: it states a ProxyCommand for {address}, which ascendboot does not use; state "
            "ProxyJump there, or `jump` in the inventory; before there is one, name the other "
            "hosts: init HOST --from FILE"
        )
    host, user = first.get("hostname", address), first.get("user", ssh.user)
    files: tuple[str, ...] = ()
    if ssh.identity is None or "identity" in ssh.unstated:
        names = {"%d": os.path.dirname(os.path.dirname(file)), "%h": host, "%r": user, "%%": "%"}  # noqa: PTH120
        stated_files = stated.get("identityfile", ())
        if any("%u" in name for name in stated_files):
            names["%u"] = getpass.getuser()  # an error for a user id without a name
        files = tuple(
            re.sub("%[dhru%]", lambda token: names[token[0]], name) for name in stated_files
        )
    access = replace(
        ssh,
        user=user,
        port=int(first.get("port", ssh.port)),
        identity=None if files else ssh.identity,
        files=files,
        only_files=first.get("identitiesonly") == "yes",
        known_as=first.get("hostkeyalias"),
        jump=jump,
        unstated=(),
    )
    return replace(node, address=host, ssh=access)


@cache
def _options(file: str, address: str, own: Sequence[str]) -> Mapping[str, Sequence[str]]:
    argv = ["ssh", "-F", file, *own, "-G", "--", address]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=_ASK_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        words = f"{file}: could not be read: ssh -G: {error}; install OpenSSH's client"
        raise UsageError(words) from error
    if done.returncode:
        first = next(iter(done.stderr.splitlines()), f"ssh -G exited {done.returncode}")
        if first.startswith("No user exists"):  # such as `docker run --user 12345`, with a HOME
            words = "~/.ssh/config: could not be read: ssh -G: "
            raise UsageError(f"{words}{first}; add this user id to /etc/passwd, or unset HOME")
        place = "" if first.startswith(file) else f"{file}: "
        raise UsageError(f"{place}{first.strip()}; correct the file, which ssh does not accept")
    found: dict[str, list[str]] = defaultdict(list)
    for line in done.stdout.splitlines():
        key, _, value = line.partition(" ")
        found[key].append(value)
    return found
