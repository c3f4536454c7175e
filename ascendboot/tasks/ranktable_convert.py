"""`ranktable.convert`: a rank table of another generation, of several, or from a hostfile."""

from __future__ import annotations

from typing import TYPE_CHECKING

from invoke.context import Context  # noqa: TC002 - Invoke reads the signature

from ascendboot.console import Screen
from ascendboot.errors import NotUnderstoodError, RankTableError, UsageError
from ascendboot.judge.devices import devices_of
from ascendboot.parse.hccn_conf import parse as hccn_conf_parser
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
from ascendboot.ranktable.rule import PRODUCTS
from ascendboot.ranktable.source import read, text_of
from ascendboot.tasks.common import reports_errors
from ascendboot.tasks.deliver import deliver
from ascendboot.tasks.flags import task
from ascendboot.tasks.npus import cluster_asked
from ascendboot.tasks.words import ANSWER_HELP, GENERATIONS, PRODUCT_HELP, among

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ascendboot.ranktable.reading import Table


@task(
    help={
        "table": "A rank table, or a hostfile of Open MPI or DeepSpeed",
        "file": "One more table, whose servers come after those before; may be said again",
        "to": f"The generation wanted: {', '.join(GENERATIONS)}; default: the one it has",
        "order": f"How servers are numbered: {ORDERS[0]} (the default), or {ORDERS[1]}, as"
        " MindSpore numbers",
        "hccn-conf": "HOST=FILE: the hccn.conf of a host of the hostfile; may be said again",
        "inventory": "The hostfile's hosts are nodes of this cluster, which are asked",
        "product": f"{PRODUCT_HELP}; the result must be right for it",
        "output": "Where to write it; default: standard output",
        "force": "Overwrite a file that holds something else",
        "json": ANSWER_HELP,
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

    Exit codes: 0 done, 1 HCCL would refuse the result, 2 unreadable, or something is missing, 4 a
    node of --inventory is unreachable.
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
    cluster, found = cluster_asked(inventory)
    hosts: dict[str, Host] = {}
    for node in cluster.nodes:
        host = Host(node.server_id, dict(devices_of(node, found[node.name])))
        names = (node.name, node.address, node.cluster_address, node.server_id)
        hosts |= dict.fromkeys(names, host)
    return hosts
