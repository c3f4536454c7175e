#!/usr/bin/env python3
"""Rank tables of a very large cluster: build, write and validate, against Python's JSON writer."""

from __future__ import annotations

import json
import time
import tracemalloc
from argparse import Namespace
from collections.abc import Callable
from operator import truediv

from common import Verdict, in_pairs, options, show

from ascendboot.ranktable.formats.servers import RankedDevice, RankTable, Server
from ascendboot.ranktable.text import Source, from_text
from ascendboot.ranktable.validate import validate_table

PROMISE = "build and write 1.5 x, validate 4 x json.dumps(indent=2); memory 3 x the parsed table"
WRITE, VALIDATE, MEMORY = 1.5, 4.0, 3.0


def main() -> None:
    """Measure both in turns with Python's own writer, then the memory once."""
    parser = options("Rank tables of version 1.0: time and memory.", pairs=3)
    parser.add_argument("--servers", type=int, default=16384, help="how many servers (16384)")
    parser.add_argument("--devices", type=int, default=8, help="devices per server (8)")
    asked = parser.parse_args()
    text = _table(asked).to_json()
    document = from_text("table.json", text).document
    source = Source(name="table.json", text="", document=document)
    dumps = _timed(lambda: json.dumps(document, indent=2))
    rows = []
    for what, limit, ours in (
        ("build and write", WRITE, _timed(lambda: _table(asked).to_json())),
        ("validate", VALIDATE, _timed(lambda: validate_table(source, product="a2"))),
    ):
        verdict = Verdict(in_pairs(asked, ours, dumps), truediv, limit)
        seconds = verdict.seconds()
        rows.append(
            {
                "what": what,
                "ours s": seconds[0],
                "dumps s": seconds[1],
                "ratio": verdict.median,
                "min": min(verdict.values),
                "max": max(verdict.values),
                "promise": verdict.word,
            }
        )
    ratio = _memory(text)
    word = "kept" if ratio <= MEMORY else "broken"
    rest = {"ours s": "-", "dumps s": "-", "min": "-", "max": "-"}
    rows.append({"what": "memory of validate", **rest, "ratio": ratio, "promise": word})
    notes = f"a table of {len(text) / 2**20:.1f} MiB, {asked.servers} x {asked.devices}\n"
    show("Rank tables", PROMISE, rows, as_json=asked.json, notes=notes)


def _table(asked: Namespace) -> RankTable:
    devices = range(asked.devices)
    return RankTable(
        server_list=tuple(
            Server(
                server_id=f"10.{server >> 8}.{server & 255}.1",
                device=tuple(
                    RankedDevice(
                        device_id=device,
                        device_ip=f"172.{server >> 8}.{server & 255}.{device}",
                        rank_id=server * asked.devices + device,
                    )
                    for device in devices
                ),
            )
            for server in range(asked.servers)
        )
    )


def _timed(work: Callable[[], object]) -> Callable[[], float]:
    def measure() -> float:
        began = time.perf_counter()
        work()
        return time.perf_counter() - began

    return measure


def _memory(text: str) -> float:
    """The peak while a parsed table is validated, in times of what it takes itself."""
    tracemalloc.start()
    document = json.loads(text)
    own, _ = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    validate_table(Source(name="table.json", text="", document=document), product="a2")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak / own


if __name__ == "__main__":
    main()
