"""The pure functional core of compute-aware tree search: plan, expand, commit.

Fixed-shape pytrees, one question at a time; `jax.vmap` batches. Nothing here touches a language
model: `rollout` composes `plan` and `commit` with a simulator in the graph, the host driver of
`cats_jax` composes the same two around a real model.
"""

from collections.abc import Mapping as _Mapping
from types import MappingProxyType as _MappingProxyType

from .actions import ACTION_TABLES as ACTION_TABLES
from .actions import MAX_ACTIONS as MAX_ACTIONS
from .actions import ActionTable as ActionTable
from .actions import action_table as action_table
from .aggregation import AGGREGATIONS as AGGREGATIONS
from .aggregation import Aggregation as Aggregation
from .aggregation import aggregation as aggregation
from .aggregation import last as last
from .aggregation import log_product as log_product
from .aggregation import mean as mean
from .aggregation import minimum as minimum
from .aggregation import path_keys as path_keys
from .aggregation import path_scores as path_scores
from .aggregation import product as product
from .allocation import allocate as allocate
from .calibration import IDENTITY_CALIBRATION as IDENTITY_CALIBRATION
from .calibration import calibrated_score as calibrated_score
from .features import CALIBRATION_FEATURES as CALIBRATION_FEATURES
from .features import EXTRA_FEATURES as EXTRA_FEATURES
from .features import FEATURE_NAMES as FEATURE_NAMES
from .features import PAPER_FEATURES as PAPER_FEATURES
from .features import SPARSITY_FEATURES as SPARSITY_FEATURES
from .features import extract as extract
from .ranking import prune as prune
from .ranking import retain as retain
from .ranking import segment_ranks as segment_ranks
from .reward import RewardWeights as RewardWeights
from .reward import step_reward as step_reward
from .rollout import ExpandFn as ExpandFn
from .rollout import rollout as rollout
from .rollout import tick as tick
from .rollout import tick_keys as tick_keys
from .selection import best as best
from .selection import majority_vote as majority_vote
from .selection import weighted_vote as weighted_vote
from .state import MAX_CANDIDATES as MAX_CANDIDATES
from .state import compact as compact
from .state import init as init
from .state import is_terminal as is_terminal
from .step import commit as commit
from .step import plan as plan
from .strategy.base import Sampling as Sampling
from .strategy.base import Strategy as Strategy
from .strategy.cats import CATS as CATS
from .strategy.cats import PAPER as PAPER
from .strategy.cats import CatsConfig as CatsConfig
from .strategy.cats import cats as cats
from .strategy.cats import constant_policy as constant_policy
from .strategy.cats import random_policy as random_policy
from .strategy.dvts import dvts as dvts
from .strategy.fixed import beam as beam
from .strategy.fixed import best_of_n as best_of_n
from .strategy.fixed import greedy as greedy
from .strategy.fixed import majority as majority
from .strategy.mcts import mcts as mcts
from .strategy.particle_filtering import particle_filtering as particle_filtering
from .strategy.rules import RuleParams as RuleParams
from .strategy.rules import sample_while_below as sample_while_below
from .types import PRM_FEATURES as PRM_FEATURES
from .types import Action as Action
from .types import Decision as Decision
from .types import Expansion as Expansion
from .types import Paths as Paths
from .types import Plan as Plan
from .types import Request as Request
from .types import SearchState as SearchState
from .types import StepOutput as StepOutput
from .types import Transition as Transition

strategies: _Mapping[str, Strategy] = _MappingProxyType(
    {
        "greedy": greedy(),
        "majority": majority(),
        "best_of_n": best_of_n(),
        "best_of_n_weighted": best_of_n(vote="weighted"),
        "beam": beam(),
        "dvts": dvts(),
        "particle_filtering": particle_filtering(),
        "mcts": mcts(),
        "cats_random": cats(random_policy),
        "cats_constant": cats(constant_policy),
    }
)
"""Name -> strategy with default settings; the factories of the same names take options. A CATS
search with a learned policy is `cats(policy, config)`: it needs the policy's parameters."""

__all__ = [
    "ACTION_TABLES",
    "AGGREGATIONS",
    "CALIBRATION_FEATURES",
    "CATS",
    "EXTRA_FEATURES",
    "FEATURE_NAMES",
    "IDENTITY_CALIBRATION",
    "MAX_ACTIONS",
    "MAX_CANDIDATES",
    "PAPER",
    "PAPER_FEATURES",
    "PRM_FEATURES",
    "SPARSITY_FEATURES",
    "Action",
    "ActionTable",
    "Aggregation",
    "CatsConfig",
    "Decision",
    "ExpandFn",
    "Expansion",
    "Paths",
    "Plan",
    "Request",
    "RewardWeights",
    "RuleParams",
    "Sampling",
    "SearchState",
    "StepOutput",
    "Strategy",
    "Transition",
    "action_table",
    "aggregation",
    "allocate",
    "beam",
    "best",
    "best_of_n",
    "calibrated_score",
    "cats",
    "commit",
    "compact",
    "constant_policy",
    "dvts",
    "extract",
    "greedy",
    "init",
    "is_terminal",
    "last",
    "log_product",
    "majority",
    "majority_vote",
    "mcts",
    "mean",
    "minimum",
    "particle_filtering",
    "path_keys",
    "path_scores",
    "plan",
    "product",
    "prune",
    "random_policy",
    "retain",
    "rollout",
    "sample_while_below",
    "segment_ranks",
    "step_reward",
    "strategies",
    "tick",
    "tick_keys",
    "weighted_vote",
]
