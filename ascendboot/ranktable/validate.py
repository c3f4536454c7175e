"""What kind of table a document is, and all that is wrong with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from ascendboot.errors import RankTableError
from ascendboot.ranktable import validate_groups, validate_v1, validate_v2
from ascendboot.ranktable.fields import cut, kind
from ascendboot.ranktable.rules import CALLED, Job, Level, Problem, Product, TableCheck

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ascendboot.ranktable.text import Source

Generation: TypeAlias = Literal["1.0", "1.2", "2.0", "group list"]

PRODUCTS_OF: dict[Generation, tuple[Product, ...]] = {
    "1.0": ("910", "a2", "a3", "310p"),
    "1.2": ("a3",),
    "2.0": ("a5",),
    "group list": ("910",),
}
"""The products whose HCCL reads a generation."""

NAMED: dict[Generation, str] = {
    "1.0": "version 1.0",
    "1.2": "version 1.2",
    "2.0": "version 2.0",
    "group list": "a group list",
}

HETEROGENEOUS = "1.1"

_OTHERS: dict[str, str] = {
    "node_list": "a table of version 1.1, that of clusters of several kinds of machines, which "
    "ascendboot does not know",
    "peer_list": "a topology file of 950 (HCCL_TOPO_FILE_PATH)",
    "edge_list": "a topology file of 950 (HCCL_TOPO_FILE_PATH)",
    "prefill_device_list": "a table of an inference system with prefill and decode servers",
    "decode_device_list": "a table of an inference system with prefill and decode servers",
    "server_group_list": "a table of an inference system with groups of servers",
}
"""By the member that gives them away, what is often taken for a rank table."""


def validate_table(
    source: Source,
    *,
    product: Product | None = None,
    job: Job | None = None,
    intra_roce: bool = False,
) -> tuple[Problem, ...]:
    """Everything that is wrong with the table, in the order of the document, errors first.

    `intra_roce`: the job sets HCCL_INTRA_ROCE_ENABLE to 1.

    Raises:
        RankTableError: the document is no rank table.
    """
    document = table_in(source)
    found = generation_of(document)
    readers = PRODUCTS_OF[found]
    implied = product or (readers[0] if len(readers) == 1 else None)
    judging = TableCheck(product=implied, job=job, intra_roce=intra_roce, is_v2=found == "2.0")
    _file(source, judging)
    _version(document, found, product, judging)
    _status(source, document, found, judging)
    if found == "2.0":
        validate_v2.check_rank_list(document, judging)
    elif found == "group list":
        validate_groups.check_group_list(document, judging)
    else:
        validate_v1.check_server_list(document, judging)
    if job == "rec-sdk-tf" and found in ("2.0", "group list"):
        _no_server_list(found, judging)
    return tuple(sorted(judging.problems, key=lambda problem: problem.level))


def table_in(source: Source) -> dict[str, object]:
    """The document, where it is a rank table, good or bad.

    Raises:
        RankTableError: it is something else.
    """
    document = source.document
    if not isinstance(document, dict):
        raise RankTableError(
            f"{source.name}: not a rank table: the document is {kind(document)}, not an object"
        )
    for name, what in _OTHERS.items():
        if name in document:
            raise RankTableError(f"{source.name}: not a rank table, but {what}: it has {name}")
    if not {"server_list", "rank_list", "group_list"} & set(document):
        names = ", ".join(cut(name) for name in list(document)[:5]) or "nothing"
        raise RankTableError(
            f"{source.name}: not a rank table: none of server_list, rank_list and group_list is "
            f"there; it has {names}"
        )
    return document


def generation_of(document: Mapping[str, object]) -> Generation:
    """The generation by the table's own list; between 1.0 and 1.2 the version decides."""
    if "server_list" in document:
        return "1.2" if document.get("version") == "1.2" else "1.0"
    return "2.0" if "rank_list" in document else "group list"


def _file(source: Source, judging: TableCheck) -> None:
    path, job = source.absolute, judging.job
    if path and path.find(".json") + len(".json") != len(path):
        judging.say("file-name", (), f'the path "{cut(path)}" is refused', path=path)
    if source.is_symlink:
        level: Level = "error" if job in ("rec-sdk-tf", "torch") else "warning"
        judging.say("file-symlink", (), "the file is a symbolic link", level=level)
    if source.mode & 0o022:
        level = "error" if job == "rec-sdk-tf" else "warning"
        judging.say("file-writable", (), f"its mode is {source.mode:04o}", level=level)
    if source.has_bom:
        judging.say("file-bom", (), "the text begins with a byte order mark")
    for doubled in source.doubled:
        judging.say("doubled-key", doubled, f'"{cut(str(doubled[-1]))}" is there twice')


def _version(
    document: Mapping[str, object], found: Generation, product: Product | None, judging: TableCheck
) -> None:
    version = document.get("version")
    if version is None and found == "group list":
        pass
    elif version is None:
        judging.say("missing", (), "version is missing", name="version")
    elif not isinstance(version, str):
        words = f"version is {kind(version)}, not a string"
        judging.say("not-a-string", ("version",), words, name="version")
    elif version != found:
        words = _wrong_version(version, found)
        # HCCL looks for what tables of 1.1 begin with
        hccl = (
            "json object has no property called collective_id" if version == HETEROGENEOUS else None
        )
        judging.say("version-unknown", ("version",), words, hccl=hccl, value=version)
    if product is not None and product not in PRODUCTS_OF[found]:
        readers = " and ".join(CALLED[reader] for reader in PRODUCTS_OF[found])
        judging.say(
            "wrong-generation",
            ("version",),
            f"{NAMED[found]} is for {readers}, not for {CALLED[product]}",
            hccl=_refusal(version, product, found),
        )


def _refusal(version: object, product: Product, found: Generation) -> str:
    """What HCCL prints; nothing where it reads on and fails later, or in another way."""
    if product == "a5":
        return f'failed with version [{version or ""}] is not "2.0".'
    return f"version[{version}] is not support" if found == "2.0" else ""


def _wrong_version(version: str, found: Generation) -> str:
    known = {
        HETEROGENEOUS: "tables of 1.1, that of clusters of several kinds of machines, have "
        f"collective_id and node_list; the fields are those of {NAMED[found]}",
        "1.3": "1.3 comes from a scheduler for Kubernetes and is refused by HCCL",
        "1.4": "1.4 comes from a scheduler for Kubernetes and is refused by HCCL",
    }
    if found == "group list":
        return f'version is "{cut(version)}"; a group list has none'
    return known.get(
        version, f'version is "{cut(version)}", the fields are those of {NAMED[found]}'
    )


def _status(
    source: Source, document: Mapping[str, object], found: Generation, judging: TableCheck
) -> None:
    status = document.get("status")
    if status == "completed" or (status is None and found == "2.0" and "status" not in document):
        return
    if "status" not in document:
        judging.say("missing", (), "status is missing", name="status")
    elif not isinstance(status, str) and found != "2.0":
        words = f"status is {kind(status)}, not a string"
        judging.say("not-a-string", ("status",), words, name="status")
    else:
        judging.say(
            "status",
            ("status",),
            f"status is {kind(status)}, not completed",
            level="warning" if found == "2.0" else "error",
            path=source.absolute or source.name,
        )


def _no_server_list(found: Generation, judging: TableCheck) -> None:
    judging.say(
        "rec-sdk-form",
        (),
        f"{NAMED[found]} has no server_list, which Rec SDK reads",
        # its demos for 950 come with a table of 2.0
        level="warning" if found == "2.0" else "error",
    )
