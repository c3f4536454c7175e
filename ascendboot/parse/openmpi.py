"""`mpirun --version`: whose mpirun it is, and its version."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ascendboot.errors import ToolError
from ascendboot.parse.reading import lines_of, nothing_printed

TOOL = "mpirun --version"
_VERSION = re.compile(r"mpirun \(Open MPI\) ([0-9]+\.[0-9]+\S*)")
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


def parse_version(text: str) -> str:
    """`4.1.5` from what Open MPI's mpirun prints.

    Raises:
        ToolError: the mpirun is not Open MPI's.
        NotUnderstoodError: a line is not in a known form.
    """
    lines = lines_of(text)
    if not lines:
        raise nothing_printed(TOOL, _EXPECTED)
    for words, name in _OTHERS.items():
        if lines[0].text.startswith(words):
            raise ToolError(f"{TOOL}: this is {name}, not Open MPI")
    match = _VERSION.fullmatch(lines[0].text.strip())
    if match is None:
        raise lines[0].not_understood(TOOL, _EXPECTED)
    for line in lines[1:]:
        if not _HELP.fullmatch(line.text.strip()):
            raise line.not_understood(TOOL, "Report bugs to ADDRESS")
    return match[1]
