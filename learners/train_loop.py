"""A whole training run as one pure function: search, learn, repeat, all in the graph.

`make_train(config, environment)` returns `train(tables, key)`; `jax.jit` it, and `jax.vmap` it for
many seeds. Every iteration searches a batch of new questions with the sampling policy, and then
updates actor and critic from the decisions. N, price and PRM are drawn for each question.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

import search

from .episodes import make_episodes
from .train_config import TrainConfig
from .types import Curves, LearnerState, TrainResult
from .update_fns import make_update_fns

COLLAPSE_SHARE = 0.95
"""A controller that takes one action in more than this share of its decisions has collapsed."""


class TrainLoop(NamedTuple):
    """A training run in parts, so that a caller can report its progress.

    Attributes:
        init: `init(key) -> state, keys`: the fresh state, and a key per iteration. Consumes `key`.
        advance: `advance(tables, state, indices, keys) -> state, curves`: runs the iterations with
            the numbers `indices`, i32[J], and their keys, [J]. The curves have J values.
    """

    init: Callable[[jax.Array], tuple[LearnerState, jax.Array]]
    advance: Callable[[Any, LearnerState, jax.Array, jax.Array], tuple[LearnerState, Curves]]


def make_train(
    config: TrainConfig,
    environment: search.Environment,
    *,
    features: search.cats.FeatureSet = search.cats.FEATURES,
    reward: search.cats.RewardFn = search.cats.step_reward,
) -> Callable[[Any, jax.Array], TrainResult]:
    """The pure function `train(tables, key) -> TrainResult`; consumes `key`.

    `tables` are those of the environment, such as a step bank. The arguments are those of
    `make_train_loop`.
    """
    loop = make_train_loop(config, environment, features=features, reward=reward)

    def train(tables: Any, key: jax.Array) -> TrainResult:
        start, keys = loop.init(key)
        indices = jnp.arange(config.num_iterations, dtype=jnp.int32)
        state, curves = loop.advance(tables, start, indices, keys)
        return TrainResult(
            learner_state=state, curves=curves, collapsed=has_collapsed(curves.top_action)
        )

    return train


def make_train_loop(
    config: TrainConfig,
    environment: search.Environment,
    *,
    features: search.cats.FeatureSet = search.cats.FEATURES,
    reward: search.cats.RewardFn = search.cats.step_reward,
) -> TrainLoop:
    """The loop of `make_train` in parts; pure.

    Args:
        config: training configuration; static.
        environment: environment of the questions, such as `search.simulation.ENVIRONMENT`.
        features: features of a node, inputs of the policy.
        reward: reward function of a decision, for `config.reward="paper"`.
    """
    updates = make_update_fns(config, features=features, reward=reward)
    plays = [
        make_episodes(
            updates.strategy,
            environment,
            max_depth=config.max_depth,
            capacity=batch.capacity,
            terminal_weight=config.terminal_weight,
            rollouts=config.searches_per_question,
        )
        for batch in updates.batches
    ]

    def iterate(
        tables: Any, state: LearnerState, inputs: tuple[jax.Array, jax.Array]
    ) -> tuple[LearnerState, Curves]:
        index, key = inputs
        update_key, draws = updates.draw(key)
        played = [
            play(state.actor, tables, *drawn) for play, drawn in zip(plays, draws, strict=True)
        ]
        return updates.learn(state, played, index, update_key)

    def advance(
        tables: Any, state: LearnerState, indices: jax.Array, keys: jax.Array
    ) -> tuple[LearnerState, Curves]:
        return lax.scan(functools.partial(iterate, tables), state, (indices, keys))

    return TrainLoop(updates.init, advance)


def has_collapsed(top_action: Float[Array, " I"]) -> Bool[Array, ""]:
    """Whether `top_action` is above 95 % in the mean over the last tenth of the iterations.

    Args:
        top_action: share of the most frequent action in each iteration.
    """
    last = max(1, top_action.shape[0] // 10)
    return jnp.mean(top_action[-last:]) > COLLAPSE_SHARE
