"""Contract tests for bridges: every generator and every scorer passes them.

The tests take the implementation as an argument, so that this project and the author of a new
bridge run the same tests. A broken contract raises AssertionError, whose message names the rule.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import get_args

from ..errors import ScorerContractError
from ..protocols import (
    AnswerGenerator,
    AnswerScorer,
    Finish,
    Generation,
    Path,
    Question,
    Step,
    StepGenerator,
    StepRequest,
    StepSample,
    StepScorer,
    TokenUsage,
)


def check_generator(
    generator: StepGenerator, questions: Sequence[Question], *, exact: bool = True
) -> None:
    """Checks a policy against the `StepGenerator` protocol, and `AnswerGenerator` if it has that.

    Args:
        generator: the implementation; its cached state of the questions is forgotten at the end.
        questions: two or more questions that fit the model's context.
        exact: whether a sample must be a function of path, parameters and seed alone, bit for bit
            (the Hugging Face bridge in float32). Otherwise only shapes and ranges are checked.

    Raises:
        AssertionError: naming the rule that does not hold.
    """
    assert len(questions) >= 2, "give check_generator two questions or more"
    assert generator.name, "name must not be empty"
    assert generator.num_parameters > 0, "num_parameters must be positive"
    for question in questions:
        generator.check_question(question)

    roots = [_request(q, (), range(10 * i, 10 * i + 4)) for i, q in enumerate(questions)]
    first = generator.generate(roots)
    _check_generation(roots, first)
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
    reference = generator.generate(mixed)
    _check_generation(mixed, reference)
    if isinstance(generator, AnswerGenerator):
        _check_answers(generator, roots + second_level)
    empty = generator.generate([])
    assert (empty.samples, empty.usage) == ([], []), "an empty call must give an empty answer"

    if exact:
        _check_sameness(generator, roots, first, "asked again")
        _check_sameness(generator, roots[::-1], _reversed(first), "asked in reverse order")
        _check_sameness(generator, mixed[::-1], _reversed(reference), "asked in reverse order")
        for request, samples in zip(mixed, reference.samples, strict=True):
            alone = generator.generate([request]).samples[0]
            assert alone == samples, f"{_label(request)}: alone and in a batch differ"
            for seed, sample in zip(request.seeds, samples, strict=True):
                one = _request(
                    request.question,
                    request.path,
                    (seed,),
                    temperature=request.temperature,
                    top_p=request.top_p,
                    top_k=request.top_k,
                    to_end=request.to_end,
                )
                got = generator.generate([one]).samples[0]
                assert got == [sample], f"{_label(request)}: seed {seed} depends on its siblings"
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
    """Checks a PRM against the `StepScorer` protocol, and `AnswerScorer` if it has that.

    Args:
        scorer: the implementation; its cached state of the questions is forgotten at the end.
        questions, paths: pairs of a question and a path that fits the model's context and has no
            blank step; some paths should have several steps.
        tolerance: largest difference allowed between two scores of one path; 0 means bitwise equal
            (the Hugging Face bridge in float32).

    Raises:
        AssertionError: naming the rule that does not hold.
    """
    assert paths, "give check_scorer at least one path"
    assert scorer.name, "name must not be empty"
    assert scorer.num_parameters > 0, "num_parameters must be positive"
    for name in ("sparsity_total", "sparsity_last_layer"):
        assert 0 <= getattr(scorer, name) <= 1, f"{name} must be in [0, 1]"

    def forget() -> None:
        for question in questions:
            scorer.keep_only(question, [])

    def same(got: Sequence[float], expected: Sequence[float], how: str) -> None:
        for path, one, other in zip(paths, got, expected, strict=True):
            assert abs(one - other) <= tolerance, f"score of {path} differs {how}: {one}, {other}"

    forget()
    scoring = scorer.score(questions, paths)
    reference = scoring.all_scores()
    assert len(reference) == len(paths), f"{len(reference)} scores for {len(paths)} paths"
    assert len(scoring.usage) == len(paths), "there must be one usage per path"
    assert scoring.inside_seconds >= 0, "inside_seconds must not be negative"
    for path, score, usage in zip(paths, reference, scoring.usage, strict=True):
        assert 0 <= score <= 1, f"score of {path} is {score}, expected [0, 1]"
        assert usage.generated == 0, "a scorer generates no token"
        assert usage.computed + usage.cached > 0, "a path has tokens"
    assert sum(u.computed for u in scoring.usage) > 0, "scores from nothing"

    same(scorer.score(questions, paths).all_scores(), reference, "asked again")
    same(
        scorer.score(questions[::-1], paths[::-1]).all_scores()[::-1], reference, "in reverse order"
    )
    twice = scorer.score([*questions, *questions], [*paths, *paths]).all_scores()
    same(twice[: len(paths)], twice[len(paths) :], "between duplicates in one call")
    forget()
    alone = [scorer.score([q], [p]).all_scores()[0] for q, p in zip(questions, paths, strict=True)]
    same(alone, reference, "alone and in a batch")
    forget()
    grown = []
    for question, path in zip(questions, paths, strict=True):
        prefixes = [path[:length] for length in range(1, len(path) + 1)]
        grown.append([scorer.score([question], [p]).all_scores()[0] for p in prefixes][-1])
    same(grown, reference, "grown step by step and at once")
    if isinstance(scorer, AnswerScorer):
        for known in (0, 1):
            forget()
            _check_answer_scores(scorer, questions, paths, known, tolerance)
    for question, path in zip(questions, paths, strict=True):
        scorer.keep_only(question, [path[:1]])
    same(scorer.score(questions, paths).all_scores(), reference, "after keep_only(first step)")

    assert scorer.score([], []).scores == [], "an empty call must give an empty answer"
    error = _error_of_blank_step(scorer, questions[0], paths[0])
    assert error is not None, "a blank step must raise ScorerContractError"
    assert questions[0].id in str(error), "the error must name the question"
    assert str(len(paths[0])) in str(error), "the error must name the step's index"
    forget()


def _check_answers(generator: AnswerGenerator, requests: Sequence[StepRequest]) -> None:
    max_depth = 4
    whole = generator.generate_answers(requests, max_depth)
    for request, answers, usage in zip(requests, whole.answers, whole.usage, strict=True):
        label = _label(request)
        assert len(answers) == len(request.seeds), f"{label}: not one answer per seed"
        for answer in answers:
            assert answer, f"{label}: an answer without steps"
            depth = len(request.path) + len(answer)
            assert depth <= max_depth, f"{label}: an answer beyond the depth"
            assert all(sample.finish == "step" for sample in answer[:-1]), (
                f"{label}: a step in the middle that is not closed"
            )
            assert not (depth == max_depth and answer[-1].finish == "step"), (
                f"{label}: the last step does not run to the end"
            )
            for sample in answer:
                _check_sample(request, sample)
        kept = sum(len(sample.step.token_ids) for answer in answers for sample in answer)
        assert usage.generated >= kept, f"{label}: {usage.generated} generated, {kept} in answers"


def _check_answer_scores(
    scorer: AnswerScorer,
    questions: Sequence[Question],
    paths: Sequence[Path],
    known: int,
    tolerance: float,
) -> None:
    scoring = scorer.score_answers(questions, paths, [known] * len(paths))
    beginnings = [
        (question, path[:end])
        for question, path in zip(questions, paths, strict=True)
        for end in range(known + 1, len(path) + 1)
    ]
    for path, scores, usage in zip(paths, scoring.scores, scoring.usage, strict=True):
        assert len(scores) == max(0, len(path) - known), f"{len(scores)} scores for {path}"
        assert usage.computed + usage.cached > 0 or not scores, "a path has tokens"
    got = [score for scores in scoring.scores for score in scores]
    expected = scorer.score(*map(list, zip(*beginnings, strict=True))) if beginnings else None
    for one, other in zip(got, expected.all_scores() if expected else [], strict=True):
        assert one is not None
        assert abs(one - other) <= tolerance, f"in one pass {one}, step by step {other}"


def _error_of_blank_step(
    scorer: StepScorer, question: Question, path: Path
) -> ScorerContractError | None:
    try:
        scorer.score([question], [(*path, Step(" \n", (0,)))])
    except ScorerContractError as error:
        return error
    return None


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


def _check_generation(requests: Sequence[StepRequest], generation: Generation) -> None:
    assert len(generation.samples) == len(requests), "there must be one list of samples a request"
    assert len(generation.usage) == len(requests), "there must be one usage per request"
    assert generation.inside_seconds >= 0, "inside_seconds must not be negative"
    for request, samples, usage in zip(requests, generation.samples, generation.usage, strict=True):
        assert len(samples) == len(request.seeds), f"{_label(request)}: not one sample per seed"
        for sample in samples:
            _check_sample(request, sample)
        _check_usage(request, samples, usage)


def _check_sample(request: StepRequest, sample: StepSample) -> None:
    label = _label(request)
    assert sample.finish in get_args(Finish), f"{label}: unknown finish {sample.finish!r}"
    assert not (request.to_end and sample.finish == "step"), f"{label}: to_end stopped at a step"
    if sample.log_prob is not None:
        assert sample.log_prob <= 0, f"{label}: log-probability {sample.log_prob} > 0"
        assert math.isfinite(sample.log_prob), f"{label}: log-probability {sample.log_prob}"
    if sample.finish != "context":
        assert sample.step.token_ids, f"{label}: a sample without tokens"


def _check_usage(request: StepRequest, samples: Sequence[StepSample], usage: TokenUsage) -> None:
    label = _label(request)
    generated = sum(len(sample.step.token_ids) for sample in samples)
    assert usage.generated == generated, f"{label}: {usage.generated} generated, not {generated}"
    assert usage.computed >= 0, f"{label}: negative computed tokens"
    assert usage.cached >= 0, f"{label}: negative cached tokens"


def _check_sameness(
    generator: StepGenerator, requests: Sequence[StepRequest], expected: Generation, how: str
) -> None:
    got = generator.generate(requests).samples
    for request, one, other in zip(requests, got, expected.samples, strict=True):
        assert one == other, f"{_label(request)}: samples differ {how}"


def _reversed(generation: Generation) -> Generation:
    return Generation(generation.samples[::-1], generation.usage[::-1], generation.inside_seconds)


def _label(request: StepRequest) -> str:
    return f"question {request.question.id!r} after {len(request.path)} steps"
