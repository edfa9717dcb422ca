"""The page's own files and its Content-Security-Policy, which allows them and nothing else."""

from __future__ import annotations

import base64
import hashlib
import pathlib
from dataclasses import dataclass

_FOLDER = pathlib.Path(__file__).with_name("assets")
# katex/katex.min.js is that of version 0.19.1 of the package `katex` of the npm registry.
# In the order of their dependencies, because they are joined into one script.
_SCRIPTS = (
    *("dom.js", "text.js", "mathematics.js", "blocks.js", "data.js", "state.js", "scores.js"),
    *("summary.js", "questions.js", "tree_data.js", "tree_view.js", "differences.js"),
    *("question.js", "keyboard.js", "app.js"),
)


@dataclass(frozen=True)
class Assets:
    """The page's files.

    The HTML template has names in double braces for the parts, the style is the content of its
    element, and the scripts are those that the browser may run.
    """

    template: str
    style: str
    scripts: tuple[str, ...]


def load_assets() -> Assets:
    """Read the page's files."""
    own = "\n".join(_read(name) for name in _SCRIPTS)
    return Assets(
        template=_read("page.html"),
        style=_read("page.css"),
        scripts=(_read("katex/katex.min.js"), f'"use strict";\n(() => {{\n{own}}})();\n'),
    )


def content_security_policy(assets: Assets) -> str:
    """The policy: no network, no script or style sheet but ours, no HTML made from strings.

    KaTeX sets style attributes, which are allowed and can load nothing under the policy.
    """
    scripts = " ".join(_digest(script) for script in assets.scripts)
    return "; ".join(
        [
            "default-src 'none'",
            f"script-src {scripts}",
            f"style-src-elem {_digest(assets.style)}",
            "style-src-attr 'unsafe-inline'",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        ]
    )


def _digest(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


def _read(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")
