"""The CA keys and the certificates: made whole, kept closed, renewed in time."""

from __future__ import annotations

import shutil
import subprocess
import time
from dataclasses import replace
from pathlib import Path, PurePosixPath

import pytest

from ascendboot.errors import AscendbootError
from ascendboot.facts.installed import (
    Daemon,
    Installed,
    _certificate,
    installed_query,
    parse_installed,
)
from ascendboot.model.files import DAY_S, Certificate, Claims, OwnFile, fingerprint
from ascendboot.setup.ca import CaKeys
from ascendboot.setup.steps import Blocked, CertificateFile, Change, Satisfied, difference
from ascendboot.transport.api import Command, Effect, FileWrite
from tests.engine.simulated import authority, public_key
from tests.fake_transport import FakeTransport

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


# ------------------------------------------------------------------------------ certificates


BASE = PurePosixPath("/var/lib/ascendboot/lab")
PATH = "sshd/host_key-cert.pub"
NOW = 1.8e9
CLAIMS = Claims(
    kind="host", key="SHA256:k", ca="SHA256:c", key_id="lab-1 of lab", principals=("a", "lab-1")
)
LOAD = Command(argv=("true",), purpose="start the cluster's sshd", effect=Effect.WRITE)
WISH = CertificateFile(
    name=PATH,
    claims=CLAIMS,
    now=NOW,
    times={"lab-1": NOW - 1, "lab-2": NOW + 1},
    sign=lambda: "signed\n",
    load=LOAD,
)


def there(certificate: Certificate | None, *, mode: int = 0o644, shown: str = "sha") -> Installed:
    return Installed(
        base=BASE,
        files={PATH: OwnFile("sha", mode)},
        certificates={} if certificate is None else {PATH: certificate},
        daemon=Daemon(7, "identity", shown),
    )


GOOD = Certificate(claims=CLAIMS, valid_from=NOW - 300, valid_to=NOW + 300 * DAY_S)


def test_a_certificate_that_fits_is_kept() -> None:
    assert WISH.check(there(GOOD)) == Satisfied("expires in 299 days")


@pytest.mark.parametrize(
    ("own", "why"),
    [
        (Installed(base=BASE), "is missing"),
        (there(None), "cannot be read as a certificate"),
        (there(GOOD, mode=0o600), "has mode 0600 instead of 0644"),
        (there(replace(GOOD, valid_to=None)), "is valid for longer than 400 days"),
        (there(replace(GOOD, valid_to=NOW + 402 * DAY_S)), "is valid for longer than 400 days"),
        (there(replace(GOOD, valid_to=NOW + 100 * DAY_S)), "expires in 99 days"),
        (there(replace(GOOD, valid_to=NOW - DAY_S)), "expired 2 days ago"),
        (there(replace(GOOD, valid_from=NOW)), "is not valid yet by the clock of lab-1"),
        (
            there(replace(GOOD, claims=replace(CLAIMS, ca="SHA256:d"))),
            "is signed by another CA (SHA256:d); SHA256:c signs it again",
        ),
    ],
)
def test_what_does_not_fit_is_signed_again_and_taken_up(own: Installed, why: str) -> None:
    assert WISH.check(own) == Change(
        summary=f"{PATH} {why}",
        files=(FileWrite(BASE / PATH, b"signed\n", 0o644),),
        commands=(LOAD,),
    )


def test_a_plan_announces_and_signs_nothing() -> None:
    change = replace(WISH, sign=None).check(Installed(base=BASE))
    assert change == Change(summary=f"{PATH} is missing")


def test_a_certificate_without_a_beginning_counts() -> None:
    assert isinstance(WISH.check(there(replace(GOOD, valid_from=None))), Satisfied)


@pytest.mark.parametrize("shown", ["other", None])
def test_what_the_running_sshd_does_not_show_is_taken_up_without_a_signature(
    shown: str | None,
) -> None:
    own = replace(there(GOOD), daemon=Daemon(7, "identity", shown))
    assert WISH.check(own) == Change(
        summary=f"{PATH} is not what the running sshd shows", commands=(LOAD,)
    )


def test_an_sshd_that_does_not_run_counts_as_not_showing_it_once_nothing_is_planned() -> None:
    own = replace(there(GOOD), daemon=None)
    assert isinstance(WISH.check(own), Change)
    assert isinstance(replace(WISH, sign=None).check(own), Satisfied)


def test_a_node_far_behind_blocks_a_new_certificate_but_not_a_good_old_one() -> None:
    wish = replace(WISH, times={"lab-1": NOW, "lab-2": NOW - 301})
    assert wish.check(Installed(base=BASE)) == Blocked(
        f"could not renew {PATH}: a certificate made now is not valid yet on lab-2, "
        "whose clock is 301 s behind this side's",
        "set the time on all nodes and here from one source",
    )
    assert isinstance(wish.check(there(replace(GOOD, valid_from=NOW - 500))), Satisfied)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"key": "SHA256:x"}, "certifies another key (SHA256:x)"),
        ({"kind": "user"}, "states kind user instead of host"),
        ({"principals": ("b",)}, "states principals b instead of a, lab-1"),
        ({"options": ("force-command x",)}, "states options force-command x instead of (none)"),
        ({"extensions": ("permit-pty",)}, "states extensions permit-pty instead of (none)"),
        ({"key_id": "me"}, "states key id me instead of lab-1 of lab"),
        ({}, None),
    ],
)
def test_a_difference_is_told_in_words(changed: dict[str, str], words: str | None) -> None:
    assert difference(replace(CLAIMS, **changed), CLAIMS) == words  # type: ignore[arg-type]


def read(text: str) -> Installed:
    return parse_installed(
        FakeTransport("lab-1", rules=[lambda _: text]).run(installed_query("lab"))
    )


def test_the_answer_about_our_files_carries_certificates_and_what_sshd_shows() -> None:
    ca, key = authority(), public_key("host key")
    claims = replace(CLAIMS, key=fingerprint(key), ca=fingerprint(ca.host))
    assert ca.sign is not None
    signed = ca.sign(claims, key).strip()
    forged = signed[:-8] + "AAAAAAAA"
    other = "trust/cluster_key-cert.pub"
    for text, found in ((signed, [PATH]), (forged, []), (key, []), ("junk", [])):
        lines = [
            f"base {BASE}",
            f"certificate {PATH} {text}",
            f"certificate {other} x",
            "sshd 7 i s",
        ]
        own = read("\n".join([*lines, "end\n"]))
        assert own.daemon == Daemon(7, "i", "s")
        assert [(path, c.claims) for path, c in own.certificates.items()] == [
            (path, claims) for path in found
        ]


def test_an_sshd_that_shows_no_certificate_is_known_as_such() -> None:
    assert read(f"base {BASE}\nsshd 7 id -\nend\n").daemon == Daemon(7, "id", None)
