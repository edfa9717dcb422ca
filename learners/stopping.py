"""Training of a stopper by reinforcement, on recorded answers of questions.

An episode takes a question, a random order of its recorded paths, an N and a price. After each path
the actor stops or samples one more. If it stops after m paths, the return of a decision after n is

    G_n = [the answer of m paths is right] - price (m - n) / 100,

and the critic's value is its baseline. The paths of a question are exchangeable, so recorded ones
replace new ones: the training calls no model.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key

import search

from .learner import LearnerConfig, make_learner
from .networks import Network, make_actor, make_critic
from .policy import legal_log_probs, log_prob_of
from .types import LearnerState

ACTIONS = search.cats.ActionTable(((0, 1, 1.0, 1.0, 0), (1, 1, 1.0, 1.0, 0)))
"""Rows `STOP` and `MORE` of `search.stopping`."""

PATHS_PER_PRICE = 100.0
"""Number of paths that cost the price."""


class Recorded(NamedTuple):
    """The recorded paths of Q questions, M of each."""

    answers: search.stopping.Answers  # leaves [Q, M]; a path that came to nothing is not valid
    right: jax.Array  # bool[Q, M]; the path's answer is the right one


@dataclass(frozen=True)
class StoppingConfig:
    """Configuration of a training.

    Attributes:
        uses_scores: whether scores are features and weights of the votes.
        learner: algorithm and optimiser of both networks.
        actor_hidden, critic_hidden: widths of the hidden layers.
        num_candidates: values of N; one is drawn for each episode.
        prices: prices of 100 paths, in units of a right answer; one is drawn for each episode.
        num_episodes: episodes of one update.
        num_iterations: number of updates.
        entropy_weight: weight of the entropy bonus at the first update; it falls linearly to 0.

    Raises:
        ValueError: a value is out of range.
    """

    uses_scores: bool = False
    learner: LearnerConfig = field(default_factory=lambda: LearnerConfig(learning_rate=3e-3))
    actor_hidden: tuple[int, ...] = (32, 32)
    critic_hidden: tuple[int, ...] = (32, 32)
    num_candidates: tuple[int, ...] = (8, 16, 32)
    prices: tuple[float, ...] = (0.1, 0.3, 1.0, 3.0)
    num_episodes: int = 256
    num_iterations: int = 600
    entropy_weight: float = 0.01

    def __post_init__(self) -> None:
        sizes, most = self.num_candidates, search.state.MAX_CANDIDATES
        if not sizes or not all(2 <= size <= most for size in sizes):
            raise ValueError(f"num_candidates must be values of 2 to {most}, got {sizes}")
        for name in ("num_candidates", "actor_hidden", "critic_hidden"):
            for value in getattr(self, name):
                search.interface.check_count(name, value, 1)
        if not self.prices or not all(0.0 <= price < float("inf") for price in self.prices):
            raise ValueError(f"prices must be numbers >= 0, got {self.prices}")
        for name in ("num_episodes", "num_iterations"):
            search.interface.check_count(name, getattr(self, name), 1)
        if not 0.0 <= self.entropy_weight < float("inf"):
            raise ValueError(f"entropy_weight must be a number >= 0, got {self.entropy_weight}")


def stopping_networks(config: StoppingConfig) -> tuple[Network, Network]:
    """Actor and critic of a configuration."""
    number = len(search.stopping.STOPPING_FEATURES)
    actor = make_actor(len(ACTIONS), config.actor_hidden, number)
    return actor, make_critic(config.critic_hidden, number)


def make_stopping(
    config: StoppingConfig,
) -> Callable[[Recorded, jax.Array], tuple[LearnerState, Float[Array, " I"]]]:
    """The training `(recorded, key) -> (state, mean return of each update)`; consumes the key.

    It raises ValueError if there are fewer recorded paths of a question than the largest N.
    """
    actor, critic = stopping_networks(config)
    learner = make_learner(actor, critic, ACTIONS, config.learner, config.num_iterations)

    def iterate(
        recorded: Recorded, state: LearnerState, inputs: tuple[jax.Array, jax.Array]
    ) -> tuple[LearnerState, jax.Array]:
        index, key = inputs
        play_key, update_key = jax.random.split(key)
        keys = jax.random.split(play_key, config.num_episodes)
        episode = functools.partial(_episode, config, actor, recorded, state.actor)
        rows, returns = jax.vmap(episode)(keys)
        rows = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), rows)
        progress = index.astype(jnp.float32) / config.num_iterations
        state, _ = learner.update(state, rows, config.entropy_weight * (1.0 - progress), update_key)
        return state, jnp.mean(returns)

    def train(recorded: Recorded, key: jax.Array) -> tuple[LearnerState, Float[Array, " I"]]:
        paths, most = recorded.right.shape[1], max(config.num_candidates)
        if paths < most:
            raise ValueError(f"recorded has {paths} paths of a question: N = {most} needs as many")
        init_key, run_key = jax.random.split(key)
        keys = jax.random.split(run_key, config.num_iterations)
        indices = jnp.arange(config.num_iterations, dtype=jnp.int32)
        return lax.scan(
            functools.partial(iterate, recorded), learner.init(init_key), (indices, keys)
        )

    return train


def after_each(
    config: StoppingConfig,
    answers: search.stopping.Answers,
    right: Bool[Array, " M"],
    num_candidates: Int[Array, ""],
    price: Float[Array, ""],
) -> tuple[Float[Array, "M F"], Bool[Array, " M"]]:
    """Features after 1 to M paths of a question, and whether the answer is then right.

    Args:
        config: configuration; static.
        answers: recorded paths of the question, in the order of sampling.
        right: whether the answer of each path is right.
        price: price of 100 paths.
    """
    begun = 1 + jnp.arange(right.shape[0], dtype=jnp.int32)

    def one(answers: search.stopping.Answers, begun: jax.Array) -> tuple[jax.Array, jax.Array]:
        features = search.stopping.stopping_features(
            answers, begun, num_candidates, price, uses_scores=config.uses_scores
        )
        weights = answers.score if config.uses_scores else jnp.ones_like(answers.score)
        row = search.selection.weighted_vote(weights, answers.answer, answers.valid)
        return features, (row >= 0) & right[jnp.maximum(row, 0)]

    return jax.vmap(one)(search.stopping.answer_prefixes(answers), begun)


def _episode(
    config: StoppingConfig, actor: Network, recorded: Recorded, params: Any, key: Key[Array, ""]
) -> tuple[search.cats.Transition, Float[Array, ""]]:
    """The decisions of one episode, leaves [M, ...], and its return with the first path charged."""
    question_key, order_key, size_key, price_key, act_key = jax.random.split(key, 5)
    number, most = recorded.right.shape
    question = jax.random.randint(question_key, (), 0, number)
    order = jax.random.permutation(order_key, most)
    answers, right = jax.tree.map(lambda leaf: leaf[question][order], recorded)
    size = jax.random.choice(size_key, jnp.asarray(config.num_candidates, jnp.int32))
    price = jax.random.choice(price_key, jnp.asarray(config.prices, jnp.float32))
    features, is_right = after_each(config, answers, right, size, price)
    begun = 1 + jnp.arange(most, dtype=jnp.int32)
    left = jnp.maximum(size - begun, 0)
    legal = ACTIONS.num_extra()[None, :] <= left[:, None]
    log_probs = legal_log_probs(actor.apply(params, features), legal)
    action = jax.random.categorical(act_key, log_probs, axis=1).astype(jnp.int32)
    stops_at = jnp.argmax((action == search.stopping.STOP) | (left == 0)).astype(jnp.int32)
    cost = price / PATHS_PER_PRICE * (stops_at + 1 - begun).astype(jnp.float32)
    reward = is_right[stops_at].astype(jnp.float32) - cost
    decides = (begun <= stops_at + 1) & (left > 0)
    rows = search.cats.Transition(
        features_tm1=features,
        available_tm1=left,
        action_tm1=action,
        log_prob_tm1=log_prob_of(log_probs, action),
        reward_t=reward,
        discount_t=jnp.zeros_like(reward),
        features_t=jnp.zeros_like(features),
        weight_t=decides.astype(jnp.float32),
    )
    return rows, reward[0] - price / PATHS_PER_PRICE


def stopping_times(
    config: StoppingConfig,
    params: Any,
    recorded: Recorded,
    num_candidates: Int[Array, ""],
    price: Float[Array, ""],
) -> tuple[Int[Array, " Q"], Bool[Array, " Q"]]:
    """Paths that a trained stopper samples of each question, and whether its answer is right.

    The paths come in their recorded order. The stopper takes its likelier action.

    Args:
        config: configuration of the training; static.
        recorded: recorded paths, M of each question; the stopper stops at the latest at min(N, M).
        price: price of 100 paths.
    """
    actor, _ = stopping_networks(config)

    def one(answers: search.stopping.Answers, right: jax.Array) -> tuple[jax.Array, jax.Array]:
        features, is_right = after_each(config, answers, right, num_candidates, price)
        logits = actor.apply(params, features)
        begun = 1 + jnp.arange(right.shape[0], dtype=jnp.int32)
        stops = logits[:, search.stopping.STOP] >= logits[:, search.stopping.MORE]
        most = jnp.minimum(num_candidates, right.shape[0])
        stops_at = jnp.argmax(stops | (begun >= most)).astype(jnp.int32)
        return stops_at + 1, is_right[stops_at]

    return jax.vmap(one)(recorded.answers, recorded.right)
