"""What a search leaves behind: the answer, the finished paths, the tree, the ledger, the status."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from ..protocols import Question
from .ledger import Ledger

Status = Literal["answered", "no_answer", "budget", "max_tokens", "max_seconds", "failed"]
"""How a search ended.

`answered` and `no_answer`: by itself, with and without an answer among the finished paths.
`budget`, `max_tokens`, `max_seconds`: a limit stopped it while paths could still grow; there may
be an answer all the same. `failed`: every candidate of a step was invalid, or the PRM broke its
contract; such a question has no answer and counts as wrong.
"""

ROOT = 0
"""Id of the tree's root, the question itself; candidates count from 1."""


@dataclass(slots=True)
class Candidate:
    """One sampled step: a node of the search tree.

    Attributes:
        id: counts from 1 within a question, in order of sampling.
        parent: id of the candidate it continues; 0 is the question.
        step: reasoning step of the search, from 0.
        phase: tick within the step.
        pool_row: row in the step's pool.
        text: the step, without separator.
        token_ids: of the policy, as sampled; not written to tree files.
        num_tokens: sampled tokens.
        log_prob: of the step under the policy at temperature 1, nats.
        score: PRM score of the step, or None if the PRM was not asked or broke its contract.
        path_score: aggregated score of the path up to here, or None if `score` is None.
        invalid: why it may not be kept ("blank", "length", "context"), or None.
        done: it ends an answer.
        answer: the path's final answer if done and one was found.
        kept: it was in the frontier or among the finished paths after its step.
    """

    id: int
    parent: int
    step: int
    phase: int
    pool_row: int
    text: str
    token_ids: tuple[int, ...]
    num_tokens: int
    log_prob: float
    score: float | None = None
    path_score: float | None = None
    invalid: str | None = None
    done: bool = False
    answer: str | None = None
    kept: bool = False


@dataclass(frozen=True, slots=True)
class DecisionRow:
    """One decision of the policy.

    Attributes:
        step, phase: when.
        node: id of the candidate that decided (0: the question).
        features: what the policy saw, in the order of `search.FEATURE_NAMES`.
        action: row of the action table.
        num_extra: candidates the action asked for.
        num_retain, temperature, top_p, top_k: the rest of the action.
        granted: candidates it got.
        reward: of the decision.
    """

    step: int
    phase: int
    node: int
    features: tuple[float, ...]
    action: int
    num_extra: int
    num_retain: int
    temperature: float
    top_p: float
    top_k: int
    granted: int
    reward: float


@dataclass(frozen=True, slots=True)
class SearchPath:
    """A finished path.

    Attributes:
        steps: texts of its steps.
        step_scores: PRM scores of those steps that were scored.
        path_score: of the last step, or None if it was not scored.
        answer: its final answer, or None.
        nodes: candidate ids of its steps.
    """

    steps: tuple[str, ...]
    step_scores: tuple[float, ...]
    path_score: float | None
    answer: str | None
    nodes: tuple[int, ...]


@dataclass(slots=True)
class SearchResult:
    """Everything about one question's search.

    Attributes:
        question: as it was asked.
        answer: the final answer, or None.
        chosen: index into `paths` of the path that gave the answer, or None.
        status: how the search ended.
        reason: one line on a failure or a limit; empty otherwise.
        steps: reasoning steps completed.
        paths: all finished paths, in the order in which they finished.
        candidates: the tree, in order of sampling.
        decisions: the policy's decisions, in order.
        ledger: what it cost.
    """

    question: Question
    answer: str | None
    chosen: int | None
    status: Status
    reason: str
    steps: int
    paths: list[SearchPath] = field(default_factory=list)
    candidates: list[Candidate] = field(default_factory=list)
    decisions: list[DecisionRow] = field(default_factory=list)
    ledger: Ledger = field(default_factory=Ledger)


def path_of(nodes: Sequence[int], candidates: Sequence[Candidate]) -> SearchPath:
    """The path of the candidates of these ids, from the first step on; ids count from 1."""
    steps = [candidates[node - 1] for node in nodes]
    return SearchPath(
        steps=tuple(step.text for step in steps),
        step_scores=tuple(step.score for step in steps if step.score is not None),
        path_score=steps[-1].path_score,
        answer=steps[-1].answer,
        nodes=tuple(nodes),
    )
