"""The rate of PRM tokens as an option of a strategy."""

import dataclasses
import math
import re

import chex
import pytest
from untrained import untrained

import learners
import search
from cats_jax.controllers import checkpoint
from cats_jax.controllers.strategies import _cats_config, build_strategy, revisions_of
from cats_jax.errors import BadInputError
from cats_jax.evaluation.cells import grid
from cats_jax.specs.recipe import parse_recipe, parse_strategy

CONFIG = dataclasses.replace(
    learners.SELECTIVE, prm_token_costs=(2.0, 8.0), actor_hidden=(4,), critic_hidden=(4,)
)


@pytest.fixture(scope="module")
def selective(tmp_path_factory):
    path = tmp_path_factory.mktemp("controllers") / "selective"
    return checkpoint.save(path, untrained(CONFIG), CONFIG)


def method(**options):
    return build_strategy(parse_strategy({"name": "cats", **options}))


def test_a_controller_has_the_first_rate_it_was_trained_with_unless_told_otherwise(selective):
    usual = method(checkpoint=str(selective))
    assert (usual.prm_token_cost, usual.price) == (2.0, CONFIG.default_price)
    assert usual.strategy.config == CONFIG.cats
    assert usual.strategy.needs_log_probs
    other = method(checkpoint=str(selective), prm_token_cost=0, price=0.5)
    assert (other.prm_token_cost, other.price) == (0.0, 0.5)
    assert other.strategy == usual.strategy
    (cell,) = grid(
        parse_recipe(
            {
                "name": "t",
                "prms": ["exact"],
                "strategies": [{"name": "cats", "checkpoint": str(selective), "prm_token_cost": 3}],
                "num_candidates": [4],
                "calibration": "none",
                "questions": {"world": "validation", "count": 1},
            }
        )
    )
    assert (cell.prm_token_cost, cell.price) == (3.0, CONFIG.default_price)


@pytest.mark.parametrize("rate", [-0.5, math.nan, math.inf, True, "4"])
def test_a_rate_that_is_none_is_refused(selective, rate):
    with pytest.raises(BadInputError, match=r"prm_token_cost=.*must be a number >= 0, the cost of"):
        method(checkpoint=str(selective), prm_token_cost=rate)


def test_a_controller_with_a_price_of_candidates_has_no_rate():
    assert method().prm_token_cost == 1.0
    with pytest.raises(
        BadInputError, match=r"prm_token_cost=2.0: this controller was trained with a"
    ):
        method(prm_token_cost=2.0)


def test_hand_made_policies_take_the_selective_configuration():
    action = {"num_extra": 1, "temperature": 0.0}
    found = build_strategy(
        parse_strategy({"name": "cats_constant", "config": "selective", "action": action})
    )
    assert found.strategy.config == search.cats.SELECTIVE
    assert search.cats.SELECTIVE.actions.rows[int(found.params)][:3] == (1, 1, 0.0)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (
            {},
            "'mine' needs the options threshold and sample: add them to its entry in a recipe, or",
        ),
        ({"threshold": 0.5}, "strategy 'mine' needs the option sample: add"),
        ({"name": "cats_constant"}, "strategy 'mine' needs the option action: add"),
        ({"threshold": 0.5, "sample": 8}, "action 8: must be a mapping, such as {num_extra: 8}"),
        ({"threshold": 0.5, "sample": [8]}, "action (8,): must be a mapping, such as"),
    ],
)
def test_missing_and_broken_options_are_named(entry, message):
    with pytest.raises(BadInputError, match=re.escape(message)) as caught:
        build_strategy(parse_strategy({"name": "cats_rule", "label": "mine"} | entry))
    assert "keyword-only" not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"expansion": "2"}, "strategy 'beam': expansion='2': must be a whole number"),
        ({"expansion": None}, "strategy 'beam': expansion=None: must be a whole number"),
        ({"sampling": {"temprature": 0.5}}, "unknown key 'temprature': did you mean 'temperature'"),
        ({"sampling": 0.5}, "sampling=0.5: must be a mapping, such as {temperature: 0.5}"),
        ({"sampling": [0.5]}, "sampling=(0.5,): must be a mapping"),
        ({"sampling": {"temperature": "0.5"}}, "temperature must be a number, got '0.5'"),
        ({"sampling": {"temperature": True}}, "temperature must be a number, got True"),
        ({"sampling": {"top_k": 1.5}}, "sampling: top_k must be a whole number, got 1.5"),
        ({"sampling": {"top_p": 2.0}}, "sampling: top_p must be in (0, 1], got 2.0"),
        ({"name": "sequential_best_of_n", "stop": "a"}, "stop='a': must be a number"),
        ({"beam_width": 2.0}, "beam_width=2.0: K must be a whole number, at least 1"),
        (
            {"name": "cats_constant", "action": {"num_extra": 7}},
            "top_k among its values (num_extra 0, 1, 2, 4, 8; num_retain 1, 2, 4; ",
        ),
        ({"name": "cats_random", "rounds": "2"}, "rounds='2': must be a whole number"),
    ],
)
def test_a_broken_value_is_named_with_what_it_must_be(entry, message):
    with pytest.raises(BadInputError, match=re.escape(message)) as caught:
        build_strategy(parse_strategy({"name": "beam"} | entry))
    assert "\n" not in str(caught.value)


RULE = {"name": "cats_rule", "threshold": 0.5, "sample": {"num_extra": 2}, "config": "tokens"}
SHIPPED = {"name": "cats", "checkpoint": "cats-tokens", "price": 0.3}
ASKING = {"prm_threshold": 0.8, "min_prm_weight": 0.4}


@pytest.mark.parametrize("spec", [RULE, SHIPPED], ids=["rule", "controller"])
def test_selective_prm_calls_change_what_the_prm_scores_and_nothing_else(spec):
    plain = build_strategy(parse_strategy(spec))
    asking = build_strategy(parse_strategy(spec | ASKING))
    before, after = plain.strategy.config, asking.strategy.config
    assert after == dataclasses.replace(before, score_base=False, **ASKING)
    chex.assert_trees_all_equal(asking.params, plain.params)
    assert (asking.price, asking.prm_token_cost) == (plain.price, plain.prm_token_cost)
    # An equal object spares a compilation.
    assert asking.strategy == build_strategy(parse_strategy(spec | ASKING)).strategy


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"config": "cats"}, "prm_threshold=0.8, min_prm_weight=0.4: only with config: tokens"),
        (
            {"config": "selective"},
            "prm_threshold=0.8, min_prm_weight=0.4: only with config: tokens",
        ),
        ({"prm_threshold": "0.8"}, "prm_threshold='0.8': must be a number"),
        (
            {"prm_threshold": 1.5},
            r"strategy 'cats_rule': prm_threshold must be in \[0, 1\], got 1.5",
        ),
        ({"min_prm_weight": -1}, "min_prm_weight=-1: must be a number"),
        ({"prm_threshold": None}, "min_prm_weight=0.4 has no effect without prm_threshold: add it"),
    ],
)
def test_a_rule_that_could_not_ask_is_refused(changes, message):
    with pytest.raises(BadInputError, match=message):
        build_strategy(parse_strategy(RULE | ASKING | changes))


@pytest.mark.parametrize(
    ("config", "feature", "having"),
    [
        ("cats", "likelihood_best", "tokens or selective"),
        ("paper", "round", "cats or tokens or selective"),
        ("paper", "max", None),
        ("tokens", "likelihood_best", None),
    ],
)
def test_a_rule_on_a_feature_that_is_always_0_is_refused(config, feature, having):
    assert (feature in _cats_config(config, {}).excluded_features) == (having is not None)
    spec = parse_strategy(RULE | {"config": config, "feature": feature})
    if having is None:
        build_strategy(spec)
        return
    with pytest.raises(BadInputError, match=f"sets this feature to 0: take config: {having}, or"):
        build_strategy(spec)


@pytest.mark.parametrize(
    ("entries", "replayed", "expected"),
    [
        (["beam", "sequential_best_of_n", "particle_gibbs"], False, None),
        (["lookahead", "early_stopping_consistency"], False,
         {"lookahead": 2, "early_stopping_consistency": 2}),
        (["mcts", "litesearch", "global_mcts"], True,
         {"mcts": 4, "litesearch": 2, "global_mcts": 5}),
        ([{"name": "majority", "beam_width": 2}, {"name": "greedy", "beam_width": 1},
          {"name": "beam", "beam_width": 2}, "vg_search", {"name": "lookahead", "lookahead": 1}],
         True, {"majority": 2, "vg_search": 2, "lookahead": 2}),
        (["sequential_best_of_n", "early_stopping_consistency", "beam"], True,
         {"sequential_best_of_n": 2, "early_stopping_consistency": 3}),
        ([{"name": "sequential_best_of_n", "abort": 0.1}, "sequential_best_of_n"], False,
         {"sequential_best_of_n": 2}),
        ([{"name": "particle_filtering", "resampling": "residual"}], False,
         {"particle_filtering": 3}),
        ([{"name": name, "path_score": "product"} for name in ("best_of_n", "dora", "cats_random")],
         False, {"dora": 2, "cats_random": 2}),
        ([{"name": "best_of_n", "path_score": "product", "vote": "weighted"},
          {"name": "proportional_resampling", "path_score": "product", "vote": "best"}], False,
         {"best_of_n": 2, "proportional_resampling": 3}),
        ([{"name": "step_level_beam", "beam_width": 3}, RULE | {"config": "tokens"},
          {"name": "global_mcts", "max_nodes": 4}], False,
         {"step_level_beam": 2, "cats_rule": 2, "global_mcts": 3}),
    ],
)  # fmt: skip
def test_a_revision_is_of_the_rule_that_a_run_uses(entries, replayed, expected):
    """What a run did before a change that does not concern it can be continued."""
    assert revisions_of([*map(parse_strategy, entries)], replayed=replayed) == expected


def test_a_revision_sees_the_path_score_of_a_prm():
    """It is a default: an option of the strategy goes first."""
    entries = ["dora", {"name": "ets", "path_score": "last"}, "beam", "global_mcts", "majority"]
    specs = [*map(parse_strategy, entries)]
    assert revisions_of(specs, ["min"]) == {"global_mcts": 2}
    assert revisions_of(specs, [None, "product"]) == {"dora": 2, "global_mcts": 2}
    assert revisions_of([parse_strategy(RULE)], ["product"]) == {"cats_rule": 2}
