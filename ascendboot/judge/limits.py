"""What a node must have at least: free space, and OpenSSH's version."""

from __future__ import annotations

from typing import Final

LEAST_FREE_BYTES: Final = 100 * 1000**2
"""With less, a job may not even be able to say why it ended."""
LEAST_FREE_INODES: Final = 1000

SSHD_OPTIONS: Final = {
    "DisableForwarding": (7, 4),
    "KexAlgorithms curve25519-sha256": (7, 4),
    "restrict in authorized_keys": (7, 2),
    "HostKeyAlgorithms": (7, 0),
    "PubkeyAcceptedKeyTypes": (6, 8),
    "AllowStreamLocalForwarding": (6, 7),
    "PermitUserRC": (6, 7),
    "ed25519 keys": (6, 5),
}
"""What we write for sshd, and the release of OpenSSH that knows it first; the newest decides."""
SSH_OPTIONS: Final = {
    "IdentityAgent": (7, 3),
    "CertificateFile": (7, 2),
    "UpdateHostKeys": (6, 8),
    "ed25519 keys": (6, 5),
}
"""The same for ssh on the primary."""
