"""Frontiers, mixtures and the choice by predicted difficulty, against plain Python."""

import csv
import itertools
import json
import pathlib
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_runs import row, write_run

from cats_jax import cli
from cats_jax.reporting.frontier import difficulty
from cats_jax.reporting.frontier.comparison import even_budgets
from cats_jax.reporting.frontier.difficulty import choices_by_difficulty
from cats_jax.reporting.frontier.mixtures import Mixture, at_budget, frontier_of
from cats_jax.reporting.groups import Point, groups


@dataclass(frozen=True)
class Made(Point):
    """A point whose columns are given."""

    label: str
    columns: dict

    @property
    def name(self):
        return self.label

    @property
    def key(self):
        return self.label, 4, None

    def _column(self, value):
        return {str(index): each for index, each in enumerate(self.columns[value])}


def made(accuracy, cost, name="point"):
    return Made(name, {"correct": [accuracy], "tokens": [cost]})


points = st.lists(
    st.tuples(st.integers(0, 8).map(lambda n: n / 8), st.integers(1, 20)), min_size=1, max_size=7
)


@given(points, st.integers(1, 24))
def test_no_mixture_of_two_points_is_better_than_the_frontiers(pairs, budget):
    mixture = at_budget(frontier_of([made(*pair) for pair in pairs], "tokens"), budget, "tokens")
    # A mixture costs at most the budget, and the best one of two points uses it up.
    best = [accuracy for accuracy, cost in pairs if cost <= budget]
    for (low, cheap), (high, dear) in itertools.product(pairs, pairs):
        if cheap <= budget < dear:
            share = (budget - cheap) / (dear - cheap)
            best.append(low + share * (high - low))
    if not best:
        assert mixture is None
        return
    assert mixture is not None
    assert mixture.mean("correct") == pytest.approx(max(best))
    assert mixture.mean("tokens") <= budget + 1e-9


def test_means_that_differ_by_rounding_are_equal():
    """In float64 (.1 + .2) / 2 > .3 / 2, and .1 lies above the line from 0 to .3."""
    cheap = Made("cheap", {"correct": [0.3, 0.0], "tokens": [1, 1]})
    dear = Made("dear", {"correct": [0.1, 0.2], "tokens": [9, 9]})
    assert frontier_of([cheap, dear], "tokens") == [cheap]
    ends = [made(0.0, 1), made(0.3, 4)]
    assert frontier_of([*ends, made(0.1, 2), made(0.2, 3)], "tokens") == ends


@given(points)
def test_a_frontier_rises_and_bends_down(pairs):
    hull = frontier_of([made(*pair) for pair in pairs], "tokens")
    places = [(point.mean("tokens"), point.mean("correct")) for point in hull]
    slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in itertools.pairwise(places)]
    assert all(slope > 0 for slope in slopes)
    assert all(a > b for a, b in itertools.pairwise(slopes))
    assert places[0][0] == min(cost for _, cost in pairs)
    assert places[-1][1] == max(accuracy for accuracy, _ in pairs)


def test_a_mixture_is_the_mean_over_its_coin():
    one = Made("one", {"correct": [1.0, 0.0], "tokens": [10.0, 20.0]})
    two = Made("two", {"correct": [0.0, 1.0], "tokens": [30.0, 30.0]})
    mixture = Mixture(one, two, 0.25)
    assert mixture.by_question() == {"0": 0.75, "1": 0.25}
    assert mixture.by_question("tokens") == {"0": 15.0, "1": 22.5}
    assert mixture.name == "one + 25% two"
    assert [Mixture(one, two, share).name for share in (0.0, 1.0)] == ["one", "two"]


QUESTIONS = [f"q{index}" for index in range(10)]
SCORES = {question: index / 10 for index, question in enumerate(QUESTIONS)}


@given(st.data())
def test_choices_by_difficulty_are_those_of_plain_python(data):
    cells = [("best_of_n", 4), ("best_of_n", 16), ("beam", 16), ("best_of_n_weighted", 2)]
    right = {(cell, question): data.draw(st.booleans()) for cell in cells for question in QUESTIONS}
    tokens = {(cell, q): data.draw(st.integers(1, 9)) for cell in cells for q in QUESTIONS}
    rows = [
        row(
            strategy,
            n,
            "good",
            question=question,
            correct=right[(strategy, n), question],
            tokens=tokens[(strategy, n), question],
        )
        for (strategy, n), question in itertools.product(cells, QUESTIONS)
    ]
    choices = choices_by_difficulty(groups(rows), SCORES, "tokens")

    # Five bins of two neighbours each; all pay for the pilot, too; some share its paths.
    bins = [QUESTIONS[start : start + 2] for start in range(0, 10, 2)]

    def cost(cell, question):
        own, of_pilot = tokens[cell, question], tokens[("best_of_n", 4), question]
        return own + of_pilot if cell[0] == "beam" else max(own, of_pilot)

    every = []
    for chosen in itertools.product(cells, repeat=5):
        pairs = [(cell, q) for cell, members in zip(chosen, bins, strict=True) for q in members]
        every.append((sum(right[pair] for pair in pairs), sum(cost(*pair) for pair in pairs)))
    for choice in choices:
        accuracy, paid = (
            sum(choice.by_question(value).values()) for value in ("correct", "tokens")
        )
        assert (accuracy, paid) in every
        assert not any(other > accuracy and price <= paid for other, price in every)
    best = max(accuracy for accuracy, _ in every)
    assert max(sum(choice.by_question().values()) for choice in choices) == best


def test_there_is_no_choice_by_difficulty_without_a_pilot_or_its_trees():
    rows = [row("beam", 4, "good", question=question) for question in QUESTIONS]
    assert choices_by_difficulty(groups(rows), SCORES, "tokens") == []
    rows = [row("best_of_n", 4, "good", question=question) for question in QUESTIONS]
    assert choices_by_difficulty(groups(rows), {}, "tokens") == []
    assert difficulty.pilot_scores(groups(rows), lambda row: None) == {}


def test_a_choice_goes_to_other_questions_by_the_scores_there():
    rows = [
        row(strategy, 4, "good", question=question, correct=strategy == "beam", tokens=cost)
        for strategy, cost in (("best_of_n", 1), ("beam", 5))
        for question in QUESTIONS
    ]
    found = groups(rows)
    *_, last = choices_by_difficulty(found, SCORES, "tokens")
    there = {(group.strategy, group.num_candidates, group.prm): group for group in found}
    moved = last.elsewhere(there, {"q3": 0.95, "q9": 0.0})
    assert set(moved.by_question()) == {"q3", "q9"}
    assert moved.edges is last.edges


# The command


@pytest.fixture(scope="module", autouse=True)
def _no_figures():
    """A report draws the same figures without a frontier."""
    with pytest.MonkeyPatch.context() as patch:
        for module in ("figures", "run_report"):
            patch.setattr(f"cats_jax.reporting.{module}.write_figures", lambda *_, **__: [])
        yield


CELLS = {  # right of 8 questions, tokens
    ("greedy", 1, None): (2, 10),
    ("beam", 4, "good"): (4, 40),
    ("beam", 16, "good"): (3, 100),  # dearer and worse
    ("cats", 4, "good"): (4, 20),
    ("cats-cheap", 4, "good"): (3, 12),
}
STRATEGIES = ["greedy", "beam", ("cats", "cats"), ("cats", "cats-cheap")]


def rows_of(cells, name, *, more=0, number=8, **changes):
    """Rows of questions whose ids begin with a name, of which `more` than the cell's are right."""
    return [
        row(*key, question=f"{name}{q}", correct=q < right + more, tokens=cost, **changes)
        for key, (right, cost) in cells.items()
        for q in range(number)
    ]


def written(folder, rows, **changes):
    write_run(folder, rows, **{"strategies": STRATEGIES, **changes})
    return str(folder)


def runs(folder, *, test_cells=CELLS, **changes):
    """A validation and a test run; on test every configuration is right once more."""
    return [
        written(folder / "v", rows_of(CELLS, "v")),
        written(folder / "t", rows_of(test_cells, "t", more=1), **changes),
    ]


def test_the_report_compares_a_controller_with_the_frontier(tmp_path, capsys):
    validation, test = runs(tmp_path)
    output = tmp_path / "tables"
    budgets = ["5", "10", "12", "15", "25", "40", "1000"]
    command = ["report", test, "--frontier", validation, "--output", str(output)]
    assert cli.run([*command, "--budgets", *budgets]) == 0
    printed = capsys.readouterr().out
    assert "8 validation questions, evaluated on 8 test questions" in printed
    with (output / "frontier.csv").open() as file:
        found = {float(each["budget"]): each for each in csv.DictReader(file)}
    assert list(found) == [float(budget) for budget in budgets]
    assert {found[5.0][name] for name in ("own", "rival", "lead")} == {""}
    # Greedy decoding is on both frontiers, and no other rival is on the controller's.
    assert (found[10.0]["own"], found[10.0]["rival"]) == ("greedy N=1", "greedy N=1")
    assert float(found[10.0]["lead"]) == 0.0
    assert found[12.0]["own"] == "cats-cheap N=4"
    # 15 of 12..20 is 3/8 of the way from 4 to 5 of 8; 15 of 10..40 is 1/6 of that from 3 to 5.
    assert float(found[15.0]["own_accuracy"]) == pytest.approx((4 + 3 / 8) / 8)
    assert float(found[15.0]["rival_accuracy"]) == pytest.approx((3 + 2 / 6) / 8)
    assert float(found[15.0]["rival_tokens"]) == pytest.approx(15)
    assert found[25.0]["own"] == "cats N=4"
    assert float(found[25.0]["lead"]) == pytest.approx((5 - (3 + 2 * 15 / 30)) / 8)
    assert found[1000.0]["rival"] == "beam N=4"
    assert float(found[1000.0]["lead"]) == 0.0
    with (output / "frontier_leads.csv").open() as file:
        (leads,) = csv.DictReader(file)
    assert leads["budgets"] == "6"
    expected = [0.0, (4 - 3 - 2 / 15) / 8, (1 + 1 / 24) / 8, 1 / 8, 0.0, 0.0]
    assert float(leads["mean_lead"]) == pytest.approx(sum(expected) / 6)


def test_budgets_are_spaced_evenly_by_default(tmp_path):
    validation, test = runs(tmp_path)
    output = tmp_path / "tables"
    assert cli.run(["report", test, "--frontier", validation, "--output", str(output)]) == 0
    with (output / "frontier.csv").open() as file:
        budgets = [float(each["budget"]) for each in csv.DictReader(file)]
    assert (budgets[0], budgets[-1]) == pytest.approx((10.0, 100.0))
    assert [b / a for a, b in itertools.pairwise(budgets)] == pytest.approx([10 ** (1 / 8)] * 8)


def test_what_does_not_fit_is_refused_with_the_reason(tmp_path, capsys):
    def error(*arguments):
        assert cli.run(["report", *arguments]) == 2
        return capsys.readouterr().err

    validation, test = runs(tmp_path / "fits")
    assert "--budgets are those of --frontier" in error(test, "--budgets", "10")
    assert "--budgets 0: must be a positive number" in error(
        test, "--frontier", validation, "--budgets", "0"
    )
    assert "has 8 of the 8 questions" in error(test, "--frontier", test)
    # Under other ids, the digests of texts tell.
    both = [pathlib.Path(run) / "manifest.json" for run in runs(tmp_path / "texts")]
    for path in both:
        content = {**json.loads(path.read_text()), "texts": ["a", "b", "c"]}
        path.write_text(json.dumps(content))
    again, other = (str(path.parent) for path in both)
    assert "has 3 of the 8 questions" in error(other, "--frontier", again)
    assert "is no run folder" in error(test, "--frontier", str(tmp_path / "none"))

    _, other = runs(tmp_path / "policy", policy="strong")
    assert "has another policy" in error(other, "--frontier", validation)

    _, other = runs(tmp_path / "label", strategies=["greedy", ("dvts", "beam"), *STRATEGIES[2:]])
    assert "strategy 'beam' is one thing" in error(other, "--frontier", validation)

    few = {key: cell for key, cell in CELLS.items() if key != ("beam", 4, "good")}
    _, lacking = runs(tmp_path / "lacking", test_cells=few)
    assert "search the test questions with beam N=4 with good" in error(
        lacking, "--frontier", validation
    )
    # What is off the frontier need not be searched again.
    few = {key: cell for key, cell in CELLS.items() if key != ("beam", 16, "good")}
    _, enough = runs(tmp_path / "enough", test_cells=few)
    assert cli.run(["report", enough, "--frontier", validation]) == 0

    # A selection holds for both runs.
    capsys.readouterr()
    selected = (test, "--frontier", validation, "--strategies", "beam")
    assert "has no trained controller" in error(*selected)
    assert cli.run(["report", *selected, "cats"]) == 0
    assert "greedy" not in capsys.readouterr().out


def test_questions_with_equal_numbers_are_other_questions(tmp_path, capsys):
    validation, test = (
        written(tmp_path / name, rows_of(CELLS, "q", gold=gold))
        for name, gold in (("v", "1"), ("t", "2"))
    )
    assert cli.run(["report", test, "--frontier", validation]) == 0


def test_data_sets_are_matched_by_their_labels(tmp_path, capsys):
    def write(name, *datasets):
        rows = [
            each
            for dataset in datasets
            for each in rows_of(CELLS, f"{name}{dataset}", number=4, dataset=dataset)
        ]
        return written(tmp_path / name, rows)

    test, two = write("t", "aime"), write("v", "math", "gsm")
    assert cli.run(["report", test, "--frontier", two]) == 2
    assert "has the data sets math, gsm, and none is called 'aime'" in capsys.readouterr().err
    assert cli.run(["report", test, "--frontier", write("w", "math", "aime")]) == 0
    assert cli.run(["report", test, "--frontier", write("x", "math")]) == 0


def test_a_price_that_only_validation_has_is_no_rival(tmp_path, capsys):
    few = {key: cell for key, cell in CELLS.items() if key[0] != "cats-cheap"}
    validation, test = runs(tmp_path, test_cells=few, strategies=STRATEGIES[:3])
    assert cli.run(["report", test, "--frontier", validation]) == 2
    assert "search the test questions with cats-cheap N=4 with good" in capsys.readouterr().err


@given(points)
def test_the_cheapest_point_fits_the_first_default_budget(pairs):
    found = [made(*pair) for pair in pairs]
    budgets = even_budgets(found, "tokens")
    assert len(budgets) == 9
    assert at_budget(frontier_of(found, "tokens"), budgets[0], "tokens") is not None
    assert budgets == sorted(budgets)
