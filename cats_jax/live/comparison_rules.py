"""From the judge's choices to one answer: tournaments, and the Enhanced Borda Count.

A rule is a generator. It yields a round of matches, gets the choice of each match, and returns the
winner. A contender is a number from 0. A match shows contenders in an order. Its choice is a place
in this order, or None if the reply can't be read. `vote` chooses among contenders without the
judge.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence

import search
from search.comparison import window_sizes

MOST_MATCHES = 256
"""Most matches of a round of pairs; limits of a search are checked between rounds."""

Match = tuple[int, ...]
Vote = Callable[[Sequence[int]], int]
Rounds = Generator[list[Match], list[int | None], int]


def rounds_of(comparison: search.comparison.Comparison, num: int, vote: Vote) -> Rounds:
    """The rounds of a comparison of `num` contenders, at least 1."""
    if comparison.rule == "borda":
        return enhanced_borda(num, vote)
    return tournament(num, comparison.most_shown(num), vote)


def most_matches(comparison: search.comparison.Comparison, num: int) -> int:
    """Most matches that `num` contenders have at once.

    These are the matches of the first round, or all pairs if the comparison gives `scores`.
    """
    if comparison.rule != "borda":
        return sum(size > 1 for size in window_sizes(num, comparison.most_shown(num)))
    pairs = num * (num - 1)
    return pairs if comparison.scores else min(pairs, MOST_MATCHES)


def tournament(num: int, window: int, vote: Vote) -> Rounds:
    """Windows of contenders, whose winners meet again; `vote` decides an unread match."""
    left = list(range(num))
    while len(left) > 1:
        places = iter(left)
        windows = [
            tuple(next(places) for _ in range(size)) for size in window_sizes(len(left), window)
        ]
        choices = iter((yield [match for match in windows if len(match) > 1]))
        left = [
            match[0] if len(match) == 1 else _winner(match, next(choices), vote)
            for match in windows
        ]
    return left[0]


def enhanced_borda(num: int, vote: Vote) -> Rounds:
    """All pairs in both orders, and the Borda count over the transitive closure.

    Zhang et al. 2024, arXiv:2410.02884, section 2.4; see `search.methods.pairwise_borda` for what
    differs.
    """
    pairs = [(i, j) for i in range(num) for j in range(num) if i != j]
    choices: dict[tuple[int, int], int | None] = {}
    for start in range(0, len(pairs), MOST_MATCHES):
        matches: list[Match] = [*pairs[start : start + MOST_MATCHES]]
        choices |= zip(pairs[start:], (yield matches), strict=False)
    keys = borda_keys(num, choices)
    return vote([i for i, key in enumerate(keys) if key == max(keys)])


def borda_keys(num: int, choices: Mapping[tuple[int, int], int | None]) -> list[tuple[int, int]]:
    """The Enhanced Borda Count of each contender; a better one has a larger key.

    A key has two numbers. The first is how many contenders this one beats, directly or indirectly.
    The second is how many contenders with an equal first number are worse in their two matches; an
    unread match is a draw.

    Args:
        num: number of contenders.
        choices: of each ordered pair, 0 for the first contender; None if unread.
    """
    # Row i has bit j if i beats j; rows as integers make Warshall's algorithm quick.
    beats = [sum(1 << j for j in range(num) if choices.get((i, j)) == 0) for i in range(num)]
    for k in range(num):
        for i in range(num):
            if beats[i] >> k & 1:
                beats[i] |= beats[k]
    counts = [(row & ~(1 << i)).bit_count() for i, row in enumerate(beats)]
    return [
        (
            count,
            sum(
                _chance(choices, i, j) > _chance(choices, j, i)
                for j in range(num)
                if j != i and counts[j] == count
            ),
        )
        for i, count in enumerate(counts)
    ]


def _winner(match: Match, choice: int | None, vote: Vote) -> int:
    return vote(match) if choice is None else match[choice]


def _chance(choices: Mapping[tuple[int, int], int | None], i: int, j: int) -> float:
    """P(i is better than j), when i is shown first."""
    choice = choices[i, j]
    return 0.5 if choice is None else float(choice == 0)
