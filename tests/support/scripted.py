r"""A policy and a PRM without any model: sums, added up step by step, wrong with some chance.

Loaded by tests under this name from this file (tests are no package). A question such as
"3+4+5" is answered by the steps "7", "12", "\boxed{12}"; a seed decides, step by step, whether
the sum is right. The PRM knows what is right and blurs it by a hash.
"""

from __future__ import annotations

import dataclasses
import hashlib
import time
from collections.abc import Sequence

from cats_jax.datasets import QuestionSet
from cats_jax.errors import BadInputError, ScorerContractError
from cats_jax.models.footprint import Work
from cats_jax.protocols import (
    Finish,
    Generation,
    Path,
    Question,
    Scoring,
    Step,
    StepRequest,
    StepSample,
    TokenUsage,
    total_usage,
)
from cats_jax.specs.recipe import PolicySpec, PrmSpec


def question_set(count: int) -> QuestionSet:
    """Sums of three to five numbers."""
    texts = ["+".join(str(2 + (i * 7 + j) % 9) for j in range(3 + i % 3)) for i in range(count)]
    questions = tuple(Question(f"q{i}", text) for i, text in enumerate(texts))
    answers = {q.id: str(sum(map(int, q.text.split("+")))) for q in questions}
    return QuestionSet("sums", questions, answers, {q.id: {"level": 1} for q in questions})


class ScriptedPolicy:
    """Writes the next partial sum; one time in three it is wrong, sometimes blank.

    With a `finish` every step ends so, whatever it is.
    """

    name = "scripted"
    num_parameters = 10

    def __init__(self, delay: float = 0.0, finish: Finish | None = None) -> None:
        self.delay = delay
        self.finish = finish

    def check_question(self, question: Question) -> None:
        if len(question.text) > 100:
            raise BadInputError(f"question {question.id!r} is too long: shorten it")

    def generate(self, requests: Sequence[StepRequest]) -> Generation:
        time.sleep(self.delay)
        samples = [[_sample(request, seed) for seed in request.seeds] for request in requests]
        if self.finish is not None:
            samples = [
                [dataclasses.replace(each, finish=self.finish) for each in group]
                for group in samples
            ]
        usage = [
            [TokenUsage(computed=1 if j else 6, generated=2) for j in range(len(group))]
            for group in samples
        ]
        totals = [total_usage(group) for group in usage]
        return Generation(samples, totals, self.delay / 2, usage)

    def keep_only(self, question: Question, paths: Sequence[Path]) -> None:
        pass


class ScriptedPrm:
    """Near 1 for a right partial sum, near 0 for a wrong one; `noise` in [0, 1] blurs it.

    At each step a path gets too long to be read with probability `refuses`.
    """

    name = "scripted-prm"
    num_parameters = 5
    sparsity_total = 0.1
    sparsity_last_layer = 0.01

    def __init__(
        self, noise: float = 0.2, breaks_on: str | None = None, refuses: float = 0.0
    ) -> None:
        self.noise = noise
        self.breaks_on = breaks_on
        self.refuses = refuses

    def score(self, questions: Sequence[Question], paths: Sequence[Path]) -> Scoring:
        for question in questions:
            if question.id == self.breaks_on:
                raise ScorerContractError(f"question {question.id!r}, step 0: NaN")
        scores = [self._one(q, p) for q, p in zip(questions, paths, strict=True)]
        usage = [TokenUsage(computed=3 * (score is not None)) for score in scores]
        return Scoring(scores, usage, inside_seconds=0.0)

    def keep_only(self, question: Question, paths: Sequence[Path]) -> None:
        pass

    def _one(self, question: Question, path: Path) -> float | None:
        texts = [step.text for step in path]
        prefixes = (texts[: end + 1] for end in range(len(texts)))
        if any(_chance("long", question.id, *prefix) < self.refuses for prefix in prefixes):
            return None
        numbers = [int(part) for part in question.text.split("+")]
        text = path[-1].text.removeprefix("\\boxed{").removesuffix("}")
        right = text == str(sum(numbers[: min(len(path) + 1, len(numbers))]))
        blur = _chance("prm", question.id, *(step.text for step in path))
        return (1 - self.noise) * right + self.noise * blur


class ScriptedModels:
    """`ModelSource` of the two; counts what was loaded."""

    def __init__(
        self, delay: float = 0.0, breaks_on: str | None = None, finish: Finish | None = None
    ) -> None:
        self.delay = delay
        self.finish: Finish | None = finish
        self.breaks_on = breaks_on
        self.loaded: list[str] = []

    def fingerprint(self, spec: PolicySpec | PrmSpec) -> dict[str, str]:
        return {"name": spec.path}

    def footprint(self, spec: PolicySpec | PrmSpec, work: Work) -> None:
        return None

    def check(self, spec: PolicySpec | PrmSpec) -> None:
        pass

    def policy(self, spec: PolicySpec) -> ScriptedPolicy:
        self.loaded.append(spec.path)
        return ScriptedPolicy(self.delay, self.finish)

    def prm(self, spec: PrmSpec) -> ScriptedPrm:
        self.loaded.append(spec.path)
        noise, refuses = 0.9 if spec.label == "bad" else 0.2, 0.05 if spec.label == "short" else 0.0
        return ScriptedPrm(noise, self.breaks_on, refuses)


def _sample(request: StepRequest, seed: int) -> StepSample:
    numbers = [int(part) for part in request.question.text.split("+")]
    done = len(request.path)
    if request.temperature == 0:
        seed = 0
    luck = _chance(seed, request.temperature, *(step.text for step in request.path))
    before = int(request.path[-1].text or 0) if request.path else numbers[0]
    if done >= len(numbers) - 1:
        text, finish = f"\\boxed{{{before}}}", "end"
    elif luck > 0.97:
        text, finish = "", "step"
    else:
        text, finish = (
            str(before + numbers[done + 1] + (1 + int(luck * 100) % 3) * (luck > 0.6)),
            "step",
        )
    ids = (*(ord(c) for c in text), 0)
    return StepSample(Step(text, ids), "end" if request.to_end else finish, log_prob=-luck)


def _chance(*parts: object) -> float:
    digest = hashlib.sha256(repr(parts).encode()).digest()
    return int.from_bytes(digest[:6], "big") / 2**48
