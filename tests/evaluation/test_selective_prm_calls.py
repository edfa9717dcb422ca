"""The shipped controller on the embedded models, asking the PRM for unlikely steps only."""

import pytest

from cats_jax.errors import BadInputError
from cats_jax.evaluation import evaluate
from cats_jax.evaluation.cells import grid
from cats_jax.models.source import ModelFolders
from cats_jax.runs.folder import read_run
from cats_jax.specs.recipe import parse_recipe

COUNT = 12


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """Rows by strategy, PRM and question."""
    shipped = {"name": "cats", "checkpoint": "cats-tokens", "price": 0.3}
    recipe = parse_recipe(
        {
            "name": "asking",
            "strategies": [
                "greedy",
                {**shipped, "label": "looking"},
                {**shipped, "label": "asking", "prm_threshold": 0.95},
            ],
            "num_candidates": [4],
            "prms": ["exact", "labels-only"],
            "calibration": "weak-likelihood",
            "questions": {"world": "validation", "count": COUNT},
            "policy": {"path": "weak", "max_step_tokens": 32, "max_answer_tokens": 64},
            "in_flight": 16,
            "trees": False,
        }
    )
    folder, models = tmp_path_factory.mktemp("runs") / "asking", ModelFolders()
    evaluate.evaluate(evaluate.prepare(recipe, models), models, folder)
    found = {}
    for row in read_run(folder).rows:
        found.setdefault((row.strategy, row.prm), {})[row.question] = row
    return found


def test_a_prm_that_cannot_rank_costs_nothing(rows):
    greedy, asking = rows["greedy", None], rows["asking", "labels-only"]
    assert len(asking) == COUNT
    for name, row in asking.items():
        assert (row.answer, _tokens(row)) == (greedy[name].answer, _tokens(greedy[name]))
    looked = sum(row.ledger.prm_computed for row in rows["looking", "labels-only"].values())
    assert looked > sum(map(_tokens, greedy.values()))


def test_a_prm_that_ranks_is_asked_for_fewer_steps(rows):
    looking, asking, greedy = (
        rows["looking", "exact"],
        rows["asking", "exact"],
        rows["greedy", None],
    )
    asked = [sum(row.ledger.prm_calls for row in found.values()) for found in (looking, asking)]
    assert 0 < asked[1] < asked[0]
    # A question whose steps are all likely is answered by greedy decoding.
    accepted = [name for name, row in asking.items() if row.ledger.prm_computed == 0]
    assert 0 < len(accepted) < COUNT
    assert all(_tokens(asking[name]) == _tokens(greedy[name]) for name in accepted)


def _tokens(row):
    return row.ledger.generated + row.ledger.prm_computed


_ASKING = {
    "name": "asking",
    "strategies": [{"name": "cats", "checkpoint": "cats-tokens", "label": "asking"}],
    "num_candidates": [4],
    "prms": ["exact"],
    "calibration": "weak-likelihood",
    "questions": {"world": "validation", "count": COUNT},
}


def test_a_chat_endpoint_reports_no_log_probabilities():
    document = _ASKING | {
        "policy": {"backend": "http://localhost:1", "chat": True, "served_name": "m"}
    }
    with pytest.raises(BadInputError, match=r"'asking' reads .* chat: true does not report"):
        grid(parse_recipe(document))


def test_a_recipe_without_log_probabilities_is_refused():
    document = _ASKING | {
        "policy": {"path": "weak", "backend": "http://localhost:1", "log_probs": False}
    }
    with pytest.raises(BadInputError, match="'asking' reads the policy's log-probabilities"):
        grid(parse_recipe(document))
    document["policy"]["log_probs"] = True
    assert len(grid(parse_recipe(document))) == 1
    document["policy"]["log_probs"] = False
    document["strategies"] = ["beam", "cats"]
    assert len(grid(parse_recipe(document))) == 2
    # A calibration may read what the strategy itself does not.
    document["strategies"] = [{"name": "beam", "calibrated": True}]
    with pytest.raises(BadInputError, match="'beam' reads the policy's log-probabilities"):
        grid(parse_recipe(document))
    document["calibration"] = "weak"
    assert len(grid(parse_recipe(document))) == 1
    # And a controller may see what its calibration does not read.
    document["strategies"] = [{"name": "cats", "checkpoint": "cats-tokens"}]
    with pytest.raises(BadInputError, match="'cats' reads the policy's log-probabilities"):
        grid(parse_recipe(document))
