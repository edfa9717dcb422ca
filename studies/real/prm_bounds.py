"""Bounds on the risk of PRMs from labelled steps: their raw scores and heads over them.

The unit is a question, whose loss is the mean over its labelled steps. Each bound has delta = .05.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np
from scipy import special

import theory
from cats_jax.scoring.labelled import LabelledData
from studies.world.results.linear_heads import DELTA, by_question, linear_head_bounds
from studies.world.results.markdown import share

THRESHOLDS = np.linspace(-4.0, 4.0, 17)
"""Thresholds of compressed heads on a mean logit."""


def question_steps(
    labelled: LabelledData, prms: Sequence[str]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores f64[steps, PRMs], labels bool[steps] and the question i64[steps] of labelled steps."""
    place = {name: i for i, name in enumerate(dict.fromkeys(p.question for p in labelled.paths))}
    rows = [
        ([path.scores[prm][step] for prm in prms], label == 1, place[path.question])
        for path in labelled.paths
        for step, label in enumerate(path.labels)
        if label is not None
    ]
    scores, labels, questions = zip(*rows, strict=True)
    return np.array(scores), np.array(labels), np.array(questions)


LOSSES: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "0-1": lambda score, label: ((score >= 0.5) != label).astype(float),
    "Brier": lambda score, label: (score - label) ** 2,
    "absolute": lambda score, label: np.abs(score - label),
}


def risk_lines(scores: np.ndarray, labels: np.ndarray, question: np.ndarray) -> list[list[str]]:
    """Bounds on the risk of each PRM, mean over the PRMs."""
    lines = []
    for name, loss in LOSSES.items():
        found = []
        for score in scores.T:
            values = by_question(loss(score, labels), question)
            mean, n = float(values.mean()), values.size
            bounds = [
                float(theory.holdout_bound(mean, num_samples=n, delta=DELTA, method=method))
                for method in ("hoeffding", "kl")
            ]
            found.append([mean, *bounds, theory.betting_upper(values, delta=DELTA)])
        trivial = by_question(1.0 - labels, question).mean()
        cells = [trivial, *np.mean(found, axis=0)]
        lines.append([f"mean of {scores.shape[1]} PRMs", name, *map(share, cells)])
    return lines


def heads(logits: np.ndarray) -> np.ndarray:
    """Scores of the 693 calibrated heads: 21 slopes and 33 offsets, f64[693, steps]."""
    slopes, offsets = np.linspace(0.25, 2.25, 21), np.linspace(-4.0, 4.0, 33)
    grid = np.array([(a, b) for a in slopes for b in offsets])
    return special.expit(grid[:, :1] * logits[None, :] + grid[:, 1:])


def head_lines(
    scores: np.ndarray, labels: np.ndarray, question: np.ndarray, splits: int = 20
) -> list[list[str]]:
    """The calibrated head of least 0-1 risk on 500 questions, with its certificates.

    The other questions show its true risk. By halves, 250 questions choose and 250 certify.
    """
    rng, found = np.random.default_rng(0), []
    number = question.max() + 1
    for score in scores.T:
        wrong = (heads(special.logit(np.clip(score, 1e-6, 1 - 1e-6))) >= 0.5) != labels
        risks = by_question(wrong.astype(float), question)
        raw = by_question(LOSSES["0-1"](score, labels), question)
        for _ in range(splits):
            order = rng.permutation(number)
            used, fresh = order[:500], order[500:]
            chosen = risks[:, used].mean(axis=1).argmin()
            half = risks[:, used[:250]].mean(axis=1).argmin()
            empirical = float(risks[chosen, used].mean())
            found.append([
                raw[fresh].mean(),
                theory.betting_upper(raw[used], delta=DELTA),
                risks[half, fresh].mean(),
                theory.betting_upper(risks[half, used[250:]], delta=DELTA),
                risks[chosen, fresh].mean(),
                theory.betting_upper(risks[chosen, used], delta=DELTA / 693),
                theory.occam_kl_bound(
                    empirical, np.log(693), num_samples=500, delta=DELTA
                ),
            ])  # fmt: skip
    names = (
        "raw scores, fresh", "raw scores, betting",
        "head by halves, fresh", "head by halves, betting",
        "head of all 500, fresh", "head of all 500, betting with the union over 693",
        "head of all 500, Occam-kl",
    )  # fmt: skip
    means = np.mean(np.asarray(found, float), axis=0)
    return [[name, share(value)] for name, value in zip(names, means, strict=True)]


def compressed_heads(number: int) -> tuple[np.ndarray, np.ndarray]:
    """Sparse heads of small whole weights: a weighted mean of the logits of at most three PRMs.

    The prior is uniform over the number of PRMs, then over the PRMs, the weights 1 to 4 of each,
    and the 17 thresholds that the mean is compared with. There are at least 3 PRMs.

    Returns:
        f64[heads, number], weights that sum to 1, without the threshold; f64[heads], -ln of the
        prior of such a head with any one threshold, in nats.
    """
    weights, nats = [], []
    for size in (1, 2, 3):
        chosen = list(itertools.combinations(range(number), size))
        cost = np.log(3 * len(chosen) * 4.0**size * THRESHOLDS.size)
        for places, values in itertools.product(
            chosen, itertools.product(range(1, 5), repeat=size)
        ):
            head = np.zeros(number)
            head[list(places)] = values
            weights.append(head / head.sum())
            nats.append(cost)
    return np.array(weights), np.array(nats)


def compressed_lines(
    scores: np.ndarray, labels: np.ndarray, question: np.ndarray, splits: int = 5
) -> list[list[str]]:
    """The compressed head of the least Occam-kl bound on 510 questions, as in `weight_lines`.

    The bounds hold for all heads at once, so that the same questions choose and certify.
    """
    weights, nats = compressed_heads(scores.shape[1])
    means = weights @ clipped_logits(scores).T
    risks = np.concatenate([
        by_question(((means >= level) != labels).astype(np.float32), question)
        for level in THRESHOLDS
    ])  # fmt: skip
    nats, found = np.tile(nats, THRESHOLDS.size), []
    rng = np.random.default_rng(0)
    for _ in range(splits):
        order = rng.permutation(question.max() + 1)
        used, fresh = order[:510], order[510:]
        bounds = theory.occam_kl_bound(
            risks[:, used].mean(axis=1), nats, num_samples=510, delta=DELTA
        )
        best = int(np.argmin(bounds))
        level = DELTA * np.exp(-nats[best])
        found.append([
            nats[best],
            np.asarray(bounds)[best],
            theory.betting_upper(risks[best, used].astype(float), delta=level),
            risks[best, fresh].mean(),
        ])  # fmt: skip
    cost, *values = np.mean(found, axis=0)
    names = (
        f"compressed head of {cost:.1f} nats, Occam-kl",
        "compressed head, betting at delta times its prior",
        "compressed head, fresh questions",
    )
    return [[name, share(value)] for name, value in zip(names, values, strict=True)]


def weight_lines(scores: np.ndarray, labels: np.ndarray, question: np.ndarray) -> list[list[str]]:
    """A Gaussian head on the PRMs' logits, see `linear_head_bounds`; means of five splits."""
    x = np.column_stack([clipped_logits(scores), np.ones(len(labels))])
    found = linear_head_bounds(x, labels, question, part=255)
    return [[name, share(value)] for name, value in found.items()]


def clipped_logits(scores: np.ndarray) -> np.ndarray:
    """Log-odds of scores in [1e-4, 1 - 1e-4], elementwise."""
    return special.logit(np.clip(scores, 1e-4, 1 - 1e-4))
