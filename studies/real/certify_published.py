"""Certificates from published scores and solutions, with PAC-Bayes bounds for comparison.

    python -m studies.real.certify_published FOLDER

FOLDER has the reference material: `qwen2.5_math_100x8.jsonl` (100 questions of MATH with eight
solutions each, their grades and rewards), `smollm2/samples_1_660.jsonl.gz` (660 questions of GSM8K
with 16 solutions each, their grades and step scores) and `prm_steps/steps.jsonl` (labelled steps
with the scores of six PRMs). The tables `certificates-real.md` and `certificates-selective.md` are
about solutions, and those of `prm_bounds` about PRMs.
"""

from __future__ import annotations

import gzip
import json
import pathlib
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tyro
from scipy import special

import theory
from cats_jax.reporting.selective_answers import THRESHOLDS
from cats_jax.reporting.sheets import down, up
from cats_jax.scoring.labelled import read_labelled
from studies.world.results.markdown import Table, share

from .prm_bounds import (
    DELTA,
    compressed_lines,
    head_lines,
    question_steps,
    risk_lines,
    weight_lines,
)

SPLITS = 200
BOX = re.compile(r"\\boxed\{([^{}]*)\}")


@dataclass(frozen=True)
class Solutions:
    """Solutions of a set of questions.

    `scores` are f64[n, N] in [0, 1], -1 for a solution without a score or an answer, and `right`
    bool[n, N]. `answers` are [n][N] texts, for votes; None if they are not compared.
    """

    scores: np.ndarray
    right: np.ndarray
    answers: Sequence[Sequence[str]] | None

    def best_of(self, number: int) -> np.ndarray:
        """Whether the best-scored of the first solutions is right, bool[n]."""
        best = self.scores[:, :number].argmax(axis=1)
        return self.right[np.arange(len(self.right)), best]

    def majority_of(self, number: int) -> np.ndarray:
        """Whether the most frequent answer of the first solutions is right, bool[n]."""
        assert self.answers is not None
        found = []
        for answers, right in zip(self.answers, self.right, strict=True):
            votes = Counter(text for text in answers[:number] if text)
            top = votes.most_common(1)[0][0] if votes else None
            found.append(top is not None and bool(right[list(answers).index(top)]))
        return np.array(found)

    def majority_share(self, number: int) -> np.ndarray:
        """Share of the first solutions with the most frequent answer, f64[n] in [0, 1]."""
        assert self.answers is not None
        return np.array([
            max(Counter(filter(None, answers[:number])).values(), default=0) / number
            for answers in self.answers
        ])  # fmt: skip


def read_rewarded(path: pathlib.Path) -> Solutions:
    """The questions of Qwen2.5-Math's example; a reward r becomes 1 / (1 + exp(-r))."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    scores = special.expit(np.array([row["reward_scores"] for row in rows]))
    return Solutions(scores, np.array([row["correct"] for row in rows]), None)


def read_samples(path: pathlib.Path) -> Solutions:
    """The samples of SmolLM2; the score of a solution is that of its last step."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        rows = [json.loads(line)["samples"] for line in file]

    def answer(sample: dict) -> str:  # pyright: ignore[reportMissingTypeArgument]
        boxes = BOX.findall(" ".join(sample["steps"]))
        return boxes[-1].replace(",", "").strip() if boxes else ""

    answers = [[answer(sample) for sample in samples] for samples in rows]
    scores = [[_last(sample["scores"], answer(sample)) for sample in samples] for samples in rows]
    return Solutions(
        np.array(scores),
        np.array([[sample["right"] for sample in samples] for samples in rows]),
        answers,
    )


def _last(scores: Sequence[float] | None, answer: str) -> float:
    return -1.0 if not scores or scores[-1] is None or not answer else float(scores[-1])


def halves(
    certify: Callable[[np.ndarray], Any], false_on: Callable[[np.ndarray, Any], bool], number: int
) -> tuple[int, int]:
    """Of random halves: how often the first certifies a claim, and the second then contradicts it.

    Args:
        certify: from the questions of a half to what it certifies; None or False for nothing.
        false_on: whether the exact test of the other half refutes that at the level .05.
        number: number of questions.
    """
    rng = np.random.default_rng(0)
    certified = contradicted = 0
    for _ in range(SPLITS):
        order = rng.permutation(number)
        used, fresh = order[: number // 2], order[number // 2 :]
        if (found := certify(used)) not in (None, False):
            certified += 1
            contradicted += false_on(fresh, found)
    return certified, contradicted


def accuracy_line(name: str, right: np.ndarray, target: float, tests: int) -> list[str]:
    """A claim on an accuracy: of all questions, and of random halves."""
    level = DELTA / tests

    def above(used: np.ndarray) -> bool:
        return bool(theory.certify([right[used].sum()], used.size, target=target, delta=level)
                    .certified[0])  # fmt: skip

    def refuted(fresh: np.ndarray, _: bool) -> bool:
        return bool(theory.binomial_upper(right[fresh].sum(), fresh.size, delta=DELTA) <= target)

    low = float(theory.binomial_lower(right.sum(), right.size, delta=level))
    claim = f"accuracy above {share(target)}"
    return [name, claim, *_of_share(right, f"at least {share(float(down(low)))}", above, refuted)]


def loss_line(
    name: str, right: np.ndarray, full: np.ndarray, limit: float, tests: int
) -> list[str]:
    """A claim on harmful questions against the full configuration."""
    harm, level = full & ~right, DELTA / tests

    def below(used: np.ndarray) -> bool:
        return bool(theory.selective_p(harm[used].sum(), used.size, limit) <= level)

    def refuted(fresh: np.ndarray, _: bool) -> bool:
        return bool(theory.binomial_lower(harm[fresh].sum(), fresh.size, delta=DELTA) >= limit)

    most = float(theory.binomial_upper(harm.sum(), harm.size, delta=level))
    claim = f"loss below {share(limit)}"
    return [name, claim, *_of_share(harm, f"at most {share(float(up(most)))}", below, refuted)]


def _of_share(
    hits: np.ndarray,
    bound: str,
    certify: Callable[[np.ndarray], bool],
    refuted: Callable[[np.ndarray, bool], bool],
) -> list[str]:
    """The cells of a claim on a share of the questions."""
    certified, contradicted = halves(certify, refuted, hits.size)
    said = "yes" if certify(np.arange(hits.size)) else "no"
    return [f"{hits.size}", share(hits.mean()), bound, said, f"{certified}", f"{contradicted}"]


def selective_line(
    name: str, score: np.ndarray, right: np.ndarray, grid: np.ndarray, target: float
) -> list[str]:
    """Selective answers: the lowest certified threshold of all questions and of random halves.

    Args:
        name: of the configuration.
        score, right: f64[n] and bool[n], of each answer.
        grid: f64[G], rising thresholds that were fixed before the data.
        target: the accuracy of the answered questions.
    """

    def threshold(used: np.ndarray) -> float | None:
        found = theory.certify_selective(
            score[used], right[used], grid, target=target, delta=DELTA
        ).index
        return None if found is None else float(grid[found])

    def refuted(fresh: np.ndarray, lowest: float) -> bool:
        hits = right[fresh][score[fresh] >= lowest]
        confirmed.append((hits.size, hits.sum(), fresh.size))
        return bool(hits.size and theory.binomial_upper(hits.sum(), hits.size, delta=DELTA)
                    <= target)  # fmt: skip

    confirmed: list[tuple[int, int, int]] = []
    found = halves(threshold, refuted, score.size)
    line = [name, share(target), f"{score.size}", share(right.mean())]
    lowest = threshold(np.arange(score.size))
    given = score >= (np.inf if lowest is None else lowest)
    line += [f"{given.mean():.1%}", share(right[given].mean()) if given.any() else ""]
    line.append(f"{found[0]}")
    answered, hits, asked = np.sum(confirmed, axis=0) if confirmed else (0, 0, 1)
    line += [f"{answered / asked:.1%}", share(hits / answered)] if answered else ["", ""]
    return [*line, f"{found[1]}"]


def selective_lines(qwen: Solutions, smol: Solutions) -> list[list[str]]:
    """Selective answers by the reward of the best of eight, and by the share of a vote of 16."""
    best, votes = qwen.best_of(8), smol.majority_of(16)
    reward, shares = qwen.scores.max(axis=1), smol.majority_share(16)
    return [
        *(selective_line("Qwen2.5-Math, best of 8 by its reward", reward, best, THRESHOLDS, target)
          for target in (0.85, 0.9)),
        *(selective_line("SmolLM2, majority of 16 by its share", shares, votes,
                         np.arange(1, 17) / 16, target)
          for target in (0.25, 0.5)),
    ]  # fmt: skip


def solution_lines(qwen: Solutions, smol: Solutions) -> list[list[str]]:
    """The claims about the two sets of solutions."""
    full = qwen.best_of(8)
    lines = [
        accuracy_line(f"Qwen2.5-Math, best of {n}", qwen.best_of(n), 0.8, 4) for n in (1, 2, 4, 8)
    ]
    lines += [
        loss_line(f"Qwen2.5-Math, best of {n} for 8", qwen.best_of(n), full, 0.1, 3)
        for n in (1, 2, 4)
    ]
    stopping = theory.certify_stopping(
        qwen.scores, qwen.right, THRESHOLDS, max_loss=0.036, delta=0.8 * DELTA
    )
    if stopping.index is not None:
        paths = stopping.num_paths[stopping.index]
        most = theory.cost_upper(paths, limit=8, delta=0.2 * DELTA, num_choices=THRESHOLDS.size)
        print(
            f"stopping: loss at most .036 at {paths.mean():.2f} of 8 samples, at most "
            f"{up(most, 2)}; {stopping.harmful[stopping.index]} harmful"
        )
    for n in (1, 4, 8, 16):
        lines.append(accuracy_line(f"SmolLM2, majority of {n}", smol.majority_of(n), 0.06, 7))
    for n in (4, 8, 16):
        lines.append(accuracy_line(f"SmolLM2, best of {n}", smol.best_of(n), 0.06, 7))
    votes, best = smol.majority_of(16), smol.best_of(16)
    for name, other in (("one sample", smol.best_of(1)), ("best of 16", best)):
        gain = theory.paired_lower(votes * 1.0 - other, delta=DELTA / 2)
        observed = votes.mean() - other.mean()
        print(f"majority of 16 over {name}: {observed:+.3f}, at least {down(gain)} (delta .025)")
    return lines


def main(
    folder: tyro.conf.Positional[pathlib.Path],
    *,
    results: pathlib.Path = pathlib.Path("docs/results"),
) -> None:
    """Write the tables.

    Args:
        folder: folder of the reference material.
        results: folder with `tables`.
    """
    qwen = read_rewarded(folder / "qwen2.5_math_100x8.jsonl")
    smol = read_samples(folder / "smollm2" / "samples_1_660.jsonl.gz")
    labelled = read_labelled([folder / "prm_steps" / "steps.jsonl"])
    steps = question_steps(labelled, labelled.prms)
    header = ("configuration", "claim", "questions", "observed", "bound of all questions",
              "certified by all", f"certified by half, of {SPLITS}",
              "then refuted by the other half")  # fmt: skip
    selective = ("configuration", "target", "questions", "accuracy of all", "answered",
                 "accuracy of these", f"certified by half, of {SPLITS}", "other half answers",
                 "their accuracy", "then refuted by the other half")  # fmt: skip
    risk = ("PRMs", "loss", "always right", "observed", "Hoeffding", "kl", "betting")
    weights = [*weight_lines(*steps), *compressed_lines(*steps)]
    tables = [
        Table("certificates-real", header, solution_lines(qwen, smol)),
        Table("certificates-selective", selective, selective_lines(qwen, smol)),
        Table("certificates-risk", risk, risk_lines(*steps)),
        Table("certificates-heads", ("calibrated head", "0-1 risk"), head_lines(*steps)),
        Table("certificates-weights", ("bound", "0-1 risk"), weights),
    ]
    for table in tables:
        (results / "tables" / f"{table.name}.md").write_text(table.markdown(), encoding="utf-8")
        print(table.markdown())


if __name__ == "__main__":
    tyro.cli(main)
