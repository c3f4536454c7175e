"""Rank tables: `ranktable.validate`, `.write`, `.convert`, `.diff`, `.show`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from invoke.collection import Collection

from ascendboot.checks.rank_table import known_products, level_places, member
from ascendboot.cli.common import among
from ascendboot.cli.verbs import ANSWER_HELP, Call, cluster_verb, verb
from ascendboot.console.screen import Screen
from ascendboot.errors import AscendbootError, NotUnderstoodError, RankTableError, UsageError
from ascendboot.facts.derive import device_ids, devices_of, leaves_by_lldp, places_of
from ascendboot.facts.node_facts import NodeFacts, queries
from ascendboot.facts.parsers.hccn_tool import parse_conf as hccn_conf_parser
from ascendboot.facts.query import query, value_of
from ascendboot.model.cluster import Cluster, Node
from ascendboot.model.names import counted, id_list
from ascendboot.ranktable import convert as conversion
from ascendboot.ranktable.check import DeviceState, ServerState, check_file, sentence
from ascendboot.ranktable.configmap import configmap as configmap_of
from ascendboot.ranktable.formats import FORMATS, Generation, table_of
from ascendboot.ranktable.formats.parts import Converted, Member, MemberDevice, Table
from ascendboot.ranktable.rules import JOBS, PRODUCTS, Job, Product
from ascendboot.ranktable.show import differences, lines_of, rows_json
from ascendboot.ranktable.text import from_text, read, text_of
from ascendboot.ranktable.validate import validate_table
from ascendboot.setup.survey import cluster_findings
from ascendboot.state import write_text
from ascendboot.transport.api import HostSide
from ascendboot.value import as_json, replace

PRODUCT_HELP = f"The product that reads the table: {', '.join(PRODUCTS)}; a5 is 950"
CONFIGMAP_HELP = (
    "Write YAML of a ConfigMap of this name, as the controllers do: rings-config-JOB for"
    " MindCluster, ranktable-JOB for Volcano's plugin configmap1980"
)
GENERATIONS: dict[str, Generation] = {name.replace(" ", "-"): name for name in FORMATS}
"""The generations by their value of --to."""
_NPU_QUERIES = ("npus", "device_networks", "super_pods", "root_info", "hccn_conf", "neighbours")
_ALLOWED = {"devices-differ", "device-ip-missing"}
"""Errors of `setup` that the rules of rank tables check by product and job."""

_GIVEN, _BY_TEXT = conversion.ORDERS


@cluster_verb(
    stopped="Stopped: nothing was written.",
    help={
        "output": "Output file; default: standard output",
        "to": f"The generation: {', '.join(GENERATIONS)}; default: the one of the NPUs",
        "order": f"{_GIVEN} (the default): primary first, then as in the inventory or in "
        f"--nodes; {_BY_TEXT}: by server_id as text, as in MindSpore",
        "nodes": "Only these nodes, in this order: atlas-[01-04],atlas-09. Default: all",
        "devices": "Only these devices of each node, in this order: 0-3 or 0,2. Default: all",
        "offline": "Connect to no node: the inventory states devices with addresses, as devices:"
        " [{device_id: 0, device_ip: ADDRESS}]",
        "product": f"With --offline, or to check the product of the NPUs: {', '.join(PRODUCTS)}",
        "job": f"Also check the rules of a training stack: {', '.join(JOBS)}",
        "configmap": CONFIGMAP_HELP,
        "force": "Overwrite a file with other contents",
        "json": ANSWER_HELP,
    },
)
def write(
    call: Call,
    *,
    output: str | None = None,
    to: str | None = None,
    order: str = "given",
    nodes: str | None = None,
    devices: str | None = None,
    offline: bool = False,
    product: str | None = None,
    job: str | None = None,
    configmap: str | None = None,
    force: bool = False,
) -> None:
    """Write the rank table of a cluster from its devices. Nodes are only read.

    The NPUs determine product and generation: super pods of A3 come from
    npu-smi, the level lists of 950 from /etc/hccl_rootinfo.json of each server.
    Does not write a table that HCCL would refuse.

    Examples:
      invoke ranktable.write --output hccl_json_16p_2_host.json
      invoke ranktable.write --devices 0-3 --nodes atlas-1 --output hccl_4p.json
      invoke ranktable.write --order server-id --job mindspore
      invoke ranktable.write --inventory devices.yaml --offline --product a2

    Exit codes: 0 done, 1 HCCL would refuse it or a query failed, 2 wrong usage,
    or the product reads another generation, 4 a node is unreachable.
    """
    wanted_order = among("--order", order, conversion.ORDERS) or "given"
    wanted_product = among("--product", product, PRODUCTS)
    wanted_job = among("--job", job, JOBS)
    word = among("--to", to, tuple(GENERATIONS))
    cluster = call.cluster()
    chosen = cluster.rank_order if nodes is None else cluster.chosen(nodes)
    ids = None if devices is None else id_list("--devices", devices)
    if offline:
        members = tuple(_stated(cluster, node, ids) for node in chosen)
        of_npus = wanted_product or (None if cluster.product == "auto" else cluster.product)
    else:
        members, found_product = _of_npus(call, cluster, None if nodes is None else chosen, ids)
        of_npus = found_product or wanted_product
    if wanted_product is not None and wanted_product != of_npus:
        raise UsageError(f"--product: the NPUs are of {of_npus}, not of {wanted_product}")
    generation = GENERATIONS[word] if word else conversion.generation_for(of_npus, members)
    table = conversion.build(members, generation, wanted_order, of_npus)
    _deliver(
        table,
        call.screen,
        output=output,
        product=of_npus,
        job=wanted_job,
        configmap=configmap,
        force=force,
    )


def _of_npus(
    call: Call, cluster: Cluster, chosen: tuple[Node, ...] | None, ids: tuple[int, ...] | None
) -> tuple[tuple[Member, ...], Product | None]:
    """Return the chosen nodes, or all in rank order, as their NPUs report them, and the product."""
    found = _queried(call, "ranktable-write", cluster, chosen or cluster.nodes)
    if chosen is None:
        cluster = cluster.with_leaves(leaves_by_lldp(cluster, found))
    all_findings = cluster_findings(replace(cluster, resource_mode="rank-table"), found)
    if errors := [f for f in all_findings if f.level == "error" and f.id not in _ALLOWED]:
        raise AscendbootError(*(finding.message for finding in errors))
    members = tuple(
        member(n, found[n.name], _wanted(n, device_ids(n, found[n.name]), ids))
        for n in chosen or cluster.rank_order
    )
    return members, _product_among(cluster, found)


def _stated(cluster: Cluster, node: Node, ids: tuple[int, ...] | None) -> Member:
    addresses = {device.device_id: device.device_ip for device in node.devices}
    if not addresses:
        raise UsageError(
            f"--offline: {cluster.source} does not name the devices of {node.name}; state them as "
            "`devices: [{device_id: 0, device_ip: ADDRESS}]`"
        )
    wanted = _wanted(node, tuple(addresses), ids)
    return Member(node.server_id, tuple(MemberDevice(i, addresses[i]) for i in wanted))


def _wanted(node: Node, there: tuple[int, ...], ids: tuple[int, ...] | None) -> tuple[int, ...]:
    missing = [str(i) for i in ids or () if i not in there]
    if missing:
        known = ",".join(map(str, there)) or "none"
        raise UsageError(f"--devices: {node.name} has no {','.join(missing)}; it has {known}")
    return there if ids is None else ids


@verb(
    shared=("inventory", "json"),
    help={
        "table": "A rank table, or a hostfile of Open MPI or DeepSpeed",
        "file": "Another table, whose servers are appended; can be repeated",
        "to": f"The new generation: {', '.join(GENERATIONS)}; default: unchanged",
        "order": f"The order of servers: {_GIVEN} (the default), or {_BY_TEXT}, as in MindSpore",
        "hccn-conf": "HOST=FILE: the hccn.conf of a host of the hostfile; can be repeated",
        "inventory": "The hostfile's hosts are nodes of this cluster, which are queried",
        "product": f"{PRODUCT_HELP}; the result must be valid for it",
        "output": "Output file; default: standard output",
        "configmap": CONFIGMAP_HELP,
        "force": "Overwrite a file with other contents",
        "json": ANSWER_HELP,
    },
    iterable=["file", "hccn_conf"],
)
def convert(
    call: Call,
    *,
    table: str,
    file: Sequence[str] | None = None,
    to: str | None = None,
    order: str = "given",
    hccn_conf: Sequence[str] | None = None,
    product: str | None = None,
    output: str | None = None,
    configmap: str | None = None,
    force: bool = False,
) -> None:
    """Convert a rank table, merge several, or create one from a hostfile.

    Never guesses missing values; names them. Also repairs numbers that should
    be strings (merge_hccl.py). Does not write a result that HCCL would refuse.

    Examples:
      invoke ranktable.convert node-1.json --file node-2.json --output all.json
      invoke ranktable.convert super-pod.json --to 1.0
      invoke ranktable.convert hccl.json --order server-id  in MindSpore's order
      invoke ranktable.convert hosts --hccn-conf n1=a.conf --hccn-conf n2=b.conf
      invoke ranktable.convert hosts --inventory two-node.yaml
      invoke ranktable.convert hccl.json --configmap rings-config-my-job

    Exit codes: 0 done, 1 HCCL would refuse the result, 2 unreadable, or values
    are missing, 4 a node of --inventory is unreachable.
    """
    wanted_order = among("--order", order, conversion.ORDERS) or "given"
    wanted_product = among("--product", product, PRODUCTS)
    word = among("--to", to, tuple(GENERATIONS))
    hosts = _hosts_of(call, hccn_conf or ())
    whole = conversion.in_order(_gathered((table, *(file or ())), hosts), wanted_order)
    converted = conversion.convert(whole, GENERATIONS[word]) if word else Converted(whole)
    _deliver(
        converted.table,
        call.screen,
        output=output,
        product=wanted_product,
        configmap=configmap,
        force=force,
        left_out=converted.left_out,
    )


def _gathered(names: Sequence[str], hosts: Mapping[str, conversion.Host]) -> Table:
    """Merge the tables; with `hosts`, convert a hostfile."""
    if hosts:
        if len(names) > 1:
            raise UsageError("--file: cannot be used with a hostfile; leave it out")
        return conversion.from_hostfile(text_of(names[0]), names[0], hosts)
    for name in names:
        if conversion.is_hostfile(text_of(name)):
            wanted = "--inventory FILE, or --hccn-conf HOST=FILE for each"
            raise UsageError(f"{name}: is a hostfile; state the devices of its hosts: {wanted}")
    tables = [table_of(read(name)) for name in names]
    return tables[0] if len(tables) == 1 else conversion.merge(tables)


def _hosts_of(call: Call, hccn_conf: Sequence[str]) -> dict[str, conversion.Host]:
    """Return the nodes of --inventory by name, address and server id, and those of --hccn-conf."""
    hosts: dict[str, conversion.Host] = {}
    if call.inventory is not None:
        cluster = call.cluster()
        found = _queried(call, "ranktable", cluster, cluster.nodes)
        for node in cluster.nodes:
            host = conversion.Host(node.server_id, dict(devices_of(node, found[node.name])))
            names = (node.name, node.address, node.cluster_address, node.server_id)
            hosts |= dict.fromkeys(names, host)
    for word in hccn_conf:
        name, equals, path = word.partition("=")
        if not equals:
            raise UsageError(f'--hccn-conf: "{word}" is not HOST=FILE')
        try:
            hosts[name] = conversion.Host(name, hccn_conf_parser(text_of(path)))
        except NotUnderstoodError as error:
            raise RankTableError(f"{path}: could not be read: {error}") from None
    return hosts


def _deliver(
    table: Table,
    screen: Screen,
    *,
    output: str | None,
    product: Product | None,
    job: Job | None = None,
    configmap: str | None,
    force: bool,
    left_out: Sequence[str] = (),
) -> None:
    """Write or print the table, unless HCCL would refuse it or the file has other contents."""
    try:
        text = table.to_json()
        source = from_text("the new table", text)
    except RecursionError:
        raise UsageError("the table: an unknown member is nested too deeply") from None
    if output is not None and configmap is None:
        source = replace(source, absolute=str(Path(output).absolute()))
    problems = validate_table(source, product=product, job=job)
    for problem in problems:
        screen.error(f"the new table: {sentence(problem)}")
    if any(problem.level == "error" for problem in problems):
        raise AscendbootError("the new table is refused and was not written")
    if configmap is not None:
        text = configmap_of(configmap, text)
    if left_out:
        screen.error(f"left out, because the new generation cannot hold it: {', '.join(left_out)}")
    if output is not None:
        _write(Path(output), text, force=force)
    if screen.json_mode:
        screen.json({"output": output, "left_out": list(left_out), "table": json.loads(text)})
    elif output is None:
        screen.text(text.removesuffix("\n"))
    else:
        screen.say(f"{output}: written, {counted(table.world_size, 'rank')}")


def _write(path: Path, text: str, *, force: bool) -> None:
    if path.exists() and not (force or path.is_dir()):
        if path.is_file() and path.read_bytes() == text.encode():
            return
        words = "it exists with other contents; choose another name, or use --force"
        raise UsageError(f"{path}: could not be written: {words}")
    write_text(path, text)
    path.chmod(0o644)


@verb(
    shared=("inventory", "json"),
    help={
        "table": "The file",
        "file": "Another file; can be repeated",
        "product": f"{PRODUCT_HELP}. Without it, rules for one product are warnings",
        "inventory": "Also compare with the devices of this cluster. Read-only",
        "job": f"Also check the rules of a training stack: {', '.join(JOBS)}",
        "intra-roce": "The job sets HCCL_INTRA_ROCE_ENABLE to 1: every device needs an address",
        "json": ANSWER_HELP,
    },
    iterable=["file"],
)
def validate(
    call: Call,
    *,
    table: str,
    file: Sequence[str] | None = None,
    product: str | None = None,
    job: str | None = None,
    intra_roce: bool = False,
) -> None:
    """Report all reasons why HCCL or a training stack would refuse a rank table.

    Reports all problems with rule, place, HCCL's own message and remedy. The
    rules are in docs/reference/rank-table-rules.md.

    Examples:
      invoke ranktable.validate hccl_json_16p_2_host.json --product a2
      invoke ranktable.validate hccl.json --inventory two-node.yaml
      invoke ranktable.validate node-1.json --file node-2.json
      invoke ranktable.validate hccl.json --job rec-sdk-tf --json | jq .files

    Exit codes: 0 valid (warnings allowed), 1 refused, 2 unreadable, not JSON or
    not a rank table, 4 a node of the inventory is unreachable.
    """
    wanted_product = among("--product", product, PRODUCTS)
    wanted_job = among("--job", job, JOBS)
    servers = None
    if call.inventory is not None:
        cluster = call.cluster()
        found = _queried(call, "ranktable", cluster, cluster.nodes)
        wanted_product = wanted_product or _product_among(cluster, found)
        servers = servers_seen(cluster, found)
    results = [
        check_file(
            name, product=wanted_product, job=wanted_job, intra_roce=intra_roce, servers=servers
        )
        for name in (table, *(file or ()))
    ]
    code = max(result.exit_code for result in results)
    lines = [line for result in results for line in result.report_lines()]
    document = {"exit_code": code, "files": [result.to_json() for result in results]}
    call.end(code, document, lines)


@verb(
    help={
        "table": "The file",
        "server": "Only the ranks of this server. Default: all",
        "json": ANSWER_HELP,
    }
)
def show(call: Call, *, table: str, server: str | None = None) -> None:
    """Show the ranks of a rank table with servers, devices and addresses.

    Examples:
      invoke ranktable.show hccl_json_16p_2_host.json
      invoke ranktable.show hccl.json --server node_1
      invoke ranktable.show hccl.json --json | jq '.ranks[] | select(.rank==17)'

    Exit codes: 0 shown, 2 unreadable, not JSON or not a rank table.
    """
    found = table_of(read(table))
    rows = [row for row in found.rows if server in (None, row.server)]
    if not rows:
        servers = ", ".join(dict.fromkeys(row.server for row in found.rows))
        raise UsageError(f'--server: "{server}" is not in {table}, which has {servers or "none"}')
    document = {"version": found.generation, "ranks": rows_json(rows)}
    call.end(0, document, lines_of(found.generation, rows))


@verb(help={"first": "One file", "second": "The other", "json": ANSWER_HELP})
def diff(call: Call, *, first: str, second: str) -> None:
    """Show how two rank tables differ in meaning; ignores order, spaces and quotes.

    Examples:
      invoke ranktable.diff ours.json theirs.json
      invoke ranktable.diff ours.json theirs.json --json | jq .differences
      invoke ranktable.diff hccl.json theirs.yaml     of kubectl get configmap

    Exit codes: 0 same meaning, 1 they differ, 2 one is unreadable or not a rank
    table.
    """
    found = differences(table_of(read(first)), table_of(read(second)))
    code = 1 if found else 0
    lines = [difference.text for difference in found] or [f"{first} and {second} mean the same"]
    call.end(code, {"exit_code": code, "differences": as_json(found)}, lines)


def _queried(
    call: Call, verb: str, cluster: Cluster, nodes: Sequence[Node]
) -> Mapping[str, NodeFacts]:
    """Query the NPUs of these nodes in parallel; AscendbootError if one gives no answer."""

    def of_node(node: Node, host: HostSide) -> NodeFacts:
        known = queries(cluster, node)
        npu_queries = {name: known[name] for name in _NPU_QUERIES if name in known}
        return NodeFacts.from_answers(node.name, query(host, npu_queries))

    screen = Screen(json_mode=True)  # standard output is for the result
    with call.session(verb, cluster, reads=True, screen=screen) as session:
        return session.look_at(nodes, of_node)


def _product_among(cluster: Cluster, found: Mapping[str, NodeFacts]) -> Product | None:
    """Return the stated product, else that of the NPUs, or None; AscendbootError if they differ."""
    known = known_products(cluster, found)
    if len(known) > 1:
        words = f"the nodes have NPUs of different products: {' and '.join(known)}"
        raise AscendbootError(f"{words}; a rank table is for one; select its nodes with --nodes")
    return known[0] if known else None


def servers_seen(cluster: Cluster, found: Mapping[str, NodeFacts]) -> dict[str, ServerState]:
    """Return the queried devices by the server id that rank tables use."""
    servers = {}
    for node in cluster.nodes:
        if (facts := found.get(node.name)) is None:
            continue
        npus, conf, places = value_of(facts.npus), value_of(facts.hccn_conf), places_of(facts)
        networks = {n.device_id: n.device_ip for n in value_of(facts.device_networks) or ()}
        devices = {}
        for device in (npu.device_id for npu in npus.npus) if npus else ():
            place = places.get(device)
            devices[device] = DeviceState(
                device_ip=networks.get(device),
                in_conf=conf.get(device) if conf else None,
                super_device_id=place.super_device_id if place else None,
            )
        servers[node.server_id] = ServerState(node.name, devices, level_places(facts))
    return servers


collection = Collection("ranktable", validate, write, convert, diff, show)
