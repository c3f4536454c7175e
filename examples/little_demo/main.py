"""A little recommender, trained data-parallel: every rank learns from its own share of the clicks.

Embedding tables for users, items and contexts feed a small network that predicts whether an item is
clicked. The gradients of all ranks are added up after every step, so all ranks keep equal weights;
at the end they prove it. Before it starts, each rank makes sure that the rank table (or the `CM_…`
variables that stand in for one) and the launcher agree, as a job on real NPUs would have to.

The clicks of a step are the same for any number of ranks: a job that resumes from a checkpoint with
fewer ranks has the same losses.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import socket
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ.update({"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"})
import numpy as np  # reads the three variables: many ranks share one machine here

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType
    from typing import TextIO

    from mpi4py import MPI
    from numpy.typing import NDArray

    ExceptionHook = Callable[[type[BaseException], BaseException, TracebackType | None], None]

USERS, ITEMS, CONTEXTS = 1000, 300, 48
HIDDEN = 32
TRAINING_CLICKS, HELD_OUT_CLICKS = 200_000, 5_000
LEARNING_RATE = 0.05
REPORTS = 10
CHIEF = ("CM_CHIEF_IP", "CM_CHIEF_PORT", "CM_CHIEF_DEVICE", "CM_WORKER_IP", "CM_WORKER_SIZE")
VERSIONS = ("1.0", "1.2", "2.0")
LOCAL_RANK = "OMPI_COMM_WORLD_LOCAL_RANK"
LOGIT_BOUND = 15.0  # beyond it a probability in float32 is 1, and the loss infinite


# ---------------------------------------------------------------- does the launcher fit the table?


class TableError(ValueError):
    """The rank table cannot be used at all; the text says what was seen and what is expected."""


@dataclass(frozen=True)
class Entry:
    """One rank as the rank table has it; `position` counts within the rank's server."""

    rank_id: int
    device_id: int
    server_id: str
    position: int


def resource_problems(environ: Mapping[str, str], rank: int, world_size: int) -> list[str]:
    """Everything on which what this rank is told of the others and its launcher disagree."""
    chief = sorted(name for name in environ if name.startswith("CM_"))
    if "RANK_TABLE_FILE" in environ and chief:
        return [f"RANK_TABLE_FILE is set together with {', '.join(chief)}; expected one kind"]
    if chief:
        return chief_problems(environ, world_size)
    return rank_table_problems(environ, rank, world_size)


def chief_problems(environ: Mapping[str, str], world_size: int) -> list[str]:
    """What is wrong with the variables of a job without a rank table."""
    problems = [
        f"{name} is set together with CM_ variables, which it disables; expected it to be unset"
        for name in ("RANK_ID", "RANK_SIZE")
        if name in environ
    ]
    missing = [name for name in CHIEF if not environ.get(name)]
    if missing:
        return [*problems, f"{', '.join(missing)} is not set; expected all of {', '.join(CHIEF)}"]
    if environ["CM_WORKER_SIZE"] != str(world_size):
        seen = environ["CM_WORKER_SIZE"]
        problems.append(f"CM_WORKER_SIZE is {seen}; expected {world_size}, all ranks of the job")
    own = environ["CM_WORKER_IP"]
    if not is_own_address(own):
        problems.append(f"CM_WORKER_IP is {own}; expected an address of {socket.gethostname()}")
    return problems


def is_own_address(address: str) -> bool:
    """Whether this machine has the address: nobody can listen at that of another."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True


def rank_table_problems(environ: Mapping[str, str], rank: int, world_size: int) -> list[str]:
    """Everything on which the rank table and the launcher of this rank disagree."""
    if not environ.get("RANK_TABLE_FILE"):
        return ["RANK_TABLE_FILE is not set; expected the absolute path of a rank table"]
    path = Path(environ["RANK_TABLE_FILE"])
    try:
        check_file(path)
        entries = read_entries(path.read_text(encoding="utf-8"))
    except (TableError, OSError, UnicodeDecodeError) as error:
        return [f"RANK_TABLE_FILE {path}: {error}"]
    return disagreements(entries, environ, rank, world_size)


def check_file(path: Path) -> None:
    """Raise TableError unless mx_rec would read this file: absolute, no link, not for others."""
    if not path.is_absolute():
        raise TableError("a relative path; expected an absolute one")
    if not path.is_file():
        raise TableError("no such file; expected the rank table there on every node")
    if str(path) != os.path.realpath(path):
        raise TableError(f"leads to {path.resolve()}; expected no symbolic link and no '..' in it")
    mode = path.stat().st_mode & 0o777
    if mode & 0o022:
        raise TableError(f"has mode {mode:04o}; expected that only its owner may write it")


def read_entries(text: str) -> list[Entry]:
    """The ranks of a rank table v1.0, v1.2 or v2.0, in the order of the file."""
    try:
        table = json.loads(text)
        if table["version"] not in VERSIONS:
            raise TableError(f"version is {table['version']!r}; expected one of {VERSIONS}")
        if table["status"] != "completed":
            raise TableError(f'status is {table["status"]!r}; expected "completed"')
        if table["version"] == "2.0":
            return levelled_entries(table["rank_list"])
        servers = table["server_list"]
        count, listed = table.get("server_count"), str(len(servers))
        if count != listed:
            raise TableError(f"server_count is {count!r}; expected {listed!r}, as many as listed")
        return [
            Entry(number(device["rank_id"]), number(device["device_id"]), server["server_id"], at)
            for server in servers
            for at, device in enumerate(server["device"])
        ]
    except json.JSONDecodeError as error:
        raise TableError(f"not JSON: {error}") from error
    except KeyError as error:
        raise TableError(f"the key {error} is missing; expected a rank table") from error
    except (TypeError, AttributeError) as error:
        raise TableError(f"not a rank table: {error}") from error


def levelled_entries(ranks: Sequence[Mapping[str, Any]]) -> list[Entry]:
    """Those of v2.0, which names no servers: what shares a net instance of layer 0 is one here."""
    entries: list[Entry] = []
    for rank in ranks:
        server = rank["level_list"][0]["net_instance_id"]
        at = sum(entry.server_id == server for entry in entries)
        entries.append(Entry(rank["rank_id"], rank["device_id"], server, at))
    return entries


def number(value: object) -> int:
    """The number that a rank table holds as a string of digits, as HCCL wants it."""
    if not (isinstance(value, str) and value.isascii() and value.isdecimal()):
        raise TableError(f"{value!r} stands for a rank_id or device_id; expected digits in quotes")
    return int(value)


def disagreements(
    entries: Sequence[Entry], environ: Mapping[str, str], rank: int, world_size: int
) -> list[str]:
    """Where these entries differ from what the launcher told this rank."""
    problems = []
    if len(entries) != world_size:
        problems.append(f"{world_size} ranks were started; expected {len(entries)} by the table")
    twice = sorted(r for r, n in Counter(e.rank_id for e in entries).items() if n > 1)
    problems += [f"rank_id {r} stands twice in the table; expected once" for r in twice]
    mine = [e for e in entries if e.rank_id == rank]
    if not mine:
        problems.append(f"rank {rank} was started; expected one of those in the table")
    expected = {"OMPI_COMM_WORLD_RANK": rank, "RANK_ID": rank, "RANK_SIZE": world_size}
    if len(mine) == 1:
        here = sum(e.server_id == mine[0].server_id for e in entries)
        expected["DEVICE_ID"] = mine[0].device_id
        expected["OMPI_COMM_WORLD_LOCAL_RANK"] = mine[0].position
        expected["OMPI_COMM_WORLD_LOCAL_SIZE"] = here
    for name, value in expected.items():
        if environ.get(name) != str(value):
            seen = f"is {environ[name]}" if name in environ else "is not set"
            problems.append(f"{name} {seen}; expected {value}")
    return problems


def all_agree(comm: MPI.Comm, problems: Sequence[str]) -> bool:
    """Print this rank's problems, then let all ranks decide together, so that none waits alone."""
    me = f"{socket.gethostname()} rank {comm.Get_rank()}"
    for problem in problems:
        say(f"{me}: could not start: {problem}", sys.stderr)
    refusing = [r for r, refused in enumerate(comm.allgather(bool(problems))) if refused]
    if refusing and not problems:
        names = ", ".join(str(r) for r in refusing)
        say(f"{me}: not started: refused by rank {names}", sys.stderr)
    return not refusing


def say(line: str, stream: TextIO = sys.stdout) -> None:
    """Print one line whole, also where several ranks share a stream."""
    stream.write(f"{line}\n")
    stream.flush()


# ------------------------------------------------------------------------------------- the clicks


@dataclass(frozen=True)
class Clicks:
    """Who was shown what and when (one row each: user, item, context), and did they click?"""

    shown: NDArray[np.int64]
    clicked: NDArray[np.float32]

    def part(self, rows: slice | NDArray[np.int64]) -> Clicks:
        """The chosen rows."""
        return Clicks(self.shown[rows], self.clicked[rows])


def sigmoid(logit: NDArray[Any]) -> NDArray[Any]:
    """The probability that belongs to a logit."""
    bounded = np.clip(logit, -LOGIT_BOUND, LOGIT_BOUND)
    return np.asarray(1.0 / (1.0 + np.exp(-bounded)))


def make_clicks(seed: int) -> tuple[Clicks, Clicks, float]:
    """Clicks to learn from, clicks held out, and the loss of whoever knows the hidden tastes."""
    random = np.random.default_rng(seed)
    taste, trait = random.normal(size=(USERS, 4)), random.normal(size=(ITEMS, 4))
    appeal, hour = random.normal(size=ITEMS), random.normal(scale=0.5, size=CONTEXTS)
    total = TRAINING_CLICKS + HELD_OUT_CLICKS
    user, context = random.integers(USERS, size=total), random.integers(CONTEXTS, size=total)
    item = (ITEMS * random.random(total) ** 2).astype(np.int64)  # a few items are shown a lot
    logit = (taste[user] * trait[item]).sum(axis=1) + appeal[item] + hour[context] - 1.0
    clicked = (random.random(total) < sigmoid(logit)).astype(np.float32)
    clicks = Clicks(np.stack([user, item, context], axis=1), clicked)
    held_out = slice(TRAINING_CLICKS, total)
    known = log_loss(sigmoid(logit[held_out]), clicked[held_out])
    return clicks.part(slice(TRAINING_CLICKS)), clicks.part(held_out), known


def log_loss(predicted: NDArray[Any], clicked: NDArray[Any]) -> float:
    """The mean price of the predictions: 0.69 for a coin, 0 for an oracle."""
    return float(-np.log(np.where(clicked > 0, predicted, 1.0 - predicted)).mean())


def auc(predicted: NDArray[Any], clicked: NDArray[Any]) -> float:
    """How often a clicked row is rated above one that was not: 0.5 by chance, 1 at best."""
    order = np.argsort(predicted, kind="stable")
    place = np.empty(len(order))
    place[order] = np.arange(1, len(order) + 1)
    hits = clicked > 0
    above = place[hits].sum() - hits.sum() * (hits.sum() + 1) / 2
    return float(above / (hits.sum() * (~hits).sum()))


# -------------------------------------------------------------------------------------- the model


class Model:
    """Embedding tables and a small network; all weights lie in one vector, `weights`."""

    def __init__(self, dim: int, seed: int) -> None:
        shapes = {
            "user": (USERS, dim),
            "item": (ITEMS, dim),
            "context": (CONTEXTS, dim),
            "into": (4 * dim, HIDDEN),
            "bias": (HIDDEN,),
            "out": (HIDDEN + 1,),
        }
        size = sum(int(np.prod(shape)) for shape in shapes.values())
        random = np.random.default_rng(seed + 1)
        self.weights = random.normal(scale=0.1, size=size).astype(np.float32)
        self.gradient = np.zeros(size + 1, dtype=np.float32)  # one more: the loss travels along
        self.squares = np.full(size, 1e-6, dtype=np.float32)
        self._weight = _views(self.weights, shapes)
        self._slope = _views(self.gradient, shapes)

    def predict(self, shown: NDArray[np.int64]) -> NDArray[Any]:
        """The probability of a click for each row."""
        return self._forward(shown)[-1]

    def _forward(self, shown: NDArray[np.int64]) -> tuple[NDArray[Any], ...]:
        w = self._weight
        user, item = w["user"][shown[:, 0]], w["item"][shown[:, 1]]
        context = w["context"][shown[:, 2]]
        seen = np.concatenate([user, item, context, user * item], axis=1)
        active = np.maximum(seen @ w["into"] + w["bias"], 0.0)
        logit = active @ w["out"][:-1] + w["out"][-1] + (user * item).sum(axis=1)
        return user, item, seen, active, sigmoid(logit)

    def gradient_of(self, batch: Clicks, of_all: int) -> NDArray[Any]:
        """This batch's share of the gradient over `of_all` rows; the loss's share comes last."""
        user, item, seen, active, predicted = self._forward(batch.shown)
        w, g = self._weight, self._slope
        self.gradient[:] = 0.0
        error = ((predicted - batch.clicked) / of_all).astype(np.float32)
        g["out"][:-1], g["out"][-1] = active.T @ error, error.sum()
        into_active = np.outer(error, w["out"][:-1]) * (active > 0)
        g["into"][:], g["bias"][:] = seen.T @ into_active, into_active.sum(axis=0)
        to_user, to_item, to_context, to_product = np.split(into_active @ w["into"].T, 4, axis=1)
        to_product += error[:, None]
        np.add.at(g["user"], batch.shown[:, 0], to_user + to_product * item)
        np.add.at(g["item"], batch.shown[:, 1], to_item + to_product * user)
        np.add.at(g["context"], batch.shown[:, 2], to_context)
        self.gradient[-1] = log_loss(predicted, batch.clicked) * len(batch.clicked) / of_all
        return self.gradient

    def step(self, total: NDArray[Any]) -> float:
        """Move the weights against the ranks' sum (Adagrad); returns the loss that came with it."""
        slope = total[:-1]
        self.squares += slope * slope
        self.weights -= LEARNING_RATE * slope / np.sqrt(self.squares)
        return float(total[-1])


def _views(vector: NDArray[Any], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, NDArray[Any]]:
    views, at = {}, 0
    for name, shape in shapes.items():
        size = int(np.prod(shape))
        views[name] = vector[at : at + size].reshape(shape)
        at += size
    return views


# ----------------------------------------------------------------------------------- the training


def train(
    comm: MPI.Comm, model: Model, options: argparse.Namespace, environ: Mapping[str, str]
) -> tuple[float, float]:
    """Train on all ranks; rank 0 prints. Returns the first and the last held-out loss."""
    rank, world_size = comm.Get_rank(), comm.Get_size()
    training, held_out, known = make_clicks(options.seed)
    if rank == 0:
        say(f"{world_size} ranks, {model.weights.size} weights, {options.batch} clicks a step")
        say(f"knowing the hidden tastes, the held-out loss would be {known:.4f}")
    begin = resume(comm, model, checkpoint_to_load(options, environ))
    total = np.empty_like(model.gradient)
    reports = {options.steps * n // REPORTS for n in range(1, REPORTS + 1)}
    first = last = log_loss(model.predict(held_out.shown), held_out.clicked)
    for step in range(begin + 1, options.steps + 1):
        rows = rows_of(options.seed, step, options.batch)
        batch = training.part(rows[rank::world_size])
        comm.Allreduce(model.gradient_of(batch, options.batch), total)
        loss = model.step(total)
        if step in reports:
            rated = model.predict(held_out.shown)
            last = log_loss(rated, held_out.clicked)
            if rank == 0:
                scores = f"held-out loss {last:.6f}  AUC {auc(rated, held_out.clicked):.3f}"
                say(f"step {step:4d}/{options.steps}  loss {loss:.6f}  {scores}")
        is_due = step % options.every == 0 or step == options.steps
        if options.checkpoints and is_due and environ.get(LOCAL_RANK, str(rank)) == "0":
            save(options.checkpoints, step, model)
    return first, last


def rows_of(seed: int, step: int, batch: int) -> NDArray[np.int64]:
    """The clicks of one step, the same on every rank; a rank takes its part of them."""
    return np.random.default_rng((seed, step)).integers(TRAINING_CLICKS, size=batch)


def checkpoint_to_load(options: argparse.Namespace, environ: Mapping[str, str]) -> Path | None:
    """The checkpoint that is stated, or that of the step which ascendboot chose."""
    step = environ.get("ASCENDBOOT_RESUME_STEP") or "0"
    if options.resume or step == "0" or not options.checkpoints:
        return options.resume
    return options.checkpoints / f"demo-{step}.npz"


def resume(comm: MPI.Comm, model: Model, path: Path | None) -> int:
    """Give all ranks the weights of rank 0, from a checkpoint if there is one; returns its step."""
    begin = 0
    if comm.Get_rank() == 0 and path is not None:
        with np.load(path) as saved:
            model.weights[:], model.squares[:] = saved["weights"], saved["squares"]
            begin = int(saved["step"])
        say(f"resumes from step {begin}: {path}")
    comm.Bcast(model.weights, root=0)
    comm.Bcast(model.squares, root=0)
    return int(comm.bcast(begin, root=0))


def save(folder: Path, step: int, model: Model) -> None:
    """Write a checkpoint beside and rename it, then mark it as complete."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"demo-{step}.npz"
    beside = folder / f".{path.name}.{os.uname().nodename}.{os.getpid()}"
    with beside.open("wb") as file:
        np.savez(file, step=step, weights=model.weights, squares=model.squares)
    beside.replace(path)
    mark_checkpoint(step, [path])


def mark_checkpoint(step: int, files: Sequence[Path], folder: Path | None = None) -> None:
    """Write `step-N.json` and `LATEST.json`, by rename, after the files are on disk.

    `files` are below `folder`, by default the folder of the first file.
    """
    folder = folder or files[0].parent
    for path in files:
        with path.open("rb") as file:
            os.fsync(file.fileno())
    listed = [{"path": str(f.relative_to(folder)), "bytes": f.stat().st_size} for f in files]
    for name in (f"step-{step}.json", "LATEST.json"):
        beside = folder / f".{name}.{os.uname().nodename}.{os.getpid()}"
        with beside.open("w") as file:
            json.dump({"step": step, "files": listed}, file)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(folder / name)


def same_weights_everywhere(comm: MPI.Comm, model: Model) -> bool:
    """Print the digest of this rank's weights; rank 0 names the ranks that differ, if any do."""
    digest = hashlib.sha256(model.weights.tobytes()).hexdigest()[:16]
    say(f"weights sha256 {digest}")
    odd = odd_ranks(comm.allgather(digest))
    if odd and comm.Get_rank() == 0:
        names = ", ".join(str(rank) for rank in odd)
        say(f"the weights of rank {names} differ from the others'", sys.stderr)
    return not odd


def odd_ranks(digests: Sequence[str]) -> list[int]:
    """The ranks whose weights are not those that most ranks have."""
    usual = Counter(digests).most_common(1)[0][0]
    return [rank for rank, digest in enumerate(digests) if digest != usual]


def parse_options(arguments: Sequence[str]) -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(description="Train a little recommender on all ranks.")
    parser.add_argument("--steps", type=_at_least_one, default=400)
    parser.add_argument(
        "--batch", type=_at_least_one, default=2048, help="clicks a step, all ranks"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--embedding-dim", type=_at_least_one, default=16)
    parser.add_argument("--checkpoints", type=Path, help="folder to save them in, on every node")
    parser.add_argument("--every", type=_at_least_one, default=100, help="steps between them")
    parser.add_argument("--resume", type=Path, help="checkpoint of rank 0 to resume from")
    parser.add_argument(
        "--no-rank-table", action="store_true", help="for a try outside a cluster: check nothing"
    )
    return parser.parse_args(arguments)


def _at_least_one(text: str) -> int:
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not at least 1")
    return int(text)


def main(comm: MPI.Comm, arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """Check, train, compare. Exit code: 0 done, 1 weights differ, 2 not started."""
    options = parse_options(arguments)
    rank, world_size = comm.Get_rank(), comm.Get_size()
    problems = [] if options.no_rank_table else resource_problems(environ, rank, world_size)
    if options.batch < world_size:
        problems.append(f"--batch is {options.batch}; expected at least {world_size}, one a rank")
    if not all_agree(comm, problems):
        return 2
    started = time.monotonic()
    model = Model(options.embedding_dim, options.seed)
    first, last = train(comm, model, options, environ)
    if not same_weights_everywhere(comm, model):
        return 1
    if rank == 0:
        took = time.monotonic() - started
        say(f"Demo done! held-out loss {first:.6f} -> {last:.6f} in {took:.1f} s")
    return 0


def stop_all_ranks(comm: MPI.Comm) -> ExceptionHook:
    """A hook for errors nobody expected: without it the other ranks would wait for this one."""

    def report_and_stop(
        kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        sys.__excepthook__(kind, error, trace)
        comm.Abort(1)

    return report_and_stop


if __name__ == "__main__":
    from mpi4py import MPI  # importing it starts MPI

    sys.excepthook = stop_all_ranks(MPI.COMM_WORLD)
    sys.exit(main(MPI.COMM_WORLD, sys.argv[1:], os.environ))
