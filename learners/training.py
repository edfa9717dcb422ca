"""A whole training run as one pure function: search, learn, repeat, all in the graph.

`make_train(config, environment)` returns `train(tables, key)`; `jax.jit` it, and `jax.vmap` it for
many seeds. Every iteration searches a batch of new questions with the sampling policy, each with
an N and a price drawn from the configuration and a PRM drawn by the environment (one controller for
all of them), and then updates actor and critic from their decisions.
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

from .episodes import Outcome, make_episodes
from .learner import make_learner
from .networks import Network, make_actor, make_critic
from .policy import make_policy
from .returns import mean_of_others, one_step, path_returns, question_returns
from .rows import map_blocks, pack
from .train_config import TrainConfig
from .types import Curves, Episode, LearnerState, Metrics, TrainResult

COLLAPSE_SHARE = 0.95
"""A controller that takes one action in more than this share of its decisions has collapsed."""

BUCKETS = (16, 64, search.MAX_CANDIDATES)
"""Pool sizes of the batches. A question goes to the smallest one that is at least its N."""


def make_train(
    config: TrainConfig,
    environment: search.Environment,
    *,
    features: search.FeatureSet = search.FEATURES,
    reward: search.RewardFn = search.step_reward,
) -> Callable[[Any, jax.Array], TrainResult]:
    """The function `train(tables, key) -> TrainResult`; pure, consumes the key.

    Args:
        config: training configuration; static.
        environment: environment of the questions, such as `search.simulation.ENVIRONMENT`.
        features: features that the policy sees of a node.
        reward: reward function of a decision, for `config.reward="paper"`.
    """
    num_features = len(features.names)
    actor = make_actor(len(config.cats.actions), config.actor_hidden, num_features)
    critic = make_critic(config.critic_hidden, num_features)
    policy = make_policy(actor.apply, "sample")
    strategy = search.cats(policy, config.cats, features=features, reward=reward)
    learner = make_learner(actor, critic, config.cats.actions, config.learner)
    batches = _make_batches(config, strategy, environment)

    def iterate(
        tables: Any, state: LearnerState, inputs: tuple[jax.Array, jax.Array]
    ) -> tuple[LearnerState, Curves]:
        index, key = inputs
        update_key, *batch_keys = jax.random.split(key, 1 + len(batches))
        rows, outcomes = [], []
        for batch, batch_key in zip(batches, batch_keys, strict=True):
            episodes, outcome = _search(config, batch, state.actor, tables, batch_key)
            outcomes.append((outcome, episodes.price))
            if config.searches_per_question > 1:
                episodes = _relative_to_others(config, episodes, outcome)
            rows.append(_experience(config, critic, state.critic, episodes))
        rows = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *rows)
        outcome, prices = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *outcomes)
        progress = index.astype(jnp.float32) / config.num_iterations
        entropy_weight = config.entropy_weight * (1.0 - progress)
        state, metrics = learner.update(state, rows, entropy_weight, update_key)
        return state, _curves(config, outcome, prices, metrics)

    def train(tables: Any, key: jax.Array) -> TrainResult:
        init_key, run_key = jax.random.split(key)
        keys = jax.random.split(run_key, config.num_iterations)
        indices = jnp.arange(config.num_iterations, dtype=jnp.int32)
        state, curves = lax.scan(
            functools.partial(iterate, tables), learner.init(init_key), (indices, keys)
        )
        return TrainResult(
            learner_state=state, curves=curves, collapsed=has_collapsed(curves.top_action)
        )

    return train


def has_collapsed(top_action: Float[Array, " I"]) -> Bool[Array, ""]:
    """Whether one action took over 95 % of the decisions in the last tenth of the iterations."""
    last = max(1, top_action.shape[0] // 10)
    return jnp.mean(top_action[-last:]) > COLLAPSE_SHARE


def buckets(
    num_candidates: tuple[int, ...], num_episodes: int
) -> list[tuple[int, tuple[int, ...], int]]:
    """(rows of the pool, values of N, number of questions) of each batch of an iteration.

    A pool is no larger than the largest N of its batch. The questions are divided among the batches
    in proportion to their numbers of values of N, at least one each.
    """
    found: dict[int, tuple[int, ...]] = {}
    for size in num_candidates:
        capacity = next(bucket for bucket in BUCKETS if size <= bucket)
        found[capacity] = (*found.get(capacity, ()), size)
    shares = []
    left, values_left = num_episodes, len(num_candidates)
    for capacity, sizes in sorted(found.items()):
        number = max(1, round(left * len(sizes) / values_left))
        shares.append((min(capacity, max(sizes)), sizes, number))
        left, values_left = left - number, values_left - len(sizes)
    return shares


class _Batch(NamedTuple):
    """The questions of an iteration whose pools have one size.

    Attributes:
        num_questions: number of questions.
        sizes: values of N; each question draws one of them.
        play: function that searches the questions, see `learners.make_episodes`.
    """

    num_questions: int
    sizes: jax.Array  # i32[K]
    play: Callable[..., tuple[Episode, Outcome]]


def _make_batches(
    config: TrainConfig, strategy: search.Strategy, environment: search.Environment
) -> list[_Batch]:
    return [
        _Batch(
            number,
            jnp.asarray(sizes, jnp.int32),
            make_episodes(
                strategy,
                environment,
                max_depth=config.max_depth,
                capacity=capacity,
                terminal_weight=config.terminal_weight,
                rollouts=config.searches_per_question,
            ),
        )
        for capacity, sizes, number in buckets(
            config.num_candidates, config.num_episodes // config.searches_per_question
        )
    ]


def _search(
    config: TrainConfig, batch: _Batch, actor_params: Any, tables: Any, key: jax.Array
) -> tuple[Episode, Outcome]:
    """Search new questions, each with a random N and a random price; consumes the key."""
    question_key, size_key, price_key = jax.random.split(key, 3)
    number = batch.num_questions
    return batch.play(
        actor_params,
        tables,
        jax.random.split(question_key, number),
        jax.random.choice(size_key, batch.sizes, (number,)),
        jax.random.choice(price_key, jnp.asarray(config.prices, jnp.float32), (number,)),
    )


def _relative_to_others(config: TrainConfig, episodes: Episode, outcome: Outcome) -> Episode:
    """The episodes with their bonus minus the mean return of the question's other searches."""
    cost = episodes.price * outcome.candidates.astype(jnp.float32) / 100.0
    others = mean_of_others(episodes.bonus - cost, config.searches_per_question)
    return episodes.replace(bonus=episodes.bonus - others)


def _experience(
    config: TrainConfig, critic: Network, critic_params: Any, episodes: Episode
) -> search.Transition:
    """Transitions of all episodes, by tick and then by question, as in Algorithm 1."""
    if config.reward == "paper" and config.gae_lambda == 0.0:
        rows = jax.vmap(one_step)(episodes)
    else:
        returns = path_returns if config.reward == "paper" else question_returns
        rows = jax.vmap(
            lambda episode, values: returns(episode, values, config.gae_lambda, config.num_steps)
        )(episodes, _values(config, critic, critic_params, episodes))
    ticks = episodes.candidates.shape[1]
    return jax.tree.map(
        lambda leaf: jnp.swapaxes(
            leaf.reshape((leaf.shape[0], ticks, -1, *leaf.shape[2:])), 0, 1
        ).reshape((-1, *leaf.shape[2:])),
        rows,
    )


def _values(
    config: TrainConfig, critic: Network, critic_params: Any, episodes: Episode
) -> Float[Array, "B D S"]:
    """The critic's values of the deciding nodes; all zeros if the returns do not depend on them."""
    decision = episodes.decision
    if config.gae_lambda == 1.0 and config.num_steps is None:
        return jnp.zeros(decision.valid.shape, jnp.float32)
    flat = decision.features.reshape(-1, decision.features.shape[-1])
    marked = pack(decision.valid.reshape(-1))
    values = map_blocks(lambda block: critic.apply(critic_params, block), marked, flat)
    return values.reshape(decision.valid.shape)


def _curves(
    config: TrainConfig, outcome: Outcome, prices: Float[Array, " B"], metrics: Metrics
) -> Curves:
    counts = jnp.sum(outcome.action_counts, axis=0, dtype=jnp.int32)
    num_decisions = jnp.sum(counts, dtype=jnp.int32)
    per_decision = 1.0 / jnp.maximum(num_decisions, 1).astype(jnp.float32)
    return Curves(
        reward=_mean_reward(config, outcome, prices, per_decision),
        accuracy=jnp.mean(outcome.correct.astype(jnp.float32)),
        candidates=jnp.mean(outcome.candidates.astype(jnp.float32)),
        decisions=num_decisions,
        entropy=metrics.entropy,
        top_action=jnp.max(counts).astype(jnp.float32) * per_decision,
        td_error=metrics.td_error,
        critic_loss=metrics.critic_loss,
    )


def _mean_reward(
    config: TrainConfig, outcome: Outcome, prices: jax.Array, per_decision: jax.Array
) -> jax.Array:
    if config.reward == "paper":
        return jnp.sum(outcome.reward) * per_decision
    worth = config.terminal_weight * outcome.correct.astype(jnp.float32)
    return jnp.mean(worth - prices * outcome.candidates.astype(jnp.float32) / 100.0)
