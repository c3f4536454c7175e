"""SSH certificates: what one says, and the cluster's two authorities that sign them."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable

DAY_S = 86400.0
START_SLACK_S = 300.0
"""A certificate counts from so long before it was signed: clocks are never quite equal."""
VALID_DAYS = 400
RENEW_DAYS = 100
"""Any setup renews a certificate that is good for less than this."""


@dataclass(frozen=True, kw_only=True)
class Claims:
    """What a certificate says, apart from when; keys are named by `SHA256:…`."""

    kind: Literal["user", "host"]
    key: str
    ca: str
    key_id: str
    """Who it is for, in the words that sshd logs."""
    principals: tuple[str, ...]
    """Names and addresses of a host, or what a user may log in as."""
    options: tuple[str, ...] = ()
    """Critical options with their values: `source-address 192.0.2.11/32`."""
    extensions: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """A certificate that is somewhere; its bounds are in seconds since the epoch."""

    claims: Claims
    valid_from: float | None
    """None: since ever."""
    valid_to: float | None
    """None: for ever."""


@dataclass(frozen=True, kw_only=True)
class Authority:
    """The public keys of a cluster's user CA and host CA, and the way to have something signed."""

    user: str
    host: str
    sign: Callable[[Claims, str], str] | None
    """The certificate's text for claims and a public key; None while nothing may be made."""


def fingerprint(public_key: str) -> str:
    """`SHA256:…` of a public key `TYPE BASE64`, as `ssh-keygen -l` shows it."""
    digest = hashlib.sha256(base64.b64decode(public_key.split()[1])).digest()
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")
