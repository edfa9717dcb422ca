"""A policy that writes letters, a PRM that scores by a hash, and searches with them."""

import dataclasses

import jax.numpy as jnp
import numpy as np

from cats_jax.errors import BadInputError
from cats_jax.live.searcher import Searcher
from cats_jax.live.seeds import stable_seed
from cats_jax.protocols import Generation, Question, Scoring, Step, StepSample, TokenUsage

QUESTIONS = [Question(f"q{index}", f"text {index}") for index in range(9)]


class LetterPolicy:
    """Writes letters; a function of path and seed alone, like a real bridge."""

    name = "letters"
    num_parameters = 1000
    certainties = ("top", "all")
    vectors = True

    def __init__(self, invalid_percent: int = 0, longest: int = 5) -> None:
        self.invalid_percent = invalid_percent
        self.longest = longest
        self.requests: list = []
        self.live: dict[str, list] = {}

    def check_question(self, question) -> None:
        if len(question.text) > 100:
            raise BadInputError(f"question {question.id!r} is too long")

    def generate(self, requests) -> Generation:
        self.requests.extend(requests)
        samples = [[self._sample(request, seed) for seed in request.seeds] for request in requests]
        usage = [
            TokenUsage(computed=2 * len(r.seeds), cached=len(r.path), generated=len(r.seeds))
            for r in requests
        ]
        return Generation(samples, usage, 0.0)

    def _sample(self, request, seed) -> StepSample:
        if seed % 100 < self.invalid_percent:
            finish = ("step", "length", "context")[seed % 3]
            text = "  " if finish == "step" else "cut off"
            finish = "end" if finish == "step" and request.to_end else finish
            return StepSample(Step(text, (1, 2)), finish, -1.0, (0.0, 0.0), _vector(0))
        depth = len(request.path)
        ends = request.to_end or depth + 1 >= self.longest or (depth >= 1 and seed % 3 == 0)
        letter = "abcde"[seed % (2 if request.temperature < 0.7 else 5)]
        text = f"{letter} \\boxed{{{seed % 4}}}" if ends else letter
        finish, certainties = "end" if ends else "step", (float(seed % 7), 3.0)
        return StepSample(Step(text, (seed % 7, 3)), finish, -0.5, certainties, _vector(seed))

    def keep_only(self, question, paths) -> None:
        self.live[question.id] = list(paths)


def _vector(seed: int) -> np.ndarray:
    return np.array([1.0, seed % 3, 0.0], np.float32)


class HashScorer:
    """A path's score is a hash of its texts on a coarse grid, so that ties occur."""

    name = "hash"
    num_parameters = 500
    sparsity_total = 0.25
    sparsity_last_layer = 0.5

    def __init__(self, change=None) -> None:
        self.change = change
        self.seen: list[tuple] = []

    def score(self, questions, paths) -> Scoring:
        scores = []
        for question, path in zip(questions, paths, strict=True):
            texts = tuple(step.text for step in path)
            self.seen.append((question.id, texts))
            value = (stable_seed(question.id, *texts) % 17) / 16
            scores.append(value if self.change is None else self.change(question, texts, value))
        return Scoring(scores, [TokenUsage(computed=3)] * len(paths), 0.0)

    def keep_only(self, question, paths) -> None:
        del question, paths


def run(strategy, *, policy=None, scorer=None, questions=QUESTIONS, **options):
    searcher = Searcher(
        policy=LetterPolicy(5) if policy is None else policy,
        scorer=HashScorer() if scorer is None else scorer,
        strategy=strategy,
        **{
            "params": jnp.int32(40),
            "num_candidates": 8,
            "calibration": "none",
            "max_depth": 6,
            "seed": 3,
            **options,
        },
    )
    return searcher.run(questions)


def signature(result):
    """All of a result that must not depend on what ran beside it."""
    costs = {
        name: value for name, value in result.ledger.as_dict().items() if "seconds" not in name
    }
    return (
        dataclasses.replace(result, ledger=None, candidates=[], decisions=[]),
        [dataclasses.astuple(candidate) for candidate in result.candidates],
        [dataclasses.astuple(decision) for decision in result.decisions],
        costs,
    )
