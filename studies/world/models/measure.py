"""Figures of the world's models: pass@k, pair, AUC, cross-entropy, best-of-N, sparsity.

**Pair** tells verification from guessing how hard a question is: of two siblings, steps sampled
after one right prefix, one right and one wrong, how often the right one scores higher (ties count
one half). A PRM trained on step labels alone reaches an AUC above .9 with a pair near .5, and
best-of-N with it falls as N grows.
"""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from transformers import Qwen2ForCausalLM

from cats_jax.world import task, tokenizer
from theory import estimators
from theory.sparsity import THRESHOLD

from . import sampling, training
from .labels import LabelledPath

_ROWS = 256  # sequences scored together
_BOOTSTRAPS = 1000

AGGREGATIONS: Mapping[str, Callable[[Sequence[float]], float]] = {
    "min": min,
    "last": lambda scores: scores[-1],
    "mean": lambda scores: sum(scores) / len(scores),
    # Ranked by summed logs: a product of many small scores underflows.
    "product": lambda scores: sum(math.log(max(score, 1e-30)) for score in scores),
}


# --- Scores ------------------------------------------------------------------------------------


def plus_minus_logit(logits: torch.Tensor) -> torch.Tensor:
    """The read-out of a PRM before the sigmoid: f32[..., vocabulary] -> f32[...]."""
    return logits[..., tokenizer.PLUS_ID] - logits[..., tokenizer.MINUS_ID]


@torch.inference_mode()
def score_paths(
    model: Qwen2ForCausalLM, paths: Sequence[tuple[str, tuple[str, ...]]]
) -> list[list[float]]:
    """A PRM's scores of every step of paths, (question, steps).

    A path that begins another one has that one's first scores: no step sees those after it.
    """
    longest: dict[tuple[str, tuple[str, ...]], tuple[str, tuple[str, ...]]] = {}
    for question, steps in sorted(dict.fromkeys(paths), key=lambda path: -len(path[1])):
        for end in range(len(steps) + 1):
            longest.setdefault((question, steps[:end]), (question, steps))
    sequences = {longest[path]: tokenizer.path_ids(*longest[path]) for path in paths}
    order = sorted(sequences, key=lambda path: len(sequences[path]))
    scores: dict[tuple[str, tuple[str, ...]], list[float]] = {}
    for start in range(0, len(order), _ROWS):
        chunk = order[start : start + _ROWS]
        ids = training.pad([sequences[path] for path in chunk], tokenizer.PAD_ID, torch.long)
        # No token sees the padding on its right, so no mask is needed.
        logits = plus_minus_logit(model(input_ids=ids, use_cache=False).logits)
        probabilities = torch.sigmoid(logits.float())
        for path, row, is_end in zip(
            chunk, probabilities, ids == tokenizer.SEPARATOR_ID, strict=True
        ):
            scores[path] = row[is_end].tolist()[1:]  # the first separator ends the question
    return [scores[longest[path]][: len(path[1])] for path in paths]


# --- Figures of a policy -----------------------------------------------------------------------


def is_correct(problem: task.Problem, sample: sampling.Sample) -> bool:
    """Whether a sampled path states the right answer."""
    return sample.complete and sample.steps[-1] == problem.steps[-1]


def policy_figures(
    problems: Sequence[task.Problem],
    samples: Sequence[Sequence[sampling.Sample]],
    ks: Sequence[int] = (1, 4, 16, 64, 256),
) -> dict:
    """pass@k over all levels and pass@1 by level, as far as there are k samples a question."""
    right = [
        sum(is_correct(problem, sample) for sample in drawn)
        for problem, drawn in zip(problems, samples, strict=True)
    ]
    counts = [len(drawn) for drawn in samples]
    figures: dict = {"questions": len(problems), "samples": min(counts)}
    for k in ks:
        if k <= min(counts):
            figures[f"pass@{k}"] = _rounded(estimators.pass_at_k(right, counts, k).mean())
    figures["pass@1_by_level"] = {
        str(level): _rounded(
            np.mean(
                [
                    r / n
                    for problem, r, n in zip(problems, right, counts, strict=True)
                    if problem.level == level
                ]
            )
        )
        for level in sorted({problem.level for problem in problems})
    }
    return figures


# --- Figures of a PRM --------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Siblings:
    """Steps sampled after one right prefix, some right, some wrong, as they were drawn."""

    question: str
    prefix: tuple[str, ...]
    right: tuple[str, ...]
    wrong: tuple[str, ...]


def siblings(paths: Sequence[LabelledPath], num_children: int = 8) -> list[Siblings]:
    """The nodes of sampled paths that have right and wrong children.

    A node is a question with a right prefix; its children are the first `num_children` steps drawn
    after it, as a search would draw them.
    """
    children = collections.defaultdict[tuple[str, tuple[str, ...]], list[tuple[str, int]]](list)
    for path in paths:
        for index, (step, label) in enumerate(zip(path.steps, path.exact, strict=True)):
            drawn = children[path.question, path.steps[:index]]
            if len(drawn) < num_children:
                drawn.append((step, label))
            if not label:
                break
    nodes = []
    for (question, prefix), drawn in children.items():
        right = tuple(step for step, label in drawn if label)
        wrong = tuple(step for step, label in drawn if not label)
        if right and wrong:
            nodes.append(Siblings(question, prefix, right, wrong))
    return nodes


def sibling_paths(nodes: Sequence[Siblings]) -> list[tuple[str, tuple[str, ...]]]:
    """The paths that end with the children of nodes."""
    return [
        (node.question, (*node.prefix, step))
        for node in nodes
        for step in (*node.right, *node.wrong)
    ]


def pair_figures(model: Qwen2ForCausalLM, nodes: Sequence[Siblings], seed: int = 0) -> dict:
    """Share of (right, wrong) pairs ranked rightly, its 95 % interval, the number of pairs.

    The interval is a bootstrap over questions: pairs of one question are not independent.
    """
    return rank_figures(nodes, score_paths(model, sibling_paths(nodes)), seed)


def rank_figures(
    nodes: Sequence[Siblings], scores: Sequence[Sequence[float]], seed: int = 0
) -> dict:
    """`pair_figures` by the scores of `sibling_paths`."""
    last = dict(zip(sibling_paths(nodes), [row[-1] for row in scores], strict=True))
    wins: dict[str, float] = collections.defaultdict(float)
    pairs: dict[str, int] = collections.defaultdict(int)
    for node in nodes:
        for right in node.right:
            for wrong in node.wrong:
                difference = (
                    last[node.question, (*node.prefix, right)]
                    - last[node.question, (*node.prefix, wrong)]
                )
                wins[node.question] += 0.5 if difference == 0 else float(difference > 0)
                pairs[node.question] += 1
    won, drawn = np.array(list(wins.values())), np.array(list(pairs.values()))
    if not len(drawn):
        return {"pair": None, "pair_ci": None, "pairs": 0}
    resampled = np.random.default_rng(seed).integers(len(won), size=(_BOOTSTRAPS, len(won)))
    shares = won[resampled].sum(1) / drawn[resampled].sum(1)
    return {
        "pair": _rounded(won.sum() / drawn.sum()),
        "pair_ci": [_rounded(bound) for bound in np.quantile(shares, [0.025, 0.975])],
        "pairs": int(drawn.sum()),
    }


def step_figures(scores: Sequence[Sequence[float]], labels: Sequence[Sequence[int]]) -> dict:
    """AUC, cross-entropy and accuracy over all steps of all paths."""
    y = np.concatenate([np.asarray(row, dtype=float) for row in labels])
    p = np.concatenate([np.asarray(row, dtype=float) for row in scores]).clip(1e-6, 1 - 1e-6)
    auc = estimators.area_under_curve(p, y) if 0 < y.sum() < len(y) else None
    return {
        "steps": len(y),
        "share_right": _rounded(y.mean()),
        "auc": None if auc is None else _rounded(auc),
        "cross_entropy": _rounded(-(y * np.log(p) + (1 - y) * np.log(1 - p)).mean()),
        "step_accuracy": _rounded(((p > 0.5) == (y > 0.5)).mean()),
    }


def best_of_n(
    correct: Sequence[Sequence[bool]],
    scores: Sequence[Sequence[Sequence[float] | None]],
    ns: Sequence[int] = (4, 16, 64),
) -> dict[str, dict[str, float]]:
    """Accuracy of taking the best of N sampled paths, for every aggregation of step scores.

    Args:
      correct: for each question, whether each sample's answer is right.
      scores: for each question and sample the step scores; None for a sample that is no candidate.
      ns: the N; each is averaged over all disjoint groups of N samples.

    Returns:
      aggregation -> N (as text) -> accuracy.
    """
    table: dict[str, dict[str, float]] = {}
    for name, aggregate in AGGREGATIONS.items():
        values = [
            [-math.inf if steps is None else aggregate(steps) for steps in rows] for rows in scores
        ]
        table[name] = {}
        for n in ns:
            hits = []
            for right, value in zip(correct, values, strict=True):
                for start in range(0, len(value) - n + 1, n):
                    best = max(range(start, start + n), key=lambda i, v=value: (v[i], -i))
                    hits.append(right[best] and value[best] > -math.inf)
            if hits:
                table[name][str(n)] = _rounded(np.mean(hits))
    return table


def sparsity(model: Qwen2ForCausalLM) -> dict:
    """Shares of parameters below `THRESHOLD`, tied ones once: all and ``lm_head``."""

    def share(tensors: Sequence[torch.Tensor]) -> float:
        small = sum(int((tensor.abs() < THRESHOLD).sum()) for tensor in tensors)
        return small / sum(tensor.numel() for tensor in tensors)

    parameters = [parameter.detach() for parameter in model.parameters()]
    return {
        "parameters": sum(parameter.numel() for parameter in parameters),
        "sparsity_total": round(share(parameters), 6),
        "sparsity_last_layer": round(share([training.read_out_of(model).detach()]), 6),
    }


def _rounded(value: float | np.floating) -> float:
    return round(float(value), 4)
