"""Micro-batches under a token budget that halves itself when memory runs out."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

from ...errors import BadInputError, RunStoppedError

Item = TypeVar("Item")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error is a failed allocation on any device; on the CPU, its message tells."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    message = str(error)
    return isinstance(error, RuntimeError) and (
        "DefaultCPUAllocator" in message or "not enough memory" in message
    )


class TokenBudget:
    """Largest number of tokens (rows x width) of a micro-batch, >= 1; `tokens` never rises."""

    def __init__(self, tokens: int):
        if tokens < 1:
            raise BadInputError(f"batch_tokens must be at least 1, got {tokens}")
        self.tokens = tokens

    def run(
        self, items: Sequence[Item], widths: Sequence[int], run: Callable[[Sequence[Item]], None]
    ) -> None:
        """Calls `run` on consecutive slices of `items` whose widths add up to at most `tokens`.

        If `run` runs out of memory, the budget becomes half of that slice's tokens and the same
        items are run again in smaller slices, so `run` must keep no partial result of a failed
        call. A single item is run whatever the budget.

        Raises:
            RunStoppedError: a single item ran out of memory.
        """
        total = [0, *itertools.accumulate(widths)]
        start = 0
        while start < len(items):
            size = max(1, bisect.bisect_right(total, total[start] + self.tokens) - 1 - start)
            try:
                run(items[start : start + size])
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
                if size == 1:
                    raise RunStoppedError(
                        f"out of memory with a single row of {widths[start]} tokens: nothing is "
                        "lost, start again with a smaller kv_cache_gib (it leaves more for the "
                        "rows of batch_tokens), dtype bfloat16, or a smaller model"
                    ) from error
                self.tokens = max(1, (total[start + size] - total[start]) // 2)
            else:
                start += size
                continue
            # Outside the handler: the traceback would keep the failed call's tensors alive.
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
