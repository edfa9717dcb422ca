"""The actions that a policy took: counts, entropy and a short text for each."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

from .groups import Group

ACTION = ("num_extra", "num_retain", "temperature", "top_p", "top_k")
"""Names of an action's numbers, in the order in which rows and tables have them."""


def action_counts(group: Group) -> Counter[tuple[int, int, float, float, int]]:
    """Decisions of a group by action: (num_extra, num_retain, temperature, top_p, top_k)."""
    counts: Counter[tuple[int, int, float, float, int]] = Counter()
    for row in group.rows:
        for *action, times in row.actions:
            num_extra, num_retain, temperature, top_p, top_k = action
            key = (int(num_extra), int(num_retain), temperature, top_p, int(top_k))
            counts[key] += times
    return counts


def action_entropy(counts: Mapping[Any, int]) -> float:
    """Entropy of the empirical distribution, in nats; 0 for a constant policy."""
    total = sum(counts.values())
    return sum(times / total * math.log(total / times) for times in counts.values())


def describe_action(
    num_extra: int, num_retain: int, temperature: float, top_p: float, top_k: int
) -> str:
    """A short text that describes an action."""
    if num_extra == 0:
        return f"+0, keep {num_retain}"
    text = f"+{num_extra}, keep {num_retain}, T={temperature:g}"
    text += f", top-p {top_p:g}" if top_p < 1 else ""
    return text + (f", top-k {top_k}" if top_k else "")
