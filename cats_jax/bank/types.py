"""What a step bank is made of on the host."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from search import Sampling

from ..protocols import Question

ROOT = 0
"""A tree's first node: the question itself."""


@dataclass(frozen=True)
class Draws:
    """One sampling setting of a bank.

    Attributes:
        sampling: the setting.
        root_draws: draws of a question's first step, >= 1. The bank then holds about this many
            paths of the setting. No node is drawn more often.
        revisit_draws: draws, at least, of a node that searches come back to.
    """

    sampling: Sampling
    root_draws: int
    revisit_draws: int


@dataclass(frozen=True)
class Allocation:
    """How often the nodes of a tree are drawn.

    Attributes:
        draws: of each sampling setting.
        revisits_per_prm: how many nodes of each depth count as revisited because a PRM ranks them
            best, by their lowest step score; for each PRM.
        revisit_arrivals: a node counts as revisited, too, if at least this many paths of a mixture
            of the settings arrive there.
        root_draws_per_prm: how many of the nodes that a PRM ranks best are drawn as often as the
            root.
    """

    draws: tuple[Draws, ...]
    revisits_per_prm: int
    revisit_arrivals: float
    root_draws_per_prm: int = 0


@dataclass
class Nodes:
    """A tree's nodes by columns, breadth first; the children of a node are consecutive rows.

    Attributes:
        parent: row; -1 of the root.
        text: of the step that leads here.
        text_class: number of the text among its siblings'. Siblings of one text differ in how they
            end.
        num_tokens: sampled, the step's end included.
        log_prob: of the step under the policy at temperature 1, nats.
        done: it ends an answer.
        invalid: blank or cut; never goes on.
        answer: class of equal answers of the question, 0 the right one's, -1 none.
        draws: [S] how many of the parent's draws of each setting gave this row.
        score: [P] of the step by each PRM, in [0, 1]; 0 where invalid.
        prm_tokens: [P] what each PRM computed for the step, its prefix known.
        value: share of right completions; filled in by `fill_values`.
    """

    parent: list[int] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    text_class: list[int] = field(default_factory=list)
    num_tokens: list[int] = field(default_factory=list)
    log_prob: list[float] = field(default_factory=list)
    done: list[bool] = field(default_factory=list)
    invalid: list[bool] = field(default_factory=list)
    answer: list[int] = field(default_factory=list)
    draws: list[list[int]] = field(default_factory=list)
    score: list[list[float]] = field(default_factory=list)
    prm_tokens: list[list[int]] = field(default_factory=list)
    value: list[float] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.parent)

    def add(self, *, settings: int, prms: int, **values: Any) -> int:
        """Append a node that was neither drawn nor scored yet; returns its row."""
        for name, value in values.items():
            getattr(self, name).append(value)
        self.draws.append([0] * settings)
        self.score.append([0.0] * prms)
        self.prm_tokens.append([0] * prms)
        self.value.append(0.0)
        return len(self) - 1


@dataclass(frozen=True)
class Tree:
    """A question with its tree.

    Attributes:
        question: as the policy saw it.
        gold: the right answer.
        level: of difficulty, 0 if the question set says none.
        prompt_tokens: [P] what each PRM computes before the first step.
        nodes: of the tree.
    """

    question: Question
    gold: str
    level: int
    prompt_tokens: list[int]
    nodes: Nodes


def fill_values(nodes: Nodes, setting: int) -> None:
    """The value of each node: the mean over its draws, 1 and 0 at right and wrong ends.

    A node without draws of the setting takes all its draws; one that never went on is worth 0.

    Args:
        nodes: of a tree; `value` is overwritten.
        setting: whose draws count, the one nearest to temperature 1.
    """
    size = len(nodes)
    total = [[0.0, 0.0] for _ in range(size)]  # of values of children: in the setting, in all
    count = [[0, 0] for _ in range(size)]
    for row in range(size - 1, -1, -1):
        if nodes.done[row]:
            nodes.value[row] = float(nodes.answer[row] == 0)
        else:
            which = 0 if count[row][0] else 1
            nodes.value[row] = total[row][which] / max(count[row][which], 1)
        parent, drawn = nodes.parent[row], nodes.draws[row]
        if parent >= 0:
            for which, times in ((0, drawn[setting]), (1, sum(drawn))):
                total[parent][which] += times * nodes.value[row]
                count[parent][which] += times


def apart(first: Sampling, second: Sampling) -> float:
    """How much two settings differ; 1 / top-k stands for top-k. As `search.bank` counts it."""
    cuts = [1.0 / k if k else 0.0 for k in (first.top_k, second.top_k)]
    return (
        abs(first.temperature - second.temperature)
        + abs(first.top_p - second.top_p)
        + abs(cuts[0] - cuts[1])
    )


def columns(nodes: Nodes) -> dict[str, list[Any]]:
    """Column name -> values, one per node."""
    return {entry.name: getattr(nodes, entry.name) for entry in dataclasses.fields(nodes)}
