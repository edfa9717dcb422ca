"""A whole training run as one pure function: search, learn, repeat, all in the graph.

`make_train(config, expander, reset)` returns `train(key)`; `jax.jit` it, and `jax.vmap` it for
many seeds. Every iteration searches a batch of new questions with the sampling policy, each with
an N and a price drawn from the configuration and a PRM drawn by `reset` (one controller for all
of them), and then updates actor and critic from their decisions.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

import search

from .episodes import Expander, Outcome, Reset, make_episodes
from .networks import make_actor, make_critic
from .policy import make_policy
from .returns import mean_of_others, one_step, path_returns, question_returns
from .rows import map_blocks, pack
from .types import Curves, Episode, LearnerState, TrainResult
from .updates import LearnerConfig, make_learner

COLLAPSE_SHARE = 0.95
"""A controller that takes one action in more than this share of its decisions has collapsed."""

BUCKETS = (16, 64, search.MAX_CANDIDATES)
"""Sizes of the pools: a question goes to the smallest that holds its N."""


@dataclass(frozen=True)
class TrainConfig:
    """What is fixed about a training run beside its environment.

    Attributes:
        cats: the search that is trained; its reward and discount are used by `reward="paper"`.
        learner: the update.
        actor_hidden: widths of the actor's hidden layers.
        critic_hidden: widths of the critic's.
        reward: "paper": the decision's own, from the scores of its children, credited along the
            paths below it, see `learners.path_returns`. "outcome": terminal_weight * correct
            - price * candidates / 100 of the whole question, credited to all decisions from then
            on, see `learners.question_returns`. It also learns from decisions none of whose
            children survive.
        trace: lambda of the returns: 0 is one-step TD as in the paper, 1 Monte Carlo.
        num_steps: rewards in a return at most; None: to the end. With trace 1 the n-step return.
        terminal_weight: of the final answer's correctness. "paper" pays it where a path or the
            search ends (discount 0). The only use of the right answers.
        sample_costs: prices of 100 candidates, in units of a right answer, drawn uniformly for
            every question and shown to the policy; "outcome" only, the paper's reward has its own
            cost.
        entropy_weight: of the entropy bonus in the first iteration; falls linearly to 0.
        num_candidates: values of N, drawn uniformly for every question.
        max_depth: bounds the depth of the environment's questions.
        num_iterations: of search and update.
        num_episodes: searches per iteration.
        rollouts: searches of each question, a divisor of num_episodes. With more than one, a
            return is taken relative to the mean return of the question's other searches, see
            `learners.returns.mean_of_others`: whether a question is hard is no news about the
            policy. Monte-Carlo returns of "outcome" only.

    Raises:
        ValueError: a value is out of range, or has no effect with the others.
    """

    cats: search.CatsConfig = search.PAPER
    learner: LearnerConfig = field(default_factory=LearnerConfig)
    actor_hidden: tuple[int, ...] = (128, 128)
    critic_hidden: tuple[int, ...] = (256, 256)
    reward: str = "paper"
    trace: float = 0.0
    num_steps: int | None = None
    terminal_weight: float = 0.0
    sample_costs: tuple[float, ...] = (0.0,)
    entropy_weight: float = 0.0
    num_candidates: tuple[int, ...] = (4, 8, 16, 32, 64)
    max_depth: int = 12
    num_iterations: int = 1000
    num_episodes: int = 32
    rollouts: int = 1

    def __post_init__(self) -> None:
        if self.reward not in ("paper", "outcome"):
            raise ValueError(f"reward must be 'paper' or 'outcome', got {self.reward!r}")
        if not 0.0 <= self.trace <= 1.0:
            raise ValueError(f"trace (lambda) must be in [0, 1], got {self.trace}")
        if self.num_steps is not None and (self.num_steps < 1 or self.trace == 0.0):
            raise ValueError(
                f"num_steps={self.num_steps} must be >= 1 and needs a trace > 0: a trace of 0 is "
                "one step already; 1 gives the n-step return"
            )
        for name in ("terminal_weight", "entropy_weight"):
            if not 0.0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} must be a number >= 0, got {getattr(self, name)}")
        if not self.sample_costs or not all(0.0 <= price < math.inf for price in self.sample_costs):
            raise ValueError(f"sample_costs must be numbers >= 0, got {self.sample_costs}")
        if self.reward == "paper" and any(self.sample_costs):
            raise ValueError("sample_costs needs reward='outcome'; 'paper' has cats.reward.cost")
        if self.terminal_weight > 0.0 and self.reward == "paper" and not self.cats.reward.discount:
            raise ValueError(
                "terminal_weight needs cats.reward.discount > 0 with reward='paper': with a "
                "discount of 0 a path that goes on looks like one that ends"
            )
        if self.reward == "outcome" and self.terminal_weight == 0.0:
            raise ValueError(
                "reward='outcome' needs a terminal_weight: without it, not to sample is always best"
            )
        if not self.num_candidates or not all(
            1 <= value <= search.MAX_CANDIDATES for value in self.num_candidates
        ):
            raise ValueError(
                f"num_candidates must be in 1..{search.MAX_CANDIDATES}, got {self.num_candidates}"
            )
        if any(width < 1 for width in (*self.actor_hidden, *self.critic_hidden)):
            raise ValueError(
                "widths of hidden layers must be >= 1, got "
                f"actor_hidden={self.actor_hidden}, critic_hidden={self.critic_hidden}"
            )
        for name in ("max_depth", "num_iterations", "num_episodes", "rollouts"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be >= 1, got {getattr(self, name)}")
        if self.num_episodes % self.rollouts:
            raise ValueError(
                f"rollouts={self.rollouts} must divide num_episodes={self.num_episodes}"
            )
        if self.rollouts > 1 and (self.reward, self.trace) != ("outcome", 1.0):
            raise ValueError(
                f"rollouts={self.rollouts} needs reward='outcome' and trace=1: only a whole "
                "question's return can be compared with its other searches'"
            )


PAPER = TrainConfig()
"""The paper's controller: its reward (eq. 9), one-step A2C (eq. 10 and 11), no entropy bonus.

N up to 64, the number of searches, one update per iteration, the cost as a share of N and the
action table are our choice. It collapsed to one action in every seed trained on a step bank."""

CATS = TrainConfig(
    cats=dataclasses.replace(search.CATS, price=0.2),
    learner=LearnerConfig(
        learning_rate=1e-3,
        normalize_advantages=True,
        clip=0.2,
        num_epochs=4,
        num_minibatches=4,
    ),
    actor_hidden=(64, 64),
    critic_hidden=(64, 64),
    reward="outcome",
    trace=1.0,
    terminal_weight=1.0,
    sample_costs=(0.005, 0.02, 0.06, 0.2, 0.6),
    entropy_weight=0.02,
    num_iterations=1500,
    num_episodes=128,
    rollouts=4,
)
"""Ours: is the answer right, and what did it cost, at five prices; PPO on Monte-Carlo returns
relative to other searches of the question, normalised, with an entropy bonus. Smaller networks
learn as well, several times faster."""

OFFLINE = dataclasses.replace(
    CATS,
    rollouts=1,
    learner=LearnerConfig(learning_rate=1e-3, normalize_advantages=True, regression=0.5),
    entropy_weight=0.0,
)
"""Ours on recorded decisions of other policies, see `make_offline`."""


def make_train(
    config: TrainConfig, expander: Expander, reset: Reset
) -> Callable[[jax.Array], TrainResult]:
    """`train(key) -> TrainResult`: pure, consumes the key; jit it, or vmap it over seeds.

    Args:
        config: static.
        expander: `capacity -> expand_fn`, such as `search.simulation.simulator`.
        reset: draws questions.
    """
    actor = make_actor(len(config.cats.actions), config.actor_hidden)
    critic = make_critic(config.critic_hidden)
    strategy = search.cats(make_policy(actor.apply, "sample"), config.cats)
    learner = make_learner(actor, critic, config.cats.actions, config.learner)
    plays = [
        (
            number,
            jnp.asarray(sizes, jnp.int32),
            make_episodes(
                strategy,
                expander,
                reset,
                num_actions=len(config.cats.actions),
                max_depth=config.max_depth,
                capacity=capacity,
                terminal_weight=config.terminal_weight,
                rollouts=config.rollouts,
            ),
        )
        for capacity, sizes, number in buckets(
            config.num_candidates, config.num_episodes // config.rollouts
        )
    ]
    all_prices = jnp.asarray(config.sample_costs, jnp.float32)
    asks_critic = 0.0 < config.trace < 1.0 or config.num_steps is not None

    def experience(state: LearnerState, episodes: Episode) -> search.Transition:
        """Rows to learn from. Time leads, as in Algorithm 1: in each step question by question."""
        if config.reward == "paper" and config.trace == 0.0:
            rows = jax.vmap(one_step)(episodes)
        else:
            decision = episodes.decision
            values = jnp.zeros(decision.valid.shape, jnp.float32)
            if asks_critic or config.trace == 0.0:
                flat = decision.features.reshape(-1, decision.features.shape[-1])
                marked = pack(decision.valid.reshape(-1))
                values = map_blocks(lambda block: critic.apply(state.critic, block), marked, flat)
                values = values.reshape(decision.valid.shape)
            returns = path_returns if config.reward == "paper" else question_returns
            rows = jax.vmap(
                lambda episode, values: returns(episode, values, config.trace, config.num_steps)
            )(episodes, values)
        ticks = episodes.candidates.shape[1]
        return jax.tree.map(
            lambda leaf: jnp.swapaxes(
                leaf.reshape((leaf.shape[0], ticks, -1, *leaf.shape[2:])), 0, 1
            ).reshape((-1, *leaf.shape[2:])),
            rows,
        )

    def iterate(
        state: LearnerState, inputs: tuple[jax.Array, jax.Array]
    ) -> tuple[LearnerState, Curves]:
        index, key = inputs
        update_key, *play_keys = jax.random.split(key, 1 + len(plays))
        rows, outcomes = [], []
        for (number, sizes, play), play_key in zip(plays, play_keys, strict=True):
            question_key, size_key, price_key = jax.random.split(play_key, 3)
            episodes, outcome = play(
                state.actor,
                jax.random.split(question_key, number),
                jax.random.choice(size_key, sizes, (number,)),
                jax.random.choice(price_key, all_prices, (number,)),
            )
            outcomes.append((outcome, episodes.price))
            if config.rollouts > 1:
                cost = episodes.price * outcome.candidates.astype(jnp.float32) / 100.0
                others = mean_of_others(episodes.bonus - cost, config.rollouts)
                episodes = episodes.replace(bonus=episodes.bonus - others)
            rows.append(experience(state, episodes))
        rows = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *rows)
        outcome, prices = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *outcomes)
        progress = index.astype(jnp.float32) / config.num_iterations
        entropy_weight = config.entropy_weight * (1.0 - progress)
        state, metrics = learner.update(state, rows, entropy_weight, update_key)

        counts = jnp.sum(outcome.action_counts, axis=0, dtype=jnp.int32)
        num_decisions = jnp.sum(counts, dtype=jnp.int32)
        per_decision = 1.0 / jnp.maximum(num_decisions, 1).astype(jnp.float32)
        return state, Curves(
            reward=_mean_reward(config, outcome, prices, per_decision),
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


def buckets(
    num_candidates: tuple[int, ...], num_episodes: int
) -> list[tuple[int, tuple[int, ...], int]]:
    """(rows of the pool, values of N, questions) of each batch of an iteration.

    The last bucket in use is only as large as its largest N. Questions are divided among the
    buckets as the values of N are, at least one each.
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


def _mean_reward(
    config: TrainConfig, outcome: Outcome, prices: jax.Array, per_decision: jax.Array
) -> jax.Array:
    if config.reward == "paper":
        return jnp.sum(outcome.reward) * per_decision
    worth = config.terminal_weight * outcome.correct.astype(jnp.float32)
    return jnp.mean(worth - prices * outcome.candidates.astype(jnp.float32) / 100.0)
