"""What stands before the lines of a rank."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from ascendboot.jobs.output import Lines, by_node, plain

if TYPE_CHECKING:
    from collections.abc import Callable

NODES = [f"a-{number}" for number in range(1, 13)]
COLOUR = re.compile(rb"\x1b\[[0-9;]*m")


def test_nodes_side_by_side_have_colours_of_their_own_and_none_is_red() -> None:
    prefix = by_node(NODES)
    assert prefix("a-1", 7) == b"\x1b[0;36ma-1:7 |\x1b[0m "
    colours = [COLOUR.findall(prefix(node, 0))[0] for node in NODES]
    assert len(set(colours)) == 10
    assert colours[10:] == colours[:2]
    assert not {b"\x1b[0;31m", b"\x1b[0;91m"} & set(colours)


@given(st.sampled_from(NODES), st.integers(0, 9999))
def test_without_its_colour_it_is_the_plain_one(node: str, rank: int) -> None:
    assert COLOUR.sub(b"", by_node(NODES)(node, rank)) == plain(node, rank)


@given(st.lists(st.binary(max_size=20), max_size=6))
def test_no_byte_of_a_line_is_changed_by_it(blocks: list[bytes]) -> None:
    def shown(prefix: Callable[[str, int], bytes]) -> bytes:
        lines = Lines(prefix("a-2", 3))
        return b"".join([*map(lines.feed, blocks), lines.finish()])

    coloured, without = by_node(NODES)("a-2", 3), plain("a-2", 3)
    assert shown(by_node(NODES)).replace(coloured, without) == shown(plain)
