"""Compressed blocks of JSON inside a page, which the page unpacks when the reader needs them.

A block is a `<script>` element of a type that no browser runs. Its content is base64, so that no
text inside can end the element.
"""

from __future__ import annotations

import base64
import gzip
import json
from typing import Any, TextIO

BLOCK_TYPE = "application/octet-stream+gzip"

_MAX_BYTES = 256 * 1024
"""A block of trees ends after the tree that takes it beyond this size, in bytes of JSON."""


def block(name: str, value: Any) -> str:
    """The element that holds a JSON value under an id; ValueError for NaN and infinities."""
    return _element(name, json.dumps(value, allow_nan=False, separators=(",", ":")))


class TreeBlocks:
    """Writes trees to a file, several to a block, and holds one block in memory at most."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._waiting: list[str] = []
        self._size = 0
        self._blocks = 0

    def add(self, tree: Any) -> tuple[int, int]:
        """Add a tree, a JSON value; returns the number of its block and its place there."""
        text = json.dumps(tree, allow_nan=False, separators=(",", ":"))
        place = self._blocks, len(self._waiting)
        self._waiting.append(text)
        self._size += len(text)
        if self._size >= _MAX_BYTES:
            self.close_block()
        return place

    def close_block(self) -> None:
        """Write the trees that wait; the next tree begins a new block."""
        if not self._waiting:
            return
        self._file.write(_element(f"trees-{self._blocks}", f"[{','.join(self._waiting)}]"))
        self._blocks += 1
        self._waiting.clear()
        self._size = 0


def _element(name: str, text: str) -> str:
    # ASCII: json.dumps escapes everything else, lone surrogates too.
    packed = base64.b64encode(gzip.compress(text.encode("ascii"), mtime=0)).decode("ascii")
    return f'<script type="{BLOCK_TYPE}" id="{name}">{packed}</script>\n'
