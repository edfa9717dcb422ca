"""Rewrites of finished answers, for any policy: a rewrite is an answer to a longer question.

A strategy with `search.Strategy.rewriting` expands finished answers. A child of such a node is a
rewrite: a whole answer that begins anew. The policy gets the prompts of a `Rewriting` in place of
the question, so policies need no code for rewrites.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from ..errors import BadInputError
from ..grading.thinking import answer_text, without_thinking
from ..protocols import (
    Generation,
    Path,
    Question,
    StepGenerator,
    StepRequest,
    StepSample,
    TokenUsage,
    total_usage,
)
from ..specs.rewriting import Rewriting, rewriting_text
from .calls import generate
from .prompt_proxy import Made, PromptProxy, as_question
from .seeds import stable_seed


class Rewriter(PromptProxy):
    """`StepGenerator` that also serves requests with `rewrites`.

    Prompts contain answers and critiques without the thoughts in them. A critique is sampled like
    its rewrite, with a seed that derives from the rewrite's. A request is charged for the prompts,
    critiques and answers together. If a rewrite's prompt does not fit the policy's context, it has
    no tokens and finishes with "context". A critique whose prompt does not fit is empty, and one
    that was cut is used as it is.
    """

    def __init__(self, policy: StepGenerator, rewriting: Rewriting) -> None:
        super().__init__(policy)
        self._rewriting = rewriting

    def check_question(self, question: Question) -> None:
        """Raise BadInputError unless the question fits, and the prompts with an empty answer."""
        self._model.check_question(question)
        rewriting = self._rewriting
        for prompt in filter(None, (rewriting.critique, rewriting.prompt)):
            texts = {"question": question.text, "answer": "", "critique": ""}
            asked = as_question(question, rewriting_text(prompt, **texts))
            if prompt == rewriting.critique:  # it is sent without a system message
                asked = dataclasses.replace(asked, system="")
            try:
                self._model.check_question(asked)
            except BadInputError as error:
                raise BadInputError(
                    f"question {question.id!r}: policy {self.name!r} can't read the prompts of "
                    f"rewriting {rewriting.name!r}: {error}"
                ) from error

    def keep_only(self, question: Question, paths: Sequence[Path]) -> None:
        """Free a question's cached state except its prompt; without paths, all of it.

        The policy need not keep `paths`, because nothing continues a whole answer.
        """
        self._model.keep_only(question, [()] if paths else ())

    def generate(self, requests: Sequence[StepRequest]) -> Generation:
        """Sample every request; see `StepGenerator.generate`."""
        rewrites = [i for i, request in enumerate(requests) if request.rewrites]
        if not rewrites:
            return generate(self._model, requests)
        known = {request.question for request in requests}
        critiques: dict[int, Made] = {}
        inside = 0.0
        if self._rewriting.critique:
            asked = [self._critique(requests[i]) for i in rewrites]
            made, inside = self.ask(asked, known)
            critiques = dict(zip(rewrites, made, strict=True))
        parts = [
            self._parts(request, critiques.get(i)) if request.rewrites else [request]
            for i, request in enumerate(requests)
        ]
        flat, more = self.ask([part for each in parts for part in each], known)
        answers = iter(flat)
        samples: list[list[StepSample]] = []
        usage: list[TokenUsage] = []
        seconds: list[float] = []
        for i, each in enumerate(parts):
            found = [next(answers) for _ in each]
            paid = [*found, critiques[i]] if i in critiques else found
            samples.append([sample for part in found for sample in part.samples])
            usage.append(total_usage([part.usage for part in paid]))
            seconds.append(sum(part.seconds for part in paid))
        return Generation(samples, usage, inside + more, seconds=seconds)

    def _critique(self, request: StepRequest) -> StepRequest:
        """The request for one critique per rewrite."""
        text = self._text(self._rewriting.critique, request)
        seeds = tuple(stable_seed("critique", seed) for seed in request.seeds)
        asked = _anew(request, text, seeds)
        # The system messages of question and format request an answer.
        return dataclasses.replace(asked, question=dataclasses.replace(asked.question, system=""))

    def _parts(self, request: StepRequest, critiques: Made | None) -> list[StepRequest]:
        """The requests for the rewrites: one for all, or one for each critique."""
        prompt = self._rewriting.prompt
        if critiques is None:
            return [_anew(request, self._text(prompt, request), request.seeds)]
        return [
            _anew(request, self._text(prompt, request, critique.step.text), (seed,))
            for seed, critique in zip(request.seeds, critiques.samples, strict=True)
        ]

    @staticmethod
    def _text(prompt: str, request: StepRequest, critique: str = "") -> str:
        answer = answer_text(step.text for step in request.path)
        question, critique = request.question.text, without_thinking([critique]).strip()
        return rewriting_text(prompt, question=question, answer=answer, critique=critique)


def _anew(request: StepRequest, text: str, seeds: tuple[int, ...]) -> StepRequest:
    question = as_question(request.question, text)
    return dataclasses.replace(
        request, question=question, path=(), seeds=seeds, to_end=True, rewrites=False
    )
