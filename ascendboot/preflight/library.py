"""By what the ranks of a preflight can meet: the libraries that the job's Python finds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ascendboot.errors import NodeError
from ascendboot.judge.finding import Finding
from ascendboot.transport.api import Command, Effect
from ascendboot.transport.pool import on_each

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from ascendboot.launch.request import LaunchRequest
    from ascendboot.transport.api import Transport

MODULES: Final = {"mpi": "mpi4py", "gloo": "torch"}
"""By the way in which the ranks meet."""
NEEDED: Final = {
    "mpi": "mpi4py, built with the Open MPI of mpirun",
    "gloo": "torch with gloo",
}
"""The same for a person."""

_LOOK = r"""
[ ! -r "$1/env/node.env" ] || . "$1/env/node.env" >/dev/null 2>&1
shift
exec "$@" </dev/null
"""
_LACKS = """\
import importlib.util, sys
for name in sys.argv[1:]:
    if importlib.util.find_spec(name) is None:
        print("lacks", name)
"""


def ways(request: LaunchRequest) -> tuple[str, ...]:
    """What the ranks may meet by, the first that is there: `mpi`, `gloo`; torchrun has gloo."""
    return ("gloo",) if request.launcher.torchrun else ("mpi", "gloo")


def lacks(
    request: LaunchRequest, transports: Mapping[str, Transport], *, forks: int
) -> dict[str, frozenset[str]]:
    """By node: the ways in which its ranks cannot meet any other, for want of the library.

    One that cannot be asked, or has no such Python, is left out: making it ready for the preflight
    says what is wrong.
    """
    wanted = {MODULES[way]: way for way in ways(request)}
    python = (request.python, "-c", _LACKS, *wanted)
    command = Command(
        argv=("bash", "-c", _LOOK, "look", str(request.base), *python),
        purpose="see by what ranks can meet",
        effect=Effect.READ,
    )
    found = {}
    nodes = [node.name for node in request.placement.nodes]
    for node, answer in on_each(nodes, lambda n: transports[n].run(command), forks=forks).items():
        if isinstance(answer, NodeError) or not answer.as_expected:
            continue
        lines = answer.lines
        found[node] = frozenset(way for name, way in wanted.items() if f"lacks {name}" in lines)
    return found


def chosen_way(request: LaunchRequest, lacking: Mapping[str, Collection[str]]) -> str:
    """The first way that any node has, else the first: then it is said who lacks it."""
    possible = ways(request)
    return next(
        (way for way in possible if any(way not in of_node for of_node in lacking.values())),
        possible[0],
    )


def no_library(way: str, python: str, lacking: Mapping[str, Collection[str]]) -> Finding | None:
    """That some nodes lack what the ranks were to meet by; None where all have it."""
    nodes = tuple(node for node, of_node in lacking.items() if way in of_node)
    if not nodes:
        return None
    # What only some lack is what the others have: they would not meet by anything else.
    other = " (or torch, for gloo)" if way == "mpi" and len(nodes) == len(lacking) else ""
    return Finding(
        id="preflight-not-run",
        level="error",
        nodes=nodes,
        text=f"the preflight could not be run: no module {MODULES[way]} for {python}",
        remedy=f"It needs {NEEDED[way]}{other}; install it there, or state another code.python",
    )
