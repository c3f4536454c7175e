"""Steps: a desired state of one node, how it is read and how it is reached."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from hashlib import sha256
from typing import TypeAlias

from ascendboot.facts.installed import Installed, NftTable, firewall_table
from ascendboot.facts.npus import CALL_TIMEOUT_S, PORT_SETTINGS
from ascendboot.facts.query import Unanswered
from ascendboot.model import files
from ascendboot.model.names import runs
from ascendboot.templates import script
from ascendboot.transport.api import Command, Effect, FileWrite, write_script
from ascendboot.value import Value


class Satisfied(Value):
    """The node is already in the desired state."""

    because: str


class Change(Value, kw_only=True):
    """What reaches the desired state: files first, then commands, in order.

    A change without files and commands waits for an earlier phase: the plan can only announce it.
    """

    summary: str
    action: str = ""
    """As that of a StepResult."""
    files: tuple[FileWrite, ...] = ()
    commands: tuple[Command, ...] = ()
    shown: tuple[str, ...] = ()
    """Calls of the node's own tools in these commands, for a plan."""


StepState: TypeAlias = Satisfied | Change


class Step(Value):
    """A desired state of one node."""

    name: str
    """The path below the cluster's folder where the step is about a file, else a short name."""

    @abstractmethod
    def check(self, installed: Installed) -> StepState:
        """Compare the desired state with what is installed; pure."""


class Closed(Step):
    """Only the cluster's user can change the cluster's folder and the one above it."""

    name: str = "folders"

    def check(self, installed: Installed) -> StepState:
        """Satisfied where only the cluster's user may write; other steps re-create keys."""
        found = {path: item for path, item in installed.open.items() if not path.endswith("_key")}
        if not found:
            return Satisfied("only their user can write there")
        lines = (f"{there.closed:04o} {path}\n" for path, there in found.items())
        stdin = "".join(lines).encode(errors="surrogateescape")
        text, purpose = script("setup-close.sh"), "take the right to write there from others"
        close = write_script(text, str(installed.base), purpose=purpose, stdin=stdin)
        summary = f"others could change what runs here: {installed.open_words}"
        action = f"close to other users: {installed.open_words}"
        return Change(summary=summary, action=action, commands=(close,))


class FileContent(Step):
    """A file has exactly this text and this mode."""

    text: str
    mode: int = 0o644
    secret: bool = False
    """Its text is shown nowhere."""

    def check(self, installed: Installed) -> StepState:
        """Satisfied by equal content and mode."""
        there = installed.files.get(self.name)
        content = self.text.encode()
        if there is None:
            why, action = "is missing", f"create {self.name}"
        elif there.sha256 != sha256(content).hexdigest():
            why, action = "has other content", f"change {self.name}"
        elif there.mode != self.mode:
            why = f"has mode {there.mode:04o} instead of {self.mode:04o}"
            action = f"change {self.name}, which {why}"
        elif self.name in installed.open:
            why = installed.open[self.name].why
            action = f"replace {self.name}, which {why}"
        else:
            return Satisfied("as it should be")
        write = FileWrite(installed.base / self.name, content, self.mode, self.secret)
        return Change(summary=f"{self.name} {why}", action=action, files=(write,))


class Absent(Step):
    """A file that nothing needs any more is removed."""

    def check(self, installed: Installed) -> StepState:
        """Satisfied when there is no such file."""
        if self.name not in installed.files:
            return Satisfied("is not there")
        path = str(installed.base / self.name)
        argv, purpose = ("rm", "-f", "--", path), f"remove {self.name}"
        remove = Command(argv=argv, purpose=purpose, effect=Effect.WRITE)
        summary = f"{self.name} is left from another setting"
        return Change(summary=summary, action=purpose, commands=(remove,))


class Later(Step):
    """A step whose content depends on an earlier phase."""

    until: str

    def check(self, installed: Installed) -> StepState:
        """Always a change that is not known yet."""
        verb = "change" if self.name in installed.files else "create"
        action = f"{verb} {self.name}, once {self.until}"
        return Change(summary=f"not known before {self.until}", action=action)


_PRIVATE, _PUBLIC = 0o600, 0o644


class KeyPair(Step):
    """An ed25519 key without passphrase, mode 0600: `sshd/host_key` or `trust/cluster_key`."""

    comment: str
    retired: Collection[str] = ()
    """`key:SHA256:…` of keys that are not to be used any more."""

    def check(self, installed: Installed) -> StepState:
        """Satisfied by a private key that `ssh-keygen` can read, with the right mode."""
        public = installed.host_key if self.name == "sshd/host_key" else installed.cluster_key
        there, is_open = installed.files.get(self.name), installed.open.get(self.name)
        path = installed.base / self.name
        if there is None:
            why = "is missing"
        elif public is None:
            why = "cannot be read as a key"
        elif f"key:{files.fingerprint(public)}" in self.retired:
            why = "allows logins to a removed node"
        elif is_open is not None and is_open.owner is not None:
            why = is_open.why
        elif there.mode != _PRIVATE:
            argv, purpose = ("chmod", "600", str(path)), f"protect {self.name}"
            chmod = Command(argv=argv, purpose=purpose, effect=Effect.WRITE)
            summary = f"{self.name} has mode {there.mode:04o} instead of 0600"
            return Change(summary=summary, action=purpose, commands=(chmod,))
        else:
            return Satisfied("there, readable and protected")
        text = script("setup-key.sh", folder=path.parent, path=path, comment=self.comment)
        make = write_script(text, purpose=f"make {self.name}")
        summary, action = f"{self.name} {why}", f"create {self.name}"
        if there is not None:
            summary += "; a new one replaces it"
            action = f"replace {self.name}, which {why}"
        return Change(summary=summary, action=action, commands=(make,))


SSHD = "/usr/sbin/sshd"
SSHD_CONFIG = "sshd/sshd_config"


class Sshd(Step, kw_only=True):
    """The cluster's sshd runs with exactly `config` (the text of `sshd/sshd_config`)."""

    name: str = "sshd"
    sshd: str
    """Absolute path of the program; sshd refuses to start when called otherwise."""
    config: str
    port: int = 0

    def check(self, installed: Installed) -> StepState:
        """Satisfied by a running sshd of the cluster with this configuration and host key."""
        config = self.config.encode()
        identity = sha256(config + f"{installed.host_key}\n".encode()).hexdigest()
        if installed.strays:
            why = "an sshd of the cluster runs without its record"
        elif installed.daemon is None:
            why = "the cluster's sshd does not run"
        elif installed.daemon.identity != identity:
            why = "the cluster's sshd runs with another configuration or host key"
        else:
            return Satisfied("runs as configured")
        verb = "start" if installed.daemon is None else "restart"
        action = f"{verb} the cluster's sshd on port {self.port}"
        return Change(summary=why, action=action, commands=(self.start(installed),))

    def start(self, installed: Installed) -> Command:
        """The command that starts it, in place of one that runs; sessions go on."""
        return start_sshd(installed, sha256(self.config.encode()).hexdigest(), self.sshd)


def start_sshd(installed: Installed, config_sha256: str, sshd: str = SSHD) -> Command:
    """The command that starts the cluster's sshd if its configuration has this digest."""
    text = script("setup-sshd.sh", b=installed.base, digest=config_sha256, sshd=sshd)
    return write_script(text, purpose="start the cluster's sshd", timeout_s=20.0)


class Firewall(Step, kw_only=True):
    """The cluster's own table of nft has exactly the rules in `env/firewall.nft`, or is absent."""

    name: str = "firewall"
    cluster: str
    rules: str
    """The text of that file; empty: there is no table."""

    def check(self, installed: Installed) -> StepState:
        """Satisfied by the table as nft listed it after these rules were loaded."""
        table, state = firewall_table(self.cluster), (installed.firewall or NftTable("absent"))
        wanted = NftTable("loaded", sha256(self.rules.encode()).hexdigest())
        if not self.rules and state.state == "absent":
            return Satisfied("is not there")
        if self.rules and state == wanted:
            return Satisfied("closes the ports of jobs to other machines")
        why = {"absent": "is not loaded", "changed": "was changed"}.get(state.state, "is outdated")
        mode = "load" if self.rules else "remove"
        text = script("setup-firewall.sh", b=installed.base, table=table, mode=mode)
        action = f"{mode} the table inet {table} of nft"
        change, summary = write_script(text, purpose=action), f"the table inet {table} of nft {why}"
        return Change(summary=summary, action=action, commands=(change,))


class NpuNetwork(Step, kw_only=True):
    """The network ports of the node's NPUs are set as the inventory states."""

    name: str = "npu-network"
    ports: Mapping[int, Mapping[str, str]]

    def check(self, installed: Installed) -> StepState:
        """Satisfied by the same values on the devices and for their next boot."""
        if isinstance(installed.ports, Unanswered):
            return Change(summary=installed.ports.message)
        before, calls, alike = list[str](), list[str](), dict[tuple[str, ...], list[int]]()
        why = dict[int, str]()
        for device_id, wanted in self.ports.items():
            port = installed.ports.value[device_id]
            if wrong := port.wrong(wanted):
                why[device_id] = f"device {device_id}: {', '.join(wrong.values())}"
                alike.setdefault((*wrong,), []).append(device_id)
            # A new address can remove the gateway.
            noted = dict.fromkeys((*wrong, *(("gateway",) if "ip" in wrong else ())))
            before += [f"device {device_id}: {w} {port.now.get(w, 'none')}" for w in noted]
            calls += [port_call(device_id, what, wanted[what]) for what in wrong]
        if not calls:
            return Satisfied(f"{len(self.ports)} NPUs are set as stated, also for the next boot")
        command = port_command(installed.base, (*before, *calls), "set")
        summary = "; ".join(
            why[first] + (f"; {runs(rest)} likewise" if rest else "")
            for first, *rest in alike.values()
        )
        action = f"set the network of device{'s' if len(why) > 1 else ''} {runs(why)}"
        return Change(summary=summary, action=action, commands=(command,), shown=tuple(calls))


def port_call(device_id: int | str, what: str, value: str) -> str:
    """The call of hccn_tool that sets something of a port."""
    words = PORT_SETTINGS[what][0].format(*value.split("/"))
    return f"hccn_tool -i {device_id} -{what} -s {words}"


def port_command(base: object, lines: Sequence[str], mode: str) -> Command:
    """The command that makes these calls: `set` notes what was there, `restore` drops the note."""
    text = script("setup-npu-ports.sh", b=base, mode=mode, call_s=CALL_TIMEOUT_S)
    content, timeout_s = "".join(f"{line}\n" for line in lines), 60.0 + 12.0 * len(lines)
    purpose = f"{mode} the network of the NPUs"
    return write_script(text, purpose=purpose, timeout_s=timeout_s, stdin=content.encode())


class CertificateFile(Step, kw_only=True):
    """A certificate of `claims` that is valid and does not expire soon."""

    claims: files.Claims
    now: float
    """The time on the control machine."""
    sign: Callable[[], str] | None
    """Makes the certificate; None while planning: then the change is only announced."""
    load: Command | None = None
    """Makes the running sshd load it; None where the file is enough."""

    def check(self, installed: Installed) -> StepState:
        """Satisfied by a certificate with these claims that does not expire soon."""
        file, certificate = installed.files.get(self.name), installed.certificates.get(self.name)
        if file is None:
            return self._renewed(installed, "is missing")
        if certificate is None:
            return self._renewed(installed, "cannot be read as a certificate")
        wrong = difference(certificate.claims, self.claims) or self._untimely(certificate)
        if not wrong and file.mode != _PUBLIC:
            wrong = f"has mode {file.mode:04o} instead of 0644"
        elif not wrong and self.name in installed.open:
            wrong = installed.open[self.name].why
        if wrong:
            return self._renewed(installed, wrong)
        if self.load is not None:
            # A plan starts a stopped sshd in a step of its own.
            daemon = installed.daemon
            is_shown = daemon.certificate == file.sha256 if daemon else self.sign is None
            if not is_shown:
                summary = f"{self.name} is not what the running sshd shows"
                action = f"load {self.name} into the running sshd"
                return Change(summary=summary, action=action, commands=(self.load,))
        return Satisfied(f"expires in {self._days(certificate)} days")

    def _renewed(self, installed: Installed, why: str) -> Change:
        """The change that signs it again."""
        summary, action = f"{self.name} {why}", f"create {self.name}"
        if self.name in installed.files:
            action = f"renew {self.name}, which {why}"
        if self.sign is None:
            return Change(summary=summary, action=action)
        write = FileWrite(installed.base / self.name, self.sign().encode(), _PUBLIC)
        commands = () if self.load is None else (self.load,)
        return Change(summary=summary, action=action, files=(write,), commands=commands)

    def _untimely(self, certificate: files.Certificate) -> str | None:
        days = self._days(certificate)
        if certificate.valid_to is None or days > files.VALID_DAYS:
            return f"is valid for longer than {files.VALID_DAYS} days"
        if days < 0:
            return f"expired {-days} days ago"
        if days < files.RENEW_DAYS:
            return f"expires in {days} days"
        if certificate.valid_from is not None and certificate.valid_from > self.now:
            return "is not valid yet"
        return None

    def _days(self, certificate: files.Certificate) -> int:
        return int(((certificate.valid_to or 0.0) - self.now) // files.DAY_S)


def difference(actual: files.Claims, wanted: files.Claims) -> str | None:
    """How a certificate's claims differ from the wanted ones; None when they are the same."""
    if actual.ca != wanted.ca:
        return f"is signed by another CA ({actual.ca}); {wanted.ca} signs it again"
    if actual.key != wanted.key:
        return f"certifies another key ({actual.key})"
    for name in ("kind", "principals", "options", "extensions", "key_id"):
        values = getattr(actual, name), getattr(wanted, name)
        if values[0] != values[1]:
            seen, stated = (", ".join(v) if isinstance(v, tuple) else v for v in values)
            what = name.replace("_", " ")
            return f"states {what} {seen or '(none)'} instead of {stated or '(none)'}"
    return None
