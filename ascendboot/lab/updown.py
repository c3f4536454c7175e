"""Bringing a practice cluster up, whole or not at all, and taking it down without a trace."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ascendboot.lab import claims, containers, delay, records, wiring
from ascendboot.lab.cluster import Lab
from ascendboot.lab.handover import Handover
from ascendboot.lab.node import boot, end_all, mount_disk, wait_until_up
from ascendboot.lab.programs import LabError, RangeInUseError, need_programs, run
from ascendboot.lab.records import Record
from ascendboot.lab.shape import Shape, prefix_of
from ascendboot.lab.staging import Surroundings, host_keys, make_key, stage

if TYPE_CHECKING:
    from collections.abc import Sequence

_KEY = "operator_key"
_MADE_NAMESPACE_FOLDER = "made-run-netns"


def up(
    shape: Shape,
    *,
    directory: Path,
    project: Path | None = None,
    owner: tuple[int, int] | None = None,
    instead: Sequence[Shape] = (),
) -> Lab:
    """Bring a lab up for a working directory; one that runs there in the same shape is kept.

    `project` is the checkout that the nodes see, `owner` gets the files written in `directory`.
    Where ranges of the shape are in use, the first shape of `instead` counts whose are free.

    Raises:
        LabError: a program is missing, a range is in use, another shape runs, or a part failed;
            then nothing of it is left.
        NodeError: a node did not boot; then nothing of the lab is left.
    """
    need_programs()
    if shape.containers:
        containers.need_containers(Path("/proc/self/mounts").read_text())
    directory = directory.resolve()
    uid, gid = owner or (os.getuid(), os.getgid())
    with records.locked():
        running = records.of_directory(directory)
        if running and not _is_whole(running):
            _take_down(running.shape.lab_id)
        elif running:
            return _same_again(running, shape, instead)
        shape = _free_one(shape, instead)
        record = Record(shape, directory, uid, gid, records.current_boot_id())
        try:
            _build(record, Surroundings.of_this_process(directory, project))
        except BaseException:
            with suppress(LabError):
                _take_down(shape.lab_id)
            raise
        record = replace(record, ready=True)
        record.save()
    return Lab(record)


def down(lab_id: str) -> None:
    """Take a lab down, whole or in parts; none at all is fine.

    Raises:
        LabError: something of it would not go.
    """
    with records.locked():
        _take_down(lab_id)


def remains(lab_id: str) -> bool:
    """Whether anything is left of a lab, be it without its record."""
    return (records.ROOT / lab_id).exists() or bool(wiring.existing(prefix_of(lab_id)))


def _is_whole(record: Record) -> bool:
    return record.ready and record.boot_id == records.current_boot_id()


def _same_again(running: Record, shape: Shape, instead: Sequence[Shape]) -> Lab:
    if running.shape not in (shape, *instead):
        raise LabError(
            f"lab: could not bring up {shape.described()}: a lab of {running.shape.described()}"
            f" runs for {running.directory}; say invoke lab.down first"
        )
    _hand_over(running)
    return Lab(running)


def _free_one(shape: Shape, instead: Sequence[Shape]) -> Shape:
    try:
        _refuse_what_is_used(shape)
    except RangeInUseError:
        for other in instead:
            with suppress(RangeInUseError):
                _refuse_what_is_used(other)
                return other
        raise
    return shape


def _refuse_what_is_used(shape: Shape) -> None:
    labs = records.recorded()
    known = any(record.shape.lab_id == shape.lab_id for record in labs)
    if not known and wiring.existing(shape.prefix):
        raise RangeInUseError(
            f"lab: could not bring up {shape.described()}: {shape.prefix}* is there, and"
            f" {records.ROOT} has no record of its lab, which may run in another container or mount"
            " namespace; take other ranges with --network MANAGEMENT,NPU"
        )
    interfaces = [record.shape.prefix for record in labs]
    problems = claims.conflicts(shape, claims.claims_of_machine(interfaces))
    problems += [
        f"{shape.management} or {shape.npu} is used by the lab {record.shape.lab_id} of"
        f" {record.directory} ({record.shape.described()})"
        for record in labs
        if claims.labs_collide(record.shape, shape)
    ]
    if problems:
        raise RangeInUseError(
            f"lab: could not bring up {shape.described()}: {'; '.join(problems)};"
            " take other ranges with --network MANAGEMENT,NPU"
        )


def _build(record: Record, surroundings: Surroundings) -> None:
    _note_namespace_folder()
    record.save()
    make_key(record.folder / _KEY, "ed25519", "ascendboot-lab")
    public = (record.folder / f"{_KEY}.pub").read_text()
    wiring.build(record.shape)
    for node in record.shape.nodes:
        mount_disk(record, node)
        disk = record.disk(node.name)
        stage(disk, record.shape, node, operator_key=public, surroundings=surroundings)
    _hand_over(record)  # before the boot: a node hides this folder if it sees the directory
    for node in record.shape.nodes:
        boot(record, node)
    for node in record.shape.nodes:
        wait_until_up(record, node)
        wiring.wait_for_links(record.shape, node)


def _hand_over(record: Record) -> None:
    keys = {node.name: host_keys(record.disk(node.name)) for node in record.shape.nodes}
    private = (record.folder / _KEY).read_text()
    handover = Handover.of(record)
    try:
        handover.write(record.shape, private, keys)
    except OSError as error:
        raise LabError(
            f"lab: could not write {handover.inventory.parent}: {error.strerror}:"
            f" {error.filename}; make room for it or work in another directory"
        ) from error


def _take_down(lab_id: str) -> None:
    record = records.of_id(lab_id)
    if record:
        processes = (record.process(node.name) for node in record.shape.nodes)
        end_all([process for process in processes if process])
        for node in record.shape.nodes:
            delay.end_wire(record, node)
            containers.remove_cgroups(record.disk(node.name))
    wiring.take_down(prefix_of(lab_id))
    for place in records.mounts_below(records.ROOT / lab_id):
        run(["umount", "-n", "-l", str(place)], purpose=f"unmount {place}")
    if record:
        with suppress(NotADirectoryError):
            Handover.of(record).remove()
    records.forget(lab_id)
    _remove_namespace_folder()


def _note_namespace_folder() -> None:
    """Remember that /run/netns was not there, to remove it with the last lab."""
    if not wiring.NAMESPACES.exists():
        (records.ROOT / _MADE_NAMESPACE_FOLDER).touch()


def _remove_namespace_folder() -> None:
    note = records.ROOT / _MADE_NAMESPACE_FOLDER
    if records.recorded() or not note.exists():
        return
    note.unlink()
    if not wiring.NAMESPACES.is_dir() or any(wiring.NAMESPACES.iterdir()):
        return
    while records.is_mounted(wiring.NAMESPACES):
        run(["umount", "-n", str(wiring.NAMESPACES)], purpose="unmount /run/netns")
    wiring.NAMESPACES.rmdir()
