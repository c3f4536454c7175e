"""Known error messages of HCCL, CANN, PyTorch and launchers, with their meaning and remedy."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

# Codes: CANN's own list of HCCL errors (hicann/hccl, docs/en/error_codes). Words of CANN: those
# that its fault diagnosis looks for (Ascend/mind-cluster, ascend-faultdiag, kg-config.json) and
# its guide to HCCL faults. Words of Open MPI, Gloo, Horovod and PyTorch: as those programs print
# them.


@dataclass(frozen=True)
class Known:
    """The meaning of an error, and what to do."""

    meaning: str
    remedy: str
    of_a_peer: bool = False
    """It mostly means that another rank is gone or slow: look there first."""


CODES: Final = {
    "EI0001": Known("a HCCL_* variable has a value that HCCL refuses", "correct it in env"),
    "EI0002": Known(
        "HCCL waited for another rank until HCCL_EXEC_TIMEOUT was over",
        "find the rank that stopped; where none did, raise HCCL_EXEC_TIMEOUT, see that all ranks"
        " have equally many steps, and look for error cqe in the plogs",
        of_a_peer=True,
    ),
    "EI0003": Known(
        "a collective operation was called with a wrong argument", "correct the call in the script"
    ),
    "EI0004": Known(
        "HCCL could not read the rank table: path, permission or JSON",
        "invoke ranktable.validate FILE, then setup",
    ),
    "EI0005": Known(
        "ranks called a collective operation with different arguments, or have different rank"
        " tables or versions of CANN",
        "make script, rank table and CANN the same on all nodes",
    ),
    "EI0006": Known(
        "two devices could not connect in time: a link is down, TLS differs, an address is wrong,"
        " or the other rank never came that far",
        "see whether the other rank failed; then invoke check, and hccn_tool -ping between the two",
        of_a_peer=True,
    ),
    "EI0007": Known(
        "a resource of host or device is used up", "end what else runs there; ask for less memory"
    ),
    "EI0008": Known("nodes have different versions of CANN", "install the same CANN on all nodes"),
    "EI0009": Known(
        "a device's network port could not be opened: it is down or has no address",
        "hccn_tool -i N -link -g, -ip -g and -optical -g on that node; then invoke check",
    ),
    "EI0010": Known(
        "two devices of one server cannot reach each other directly",
        "see npu-smi info for the devices' health; or set HCCL_INTRA_ROCE_ENABLE=1",
    ),
    "EI0011": Known(
        "the device has too little free memory",
        "npu-smi info names what else runs on it; else a smaller batch, or a smaller HCCL_BUFFSIZE",
    ),
    "EI0012": Known(
        "copying between devices failed: the other rank is gone, or its memory was freed or is too"
        " small",
        "see whether another rank ended before; then the sizes of what is sent",
        of_a_peer=True,
    ),
    "EI0013": Known(
        "the network between two devices gave up: a link that comes and goes, or the other rank is"
        " gone",
        "see whether another rank ended before; then hccn_tool -i N -link_stat -g at both ends",
        of_a_peer=True,
    ),
    "EI0014": Known(
        "a value in the rank table is wrong for this server",
        "invoke ranktable.validate FILE; setup writes a new one from what the devices say",
    ),
    "EI0015": Known(
        "some ranks never came to the root rank within HCCL_CONNECT_TIMEOUT",
        "find why the ranks that it lists did not come; then HCCL_SOCKET_IFNAME, firewall,"
        " HCCL_CONNECT_TIMEOUT",
        of_a_peer=True,
    ),
    "EI0016": Known(
        "a setting differs between ranks, often TLS of the devices",
        "invoke check; hccn_tool -i N -tls -s enable 0 on all nodes, or 1 on all",
    ),
    "EI0017": Known(
        "the rank table lacks a key", "invoke ranktable.validate FILE; setup writes a new one"
    ),
    "EI0018": Known(
        "the UB network between two devices gave up: a link, or the other rank is gone",
        "see whether another rank ended before; then the ports at both ends",
        of_a_peer=True,
    ),
    "EI0019": Known(
        "a port of the server that HCCL needs is taken",
        "invoke stop for an older job, or another HCCL_IF_BASE_PORT; reserve 60000-60031",
    ),
    "EI0020": Known(
        "a port of the device is taken: two processes use one device",
        "one rank per device; else HCCL_NPU_SOCKET_PORT_RANGE=auto on all ranks",
    ),
}

_BUSY: Final = Known(
    "another process has the device: an older job, or two ranks on one device",
    "npu-smi info names it; invoke stop for an older job, wait until it is gone",
)
_NO_SUCH_NIC: Final = Known(
    "HCCL was told a network interface or address that this node does not have",
    "leave HCCL_IF_IP and HCCL_SOCKET_IFNAME to setup, or state them under env of that node",
)
_CONNECTION: Final = Known("the connection to another rank broke", "see that rank", of_a_peer=True)
_WAITED: Final = Known("another rank did not answer in time", "see that rank", of_a_peer=True)

WORDS: Final[tuple[tuple[str, Known], ...]] = (
    (
        r"\[Find\]\[LocalHostIP\].*not found in the nic list|get host ip fail by socket",
        _NO_SUCH_NIC,
    ),
    (r"\[Open\]\[Tsd\]|TsdOpen failed|last training process is running", _BUSY),
    (r"processes occupying this card", _BUSY),
    (
        r"ra hdc message process failed ret\(-67\)",
        Known("the device's link is down", "hccn_tool -i N -link -g; hccn_tool -i N -cfg recovery"),
    ),
    (
        r"Device lost heart",
        Known("the device does not answer", "npu-smi info; npu-smi set -t reset -i N -c 0"),
    ),
    (
        r"tlsStatus are inconsistent",
        Known("TLS is on for some devices only", "hccn_tool -i N -tls -s enable 0 on all nodes"),
    ),
    (
        r"\[check\]\[ip\]fail|ranktable is inconsistent with the IP",
        Known("the rank table has other addresses than the devices", "invoke setup writes it anew"),
    ),
    (
        r"\[RankConsistentImpl\]\[CompareFrame\]",
        Known(
            "ranks differ in rank table, CANN or the operation's arguments",
            "make script, rank table and CANN the same on all nodes",
        ),
    ),
    (
        r"DevMemAllocHugePageManaged|NPU out of memory|Tried to allocate .*(NPU|GPU)",
        Known("the device has too little free memory", "npu-smi info; a smaller batch"),
    ),
    (
        r"No space left on device",
        Known("a disk is full, or /dev/shm", "df -h on that node, /dev/shm with it"),
    ),
    (
        r"EADDRINUSE|[Aa]ddress already in use",
        Known("a port is taken", "invoke stop for an older job; else another port"),
    ),
    (
        r"ModuleNotFoundError|No module named",
        Known("Python lacks a module", "install it on the node, or state another code.python"),
    ),
    (
        r"cannot open shared object file",
        Known("a library is missing there", "see LD_LIBRARY_PATH, set_env.sh and the mounts"),
    ),
    (
        r"[Aa]icore (kernel execute failed|exception)|AI CPU operator execution time ?out",
        Known(
            "an operator failed on the device",
            "the plog of that rank names it; see its inputs, and npu-smi info for the device",
        ),
    ),
    (
        r"Get device (count|list) failed|New device failed|Device info is NULL",
        Known("the device could not be opened", "npu-smi info: is it there, who has it?"),
    ),
    (
        r"Too many open files",
        Known("a limit of open files is reached", "a higher ulimit -n; fewer data loaders"),
    ),
    (r"^MemoryError|Cannot allocate memory", Known("the node is short of memory", "free -m there")),
    (
        (
            r"Connection reset by peer|[Cc]onnection closed by (peer|remote)|Broken pipe"
            r"|Socket closed|remote process exited|Connection aborted|ORTE has lost communication"
            r"|mca_btl_tcp_frag_(recv|send)|peer .* (has gone|disconnected)"
        ),
        _CONNECTION,
    ),
    (
        (
            r"Timed out waiting \d+ms|(?i:collective operation timeout)|notify wait timeout"
            r"|taskType\[Notify Wait\]|Recv timed? ?out|Connect timeout|SocketTimeout"
            r"|wait(ing)? .*timed? ?out|timed out after \d+ ?(ms|s|seconds)"
            r"|topo exchange .* timeout|LINK_ERROR_INFO|Failed to connect agent\["
            r"|sync stream timeout|event wait timeout|Notify wait execute failed|dispatch timeout"
            r"|\[Recv\]\[(RaSocket|ClusterInfoMsg)\]|connected p2p timeout|Getting socket times out"
            r"|wait socket establish timeout|failed to pass monitoredBarrier"
        ),
        _WAITED,
    ),
    (
        (
            r"HorovodInternalError|Horovod has been shut down|DistNetworkError|DistStoreError"
            r"|\[Heartbeat\]|error cqe|cqe err(or)? status|Transport init error"
            r"|transport create fail|(HCCL|OPS) function error: Hc"
        ),
        Known("a collective operation failed", "see the other ranks first", of_a_peer=True),
    ),
)
"""Expressions to be found in the words; the first that fits counts."""

SIGNALS: Final = {
    4: Known("its program has instructions that this CPU lacks", "take a build for this CPU"),
    6: Known("a library gave up (abort); its words stand in the log", "see its last lines"),
    7: Known("SIGBUS: memory could not be had, mostly as /dev/shm is full", "df -h /dev/shm there"),
    8: Known("a division by zero in native code", "see its last lines"),
    9: Known(
        "SIGKILL, from outside: the kernel when memory is short, or somebody's kill -9",
        "dmesg -T | grep -i oom on that node; free -m",
    ),
    11: Known(
        "a fault in native code, not in Python: memory that is not its own",
        "PYTHONFAULTHANDLER=1 in env makes it say where",
    ),
    15: Known("SIGTERM, from outside of the job", "see who ended it: a scheduler, a service"),
}
OUT_OF_MEMORY: Final = Known(
    "SIGKILL, while the kernel ended processes of this node for want of memory",
    "less memory per rank (data loaders, cache), or a higher limit of the container",
)
EXIT_CODES: Final = {
    125: Known("the rank could not be begun", "see its log"),
    126: Known("the program may not be executed", "see its permissions"),
    127: Known("the program was not found", "see code.python and PATH"),
}

_CODE: Final = re.compile(r"\bEI00(?:0[1-9]|1\d|20)\b")
_WORDS: Final = tuple((re.compile(form), known) for form, known in WORDS)


def code_in(text: str) -> str:
    """The code of an HCCL error in these words; empty when there is none."""
    match = _CODE.search(text)
    return match[0] if match else ""


def known_words(text: str) -> Known | None:
    """What these words mean; None when they are not known."""
    code = code_in(text)
    if code:
        return CODES[code]
    return next((known for form, known in _WORDS if form.search(text)), None)


def is_of_a_peer(text: str) -> bool:
    """Whether these words say that another rank is gone or does not answer."""
    known = known_words(text)
    return known is not None and known.of_a_peer


def known_end(exit_code: int | None, *, out_of_memory: bool) -> Known | None:
    """What this end of a rank means."""
    if exit_code is None:
        return None
    signal = exit_code - 128
    if signal == 9 and out_of_memory:  # noqa: PLR2004 - SIGKILL
        return OUT_OF_MEMORY
    return SIGNALS.get(signal) or EXIT_CODES.get(exit_code)


# Words: Open MPI 4.1 (help texts of orte), OpenSSH, torchrun; as those programs print them.

_LAUNCHER_WORDS: Final = (
    (
        r"Host key verification failed|REMOTE HOST IDENTIFICATION HAS CHANGED",
        Known(
            "a node has another host key than setup left there",
            "invoke check says which; invoke setup",
        ),
    ),
    (
        r"Permission denied \(publickey",
        Known("a node does not let the primary in", "invoke setup renews keys and certificates"),
    ),
    (
        r"ssh: .*(Connection refused|timed out|No route to host)|Connection \w+ by .*port",
        Known(
            "the cluster's sshd on a node does not answer the primary",
            "invoke setup starts it again; invoke check tries all ways between the nodes",
        ),
    ),
    (
        r"orted: (command not found|No such file)|died unexpectedly with status 127",
        Known(
            "a node does not have Open MPI where the primary has it",
            "the same Open MPI at the same path on all nodes",
        ),
    ),
    (
        r"not enough slots available",
        Known("mpirun was given fewer slots than ranks", "see launcher.mpi_args"),
    ),
    (
        r"Two mutually-exclusive MCA variables|conflicting directives",
        Known(
            "a word for mpirun contradicts one of ours", "see launcher.mpi_args, OMPI_MCA_* in env"
        ),
    ),
    (
        r"error while loading shared libraries",
        Known("a library of the launcher is missing on a node", "see LD_LIBRARY_PATH there"),
    ),
    (
        r"unable to reliably start one or more daemons|could not connect to some hosts via ssh",
        Known(
            "mpirun could not start its daemon on a node", "invoke check; its words name the node"
        ),
    ),
)
_FORMS: Final = tuple((re.compile(form), known) for form, known in _LAUNCHER_WORDS)


def known_of_launcher(lines: Sequence[str]) -> tuple[str, Known] | None:
    """The line that says why a launcher failed, and what it means; None where none is known."""
    for form, known in _FORMS:
        line = next((line for line in lines if form.search(line)), None)
        if line is not None:
            return line.strip(), known
    for line in lines:
        known_line = known_words(line)
        if known_line is not None and not known_line.of_a_peer:
            return line.strip(), known_line
    return None
