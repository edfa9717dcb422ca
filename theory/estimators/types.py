"""The one annotation of what is averaged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import ArrayLike as Values
else:
    # Checked at run time, numpy's own refuses plain numbers and tuples.
    Values = Any

__all__ = ["Values"]
