"""The contract tests find the faults they are there for."""

import dataclasses
import math

import pytest

from cats_jax.errors import ScorerContractError
from cats_jax.models.contracts import check_generator, check_scorer
from cats_jax.protocols import Generation, Question, Scoring, Step, StepSample, TokenUsage

QUESTIONS = [Question("a", "1"), Question("b", "2")]
PATHS = [(Step("x", (1, 9)),), (Step("x", (1, 9)), Step("y", (2, 9)))]


class Writer:
    """A policy that hashes; `fault` breaks one rule."""

    name, num_parameters = "writer", 1

    def __init__(self, fault=""):
        self.fault = fault
        self.calls = 0

    def check_question(self, question):
        pass

    def keep_only(self, question, paths):
        if self.fault == "forgets":
            self.calls += 1

    def generate(self, requests):
        if self.fault == "call":
            self.calls += 1
        samples = [
            [self.sample(r, seed, len(requests), i) for seed in r.seeds]
            for i, r in enumerate(requests)
        ]
        if self.fault == "count" and samples:
            samples[0].pop()
        usage = [
            TokenUsage(1, 0, sum(len(s.step.token_ids) for s in row) + (self.fault == "usage"))
            for row in samples
        ]
        return Generation(samples, usage, 0.0)

    def sample(self, r, seed, batch, place):
        extra = {"batch": batch, "place": place, "siblings": len(r.seeds)}.get(self.fault, 0)
        token = hash((r.question.id, r.path, seed, r.temperature, extra, self.calls)) % 1000
        finish = "end" if r.to_end and self.fault != "to_end" else "step"
        log_prob = {"log_prob": 0.5, "nan": math.nan}.get(self.fault, -1.0)
        finish = "stop" if self.fault == "finish" else finish
        return StepSample(Step(str(token), (token, 9)), finish, log_prob)


def test_a_sound_generator_passes():
    check_generator(Writer(), QUESTIONS)
    check_generator(Writer("batch"), QUESTIONS, exact=False)


@pytest.mark.parametrize(
    ("fault", "match"),
    [
        ("batch", "differ"),
        ("place", "reverse order"),
        ("siblings", "depends on its siblings"),
        ("call", "asked again"),
        ("forgets", "keep_only"),
        ("count", "one sample per seed"),
        ("usage", "generated"),
        ("to_end", "to_end stopped"),
        ("finish", "unknown finish"),
        ("log_prob", "log-probability"),
        ("nan", "log-probability"),
    ],
)
def test_a_broken_generator_is_found(fault, match):
    with pytest.raises(AssertionError, match=match):
        check_generator(Writer(fault), QUESTIONS)


@dataclasses.dataclass
class Judge:
    """A PRM that hashes; `fault` breaks one rule."""

    fault: str = ""
    name: str = "judge"
    num_parameters: int = 1
    sparsity_total: float = 0.0
    sparsity_last_layer: float = 0.0
    drops: int = 0

    def keep_only(self, question, paths):
        self.drops += self.fault == "forgets"

    def score(self, questions, paths):
        for question, path in zip(questions, paths, strict=True):
            if self.fault != "blank" and not path[-1].text.strip():
                raise ScorerContractError(f"question {question.id!r}, step {len(path) - 1}: blank")
        scores = [self.one(q, p, len(paths)) for q, p in zip(questions, paths, strict=True)]
        if self.fault == "count":
            scores = scores[:-1]
        return Scoring(scores, [TokenUsage(computed=1) for _ in paths], 0.0)

    def one(self, question, path, batch):
        if self.fault == "range":
            return 1.5
        extra = {"batch": batch, "forgets": self.drops}.get(self.fault, 0)
        return hash((question.id, path, extra)) % 997 / 997


def test_a_sound_scorer_passes():
    check_scorer(Judge(), QUESTIONS, PATHS)


@pytest.mark.parametrize(
    ("fault", "match"),
    [
        ("batch", "differs"),
        ("forgets", "differs"),
        ("count", "1 scores for 2 paths"),
        ("range", r"must be in \[0, 1\]"),
        ("blank", "must raise ScorerContractError"),
    ],
)
def test_a_broken_scorer_is_found(fault, match):
    with pytest.raises(AssertionError, match=match):
        check_scorer(Judge(fault), QUESTIONS, PATHS)
