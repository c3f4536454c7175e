"""The file in which a server of 950 tells HCCL where its devices are in the network.

HCCL itself reads it where ranks find each other without a rank table, and takes the topology file
from it where there is one (hcomm `rank_info_detect_client.cc`, `communicator_impl.cc`): a rank
table's entries without `rank_id`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ascendboot.errors import RankTableError
from ascendboot.ranktable.fields import cut
from ascendboot.ranktable.reading import unnumbered_ranks
from ascendboot.ranktable.source import from_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ascendboot.ranktable.levels import LevelRank

VERSION = "2.0"


def device_places(text: str, name: str) -> Mapping[int, LevelRank]:
    """The entry of each device, by physical id; all have the rank 0.

    Raises:
        RankTableError: HCCL would not take the file, or a part of it cannot be understood.
    """
    source = from_text(name, text)
    document = source.document if isinstance(source.document, dict) else {}
    version = document.get("version")
    if version != VERSION:
        said = f'"{cut(version)}"' if isinstance(version, str) else "not stated as text"
        raise RankTableError(f'{name}: version is {said}, and HCCL of 950 reads "{VERSION}" alone')
    if not isinstance(document.get("topo_file_path"), str):
        raise RankTableError(f"{name}: topo_file_path is missing, which HCCL of 950 wants")
    ranks = unnumbered_ranks(source)
    if document.get("rank_count") != len(ranks):
        raise RankTableError(
            f"{name}: rank_count is {document.get('rank_count')}, and rank_list has {len(ranks)}"
        )
    places = {rank.device_id: rank for rank in ranks}
    if len(places) != len(ranks):
        raise RankTableError(f"{name}: a device_id is there twice")
    return places
