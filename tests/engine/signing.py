"""An authority without ssh-keygen: its certificates read as `ssh-keygen -L` shows real ones."""

from __future__ import annotations

import base64
import time
from typing import TYPE_CHECKING

from ascendboot.model.files import DAY_S, Authority, fingerprint

if TYPE_CHECKING:
    from ascendboot.model.files import Claims


def public_key(name: str) -> str:
    """What stands for a public key."""
    return f"ssh-ed25519 {base64.b64encode(name.encode()).decode()}"


def authority(name: str = "first", *, signs: bool = True, days: float = 400) -> Authority:
    """The CA called `name`, whose certificates are valid for so many days from now."""
    return Authority(
        user=public_key(f"{name} user CA"),
        host=public_key(f"{name} host CA"),
        sign=(lambda claims, key: printed(claims, key, days=days)) if signs else None,
    )


def printed(claims: Claims, key: str, *, days: float) -> str:
    """The certificate of `key` as `ssh-keygen -L` shows it."""
    assert fingerprint(key) == claims.key
    now = time.time()
    lines = [
        "key-cert.pub:",
        f"        Type: ssh-ed25519-cert-v01@openssh.com {claims.kind} certificate",
        f"        Public key: ED25519-CERT {claims.key}",
        f"        Signing CA: ED25519 {claims.ca} (using ssh-ed25519)",
        f'        Key ID: "{claims.key_id}"',
        "        Serial: 0",
        f"        Valid: from {_time(now - 300)} to {_time(now + days * DAY_S)}",
        *_list("Principals", claims.principals),
        *_list("Critical Options", claims.options),
        *_list("Extensions", claims.extensions),
    ]
    return "\n".join(lines) + "\n"


def _time(epoch: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(epoch))


def _list(name: str, entries: tuple[str, ...]) -> list[str]:
    if not entries:
        return [f"        {name}: (none)"]
    return [f"        {name}: ", *(f"                {entry}" for entry in entries)]
