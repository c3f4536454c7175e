"""A CA of a name: always the same keys, with which it really signs."""

from __future__ import annotations

from functools import partial
from hashlib import sha256

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ascendboot.model.files import Authority
from ascendboot.setup import ca


def private_key(name: str) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(sha256(name.encode()).digest())


def public_key(name: str) -> str:
    """The public key called `name`, as OpenSSH writes it."""
    return ca._public_text(private_key(name))


def authority(name: str = "first", *, signs: bool = True) -> Authority:
    """The CA called `name`."""
    keys = {kind: private_key(f"{name} {kind} CA") for kind in ("user", "host")}
    user, host = map(ca._public_text, keys.values())
    return Authority(user=user, host=host, sign=partial(ca._sign, keys) if signs else None)
