"""The simulator as an expand function: one tick's children, in the graph.

*Sampling* decides whether the child is cut, whether it is right and which text it has. It depends
on the tick's key, the parent's slot and the child's number among its siblings. The rest (score,
answer, end of the path, later steps) is a function of the parent's node seed and the text. Siblings
with the same text are therefore the same step, as for a deterministic PRM.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, UInt32

from ..children import children_of, with_capacity
from ..loop import ExpandFn
from ..state import MAX_CANDIDATES
from ..types import Expansion, Request
from ..vectors import VECTOR_SIZE
from .draws import absorb, branch, normal, power_law, power_law_log_prob, uniform, words
from .types import Latent, QuestionModel, SamplingTables, ScoreTables

NUM_WRONG_TEXTS = 64
"""K, the number of classes of wrong texts under one parent."""

NUM_POPULAR_ANSWERS = 8
"""Number of popular wrong answers of a question, common to unrelated mistakes."""

SCORE_GRID_END = 3.5
"""The tables of `ScoreTables` range from minus this value to plus this value."""

POPULAR_EXPONENT = 1.0
"""Exponent of the power law that chooses among the popular wrong answers."""

NUM_KINDS = 8
"""Number of kinds of a scored step; see `ScoreTables`."""

_MAX_EXPONENT = 16.0
_FIRST_WRONG_CODE = 2  # texts 0 and 1 are right: the usual operation, another one first


@functools.cache
def simulator(capacity: int = MAX_CANDIDATES) -> ExpandFn:
    """`expand` with `capacity` bound, an `ExpandFn`; the same object for the same capacity.

    Args:
        capacity: rows of the expansions; at least the largest N, usually the pool's capacity.

    Raises:
        ValueError: capacity < 1.
    """
    return with_capacity(expand, capacity)


def expand(
    params: QuestionModel, key: jax.Array, request: Request, *, capacity: int = MAX_CANDIDATES
) -> Expansion:
    """Children of one tick; an `ExpandFn` once `capacity` is bound (see `simulator`).

    No valid row depends on the capacity of the expansion or of the frontier.

    Args:
        params: question model from `reset` or `question`.
        key: PRNG key; consumed.
        request: request whose `embedding` is a `Latent` of the parents.
        capacity: rows of the expansion, static; at least as many as are granted.
    """
    parent, granted = children_of(request.num_samples, capacity)
    nodes = _nodes(params, request)
    first = jnp.cumsum(request.num_samples, dtype=jnp.int32) - request.num_samples
    sibling = jnp.arange(capacity, dtype=jnp.int32) - first[parent]
    node = jax.tree.map(lambda leaf: leaf[parent], nodes)
    draw = absorb(_slot_states(key, request.num_samples.shape[0])[parent], _u32(sibling))
    valid = granted & (uniform(draw, 0) >= node.invalid)

    consistent = jnp.where(node.greedy, 0.5, uniform(draw, 1)) < node.probability
    text = _texts(node, consistent, jnp.where(node.greedy, 0.0, uniform(draw, 2)))
    seed = absorb(node.seed, _u32(text))
    right = node.right & consistent
    answer_seed = jnp.where(consistent, node.answer_seed, absorb(node.answer_seed, seed))
    done = node.to_end | (uniform(seed, 0) < jnp.where(right, node.end_right, node.end_wrong))
    answer = jnp.where(right, params.answer, _wrong_answers(params, answer_seed, uniform(seed, 1)))
    off_path = jnp.where(consistent, 2, 3)
    kind = 2 * jnp.where(right, 0, jnp.where(node.right, 1, off_path)) + done.astype(jnp.int32)
    y = _latent_scores(params.scores, node, kind, normal(seed, 2))
    tokens = jnp.maximum(jnp.floor(node.num_tokens + uniform(seed, 3)), 1.0).astype(jnp.int32)
    log_prob = _log_probs(node, consistent, text)
    return Expansion(
        valid=valid,
        parent=jnp.where(granted, parent, 0),
        score=jnp.where(valid, jax.nn.sigmoid(_interpolated(params.scores.logit, y)), 0.0),
        done=valid & done,
        answer=jnp.where(valid & done, answer, -1),
        text=jnp.where(valid, text, -1),
        log_prob=jnp.where(valid, log_prob, 0.0),
        num_tokens=jnp.where(valid, tokens, 0),
        embedding=Latent(
            seed=jnp.where(valid, seed, jnp.uint32(0)),
            answer_seed=jnp.where(valid, answer_seed, jnp.uint32(0)),
            right=valid & right,
            score=jnp.where(valid, y, 0.0),
        ),
        # The simulator has no tokens. The newest step's likelihood stands in for the path's.
        certainty=jnp.where(valid, jnp.exp(log_prob / tokens.astype(jnp.float32)), 0.0),
        vector=_vectors(seed, valid),
    )


def _vectors(seed: UInt32[Array, " N"], valid: Bool[Array, " N"]) -> Float[Array, "N D"]:
    """Random directions, one per step: the simulator has no hidden states."""
    shape = (seed.shape[0], VECTOR_SIZE)
    numbers = jnp.broadcast_to(jnp.arange(VECTOR_SIZE, dtype=jnp.uint32), shape)
    states = jnp.broadcast_to(branch(seed, 13)[:, None], shape)
    draws = uniform(absorb(states, numbers), 0)
    return jnp.where(valid[:, None], 2.0 * draws - 1.0, 0.0)


class _Nodes(NamedTuple):
    """Parameters of the children of each frontier slot; [S], or [N] once gathered per child."""

    seed: UInt32[Array, " S"]
    answer_seed: UInt32[Array, " S"]
    right: Bool[Array, " S"]
    to_end: Bool[Array, " S"]
    greedy: Bool[Array, " S"]
    probability: Float[Array, " S"]  # that the next step is consistent with the path so far
    log_right: Float[Array, " S"]  # at temperature 1, without truncation
    log_wrong: Float[Array, " S"]
    exponent: Float[Array, " S"]
    exponent_at_one: Float[Array, " S"]  # at temperature 1, without truncation
    alternative: Float[Array, " S"]
    invalid: Float[Array, " S"]
    end_right: Float[Array, " S"]
    end_wrong: Float[Array, " S"]
    num_tokens: Float[Array, " S"]
    score: Float[Array, " S"]  # the parent's y
    factor: Float[Array, " S"]  # shared by its children's scores
    ease: Float[Array, " S"]


def _nodes(params: QuestionModel, request: Request) -> _Nodes:
    latent: Latent = request.embedding
    depth = jnp.clip(request.depth, 0, params.margin.shape[0] - 1)
    off_path = jnp.where(latent.right, 0.0, params.wrong_shift)
    own_ease = normal(latent.seed, 10)
    local = params.node_scale * own_ease + off_path
    tables = params.sampling
    looked_up = _interpolate(request, tables)
    truncation = jnp.where(
        request.top_k > 0, 1.0 / jnp.maximum(request.top_k, 1).astype(jnp.float32), 0.0
    )
    slope = looked_up[:, 0] * jnp.exp(tables.top_k_slope * truncation)
    shift = looked_up[:, 1] + tables.top_k_shift * truncation
    greedy = (request.temperature <= 0.0) | (request.top_k == 1)

    def chance(margin: Float[Array, " S"]) -> Float[Array, " S"]:
        certain = (margin + shift > 0.0).astype(jnp.float32)
        return jnp.where(greedy, certain, jax.nn.sigmoid(slope * margin + shift))

    margin = params.margin[depth] + local
    # A step to the end contains all later steps, which must be right, too.
    rest = jnp.where(request.to_end, params.rest_margin[depth] + local, jnp.inf)
    probability = chance(margin) * jnp.where(request.to_end, chance(rest), 1.0)
    log_right = jax.nn.log_sigmoid(margin) + jax.nn.log_sigmoid(rest)
    local_exponent = tables.exponent_slope * margin + tables.exponent_scale * normal(
        latent.seed, 12
    )
    rest_tokens = jnp.where(request.to_end, params.rest_tokens[depth], 0.0)
    return _Nodes(
        seed=latent.seed,
        answer_seed=latent.answer_seed,
        right=latent.right,
        to_end=request.to_end,
        greedy=greedy,
        probability=probability,
        log_right=log_right,
        # log(1 - p), with 1 - p kept away from 0 where p rounds to 1.
        log_wrong=jnp.log(jnp.maximum(-jnp.expm1(log_right), 1e-6)),
        exponent=_exponents(jnp.log(looked_up[:, 2]) + local_exponent),
        exponent_at_one=_exponents(params.log_exponent + local_exponent),
        alternative=params.alternative[depth],
        invalid=jnp.where(latent.right, looked_up[:, 4], looked_up[:, 3]),
        end_right=params.end[1][depth],
        end_wrong=params.end[0][depth],
        num_tokens=params.num_tokens[depth] + rest_tokens,
        score=latent.score,
        factor=normal(latent.seed, 11),
        ease=params.ease + params.node_share * own_ease,
    )


def _exponents(log_exponent: Float[Array, " S"]) -> Float[Array, " S"]:
    # Larger exponents leave a single mistake, and their powers underflow float32.
    return jnp.minimum(jnp.exp(log_exponent), _MAX_EXPONENT)


def _interpolate(request: Request, tables: SamplingTables) -> Float[Array, "S 5"]:
    """Slope, shift, exponent and the two shares of invalid samples at each slot's parameters."""
    columns = [tables.slope, tables.shift, tables.exponent, tables.invalid[0], tables.invalid[1]]
    table = jnp.stack([column.ravel() for column in columns], axis=1)
    by_temperature = _grid_weights(request.temperature, tables.temperature)
    by_top_p = _grid_weights(request.top_p, tables.top_p)
    weights = (by_temperature[:, :, None] * by_top_p[:, None, :]).reshape(-1, table.shape[0])
    return jnp.dot(weights, table, precision=lax.Precision.HIGHEST)


def _grid_weights(x: Float[Array, " S"], grid: Float[Array, " H"]) -> Float[Array, "S H"]:
    """Weights of linear interpolation on an ascending grid, constant beyond its ends."""
    inside = jnp.clip(x, grid[0], grid[-1])[:, None]
    gap = jnp.diff(grid)
    rising = (inside - grid[None, :-1]) / gap[None, :]  # 0 at a gap's lower end, 1 at its upper
    one = jnp.ones((x.shape[0], 1), jnp.float32)
    below = jnp.concatenate([one, rising], axis=1)
    above = jnp.concatenate([1.0 - rising, one], axis=1)
    return jnp.clip(jnp.minimum(below, above), 0.0, 1.0)


def _slot_states(key: jax.Array, slots: int) -> UInt32[Array, " S"]:
    return absorb(jnp.full((slots,), words(key)), jnp.arange(slots, dtype=jnp.uint32))


def _texts(node: _Nodes, consistent: Bool[Array, " N"], u: Float[Array, " N"]) -> Int[Array, " N"]:
    """Text ids: 0 and 1 are the two right steps; 2, 3, ... are mistakes, most popular first."""
    # The same u decides between the right texts: only one of the two is read.
    right_text = (u > 1.0 - node.alternative).astype(jnp.int32)
    mistake = power_law(u, node.exponent, NUM_WRONG_TEXTS)
    return jnp.where(consistent, right_text, _FIRST_WRONG_CODE + mistake)


def _wrong_answers(
    params: QuestionModel, answer_seed: UInt32[Array, " N"], u: Float[Array, " N"]
) -> Int[Array, " N"]:
    """Answer classes of paths with a mistake; equal `answer_seed` gives equal classes."""
    which = uniform(answer_seed, 20)
    popular_class = power_law(
        uniform(answer_seed, 21),
        jnp.full(answer_seed.shape, POPULAR_EXPONENT, jnp.float32),
        NUM_POPULAR_ANSWERS,
    )
    question_seed = jnp.full(answer_seed.shape, params.seed)
    popular = absorb(branch(question_seed, 22), _u32(popular_class))
    rare = branch(answer_seed, 23)
    is_popular = which < params.lucky + params.popular
    wrong = answer_class(jnp.where(is_popular, popular, rare))
    # A hash may equal the right answer's class. This is rare; the path then counts as lucky too.
    answer = jnp.where(which < params.lucky, params.answer, wrong)
    return jnp.where(u < params.no_answer, -1, answer)


def answer_class(state: UInt32[Array, "*B"]) -> Int[Array, "*B"]:
    """The answer class, >= 0, that a hash state stands for."""
    return (state >> 1).astype(jnp.int32)


def _latent_scores(
    tables: ScoreTables, node: _Nodes, kind: Int[Array, " N"], own: Float[Array, " N"]
) -> Float[Array, " N"]:
    """The latent scores y of `ScoreTables`."""
    # One gather for all that depends on the kind alone.
    own_share = jnp.sqrt(jnp.maximum(1.0 - tables.loading[:, 1:2] ** 2, 0.0))
    by_kind = jnp.concatenate([tables.offset[:, None], tables.loading, own_share], axis=1)[kind]
    z = by_kind[:, 2] * node.factor + by_kind[:, 4] * own
    index, weight = _table_position(z, tables.residual.shape[1])
    lower, upper = tables.residual[kind, index], tables.residual[kind, index + 1]
    expected = by_kind[:, 0] + by_kind[:, 1] * node.score + by_kind[:, 3] * node.ease
    return expected + lower + weight * (upper - lower)


def _interpolated(table: Float[Array, " Z"], x: Float[Array, " N"]) -> Float[Array, " N"]:
    index, weight = _table_position(x, table.shape[0])
    return table[index] + weight * (table[index + 1] - table[index])


def _table_position(
    x: Float[Array, " N"], points: int
) -> tuple[Int[Array, " N"], Float[Array, " N"]]:
    """Index of the table point below x, and the weight of the next; extrapolation is linear."""
    position = (x + SCORE_GRID_END) * ((points - 1) / (2 * SCORE_GRID_END))
    index = jnp.clip(jnp.floor(position).astype(jnp.int32), 0, points - 2)
    return index, position - index.astype(jnp.float32)


def _log_probs(
    node: _Nodes, consistent: Bool[Array, " N"], text: Int[Array, " N"]
) -> Float[Array, " N"]:
    """Log-probabilities of the texts at temperature 1, whatever the sampling parameters were."""
    share = jnp.where(text == 1, node.alternative, 1.0 - node.alternative)
    among_right = jnp.log(jnp.maximum(share, 1e-6))
    mistake = jnp.maximum(text - _FIRST_WRONG_CODE, 0)
    among_wrong = power_law_log_prob(mistake, node.exponent_at_one, NUM_WRONG_TEXTS)
    return jnp.where(consistent, node.log_right + among_right, node.log_wrong + among_wrong)


def _u32(x: Int[Array, " N"]) -> UInt32[Array, " N"]:
    return x.astype(jnp.uint32)
