"""Fit of the numbers of a PRM's calibration to the training questions of a bank.

Banks have no step labels. A calibration by votes counts a step as right if some recorded completion
of it is right (the hard estimate of Wang et al., "Math-Shepherd", 2024). But many wrong steps have
a completion that is right by luck.

A calibration by likelihood therefore compares siblings. A conditional logistic regression on
matched pairs sets the weights of score and likelihood (Breslow & Day, "Statistical Methods in
Cancer Research", volume 1, chapter 7, 1980). In a pair, one sibling has a right completion and the
other a wrong one. The regression predicts which of the two has the right one. What siblings share
cancels, such as a wrong step earlier on their path, which a good PRM scores low.

Its scale and intercept come from a logistic regression of a step's share of right completions,
relative to the share of its best sibling. Both regressions use trusted nodes only, see
`siblings.Candidates`. The model is that of `search.calibration`.
"""

from __future__ import annotations

import functools
import itertools
import pathlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, log_expit, logit

from search.calibration import MIN_PROBABILITY, MIN_SCORE

from ..datasets.digests import text_digest
from ..errors import BadInputError
from ..specs.calibrations import IDENTITY, NAMES, CalibrationValues
from ..storage.durable import replace_json
from ..storage.schema import check_seed
from .layout import LoadedBank, check_disjoint, check_same_models
from .siblings import Candidates, Pairs, discordant_pairs, sample_candidates

_RIDGE = 1e-6  # keeps coefficients finite where right and wrong can be told apart perfectly


@dataclass(frozen=True)
class CalibrationFigures:
    """Figures of the quality of predicted probabilities.

    Attributes:
        cross_entropy: mean cross-entropy, nats.
        pair: probability that, of a right and a wrong sibling, the right one has the higher
            prediction; ties count half; NaN if there is no such pair.
    """

    cross_entropy: float
    pair: float


def calibrate_bank(
    bank: LoadedBank, held_out: LoadedBank | None = None, *, likelihood: bool = False, seed: int = 0
) -> dict[str, Any]:
    """The calibration of every PRM, with figures before and after it.

    Args:
        bank: bank of training questions.
        held_out: bank for the figures; default: `bank`.
        likelihood: whether the step's likelihood under the policy replaces the siblings' votes.
            Then the value of a step without a score is fitted too.
        seed: random seed of the groups of siblings.

    Returns:
        JSON values of a calibration file, as `calibrations.load_calibrations` reads it.

    Raises:
        BadInputError: the seed is out of range, the bank has no right step or no wrong one, or the
            held-out bank has other PRMs or shares questions.
    """
    check_seed(seed)
    fitted_on = sample_candidates(bank, seed)
    if not 0 < fitted_on.right.sum() < fitted_on.right.size:
        raise BadInputError(
            "the bank has no right step beside a wrong one, so that nothing can be fitted: collect "
            "more questions, or others"
        )
    judged_on = fitted_on
    if held_out is not None:
        if held_out.prms != bank.prms:
            raise BadInputError(
                f"the held-out bank has the PRMs {', '.join(held_out.prms)}, not "
                f"{', '.join(bank.prms)}: collect it with the same ones"
            )
        check_same_models(bank, held_out, "the bank and the held-out bank")
        check_disjoint(bank.texts, held_out.texts, "questions of the bank and of the held-out bank")
        judged_on = sample_candidates(held_out, seed)
    if likelihood:
        pairs = discordant_pairs(bank)
        fit = functools.partial(_fit_likelihood, bank, fitted_on, pairs)
    else:
        fit = functools.partial(_fit_votes, fitted_on)
    prms = {}
    for column, label in enumerate(bank.prms):
        values = fit(column)
        before, after = (
            figures(judged_on, _logit(judged_on, column, each)) for each in (IDENTITY, values)
        )
        prms[label] = {
            **{name: round(value, 5) for name, value in zip(NAMES, values, strict=True)},
            "cross_entropy": [_rounded(f.cross_entropy) for f in (before, after)],
            "pair": [_rounded(f.pair) for f in (before, after)],
        }
    return {
        "kind": "calibration",
        "questions": len(bank.ids),
        "groups": int(fitted_on.group[-1]) + 1,
        "candidates": int(fitted_on.right.size),
        "held_out_questions": None if held_out is None else len(held_out.ids),
        "models": bank.manifest["models"],
        "texts": sorted(map(text_digest, bank.texts)),
        "prms": prms,
    }


def write_calibration(path: str | pathlib.Path, content: dict[str, Any]) -> None:
    """Write a calibration file, which recipes can name; BadInputError if it can't be written."""
    try:
        replace_json(pathlib.Path(path), content, indent=1)
    except OSError as error:
        raise BadInputError(
            f"{str(path)!r} can't be written ({error.strerror}): choose another --output"
        ) from error


def _fit_votes(candidates: Candidates, column: int) -> CalibrationValues:
    ones, score, votes, _ = _inputs(candidates, column).T
    right = candidates.right.astype(float)
    fit = fit_logistic(np.stack([ones, score, votes], axis=1), right, candidates.weight, (0, 1, 0))
    return (*fit.tolist(), *IDENTITY[len(fit) :])


def _fit_likelihood(
    bank: LoadedBank, candidates: Candidates, pairs: Pairs, column: int
) -> CalibrationValues:
    both = np.stack(
        [
            score_odds(np.asarray(bank.arrays.score)[:, column]),
            _likelihood_odds(np.asarray(bank.arrays.log_prob)),
        ],
        axis=1,
    )
    difference = both[pairs.first] - both[pairs.second]
    direction = fit_logistic(difference, np.ones(pairs.first.size), pairs.weight, (1, 0))
    ones, score, _, odds = _inputs(candidates, column).T
    weight = candidates.weight * candidates.trusted
    index = np.stack([score, odds], axis=1) @ direction
    scored = fit_logistic(np.stack([ones, index], axis=1), candidates.share, weight, (0, 1))
    unscored = fit_logistic(np.stack([ones, odds], axis=1), candidates.share, weight, (0, 1))
    intercept, scale = scored.tolist()
    slope, of_odds = (scale * direction).tolist()
    return (intercept, slope, 0.0, of_odds, *unscored.tolist())


def fit_logistic(
    inputs: np.ndarray, target: np.ndarray, weight: np.ndarray, centre: Sequence[float]
) -> np.ndarray:
    """Coefficients, f[D], of a weighted logistic regression; a column of ones is the intercept.

    Minimises the mean negative log-likelihood plus a ridge of `_RIDGE`.

    Args:
        inputs: f[C, D], one row per example.
        target: f[C], in [0, 1].
        weight: f[C], >= 0, weight of each example.
        centre: D numbers, toward which the ridge pulls the coefficients.
    """
    share = weight / weight.sum()

    def loss(values: np.ndarray) -> tuple[float, np.ndarray]:
        odds = inputs @ values
        away = values - centre
        nll = -(share * (target * log_expit(odds) + (1 - target) * log_expit(-odds))).sum()
        gradient = inputs.T @ (share * (expit(odds) - target))
        return nll + _RIDGE * away @ away, gradient + 2 * _RIDGE * away

    start = np.array(centre, float)
    return minimize(loss, start, jac=True, method="BFGS", options={"gtol": 1e-8}).x


def figures(candidates: Candidates, odds: np.ndarray) -> CalibrationFigures:
    """Cross-entropy and the pair figure of predicted log-odds, f[C]."""
    right, weight = candidates.right, candidates.weight
    nll = -np.where(right, log_expit(odds), log_expit(-odds))
    wins = total = 0.0
    bounds = np.flatnonzero(np.diff(candidates.group, prepend=-1, append=-1))
    for start, end in itertools.pairwise(bounds.tolist()):
        is_right = right[start:end]
        if is_right.all() or not is_right.any():
            continue
        ahead = odds[start:end][is_right][:, None] - odds[start:end][~is_right][None, :]
        node_weight = weight[start] * (end - start)
        wins += node_weight * float(np.mean((ahead > 0) + 0.5 * (ahead == 0)))
        total += node_weight
    return CalibrationFigures(
        cross_entropy=float((weight * nll).sum() / weight.sum()),
        pair=wins / total if total else float("nan"),
    )


def _logit(candidates: Candidates, column: int, values: CalibrationValues) -> np.ndarray:
    """Log-odds, f[C], that a calibration gives to scored candidates."""
    return _inputs(candidates, column) @ np.array(values[:4])


def _inputs(candidates: Candidates, column: int) -> np.ndarray:
    """Inputs of the model, f[C, 4]: 1, and the log-odds of score, votes and likelihood."""
    score = score_odds(candidates.score[:, column])
    same, siblings = candidates.same_text, candidates.num_siblings
    votes = np.log((same + 0.5) / (siblings - same + 0.5))
    odds = _likelihood_odds(candidates.log_prob)
    return np.stack([np.ones_like(score), score, votes, odds], axis=1)


def score_odds(score: np.ndarray) -> np.ndarray:
    """Log-odds of clipped scores, as in `search.calibration.calibrated_score`."""
    return logit(np.clip(score.astype(float), MIN_SCORE, 1 - MIN_SCORE))


def _likelihood_odds(log_prob: np.ndarray) -> np.ndarray:
    """Log-odds of clipped log-probabilities, as in `search.calibration.calibrated_score`."""
    return logit(np.clip(np.exp(log_prob.astype(float)), MIN_PROBABILITY, 1 - MIN_PROBABILITY))


def _rounded(value: float) -> float | None:
    return None if np.isnan(value) else round(value, 4)
