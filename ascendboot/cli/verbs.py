"""Turns functions into verbs: shared flags, error messages and exit codes."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from invoke.exceptions import Exit
from invoke.tasks import Task
from invoke.tasks import task as invoke_task

from ascendboot.cli.allocation import Allocation
from ascendboot.cli.common import JSON_HELP, ctrl_c_raised, exit_with, whole_number
from ascendboot.cli.session import Session, read_only_run
from ascendboot.console.screen import Screen
from ascendboot.errors import AscendbootError, InterruptedRunError, LaunchError, OutputError
from ascendboot.inventory.load import load
from ascendboot.inventory.yaml import locate
from ascendboot.model.cluster import Cluster
from ascendboot.state import State
from ascendboot.value import Value

SHORT: Final[Mapping[str, str]] = {
    "detach": "d",
    "follow": "f",
    "inventory": "i",
    "json": "j",
    "lines": "l",
    "node": "n",
    "plan": "p",
    "rank": "r",
    "yes": "y",
}
"""Flags with a short form. By default Invoke gives one to every flag, from the letters that are
free: `-j` would be `--json` for one verb and `--job` for the next."""

FORKS: Final = "32"
"""A string: with an `int`, Invoke would refuse other values with a traceback."""
_HELP: Final = {
    "inventory": "The inventory: a path, or a name under inventories/. Default:"
    " $ASCENDBOOT_INVENTORY, otherwise the cluster that you set up last",
    "forks": f"Number of nodes to work on in parallel. Default: {FORKS}",
    "json": JSON_HELP,
}
_DEFAULTS: Final[Mapping[str, object]] = {"inventory": None, "forks": FORKS, "json": False}


class Call(Value, dict=True):
    """One call of a verb that works on a cluster: its shared flags, and what they select."""

    inventory: str | None
    forks: int
    json: bool

    @cached_property
    def path(self) -> Path:
        """The inventory file; inside an allocation without one, that of the allocation."""
        allocation = None if self.inventory is not None else Allocation.current(os.environ)
        own = allocation.inventory(Path.cwd(), os.environ) if allocation else None
        return own or locate(self.inventory, cwd=Path.cwd(), environ=os.environ)

    @cached_property
    def state(self) -> State:
        """The `.ascendboot` folder of the working directory."""
        return State.here()

    @cached_property
    def screen(self) -> Screen:
        """Prints on standard output, or on standard error with --json."""
        return Screen(json_mode=self.json)

    def cluster(self, *, with_own_table: bool = False) -> Cluster:
        """Read the inventory, and the operator's own rank table if wanted.

        Inside an allocation only its nodes count.
        """
        cluster = load(self.path, with_own_table=with_own_table)
        allocation = Allocation.current(os.environ)
        return allocation.part_of(cluster) if allocation else cluster

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
        create = read_only_run if reads else State.new_run
        run = create(self.state, verb, hidden=cluster.secrets)
        return Session.opened(
            cluster,
            self.state,
            run,
            accept_new=accept_new,
            forks=self.forks,
            screen=screen or self.screen,
        )


class _Verb(Task[Any]):
    def arg_opts(self, name: str, default: str, taken_names: set[str]) -> dict[str, Any]:
        options = super().arg_opts(name, default, taken_names)
        if name in SHORT and name not in self.positional:
            options["names"].append(SHORT[name])
        return options


def verb(
    *,
    unstarted: Callable[[Mapping[str, object]], Mapping[str, object]] | None = None,
    **options: Any,  # noqa: ANN401 - Invoke's
) -> Callable[[Callable[..., object]], Task[Any]]:
    """Turn a function into a verb; `options` are those of Invoke's `task` decorator.

    With `unstarted` every error means that no job was started: exit code 125, as `docker run`
    does. It returns what the JSON document then holds besides the message, from the flags.
    """

    def decorate(body: Callable[..., object]) -> Task[Any]:
        task = invoke_task(klass=_Verb, auto_shortflags=False, **options)
        made: Task[Any] = task(_reports_errors(body, unstarted))
        return made

    return decorate


def cluster_verb(
    *,
    help: Mapping[str, str],  # noqa: A002 - Invoke's word
    **options: Any,  # noqa: ANN401 - Invoke's
) -> Callable[[Callable[..., None]], Task[Any]]:
    """Turn a function into a verb with --inventory, --forks and --json."""

    def decorate(body: Callable[..., None]) -> Task[Any]:
        @functools.wraps(body)
        def wrapped(
            _: object,
            *,
            inventory: str | None,
            forks: str,
            json: bool,
            **flags: Any,  # noqa: ANN401 - those of the verb
        ) -> None:
            workers = whole_number("--forks", forks, at_least=1)
            body(Call(inventory, workers, json), **flags)

        own = list(inspect.signature(body).parameters.values())
        shared = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default)
            for name, default in _DEFAULTS.items()
        ]
        wrapped.__signature__ = inspect.Signature([*own, *shared])  # type: ignore[attr-defined]
        return verb(**options, help={**_HELP, **help})(wrapped)

    return decorate


def _reports_errors(
    body: Callable[..., object],
    unstarted: Callable[[Mapping[str, object]], Mapping[str, object]] | None,
) -> Callable[..., object]:
    """Turn errors into a message and an exit code; with --json into a document as well."""

    def end_with(message: str, code: int, flags: Mapping[str, object]) -> Exit:
        if unstarted is None:
            return exit_with(message, code, flags)
        if code != InterruptedRunError.exit_code:
            code = LaunchError.exit_code
        return exit_with(message, code, flags, unstarted(flags))

    @functools.wraps(body)
    def wrapped(*args: object, **flags: object) -> object:
        try:
            with ctrl_c_raised():
                return body(*args, **flags)
        except OutputError as error:
            raise Exit(str(error), code=error.exit_code) from error
        except AscendbootError as error:
            raise end_with(str(error), error.exit_code, flags) from error
        except OSError as error:
            where, what = error.filename or "this machine", error.strerror or error
            message = f"{where}: could not be used: {what}; make room or access, then repeat"
            raise end_with(message, AscendbootError.exit_code, flags) from error
        except KeyboardInterrupt as error:  # a job that was started continues
            raise exit_with("interrupted", InterruptedRunError.exit_code, flags) from error

    return wrapped
