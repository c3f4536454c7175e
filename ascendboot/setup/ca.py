"""The certificate authority of a cluster, and the certificates that it signs."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ascendboot.errors import AscendbootError
from ascendboot.model.files import (
    DAY_S,
    RENEW_DAYS,
    START_SLACK_S,
    VALID_DAYS,
    Authority,
    Certificate,
    Claims,
    fingerprint,
)
from ascendboot.setup.steps import Blocked, Change, Satisfied, StepState
from ascendboot.transport.api import Command, FileWrite

if TYPE_CHECKING:
    from collections.abc import Callable

    from ascendboot.facts.installed import Installed

USER_CA, HOST_CA = "user_ca", "host_ca"
_OTHERS = 0o077
_TIMEOUT_S = 20.0


@dataclass(frozen=True)
class CaKeys:
    """The folder of one cluster's CA keys: `user_ca` and `host_ca`, ed25519, 0600, no passphrase.

    Both or none are there: they are made beside and put in place together.
    """

    folder: Path
    cluster: str

    def look(self) -> Authority | None:
        """The authority without the means to sign; None when there are no keys yet.

        Raises:
            AscendbootError: one is missing, not readable as a key, or open to others.
        """
        if not self.folder.exists():
            return None
        user, host = self._public(USER_CA), self._public(HOST_CA)
        return Authority(user=user, host=host, sign=None)

    def known_as(self) -> frozenset[str]:
        """The host CA's fingerprint, also where trust needs no CA any more; nothing is checked."""
        path = self.folder / f"{HOST_CA}.pub"
        words = path.read_text().split() if path.is_file() else []
        return frozenset({fingerprint(" ".join(words[:2]))} if len(words) > 1 else ())

    def ensure(self) -> Authority:
        """The authority, able to sign; the keys are made when there are none.

        The caller keeps others from doing the same at once.

        Raises:
            AscendbootError: as `look`; or keys could not be made.
        """
        if not self.folder.exists():
            self._make()
        user, host = self._public(USER_CA), self._public(HOST_CA)
        return Authority(user=user, host=host, sign=partial(_sign, self.folder))

    def renew(self) -> None:
        """Make other keys in place of those that are there."""
        shutil.rmtree(self.folder)
        self.ensure()

    def _make(self) -> None:
        parent = self.folder.parent
        try:
            parent.mkdir(parents=True, exist_ok=True)
            for stale in parent.glob(".ca.*"):
                shutil.rmtree(stale)
            beside = Path(tempfile.mkdtemp(prefix=".ca.", dir=parent))
            try:
                # Whoever versions the working directory must not publish these keys by accident.
                (beside / ".gitignore").write_text("*\n")
                for name in (USER_CA, HOST_CA):
                    said = ("-C", f"ascendboot {name} of {self.cluster}", "-f", name)
                    _keygen("make", "-q", "-t", "ed25519", "-N", "", *said, cwd=beside)
                for path in beside.glob("*.pub"):
                    path.chmod(0o600)
                beside.rename(self.folder)
            finally:
                shutil.rmtree(beside, ignore_errors=True)
        except OSError as error:
            raise AscendbootError(f"{self.folder}: could not make the CA keys: {error}") from error

    def _public(self, name: str) -> str:
        path = self.folder / name
        remedy = (
            f"put the right one back, or remove {self.folder} and have `setup --take-over` make "
            "new keys and sign everything again"
        )
        try:
            mode = path.stat().st_mode
        except OSError as error:
            why = f"could not read the CA key: {error.strerror}"
            raise AscendbootError(f"{path}: {why}; {remedy}") from error
        if mode & _OTHERS:
            raise AscendbootError(
                f"{path}: could not use the CA key: others may read it (mode {mode & 0o777:04o}); "
                f"chmod 600 if nobody has, else remove {self.folder} and run `setup --take-over`"
            )
        try:
            printed = _keygen("read", "-y", "-P", "", "-f", name, cwd=self.folder)
        except AscendbootError as error:
            raise AscendbootError(f"{path}: {error}; {remedy}") from error
        return " ".join(printed.split()[:2])


def _sign(folder: Path, claims: Claims, public_key: str) -> str:
    """The certificate's one line."""
    kind = ["-h"] if claims.kind == "host" else ["-O", "clear"]
    options = [word for o in claims.options for word in ("-O", "=".join(o.split(" ", 1)))]
    with tempfile.TemporaryDirectory(prefix="ascendboot-sign-") as beside:
        (Path(beside) / "key.pub").write_text(f"{public_key}\n")
        _keygen(
            "sign with",
            *("-q", "-s", str((folder / f"{claims.kind}_ca").absolute()), *kind, *options),
            *("-I", claims.key_id, "-n", ",".join(claims.principals)),
            *("-V", f"-{START_SLACK_S:.0f}s:+{VALID_DAYS}d", "key.pub"),
            cwd=Path(beside),
        )
        return (Path(beside) / "key-cert.pub").read_text()


def _keygen(verb: str, *argv: str, cwd: Path) -> str:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("SSH_")}
    program = shutil.which("ssh-keygen")
    if program is None:
        raise AscendbootError(
            f"could not {verb} the CA key: there is no ssh-keygen on this side; install OpenSSH's "
            "client programs, or state `ssh: {trust: pinned}`"
        )
    try:
        done = subprocess.run(
            [program, *argv],
            cwd=cwd,
            env={**environment, "SSH_ASKPASS_REQUIRE": "never"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
            start_new_session=True,  # Ctrl-C is for us: what has begun is let finish
        )
    except subprocess.TimeoutExpired as error:
        raise AscendbootError(
            f"could not {verb} the CA key: ssh-keygen gave no answer within {_TIMEOUT_S:g} s"
        ) from error
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines() or ["nothing was said"]
        raise AscendbootError(
            f"could not {verb} the CA key: ssh-keygen exited {done.returncode}: {said[-1]}"
        )
    return done.stdout


_MODE = 0o644


@dataclass(frozen=True, kw_only=True)
class Clocks:
    """The time on the control machine and on the nodes that check a certificate."""

    now: float
    earliest: tuple[float, str]
    """The time on the node whose clock is furthest behind, and that node's name."""
    latest: tuple[float, str]


@dataclass(frozen=True, kw_only=True)
class CertificateFile:
    """The file at `path` certifies `claims`, counts on all nodes, and does not expire soon."""

    path: Literal["sshd/host_key-cert.pub", "trust/cluster_key-cert.pub"]
    claims: Claims
    clocks: Clocks
    sign: Callable[[], str] | None
    """Makes the certificate; None while planning: then the change is only announced."""
    load: Command | None = None
    """Makes the running sshd load it; None where the file is enough."""

    @property
    def name(self) -> str:
        """The file's path below the cluster's folder."""
        return self.path

    def check(self, installed: Installed) -> StepState:
        """Satisfied by a certificate with these claims that does not expire soon."""
        there, certificate = installed.files.get(self.path), installed.certificates.get(self.path)
        if there is None:
            return self._renewed(installed, "is missing")
        if certificate is None:
            return self._renewed(installed, "cannot be read as a certificate")
        wrong = difference(certificate.claims, self.claims) or self._untimely(certificate)
        if not wrong and there.mode != _MODE:
            wrong = f"has mode {there.mode:04o} instead of 0644"
        elif not wrong and self.path in installed.open:
            wrong = installed.open[self.path].why
        if wrong:
            return self._renewed(installed, wrong)
        if self.load is not None and not self._is_shown(installed, there.sha256):
            summary = f"{self.path} is not what the running sshd shows"
            return Change(summary=summary, commands=(self.load,))
        return Satisfied(f"expires in {self._days(certificate)} days")

    def _is_shown(self, installed: Installed, sha256: str) -> bool:
        """An sshd that does not run will show it once it is started, which is planned apart."""
        if installed.daemon is None:
            return self.sign is None
        return installed.daemon.certificate == sha256

    def _renewed(self, installed: Installed, why: str) -> StepState:
        refused = self._clock_problem()
        if refused is not None:
            return refused
        summary = f"{self.path} {why}"
        if self.sign is None:
            return Change(summary=summary)
        write = FileWrite(installed.base / self.path, self.sign().encode(), _MODE)
        return Change(
            summary=summary, files=(write,), commands=(self.load,) if self.load is not None else ()
        )

    def _untimely(self, certificate: Certificate) -> str | None:
        begins, ends = certificate.valid_from, certificate.valid_to
        days = self._days(certificate)
        if ends is None or days > VALID_DAYS:
            return f"is valid for longer than {VALID_DAYS} days"
        if days < 0:
            return f"expired {-days} days ago"
        if days < RENEW_DAYS:
            return f"expires in {days} days"
        time, node = self.clocks.earliest
        if begins is not None and begins > time:
            return f"is not valid yet by the clock of {node}"
        return None

    def _days(self, certificate: Certificate) -> int:
        ends = certificate.valid_to or 0.0
        return int((ends - self.clocks.latest[0]) // DAY_S)

    def _clock_problem(self) -> Blocked | None:
        """A new certificate must count on every node at once."""
        clocks, remedy = self.clocks, "set the time on all nodes and here from one source"
        time, node = clocks.earliest
        if clocks.now - time > START_SLACK_S:
            return Blocked(
                f"could not renew {self.path}: a certificate made now is not valid yet on {node}, "
                f"whose clock is {clocks.now - time:.0f} s behind this side's",
                remedy,
            )
        time, node = clocks.latest
        if time - clocks.now > (VALID_DAYS - RENEW_DAYS) * DAY_S:
            return Blocked(
                f"could not renew {self.path}: a certificate made now soon expires on {node}, "
                f"whose clock is {(time - clocks.now) / DAY_S:.0f} days ahead of this side's",
                remedy,
            )
        return None


def difference(actual: Claims, wanted: Claims) -> str | None:
    """How a certificate's claims differ from the wanted ones; None when they are the same."""
    if actual.ca != wanted.ca:
        return f"is signed by another CA ({actual.ca}); {wanted.ca} signs it again"
    if actual.key != wanted.key:
        return f"certifies another key ({actual.key})"
    for name in ("kind", "principals", "options", "extensions", "key_id"):
        values = getattr(actual, name), getattr(wanted, name)
        if values[0] != values[1]:
            words = (", ".join(v) if isinstance(v, tuple) else v for v in values)
            return "states {} {} instead of {}".format(
                name.replace("_", " "), *(word or "(none)" for word in words)
            )
    return None
