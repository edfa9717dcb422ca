"""The types of a step bank on the host."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from search import Sampling

from ..protocols import Question

ROOT = 0
"""Row of a tree's root, which stands for the question."""


@dataclass(frozen=True)
class SettingDraws:
    """One sampling setting of a bank.

    Attributes:
        sampling: the setting.
        root_draws: number of draws of a question's first step, >= 1; also the largest number of
            draws of a node. The bank holds about this many paths of the setting.
        revisit_draws: least number of draws of a node that searches revisit.
    """

    sampling: Sampling
    root_draws: int
    revisit_draws: int


@dataclass(frozen=True)
class Allocation:
    """How often the nodes of a tree are drawn.

    Attributes:
        draws: numbers of draws, per sampling setting.
        revisits_per_prm: number of nodes, for each depth and PRM, that count as revisited because
            the PRM ranks them best by their lowest step score.
        revisit_arrivals: a node counts as revisited if at least this many paths of a mixture of the
            settings arrive at it.
        root_draws_per_prm: number of nodes, for each depth and PRM, that are drawn as often as the
            root because the PRM ranks them best.
    """

    draws: tuple[SettingDraws, ...]
    revisits_per_prm: int
    revisit_arrivals: float
    root_draws_per_prm: int = 0

    @property
    def reads_scores(self) -> bool:
        """Whether the PRMs' scores decide what is drawn; otherwise the policy grows trees alone."""
        return bool(self.revisits_per_prm or self.root_draws_per_prm)


@dataclass
class Nodes:
    """A tree's nodes by columns, breadth first; the children of a node are consecutive rows.

    Attributes:
        parent: row of the parent; -1 for the root.
        text: text of the node's newest step.
        text_class: number of the text among the siblings' texts. Siblings with the same text differ
            in how they end.
        num_tokens: sampled tokens of the step, the step's end included.
        log_prob: log-probability of the step under the policy at temperature 1, nats.
        done: whether the step ends an answer.
        invalid: whether the step is blank or cut; such a node has no children.
        answer: class of equal answers of the question: 0 right, 1, 2, ... wrong, -1 no answer.
        draws: [S] number of the parent's draws of each setting that gave this node.
        score: [P] score of the step by each PRM, in [0, 1]; 0 if the step is invalid, and
            `UNREADABLE` if the path has more tokens than the PRM can read. P is 0 where the policy
            grows a tree alone.
        prm_tokens: [P] tokens that each PRM computed for the step, without those of its prefix.
        value: share of right completions, set by `fill_values`.
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
        """Append a node with `values` of its columns, and zeros in the others; returns its row."""
        unset = {"draws": [0] * settings, "score": [0.0] * prms, "prm_tokens": [0] * prms}
        row = {**values, **unset, "value": 0.0}
        for name, column in vars(self).items():
            column.append(row[name])
        return len(self) - 1


@dataclass(frozen=True)
class QuestionTree:
    """A question with its tree.

    Attributes:
        question: question, as given to the policy.
        gold: right answer.
        level: level of difficulty; 0 if the question set has none.
        prompt_tokens: [P] tokens of the prompt that each PRM computes before the first step.
        nodes: nodes of the tree.
    """

    question: Question
    gold: str
    level: int
    prompt_tokens: list[int]
    nodes: Nodes


@dataclass(frozen=True)
class ScoreColumn:
    """The scores and costs of one PRM for a tree of V nodes.

    Attributes:
        prompt_tokens: tokens of the prompt, which the PRM computes before the first step.
        score: [V] score of each node's newest step, as in `Nodes`.
        prm_tokens: [V] tokens that the PRM computed for the step, as in `Nodes`.
    """

    prompt_tokens: int
    score: list[float]
    prm_tokens: list[int]


def fill_values(nodes: Nodes, setting: int) -> None:
    """Set the value of each node: the mean value of its draws, with 1 at right ends and 0 at wrong.

    The draws are those of `setting`, the one nearest to temperature 1, or all draws if it has none.
    A node without draws that does not end an answer has value 0.
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
    """Difference of two sampling settings, as in `search.bank`; 1 / top-k stands for top-k."""
    cuts = [1.0 / k if k else 0.0 for k in (first.top_k, second.top_k)]
    return (
        abs(first.temperature - second.temperature)
        + abs(first.top_p - second.top_p)
        + abs(cuts[0] - cuts[1])
    )
