"""Thresholds at which a search path by path stops, against a literal search."""

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
from scipy import stats

import theory

GRID = [0.0, 0.3, 0.6, 0.9]


def literal(scores, right, threshold):
    """Number of paths, and whether the answer of the best of them is right."""
    best, correct, number = -1.0, False, 0
    for score, is_right in zip(scores, right, strict=True):
        number += 1
        if score > best:
            best, correct = score, is_right
        if score >= threshold:
            break
    return number, correct


@hypothesis.given(data=st.data(), questions=st.integers(1, 12), paths=st.integers(1, 6))
def test_it_is_a_literal_search(data, questions, paths):
    values = st.sampled_from([-1.0, 0.0, 0.2, 0.3, 0.5, 0.6, 0.75, 0.9, 1.0])
    size = questions * paths
    drawn = data.draw(st.lists(values, min_size=size, max_size=size))
    scores = np.array(drawn).reshape(questions, paths)
    flags = data.draw(st.lists(st.booleans(), min_size=size, max_size=size))
    # A path without an answer is never right.
    right = np.array(flags).reshape(questions, paths) & (scores >= 0)
    found = theory.certify_stopping(scores, right, GRID, max_loss=0.3, delta=0.2)
    whole = [literal(*pair, 2.0)[1] for pair in zip(scores, right, strict=True)]
    p_values = []
    for i, threshold in enumerate(GRID):
        stopped = [literal(*pair, threshold) for pair in zip(scores, right, strict=True)]
        assert found.num_paths[i].tolist() == [number for number, _ in stopped]
        assert found.right[i].tolist() == [correct for _, correct in stopped]
        harmful = sum(a and not correct for a, (_, correct) in zip(whole, stopped, strict=True))
        assert found.harmful[i] == harmful
        p_values.append(stats.binom.cdf(harmful, questions, 0.3))
    assert found.p_values == pytest.approx(p_values)
    passed = [all(p <= 0.2 for p in p_values[i:]) for i in range(len(GRID))]
    assert found.certified.tolist() == passed
    assert found.index == (passed.index(True) if any(passed) else None)


def test_the_verdicts_of_the_whole_search_may_be_those_of_the_run():
    """Of equal scores a run may take another path than the first one in the order of sampling."""
    scores, right = np.ones((40, 2)), np.tile([False, True], (40, 1))
    arguments = {"max_loss": 0.1, "delta": 0.05}
    assert theory.certify_stopping(scores, right, [0.5], **arguments).index == 0
    found = theory.certify_stopping(scores, right, [0.5], **arguments, whole=np.ones(40, bool))
    assert (found.index, found.harmful.tolist()) == (None, [40])
    assert not found.right.any()


def test_violations_at_most_delta_where_the_loss_is_the_limit():
    # At the threshold .5 every tenth question is harmful: the limit, which may not be certified.
    rng = np.random.default_rng(0)
    delta, worlds, wrong = 0.1, 400, 0
    for _ in range(worlds):
        harmful = rng.random(60) < 0.1
        scores = np.stack([np.full(60, 0.5), np.full(60, 0.95)], axis=1)
        right = np.stack([~harmful, np.ones(60, bool)], axis=1)
        found = theory.certify_stopping(scores, right, [0.5, 0.9], max_loss=0.1, delta=delta)
        wrong += bool(found.certified[0])
    assert stats.binomtest(wrong, worlds, delta, alternative="greater").pvalue > 1e-3
    assert wrong > 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"thresholds": [0.5, 0.5]}, "rising numbers"),
        ({"thresholds": [-0.5, 0.5]}, "no search stops without an answer"),
        ({"thresholds": []}, "rising numbers"),
        ({"scores": [0.5, 0.5]}, "both need a row of N paths"),
        ({"right": [[True]]}, "right has"),
        ({"right": [[0.5, 1.0]]}, r"right\[0, 0\]=0.5: 0 or 1"),
        ({"scores": [[0.5, 1.5]]}, r"scores.*1.5"),
        ({"scores": [[0.5, np.nan]]}, "scores"),
        ({"whole": [True, False]}, "whole has 2 verdicts for 1 rows"),
        ({"max_loss": 1.0}, "max_loss=1: "),
        ({"delta": 0.0}, "delta=0"),
    ],
)
def test_bad_arguments(changes, message):
    given = {"scores": [[0.5, 0.6]], "right": [[True, False]], "thresholds": [0.5]}
    given |= {"max_loss": 0.1, "delta": 0.05}
    with pytest.raises(ValueError, match=message):
        theory.certify_stopping(**{**given, **changes})
