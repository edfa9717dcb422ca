"""What policies and PRMs return is checked in a search: only the question at fault fails."""

import dataclasses
import math
from typing import Any

import pytest
from letters import QUESTIONS, HashScorer, LetterPolicy, run, signature

import search
from cats_jax.errors import GeneratorContractError, ScorerContractError
from cats_jax.live.contract import (
    check_answer_scoring,
    check_answers,
    check_generation,
    check_scoring,
)
from cats_jax.protocols import (
    AnswerGeneration,
    AnswerScoring,
    Generation,
    Question,
    Scoring,
    Step,
    StepRequest,
    StepSample,
    TokenUsage,
)

QUESTION = Question("q1", "1+1")
SAMPLE = StepSample(Step("2", (5, 6)), "step", -0.5)
END = dataclasses.replace(SAMPLE, finish="end")


def _request(*, seeds=(1, 2), to_end=False, path=()):
    return StepRequest(QUESTION, path, seeds, 1.0, 1.0, 0, to_end)


def _with_step(**changes):
    return dataclasses.replace(SAMPLE, step=dataclasses.replace(SAMPLE.step, **changes))


def _checked(own: Any, *, to_end=False, **changes: Any):
    generation = Generation([own], [TokenUsage(1, 0, 4)], 0.0)
    request = _request(to_end=to_end)
    check_generation(dataclasses.replace(generation, **changes), [request], "policy 'p'")


def test_what_is_allowed_passes():
    _checked([SAMPLE, END])
    _checked((END, END), to_end=True)
    context = StepSample(Step("", ()), "context", None)
    _checked([context, dataclasses.replace(SAMPLE, finish="length", log_prob=0.0)])
    _checked([SAMPLE, SAMPLE], seconds=[0.0], sample_usage=[[TokenUsage(), TokenUsage()]])
    check_generation(Generation([], [], 0.0), [])


@pytest.mark.parametrize(
    ("samples", "changes", "rule"),
    [
        ([SAMPLE], {}, "1 samples for 2 seeds: return one sample per seed"),
        ([SAMPLE] * 3, {}, "3 samples for 2 seeds"),
        (None, {}, "a NoneType as samples for 2 seeds"),
        ([SAMPLE, "2"], {}, "a sample is a str: return a StepSample"),
        ([SAMPLE, dataclasses.replace(SAMPLE, finish="stop")], {}, "unknown finish 'stop': .*step"),
        ([SAMPLE, dataclasses.replace(SAMPLE, finish=["step"])], {}, "unknown finish "),
        ([END, SAMPLE], {"to_end": True}, "a request with to_end stopped at a step"),
        ([SAMPLE, _with_step(text=b"2")], {}, "a step's text is a bytes"),
        ([SAMPLE, _with_step(token_ids=[5])], {}, "token_ids is a list: it must be a tuple"),
        ([SAMPLE, _with_step(token_ids=())], {}, "a sample without tokens"),
        ([SAMPLE, _with_step(token_ids=(5, -1))], {}, "token id -1: .* integers >= 0"),
        ([SAMPLE, _with_step(token_ids=(5.0,))], {}, "token id 5.0: .* integers >= 0"),
        ([SAMPLE, _with_step(token_ids=(True,))], {}, "token id True: .* integers >= 0"),
        *(
            ([SAMPLE, dataclasses.replace(SAMPLE, log_prob=value)], {}, "log-probability .*finite")
            for value in (0.5, math.nan, -math.inf, math.inf, "-1")
        ),
        ([SAMPLE] * 2, {"samples": []}, "it returned 0 samples: return one entry per request"),
        ([SAMPLE] * 2, {"usage": []}, "it returned 0 usage"),
        ([SAMPLE] * 2, {"usage": [TokenUsage(computed=-1)]}, "usage.computed=-1"),
        ([SAMPLE] * 2, {"usage": [TokenUsage(cost=float("nan"))]}, "usage.cost=nan"),
        ([SAMPLE, dataclasses.replace(SAMPLE, num_sampled=-1)], {}, "num_sampled=-1"),
        ([SAMPLE] * 2, {"usage": [3]}, "a usage is a int"),
        ([SAMPLE] * 2, {"inside_seconds": math.nan}, "inside_seconds=nan"),
        ([SAMPLE] * 2, {"seconds": [1.0, 2.0]}, "it returned 2 seconds"),
        ([SAMPLE] * 2, {"seconds": [math.nan]}, ": seconds=nan: it must be a finite number"),
        ([SAMPLE] * 2, {"seconds": [-1.0]}, ": seconds=-1.0"),
        ([SAMPLE] * 2, {"sample_usage": [[TokenUsage()]]}, "sample_usage has 1 entries for 2"),
        ([SAMPLE] * 2, {"sample_usage": [[TokenUsage(), 3]]}, "sample_usage: a usage is a int"),
    ],
)
def test_each_broken_rule_of_a_policy_is_named(samples, changes, rule):
    with pytest.raises(GeneratorContractError, match=rule) as caught:
        _checked(samples, **changes)
    assert "policy 'p'" in str(caught.value)
    assert "'q1'" in str(caught.value)
    assert caught.value.question_id == "q1"
    assert "\n" not in str(caught.value)


def test_the_step_of_a_broken_sample_is_known():
    with pytest.raises(GeneratorContractError) as caught:
        _checked([SAMPLE])
    assert caught.value.step == 0


@pytest.mark.parametrize(
    ("answers", "rule"),
    [
        ([(END,)], "1 answers for 2 seeds"),
        ([(END,), ()], "an answer without steps"),
        ([(END,), (SAMPLE, SAMPLE, END)], "3 steps beyond step 1, at most 2"),
        ([(END,), (END, END)], "finish='end' in the middle"),
        ([(END,), (SAMPLE, SAMPLE)], "does not run to the end"),
        ([(END,), (dataclasses.replace(SAMPLE, finish="eos"),)], "unknown finish 'eos'"),
    ],
)
def test_each_broken_rule_of_whole_answers_is_named(answers, rule):
    made, request = AnswerGeneration([answers], [TokenUsage()], 0.0), _request(path=(SAMPLE.step,))
    with pytest.raises(GeneratorContractError, match=rule):
        check_answers(made, [request], 3)
    check_answers(AnswerGeneration([[(END,), (SAMPLE, END)]], [TokenUsage()], 0.0), [request], 3)


@pytest.mark.parametrize(
    ("scoring", "rule"),
    [
        (Scoring([], [TokenUsage()], 0.0), "0 scores for 1 paths"),
        (Scoring([0.5], [], 0.0), "0 usages for 1 paths"),
        (Scoring([0.5], [TokenUsage()], 0.0, seconds=[]), "0 seconds for 1 paths"),
        (Scoring([0.5], [TokenUsage()], 0.0, seconds=[math.nan]), "q1': seconds=nan"),
        (Scoring([1.5], [TokenUsage()], 0.0), r"with 1.5: a score must be in \[0, 1\]"),
        (Scoring(["1"], [TokenUsage()], 0.0), "with '1': a score must be"),  # pyright: ignore[reportArgumentType]
        (Scoring([0.5], [TokenUsage(generated=1)], 0.0), "a PRM samples no token"),
    ],
)
def test_each_broken_rule_of_a_prm_is_named(scoring, rule):
    with pytest.raises(ScorerContractError, match=rule):
        check_scoring(scoring, [QUESTION], [(SAMPLE.step,)])
    check_scoring(Scoring([None], [TokenUsage()], 0.0), [QUESTION], [(SAMPLE.step,)])


@pytest.mark.parametrize(
    ("scores", "rule"), [([0.5], "1 scores for the 2 steps"), ([0.5, -0.1], "step 1 .*with -0.1")]
)
def test_scores_of_whole_answers_are_checked(scores, rule):
    path = (SAMPLE.step, SAMPLE.step)
    made = AnswerScoring([scores], [TokenUsage()], 0.0)
    with pytest.raises(ScorerContractError, match=rule):
        check_answer_scoring(made, [QUESTION], [path], [0])
    check_answer_scoring(AnswerScoring([[0.5]], [TokenUsage()], 0.0), [QUESTION], [path], [1])


# In a search


class Faulty(LetterPolicy):
    """Breaks a rule at the second step of one question."""

    def __init__(self, change):
        super().__init__(0)
        self.change = change

    def generate(self, requests):
        generation = super().generate(requests)
        for place, request in enumerate(requests):
            if request.question.id == "q4" and request.path:
                generation.samples[place] = self.change(generation.samples[place])
        return generation


class Short(LetterPolicy):
    """One list of samples too few in every call for several questions."""

    def generate(self, requests):
        generation = super().generate(requests)
        if len({request.question for request in requests}) > 1:
            generation.samples.pop()
        return generation


def test_a_broken_rule_fails_its_question_and_no_other():
    usual = [signature(each) for each in run(search.beam(), policy=LetterPolicy(0))]
    finish = Faulty(lambda s: [dataclasses.replace(each, finish="stop") for each in s])
    for policy, rule in ((Faulty(lambda s: s[:-1]), "3 samples for 4 seeds"), (finish, "'stop'")):
        results = run(search.beam(), policy=policy)
        for result, expected in zip(results, usual, strict=True):
            if result.question.id != "q4":
                assert signature(result) == expected
                continue
            assert (result.status, result.answer) == ("failed", None)
            assert "policy 'letters', step 1 of question 'q4'" in result.reason
            assert rule in result.reason
            # Nothing of the call is in the tree or in the ledger.
            assert result.ledger.candidates == len(result.candidates) == 8
    # The questions of a call that can't be divided are asked one by one.
    assert [signature(each) for each in run(search.beam(), policy=Short(0))] == usual


class Answers(LetterPolicy):
    """Whole answers, of which the question at fault has one too few."""

    def generate_answers(self, requests, max_depth):
        answers = []
        for request in requests:
            own = []
            for seed in request.seeds:
                path, answer = request.path, []
                while not answer or answer[-1].finish == "step":
                    to_end = len(path) == max_depth - 1
                    asked = dataclasses.replace(request, path=path, to_end=to_end)
                    answer.append(self._sample(asked, seed))
                    path = (*path, answer[-1].step)
                own.append(tuple(answer))
            answers.append(own[:-1] if request.question.id == "q4" else own)
        return AnswerGeneration(answers, [TokenUsage(1, 0, 8)] * len(requests), 0.0)


def test_whole_answers_are_checked_in_a_search():
    results = run(search.majority(), policy=Answers(0), questions=QUESTIONS[2:6])
    assert [r.question.id for r in results if r.status == "failed"] == ["q4"]
    assert "7 answers for 8 seeds" in results[2].reason
    assert results[2].ledger.candidates == 0


def test_a_calibration_by_likelihood_needs_log_probabilities():
    class Silent(LetterPolicy):
        def _sample(self, request, seed):
            return dataclasses.replace(super()._sample(request, seed), log_prob=None)

    strategy = search.beam(calibrated=True, path_score="product")
    options: dict[str, Any] = {"policy": Silent(0), "questions": QUESTIONS[:1]}
    (result,) = run(strategy, calibration=(1.0, 0.5, 0.0, 0.3), **options)
    assert "no log-probabilities" in result.reason
    (result,) = run(strategy, calibration=(1.0, 0.5, 0.3), scorer=HashScorer(), **options)
    assert result.status == "answered"
