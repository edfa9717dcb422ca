"""Checks that a call of a policy or a PRM returned what its contract requires.

A search checks every call, so no value that breaks a rule enters a tree or a ledger.
`models.contracts` checks a model by the same rules. A message names model, question and rule.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from numbers import Integral, Real
from typing import Any, TypeGuard, get_args

import numpy as np

from ..errors import GeneratorContractError, ScorerContractError
from ..protocols import (
    AnswerGeneration,
    AnswerScoring,
    Finish,
    Generation,
    Path,
    Question,
    Scoring,
    Step,
    StepRequest,
    StepSample,
    TokenUsage,
)

_FINISHES = frozenset(get_args(Finish))

_ROUNDING = 1e-4
"""Nats by which a sum of rounded log-probabilities may be above 0."""


def check_generation(
    generation: Generation, requests: Sequence[StepRequest], policy: str = "policy"
) -> None:
    """Raise GeneratorContractError, naming `policy`, if `generate` broke a rule."""
    _check_call(generation, generation.samples, "samples", requests, policy)
    for request, samples in zip(requests, generation.samples, strict=True):
        found = _fault_of_number(samples, request, "sample")
        if found is None:
            found = next(filter(None, (_fault_of_sample(each, request) for each in samples)), None)
        if found is not None:
            raise _generator_error(policy, request, found)
    if requests and requests[0].vectors:
        vectors = (each.vector for samples in generation.samples for each in samples)
        lengths = sorted({len(vector) for vector in vectors if vector is not None})
        if len(lengths) > 1:
            found = f"vectors of {lengths[0]} and of {lengths[-1]} numbers: give all one length"
            raise _generator_error(policy, requests[0], found)


def check_answers(
    generation: AnswerGeneration,
    requests: Sequence[StepRequest],
    max_depth: int,
    policy: str = "policy",
) -> None:
    """Raise GeneratorContractError, naming `policy`, if `generate_answers` broke a rule."""
    _check_call(generation, generation.answers, "answers", requests, policy)
    for request, answers in zip(requests, generation.answers, strict=True):
        found = _fault_of_number(answers, request, "answer")
        if found is None:
            most = max_depth - len(request.path)
            faults = (_fault_of_answer(each, request, most) for each in answers)
            found = next(filter(None, faults), None)
        if found is not None:
            raise _generator_error(policy, request, found)


def check_scoring(
    scoring: Scoring, questions: Sequence[Question], paths: Sequence[Path], prm: str = "the PRM"
) -> None:
    """Raise ScorerContractError, naming `prm`, if `score` broke a rule."""
    _check_scores_per_path(scoring, scoring.scores, questions, paths, prm)
    for question, path, score in zip(questions, paths, scoring.scores, strict=True):
        if score is not None and not _is_score(score):
            raise _bad_score(prm, question, len(path) - 1, score)


def check_answer_scoring(
    scoring: AnswerScoring,
    questions: Sequence[Question],
    paths: Sequence[Path],
    known: Sequence[int],
    prm: str = "the PRM",
) -> None:
    """Raise ScorerContractError, naming `prm`, if `score_answers` broke a rule."""
    _check_scores_per_path(scoring, scoring.scores, questions, paths, prm)
    for question, path, first, scores in zip(questions, paths, known, scoring.scores, strict=True):
        wanted = max(0, len(path) - first)
        if not _is_list(scores) or len(scores) != wanted:
            raise ScorerContractError(
                f"{prm} returned {_size(scores, 'scores')} for the {wanted} steps of question "
                f"{question.id!r} from step {first} on: return one score per step",
                question_id=question.id,
                step=first,
            )
        for step, score in enumerate(scores, start=first):
            if score is not None and not _is_score(score):
                raise _bad_score(prm, question, step, score)


# A call as a whole


def _check_call(
    returned: Generation | AnswerGeneration,
    lists: Any,
    what: str,
    requests: Sequence[StepRequest],
    policy: str,
) -> None:
    """Check the lengths of a policy's lists, its usage and its seconds, but no sample."""

    def broken(rule: str) -> GeneratorContractError:
        # A list of a wrong length does not show which request is at fault.
        only = requests[0].question.id if len({r.question for r in requests}) == 1 else None
        where = f", the first of question {requests[0].question.id!r}" if requests else ""
        calls = f"{len(requests)} requests{where}"
        return GeneratorContractError(f"{policy}: {calls}: {rule}", question_id=only)

    for name, value in ((what, lists), ("usage", returned.usage)):
        if not _is_list(value) or len(value) != len(requests):
            raise broken(f"it returned {_size(value, name)}: return one entry per request")
    for name, value in (("seconds", returned.seconds), ("sample_usage", returned.sample_usage)):
        if value is not None and (not _is_list(value) or len(value) != len(requests)):
            raise broken(f"it returned {_size(value, name)}: return one per request, or None")
    _check_seconds(returned.inside_seconds, broken)
    for request, usage in zip(requests, returned.usage, strict=True):
        if (found := _fault_of_usage(usage)) is not None:
            raise _generator_error(policy, request, found)
    for request, spent in zip(requests, returned.seconds or (), strict=False):
        if (found := _fault_of_seconds(spent)) is not None:
            raise _generator_error(policy, request, found)
    for request, each in zip(requests, returned.sample_usage or (), strict=False):
        if not _is_list(each) or len(each) != len(request.seeds):
            found = f"sample_usage has {_size(each, 'entries')} for {len(request.seeds)} seeds"
            raise _generator_error(policy, request, found)
        if (found := next(filter(None, map(_fault_of_usage, each)), None)) is not None:
            raise _generator_error(policy, request, f"sample_usage: {found}")


def _check_scores_per_path(
    scoring: Scoring | AnswerScoring,
    scores: Any,
    questions: Sequence[Question],
    paths: Sequence[Path],
    prm: str,
) -> None:
    """Check the lengths of a PRM's lists, its usage and its seconds, but no score."""

    def broken(rule: str) -> ScorerContractError:
        only = questions[0].id if len(set(questions)) == 1 else None
        where = ""
        if paths:
            where = f", the first of question {questions[0].id!r}, step {len(paths[0]) - 1}"
        return ScorerContractError(f"{prm} {rule}{where}", question_id=only)

    seconds = getattr(scoring, "seconds", None)
    for name, value in (("scores", scores), ("usages", scoring.usage), ("seconds", seconds)):
        if name == "seconds" and value is None:
            continue
        if not _is_list(value) or len(value) != len(paths):
            raise broken(f"returned {_size(value, name)} for {len(paths)} paths")
    _check_seconds(scoring.inside_seconds, broken)
    spent = [0.0] * len(paths) if seconds is None else seconds
    for question, path, usage, own in zip(questions, paths, scoring.usage, spent, strict=True):
        found = _fault_of_usage(usage) or _fault_of_seconds(own)
        if found is None and usage.generated:
            found = f"usage.generated={usage.generated}: a PRM samples no token"
        if found is not None:
            raise ScorerContractError(
                f"{prm}, step {len(path) - 1} of question {question.id!r}: {found}",
                question_id=question.id,
                step=len(path) - 1,
            )


def _check_seconds(value: Any, broken: Callable[[str], Exception]) -> None:
    if (found := _fault_of_seconds(value, "inside_seconds")) is not None:
        raise broken(f"returned {found}")


# Parts of a call: each check returns the broken rule, or None


def _fault_of_number(found: Any, request: StepRequest, what: str) -> str | None:
    seeds = len(request.seeds)
    if _is_list(found) and len(found) == seeds:
        return None
    return f"{_size(found, what + 's')} for {seeds} seeds: return one {what} per seed, in order"


def _fault_of_answer(answer: Any, request: StepRequest, most: int) -> str | None:
    """The broken rule of one whole answer of at most `most` steps."""
    if not _is_list(answer) or not answer:
        return "an answer without steps: return the tuple of its samples"
    if len(answer) > most:
        return (
            f"an answer of {len(answer)} steps beyond step {len(request.path)}, at most {most} are "
            "allowed: cut it at max_depth"
        )
    for sample in answer:
        # The last step may be the rest of the answer, so it may have any finish.
        if (found := _fault_of_sample(sample, request)) is not None:
            return found
    for sample in answer[:-1]:
        if sample.finish != "step":
            return f"a step with finish={sample.finish!r} in the middle: only the last one may end"
    if len(answer) == most and answer[-1].finish == "step":
        return "the last step at max_depth does not run to the end of the answer"
    return None


def is_broken(text: str) -> bool:
    """Whether a text holds half of a character, a lone surrogate, which UTF-8 can't write."""
    return not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text)


def _fault_of_sample(sample: Any, request: StepRequest) -> str | None:
    if not isinstance(sample, StepSample) or not isinstance(sample.step, Step):
        return f"a sample is a {type(sample).__name__}: return a StepSample with a Step"
    finish, ids, log_prob = sample.finish, sample.step.token_ids, sample.log_prob
    if not isinstance(finish, str) or finish not in _FINISHES:
        return f"unknown finish {finish!r}: it must be one of {', '.join(sorted(_FINISHES))}"
    if finish == "step" and request.to_end:
        return "a request with to_end stopped at a step: sample the rest of the answer"
    if not isinstance(sample.step.text, str):
        return f"a step's text is a {type(sample.step.text).__name__}: it must be a str"
    if is_broken(sample.step.text):
        return "a step's text holds half of a character (a lone surrogate): leave it out"
    if not isinstance(ids, tuple):
        return f"token_ids is a {type(ids).__name__}: it must be a tuple"
    if not ids:
        # The context had no room left for a token.
        return None if finish == "context" else f"a sample without tokens, finish={finish!r}"
    if not all(map(_is_count_type, set(map(type, ids)))) or min(ids) < 0:
        wrong = next(each for each in ids if not _is_count_type(type(each)) or each < 0)
        return f"token id {wrong!r}: token_ids must be integers >= 0"
    if log_prob is not None and (not _is_number(log_prob) or not -math.inf < log_prob <= _ROUNDING):
        return f"log-probability {log_prob!r}: it must be finite and at most 0, or None"
    count = sample.num_sampled
    if count is not None and not (_is_count_type(type(count)) and count >= 0):
        return f"num_sampled={count!r}: it must be an integer >= 0, or None"
    return _fault_of_vector(sample, request) or (
        None if request.certainty is None else _fault_of_certainties(sample)
    )


def _fault_of_certainties(sample: StepSample) -> str | None:
    found, tokens = sample.certainties, len(sample.step.token_ids)
    if not isinstance(found, tuple) or len(found) != tokens:
        return f"{_size(found, 'certainties')} for {tokens} tokens: return one per token"
    if not all(_is_number(each) and math.isfinite(each) for each in found):
        return "a certainty is not a finite number"
    return None


def _fault_of_vector(sample: StepSample, request: StepRequest) -> str | None:
    found = sample.vector
    if not request.vectors:
        return None
    if not isinstance(found, np.ndarray) or found.dtype != np.float32 or found.ndim != 1:
        kind = found.dtype if isinstance(found, np.ndarray) else type(found).__name__
        return f"a vector of {kind}: it must be a NumPy array of float32 with one axis"
    if not len(found) or not np.isfinite(found).all():
        return "a vector is empty or has a number that is not finite"
    return None


def _fault_of_usage(usage: Any) -> str | None:
    if not isinstance(usage, TokenUsage):
        return f"a usage is a {type(usage).__name__}: return a TokenUsage"
    for name in ("computed", "cached", "generated"):
        count = getattr(usage, name)
        if not _is_count_type(type(count)) or count < 0:
            return f"usage.{name}={count!r}: it must be an integer >= 0"
    if not _is_number(usage.cost) or not 0.0 <= usage.cost < float("inf"):
        return f"usage.cost={usage.cost!r}: it must be a finite number >= 0"
    return None


def _fault_of_seconds(value: Any, name: str = "seconds") -> str | None:
    if _is_number(value) and 0.0 <= value < math.inf:
        return None
    return f"{name}={value!r}: it must be a finite number >= 0"


def _is_score(score: Any) -> bool:
    return _is_number(score) and 0.0 <= score <= 1.0  # False for NaN, too


def _is_count_type(kind: type) -> bool:
    return kind is int or (issubclass(kind, Integral) and kind is not bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, Real)


def _is_list(value: Any) -> TypeGuard[Sequence[Any]]:
    return isinstance(value, list | tuple)


def _size(value: Any, name: str) -> str:
    return f"{len(value)} {name}" if _is_list(value) else f"a {type(value).__name__} as {name}"


def _generator_error(policy: str, request: StepRequest, fault: str) -> GeneratorContractError:
    return GeneratorContractError(
        f"{policy}, step {len(request.path)} of question {request.question.id!r}: {fault}",
        question_id=request.question.id,
        step=len(request.path),
    )


def _bad_score(prm: str, question: Question, step: int, score: Any) -> ScorerContractError:
    return ScorerContractError(
        f"{prm} scored step {step} of question {question.id!r} with {score!r}: a score must be in "
        "[0, 1], or None for a path that the PRM can't read",
        question_id=question.id,
        step=step,
    )
