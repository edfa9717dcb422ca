"""Calls of models, with checks of the returned values by the rules of `contract`.

A call runs in the calling thread, or in its own thread if the model allows that (`ModelFacts`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any, TypeVar

from ..errors import BadInputError
from ..protocols import (
    AnswerGeneration,
    AnswerGenerator,
    AnswerScorer,
    AnswerScoring,
    Generation,
    Path,
    Question,
    Scoring,
    StepGenerator,
    StepRequest,
    StepScorer,
    facts_of,
)
from .contract import check_answer_scoring, check_answers, check_generation, check_scoring

T = TypeVar("T")


def executor_for(model: StepGenerator | StepScorer, most: int) -> Executor:
    """An executor for calls of a model: up to `most` at a time if it is concurrent, else one."""
    return ThreadPoolExecutor(most) if facts_of(model).concurrent else CallingThread()


def generate(policy: StepGenerator, requests: Sequence[StepRequest]) -> Generation:
    """Call `policy.generate` and check what it returns.

    Raises:
        BadInputError: it returned a value of another class.
        GeneratorContractError: it broke a rule.
    """
    made = _of_class(policy.generate(requests), Generation, policy, "generate")
    check_generation(made, requests, f"policy {policy.name!r}")
    return made


def whole_replies(
    writer: StepGenerator,
    prompts: Sequence[Question],
    seeds: Sequence[tuple[int, ...]],
    temperature: float,
) -> Generation:
    """Whole replies to prompts, one for each seed; the model keeps nothing of them afterwards.

    Raises:
        BadInputError, GeneratorContractError: as `generate` does.
    """
    requests = [
        StepRequest(prompt, (), own, float(temperature), top_p=1.0, top_k=0, to_end=True)
        for prompt, own in zip(prompts, seeds, strict=True)
    ]
    try:
        return generate(writer, requests)
    finally:
        for prompt in prompts:
            writer.keep_only(prompt, ())


def can_read(policy: StepGenerator, prompt: Question) -> bool:
    """Whether a prompt fits the context of a policy."""
    try:
        policy.check_question(prompt)
    except BadInputError:
        return False
    return True


def generate_answers(
    policy: AnswerGenerator, requests: Sequence[StepRequest], max_depth: int
) -> AnswerGeneration:
    """Call `policy.generate_answers` and check what it returns; raises the errors of `generate`."""
    found = policy.generate_answers(requests, max_depth)
    made = _of_class(found, AnswerGeneration, policy, "generate_answers")
    check_answers(made, requests, max_depth, f"policy {policy.name!r}")
    return made


def score(scorer: StepScorer, questions: Sequence[Question], paths: Sequence[Path]) -> Scoring:
    """Call `scorer.score` and check what it returns.

    Raises:
        BadInputError: it returned a value of another class.
        ScorerContractError: it broke a rule.
    """
    scoring = _of_class(scorer.score(questions, paths), Scoring, scorer, "score")
    check_scoring(scoring, questions, paths, f"PRM {scorer.name!r}")
    return scoring


def score_answers(
    scorer: AnswerScorer, questions: Sequence[Question], paths: Sequence[Path], known: Sequence[int]
) -> AnswerScoring:
    """Call `scorer.score_answers` and check what it returns; raises the errors of `score`."""
    found = scorer.score_answers(questions, paths, known)
    scoring = _of_class(found, AnswerScoring, scorer, "score_answers")
    check_answer_scoring(scoring, questions, paths, known, f"PRM {scorer.name!r}")
    return scoring


def _of_class(returned: Any, wanted: type[T], model: Any, method: str) -> T:
    if isinstance(returned, wanted):
        return returned
    got, name = type(returned).__name__, wanted.__name__
    raise BadInputError(
        f"{type(model).__name__}.{method} returned a value of type {got}: it must return a "
        f"cats_jax.protocols.{name}"
    )


class CallingThread(Executor):
    """An executor that makes each call at once; the future's `result` raises the call's errors."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Make the call and return its future, which is already done."""
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future
