"""The pure functional core of compute-aware tree search: plan, expand, commit.

Pytrees have fixed shapes and hold one question; `jax.vmap` batches them. Nothing here calls a
language model: `rollout` composes `plan` and `commit` with a simulator in the graph, and the host
driver of `cats_jax` composes them with a real model.

This package exports the names of a search loop. `methods` has the search methods, `cats` has CATS.
The parts for a new strategy are in `interface`, `aggregations`, `answers`, `ranking`, `children`.
"""

__distribution__ = "cats-jax"

from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING

from . import aggregations as aggregations
from . import allocation as allocation
from . import answers as answers
from . import calibration as calibration
from . import cats as cats
from . import certainty as certainty
from . import children as children
from . import comparison as comparison
from . import costs as costs
from . import interface as interface
from . import loop as loop
from . import methods as methods
from . import ranking as ranking
from . import resampling as resampling
from . import selection as selection
from . import state as state
from . import stopping as stopping
from . import vectors as vectors
from .expand_contract import check_expand_fn as check_expand_fn
from .interface import Sampling as Sampling
from .interface import Strategy as Strategy
from .interface import answer as answer
from .interface import request as request
from .interface import share_of_candidates as share_of_candidates
from .loop import Environment as Environment
from .loop import ExpandFn as ExpandFn
from .loop import Recorder as Recorder
from .loop import Task as Task
from .loop import Tick as Tick
from .loop import play as play
from .loop import rollout as rollout
from .loop import tick as tick
from .loop import tick_keys as tick_keys
from .methods import beam as beam
from .methods import best_of_n as best_of_n
from .methods import greedy as greedy
from .methods import majority as majority
from .state import init as init
from .state import is_terminal as is_terminal
from .step import commit as commit
from .step import plan as plan
from .strategy_contract import check_strategy as check_strategy
from .types import Calibration as Calibration
from .types import Context as Context
from .types import Expansion as Expansion
from .types import Paths as Paths
from .types import Plan as Plan
from .types import Request as Request
from .types import SearchState as SearchState
from .types import StepOutput as StepOutput

if _TYPE_CHECKING:
    from . import bank as bank
    from . import simulation as simulation
else:

    def __getattr__(name: str) -> object:
        """`bank` and `simulation`, loaded on first access."""
        if name in ("bank", "simulation"):
            return _import_module(f".{name}", __name__)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
