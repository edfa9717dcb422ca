"""Renders chat templates in the process that `bounded_template.py` starts for it.

It is run as a file and imports nothing but jinja2, so that it starts at once. The environment of
the templates is that of transformers, but the day is always the same. A request and its reply are
one line of JSON each. Memory, CPU time of a request, and length of the text are limited.
"""

from __future__ import annotations

import datetime
import functools
import json
import resource
import signal
import sys
from typing import Any

MAX_MEMORY = 1 << 30
"""Most bytes of address space: 1 GiB."""

MAX_SECONDS = 2
"""Most seconds of CPU time of a request; the kernel ends the process after them."""

MAX_TEXT = 1 << 20
"""Most characters of a rendered conversation."""

_DAY = datetime.datetime(2024, 7, 26)
"""The day of all templates that ask for it, as `date_string` in `chat_template.py`."""


def main() -> None:
    """Answer requests until standard input ends."""
    sys.path.extend(sys.argv[1:])
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
    for line in sys.stdin:
        # Its default action ends the process, also within one long operation of the interpreter.
        signal.setitimer(signal.ITIMER_PROF, MAX_SECONDS)
        reply = _reply(line)
        signal.setitimer(signal.ITIMER_PROF, 0)
        print(reply, flush=True)


def _reply(line: str) -> str:
    try:
        request = json.loads(line)
        text = _compiled(request["template"]).render(**request["variables"])
        if len(text) > MAX_TEXT:
            raise ValueError(f"it makes more than {MAX_TEXT} characters")
        return json.dumps({"text": text})
    # Whatever the template makes Python raise.
    except Exception as error:
        kind = type(error).__name__
        said = str(error)[:1000] if kind in ("TemplateError", "ValueError") else ""
        return json.dumps({"error": " ".join((said or f"{kind}: {str(error)[:1000]}").split())})


@functools.lru_cache(8)
def _compiled(template: str) -> Any:
    import jinja2
    from jinja2 import nodes
    from jinja2.ext import Extension, loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """`{% generation %}`, which marks an assistant's text, and shows it as it is."""

        tags = {"generation"}  # noqa: RUF012 - of the base class

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.CallBlock(self.call_method("_shown"), [], [], body).set_lineno(line)

        def _shown(self, caller: Any) -> str:
            return caller()

    def raise_exception(message: str) -> None:
        raise jinja2.TemplateError(message)

    # The arguments of transformers' filter; templates give them by position, too.
    def tojson(
        value: Any,
        ensure_ascii: bool = False,
        indent: Any = None,
        separators: Any = None,
        sort_keys: bool = False,
    ) -> str:
        return json.dumps(
            value,
            ensure_ascii=ensure_ascii,
            indent=indent,
            separators=separators,
            sort_keys=sort_keys,
        )

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
    )
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = _DAY.strftime
    return environment.from_string(template)


if __name__ == "__main__":
    main()
