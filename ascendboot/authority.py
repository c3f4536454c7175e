"""The cluster's two CA keys: they lie on the operator's side alone, and sign there."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ascendboot.errors import AscendbootError
from ascendboot.model.certificate import START_SLACK_S, VALID_DAYS, Authority, fingerprint

if TYPE_CHECKING:
    from ascendboot.model.certificate import Claims

USER_CA, HOST_CA = "user_ca", "host_ca"
_OTHERS = 0o077
_TIMEOUT_S = 20.0


@dataclass(frozen=True)
class Keys:
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
