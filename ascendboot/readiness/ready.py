"""Checks that the nodes of a job are ready, and builds its launch request."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from ascendboot.checks.containers import code_findings
from ascendboot.checks.finding import Finding, Findings, error, grouped
from ascendboot.checks.hosts import open_to_others
from ascendboot.errors import NodeError, UnreachableError
from ascendboot.facts.container import code_queries
from ascendboot.facts.device_states import DeviceState
from ascendboot.facts.installed import Installed, installed_query, parse_installed
from ascendboot.facts.query import (
    Answer,
    Clock,
    Fact,
    Queries,
    Unanswered,
    answer_to,
    query,
    value_of,
)
from ascendboot.launch.launchers import traits_of
from ascendboot.launch.plan import LaunchRequest, Login
from ascendboot.model.cluster import Cluster, ContainerExec, Node, NodeClocks, Placement
from ascendboot.model.files import CodeTree
from ascendboot.model.names import fold, names_file_here
from ascendboot.readiness import checks, queries
from ascendboot.readiness.device_changes import at_start
from ascendboot.setup.record import ELSEWHERE, NodeRecord, SetupRecord
from ascendboot.setup.steps import SSHD_CONFIG, start_sshd
from ascendboot.setup.sync import CodeSender
from ascendboot.transport.api import Command, Effect, HostSide, Sides, Transport
from ascendboot.transport.pool import results_and_errors
from ascendboot.transport.script import HostAndContainer
from ascendboot.value import Value, field, replace

OF_THE_IMAGE = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH")
"""Variables by which a launcher finds its parts; a container's image may set them."""

_IMAGE = Command(
    argv=("bash", "-c", "".join(f'printf "%s\\0" "${{{n}-}}";' for n in OF_THE_IMAGE)),
    purpose="look at the environment of the container",
    effect=Effect.READ,
)
_STATED = (
    "`facts: stated` is in the inventory: where npu-smi or hccn_tool could not be read at setup, "
    "the devices and addresses of this job are what the inventory states"
)


class Readiness(Value, kw_only=True):
    """The result of all readiness checks."""

    script: PurePosixPath
    """Where the script lies on the nodes; only its name counts when it is copied there."""
    is_copied: bool
    """It is not on the nodes and comes from the control machine."""
    problems: tuple[str, ...]
    """Why the job cannot start, nodes folded; empty if all nodes are ready."""
    unready: Mapping[str, str] = field(default_factory=dict)
    """Why a node cannot take part; empty also where a problem is not of single nodes."""
    lost: frozenset[str] = frozenset()
    """Those of them that cannot be reached any more."""
    warnings: tuple[str, ...] = ()
    leftovers: tuple[checks.Leftover, ...] = ()
    """Processes of earlier jobs; they must end before the job starts."""
    left: tuple[str, ...] = ()
    """The same in words."""
    clocks: NodeClocks
    image: Mapping[str, str]
    """What the primary's container sets of `OF_THE_IMAGE`; empty without a container."""
    devices: Mapping[str, Mapping[int, DeviceState]] = field(default_factory=dict)


class NodeReply(Value):
    """The reply of one node."""

    problems: tuple[str, ...]
    own: tuple[Installed, ...]
    clock: Clock
    image: Mapping[str, str]
    code: CodeTree | None
    probe: queries.NodeProbe


def check_readiness(
    cluster: Cluster,
    record: SetupRecord,
    transports: Mapping[str, Transport],
    script: str,
    *,
    hosts: Mapping[str, HostSide],
    forks: int,
    sending: CodeSender | None = None,
    skipped: Collection[str] = (),
    own_job: str = "",
) -> Readiness:
    """Run all checks but the `skipped` ones on every node, in one execution each."""
    has_place = cluster.code_path is not None and not names_file_here(script)
    path = PurePosixPath(cluster.code_path or "", script) if has_place else None
    job = replace(queries.job_requirements(cluster, record, path, skipped), own_job=own_job)

    def query_node(node: Node) -> NodeReply:
        sides, left = Sides(hosts[node.name], transports[node.name]), record.nodes[node.name]
        return _query_node(node, sides, cluster, left, job=job, sending=sending)

    replies, failed = results_and_errors(cluster.nodes, query_node, forks=forks)
    having = [name for name, reply in replies.items() if path and reply.probe.has_script]
    is_copied = not having and Path(script).is_file()
    text = Path(script).read_text(errors="replace") if is_copied else ""
    found = [
        *_of_setup(replies),
        *_of_code(cluster, replies, sending),
        *checks.script_findings(script, text.partition("\n")[0], ()),
    ]
    if not (is_copied or any(each.id == "code" for each in found)):
        lacking = tuple(name for name in replies if name not in having)
        found += _of_script(having, lacking, path, script)
    probes = {name: reply.probe for name, reply in replies.items()}
    found += checks.topology_findings(cluster, probes, text)
    made = checks.readiness_findings(job, probes, checks.imported_by(text), found)
    errors = [each for each in made if each.level == "error" and each.id != "leftovers"]
    silent = {name: error.message for name, error in failed.items()}
    failures = grouped((why, name) for name, why in silent.items())
    unready = {name: _words(each) for each in errors for name in each.nodes} | silent
    return Readiness(
        script=path or PurePosixPath(Path(script).name),
        is_copied=is_copied,
        problems=(
            *(f"{fold(names)}: {reason}" for reason, names in failures.items()),
            *map(_line, errors),
        ),
        unready=unready if all(each.nodes for each in errors) else {},
        lost=frozenset(n for n, e in failed.items() if isinstance(e, UnreachableError)),
        warnings=(
            *((_STATED,) if cluster.facts == "stated" else ()),
            *(_line(each) for each in made if each.level != "error"),
        ),
        leftovers=checks.leftovers(probes, own_job),
        left=tuple(_line(each) for each in made if each.id == "leftovers"),
        clocks=_clocks(replies),
        image=next((reply.image for reply in replies.values() if reply.image), {}),
        devices=at_start(job, probes),
    )


def _of_setup(replies: Mapping[str, NodeReply]) -> Findings:
    for name, reply in replies.items():
        for problem in reply.problems:
            known = "setup --plan names it; adopt takes the cluster back"
            remedy = known if problem == ELSEWHERE else "run setup"
            yield error("setup", (name,), f"not ready: {problem}", remedy)
    yield from open_to_others([(name, own) for name, it in replies.items() for own in it.own])


def _clocks(replies: Mapping[str, NodeReply]) -> NodeClocks:
    uncertainty_s = max((reply.clock.uncertainty_s for reply in replies.values()), default=0.0)
    return NodeClocks({name: it.clock.offset_s for name, it in replies.items()}, uncertainty_s)


def _query_node(
    node: Node,
    sides: Sides,
    cluster: Cluster,
    left: NodeRecord,
    *,
    job: queries.JobRequirements,
    sending: CodeSender | None,
) -> NodeReply:
    """Query both sides in one execution; a NodeError if a job cannot do without an answer."""
    own_query = installed_query(cluster.name, with_keys=False, with_firewall=cluster.firewall)
    own = Fact(own_query, parse_installed)
    needed: dict[str, Fact[Any]] = {"own": own}
    if job.makes("code"):
        needed |= code_queries(cluster)
        needed |= sending.questions() if sending else {}
    if node.container is not None and node == cluster.primary:
        needed["image"] = Fact(_IMAGE, lambda result: result.checked().text.split("\0"))
    of_host = bool(left.host_sshd or (cluster.firewall and node.container))
    host = {**queries.host_queries(job, node), **({"served": own} if of_host else {})}
    work = {**needed, **queries.work_queries(job, node)}
    answers = _query_sides(node, sides, left.engine, host, work)
    for name in (*needed, *host.keys() & {"served"}):
        answer = answers[name]
        if isinstance(answer, Unanswered):
            raise NodeError(node.name, answer.message)
    values: dict[str, Any] = {name: value_of(answer) for name, answer in answers.items()}
    there, served = values["own"], values.get("served")
    problems = left.problems(there, served if left.host_sshd else None, now=time.time())
    if cluster.firewall and not (served or there).is_closed:
        problems = ("the ports of jobs are not closed (`firewall`)", *problems)
    return NodeReply(
        problems=problems if job.makes("setup") else (),
        own=tuple(values[name] for name in ("own", "served") if name in values),
        clock=values["clock"],
        image={n: v for n, v in zip(OF_THE_IMAGE, values.get("image", ()), strict=False) if v},
        code=values.get("code_tree"),
        probe=queries.NodeProbe.of(answers),
    )


def start_stopped_sshd(cluster: str, left: NodeRecord, sides: Sides) -> bool:
    """Start the cluster's sshd if the node has booted since `setup`; returns whether it did."""
    side, files = (sides.host, left.host_files) if left.host_sshd else (sides.work, left.files)
    installed = parse_installed(side.run(installed_query(cluster, with_keys=False)))
    config = files.get(SSHD_CONFIG)
    if config is None or installed.sshd_pids:
        return False
    side.run(start_sshd(installed, config.sha256)).checked()
    return True


def _query_sides(
    node: Node, sides: Sides, engine: str, host: Queries, work: Queries
) -> dict[str, Answer[Any]]:
    """The answers of both sides, from one execution; from two if the engine is unknown."""
    if node.container is None:
        return query(sides.work, {**work, **host})
    commands = tuple(dict.fromkeys(fact.command for fact in host.values()))
    if engine:
        both = HostAndContainer(sides.host, ContainerExec(engine, node.container), commands)
        answers, results = query(both, work), both.on_host
    else:
        answers, results = query(sides.work, work), sides.host.run_all(commands)
    result = dict(zip(commands, results, strict=True))
    return answers | {name: answer_to(fact, result[fact.command]) for name, fact in host.items()}


def _line(finding: Finding) -> str:
    return f"{fold(finding.nodes)}: {_words(finding)}" if finding.nodes else _words(finding)


def _words(finding: Finding) -> str:
    return f"{finding.text}; {finding.remedy}" if finding.remedy else finding.text


def _of_code(
    cluster: Cluster, replies: Mapping[str, NodeReply], sending: CodeSender | None
) -> Findings:
    trees = {name: reply.code for name, reply in replies.items() if reply.code is not None}
    if sending is None:
        remedy = "make the folders equal, or state code.source and run setup"
        for finding in code_findings(cluster, trees):
            if finding.level == "error":
                yield error("code", finding.nodes, f"not ready: {finding.text}", remedy)
    elif trees:
        source, after = sending.source.shown, sending.after(trees)
        lacking = grouped((after.needed(tree), name) for name, tree in trees.items())
        for paths, nodes in lacking.items():
            if paths:
                more = f"; {len(paths) - 1} more" if len(paths) > 1 else ""
                text = f"not ready: {paths[0]} is not as in {source}{more}"
                yield error("code", tuple(nodes), text, "run setup")


def _of_script(
    having: Collection[str], lacking: tuple[str, ...], path: PurePosixPath | None, script: str
) -> Findings:
    here = os.path.relpath(script)
    if having and lacking:
        text = f"has no readable {path}, but {fold(having)} has"
        yield error("script", lacking, text, "copy it there")
    elif lacking and path is None:
        text = f"{script}: is no file on the control machine ({here})"
        remedy = "check its name, or state the folder of the nodes' code as code.path"
        yield error("script", (), text, remedy)
    elif lacking:
        text = f"{script}: is neither {path} on the nodes nor a file here ({here})"
        yield error("script", (), text, "check its name")


def job_request(
    cluster: Cluster,
    record: SetupRecord,
    ready: Readiness,
    *,
    script: str,
    job_id: str,
    grace_s: float,
    notes: tuple[str, ...] = (),
) -> LaunchRequest:
    """The launch request of a job whose nodes are all ready; queries nothing."""
    placement = record.placement(cluster)
    with_table = cluster.resource_mode == "rank-table"
    by_chief = cluster.resource_mode == "no-rank-table"
    primary = record.nodes[cluster.primary_name]
    table = primary.rank_table
    folder = PurePosixPath(cluster.code_path or ready.script.parent)
    return LaunchRequest(
        job_id=job_id,
        cluster=cluster.name,
        placement=placement,
        base=record.base,
        login=Login(user=primary.user, uid=primary.uid, home=PurePosixPath(primary.home)),
        mpirun=PurePosixPath(record.mpirun),
        networks=record.networks,
        rank_table=record.base / table if with_table else None,
        rank_table_sha256=primary.files[table].sha256 if with_table else "",
        chief=chief_settings(cluster, placement) if by_chief else {},
        meeting={} if by_chief else meeting_settings(cluster, placement),
        python=cluster.python,
        script=ready.script,
        script_args=script_arguments(sys.argv),
        script_content=Path(script).read_bytes() if ready.is_copied else None,
        script_source=str(Path(script).absolute()) if ready.is_copied else "",
        workdir=None if ready.is_copied else folder,
        master_index=cluster.master_index,
        order_words=cluster.order_words,
        launcher=record.launcher,
        ssh_port=record.port,
        mpi_args=cluster.mpi_args,
        launcher_env=_launcher_env(cluster, record, ready.image),
        path=ready.image.get("PATH", ""),
        grace_s=grace_s,
        log_limit=cluster.log_limit,
        loss_form=cluster.loss_form,
        notes=notes,
    )


def chief_settings(cluster: Cluster, placement: Placement) -> dict[str, str]:
    """Variables of all ranks without a rank table; CM_WORKER_IP differs by node.

    CM_WORKER_SIZE counts all ranks of the job (HCCL's own example: 16 on two nodes of 8).
    """
    return {
        "CM_CHIEF_IP": placement.primary.cluster_address,
        "CM_CHIEF_PORT": str(cluster.chief_port),
        "CM_CHIEF_DEVICE": str(cluster.chief_device),
        "CM_WORKER_SIZE": str(placement.world_size),
    }


def meeting_settings(cluster: Cluster, placement: Placement) -> dict[str, str]:
    """Where PyTorch's ranks meet; what the inventory states has precedence."""
    settings = {
        "MASTER_ADDR": placement.primary.cluster_address,
        "MASTER_PORT": str(cluster.chief_port),
    }
    return {name: value for name, value in settings.items() if name not in cluster.env}


def _launcher_env(
    cluster: Cluster, record: SetupRecord, image: Mapping[str, str]
) -> dict[str, str]:
    """The environment of the launcher, as the ranks see it.

    The inventory overrides the profile; paths of the profile stand before those of the image.
    """
    traits = traits_of(record.launcher)
    names = traits.library_names
    of_image = {k: v for k, v in image.items() if k == "LD_LIBRARY_PATH" or k in names}
    of_profile = {
        name: f"{value}:{of_image[name]}" if of_image.get(name) else value
        for name, value in record.launcher_env.items()
    }
    stated = {k: v for k, v in cluster.env.items() if k.startswith("OMPI_MCA_") or k in names}
    of_here = {name: os.environ[name] for name in traits.control_variables if name in os.environ}
    return {**of_image, **of_profile, **stated, **of_here}


def script_arguments(argv: Sequence[str]) -> tuple[str, ...]:
    """The words after `--`, from the command line: Invoke joins them."""
    return tuple(argv[argv.index("--") + 1 :]) if "--" in argv else ()
