"""The result of a search: answer, finished paths, tree, decisions, ledger and status."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ..protocols import Question
from .ledger import Ledger

Status = Literal["answered", "no_answer", "budget", "max_tokens", "max_seconds", "failed"]
"""How a search ended.

`answered`, `no_answer`: the search ended by itself. `budget`, `max_tokens`, `max_seconds`: a limit
stopped it while paths could still grow; the result may have an answer. `failed`: every candidate of
a step was invalid and no path had finished, or a model broke its contract; the question has no
answer and counts as wrong.
"""

ROOT = 0
"""Id of the tree's root, which is the question; ids of candidates start at 1."""

PRM_CONTEXT = "prm context"
"""`Candidate.invalid` of a candidate whose path has more tokens than the PRM can read."""


@dataclass(slots=True)
class Candidate:
    """One sampled step: a node of the search tree.

    Attributes:
        id: number of the candidate within its question, from 1 in order of sampling.
        parent: id of the candidate that this one continues; 0 is the question. A rewrite of a
            finished answer begins anew: its parent is the question.
        step: index of the reasoning step of the search, from 0.
        phase: index of the tick within the step, from 0.
        pool_row: row in the step's pool.
        text: text of the step, without separator.
        token_ids: the policy's token ids as sampled; not written to tree files.
        num_tokens: number of sampled tokens.
        log_prob: log-probability of the step under the policy at temperature 1, in nats, or None
            if the policy does not report it.
        score: PRM score of the step in [0, 1]; None if the PRM was not called, could not read the
            path, or broke its contract.
        path_score: aggregated score of the path up to here, or None if `score` is None.
        invalid: why the candidate may not be kept, or None: "blank", "length" (the step limit),
            "context" (the end of the policy's context) or `PRM_CONTEXT`.
        done: whether the candidate ends its path.
        answer: the path's final answer if the path is done and has one, otherwise None.
        kept: whether a path ending in this candidate was in the frontier or finished after a step.
        rewrites: id of the candidate that ends the answer of which this one is a rewrite, or None.
    """

    id: int
    parent: int
    step: int
    phase: int
    pool_row: int
    text: str
    token_ids: tuple[int, ...]
    num_tokens: int
    log_prob: float | None
    score: float | None = None
    path_score: float | None = None
    invalid: str | None = None
    done: bool = False
    answer: str | None = None
    kept: bool = False
    rewrites: int | None = None


@dataclass(frozen=True, slots=True)
class DecisionRow:
    """One decision of the controller.

    Attributes:
        step, phase: reasoning step and tick within it, from 0.
        node: id of the candidate at which the controller decided; 0 is the question.
        features: the controller's inputs, in the order of `search.cats.FEATURE_NAMES`.
        action: row of the action table.
        num_extra: number of candidates that the action requested.
        num_retain, temperature, top_p, top_k: the other values of the action.
        granted: number of candidates that the node got.
        reward: reward of the decision.
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
        path_score: `path_score` of the last step, or None if that step was not scored.
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
        question: the question.
        answer: the final answer, or None.
        chosen: index into `paths` of the path that gave the answer, or None.
        status: how the search ended.
        reason: one line on a failure or a limit; empty otherwise.
        steps: reasoning steps completed.
        paths: all finished paths, in the order in which they finished.
        candidates: the tree, in order of sampling.
        decisions: the controller's decisions, in order.
        ledger: cost of the search.
        records: what the searcher's recorder returned for each tick, in order; NumPy pytrees, None
            for a phase that was skipped (see `search.Strategy.quiet_ends_step`).
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
    records: list[Any] = field(default_factory=list)

    def __repr__(self) -> str:
        """The main facts in one line; the whole tree would take pages."""
        parts = [
            f"question={_quoted(self.question.id)}",
            f"answer={_quoted(self.answer)}",
            f"status={self.status!r}",
            *([f"reason={_quoted(self.reason)}"] if self.reason else []),
            f"steps={self.steps}",
            f"paths={len(self.paths)}",
            f"candidates={self.ledger.candidates}",
            f"tokens={self.ledger.tokens}",
        ]
        return f"SearchResult({', '.join(parts)})"


def _quoted(text: str | None) -> str:
    return repr(text if text is None or len(text) <= 80 else text[:79] + "…")


def path_of(nodes: Sequence[int], candidates: Sequence[Candidate]) -> SearchPath:
    """The finished path whose candidate ids, from the first step on, are `nodes`."""
    steps = [candidates[node - 1] for node in nodes]
    return SearchPath(
        steps=tuple(step.text for step in steps),
        step_scores=tuple(step.score for step in steps if step.score is not None),
        path_score=steps[-1].path_score,
        answer=steps[-1].answer,
        nodes=tuple(nodes),
    )


def unsolved_note(title: str, results: Sequence[SearchResult]) -> str | None:
    """A message with the number of programs that a solver did not solve; None if there is none."""
    unsolved = sum(result.ledger.unsolved for result in results)
    steps = sum(result.steps for result in results)
    if not unsolved:
        return None
    of = f" of {steps}" if steps else ""  # a replay does not report its steps
    return (
        f"{title}: the solver reached its limit in {unsolved}{of} steps, and the best solution "
        "found was taken: take a smaller N for exact ones"
    )
