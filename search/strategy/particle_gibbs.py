"""Particle Gibbs: iterated particle filtering, with one particle of the iteration before.

Puri et al.: "A Probabilistic Inference Approach to Inference-Time Scaling of LLMs using
Particle-Based Monte Carlo Methods" (2025), arXiv:2502.01618, with the authors' its_hub at e4d00d1
and their probabilistic-inference-scaling; Andrieu et al.: "Particle Markov Chain Monte Carlo
Methods" (2010). The first iteration is `particle_filtering`. When all particles have finished, one
of them is drawn by weight: the reference. The other particles of the next iteration begin at the
question. Before each step they are resampled from themselves and from the reference, cut to as many
steps as they have. The particle of the largest weight in the last iteration gives the answer.

Eight things differ from its_hub. Particles are resampled before a step and not after it, as in the
paper's code. An iteration therefore ends when all free particles have finished, and neither the
reference nor the answer is chosen from resampled particles. The score of the cut reference weighs
it, as in conditional sequential Monte Carlo; its_hub takes the score of the reference's last step
at every step, and the paper's code that of one step later. N may leave a remainder. A spent budget
ends the search, and the reference may then answer. There is one reference. The answer is not drawn
by weight. Invalid candidates are not particles, and only particles with an answer are chosen as the
answer. Among particles of equal weights the reference comes first, and last in its_hub. Neither
code has ancestor sampling.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from ..aggregations import aggregation, path_scores
from ..answers import answer_rule
from ..interface import Sampling, Strategy, check_count, request, share_of_candidates
from ..resampling import drawn, or_equal, rows_at
from ..resampling import resampling as scheme
from ..state import blank_like, compact, count, growing, join, question_of, select, take
from ..types import Paths, Request, SearchState
from .particle_filtering import odds_of
from .types import Iterations


@functools.cache
def particle_gibbs(
    *,
    num_iterations: int = 2,
    weight_temperature: float = 1.0,
    resampling: str = "multinomial",
    path_score: str = "last",
    vote: str = "best",
    sampling: Sampling = Sampling(),
) -> Strategy:
    """Iterations of K = max(1, N // num_iterations) particles, one from the iteration before.

    N is the number of particles of all iterations together, as in its_hub. With K = 1 there is one
    iteration: in another no particle would be free.

    Args:
        num_iterations: >= 1; with 1 it is particle filtering.
        weight_temperature: T of the weights (s / (1 - s))^(1 / T), > 0.
        resampling: "multinomial" (published), "systematic" or "residual", see `search.resampling`.
        path_score: the score s of a path; that of its newest step as published.
        vote: how the particles of the last iteration give the answer; "best" as published.

    Raises:
        ValueError: an argument is out of range or unknown.
    """
    check_count("num_iterations", num_iterations, 1)
    if not weight_temperature > 0:
        raise ValueError(f"weight_temperature must be > 0, got {weight_temperature}")
    aggregated, resample = aggregation(path_score), scheme(resampling)

    def log_weights(paths: Paths) -> Float[Array, " N"]:
        return odds_of(path_scores(paths, aggregated), paths.valid, weight_temperature)

    def plan(params: Any, key: jax.Array, state: SearchState) -> tuple[Request, Iterations]:
        draw, draw_reference = jax.random.split(key)
        frontier, finished, depth = state.frontier, state.finished, _depth(state)
        begins = (state.step > 0) & (depth == 0)
        memory = select(begins, _with_reference(state.memory, finished), state.memory)
        # The reference counts with its steps so far; at the beginning it has no steps.
        finished = finished.replace(valid=finished.valid & ~begins)
        both = or_equal(jnp.concatenate([log_weights(frontier), log_weights(finished)]))
        free = state.width - count(memory.reference)
        copies = resample(draw, jax.nn.softmax(both), free)
        grows, stays = jnp.split(copies, [frontier.valid.shape[0]])
        memory = memory.replace(
            copies=stays,
            uniform=jax.random.uniform(draw_reference, (), jnp.float32),
            trail=_put(memory.trail, depth, _unscored(frontier)),
        )
        return request(state, grows, sampling), memory

    return Strategy(
        name="particle_gibbs",
        plan=plan,
        width=share_of_candidates(num_iterations),
        sampling=(sampling,),
        aggregation=aggregated,
        keep=functools.partial(_keep, num_iterations=num_iterations),
        keep_finished=functools.partial(
            _keep_finished, log_weights=log_weights, num_iterations=num_iterations
        ),
        weights_paths=True,
        answer=answer_rule(vote),
        init_memory=_first_iteration,
        num_steps=lambda num_candidates, max_depth: num_iterations * max_depth,
        # An iteration takes at most K children of a node.
        earlier_draws=lambda state: state.memory.iteration * state.width,
    )


def _first_iteration(state: SearchState) -> Iterations:
    frontier, root = state.frontier, question_of(state)
    slots, depth_capacity = frontier.step_scores.shape
    return Iterations(
        copies=jnp.zeros((slots,), jnp.int32),
        uniform=jnp.float32(0.0),
        iteration=jnp.int32(0),
        reference=root.replace(valid=jnp.zeros((1,), bool)),
        root=root,
        trail=jax.tree.map(
            lambda leaf: jnp.zeros((depth_capacity, *leaf.shape), leaf.dtype), _unscored(frontier)
        ),
    )


def _depth(state: SearchState) -> Int[Array, ""]:
    """Number of steps of the frontier's paths, which is the same for all."""
    return jnp.max(state.frontier.depth, initial=0, where=state.frontier.valid)


def _keep_finished(
    state: SearchState, log_weights: Callable[[Paths], Float[Array, " N"]], num_iterations: int
) -> Paths:
    """The finished paths of the iteration; if another one follows, its reference alone."""
    finished = _finished(state)
    ended = state.pool.replace(valid=state.pool.valid & state.pool.done)
    particles = join(finished, ended)
    # Without a particle any weights will do: no row is valid.
    weights = jnp.where(jnp.any(particles.valid), log_weights(particles), 0.0)
    chosen = take(particles, rows_at(state.memory.uniform[None], jax.nn.softmax(weights)))
    reference = compact(chosen, chosen.valid, blank_like(finished))
    return select(_has_next(state, num_iterations), reference, finished)


def _keep(state: SearchState, num_iterations: int) -> tuple[Paths, Bool[Array, " R"], Iterations]:
    memory, pool = state.memory, state.pool
    begins = _has_next(state, num_iterations) & jnp.any(state.finished.valid)
    stays = (growing(state) | (pool.valid & pool.done)) & ~begins
    goes_along = memory.reference.valid & _goes_along(state)
    # The reference comes first, so that it is frontier slot 0.
    rows = join(join(memory.root, _reference_at(memory, _depth(state) + 1)), pool)
    marked = jnp.concatenate([begins[None], goes_along, stays])
    return rows, marked, memory.replace(iteration=memory.iteration + begins.astype(jnp.int32))


def _has_next(state: SearchState, num_iterations: int) -> Bool[Array, ""]:
    """Whether the step ends an iteration that is not the last."""
    is_last = state.memory.iteration + 1 >= num_iterations
    over = ~jnp.any(growing(state)) & (state.spent < state.budget)
    return over & ~is_last & (state.width > 1)


def _finished(state: SearchState) -> Paths:
    """The reference if it has ended, and the finished particles that were drawn."""
    memory = state.memory
    particles = drawn(state.finished, memory.copies)
    joins = memory.reference.valid & ~_goes_along(state)
    both = join(memory.reference, particles)
    return compact(both, jnp.concatenate([joins, particles.valid]), blank_like(particles))


def _goes_along(state: SearchState) -> Bool[Array, " 1"]:
    """Whether particles continue and the reference is longer than they are."""
    goes_on = jnp.any(growing(state)) & (state.spent < state.budget)
    return goes_on & (state.memory.reference.depth > _depth(state) + 1)


def _with_reference(memory: Iterations, finished: Paths) -> Iterations:
    """The memory at the beginning of an iteration, whose reference is the first finished path."""
    reference = take(finished, jnp.zeros((1,), jnp.int32))
    depths = jnp.arange(memory.trail.valid.shape[0], dtype=jnp.int32)

    def climb(slot: Int[Array, ""], depth: Int[Array, ""]) -> tuple[jax.Array, jax.Array]:
        slot = jnp.where(depth == reference.depth[0] - 1, reference.parent[0], slot)
        return memory.trail.parent[depth, slot], slot

    _, slots = lax.scan(climb, jnp.int32(0), depths, reverse=True)
    own = _take_each(memory.trail, slots)
    own = own.replace(parent=jnp.zeros_like(own.parent))
    return memory.replace(
        reference=reference.replace(parent=jnp.zeros((1,), jnp.int32)),
        trail=jax.tree.map(lambda rows, row: rows.at[:, 0].set(row), memory.trail, own),
    )


def _put(rows: Any, depth: Int[Array, ""], now: Any) -> Any:
    """Entry `depth` of a pytree with leaves [T, S, ...] replaced by `now`."""
    return jax.tree.map(lambda leaf, entry: leaf.at[depth].set(entry), rows, now)


def _take_each(rows: Any, index: Int[Array, " T"]) -> Any:
    """Entry `index[t]` of each row t of a pytree with leaves [T, S, ...]."""
    depths = jnp.arange(index.shape[0], dtype=jnp.int32)
    return jax.tree.map(lambda leaf: leaf[depths, index], rows)


def _reference_at(memory: Iterations, depth: Int[Array, ""]) -> Paths:
    """The first `depth` steps of the reference, which is longer."""
    path = jax.tree.map(lambda leaf: leaf[depth, :1], memory.trail)
    taken = jnp.arange(memory.reference.step_scores.shape[1])[None, :] < depth
    return path.replace(step_scores=jnp.where(taken, memory.reference.step_scores, 0.0))


def _unscored(paths: Paths) -> Paths:
    return paths.replace(step_scores=())
