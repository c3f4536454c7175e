"""The CA keys and the certificates: made completely, protected, renewed in time."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path, PurePosixPath
from typing import Literal

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
from ascendboot.setup.steps import CertificateFile, Change, Satisfied, difference
from ascendboot.transport.api import Command, Effect, FileWrite
from ascendboot.value import replace
from tests.engine.simulated import authority, public_key
from tests.fake_transport import FakeTransport
from tests.integration.real_sshd import keygen

KEYGEN = f"{shutil.which('ssh-keygen')} -q"


@pytest.fixture
def keys(tmp_path: Path) -> CaKeys:
    return CaKeys(tmp_path / "clusters" / "lab" / "ca", "lab")


def test_look_makes_no_keys_and_cannot_sign(keys: CaKeys) -> None:
    assert keys.look() is None
    assert not keys.folder.parent.exists()
    made, looked = keys.ensure(), keys.look()
    assert looked is not None
    assert (looked.user, looked.host, looked.sign) == (made.user, made.host, None)


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


def test_half_made_keys_of_a_killed_setup_are_removed(keys: CaKeys) -> None:
    left = keys.folder.parent / ".ca.abc123"
    left.mkdir(parents=True)
    (left / "user_ca").write_text("half")
    keys.ensure()
    assert not left.exists()


@pytest.mark.parametrize(
    ("kind", "principals", "options"),
    [
        ("host", ("2001:db8::1", "lab-1"), ()),
        ("user", ("mpi-lab",), ("source-address 2001:db8::1/128",)),
    ],
)
def test_a_certificate_has_the_wanted_claims_and_lasts_400_days(
    keys: CaKeys,
    tmp_path: Path,
    kind: Literal["user", "host"],
    principals: tuple[str, ...],
    options: tuple[str, ...],
) -> None:
    authority, public = keys.ensure(), keygen(tmp_path / "key").with_suffix(".pub")
    key = " ".join(public.read_text().split()[:2])
    claims = Claims(
        kind=kind,
        key=fingerprint(key),
        ca=fingerprint(authority.host if kind == "host" else authority.user),
        key_id="lab-1 of lab",
        principals=principals,
        options=options,
    )
    assert authority.sign is not None
    signed = authority.sign(claims, key)
    (tmp_path / "c").write_text(signed)
    read = [*KEYGEN.split(), "-L", "-f", str(tmp_path / "c")]
    printed = subprocess.run(read, check=True, capture_output=True, text=True).stdout
    assert all(words in printed for words in (claims.key, claims.ca, *claims.principals))
    certificate = _certificate(signed)
    assert certificate is not None
    assert certificate.claims == claims
    assert certificate.valid_from == pytest.approx(time.time() - DAY_S, abs=20)
    assert certificate.valid_to == pytest.approx(time.time() + 400 * DAY_S, abs=20)


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        ("chmod 640 host_ca", "host_ca: could not use the CA key: others may read it (mode 0640);"),
        ("rm host_ca", "host_ca: could not read the CA key: No such file or directory; put the"),
        ("echo junk >user_ca", "user_ca: could not read the CA key: Not OpenSSH private key"),
        (f"{KEYGEN} -p -P '' -N x -f user_ca", "user_ca: could not read the CA key: Key is passw"),
        (f"rm user_ca; {KEYGEN} -t ecdsa -N '' -f user_ca", "user_ca: could not read the CA key: "),
    ],
    ids=["open to others", "missing", "damaged", "with a passphrase", "of another type"],
)
def test_a_key_that_cannot_be_used_is_refused_and_not_replaced(
    keys: CaKeys, spoil: str, why: str
) -> None:
    keys.ensure()
    subprocess.run(["/bin/bash", "-c", spoil], cwd=keys.folder, check=True)
    kept = {path: path.read_bytes() for path in keys.folder.iterdir()}
    for use in (keys.look, keys.ensure):
        with pytest.raises(AscendbootError) as refused:
            use()
        assert str(refused.value).startswith(f"{keys.folder}/{why}")
        assert f"remove {keys.folder} and " in str(refused.value)
    assert {path: path.read_bytes() for path in keys.folder.iterdir()} == kept


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
WANTED = CertificateFile(name=PATH, claims=CLAIMS, now=NOW + 1, sign=lambda: "signed\n", load=LOAD)


def there(certificate: Certificate | None, *, mode: int = 0o644) -> Installed:
    return Installed(
        base=BASE,
        files={PATH: OwnFile("sha", mode)},
        certificates={} if certificate is None else {PATH: certificate},
        daemon=Daemon(7, "identity", "sha"),
    )


GOOD = Certificate(claims=CLAIMS, valid_from=NOW - 300, valid_to=NOW + 300 * DAY_S)


@pytest.mark.parametrize("valid_from", [NOW - 300, None], ids=["usual", "without a beginning"])
def test_a_certificate_that_fits_is_kept(valid_from: float | None) -> None:
    own = there(replace(GOOD, valid_from=valid_from))
    assert WANTED.check(own) == Satisfied("expires in 299 days")


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
        (there(replace(GOOD, valid_from=NOW + 2)), "is not valid yet"),
        (
            there(replace(GOOD, claims=replace(CLAIMS, ca="SHA256:d"))),
            "is signed by another CA (SHA256:d); SHA256:c signs it again",
        ),
    ],
)
def test_a_certificate_that_does_not_fit_is_renewed_and_loaded(own: Installed, why: str) -> None:
    assert WANTED.check(own) == Change(
        summary=f"{PATH} {why}",
        action=f"renew {PATH}, which {why}" if own.files else f"create {PATH}",
        files=(FileWrite(BASE / PATH, b"signed\n", 0o644),),
        commands=(LOAD,),
    )


def test_a_plan_announces_a_certificate_and_signs_nothing() -> None:
    change = replace(WANTED, sign=None).check(Installed(base=BASE))
    assert change == Change(summary=f"{PATH} is missing", action=f"create {PATH}")


@pytest.mark.parametrize("shown", ["other", None])
def test_a_certificate_that_the_running_sshd_does_not_show_is_only_loaded(
    shown: str | None,
) -> None:
    own = replace(there(GOOD), daemon=Daemon(7, "identity", shown))
    assert WANTED.check(own) == Change(
        summary=f"{PATH} is not what the running sshd shows",
        action=f"load {PATH} into the running sshd",
        commands=(LOAD,),
    )


def test_a_stopped_sshd_loads_the_certificate_except_in_a_plan() -> None:
    own = replace(there(GOOD), daemon=None)
    assert isinstance(WANTED.check(own), Change)
    assert isinstance(replace(WANTED, sign=None).check(own), Satisfied)


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
def test_differences_between_claims(changed: dict[str, str], words: str | None) -> None:
    assert difference(replace(CLAIMS, **changed), CLAIMS) == words


def read(text: str) -> Installed:
    return parse_installed(
        FakeTransport("lab-1", rules=[lambda _: text]).run(installed_query("lab"))
    )


def test_the_answer_has_valid_certificates_and_the_one_that_sshd_shows() -> None:
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


def test_the_answer_of_an_sshd_that_shows_no_certificate() -> None:
    assert read(f"base {BASE}\nsshd 7 id -\nend\n").daemon == Daemon(7, "id", None)
