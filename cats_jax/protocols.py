"""Protocols of the policy, the PRM and the grader of answers, and the values they exchange.

Calls are batched: one call of a policy or a PRM serves many questions. The driver makes one call of
an object at a time, unless the object is `concurrent` (`ModelFacts`). A path is always a tuple of
steps; it is never split again from joined text. No value has a field for a gold answer, so no
implementation can see one.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, get_args, runtime_checkable

from .errors import RunWarning, ScorerContractError

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, slots=True)
class Question:
    """A question as the search sees it.

    Attributes:
        id: stable and unique within a run; seeds and result rows derive from it.
        text: the question in plain text.
        system: system message for the policy in place of its format's; None: the format's own; "":
            none. A PRM does not read it.
    """

    id: str
    text: str
    system: str | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """One reasoning step as sampled.

    A token may end one step and begin the next one, for example a blank line followed by a word. It
    is the last token of the first step; its text after the separator begins the text of the second.
    Separators before a step's text are among its tokens, but not in its text.

    Attributes:
        text: the step without its closing separator, and without blank lines before it.
        token_ids: the policy's token ids as sampled, >= 0, including the closing separator or
            end-of-text token, so that a continuation never re-tokenises text. Empty only if the
            context had no room left.
        confidence: geometric mean of the probabilities of the step's tokens under the policy at
            temperature 1, in [0, 1]; set in the paths that a PRM gets, if known. Equality of steps
            ignores it.
    """

    text: str
    token_ids: tuple[int, ...]
    confidence: float | None = field(default=None, compare=False)


Path = tuple[Step, ...]


def confidence(log_prob: float | None, num_tokens: int) -> float | None:
    """exp(log_prob / num_tokens), the field of a `Step`; None for None.

    Args:
        log_prob: summed log-probability of the step's tokens, in nats, <= 0.
        num_tokens: number of these tokens, >= 0.
    """
    if log_prob is None:
        return None
    return math.exp(min(log_prob / max(num_tokens, 1), 0.0))


Finish = Literal["step", "end", "length", "context"]
"""Why sampling stopped.

"step": at the step separator; "end": at the end of the text; "length": at the step's token limit;
"context": at the end of the model's context.
"""


TokenCertainty = Literal["top", "all"]
"""What a token's certainty is: a number >= 0 of the distribution at temperature 1, untruncated.

"top": minus the mean log-probability of the `TOP_TOKENS` most likely tokens.
"all": -1/V sum_j log(V p_j) over all V tokens.
"""

TOKEN_CERTAINTIES: tuple[TokenCertainty, ...] = get_args(TokenCertainty)
"""The kinds."""

TOP_TOKENS = 20
"""Number of tokens in the certainty "top", or the whole vocabulary if it is smaller."""


@dataclass(frozen=True, slots=True)
class StepRequest:
    """Sample `len(seeds)` continuations of one path.

    Attributes:
        question: the question being answered.
        path: the steps so far, oldest first; empty at the root.
        seeds: one unsigned 64-bit seed per wanted sample, its only source of randomness.
        temperature: softmax temperature, >= 0; 0 means greedy.
        top_p: nucleus mass in (0, 1]; 1 switches it off.
        top_k: number of most likely tokens kept; 0 switches it off.
        to_end: sample the rest of the answer as one step, without stopping at step separators.
        rewrites: `path` is a finished answer: sample another whole answer in its place. Only
            `live.rewriter.Rewriter` gets such requests; it turns them into requests without a path.
        certainty: kind of token certainty that the samples must report, the same in all requests of
            a call; None for no certainty.
        vectors: whether the samples must report vectors, the same in all requests of a call.
    """

    question: Question
    path: Path
    seeds: tuple[int, ...]
    temperature: float
    top_p: float
    top_k: int
    to_end: bool
    rewrites: bool = False
    certainty: TokenCertainty | None = None
    vectors: bool = False


@dataclass(frozen=True, slots=True)
class StepSample:
    """One sampled continuation.

    Attributes:
        step: the sampled step.
        finish: why sampling stopped. Only "step" and "end" are usable; the others are cut text. A
            request with `to_end` never finishes with "step".
        log_prob: summed log-probability of the step's tokens under the policy at temperature 1,
            untruncated, in nats, finite and <= 0; None if the policy was told to leave it out.
        certainties: certainty of each token, finite; None if not requested.
        vector: f32[H], finite, of a length H that all steps of the policy share; the angle between
            two vectors says how alike their steps are in meaning. None if not requested. Equality
            of samples ignores it.
        num_sampled: number of tokens whose log-probabilities `log_prob` adds up, if the step has
            tokens that were put in and not sampled; None: all tokens of the step.
    """

    step: Step
    finish: Finish
    log_prob: float | None
    certainties: tuple[float, ...] | None = None
    vector: np.ndarray | None = field(default=None, compare=False, repr=False)
    num_sampled: int | None = None

    @property
    def num_tokens(self) -> int:
        """Number of tokens that were sampled for the step."""
        return len(self.step.token_ids) if self.num_sampled is None else self.num_sampled


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """Tokens one request cost.

    Attributes:
        computed: number of tokens that went through the model.
        cached: number of tokens reused from an earlier call or from a sample with the same history.
        generated: number of sampled tokens. A sampled token that was fed back to the model also
            counts as computed or cached.
        cost: what a chat endpoint charges for these tokens, in the unit of its prices; 0 for other
            models.
    """

    computed: int = 0
    cached: int = 0
    generated: int = 0
    cost: float = 0.0


def total_usage(usage: Sequence[TokenUsage]) -> TokenUsage:
    """The sum of several usages, field by field."""
    return TokenUsage(
        computed=sum(each.computed for each in usage),
        cached=sum(each.cached for each in usage),
        generated=sum(each.generated for each in usage),
        cost=sum(each.cost for each in usage),
    )


def shared_seconds(usage: Sequence[TokenUsage], seconds: float) -> list[float]:
    """A call's seconds, divided among its requests by computed plus sampled tokens.

    If no request has tokens, as of a model that counts none, each gets an equal share.
    """
    tokens = [each.computed + each.generated for each in usage]
    weights = tokens if any(tokens) else [1] * len(usage)
    total = sum(weights)
    return [seconds * weight / total for weight in weights]


@dataclass(frozen=True, slots=True)
class Generation:
    """Answer to a batch of `StepRequest`s.

    Attributes:
        samples: `samples[i][j]` belongs to request i and its seed j.
        usage: tokens that each request cost, one entry per request.
        inside_seconds: time in forward passes and in sampling token ids, for the whole batch.
        sample_usage: `sample_usage[i][j]` is what sample j of request i cost in addition to samples
            0..j-1; sample 0 includes the request's path. A request for the first samples alone
            costs their sum. None if the bridge does not know.
        seconds: part of `inside_seconds` that belongs to each request; None divides it by tokens,
            see `shared_seconds`.
    """

    samples: list[list[StepSample]]
    usage: list[TokenUsage]
    inside_seconds: float
    sample_usage: list[list[TokenUsage]] | None = None
    seconds: list[float] | None = None


Answer = tuple[StepSample, ...]
"""The steps of one sampled answer, at least one.

A last step that finished with "step" was cut at the limit for answers; the answer can be continued.
"""


@dataclass(frozen=True, slots=True)
class AnswerGeneration:
    """Whole answers to a batch of `StepRequest`s.

    Attributes:
        answers: `answers[i][j]` belongs to request i and its seed j.
        usage, inside_seconds, sample_usage, seconds: as in `Generation`, with all sampled tokens,
            also those of a step that was cut.
    """

    answers: list[list[Answer]]
    usage: list[TokenUsage]
    inside_seconds: float
    sample_usage: list[list[TokenUsage]] | None = None
    seconds: list[float] | None = None


@dataclass(frozen=True, slots=True)
class Scoring:
    """Answer to a batch of paths.

    Attributes:
        scores: score in [0, 1] of the LAST step of each path; None if the path has more tokens than
            the PRM can read. The search drops such a path.
        usage: tokens that each path cost, one entry per path (`generated` is 0).
        inside_seconds: time in forward passes, for the whole batch.
        seconds: part of `inside_seconds` that belongs to each path; None divides it by tokens, see
            `shared_seconds`.
    """

    scores: list[float | None]
    usage: list[TokenUsage]
    inside_seconds: float
    seconds: list[float] | None = None

    def all_scores(self) -> list[float]:
        """The scores, for callers whose paths are known to fit.

        Raises:
            ScorerContractError: a path has no score.
        """
        scores = [score for score in self.scores if score is not None]
        if len(scores) < len(self.scores):
            missing = len(self.scores) - len(scores)
            raise ScorerContractError(f"the PRM can't read {missing} of {len(self.scores)} paths")
        return scores


def seconds_of(made: Generation | AnswerGeneration | Scoring) -> list[float]:
    """The seconds of each request or path of a call, as reported or divided by tokens."""
    return made.seconds or shared_seconds(made.usage, made.inside_seconds)


class ModelFacts(NamedTuple):
    """What a policy or a PRM may say of itself by attributes with these names; see `facts_of`.

    Attributes:
        concurrent: several threads may call the model at a time. A `Searcher` then calls the policy
            once for each question, and a question continues when its own samples have arrived. New
            steps are scored while the policy samples.
        reads_system: the policy reads the system message of a question; other policies do not get
            questions with one.
        whole_only: why the policy can't sample single steps but only whole answers; None if it can.
        certainties: kinds of token certainty that the policy can report; strategies that read
            another one are refused.
        vectors: whether the policy can report vectors of steps; if not, strategies that read them
            are refused.
        adds_tokens: steps may have tokens that were not sampled, and usage does not count them as
            `generated`.
        finished_only: the PRM is an outcome model: `score` is called for finished answers only.
        note: message of the model for the end of a run, in one line.
        recomputed: number of tokens computed again so far for lack of memory.
    """

    concurrent: bool = False
    reads_system: bool = False
    whole_only: str | None = None
    certainties: frozenset[str] = frozenset()
    vectors: bool = False
    adds_tokens: bool = False
    finished_only: bool = False
    note: str | None = None
    recomputed: int = 0


def facts_of(model: StepGenerator | StepScorer | None) -> ModelFacts:
    """The facts that a model states now, with the defaults of the others."""
    defaults = ModelFacts._field_defaults
    return ModelFacts(*(getattr(model, name, default) for name, default in defaults.items()))


def warn_note(model: StepGenerator | StepScorer | None) -> None:
    """Show the note of a model as a RunWarning, at the end of the work with it."""
    if (note := facts_of(model).note) is not None:
        warnings.warn(note, RunWarning, stacklevel=2)


@runtime_checkable
class StepGenerator(Protocol):
    """A policy: a frozen language model that writes candidate steps.

    A call serves all open questions of a `Searcher`. If it breaks the contract (`live.contract`),
    the policy is called again for each question, so that only the question at fault fails. A policy
    may also have attributes of `ModelFacts`.

    Attributes:
        num_parameters: number of the model's parameters, for the ledger's FLOP estimate.
        name: short name for tables and manifests.
    """

    name: str
    num_parameters: int

    def check_question(self, question: Question) -> None:
        """Raise BadInputError if the question can't fit the model's context."""
        ...

    def generate(self, requests: Sequence[StepRequest]) -> Generation:
        """Sample every request. A sample is a function of its path, parameters and seed alone."""
        ...

    def keep_only(self, question: Question, paths: Sequence[Path]) -> None:
        """Free a question's cached state except prefixes of `paths`; without paths, all of it."""
        ...


@dataclass(frozen=True, slots=True)
class AnswerScoring:
    """Scores of the steps of several paths.

    Attributes:
        scores: `scores[i]` are those of the requested steps of path i, in [0, 1]; None for a step
            at which the path is longer than the PRM's context.
        usage: tokens each path cost.
        inside_seconds: seconds in forward passes, or in the call to an engine.
    """

    scores: list[list[float | None]]
    usage: list[TokenUsage]
    inside_seconds: float


@runtime_checkable
class AnswerGenerator(StepGenerator, Protocol):
    """A policy that can sample whole answers in one request."""

    def generate_answers(self, requests: Sequence[StepRequest], max_depth: int) -> AnswerGeneration:
        """Sample the rest of the answer for every request, and cut it into steps.

        An answer ends with its end token, at a step that is longer than the limit for steps (the
        last sample, which finishes with "length"), at the end of the context, or at the limit for
        answers. A path has at most `max_depth` steps; the last one is the rest of the answer, and
        the rules of `generate` cut the others. An answer is a function of its path, parameters and
        seed alone.
        """
        ...


@runtime_checkable
class StepScorer(Protocol):
    """A process reward model.

    A call serves all open questions of a `Searcher`. If it breaks the contract, the PRM is called
    again for each question, so that only the question at fault fails. A PRM may also have
    attributes of `ModelFacts`.

    Attributes:
        num_parameters: number of the model's parameters, for the ledger's FLOP estimate.
        name: short name for tables and manifests.
        sparsity_total, sparsity_last_layer: share of weights below 1e-4, in [0, 1].
    """

    name: str
    num_parameters: int
    sparsity_total: float
    sparsity_last_layer: float

    def score(self, questions: Sequence[Question], paths: Sequence[Path]) -> Scoring:
        """Score the last step of each path; `questions[i]` is the question of `paths[i]`.

        Earlier steps are not scored again: a causal model's score of a step depends on no later
        step.

        Raises:
            ScorerContractError: a step is blank or a score is NaN; the message names question and
                step.
        """
        ...

    def keep_only(self, question: Question, paths: Sequence[Path]) -> None:
        """Free a question's cached state except prefixes of `paths`; without paths, all of it."""
        ...


@runtime_checkable
class AnswerScorer(StepScorer, Protocol):
    """A PRM that can score several steps of a path in one pass."""

    def score_answers(
        self, questions: Sequence[Question], paths: Sequence[Path], known: Sequence[int]
    ) -> AnswerScoring:
        """Score the last steps of each path, those from step `known[i]` on.

        The scores are those that `score` gives for the beginnings of the path.

        Raises:
            ScorerContractError: a step is blank or a score is NaN.
        """
        ...


class AnswerGrader(Protocol):
    """Decides which answers are the same; sees no gold answer during a search."""

    def extract(self, steps: Sequence[str]) -> str | None:
        """The final answer a path gives, or None."""
        ...

    def equivalent(self, first: str, second: str) -> bool:
        """Whether two answers are the same. The relation must be an equivalence relation."""
        ...
