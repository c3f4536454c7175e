"""What counts as a secret, and that nothing which is kept or shown holds one."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from ascendboot.cli.session import Session
from ascendboot.console.screen import Screen
from ascendboot.errors import LaunchError
from ascendboot.facts.node_facts import launcher_queries
from ascendboot.model.job import CauseKind, FirstFailure, JobState
from ascendboot.model.report import Outcome
from ascendboot.state import Run, State
from ascendboot.transport.api import Command, Effect
from ascendboot.value import asdict, replace
from templates.scripts.meet import shown
from tests.engine.simulated import BASE, Simulation
from tests.fake_transport import Answer
from tests.unit.checks import well
from tests.unit.checks.collective.ranks import end, report

SECRETS = {
    "WANDB_API_KEY": 'it\'s "sec\\ret" one',
    "MARKED": "secret two",
    "INDEX": "https://me:secret3@pypi.example/simple",
}
CLUSTER = replace(
    well.cluster(well.node(1), replace(well.node(2), env={"HF_TOKEN": "secret four"})),
    env={**SECRETS, "PLAIN": "seen"},
    secret_env=frozenset({"MARKED"}),
)


@pytest.mark.parametrize(
    ("name", "value", "is_secret"),
    [
        *((name, "x", True) for name in ("HF_TOKEN", "WANDB_API_KEY", "PGPASSWORD", "MYSQL_PWD")),
        *((name, "x", True) for name in ("aws_secret_access_key", "KEY", "DB_CREDENTIALS", "PASS")),
        *((name, "x", False) for name in ("TOKENIZERS_PARALLELISM", "MONKEY", "TOKEN_FILE")),
        ("PROXY", "http://me:word@192.0.2.1:3128", True),
        ("INDEX", "https://tokenword@pypi.example", True),
        ("REMOTE", "ssh://git@example.org:22/x", False),
        ("PAGE", "https://example.org:8080/a@b:c", False),
        ("X", "use ghp_0123456789abcdefABCDEF", True),
        ("MARKED", "x", True),
    ],
)
def test_what_is_a_secret(name: str, value: str, *, is_secret: bool) -> None:
    assert CLUSTER.is_secret(name, value) is is_secret


def test_words_that_stand_everywhere_are_not_taken_out_of_texts() -> None:
    env = {"A_KEY": "true", "B_KEY": "2048", "C_KEY": "abc", "D_KEY": "abcd"}
    assert replace(CLUSTER, env=env).secrets == ("secret four", "abcd")
    # `SORT_KEY: rank` must not make the report of a job unreadable.
    ours = {*JobState, *CauseKind, "mpirun", "horovod", "torchrun"}
    env = {f"A_KEY_{number}": getattr(word, "value", word) for number, word in enumerate(ours)}
    assert replace(CLUSTER, env=env).secrets == ("secret four",)


def test_the_looking_for_launchers_shows_no_secret_to_who_lists_processes() -> None:
    commands = [fact.command for fact in launcher_queries(CLUSTER, CLUSTER.nodes[1]).values()]
    words = "\n".join(word for command in commands for word in command.argv)
    assert "PLAIN=seen" in words
    assert [secret for secret in CLUSTER.secrets if secret in words] == []


def test_a_preflight_tells_secrets_apart_and_shows_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASCENDBOOT_SECRETS", "HCCL_MARKED OTHER")
    url = "https://me:secret3@h"
    assert isinstance(shown("HCCL_MARKED", "secret two"), dict)
    assert isinstance(shown("HOROVOD_URL", url), dict)
    assert shown("HCCL_BUFFSIZE", "200") == "200"


def test_setup_puts_secrets_into_a_file_of_their_own_and_shows_none() -> None:
    whole = Simulation.of(2)
    whole.cluster = CLUSTER
    planned = whole.walk(planning=True)
    done = whole.walk()
    changed = replace(CLUSTER, env={**CLUSTER.env, "WANDB_API_KEY": "secret five"})
    whole.cluster = changed
    again = whole.walk(planning=True)
    told = json.dumps([report.to_json() for report in (planned, done, again)])
    assert (done.exit_code, again.exit_code) == (0, 0)
    assert [r.step for r in again.results if r.outcome is Outcome.WOULD_CHANGE] == (
        ["env/secrets.env"] * 2
    )
    assert "PLAIN=seen" in told
    assert [part for part in ("sec\\\\", "ret", "secret") if f"{part} " in told] == []
    files = whole.nodes[1].transport.files
    holding = {
        path.removeprefix(f"{BASE}/"): file.mode
        for path, file in files.items()
        if b"secret" in file.content and b"secrets.env" not in file.content
    }
    assert holding == {"env/secrets.env": 0o600}
    assert b"HF_TOKEN='secret four'" in files[f"{BASE}/env/secrets.env"].content
    assert [
        (path, word)
        for path, file in files.items()
        for word in CLUSTER.secrets
        if word.encode() in file.content and not path.endswith("secrets.env")
    ] == []
    whole.cluster = replace(CLUSTER, env={}, nodes=tuple(replace(n, env={}) for n in CLUSTER.nodes))
    whole.walk()
    assert f"{BASE}/env/secrets.env" not in whole.nodes[1].transport.files


def test_nothing_that_a_run_keeps_or_shows_holds_a_secret(tmp_path: Path) -> None:
    key = SECRETS["WANDB_API_KEY"]
    run = State(tmp_path).new_run("train", hidden=CLUSTER.secrets)
    with pytest.raises(LaunchError) as told:
        _keep_all(State(tmp_path), run, key)
    failure = FirstFailure(**asdict(end(0, 1)), message=f"KeyError: {key}", log="l")
    found = report(1, first_failure=failure).without(run.secrets)
    assert str(told.value) == "n: ***: not started"
    assert found.first_failure is not None
    assert found.first_failure.message == "KeyError: ***"
    document = json.loads((run.folder / "report.json").read_text())
    assert document == {"a": ["***", {"b": "***"}], "n": 4}
    kept = "".join(path.read_text() for path in run.folder.rglob("*") if path.is_file())
    assert kept.count("***") == 6
    assert [part for part in ("ret", "secret") if part in kept.replace("secrets", "")] == []
    assert run.folder.stat().st_mode & 0o777 == 0o700


def _keep_all(state: State, run: Run, key: str) -> None:
    """All ways in which a session keeps something, or says how it ended."""
    command = Command(argv=("env",), purpose="look", effect=Effect.READ)
    result = Answer(f"A={key}\n", "secret two").to(command)
    screen = Screen(json_mode=True)
    with Session.opened(CLUSTER, state, run, accept_new=False, forks=1, screen=screen) as session:
        session.keep(result)
        logging.getLogger("ascendboot.test").warning("%r and %s", key, json.dumps(key))
        run.write_json("report.json", {"a": [key, {"b": "secret3"}], "n": 4})
        raise LaunchError(f"n: {key}: not started")
