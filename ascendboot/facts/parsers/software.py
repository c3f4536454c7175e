"""Output of installed software: Open MPI, Horovod, PyTorch, Python, OpenSSH."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ascendboot.errors import NotUnderstoodError, ToolError
from ascendboot.facts.parsers.base import lines_of, nothing_printed, only_line_of

OPENMPI_TOOL = "mpirun --version"
_OPENMPI_VERSION = re.compile(r"mpirun \(Open MPI\) ([0-9]+\.[0-9]+\S*)")
_HELP = re.compile(r"Report bugs to \S+")
_OTHERS = {"HYDRA build details": "MPICH", "Intel(R) MPI Library": "Intel MPI"}
_EXPECTED = "mpirun (Open MPI) VERSION"


@dataclass(frozen=True)
class OpenMpi:
    """An installed Open MPI; `path` is that of its mpirun."""

    path: str
    version: str

    @property
    def major(self) -> int:
        """The first number of the version."""
        return int(self.version.split(".")[0])


def parse_openmpi_version(text: str) -> str:
    """`4.1.5` from what Open MPI's mpirun prints.

    Raises:
        ToolError: the mpirun is not Open MPI's.
        NotUnderstoodError: a line is not in a known form.
    """
    lines = lines_of(text)
    if not lines:
        raise nothing_printed(OPENMPI_TOOL, _EXPECTED)
    for words, name in _OTHERS.items():
        if lines[0].text.startswith(words):
            raise ToolError(f"{OPENMPI_TOOL}: this is {name}, not Open MPI")
    match = _OPENMPI_VERSION.fullmatch(lines[0].text.strip())
    if match is None:
        raise lines[0].not_understood(OPENMPI_TOOL, _EXPECTED)
    for line in lines[1:]:
        if not _HELP.fullmatch(line.text.strip()):
            raise line.not_understood(OPENMPI_TOOL, "Report bugs to ADDRESS")
    return match[1]


VERSION_TOOL = "horovodrun --version"
BUILD_TOOL = "horovodrun --check-build"
_HOROVOD_VERSION = re.compile(r"[0-9]+\.[0-9]+\S*")
_CONTROLLERS = "Available Controllers:"
_ENTRY = re.compile(r"\[([X ])\] (\S+)")


@dataclass(frozen=True)
class Horovod:
    """A Horovod beside an interpreter; `has_mpi` is None where that was not asked."""

    path: str
    """Of horovodrun."""
    version: str
    has_mpi: bool | None = None


def parse_horovod_version(text: str) -> str:
    """`0.28.1`: the last line; libraries that it loads may warn before.

    Raises:
        NotUnderstoodError: the last line is no version.
    """
    lines = lines_of(text)
    if not lines:
        raise nothing_printed(VERSION_TOOL, "a version")
    if not _HOROVOD_VERSION.fullmatch(lines[-1].text.strip()):
        raise lines[-1].not_understood(VERSION_TOOL, "a version")
    return lines[-1].text.strip()


def parse_has_mpi(text: str) -> bool:
    """Whether MPI is among the controllers.

    Raises:
        NotUnderstoodError: the list of controllers is missing, or has another form.
    """
    lines = iter(lines_of(text))
    if not any(line.text.strip() == _CONTROLLERS for line in lines):
        raise NotUnderstoodError(BUILD_TOOL, 1, "", _CONTROLLERS)
    for line in lines:
        entry = _ENTRY.fullmatch(line.text.strip())
        if entry is None:
            raise line.not_understood(BUILD_TOOL, "[X] MPI or [ ] MPI")
        if entry[2] == "MPI":
            return entry[1] == "X"
    raise NotUnderstoodError(BUILD_TOOL, 1, "", "MPI among the controllers")


TORCH_TOOL = "the versions of torch"
_VERSIONS = re.compile(r"([0-9]\S*) (-|[0-9]\S*)")


@dataclass(frozen=True)
class Torch:
    """PyTorch of an interpreter; `npu` is the version of torch_npu, None without it."""

    version: str
    npu: str | None = None

    @property
    def words(self) -> str:
        """`torch 2.1.0, torch_npu 2.1.0.post3`."""
        return f"torch {self.version}" + (f", torch_npu {self.npu}" if self.npu else "")


def parse(text: str) -> Torch:
    """The two versions, on the last line: what is imported with a Python may warn before.

    Raises:
        NotUnderstoodError: the last line is something else.
    """
    lines = lines_of(text)
    if not lines:
        raise nothing_printed(TORCH_TOOL, "two versions")
    match = _VERSIONS.fullmatch(lines[-1].text.strip())
    if match is None:
        raise lines[-1].not_understood(TORCH_TOOL, "two versions")
    return Torch(match[1], None if match[2] == "-" else match[2])


PYTHON_TOOL = "python --version"
_PYTHON_VERSION = re.compile(r"Python ([0-9]+\.[0-9]+\S*)( ::.*)?")
_PYTHON_EXPECTED = "Python VERSION"


@dataclass(frozen=True)
class Python:
    """An installed interpreter."""

    path: str
    version: str


def parse_python_version(text: str) -> str:
    """`3.10.4` from what the interpreter prints.

    Raises:
        NotUnderstoodError: it prints something else.
    """
    line = only_line_of(text, PYTHON_TOOL, _PYTHON_EXPECTED)
    match = _PYTHON_VERSION.fullmatch(line.text.strip())
    if match is None:
        raise line.not_understood(PYTHON_TOOL, _PYTHON_EXPECTED)
    return match[1]


SSHD_TOOL = "sshd -V"
_SSHD_VERSION = re.compile(r"OpenSSH_([0-9]+\.[0-9]+\S*?),?(\s.*)?")
_REFUSED_OPTION = re.compile(r"(\S*sshd: )?(unknown|illegal|invalid) option -- '?V'?")
_SSHD_EXPECTED = "OpenSSH_VERSION"
_NO_FOLDER = re.compile(r"Missing privilege separation directory: (/\S+)")


@dataclass(frozen=True)
class Sshd:
    """The node's OpenSSH server, not whether one runs."""

    path: str
    """Absolute: sshd refuses to start by another path."""
    version: str
    missing_folder: str | None = None
    """The folder without which it does not start (`/run/sshd`), where that is missing."""
    lets_us_in: bool = True
    """False where our account is locked: sshd without PAM takes no key for it."""


@dataclass(frozen=True)
class Ssh:
    """The OpenSSH client of the workload side."""

    path: str
    version: str


def release(version: str) -> tuple[int, int]:
    """`(6, 6)` of `6.6.1p1`: what says which options a version knows."""
    major, minor = re.findall(r"[0-9]+", version)[:2]
    return int(major), int(minor)


def parse_sshd_version(text: str) -> str:
    """`9.2p1` from what `sshd -V` or `ssh -V` prints.

    Servers before 9.2 refuse `-V` but print their version and their usage as they do.

    Raises:
        NotUnderstoodError: no version stands where it should.
    """
    lines = lines_of(text)
    if not lines:
        raise nothing_printed(SSHD_TOOL, _SSHD_EXPECTED)
    has_refused = _REFUSED_OPTION.fullmatch(lines[0].text.strip()) is not None
    rest = lines[1:] if has_refused else lines
    if not rest:
        raise lines[0].not_understood(SSHD_TOOL, f"{_SSHD_EXPECTED} on the next line")
    match = _SSHD_VERSION.fullmatch(rest[0].text.strip())
    if match is None:
        raise rest[0].not_understood(SSHD_TOOL, _SSHD_EXPECTED)
    if rest[1:] and not has_refused:
        raise rest[1].not_understood(SSHD_TOOL, f"{_SSHD_EXPECTED} and nothing more")
    return match[1]


def missing_folder(text: str) -> str | None:
    """The folder that `sshd -t` says it misses; other complaints are about other things."""
    match = _NO_FOLDER.search(text)
    return match[1] if match else None
