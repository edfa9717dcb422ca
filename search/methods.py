"""The search methods: a factory of each, and those with default settings by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from .cats import cats, constant_policy, random_policy
from .interface import Strategy
from .named_strategies import NamedStrategies
from .strategy.ab_mcts_a import ab_mcts_a as ab_mcts_a
from .strategy.certainty_votes import deepconf as deepconf
from .strategy.certainty_votes import self_certainty as self_certainty
from .strategy.compared_answers import gen_select as gen_select
from .strategy.compared_answers import pairwise_borda as pairwise_borda
from .strategy.compared_answers import (
    universal_self_consistency as universal_self_consistency,
)
from .strategy.deepconf_online import deepconf_online as deepconf_online
from .strategy.dora import dora as dora
from .strategy.dvts import dvts as dvts
from .strategy.early_stopping_consistency import (
    early_stopping_consistency as early_stopping_consistency,
)
from .strategy.ets import ets as ets
from .strategy.fixed import beam as beam
from .strategy.fixed import best_of_n as best_of_n
from .strategy.fixed import best_of_n_weighted as best_of_n_weighted
from .strategy.fixed import greedy as greedy
from .strategy.fixed import majority as majority
from .strategy.global_mcts import global_mcts as global_mcts
from .strategy.learned_stopping import learned_stopping as learned_stopping
from .strategy.litesearch import litesearch as litesearch
from .strategy.llama_berry import llama_berry as llama_berry
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
from .strategy.vg_search import vg_search as vg_search

FACTORIES: Mapping[str, Callable[..., Strategy]] = MappingProxyType(
    {
        each.__name__: each
        for each in (
            greedy,
            majority,
            best_of_n,
            best_of_n_weighted,
            beam,
            dvts,
            step_level_beam,
            vg_search,
            lookahead,
            particle_filtering,
            particle_gibbs,
            proportional_resampling,
            rebase,
            dora,
            ets,
            mcts,
            global_mcts,
            litesearch,
            mctsr,
            ab_mcts_a,
            llama_berry,
            speculative_rejection,
            sequential_halving,
            adaptive_consistency,
            early_stopping_consistency,
            self_certainty,
            deepconf,
            deepconf_online,
            gen_select,
            universal_self_consistency,
            pairwise_borda,
            sequential_best_of_n,
        )
    }
)
"""Name -> factory, of the strategies with default settings for all options."""

DEFAULTS: Mapping[str, Strategy] = MappingProxyType(
    NamedStrategies(
        {
            **{name: factory() for name, factory in FACTORIES.items()},
            "cats_random": cats(random_policy),
            "cats_constant": cats(constant_policy),
        },
        {
            "cats": "cats_jax.load_controller('cats'), or search.cats.cats(policy, config) with a "
            "policy",
            "cats_rule": "cats_jax.search_method('cats_rule', threshold=..., sample={...}), or "
            "search.cats.cats(search.cats.sample_while_below(feature))",
            "learned_stopping": "cats_jax.search_method('learned_stopping', checkpoint=...), or "
            "search.methods.learned_stopping(stopper) with a stopper",
        },
    )
)
"""Name -> strategy with default settings; the factories of the same names take options.

"cats", "cats_rule" and "learned_stopping" need parameters: their KeyError names the call. The
parameters of "cats_constant" are i32[], the number of its action."""
