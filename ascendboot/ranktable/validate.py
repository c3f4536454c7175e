"""What kind of table a document is, and all that is wrong with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from ascendboot.errors import RankTableError
from ascendboot.ranktable import validate_groups, validate_v1, validate_v2
from ascendboot.ranktable.fields import Members, cut, kind
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
    check = TableCheck(product=implied, job=job, intra_roce=intra_roce, is_v2=found == "2.0")
    root = Members(check, document)
    _check_file(source, root)
    _check_version(root, found, product)
    _check_status(source, root, found)
    if found == "2.0":
        validate_v2.check_rank_list(document, check)
    elif found == "group list":
        validate_groups.check_group_list(document, check)
    else:
        validate_v1.check_server_list(document, check)
    if job == "rec-sdk-tf" and found in ("2.0", "group list"):
        words = f"{NAMED[found]} has no server_list, which Rec SDK reads"
        # its demos for 950 come with a table of 2.0
        level: Level = "warning" if found == "2.0" else "error"
        root.report("rec-sdk-form", None, words, level=level)
    return tuple(sorted(check.problems, key=lambda problem: problem.level))


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


def _check_file(source: Source, root: Members) -> None:
    path, job = source.absolute, root.check.job
    if path and path.find(".json") + len(".json") != len(path):
        root.report("file-name", None, f'the path "{cut(path)}" is refused', path=path)
    if source.is_symlink:
        level: Level = "error" if job in ("rec-sdk-tf", "torch") else "warning"
        root.report("file-symlink", None, "the file is a symbolic link", level=level)
    if source.mode & 0o022:
        level = "error" if job == "rec-sdk-tf" else "warning"
        root.report("file-writable", None, f"its mode is {source.mode:04o}", level=level)
    if source.has_bom:
        root.report("file-bom", None, "the text begins with a byte order mark")
    for doubled in source.doubled:
        root.check.report("doubled-key", doubled, f'"{cut(str(doubled[-1]))}" is there twice')


def _check_version(root: Members, found: Generation, product: Product | None) -> None:
    # null in a group list is as good as none
    is_left_out = root.values.get("version") is None
    version = None if is_left_out else root.text("version")
    if is_left_out and found != "group list":
        root.missing("version")
    elif version is not None and version != found:
        # HCCL looks for what tables of 1.1 begin with
        hccl = "json object has no property called collective_id"
        root.report(
            "version-unknown",
            "version",
            _wrong_version(version, found),
            hccl=hccl if version == HETEROGENEOUS else None,
            value=version,
        )
    if product is not None and product not in PRODUCTS_OF[found]:
        readers = " and ".join(CALLED[reader] for reader in PRODUCTS_OF[found])
        words = f"{NAMED[found]} is for {readers}, not for {CALLED[product]}"
        hccl = _refusal(root.values.get("version"), product, found)
        root.report("wrong-generation", "version", words, hccl=hccl)


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


def _check_status(source: Source, root: Members, found: Generation) -> None:
    status = root.values.get("status")
    is_v2 = found == "2.0"
    if status == "completed" or (is_v2 and "status" not in root):
        return
    if not is_v2 and not isinstance(status, str):
        root.text("status")  # reports what is wrong
    else:
        words = f"status is {kind(status)}, not completed"
        level: Level = "warning" if is_v2 else "error"
        path = source.absolute or source.name
        root.report("status", "status", words, level=level, path=path)
