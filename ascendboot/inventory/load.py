"""Loads a Cluster from a file, or reports everything that is wrong with it."""

from __future__ import annotations

from pathlib import Path

from ascendboot.inventory.cross_checks import (
    environment,
    report_contradictions,
    report_node_settings,
    report_one_address,
    report_unknown_secrets,
    resource_mode,
)
from ascendboot.inventory.messages import no_such, validate
from ascendboot.inventory.nodes import Entry, build_nodes, read_entries
from ascendboot.inventory.own_table import use_own_table
from ascendboot.inventory.schema import InventoryKeys
from ascendboot.inventory.values import size_of
from ascendboot.inventory.yaml import Problem, Sheet, read
from ascendboot.model.cluster import Cluster

_REQUIRED = {"cluster": "cluster: two-node", "nodes": "nodes: {atlas-1: {address: 192.0.2.11}}"}


def load(path: Path, *, with_own_table: bool = True) -> Cluster:
    """The cluster that the inventory at `path` describes.

    Without its own table `resources.file` is not even read: it may be what is to be written.

    Raises:
        InventoryError: the file cannot be read or has problems; carries all of them by line.
    """
    file = shown(path)
    sheet = read(path, file=file)
    keys = validate(sheet)
    _report_missing(sheet, keys)
    report_contradictions(sheet, keys)
    entries = read_entries(sheet, keys)
    nodes = build_nodes(sheet, entries)
    report_one_address(sheet, keys, sum(len(entry.names) for entry in entries))
    report_node_settings(sheet, keys, entries)
    report_unknown_secrets(sheet, keys, [entry.env for entry in entries])
    _report_primary(sheet, keys, entries)
    own_table = None
    if with_own_table and keys.resources.file is not None and not sheet.problems:
        own_table, nodes = use_own_table(sheet, keys, nodes, keys.resources.file)
    sheet.refuse_if_problems()
    return Cluster(
        name=keys.cluster,
        nodes=nodes,
        primary_name=keys.primary or nodes[0].name,
        source=file,
        product=keys.product,
        facts=keys.facts,
        ssh_port=keys.ssh.port if isinstance(keys.ssh.port, int) else None,
        ssh_via=keys.ssh.via,
        trust=keys.ssh.trust,
        resource_mode=resource_mode(keys),
        own_table=own_table,
        chief_port=keys.resources.chief_port,
        chief_device=keys.resources.chief_device,
        launcher=keys.launcher.kind,
        mpi_args=tuple(keys.launcher.mpi_args),
        code_path=keys.code.path,
        code_source=keys.code.source,
        code_exclude=tuple(keys.code.exclude),
        data=tuple(keys.data),
        python=keys.code.python,
        log_limit=size_of(keys.logs.max_size),
        profile=keys.profile,
        env=environment(keys),
        secret_env=keys.secret_names,
    )


def shown(path: Path) -> str:
    """`path` as messages show it: from the working directory where it lies below."""
    try:
        return str(path.relative_to(Path.cwd()))
    except (ValueError, OSError):
        return str(path)


def _report_missing(sheet: Sheet, keys: InventoryKeys) -> None:
    for key, example in _REQUIRED.items():
        if key not in sheet.mark.keys:
            sheet.problems.append(Problem(1, key, f"is missing; write for example `{example}`"))
    nodes = sheet.mark.at("nodes")
    if "nodes" in keys.model_fields_set and not nodes.keys:
        sheet.report(nodes, f"names no node; write for example `{_REQUIRED['nodes']}`")


def _report_primary(sheet: Sheet, keys: InventoryKeys, entries: tuple[Entry, ...]) -> None:
    names = [name for entry in entries for name in entry.names]
    all_understood = len(entries) == len(sheet.mark.at("nodes").keys)
    if keys.primary and keys.primary not in names and all_understood:
        sheet.report(sheet.mark.at("primary"), no_such("node", keys.primary, names, sheet))
