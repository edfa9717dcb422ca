"""Reads a page of `cats-jax page` as a browser's parser does, and unpacks its blocks."""

import base64
import gzip
import html.parser
import json
import pathlib
from typing import Any


class Page(html.parser.HTMLParser):
    """The elements of a page that matter to tests.

    Attributes:
        policy: its Content-Security-Policy.
        scripts: contents of the script elements that a browser runs.
        styles: contents of the style elements.
        blocks: JSON values of the data blocks, by id.
        tags: names of all elements, in order.
    """

    def __init__(self, path: pathlib.Path) -> None:
        super().__init__()
        self.policy = ""
        self.scripts: list[str] = []
        self.styles: list[str] = []
        self.blocks: dict[str, Any] = {}
        self.tags: list[str] = []
        self._open: tuple[str, dict[str, str | None]] | None = None
        self.feed(path.read_text(encoding="utf-8"))
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        attributes = dict(attrs)
        if attributes.get("http-equiv") == "Content-Security-Policy":
            self.policy = attributes["content"] or ""
        self._open = (tag, attributes) if tag in ("script", "style") else None
        self._data = ""

    def handle_data(self, data: str) -> None:
        self._data = getattr(self, "_data", "") + data

    def handle_endtag(self, tag: str) -> None:
        if self._open is None or self._open[0] != tag:
            return
        attributes = self._open[1]
        if tag == "style":
            self.styles.append(self._data)
        elif attributes.get("type") is None:
            self.scripts.append(self._data)
        else:
            packed = base64.b64decode(self._data, validate=True)
            self.blocks[attributes["id"] or ""] = json.loads(gzip.decompress(packed))
        self._open = None

    def tree(self, place: tuple[int, int]) -> dict[str, Any]:
        """The encoded tree at a place, as rows of the index name it."""
        return self.blocks[f"trees-{place[0]}"][place[1]]
