"""Comparisons at the end of searches: a language model chooses among their finished answers.

The judge, by default the policy, gets the prompt of a `ComparisonPrompt` in place of a question, so
policies need no code for comparisons. `comparison_rules` says which answers meet, and
`cats_jax.specs.comparing` how they are shown and how the choice is read.

A choice is a function of the texts alone: order and seeds derive from them.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field, replace
from hashlib import blake2b

import search

from ..errors import BadInputError, GeneratorContractError
from ..grading.thinking import answer_text, without_thinking
from ..protocols import (
    Question,
    StepGenerator,
    StepSample,
    StepScorer,
    TokenUsage,
    facts_of,
    seconds_of,
)
from ..specs.comparing import MOST_ANSWERS, ComparisonPrompt
from .accounting import charge_comparison
from .calls import can_read, executor_for, whole_replies
from .comparison_rules import Match, Rounds, rounds_of
from .ledger import Ledger
from .limits import Limits
from .results import SearchResult
from .seeds import stable_seed
from .timings import Timings

REMEMBERED = 1 << 12
"""Number of replies that are remembered by their prompt; the least recently used are dropped."""

_GATHER = 8
"""One call compares when at least 1 / `_GATHER` of the open searches wait for it."""


@dataclass(frozen=True, slots=True)
class JudgeReply:
    """The number that the judge wrote outside its thoughts, from 0 or None, and what it cost."""

    number: int | None
    usage: TokenUsage
    seconds: float

    def choice(self, count: int) -> int | None:
        """The chosen answer among `count` of them, from 0; None without a choice among them."""
        return self.number if self.number is not None and self.number < count else None


@dataclass(frozen=True, slots=True)
class JudgeReplies:
    """Replies of a call.

    Attributes:
        by_id: reply by the id of its prompt; none for a prompt that does not fit the context.
        inside: seconds inside the model.
        wall: seconds of the whole call.
    """

    by_id: dict[str, JudgeReply]
    inside: float
    wall: float


@dataclass(eq=False, repr=False)
class Judge:
    """A language model that compares, with the rule and the prompt of its comparisons.

    It remembers replies by their prompts. Several threads may call it if the model allows that.

    Attributes:
        writer: the policy, or the language model of the PRM.
        comparison: which answers are compared.
        prompt: how they are shown, and how the choice is read.
        system: system message of the prompts; None: that of the writer's format.
    """

    writer: StepGenerator
    comparison: search.comparison.Comparison
    prompt: ComparisonPrompt
    system: str | None
    _known: OrderedDict[str, JudgeReply] = field(default_factory=OrderedDict, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def check_question(self, question: Question) -> None:
        """Raise BadInputError unless the model can read the prompt with two empty answers."""
        try:
            self.writer.check_question(self.asked(question, ["", ""]))
        except BadInputError as error:
            raise BadInputError(
                f"question {question.id!r}: judge {self.writer.name!r} can't read the prompt of "
                f"comparison {self.prompt.name!r}: {error}"
            ) from error

    def asked(self, question: Question, answers: Sequence[str]) -> Question:
        """The prompt as a question, whose id is a digest of its text.

        The question's system message is left out: it requests an answer, not a choice.
        """
        text = self.prompt.text(question.text, answers)
        digest = blake2b(text.encode(), digest_size=16).hexdigest()
        return Question(f"comparison: {digest}", text, self.system)

    def replies(self, asked: Sequence[Question]) -> JudgeReplies:
        """Replies to distinct prompts; one call of the model samples those not remembered."""
        started = time.perf_counter()
        with self._lock:
            known = {each.id: self._known[each.id] for each in asked if each.id in self._known}
        new = [each for each in asked if each.id not in known and can_read(self.writer, each)]
        made, inside = self._ask(new) if new else ({}, 0.0)
        found = known | made
        with self._lock:
            for key, reply in found.items():
                self._known[key] = reply
                self._known.move_to_end(key)
            while len(self._known) > REMEMBERED:
                self._known.popitem(last=False)
        return JudgeReplies(found, inside, time.perf_counter() - started)

    def _ask(self, asked: Sequence[Question]) -> tuple[dict[str, JudgeReply], float]:
        """Replies to prompts that fit, and the seconds inside the model."""
        seeds = [(stable_seed("comparison", each.id),) for each in asked]
        made = whole_replies(self.writer, asked, seeds, self.comparison.temperature)
        replies = {
            each.id: JudgeReply(self.prompt.read(_said(sample), MOST_ANSWERS), usage, spent)
            for each, (sample,), usage, spent in zip(
                asked, made.samples, made.usage, seconds_of(made), strict=True
            )
        }
        return replies, made.inside_seconds


def writer_of(
    strategy: search.Strategy, policy: StepGenerator, scorer: StepScorer | None
) -> StepGenerator:
    """The language model that compares the answers of a strategy.

    Raises:
        BadInputError: the PRM has to compare, and is not a language model as judge that writes.
    """
    if strategy.comparison is None or strategy.comparison.judge == "policy":
        return policy
    writer = getattr(scorer, "writer", None)
    if not isinstance(writer, StepGenerator):
        name = "" if scorer is None else f" {scorer.name!r}"
        raise BadInputError(not_a_judge(strategy.name, name))
    return writer


def not_a_judge(strategy: str, prm: str) -> str:
    """The message for a strategy whose judge is a PRM that can't compare."""
    return (
        f"strategy {strategy!r} compares answers by its PRM{prm}, which is not a language model "
        "that writes: give the PRM the format judge-critique, or leave out judge: prm"
    )


def _said(sample: StepSample) -> str:
    """A reply outside its thoughts; a reply that was cut says nothing."""
    return without_thinking([sample.step.text]) if sample.finish == "end" else ""


@dataclass(frozen=True, slots=True)
class _Contender:
    """A finished answer: its text, its row in the result's paths, and the votes for its answer."""

    text: str
    row: int
    votes: int


@dataclass(slots=True, eq=False)
class _Compared:
    """A search that has ended and is being compared.

    Attributes:
        result: its result, whose answer is that of the strategy's rule.
        contenders: its answers in the order in which they are shown.
        rounds: the rule, between two rounds.
        known: replies that gave the scores of its search, by the ids of their prompts.
        matches, asked: the round in progress, and the prompt of each match.
    """

    result: SearchResult
    contenders: list[_Contender]
    rounds: Rounds
    known: Mapping[str, JudgeReply | None]
    matches: list[Match] = field(default_factory=list)
    asked: list[Question] = field(default_factory=list)


class Comparisons:
    """The searches of a batch that have ended and are being compared.

    All paths with a final answer take part; of equal texts, only the first unless `repeats`.
    A search is not compared if all its final answers are the same. If the judge also gave the
    scores of the search, it is compared nevertheless: the search has paid for the replies, and so
    they count. If a limit on tokens or seconds ended the search, or is reached before a round, the
    replies that gave the scores decide, and without scores the strategy's answer rule. A remembered
    reply of another search is charged like a new one.

    A comparison is unread if its reply was cut or states no choice, or if its prompt does not fit
    the context. In a tournament the most frequent answer of the match then wins; ties: the first to
    finish. With "borda" such a comparison counts for neither answer.

    A concurrent judge gets one call per search and round. Other judges get one call for all
    searches that wait.

    Args:
        judge: language model, rule and prompt.
        limits: limits of a question.
        most: most calls at a time.
        timings: seconds by part.
        known: replies that gave the scores of a search, by the ids of their prompts, or None where
            a prompt did not fit; default: none. Their tokens were charged with the scores.
    """

    def __init__(
        self,
        judge: Judge,
        limits: Limits,
        most: int,
        timings: Timings,
        known: Callable[[Question], Mapping[str, JudgeReply | None]] = lambda question: {},
    ) -> None:
        self._judge = judge
        self._limits = limits
        self._timings = timings
        self._known = known
        self._concurrent = facts_of(judge.writer).concurrent
        self._executor = executor_for(judge.writer, most)
        self._waiting: list[_Compared] = []
        self._in_progress: dict[Future[JudgeReplies], list[_Compared]] = {}

    def __len__(self) -> int:
        """Number of searches that are being compared."""
        return len(self._waiting) + sum(map(len, self._in_progress.values()))

    def add(
        self, result: SearchResult, answer_class: Callable[[str | None], int]
    ) -> SearchResult | None:
        """Take a search that has ended; returns its result if it is not compared.

        `answer_class` gives equal answers the same number.
        """
        comparison, known = self._judge.comparison, self._known(result.question)
        # Also those of answers that are no contenders, and of searches that are not compared.
        self._charge(
            result.ledger, [], [_choice(each, search.comparison.PAIR) for each in known.values()]
        )
        if result.status == "failed":
            return result
        is_limited, ranks = result.status in ("max_tokens", "max_seconds"), comparison.scores
        if is_limited and not ranks:
            return result
        contenders = self._contenders(result, answer_class)
        if len(contenders) < search.comparison.PAIR:
            return result
        exceeded = self._limits.exceeded(result.ledger)
        if exceeded is not None:
            is_limited, (status, reason) = True, exceeded
            result = replace(result, status=status, reason=reason)
        if is_limited and not ranks:
            return result

        def vote(match: Sequence[int]) -> int:
            return max(match, key=lambda i: (contenders[i].votes, -contenders[i].row))

        rounds = rounds_of(comparison, len(contenders), vote)
        compared = _Compared(result, contenders, rounds, known)
        if is_limited:
            return self._by_known(compared)
        self._begin_round(compared, next(rounds))
        return None

    def advance(self, num_open: int) -> list[SearchResult]:
        """Take the replies that have arrived, and begin the calls that are due.

        If `num_open`, the number of open searches of the batch, is 0, this waits for a reply.

        Returns:
            Results of the searches whose comparisons have ended.

        Raises:
            Exception: an error of the model. A broken contract is not raised; it fails a question.
        """
        self._begin(num_open)
        if not num_open and self._in_progress:
            wait(self._in_progress, return_when=FIRST_COMPLETED)
        ended: list[SearchResult] = []
        for call in [call for call in self._in_progress if call.done()]:
            ended += self._take(call)
        return ended

    def drop(self, ids: Container[str]) -> list[str]:
        """Forget searches without a call in progress; returns their ids."""
        gone = [each for each in self._waiting if each.result.question.id in ids]
        self._waiting = [each for each in self._waiting if each not in gone]
        return [each.result.question.id for each in gone]

    def progress(self) -> Iterator[tuple[str, int, Ledger]]:
        """Id, completed steps and costs so far of each search."""
        for group in (self._waiting, *self._in_progress.values()):
            for each in group:
                yield each.result.question.id, each.result.steps, each.result.ledger

    def close(self) -> None:
        """End the threads; calls in progress are not awaited."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _contenders(
        self, result: SearchResult, answer_class: Callable[[str | None], int]
    ) -> list[_Contender]:
        """The answers to compare, in an order that depends on their texts alone; maybe none."""
        classes = {
            row: answer_class(path.answer)
            for row, path in enumerate(result.paths)
            if path.answer is not None
        }
        votes = Counter(classes.values())
        if len(votes) < search.comparison.PAIR and not self._judge.comparison.scores:
            return []
        texts = {row: answer_text(result.paths[row].steps) for row in classes}
        rows = list(texts)
        if not self._judge.comparison.repeats:
            rows = list({texts[row]: row for row in reversed(rows)}.values())
        rows.sort(key=lambda row: (stable_seed(result.question.text, texts[row]), row))
        return [_Contender(texts[row], row, votes[classes[row]]) for row in rows]

    def _by_known(self, compared: _Compared) -> SearchResult:
        """The result by the known replies alone; other comparisons are unread."""
        matches = next(compared.rounds)
        while True:
            replies = [compared.known.get(each.id) for each in self._asked(compared, matches)]
            pairs = zip(matches, replies, strict=True)
            try:
                matches = compared.rounds.send([_choice(said, len(match)) for match, said in pairs])
            except StopIteration as end:
                return _with_winner(compared, end.value)

    def _asked(self, compared: _Compared, matches: Sequence[Match]) -> list[Question]:
        """The prompt of each match."""
        texts = [each.text for each in compared.contenders]
        return [
            self._judge.asked(compared.result.question, [texts[i] for i in match])
            for match in matches
        ]

    def _begin_round(self, compared: _Compared, matches: list[Match]) -> None:
        compared.matches, compared.asked = matches, self._asked(compared, matches)
        self._waiting.append(compared)

    def _begin(self, num_open: int) -> None:
        """Begin the calls that are due."""
        if self._concurrent:
            groups = [[each] for each in self._waiting]
        elif self._waiting and len(self._waiting) * _GATHER >= num_open:
            groups = [self._waiting]
        else:
            return
        self._waiting = []
        for group in groups:
            self._call(group)

    def _call(self, group: list[_Compared]) -> None:
        prompts = {
            asked.id: asked for each in group for asked in each.asked if asked.id not in each.known
        }
        call = self._executor.submit(self._judge.replies, [*prompts.values()])
        self._in_progress[call] = group

    def _take(self, call: Future[JudgeReplies]) -> list[SearchResult]:
        """Give a finished call's replies to its searches; returns those that have ended."""
        group = self._in_progress.pop(call)
        try:
            made = call.result()
        except GeneratorContractError as error:
            if len(group) > 1:
                for each in group:  # so that only the question at fault fails
                    self._call([each])
                return []
            result = group[0].result
            return [replace(result, status="failed", reason=str(error), answer=None, chosen=None)]
        outside, part = max(0.0, made.wall - made.inside), self._judge.comparison.judge
        self._timings.add(f"{part} inside", made.inside)
        if not self._concurrent:  # the seconds of other threads are not the driver's
            self._timings.add(f"{part} outside", outside)
        ended: list[SearchResult] = []
        for each in group:
            each.result.ledger.rest_seconds += outside / len(group)
            ended += self._next(each, made)
        return ended

    def _next(self, compared: _Compared, made: JudgeReplies) -> list[SearchResult]:
        """End a round, and begin the next one; returns the result if it was the last one."""
        ledger, known = compared.result.ledger, compared.known
        replies = [known.get(asked.id) or made.by_id.get(asked.id) for asked in compared.asked]
        choices = [
            _choice(reply, len(match))
            for match, reply in zip(compared.matches, replies, strict=True)
        ]
        new = [i for i, asked in enumerate(compared.asked) if asked.id not in known]
        self._charge(ledger, [replies[i] for i in new], [choices[i] for i in new])
        try:
            matches = compared.rounds.send(choices)
        except StopIteration as end:
            return [_with_winner(compared, end.value)]
        exceeded = self._limits.exceeded(ledger)
        if exceeded is not None:
            status, reason = exceeded
            return [replace(compared.result, status=status, reason=reason)]
        self._begin_round(compared, matches)
        return []

    def _charge(
        self, ledger: Ledger, replies: Sequence[JudgeReply | None], choices: Sequence[int | None]
    ) -> None:
        paid = [(reply.usage, reply.seconds) for reply in replies if reply is not None]
        by_prm = self._judge.comparison.judge == "prm"
        charge_comparison(ledger, paid, choices, self._judge.writer.num_parameters, by_prm=by_prm)


def _with_winner(compared: _Compared, winner: int) -> SearchResult:
    row = compared.contenders[winner].row
    return replace(compared.result, chosen=row, answer=compared.result.paths[row].answer)


def _choice(reply: JudgeReply | None, count: int) -> int | None:
    return None if reply is None else reply.choice(count)


def unread_note(title: str, judge: str, results: Sequence[SearchResult]) -> str | None:
    """A message with the number of comparisons without a choice; None if all had one.

    `title` tells cells apart, because Python shows equal warnings once.
    """
    unread = sum(result.ledger.comparisons_unread for result in results)
    if not unread:
        return None
    made = sum(result.ledger.comparisons for result in results)
    return (
        f"{title}: {unread} of {made} comparisons by judge {judge!r} had no choice that can be "
        "read, and decided nothing: replies state none or are cut at the limit of an answer's "
        "tokens, or prompts do not fit; raise the limit, or take a judge that follows instructions"
    )
