"""`cats-jax train --config stopping`: learned stoppers, compared with rules at equal samples."""

from __future__ import annotations

import dataclasses
import functools
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import learners
import search

from ..controllers.stopper import Stopper, save_stopper
from ..errors import BadInputError
from ..storage import durable
from ..storage.manifest import MANIFEST
from .options import TrainingOptions
from .questions import TrainingQuestions, bank_questions, simulator_questions

CONFIGS = {
    "stopping": learners.StoppingConfig(),
    "stopping-scores": learners.StoppingConfig(uses_scores=True),
}
"""Configurations by name: without and with scores as features."""

_PATH_SCORE = "min"

_NUM_RECORDED = (2048, 1024)
"""Questions that are recorded for training and for the comparison."""

_CONFIDENCES = (0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.99)
_STOPS = (0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95)

_WITHOUT_MEANING = ("start", "actions", "calibration", "trajectories", "online")


def run_stopping(
    options: TrainingOptions, *, report: Callable[[str], None] = print
) -> list[pathlib.Path]:
    """Train stoppers and write `output/seed-K` and `summary.json`.

    Args:
        options: options of the training; `config` is a key of `CONFIGS`.
        report: called with lines of progress.

    Returns:
        The checkpoints.

    Raises:
        BadInputError: an option is not for stoppers, a value is out of range, there is no
            simulator, a bank does not fit, or the output folder is in use.
    """
    for name in _WITHOUT_MEANING:
        if getattr(options, name) is not None:
            raise BadInputError(f"--{name} has no meaning for a stopper: leave it out")
    if options.settings:
        raise BadInputError("--set has no meaning for a stopper: use learners.StoppingConfig")
    if not options.rivals:
        raise BadInputError("--no-rivals has no meaning for a stopper: leave it out")
    output, num_seeds = options.output, 1 if options.num_seeds is None else options.num_seeds
    if num_seeds < 1:
        raise BadInputError(f"num_seeds={num_seeds}: must be at least 1")
    check_is_new(output)
    config = _configured(options)
    questions = _questions(options)
    keys = jax.random.split(jax.random.key(options.seed), 3)
    most = max(config.num_candidates)
    report(f"recording {most} paths of each question ({questions.info['source']}) ...")
    recorded = [
        record(questions, tables, key, number, most)
        for tables, key, number in zip(
            (questions.tables, questions.held_out), keys, _NUM_RECORDED, strict=False
        )
    ]
    report(f"training {num_seeds} of {options.config!r} ...")
    with durable.hold(output):
        check_is_new(output)  # another training may have ended in the meantime
        train = jax.jit(jax.vmap(learners.make_stopping(config), in_axes=(None, 0)))
        states, _ = jax.block_until_ready(train(recorded[0], jax.random.split(keys[2], num_seeds)))
        paths, summary = [], []
        for index in range(num_seeds):
            actor = jax.tree.map(lambda leaf, index=index: leaf[index], states.actor)
            table = compare(config, actor, recorded[1])
            info = {**questions.info, "prms": list(questions.prms), "seed": options.seed}
            stopper = Stopper(
                actor=jax.device_get(actor),
                uses_scores=config.uses_scores,
                path_score=_PATH_SCORE,
                hidden=config.actor_hidden,
                prices=config.prices,
                info={**info, "index": index, "held_out": table},
            )
            paths.append(save_stopper(output / f"seed-{index}", stopper))
            summary.append(table)
            for row in table:
                report(_line(f"seed-{index}", row))
        durable.replace_json(output / "summary.json", {"config": options.config, "seeds": summary})
    return paths


def check_is_new(output: pathlib.Path) -> None:
    """Raise BadInputError if a folder has a training, or a part of one."""
    # The best controller is written first, whatever its number.
    if any(any(output.glob(name)) for name in ("summary.json", "seed-*", MANIFEST)):
        raise BadInputError(
            f"{str(output)!r} holds a training already, or part of one: choose another --output"
        )


def _configured(options: TrainingOptions) -> learners.StoppingConfig:
    changes: dict[str, Any] = {}
    if options.num_candidates is not None:
        changes["num_candidates"] = options.num_candidates
    if options.num_iterations is not None:
        changes["num_iterations"] = options.num_iterations
    try:
        return dataclasses.replace(CONFIGS[options.config or "stopping"], **changes)
    except ValueError as error:
        raise BadInputError(str(error)) from error


def _questions(options: TrainingOptions) -> TrainingQuestions:
    if options.bank is None:
        if options.validation is not None:
            raise BadInputError("--validation needs --bank")
        return simulator_questions(options.prms)
    return bank_questions(
        options.bank,
        validation=options.validation,
        prms=options.prms,
        sampling=(search.Sampling(),),
        calls_prm=_configured(options).uses_scores,
    )


def record(
    questions: TrainingQuestions, tables: Any, key: jax.Array, number: int, most: int
) -> learners.Recorded:
    """Whole paths of random questions in a random order, with their answers and scores.

    Args:
        questions: questions, of which only environment and depth are used.
        tables: tables of the environment, from which the questions are drawn.
        key: PRNG key; consumed.
        number: Q, number of draws of a question.
        most: M, paths of each.
    """
    strategy = search.best_of_n(path_score=_PATH_SCORE)
    environment = questions.environment
    nothing = search.Recorder(init=lambda state: (), record=lambda memory, tick: (memory, ()))

    @jax.jit
    def play(tables: Any, keys: jax.Array) -> learners.Recorded:
        three = jax.vmap(functools.partial(jax.random.split, num=3))(keys)
        reset_keys, play_keys, order_keys = jnp.moveaxis(three, 1, 0)
        tasks = environment.reset_many(tables, reset_keys)
        start = functools.partial(
            search.init,
            strategy=strategy,
            num_candidates=most,
            capacity=most,
            depth_capacity=questions.max_depth,
        )
        states = jax.vmap(
            lambda root, context, depth: start(root, context=context, max_depth=depth)
        )(tasks.root, tasks.context, tasks.max_depth)
        final, _ = search.play(
            (),
            tasks.params,
            play_keys,
            states,
            strategy=strategy,
            expand_fn=environment.expand(most),
            expand_axes=environment.axes,
            recorder=nothing,
        )
        answers = jax.vmap(lambda paths: search.stopping.answers_of(paths, strategy.aggregation))(
            final.finished
        )
        right = answers.valid & (answers.answer == tasks.right_answer[:, None])
        # Short paths finish first; a search path by path has them in random order.
        orders = jax.vmap(lambda key: jax.random.permutation(key, most))(order_keys)
        mixed = functools.partial(jnp.take_along_axis, indices=orders, axis=1)
        return jax.tree.map(mixed, learners.Recorded(answers, right))

    return jax.block_until_ready(play(tables, jax.random.split(key, number)))


def compare(
    config: learners.StoppingConfig, actor: Any, recorded: learners.Recorded
) -> list[dict[str, Any]]:
    """A stopper at its largest N and each price, and its rivals at the same mean number of paths.

    The rule is `adaptive_consistency`, or `sequential_best_of_n` for a stopper with scores. The
    other rival is the vote of a fixed number of paths, weighted by score if the stopper has scores.
    Between two settings of a rival its accuracy is interpolated linearly.

    Returns:
        For each price "price", "paths", "accuracy", and the accuracies "rule" (None outside the
        range of its settings) and "fixed".
    """
    size = jnp.int32(max(config.num_candidates))
    times = jax.jit(functools.partial(learners.stopping_times, config))
    rule, fixed = _frontiers(config, recorded, int(size))
    rows = []
    for price in config.prices:
        sampled, right = times(actor, recorded, size, jnp.float32(price))
        paths, accuracy = float(np.mean(sampled)), float(np.mean(right))
        known = rule[0, 0] <= paths <= rule[-1, 0]
        rows.append(
            {
                "price": price,
                "paths": round(paths, 3),
                "accuracy": round(accuracy, 4),
                "rule": round(float(np.interp(paths, *rule.T)), 4) if known else None,
                "fixed": round(float(np.interp(paths, *fixed.T)), 4),
            }
        )
    return rows


def _frontiers(
    config: learners.StoppingConfig, recorded: learners.Recorded, size: int
) -> tuple[np.ndarray, np.ndarray]:
    """(mean paths, accuracy) of the rule and of a fixed number of paths, f64[settings, 2] each."""
    sizes = jnp.int32(size), jnp.float32(0.0)
    each = jax.jit(jax.vmap(lambda answers, r: learners.after_each(config, answers, r, *sizes)))
    features, vote_right = map(np.asarray, each(recorded.answers, recorded.right))
    if config.uses_scores:
        answers = recorded.answers
        score = np.where(answers.valid & (np.asarray(answers.answer) >= 0), answers.score, -1.0)
        value = np.maximum.accumulate(score, axis=1)
        # The best path so far: the newest one where the maximum rises.
        rises = np.diff(value, axis=1, prepend=-2.0) > 0.0
        best = np.maximum.accumulate(np.where(rises, np.arange(score.shape[1]), 0), axis=1)
        right = np.take_along_axis(np.asarray(recorded.right), best, axis=1)
        stops: Sequence[np.ndarray] = [value >= threshold for threshold in _STOPS]
    else:
        stays = features[:, :, search.stopping.STOPPING_FEATURES.index("leader_stays")]
        right = vote_right
        first = np.zeros(stays.shape, bool)
        first[:, 0] = True
        stops = [first, *(stays > confidence for confidence in _CONFIDENCES)]
    points = []
    for stop in (each[:, :size].copy() for each in stops):
        stop[:, -1] = True
        at = stop.argmax(axis=1)
        points.append((at.mean() + 1.0, right[np.arange(len(at)), at].mean()))
    fixed = [(number + 1.0, vote_right[:, number].mean()) for number in range(size)]
    return np.array(sorted(points)), np.array(fixed)


def _line(name: str, row: dict[str, Any]) -> str:
    rule = "unknown" if row["rule"] is None else f"{row['rule']:.3f}"
    return (
        f"{name}: price {row['price']:g}: {row['paths']:.1f} paths, accuracy "
        f"{row['accuracy']:.3f}; at as many paths the rule {rule}, a fixed number "
        f"{row['fixed']:.3f}"
    )
