"""Checks everything for which HCCL or a training stack refuses a rank table."""

from __future__ import annotations

from ascendboot.ranktable.fields import Members, cut, kind
from ascendboot.ranktable.formats import FORMATS, Generation, generation_of, table_in
from ascendboot.ranktable.rules import CALLED, Job, Level, Problem, Product, TableCheck
from ascendboot.ranktable.text import Source


def validate_table(
    source: Source,
    *,
    product: Product | None = None,
    job: Job | None = None,
    intra_roce: bool = False,
) -> tuple[Problem, ...]:
    """Everything that is wrong with the table, errors first; RankTableError if it is none.

    `intra_roce`: the job sets HCCL_INTRA_ROCE_ENABLE to 1.
    """
    document = table_in(source)
    generation = generation_of(document)
    table_format = FORMATS[generation]
    readers = table_format.products
    implied = product or (readers[0] if len(readers) == 1 else None)
    check = TableCheck(product=implied, job=job, intra_roce=intra_roce, is_v2=table_format.is_v2)
    root = Members(check, document)
    _check_file(source, root)
    _check_version(root, generation, product)
    _check_status(source, root)
    table_format.check(root)
    if job == "rec-sdk-tf" and table_format.list_name != "server_list":
        words = f"{table_format.called} has no server_list, which Rec SDK reads"
        # its demos for 950 come with a table of 2.0
        level: Level = "warning" if table_format.is_v2 else "error"
        root.report("rec-sdk-form", None, words, level=level)
    return tuple(sorted(check.problems, key=lambda problem: problem.level))


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


def _check_version(root: Members, generation: Generation, product: Product | None) -> None:
    found = FORMATS[generation]
    stated = root.values.get("version")
    # null in a group list is as good as none
    version = None if stated is None else root.text("version")
    if stated is None and generation != "group list":
        root.missing("version")
    elif version is not None and version != generation:
        words = f'version is "{cut(version)}", the fields are those of {found.called}'
        # of tables of 1.1 HCCL reads collective_id first
        is_1_1 = version == "1.1"
        hccl = "json object has no property called collective_id" if is_1_1 else None
        if generation == "group list":
            words = f'version is "{cut(version)}"; a group list has none'
        elif version in ("1.3", "1.4"):
            words = f"{version} comes from a scheduler for Kubernetes and is refused by HCCL"
        root.report("version-unknown", "version", words, hccl=hccl, value=version)
    if product is not None and product not in found.products:
        readers = " and ".join(CALLED[reader] for reader in found.products)
        words = f"{found.called} is for {readers}, not for {CALLED[product]}"
        # elsewhere HCCL reads on and fails later, or in another way
        hccl = f"version[{stated}] is not support" if found.is_v2 else ""
        if product == "a5":
            hccl = f'failed with version [{stated or ""}] is not "2.0".'
        root.report("wrong-generation", "version", words, hccl=hccl)


def _check_status(source: Source, root: Members) -> None:
    status, is_v2 = root.values.get("status"), root.check.is_v2
    if status == "completed" or (is_v2 and "status" not in root):
        return
    if not is_v2 and not isinstance(status, str):
        root.text("status")  # reports what is wrong
    else:
        words = f"status is {kind(status)}, not completed"
        level: Level = "warning" if is_v2 else "error"
        path = source.absolute or source.name
        root.report("status", "status", words, level=level, path=path)
