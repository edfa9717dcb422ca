"""Configurations of training runs."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field

import search

from .batch_step import AWR
from .learner import LearnerConfig
from .ppo import PPO


@dataclass(frozen=True)
class TrainConfig:
    """Configuration of a training run: all settings other than its environment.

    Attributes:
        cats: configuration of the trained search; "paper" uses its reward and discount.
        learner: configuration of the update.
        actor_hidden: widths of the actor's hidden layers.
        critic_hidden: widths of the critic's hidden layers.
        reward: "paper": reward of a decision from the scores of its children; the return is along
            the paths below it, see `learners.path_returns`. "outcome": terminal_weight * correct
            - price * cost of the whole question, see `search.cats.CatsConfig.cost_unit`; the return
            of a decision counts the cost from its tick on, see `learners.question_returns`.
            "outcome" also learns from decisions without surviving children.
        gae_lambda: lambda of the truncated lambda-returns, in [0, 1]: 0 is one-step TD as in the
            paper, 1 Monte Carlo. A return minus the critic's value is the generalised advantage
            estimate (GAE) of Schulman et al. 2016.
        num_steps: most rewards in a return; None: all to the end. With gae_lambda 1: n-step return.
        terminal_weight: reward of a right final answer; "paper" adds it at discount 0.
        prices: prices of a unit of cost (100 candidates or 1000 tokens), in units of a right
            answer. Each question draws one of them uniformly, and the policy sees it. For "outcome"
            only; the paper's reward has its own cost.
        prm_token_costs: cost of a PRM token relative to a policy token; drawn and seen like the
            prices. For `cats.cost_unit="tokens"` only.
        default_price: default price of searches with the trained controller.
        entropy_weight: weight of the entropy bonus in the first iteration; falls linearly to 0.
        num_candidates: values of N, drawn uniformly for every question.
        max_depth: upper bound of the `max_depth` of the environment's questions.
        num_iterations: number of iterations, each of searches and one update.
        num_episodes: searches per iteration, but at least one question for each pool size that the
            values of N need, see `learners.update_fns.BUCKETS`.
        searches_per_question: a divisor of num_episodes. With more than one, the mean return of the
            question's other searches is subtracted from a return, see
            `learners.returns.mean_of_others`. For Monte-Carlo returns of "outcome" only.

    Raises:
        ValueError: a value is out of range, or has no effect together with the other values.
    """

    cats: search.cats.CatsConfig = search.cats.PAPER
    learner: LearnerConfig = field(default_factory=LearnerConfig)
    actor_hidden: tuple[int, ...] = (128, 128)
    critic_hidden: tuple[int, ...] = (256, 256)
    reward: str = "paper"
    gae_lambda: float = 0.0
    num_steps: int | None = None
    terminal_weight: float = 0.0
    prices: tuple[float, ...] = (0.0,)
    prm_token_costs: tuple[float, ...] = (1.0,)
    default_price: float = 0.0
    entropy_weight: float = 0.0
    num_candidates: tuple[int, ...] = (4, 8, 16, 32, 64)
    max_depth: int = 12
    num_iterations: int = 1000
    num_episodes: int = 32
    searches_per_question: int = 1

    def __post_init__(self) -> None:
        self._check_returns()
        self._check_reward()
        self._check_sizes()

    def _check_returns(self) -> None:
        if not 0.0 <= self.gae_lambda <= 1.0:
            raise ValueError(f"gae_lambda must be in [0, 1], got {self.gae_lambda}")
        if self.num_steps is not None and (self.num_steps < 1 or self.gae_lambda == 0.0):
            raise ValueError(
                f"num_steps={self.num_steps} must be >= 1 and needs a gae_lambda > 0: a "
                "gae_lambda of 0 is one step already; 1 gives the n-step return"
            )

    def _check_reward(self) -> None:
        if self.reward not in ("paper", "outcome"):
            raise ValueError(f"reward must be 'paper' or 'outcome', got {self.reward!r}")
        for name in ("terminal_weight", "entropy_weight", "default_price"):
            if not 0.0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} must be a number >= 0, got {getattr(self, name)}")
        for name in ("prices", "prm_token_costs"):
            values = getattr(self, name)
            if not values or not all(0.0 <= value < math.inf for value in values):
                raise ValueError(f"{name} must be numbers >= 0, got {values}")
        if self.prm_token_costs != (1.0,) and self.cats.cost_unit != "tokens":
            raise ValueError(
                "prm_token_costs needs cats.cost_unit='tokens': candidates have no PRM tokens"
            )
        if self.reward == "paper" and any(self.prices):
            raise ValueError("prices needs reward='outcome'; 'paper' has cats.reward.cost")
        if self.terminal_weight > 0.0 and self.reward == "paper" and not self.cats.reward.discount:
            raise ValueError(
                "terminal_weight needs cats.reward.discount > 0 with reward='paper': with a "
                "discount of 0 a path that goes on looks like one that ends"
            )
        if self.reward == "outcome" and self.terminal_weight == 0.0:
            raise ValueError(
                "reward='outcome' needs a terminal_weight: without it, not to sample is always best"
            )

    def _check_sizes(self) -> None:
        for value in self.num_candidates:
            search.interface.check_count("num_candidates", value, 1)
        most = search.state.MAX_CANDIDATES
        if not self.num_candidates or max(self.num_candidates) > most:
            raise ValueError(f"num_candidates must be in 1..{most}, got {self.num_candidates}")
        for name in ("actor_hidden", "critic_hidden"):
            for width in getattr(self, name):
                search.interface.check_count(name, width, 1)
        for name in ("max_depth", "num_iterations", "num_episodes", "searches_per_question"):
            search.interface.check_count(name, getattr(self, name), 1)
        several = f"searches_per_question={self.searches_per_question}"
        if self.num_episodes % self.searches_per_question:
            raise ValueError(f"{several} must divide num_episodes={self.num_episodes}")
        returns = (self.reward, self.gae_lambda, self.num_steps)
        if self.searches_per_question > 1 and returns != ("outcome", 1.0, None):
            raise ValueError(
                f"{several} needs reward='outcome' and gae_lambda=1, without num_steps: only a "
                "whole question's return can be compared with its other searches'"
            )


PAPER = TrainConfig()
"""The controller of the paper, with its reward (eq. 9) and one-step A2C (eq. 10 and 11).

There is no entropy bonus. N up to 64, the number of searches, one update per iteration, the cost as
a share of N and the action table are our choice. On step banks it collapsed in every seed."""

CATS = TrainConfig(
    cats=search.cats.CATS,
    learner=LearnerConfig(
        PPO(clip=0.2, num_epochs=4, num_minibatches=4, normalize_advantages=True),
        learning_rate=1e-3,
    ),
    actor_hidden=(64, 64),
    critic_hidden=(64, 64),
    reward="outcome",
    gae_lambda=1.0,
    terminal_weight=1.0,
    prices=(0.005, 0.02, 0.06, 0.2, 0.6),
    default_price=0.2,
    entropy_weight=0.02,
    num_iterations=1500,
    num_episodes=128,
    searches_per_question=4,
)
"""Our controller: PPO on Monte-Carlo returns relative to other searches of the question.

The reward is the correctness of the answer minus the cost, at five prices. The small networks learn
as well as those of the paper, several times faster."""

CATS_TOKENS = dataclasses.replace(
    CATS,
    cats=search.cats.CATS_TOKENS,
    learner=dataclasses.replace(CATS.learner, anneal=True),
    prices=(0.0, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0),
    default_price=0.1,
    num_candidates=(16, 64),
)
"""Our controller with prices per 1000 tokens, and a learning rate that falls to 0."""

SELECTIVE = dataclasses.replace(CATS_TOKENS, cats=search.cats.SELECTIVE, prm_token_costs=(1.0, 4.0))
"""A controller that decides when to call the PRM, at prices per 1000 tokens."""

CLONE = dataclasses.replace(
    CATS_TOKENS,
    searches_per_question=1,
    learner=LearnerConfig(AWR(temperature=math.inf), learning_rate=1e-3, anneal=True),
    entropy_weight=0.0,
)
"""A controller with prices per 1000 tokens that imitates recorded decisions, see `make_offline`.

It can initialise a training with `CATS_TOKENS`."""

OFFLINE = dataclasses.replace(
    CATS,
    searches_per_question=1,
    learner=LearnerConfig(AWR(temperature=0.5, normalize_advantages=True), learning_rate=1e-3),
    entropy_weight=0.0,
)
"""Our controller, trained on recorded decisions of other policies, see `make_offline`."""
