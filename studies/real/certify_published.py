"""Certificates from published scores and solutions, with PAC-Bayes bounds for comparison.

    python -m studies.real.certify_published FOLDER

FOLDER has the reference material: `qwen2.5_math_100x8.jsonl` (100 questions of MATH with eight
solutions each, their grades and rewards), `smollm2/samples_1_660.jsonl.gz` (660 questions of GSM8K
with 16 solutions each, their grades and step scores) and `prm_steps/steps.jsonl` (labelled steps
with the scores of six PRMs). Four tables are written: `certificates-real.md` about solutions, and
`certificates-risk.md`, `certificates-heads.md` and `certificates-weights.md` about PRMs.
"""

from __future__ import annotations

import gzip
import json
import pathlib
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import tyro
from scipy import optimize, special

import theory
from cats_jax.reporting.selective_answers import THRESHOLDS
from cats_jax.scoring.labelled import LabelledData, read_labelled
from studies.world.results.markdown import Table, share

DELTA = 0.05
SPLITS = 200
BOX = re.compile(r"\\boxed\{([^{}]*)\}")


# Solutions


@dataclass(frozen=True)
class Solutions:
    """Solutions of a set of questions.

    Attributes:
        scores: f64[n, N] in [0, 1]; -1 for a solution without a score or an answer.
        right: bool[n, N].
        answers: [n][N] texts, for votes; None if they are not compared.
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
    certify: Callable[[np.ndarray], bool], false_on: Callable[[np.ndarray], bool], number: int
) -> tuple[int, int]:
    """Of random halves: how often the first certifies a claim, and the second then contradicts it.

    The second half contradicts if its exact test refutes the claim at the level .05.
    """
    rng = np.random.default_rng(0)
    certified = contradicted = 0
    for _ in range(SPLITS):
        order = rng.permutation(number)
        used, fresh = order[: number // 2], order[number // 2 :]
        if certify(used):
            certified += 1
            contradicted += false_on(fresh)
    return certified, contradicted


def accuracy_line(name: str, right: np.ndarray, target: float, tests: int) -> list[str]:
    """A claim on an accuracy: of all questions, and of random halves."""
    number, level = right.size, DELTA / tests

    def above(used: np.ndarray) -> bool:
        return bool(theory.certify([right[used].sum()], used.size, target=target, delta=level)
                    .certified[0])  # fmt: skip

    def refuted(fresh: np.ndarray) -> bool:
        return bool(theory.binomial_upper(right[fresh].sum(), fresh.size, delta=DELTA) <= target)

    found = halves(above, refuted, number)
    low = theory.binomial_lower(right.sum(), number, delta=level)
    said = "yes" if above(np.arange(number)) else "no"
    return [name, f"accuracy above {share(target)}", f"{number}", share(right.mean()),
            f"at least {share(float(low))}", said, f"{found[0]}", f"{found[1]}"]  # fmt: skip


def loss_line(
    name: str, right: np.ndarray, full: np.ndarray, limit: float, tests: int
) -> list[str]:
    """A claim on harmful questions against the full configuration."""
    harm, number, level = full & ~right, right.size, DELTA / tests

    def below(used: np.ndarray) -> bool:
        return bool(theory.selective_p(harm[used].sum(), used.size, limit) <= level)

    def refuted(fresh: np.ndarray) -> bool:
        return bool(theory.binomial_lower(harm[fresh].sum(), fresh.size, delta=DELTA) >= limit)

    found = halves(below, refuted, number)
    most = theory.binomial_upper(harm.sum(), number, delta=level)
    said = "yes" if below(np.arange(number)) else "no"
    return [name, f"loss below {share(limit)}", f"{number}", share(harm.mean()),
            f"at most {share(float(most))}", said, f"{found[0]}", f"{found[1]}"]  # fmt: skip


def solution_lines(folder: pathlib.Path) -> list[list[str]]:
    """The claims about the two sets of solutions."""
    qwen = read_rewarded(folder / "qwen2.5_math_100x8.jsonl")
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
            f"stopping: loss at most .036 at {paths.mean():.2f} of 8 samples, at most {most:.2f}; "
            f"{stopping.harmful[stopping.index]} harmful"
        )
    smol = read_samples(folder / "smollm2" / "samples_1_660.jsonl.gz")
    for n in (1, 4, 8, 16):
        lines.append(accuracy_line(f"SmolLM2, majority of {n}", smol.majority_of(n), 0.06, 7))
    for n in (4, 8, 16):
        lines.append(accuracy_line(f"SmolLM2, best of {n}", smol.best_of(n), 0.06, 7))
    votes, best = smol.majority_of(16), smol.best_of(16)
    for name, other in (("one sample", smol.best_of(1)), ("best of 16", best)):
        gain = theory.paired_lower(votes * 1.0 - other, delta=DELTA / 2)
        observed = votes.mean() - other.mean()
        print(f"majority of 16 over {name}: {observed:+.3f}, at least {gain:+.3f} (delta .025)")
    return lines


# PRMs


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


def by_question(losses: np.ndarray, question: np.ndarray) -> np.ndarray:
    """Mean loss of each question that has steps, f64[n]."""
    _, index = np.unique(question, return_inverse=True)
    return np.clip(np.bincount(index, losses) / np.bincount(index), 0.0, 1.0)


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
        risks = np.array([by_question(each.astype(float), question) for each in wrong])
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


def pac_bayes_lines(
    scores: np.ndarray, labels: np.ndarray, question: np.ndarray, splits: int = 5
) -> list[list[str]]:
    """A Gaussian head on the PRMs' logits: PAC-Bayes-kl beside hold-out bounds, 0-1 risk.

    The head's mean weights are fitted by logistic regression. Its Gibbs risk is exact:
    Pr[w x < 0] = Phi(-m x / (s |x|)) for w of mean m and standard deviation s. Ten deviations are
    tried, which costs ln 10 nats. With a data-dependent prior, 255 questions make the prior and 255
    others the posterior; the data-free prior is centred at 0. The other questions show the true
    risk of the weights that 255 questions made.
    """
    x = np.column_stack([special.logit(np.clip(scores, 1e-4, 1 - 1e-4)), np.ones(len(labels))])
    y = np.where(labels, 1.0, -1.0)
    rng, found = np.random.default_rng(0), []
    for _ in range(splits):
        order = rng.permutation(question.max() + 1)
        first, second, fresh = (np.isin(question, part) for part in np.split(order, [255, 510]))
        both = first | second
        prior = _logistic(x[first], y[first], np.zeros(x.shape[1]))
        held = by_question((y[second] * (x[second] @ prior) <= 0).astype(float), question[second])
        found.append([
            _gibbs_bound(x[second], y[second], question[second], prior),
            _gibbs_bound(x[both], y[both], question[both], np.zeros(x.shape[1])),
            float(theory.holdout_bound(held.mean(), num_samples=255, delta=DELTA, method="kl")),
            theory.betting_upper(held, delta=DELTA),
            by_question((y[fresh] * (x[fresh] @ prior) <= 0).astype(float),
                        question[fresh]).mean(),
        ])  # fmt: skip
    names = (
        "PAC-Bayes-kl, data-dependent prior", "PAC-Bayes-kl, data-free prior",
        "hold-out, kl", "hold-out, betting", "fresh questions",
    )  # fmt: skip
    means = np.mean(found, axis=0)
    return [[name, share(value)] for name, value in zip(names, means, strict=True)]


def _logistic(x: np.ndarray, y: np.ndarray, start: np.ndarray) -> np.ndarray:
    def loss(w: np.ndarray) -> tuple[float, np.ndarray]:
        margin = y * (x @ w)
        slope = -special.expit(-margin) * y
        return -special.log_expit(margin).mean() + 1e-3 * w @ w, (slope @ x / len(y) + 2e-3 * w)

    return optimize.minimize(loss, start, jac=True).x


def _gibbs_bound(x: np.ndarray, y: np.ndarray, question: np.ndarray, prior: np.ndarray) -> float:
    """The least PAC-Bayes-kl bound over the mean weights and ten deviations."""
    number = np.unique(question).size
    scale = y[:, None] * x / np.linalg.norm(x, axis=1, keepdims=True)
    bounds = []
    for deviation in np.geomspace(0.02, 2.0, 10):

        def bound(w: np.ndarray, deviation: float = deviation) -> float:
            risk = by_question(special.ndtr(-(scale @ w) / deviation), question).mean()
            kl = float((w - prior) @ (w - prior)) / (2 * deviation**2) + np.log(10)
            return float(theory.seeger_bound(risk, kl, num_samples=number, delta=DELTA))

        start = prior if prior.any() else _logistic(x, y, prior)
        bounds.append(optimize.minimize(bound, start, options={"maxiter": 60}).fun)
    return float(min(bounds))


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
    labelled = read_labelled([folder / "prm_steps" / "steps.jsonl"])
    steps = question_steps(labelled, labelled.prms)
    header = ("configuration", "claim", "questions", "observed", "bound of all questions",
              "certified by all", f"certified by half, of {SPLITS}",
              "then refuted by the other half")  # fmt: skip
    risk = ("PRMs", "loss", "always right", "observed", "Hoeffding", "kl", "betting")
    tables = [
        Table("certificates-real", header, solution_lines(folder)),
        Table("certificates-risk", risk, risk_lines(*steps)),
        Table("certificates-heads", ("calibrated head", "0-1 risk"), head_lines(*steps)),
        Table("certificates-weights", ("bound", "0-1 risk"), pac_bayes_lines(*steps)),
    ]
    for table in tables:
        (results / "tables" / f"{table.name}.md").write_text(table.markdown(), encoding="utf-8")
        print(table.markdown())


if __name__ == "__main__":
    tyro.cli(main)
