"""Several run folders in one table."""

import re

import pytest
import scripted

from cats_jax import cli
from cats_jax.errors import BadInputError
from cats_jax.evaluation import evaluate
from cats_jax.reporting import groups as grouping
from cats_jax.runs import folder
from cats_jax.runs.merge import merge_runs
from cats_jax.specs.recipe import parse_recipe


@pytest.fixture
def run(tmp_path):
    def evaluated(name, count=4, **changes):
        content = {
            "name": name,
            "strategies": ["greedy"],
            "num_candidates": [4],
            "prms": ["good"],
            "questions": {"world": "test", "count": count},
            "max_depth": 4,
            "in_flight": 2,
        }
        recipe = parse_recipe({**content, **changes})
        models = scripted.ScriptedModels()
        evaluation = evaluate.prepare(recipe, models, scripted.question_set(count))
        return evaluate.evaluate(evaluation, models, tmp_path / name)[0]

    return evaluated


def test_runs_of_one_setting_are_one_table_with_pairs(run, capsys):
    one = run("one", strategies=["greedy", "best_of_n"])
    two = run("two", strategies=["majority"], num_candidates=[4, 8], trees=True)
    (merged,) = merge_runs([one, two])
    assert merged.rows == (*one.rows, *two.rows)
    assert one.manifest["config"]["name"] == "one"
    pairs = grouping.neighbour_pairs(grouping.groups(merged.rows))
    assert [(a.name, b.name) for a, b in pairs] == [("best_of_n N=4", "majority N=4")]
    compared = grouping.compare(*pairs[0])
    assert compared is not None
    assert compared.questions == 4
    folders = [str(one.folder), str(two.folder)]
    assert cli.run(["report", *folders, folders[0], "--paired"]) == 0
    output = capsys.readouterr().out
    assert output.count("one + two: 4 questions") == 1
    assert re.search(r"best_of_n N=4\W+majority N=4", output)
    assert not (one.folder / folder.SUMMARY).exists()  # it would tell of both


@pytest.mark.parametrize(
    "change", [{"max_depth": 3}, {"count": 3}, {"policy": {"path": "strong"}}, {"budget": 9}]
)
def test_runs_of_another_setting_stay_apart(run, change):
    one, two = run("one"), run("two", **change)
    assert merge_runs([one, two]) == [one, two]


def test_a_row_that_is_in_two_runs(run, capsys):
    one, two = run("one"), run("two")
    assert cli.run(["report", str(one.folder), str(two.folder)]) == 2
    error = capsys.readouterr().err
    assert "row 'greedy|1|-|0|q" in error
    assert error.count("\n") == 1


def test_a_label_for_two_things(run):
    one = run("one", strategies=[{"name": "beam", "label": "b"}])
    two = run("two", strategies=[{"name": "best_of_n", "label": "b"}], num_candidates=[8])
    with pytest.raises(BadInputError, match=r"strategy 'b' is one thing in .*one' and another in"):
        merge_runs([one, two])
    three = run("three", strategies=["best_of_n"], prms=[{"path": "bad", "label": "good"}])
    with pytest.raises(BadInputError, match=r"PRM 'good' is one thing"):
        merge_runs([one, three])
