"""Comparisons of answers in slow, plain Python, and a policy that compares by a rule of a test.

The rules are written from NeMo-Skills and from section 2.4 of LLaMA-Berry (arXiv:2410.02884).
Nothing of them is imported from the code that they check.
"""

import re

from letters import LetterPolicy

from cats_jax.errors import BadInputError
from cats_jax.protocols import Step, StepSample

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
        return super().generate(requests)

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
