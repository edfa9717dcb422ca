"""Fit of the numbers of a PRM's calibration to the training questions of a bank.

Banks have no step labels. A calibration by votes counts a step as right if some recorded completion
from it is (the hard estimate of Wang et al., "Math-Shepherd", 2024). Many wrong steps have a
completion that is right by luck. A calibration by likelihood therefore compares siblings: a step
counts as right if the share of right completions from it is at least half that of its best sibling.
It reads only nodes at which this is well known: all steps of their paths count as right, and at
least half of the best child's completions are. The model is that of `search.calibration`.
"""

from __future__ import annotations

import itertools
import json
import pathlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, log_expit, logit

from search.bank import UNREADABLE
from search.calibration import MIN_PROBABILITY, MIN_SCORE

from ..errors import BadInputError
from ..specs.calibrations import IDENTITY, NAMES, CalibrationValues
from .layout import LoadedBank, check_disjoint

MAX_SIBLINGS = 16
"""Largest number of siblings in a group; groups have 1 to this many, as in a search."""

_GROUPS = 4  # of each node and setting
_AS_GOOD = 0.5  # of the best sibling's share of right completions; see `Candidates.as_good`
_TRUSTED = 0.5  # share of right completions; see `Candidates.trusted`
_RIDGE = 1e-6  # keeps coefficients finite where right and wrong can be told apart perfectly


@dataclass(frozen=True)
class Candidates:
    """Children of nodes from which a right answer was reached, in groups of siblings.

    Attributes:
        group: i[C]; number of the group; rows of a group are consecutive.
        right: b[C]; whether a right answer was reached from the child too.
        as_good: b[C]; whether the share of right completions from the child is at least half that
            of the node's best child.
        trusted: b[C]; whether the node's path counts as right in that sense, and its best child is
            right in at least half of its completions.
        log_prob: f[C]; of the child under the policy at temperature 1, nats.
        same_text: i[C]; m, number of children of the group with this text, the child included.
        num_siblings: i[C]; n, size of the group.
        score: f[C, P]; raw PRM scores.
        weight: f[C]; > 0, equal within a group. The weights of a group sum to the reach of the
            node.
    """

    group: np.ndarray
    right: np.ndarray
    as_good: np.ndarray
    trusted: np.ndarray
    log_prob: np.ndarray
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
    bank: LoadedBank,
    held_out: LoadedBank | None = None,
    *,
    likelihood: bool = False,
    seed: int = 0,
) -> dict[str, Any]:
    """The calibration of every PRM, with figures before and after it.

    Args:
        bank: bank of training questions.
        held_out: bank for the figures; default: `bank`.
        likelihood: whether the step's likelihood under the policy takes the place of the siblings'
            votes; also fitted is then what a step without a score is worth.
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
        values = _fit_prm(fitted_on, column, likelihood)
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
        "prms": prms,
    }


def _fit_prm(candidates: Candidates, column: int, likelihood: bool) -> CalibrationValues:
    """The fitted values of one PRM."""
    ones, score, votes, odds = _inputs(candidates, column).T
    if not likelihood:
        right = candidates.right.astype(float)
        fit = fit_logistic(np.stack([ones, score, votes], axis=1), right, candidates.weight)
        return (*fit.tolist(), *IDENTITY[len(fit) :])
    target, weight = candidates.as_good.astype(float), candidates.weight * candidates.trusted
    if not weight.any():
        raise BadInputError(
            "the bank has no node on a right path with a child that is mostly right: collect more "
            "questions, or fit without the likelihood"
        )
    scored = fit_logistic(np.stack([ones, score, odds], axis=1), target, weight)
    unscored = fit_logistic(np.stack([ones, odds], axis=1), target, weight)
    intercept, slope, of_odds = scored.tolist()
    return (intercept, slope, 0.0, of_odds, *unscored.tolist())


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
    best = _best_child(parent, value)
    as_good = (parent < 0) | ((value > 0) & (value >= _AS_GOOD * best[parent]))
    on_right_path = _all_along(parent, as_good)
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
        as_good=as_good[row],
        trusted=(on_right_path & (best >= _TRUSTED))[parent[row]],
        log_prob=np.asarray(bank.arrays.log_prob)[row].astype(float),
        same_text=np.concatenate(same),
        num_siblings=np.repeat(sizes, sizes),
        score=score[row],
        weight=np.repeat(weights, sizes),
    )


def fit_logistic(inputs: np.ndarray, target: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Coefficients of a weighted logistic regression; a column of ones is the intercept.

    The mean negative log-likelihood is minimised, plus a ridge of 1e-6 around (0, 1, 0, ...).

    Args:
        inputs: f[C, D], one row per example.
        target: f[C], in [0, 1].
        weight: f[C], >= 0, weight of each example.
    """
    share = weight / weight.sum()
    centre = np.zeros(inputs.shape[1])
    centre[1] = 1.0

    def loss(values: np.ndarray) -> tuple[float, np.ndarray]:
        odds = inputs @ values
        away = values - centre
        nll = -(share * (target * log_expit(odds) + (1 - target) * log_expit(-odds))).sum()
        gradient = inputs.T @ (share * (expit(odds) - target))
        return nll + _RIDGE * away @ away, gradient + 2 * _RIDGE * away

    return minimize(loss, centre, jac=True, method="BFGS", options={"gtol": 1e-8}).x


def figures(candidates: Candidates, odds: np.ndarray) -> Figures:
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
    return Figures(
        cross_entropy=float((weight * nll).sum() / weight.sum()),
        pair=wins / total if total else float("nan"),
    )


def _logit(candidates: Candidates, column: int, values: CalibrationValues) -> np.ndarray:
    """Log-odds, f[C], that a calibration gives to scored candidates."""
    return _inputs(candidates, column) @ np.array(values[:4])


def _inputs(candidates: Candidates, column: int) -> np.ndarray:
    """Inputs of the model, f[C, 4]: 1, and the log-odds of score, votes and likelihood."""
    score = np.clip(candidates.score[:, column].astype(float), MIN_SCORE, 1 - MIN_SCORE)
    same, siblings = candidates.same_text, candidates.num_siblings
    votes = np.log((same + 0.5) / (siblings - same + 0.5))
    probability = np.clip(np.exp(candidates.log_prob), MIN_PROBABILITY, 1 - MIN_PROBABILITY)
    return np.stack([np.ones_like(score), logit(score), votes, logit(probability)], axis=1)


def _best_child(parent: np.ndarray, value: np.ndarray) -> np.ndarray:
    """The largest value among the children of every node; 0 without children."""
    best = np.zeros(parent.size)
    rows = np.flatnonzero(parent >= 0)
    np.maximum.at(best, parent[rows], value[rows])
    return best


def _children(parent: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """First child and number of children of every node."""
    rows = np.flatnonzero(parent >= 0)
    count = np.bincount(parent[rows], minlength=parent.size)
    first = np.full(parent.size, -1)
    # From the last row to the first, so that the first one stays.
    first[parent[rows[::-1]]] = rows[::-1]
    return first, count


def _all_along(parent: np.ndarray, marked: np.ndarray) -> np.ndarray:
    """Whether a node and all nodes of its path are marked."""
    found = marked.copy()
    for row in np.flatnonzero(parent >= 0).tolist():  # parents come before their children
        found[row] &= found[parent[row]]
    return found


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
