"""How often certificates are wrong in resampled worlds, and what they save.

The 500 test questions of the kept rows and paths are taken as the whole population, whose
accuracies, losses and costs are known. A world is a sample of them with replacement, from which a
certificate is made. It is wrong where something that it certifies is false in the population.
Targets and limits are values of the population, which are the hardest ones.

    python -m studies.world.results.certificate_worlds

writes the tables `certificates-worlds.md` and `certificates-fresh.md` and the figure
`certificates.png`. `--keep runs/NAME` first keeps the paths of a run of
`studies/world/recipes/weak-paths.yaml`.
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tyro

import theory
from cats_jax.errors import BadInputError
from cats_jax.reporting.certificate_premises import COST_SHARE
from cats_jax.reporting.figure_setup import drawing, save_figure
from cats_jax.reporting.selective_answers import THRESHOLDS

from .interval_figure import Value, draw_intervals
from .kept_paths import NAME, keep_paths, load_paths
from .markdown import Table, share
from .rows import KeptGroup, load_groups

PARTS = ("baselines-small", "baselines-64", "cats")
"""Kept runs whose configurations are searched for a cheap one."""

LARGE = ("large-shipped-test",)
"""Kept runs on 2000 questions, of CATS at two prices."""

_SIZE = 500


@dataclass(frozen=True)
class Worlds:
    """What a certificate did in resampled worlds.

    Attributes:
        kind, setting: kind of the certificate, and its target or limit.
        num, certified: number of worlds, and of those in which something is certified.
        wrong: worlds in which something that is certified is false.
        wrong_alone: the same without a correction for several tests or choices.
        saved: what the chosen configuration costs, mean over the worlds with one; may be empty.
    """

    kind: str
    setting: str
    num: int
    certified: int
    wrong: int
    wrong_alone: int
    saved: str = ""

    def interval(self) -> tuple[float, float]:
        """Exact 95 % interval of the probability that a certificate is wrong."""
        return (
            float(theory.binomial_lower(self.wrong, self.num, delta=0.025)),
            float(theory.binomial_upper(self.wrong, self.num, delta=0.025)),
        )

    def cells(self) -> list[str]:
        """The line of the table."""
        low, high = self.interval()
        wrong = f"{self.wrong} ({share(low)} to {share(high)})"
        counts = (f"{self.certified}", wrong, f"{self.wrong_alone}")
        return [self.kind, self.setting, *counts, self.saved]


def resample(population: int, worlds: int, seed: int, size: int = _SIZE) -> np.ndarray:
    """How often each question of the population is in each world, i64[worlds, population]."""
    rng = np.random.default_rng(seed)
    return rng.multinomial(size, np.full(population, 1 / population), worlds)


def target_worlds(
    right: np.ndarray, tokens: np.ndarray, target: float, times: np.ndarray, delta: float
) -> Worlds:
    """The cheapest configuration above a target, by `theory.certify`.

    Args:
        right, tokens: bool[G, Q] and f64[G, Q], of each configuration, cheapest first, and
            question.
        target: the accuracy to be exceeded.
        times: `resample`.
        delta: probability at most that a certificate is false.
    """
    counts = times @ right.T.astype(np.int64)
    size = int(times[0].sum())
    p_values = [theory.certify(row, size, target=target, delta=delta).p_values for row in counts]
    false = right.mean(axis=1) <= target
    return _tested("accuracy above a target", share(target), p_values, false, tokens, delta)


def loss_worlds(
    right: np.ndarray,
    full: np.ndarray,
    tokens: np.ndarray,
    limit: float,
    times: np.ndarray,
    delta: float,
) -> Worlds:
    """The cheapest configuration with few harmful questions against a full one.

    Args:
        right, tokens, times, delta: as in `target_worlds`.
        full, limit: bool[Q], where the full configuration is right; largest share of harmful ones.
    """
    harm = full[None, :] & ~right
    false = harm.mean(axis=1) >= limit
    size = int(times[0].sum())
    p_values = [
        np.asarray(theory.selective_p(row, size, limit)) for row in times @ harm.T.astype(np.int64)
    ]
    return _tested("loss against best-of-64", share(limit), p_values, false, tokens, delta)


def _tested(
    kind: str,
    setting: str,
    p_values: Sequence[np.ndarray],
    false: np.ndarray,
    tokens: np.ndarray,
    delta: float,
) -> Worlds:
    """The first configuration that is certified by its p value, f64[G] in each world."""
    certified = [theory.reject(p, delta=delta) for p in p_values]
    picks = [int(np.argmax(flags)) for flags in certified if flags.any()]
    return Worlds(
        kind,
        setting,
        len(p_values),
        len(picks),
        sum(bool((flags & false).any()) for flags in certified),
        sum(bool(((p <= delta) & false).any()) for p in p_values),
        f"{tokens.mean(axis=1)[picks].mean():.0f} tokens" if picks else "",
    )


def cost_worlds(
    right: np.ndarray, tokens: np.ndarray, target: float, times: np.ndarray, delta: float
) -> Worlds:
    """The bound on the mean tokens of the configuration that a target certified.

    The limit of a question's tokens is the largest of the population, the least that is allowed.
    """
    size, num = int(times[0].sum()), len(right)
    wrong = alone = some = 0
    bounds, limit = [], float(tokens.max())
    for world in times:
        index = theory.certify(right @ world, size, target=target, delta=delta).index
        if index is None:
            continue
        sample, mean = np.repeat(tokens[index], world), tokens[index].mean()
        bound = theory.cost_upper(sample, limit=limit, delta=delta, num_choices=num)
        some += 1
        wrong += bound < mean
        alone += theory.cost_upper(sample, limit=limit, delta=delta) < mean
        bounds.append(bound)
    saved = f"at most {np.mean(bounds):.0f} tokens" if bounds else ""
    kind = "cost of the chosen one"
    return Worlds(kind, f"target {share(target)}", len(times), some, wrong, alone, saved)


def stopping_worlds(
    scores: np.ndarray,
    right: np.ndarray,
    limit: float,
    times: np.ndarray,
    delta: float,
    name: str = "",
) -> Worlds:
    """The lowest stopping threshold with its bound on paths, as `cats-jax certify --stopping`.

    A world is also wrong where the bound on the mean number of paths is too low.

    Args:
        scores, right: [Q, N], paths of the population, see `theory.certify_stopping`.
        limit: largest share of harmful questions.
        times, delta: as in `target_worlds`.
        name: of the PRM.
    """
    level = (1 - COST_SHARE) * delta
    whole = theory.certify_stopping(scores, right, THRESHOLDS, max_loss=0.5, delta=0.5)
    false = whole.harmful / len(scores) >= limit
    wrong = alone = some = 0
    paths = []
    for world in times:
        rows = np.repeat(np.arange(len(scores)), world)
        found = theory.certify_stopping(
            scores[rows], right[rows], THRESHOLDS, max_loss=limit, delta=level
        )
        passed = np.flatnonzero(found.p_values <= delta)
        alone += passed.size > 0 and bool(false[passed[0]])
        if found.index is None:
            continue
        bound = theory.cost_upper(
            found.num_paths[found.index],
            limit=scores.shape[1],
            delta=COST_SHARE * delta,
            num_choices=THRESHOLDS.size,
        )
        mean = whole.num_paths[found.index].mean()
        some += 1
        wrong += bool((found.certified & false).any() or bound < mean)
        paths.append(mean)
    saved = f"{np.mean(paths):.1f} of {scores.shape[1]} paths" if paths else ""
    return Worlds(
        f"stopping, {name}", f"loss {share(limit)}", len(times), some, wrong, alone, saved
    )


def selective_worlds(
    scores: np.ndarray,
    right: np.ndarray,
    target: float,
    times: np.ndarray,
    delta: float,
    name: str = "",
) -> Worlds:
    """The lowest threshold of selective answers.

    Without a correction the lowest threshold is chosen whose own test is at most delta.

    Args:
        scores: f64[Q], of each answer; below 0 where there is none.
        right: bool[Q], whether each answer is right.
        target: accuracy of the answered questions to be exceeded.
        times, delta: as in `target_worlds`.
        name: of the PRM.
    """
    reached = scores[None, :] >= THRESHOLDS[:, None]
    false = (reached & right).sum(axis=1) / np.maximum(reached.sum(axis=1), 1) <= target
    wrong = alone = 0
    answered = []
    for world in times:
        rows = np.repeat(np.arange(scores.size), world)
        found = theory.certify_selective(
            scores[rows], right[rows], THRESHOLDS, target=target, delta=delta
        )
        wrong += bool((found.certified & false).any())
        passed = np.flatnonzero(found.p_values <= delta)
        alone += passed.size > 0 and bool(false[passed[0]])
        if found.index is not None:
            answered.append(reached[found.index].mean())
    saved = f"{np.mean(answered):.0%} answered" if answered else ""
    return Worlds(
        f"selective, {name}", share(target), len(times), len(answered), wrong, alone, saved
    )


def fresh_parts(
    make: Callable[[np.ndarray], int | None],
    good: np.ndarray,
    costs: np.ndarray,
    *,
    used: int,
    splits: int,
    seed: int,
) -> tuple[float, float, float]:
    """Certificates from a random part of the questions, on the other part.

    Args:
        make: from the indices of the used questions to the chosen configuration, or None.
        good: f64[G, Q], the value of each question that the claim is about.
        costs: f64[G, Q].
        used: number of questions of a certificate.
        splits: number of random splits.
        seed: random seed of the splits.

    Returns:
        Share of splits with a certificate; mean of `good` and of `costs` on the fresh part over
        these splits, NaN without one.
    """
    rng = np.random.default_rng(seed)
    values = []
    for _ in range(splits):
        order = rng.permutation(good.shape[1])
        chosen = make(order[:used])
        if chosen is not None:
            fresh = order[used:]
            values.append((good[chosen, fresh].mean(), costs[chosen, fresh].mean()))
    value, cost = np.mean(values, axis=0) if values else (np.nan, np.nan)
    return len(values) / splits, float(value), float(cost)


def study(
    worlds: int = 200,
    delta: float = 0.05,
    seed: int = 0,
    results: pathlib.Path = pathlib.Path("docs/results"),
    keep: pathlib.Path | None = None,
) -> None:
    """Write the tables and the figure, and print the tables.

    Args:
        worlds: number of worlds, and of random splits.
        delta: probability at most that a certificate is false.
        seed: random seed.
        results: folder with `rows`, `tables` and `figures`.
        keep: a run of `weak-paths.yaml`, whose paths are kept first.

    Raises:
        BadInputError: there are no kept rows, or `keep` is no such run.
    """
    rows = results / "rows"
    if keep is not None:
        keep_paths(keep, rows)
    if not (rows / NAME).is_file():
        raise BadInputError(
            f"{str(rows)!r} has no {NAME}: start the command in the root of the repository, or "
            "name the folder by --results"
        )
    found = [*_configurations(rows, worlds, delta, seed), *_paths(rows, worlds, delta, seed)]
    header = (
        "certificate", "target or limit", "certified", "wrong (95 % interval)",
        "wrong without a correction", "mean cost of what is chosen",
    )  # fmt: skip
    tables = [
        Table("certificates-worlds", header, [each.cells() for each in found]),
        _fresh(rows, worlds, delta, seed),
    ]
    for table in tables:
        path = results / "tables" / f"{table.name}.md"
        path.write_text(table.markdown(), encoding="utf-8")
        print(table.markdown())
    with drawing():
        figure = _draw(found, delta)
        save_figure(figure, results / "figures" / "certificates.png")


def _arrays(groups: Sequence[KeptGroup]) -> tuple[np.ndarray, np.ndarray]:
    """Grades bool[G, Q] and tokens f64[G, Q] of kept groups, cheapest first."""
    ordered = sorted(groups, key=lambda group: group.mean("tokens"))
    ids = sorted(ordered[0].by_question())
    right = np.array([[each.by_question()[i] for i in ids] for each in ordered]) > 0.5
    tokens = [list(map(each.by_question("tokens").__getitem__, ids)) for each in ordered]
    return right, np.array(tokens)


def _configurations(rows: pathlib.Path, worlds: int, delta: float, seed: int) -> list[Worlds]:
    kept = [group for group in load_groups(rows, "weak", PARTS) if group.prm == "exact"]
    right, tokens = _arrays(kept)
    (whole,) = [each for each in kept if (each.strategy, each.num_candidates) == ("best_of_n", 64)]
    full = _arrays([whole])[0][0]
    times = resample(right.shape[1], worlds, seed)
    accuracies = np.quantile(right.mean(axis=1), (0.2, 0.4, 0.6, 0.8, 1.0), method="lower")
    targets = np.unique(accuracies).tolist()
    shares = (full[None, :] & ~right).mean(axis=1)
    others = shares[shares > 0]
    limits = np.unique(np.quantile(others, (0.1, 0.3, 0.5, 0.8), method="lower")).tolist()
    return [
        *(target_worlds(right, tokens, target, times, delta) for target in targets),
        *(loss_worlds(right, full, tokens, limit, times, delta) for limit in limits),
        *(cost_worlds(right, tokens, target, times, delta) for target in targets[:-1]),
    ]


def _paths(rows: pathlib.Path, worlds: int, delta: float, seed: int) -> list[Worlds]:
    found = []
    for prm, (scores, right) in load_paths(rows).items():
        times = resample(len(scores), worlds, seed)
        whole = theory.certify_stopping(scores, right, THRESHOLDS, max_loss=0.5, delta=0.5)
        shares = whole.harmful / len(scores)
        # No 500 questions certify a smaller loss than .01.
        hard = np.unique(np.quantile(shares[shares > 0.01], (0.2, 0.6), method="lower"))
        for limit in (0.02, *hard.tolist()):
            found.append(stopping_worlds(scores, right, limit, times, delta, prm))
        best = scores.argmax(axis=1)[:, None]
        score, hits = (np.take_along_axis(each, best, axis=1)[:, 0] for each in (scores, right))
        curve = [hits[score >= t].mean() for t in THRESHOLDS if (score >= t).sum() >= 20]
        targets = np.unique(np.quantile(curve, (0.5, 0.75, 0.9), method="lower"))
        for target in targets[(targets > 0) & (targets < 1)].tolist():
            found.append(selective_worlds(score, hits, target, times, delta, prm))
    return sorted(found, key=lambda each: each.kind.split(",")[0] == "selective")


def _fresh(rows: pathlib.Path, splits: int, delta: float, seed: int) -> Table:
    """Certificates from a part of the questions, confirmed on the other part."""
    lines = []

    def add(claim: str, claimed: str, used: int, fresh: int, found: Sequence[Any]) -> None:
        lines.append([claim, claimed, f"{used}", f"{fresh}", f"{found[0]:.0%}", *found[1:]])

    right, tokens = _arrays(
        [group for group in load_groups(rows, "weak", LARGE) if group.prm == "exact"]
    )

    def by_target(used: np.ndarray) -> int | None:
        counts = right[:, used].sum(axis=1)
        return theory.certify(counts, used.size, target=0.65, delta=delta).index

    options = {"splits": splits, "seed": seed}
    part, value, cost = fresh_parts(by_target, right, tokens, used=500, **options)
    add("CATS, accuracy above .65", "accuracy", 500, right.shape[1] - 500,
        [part, share(value), f"{cost:.0f} tokens"])  # fmt: skip
    for prm, (scores, hits) in load_paths(rows).items():
        whole = theory.certify_stopping(scores, hits, THRESHOLDS, max_loss=0.5, delta=0.5)
        full = hits[np.arange(len(hits)), scores.argmax(axis=1)]
        harm = full[None, :] & ~whole.right

        def by_loss(used: np.ndarray, scores: np.ndarray = scores, hits: np.ndarray = hits) -> Any:
            return theory.certify_stopping(
                scores[used], hits[used], THRESHOLDS, max_loss=0.03, delta=delta
            ).index

        part, value, cost = fresh_parts(by_loss, harm, whole.num_paths, used=250, **options)
        add(f"stopping, {prm}, loss at most .03", "share of harmful", 250, len(scores) - 250,
            [part, share(value), f"{cost:.1f} of {scores.shape[1]} paths"])  # fmt: skip
    header = ("claim", "fresh value of", "used", "fresh", "certified in", "fresh value", "cost")
    return Table("certificates-fresh", header, lines)


def _draw(found: Sequence[Worlds], delta: float) -> Any:
    values: dict[str, list[Value]] = {"corrected": [], "without a correction": []}
    for each in found:
        row = f"{each.kind}, {each.setting}"
        low, high = each.interval()
        values["corrected"].append(Value(row, each.wrong / each.num, low, high))
        alone = each.wrong_alone / each.num
        values["without a correction"].append(Value(row, alone, alone, alone))
    return draw_intervals(
        {"": values},
        title=f"Wrong certificates in {found[0].num} resampled worlds",
        note=f"bars: exact 95 % intervals; line: delta = {delta:g}",
        x_title="share of worlds with a wrong certificate",
        zero=delta,
    )


if __name__ == "__main__":
    tyro.cli(study)
