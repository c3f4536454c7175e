"""Runs Huawei's HCCL Test on a node: `find` it, on `pairs` of devices of this node, or on the `whole` job.

Copied to the nodes as it is: Python 3.7. `find MPIRUN OPERATION` prints where the tool is, or what is missing and what to do.
`whole MPIRUN OPERATION LEAST MOST` runs the tool as one rank of the launcher's job. With `pairs MPIRUN OPERATION LEAST MOST
RANKS`, each pair of ranks in the JSON list gets an MPI world of its own, from its first rank. What the table says becomes a
note, as those of the node check.
"""

import json
import os
import re
import signal
import subprocess
import sys

WHOLE_S, PAIR_S = 900, 240  # HCCL itself gives up connecting after HCCL_CONNECT_TIMEOUT and 20 s
MARK = "ascendboot-preflight "
# The tool prints `aveg_time`, its manual `avg_time`.
HEADER = re.compile(r"data_size\(Bytes\):\s*\|\s*ave?g_time\(us\):\s*\|\s*alg_bandwidth\(GB/s\):\s*\|\s*check_result:")
ROW = re.compile(r"([0-9]{1,15})\s*\|\s*[0-9]{1,15}\.[0-9]+\s*\|\s*([0-9]{1,9}\.[0-9]+)\s*\|\s*(success|failed|NULL)")
TAG = re.compile(r"^\[[0-9]+,[0-9]+\]<std(?:out|err)>:\s?")  # of mpirun --tag-output
ERRORS = ("return err", "execute failed", "is an error", "rror:", "cannot ", "nvalid ", "not found", "HcclGetRootInfo failed")
LONELY = "its ranks do not find each other: it was built with another MPI than this mpirun"


def table(lines, sizes):
    """The rows [size, GB/s, result], and why they are not `sizes` right ones; empty if they are.

    Other programs may print between them. The tool exits with 0 even if a collective failed (CANN 8.1, hccl_test_main.cc).
    """
    rows, headers, first = [], 0, ""
    for number, line in enumerate(lines, 1):
        text = TAG.sub("", line).strip()
        found = ROW.fullmatch(text)
        headers += bool(HEADER.search(text))
        if headers > 1:
            return [], LONELY
        if headers and not found and re.match(r"[0-9]+\s*\|", text):
            return [], 'line %d not understood: "%s"; expected four columns' % (number, text[:120])
        if headers and found:
            rows.append([int(found.group(1)), float(found.group(2)), found.group(3)])
        elif not first and any(word in text for word in ERRORS):
            first = text[:300]
    wrong = ", ".join(str(row[0]) for row in rows if row[2] == "failed")
    if len(rows) > sizes:
        return [], LONELY
    if len(rows) < sizes:
        return rows, first or "its table ends after %d of %d sizes" % (len(rows), sizes)
    return rows, "wrong results at %s bytes" % wrong if wrong else "" if sizes else first


def homes():
    """Where CANN may be: where its set_env.sh says, else where its installers put it."""
    named = [os.environ.get(name) for name in ("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME", "INSTALL_DIR")]
    roots = ["/usr/local/Ascend", os.path.expanduser("~/Ascend")]
    usual = [os.path.join(root, name) for root in roots for name in ("cann", "ascend-toolkit/latest")]
    return [home for home in (*named, *usual) if home]


def tool_of(operation):
    """The program, or None where it was not built."""
    tools = (os.path.join(home, "tools/hccl_test/bin", operation + "_test") for home in homes())
    return next((tool for tool in tools if os.access(tool, os.X_OK)), None)


def find(mpirun, operation):
    tool = tool_of(operation)
    if tool:
        return print("tool " + tool)
    for home in homes():
        folder = os.path.join(home, "tools/hccl_test")
        if os.path.isdir(folder):
            print("no %s_test: it was not built in %s" % (operation, folder))
            mpi = os.path.dirname(os.path.dirname(mpirun))
            return print("Build it: cd %s && make MPI_HOME=%s ASCEND_DIR=%s" % (folder, mpi, home))
    print("no %s_test: no CANN toolkit with tools/hccl_test where ranks run" % operation)
    print("Install the CANN toolkit there, or state ASCEND_HOME_PATH under env")


def arguments(operation, least, most):
    reducing = ["-o", "sum"] if operation in ("all_reduce", "reduce", "reduce_scatter") else []
    sizes = ["-b", str(least), "-e", str(most), "-f", "2"]
    return [*sizes, "-d", "fp32", *reducing, "-n", "20", "-w", "5", "-c", "1"]


def device(physical, local_rank):
    """The number by which the tool must name a device: see the end of rank-exec."""
    if os.environ.get("ASCEND_RT_VISIBLE_DEVICES"):
        return str(local_rank)
    known = dict(pair.split("=") for pair in os.environ.get("ASCENDBOOT_LOGIC_IDS", "").split(",") if "=" in pair)
    return known.get(str(physical), str(physical))


def environment(mpirun, tool, devices, most):
    """The rank's without its rank table, and with what the manual of the tool advises where the inventory states nothing."""
    others = ("RANK_TABLE_FILE", "CM_", "RANK_ID", "RANK_SIZE")
    env = {name: value for name, value in os.environ.items() if not name.startswith(others)}
    home = os.path.dirname(tool).partition("/tools/hccl_test/")[0]
    libraries = [env.get("LD_LIBRARY_PATH", ""), os.path.join(home, "lib64")]
    if os.path.isabs(mpirun):
        libraries.append(os.path.join(os.path.dirname(os.path.dirname(mpirun)), "lib"))
    env["LD_LIBRARY_PATH"] = ":".join(path for path in libraries if path)
    ranks = int(os.environ["WORLD_SIZE"])
    env.setdefault("HCCL_CONNECT_TIMEOUT", "120" if ranks < 3000 else "240" if ranks < 5000 else "600")
    env.setdefault("HCCL_BUFFSIZE", str(max(200, (int(most) >> 20) + 1)))  # MB, larger than the data
    env["HCCL_TEST_USE_DEVS"] = ",".join(devices)
    return env


def note(**what):
    os.write(1, (MARK + json.dumps(what) + "\n").encode())


def run(argv, env, limit_s):
    """Exit code and lines of a program, which also go to the log, where none must look like a note.

    timeout(1) stays in this process group, so that the end of a job reaches all of it.
    """
    limited = ["timeout", "--foreground", "-k", "10", str(limit_s), *argv]
    child = subprocess.Popen(limited, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    signal.signal(signal.SIGTERM, lambda *_: child.terminate())
    lines = []
    for line in iter(lambda: child.stdout.readline(4096), b""):
        text = line.decode(errors="replace").replace(MARK, "")
        os.write(1, text.encode())
        lines = [*lines, text][-2000:]
    return child.wait(), lines


def whole(mpirun, operation, least, most):
    # One device for each rank: right whatever the order of ranks and the number of devices of a node.
    tool = tool_of(operation)
    env = environment(mpirun, tool, [os.environ["DEVICE_ID"]], most)
    code, lines = run([tool, "-p", "1", *arguments(operation, least, most)], env, WHOLE_S)
    sizes = (int(most) // int(least)).bit_length()
    rows, why = table(lines, sizes if os.environ["RANK"] == "0" else 0)
    if code in (124, 137):
        print("HCCL Test error: no end within %d s" % WHOLE_S)
    elif code == 0:
        note(failed=why) if why else note(measured={"rows": rows})
    # Its codes are those of ACL and HCCL, of which a shell sees the last byte: 153 is no signal.
    sys.exit(1 if code > 143 else code)


def pairs(mpirun, operation, _, most, ranks):
    tool = tool_of(operation)
    own = [pair for pair in json.loads(ranks) if str(pair[0][0]) == os.environ["RANK"]]
    if not own:
        return note(measured={})
    env = environment(mpirun, tool, sorted((device(*place[1:]) for place in own[0]), key=int), most)
    kept = "OMPI_MCA_btl_vader_single_copy_mechanism"
    env = {name: value for name, value in env.items() if name == kept or not name.startswith(("OMPI_", "PMIX_", "ORTE_"))}
    root = ["--allow-run-as-root"] if os.getuid() == 0 else []
    here = ["--mca", "plm", "isolated", "--mca", "pml", "ob1", "--mca", "btl", "self,vader", "--oversubscribe"]
    argv = [mpirun, *root, *here, "--bind-to", "none", "--tag-output", "-np", "2", tool, "-p", "2"]
    code, lines = run([*argv, *arguments(operation, most, most)], env, PAIR_S)
    rows, why = table(lines, 1)
    if code in (124, 137):
        why = "no result within %d s" % PAIR_S
    note(failed=why) if why else note(measured={"rows": rows})


if __name__ == "__main__":
    {"find": find, "whole": whole, "pairs": pairs}[sys.argv[1]](*sys.argv[2:])
