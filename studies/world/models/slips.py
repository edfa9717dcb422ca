"""Solutions with made-up slips: endless negatives whose every mistake is known."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence

from cats_jax.world import task

from . import labels

_CLEAN_SHARE = 0.2  # of the chains
_SLIP_RATE = 0.4  # of the steps of the others


def slip_chains(seed: int, levels: Sequence[int] = task.LEVELS) -> Iterator[labels.TokenLabels]:
    """Endless labelled chains on fresh questions of the ``prm`` set, most of them with slips."""
    rng = random.Random(f"slips {seed}")
    streams = [task.problem_stream("prm", level, seed) for level in levels]
    for stream in itertools.cycle(streams):
        problem = next(stream)
        rate = 0.0 if rng.random() < _CLEAN_SHARE else _SLIP_RATE
        yield labels.token_labels(problem.text, slip_chain(rng, problem, rate))


def slip_chain(rng: random.Random, problem: task.Problem, rate: float) -> list[str]:
    """A solution in which each step slips with probability `rate`.

    The chain continues from what was written, as a policy's would, until it ends or a step cannot
    be followed: a wrong operand, or an operation that the written numbers leave undefined.
    """
    written = labels.WrittenExpression(problem.text)
    steps: list[str] = []
    while allowed := written.right_steps():
        step = allowed[0]
        if rng.random() < rate:
            step = slip(rng, step)
        steps.append(step)
        written.reduce(step)
    return steps


def slip(rng: random.Random, step: str) -> str:
    """A wrong version of a right step, of the kinds that small policies write."""
    reduction = task.parse_reduction(step)
    if reduction is None:
        return task.boxed(_other_number(rng, step.removeprefix("\\boxed{").removesuffix("}")))
    left, symbol, right, value = reduction
    kind = rng.random()
    if kind < 0.75:
        return f"{left}{symbol}{right}={_other_number(rng, str(value))}"
    if kind < 0.85:
        left = int(_other_number(rng, str(left)))
    elif kind < 0.95:
        right = int(_other_number(rng, str(right)))
    else:
        symbol = rng.choice([other for other in "+-*/%" if other != symbol])
    # Half of the slips in what is computed are followed by the right value of the wrong operation.
    changed = task.apply_operation(symbol, left, right)
    if changed is None or changed > 999 or rng.random() < 0.5:
        changed = value
    return f"{left}{symbol}{right}={changed}"


def _other_number(rng: random.Random, digits: str) -> str:
    """A number near `digits` in value or in spelling, never the same."""
    value = int(digits)
    while True:
        kind = rng.random()
        if kind < 0.35:
            other = value + rng.choice((-100, -10, -1, 1, 10, 100))
        elif kind < 0.8:
            spelling = list(digits)
            spelling[rng.randrange(len(digits))] = str(rng.randint(0, 9))
            other = int("".join(spelling))
        else:
            other = value + rng.randint(-30, 30)
        if other >= 0 and other != value:
            return str(other)
