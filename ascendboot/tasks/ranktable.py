"""`ranktable.*`: rank tables of every generation, with or without a cluster."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from invoke.collection import Collection
from invoke.context import Context  # noqa: TC002 - Invoke reads the signature

from ascendboot.console import Screen
from ascendboot.errors import UsageError
from ascendboot.ranktable.compare import differences, version_of
from ascendboot.ranktable.reading import table_of
from ascendboot.ranktable.rows import rows_of
from ascendboot.ranktable.rule import JOBS, PRODUCTS
from ascendboot.ranktable.show import lines_of, rows_json
from ascendboot.ranktable.source import read
from ascendboot.ranktable.verdict import judge_file
from ascendboot.tasks.common import reports_errors
from ascendboot.tasks.ending import end
from ascendboot.tasks.flags import task
from ascendboot.tasks.npus import cluster_asked, product_among, servers_seen
from ascendboot.tasks.ranktable_convert import convert
from ascendboot.tasks.ranktable_write import write
from ascendboot.tasks.words import ANSWER_HELP, PRODUCT_HELP, among

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ascendboot.ranktable.against import ServerSeen
    from ascendboot.ranktable.rule import Product


@task(
    help={
        "table": "The file",
        "file": "One more file; may be said again",
        "product": f"{PRODUCT_HELP}. Without it, rules of one product only are warnings",
        "inventory": "Also against the devices of this cluster: its nodes are asked, nothing is "
        "changed",
        "job": f"Also what a training stack wants of its table: {', '.join(JOBS)}",
        "intra-roce": "The job sets HCCL_INTRA_ROCE_ENABLE to 1: every device needs an address",
        "json": ANSWER_HELP,
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
    for verdict in verdicts if not json else ():
        for line in verdict.told():
            screen.say(line)
    document = {"exit_code": code, "files": [verdict.to_json() for verdict in verdicts]}
    end(screen, code, document if json else None)


@task(
    help={
        "table": "The file",
        "server": "Only the ranks of this server",
        "json": ANSWER_HELP,
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
    for line in lines_of(version_of(found), rows) if not json else ():
        screen.say(line)
    document = {"version": version_of(found), "ranks": rows_json(rows)}
    end(screen, 0, document if json else None)


@task(help={"first": "One file", "second": "The other", "json": ANSWER_HELP})
@reports_errors
def diff(c: Context, first: str, second: str, json: bool = False) -> None:
    """Name what two rank tables mean differently; order, spaces and quotes do not count.

    Examples:
      invoke ranktable.diff ours.json theirs.json
      invoke ranktable.diff ours.json theirs.json --json | jq '.differences[].where'

    Exit codes: 0 they mean the same, 1 they differ, 2 one is unreadable or no rank table.
    """
    found = differences(table_of(read(first)), table_of(read(second)))
    screen, code = Screen(json_mode=json), int(bool(found))
    for difference in found if not json else ():
        screen.say(difference.text)
    if not found and not json:
        screen.say(f"{first} and {second} mean the same")
    document = {"exit_code": code, "differences": [asdict(d) for d in found]}
    end(screen, code, document if json else None)


collection = Collection("ranktable", validate, write, convert, diff, show)


def _cluster_of(
    inventory: str, product: Product | None
) -> tuple[Product | None, Mapping[str, ServerSeen]]:
    """The product of a cluster's NPUs, unless another is to be judged for, and its devices."""
    cluster, found = cluster_asked(inventory)
    return product or product_among(cluster, found), servers_seen(cluster, found)
