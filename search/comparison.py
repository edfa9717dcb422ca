"""Comparisons of finished answers by a language model, the judge.

With `Strategy.comparison`, the judge reads several finished answers at once and chooses one. The
bridge to the models writes the prompts and reads the choices after the last tick of a search. A
simulator and a step bank have no texts: there `Strategy.answer` gives the answer.
"""

from __future__ import annotations

from dataclasses import dataclass

RULES = ("tournament", "borda")
"""How the choices of the judge give one answer.

"tournament": the answers are divided into windows, and the judge chooses one answer of each. The
chosen answers are divided again, until one is left. "borda": the judge compares every pair in both
orders, and the Enhanced Borda Count of LLaMA-Berry (arXiv:2410.02884) gives the best answer."""

JUDGES = ("policy", "prm")
"""The model that compares: the policy, or a PRM that is a language model as judge."""

PAIR = 2
"""Smallest number of answers of a comparison."""


@dataclass(frozen=True)
class Comparison:
    """How a language model chooses among the finished answers of a search.

    Attributes:
        prompt: prompt of a comparison, a name or a .yaml file, which the host reads.
        rule: one of `RULES`.
        window: most answers in one prompt, >= 2; None: all. No effect with "borda".
        repeats: whether equal texts are shown as often as they were sampled. False: once.
        temperature: of the judge, >= 0; 0 is greedy.
        judge: one of `JUDGES`. "prm" needs `Strategy.uses_scores`.
        scores: whether the judge also compares each new answer with all earlier ones, in both
            orders. The PRM score of an answer is then the quantile of its rank by the Enhanced
            Borda Count, in [0, 1]. Only with "borda".

    Raises:
        ValueError: a value is out of range or unknown.
    """

    prompt: str = "best"
    rule: str = "tournament"
    window: int | None = 8
    repeats: bool = False
    temperature: float = 0.0
    judge: str = "policy"
    scores: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.prompt, str) or not self.prompt:
            raise ValueError(f"comparison must be a name or a .yaml file, got {self.prompt!r}")
        for name, value, known in (("rule", self.rule, RULES), ("judge", self.judge, JUDGES)):
            if value not in known:
                raise ValueError(f"unknown {name} {value!r}: choose one of {', '.join(known)}")
        if self.scores and self.rule != "borda":
            raise ValueError(f"scores need the rule 'borda', got {self.rule!r}")
        window = PAIR if self.window is None else self.window
        if isinstance(window, bool) or not isinstance(window, int) or window < PAIR:
            raise ValueError(f"window_size must be an integer >= {PAIR}, got {self.window!r}")
        warm = self.temperature
        if isinstance(warm, bool) or not isinstance(warm, int | float) or not 0.0 <= warm < 1e30:
            raise ValueError(f"judge_temperature must be a number >= 0, got {warm!r}")

    def most_shown(self, num_answers: int) -> int:
        """Most answers in one prompt of a search with that many answers."""
        if self.rule == "borda":
            return PAIR
        return num_answers if self.window is None else min(self.window, num_answers)

    def most_prompts(self, num_answers: int) -> int:
        """Most prompts of a search with that many answers."""
        if self.rule == "borda":
            return num_answers * (num_answers - 1)
        prompts = 0
        while num_answers > 1:
            sizes = window_sizes(num_answers, self.most_shown(num_answers))
            prompts += sum(size > 1 for size in sizes)
            num_answers = len(sizes)
        return prompts


def window_sizes(num_answers: int, window: int) -> list[int]:
    """Sizes of the fewest windows of at most `window` answers, which differ by at most 1."""
    windows = -(-num_answers // window)
    return [num_answers // windows + (i < num_answers % windows) for i in range(windows)]
