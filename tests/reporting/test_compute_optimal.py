"""The compute-optimal choice, against plain Python."""

import hashlib
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_runs import row, write_run

from cats_jax import cli
from cats_jax.errors import BadInputError
from cats_jax.reporting.compute_optimal import compute_optimal, is_chosen_on
from cats_jax.reporting.groups import groups


def oracle(rows, cost):
    """Budget -> (choice by level, choice for all, right and own-half accuracy), in plain Python."""
    configurations = list(dict.fromkeys((r.strategy, r.num_candidates) for r in rows))
    level_of = {r.question: r.meta["level"] for r in rows}
    first = {q for q in level_of if hashlib.sha256(q.encode()).hexdigest()[1] in "02468ace"}
    levels = [
        level
        for level in sorted(set(level_of.values()))
        if {q in first for q, of in level_of.items() if of == level} == {True, False}
    ]

    def mean(configuration, value, asked, chosen):
        found = [
            value(r)
            for r in rows
            if (r.strategy, r.num_candidates) == configuration
            and r.meta["level"] in asked
            and (r.question in first) == chosen
        ]
        return sum(found) / len(found)

    def right(r):
        return r.correct

    def best(configurations, asked):
        return min(
            configurations,
            key=lambda c: (-mean(c, right, asked, True), mean(c, cost, asked, True)),
        )

    found = {}
    dearest = {c: max(mean(c, cost, [level], True) for level in levels) for c in configurations}
    for budget in sorted(dearest.values()):
        by_level = {}
        for level in levels:
            fits = [c for c in configurations if mean(c, cost, [level], True) <= budget]
            by_level[level] = best(fits, [level])
        fixed = best([c for c in configurations if dearest[c] <= budget], levels)
        own, judged = (
            sum(
                mean(by_level[level_of[q]], right, [level_of[q]], chosen)
                for q in level_of
                if (q in first) == chosen and level_of[q] in levels
            )
            / sum((q in first) == chosen and level_of[q] in levels for q in level_of)
            for chosen in (True, False)
        )
        found[budget] = (by_level, fixed, own, judged, mean(fixed, right, levels, False))
    return found


@given(st.data(), st.sampled_from(["tokens", "flops"]))
def test_choices_are_those_of_plain_python(data, cost):
    cells = [("beam", 4), ("beam", 8), ("cats", 4), ("greedy", 1)]
    levels = data.draw(st.lists(st.integers(1, 3), min_size=8, max_size=12))
    rows = [
        row(
            strategy,
            n,
            None,
            question=f"q{index}",
            meta={"level": level},
            correct=data.draw(st.booleans()),
            tokens=data.draw(st.integers(1, 30)),
            flops=float(data.draw(st.integers(1, 30))),
        )
        for (strategy, n), (index, level) in itertools.product(cells, enumerate(levels))
    ]
    expected = oracle(rows, lambda r: getattr(r.ledger, cost)) if _usable(levels) else None
    if expected is None:
        with pytest.raises(BadInputError, match="questions of a level in both halves"):
            compute_optimal(groups(rows), cost)
        return
    result = compute_optimal(groups(rows), cost)
    last = None
    for budget, (by_level, fixed, own, judged, of_fixed) in expected.items():
        choices = (by_level, fixed)
        if choices == last:
            assert budget not in [at.budget for at in result.budgets]
            continue
        last = choices
        (at,) = [at for at in result.budgets if at.budget == pytest.approx(budget)]
        names = {level: _key(choice.group) for level, choice in at.levels.items()}
        assert names == {str(level): name for level, name in by_level.items()}
        assert _key(at.fixed.group) == fixed
        assert at.by_level.own == pytest.approx(own)
        assert at.by_level.accuracy.value == pytest.approx(judged)
        assert at.fixed.accuracy.value == pytest.approx(of_fixed)
        assert at.gain.difference.value == pytest.approx(judged - of_fixed)
        # More freedom is never worse where the choice is made.
        assert at.by_level.own >= at.fixed.own - 1e-9
    owns = [at.by_level.own for at in result.budgets]
    assert owns == sorted(owns)


def _usable(levels):
    halves = {
        (level, hashlib.sha256(f"q{index}".encode()).digest()[0] & 1)
        for index, level in enumerate(levels)
    }
    return any({(level, 0), (level, 1)} <= halves for level in levels)


def _key(group):
    return group.strategy, group.num_candidates


def test_the_half_of_a_question_never_changes():
    # Two reports of one run must agree, whenever they are made.
    assert "".join(str(int(is_chosen_on(f"q{index}"))) for index in range(12)) == "101101000111"
    assert 400 < sum(is_chosen_on(f"math500-{index}") for index in range(1000)) < 600


def test_a_tie_of_several_seeds_goes_to_the_cheaper_configuration():
    """The sums of the same shares in two orders differ in float64."""
    ids = [f"q{i}" for i in range(40)]
    halves = [[each for each in ids if is_chosen_on(each) is half][:6] for half in (True, False)]
    rows = [
        row("beam", n, question=each, seed=seed, correct=seed < number)
        for n, right in ((4, [1, 1, 1, 2, 2, 2]), (64, [2, 2, 2, 1, 1, 1]))
        for half in halves
        for each, number in zip(half, right, strict=True)
        for seed in range(3)
    ]
    found = compute_optimal(groups(rows))
    assert [at.fixed.group.num_candidates for at in found.budgets] == [4]


def test_configurations_without_all_questions_are_left_out_and_named(tmp_path, capsys):
    rows = [row("beam", 4, "good", question=f"q{index}") for index in range(12)]
    part = [row("cats", 4, "good", question=f"q{index}") for index in range(11)]
    run = write_run(tmp_path, [*rows, *part], strategies=["beam", "cats"])
    result = compute_optimal(groups(run.rows))
    assert result.left_out == ("cats N=4, good",)
    assert [choice.fixed.group.strategy for choice in result.budgets] == ["beam"]
    assert cli.run(["report", str(tmp_path), "--compute-optimal"]) == 0
    output = capsys.readouterr().out
    assert "configurations without all questions: cats N=4, good" in output
    assert "all questions are of one level" in output


def test_a_level_of_null_is_missing():
    metas = ({}, {"level": None})
    rows = [row(question=f"q{index}", meta=metas[index % 2]) for index in range(12)]
    assert list(compute_optimal(groups(rows)).halves) == ["-"]


def test_one_question_is_refused(tmp_path, capsys):
    write_run(tmp_path, [row()])
    assert cli.run(["report", str(tmp_path), "--compute-optimal"]) == 2
    assert "--compute-optimal: 1 questions" in capsys.readouterr().err
