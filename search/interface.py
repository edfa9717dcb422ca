"""`Strategy`, the form of every search method, and its building blocks."""

from __future__ import annotations

import dataclasses
import functools
import math
import numbers
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from .aggregations import AGGREGATIONS, Aggregation
from .answers import AnswerRule, answer_best
from .certainty import Certainty
from .comparison import Comparison
from .types import Paths, Plan, Request, SearchState


@dataclass(frozen=True)
class Sampling:
    """How a child is sampled.

    Attributes:
        temperature: >= 0; 0 is greedy.
        top_p: nucleus mass in (0, 1]; 1 switches it off.
        top_k: number of most likely tokens, >= 0; 0 switches it off.

    Raises:
        ValueError: a value is out of range or of another type.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0

    def __post_init__(self) -> None:
        for name, value in (("temperature", self.temperature), ("top_p", self.top_p)):
            _check_type(name, value, "a number", jnp.number)
        _check_type("top_k", self.top_k, "a whole number", jnp.integer)
        if not 0.0 <= self.temperature < math.inf:
            raise ValueError(f"temperature must be a finite number >= 0, got {self.temperature}")
        if not 0.0 < self.top_p <= 1.0:
            raise ValueError(f"top_p must be in (0, 1], got {self.top_p}")
        if self.top_k < 0:
            raise ValueError(f"top_k must be >= 0 (0 switches it off), got {self.top_k}")


def _check_type(name: str, value: Any, what: str, kind: Any) -> None:
    # Values of numpy and JAX, traced ones included, have a dtype.
    dtype = type(value) if type(value) in (bool, int, float) else getattr(value, "dtype", None)
    if dtype is None or not jnp.issubdtype(dtype, kind):
        raise ValueError(f"{name} must be {what}, got {value!r}")


def all_candidates(num_candidates: Any) -> Any:
    """The width K = N."""
    return num_candidates


def one_path(num_candidates: Any) -> Any:
    """The width K = 1."""
    return num_candidates // num_candidates


def check_count(name: str, value: Any, least: int) -> None:
    """Raise ValueError unless `value` is an integer from `least` to the largest i32."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or int(value) < least:
        raise ValueError(f"{name} must be an integer >= {least}, got {value!r}")
    if int(value) >= 1 << 31:
        raise ValueError(f"{name} must be below 2**31, got {value!r:.40}")


def check_flag(name: str, value: Any) -> None:
    """Raise ValueError unless `value` is True or False."""
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be true or false, got {value!r}")


def share_of_candidates(expansion: int) -> Callable[[Any], Any]:
    """The width K = max(1, N // expansion), on ints and on traced arrays.

    Raises:
        ValueError: `expansion` is not an integer >= 1.
    """
    check_count("expansion", expansion, 1)

    def width(num_candidates: Any) -> Any:
        if isinstance(num_candidates, int):
            return max(1, num_candidates // expansion)
        return jnp.maximum(num_candidates // expansion, 1)

    return width


def path_length(num_candidates: Any, max_depth: Any) -> Any:
    """The number of steps of methods that grow all paths together: `max_depth`."""
    return max_depth


def no_memory(state: SearchState) -> tuple[()]:
    """The empty memory."""
    return ()


def no_earlier_draws(state: SearchState) -> Int[Array, ""]:
    """The number 0, of methods that sample the children of a node in one step."""
    return jnp.int32(0)


def all_earlier_draws(state: SearchState) -> Int[Array, ""]:
    """All candidates of earlier steps, of trees in which nodes of equal texts get children."""
    return state.spent - state.used


def no_report(state: SearchState, plan: Plan) -> tuple[()]:
    """The empty report."""
    return ()


def keep_children(state: SearchState) -> tuple[Paths, Bool[Array, " N"], Any]:
    """Every valid child of the step competes for a place."""
    return state.pool, state.pool.valid, state.memory


@dataclass(frozen=True, kw_only=True)
class Strategy:
    """A search method: pure functions and constants, static under `jit`.

    Only `name` and `plan` are required. Build strategies in a cached factory
    (`search.beam(expansion=4)`): equal arguments then give the same object, so that nothing
    recompiles. `search.check_strategy` checks a value against the contract below.

    Attributes:
        name: short name for error messages. Results of a recipe use its label of the strategy.
        plan: `(params, key, state) -> (Request, M)`, each tick: the request of every frontier node,
            before contention, and the new memory. `params` are those of the method's policy, `()`
            without one; `key` is consumed. Build the request with `search.request`.
        width: `N -> K`, the number of paths kept; works on ints and on traced arrays.
        aggregation: from step scores to the path score that ranks paths.
        calibrated: the strategy gets P(step right) as step scores, see `search.calibration`.
        keep: `state -> (paths, marked, M)` at the end of a step: the marked rows compete by path
            score for the free places. `marked` has a bool for each row of `paths`. `paths` is
            usually `state.pool`; a method may also return nodes of its memory.
        keep_finished: `state -> Paths` at the end of a step, before `keep`: the finished paths that
            stay, in the rows of `state.finished`, without gaps. None: all stay.
        answer: rule that chooses among finished paths, see `search.answers`.
        init_memory: `state -> M`, the method's own pytree. Its structure, shapes and dtypes stay.
        report: `(state, plan) -> pytree`, each tick, before a step ends: the method's report to a
            recorder. CATS reports its decisions, and an `Unsolved` is counted. A phase 0 with a
            `base` reports zeros.
        num_phases: ticks per reasoning step; 1, or 1 + rounds for methods that decide on the
            children of phase 0.
        base: `state -> (Request, M)`, the plan of phase 0 of methods with several phases. It takes
            neither params nor a key, so that a program for phase 0 holds no policy. None: `plan`.
        quiet_ends_step: after a phase other than 0 that samples nothing, the later phases of the
            step sample nothing, report nothing and keep the memory. The host then ends the step.
        num_steps: `(N, max_depth) -> steps` of a whole search, increasing in both; works on ints
            and on traced arrays. More than `max_depth` for methods that grow path after path.
        earlier_draws: `state -> i32[]`, before a tick: at least the number of children of any
            frontier node that earlier steps sampled at a temperature above 0. A step bank takes the
            draws of a node after that number, so that none repeats. `rewriting` needs none.
        sampling: all settings that requests may use. A step bank must have recorded them. With
            several of them, whole answers are sampled step by step.
        uses_scores: False: the PRM is never called, and all scores are 0, unless `comparison` has
            `scores`. To score only some nodes, set `Request.scored` and `Request.score_ends`.
        needs_step_scores: whether the method reads scores of unfinished paths. False: it reads only
            those of the newest steps of finished paths, see `scoring_ends`.
        keeps_all_paths: every path gets a child at every tick and none is dropped. The paths of a
            smaller N are then among those of a larger one, whatever the PRM.
        ignores_num_candidates: one deterministic path; neither N nor the seed changes it.
        weights_paths: the answer depends on `Paths.weight`, on how often a finished path occurs in
            the state, on the certainty of paths, or on step scores that `keep` has changed. Stored
            trees hold none of these, so that a search cannot be answered again from them.
        needs_calibration: the method reads `state.context.calibration`.
        needs_log_probs: the method reads `Paths.log_prob`; it fails with a policy that has none.
        needs_vectors: the method reads `Paths.vector`, see `search.vectors`. A policy that reports
            no vectors is refused before the search. False: paths have no vectors.
        rewriting: how the policy rewrites a finished answer: a name or a .yaml file of prompts,
            which the host reads, see `cats_jax.specs.rewriting`. The method may then put finished
            paths into the frontier again, with `done` False and depth 0. A child of such a path is
            a rewrite, a new whole answer, and its request must have `to_end`. None: the method
            samples no children of finished paths. A simulator and a step bank have no rewrites.
        certainty: definition of `Paths.certainty`. A policy that does not report it is refused
            before the search. None: paths have no certainty.
        comparison: how a language model chooses the answer among the finished ones, after the last
            tick of the search. The host calls it, see `cats_jax.live.comparisons`. `answer` gives
            the answer where nothing is compared: if a limit on tokens or seconds ends the search,
            and with a simulator or a step bank. None: `answer` alone chooses.
        config: settings of the method, for callers; the core does not read them.
    """

    name: str
    plan: Callable[[Any, jax.Array, SearchState], tuple[Request, Any]]
    width: Callable[[Any], Any] = all_candidates
    aggregation: Aggregation = AGGREGATIONS["min"]
    calibrated: bool = False
    keep: Callable[[SearchState], tuple[Paths, jax.Array, Any]] = keep_children
    keep_finished: Callable[[SearchState], Paths] | None = None
    answer: AnswerRule = answer_best
    init_memory: Callable[[SearchState], Any] = no_memory
    report: Callable[[SearchState, Plan], Any] = no_report
    num_phases: int = 1
    base: Callable[[SearchState], tuple[Request, Any]] | None = None
    quiet_ends_step: bool = False
    num_steps: Callable[[Any, Any], Any] = path_length
    earlier_draws: Callable[[SearchState], jax.Array] = no_earlier_draws
    sampling: tuple[Sampling, ...] = (Sampling(),)
    uses_scores: bool = True
    needs_step_scores: bool = True
    keeps_all_paths: bool = False
    ignores_num_candidates: bool = False
    weights_paths: bool = False
    needs_calibration: bool = False
    needs_log_probs: bool = False
    needs_vectors: bool = False
    rewriting: str | None = None
    certainty: Certainty | None = None
    comparison: Comparison | None = None
    config: Any = None

    def __post_init__(self) -> None:
        for field, lookup in (
            ("aggregation", 'search.aggregations.AGGREGATIONS["last"]'),
            ("answer", 'search.answers.answer_rule("weighted")'),
        ):
            if isinstance(value := getattr(self, field), str):
                raise TypeError(
                    f"strategy {self.name!r}: {field} must be a function, got the name {value!r}: "
                    f"look it up, as {lookup} does"
                )
        for field in ("plan", "width", "num_steps"):
            if not callable(value := getattr(self, field)):
                raise TypeError(
                    f"strategy {self.name!r}: {field} must be a function, got {value!r}"
                )
        if self.comparison is not None and not isinstance(self.comparison, Comparison):
            raise TypeError(
                f"strategy {self.name!r}: comparison must be a search.comparison.Comparison or "
                f"None, got {self.comparison!r}"
            )


def check_one_search(state: SearchState) -> None:
    """Raise ValueError if the state has a batch axis, over which sums would mix the searches."""
    if state.phase.ndim:
        raise ValueError(
            f"the state is a batch of searches of shape {list(state.phase.shape)}: use jax.vmap"
        )


def check_is_strategy(value: Any) -> None:
    """Raise TypeError unless the value is a `Strategy`."""
    if not isinstance(value, Strategy):
        raise TypeError(
            f"strategy must be a search.Strategy, got {value!r:.60}: call its factory, as in "
            "search.beam()"
        )


@functools.cache
def scoring_ends(strategy: Strategy) -> Strategy:
    """The strategy, with PRM scores requested only for children that end: for outcome models.

    Raises:
        ValueError: the strategy needs scores of unfinished paths.
    """
    if strategy.needs_step_scores:
        raise ValueError(f"strategy {strategy.name!r} needs the scores of unfinished paths")

    def of_ends(planned: tuple[Request, Any]) -> tuple[Request, Any]:
        asked, memory = planned
        ends = asked.scored | asked.score_ends
        return asked.replace(scored=jnp.zeros_like(ends), score_ends=ends), memory

    def plan(params: Any, key: jax.Array, state: SearchState) -> tuple[Request, Any]:
        return of_ends(strategy.plan(params, key, state))

    first = strategy.base

    def base(state: SearchState) -> tuple[Request, Any]:
        assert first is not None
        return of_ends(first(state))

    return dataclasses.replace(strategy, plan=plan, base=None if first is None else base)


def request(
    state: SearchState,
    num_samples: Int[Array, " N"] | Int[Array, ""] | int,
    sampling: Sampling = Sampling(),
    *,
    scored: Bool[Array, " N"] | Bool[Array, ""] | bool = True,
    score_ends: Bool[Array, " N"] | Bool[Array, ""] | bool = False,
) -> Request:
    """The request of a tick, with one sampling setting for all nodes.

    Use `.replace(temperature=...)` for parameters that differ between nodes.

    Args:
        state: before the tick.
        num_samples: children that each frontier slot wants; contention may grant fewer. A negative
            number counts as 0, and rows of slots without a path are ignored.
        sampling: sampling parameters of all nodes.
        scored: whether the PRM scores the children.
        score_ends: whether the PRM scores children that end their answers, where `scored` is False.

    Raises:
        TypeError: `num_samples` is not made of integers.
        ValueError: it has another number of rows than the frontier has slots.
    """
    # Integers of Python keep their type, so that those beyond i32 are errors.
    dtype = jnp.result_type(
        num_samples if isinstance(num_samples, int) else jnp.asarray(num_samples)
    )
    if not jnp.issubdtype(dtype, jnp.integer):
        raise TypeError(
            f"num_samples must be integers, got {dtype}: round them and use .astype(jnp.int32)"
        )
    frontier = state.frontier
    slots = frontier.valid.shape
    if (shape := np.shape(num_samples)) not in ((), slots):
        raise ValueError(
            f"num_samples has the shape {list(shape)}: give one number, or {list(slots)}, one for "
            "each slot of the frontier"
        )
    return Request(
        num_samples=jnp.broadcast_to(jnp.asarray(num_samples, jnp.int32), slots),
        temperature=jnp.full(slots, sampling.temperature, jnp.float32),
        top_p=jnp.full(slots, sampling.top_p, jnp.float32),
        top_k=jnp.full(slots, sampling.top_k, jnp.int32),
        scored=jnp.broadcast_to(jnp.asarray(scored, bool), slots),
        score_ends=jnp.broadcast_to(jnp.asarray(score_ends, bool), slots),
        to_end=frontier.depth >= state.max_depth - 1,
        depth=frontier.depth,
        used=state.used,
        embedding=frontier.embedding,
    )


def same_for_all(
    num_samples: Callable[[SearchState], Int[Array, "*N"]], sampling: Sampling
) -> Callable[..., tuple[Request, Any]]:
    """A `plan` that requests `num_samples(state)` children, a number for each node or for all."""

    def plan(params: Any, key: jax.Array, state: SearchState) -> tuple[Request, Any]:
        return request(state, num_samples(state), sampling), state.memory

    return plan


def answer(params: Any, state: SearchState, *, strategy: Strategy) -> Int[Array, ""]:
    """Row of `state.finished` that answers the question, or -1 if no finished path has an answer.

    Args:
        params: of the strategy's policy.
        state: at the end of the search, or at any time before.
        strategy: static.

    Raises:
        TypeError: `strategy` is not a `Strategy`.
        ValueError: `state` is a batch of searches.
    """
    check_is_strategy(strategy)
    check_one_search(state)
    return strategy.answer(params, state.finished, state.context, strategy.aggregation)
