"""The little recommender with TensorFlow 1.15 and Horovod, in the way of Rec SDK's users.

The same clicks and the same checks as in `main.py`, which lies beside it; here TensorFlow builds
the model and Horovod joins the ranks. Embedding tables get sparse gradients: only the rows that a
rank has looked up travel. At the end the ranks prove that their weights are equal. With
--checkpoints a job resumes from the step in ASCENDBOOT_RESUME_STEP, also with fewer ranks.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import horovod.tensorflow as hvd
import main as demo
import numpy as np
import tensorflow.compat.v1 as tf

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

TABLES = {"user": demo.USERS, "item": demo.ITEMS, "context": demo.CONTEXTS}
# Many ranks share one machine here.
THREADS = tf.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=2)


class Ranks:
    """What the checks of `main.py` ask of MPI, answered by Horovod."""

    def Get_rank(self) -> int:  # noqa: N802 - MPI's name
        """Number of this rank."""
        return int(hvd.rank())

    def allgather(self, value: object) -> list[Any]:
        """The values of all ranks, in rank order."""
        with tf.Graph().as_default(), tf.Session(config=THREADS) as session:
            return list(hvd.allgather_object(value, session=session))


# -------------------------------------------------------------------------------------- the model


class Model:
    """The graph of one training step."""

    def __init__(self, dim: int) -> None:
        self.shown = tf.placeholder(tf.int64, (None, len(TABLES)))
        self.clicked = tf.placeholder(tf.float32, (None,))
        logit = self._logit(dim)
        self.predicted = tf.sigmoid(logit)
        self.loss = tf.losses.sigmoid_cross_entropy(self.clicked, logit)
        adagrad = tf.train.AdagradOptimizer(demo.LEARNING_RATE, initial_accumulator_value=1e-6)
        optimizer = hvd.DistributedOptimizer(adagrad)
        gradients = optimizer.compute_gradients(self.loss)
        self.sparse = [v.op.name for g, v in gradients if isinstance(g, tf.IndexedSlices)]
        self.train = optimizer.apply_gradients(gradients, tf.train.get_or_create_global_step())
        self.weights = tf.trainable_variables()

    def fed(self, clicks: demo.Clicks) -> dict[Any, Any]:
        """What a session is given to run on these clicks."""
        return {self.shown: clicks.shown, self.clicked: clicks.clicked}

    def _logit(self, dim: int) -> Any:  # noqa: ANN401 - a tensor
        start = tf.random_normal_initializer(stddev=0.1)
        user, item, context = (
            tf.nn.embedding_lookup(
                tf.get_variable(name, (rows, dim), initializer=start), self.shown[:, column]
            )
            for column, (name, rows) in enumerate(TABLES.items())
        )
        seen = tf.concat([user, item, context, user * item], axis=1)
        hidden = tf.layers.dense(seen, demo.HIDDEN, tf.nn.relu, kernel_initializer=start)
        rest = tf.layers.dense(hidden, 1, kernel_initializer=start)[:, 0]
        return rest + tf.reduce_sum(user * item, axis=1)


class Rating(tf.train.SessionRunHook):
    """Rates the held-out clicks: at first, at every report, and at the end."""

    def __init__(self, model: Model, held_out: demo.Clicks, begin: int, steps: int) -> None:
        self.losses: list[float] = []
        self._model, self._held_out, self._steps = model, held_out, steps
        self._reports = {steps * n // demo.REPORTS for n in range(1, demo.REPORTS + 1)}
        self._step = begin

    def after_create_session(self, session: tf.Session, coord: object) -> None:
        """Rate the weights to begin with."""
        self._rate(session)

    def before_run(self, _: object) -> tf.train.SessionRunArgs:
        """Ask for the loss as well."""
        return tf.train.SessionRunArgs(self._model.loss)

    def after_run(self, context: tf.train.SessionRunContext, values: Any) -> None:  # noqa: ANN401
        """Rate and report, now and then."""
        self._step += 1
        if self._step in self._reports:
            scores = self._rate(context.session)
            loss = f"loss {float(values.results):.6f}"
            demo.say(f"step {self._step:4d}/{self._steps}  {loss}  {scores}")

    def _rate(self, session: tf.Session) -> str:
        rated = session.run(self._model.predicted, self._model.fed(self._held_out))
        self.losses.append(demo.log_loss(rated, self._held_out.clicked))
        score = demo.auc(rated, self._held_out.clicked)
        return f"held-out loss {self.losses[-1]:.6f}  AUC {score:.3f}"


class Saving(tf.train.SessionRunHook):
    """Saves a checkpoint every so many steps and at the end; the Saver renames into place."""

    def __init__(self, saver: tf.train.Saver, options: argparse.Namespace, begin: int) -> None:
        self._saver, self._options, self._step = saver, options, begin

    def after_run(self, context: tf.train.SessionRunContext, values: object) -> None:
        """Save if it is time to."""
        self._step += 1
        if self._step % self._options.every == 0 or self._step == self._options.steps:
            path = str(self._options.checkpoints / "demo.ckpt")
            self._saver.save(context.session, path, global_step=self._step)


class Weights(tf.train.SessionRunHook):
    """Keeps the weights as they are after the last step."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.at_the_end = np.empty(0, dtype=np.float32)

    def end(self, session: tf.Session) -> None:
        """Fetch them while there still is a session."""
        self.at_the_end = np.concatenate([w.ravel() for w in session.run(self._model.weights)])


# ----------------------------------------------------------------------------------- the training


def resume_step(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """The step that ascendboot chose to resume from; 0 at a first start."""
    return int(environ.get("ASCENDBOOT_RESUME_STEP") or 0) if options.checkpoints else 0


def train(options: argparse.Namespace, environ: Mapping[str, str]) -> tuple[Any, list[float]]:
    """Train on all ranks; rank 0 prints. Returns the weights, and on rank 0 the held-out losses."""
    rank, world_size = hvd.rank(), hvd.size()
    training, held_out, known = demo.make_clicks(options.seed)
    tf.set_random_seed(options.seed + rank)  # the broadcast makes them equal
    model = Model(options.embedding_dim)
    begin, saver = resume_step(options, environ), tf.train.Saver()
    weights, rating = Weights(model), Rating(model, held_out, begin, options.steps)
    to_last = tf.train.StopAtStepHook(last_step=options.steps)
    hooks = [hvd.BroadcastGlobalVariablesHook(0), to_last, weights]
    if options.checkpoints and hvd.local_rank() == 0:
        hooks.append(Saving(saver, options, begin))
    if rank == 0:
        hooks.append(rating)
        demo.say(f"{world_size} ranks, {options.batch} clicks a step")
        demo.say(f"gradients that travel as rows: {', '.join(sorted(model.sparse))}")
        demo.say(f"knowing the hidden tastes, the held-out loss would be {known:.4f}")

    def restore(_: object, session: tf.Session) -> None:
        """Load the checkpoint on rank 0; the broadcast sends it to the other ranks."""
        if begin and rank == 0:
            saver.restore(session, str(options.checkpoints / f"demo.ckpt-{begin}"))
            demo.say(f"resumes from step {begin}")

    scaffold = tf.train.Scaffold(saver=saver, init_fn=restore)
    step = begin
    with tf.train.MonitoredTrainingSession(
        hooks=hooks, config=THREADS, scaffold=scaffold
    ) as session:
        while step < options.steps and not session.should_stop():
            step += 1
            rows = demo.rows_of(options.seed, step, options.batch)
            session.run(model.train, model.fed(training.part(rows[rank::world_size])))
    return weights.at_the_end, rating.losses


def parse_options(arguments: Sequence[str]) -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(description="Train a little recommender with TensorFlow.")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=2048, help="clicks a step, all ranks")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--embedding-dim", type=int, default=16)
    parser.add_argument("--checkpoints", type=Path, help="folder to save them in, on every node")
    parser.add_argument("--every", type=int, default=100, help="steps between checkpoints")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """Check, train, compare. Exit code: 0 done, 1 weights differ, 2 not started."""
    options = parse_options(arguments)
    tf.logging.set_verbosity(tf.logging.ERROR)
    tf.disable_eager_execution()
    hvd.init()
    ranks = Ranks()
    if not demo.all_agree(ranks, demo.resource_problems(environ, hvd.rank(), hvd.size())):
        return 2
    started = time.monotonic()
    weights, losses = train(options, environ)
    if not demo.same_weights_everywhere(ranks, SimpleNamespace(weights=weights)):
        return 1
    if hvd.rank() == 0:
        took = time.monotonic() - started
        demo.say(f"Demo done! held-out loss {losses[0]:.6f} -> {losses[-1]:.6f} in {took:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
