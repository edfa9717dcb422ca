"""What a better ranking of siblings could bring: walks over a step bank, and their table."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np

import search
from cats_jax.bank.layout import LoadedBank, load_bank
from cats_jax.reporting.statistics import bootstrap_mean
from cats_jax.specs.calibrations import load_calibrations
from cats_jax.world.task import StepChecker

from .markdown import Table, share

SAMPLES = (4, 25, 64)
"""Numbers of children that a walk samples of each of its nodes."""

_WALKS = 6
"""Number of walks of a question."""

Ranking = Mapping[str, Mapping[str, list[float]]]
"""Mean, low and high of the accuracy by ranking and number of samples, from `measure_ranking`."""


def measure_ranking(policy: str, banks: pathlib.Path) -> Ranking:
    """Accuracy of walks that take, at each node, the best of a few sampled children.

    Children are drawn without replacement from those of temperature 1. The rankings are each PRM's
    score, its P(step right) by the shipped calibration `POLICY-likelihood`, and an oracle, which
    takes a step that the world's checker calls right wherever there is one. `banks` has the bank
    `POLICY-controller-deep`.

    Returns:
        For each ranking and number of samples the mean and its 95 % bootstrap interval.

    Raises:
        BadInputError: the bank is missing or damaged.
    """
    calibrations = load_calibrations(f"{policy}-likelihood")
    bank = load_bank(banks / f"{policy}-controller-deep", calibrations=calibrations)
    log_prob = np.asarray(bank.arrays.log_prob)
    rankings = {}
    for column, prm in enumerate(bank.prms):
        rankings[f"score of {prm}"] = np.asarray(bank.arrays.score)[:, column]
        rankings[f"P(step right) by {prm} and likelihood"] = _probability(bank, column)
    rankings["likelihood"] = log_prob
    rankings["oracle"] = np.where(right_steps(bank), 1.0, log_prob)
    found: dict[str, dict[str, list[float]]] = {}
    for name, ranking in rankings.items():
        found[name] = {}
        for samples in SAMPLES:
            mean = bootstrap_mean(walk_accuracies(bank, ranking, samples).tolist())
            found[name][str(samples)] = [mean.value, mean.low, mean.high]
    return found


def right_steps(bank: LoadedBank) -> np.ndarray:
    """Whether the steps up to each node are right by the world's checker, b[V]."""
    parent, text = bank.nodes["parent"], bank.nodes["text"]
    right = np.zeros(parent.size, bool)
    question = -1
    paths: dict[int, list[str]] = {}
    for row, above in enumerate(parent.tolist()):  # parents come before their children
        if above < 0:
            question += 1
            paths, right[row] = {row: []}, True
            continue
        paths[row] = [*paths[above], str(text[row])]
        if right[above] and not bank.nodes["invalid"][row]:
            checker = StepChecker(bank.texts[question])
            right[row] = all([checker.accept(step) for step in paths[row]])
    return right


def walk_accuracies(
    bank: LoadedBank, ranking: np.ndarray, samples: int, seed: int = 0
) -> np.ndarray:
    """Share of right walks of each question, f[Q].

    Args:
        bank: step bank with a setting of temperature 1.
        ranking: f[V]; a walk continues with the sampled child that has the largest.
        samples: number of children that are sampled of each node, or all there are.
        seed: random seed of the samples.
    """
    rng = np.random.default_rng(seed)
    setting = int(np.argmin(np.abs(np.asarray(bank.arrays.temperature) - 1.0)))
    draws = np.where(bank.nodes["invalid"], 0, bank.nodes["draws"][:, setting])
    parent = bank.nodes["parent"]
    order = np.argsort(parent, kind="stable")
    first = np.searchsorted(parent[order], np.arange(parent.size))
    last = np.searchsorted(parent[order], np.arange(parent.size), side="right")
    done, right = np.asarray(bank.arrays.done), np.asarray(bank.arrays.answer) == 0
    roots = np.asarray(bank.arrays.root).tolist()
    found = np.zeros((len(roots), _WALKS))
    for number, root in enumerate(roots):
        for walk in range(_WALKS):
            node = root
            while not done[node]:
                children = order[first[node] : last[node]]
                drawn = rng.permutation(np.repeat(children, draws[children]))[:samples]
                if drawn.size == 0:
                    break
                node = int(drawn[np.argmax(ranking[drawn])])
            found[number, walk] = done[node] and right[node]
    return found.mean(axis=1)


def ranking_table(name: str, measured: Ranking) -> Table:
    """Accuracies of `measure_ranking`, one line per ranking."""
    lines = [
        [ranking, *(_cell(*found[str(samples)]) for samples in SAMPLES)]
        for ranking, found in measured.items()
    ]
    return Table(name, ["best by", *(f"of {samples}" for samples in SAMPLES)], lines)


def _probability(bank: LoadedBank, column: int) -> np.ndarray:
    """P(step right) of every node by one PRM's calibration, which has no votes."""
    score, one = bank.arrays.score[:, column], jnp.ones(bank.arrays.score.shape[0])
    calibration = jax.tree.map(lambda values: values[column], bank.arrays.context.calibration)
    return np.asarray(
        search.calibration.calibrated_score(score, one, one, bank.arrays.log_prob, calibration)
    )


def _cell(mean: float, low: float, high: float) -> str:
    return f"{share(mean)} ({share(low)} to {share(high)})"
