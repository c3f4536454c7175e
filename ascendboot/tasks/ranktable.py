"""`ranktable.*`: rank tables of every generation, with or without a cluster."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from invoke.collection import Collection
from invoke.context import Context  # noqa: TC002 - Invoke reads the signature
from invoke.exceptions import Exit

from ascendboot.console import Screen
from ascendboot.errors import NotUnderstoodError, RankTableError, UsageError
from ascendboot.judge.devices import devices_of
from ascendboot.parse.hccn_conf import parse as hccn_conf_parser
from ascendboot.ranktable.compare import differences, version_of
from ascendboot.ranktable.convert import (
    ORDERS,
    Converted,
    Host,
    from_hostfile,
    in_order,
    is_hostfile,
    merge,
)
from ascendboot.ranktable.convert import convert as change
from ascendboot.ranktable.reading import table_of
from ascendboot.ranktable.rows import rows_of
from ascendboot.ranktable.rule import JOBS, PRODUCTS
from ascendboot.ranktable.show import lines_of, rows_json
from ascendboot.ranktable.source import read, text_of
from ascendboot.ranktable.verdict import judge_file
from ascendboot.state import State
from ascendboot.tasks.common import reports_errors, wanted_cluster
from ascendboot.tasks.deliver import deliver
from ascendboot.tasks.flags import task
from ascendboot.tasks.npus import ask_npus, product_among, servers_seen
from ascendboot.tasks.ranktable_write import write
from ascendboot.tasks.session import Session
from ascendboot.tasks.words import GENERATIONS, among
from ascendboot.transport.pool import FORKS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ascendboot.facts.node import NodeFacts
    from ascendboot.model.cluster import Cluster
    from ascendboot.ranktable.against import ServerSeen
    from ascendboot.ranktable.reading import Table
    from ascendboot.ranktable.rule import Product

_JSON_HELP = "Print the answer as JSON on standard output"
_PRODUCT_HELP = f"The product that is to read it: {', '.join(PRODUCTS)}; a5 is 950"


@task(
    help={
        "table": "The file",
        "file": "One more file; may be said again",
        "product": f"{_PRODUCT_HELP}. Without it, rules of one product only are warnings",
        "inventory": "Also against the devices of this cluster: its nodes are asked, nothing is "
        "changed",
        "job": f"Also what a training stack wants of its table: {', '.join(JOBS)}",
        "intra-roce": "The job sets HCCL_INTRA_ROCE_ENABLE to 1: every device needs an address",
        "json": _JSON_HELP,
    },
    iterable=["file"],
)
@reports_errors
def validate(  # noqa: PLR0917 - Invoke makes a flag of each
    c: Context,
    table: str,
    file: Sequence[str] | None = None,
    product: str | None = None,
    job: str | None = None,
    inventory: str | None = None,
    intra_roce: bool = False,
    json: bool = False,
) -> None:
    """Name everything for which HCCL, or a training stack, would refuse a rank table.

    All problems at once, each with its rule, its place, HCCL's own words and what to do. The
    rules are in docs/reference/rank-table-rules.md.

    Examples:
      invoke ranktable.validate hccl_json_16p_2_host.json --product a2
      invoke ranktable.validate hccl.json --inventory two-node.yaml     is it stale?
      invoke ranktable.validate node-1.json --file node-2.json
      invoke ranktable.validate hccl.json --job rec-sdk-tf --json | jq '.files[].problems[].id'

    Exit codes: 0 valid (warnings allowed), 1 refused, 2 unreadable, not JSON or no rank table, 4 a
    node of the inventory is unreachable.
    """
    wanted_product = among("--product", product, PRODUCTS)
    wanted_job = among("--job", job, JOBS)
    names = (table, *(file or ()))
    servers = None
    if inventory is not None:
        wanted_product, servers = _cluster_of(inventory, wanted_product)
    verdicts = [
        judge_file(
            name,
            product=wanted_product,
            job=wanted_job,
            intra_roce=intra_roce,
            servers=servers,
        )
        for name in names
    ]
    code = max(verdict.exit_code for verdict in verdicts)
    screen = Screen(json_mode=json)
    if json:
        screen.json({"exit_code": code, "files": [verdict.to_json() for verdict in verdicts]})
    else:
        for verdict in verdicts:
            for line in verdict.told():
                screen.say(line)
    if code:
        raise Exit(code=code)


@task(
    help={
        "table": "The file",
        "server": "Only the ranks of this server",
        "json": _JSON_HELP,
    }
)
@reports_errors
def show(c: Context, table: str, server: str | None = None, json: bool = False) -> None:
    """Show who has which rank: servers, devices and addresses.

    Examples:
      invoke ranktable.show hccl_json_16p_2_host.json
      invoke ranktable.show hccl.json --server node_1
      invoke ranktable.show hccl.json --json | jq '.ranks[] | select(.rank == 17)'

    Exit codes: 0 shown, 2 unreadable, not JSON or no rank table.
    """
    found = table_of(read(table))
    rows = [row for row in rows_of(found) if server in (None, row.server)]
    if not rows:
        servers = ", ".join(dict.fromkeys(row.server for row in rows_of(found)))
        raise UsageError(f'--server: "{server}" is not in {table}, which has {servers or "none"}')
    screen = Screen(json_mode=json)
    if json:
        screen.json({"version": version_of(found), "ranks": rows_json(rows)})
        return
    for line in lines_of(version_of(found), rows):
        screen.say(line)


@task(help={"first": "One file", "second": "The other", "json": _JSON_HELP})
@reports_errors
def diff(c: Context, first: str, second: str, json: bool = False) -> None:
    """Name what two rank tables mean differently; order, spaces and quotes do not count.

    Examples:
      invoke ranktable.diff ours.json theirs.json
      invoke ranktable.diff ours.json theirs.json --json | jq '.differences[].where'

    Exit codes: 0 they mean the same, 1 they differ, 2 one is unreadable or no rank table.
    """
    found = differences(table_of(read(first)), table_of(read(second)))
    screen = Screen(json_mode=json)
    if json:
        screen.json({"exit_code": int(bool(found)), "differences": [asdict(d) for d in found]})
    for difference in found if not json else ():
        screen.say(difference.text)
    if not found and not json:
        screen.say(f"{first} and {second} mean the same")
    if found:
        raise Exit(code=1)


@task(
    help={
        "table": "A rank table, or a hostfile of Open MPI or DeepSpeed",
        "file": "One more table, whose servers come after those before; may be said again",
        "to": f"The generation wanted: {', '.join(GENERATIONS)}; default: the one it has",
        "order": f"How servers are numbered: {', '.join(ORDERS)}; server-id is MindSpore's",
        "hccn-conf": "HOST=FILE: the hccn.conf of a host of the hostfile; may be said again",
        "inventory": "The hostfile's hosts are nodes of this cluster, which are asked",
        "product": f"{_PRODUCT_HELP}; the result must be right for it",
        "output": "Where to write it; default: standard output",
        "force": "Overwrite a file that holds something else",
        "json": _JSON_HELP,
    },
    iterable=["file", "hccn_conf"],
)
@reports_errors
def convert(  # noqa: PLR0917 - Invoke makes a flag of each
    c: Context,
    table: str,
    file: Sequence[str] | None = None,
    to: str | None = None,
    order: str = "given",
    hccn_conf: Sequence[str] | None = None,
    inventory: str | None = None,
    product: str | None = None,
    output: str | None = None,
    force: bool = False,
    json: bool = False,
) -> None:
    """Make a rank table of another generation, one of several, or one from a hostfile.

    Nothing is made up: what the other generation must say and the table does not is named. Also
    repairs numbers that should be strings (merge_hccl.py). A result that HCCL would refuse is not
    written.

    Examples:
      invoke ranktable.convert node-1.json --file node-2.json --output hccl_json_16p_2_host.json
      invoke ranktable.convert super-pod.json --to 1.0
      invoke ranktable.convert hccl.json --order server-id          as MindSpore numbers
      invoke ranktable.convert hostfile --hccn-conf n1=n1.conf --hccn-conf n2=n2.conf
      invoke ranktable.convert hostfile --inventory two-node.yaml

    Exit codes: 0 done, 1 HCCL would refuse the result, 2 unreadable, or something is missing.
    """
    wanted_order = among("--order", order, ORDERS) or "given"
    wanted_product = among("--product", product, PRODUCTS)
    generation = None if to is None else GENERATIONS[among("--to", to, tuple(GENERATIONS)) or "1.0"]
    hosts = {} if inventory is None else _hosts_of(inventory)
    hosts |= _hosts_in(hccn_conf or ())
    whole = _gathered((table, *(file or ())), hosts)
    ordered = in_order(whole, wanted_order)
    converted = change(ordered, generation) if generation else Converted(ordered)
    deliver(
        converted.table,
        Screen(json_mode=json),
        output=output,
        product=wanted_product,
        force=force,
        left_out=converted.left_out,
    )


collection = Collection("ranktable", validate, write, convert, diff, show)


def _cluster_of(
    inventory: str, product: Product | None
) -> tuple[Product | None, Mapping[str, ServerSeen]]:
    """The product of a cluster's NPUs, unless another is to be judged for, and its devices."""
    cluster, found = _asked(inventory)
    return product or product_among(cluster, found), servers_seen(cluster, found)


def _asked(inventory: str) -> tuple[Cluster, Mapping[str, NodeFacts]]:
    _, cluster = wanted_cluster(inventory, with_own_table=False)
    state = State.here()
    run = state.new_run("ranktable")
    with Session.opened(cluster, state, run, accept_new=False, forks=FORKS) as session:
        return cluster, ask_npus(session, cluster.nodes)


def _gathered(names: Sequence[str], hosts: Mapping[str, Host]) -> Table:
    """The tables as one; with `hosts` a hostfile as a table."""
    if hosts:
        if len(names) > 1:
            raise UsageError("--file: names a table, and a hostfile is wanted with hosts")
        return from_hostfile(text_of(names[0]), names[0], hosts)
    for name in names:
        if is_hostfile(text_of(name)):
            wanted = "--inventory FILE, or --hccn-conf HOST=FILE for each"
            raise UsageError(f"{name}: is a hostfile; say what devices its hosts have: {wanted}")
    tables = [table_of(read(name)) for name in names]
    return tables[0] if len(tables) == 1 else merge(tables)


def _hosts_in(words: Sequence[str]) -> dict[str, Host]:
    """The hosts whose hccn.conf is there."""
    hosts = {}
    for word in words:
        host, equals, path = word.partition("=")
        if not equals:
            raise UsageError(f'--hccn-conf: "{word}" is not HOST=FILE')
        try:
            conf = hccn_conf_parser(text_of(path))
        except NotUnderstoodError as error:
            raise RankTableError(f"{path}: could not be read: {error}") from None
        hosts[host] = Host(host, conf.addresses)
    return hosts


def _hosts_of(inventory: str) -> dict[str, Host]:
    """The nodes of a cluster by name, addresses and server id."""
    cluster, found = _asked(inventory)
    hosts: dict[str, Host] = {}
    for node in cluster.nodes:
        host = Host(node.server_id, dict(devices_of(node, found[node.name])))
        names = (node.name, node.address, node.cluster_address, node.server_id)
        hosts |= dict.fromkeys(names, host)
    return hosts
