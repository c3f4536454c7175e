"""Whether Python and the packages that a job depends on are the same on all nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ascendboot.before.scripts import PACKAGES
from ascendboot.facts.api import value_of
from ascendboot.judge.finding import differences

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ascendboot.before.answers import NodeLook, Packages
    from ascendboot.before.wanted import Wanted
    from ascendboot.judge.finding import Finding

_COMES_WITH = {"torch": ("torch_npu",), "tensorflow": ("tensorflow_cpu", "npu_bridge")}
"""What takes part as soon as something else does."""
_ABSENT = "none"


def imported_by(text: str) -> frozenset[str]:
    """The packages of `PACKAGES` that a script imports by itself; its own modules are not read."""
    found = set()
    for line in text.split("\n"):
        match line.replace(",", " ").split():
            case ["from", module, *_]:
                found.add(module.partition(".")[0])
            case ["import", *modules]:
                found |= {module.partition(".")[0] for module in modules}
            case _:
                pass
    return frozenset(found & set(PACKAGES))


def package_rules(
    job: Wanted, looks: Mapping[str, NodeLook], imported: Iterable[str]
) -> Iterator[Finding]:
    """All findings of this module: errors where the job uses what differs, else warnings."""
    seen = {node: found for node, look in looks.items() if (found := value_of(look.packages))}
    used = {*job.used, *imported}.union(*(packages.used for packages in seen.values()))
    used |= {other for name in used for other in _COMES_WITH.get(name, ())}
    python = {node: packages.python for node, packages in seen.items()}
    yield from _differing("Python", python, is_used=True)
    for name in PACKAGES:
        versions = {node: _version(packages, name) for node, packages in seen.items()}
        yield from _differing(name, versions, is_used=name in used)


def _version(packages: Packages, name: str) -> str:
    return packages.versions.get(name, _ABSENT)


def _differing(name: str, versions: Mapping[str, str], *, is_used: bool) -> Iterator[Finding]:
    # 2.1.0 and 2.1.1 are of one series, and so are 2.1.0 and 2.1.0+cpu.
    series = {".".join(version.split(".")[:2]) for version in versions.values()}
    yield from differences(
        "packages",
        versions,
        has=f"{name} ",
        level="error" if is_used and len(series) > 1 else "warning",
        remedy="install the same version on all nodes",
    )
