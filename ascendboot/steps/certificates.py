"""The wish that a key has a certificate which says the right thing and is good for a while."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ascendboot.model.certificate import DAY_S, RENEW_DAYS, START_SLACK_S, VALID_DAYS
from ascendboot.steps.api import Blocked, Change, Satisfied, Verdict
from ascendboot.transport.api import FileWrite

if TYPE_CHECKING:
    from collections.abc import Callable

    from ascendboot.facts.own import Own
    from ascendboot.model.certificate import Certificate, Claims
    from ascendboot.transport.api import Command

_MODE = 0o644


@dataclass(frozen=True, kw_only=True)
class Clocks:
    """What time it is: here, and by the clocks of those who will check a certificate."""

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
    """Makes the running sshd take it up; None where a file is all that is wished for."""

    @property
    def name(self) -> str:
        """The file's path below the cluster's folder."""
        return self.path

    def check(self, own: Own) -> Verdict:
        """Satisfied by a certificate that says this, is in force and stays so for a while."""
        there, certificate = own.files.get(self.path), own.certificates.get(self.path)
        if there is None:
            return self._renewed(own, "is missing")
        if certificate is None:
            return self._renewed(own, "cannot be read as a certificate")
        wrong = difference(certificate.claims, self.claims) or self._untimely(certificate)
        if not wrong and there.mode != _MODE:
            wrong = f"has mode {there.mode:04o} instead of 0644"
        elif not wrong and self.path in own.open:
            wrong = own.open[self.path].why
        if wrong:
            return self._renewed(own, wrong)
        if self.load is not None and not self._is_shown(own, there.sha256):
            summary = f"{self.path} is not what the running sshd shows"
            return Change(summary=summary, commands=(self.load,))
        return Satisfied(f"expires in {self._days(certificate)} days")

    def _is_shown(self, own: Own, sha256: str) -> bool:
        """An sshd that does not run will show it once it is started, which is planned apart."""
        if own.daemon is None:
            return self.sign is None
        return own.daemon.certificate == sha256

    def _renewed(self, own: Own, why: str) -> Verdict:
        refused = self._clock_problem()
        if refused is not None:
            return refused
        summary = f"{self.path} {why}"
        if self.sign is None:
            return Change(summary=summary)
        write = FileWrite(own.base / self.path, self.sign().encode(), _MODE)
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


def difference(is_: Claims, wished: Claims) -> str | None:
    """In what a certificate's claims are not those wished for; None when they are the same."""
    if is_.ca != wished.ca:
        return f"is signed by another CA ({is_.ca}); {wished.ca} signs it again"
    if is_.key != wished.key:
        return f"certifies another key ({is_.key})"
    for what in ("kind", "principals", "options", "extensions", "key_id"):
        seen, meant = getattr(is_, what), getattr(wished, what)
        if seen != meant:
            words = (", ".join(v) if isinstance(v, tuple) else v for v in (seen, meant))
            return "states {} {} instead of {}".format(
                what.replace("_", " "), *(word or "(none)" for word in words)
            )
    return None
