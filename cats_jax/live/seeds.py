"""Seeds by stable hash: the same on every machine, version and batch."""

from __future__ import annotations

import hashlib


def stable_seed(*parts: int | str) -> int:
    """An unsigned 64-bit seed from the given parts, in order.

    A candidate's parts are (run seed, question id, step, phase, pool row): not the strategy's
    name, so that strategies share random numbers and comparisons between them are paired.
    """
    # Lengths keep ("ab", "c") and ("a", "bc") apart.
    text = "".join(f"{len(str(part))}:{part}" for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")
