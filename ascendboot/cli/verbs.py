"""Turns functions into verbs: shared flags, error messages and exit codes."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from functools import cached_property
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Any, Final

from invoke.exceptions import Exit
from invoke.parser.argument import Argument
from invoke.tasks import Task
from invoke.tasks import task as invoke_task

from ascendboot.cli.allocation import Allocation
from ascendboot.cli.common import INTERRUPTED, ctrl_c_raised, exit_with, whole_number
from ascendboot.cli.completion import SHORT
from ascendboot.cli.session import Session, read_only_run
from ascendboot.console.screen import Screen
from ascendboot.errors import AscendbootError, LaunchError, OutputError, UsageError
from ascendboot.inventory.load import load
from ascendboot.inventory.yaml import described, locate, read
from ascendboot.model.cluster import Cluster
from ascendboot.state import FOLDER, State, name_user
from ascendboot.transport.pool import results_and_errors
from ascendboot.transport.ssh_config import configured
from ascendboot.value import Value, replace

FORKS: Final = "32"
"""A string: with an `int`, Invoke would refuse other values with a traceback."""
STOPPED: Final = "Stopped: nothing was written on the nodes; a running job goes on."
"""After Ctrl-C, of verbs that look at jobs."""
ANSWER_HELP: Final = "Print the result as JSON on standard output"
_SHARED: Final[Mapping[str, tuple[object, str]]] = {
    "inventory": (
        None,
        (
            "The inventory: a path, or a name under inventories/. Default: $ASCENDBOOT_INVENTORY, "
            "otherwise the cluster that you set up last, or the practice cluster of this folder"
        ),
    ),
    "forks": (FORKS, f"Number of nodes to work on in parallel. Default: {FORKS}"),
    "json": (False, "Print the report as JSON on standard output, progress on standard error"),
}
"""Default and help of the flags that verbs share."""
_REMEDIES: Final[Mapping[type, str]] = {
    IsADirectoryError: "name a file, or move the folder away",
    NotADirectoryError: "name a folder, or move the file away",
    FileExistsError: "name another, or move it away",
}
"""What to do about a system error that is about neither room nor access."""
_SETTINGS: Final = ("inventory", "forks")


def _settings() -> dict[str, tuple[str, str]]:
    """Return the operator's defaults of flags, each with the place where it is stated."""
    file = Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config", "ascendboot/config.yaml")
    path = Path(os.path.expanduser(file))  # noqa: PTH111 - never raises
    found: dict[str, tuple[str, str]] = {}
    if os.path.isfile(path):  # noqa: PTH113 - false where the home of another user is closed
        sheet = read(path, file=str(path), begins="a key, such as `forks: 64`", may_be_empty=True)
        for key, value in sheet.data.items():
            mark = sheet.mark.at(key)
            if key not in _SETTINGS:
                sheet.report(mark, f"unknown key; there are {', '.join(_SETTINGS)}")
            elif not isinstance(value, (str, int)):
                sheet.report(mark, f"{described(value)} is not a single word")
            found[key] = str(value), f"{path}:{mark.line}: {key}"
        sheet.refuse_if_problems()
        if "inventory" in found:
            name = os.path.expanduser(found["inventory"][0])  # noqa: PTH111
            found["inventory"] = str(path.parent / name), found["inventory"][1]
    if forks := os.environ.get("ASCENDBOOT_FORKS"):
        found["forks"] = forks, "$ASCENDBOOT_FORKS"
    return found


def own_help() -> dict[str, str]:
    """Return what help says instead of a built-in text, where the operator states a default."""
    texts: dict[str, str] = {}
    with suppress(AscendbootError, OSError):  # a verb names what is wrong with the file
        for name, (value, place) in _settings().items():
            text = _SHARED[name][1]
            begin = text.removesuffix(FORKS) if name == "forks" else f"{text}, otherwise "
            texts[text] = f"{begin}{value}, from {place.removesuffix(f': {name}')}"
    return texts


class Call(Value, dict=True):
    """One call of a verb: its shared flags, and what they select."""

    inventory: str | None = None
    forks: int = int(FORKS)
    json: bool = False
    usual: Path | None = None
    """The inventory of the operator's file, for when no cluster was set up."""

    @cached_property
    def path(self) -> Path:
        """The inventory file; inside an allocation without one, that of the allocation."""
        allocation = None if self.inventory is not None else Allocation.current(os.environ)
        root, environ = self.state.root, os.environ
        own = allocation.inventory(root, environ) if allocation else None
        current, here = self.state.current, Path.cwd()
        return own or locate(
            self.inventory, cwd=here, environ=environ, current=current, usual=self.usual
        )

    @cached_property
    def state(self) -> State:
        """The control folder."""
        return State.here()

    @cached_property
    def screen(self) -> Screen:
        """Prints on standard output, or on standard error with --json."""
        return Screen(json_mode=self.json)

    def cluster(self, *, with_own_table: bool = False) -> Cluster:
        """Read the inventory with ~/.ssh/config, and the operator's own rank table if wanted.

        Inside an allocation only its nodes count.
        """
        cluster = self.with_ssh_config(load(self.path, with_own_table=with_own_table))
        allocation = Allocation.current(os.environ)
        return allocation.part_of(cluster) if allocation else cluster

    def with_ssh_config(self, cluster: Cluster) -> Cluster:
        """Return the cluster with what ~/.ssh/config states for its nodes."""
        nodes, wrong = results_and_errors(cluster.nodes, configured, forks=self.forks)
        for error in wrong.values():
            raise UsageError(error.message) from error
        return replace(cluster, nodes=tuple(nodes.values()))

    def session(
        self,
        verb: str,
        cluster: Cluster,
        *,
        reads: bool = False,
        accept_new: bool = False,
        screen: Screen | None = None,
    ) -> AbstractContextManager[Session]:
        """Create the run's folder and a session for `cluster`.

        A verb that only `reads` also works where the working directory is read-only.
        """
        self._check_lab(cluster)
        create = read_only_run if reads else State.new_run
        run = create(self.state, verb, hidden=cluster.secrets)
        screen, forks = screen or self.screen, self.forks
        return Session.opened(
            cluster, self.state, run, accept_new=accept_new, forks=forks, screen=screen
        )

    def _check_lab(self, cluster: Cluster) -> None:
        """Refuse an inventory of a practice cluster whose addresses another one may have."""
        identity = Path(cluster.nodes[0].ssh.identity or "")
        own = Path(*identity.parts[:-2], "lab.yaml")
        if identity.parts[-3:-1] != (FOLDER, "lab") or Path(cluster.source).resolve() == own:
            return
        if not own.is_file():
            raise UsageError(
                f"{cluster.source}: its login key {identity} is not there: no practice cluster runs"
                f" for {own.parents[1]}; run lab.up there"
            )
        addresses = [node.address for node in cluster.nodes]
        if {node.address for node in load(own).nodes}.isdisjoint(addresses):
            raise UsageError(
                f"{cluster.source}: {addresses[0]} is not in the practice cluster of"
                f" {own.parents[1]}, but maybe in another one; use --inventory {own}"
            )

    def end(self, code: int, document: Mapping[str, object], lines: Iterable[str] = ()) -> None:
        """End the verb: print the document with --json, otherwise these lines.

        Exit if the code is not 0, or would be 0 although the output could not be written.
        """
        try:
            if self.json:
                self.screen.json(document)
        except OutputError as error:
            raise Exit(str(error), code=code or error.exit_code) from error
        for line in () if self.json else lines:
            self.screen.say(line)
        is_lost = self.screen.lost and not self.json  # with --json the result is the document
        if code := code or (OutputError.exit_code if is_lost else 0):
            raise Exit(code=code)


class _Verb(Task[Any]):
    bare: str | None
    groups: Mapping[str, Sequence[str]]

    def get_arguments(self, ignore_unknown_help: bool | None = None) -> list[Argument]:
        texts = dict(self.help)
        try:
            return super().get_arguments(ignore_unknown_help)
        finally:
            self.help = texts  # Invoke removes what it has read

    def arg_opts(self, name: str, default: str, taken_names: set[str]) -> dict[str, Any]:
        options = super().arg_opts(name, default, taken_names)
        if name in SHORT and name not in self.positional:
            options["names"].append(SHORT[name])
        return options


def verb(
    *,
    help: Mapping[str, str],  # noqa: A002 - Invoke's word
    shared: Sequence[str] = ("json",),
    bare: str | None = None,
    groups: Mapping[str, Sequence[str]] | None = None,
    unstarted: Callable[[Mapping[str, object]], Mapping[str, object]] | None = None,
    stopped: str = "Stopped: interrupted.",
    **options: Any,  # noqa: ANN401 - Invoke's
) -> Callable[[Callable[..., None]], Task[Any]]:
    """Turn a function into a verb; `options` are those of Invoke's `task` decorator.

    The function gets a Call with the values of the `shared` flags, then its own flags. An error
    becomes a message and an exit code; with --json a document as well. Words without a flag are
    values of the flag `bare`. Help shows the flags of each of `groups` under its heading.
    `stopped` is what holds after Ctrl-C.

    With `unstarted` every error means that no job was started: exit code 2 for wrong use, else 125,
    as `docker run` does. It returns what the JSON document then holds besides the message, from the
    flags.
    """

    def decorate(body: Callable[..., None]) -> Task[Any]:
        @functools.wraps(body)
        def wrapped(_: object, **flags: Any) -> None:  # noqa: ANN401 - those of the verb
            given = {name: flags.pop(name, _SHARED[name][0]) for name in shared}
            shows_json = bool(given.get("json"))
            try:
                with ctrl_c_raised():
                    body(_call(given), **flags)
            except OutputError as error:
                raise Exit(str(error), code=error.exit_code) from error
            except (AscendbootError, OSError) as error:
                words, code = _explained(error)
                if unstarted is None:
                    raise exit_with(words, code, json=shows_json) from error
                if code != INTERRUPTED and not isinstance(error, UsageError):
                    code = LaunchError.exit_code
                raise exit_with(words, code, unstarted(flags), json=shows_json) from error
            except KeyboardInterrupt as error:  # a job that was started continues
                raise exit_with(stopped, INTERRUPTED, json=shows_json) from error

        own = signature(body).parameters.values()
        more = (Parameter(n, Parameter.KEYWORD_ONLY, default=_SHARED[n][0]) for n in shared)
        wrapped.__signature__ = Signature([*own, *more])  # type: ignore[attr-defined]
        texts = {name: _SHARED[name][1] for name in shared} | dict(help)
        task = invoke_task(klass=_Verb, auto_shortflags=False, help=texts, **options)
        made: _Verb = task(wrapped)
        made.bare, made.groups = bare, groups or {}
        return made

    return decorate


cluster_verb = functools.partial(verb, shared=tuple(_SHARED))
"""Turns a function into a verb that works on a cluster."""


def _call(given: Mapping[str, Any]) -> Call:
    """Return the call with these flags, and the operator's defaults where they are not given."""
    try:
        Path.cwd()
    except FileNotFoundError as error:
        raise UsageError("the working directory no longer exists; cd to another folder") from error
    name_user()
    settings = _settings() if {*given} & {*_SETTINGS} else {}
    text, where = given.get("forks", FORKS), "--forks"
    if text is FORKS:  # otherwise the flag was given, even with the same value
        text, where = settings.get("forks", (FORKS, ""))
    forks = whole_number(where, text, at_least=1)
    usual = Path(settings["inventory"][0]) if "inventory" in settings else None
    return Call(**{**given, "forks": forks, "usual": usual})


def _explained(error: AscendbootError | OSError) -> tuple[str, int]:
    """Return the message of an error, and the exit code."""
    if isinstance(error, AscendbootError):
        return str(error), error.exit_code
    where, what = str(error.filename or "this machine"), error.strerror or error
    where = f"./{where}" if error.filename and not where.startswith("/") else where
    remedy = _REMEDIES.get(type(error), "make room or access, then repeat")
    return f"{where}: could not be used: {what}; {remedy}", AscendbootError.exit_code
