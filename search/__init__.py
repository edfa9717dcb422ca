"""The pure functional core of compute-aware tree search: plan, expand, commit.

Fixed-shape pytrees, one question at a time; `jax.vmap` batches. Nothing here touches a language
model: `rollout` composes `plan` and `commit` with a simulator in the graph, the host driver of
`cats_jax` composes the same two around a real model.
"""

from collections.abc import Mapping as _Mapping
from importlib import import_module as _import_module
from types import MappingProxyType as _MappingProxyType
from typing import TYPE_CHECKING as _TYPE_CHECKING

from .aggregation import (
    AGGREGATIONS,
    Aggregation,
    aggregation,
    last,
    log_product,
    mean,
    minimum,
    path_keys,
    path_scores,
    product,
)
from .allocation import allocate
from .answers import (
    ANSWER_RULES,
    AnswerRule,
    answer_best,
    answer_majority,
    answer_rule,
    answer_weighted,
)
from .calibration import calibrated_score
from .check_expand import check_expand_fn
from .check_strategy import check_strategy
from .children import children_of
from .interface import (
    Sampling,
    Strategy,
    all_candidates,
    answer,
    keep_children,
    no_memory,
    one_path,
    path_length,
    request,
    same_for_all,
    share_of_candidates,
)
from .loop import (
    OUTPUTS,
    Environment,
    ExpandFn,
    Recorder,
    Task,
    Tick,
    play,
    rollout,
    tick,
    tick_keys,
)
from .ranking import prune, retain, segment_ranks
from .selection import best, majority_vote, weighted_vote
from .state import MAX_CANDIDATES, capacity_for, compact, count, init, is_terminal
from .step import commit, plan
from .strategy.cats.actions import ACTION_TABLES, MAX_ACTIONS, ActionTable, action_table
from .strategy.cats.config import CATS, PAPER, CatsConfig
from .strategy.cats.features import (
    CALIBRATION_FEATURES,
    EXTRA_FEATURES,
    FEATURE_NAMES,
    FEATURES,
    PAPER_FEATURES,
    SPARSITY_FEATURES,
    FeatureSet,
    extract,
)
from .strategy.cats.policies import (
    Policy,
    RuleParams,
    constant_policy,
    random_policy,
    sample_while_below,
)
from .strategy.cats.reward import RewardFn, RewardWeights, step_reward
from .strategy.cats.search import cats
from .strategy.cats.transitions import decision_recorder
from .strategy.cats.types import Action, Decision, DecisionRecord, Observation, Transition
from .strategy.dvts import dvts
from .strategy.fixed import beam, best_of_n, greedy, majority
from .strategy.mcts import mcts
from .strategy.particle_filtering import particle_filtering
from .types import Calibration, Context, Expansion, Paths, Plan, Request, SearchState, StepOutput

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

if _TYPE_CHECKING:
    from . import bank, simulation
else:

    def __getattr__(name: str) -> object:
        """`bank` and `simulation`: loaded when asked for."""
        if name in ("bank", "simulation"):
            return _import_module(f".{name}", __name__)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "ACTION_TABLES",
    "AGGREGATIONS",
    "ANSWER_RULES",
    "CALIBRATION_FEATURES",
    "CATS",
    "EXTRA_FEATURES",
    "FEATURES",
    "FEATURE_NAMES",
    "MAX_ACTIONS",
    "MAX_CANDIDATES",
    "OUTPUTS",
    "PAPER",
    "PAPER_FEATURES",
    "SPARSITY_FEATURES",
    "Action",
    "ActionTable",
    "Aggregation",
    "AnswerRule",
    "Calibration",
    "CatsConfig",
    "Context",
    "Decision",
    "DecisionRecord",
    "Environment",
    "ExpandFn",
    "Expansion",
    "FeatureSet",
    "Observation",
    "Paths",
    "Plan",
    "Policy",
    "Recorder",
    "Request",
    "RewardFn",
    "RewardWeights",
    "RuleParams",
    "Sampling",
    "SearchState",
    "StepOutput",
    "Strategy",
    "Task",
    "Tick",
    "Transition",
    "action_table",
    "aggregation",
    "all_candidates",
    "allocate",
    "answer",
    "answer_best",
    "answer_majority",
    "answer_rule",
    "answer_weighted",
    "bank",
    "beam",
    "best",
    "best_of_n",
    "calibrated_score",
    "capacity_for",
    "cats",
    "check_expand_fn",
    "check_strategy",
    "children_of",
    "commit",
    "compact",
    "constant_policy",
    "count",
    "decision_recorder",
    "dvts",
    "extract",
    "greedy",
    "init",
    "is_terminal",
    "keep_children",
    "last",
    "log_product",
    "majority",
    "majority_vote",
    "mcts",
    "mean",
    "minimum",
    "no_memory",
    "one_path",
    "particle_filtering",
    "path_keys",
    "path_length",
    "path_scores",
    "plan",
    "play",
    "product",
    "prune",
    "random_policy",
    "request",
    "retain",
    "rollout",
    "same_for_all",
    "sample_while_below",
    "segment_ranks",
    "share_of_candidates",
    "simulation",
    "step_reward",
    "strategies",
    "tick",
    "tick_keys",
    "weighted_vote",
]
