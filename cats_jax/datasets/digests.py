"""Digests of question texts, and those of MATH-500, which no training question may have."""

from __future__ import annotations

import functools
import hashlib
import pathlib
from collections.abc import Mapping

_MATH500 = pathlib.Path(__file__).parent / "math500.txt"
"""A digest and an id (column `unique_id`) for each of the 500 questions."""


def text_digest(text: str) -> str:
    """16 hexadecimal digits that stand for a question's text.

    Copies of a data set differ in white space: any run of it counts as one blank, and none counts
    at the beginning and at the end.
    """
    return hashlib.sha256(" ".join(text.split()).encode()).hexdigest()[:16]


@functools.cache
def math500_ids() -> Mapping[str, str]:
    """Digest of a question of MATH-500 -> its id."""
    lines = _MATH500.read_text(encoding="ascii").splitlines()
    return {digest: identity for digest, identity in map(str.split, lines)}
