"""Who else could change what runs on the nodes: our folders there, and those that they lie in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ascendboot.judge.finding import Finding

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ascendboot.facts.own import Own


def open_above(seen: Iterable[tuple[str, Own]]) -> Iterator[Finding]:
    """Folders that are not ours, are never changed, and let others replace what is in them.

    An sshd with StrictModes takes no key from below such a folder.
    """
    for node, own in seen:
        for path, there in own.open_above.items():
            remedy = f"chmod go-w {path}" if there.owner is None else f"chown root {path}"
            yield Finding(
                id="open-folders",
                level="error",
                nodes=(node,),
                text=f"{path} {there.why}: others could replace {own.base}, which lies below it "
                "and from which programs are run",
                remedy=f"`{remedy}` closes it",
            )


def open_to_others(seen: Mapping[str, Iterable[Own]]) -> Iterator[Finding]:
    """The same, and our own folders and files that others could change."""
    for node, sides in seen.items():
        for own in sides:
            yield from open_above([(node, own)])
            if own.open:
                text = f"others could change what runs there: {own.open_words}"
                yield Finding(
                    id="open-folders", level="error", nodes=(node,), text=text, remedy="run setup"
                )
