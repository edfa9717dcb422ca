"""Contract tests for bridges: every generator and every scorer passes them.

The author of a new bridge runs the same tests as this project. The AssertionError of a broken
contract names the rule. The rules of a single call are in `cats_jax.live.contract`.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from numbers import Integral
from typing import Any

from ..errors import BadInputError, ModelContractError, ScorerContractError
from ..live.calls import generate, generate_answers, score, score_answers
from ..protocols import (
    AnswerGenerator,
    AnswerScorer,
    Generation,
    Path,
    Question,
    Step,
    StepGenerator,
    StepRequest,
    StepScorer,
    facts_of,
)


def check_generator(
    generator: StepGenerator, questions: Sequence[Question], *, exact: bool = True
) -> None:
    """Checks a policy against `StepGenerator`, and `AnswerGenerator` if it has its methods.

    Unlike a search, it also compares calls in other orders and batches.

    Args:
        generator: the implementation; its cached state of the questions is forgotten at the end.
        questions: two or more questions that fit the model's context.
        exact: whether a sample must be a function of path, parameters and seed alone, bit for bit
            (the Hugging Face bridge in float32). Otherwise only shapes and ranges are checked.

    Raises:
        AssertionError: a rule does not hold; the message names it.
    """
    _require(len(questions) >= 2, "give check_generator two questions or more")
    _check_name_and_size(generator)
    for question in questions:
        generator.check_question(question)
    with _broken_rules():
        _check_generator(generator, questions, exact=exact)


def _check_generator(
    generator: StepGenerator, questions: Sequence[Question], *, exact: bool
) -> None:
    roots = [_request(q, (), range(10 * i, 10 * i + 4)) for i, q in enumerate(questions)]
    first = generate(generator, roots)
    _check_sampled_tokens(generator, roots, first)
    second_level = [
        _request(request.question, (sample.step,), (77, 78), temperature=0.7, top_p=0.9, top_k=5)
        for request, samples in zip(roots, first.samples, strict=True)
        for sample in samples
        if sample.finish == "step"
    ]
    mixed = [
        *second_level,
        *(_request(q, (), (5,), temperature=0.0) for q in questions),
        *(_request(q, (), (6,), to_end=True) for q in questions),
    ]
    reference = generate(generator, mixed)
    _check_sampled_tokens(generator, mixed, reference)
    if isinstance(generator, AnswerGenerator):
        _check_answers(generator, roots + second_level)
    generate(generator, [])

    if exact:
        _check_sameness(generator, roots, first, "asked again")
        _check_sameness(generator, roots[::-1], _reversed(first), "asked in reverse order")
        _check_sameness(generator, mixed[::-1], _reversed(reference), "asked in reverse order")
        for request, samples in zip(mixed, reference.samples, strict=True):
            alone = generate(generator, [request]).samples[0]
            _require(alone == samples, f"{_label(request)}: alone and in a batch differ")
            for seed, sample in zip(request.seeds, samples, strict=True):
                one = dataclasses.replace(request, seeds=(seed,))
                (got,) = generate(generator, [one]).samples[0]
                _require(got == sample, f"{_label(request)}: seed {seed} depends on its siblings")
        for question in questions:
            generator.keep_only(question, [r.path for r in mixed if r.question == question][:1])
        _check_sameness(generator, mixed, reference, "after keep_only(one path)")
    for question in questions:
        generator.keep_only(question, [])
    if exact:
        _check_sameness(generator, mixed, reference, "after keep_only(nothing)")
        for question in questions:
            generator.keep_only(question, [])


def check_scorer(
    scorer: StepScorer,
    questions: Sequence[Question],
    paths: Sequence[Path],
    *,
    tolerance: float = 0.0,
) -> None:
    """Checks a PRM against `StepScorer`, and `AnswerScorer` if it has its methods.

    Unlike a search, it also compares calls in other orders and batches.

    Args:
        scorer: the implementation; its cached state of the questions is forgotten at the end.
        questions, paths: pairs of a question and a path that fits the model's context and has no
            blank step; some paths should have several steps.
        tolerance: largest difference allowed between two scores of one path; 0 means bitwise equal
            (the Hugging Face bridge in float32).

    Raises:
        AssertionError: a rule does not hold; the message names it.
    """
    _require(len(paths) > 0, "give check_scorer at least one path")
    _check_name_and_size(scorer)
    for name in ("sparsity_total", "sparsity_last_layer"):
        _require(0 <= getattr(scorer, name) <= 1, f"{name} must be in [0, 1]")
    with _broken_rules():
        _check_scorer(scorer, questions, paths, tolerance)


def _check_scorer(
    scorer: StepScorer, questions: Sequence[Question], paths: Sequence[Path], tolerance: float
) -> None:
    def forget() -> None:
        for question in questions:
            scorer.keep_only(question, [])

    def same(got: Sequence[float], expected: Sequence[float], how: str) -> None:
        for path, one, other in zip(paths, got, expected, strict=True):
            _require(
                abs(one - other) <= tolerance, f"score of {path} differs {how}: {one}, {other}"
            )

    def scores(questions: Sequence[Question], paths: Sequence[Path]) -> list[float]:
        return score(scorer, questions, paths).all_scores()

    forget()
    scoring = score(scorer, questions, paths)
    reference = scoring.all_scores()
    if scorer.num_parameters > 0:  # a function without a model reads no tokens
        for path, usage in zip(paths, scoring.usage, strict=True):
            _require(usage.computed + usage.cached > 0, f"usage: no tokens of the path {path}")
        _require(sum(u.computed for u in scoring.usage) > 0, "usage: scores from no tokens")

    same(scores(questions, paths), reference, "asked again")
    same(scores(questions[::-1], paths[::-1])[::-1], reference, "in reverse order")
    twice = scores([*questions, *questions], [*paths, *paths])
    same(twice[: len(paths)], twice[len(paths) :], "between duplicates in one call")
    forget()
    alone = [scores([q], [p])[0] for q, p in zip(questions, paths, strict=True)]
    same(alone, reference, "alone and in a batch")
    forget()
    grown = []
    for question, path in zip(questions, paths, strict=True):
        prefixes = [path[:length] for length in range(1, len(path) + 1)]
        grown.append([scores([question], [p])[0] for p in prefixes][-1])
    same(grown, reference, "grown step by step and at once")
    if isinstance(scorer, AnswerScorer) and not facts_of(scorer).finished_only:
        for known in (0, 1):
            forget()
            _check_answer_scores(scorer, questions, paths, known, tolerance)
    for question, path in zip(questions, paths, strict=True):
        scorer.keep_only(question, [path[:1]])
    same(scores(questions, paths), reference, "after keep_only(first step)")

    score(scorer, [], [])
    try:
        scorer.score([questions[0]], [(*paths[0], Step(" \n", (0,)))])
    except ScorerContractError as error:
        said = str(error)
    else:
        raise AssertionError("a blank step must raise ScorerContractError")
    _require(questions[0].id in said, "the error of a blank step must name the question")
    _require(str(len(paths[0])) in said, "the error of a blank step must name its index")
    forget()


def _check_answers(generator: AnswerGenerator, requests: Sequence[StepRequest]) -> None:
    whole = generate_answers(generator, requests, 4)
    for request, answers, usage in zip(requests, whole.answers, whole.usage, strict=True):
        kept = sum(len(sample.step.token_ids) for answer in answers for sample in answer)
        _require(
            usage.generated >= kept,
            f"{_label(request)}: {usage.generated} generated, {kept} in answers",
        )


def _check_answer_scores(
    scorer: AnswerScorer,
    questions: Sequence[Question],
    paths: Sequence[Path],
    known: int,
    tolerance: float,
) -> None:
    scoring = score_answers(scorer, questions, paths, [known] * len(paths))
    beginnings = [
        (question, path[:end])
        for question, path in zip(questions, paths, strict=True)
        for end in range(known + 1, len(path) + 1)
    ]
    got = [score for scores in scoring.scores for score in scores]
    asked, begun = [list(each) for each in zip(*beginnings, strict=True)] or ([], [])
    for one, other in zip(got, score(scorer, asked, begun).all_scores(), strict=True):
        _require(
            one is not None and abs(one - other) <= tolerance,
            f"in one pass {one}, step by step {other}",
        )


def _request(
    question: Question,
    path: Path,
    seeds: Sequence[int],
    *,
    temperature: float = 1.0,
    top_p: float = 1.0,
    top_k: int = 0,
    to_end: bool = False,
) -> StepRequest:
    return StepRequest(question, path, tuple(seeds), temperature, top_p, top_k, to_end)


def _check_sampled_tokens(
    generator: StepGenerator, requests: Sequence[StepRequest], generation: Generation
) -> None:
    if facts_of(generator).adds_tokens:
        return
    for request, samples, usage in zip(requests, generation.samples, generation.usage, strict=True):
        tokens = sum(len(sample.step.token_ids) for sample in samples)
        _require(
            usage.generated == tokens,
            f"{_label(request)}: usage.generated={usage.generated}, {tokens} in its samples",
        )


def _check_sameness(
    generator: StepGenerator, requests: Sequence[StepRequest], expected: Generation, how: str
) -> None:
    got = generate(generator, requests).samples
    for request, one, other in zip(requests, got, expected.samples, strict=True):
        _require(one == other, f"{_label(request)}: samples differ {how}")


def _reversed(generation: Generation) -> Generation:
    return Generation(generation.samples[::-1], generation.usage[::-1], generation.inside_seconds)


def _label(request: StepRequest) -> str:
    return f"question {request.question.id!r} after {len(request.path)} steps"


def _check_name_and_size(model: Any) -> None:
    _require(isinstance(model.name, str) and bool(model.name), "name must be a text, not empty")
    size = model.num_parameters
    is_count = isinstance(size, Integral) and not isinstance(size, bool) and int(size) >= 0
    _require(is_count, f"num_parameters={size!r}: must be an integer >= 0")


@contextlib.contextmanager
def _broken_rules() -> Iterator[None]:
    """Turns broken rules of a call into AssertionErrors, which fail the check."""
    try:
        yield
    except (ModelContractError, BadInputError) as error:
        raise AssertionError(str(error)) from error


def _require(holds: bool, rule: str) -> None:
    # An assert statement would be gone under `python -O`.
    if not holds:
        raise AssertionError(rule)
