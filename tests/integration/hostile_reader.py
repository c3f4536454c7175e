"""A process of its own that asks a server for its NPUs and tells what it heard, and its size."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from ascendboot.errors import NodeError
from ascendboot.facts.npus import npu_queries
from ascendboot.facts.query import Unanswered, query
from ascendboot.model.cluster import Node, SshAccess
from ascendboot.transport.api import Command, Effect
from ascendboot.transport.hostkeys import HostKeys
from ascendboot.transport.ssh import SshOpener
from tests.integration.real_sshd import WHO


def main(user: str, port: str, identity: str, fingerprint: str, folder: str) -> None:
    ssh = SshAccess(user=user, port=int(port), identity=identity, fingerprint=fingerprint)
    here = "127.0.0.1"
    node = Node(name="n1", address=here, cluster_address=here, server_id="n1", ssh=ssh)
    flood = Command(argv=("flood",), purpose="flood", effect=Effect.READ, timeout_s=20.0)
    told: dict[str, object] = {}
    transport = SshOpener(HostKeys(Path(folder) / "known", user_files=[]))(node)
    try:
        plain, after = transport.run_all([flood, WHO])
        told["plain"] = "as expected" if plain.as_expected else plain.outcome()
        told["after"] = after.exit_code
        npus = query(transport, npu_queries())["npus"]
        told["npus"] = npus.message if isinstance(npus, Unanswered) else str(npus.value)
    except NodeError as error:
        told["error"] = str(error)
    finally:
        transport.close()
    told["peak_mib"] = _peak_mib()
    json.dump(told, sys.stdout)


def _peak_mib() -> int:
    """Of this program alone: `ru_maxrss` begins with what its caller takes."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) >> 10


if __name__ == "__main__":
    main(*sys.argv[1:])
