"""Tokens that a search costs, counted by a plain loop over its ticks."""

from __future__ import annotations

from typing import Any


class TokenLoop:
    """Follows one search, tick by tick, whose leaves are NumPy arrays.

    Attributes:
        behind: per frontier slot, the tokens of its path behind the last step with a score.
        copies, repeats, prefixes: how often a greedy child was a copy, a text was read already, and
            an unread path was read.
    """

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.behind = [0]
        self.copies = self.repeats = self.prefixes = 0
        self._texts: dict[int, set[int]] = {}  # of this step, by slot
        self._read: dict[int, set[int]] = {}
        self._length: dict[tuple[int, int], int] = {}

    def tick(self, before: Any, request: Any, expansion: Any, after: Any) -> tuple[int, int]:
        """Tokens that the policy samples and that the PRM reads."""
        if before.phase == 0:
            self._texts = {slot: set() for slot in range(self.slots)}
            self._read = {slot: set() for slot in range(self.slots)}
            self._length = {}
        had = {slot: set(found) for slot, found in self._texts.items()}
        sampled = read = row = 0
        for slot, number in enumerate(request.num_samples.tolist()):
            for _ in range(number):
                assert expansion.parent[row] == slot
                text, tokens = int(expansion.text[row]), int(expansion.num_tokens[row])
                if request.temperature[slot] == 0 and text in had[slot]:
                    self.copies += 1
                else:
                    sampled += tokens
                if expansion.valid[row]:
                    read += self._valid(slot, text, tokens, bool(request.scored[slot]))
                row += 1
        if after.step > before.step:
            self._end_step(after.frontier)
        return sampled, read

    def _valid(self, slot: int, text: int, tokens: int, scored: bool) -> int:
        self._texts[slot].add(text)
        self._length[slot, text] = tokens
        if not scored:
            return 0
        of_node, cost = self._read[slot], 0
        if not of_node:
            cost += self.behind[slot]
            self.prefixes += self.behind[slot] > 0
        if text in of_node:
            self.repeats += 1
        else:
            cost += tokens
        of_node.add(text)
        return cost

    def _end_step(self, frontier: Any) -> None:
        valid = frontier.valid
        kept = zip(frontier.parent[valid].tolist(), frontier.text[valid].tolist(), strict=True)
        self.behind = [
            0
            if text in self._read[slot]
            else self._length[slot, text] + (0 if self._read[slot] else self.behind[slot])
            for slot, text in kept
        ]
