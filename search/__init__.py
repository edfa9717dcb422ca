"""The pure functional core of compute-aware tree search: plan, expand, commit.

Fixed-shape pytrees, one question at a time; `jax.vmap` batches. Nothing here calls a language
model: `rollout` composes `plan` and `commit` with a simulator in the graph; the host driver of
`cats_jax` composes them with a real model.
"""

__distribution__ = "cats-jax"

from collections.abc import Mapping as _Mapping
from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING

from . import aggregation as aggregation
from . import allocation as allocation
from . import calibration as calibration
from . import certainty as certainty
from . import children as children
from . import costs as costs
from . import ranking as ranking
from . import resampling as resampling
from . import selection as selection
from . import state as state
from .aggregation import AGGREGATIONS as AGGREGATIONS
from .aggregation import path_scores as path_scores
from .answers import ANSWER_RULES as ANSWER_RULES
from .answers import AnswerRule as AnswerRule
from .answers import answer_best as answer_best
from .answers import answer_majority as answer_majority
from .answers import answer_rule as answer_rule
from .answers import answer_weighted as answer_weighted
from .certainty import Certainty as Certainty
from .check_expand import check_expand_fn as check_expand_fn
from .check_strategy import check_strategy as check_strategy
from .children import children_of as children_of
from .children import padded_expansion as padded_expansion
from .interface import Sampling as Sampling
from .interface import Strategy as Strategy
from .interface import all_candidates as all_candidates
from .interface import answer as answer
from .interface import keep_children as keep_children
from .interface import no_memory as no_memory
from .interface import one_path as one_path
from .interface import path_length as path_length
from .interface import request as request
from .interface import same_for_all as same_for_all
from .interface import scoring_ends as scoring_ends
from .interface import share_of_candidates as share_of_candidates
from .loop import OUTPUTS as OUTPUTS
from .loop import Environment as Environment
from .loop import ExpandFn as ExpandFn
from .loop import Recorder as Recorder
from .loop import Task as Task
from .loop import Tick as Tick
from .loop import play as play
from .loop import rollout as rollout
from .loop import tick as tick
from .loop import tick_keys as tick_keys
from .named import NamedStrategies as _NamedStrategies
from .state import MAX_CANDIDATES as MAX_CANDIDATES
from .state import init as init
from .state import is_terminal as is_terminal
from .step import commit as commit
from .step import plan as plan
from .strategy.ab_mcts_a import ab_mcts_a as ab_mcts_a
from .strategy.cats.actions import ACTION_TABLES as ACTION_TABLES
from .strategy.cats.actions import ActionTable as ActionTable
from .strategy.cats.actions import action_table as action_table
from .strategy.cats.config import CATS as CATS
from .strategy.cats.config import CATS_TOKENS as CATS_TOKENS
from .strategy.cats.config import PAPER as PAPER
from .strategy.cats.config import SELECTIVE as SELECTIVE
from .strategy.cats.config import CatsConfig as CatsConfig
from .strategy.cats.features import FEATURE_NAMES as FEATURE_NAMES
from .strategy.cats.features import FEATURES as FEATURES
from .strategy.cats.features import FeatureSet as FeatureSet
from .strategy.cats.policies import Policy as Policy
from .strategy.cats.policies import RuleParams as RuleParams
from .strategy.cats.policies import constant_policy as constant_policy
from .strategy.cats.policies import random_policy as random_policy
from .strategy.cats.policies import sample_while_below as sample_while_below
from .strategy.cats.reward import RewardFn as RewardFn
from .strategy.cats.reward import RewardWeights as RewardWeights
from .strategy.cats.reward import step_reward as step_reward
from .strategy.cats.search import cats as cats
from .strategy.cats.transitions import decision_recorder as decision_recorder
from .strategy.cats.types import Action as Action
from .strategy.cats.types import Decision as Decision
from .strategy.cats.types import Observation as Observation
from .strategy.cats.types import Transition as Transition
from .strategy.certainty_votes import deepconf as deepconf
from .strategy.certainty_votes import self_certainty as self_certainty
from .strategy.deepconf_online import deepconf_online as deepconf_online
from .strategy.dvts import dvts as dvts
from .strategy.early_stopping_consistency import (
    early_stopping_consistency as early_stopping_consistency,
)
from .strategy.fixed import beam as beam
from .strategy.fixed import best_of_n as best_of_n
from .strategy.fixed import greedy as greedy
from .strategy.fixed import majority as majority
from .strategy.global_mcts import global_mcts as global_mcts
from .strategy.learned_stopping import MORE as MORE
from .strategy.learned_stopping import STOP as STOP
from .strategy.learned_stopping import answers_of as answers_of
from .strategy.learned_stopping import learned_stopping as learned_stopping
from .strategy.learned_stopping import network_stopper as network_stopper
from .strategy.litesearch import litesearch as litesearch
from .strategy.lookahead import lookahead as lookahead
from .strategy.mcts import mcts as mcts
from .strategy.mctsr import mctsr as mctsr
from .strategy.particle_filtering import particle_filtering as particle_filtering
from .strategy.particle_gibbs import particle_gibbs as particle_gibbs
from .strategy.path_by_path import adaptive_consistency as adaptive_consistency
from .strategy.path_by_path import sequential_best_of_n as sequential_best_of_n
from .strategy.proportional_resampling import proportional_resampling as proportional_resampling
from .strategy.rebase import rebase as rebase
from .strategy.sequential_halving import sequential_halving as sequential_halving
from .strategy.speculative_rejection import speculative_rejection as speculative_rejection
from .strategy.step_level_beam import step_level_beam as step_level_beam
from .strategy.stopping_features import STOPPING_FEATURES as STOPPING_FEATURES
from .strategy.stopping_features import Answers as Answers
from .strategy.stopping_features import answer_prefixes as answer_prefixes
from .strategy.stopping_features import stopping_features as stopping_features
from .strategy.vg_search import vg_search as vg_search
from .types import Calibration as Calibration
from .types import Context as Context
from .types import Expansion as Expansion
from .types import Paths as Paths
from .types import Plan as Plan
from .types import Request as Request
from .types import SearchState as SearchState
from .types import StepOutput as StepOutput

strategies: _Mapping[str, Strategy] = _NamedStrategies(
    {
        "greedy": greedy(),
        "majority": majority(),
        "best_of_n": best_of_n(),
        "best_of_n_weighted": best_of_n(vote="weighted"),
        "beam": beam(),
        "dvts": dvts(),
        "step_level_beam": step_level_beam(),
        "vg_search": vg_search(),
        "lookahead": lookahead(),
        "particle_filtering": particle_filtering(),
        "particle_gibbs": particle_gibbs(),
        "proportional_resampling": proportional_resampling(),
        "rebase": rebase(),
        "mcts": mcts(),
        "global_mcts": global_mcts(),
        "litesearch": litesearch(),
        "mctsr": mctsr(),
        "ab_mcts_a": ab_mcts_a(),
        "speculative_rejection": speculative_rejection(),
        "sequential_halving": sequential_halving(),
        "adaptive_consistency": adaptive_consistency(),
        "early_stopping_consistency": early_stopping_consistency(),
        "self_certainty": self_certainty(),
        "deepconf": deepconf(),
        "deepconf_online": deepconf_online(),
        "sequential_best_of_n": sequential_best_of_n(),
        "cats_random": cats(random_policy),
        "cats_constant": cats(constant_policy),
    },
    {
        "cats": "cats_jax.load_controller('cats'), or search.cats(policy, config) with a policy",
        "cats_rule": "cats_jax.search_method('cats_rule', threshold=..., sample={...}), or "
        "search.cats(search.sample_while_below(feature))",
        "learned_stopping": "cats_jax.search_method('learned_stopping', checkpoint=...), or "
        "search.learned_stopping(stopper) with a stopper",
    },
)
"""Name -> strategy with default settings; the factories of the same names take options. "cats",
"cats_rule" and "learned_stopping" need parameters: looking one up raises a KeyError that says what
to call."""

if _TYPE_CHECKING:
    from . import bank as bank
    from . import simulation as simulation
else:

    def __getattr__(name: str) -> object:
        """`bank` and `simulation`, loaded on first access."""
        if name in ("bank", "simulation"):
            return _import_module(f".{name}", __name__)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
