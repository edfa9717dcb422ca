"""Options that make no sense are refused: the message names the option, its value and the rule."""

import math

import jax.numpy as jnp
import numpy as np
import pytest

import search
from search.interface import check_count, check_flag

# name of a method, its options, the message
METHODS = [
    ("particle_gibbs", {"num_iterations": 0}, "num_iterations must be an integer >= 1, got 0"),
    ("particle_gibbs", {"weight_temperature": 0.0}, "weight_temperature must be > 0"),
    ("ab_mcts_a", {"dist_type": "t"}, "dist_type must be one of gaussian, beta"),
    ("ab_mcts_a", {"batch_size": 0}, "batch_size must be an integer >= 1, got 0"),
    ("adaptive_consistency", {"confidence": 0.5}, r"confidence must be in \(0\.5, 1\)"),
    ("adaptive_consistency", {"confidence": 1.0}, r"confidence must be in \(0\.5, 1\)"),
    ("adaptive_consistency", {"confidence": math.nan}, r"confidence must be in \(0\.5, 1\)"),
    ("beam", {"expansion": 0}, "expansion must be an integer >= 1, got 0"),
    ("best_of_n", {"vote": "loudest"}, "unknown answer rule 'loudest'"),
    ("deepconf", {"top_share": 0.0}, r"top_share must be in \(0, 1\], got 0.0"),
    ("deepconf", {"window": 0}, "window must be an integer >= 1, got 0"),
    ("deepconf_online", {"warmup_traces": 0}, "warmup_traces must be an integer >= 1, got 0"),
    ("deepconf_online", {"confidence_percentile": 100.0}, r"must be in \[0, 100\), got 100.0"),
    ("dora", {"rebase_temperature": 0.0}, "rebase_temperature must be > 0, got 0.0"),
    ("dora", {"balance_alpha": -1.0}, "balance_alpha must be > 0, got -1.0"),
    ("dvts", {"path_score": "median"}, "unknown aggregation 'median': choose one of min, last"),
    ("early_stopping_consistency", {"window": 0}, "window must be an integer >= 1, got 0"),
    ("ets", {"softmax_temperature": 0.0}, "softmax_temperature must be > 0, got 0.0"),
    ("ets", {"lambdac": -1.0}, "lambdac must be a number from 0 to 10000, got -1.0"),
    ("ets", {"lambdas": math.inf}, "lambdas must be a number from 0 to 10000, got inf"),
    ("ets", {"cluster_distance": 3.0}, r"cluster_distance must be in \[0, 2\]"),
    ("gen_select", {"window_size": 1}, "window_size must be an integer >= 2, got 1"),
    ("gen_select", {"window_size": True}, "window_size must be an integer >= 2"),
    ("gen_select", {"judge_temperature": -1.0}, "judge_temperature must be a number"),
    ("gen_select", {"judge_temperature": math.nan}, "judge_temperature must be a number"),
    ("gen_select", {"judge": "me"}, "unknown judge 'me': choose one of policy, prm"),
    ("global_mcts", {"exploration": -1.0}, r"exploration must be .* from 0 to 1e\+30, got -1.0"),
    ("global_mcts", {"exploration": math.nan}, "exploration must be a number .*, got nan"),
    ("global_mcts", {"branching": 0}, "branching must be an integer >= 1, got 0"),
    ("global_mcts", {"max_nodes": 1}, "max_nodes must be an integer >= 2, got 1"),
    ("global_mcts", {"max_nodes": 1 << 20}, "max_nodes must be at most 16384, got 1048576"),
    ("litesearch", {"expected": 1.0}, r"expected must be in \(0, 1\), got 1.0"),
    ("litesearch", {"min_value": math.nan}, "min_value must be a path score >= 0, got nan"),
    ("litesearch", {"max_budget": 0}, "max_budget must be an integer >= 1, got 0"),
    ("litesearch", {"end_leaf_num": 0}, "end_leaf_num must be an integer >= 1, got 0"),
    ("litesearch", {"limit": True}, "limit must be an integer >= 1, got True"),
    ("litesearch", {"limit": 1639}, r"limit \* max_budget = 1639 \* 10 .* 16384: lower limit"),
    ("litesearch", {"path_score": "x"}, "unknown aggregation 'x'"),
    ("llama_berry", {"exploration": math.inf}, r"from 0 to 1e\+30, got inf"),
    ("llama_berry", {"max_child": 0}, "max_child must be an integer >= 1, got 0"),
    ("llama_berry", {"alpha": 1.5}, "alpha must be a number from 0 to 1, got 1.5"),
    ("llama_berry", {"gamma": math.nan}, "gamma must be a number from 0 to 1, got nan"),
    ("llama_berry", {"rewriting": ""}, "rewriting must be a name or a .yaml file, got ''"),
    ("llama_berry", {"comparison": ""}, "comparison must be a name or a .yaml file, got ''"),
    ("lookahead", {"lookahead": -1}, "lookahead must be an integer >= 0, got -1"),
    ("lookahead", {"expansion": 0}, "expansion must be an integer >= 1, got 0"),
    ("lookahead", {"vote": "x"}, "unknown answer rule 'x'"),
    ("mcts", {"exploration": math.nan}, "exploration must be a number from 0"),
    ("mcts", {"max_nodes": 1 << 20}, "max_nodes must be at most 16384"),
    ("mctsr", {"exploration": -1.0}, r"must be a number from 0 to 1e\+30, got -1.0"),
    ("mctsr", {"exploration": math.inf}, r"must be a number from 0 to 1e\+30, got inf"),
    ("mctsr", {"max_expand": 1 << 31}, r"max_expand must be below 2\*\*31, got 2147483648"),
    ("mctsr", {"max_expand": 0}, "max_expand must be an integer >= 1, got 0"),
    ("mctsr", {"full_score": math.nan}, "full_score must be a reward >= -100"),
    ("mctsr", {"rewriting": ""}, "rewriting must be a name or a .yaml file, got ''"),
    ("pairwise_borda", {"comparison": ""}, "must be a name or a .yaml file, got ''"),
    ("particle_filtering", {"weight_temperature": 0.0}, "weight_temperature must be"),
    ("particle_filtering", {"resampling": "x"}, "unknown resampling 'x': choose one of"),
    ("particle_filtering", {"vote": "x"}, "unknown answer rule 'x'"),
    ("particle_filtering", {"tempering": "x"}, "'x': choose one of none, ess, entropy, base"),
    ("particle_filtering", {"weight_source": "x"}, "'x': choose one of prm, confidence"),
    ("particle_filtering", {"ess_threshold": 0.0}, r"must be in \(0, 1\], got 0.0"),
    ("particle_filtering", {"early_phase": 1.5}, r"early_phase must be in \(0, 1\], got 1.5"),
    ("rebase", {"balance": 0.0}, "balance must be > 0"),
    ("self_certainty", {"power": -1.0}, "power must be a number >= 0, got -1.0"),
    ("sequential_best_of_n", {"stop": -0.1}, "stop must be a path score >= 0"),
    ("sequential_best_of_n", {"abort": -1.0}, "abort must be a path score >= 0"),
    ("sequential_best_of_n", {"stop": math.nan}, "stop must be a path score >= 0"),
    ("sequential_halving", {"vote": "x"}, "unknown answer rule 'x'"),
    ("speculative_rejection", {"rejection": 1.0}, r"rejection must be in \[0, 1\), got 1.0"),
    ("speculative_rejection", {"memory_tokens": -1}, "must be an integer >= 0, got -1"),
    ("speculative_rejection", {"memory_tokens": 1 << 32}, r"below 2\*\*31, got 4294967296"),
    ("step_level_beam", {"n_generate_sample": 0}, "n_generate_sample must be an int"),
    ("vg_search", {"granularity": 0}, "granularity must be an integer >= 1, got 0"),
    ("vg_search", {"expansion": 0}, "expansion must be an integer >= 1, got 0"),
]


@pytest.mark.parametrize(("name", "options", "message"), METHODS)
def test_a_bad_option_of_a_method_is_named(name, options, message):
    with pytest.raises(ValueError, match=message):
        getattr(search.methods, name)(**options)


def _untyped(kind, **values):
    """A value as it is made where no type checker is installed, as it is for the tests."""
    made = kind()
    for name, value in values.items():
        object.__setattr__(made, name, value)
    made.__post_init__()
    return made


Certainty, CatsConfig, Comparison = (
    search.certainty.Certainty,
    search.cats.CatsConfig,
    search.comparison.Comparison,
)
Sampling = search.Sampling
OTHERS = [
    (lambda: check_flag("unique", 0), "unique must be true or false, got 0"),
    (lambda: check_flag("unique", "no"), "unique must be true or false, got 'no'"),
    (lambda: check_count("expansion", 1.5, 1), "expansion must be an integer >= 1, got 1.5"),
    (lambda: check_count("expansion", True, 1), "expansion must be an integer >= 1, got True"),
    (lambda: Certainty("top", "most"), "unknown summary 'most': choose one of mean"),
    (lambda: Certainty("logits"), "unknown token 'logits': choose one of top, all"),
    (lambda: Comparison(rule="duel"), "unknown rule 'duel': choose one of tournament"),
    (lambda: Comparison(scores=True), "scores need the rule 'borda', got 'tournament'"),
    (lambda: CatsConfig(rounds=0), "rounds must be an integer >= 1, got 0"),
    (lambda: CatsConfig(rounds=True), "rounds must be an integer >= 1, got True"),
    (lambda: CatsConfig(num_base=0), "num_base must be an integer >= 1, got 0"),
    (lambda: CatsConfig(score_base=False), "score_base=False needs calibrated=True"),
    (lambda: CatsConfig(cost_unit="steps"), "must be 'candidates' or 'tokens', got 'steps'"),
    (lambda: CatsConfig(expansion=0), "expansion must be an integer >= 1, got 0"),
    (lambda: CatsConfig(vote="loudest"), "unknown answer rule 'loudest'"),
    (lambda: CatsConfig(path_score="median"), "unknown aggregation 'median'"),
    (lambda: CatsConfig(excluded_features=("sparsity",)), "unknown features"),
    (lambda: _untyped(CatsConfig, calibrated=1), "calibrated must be true or false, got 1"),
    (lambda: search.cats.RewardWeights(discount=1.5), r"discount must be in \[0, 1\], got 1.5"),
    (lambda: Sampling(temperature=-1.0), "must be a finite number >= 0, got -1.0"),
    (lambda: Sampling(temperature=math.nan), "must be a finite number >= 0, got nan"),
    (lambda: Sampling(temperature=math.inf), "must be a finite number >= 0, got inf"),
    (lambda: Sampling(top_p=0.0), r"top_p must be in \(0, 1\], got 0.0"),
    (lambda: Sampling(top_k=-1), "top_k must be >= 0 .*got -1"),
    (lambda: _untyped(Sampling, top_k=1.5), "top_k must be a whole number, got 1.5"),
    (lambda: _untyped(Sampling, top_k=True), "top_k must be a whole number, got True"),
    (lambda: _untyped(Sampling, temperature=True), "temperature must be a number, got True"),
    (lambda: _untyped(Sampling, top_p="0.5"), "top_p must be a number, got '0.5'"),
]


@pytest.mark.parametrize(("build", "message"), OTHERS)
def test_a_bad_setting_is_named(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_sampling_takes_scalars_of_numpy_and_jax():
    values = {"temperature": np.float32(0.5), "top_p": jnp.bfloat16(1), "top_k": np.int32(3)}
    given = _untyped(search.Sampling, **values)
    assert (given.temperature, given.top_p, given.top_k) == (0.5, 1, 3)


def test_a_count_may_be_a_number_of_numpy():
    check_count("expansion", np.int64(2), 1)
