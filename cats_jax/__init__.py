"""Compute-Aware Tree Search: the impure shell around the pure packages.

`search`, `learners` and `theory` only compute. `cats_jax` has everything that touches language
models, files, the clock or the terminal. Names are imported on first use, so that `import cats_jax`
loads neither torch nor jax.
"""

import importlib
import importlib.util
import pathlib
from typing import TYPE_CHECKING, Any

from .version import __version__

if TYPE_CHECKING:
    import learners as learners
    import search as search
    import theory as theory

    from .batch.api import evaluate, load_run
    from .batch.results import Run
    from .controllers.by_name import load_controller, search_method
    from .live.results import SearchResult
    from .live.searcher import Searcher
    from .models.contracts import check_generator, check_scorer
    from .models.huggingface.generator import HuggingFaceGenerator
    from .models.huggingface.scorer import HuggingFaceScorer
    from .models.prm.format import prm_format
    from .models.serving.generator import EngineGenerator
    from .models.serving.scorer import EngineScorer
    from .protocols import Question

__all__ = [
    "EngineGenerator",
    "EngineScorer",
    "HuggingFaceGenerator",
    "HuggingFaceScorer",
    "Question",
    "Run",
    "SearchResult",
    "Searcher",
    "__version__",
    "check_generator",
    "check_scorer",
    "evaluate",
    "learners",
    "load_controller",
    "load_run",
    "prm_format",
    "search",
    "search_method",
    "theory",
]

_NEIGHBOURS = ("search", "learners", "theory")

_MARK = b'__distribution__ = "cats-jax"'
"""A line in the `__init__.py` of each of them."""

_HOME = pathlib.Path(__file__).resolve().parents[1]


def _check_neighbours() -> None:
    """Refuse to run if another module has the name of a sibling package.

    The names are generic. Under `python -c` and `python -m`, a `search.py` in the working directory
    comes first on the import path, and another distribution may install its `search` over ours.
    Later errors would not name that file.
    """
    for name in _NEIGHBOURS:
        spec = importlib.util.find_spec(name)
        found: str | None = None
        if spec is not None:
            # A folder without __init__.py has no origin, only locations.
            found = spec.origin or next(iter(spec.submodule_search_locations or ()), None)
        if found is None or _HOME / name not in (
            path := pathlib.Path(found).resolve(),
            path.parent,
        ):
            raise ImportError(
                f"`{name}` resolves to {found!r}, not to the package beside cats_jax in "
                f"{str(_HOME)!r}. Rename that file, or start Python from another folder, or with "
                f"`python -P`, which leaves the working directory off the path."
            )
        if path.is_dir() or _MARK not in path.read_bytes():
            raise ImportError(
                f"`{name}` in {str(_HOME)!r} belongs to another distribution: it was installed "
                f"over the package of cats-jax. Uninstall that distribution and install cats-jax "
                f"again, or give each an environment of its own."
            )


_check_neighbours()

_HOMES = {
    "EngineGenerator": "cats_jax.models.serving.generator",
    "EngineScorer": "cats_jax.models.serving.scorer",
    "HuggingFaceGenerator": "cats_jax.models.huggingface.generator",
    "HuggingFaceScorer": "cats_jax.models.huggingface.scorer",
    "Question": "cats_jax.protocols",
    "Run": "cats_jax.batch.results",
    "SearchResult": "cats_jax.live.results",
    "Searcher": "cats_jax.live.searcher",
    "check_generator": "cats_jax.models.contracts",
    "check_scorer": "cats_jax.models.contracts",
    "evaluate": "cats_jax.batch.api",
    "load_controller": "cats_jax.controllers.by_name",
    "load_run": "cats_jax.batch.api",
    "prm_format": "cats_jax.models.prm.format",
    "search_method": "cats_jax.controllers.by_name",
}


def __getattr__(name: str) -> Any:
    if name in _NEIGHBOURS:
        return importlib.import_module(name)
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
