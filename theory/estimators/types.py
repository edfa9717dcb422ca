"""The annotation of averaged values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import ArrayLike as Values
else:
    # Numpy's own annotation, checked at run time, refuses plain numbers and tuples.
    Values = Any

__all__ = ["Values"]
