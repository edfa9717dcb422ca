"""Fit of the three numbers of a PRM's calibration to the training questions of a bank.

Banks have no step labels: a step counts as right if some recorded completion from it is (the hard
estimate of Wang et al., "Math-Shepherd", 2024). The model is that of `search.calibration`.
"""

from __future__ import annotations

import itertools
import json
import pathlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, log_expit

from search.bank import UNREADABLE
from search.calibration import MIN_SCORE

from ..errors import BadInputError
from ..specs.calibrations import IDENTITY
from .layout import LoadedBank, check_disjoint

MAX_SIBLINGS = 16
"""Largest number of siblings in a group; groups have 1 to this many, as in a search."""

_GROUPS = 4  # of each node and setting
_RIDGE = 1e-6  # keeps coefficients finite where right and wrong can be told apart perfectly


@dataclass(frozen=True)
class Candidates:
    """Children of nodes from which a right answer was reached, in groups of siblings.

    Attributes:
        group: i[C]; number of the group; rows of a group are consecutive.
        right: b[C]; whether a right answer was reached from the child too.
        same_text: i[C]; m, number of children of the group with this text, the child included.
        num_siblings: i[C]; n, size of the group.
        score: f[C, P]; raw PRM scores.
        weight: f[C]; > 0, equal within a group. The weights of a group sum to the reach of the
            node.
    """

    group: np.ndarray
    right: np.ndarray
    same_text: np.ndarray
    num_siblings: np.ndarray
    score: np.ndarray
    weight: np.ndarray


@dataclass(frozen=True)
class Figures:
    """Figures of the quality of predicted probabilities.

    Attributes:
        cross_entropy: mean cross-entropy, nats.
        pair: chance that of a right and a wrong sibling the right one has the higher probability;
            ties count half; NaN if there is no such pair.
    """

    cross_entropy: float
    pair: float


def calibrate_bank(
    bank: LoadedBank, held_out: LoadedBank | None = None, *, seed: int = 0
) -> dict[str, Any]:
    """Intercept, slope and agreement of every PRM, with figures before and after calibration.

    Args:
        bank: bank of training questions.
        held_out: bank for the figures; default: `bank`.
        seed: random seed of the groups of siblings.

    Returns:
        JSON values of a calibration file, as `calibrations.load_calibrations` reads it.

    Raises:
        BadInputError: no right answer was ever reached, or always; the held-out bank has other
            PRMs or shares questions.
    """
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
        check_disjoint(bank.texts, held_out.texts, "questions of the bank and of the held-out bank")
        judged_on = sample_candidates(held_out, seed)
    prms = {}
    for column, label in enumerate(bank.prms):
        fit = fit_logistic(
            _inputs(fitted_on, column), fitted_on.right.astype(float), fitted_on.weight
        )
        inputs = _inputs(judged_on, column)
        before, after = (
            figures(judged_on, inputs @ np.array(values)) for values in (IDENTITY, fit)
        )
        names = ("intercept", "slope", "agreement")
        prms[label] = {
            **{name: round(float(value), 5) for name, value in zip(names, fit, strict=True)},
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
        "prms": prms,
    }


def write_calibration(path: str | pathlib.Path, content: dict[str, Any]) -> None:
    """Write a calibration file, which recipes can name.

    Raises:
        BadInputError: it can't be written.
    """
    try:
        pathlib.Path(path).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise BadInputError(
            f"{str(path)!r} can't be written ({error.strerror}): choose another --output"
        ) from error


def sample_candidates(bank: LoadedBank, seed: int = 0) -> Candidates:
    """Groups of 1 to 16 recorded children under every setting that samples at random.

    The weight of a node is the probability that a path of the setting reaches it. Children that are
    invalid, or that one of the PRMs can't read, have no score and are left out.
    """
    nodes = bank.nodes
    parent, value, score = nodes["parent"], nodes["value"], np.asarray(bank.arrays.score)
    unscored = nodes["invalid"] | (score == UNREADABLE).any(axis=1)
    first_child, num_children = _children(parent)
    rng = np.random.default_rng(seed)
    temperature = np.asarray(bank.arrays.temperature)
    rows, same, sizes, weights = [], [], [], []
    for setting in np.flatnonzero(temperature > 0).tolist():
        draws = np.where(unscored, 0, nodes["draws"][:, setting])
        reach = _reach(parent, nodes["draws"][:, setting])
        for node in np.flatnonzero((value > 0) & (num_children > 0) & (reach > 0)).tolist():
            children = np.arange(first_child[node], first_child[node] + num_children[node])
            drawn = np.repeat(children, draws[children])
            if drawn.size == 0:
                continue
            for size in rng.integers(1, MAX_SIBLINGS + 1, _GROUPS):
                group = rng.permutation(drawn)[:size]
                text = nodes["text_class"][group]
                rows.append(group)
                same.append((text[:, None] == text[None, :]).sum(axis=1))
                sizes.append(group.size)
                weights.append(reach[node] / group.size)
    if not rows:
        raise BadInputError("the bank has no node with a right answer: collect more questions")
    row = np.concatenate(rows)
    return Candidates(
        group=np.repeat(np.arange(len(rows)), sizes),
        right=value[row] > 0,
        same_text=np.concatenate(same),
        num_siblings=np.repeat(sizes, sizes),
        score=score[row],
        weight=np.repeat(weights, sizes),
    )


def fit_logistic(inputs: np.ndarray, target: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Coefficients of a weighted logistic regression; a column of ones is the intercept.

    The mean negative log-likelihood is minimised, plus a ridge of 1e-6 around the identity.

    Args:
        inputs: f[C, 3], one row per example.
        target: f[C], 0 or 1.
        weight: f[C], >= 0, weight of each example.
    """
    share = weight / weight.sum()
    centre = np.array(IDENTITY)

    def loss(values: np.ndarray) -> tuple[float, np.ndarray]:
        logit = inputs @ values
        away = values - centre
        nll = -(share * (target * log_expit(logit) + (1 - target) * log_expit(-logit))).sum()
        gradient = inputs.T @ (share * (expit(logit) - target))
        return nll + _RIDGE * away @ away, gradient + 2 * _RIDGE * away

    return minimize(loss, centre, jac=True, method="BFGS", options={"gtol": 1e-8}).x


def figures(candidates: Candidates, logit: np.ndarray) -> Figures:
    """Cross-entropy and the pair figure of predicted log-odds, f[C]."""
    right, weight = candidates.right, candidates.weight
    nll = -np.where(right, log_expit(logit), log_expit(-logit))
    wins = total = 0.0
    bounds = np.flatnonzero(np.diff(candidates.group, prepend=-1, append=-1))
    for start, end in itertools.pairwise(bounds.tolist()):
        is_right = right[start:end]
        if is_right.all() or not is_right.any():
            continue
        ahead = logit[start:end][is_right][:, None] - logit[start:end][~is_right][None, :]
        node_weight = weight[start] * (end - start)
        wins += node_weight * float(np.mean((ahead > 0) + 0.5 * (ahead == 0)))
        total += node_weight
    return Figures(
        cross_entropy=float((weight * nll).sum() / weight.sum()),
        pair=wins / total if total else float("nan"),
    )


def _inputs(candidates: Candidates, column: int) -> np.ndarray:
    """Inputs of the regression, f[C, 3]: 1, the logit of the clipped score, the siblings' vote."""
    score = np.clip(candidates.score[:, column].astype(float), MIN_SCORE, 1 - MIN_SCORE)
    same, siblings = candidates.same_text, candidates.num_siblings
    votes = np.log((same + 0.5) / (siblings - same + 0.5))
    return np.stack([np.ones_like(score), np.log(score) - np.log1p(-score), votes], axis=1)


def _children(parent: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """First child and number of children of every node."""
    rows = np.flatnonzero(parent >= 0)
    count = np.bincount(parent[rows], minlength=parent.size)
    first = np.full(parent.size, -1)
    # From the last row to the first, so that the first one stays.
    first[parent[rows[::-1]]] = rows[::-1]
    return first, count


def _reach(parent: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """Probability that a path of one setting reaches each node; 1 for roots."""
    rows = np.flatnonzero(parent >= 0)
    total = np.bincount(parent[rows], weights=draws[rows], minlength=parent.size)
    reach = np.ones(parent.size)
    for row in rows.tolist():  # parents come before their children
        reach[row] = reach[parent[row]] * draws[row] / max(total[parent[row]], 1)
    return reach


def _rounded(value: float) -> float | None:
    return None if np.isnan(value) else round(value, 4)
