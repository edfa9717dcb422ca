"""The simulated GPU: seconds that can be counted by hand, and what a barrier costs."""

import importlib
import pathlib
import sys

import pytest

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "benchmarks"))
barrier = importlib.import_module("barrier")


def test_one_search_takes_the_seconds_of_its_passes():
    rate = barrier.simulate([[[10, 4], [3]]], 1, 1)
    prompts = (barrier.PROMPT_TOKENS + barrier.BLOCK_TOKENS) * barrier.SECONDS_TOKEN
    policy = 4 * barrier.pass_seconds(2) + 9 * barrier.pass_seconds(1)
    scoring = barrier.pass_seconds(14) + barrier.pass_seconds(3)
    assert rate == pytest.approx(17 / (prompts + policy + scoring))


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_all_samples_are_generated(groups):
    """Eight searches in four places, of which each has 60 tokens: none is lost."""
    searches = [[[20, 10], [30]] for _ in range(8)]
    seconds = 8 * 60 / barrier.simulate(searches, 4, groups, exclusive=groups <= 2)
    assert seconds > 2 * 50 * barrier.SECONDS_WEIGHTS  # two searches one after the other
    assert seconds < 8 * 60 * barrier.pass_seconds(1)


def test_without_a_barrier_a_question_does_not_wait_for_others():
    searches = [[[1000]], [[100]] * 10]
    one = barrier.simulate(searches, 2, 1)
    free = barrier.simulate(searches, 2, 2, exclusive=False)
    assert free / one == pytest.approx(1900 / 1000, rel=0.02)
