"""PAC-Bayes bounds over the read-out weights of an embedded PRM, and hold-out bounds beside them.

    python -m studies.world.models.weight_bounds

writes the table `certificates-embedded.md`. A score is read at the end of a step. Its log-odds are
the last hidden state times the difference of two rows of the read-out, so that the PRM is a linear
head with as many weights as the state has channels. The questions are test questions, each with one
path of the policy `weak` and the exact labels of its steps. They trained no model.
"""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import tyro

from cats_jax.world import task, tokenizer
from studies.world.results.linear_heads import linear_head_bounds
from studies.world.results.markdown import Table, share

from . import labels, measure, sampling, training

ASSETS = pathlib.Path(task.__file__).parent / "assets"
ROWS = 256
"""Paths in a forward pass."""


@dataclass(frozen=True)
class StepStates:
    """Labelled steps with what the PRM's read-out gets.

    Attributes:
        states: last hidden states behind the final norm at the ends of steps, f64[S, channels].
        labels: whether each step and all before it are right, bool[S].
        question: number of the step's question, i64[S].
        weights: difference of the read-out's rows of "+" and "-", f64[channels].
    """

    states: np.ndarray
    labels: np.ndarray
    question: np.ndarray
    weights: np.ndarray


def sampled_paths(policy: str, count: int, seed: int) -> list[labels.LabelledPath]:
    """One path for each test question, without those that do not end or hold a blank step."""
    problems = task.problems("test", count, seed)
    texts = [problem.text for problem in problems]
    samples = sampling.sample_paths(
        training.load_model(ASSETS / "policies" / policy), texts, 1, seed
    )
    return labels.label_paths(problems, samples)


@torch.inference_mode()
def step_states(prm: str, paths: Sequence[labels.LabelledPath]) -> StepStates:
    """The states of an embedded PRM at the ends of the steps of paths, one path for a question."""
    model = training.load_model(ASSETS / "prms" / prm)
    ids = [tokenizer.path_ids(path.question, path.steps) for path in paths]
    order = sorted(range(len(paths)), key=lambda i: len(ids[i]))
    states: list[np.ndarray] = []
    for start in range(0, len(order), ROWS):
        chunk = [ids[i] for i in order[start : start + ROWS]]
        padded = training.pad(chunk, tokenizer.PAD_ID, torch.long)
        hidden = model.model(input_ids=padded, use_cache=False).last_hidden_state
        for row, ends in zip(hidden, padded == tokenizer.SEPARATOR_ID, strict=True):
            states.append(row[ends][1:].double().numpy())  # the first separator ends the question
    rows = model.lm_head.weight.double()
    return StepStates(
        np.concatenate(states),
        np.concatenate([np.array(paths[i].exact, bool) for i in order]),
        np.repeat(np.arange(len(order)), [len(paths[i].steps) for i in order]),
        measure.plus_minus_logit(rows.T).numpy(),
    )


def main(
    prm: str = "monte-carlo",
    count: int = 2000,
    part: int = 750,
    seed: int = 0,
    results: pathlib.Path = pathlib.Path("docs/results"),
) -> None:
    """Write the table.

    Args:
        prm, count: the embedded PRM, and the number of test questions.
        part: questions of each of the two parts of `linear_head_bounds`.
        seed: random seed of the questions and paths.
        results: folder with `tables`.
    """
    steps = step_states(prm, sampled_paths("weak", count, seed))
    found = linear_head_bounds(
        steps.states, steps.labels, steps.question, part=part, published=steps.weights
    )
    wrong = np.bincount(steps.question, ~steps.labels) / np.bincount(steps.question)
    print(f"{wrong.size} questions, {len(steps.labels)} steps; always right: {share(wrong.mean())}")
    lines = [[name, share(value)] for name, value in found.items()]
    table = Table("certificates-embedded", ("bound", "0-1 risk"), lines)
    (results / "tables" / f"{table.name}.md").write_text(table.markdown(), encoding="utf-8")
    print(table.markdown())


if __name__ == "__main__":
    tyro.cli(main)
