"""Objects handed to a `Searcher`, checked before it calls them; a wrong one is named."""

from __future__ import annotations

import inspect
from typing import Any

import search

from ..errors import BadInputError
from ..protocols import Question, StepGenerator, StepScorer


def check_policy(policy: Any) -> None:
    """Raise BadInputError unless `policy` is a `StepGenerator`."""
    _check("policy", policy, StepGenerator, "HuggingFaceGenerator(folder)")


def check_scorer(scorer: Any) -> None:
    """Raise BadInputError unless `scorer` is None or a `StepScorer`."""
    if scorer is not None:
        _check("scorer", scorer, StepScorer, "HuggingFaceScorer(folder, format)")


def check_strategy(strategy: Any) -> None:
    """Raise BadInputError unless `strategy` is a `search.Strategy`."""
    if isinstance(strategy, search.Strategy):
        return
    way = "pass a search.Strategy, such as search.beam(factor=4)"
    if isinstance(strategy, str):
        way = f"pass the strategy itself, such as search.beam(), not the name {strategy[:40]!r}"
    elif isinstance(getattr(strategy, "strategy", None), search.Strategy):
        way = "pass its attributes: strategy=method.strategy, params=method.params"
    elif callable(strategy):
        name = getattr(strategy, "__name__", "function")
        way = f"call it: {name}() makes the strategy"
    raise BadInputError(f"strategy is {_kind(strategy)}, not a search.Strategy: {way}")


def check_judge(judge: Any) -> None:
    """Raise BadInputError unless `judge` has the methods of an `AnswerJudge`."""
    missing = _missing(judge, ("extract", "equivalent"))
    if missing:
        raise BadInputError(
            f"judge is {_kind(judge)} without {missing}: pass an AnswerJudge, such as "
            "BoxedIntegerJudge(), or None"
        )


def check_questions(questions: Any) -> None:
    """Raise BadInputError unless `questions` is a sequence of `Question`s."""
    if isinstance(questions, str | Question):
        raise BadInputError(
            f"questions is {_kind(questions)}: pass a list, such as [Question('q1', 'text')]"
        )
    for question in questions:
        if not isinstance(question, Question):
            raise BadInputError(
                f"questions holds {_kind(question)}: make each a Question(id, text), which has no "
                "gold answer"
            )


def _check(name: str, value: Any, protocol: type, example: str) -> None:
    if inspect.isclass(value):
        raise BadInputError(
            f"{name} is the class {value.__name__}: make an instance, {_made(value)}"
        )
    missing = _missing(value, _members(protocol))
    if missing:
        raise BadInputError(
            f"{name} is {_kind(value)} without {missing}, which a {protocol.__name__} has: pass "
            f"one, such as {example}; cats_jax.protocols says what one needs"
        )


def _made(kind: type) -> str:
    """The call that makes an instance of a class, with the names of what it needs."""
    try:
        parameters = inspect.signature(kind).parameters.values()
    except (TypeError, ValueError):  # a class of C code may have no signature
        return f"{kind.__name__}(...)"
    needed = [
        f"{each.name}=..." if each.kind is each.KEYWORD_ONLY else each.name
        for each in parameters
        if each.default is each.empty and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
    ]
    return f"{kind.__name__}({', '.join(needed)})"


def _members(protocol: type) -> tuple[str, ...]:
    methods = (name for name, _ in inspect.getmembers(protocol, inspect.isfunction))
    named = (*protocol.__annotations__, *methods)
    return tuple(name for name in named if not name.startswith("_"))


def _missing(value: Any, names: tuple[str, ...]) -> str:
    return ", ".join(name for name in names if not hasattr(value, name))


def _kind(value: Any) -> str:
    name = type(value).__name__
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"
