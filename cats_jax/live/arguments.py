"""Checks of the arguments of a `Searcher`; each error names the wrong argument."""

from __future__ import annotations

import inspect
import math
from collections.abc import Collection
from numbers import Integral, Real
from typing import Any

import search

from ..errors import BadInputError
from ..protocols import Question, StepGenerator, StepScorer, facts_of
from .contract import is_broken
from .method import SearchMethod


def check_policy(policy: Any) -> None:
    """Raise BadInputError unless `policy` is a `StepGenerator`."""
    _check("policy", policy, StepGenerator, "HuggingFaceGenerator(folder)")


def check_scorer(scorer: Any) -> None:
    """Raise BadInputError unless `scorer` is None or a `StepScorer`."""
    if scorer is not None:
        _check("scorer", scorer, StepScorer, "HuggingFaceScorer(folder, format)")


def as_method(strategy: Any, params: Any = ()) -> SearchMethod:
    """The search method made of a strategy and its parameters; a method is returned as it is.

    Raises:
        BadInputError: it is neither a strategy nor a method, or a method gets other parameters.
    """
    if isinstance(strategy, SearchMethod):
        if params is not strategy.params and params != ():
            raise BadInputError("params: a search method has its own: leave params out")
        return strategy
    if isinstance(strategy, search.Strategy):
        return SearchMethod(strategy, params)
    way = "pass a search.Strategy, such as search.beam(expansion=4)"
    if isinstance(strategy, str):
        call = "load_controller()" if strategy == "cats" else "search_method(...)"
        way = (
            f"pass the strategy itself, such as search.beam() or cats_jax.{call}, not the name "
            f"{strategy[:40]!r}"
        )
    elif callable(strategy):
        name = getattr(strategy, "__name__", "function")
        way = f"call it: {name}() makes the strategy"
    raise BadInputError(f"strategy is {_kind(strategy)}, not a search.Strategy: {way}")


def check_counts(**values: int) -> None:
    """Raise BadInputError unless each value is an integer of at least 1."""
    for name, value in values.items():
        if not _is_count(value):
            raise BadInputError(f"{name}={value!r}: must be an integer of at least 1")


def check_rates(**values: float) -> None:
    """Raise BadInputError unless each value is a finite number >= 0."""
    for name, value in values.items():
        if not isinstance(value, Real) or not 0.0 <= value < math.inf:
            raise BadInputError(f"{name}={value!r}: must be a number >= 0")


def check_limits(budget: int | None, max_tokens: int | None, max_seconds: float | None) -> None:
    """Raise BadInputError unless each is None or can be that limit of a `Searcher`."""
    if budget is not None and not (_is_count(budget) and budget < 1 << 31):
        raise BadInputError(
            f"budget={budget!r}: must be an integer from 1 to 2**31 - 1, or None for N * max_depth"
        )
    if max_tokens is not None:
        check_counts(max_tokens=max_tokens)
    if max_seconds is not None and (not isinstance(max_seconds, Real) or not max_seconds >= 0):
        raise BadInputError(f"max_seconds={max_seconds!r}: must be a number >= 0")


def _is_count(value: int) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and value >= 1


def fitting_strategy(
    strategy: search.Strategy,
    num_candidates: int,
    policy: StepGenerator,
    scorer: StepScorer | None,
) -> search.Strategy:
    """The strategy as it searches with these models: an outcome model scores finished answers only.

    Raises:
        BadInputError: the strategy reads something that the models can't report, or K > N.
    """
    if strategy.uses_scores and scorer is None:
        raise BadInputError(
            f"strategy {strategy.name!r} reads PRM scores, but no scorer was given: pass "
            "scorer=, or use a strategy that needs none (such as greedy or majority)"
        )
    check_width(strategy, strategy.name, num_candidates)
    facts = facts_of(policy)
    if strategy.certainty is not None and strategy.certainty.token not in facts.certainties:
        wanted = strategy.certainty.token
        raise BadInputError(missing_certainty(strategy.name, wanted, facts.certainties))
    if strategy.needs_vectors and not facts.vectors:
        raise BadInputError(missing_vectors(strategy.name))
    if scorer is None or not strategy.uses_scores or not facts_of(scorer).finished_only:
        return strategy
    check_outcome_model(strategy, strategy.name, scorer.name)
    return search.interface.scoring_ends(strategy)


def check_width(strategy: search.Strategy, label: str, num_candidates: int) -> None:
    """Raise BadInputError if the strategy keeps more paths, K, than it samples candidates, N."""
    width = strategy.width(num_candidates)
    if width > num_candidates:
        raise BadInputError(
            f"strategy {label!r}: K={width} paths kept, but N={num_candidates} "
            "candidates a step: K must be at most N; lower the beam width or raise N"
        )


def missing_certainty(label: str, wanted: str, reported: Collection[str]) -> str:
    """The message for a strategy that reads a token certainty which its policy can't report."""
    what = {
        "top": "the 20 most likely tokens' log-probabilities",
        "all": "the log-probabilities of the whole vocabulary",
    }
    others = " or ".join(what[kind] for kind in sorted(reported))
    return (
        f"strategy {label!r} reads {what[wanted]}, which the policy does not report"
        f"{f', but only {others}' if others else ''}: take backend: hf and a format without "
        "thinking, or another strategy, such as majority"
    )


def missing_vectors(label: str) -> str:
    """The message for a strategy that reads vectors which its policy can't report."""
    return (
        f"strategy {label!r} compares steps by the policy's hidden states, which the policy does "
        "not report: take backend: hf and a format without thinking, or another strategy, such as "
        "rebase"
    )


def check_outcome_model(strategy: search.Strategy, label: str, model: str) -> None:
    """Raise BadInputError if a strategy reads scores that `model`, an outcome model, can't give."""
    if strategy.uses_scores and strategy.needs_step_scores:
        raise BadInputError(
            f"strategy {label!r} reads scores of unfinished paths, and {model!r} is an outcome "
            "model, which scores finished answers only: take best_of_n or best_of_n_weighted with "
            "path_score: last and without beam_width, a strategy that asks no PRM, or a PRM"
        )


def check_calibration(values: Any) -> None:
    """Raise BadInputError unless `values` can be the fields of a `search.Calibration`."""
    most = len(search.Calibration())
    try:
        fits = len(values) <= most and all(math.isfinite(float(value)) for value in values)
    except (TypeError, ValueError):
        fits = False
    if not fits:
        raise BadInputError(
            f"calibration={values!r}: give at most {most} finite numbers, those of a "
            "search.Calibration, a file of `cats-jax calibrate`, or 'none'"
        )


def check_grader(grader: Any) -> None:
    """Raise BadInputError unless `grader` has the methods of an `AnswerGrader`."""
    missing = _missing(grader, ("extract", "equivalent"))
    if missing:
        raise BadInputError(
            f"grader is {_kind(grader)} without {missing}: pass an AnswerGrader, such as "
            "BoxedIntegerGrader(), or None"
        )


def check_questions(questions: Any) -> None:
    """Raise BadInputError unless `questions` is a collection of `Question`s."""
    if isinstance(questions, str) or not isinstance(questions, Collection):
        raise BadInputError(
            f"questions is {_kind(questions)}: pass a list, such as [Question('q1', 'text')]"
        )
    for question in questions:
        if not isinstance(question, Question):
            raise BadInputError(
                f"questions holds {_kind(question)}: make each a Question(id, text), which has no "
                "gold answer"
            )
        for name in ("id", "text"):
            value = getattr(question, name)
            if not isinstance(value, str) or is_broken(value):
                raise BadInputError(
                    f"a question's {name} is {value!r:.80}: it must be a str without halves of "
                    "characters (lone surrogates)"
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
    """The call that makes an instance of a class, with the names of its required parameters."""
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
