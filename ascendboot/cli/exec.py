"""`exec`: run a command on nodes."""

from __future__ import annotations

import sys

from ascendboot.cli.common import duration
from ascendboot.cli.verbs import Call, cluster_verb
from ascendboot.errors import NodeError, UnreachableError, UsageError
from ascendboot.model.names import fold
from ascendboot.readiness.ready import script_arguments
from ascendboot.transport.api import Command, Effect, Result
from ascendboot.transport.pool import results_and_errors

_DAY_S = 86400


@cluster_verb(
    help={
        "nodes": "Only on these nodes, as atlas-[1-4] or @group. Default: on all",
        "host": "Run on the server itself, also if the inventory states a container",
        "timeout": "End the command after this time on a node (90s, 10m). Default: 60s",
    }
)
def exec(call: Call, *, nodes: str | None = None, host: bool = False, timeout: str = "60s") -> None:  # noqa: A001 - the word of docker and kubectl
    """Run a command on all nodes, or on some.

    It runs where ranks run: in the container, if the inventory states one. It
    has no terminal, no input and no shell. Nodes with equal output share it.

    Examples:
      invoke exec --host -- npu-smi info
      invoke exec --nodes atlas-[2-4] -- cat /etc/os-release
      invoke exec -- bash -c 'df -h / | tail -1'

    Exit codes: 0 done, otherwise the highest of all nodes, 2 wrong usage, 4 a
    node is unreachable, 124 --timeout is over, 130 interrupted.
    """
    argv = script_arguments(sys.argv)
    if not argv:
        raise UsageError("exec: no command; put it after --: exec -- npu-smi info")
    limit_s = duration("--timeout", timeout)
    if not 1 <= limit_s <= _DAY_S:
        raise UsageError(f"exec: --timeout: {timeout} is not from 1s to 1d")
    command = Command(
        argv=argv,
        purpose=f"run {argv[0]}",
        effect=Effect.WRITE,
        timeout_s=limit_s,
        expect=frozenset(range(256)),
    )
    cluster = call.cluster()
    chosen = cluster.chosen(nodes)
    with call.session("exec", cluster, reads=True) as session:
        sides, errors = session.connect_hosts(chosen) if host else session.connect(chosen)
        reached = [node for node in chosen if node.name in sides]
        results, failed = results_and_errors(
            reached, lambda node: sides[node.name].run(command).checked(), forks=call.forks
        )
    answers: dict[str, Result | NodeError] = {**results, **errors, **failed}
    alike: dict[tuple[int, str, str, str], list[str]] = {}
    for node in chosen:
        alike.setdefault(_words(answers[node.name]), []).append(node.name)
    for (code, out, err, problem), names in sorted(alike.items(), key=lambda item: len(item[1])):
        if problem:
            call.screen.error(problem)
            continue
        call.screen.say(f"{fold(names)}{f': exit code {code}' if code else ''}", "bold")
        for line in (*out.splitlines(), *err.splitlines()):
            call.screen.say(f"  {line}")
    lost = any(isinstance(answer, UnreachableError) for answer in answers.values())
    code = UnreachableError.exit_code if lost else max(code for code, *_ in alike)
    keys = ("exit_code", "stdout", "stderr", "problem")
    rows = [{"node": n, **dict(zip(keys, _words(a), strict=True))} for n, a in answers.items()]
    call.end(code, {"exit_code": code, "nodes": rows})


def _words(answer: Result | NodeError) -> tuple[int, str, str, str]:
    """Exit code, standard output and error of a command, and why there are none."""
    if isinstance(answer, NodeError):
        return answer.exit_code, "", "", str(answer)
    return answer.exit_code, answer.text, answer.stderr.decode(errors="replace"), ""
