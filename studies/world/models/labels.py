"""Sampled paths with their step labels, exact and Monte-Carlo, and labels for every token.

An *exact* label is 1 iff the step and every step before it are right (`task.check_steps`). A
*Monte-Carlo* label, which needs no checker of steps, is 1 iff any of a few continuations sampled
after the step reaches the right answer. So a right step after which the policy always fails has the
label 0, and a wrong one from which it reaches the answer by luck has the label 1.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import pathlib
from collections.abc import Sequence

from transformers import Qwen2ForCausalLM

from cats_jax.world import task, tokenizer

from . import sampling, training

NO_LABEL = -1.0


@dataclasses.dataclass(frozen=True)
class LabelledPath:
    """One path with a label for each step; `monte_carlo` is empty where it was not estimated."""

    question: str
    level: int
    steps: tuple[str, ...]
    exact: tuple[int, ...]
    monte_carlo: tuple[int, ...] = ()


def label_paths(
    problems: Sequence[task.Problem], samples: Sequence[Sequence[sampling.Sample]]
) -> list[LabelledPath]:
    """The complete samples of each problem with their exact labels."""
    return [
        LabelledPath(
            problem.text,
            problem.level,
            sample.steps,
            tuple(map(int, task.check_steps(problem.text, sample.steps))),
        )
        for problem, drawn in zip(problems, samples, strict=True)
        for sample in drawn
        if sample.complete
    ]


def as_many_right_as_wrong(paths: Sequence[LabelledPath]) -> list[LabelledPath]:
    """The paths with an error, and the first of the right ones, as many; in the given order."""
    left = sum(not all(path.exact) for path in paths)
    kept = []
    for path in paths:
        if all(path.exact):
            left -= 1
        if left >= 0 or not all(path.exact):
            kept.append(path)
    return kept


def add_monte_carlo(
    model: Qwen2ForCausalLM, paths: Sequence[LabelledPath], num_rollouts: int, seed: int
) -> list[LabelledPath]:
    """The same paths with hard Monte-Carlo labels from `num_rollouts` rollouts a prefix.

    The label of a prefix that ends with a boxed answer is whether the answer is right, without
    rollouts. Equal prefixes are estimated once.
    """
    labels: dict[tuple[str, tuple[str, ...]], int] = {}
    waiting: dict[tuple[str, tuple[str, ...]], list[int]] = {}
    for path in paths:
        for end in range(1, len(path.steps) + 1):
            key = (path.question, path.steps[:end])
            if key[1][-1].startswith(tokenizer.BOX_OPEN):
                labels[key] = int(_reaches_answer(path.question, key[1]))
            else:
                waiting[key] = tokenizer.path_ids(*key)
    rollouts = sampling.generate(model, list(waiting.values()), num_rollouts, seed)
    for (question, prefix), drawn in zip(waiting, rollouts, strict=True):
        ends = [sampling.to_sample(ids) for ids in drawn]
        labels[question, prefix] = int(
            any(end.complete and _reaches_answer(question, end.steps) for end in ends)
        )
    return [
        dataclasses.replace(
            path,
            monte_carlo=tuple(
                labels[path.question, path.steps[:end]] for end in range(1, len(path.steps) + 1)
            ),
        )
        for path in paths
    ]


def _reaches_answer(question: str, steps: Sequence[str]) -> bool:
    """Whether the last step states the right answer, however it was reached."""
    return steps[-1] == task.boxed(task.StepChecker(question).answer)


def save_paths(paths: Sequence[LabelledPath], file: pathlib.Path) -> None:
    """Writes paths as JSON lines."""
    lines = (json.dumps(dataclasses.asdict(path)) for path in paths)
    file.write_text("".join(f"{line}\n" for line in lines))


def load_paths(file: pathlib.Path) -> list[LabelledPath]:
    """Reads what `save_paths` wrote."""
    paths = []
    for line in file.read_text().splitlines():
        row = json.loads(line)
        tuples = {name: tuple(row[name]) for name in ("steps", "exact", "monte_carlo")}
        paths.append(LabelledPath(**{**row, **tuples}))
    return paths


# --- Labels for every token --------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class TokenLabels:
    """A PRM's input with a label for each token; all lists are equally long.

    Attributes:
      ids: prompt, then each step closed by the separator.
      labels: on a step's closing separator its exact label. On a token inside a step 1 iff the
        step up to it begins some step that is right given the numbers that are written there, right
        or wrong. `NO_LABEL` elsewhere.
      weights: how much each label counts.
      targets: the id itself on the tokens of steps that are right so far, for a language-model
        loss; `training.IGNORED` elsewhere.
    """

    ids: list[int]
    labels: list[float]
    weights: list[float]
    targets: list[int]

    def __len__(self) -> int:
        return len(self.ids)


SEPARATOR_WEIGHT, RESULT_WEIGHT, OPERAND_WEIGHT = 2.0, 1.0, 0.25


def token_labels(question: str, steps: Sequence[str]) -> TokenLabels:
    """Labels for every token of a path.

    Step labels alone teach how hard a question is, not to verify. A label on each digit makes a
    model compute the result itself, and given the written numbers it does so after an error, too.
    """
    exact = task.check_steps(question, steps)
    ids = tokenizer.prompt_ids(question)
    labels = [NO_LABEL] * len(ids)
    weights = [0.0] * len(ids)
    targets = [training.IGNORED] * len(ids)
    written = WrittenExpression(question)
    for step, right in zip(steps, exact, strict=True):
        allowed = written.right_steps()
        seen_equals = step.startswith(tokenizer.BOX_OPEN)
        step_ids = tokenizer.encode(step)
        text = ""
        for token in step_ids:
            text += tokenizer.VOCABULARY[token]
            if allowed is None:
                labels.append(NO_LABEL)
            else:
                labels.append(float(any(a.startswith(text) for a in allowed)))
            weights.append(RESULT_WEIGHT if seen_equals else OPERAND_WEIGHT)
            seen_equals = seen_equals or text[-1] == "="
        labels.append(float(right))
        weights.append(SEPARATOR_WEIGHT)
        closed = [*step_ids, tokenizer.SEPARATOR_ID]
        ids += closed
        targets += closed if right else [training.IGNORED] * len(closed)
        written.reduce(step)
    return TokenLabels(ids, labels, weights, targets)


def step_labels(question: str, steps: Sequence[str], labels: Sequence[int]) -> TokenLabels:
    """Given labels on the steps' closing separators; other tokens have none."""
    ids = tokenizer.prompt_ids(question)
    token_labels = [NO_LABEL] * len(ids)
    for step, label in zip(steps, labels, strict=True):
        step_ids = tokenizer.encode(step)
        ids += [*step_ids, tokenizer.SEPARATOR_ID]
        token_labels += [NO_LABEL] * len(step_ids) + [float(label)]
    return TokenLabels(
        ids, token_labels, [SEPARATOR_WEIGHT] * len(ids), [training.IGNORED] * len(ids)
    )


class WrittenExpression:
    """A question's expression, reduced by steps as they are written, right or wrong."""

    def __init__(self, question: str):
        self._expression: task.Expression | None = task.parse_question(question)

    def right_steps(self) -> list[str] | None:
        """Texts of the steps that are right now; None once a step could not be followed."""
        if self._expression is None:
            return None
        if isinstance(self._expression, int):
            return [task.boxed(str(self._expression))]
        steps = []
        for node in _reducible(self._expression):
            value = task.apply_operation(node.symbol, _number(node.left), _number(node.right))
            if value is not None:
                steps.append(f"{node.left}{node.symbol}{node.right}={value}")
        return steps

    def reduce(self, step: str) -> None:
        """Replaces the operation that `step` reduces by the value it states."""
        if self._expression is None or isinstance(self._expression, int):
            self._expression = None
            return
        stated = task.parse_reduction(step)
        if stated is None:
            self._expression = None
            return
        left, symbol, right, value = stated
        self._expression = _replace(self._expression, task.Operation(symbol, left, right), value)


def _number(node: task.Expression) -> int:
    assert isinstance(node, int)
    return node


def _reducible(node: task.Expression) -> list[task.Operation]:
    """The operations on two numbers, leftmost first."""
    if isinstance(node, int):
        return []
    if isinstance(node.left, int) and isinstance(node.right, int):
        return [node]
    return list(itertools.chain(_reducible(node.left), _reducible(node.right)))


def _replace(node: task.Expression, target: task.Operation, value: int) -> task.Expression | None:
    """`node` with the leftmost operation equal to `target` replaced; None if there is none."""
    if isinstance(node, int):
        return None
    if node == target:
        return value
    left = _replace(node.left, target, value)
    if left is not None:
        return dataclasses.replace(node, left=left)
    right = _replace(node.right, target, value)
    return None if right is None else dataclasses.replace(node, right=right)
