"""A whole training run as one pure function: search, learn, repeat, all in the graph.

`make_train(config, expand_fn, reset)` returns `train(key)`; `jax.jit` it, and `jax.vmap` it for
many seeds. Every iteration searches a batch of new questions with the sampling policy, each with
an N drawn from the configuration and a PRM drawn by `reset` (one controller for all of them),
and then updates actor and critic from their decisions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

import search

from .networks import make_actor, make_critic
from .policy import make_policy
from .types import Curves, LearnerState, TrainResult
from .updates import LearnerConfig, make_learner

COLLAPSE_SHARE = 0.95
"""A controller that takes one action in more than this share of its decisions has collapsed."""

Reset = Callable[[jax.Array], tuple[Any, Any, jax.Array, jax.Array, jax.Array]]
"""`key -> (expand_params, root embedding, prm_features f32[P], max_depth i32[], correct answer
i32[])`: a random question, with the PRM that judges it. Consumes the key."""


@dataclass(frozen=True)
class TrainConfig:
    """What is fixed about a training run beside its environment.

    Attributes:
        cats: the search that is trained; its reward and discount are used by `returns="td"`.
        learner: the update.
        returns: "td": one-step targets over the transitions, one per surviving child, as in the
            paper. "monte_carlo": every decision once, with its return: terminal_weight *
            correct - sample_cost * (candidates of the whole search from this decision's tick
            on) / 100. It also learns from decisions none of whose children survive.
        terminal_weight: of the final answer's correctness, 0 or 1. "td" adds it to the reward
            where a path or the search ends (discount 0). The only use of the right answers.
        sample_cost: price of 100 candidates, in units of a right answer; "monte_carlo" only.
        entropy_weight: of the entropy bonus in the first iteration; falls linearly to 0.
        num_candidates: values of N, drawn uniformly for every question.
        capacity: rows of the pool; bounds N. Small ones train faster.
        max_depth: bounds the depth of the environment's questions.
        num_iterations: of search and update.
        num_episodes: questions per iteration.

    Raises:
        ValueError: a value is out of range, or has no effect with `returns`.
    """

    cats: search.CatsConfig = search.PAPER
    learner: LearnerConfig = field(default_factory=LearnerConfig)
    returns: str = "td"
    terminal_weight: float = 0.0
    sample_cost: float = 0.0
    entropy_weight: float = 0.0
    num_candidates: tuple[int, ...] = (4, 8, 16, 32, 64)
    capacity: int = 64
    max_depth: int = 12
    num_iterations: int = 1000
    num_episodes: int = 32

    def __post_init__(self) -> None:
        if self.returns not in ("td", "monte_carlo"):
            raise ValueError(f"returns must be 'td' or 'monte_carlo', got {self.returns!r}")
        if self.returns == "td" and self.sample_cost != 0.0:
            raise ValueError("sample_cost needs returns='monte_carlo'; 'td' has cats.reward.cost")
        if self.returns == "monte_carlo" and self.terminal_weight == 0.0:
            raise ValueError(
                "returns='monte_carlo' needs a terminal_weight: without it, not to "
                "sample is always best"
            )
        if not 1 <= self.capacity <= search.MAX_CANDIDATES:
            raise ValueError(f"capacity must be in 1..{search.MAX_CANDIDATES}: {self.capacity}")
        if not self.num_candidates or not all(
            1 <= value <= self.capacity for value in self.num_candidates
        ):
            raise ValueError(
                f"num_candidates must be in 1..{self.capacity} (capacity), "
                f"got {self.num_candidates}"
            )
        for name in ("max_depth", "num_iterations", "num_episodes"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be >= 1, got {getattr(self, name)}")


PAPER = TrainConfig()
"""The paper's controller: its reward, one-step A2C, no entropy bonus. Expect it to collapse."""

CATS = TrainConfig(
    cats=search.CATS,
    learner=LearnerConfig(learning_rate=3e-3, normalize_advantages=True),
    returns="monte_carlo",
    terminal_weight=1.0,
    sample_cost=0.2,
    entropy_weight=0.01,
    num_iterations=2000,
)
"""Ours: is the answer right, and what did it cost; undiscounted, normalised, with entropy."""


def make_train(
    config: TrainConfig, expand_fn: search.ExpandFn, reset: Reset
) -> Callable[[jax.Array], TrainResult]:
    """`train(key) -> TrainResult`: pure, consumes the key; jit it, or vmap it over seeds.

    Args:
        config: static.
        expand_fn: simulator, `(expand_params, key, request) -> Expansion` of at most
            `config.capacity` rows.
        reset: draws questions.
    """
    actor, critic = make_actor(len(config.cats.actions)), make_critic()
    strategy = search.cats(make_policy(actor.apply, "sample"), config.cats)
    learner = make_learner(actor, critic, config.cats.actions, config.learner)
    play = _make_episodes(config, strategy, expand_fn, reset)

    def iterate(
        carry: LearnerState, inputs: tuple[jax.Array, jax.Array]
    ) -> tuple[LearnerState, Curves]:
        index, key = inputs
        rows, outcome = play(carry.actor, jax.random.split(key, config.num_episodes))
        # Time is the leading axis, as in Algorithm 1: step by step, in each question by question.
        rows = jax.tree.map(lambda leaf: leaf.reshape((-1, *leaf.shape[3:])), rows)
        progress = index.astype(jnp.float32) / config.num_iterations
        entropy_weight = config.entropy_weight * (1.0 - progress)
        state, metrics = learner.update(carry, rows, entropy_weight)

        counts = jnp.sum(outcome.action_counts, axis=0, dtype=jnp.int32)
        num_decisions = jnp.sum(counts, dtype=jnp.int32)
        per_decision = 1.0 / jnp.maximum(num_decisions, 1).astype(jnp.float32)
        return state, Curves(
            reward=jnp.sum(outcome.reward) * per_decision,
            accuracy=jnp.mean(outcome.correct.astype(jnp.float32)),
            candidates=jnp.mean(outcome.candidates.astype(jnp.float32)),
            decisions=num_decisions,
            entropy=metrics.entropy,
            top_action=jnp.max(counts).astype(jnp.float32) * per_decision,
            td_error=metrics.td_error,
            critic_loss=metrics.critic_loss,
        )

    def train(key: jax.Array) -> TrainResult:
        init_key, run_key = jax.random.split(key)
        keys = jax.random.split(run_key, config.num_iterations)
        indices = jnp.arange(config.num_iterations, dtype=jnp.int32)
        state, curves = lax.scan(iterate, learner.init(init_key), (indices, keys))
        return TrainResult(
            learner_state=state, curves=curves, collapsed=has_collapsed(curves.top_action)
        )

    return train


def has_collapsed(top_action: Float[Array, " I"]) -> Bool[Array, ""]:
    """Whether one action took over 95 % of the decisions in the last tenth of the iterations."""
    last = max(1, top_action.shape[0] // 10)
    return jnp.mean(top_action[-last:]) > COLLAPSE_SHARE


class _Outcome(NamedTuple):
    """What each question's search came to; `B` questions."""

    correct: jax.Array  # bool[B]
    candidates: jax.Array  # i32[B]
    action_counts: jax.Array  # i32[B, A]
    reward: jax.Array  # f32[B]; sum over decisions


def _make_episodes(
    config: TrainConfig, strategy: search.Strategy, expand_fn: search.ExpandFn, reset: Reset
) -> Callable[[Any, jax.Array], tuple[search.Transition, _Outcome]]:
    """`(actor params, keys [B]) -> (experience with leading axes [ticks, B, rows], outcome)`."""

    def begin(key: jax.Array) -> tuple[Any, jax.Array, jax.Array, search.SearchState]:
        reset_key, size_key, search_key = jax.random.split(key, 3)
        expand_params, root, prm_features, max_depth, right_answer = reset(reset_key)
        sizes = jnp.asarray(config.num_candidates, jnp.int32)
        start = search.init(
            root,
            strategy=strategy,
            num_candidates=jax.random.choice(size_key, sizes),
            max_depth=max_depth,
            prm_features=prm_features,
            capacity=config.capacity,
            frontier_capacity=strategy.width(config.capacity),
            depth_capacity=config.max_depth,
        )
        return expand_params, right_answer, search_key, start

    def judge(
        end: search.SearchState, output: search.StepOutput, right_answer: jax.Array
    ) -> tuple[search.Transition, _Outcome]:
        row = strategy.answer(end.finished)
        correct = (row >= 0) & (end.finished.answer[row] == right_answer)
        bonus = config.terminal_weight * correct.astype(jnp.float32)
        if config.returns == "td":
            transition = add_terminal_reward(output.transition, bonus)
            reward = output.decision.reward
        else:
            transition = monte_carlo(output, bonus, config.sample_cost)
            reward = transition.reward_t
        counts = jnp.zeros((len(config.cats.actions),), jnp.int32)
        decided = output.decision.valid.astype(jnp.int32)
        return transition, _Outcome(
            correct=correct,
            candidates=end.spent,
            action_counts=counts.at[output.decision.action].add(decided),
            reward=jnp.sum(reward),
        )

    def play(params: Any, keys: jax.Array) -> tuple[search.Transition, _Outcome]:
        expand_params, right_answer, search_keys, start = jax.vmap(begin)(keys)

        def one_tick(states: search.SearchState, index: jax.Array) -> Any:
            def advance(expand_params: Any, key: jax.Array, state: search.SearchState) -> Any:
                return search.tick(
                    params, expand_params, key, state, index, strategy=strategy, expand_fn=expand_fn
                )

            return jax.vmap(advance)(expand_params, search_keys, states)

        def tick(states: search.SearchState, index: jax.Array) -> Any:
            """`search.rollout`'s, but costs nothing once all questions of the batch have ended."""
            blank = jax.eval_shape(lambda: one_tick(states, index)[1])
            return lax.cond(
                jnp.all(jax.vmap(search.is_terminal)(states)),
                lambda: (
                    states,
                    jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), blank),
                ),
                lambda: one_tick(states, index),
            )

        num_ticks = strategy.num_phases * config.max_depth
        end, output = lax.scan(tick, start, jnp.arange(num_ticks, dtype=jnp.int32))
        return jax.vmap(judge, in_axes=(0, 1, 0), out_axes=(1, 0))(end, output, right_answer)

    return play


def add_terminal_reward(
    transition: search.Transition, bonus: Float[Array, ""]
) -> search.Transition:
    """Add `bonus` to the reward wherever a path or the search ended (discount 0)."""
    ends = (transition.discount_t == 0.0) & (transition.weight_t > 0.0)
    return transition.replace(reward_t=transition.reward_t + jnp.where(ends, bonus, 0.0))


def monte_carlo(
    output: search.StepOutput, bonus: Float[Array, ""], sample_cost: float
) -> search.Transition:
    """Every decision of one rollout once, with its undiscounted return as reward, discount 0.

    The return is `bonus` minus `sample_cost` times the candidates the whole search sampled from
    the decision's tick on, divided by 100. No bootstrap: the critic is a baseline only.

    Args:
        output: of `search.rollout`: leading axis ticks.
        bonus: what the end of the search was worth.
        sample_cost: price of 100 candidates.
    """
    decision = output.decision
    granted = jnp.sum(output.num_samples, axis=1, dtype=jnp.int32)  # [ticks]
    to_go = _sum_from_here(granted)
    value = bonus - sample_cost * to_go.astype(jnp.float32) / 100.0
    return search.Transition(
        features_tm1=decision.features,
        available_tm1=decision.available,
        action_tm1=decision.action,
        log_prob_tm1=decision.log_prob,
        reward_t=jnp.where(decision.valid, value[:, None], 0.0),
        discount_t=jnp.zeros_like(decision.reward),
        features_t=jnp.zeros_like(decision.features),
        weight_t=decision.valid.astype(jnp.float32),
    )


def _sum_from_here(values: Int[Array, " T"]) -> Int[Array, " T"]:
    return jnp.cumsum(values[::-1], dtype=jnp.int32)[::-1]
