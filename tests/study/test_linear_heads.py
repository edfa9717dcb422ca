"""Bounds on linear heads: by brute force in one dimension, and the states of an embedded PRM."""

import numpy as np
import pytest
from scipy import special, stats

from cats_jax.models.source import ModelFolders
from cats_jax.protocols import Question, Step
from cats_jax.specs.models import PrmSpec
from cats_jax.world import task, tokenizer
from studies.world.models import weight_bounds
from studies.world.results import linear_heads


def seeger(risk, nats, number):
    """The kl inverse of Seeger's bound at delta = .05, by bisection."""
    level = (nats + np.log(2 * np.sqrt(number) / 0.05)) / number
    low, high = risk, np.ones_like(risk)
    for _ in range(50):
        p = (low + high) / 2
        below = special.rel_entr(risk, p) + special.rel_entr(1 - risk, 1 - p) < level
        low, high = np.where(below, p, low), np.where(below, high, p)
    return low


@pytest.mark.parametrize("prior", [0.0, 1.0])
def test_the_bound_is_the_least_over_means_and_deviations(prior):
    rng = np.random.default_rng(0)
    x = rng.normal(1.0, 1.0, 60)
    y = np.where(rng.random(60) < 0.9, np.sign(x), -np.sign(x))
    question = np.arange(60) // 2
    least = 1.0
    for deviation in np.geomspace(0.02, 2.0, 10):
        mean = prior + deviation * np.linspace(-4, 6, 401)
        wrong = stats.norm.cdf(-(y * np.sign(x))[:, None] * mean / deviation)
        risk = np.mean([wrong[question == q].mean(axis=0) for q in range(30)], axis=0)
        nats = (mean - prior) ** 2 / (2 * deviation**2) + np.log(10)
        least = min(least, seeger(risk, nats, 30).min())
    found = linear_heads.gibbs_bound(x[:, None], y, question, np.array([prior]))
    assert found == pytest.approx(least, abs=1e-4)
    assert found < 0.7


def test_a_question_has_the_mean_of_its_steps():
    found = linear_heads.by_question(
        np.array([[1.0, 0, 1, 1], [0, 0, 0, 1]]), np.array([2, 1, 1, 2])
    )
    assert found.tolist() == [[0.5, 1.0], [0.0, 0.5]]


def test_states_times_weights_are_the_log_odds_of_the_scores():
    paths = weight_bounds.sampled_paths("weak", 6, 0)
    assert len(paths) == 6
    # The states are in the order of the paths' lengths.
    paths.sort(key=lambda path: len(tokenizer.path_ids(path.question, path.steps)))
    found = weight_bounds.step_states("monte-carlo", paths)
    logits = found.states @ found.weights
    scorer = ModelFolders().prm(PrmSpec("monte-carlo"))
    for i, path in enumerate(paths):
        steps = tuple(Step(text, (7,)) for text in path.steps)
        prefixes = [steps[: end + 1] for end in range(len(steps))]
        scores = scorer.score([Question("q", path.question)] * len(prefixes), prefixes).scores
        mine = special.expit(logits[found.question == i])
        assert mine == pytest.approx(scores, abs=1e-5)
        right = task.check_steps(path.question, path.steps)
        assert found.labels[found.question == i].tolist() == right
