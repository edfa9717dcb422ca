"""An `ExpandFn` that draws recorded children from a bank."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ..children import children_of, with_capacity
from ..loop import ExpandFn
from ..simulation.draws import absorb, branch
from ..state import MAX_CANDIDATES
from ..types import Expansion, Request
from .types import UNREADABLE, Bank, Replay

# Strides through a node's draws: primes above any number of draws, so that each visits all draws
# before it returns to the first.
_STRIDES = 65536 - np.array(
    (15, 17, 39, 57, 87, 89, 99, 113, 117, 123, 129, 143, 155, 165, 179, 183), np.uint32
)


@functools.cache
def expander(capacity: int = MAX_CANDIDATES) -> ExpandFn:
    """`expand` with `capacity` bound, an `ExpandFn`; the same object for the same capacity.

    Args:
        capacity: rows of the expansions; at least the largest N, usually the pool's capacity.

    Raises:
        ValueError: capacity < 1.
    """
    return with_capacity(expand, capacity)


def expand(
    params: Replay, key: jax.Array, request: Request, *, capacity: int = MAX_CANDIDATES
) -> Expansion:
    """Children of one tick, drawn from the recorded children; an `ExpandFn` with `capacity` bound.

    The nearest recorded sampling setting replaces a request's parameters. Within a request, a
    node's recorded draws under a setting are taken without replacement, also when several slots
    hold the node. Until all are taken, they are independent samples of the policy; after that they
    repeat. A later tick of the step skips one draw of a node per earlier candidate of the step,
    whatever its node: a search of one path repeats no draw before it has used all, but one of
    several paths may. A later step skips `Strategy.earlier_draws`. Steps to the end use the same
    draws, since the bank's last step was recorded to the end. A row is a function of the order, the
    node, the setting, and the row's number. This number counts the earlier draws, the step's
    candidates before this tick and the earlier rows for that node and setting. No valid row depends
    on a capacity.

    Args:
        params: `Replay` of a task from `reset` or `question`; its order holds all randomness.
        key: not used.
        request: request whose `embedding` is i32[S], the parents' rows in the bank.
        capacity: rows of the expansion, static; at least as many as are granted.

    Returns:
        The expansion. Invalid candidates have `num_tokens` too.
    """
    bank = params.bank
    parent, granted = children_of(request.num_samples, capacity)
    node = request.embedding
    cell = node * bank.temperature.shape[0] + _nearest_setting(bank, request)
    start = bank.first_draw[cell]
    count = jnp.maximum(bank.first_draw[cell + 1] - start, 1).astype(jnp.uint32)
    state = absorb(jnp.full(node.shape, params.order), cell.astype(jnp.uint32))
    offset = branch(state, 0) % count
    stride = jnp.asarray(_STRIDES)[branch(state, 1) % _STRIDES.size] % count

    first_row = jnp.cumsum(request.num_samples, dtype=jnp.int32) - request.num_samples
    sibling = jnp.arange(capacity, dtype=jnp.int32) - first_row[parent]
    number = request.used + sibling + _asked_before(cell, request.num_samples)[parent]
    number = number.astype(jnp.uint32)
    place = (offset[parent] + number * stride[parent]) % count[parent]
    child = bank.drawn[start[parent] + place.astype(jnp.int32)]

    score = bank.score[child, params.prm]
    valid = granted & ~bank.invalid[child] & (score != UNREADABLE)
    done = valid & (bank.done[child] | request.to_end[parent])
    return Expansion(
        valid=valid,
        parent=jnp.where(granted, parent, 0),
        score=jnp.where(valid, score, 0.0),
        done=done,
        answer=jnp.where(done, bank.answer[child], -1),
        text=jnp.where(valid, bank.text[child], -1),
        log_prob=jnp.where(valid, bank.log_prob[child], 0.0),
        num_tokens=jnp.where(granted, bank.num_tokens[child], 0),
        embedding=jnp.where(valid, child, 0),
    )


def scored_tokens(
    params: Replay, node: Int[Array, " N"], counted: Bool[Array, " N"]
) -> Int[Array, ""]:
    """Tokens that the PRM computes to score steps, i32[]: distinct steps once, without the prompt.

    Args:
        params: bank and number of the PRM.
        node: embeddings of the steps, repeats included.
        counted: rows that are scored: no invalid candidates.
    """
    rows = jnp.sort(jnp.where(counted, node, -1))
    is_first = jnp.concatenate([jnp.ones((1,), bool), rows[1:] != rows[:-1]]) & (rows >= 0)
    tokens = params.bank.prm_tokens[jnp.maximum(rows, 0), params.prm]
    return jnp.sum(jnp.where(is_first, tokens, 0), dtype=jnp.int32)


def _nearest_setting(bank: Bank, request: Request) -> Int[Array, " S"]:
    """The recorded setting with the smallest difference; top-k is compared as 1 / top-k."""
    apart = (
        jnp.abs(request.temperature[:, None] - bank.temperature[None, :])
        + jnp.abs(request.top_p[:, None] - bank.top_p[None, :])
        + jnp.abs(_cut(request.top_k)[:, None] - _cut(bank.top_k)[None, :])
    )
    return jnp.argmin(apart, axis=1).astype(jnp.int32)


def _cut(top_k: Int[Array, " S"]) -> Float[Array, " S"]:
    return jnp.where(top_k > 0, 1.0 / jnp.maximum(top_k, 1).astype(jnp.float32), 0.0)


def _asked_before(cell: Int[Array, " S"], num_samples: Int[Array, " S"]) -> Int[Array, " S"]:
    """For each slot, the samples that earlier slots request of the same node and setting."""
    slots = jnp.arange(cell.shape[0], dtype=jnp.int32)
    same = (cell[None, :] == cell[:, None]) & (slots[None, :] < slots[:, None])
    return jnp.sum(jnp.where(same, num_samples[None, :], 0), axis=1, dtype=jnp.int32)
