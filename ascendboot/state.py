"""The `.ascendboot` folder on the control machine: current cluster, runs, setup records."""

from __future__ import annotations

import getpass
import json
import os
import secrets
import socket
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from ascendboot.errors import AscendbootError, UsageError
from ascendboot.model.files import held, holds_ca_keys, write_atomically
from ascendboot.model.secrets import masked, masked_json
from ascendboot.value import Value

FOLDER = ".ascendboot"
_CONTENTS = ("current", "runs", "clusters", "lab.yaml")
Kept: TypeAlias = Literal["applied", "facts", "nodes", "hccl-test"]
"""The record of the last setup, which `train` compares with the nodes; what setup knew of nodes,
and how it reached them; and the bandwidths that `check --hccl-test` measured, for its next run."""


class State(Value):
    """The control folder; the only secrets in it are the clusters' CA keys."""

    root: Path

    @classmethod
    def here(cls) -> State:
        """The folder of the working directory, or else of the user; it need not exist yet."""
        here, home = Path.cwd(), Path(os.path.expanduser("~"))  # noqa: PTH111 - never raises
        for place in (here, *here.parents):
            root = place / FOLDER
            # On a node, ~/.ascendboot holds the clusters that the node is part of.
            is_control = place != home or any((root / name).exists() for name in _CONTENTS)
            if root.is_dir() and is_control and _is_safe(root, here):
                return cls(root)
        if named := os.environ.get("ASCENDBOOT_HOME"):
            root = here / Path(os.path.expanduser(named))  # noqa: PTH111 - never raises
            if root.exists() and not root.is_dir():
                raise UsageError(f"$ASCENDBOOT_HOME: {root} is no folder; correct or unset it")
            return cls(root)
        data = Path(os.environ.get("XDG_DATA_HOME") or home / ".local/share")
        return cls(data / "ascendboot" if data.is_absolute() else here / FOLDER)

    def keeps(self, folder: Path) -> bool:
        """Whether no node may have this folder: it is a control folder, or has keys of a CA."""
        return folder.name == FOLDER or folder == self.root.resolve() or holds_ca_keys(folder)

    @property
    def current(self) -> Path:
        """A text file that holds the path of the inventory last set up."""
        return self.root / "current"

    @property
    def runs(self) -> Path:
        """One folder per call of ascendboot, named so that they sort by time."""
        return self.root / "runs"

    def cluster(self, name: str) -> Path:
        """The folder of one cluster."""
        return self.root / "clusters" / name

    def known_hosts(self, cluster: str) -> Path:
        """The host keys of a cluster's nodes that the operator has accepted."""
        return self.cluster(cluster) / "known_hosts"

    def authority(self, cluster: str) -> Path:
        """The folder of a cluster's CA keys; only its owner may read it."""
        return self.cluster(cluster) / "ca"

    def recall(self, cluster: str, kind: Kept) -> dict[str, Any] | None:
        """Read what was kept of a cluster, if anything; AscendbootError if it is not readable."""
        path = self.cluster(cluster) / f"{kind}.json"
        if not path.is_file():
            return None
        remedy = "run setup again" if kind == "applied" else "remove it"
        try:
            document = json.loads(path.read_bytes())
        except (ValueError, RecursionError) as error:
            raise AscendbootError(f"{path}: could not be read: {error}; {remedy}") from error
        if not isinstance(document, dict):
            raise AscendbootError(f"{path}: is not what setup writes; {remedy}")
        return document

    def remember(self, cluster: str, kind: Kept, document: Mapping[str, object]) -> None:
        """Keep it for later calls of ascendboot."""
        write_text(self.cluster(cluster) / f"{kind}.json", _json_text(document))

    def control_keys(self, cluster: str) -> tuple[str, ...]:
        """The keys with which this folder set up a cluster, without the CA key."""
        path = self.cluster(cluster) / "control"
        return tuple(path.read_text().split()) if path.is_file() else ()

    def add_control_key(self, cluster: str, key: str) -> None:
        """Record a key: nodes that were set up with it belong to this folder."""
        keys = dict.fromkeys((*self.control_keys(cluster), key))
        write_text(self.cluster(cluster) / "control", "".join(f"{each}\n" for each in keys))

    def remember_current(self, inventory: Path) -> None:
        """Make `inventory` the default of all verbs."""
        # Only a folder beside an inventory is moved together with it.
        is_beside = self.root.name == FOLDER
        named = os.path.relpath(inventory, self.root.parent) if is_beside else inventory.absolute()
        write_atomically(self.current, os.fsencode(f"{named}\n"))

    def setup_left_here(self, cluster: str, inventory: Path) -> list[Path]:
        """The files that `setup` created here for `cluster`, without the accepted host keys."""
        folder = self.cluster(cluster)
        names = (*(f"{kind}.json" for kind in get_args(Kept)), "control", "ca/.gitignore")
        found = [*(folder / name for name in names), *sorted((folder / "ca").glob("*_ca*"))]
        if self.current.exists():
            named = self.root.parent / os.fsdecode(self.current.read_bytes()).strip()
            if named.resolve() == inventory.resolve():
                found.append(self.current)
        return [path for path in found if path.is_file()]

    def forget_setup(self, cluster: str, inventory: Path) -> None:
        """Remove all files of a cluster without nodes, except the runs."""
        folder = self.cluster(cluster)
        for path in (*self.setup_left_here(cluster, inventory), folder / "lock"):
            path.unlink(missing_ok=True)
        for empty in (folder / "ca", folder, folder.parent, self.root):
            with suppress(OSError):  # missing, or not empty: other files stay
                empty.rmdir()

    def new_run(self, verb: str, *, hidden: Sequence[str] = ()) -> Run:
        """Create the folder of one call of ascendboot, readable only by its owner.

        The secrets in `hidden` are masked in everything that is kept there, except rank logs.
        """
        run_id = _run_id(verb)
        folder = self.runs / run_id
        self.runs.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700)
        return Run(run_id, folder, tuple(hidden))

    @staticmethod
    def new_run_elsewhere(verb: str, *, hidden: Sequence[str] = ()) -> Run:
        """Create the folder elsewhere, for a read-only working directory."""
        run_id = _run_id(verb)
        folder = Path(tempfile.mkdtemp(prefix=f"ascendboot-{run_id}-"))
        return Run(run_id, folder, tuple(hidden))

    @contextmanager
    def locked(self, cluster: str, run_id: str) -> Iterator[None]:
        """Hold the local lock of `cluster`; AscendbootError if another setup or reset holds it."""
        path = self.cluster(cluster) / "lock"
        path.parent.mkdir(parents=True, exist_ok=True)
        holder = f"run {run_id}, {whoami()}, pid {os.getpid()}"
        with held(path, holder) as other:
            if other is not None:
                words = f"{cluster}: could not start: another setup or reset runs ({other})"
                raise AscendbootError(f"{words}; wait until it has ended, or end that process")
            yield


class Run(Value):
    """The folder of one call of ascendboot."""

    run_id: str
    folder: Path
    secrets: tuple[str, ...] = ()

    @property
    def shown(self) -> str:
        """The folder for messages: relative to the working directory if possible."""
        here = os.path.relpath(self.folder)
        return str(self.folder) if here.startswith("..") else here

    def log_command(self, node: str, number: int, text: str) -> None:
        """Write one command of a node with its result, without secrets."""
        path = self.folder / node / f"{number:02}.txt"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(_encoded(masked(text, self.secrets)))

    def write_json(self, name: str, document: Mapping[str, object]) -> None:
        """Write a report into the run's folder, without secrets."""
        text = _json_text(masked_json(document, self.secrets), ensure_ascii=False)
        write_text(self.folder / name, text)


def _is_safe(root: Path, here: Path) -> bool:
    """Whether it is not another user's, who could name nodes and keys there, as in /tmp.

    A link belongs to the one who made it, and to whom its target belongs.
    """
    own, writable = here.stat(), 0o002
    is_closed = root.parent == here and not own.st_mode & writable
    return is_closed or {root.stat().st_uid, root.lstat().st_uid} <= {os.getuid(), own.st_uid}


def _run_id(verb: str) -> str:
    now = datetime.now(timezone.utc).strftime("%Y%m%d-%H%M%S")
    return f"{now}-{verb}-{secrets.token_hex(2)}"


def _json_text(document: object, *, ensure_ascii: bool = True) -> str:
    return json.dumps(document, indent=2, ensure_ascii=ensure_ascii) + "\n"


def write_text(path: Path, text: str) -> None:
    """Write a file atomically, in UTF-8 in every locale."""
    write_atomically(path, _encoded(text))


def _encoded(text: str) -> bytes:
    # Names and arguments that are not valid UTF-8 contain lone surrogates.
    return text.encode(errors="backslashreplace")


def whoami() -> str:
    """`user@host` of the operator, for messages to other operators."""
    return f"{getpass.getuser()}@{socket.gethostname()}"


def name_user() -> None:
    """Give a user id without a name one: `whoami`, Fabric and Paramiko need it."""
    try:
        getpass.getuser()
    except (KeyError, OSError):  # as in `docker run --user 12345`; KeyError before Python 3.13
        os.environ["LOGNAME"] = f"uid-{os.getuid()}"
