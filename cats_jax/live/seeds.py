"""Seeds by stable hash: the same on every machine, version and batch."""

from __future__ import annotations

import hashlib


def candidate_seed(run_seed: int, question_id: str, step: int, phase: int, pool_row: int) -> int:
    """The unsigned 64-bit seed of one candidate, for the policy.

    The strategy's name has no part in it, so that strategies share random numbers and comparisons
    between them are paired.

    Args:
        run_seed: of the run.
        question_id: unique within the run.
        step: reasoning step of the search, from 0.
        phase: tick within the step, from 0.
        pool_row: of the candidate among those of its step, from 0.
    """
    return stable_seed(run_seed, question_id, step, phase, pool_row)


def stable_seed(*parts: int | str) -> int:
    """An unsigned 64-bit seed from the given parts, in order."""
    # Lengths keep ("ab", "c") and ("a", "bc") apart.
    text = "".join(f"{len(str(part))}:{part}" for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")
