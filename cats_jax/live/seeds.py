"""Seeds by a stable hash, the same on every machine, in every version and in every batch."""

from __future__ import annotations

import hashlib


def candidate_seed(run_seed: int, seed_name: str, step: int, phase: int, pool_row: int) -> int:
    """The unsigned 64-bit seed of one candidate, for the policy.

    It does not depend on the strategy, so that comparisons between strategies are paired, and a
    resumed run draws the same samples. The name is unique within the run, usually the id of the
    question. Step, phase (tick within the step) and pool row count from 0.
    """
    return stable_seed(run_seed, seed_name, step, phase, pool_row)


def stable_seed(*parts: int | str) -> int:
    """An unsigned 64-bit seed from the given parts, in order."""
    # Lengths keep ("ab", "c") and ("a", "bc") apart.
    text = "".join(f"{len(str(part))}:{part}" for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")
