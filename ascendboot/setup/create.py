"""Containers that setup creates: what each should be, and the command that makes it so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256

from ascendboot.facts.container import is_foreign
from ascendboot.facts.derive import device_ids, present_ids, stated_or_seen_product
from ascendboot.facts.installed import base_script
from ascendboot.facts.node_facts import MANAGERS, NodeFacts
from ascendboot.facts.parsers.system import LABELS, RUNNING
from ascendboot.facts.query import value_of
from ascendboot.model.cluster import Cluster, Creation, Node
from ascendboot.model.files import FOLDER
from ascendboot.model.names import runs
from ascendboot.model.report import Outcome, StepResult
from ascendboot.templates import script
from ascendboot.transport.api import Command, Effect, write_script
from ascendboot.value import Value, replace

_LIMIT_S = 120.0
_BY_RUNTIME = ("/usr/local/Ascend/driver", "/etc/ascend_install.info", "/etc/hccn.conf")
"""What a container gets where it exists. ascend-docker-runtime does not mount these by its
base.list; from Rec SDK's images (docker/OVERVIEW.md), with the addresses of the NPUs."""
_BY_MOUNTS = ("/usr/local/dcmi", "/usr/local/bin/npu-smi", "/usr/local/sbin/npu-smi")
"""What it gets besides without that runtime."""
_OF_950 = (
    *("/dev/ummu", "/dev/uburma", "/etc/hccl_rootinfo.json", "/lib/route.conf"),
    *("/usr/lib64/libummu*", "/usr/lib64/liburma*", "/usr/lib64/urma", "/usr/lib64/libnl*"),
    *("/usr/bin/urma_admin", "/usr/bin/urma_perftest", "/usr/bin/urma_ping"),
)
"""The same on a 950: ub_driver.list of ascend-docker-runtime, and vllm-ascend."""


class Pending(Value, kw_only=True):
    """What setup has to do about a node's container before anything else."""

    why: str
    done: str
    """`created`, `re-created` or `started`."""
    command: Command
    users: tuple[str, ...] = ()
    """The processes that keep the container from being replaced."""

    @property
    def action(self) -> str:
        """As that of a StepResult."""
        lost = self.done.partition(",")[2]
        return f"{self.command.purpose}: {self.why},{lost}" if lost else self.command.purpose


def pending(cluster: Cluster, node: Node, facts: NodeFacts) -> Pending | None:
    """What setup has to do about the node's container; None: nothing, or it may not touch it."""
    made, engines, name = node.creation, value_of(facts.container), node.container
    if made is None or engines is None or value_of(facts.npus) is None:
        return None  # an error of its own
    found = engines.container
    # Nobody can see what runs in such a container.
    is_closed = found is not None and (found.status == "paused" or found.obstacle)
    if engines.refused or is_closed or is_foreign(cluster, node, facts.container):
        return None
    is_950 = stated_or_seen_product(cluster, facts) == "a5"
    words = _words(made, device_ids(node, facts), present_ids(facts), is_950=is_950)
    engine, old = (found.engine, found.id) if found else (engines.paths[0], "")
    command = _create(cluster.name, node, words, is_950=is_950, engine=engine, old=old)
    if found is None:
        return Pending(why=f"there is no container {name}", done="created", command=command)
    before = found.description.split()
    if before != (wanted := _description(words)):
        keys = ", ".join(part.partition(":")[0] for part in wanted if part not in before)
        return Pending(
            why=f"the container {name} differs in {keys or 'its description'}",
            done="re-created, and what lies in it and in no mount is lost",
            command=command,
            users=found.processes,
        )
    if found.status == RUNNING:
        return None
    purpose, argv = f"start the container {name}", (found.engine, "start", found.id)
    command = Command(argv=argv, purpose=purpose, effect=Effect.WRITE, timeout_s=_LIMIT_S)
    why = f"the container {name} is {found.status}"
    return Pending(why=why, done="started", command=command)


def _words(
    made: Creation, used: Sequence[int], present: Sequence[int], *, is_950: bool
) -> dict[str, list[str]]:
    """The words of `create`, and the variables, by the keys of the inventory."""
    ids, by_runtime = sorted(used if made.devices == "used" else present), made.runtime == "ascend"
    managers = [name for name in MANAGERS if name != "devmm_svm" or not is_950]
    names = (*(f"davinci{device_id}" for device_id in ids), *managers)
    devices = [f"--device=/dev/{name}" for name in names]
    mounts = []
    for mount in made.mounts:
        source, target, *mode = mount.split(":")
        read_only = ",readonly" if mode else ""
        mounts.append(f"--mount=type=bind,source={source},target={target}{read_only}")
    return {
        "image": [made.image],
        "devices": [f"--env=ASCEND_VISIBLE_DEVICES={runs(ids)}"] if by_runtime else devices,
        "mounts": mounts,
        "shm": [f"--shm-size={made.shm.replace(' ', '').removesuffix('iB').lower()}"],
        "runtime": ["--runtime=ascend"] if by_runtime else [],
        "env": [f"{name}={value}" for name, value in sorted(made.env.items())],
    }


def _description(words: Mapping[str, list[str]]) -> list[str]:
    """Each key with a digest: variables may be secrets."""
    return [
        f"{key}:{sha256(repr(value).encode()).hexdigest()[:16]}" for key, value in words.items()
    ]


def _create(
    cluster: str, node: Node, words: Mapping[str, list[str]], *, is_950: bool, engine: str, old: str
) -> Command:
    """The command that creates a container, and then removes the one of the id `old`."""
    name, places = node.container or "", [*_BY_RUNTIME]
    if not words["runtime"]:
        places += [*_BY_MOUNTS, *(_OF_950 if is_950 else ())]
    taken = {word.split(",")[2].removeprefix("target=").rstrip("/") for word in words["mounts"]}
    volume = f"ascendboot-{cluster}-{name}"
    flags = ["--network=host", "--user=0", f"--mount=type=volume,source={volume},target={FOLDER}"]
    for key in ("devices", "mounts", "shm", "runtime"):
        flags += words[key]
    labels = zip(LABELS, (cluster, " ".join(_description(words))), strict=True)
    lines = (*(f"{label}={value}" for label, value in labels), *words["env"])
    places = [place for place in places if place not in taken]
    return write_script(
        base_script(cluster) + script("setup-container.sh", places=" ".join(places)),
        *(engine, cluster, name, old, volume, *words["image"], *flags),
        purpose=f"{'re-' if old else ''}create the container {name}",
        timeout_s=_LIMIT_S,
        stdin="".join(f"{line}\n" for line in lines).encode(),
    )


def planned(todo: Mapping[str, Pending]) -> list[StepResult]:
    """What would be done, by node."""
    results, rest = [], "files in it are not compared before"
    for name, each in todo.items():
        words = f"{each.why}: it would be {each.done}; {rest}"
        result = StepResult(name, "containers", "container", Outcome.WOULD_CHANGE, words)
        results.append(replace(result, action=f"{each.action}; {rest}"))
    return results
