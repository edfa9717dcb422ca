"""Bounds on the 0-1 risk of linear heads: PAC-Bayes over Gaussian weights, and hold-out questions.

The unit is a question, whose loss is the mean over its labelled steps. Each bound has delta = .05.
"""

from __future__ import annotations

import numpy as np
from scipy import optimize, special, stats

import theory

DELTA = 0.05


def by_question(losses: np.ndarray, question: np.ndarray) -> np.ndarray:
    """Mean loss of each question that has steps, [..., n], in the order of the questions' numbers.

    `losses` are [..., steps], in [0, 1]; `question`, i64[steps], is the question of each step.
    """
    order = np.argsort(question, kind="stable")
    _, starts, sizes = np.unique(question[order], return_index=True, return_counts=True)
    sums = np.add.reduceat(losses[..., order], starts, axis=-1)
    return np.clip(sums / sizes.astype(losses.dtype), 0.0, 1.0)


def linear_head_bounds(
    x: np.ndarray,
    labels: np.ndarray,
    question: np.ndarray,
    *,
    part: int,
    published: np.ndarray | None = None,
    splits: int = 5,
) -> dict[str, float]:
    """Bounds on the risk of a linear head, means over random splits of the questions.

    The weights are fitted by logistic regression to the first part of the questions. The second
    part makes the posterior around them, or gives the hold-out bound. The fresh questions show the
    true risk of these weights. With priors centred at 0 or at published weights, both parts make
    the posterior.

    Args:
        x, labels: f64[steps, weights], and bool[steps], whether each step is right.
        question: i64[steps], numbers from 0 on.
        part: questions of each of the two parts; the others are fresh.
        published: f64[weights] that were fitted to other questions, or None.
        splits: number of splits.
    """
    y = np.where(labels, 1.0, -1.0)
    rng, found = np.random.default_rng(0), []
    zero = np.zeros(x.shape[1])
    for _ in range(splits):
        order = rng.permutation(question.max() + 1)
        parts = (np.isin(question, ids) for ids in np.split(order, [part, 2 * part]))
        first, second, fresh = parts
        both = first | second

        def risks(chosen: np.ndarray, weights: np.ndarray) -> np.ndarray:
            return by_question((y[chosen] * (x[chosen] @ weights) <= 0) * 1.0, question[chosen])

        fitted = _logistic(x[first], y[first])
        held = risks(second, fitted)
        values = {
            "PAC-Bayes-kl, data-dependent prior": gibbs_bound(
                x[second], y[second], question[second], fitted
            ),
            "PAC-Bayes-kl, data-free prior": gibbs_bound(x[both], y[both], question[both], zero),
        }
        if published is not None:
            values["PAC-Bayes-kl, prior at the published weights"] = gibbs_bound(
                x[both], y[both], question[both], published
            )
            values["published weights, betting"] = theory.betting_upper(
                risks(both, published), delta=DELTA
            )
            values["published weights, observed"] = risks(both, published).mean()
        values["hold-out, kl"] = float(
            theory.holdout_bound(held.mean(), num_samples=held.size, delta=DELTA, method="kl")
        )
        values["hold-out, betting"] = theory.betting_upper(held, delta=DELTA)
        values["fresh questions"] = risks(fresh, fitted).mean()
        found.append(values)
    return {name: float(np.mean([each[name] for each in found])) for name in found[0]}


def gibbs_bound(x: np.ndarray, y: np.ndarray, question: np.ndarray, prior: np.ndarray) -> float:
    """The least PAC-Bayes-kl bound over the mean weights and ten deviations, which cost ln 10 nats.

    The Gibbs risk is exact: Pr[w x < 0] = Phi(-m x / (s |x|)) for w of mean m and standard
    deviation s, and the divergence is |m - prior|^2 / (2 s^2).

    Args:
        x, y: f64[steps, weights], and f64[steps], 1 for a right step and -1 for a wrong one.
        question: i64[steps].
        prior: f64[weights], fitted to none of these questions.
    """
    number = np.unique(question).size
    scale = y[:, None] * x / np.linalg.norm(x, axis=1, keepdims=True)
    _, index, sizes = np.unique(question, return_inverse=True, return_counts=True)
    share = 1 / (number * sizes[index])
    start = prior if prior.any() else _logistic(x, y)
    bounds = []
    for deviation in np.geomspace(0.02, 2.0, 10) * (np.linalg.norm(prior) or 1.0):

        def bound(w: np.ndarray, deviation: float = deviation) -> tuple[float, np.ndarray]:
            margins = scale @ w / deviation
            risk = share @ special.ndtr(-margins)
            nats = float((w - prior) @ (w - prior)) / (2 * deviation**2) + np.log(10)
            most = float(theory.seeger_bound(risk, nats, num_samples=number, delta=DELTA))
            if most >= 1:
                return most, np.zeros_like(w)
            # kl(risk || most) = (nats + ...) / number defines the bound implicitly.
            steep = (most - risk) / (most * (1 - most))
            by_risk = (special.logit(most) - special.logit(risk)) / steep
            slope = -(share * stats.norm.pdf(margins)) @ scale / deviation
            return most, by_risk * slope + (w - prior) / (deviation**2 * number * steep)

        bounds.append(optimize.minimize(bound, start, jac=True, options={"maxiter": 100}).fun)
    return float(min(bounds))


def _logistic(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    def loss(w: np.ndarray) -> tuple[float, np.ndarray]:
        margin = y * (x @ w)
        slope = -special.expit(-margin) * y
        return -special.log_expit(margin).mean() + 1e-3 * w @ w, (slope @ x / len(y) + 2e-3 * w)

    return optimize.minimize(loss, np.zeros(x.shape[1]), jac=True).x
