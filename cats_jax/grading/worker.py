"""A process that compares answers: one JSON line in, one JSON line out, within hard limits.

`workers` starts the process. The kernel ends it at its limit of CPU time. It can neither write a
file nor exceed its limit of memory. sympy's own parser evaluates Python; a parser of numbers alone,
which latex2sympy calls for every number in a formula, replaces it.
"""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import sys
from typing import Any

MEMORY = "memory"
"""Error in the last reply of a worker that ran out of memory; the worker then ends."""

_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:/[1-9]\d*)?")


def main() -> None:
    """Serve until standard input ends. `sys.argv`: CPU seconds per request, bytes of memory."""
    seconds, memory = float(sys.argv[1]), int(sys.argv[2])
    # Only replies may go to the pipe.
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)

    import sympy.core.random
    import sympy.physics.units  # simplification imports it, and it parses its units' names
    from sympy.parsing import sympy_parser

    from .comparison import compare
    from .exact_numbers import UndecidedError

    sympy_parser.parse_expr = _number
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    for line in sys.stdin:
        request = json.loads(line)
        # The default action of this signal ends the process, in the middle of anything.
        signal.setitimer(signal.ITIMER_PROF, seconds)
        # sympy's simplification draws random points.
        sympy.core.random.seed(0)
        try:
            result = compare(request["first"], request["second"], request["tolerance"])
            values = [
                value if value is None else (value.real, value.imag) for value in result.values
            ]
            reply: dict[str, Any] = {"equal": result.equal, "values": values}
        except UndecidedError as error:
            reply = {"error": str(error)}
        except MemoryError:
            reply = {"error": MEMORY}
        except RecursionError:
            reply = {"error": "nested too deeply"}
        except Exception as error:  # a fault in one pair must not affect the next pair
            reply = {"error": f"{type(error).__name__} while comparing"}
        signal.setitimer(signal.ITIMER_PROF, 0)
        replies.write(json.dumps(reply) + "\n")
        if reply.get("error") == MEMORY:
            os._exit(1)


def _number(text: str, *_: object, **__: object) -> Any:
    import sympy

    if not _NUMBER.fullmatch(text):
        raise ValueError("text is never evaluated as Python")
    # A decimal is exactly the number that it denotes.
    return sympy.Rational(text)


if __name__ == "__main__":
    main()
