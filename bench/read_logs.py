#!/usr/bin/env python3
"""`doctor` on one large log against `grep -cF` with the same texts: time and memory."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from operator import truediv
from pathlib import Path

from common import PROGRAM, Verdict, in_pairs, options, show

from ascendboot.doctor.scan import searched_texts

PROMISE = "at most 3 x grep -cFf with the same texts; memory below 200 MB"
TIMES, MOST_MB = 3.0, 200.0
ERROR = 'Traceback (most recent call last):\n  File "main.py", line 7\nValueError: loss is nan\n'


def main() -> None:
    """Measure both in turns on a log with an error line in a thousand."""
    parser = options("doctor on a large log: time and memory.", pairs=3)
    parser.add_argument("--mib", type=int, default=1024, help="size of the log in MiB (1024)")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ascendboot-bench-") as directory:
        log, texts = Path(directory, "rank.0.log"), Path(directory, "texts")
        texts.write_text("\n".join(searched_texts()) + "\n", encoding="utf-8")
        _write(log, asked.mib)
        peaks = list[float]()

        def ours() -> float:
            seconds, peak, output = _ended([str(PROGRAM), "doctor", str(log)])
            if b"ValueError: loss is nan" not in output:
                raise SystemExit(f"bench: doctor did not find the error:\n{output.decode()}")
            peaks.append(peak)
            return seconds

        def grep() -> float:
            return _ended(["grep", "-cFf", str(texts), str(log)])[0]

        verdict = Verdict(in_pairs(asked, ours, grep), truediv, TIMES)
    seconds = verdict.seconds()
    row = {
        "MiB": asked.mib,
        "doctor s": seconds[0],
        "grep s": seconds[1],
        "ratio": verdict.median,
        "min": min(verdict.values),
        "max": max(verdict.values),
        "memory MB": max(peaks),
        "promise": verdict.word if max(peaks) < MOST_MB else "broken",
    }
    show("Reading logs", PROMISE, [row], as_json=asked.json)


def _write(log: Path, mib: int) -> None:
    """Write a log of a training, with an error line in a thousand and an error at its end."""
    with log.open("w", encoding="ascii") as file:
        begin = 1
        while file.tell() < mib << 20:
            lines = []
            for number in range(begin, begin + 10_000):
                at = f"2026-01-02 03:04:05,{number % 1000:03}"
                words = f"INFO step {number} loss 0.{number * 7919 % 10_000:04} rate {number % 991}"
                lines.append(f"{at} {words if number % 1000 else 'ERROR a link was retried'}\n")
            file.write("".join(lines))
            begin += 10_000
        file.write(ERROR)


def _ended(argv: list[str]) -> tuple[float, float, bytes]:
    """Run a program: seconds, peak memory in MB of it and what it started, and its output."""
    began = time.perf_counter()
    with tempfile.TemporaryFile() as out:
        program = subprocess.Popen(argv, stdout=out, env={**os.environ, "LC_ALL": "C"})
        _, status, usage = os.wait4(program.pid, 0)
        program.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.perf_counter() - began
        out.seek(0)
        output = out.read()
    if program.returncode:
        raise SystemExit(f"bench: {argv[0]} exited {program.returncode}")
    return seconds, usage.ru_maxrss / 1000, output


if __name__ == "__main__":
    main()
