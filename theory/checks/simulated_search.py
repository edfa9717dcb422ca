"""The accuracy theorem against whole searches: best-of-N in the simulator as the ground truth.

In a toy world of one step, a path is right with probability p1. The PRM's score is the sigmoid of
+-separation/2 plus Gaussian noise, cut off at 5.5 standard deviations. R* is the mean score of a
path's kind, so deviations are mean zero and bounded. Equal texts have equal, dependent scores.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import special

import search
from search import simulation

from ..accuracy import accuracy_lower_bound_margin_dependent, coverage
from ..certificates import is_best_certified
from .report import CheckReport, both_sides, judge, shares

_P1 = 0.3
_CUT = 5.5  # standard deviations; `search.simulation.draws.normal` stays within
_WORLDS = ((0.5, 1.0), (2.0, 0.4), (3.0, 0.4), (3.0, 0.3), (4.0, 0.3))  # separation, noise
_SIZES = (2, 8, 32)
_SEARCHES = 3000


class Searches(NamedTuple):
    """Finished best-of-N searches.

    Attributes:
        correct: the answer is right, bool[M].
        covered: a path is right, bool[M].
        observed_gap: between the two highest path scores, f64[M].
    """

    correct: Any
    covered: Any
    observed_gap: Any


def check_search_margin(
    *, seed: int, bound: Callable[..., Any] = accuracy_lower_bound_margin_dependent
) -> CheckReport:
    """Accuracy of simulated searches against the repaired theorem."""
    cases = [(world, n) for world in _WORLDS for n in _SIZES]
    counts, values, ratios = [], [], []
    for index, ((separation, noise), n) in enumerate(cases):
        gap, epsilon = gap_and_epsilon(separation, noise)
        found = searches(seed + index, separation, noise, n)
        counts.append(found.correct.sum())
        ratios.append(gap / epsilon)
        values.append(float(bound(_P1, gap, epsilon, num_candidates=n, delta=0.0)))
    return judge(
        claim="Accuracy of best-of-N in the search simulator is at least p_N (1 - eps/gamma), and "
        "p_N beyond 2 eps.",
        source="theorem 4.5, repaired here",
        measured=shares(counts, _SEARCHES),
        at_least=values,
        where=lambda i: f"t={ratios[i]:.2f}, p1={_P1}, N={cases[i][1]}; accuracy",
        proof="the best correct path must fall by gamma - eps",
    )


def check_search_coverage(*, seed: int, bound: Callable[..., Any] = coverage) -> CheckReport:
    """p_N of simulated searches."""
    return both_sides(
        [int(searches(seed + i, 3.0, 0.3, n).covered.sum()) for i, n in enumerate(_SIZES)],
        _SEARCHES,
        [float(bound(_P1, n)) for n in _SIZES],
        [f"N={n}; covered" for n in _SIZES],
        [f"N={n}; not covered" for n in _SIZES],
        claim="The simulator's searches hold a right path with probability 1 - (1 - p1)^N, neither "
        "more nor less often.",
        source="p_N of theorem 4.5",
        proof="paths are drawn independently",
    )


def check_search_certificate(*, seed: int, factor: float = 1.0) -> CheckReport:
    """Certified searches are right whenever a right path was sampled."""
    errors, certified = 0, 0
    for index, (separation, noise) in enumerate(_WORLDS):
        _, epsilon = gap_and_epsilon(separation, noise)
        found = searches(seed + index, separation, noise, 2)
        sure = is_best_certified(found.observed_gap, epsilon * factor)
        certified += int(sure.sum())
        errors += int((sure & found.covered & ~found.correct).sum())
    return judge(
        claim="A search whose two best path scores differ by more than 2 epsilon is right if any "
        "of its paths is.",
        source="here",
        measured=shares([errors], certified),
        at_most=0.0,
        where=lambda i: f"{certified} of {len(_WORLDS) * _SEARCHES} searches certified; errors",
        proof="the best path's score is at least R* - epsilon",
    )


def gap_and_epsilon(separation: float, noise: float) -> tuple[float, float]:
    """Difference of the mean scores of right and wrong paths, and the largest deviation."""
    nodes, weights = special.roots_hermitenorm(61)
    mean = float(weights @ special.expit(separation / 2 + noise * nodes) / weights.sum())
    ends = special.expit(separation / 2 + noise * _CUT * np.array([-1.0, 1.0]))
    # Scores of wrong paths are the mirror image, 1 - score.
    return 2.0 * mean - 1.0, float(np.abs(ends - mean).max())


def searches(seed: int, separation: float, noise: float, num_candidates: int) -> Searches:
    """Independent questions of the toy world, each searched once by best-of-N."""
    return jax.device_get(_searches(seed, separation, noise, num_candidates))


@jax.jit
def _searches(seed: Any, separation: Any, noise: Any, num_candidates: Any) -> Searches:
    base = simulation.toy_params(
        num_steps=(1,), step_probability=_P1, separations=(1.0,), score_scale=1.0, max_depth=1
    )
    scores = base.scores.replace(
        offset=base.scores.offset * separation, residual=base.scores.residual * noise
    )
    params = base.replace(scores=scores)
    strategy = search.best_of_n()

    def one(key: jax.Array) -> Searches:
        question_key, search_key = jax.random.split(key)
        task = simulation.question(params, question_key, 0, 0)
        state = search.init(
            task.root,
            strategy=strategy,
            num_candidates=num_candidates,
            max_depth=1,
            capacity=_SIZES[-1],
            depth_capacity=1,
        )
        final, _ = search.rollout(
            (),
            task.params,
            search_key,
            state,
            strategy=strategy,
            expand_fn=simulation.simulator(_SIZES[-1]),
        )
        paths = final.finished
        chosen = search.answer((), final, strategy=strategy)
        highest = jnp.sort(jnp.where(paths.valid, paths.step_scores[:, 0], -jnp.inf))
        right = paths.valid & (paths.answer == task.right_answer)
        return Searches(right[chosen], jnp.any(right), highest[-1] - highest[-2])

    return jax.vmap(one)(jax.random.split(jax.random.key(seed), _SEARCHES))
