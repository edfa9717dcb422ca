"""Configurations of CATS searches, and the two named ones."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from ...aggregation import aggregation
from ...answers import answer_rule
from ...interface import Sampling, share_of_candidates
from .actions import ACTION_TABLES, ActionTable
from .features import COMPUTE_FEATURES, EXTRA_FEATURES, FEATURES
from .reward import RewardWeights


@dataclass(frozen=True)
class CatsConfig:
    """Configuration of a CATS search: all settings other than its policy.

    Attributes:
        rounds: R >= 1, most decisions of a node per step; 1 in Algorithms 1 and 2.
        num_base: children that each node gets before its first decision, >= 1 (at most N).
        base: sampling parameters of these children.
        score_base: whether the PRM is asked for these children. If not, a child stands for P(step
            right) by its likelihood under the policy, until its node asks for more; this needs
            `calibrated`, and a policy with log-probabilities.
        ask_below: with `score_base=False`, when the PRM is asked for the greedy base child: if its
            P(step right) is below this number, in [0, 1]. Otherwise the child is accepted. Both
            happen in a round before the R others and are no decisions: the policy decides for nodes
            with a scored child. None: there is no such round, and the policy decides for all nodes.
        least_weight: with `ask_below`, the weight of the score beside the likelihood in the PRM's
            calibration, slope / (|slope| + |likelihood|), below which a PRM is never asked for a
            base child; in [0, 1].
        charge: what the price is for: "candidates" (per 100) or "tokens" (per 1000 of the policy;
            those that the PRM reads cost `Context.prm_rate` times as much). The search does not
            read it, training does.
        factor: divisor of N that gives the width, K = max(1, N // factor).
        path_score: name of the aggregation of step scores.
        vote: answer rule, "best", "weighted" or "majority".
        reward: weights of the reward, and the discount.
        excluded_features: names of the features that are 0 for the policy.
        actions: action table.
        calibrated: whether ranking and features use P(step right) in place of raw scores, see
            `search.calibration`; `path_score` should then be "product".

    Raises:
        ValueError: a value is out of range, or a name is unknown.
    """

    rounds: int = 1
    num_base: int = 2
    base: Sampling = Sampling()
    score_base: bool = True
    ask_below: float | None = None
    least_weight: float = 0.5
    charge: str = "candidates"
    factor: int = 4
    path_score: str = "min"
    vote: str = "best"
    reward: RewardWeights = RewardWeights()
    excluded_features: tuple[str, ...] = EXTRA_FEATURES + COMPUTE_FEATURES
    actions: ActionTable = ACTION_TABLES["top-p"]
    calibrated: bool = False

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise ValueError(f"rounds must be >= 1, got {self.rounds}")
        if self.num_base < 1:
            raise ValueError(f"num_base must be >= 1, got {self.num_base}")
        if not self.score_base and not self.calibrated:
            raise ValueError(
                "score_base=False needs calibrated=True: a child without a score is compared by "
                "its P(step right)"
            )
        self._check_asking()
        if self.charge not in ("candidates", "tokens"):
            raise ValueError(f"charge must be 'candidates' or 'tokens', got {self.charge!r}")
        FEATURES.check(self.excluded_features)
        # They refuse what they do not know.
        answer_rule(self.vote)
        aggregation(self.path_score)
        share_of_candidates(self.factor)

    def _check_asking(self) -> None:
        if not 0.0 <= self.least_weight <= 1.0:
            raise ValueError(f"least_weight must be in [0, 1], got {self.least_weight}")
        if self.ask_below is None:
            return
        if not 0.0 <= self.ask_below <= 1.0:
            raise ValueError(f"ask_below must be in [0, 1], got {self.ask_below}")
        if self.score_base:
            raise ValueError(
                f"ask_below={self.ask_below} needs score_base=False: base children that have a "
                "score need not be asked for"
            )
        if self.base.temperature > 0.0:
            raise ValueError(
                f"ask_below={self.ask_below} needs greedy base children, whose copies are scored, "
                f"got a temperature of {self.base.temperature}"
            )

    @property
    def num_rounds(self) -> int:
        """Phases of a step after the base children: R, and the one in which the PRM is asked."""
        return self.rounds + (self.ask_below is not None)

    @property
    def sampling(self) -> tuple[Sampling, ...]:
        """All sampling parameters that a search with this configuration may request."""
        return tuple(dict.fromkeys((self.base, *self.actions.sampling_settings())))


PAPER = CatsConfig()
"""The method of the paper, with one decision per step (Algorithms 1 and 2).

The state is that of section 5.2, the reward that of equation 9 with the weights of section 6.1, and
gamma is .9 (`tab:gamma-ablation`).

Our choices, where the paper prints nothing: the action table, two base children sampled at
temperature 1, K = N // 4, and the minimum as path score. Finished paths compete for places, where
Algorithm 2 lets them in without limit. How the features of the state are written down, and the cost
as a share of N, are ours as well; see `features` and `reward`."""

CATS = CatsConfig(
    rounds=3,
    num_base=1,
    base=Sampling(temperature=0.0),
    vote="weighted",
    excluded_features=COMPUTE_FEATURES,
    actions=ACTION_TABLES["temperature"],
)
"""Our method, with up to three rounds per step and one greedy base child.

It has the extra features and the smallest action table: with 90 actions, most of a short training
is spent on finding out which of them are alike. Paths are ranked by raw scores; the slope and the
agreement of the PRM's calibration are features."""

CATS_TOKENS = CatsConfig(
    rounds=12,
    num_base=1,
    base=Sampling(temperature=0.0),
    charge="tokens",
    path_score="product",
    vote="weighted",
    excluded_features=(),
    actions=ACTION_TABLES["narrow"],
    calibrated=True,
)
"""`CATS` with a price for tokens and up to 12 rounds of at most 8 more children.

Paths are ranked by P(step right) from score and likelihood together, which needs a calibration by
likelihood. The likelihood of the children, and so how much of the policy's probability they cover,
is among the features."""

SELECTIVE = dataclasses.replace(
    CATS_TOKENS,
    rounds=CATS_TOKENS.rounds + 1,  # one to ask in
    score_base=False,
    actions=ACTION_TABLES["ask"],
)
"""`CATS_TOKENS` with the PRM as something to pay for.

The one greedy base child has no score. In up to 13 rounds a node accepts it, asks the PRM for it,
or samples up to 8 more, which are scored. Everything is compared as P(step right), from the score
and the likelihood under the policy, and the price is for tokens."""
