"""Loads a Cluster from a file and its own rank table, or reports everything that is wrong."""

from __future__ import annotations

import posixpath
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path

from ascendboot.errors import RankTableError
from ascendboot.hccl.variables import INTRA_ROCE
from ascendboot.inventory import cross_checks as rules
from ascendboot.inventory.leaves import with_leaves
from ascendboot.inventory.messages import no_such, validate
from ascendboot.inventory.nodes import Entry, build_nodes, read_entries
from ascendboot.inventory.npu_addresses import with_ports
from ascendboot.inventory.schema import InventoryKeys
from ascendboot.inventory.values import LLDP, size_of
from ascendboot.inventory.yaml import Problem, Sheet, read
from ascendboot.model.cluster import CheckpointRules, Cluster, Device, Node, OwnTable, Parallel
from ascendboot.model.names import among, path_here
from ascendboot.model.ports import closed_ports, with_port_ranges
from ascendboot.ranktable import text as documents
from ascendboot.ranktable.formats import generation_of, table_in, table_of
from ascendboot.ranktable.formats.parts import Row
from ascendboot.ranktable.rules import located
from ascendboot.ranktable.validate import validate_table
from ascendboot.value import replace

_REQUIRED = {"cluster": "cluster: two-node", "nodes": "nodes: {atlas-1: {address: 192.0.2.11}}"}
_RESHARDABLE = ("tensorflow", "torch", "manifest")
"""Kinds whose scripts usually save whole weights, once for all ranks."""


def load(
    path: Path, *, with_own_table: bool = True, more: Mapping[str, Mapping[str, str]] | None = None
) -> Cluster:
    """The cluster that the inventory at `path` describes, with `more` values in its sections.

    Without its own table `resources.file` is not even read: it may be what is to be written.
    InventoryError: the file cannot be read, or has problems.
    """
    file = shown(path)
    sheet = read(path, file=file)
    for section, values in (more or {}).items():
        if isinstance(stated := sheet.data.setdefault(section, {}), dict):
            stated.update(values)
    keys = validate(sheet)
    _report_missing(sheet, keys)
    rules.report_contradictions(sheet, keys)
    entries = read_entries(sheet, keys)
    nodes = build_nodes(sheet, entries)
    nodes = nodes if sheet.problems else with_ports(sheet, entries, nodes)
    rules.report_node_settings(sheet, keys, entries)
    standby = _standby(sheet, keys, entries)
    rules.report_parallel_sizes(sheet, keys, () if sheet.problems else nodes)
    nodes = _imported(sheet, keys, nodes)
    own_table = None
    if with_own_table and keys.resources.file is not None and not sheet.problems:
        own_table, nodes = _use_own_table(sheet, keys, nodes, keys.resources.file)
    sheet.refuse_if_problems()
    cluster = replace(_cluster(file, keys, nodes, own_table), standby=standby)
    if cluster.firewall:
        try:
            closed_ports(cluster)
        except ValueError as error:
            sheet.report(sheet.mark.at("firewall"), str(error))
    sheet.refuse_if_problems()
    return cluster


def _cluster(
    file: str, keys: InventoryKeys, nodes: tuple[Node, ...], own_table: OwnTable | None
) -> Cluster:
    env, mpi_args = rules.environment(keys), tuple(keys.launcher.mpi_args)
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
        resource_mode=rules.resource_mode(keys),
        own_table=own_table,
        chief_port=keys.resources.chief_port,
        chief_device=keys.resources.chief_device,
        launcher=keys.launcher.kind,
        mpi_args=with_port_ranges(mpi_args, env) if keys.firewall else mpi_args,
        ranks_per_node=keys.launcher.ranks_per_node,
        ranks_per_device=keys.launcher.ranks_per_device,
        firewall=keys.firewall,
        code_path=keys.code.path,
        code_source=keys.code.source,
        code_exclude=tuple(keys.code.exclude),
        data=tuple(keys.data),
        python=keys.code.python,
        log_limit=size_of(keys.logs.max_size),
        loss_form=keys.logs.loss or "",
        profile=keys.profile,
        env=env,
        secret_env=keys.secret_names,
        topology_order=keys.topology.order,
        cores=tuple(sorted(keys.topology.cores.items())),
        topology_shape=keys.topology.shape,
        reads_leaves=keys.topology.leaves == LLDP,
        checkpoint=_checkpoint(keys),
        parallel=Parallel(**keys.parallel.model_dump()) if keys.parallel else None,
    )


def _checkpoint(keys: InventoryKeys) -> CheckpointRules | None:
    stated, sizes = keys.checkpoint, keys.parallel
    if stated is None:
        return None
    reshardable = stated.reshardable
    return CheckpointRules(
        kind=stated.kind,
        dir=posixpath.normpath(stated.dir),
        resume_arg=stated.resume_arg,
        reshardable=stated.kind in _RESHARDABLE if reshardable is None else reshardable,
        shared=stated.shared,
        model_parts=sizes.tp * sizes.pp if sizes else None,
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


def _standby(sheet: Sheet, keys: InventoryKeys, entries: tuple[Entry, ...]) -> tuple[str, ...]:
    """The nodes of `ssh.standby`; reports sets that have none, or others, and a wrong `primary`."""
    known = {name: entry.value("groups") or () for entry in entries for name in entry.names}
    all_understood = len(entries) == len(sheet.mark.at("nodes").keys)
    if keys.primary and keys.primary not in known and all_understood:
        sheet.report(sheet.mark.at("primary"), no_such("node", keys.primary, known, sheet))
    groups = {g: [n for n, of in known.items() if g in of] for g in keys.groups}
    found: list[str] = []
    for index, text in enumerate(keys.ssh.standby):
        mark = sheet.mark.at("ssh", "standby", index)
        try:
            found += among(text, [*known], groups)
        except ValueError as error:
            if entries and all_understood:
                sheet.report(mark, str(error))
    return tuple(dict.fromkeys(found))


def _imported(sheet: Sheet, keys: InventoryKeys, nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    """The nodes with the leaf switches of `topology.leaves`; reports problems of `topology`."""
    if sheet.problems or keys.topology.leaves == LLDP:
        return nodes
    if keys.topology.leaves is not None:
        try:
            nodes = with_leaves(nodes, str(path_here(keys.topology.leaves, sheet.file)))
        except (RankTableError, ValueError) as error:
            sheet.report(sheet.mark.at("topology", "leaves"), str(error))
            return nodes
    known = {leaf for node in nodes for leaf in node.leaf_names}
    for leaf in keys.topology.cores:
        if leaf not in known:
            text = no_such("leaf", leaf, sorted(known), sheet)
            sheet.report(sheet.mark.at("topology", "cores", leaf), text)
    return nodes


_LEVELS = "2.0"
_NO_SERVERS = f"a table of version {_LEVELS} names no servers"


def _use_own_table(
    sheet: Sheet, keys: InventoryKeys, nodes: tuple[Node, ...], file: str
) -> tuple[OwnTable | None, tuple[Node, ...]]:
    """The table in `file`, unchanged, and the nodes with its devices; reports its problems."""
    problems: list[str] = []
    rows: Sequence[Row] = ()
    generation = text = ""
    try:
        source = documents.read(str(path_here(file, sheet.file)))
        problems += _refusals(source, keys)
        text, generation = source.text, generation_of(table_in(source))
        rows = table_of(source).rows
        unfit = _unfit_levels if generation == _LEVELS else _unfit_servers
        problems += [f"{source.name}: {problem}" for problem in unfit(rows, nodes, keys)]
    except RankTableError as error:
        problems = problems or [str(error)]  # a refused table may not be understood, either
    for problem in problems:
        sheet.report(sheet.mark.at("resources", "file"), problem)
    if problems:
        return None, nodes
    if generation == _LEVELS:
        devices = ((node.server_id, device) for node in nodes for device in node.devices)
        stated = tuple((server_id, device.device_id, None) for server_id, device in devices)
        return OwnTable(text=text, generation=generation, places=stated), nodes
    places = tuple((row.server, row.device_id, ",".join(row.addresses) or None) for row in rows)
    of_servers: dict[str, list[Device]] = defaultdict(list)
    for server, device_id, device_ip in places:
        of_servers[server].append(Device(device_id, device_ip))
    nodes = tuple(replace(node, devices=tuple(of_servers[node.server_id])) for node in nodes)
    return OwnTable(text=text, generation=generation, places=places), nodes


def _refusals(source: documents.Source, keys: InventoryKeys) -> Iterator[str]:
    # our copy on the nodes has a name, an owner and a mode of its own
    content = replace(source, absolute="", is_symlink=False, mode=0o644)
    found = validate_table(
        content,
        product=None if keys.product == "auto" else keys.product,
        job="rec-sdk-tf" if keys.profile == "rec-sdk-tf" else None,
        intra_roce=rules.environment(keys).get(INTRA_ROCE) == "1",
    )
    for problem in located(source.text, [p for p in found if p.level == "error"]):
        yield f"{source.name}:{problem.line}: {problem.id}: {problem.where}: {problem.text}"


def _unfit_levels(rows: Sequence[Row], nodes: Sequence[Node], keys: InventoryKeys) -> Iterator[str]:
    """Where a table of version 2.0 differs: rank N is the N-th device that the inventory states."""
    if not all(node.devices for node in nodes):
        yield f"{_NO_SERVERS}; state the `devices` of every node, in rank order"
        return
    stated = [device.device_id for node in nodes for device in node.devices]
    listed = [row.device_id for row in rows]
    if stated != listed:
        yield f"the device ids are {listed} in rank order, and {stated} in the inventory"
    if keys.primary and keys.primary != nodes[0].name:
        first = nodes[0].name
        yield f"{_NO_SERVERS}: rank 0 is on the first node, {first}, which must be the primary"


def _unfit_servers(
    rows: Sequence[Row], nodes: Sequence[Node], keys: InventoryKeys
) -> Iterator[str]:
    """Where the table and the inventory describe different clusters."""
    by_id = {node.server_id: node for node in nodes}
    servers: dict[str, list[int]] = defaultdict(list)
    for row in rows:
        servers[row.server].append(row.device_id)
    for server in servers.keys() - by_id.keys():
        yield f'server_id "{server}" is no node\'s; they have {", ".join(by_id)}'
    for server, node in by_id.items():
        stated, listed = [device.device_id for device in node.devices], servers.get(server)
        if listed is None:
            yield f'{node.name}, whose server_id is "{server}", is not in the table'
        elif stated and stated != listed:
            words = f"{node.name} has the devices {listed} there and {stated} in the inventory"
            yield f"{words}; leave `devices` out, or state the same"
    runs = Counter(server for server, _ in groupby(row.server for row in rows))
    for server, count in runs.items():
        if count > 1:
            yield f'the ranks of "{server}" are not one after the other'
    first, primary = by_id.get(rows[0].server) if rows else None, keys.primary or nodes[0].name
    if first is not None and first.name != primary:
        words = f"rank 0 is on {first.name}, and the primary is {primary}"
        yield f"{words}; write `primary: {first.name}`"
