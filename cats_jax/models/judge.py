"""A language model as judge: it writes a critique of each step, and its verdict is the score.

The writer is any policy of this package, on transformers, vLLM or behind a server. A step's score
is the mean over its critiques, see `WrittenVerdict`. `prm.judge_text` and
`prm.format.JUDGE_CRITIQUE` describe the prompt, and how it differs from published generative
verifiers.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

from ..errors import (
    BadInputError,
    GeneratorContractError,
    PathTooLongError,
    RunStoppedError,
    RunWarning,
    ScorerContractError,
)
from ..live.calls import can_read, whole_replies
from ..live.seeds import stable_seed
from ..protocols import (
    Path,
    Question,
    Scoring,
    StepGenerator,
    StepSample,
    TokenUsage,
    seconds_of,
)
from .prm.answer_steps import AnswerStepScorer
from .prm.format import PRMFormat
from .prm.judge_text import judge_text
from .prm.newest_steps import broken, check_steps
from .prm.verdict import WrittenVerdict

REMEMBERED = 1 << 16
"""Number of scores that are remembered by their text; the least recently used are dropped."""

PATIENCE = 16
"""Number of critiques without a single verdict after which a run stops."""


@dataclass(frozen=True, slots=True)
class _Judged:
    score: float
    usage: TokenUsage
    seconds: float = 0.0


class JudgeScorer(AnswerStepScorer):
    """`StepScorer` whose scores are the verdicts in a language model's critiques.

    A score is a function of the texts of the question and the steps, from which seeds derive. Each
    distinct text is judged once while its score is remembered. A question is also charged for a
    score that is remembered from another search, so that its ledger does not depend on earlier
    searches. `usage.computed` counts the tokens that the model read, and those that it wrote except
    the last one of each critique. On transformers, the common beginning of several critiques of a
    step counts once.

    A critique without a verdict, such as one that is cut at `max_tokens` or at the end of the
    context, has the lowest score, 0, so that no text can gain by confusing the judge. A call of
    `score` is one call of the writer. It raises ScorerContractError if the writer broke its own
    contract, and RunStoppedError if none of the first critiques had a verdict. `count_tokens` is
    the largest number of tokens of the message about a path: one for each byte.

    Args:
        judge: format with the layout "judge" and a `WrittenVerdict`.
        writer: policy with the messages of `judge_policy_format`, which writes at most the
            verdict's `max_tokens` in a request with `to_end`.
        sparsity: shares of small weights in the whole model and in its last layer.

    Attributes:
        critiques, unread: numbers of critiques so far, and of those without a verdict.

    Raises:
        BadInputError: the format is not that of a judge that writes.
    """

    def __init__(
        self, judge: PRMFormat, writer: StepGenerator, sparsity: tuple[float, float] = (0.0, 0.0)
    ):
        if not isinstance(judge.read_out, WrittenVerdict):
            raise BadInputError(
                f"PRM format {judge.name!r} does not ask the model for a verdict: take one whose "
                "read_out has the key verdict or pattern, such as judge-critique"
            )
        super().__init__(thoughts=judge.thoughts)
        self._judge, self._verdict, self._writer = judge, judge.read_out, writer
        self.name = writer.name
        self.num_parameters = writer.num_parameters
        self.sparsity_total, self.sparsity_last_layer = sparsity
        self.critiques = self.unread = 0
        self._known: OrderedDict[str, _Judged] = OrderedDict()
        self._paid: dict[Question, set[str]] = {}

    @property
    def writer(self) -> StepGenerator:
        """The language model, which can also compare answers; see `live.comparisons`."""
        return self._writer

    @property
    def recomputed(self) -> int:
        """Tokens computed again, as in `HuggingFaceGenerator`; 0 if the writer does not count."""
        return getattr(self._writer, "recomputed", 0)

    @property
    def note(self) -> str | None:
        """A message with the number of critiques without a verdict; None if all had a verdict."""
        if not self.unread:
            return None
        return (
            f"judge {self.name!r}: {self.unread} of {self.critiques} critiques had no verdict and "
            "count as the score 0"
        )

    def keep_only(self, question: Question, paths: Sequence[Path]) -> None:
        """Forgets which scores a question was charged for, once it has no paths."""
        if not paths:
            self._paid.pop(question, None)

    def _count_tokens(self, question: Question, path: Path) -> int:
        check_steps(question, path, self.name)
        asked = self._asked(question, path)
        if not can_read(self._writer, asked):
            reason = "the context has no room for the path"
            broken(question, len(path) - 1, reason, self.name, PathTooLongError)
        return len(asked.text.encode())

    def _score(self, questions: Sequence[Question], paths: Sequence[Path]) -> Scoring:
        asked = []
        for question, path in zip(questions, paths, strict=True):
            check_steps(question, path, self.name)
            asked.append(self._asked(question, path))
        distinct = {each.id: each for each in asked}
        new = [each for each in distinct.values() if each.id not in self._known]
        judged = self._write([each for each in new if can_read(self._writer, each)])
        # Remembered scores are copied here, because `_remember` may drop them.
        judged |= {key: self._known[key] for key in distinct if key in self._known}
        inside = sum(judged[each.id].seconds for each in new if each.id in judged)
        scores: list[float | None] = []
        usage, seconds = [], []
        fresh = {each.id for each in new}
        for question, each in zip(questions, asked, strict=True):
            found = judged.get(each.id)
            scores.append(None if found is None else found.score)
            usage.append(TokenUsage() if found is None else self._charged(question, each.id, found))
            seconds.append(found.seconds if found is not None and each.id in fresh else 0.0)
            fresh.discard(each.id)
        self._remember(judged)
        return Scoring(scores, usage, inside, seconds)

    def _asked(self, question: Question, path: Path) -> Question:
        """The question to the writer, whose id is the digest of its text."""
        text = judge_text(self._judge, question.text, [step.text for step in path])
        return Question(blake2b(text.encode(), digest_size=16).hexdigest(), text)

    def _write(self, asked: Sequence[Question]) -> dict[str, _Judged]:
        """Judges texts in one call."""
        if not asked:
            return {}
        verdict = self._verdict
        numbers = range(verdict.samples)
        seeds = [tuple(stable_seed("judge", each.id, i) for i in numbers) for each in asked]
        try:
            made = whole_replies(self._writer, asked, seeds, verdict.temperature)
        except GeneratorContractError as error:
            raise ScorerContractError(f"judge {self.name!r}: {error}") from error
        scores = [[self._score_of(sample) for sample in samples] for samples in made.samples]
        self._count(scores)
        seconds = seconds_of(made)
        return {
            each.id: _Judged(
                sum(score or 0.0 for score in own) / len(own),
                dataclasses.replace(usage, generated=0),
                spent,
            )
            for each, own, usage, spent in zip(asked, scores, made.usage, seconds, strict=True)
        }

    def _score_of(self, sample: StepSample) -> float | None:
        return self._verdict.read(sample.step.text) if sample.finish == "end" else None

    def _count(self, scores: Sequence[Sequence[float | None]]) -> None:
        """Counts critiques without a verdict, and reports the first ones."""
        before = self.unread
        self.critiques += sum(map(len, scores))
        self.unread += sum(own.count(None) for own in scores)
        if self.unread == self.critiques >= PATIENCE:
            raise RunStoppedError(
                f"judge {self.name!r}: none of the first {self.critiques} critiques ends with a "
                f"verdict in the form that {self._judge.name!r} asks for: raise max_tokens (now "
                f"{self._verdict.max_tokens}), change the prompt, or take another model"
            )
        if self.unread and not before:
            warnings.warn(f"{self.note}", RunWarning, stacklevel=2)

    def _charged(self, question: Question, key: str, judged: _Judged) -> TokenUsage:
        """The usage charged to a question: cached tokens if it was charged for the score before."""
        paid = self._paid.setdefault(question, set())
        if key not in paid:
            paid.add(key)
            return judged.usage
        return TokenUsage(cached=judged.usage.computed + judged.usage.cached)

    def _remember(self, judged: dict[str, _Judged]) -> None:
        for key, value in judged.items():
            self._known[key] = value
            self._known.move_to_end(key)
        while len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
