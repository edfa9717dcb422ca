"""Comparisons of answers in slow, plain Python, and a policy that compares by a rule of a test.

The rules are written from NeMo-Skills and from section 2.4 of LLaMA-Berry (arXiv:2410.02884).
Nothing of them is imported from the code that they check.
"""

import dataclasses
import math
import re

from letters import LetterPolicy

from cats_jax.errors import BadInputError
from cats_jax.protocols import Generation, Step, StepSample

COST = 0.25
"""What a comparison costs, as at an endpoint with prices."""

SHOWN = re.compile(r"<answer_(\d+)>\n(.*?)\n</answer_\1>", re.DOTALL)


def shown_in(text):
    """The answers in a prompt, in their order."""
    found = SHOWN.findall(text)
    assert [int(number) for number, _ in found] == list(range(1, len(found) + 1))
    return [answer for _, answer in found]


class Comparer(LetterPolicy):
    """Letters; a comparison gets the reply of `reply(answers)`, or (reply, finish)."""

    def __init__(self, reply, invalid_percent=0, context=100_000):
        super().__init__(invalid_percent)
        self.reply, self.context = reply, context
        self.calls = []

    def check_question(self, question):
        if len(question.text) > self.context:
            raise BadInputError(f"question {question.id!r} is too long")

    def generate(self, requests):
        self.calls.append(list(requests))
        made = super().generate(requests)
        costs = [COST if is_comparison(request) else 0.0 for request in requests]
        usage = [
            dataclasses.replace(each, cost=cost)
            for each, cost in zip(made.usage, costs, strict=True)
        ]
        return dataclasses.replace(made, usage=usage)

    def _sample(self, request, seed):
        if not is_comparison(request):
            return super()._sample(request, seed)
        said = self.reply(shown_in(request.question.text))
        text, finish = said if isinstance(said, tuple) else (said, "end")
        return StepSample(Step(text, (1, 2)), finish, -1.0)

    @property
    def comparisons(self):
        """The requests for comparisons so far."""
        return [request for call in self.calls for request in call if is_comparison(request)]


class BrokenComparer(Comparer):
    """Loses the last reply of each call that compares the answer "text 1"."""

    def generate(self, requests):
        made = super().generate(requests)
        if any(is_comparison(r) and "text 1\n" in r.question.text for r in requests):
            return Generation(made.samples[:-1], made.usage[:-1], 0.0)
        return made


def is_comparison(request):
    return "<answer_1>" in request.question.text


def knockout(contenders, window, choose):
    """The winner of windows of contenders; `choose(window)` is the winner of one."""
    while len(contenders) > 1:
        number = 1
        while number * window < len(contenders):
            number += 1
        windows = [[] for _ in range(number)]
        for place in range(len(contenders)):
            windows[place % number].append(None)
        rest = list(contenders)
        for each in windows:
            each[:] = [rest.pop(0) for _ in each]
        contenders = [choose(each) if len(each) > 1 else each[0] for each in windows]
    return contenders[0]


def enhanced_borda(num, first_wins):
    """The best contenders by section 2.4; several if that rule leaves them equal.

    Args:
        num: number of contenders.
        first_wins: for each ordered pair, whether the first one was chosen; None if unread.
    """
    chance = {pair: 0.5 if won is None else float(won) for pair, won in first_wins.items()}
    closure = {(i, j): first_wins[i, j] is True for i, j in first_wins}
    closure |= {(i, i): False for i in range(num)}
    for k in range(num):
        for i in range(num):
            for j in range(num):
                if closure[i, k] and closure[k, j]:
                    closure[i, j] = True
    borda = [sum(closure[i, j] for j in range(num) if j != i) for i in range(num)]
    top = [i for i in range(num) if borda[i] == max(borda)]
    wins = {i: sum(chance[i, j] > chance[j, i] for j in top if j != i) for i in top}
    return [i for i in top if wins[i] == max(wins.values())]


def quantile(text, texts, first_wins):
    """Q_g of a text among all texts by section 2.4; `first_wins` is by pairs of texts."""
    if len(texts) == 1:
        return 1.0
    left, rank = list(range(len(texts))), 1
    won = {
        (i, j): first_wins(texts[i], texts[j])
        for i in range(len(texts))
        for j in range(len(texts))
        if i != j
    }
    keys = _keys(len(texts), won)
    own = keys[texts.index(text)]
    for i in left:
        rank += keys[i] > own
    return 1 - (rank - 1) / (len(texts) - 1)


def _keys(num, won):
    """(Borda count, better than how many of equal count) of each contender."""
    keys = []
    for i in range(num):
        reached, frontier = set(), [i]
        while frontier:
            at = frontier.pop()
            for j in range(num):
                if j != at and won[at, j] is True and j not in reached:
                    reached.add(j)
                    frontier.append(j)
        keys.append(len(reached - {i}))

    def chance(i, j):
        return 0.5 if won[i, j] is None else float(won[i, j])

    return [
        (
            keys[i],
            sum(chance(i, j) > chance(j, i) for j in range(num) if j != i and keys[j] == keys[i]),
        )
        for i in range(num)
    ]


class Berry:
    """SR-MCTS of LLaMA-Berry (Algorithm 1), driven from outside."""

    def __init__(self, exploration=1.4, max_child=2, alpha=0.9, gamma=0.1):
        self.exploration, self.max_child = exploration, max_child
        self.alpha, self.gamma = alpha, gamma
        self.quality, self.visits, self.father = [], [], []

    def choose(self):
        """The node that is rewritten next; None for the question."""
        best, highest = None, -math.inf
        for node, quality in enumerate(self.quality):
            children = [i for i, father in enumerate(self.father) if father == node]
            explored = len(children) >= self.max_child
            if explored and max(self.quality[i] for i in children) > quality:
                continue
            father, bonus = self.father[node], 0.0
            if father is not None:
                bonus = math.sqrt(math.log(self.visits[father]) / self.visits[node])
            if quality + self.exploration * bonus > highest:
                best, highest = node, quality + self.exploration * bonus
        if best is not None:
            self.visits[best] += 1
        return best

    def add(self, father, value):
        """A new node with its Q_g."""
        self.quality.append(self.alpha * value)
        self.visits.append(1)
        self.father.append(father)
        if father is not None:
            old = self.quality[father]
            self.quality[father] = (1 - self.gamma) * old + self.gamma * self.quality[-1]
