"""Configurations of CATS searches, and the named ones."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from ..aggregations import aggregation
from ..answers import answer_rule
from ..interface import Sampling, check_count, check_flag, share_of_candidates
from .actions import ACTION_TABLES, ActionTable
from .features import COMPUTE_FEATURES, EXTRA_FEATURES, FEATURES
from .reward import RewardWeights


@dataclass(frozen=True)
class CatsConfig:
    """Configuration of a CATS search: all settings other than its controller.

    Attributes:
        rounds: R >= 1, largest number of decisions of a node per step; 1 in Algorithms 1 and 2.
        num_base: children that each node gets before its first decision, >= 1; N if that is less.
        base: sampling parameters of these children.
        score_base: whether the PRM scores these children. If not, the likelihood of a child under
            the policy gives its P(step right), until its node requests more children. This needs
            `calibrated`, and a policy with log-probabilities.
        prm_threshold: with `score_base=False`, the threshold on P(step right), in [0, 1]. Below it,
            the PRM scores the greedy base child; otherwise the child is accepted. Both happen in an
            additional round. The controller decides only for nodes with a scored child. None: no
            such round; the controller decides for all nodes.
        min_prm_weight: with `prm_threshold`, the weight of the score, in [0, 1], below which a PRM
            never scores a base child. The weight is slope / (|slope| + |likelihood|).
        cost_unit: unit of the price: "candidates" (per 100) or "tokens" (per 1000 policy tokens; a
            PRM token costs `Context.prm_token_cost` policy tokens). Only training reads it.
        expansion: divisor of N that gives the width, K = max(1, N // expansion).
        path_score: name of the aggregation of step scores.
        vote: answer rule, "best", "weighted" or "majority".
        reward: weights of the reward, and the discount.
        excluded_features: names of the features that are 0 for the controller.
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
    prm_threshold: float | None = None
    min_prm_weight: float = 0.5
    cost_unit: str = "candidates"
    expansion: int = 4
    path_score: str = "min"
    vote: str = "best"
    reward: RewardWeights = RewardWeights()
    excluded_features: tuple[str, ...] = EXTRA_FEATURES + COMPUTE_FEATURES
    actions: ActionTable = ACTION_TABLES["top-p"]
    calibrated: bool = False

    def __post_init__(self) -> None:
        check_count("rounds", self.rounds, 1)
        check_count("num_base", self.num_base, 1)
        check_flag("score_base", self.score_base)
        check_flag("calibrated", self.calibrated)
        if not self.score_base and not self.calibrated:
            raise ValueError(
                "score_base=False needs calibrated=True: a child without a score is compared by "
                "its P(step right)"
            )
        self._check_selective_calls()
        if self.cost_unit not in ("candidates", "tokens"):
            raise ValueError(f"cost_unit must be 'candidates' or 'tokens', got {self.cost_unit!r}")
        FEATURES.check(self.excluded_features)
        # These raise ValueError for unknown names.
        answer_rule(self.vote)
        aggregation(self.path_score)
        share_of_candidates(self.expansion)

    def _check_selective_calls(self) -> None:
        if not 0.0 <= self.min_prm_weight <= 1.0:
            raise ValueError(f"min_prm_weight must be in [0, 1], got {self.min_prm_weight}")
        if self.prm_threshold is None:
            return
        if not 0.0 <= self.prm_threshold <= 1.0:
            raise ValueError(f"prm_threshold must be in [0, 1], got {self.prm_threshold}")
        if self.score_base:
            raise ValueError(
                f"prm_threshold={self.prm_threshold} needs score_base=False: base children that "
                "have a score need not be asked for"
            )
        if self.base.temperature > 0.0:
            raise ValueError(
                f"prm_threshold={self.prm_threshold} needs greedy base children, whose copies are "
                f"scored, got a temperature of {self.base.temperature}"
            )

    @property
    def num_rounds(self) -> int:
        """Phases of a step after the base children: R, and one more with `prm_threshold`."""
        return self.rounds + (self.prm_threshold is not None)

    @property
    def sampling(self) -> tuple[Sampling, ...]:
        """All sampling parameters that a search with this configuration may request."""
        return tuple(dict.fromkeys((self.base, *self.actions.sampling_settings())))


PAPER = CatsConfig()
"""The method of the paper, with one decision per step (Algorithms 1 and 2).

The state is that of section 5.2, and the reward is that of equation 9 with the weights of section
6.1. Gamma is .9 (`tab:gamma-ablation`).

The paper does not state the action table, the two base children at temperature 1, K = N // 4, the
minimum as path score, the encoding of the features and the cost as a share of N: these are our
choices. Finished paths compete for places here; Algorithm 2 accepts them without limit."""

CATS = CatsConfig(
    rounds=3,
    num_base=1,
    base=Sampling(temperature=0.0),
    vote="weighted",
    excluded_features=COMPUTE_FEATURES,
    actions=ACTION_TABLES["temperature"],
)
"""Our method, with up to three rounds per step and one greedy base child.

It has the extra features and 30 actions: with 90, a short training mostly learns which are alike.
Raw scores rank paths."""

CATS_TOKENS = CatsConfig(
    rounds=12,
    num_base=1,
    base=Sampling(temperature=0.0),
    cost_unit="tokens",
    path_score="product",
    vote="weighted",
    excluded_features=(),
    actions=ACTION_TABLES["narrow"],
    calibrated=True,
)
"""`CATS` with a price for tokens and up to 12 rounds of at most 8 more children.

P(step right), from score and likelihood together, ranks paths. This needs a calibration by
likelihood. The compute features are included."""

SELECTIVE = dataclasses.replace(
    CATS_TOKENS,
    rounds=CATS_TOKENS.rounds + 1,  # one more for a PRM call
    score_base=False,
    actions=ACTION_TABLES["ask"],
)
"""`CATS_TOKENS` in which the controller also decides on PRM calls.

The one greedy base child has no score. In each of up to 13 rounds, the controller accepts the
child, requests its score, or requests up to 8 more children, which are scored."""
