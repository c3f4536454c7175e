"""The page of the reference about HCCL's variables."""

from __future__ import annotations

from ascendboot.hccl.variables import VARIABLES


def reference_markdown() -> str:
    """The page `docs/reference/hccl.md`."""
    rows = [
        f"| `{v.name}` | {_cell(v.kind.words)} | {f'`{v.default}`' if v.default else ''} "
        f"| {v.product_names} | {_cell(v.meaning)} |"
        for v in VARIABLES.values()
    ]
    return _PAGE.format(rows="\n".join(rows))


def _cell(text: str) -> str:
    return text.replace("|", r"\|")


_PAGE = """\
# HCCL settings

The section `hccl` of an inventory takes these variables by their names, and gives them to every
rank:

```yaml
hccl:
  HCCL_CONNECT_TIMEOUT: 1200
  HCCL_BUFFSIZE: 400
```

What HCCL would refuse, misread or not read at all is refused here, with file, line, key and what is
documented; a name that is not in this list is refused too. The same variables may stand under
`env`: their values are checked as well, and each stands in one place. Under the `env` of a node or
a group they hold there alone, and count before. Other variables belong under `env`.

Where `product` is stated, its limits count, and variables of other products are refused; with
`product: auto` the widest limits count, and `setup` and `check` judge again by what the nodes
report (finding `hccl-setting`).

| variable | value | default | read by | meaning |
|---|---|---|---|---|
{rows}

## What contradicts what

* `HCCL_CONNECT_TIMEOUT` must be less than `HCCL_EXEC_TIMEOUT`, which with
  `HCCL_OP_EXPANSION_MODE: AIV` is 1091 at most, also where it is 0 or not stated; with `CCU_SCHED`
  and `CCU_MS` it is 65535 at most.
* `HCCL_WHITELIST_DISABLE: 0` wants `HCCL_WHITELIST_FILE`.
* Of `HCCL_INTRA_ROCE_ENABLE` and `HCCL_INTRA_PCIE_ENABLE` exactly one is 1.
* `HCCL_IF_BASE_PORT` and `HCCL_HOST_SOCKET_PORT_RANGE` do not stand together; neither may take
  `resources.chief_port`, where ranks meet, or a stated `ssh.port`. `HCCL_IF_BASE_PORT: 29500` is
  PyTorch's own port.
* A level of `HCCL_OP_RETRY_ENABLE` that is 1 has no effect where the rank table does not state a
  `host_ip` for every server, as those that `setup` makes do not: a warning of `setup` and `check`.
* `ASCEND_RT_VISIBLE_DEVICES` begins with the devices of the node's ranks: an error of both.

## What ascendboot sets

`RANK_TABLE_FILE`, `RANK_ID`, `RANK_SIZE`, `DEVICE_ID` and `CM_…`: never stated, and never of both
families at once ([inventory](inventory.md), `resources`). Neither is `ASCEND_DEVICE_ID`, an older
name for `DEVICE_ID`, nor `ASCEND_VISIBLE_DEVICES`, which the container runtime reads when a
container is made: for ranks it means nothing.
"""
