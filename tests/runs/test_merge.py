"""Several run folders in one table."""

import dataclasses
import functools
import json
import pathlib
import re

import made_runs
import pytest
import scripted
from hypothesis import given
from hypothesis import strategies as st

from cats_jax import cli
from cats_jax.errors import BadInputError
from cats_jax.evaluation import evaluate
from cats_jax.reporting import groups as grouping
from cats_jax.runs import folder
from cats_jax.runs.folder import RunFolder, RunWriter, read_run
from cats_jax.runs.merge import check_labels, merge_runs
from cats_jax.specs.recipe import parse_recipe


@pytest.fixture
def run(tmp_path):
    def evaluated(name, count=4, searched=True, **changes):
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
        if searched:
            return evaluate.evaluate(evaluation, models, tmp_path / name)[0]
        with RunWriter(tmp_path / name, evaluation.manifest) as writer:
            writer.add(made_runs.row("greedy", 1, None), None)
        return read_run(tmp_path / name)

    return evaluated


def test_runs_of_one_setting_are_one_table_with_pairs(run, capsys):
    one = run("one", strategies=["greedy", "best_of_n"])
    two = run("two", strategies=["majority"], num_candidates=[2, 4], trees=True)
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
    one, two = run("one", searched=False), run("two", searched=False, **change)
    assert merge_runs([one, two]) == [one, two]


def test_rows_that_runs_share_count_once(run, capsys):
    one = run("one", strategies=["greedy", "best_of_n"], trees=False)
    two = run("two", strategies=["best_of_n", "majority"], trees=True)
    (merged,) = merge_runs([one, two])
    assert {row.key for row in merged.rows} == {row.key for row in (*one.rows, *two.rows)}
    assert len(merged.rows) == len(one.rows) + len(two.rows) - 4
    # A shared row has the tree that one of the runs wrote.
    for row in merged.rows:
        assert (row.tree is None) == (row.strategy == "greedy")
        if row.tree is not None:
            assert merged.tree(row).question.id == row.question
    assert cli.run(["report", str(one.folder), str(two.folder)]) == 0
    assert "best_of_n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"answer": "2"}, "has answer '1' in .*one' and '2' in .*two'"),
        ({"answer": None, "correct": False}, "has answer '1' in .*one' and None in .*two'"),
        ({"tokens": 41}, "has generated 40 in .*one' and 41 in .*two'"),
        ({"correct": False}, "has correct True in .*one' and False in .*two'"),
    ],
)
def test_rows_that_contradict_one_another(tmp_path, capsys, change, message):
    one, two = (
        made_runs.write_run(tmp_path / name, [made_runs.row(**values)], name=name)
        for name, values in (("one", {}), ("two", change))
    )
    assert cli.run(["report", str(one.folder), str(two.folder)]) == 2
    error = capsys.readouterr().err
    assert re.search(r"row 'beam\|4\|good\|0\|q0' " + message, error)
    assert error.count("\n") == 1


_ROWS = [made_runs.row(n=n, question=f"q{index}") for index in range(5) for n in (4, 8)]
_NUMBERS = st.sets(st.integers(0, len(_ROWS) - 1))


@given(_NUMBERS, _NUMBERS)
def test_a_run_and_a_part_of_it_are_the_run(first, second):
    rows, whole = _ROWS, RunFolder(pathlib.Path("whole"), made_runs.manifest(), tuple(_ROWS))
    parts = [
        dataclasses.replace(
            whole, folder=pathlib.Path(name), rows=tuple(rows[i] for i in sorted(of))
        )
        for name, of in (("first", first), ("second", second))
    ]
    (merged,) = merge_runs([whole, *parts])
    assert merged.rows == whole.rows
    assert merged.manifest == whole.manifest
    assert not merged.tree_folders
    (other_way,) = merge_runs([*parts, whole])
    assert sorted(row.key for row in other_way.rows) == sorted(row.key for row in rows)


def test_a_replay_of_a_step_bank_is_no_search(run):
    searched = run("searched", searched=False)
    models = searched.manifest["models"]
    replays = [
        dataclasses.replace(searched, manifest={**searched.manifest, "models": {**models, **bank}})
        for bank in ({"bank": {"config": "a"}}, {"bank": {"config": "b"}})
    ]
    assert len(merge_runs([searched, *replays, searched])) == 3


def test_a_label_for_two_things(run):
    run = functools.partial(run, searched=False)
    one = run("one", strategies=[{"name": "beam", "label": "b"}])
    two = run("two", strategies=[{"name": "best_of_n", "label": "b"}])
    with pytest.raises(BadInputError, match=r"strategy 'b' is one thing in .*one' and another in"):
        merge_runs([one, two])
    three = run("three", strategies=["best_of_n"], prms=[{"path": "bad", "label": "good"}])
    with pytest.raises(BadInputError, match=r"PRM 'good' is one thing"):
        merge_runs([one, three])


# What a certificate reads


def manifests(*changes, **config):
    """Runs of one question each, with entries of their manifests."""
    for i, change in enumerate(changes):
        named = made_runs.manifest(name=f"run{i}", strategies=[("beam", f"beam {i}")], **config)
        manifest = {**named, **change}
        yield RunFolder(pathlib.Path(f"run{i}"), manifest, (made_runs.row(n=2**i),))


def test_a_merged_run_has_the_premises_of_all():
    policy, good, bad = ({"max_model_len": None, "files": {"tokenizer.json": of}} for of in "pgb")
    one = {
        "asked": {"policy": policy, "prm good": good},
        "texts": ["a", "b", "c"],
        "spent": {"fitted_on": ["a", "z"], "chosen_on": []},
        "fitted_on": 1,
        "chosen_on": 0,
        "revisions": None,
    }
    two = {
        "asked": {"policy": policy, "prm bad": bad},
        "texts": ["a", "b", "c"],
        "spent": {"fitted_on": ["b"], "chosen_on": ["c"]},
        "fitted_on": 1,
        "chosen_on": 1,
        "revisions": {"beam": 2},
        "until_certified": {"target": 0.5, "delta": 0.05},
    }
    for changes in ((one, two), (two, one)):
        (merged,) = merge_runs(list(manifests(*changes)))
        manifest = merged.manifest
        assert manifest["asked"] == {"policy": policy, "prm good": good, "prm bad": bad}
        assert manifest["texts"] == ["a", "b", "c"]
        assert manifest["spent"] == {"fitted_on": ["a", "b", "z"], "chosen_on": ["c"]}
        # Two of the three questions, of which each run knows one.
        assert (manifest["fitted_on"], manifest["chosen_on"]) == (2, 1)
        assert manifest["until_certified"] == two["until_certified"]
        # The runs differ in the rule of the method.
        assert manifest["revisions"] == {}
    (merged,) = merge_runs(list(manifests(two, two)))
    assert merged.manifest["revisions"] == {"beam": 2}


def test_an_entry_that_did_not_exist_is_one_without_a_value():
    old = {"name": "beam", "label": "beam", "options": []}
    runs = [_of_strategy(each) for each in (old, {**old, "certified": None})]
    check_labels(runs)
    with pytest.raises(BadInputError, match="strategy 'beam' is one thing in"):
        check_labels([runs[0], _of_strategy({**old, "certified": {"file": "c"}})])


def _of_strategy(entry):
    manifest = {"config": {"strategies": [entry], "prms": []}, "models": {}}
    return RunFolder(pathlib.Path("run"), manifest, ())


def test_a_merged_run_vouches_for_nothing_that_a_run_does_not_say():
    policy = {"max_model_len": None, "files": {"tokenizer.json": "p"}}
    said = {"asked": {"policy": policy, "questions file": {"file": "1"}}}
    for other in ({}, {"asked": {"policy": policy, "questions file": {"file": "2"}}}):
        (merged,) = merge_runs(list(manifests(said, other)))
        assert merged.manifest["asked"] is None
    (merged,) = merge_runs(list(manifests(said, said)))
    assert merged.manifest["asked"] == said["asked"]
    one, two = ({"contents": {"gsm8k": digest}} for digest in "ab")
    for other, contents in ((one, {"gsm8k": "a"}), (two, None)):
        (merged,) = merge_runs(list(manifests(one, other)))
        assert merged.manifest["contents"] == contents
    changed = {"asked": {"policy": {"max_model_len": None, "files": {"tokenizer.json": "q"}}}}
    with pytest.raises(BadInputError, match="the policy is asked in one way in 'run0' and in ano"):
        merge_runs(list(manifests(said, changed)))


def test_a_certificate_of_merged_runs(run, capsys):
    one, two = run("one", strategies=["greedy"]), run("two", strategies=["majority"])
    folders = [str(one.folder), str(two.folder)]
    output = one.folder.parent / "out"
    options = ["--target", "0.05", "--delta", "0.9", "--output", str(output)]
    code = cli.run(["certify", *folders, *options])
    assert code in (0, 1)
    certificate = json.loads((output / "certificate.json").read_text())
    assert [each["strategy"] for each in certificate["configurations"]] == ["greedy", "majority"]
    assert certificate["asked"] == one.manifest["asked"] == two.manifest["asked"]
    assert certificate["spent"]["chosen_on"] == sorted(one.manifest["texts"])
    three = run("three", searched=False, max_depth=3)
    assert cli.run(["certify", folders[0], str(three.folder), *options]) == 2
    assert "differ in policy, questions or limits" in capsys.readouterr().err
