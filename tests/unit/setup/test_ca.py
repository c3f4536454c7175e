"""The CA keys on the operator's side: made whole, kept closed, refused when not right."""

from __future__ import annotations

import shutil
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from ascendboot.errors import AscendbootError
from ascendboot.facts.installed import _certificate
from ascendboot.model.files import DAY_S, Claims, fingerprint
from ascendboot.setup.ca import CaKeys

if TYPE_CHECKING:
    from pathlib import Path

SSH_KEYGEN = shutil.which("ssh-keygen") or "ssh-keygen"


@pytest.fixture
def keys(tmp_path: Path) -> CaKeys:
    return CaKeys(tmp_path / "clusters" / "lab" / "ca", "lab")


def made_key(folder: Path) -> str:
    path = folder / "key"
    subprocess.run([SSH_KEYGEN, "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)
    return " ".join(path.with_suffix(".pub").read_text().split()[:2])


def test_a_look_makes_nothing(keys: CaKeys) -> None:
    assert keys.look() is None
    assert not keys.folder.parent.exists()


def test_keys_are_made_once_and_closed_to_others(keys: CaKeys) -> None:
    first = keys.ensure()
    second = keys.ensure()
    assert (first.user, first.host) == (second.user, second.host)
    assert first.user != first.host
    assert keys.folder.stat().st_mode & 0o777 == 0o700
    private = {p.name: p.stat().st_mode & 0o777 for p in keys.folder.iterdir() if "_ca" in p.name}
    assert private == dict.fromkeys(["user_ca", "user_ca.pub", "host_ca", "host_ca.pub"], 0o600)
    assert (keys.folder / ".gitignore").read_text() == "*\n"
    assert [path.name for path in keys.folder.parent.iterdir()] == ["ca"]


def test_a_look_tells_the_same_keys_and_cannot_sign(keys: CaKeys) -> None:
    made, looked = keys.ensure(), keys.look()
    assert looked is not None
    assert (looked.user, looked.host, looked.sign) == (made.user, made.host, None)


def test_what_a_killed_setup_left_is_swept_away(keys: CaKeys) -> None:
    left = keys.folder.parent / ".ca.abc123"
    left.mkdir(parents=True)
    (left / "user_ca").write_text("half")
    keys.ensure()
    assert not left.exists()


@pytest.mark.parametrize("kind", ["user", "host"])
def test_a_signature_says_what_was_asked_for_and_lasts_400_days(
    keys: CaKeys, tmp_path: Path, kind: str
) -> None:
    authority, key = keys.ensure(), made_key(tmp_path)
    claims = {
        "host": Claims(
            kind="host",
            key=fingerprint(key),
            ca=fingerprint(authority.host),
            key_id="lab-1 of lab",
            principals=("2001:db8::1", "lab-1"),
        ),
        "user": Claims(
            kind="user",
            key=fingerprint(key),
            ca=fingerprint(authority.user),
            key_id="lab-1 of lab",
            principals=("mpi-lab",),
            options=("source-address 2001:db8::1/128",),
        ),
    }[kind]
    assert authority.sign is not None
    signed = authority.sign(claims, key)
    (tmp_path / "c").write_text(signed)
    read = [SSH_KEYGEN, "-L", "-f", str(tmp_path / "c")]
    printed = subprocess.run(read, check=True, capture_output=True, text=True).stdout
    assert all(words in printed for words in (claims.key, claims.ca, *claims.principals))
    certificate = _certificate(signed)
    assert certificate is not None
    assert certificate.claims == claims
    assert certificate.valid_from is not None
    assert certificate.valid_from == pytest.approx(time.time() - 300, abs=20)
    assert certificate.valid_to == pytest.approx(time.time() + 400 * DAY_S, abs=20)


def test_a_key_that_others_may_read_is_refused(keys: CaKeys) -> None:
    keys.ensure()
    (keys.folder / "host_ca").chmod(0o640)
    with pytest.raises(AscendbootError) as refused:
        keys.ensure()
    assert str(refused.value) == (
        f"{keys.folder}/host_ca: could not use the CA key: others may read it (mode 0640); "
        f"chmod 600 if nobody has, else remove {keys.folder} and run `setup --take-over`"
    )


def test_half_of_the_keys_is_refused_not_completed(keys: CaKeys) -> None:
    keys.ensure()
    (keys.folder / "host_ca").unlink()
    with pytest.raises(AscendbootError) as refused:
        keys.look()
    assert str(refused.value) == (
        f"{keys.folder}/host_ca: could not read the CA key: No such file or directory; put the "
        f"right one back, or remove {keys.folder} and have `setup --take-over` make new keys and "
        "sign everything again"
    )


@pytest.mark.parametrize(
    ("spoilt", "why"),
    [
        ("damaged", "Not OpenSSH private key format"),
        ("with a passphrase", "Key is password-protected"),
        ("of another type", "it is not an ed25519 key; put the right one back"),
    ],
)
def test_a_key_that_cannot_be_used_is_refused_not_replaced(
    keys: CaKeys, spoilt: str, why: str
) -> None:
    keys.ensure()
    path = keys.folder / "user_ca"
    if spoilt == "damaged":
        path.write_text("junk\n")
    elif spoilt == "of another type":
        path.unlink()
        subprocess.run(
            [SSH_KEYGEN, "-q", "-t", "ecdsa", "-N", "", "-f", str(path)], input=b"y", check=True
        )
    else:
        argv = [SSH_KEYGEN, "-q", "-p", "-P", "", "-N", "secret", "-f", str(path)]
        subprocess.run(argv, check=True, capture_output=True)
    kept = path.read_bytes()
    with pytest.raises(AscendbootError, match=f"user_ca: could not read the CA key: {why}"):
        keys.ensure()
    assert path.read_bytes() == kept


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "clusters").write_text("a file in the way")
    keys = CaKeys(tmp_path / "clusters" / "lab" / "ca", "lab")
    with pytest.raises(AscendbootError, match=r"ca: could not make the CA keys: .*Not a directory"):
        keys.ensure()
