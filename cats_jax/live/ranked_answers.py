"""Scores of whole answers by comparing each with all others: ranks as the scores of a PRM.

A strategy whose `search.comparison.Comparison` has `scores` reads such scores during its search.
They come from a `StepScorer`, so that core and driver need no code for them.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..errors import GeneratorContractError, ScorerContractError
from ..grading.thinking import answer_text
from ..protocols import Path, Question, Scoring, TokenUsage, facts_of, total_usage
from .comparison_rules import borda_keys
from .comparisons import Judge, JudgeReply


@dataclass(slots=True)
class _Ranked:
    """The distinct answers of a search so far.

    Attributes:
        texts: their texts, in the order in which they were scored.
        choices: the choice for each ordered pair of them, 0 for the first; None if unread.
        replies: the replies with these choices, by the ids of their prompts; None for a prompt that
            does not fit the context.
    """

    texts: list[str] = field(default_factory=list)
    choices: dict[tuple[int, int], int | None] = field(default_factory=dict)
    replies: dict[str, JudgeReply | None] = field(default_factory=dict)


class RankScorer:
    """`StepScorer` of finished answers: the quantile of an answer's rank among those so far.

    The score is 1 - (rank - 1) / (number of answers - 1), and 1 for the first answer. The rank is 1
    plus the number of answers that are better by the Enhanced Borda Count, see `borda_keys`. Equal
    texts are one answer. `usage.computed` counts the tokens that the judge read and wrote, as for a
    `JudgeScorer`. A remembered reply of another search is charged like a new one.
    """

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self.name = judge.writer.name
        self.num_parameters = judge.writer.num_parameters
        self.sparsity_total = self.sparsity_last_layer = 0.0
        self.concurrent = facts_of(judge.writer).concurrent
        self._searches: dict[Question, _Ranked] = {}

    def keep_only(self, question: Question, paths: Sequence[Path]) -> None:
        """Forget the answers of a question, once it has no paths."""
        if not paths:
            self._searches.pop(question, None)

    def replies(self, question: Question) -> Mapping[str, JudgeReply | None]:
        """The replies that gave the scores of a question, by the ids of their prompts.

        They are None for prompts that do not fit the context. `keep_only` does not change the
        returned mapping.
        """
        return self._ranked(question).replies if question in self._searches else {}

    def score(self, questions: Sequence[Question], paths: Sequence[Path]) -> Scoring:
        """Score whole answers in one call of the judge; see `StepScorer.score`."""
        texts = [answer_text(step.text for step in path) for path in paths]
        added: dict[Question, dict[str, int]] = {}
        for i, (question, text) in enumerate(zip(questions, texts, strict=True)):
            if text not in self._ranked(question).texts:
                added.setdefault(question, {}).setdefault(text, i)
        matches = {each: self._matches(each, [*new]) for each, new in added.items()}
        prompts = {asked.id: asked for own in matches.values() for asked in own.values()}
        try:
            made = self._judge.replies([*prompts.values()])
        except GeneratorContractError as error:
            raise ScorerContractError(f"judge {self.name!r}: {error}") from error
        replies = made.by_id
        usage = [TokenUsage()] * len(paths)
        seconds = [0.0] * len(paths)
        for question, new in added.items():
            first = len(self._ranked(question).texts)
            self._add(question, [*new], matches[question], replies)
            for number, i in enumerate(new.values(), start=first):
                # A pair is charged to the later of its two answers.
                own = [
                    replies[asked.id]
                    for pair, asked in matches[question].items()
                    if max(pair) == number and asked.id in replies
                ]
                usage[i], seconds[i] = _cost(own), sum(reply.seconds for reply in own)
        scores: list[float | None] = [
            self._score(question, text) for question, text in zip(questions, texts, strict=True)
        ]
        return Scoring(scores, usage, made.inside, seconds)

    def _ranked(self, question: Question) -> _Ranked:
        return self._searches.setdefault(question, _Ranked())

    def _matches(self, question: Question, new: list[str]) -> dict[tuple[int, int], Question]:
        """The prompts of all ordered pairs with a new text."""
        before = self._ranked(question).texts
        texts = [*before, *new]
        return {
            (i, j): self._judge.asked(question, [texts[i], texts[j]])
            for i, j in itertools.permutations(range(len(texts)), 2)
            if max(i, j) >= len(before)
        }

    def _add(
        self,
        question: Question,
        new: list[str],
        matches: dict[tuple[int, int], Question],
        replies: dict[str, JudgeReply],
    ) -> None:
        ranked = self._ranked(question)
        ranked.texts += new
        for pair, asked in matches.items():
            reply = replies.get(asked.id)
            ranked.choices[pair] = None if reply is None else reply.choice(2)
            ranked.replies[asked.id] = reply

    def _score(self, question: Question, text: str) -> float:
        ranked = self._ranked(question)
        keys = borda_keys(len(ranked.texts), ranked.choices)
        own = keys[ranked.texts.index(text)]
        better = sum(key > own for key in keys)
        return 1.0 - better / max(len(keys) - 1, 1)


def _cost(replies: Sequence[JudgeReply]) -> TokenUsage:
    return replace(total_usage([reply.usage for reply in replies]), generated=0)
