"""How often certificates are wrong on the study's kept rows, in resampled worlds.

The questions of a run are taken as the whole population, whose accuracies are known. A world is a
sample of them with replacement, on which `theory.certify` chooses. It is wrong where it certifies a
configuration whose accuracy in the population is not above the target. Targets are accuracies of
configurations, which are the hardest ones: they are missed by nothing.

Selective answers need the scores of answers, which the kept rows lack: `--run` names a run folder
with trees and one seed.

    python -m studies.world.results.certificate_worlds
    python -m studies.world.results.certificate_worlds --run runs/NAME
"""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import tyro

import theory
from cats_jax.errors import BadInputError
from cats_jax.live.abstention import answer_score
from cats_jax.reporting.groups import groups
from cats_jax.reporting.selective_answers import THRESHOLDS
from cats_jax.runs.folder import read_run

from .rows import load_groups

PARTS = ("baselines-small", "baselines-64", "cats")
"""Kept runs whose configurations are searched for a cheap one."""


@dataclass(frozen=True)
class Worlds:
    """What certificates did in resampled worlds.

    Attributes:
        target: the accuracy to be exceeded.
        wrong: share of worlds in which some certified configuration has no accuracy above it.
        wrong_alone: the same share if each test had the level delta for itself.
        certified: share of worlds in which something is certified.
    """

    target: float
    wrong: float
    wrong_alone: float
    certified: float


def resampled_worlds(
    right: np.ndarray,
    targets: Sequence[float],
    *,
    size: int = 500,
    worlds: int = 200,
    delta: float = 0.05,
    seed: int = 0,
) -> list[Worlds]:
    """Certify on samples of a population of questions.

    Args:
        right: bool[G, Q], whether each configuration answers each question right.
        targets: accuracies to be exceeded, each in (0, 1).
        size: number of questions of a world.
        worlds: number of worlds, the same for all targets.
        delta: probability at most that a certificate is false, in (0, 1).
        seed: random seed of the samples.

    Raises:
        ValueError: an argument outside its range.
    """
    rng = np.random.default_rng(seed)
    times = rng.multinomial(size, np.full(right.shape[1], 1 / right.shape[1]), worlds)
    counts, accuracy = times @ right.T.astype(np.int64), right.mean(axis=1)
    found = []
    for target in targets:
        tests = [theory.certify(row, size, target=target, delta=delta) for row in counts]
        false = accuracy <= target
        wrong = [(test.certified & false).any() for test in tests]
        alone = [((test.p_values <= delta) & false).any() for test in tests]
        some = [test.certified.any() for test in tests]
        found.append(Worlds(target, *(float(np.mean(each)) for each in (wrong, alone, some))))
    return found


def selective_worlds(
    scores: np.ndarray,
    right: np.ndarray,
    targets: Sequence[float],
    *,
    size: int = 500,
    worlds: int = 200,
    delta: float = 0.05,
    seed: int = 0,
) -> list[Worlds]:
    """Choose the threshold of selective answers on samples of a population of questions.

    A world is wrong where the answers above the chosen threshold are right in a share of the
    population that is not above the target. Without a correction the lowest threshold is chosen
    whose own test is at most delta.

    Args:
        scores: f64[Q], of each answer; below 0 where there is none.
        right: bool[Q], whether each answer is right.
        targets: accuracies of the answered questions to be exceeded, each in (0, 1).
        size, worlds, delta, seed: as in `resampled_worlds`.

    Raises:
        ValueError: an argument outside its range.
    """
    rng = np.random.default_rng(seed)
    samples = rng.integers(scores.size, size=(worlds, size))
    reached = scores[None, :] >= THRESHOLDS[:, None]
    accuracy = (reached & right).sum(axis=1) / np.maximum(reached.sum(axis=1), 1)
    found = []
    for target in targets:
        wrong = alone = some = 0
        for sample in samples:
            test = theory.certify_selective(
                scores[sample], right[sample], THRESHOLDS, target=target, delta=delta
            )
            some += test.index is not None
            wrong += bool((test.certified & (accuracy <= target)).any())
            passed = np.flatnonzero(test.p_values <= delta)
            alone += passed.size > 0 and bool(accuracy[passed[0]] <= target)
        found.append(Worlds(target, wrong / worlds, alone / worlds, some / worlds))
    return found


def study_selective(run: pathlib.Path, worlds: int, delta: float) -> None:
    """Print the share of wrong selective certificates of each configuration of a run.

    The targets are the accuracies that its answers have from a threshold on, which are the hardest.
    """
    found = read_run(run)
    print("selective answers: configuration, target  certified  wrong  wrong without a correction")
    for group in groups(found.rows):
        if group.prm is None:
            continue
        pairs = [(answer_score(found.tree(row)), row.correct) for row in group.rows if row.tree]
        scores = np.array([-1.0 if score is None else score for score, _ in pairs])
        right = np.array([correct for _, correct in pairs])
        curve = [right[scores >= t].mean() for t in THRESHOLDS if (scores >= t).sum() >= 20]
        targets = np.unique(np.quantile(curve, (0.5, 0.75, 0.9), method="lower")).tolist()
        for one in selective_worlds(
            scores, right, [t for t in targets if 0 < t < 1], worlds=worlds, delta=delta
        ):
            print(
                f"{group.name} {group.prm}, {scores.size} questions  {one.target:6.3f}  "
                f"{one.certified:9.3f}  {one.wrong:5.3f}  {one.wrong_alone:5.3f}"
            )


def study(
    policy: str = "weak",
    prm: str = "exact",
    worlds: int = 200,
    delta: float = 0.05,
    rows: pathlib.Path = pathlib.Path("docs/results/rows"),
    run: pathlib.Path | None = None,
) -> None:
    """Print the share of wrong certificates at six targets, for Holm's correction and without one.

    Args:
        policy: policy whose kept rows are read.
        prm: PRM of the configurations.
        worlds: number of worlds.
        delta: probability at most that a certificate is false.
        rows: folder of the kept rows.
        run: a run folder with trees, for selective answers in place of the kept rows.

    Raises:
        BadInputError: there are no kept rows.
    """
    if run is not None:
        study_selective(run, worlds, delta)
        return
    kept = [group for group in load_groups(rows, policy, PARTS) if group.prm == prm]
    if not kept:
        raise BadInputError(
            f"{str(rows)!r} has no rows of {policy!r} with {prm!r}: start the command in the root "
            "of the repository, or name the folder by --rows"
        )
    values = [group.by_question() for group in kept]
    right = np.array([[each[question] for question in values[0]] for each in values]) > 0.5
    accuracies = np.quantile(right.mean(axis=1), (0.2, 0.4, 0.6, 0.8, 0.9, 1.0), method="lower")
    targets = np.unique(accuracies).tolist()
    print(f"{len(kept)} configurations, {right.shape[1]} questions, {worlds} worlds, {delta=:g}")
    print("target  certified  wrong  wrong without a correction")
    for one in resampled_worlds(right, targets, worlds=worlds, delta=delta):
        print(f"{one.target:6.3f}  {one.certified:9.3f}  {one.wrong:5.3f}  {one.wrong_alone:5.3f}")


if __name__ == "__main__":
    tyro.cli(study)
