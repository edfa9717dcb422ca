"""Train controllers on the simulator of the embedded world, and leave them as checkpoints.

Several seeds train entirely in the graph. Each seed's controller, every constant action and
the random policy are then played on the same fresh simulated questions, so that the learned
policy's rivals were chosen with at least as many trials as it was. Which seed is best in the live
world is for a validation run to say (`recipes/choose.yaml`).
"""

from __future__ import annotations

import dataclasses
import functools
import json
import pathlib
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import learners
import search
from search import simulation

from . import checkpoint
from .errors import BadInputError
from .learning_curves import plot_learning_curves
from .world.simulator import SIMULATOR_FILE, load_simulator, simulator_names

CONFIGS = {"cats": learners.CATS, "paper": learners.PAPER}

_QUESTIONS = 512
"""Fresh simulated questions per N on which policies are compared."""


def run(
    *,
    output: pathlib.Path,
    config: str = "cats",
    seed: int = 0,
    num_seeds: int = 3,
    num_iterations: int | None = None,
    report: Callable[[str], None] = print,
) -> list[pathlib.Path]:
    """Train `num_seeds` controllers; write `output/seed-K`, `curves.png`, `summary.json`.

    Args:
        output: folder; must not hold a summary already.
        config: "cats" or "paper".
        seed: of everything.
        num_seeds: controllers trained, each from another seed.
        num_iterations: in place of the configuration's.
        report: takes lines of progress.

    Returns:
        The checkpoints, best first by simulated accuracy minus cost.

    Raises:
        BadInputError: unknown configuration, sizes out of range, no simulator, output in use.
    """
    if config not in CONFIGS:
        raise BadInputError(f"unknown configuration {config!r}: choose one of {', '.join(CONFIGS)}")
    if num_seeds < 1:
        raise BadInputError(f"num_seeds={num_seeds}: must be at least 1")
    if (output / "summary.json").exists():
        raise BadInputError(f"{str(output)!r} holds a training already: choose another --output")
    train_config = CONFIGS[config]
    if num_iterations is not None:
        if num_iterations < 1:
            raise BadInputError(f"num_iterations={num_iterations}: must be at least 1")
        train_config = dataclasses.replace(train_config, num_iterations=num_iterations)
    try:
        world = load_simulator()
    except (FileNotFoundError, ValueError) as error:
        raise BadInputError(str(error)) from error
    train_config = dataclasses.replace(train_config, max_depth=int(world.max_depth))
    expand_fn = simulation.simulator(train_config.capacity)
    reset = functools.partial(simulation.reset, world)
    train = learners.make_train(train_config, expand_fn, reset)
    # Folded in one by one, so that seed K of a longer list is the same controller.
    keys = jax.vmap(functools.partial(jax.random.fold_in, jax.random.key(seed)))(
        jnp.arange(num_seeds + 1, dtype=jnp.uint32)
    )
    episodes = train_config.num_iterations * train_config.num_episodes
    report(f"training {num_seeds} seeds of {config!r}: {episodes} simulated questions each ...")
    # One seed after another: `jax.vmap(train)` would do, but on a CPU it is slower, because a
    # batch's ticks can then no longer be skipped when all of its searches have ended.
    result = jax.block_until_ready(jax.jit(lambda keys: jax.lax.map(train, keys))(keys[1:]))
    curves = jax.device_get(result.curves)

    output.mkdir(parents=True, exist_ok=True)
    plot_learning_curves(curves, output / "curves.png", f"{config}: {num_seeds} seeds")
    report("playing the controllers, every constant action and the random policy ...")
    comparison = _compare(train_config, world, result.learner_state.actor, keys[0])
    order = np.argsort(-np.asarray(comparison["controllers"]["value"]))
    paths = []
    for index in order:
        state = jax.tree.map(lambda leaf, index=index: leaf[index], result.learner_state)
        info = {
            "source": "simulator of the embedded world",
            "simulator": SIMULATOR_FILE.name,
            "prms": simulator_names()["prms"],
            "seed": seed,
            "index": int(index),
            "episodes": episodes,
            "collapsed": bool(result.collapsed[index]),
            "simulated": {
                name: np.round(values[index], 4).tolist()
                for name, values in comparison["controllers"].items()
            },
            "best_constant_action": comparison["best_constant_action"],
        }
        name = f"seed-{int(index)}"
        paths.append(checkpoint.save(output / name, state, train_config, info=info))
        collapsed = ", COLLAPSED: one action in over 95 % of its decisions"
        report(
            f"{name}: simulated accuracy {np.round(info['simulated']['accuracy'], 3)} with "
            f"{np.round(info['simulated']['candidates'], 1)} candidates at N = "
            f"{list(train_config.num_candidates)}{collapsed if info['collapsed'] else ''}"
        )
    summary = {
        "config": config,
        "seed": seed,
        "num_candidates": list(train_config.num_candidates),
        "controllers": {k: np.round(v, 4).tolist() for k, v in comparison["controllers"].items()},
        "random": {k: np.round(v, 4).tolist() for k, v in comparison["random"].items()},
        "constants": comparison["constants"],
    }
    (output / "summary.json").write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    report(f"checkpoints: {', '.join(str(path) for path in paths)}")
    return paths


def _compare(
    config: learners.TrainConfig, world: Any, actors: Any, key: jax.Array
) -> dict[str, Any]:
    """Accuracy and candidates of policies on the same questions, by N; `value` is the trade-off."""
    actor = learners.make_actor(len(config.cats.actions))
    learned = search.cats(learners.make_policy(actor.apply, "argmax"), config.cats)
    constant = search.cats(search.constant_policy, config.cats)
    random = search.cats(search.random_policy, config.cats)
    play = functools.partial(_play, config, world, key)
    controllers = play(learned, actors)
    all_actions = jnp.arange(len(config.cats.actions), dtype=jnp.int32)
    constants = play(constant, all_actions)
    best = np.argsort(-constants["value"])[:5]
    rows = config.cats.actions.rows
    names = ("num_extra", "num_retain", "temperature", "top_p", "top_k")
    described = [
        {
            "action": dict(zip(names, rows[index], strict=True)),
            **{name: np.round(values[index], 4).tolist() for name, values in constants.items()},
        }
        for index in best
    ]
    return {
        "controllers": controllers,
        "constants": described,
        "best_constant_action": described[0]["action"],
        "random": {name: v[0] for name, v in play(random, jnp.zeros((1,), jnp.int32)).items()},
    }


def _play(
    config: learners.TrainConfig,
    world: Any,
    key: jax.Array,
    strategy: search.Strategy,
    params: Any,
) -> dict[str, np.ndarray]:
    """Play policies with leading axis `[R]` on the same questions.

    Returns:
        `accuracy` and `candidates`, f32[R, len(num_candidates)], and `value` f32[R]: the mean over
        N of accuracy minus the configuration's price of candidates.
    """
    expand_fn = simulation.simulator(config.capacity)

    def one(params: Any, key: jax.Array, size: jax.Array) -> tuple[jax.Array, jax.Array]:
        reset_key, search_key = jax.random.split(key)
        expand_params, root, prm_features, max_depth, right = simulation.reset(world, reset_key)
        state = search.init(
            root,
            strategy=strategy,
            num_candidates=size,
            max_depth=max_depth,
            prm_features=prm_features,
            capacity=config.capacity,
            frontier_capacity=strategy.width(config.capacity),
            depth_capacity=config.max_depth,
        )
        end, _ = search.rollout(
            params, expand_params, search_key, state, strategy=strategy, expand_fn=expand_fn
        )
        row = strategy.answer(end.finished)
        return (row >= 0) & (end.finished.answer[row] == right), end.spent

    @jax.jit
    def all_questions(params: Any, size: jax.Array) -> tuple[jax.Array, jax.Array]:
        keys = jax.random.split(key, _QUESTIONS)
        correct, spent = jax.vmap(one, in_axes=(None, 0, None))(params, keys, size)
        return jnp.mean(correct.astype(jnp.float32)), jnp.mean(spent.astype(jnp.float32))

    count = jax.tree.leaves(params)[0].shape[0]
    figures = np.array(
        [
            [
                all_questions(jax.tree.map(lambda leaf, r=r: leaf[r], params), jnp.int32(size))
                for size in config.num_candidates
            ]
            for r in range(count)
        ]
    )
    accuracy, candidates = figures[..., 0], figures[..., 1]
    value = np.mean(accuracy - config.sample_cost * candidates / 100.0, axis=1)
    return {"accuracy": accuracy, "candidates": candidates, "value": value}
