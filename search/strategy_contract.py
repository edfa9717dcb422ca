"""Checks of the contract between strategy and loop, for any value of `Strategy`."""

from __future__ import annotations

import dataclasses
import functools
import pathlib
import traceback
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .children import children_of
from .interface import Strategy, answer, check_is_strategy, scoring_ends
from .loop import Recorder, Tick, rollout
from .state import init, is_terminal
from .types import Context, Expansion, Request, SearchState
from .vectors import VECTOR_SIZE

CAPACITY = 8
MAX_DEPTH = 3


def check_strategy(strategy: Strategy, params: Any = (), *, seed: int = 0) -> None:
    """Check a strategy against the contract of the loop, on searches with random children.

    The checks cover sizes as ints and traced, several N and budgets in one program, invalid
    candidates, early ends, ticks after the end, searches in a batch and alone, and the fields by
    which the strategy describes itself.

    Args:
        params: parameters of its policy.

    Raises:
        AssertionError: a rule is broken; the message names the strategy and the rule.
        TypeError: `strategy` is not a `Strategy`.
    """
    check_is_strategy(strategy)
    require = functools.partial(_require, strategy)
    _check_sizes(strategy, require)
    strategy = _naming_functions(strategy)
    full = CAPACITY * MAX_DEPTH
    cases = [
        *((n, budget, 0.2, 1.0) for n in (1, 3, CAPACITY) for budget in (0, 1, 5, n * MAX_DEPTH)),
        # For the facts that a strategy states: all children valid, N = 1.
        (CAPACITY, full, 0.0, 1.0),
        (1, full, 0.0, 1.0),
    ]
    states = [_start(strategy, n, budget) for n, budget, _, _ in cases]
    worlds = [(jnp.float32(p_invalid), jnp.float32(scale)) for _, _, p_invalid, scale in cases]
    keys = jax.random.split(jax.random.key(seed), len(cases) - 1)
    keys = jnp.concatenate([keys, keys[-1:]])  # the same children for the facts
    stack = functools.partial(jax.tree.map, lambda *leaves: jnp.stack(leaves))
    batched = jax.jit(jax.vmap(functools.partial(_search, strategy), (None, 0, 0, 0)))
    together = jax.device_get(batched(params, stack(*worlds), keys, stack(*states)))
    found = [jax.tree.map(lambda leaf, i=i: leaf[i], together) for i in range(len(cases))]
    for (n, budget, _, _), outcome in zip(cases, found, strict=True):
        _check_search(strategy, n, budget, outcome, require)
    one = jax.jit(functools.partial(_search, strategy))
    for index in (5, 10):
        alone = jax.device_get(one(params, worlds[index], keys[index], states[index]))
        same = jax.tree.map(
            lambda a, b: np.allclose(a, b, atol=1e-5, equal_nan=True), alone, found[index]
        )
        require(all(jax.tree.leaves(same)), "jax.vmap gives another search than jax.jit alone")
    usual, one_candidate = found[-2:]
    _check_facts(strategy, usual, one_candidate, require)
    ranked = strategy.comparison is not None and strategy.comparison.scores
    if not strategy.uses_scores and not ranked:
        # The loop hides scores from such a strategy, so what it does not read changes nothing.
        reading = dataclasses.replace(strategy, uses_scores=True)
        shown = jax.jit(functools.partial(_search, reading))
        seen, unseen = (
            (asked.request.num_samples, end.finished.replace(step_scores=()), chosen)
            for end, asked, chosen in (
                jax.device_get(shown(params, worlds[-2], keys[-2], states[-2])),
                usual,
            )
        )
        same = jax.tree.map(np.array_equal, seen, unseen)
        require(
            all(jax.tree.leaves(same)),
            "uses_scores is False, but the scores change what it samples, keeps or answers",
        )
    if strategy.uses_scores and not strategy.needs_step_scores:
        of_ends = jax.jit(functools.partial(_search, scoring_ends(strategy)))
        _, asked, row = jax.device_get(of_ends(params, worlds[-2], keys[-2], states[-2]))
        same = np.array_equal(asked.request.num_samples, usual[1].request.num_samples)
        require(
            same and int(row) == int(usual[2]),
            "needs_step_scores is False, but scores of unfinished paths change what it samples or "
            "answers",
        )


Require = Callable[[bool, str], None]


def _require(strategy: Strategy, condition: bool, rule: str) -> None:
    if not condition:
        raise AssertionError(f"strategy {strategy.name!r}: {rule}")


def _check_sizes(strategy: Strategy, require: Require) -> None:
    """Width and number of steps, on ints and on traced arrays."""
    for name, function, arguments in (
        ("width", strategy.width, lambda n: (n,)),
        ("num_steps", strategy.num_steps, lambda n: (n, MAX_DEPTH)),
    ):
        traced = jax.jit(lambda *sizes, f=function: jnp.asarray(f(*sizes), jnp.int32))
        for n in (1, 3, CAPACITY):
            value = function(*arguments(n))
            require(
                isinstance(value, int) and value >= 1,
                f"{name}{arguments(n)} must be an int >= 1, got {value!r}",
            )
            try:
                same = int(traced(*map(jnp.int32, arguments(n))))
            except jax.errors.JAXTypeError as error:
                raise AssertionError(
                    f"strategy {strategy.name!r}: {name} must also work on traced arrays: use "
                    "search.share_of_candidates, or jnp.maximum in place of max"
                ) from error
            require(same == value, f"{name}{arguments(n)} is {value}, but {same} when traced")
    for n in (1, 3, CAPACITY):
        require(
            strategy.width(n) <= n,
            f"width({n}) = {strategy.width(n)}: no more paths can be kept than sampled",
        )


_TRACED = (
    "plan",
    "base",
    "keep",
    "keep_finished",
    "answer",
    "init_memory",
    "report",
    "earlier_draws",
)
"""Functions of a strategy that `jit` traces, other than those of `_check_sizes`."""


def _naming_functions(strategy: Strategy) -> Strategy:
    """The strategy, with functions whose tracing errors name the function."""
    return dataclasses.replace(
        strategy,
        **{
            field: _naming(strategy, field)
            for field in _TRACED
            if getattr(strategy, field) is not None
        },
    )


def _naming(strategy: Strategy, field: str) -> Callable[..., Any]:
    function = getattr(strategy, field)

    def call(*args: Any) -> Any:
        try:
            return function(*args)
        except (jax.errors.JAXTypeError, jax.errors.JAXIndexError) as error:
            frames = traceback.extract_tb(error.__traceback__)[1:]
            place = (
                f" ({pathlib.Path(frames[0].filename).name}:{frames[0].lineno})" if frames else ""
            )
            raise AssertionError(
                f"strategy {strategy.name!r}: {field}{place} uses a traced array as a Python "
                f"number or truth value ({type(error).__name__}): use jnp.maximum in place of "
                "max, jnp.where in place of if, jnp functions in place of NumPy's"
            ) from error

    return call


def _check_search(
    strategy: Strategy,
    n: int,
    budget: int,
    outcome: _Outcome,
    require: Require,
) -> None:
    """Check budgets, places, declared sampling and the answer of one search."""
    final, ticks, row = outcome[0], outcome[1], int(outcome[2])
    where = f"with N = {n} and a budget of {budget}: "
    require(bool(is_terminal(final)), where + "the search has not ended after its last tick")
    require(bool(ticks.stays.all()), where + "a tick after the end of the search changes its state")
    per_step = ticks.request.num_samples.sum(axis=-1).reshape(-1, strategy.num_phases).sum(axis=-1)
    require(bool((per_step <= n).all()), where + f"a step sampled {per_step.max()} candidates")
    require(int(final.spent) <= budget, where + f"{final.spent} candidates were sampled")
    if strategy.quiet_ends_step:
        sampled = ticks.request.num_samples.sum(axis=-1).reshape(-1, strategy.num_phases)[:, 1:]
        wakes = (sampled[:, :-1] == 0) & (sampled[:, 1:] > 0)
        require(
            not wakes.any(),
            where + "quiet_ends_step, but a phase samples after one that sampled nothing",
        )
    kept = int(final.finished.valid.sum() + final.frontier.valid.sum())
    require(kept <= strategy.width(n), where + f"{kept} paths were kept")
    require(
        -1 <= row < final.finished.valid.size and (row < 0 or bool(final.finished.valid[row])),
        where + f"answer gave row {row}, which is no finished path; -1 stands for no answer",
    )
    _check_rewrites(strategy, ticks.request, where, require)
    _check_draws(strategy, ticks.request, where, require)
    declared = np.array([(s.temperature, s.top_p, s.top_k) for s in strategy.sampling])
    request = ticks.request
    used = np.stack([request.temperature, request.top_p, request.top_k], axis=-1)
    for setting in np.unique(used[request.num_samples > 0], axis=0):
        require(
            bool(np.isclose(declared, setting, atol=1e-6).all(axis=1).any()),
            f"it samples with temperature {setting[0]:g}, top_p {setting[1]:g}, top_k "
            f"{setting[2]:g}, which `sampling` does not list: add it",
        )


def _check_rewrites(strategy: Strategy, request: Request, where: str, require: Require) -> None:
    """Check the requests for rewrites: children of paths whose embedding is negative."""
    rewrites = (request.num_samples > 0) & (request.embedding < 0)
    require(
        strategy.rewriting is not None or not rewrites.any(),
        where + "it samples children of finished paths, which are rewrites: set `rewriting`",
    )
    require(
        bool((request.to_end & (request.depth == 0))[rewrites].all()),
        where + "a rewrite is a whole answer that begins anew: request it with `to_end`, of a path "
        "with depth 0",
    )


def _check_draws(strategy: Strategy, request: Request, where: str, require: Require) -> None:
    """Check that no draw of a node repeats, as a step bank numbers the draws."""
    if strategy.rewriting is not None:
        return
    taken: dict[tuple[float, ...], set[int]] = {}
    random = (request.num_samples > 0) & (request.temperature > 0)
    for tick in np.flatnonzero(random.any(axis=-1)):
        asked: dict[tuple[float, ...], int] = {}
        for slot in np.flatnonzero(random[tick]):
            fields = request.embedding, request.temperature, request.top_p, request.top_k
            cell = tuple(field[tick, slot].item() for field in fields)
            asked[cell] = asked.get(cell, 0) + int(request.num_samples[tick, slot])
        for cell, number in asked.items():
            first = int(request.used[tick])
            draws, before = set(range(first, first + number)), taken.setdefault(cell, set())
            require(
                not draws & before,
                where + "it samples children of a node in several steps, and a step bank would "
                "repeat draws: set `earlier_draws`",
            )
            before |= draws


def _check_facts(
    strategy: Strategy, usual: _Outcome, one_candidate: _Outcome, require: Require
) -> None:
    """Check the fields by which the strategy describes itself, as far as a search shows them."""
    final, ticks, _ = usual
    if strategy.keeps_all_paths:
        paths = int(final.finished.valid.sum())
        require(paths == CAPACITY, f"keeps_all_paths, but {paths} of {CAPACITY} paths were kept")
        require(bool(ticks.grows_all.all()), "keeps_all_paths, but a tick grew only some paths")
    if strategy.ignores_num_candidates:
        asked = ticks.request.num_samples, one_candidate[1].request.num_samples
        require(np.array_equal(*asked), "ignores_num_candidates, but N changes what it samples")


class _Asked(NamedTuple):
    """Per tick: the request, whether an ended search stayed as it was, whether all paths grew."""

    request: Request
    stays: Any
    grows_all: Any


_Outcome = tuple[SearchState, _Asked, Any]


def _watch(memory: tuple[()], tick: Tick) -> tuple[tuple[()], _Asked]:
    same = jax.tree.map(lambda a, b: jnp.all(a == b), tick.after, tick.before)
    stays = jnp.all(jnp.stack(jax.tree.leaves(same)))
    granted = tick.plan.request.num_samples > 0
    grows_all = jnp.all(granted | ~tick.before.frontier.valid)
    active = tick.output.active
    return memory, _Asked(tick.plan.request, stays | active, grows_all | ~active)


def _start(strategy: Strategy, n: int, budget: int) -> SearchState:
    return init(
        jnp.int32(0),
        strategy=strategy,
        num_candidates=n,
        max_depth=MAX_DEPTH,
        budget=budget,
        context=Context(price=0.1, sparsity_total=0.2),
        capacity=CAPACITY,
    )


def _search(
    strategy: Strategy, params: Any, world: Any, key: jax.Array, state: SearchState
) -> _Outcome:
    """A whole search, its requests tick by tick, and the row of its answer."""
    final, ticks = rollout(
        params,
        world,
        key,
        state,
        strategy=strategy,
        expand_fn=_expand,
        recorder=Recorder(init=lambda state: (), record=_watch),
    )
    return final, ticks, answer(params, final, strategy=strategy)


def _expand(world: tuple[jax.Array, jax.Array], key: jax.Array, request: Request) -> Expansion:
    """Random children: some are invalid, some end early; there are three answers.

    Args:
        world: the chance that a child is invalid, and a factor of the scores.
        key: consumed.
        request: at most `CAPACITY` children.

    Returns:
        The children. Embeddings are random; that of a child that ends its path is negative.
    """
    p_invalid, scale = world
    parent, granted = children_of(request.num_samples, CAPACITY)
    keys = jax.random.split(key, 4)
    done = request.to_end[parent] | (jax.random.uniform(keys[0], (CAPACITY,)) < 0.2)
    valid = granted & (jax.random.uniform(keys[1], (CAPACITY,)) >= p_invalid)
    score = scale * jax.random.uniform(keys[2], (CAPACITY,))
    drawn = jax.random.randint(keys[3], (CAPACITY,), 0, 3, jnp.int32)
    number = jax.random.randint(jax.random.fold_in(key, 6), (CAPACITY,), 1, 1 << 30, jnp.int32)
    return Expansion(
        valid=valid,
        parent=parent,
        score=jnp.where(valid, score, 0.0),
        done=valid & done,
        answer=jnp.where(valid & done, drawn, -1),
        text=drawn,
        log_prob=jnp.zeros((CAPACITY,), jnp.float32),
        num_tokens=jnp.ones((CAPACITY,), jnp.int32),
        embedding=jnp.where(valid & done, -1, 1) * number,
        certainty=jax.random.uniform(jax.random.fold_in(key, 4), (CAPACITY,)),
        vector=jax.random.normal(jax.random.fold_in(key, 5), (CAPACITY, VECTOR_SIZE)),
    )
