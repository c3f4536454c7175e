"""What launchers say when they fail before any rank does, and what to do about it.

Words: Open MPI 4.1 (help texts of orte), OpenSSH, torchrun; as those programs print them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ascendboot.launch.cause.known import Known, known_words

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Final

_WORDS: Final = (
    (
        r"Host key verification failed|REMOTE HOST IDENTIFICATION HAS CHANGED",
        Known(
            "a node has another host key than setup left there",
            "invoke check says which; invoke setup",
        ),
    ),
    (
        r"Permission denied \(publickey",
        Known("a node does not let the primary in", "invoke setup renews keys and certificates"),
    ),
    (
        r"ssh: .*(Connection refused|timed out|No route to host)|Connection \w+ by .*port",
        Known(
            "the cluster's sshd on a node does not answer the primary",
            "invoke setup starts it again; invoke check tries all ways between the nodes",
        ),
    ),
    (
        r"orted: (command not found|No such file)|died unexpectedly with status 127",
        Known(
            "a node does not have Open MPI where the primary has it",
            "the same Open MPI at the same path on all nodes",
        ),
    ),
    (
        r"not enough slots available",
        Known("mpirun was given fewer slots than ranks", "see launcher.mpi_args"),
    ),
    (
        r"Two mutually-exclusive MCA variables|conflicting directives",
        Known(
            "a word for mpirun contradicts one of ours", "see launcher.mpi_args, OMPI_MCA_* in env"
        ),
    ),
    (
        r"error while loading shared libraries",
        Known("a library of the launcher is missing on a node", "see LD_LIBRARY_PATH there"),
    ),
    (
        r"unable to reliably start one or more daemons|could not connect to some hosts via ssh",
        Known(
            "mpirun could not start its daemon on a node", "invoke check; its words name the node"
        ),
    ),
)
_FORMS: Final = tuple((re.compile(form), known) for form, known in _WORDS)


def known_of_launcher(lines: Sequence[str]) -> tuple[str, Known] | None:
    """The line that says why a launcher failed, and what it means; None where none is known."""
    for form, known in _FORMS:
        line = next((line for line in lines if form.search(line)), None)
        if line is not None:
            return line.strip(), known
    for line in lines:
        known_line = known_words(line)
        if known_line is not None and not known_line.of_a_peer:
            return line.strip(), known_line
    return None
