"""A program that queries a server for its NPUs; prints the answers and its peak memory."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from ascendboot.errors import NodeError
from ascendboot.facts.npus import npu_queries
from ascendboot.facts.query import Unanswered, query
from ascendboot.transport.api import Command, Effect
from ascendboot.transport.hostkeys import HostKeys
from ascendboot.transport.ssh import SshOpener
from tests.integration.real_sshd import WHO
from tests.unit.transport.builders import node


def main(user: str, port: str, identity: str, fingerprint: str, folder: str) -> None:
    access: dict[str, Any] = {"port": int(port), "identity": identity, "fingerprint": fingerprint}
    server = node(address="127.0.0.1", user=user, **access)
    flood = Command(argv=("flood",), purpose="flood", effect=Effect.READ, timeout_s=20.0)
    told: dict[str, object] = {}
    host_keys = HostKeys(Path(folder) / "known", user_files=[], accept_new=False)
    transport = SshOpener(host_keys)(server)
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
    """The peak of this program; `ru_maxrss` would include its parent's memory."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) >> 10


if __name__ == "__main__":
    main(*sys.argv[1:])
