"""The console of a command, and text that is printed on it."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from ..reporting.printing import PIPE_WIDTH


def make_console(*, stderr: bool = False) -> Console:
    """A console for this process's output."""
    console = Console(stderr=stderr, highlight=False)
    if not console.is_terminal:
        console.width = PIPE_WIDTH
    return console


def say(console: Console, text: str) -> None:
    """Print a line of prose, which a terminal wraps; paths and commands need `soft_wrap`."""
    console.print(Text(text), soft_wrap=not console.is_terminal)
