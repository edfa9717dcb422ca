"""Digests of question texts, and the digests of MATH-500, which training sets must not contain."""

from __future__ import annotations

import functools
import hashlib
import pathlib
from collections.abc import Mapping

_MATH500 = pathlib.Path(__file__).parent / "math500.txt"
"""File with a digest and an id (column `unique_id`) for each of the 500 questions."""


def text_digest(text: str) -> str:
    """Digest of a question's text, 16 hexadecimal digits.

    Any run of white space counts as one blank, and white space at the beginning and the end is
    ignored, because copies of a data set differ in it.
    """
    return hashlib.sha256(" ".join(text.split()).encode()).hexdigest()[:16]


@functools.cache
def math500_ids() -> Mapping[str, str]:
    """Ids of the questions of MATH-500 by the digests of their texts."""
    lines = _MATH500.read_text(encoding="ascii").splitlines()
    return {digest: identity for digest, identity in map(str.split, lines)}
