"""How often certificates are wrong on the study's kept rows, in resampled worlds.

The questions of a run are taken as the whole population, whose accuracies are known. A world is a
sample of them with replacement, on which `theory.certify` chooses. It is wrong where it certifies a
configuration whose accuracy in the population is not above the target. Targets are accuracies of
configurations, which are the hardest ones: they are missed by nothing.

    python -m studies.world.results.certificate_worlds
"""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import tyro

import theory
from cats_jax.errors import BadInputError

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


def study(
    policy: str = "weak",
    prm: str = "exact",
    worlds: int = 200,
    delta: float = 0.05,
    rows: pathlib.Path = pathlib.Path("docs/results/rows"),
) -> None:
    """Print the share of wrong certificates at six targets, for Holm's correction and without one.

    Args:
        policy: policy whose kept rows are read.
        prm: PRM of the configurations.
        worlds: number of worlds.
        delta: probability at most that a certificate is false.
        rows: folder of the kept rows.

    Raises:
        BadInputError: there are no kept rows.
    """
    groups = [group for group in load_groups(rows, policy, PARTS) if group.prm == prm]
    if not groups:
        raise BadInputError(
            f"{str(rows)!r} has no rows of {policy!r} with {prm!r}: start the command in the root "
            "of the repository, or name the folder by --rows"
        )
    values = [group.by_question() for group in groups]
    right = np.array([[each[question] for question in values[0]] for each in values]) > 0.5
    accuracies = np.quantile(right.mean(axis=1), (0.2, 0.4, 0.6, 0.8, 0.9, 1.0), method="lower")
    targets = np.unique(accuracies).tolist()
    print(f"{len(groups)} configurations, {right.shape[1]} questions, {worlds} worlds, {delta=:g}")
    print("target  certified  wrong  wrong without a correction")
    for one in resampled_worlds(right, targets, worlds=worlds, delta=delta):
        print(f"{one.target:6.3f}  {one.certified:9.3f}  {one.wrong:5.3f}  {one.wrong_alone:5.3f}")


if __name__ == "__main__":
    tyro.cli(study)
