"""Output of installed software: Open MPI, Horovod, PyTorch, Python, OpenSSH."""

from __future__ import annotations

import re

from ascendboot.errors import NotUnderstoodError, ToolError
from ascendboot.facts.parsers.base import lines_of, only, some_lines
from ascendboot.value import Value


class Program(Value):
    """An installed program: its absolute path and its version."""

    path: str
    version: str

    @property
    def release(self) -> tuple[int, int]:
        """The first two numbers of the version: `(6, 6)` for `6.6.1p1`."""
        major, minor = re.findall(r"[0-9]+", self.version)[:2]
        return int(major), int(minor)


class Horovod(Program):
    """A horovodrun beside an interpreter; `has_mpi` is None if there was no query."""

    has_mpi: bool | None = None


class Sshd(Program):
    """The OpenSSH server that is installed, whether one runs or not."""

    accepts_login: bool = True
    """False if our account is locked: sshd without PAM then accepts no key."""


class Torch(Value):
    """PyTorch of an interpreter; `npu` is the version of torch_npu, None without it."""

    version: str
    npu: str | None = None

    @property
    def words(self) -> str:
        """`torch 2.1.0, torch_npu 2.1.0.post3`."""
        return f"torch {self.version}" + (f", torch_npu {self.npu}" if self.npu else "")


_HELP = re.compile(r"Report bugs to \S+")
_OTHERS = {"HYDRA build details": "MPICH", "Intel(R) MPI Library": "Intel MPI"}


def parse_openmpi_version(text: str) -> str:
    """`4.1.5` from what Open MPI's mpirun prints; the mpirun of another MPI is a ToolError."""
    tool = "mpirun --version"
    first, *rest = some_lines(text, tool, "mpirun (Open MPI) VERSION")
    for words, name in _OTHERS.items():
        if first.text.startswith(words):
            raise ToolError(f"{tool}: this is {name}, not Open MPI")
    match = first.match(r"mpirun \(Open MPI\) ([0-9]+\.[0-9]+\S*)")
    for line in rest:
        line.match(_HELP, "Report bugs to ADDRESS")
    return match[1]


def parse_horovod_version(text: str) -> str:
    """`0.28.1` from the last line: libraries may print warnings before it."""
    lines = some_lines(text, "horovodrun --version", "a version")
    return lines[-1].match(r"[0-9]+\.[0-9]+\S*")[0]


def parse_has_mpi(text: str) -> bool:
    """Whether MPI is one of Horovod's controllers."""
    tool, heading = "horovodrun --check-build", "Available Controllers:"
    lines = iter(lines_of(text, tool, "[X] MPI or [ ] MPI"))
    if not any(line.text.strip() == heading for line in lines):
        raise NotUnderstoodError(tool, 1, "", heading)
    for line in lines:
        controller = line.match(r"\[([X ])\] (\S+)")
        if controller[2] == "MPI":
            return controller[1] == "X"
    raise NotUnderstoodError(tool, 1, "", "MPI among the controllers")


def parse_torch(text: str) -> Torch:
    """The versions on the last line: Python may print warnings before it."""
    lines = some_lines(text, "the versions of torch", "two versions")
    match = lines[-1].match(r"([0-9]\S*) (-|[0-9]\S*)")
    return Torch(match[1], None if match[2] == "-" else match[2])


def parse_python_version(text: str) -> str:
    """`3.10.4` from what the interpreter prints."""
    line = only(some_lines(text, "python --version", "Python VERSION"))
    return line.match(r"Python ([0-9]+\.[0-9]+\S*)( ::.*)?")[1]


_SSHD_VERSION = re.compile(r"OpenSSH_([0-9]+\.[0-9]+\S*?),?(\s.*)?")
_REFUSED_OPTION = re.compile(r"(\S*sshd: )?(unknown|illegal|invalid) option -- '?V'?")


def parse_sshd_version(text: str) -> str:
    """`9.2p1` from what `sshd -V` or `ssh -V` prints.

    Servers before 9.2 refuse `-V`, but then print their version and their usage.
    """
    first, *rest = some_lines(text, "sshd -V", "OpenSSH_VERSION")
    if not _REFUSED_OPTION.fullmatch(first.text.strip()):
        return only([first, *rest]).match(_SSHD_VERSION)[1]
    if not rest:
        raise first.not_understood("OpenSSH_VERSION on the next line")
    return rest[0].match(_SSHD_VERSION)[1]
