"""Runs Huawei's HCCL Test where ranks run.

This file is copied to the nodes as it is: Python 3.7, and nothing but the standard library.

    preflight.py find MPIRUN OPERATION                        print where the tool is, or what to do
    preflight.py whole MPIRUN OPERATION LEAST MOST            run it as one rank of the job
    preflight.py pairs MPIRUN OPERATION LEAST MOST PAIRS      run it on pairs of devices of a node

`pairs` gives each pair in the JSON list an MPI world of its own, from its first rank. What the
table of the tool says becomes a note, as those of the node check.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

MARK = "ascendboot-preflight "
"""Begins the line of the rank's log that `checks/collective/findings.py` reads."""
WHOLE_S, PAIR_S = 900, 240
"""The limits of a run. HCCL itself gives up connecting after HCCL_CONNECT_TIMEOUT and 20 s."""
TIMED_OUT = (124, 137)
"""What `timeout` exits with."""
# The tool prints `aveg_time`, its manual `avg_time`.
HEADER = re.compile(
    r"data_size\(Bytes\):\s*\|\s*ave?g_time\(us\):\s*\|\s*alg_bandwidth\(GB/s\):\s*\|"
    r"\s*check_result:"
)
ROW = re.compile(
    r"([0-9]{1,15})\s*\|\s*[0-9]{1,15}\.[0-9]+\s*\|\s*([0-9]{1,9}\.[0-9]+)\s*\|"
    r"\s*(success|failed|NULL)"
)
TAG = re.compile(r"^\[[0-9]+,[0-9]+\]<std(?:out|err)>:\s?")
"""Of `mpirun --tag-output`."""
ERRORS = (
    *("return err", "execute failed", "is an error", "rror:", "cannot ", "nvalid ", "not found"),
    "HcclGetRootInfo failed",
)
LONELY = "its ranks do not find each other: it was built with another MPI than this mpirun"
CONNECT_S = ((3000, "120"), (5000, "240"), (sys.maxsize, "600"))
"""HCCL_CONNECT_TIMEOUT for fewer ranks than this, as the manual of the tool advises."""
HIGHEST_SIGNAL_CODE = 143


def main() -> None:
    """Do what the command line says."""
    ways: Mapping[str, Callable[..., None]] = {"find": find, "whole": whole, "pairs": pairs}
    ways[sys.argv[1]](*sys.argv[2:])


def table(lines: Sequence[str], sizes: int) -> tuple[list[list[Any]], str]:
    """The rows [size, GB/s, result], and why they are not `sizes` right ones; empty if they are.

    Other programs may print between them. The tool exits with 0 even if a collective failed (CANN
    8.1, hccl_test_main.cc).
    """
    rows: list[list[Any]] = []
    headers, first = 0, ""
    for number, line in enumerate(lines, 1):
        text = TAG.sub("", line).strip()
        found = ROW.fullmatch(text)
        headers += bool(HEADER.search(text))
        if headers > 1:
            return [], LONELY
        if headers and not found and re.match(r"[0-9]+\s*\|", text):
            return [], f'line {number} not understood: "{text[:120]}"; expected four columns'
        if headers and found:
            rows.append([int(found[1]), float(found[2]), found[3]])
        elif not first and any(word in text for word in ERRORS):
            first = text[:300]
    wrong = ", ".join(str(row[0]) for row in rows if row[2] == "failed")
    if len(rows) > sizes:
        return [], LONELY
    if len(rows) < sizes:
        return rows, first or f"its table ends after {len(rows)} of {sizes} sizes"
    if wrong:
        return rows, f"wrong results at {wrong} bytes"
    return rows, "" if sizes else first


def homes() -> Iterator[Path]:
    """Where CANN may be: where its set_env.sh says, else where its installers put it."""
    for name in ("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME", "INSTALL_DIR"):
        if os.environ.get(name):
            yield Path(os.environ[name])
    for root in (Path("/usr/local/Ascend"), Path("~/Ascend").expanduser()):
        yield from (root / name for name in ("cann", "ascend-toolkit/latest"))


def tool_of(operation: str) -> Path | None:
    """The program, or None where it was not built."""
    tools = (home / f"tools/hccl_test/bin/{operation}_test" for home in homes())
    return next((tool for tool in tools if os.access(str(tool), os.X_OK)), None)


def find(mpirun: str, operation: str) -> None:
    """Print `tool PATH`, or what is missing and what to do."""
    tool = tool_of(operation)
    folders = (home / "tools/hccl_test" for home in homes())
    folder = next((folder for folder in folders if folder.is_dir()), None)
    if tool:
        lines = [f"tool {tool}"]
    elif folder:
        mpi, home = Path(mpirun).parent.parent, folder.parent.parent
        make = f"cd {folder} && make MPI_HOME={mpi} ASCEND_DIR={home}"
        lines = [f"no {operation}_test: it was not built in {folder}", f"Build it: {make}"]
    else:
        lines = [
            f"no {operation}_test: no CANN toolkit with tools/hccl_test where ranks run",
            "Install the CANN toolkit there, or state ASCEND_HOME_PATH under env",
        ]
    os.write(1, "".join(f"{line}\n" for line in lines).encode())


def arguments(operation: str, least: str, most: str) -> list[str]:
    """The arguments of the tool for these sizes."""
    reducing = ["-o", "sum"] if operation in ("all_reduce", "reduce", "reduce_scatter") else []
    sizes = ["-b", least, "-e", most, "-f", "2"]
    return [*sizes, "-d", "fp32", *reducing, "-n", "20", "-w", "5", "-c", "1"]


def device(physical: int, local_rank: int) -> str:
    """The number by which the tool must name a device: see the end of rank-exec."""
    if os.environ.get("ASCEND_RT_VISIBLE_DEVICES"):
        return str(local_rank)
    pairs = os.environ.get("ASCENDBOOT_LOGIC_IDS", "").split(",")
    known = dict(pair.split("=") for pair in pairs if "=" in pair)
    return known.get(str(physical), str(physical))


def environment(mpirun: str, tool: Path, devices: Sequence[str], most: str) -> dict[str, str]:
    """The rank's without its rank table, and what the manual of the tool advises for the rest."""
    others = ("RANK_TABLE_FILE", "CM_", "RANK_ID", "RANK_SIZE")
    env = {name: value for name, value in os.environ.items() if not name.startswith(others)}
    libraries = [env.get("LD_LIBRARY_PATH", ""), str(tool.parents[3] / "lib64")]
    if Path(mpirun).is_absolute():
        libraries.append(str(Path(mpirun).parent.parent / "lib"))
    env["LD_LIBRARY_PATH"] = ":".join(path for path in libraries if path)
    ranks = int(os.environ["WORLD_SIZE"])
    env.setdefault("HCCL_CONNECT_TIMEOUT", next(s for fewer, s in CONNECT_S if ranks < fewer))
    # In MB, larger than the data.
    env.setdefault("HCCL_BUFFSIZE", str(max(200, (int(most) >> 20) + 1)))
    env["HCCL_TEST_USE_DEVS"] = ",".join(devices)
    return env


def note(**what: object) -> None:
    """Write one line to the rank's log."""
    os.write(1, (MARK + json.dumps(what) + "\n").encode())


def run(argv: Sequence[str], env: Mapping[str, str], limit_s: int) -> tuple[int, list[str]]:
    """Exit code and lines of a program, which also go to the log, where none must look like a note.

    timeout(1) stays in this process group, so that the end of a job reaches all of it.
    """
    limited = ["timeout", "--foreground", "-k", "10", str(limit_s), *argv]
    pipe, null = subprocess.PIPE, subprocess.DEVNULL
    lines: list[str] = []
    with subprocess.Popen(
        limited, env=env, stdin=null, stdout=pipe, stderr=subprocess.STDOUT
    ) as child:
        signal.signal(signal.SIGTERM, lambda *_: child.terminate())
        assert child.stdout is not None  # noqa: S101 - it is a pipe
        for line in iter(lambda: child.stdout.readline(4096), b""):  # type: ignore[union-attr]
            text = line.decode(errors="replace").replace(MARK, "")
            os.write(1, text.encode())
            lines = [*lines, text][-2000:]
    return child.returncode, lines


def whole(mpirun: str, operation: str, least: str, most: str) -> None:
    """Run the tool as one rank of the job, and exit with its code."""
    # One device for each rank: right whatever the order of ranks and the devices of a node.
    tool = tool_of(operation)
    if tool is None:
        sys.exit(f"HCCL Test error: no {operation}_test")
    env = environment(mpirun, tool, [os.environ["DEVICE_ID"]], most)
    code, lines = run([str(tool), "-p", "1", *arguments(operation, least, most)], env, WHOLE_S)
    sizes = (int(most) // int(least)).bit_length()
    rows, why = table(lines, sizes if os.environ["RANK"] == "0" else 0)
    if code in TIMED_OUT:
        os.write(1, f"HCCL Test error: no end within {WHOLE_S} s\n".encode())
    elif code == 0:
        note(failed=why) if why else note(measured={"rows": rows})
    # Its codes are those of ACL and HCCL, of which a shell sees the last byte: 153 is no signal.
    sys.exit(1 if code > HIGHEST_SIGNAL_CODE else code)


def pairs(mpirun: str, operation: str, _least: str, most: str, ranks: str) -> None:
    """Run the tool on the pair of which this rank is the first, with the largest size."""
    tool = tool_of(operation)
    own = [pair for pair in json.loads(ranks) if str(pair[0][0]) == os.environ["RANK"]]
    if not own or tool is None:
        note(measured={}) if tool else note(failed=f"no {operation}_test")
        return
    env = environment(mpirun, tool, sorted((device(*place[1:]) for place in own[0]), key=int), most)
    kept = "OMPI_MCA_btl_vader_single_copy_mechanism"
    launchers = ("OMPI_", "PMIX_", "ORTE_")
    env = {n: value for n, value in env.items() if n == kept or not n.startswith(launchers)}
    root = ["--allow-run-as-root"] if os.getuid() == 0 else []
    here = ["--mca", "plm", "isolated", "--mca", "pml", "ob1", "--mca", "btl", "self,vader"]
    how = [*here, "--oversubscribe", "--bind-to", "none", "--tag-output", "-np", "2"]
    argv = [mpirun, *root, *how, str(tool), "-p", "2", *arguments(operation, most, most)]
    code, lines = run(argv, env, PAIR_S)
    rows, why = table(lines, 1)
    if code in TIMED_OUT:
        why = f"no result within {PAIR_S} s"
    note(failed=why) if why else note(measured={"rows": rows})


if __name__ == "__main__":
    main()
