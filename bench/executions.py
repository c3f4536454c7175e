#!/usr/bin/env python3
"""SSH connections and executions per node, as the nodes' own sshd counts them."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import Any

from common import BASE, Practice, options, practice, show

PROMISE = (
    "per node at most 2 connections and 4 executions for a first setup, 1 and 2 for a second, "
    "which writes nothing"
)
MOST = {"first": (2, 4), "second": (1, 2)}

_SYSTEM_LOG = "/var/log/sshd.log"
_OWN_LOG = f"{BASE}/sshd/sshd.log"
_LOG_WAIT_S = 10.0
_WRITTEN_ALWAYS = {f"{BASE}/lock": "the lock's holder", _OWN_LOG: "the log of our sshd"}

# Only so does sshd log what it is asked for. It re-reads its configuration without a restart.
_COUNT_SESSIONS = f"""\
echo 'LogLevel VERBOSE' >/etc/ssh/sshd_config.d/figures.conf
before=$(grep -c 'Server listening' {_SYSTEM_LOG})
kill -HUP "$(cat /run/sshd.pid)"
for _ in $(seq 250); do
  [ "$(grep -c 'Server listening' {_SYSTEM_LOG})" -gt "$before" ] && exit 0
  sleep 0.02
done
exit 1
"""

# Folders too: a file that was there for a moment leaves its trace in theirs.
_LOOK = """\
[ -d /var/lib/ascendboot ] || exit 0
find /var/lib/ascendboot -printf '%p %i %m %T@ %C@ ' \
  -exec sh -c 'if [ -f "$1" ]; then sha256sum <"$1"; else echo; fi' _ {} \\;
"""


@dataclass(frozen=True)
class Counted:
    """What one sshd saw."""

    connections: int
    logins: int
    executions: int


def main() -> None:
    """Set clusters up twice and count."""
    parser = options("Counts SSH connections and executions per node.")
    parser.add_argument("--nodes", type=int, nargs="+", default=[2, 8], help="cluster sizes (2 8)")
    asked = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for nodes in asked.nodes:
        with practice(nodes) as cluster:
            for node in cluster.lab.nodes:
                cluster.sh(node.name, _COUNT_SESSIONS)
            rows += [_row(cluster, nodes, which) for which in ("first", "second")]
    notes = (
        "connections, executions: from the operator, most on any node, counted by its sshd on port "
        "22\nprimary's: logins from the primary to the cluster's own sshd, which are the proof\n"
        f"written: without {' and '.join(_WRITTEN_ALWAYS.values())}\n"
    )
    show("SSH per node of setup", PROMISE, rows, as_json=asked.json, notes=notes)


def _row(cluster: Practice, nodes: int, which: str) -> dict[str, Any]:
    names = [node.name for node in cluster.lab.nodes]
    places = [(name, log) for name in names for log in (_SYSTEM_LOG, _OWN_LOG)]
    before = {place: _log(cluster, *place) for place in places}
    files = {name: _files(cluster, name) for name in names}
    cluster.call("setup")
    counts = {place: _since(cluster, *place, before[place]) for place in places}
    system = [counts[name, _SYSTEM_LOG] for name in names]
    written = sum(len(_changed(files[name], _files(cluster, name))) for name in names)
    connections = max(c.connections for c in system)
    executions = max(c.executions for c in system)
    most_connections, most_executions = MOST[which]
    kept = connections <= most_connections and executions <= most_executions
    kept = kept and (which == "first" or written == 0)
    return {
        "nodes": nodes,
        "setup": which,
        "connections": connections,
        "executions": executions,
        "primary's": max(counts[name, _OWN_LOG].logins for name in names),
        "written": written,
        "promise": "kept" if kept else "broken",
    }


def _log(cluster: Practice, node: str, path: str) -> str:
    return cluster.sh(node, f"cat {path} 2>/dev/null || :")[1]


def _since(cluster: Practice, node: str, path: str, before: str) -> Counted:
    """What came to a log, once every connection that it tells of has ended."""
    deadline = time.monotonic() + _LOG_WAIT_S
    while True:
        text = _log(cluster, node, path).removeprefix(before)
        opened = len(re.findall(r"^Connection from ", text, re.MULTILINE))
        ended = len(re.findall(r"^(Connection closed by|Disconnected from) ", text, re.MULTILINE))
        if ended >= opened or time.monotonic() > deadline:
            break
        time.sleep(0.05)
    logins = len(re.findall(r"^Accepted publickey ", text, re.MULTILINE))
    executions = len(re.findall(r"^Starting session: ", text, re.MULTILINE))
    return Counted(opened, logins, executions)


def _files(cluster: Practice, node: str) -> dict[str, str]:
    """Inode, mode, times and digest of everything below our folder, by path."""
    lines = cluster.sh(node, _LOOK)[1].splitlines()
    return dict(line.partition(" ")[::2] for line in lines)


def _changed(before: dict[str, str], after: dict[str, str]) -> set[str]:
    paths = before.keys() | after.keys()
    different = {path for path in paths if before.get(path) != after.get(path)}
    return different - _WRITTEN_ALWAYS.keys()


if __name__ == "__main__":
    main()
