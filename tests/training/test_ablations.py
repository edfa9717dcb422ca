"""`cats-jax ablations`: what a study leaves, that it goes on where it stopped, what it refuses."""

import dataclasses
import json

import jax
import numpy as np
import pytest
import yaml
from scipy import stats

from cats_jax.controllers import checkpoint
from cats_jax.errors import BadInputError
from cats_jax.reporting.statistics import mean_of_seeds
from cats_jax.storage import durable
from cats_jax.training import ablations
from cats_jax.training.ablations import Result, run
from cats_jax.training.questions import simulator_questions

TABLES = """
first:
  narrow: {config: cats, set: [actor_hidden=4, SHARED]}
  wide: {config: cats, set: ["actor_hidden=8,8", SHARED]}
second:
  no rounds: {config: cats, set: [actor_hidden=4, cats.rounds=1, SHARED]}
""".replace(
    "SHARED",
    "critic_hidden=4, num_episodes=2, searches_per_question=2, num_iterations=2, num_candidates=4, "
    "learner.algorithm.num_epochs=1, learner.algorithm.num_minibatches=1",
)


@pytest.fixture
def study(tmp_path, monkeypatch):
    """Keyword arguments of a small study on the simulator."""
    file = tmp_path / "tables.yaml"
    file.write_text(TABLES)
    monkeypatch.setattr(ablations, "bank_questions", lambda *_, **__: simulator_questions())
    monkeypatch.setattr(ablations, "_QUESTIONS", 8)
    folder = tmp_path / "bank"
    return {
        "output": tmp_path / "out",
        "bank": folder,
        "test": folder,
        "calibration": "none",
        "file": file,
        "num_seeds": 2,
        "report": lambda line: None,
    }


@pytest.mark.slow
def test_a_row_is_trained_and_played(study, monkeypatch):
    monkeypatch.setattr(ablations, "SIZES", (4,))
    folder = study["output"] / "second" / "no-rounds"
    stale = folder / "seed-1" / "checkpoint.json"  # of a training that was killed
    stale.parent.mkdir(parents=True)
    stale.write_text("{}")
    (row,) = run(["second"], **study)["second"]
    assert row.label == "no rounds"
    assert row.accuracy.shape == row.candidates.shape == (2, 1)
    assert np.all(row.candidates >= 1)
    assert len(row.collapsed) == len(row.entropy) == 2
    for index, collapsed in enumerate(row.collapsed):
        info = checkpoint.load(folder / f"seed-{index}").info
        assert (info["index"], info["collapsed"]) == (index, collapsed)


@pytest.fixture
def trained(study, monkeypatch):
    """Labels of the rows that were trained; a row's result is made from its configuration."""
    labels = []

    def train_and_play(label, config, questions, info, folder):
        with pytest.raises(BadInputError, match="is in use by another process"):
            durable.hold(study["output"])
        labels.append(label)
        folder.mkdir(parents=True, exist_ok=True)
        figures = np.full((2, 2), sum(config.actor_hidden) / 24)  # 1/6, 2/3
        return Result(label, figures, 10 * figures, (False, True), (1 / 3, 1 / 7))

    monkeypatch.setattr(ablations, "_train_and_play", train_and_play)
    return labels


def test_a_study_goes_on_where_it_stopped(study, trained):
    whole = run(["first"], **study)
    assert trained == [result.label for result in whole["first"]] == ["narrow", "wide"]
    (study["output"] / "first" / "wide" / "result.json").unlink()
    again = run(None, **study)
    assert trained[2:] == ["wide", "no rounds"]
    assert list(again) == ["first", "second"]
    for one, two in zip(whole["first"], again["first"], strict=True):
        np.testing.assert_equal(dataclasses.asdict(one), dataclasses.asdict(two))


def test_other_settings_are_not_mixed_in(study, trained, monkeypatch):
    run(["second"], **study)
    with pytest.raises(BadInputError, match=r"no-rounds.* holds a row of other settings"):
        run(["second"], **{**study, "seed": 1})
    with pytest.raises(BadInputError, match="holds a row of other settings"):
        run(["second"], **study, num_iterations=3)
    run(["second"], **study)
    known = simulator_questions()
    tables = jax.tree.map(np.zeros_like, known.held_out)
    for change in (
        {"info": {"questions": ["one more"]}},
        {"held_out_texts": ("of another question with the same id",)},
        {"held_out": tables},  # a bank that was collected with another seed
    ):
        other = dataclasses.replace(known, **change)
        monkeypatch.setattr(ablations, "bank_questions", lambda *_, found=other, **__: found)
        with pytest.raises(BadInputError, match="holds a row of other settings"):
            run(["second"], **study)
    file = study["output"] / "second" / "no-rounds" / "result.json"
    document = json.loads(file.read_text())
    del document["made_of"]["tables"]  # a row of an earlier version
    file.write_text(json.dumps(document))
    run(["second"], **study)
    assert trained == ["no rounds"]


@pytest.mark.parametrize(
    ("tables", "change", "message"),
    [
        (["frist"], {}, "no table 'frist': did you mean 'first'"),
        (None, {"num_seeds": 1}, "num_seeds=1: an interval needs at least 2"),
        (None, {"calibration": None}, "there is no --calibration"),
    ],
)
def test_refused_before_anything_is_trained(study, tables, change, message):
    with pytest.raises(BadInputError, match=message):
        run(tables, **{**study, **change})
    assert not study["output"].exists()


@pytest.mark.parametrize("labels", [("γ=0.9", "λ=0.9"), ("a b", "a-b"), ("α",), ("..",)])
def test_rows_of_one_folder_are_refused(tmp_path, labels):
    file = tmp_path / "ablations.yaml"
    file.write_text(yaml.safe_dump({"first": {label: {} for label in labels}}))
    with pytest.raises(BadInputError, match="table 'first': its rows have folders"):
        ablations.load_ablations(file)


def test_the_value_charges_the_price():
    result = Result(
        label="row",
        accuracy=np.array([[0.5, 0.7], [0.6, 0.6]]),
        candidates=np.array([[10.0, 30.0], [0.0, 100.0]]),
        collapsed=(False, True),
        entropy=(1.0, 0.0),
    )
    value = result.value()
    # By hand: (.48 + .64) / 2 and (.6 + .4) / 2.
    assert value.value == pytest.approx((0.56 + 0.5) / 2)
    assert "1 of 2 collapsed" in result.line()
    assert json.dumps(result.line())


def test_the_interval_over_seeds_is_students():
    values = [0.53, 0.55, 0.52, 0.54, 0.50]
    interval = mean_of_seeds(values)
    other = stats.ttest_1samp(values, 0.0).confidence_interval(0.95)
    assert (interval.low, interval.high) == pytest.approx((other.low, other.high))
    with pytest.raises(ValueError, match="1 seeds: an interval needs at least two"):
        mean_of_seeds([0.5])


def test_the_first_four_tables_have_the_papers_rows(shared):
    """Against the paper's tables themselves, row by row and in their order."""
    paper = yaml.safe_load(shared("paper/tables.yaml").read_text())
    tables = ablations.load_ablations()

    def found(table, *values):
        return [[float(value(row.configuration())) for value in values] for row in tables[table]]

    def printed(table):
        return [[float(value) for value in row[:-1]] for row in paper[table]["rows"]]

    assert found(
        "reward",
        lambda config: config.cats.reward.cost,
        lambda config: config.cats.reward.margin,
        lambda config: config.cats.reward.score,
    ) == printed("ablation_reward")
    assert found("discount", lambda config: config.cats.reward.discount) == printed(
        "ablation_discount"
    )
    assert found(
        "networks",
        lambda config: len(config.actor_hidden),
        lambda config: config.actor_hidden[0],
        lambda config: len(config.critic_hidden),
        lambda config: config.critic_hidden[0],
    ) == printed("ablation_networks")
    for row in tables["networks"]:
        for hidden in (row.configuration().actor_hidden, row.configuration().critic_hidden):
            assert len(set(hidden)) == 1
    seen, unseen = (set(row.configuration().cats.excluded_features) for row in tables["sparsity"])
    assert unseen - seen == {"sparsity_total", "sparsity_last_layer"}
    assert seen < unseen
