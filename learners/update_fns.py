"""A training run without its searches: the draws for them, and the updates from their episodes.

`make_train`, which searches in the graph, and `cats-jax train --online`, with real models, use it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

import search

from .episodes import Outcome
from .learner import make_learner
from .networks import Network, make_actor, make_critic
from .policy import make_policy
from .returns import mean_of_others, one_step, path_returns, question_returns
from .rows import map_blocks, pack
from .train_config import TrainConfig
from .types import Curves, Episode, LearnerState, Metrics

BUCKETS = (16, 64, search.state.MAX_CANDIDATES)
"""Pool sizes of the batches: small pools save time. A question's pool is the smallest >= N.

A pool has no more rows than the largest N of its batch."""


class QuestionBatch(NamedTuple):
    """The questions of an iteration whose pools have one size.

    Attributes:
        capacity: rows of the pool.
        sizes: values of N; each question draws one of them.
    """

    capacity: int
    sizes: tuple[int, ...]
    num_questions: int


class QuestionDraws(NamedTuple):
    """The draws for the `Q` questions of a batch."""

    keys: jax.Array  # key[Q]; of the question and its searches, see `learners.episodes.search_keys`
    num_candidates: jax.Array  # i32[Q]; N
    price: jax.Array  # f32[Q]; of a unit of cost
    prm_token_cost: jax.Array  # f32[Q]; see `search.Context`


class UpdateFns(NamedTuple):
    """The parts of a training run other than its searches; all functions are pure.

    Attributes:
        strategy: search with the sampling policy, whose params are `LearnerState.actor`.
        init: `key -> (LearnerState, keys [num_iterations])`, the fresh state; consumes the key.
        draw: `key -> (update key, [QuestionDraws of each batch])`; consumes the key of an
            iteration.
        learn: `(state, played, index, update key) -> (state, Curves of the iteration)`: one update
            from `played`, a list of the `(Episode, Outcome)` of each batch. The index of the
            iteration, i32[], sets the weight of the entropy bonus.
    """

    strategy: search.Strategy
    batches: tuple[QuestionBatch, ...]
    init: Callable[[jax.Array], tuple[LearnerState, jax.Array]]
    draw: Callable[[jax.Array], tuple[jax.Array, list[QuestionDraws]]]
    learn: Callable[
        [LearnerState, Sequence[tuple[Episode, Outcome]], jax.Array, jax.Array],
        tuple[LearnerState, Curves],
    ]


def make_update_fns(
    config: TrainConfig,
    *,
    features: search.cats.FeatureSet = search.cats.FEATURES,
    reward: search.cats.RewardFn = search.cats.step_reward,
) -> UpdateFns:
    """The draws and updates of a configuration.

    Args:
        config: training configuration; static.
        features: features of a node, inputs of the policy.
        reward: reward function of a decision, for `config.reward="paper"`.
    """
    num_features = len(features.names)
    actor = make_actor(len(config.cats.actions), config.actor_hidden, num_features)
    critic = make_critic(config.critic_hidden, num_features)
    policy = make_policy(actor.apply, "sample")
    learner = make_learner(
        actor, critic, config.cats.actions, config.learner, config.num_iterations
    )
    batches = buckets(config.num_candidates, config.num_episodes // config.searches_per_question)

    def init(key: jax.Array) -> tuple[LearnerState, jax.Array]:
        init_key, run_key = jax.random.split(key)
        return learner.init(init_key), jax.random.split(run_key, config.num_iterations)

    def draw(key: jax.Array) -> tuple[jax.Array, list[QuestionDraws]]:
        update_key, *batch_keys = jax.random.split(key, 1 + len(batches))
        drawn = [_draw(config, *each) for each in zip(batches, batch_keys, strict=True)]
        return update_key, drawn

    def learn(
        state: LearnerState,
        played: Sequence[tuple[Episode, Outcome]],
        index: jax.Array,
        key: jax.Array,
    ) -> tuple[LearnerState, Curves]:
        rows, outcomes = [], []
        for episodes, outcome in played:
            outcomes.append((outcome, episodes.price))
            if config.searches_per_question > 1:
                episodes = _relative_to_others(config, episodes, outcome)
            rows.append(_experience(config, critic, state.critic, episodes))
        rows = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *rows)
        outcome, prices = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *outcomes)
        progress = index.astype(jnp.float32) / config.num_iterations
        entropy_weight = config.entropy_weight * (1.0 - progress)
        state, metrics = learner.update(state, rows, entropy_weight, key)
        return state, _curves(config, outcome, prices, metrics)

    return UpdateFns(
        strategy=search.cats.cats(policy, config.cats, features=features, reward=reward),
        batches=batches,
        init=init,
        draw=draw,
        learn=learn,
    )


def buckets(num_candidates: tuple[int, ...], num_episodes: int) -> tuple[QuestionBatch, ...]:
    """The batches of an iteration, with questions in proportion to their numbers of values of N."""
    found: dict[int, tuple[int, ...]] = {}
    for size in num_candidates:
        capacity = next(bucket for bucket in BUCKETS if size <= bucket)
        found[capacity] = (*found.get(capacity, ()), size)
    shares = []
    left, values_left = num_episodes, len(num_candidates)
    for capacity, sizes in sorted(found.items()):
        number = max(1, round(left * len(sizes) / values_left))
        shares.append(QuestionBatch(min(capacity, max(sizes)), sizes, number))
        left, values_left = left - number, values_left - len(sizes)
    return tuple(shares)


def _draw(config: TrainConfig, batch: QuestionBatch, key: jax.Array) -> QuestionDraws:
    """A random N, price and rate for each question of a batch; consumes the key."""
    question_key, size_key, price_key, rate_key = jax.random.split(key, 4)
    number = batch.num_questions
    return QuestionDraws(
        keys=jax.random.split(question_key, number),
        num_candidates=jax.random.choice(size_key, jnp.asarray(batch.sizes, jnp.int32), (number,)),
        price=jax.random.choice(price_key, jnp.asarray(config.prices, jnp.float32), (number,)),
        prm_token_cost=jax.random.choice(
            rate_key, jnp.asarray(config.prm_token_costs, jnp.float32), (number,)
        ),
    )


def _relative_to_others(config: TrainConfig, episodes: Episode, outcome: Outcome) -> Episode:
    """The episodes with their bonus minus the mean return of the question's other searches."""
    cost = episodes.price * outcome.cost
    others = mean_of_others(episodes.bonus - cost, config.searches_per_question)
    return episodes.replace(bonus=episodes.bonus - others)


def _experience(
    config: TrainConfig, critic: Network, critic_params: Any, episodes: Episode
) -> search.cats.Transition:
    """Transitions of all episodes, by tick and then by question, as in Algorithm 1."""
    if config.reward == "paper" and config.gae_lambda == 0.0:
        rows = jax.vmap(one_step)(episodes)
    else:
        returns = path_returns if config.reward == "paper" else question_returns
        rows = jax.vmap(
            lambda episode, values: returns(episode, values, config.gae_lambda, config.num_steps)
        )(episodes, _values(config, critic, critic_params, episodes))
    ticks = episodes.cost.shape[1]
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
    return jnp.mean(worth - prices * outcome.cost)
