"""The pytrees of a step bank.

`Q` questions, `V` nodes of all questions together, `S` sampling settings, `P` PRMs, `D` draws. A
node is a distinct prefix of steps; its row also represents its newest step.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
from flax import struct

from ..types import Context

RIGHT_ANSWER = 0
"""The class of the right answer, in every question."""

UNREADABLE = -1.0
"""The score of a path that is too long for the PRM. A search drops such a path."""


class Bank(struct.PyTreeNode):
    """Recorded trees of questions."""

    root: jax.Array  # i32[Q]; row of the question itself
    level: jax.Array  # i32[Q]; difficulty level, 0 without one
    prompt_tokens: jax.Array  # i32[Q, P]; tokens a PRM computes before the first step
    # Node v's draws under setting s are drawn[first_draw[v S + s] : first_draw[v S + s + 1]].
    first_draw: jax.Array  # i32[V S + 1]
    drawn: jax.Array  # i32[D]; row of the child; in random order within a node and setting
    invalid: jax.Array  # bool[V]; blank or cut
    done: jax.Array  # bool[V]; the step ends an answer
    answer: jax.Array  # i32[V]; class of equal answers of a question, -1 for none
    text: jax.Array  # i32[V]; equal for equal texts under one parent
    log_prob: jax.Array  # f32[V]; of the step under the policy at temperature 1, nats
    num_tokens: jax.Array  # i32[V]; of the step, as sampled
    score: jax.Array  # f32[V, P]; raw, of the step, in [0, 1]; UNREADABLE: the PRM can't read it
    prm_tokens: jax.Array  # i32[V, P]; tokens a PRM computes for the step, its prefix known
    value: jax.Array  # f32[V]; share of right completions, in [0, 1]; policy at temperature 1
    temperature: jax.Array  # f32[S]
    top_p: jax.Array  # f32[S]
    top_k: jax.Array  # i32[S]
    context: Context  # of every PRM, leaves f32[P]; the prices are 0
    max_depth: jax.Array  # i32[]; steps of a search; the last is written to the end


class Replay(NamedTuple):
    """The params of `expand`. Equal orders give the same draws of a node in the same sequence."""

    bank: Any  # Bank
    prm: Any  # i32[]; index of the PRM
    order: Any  # u32[]; random bits that order the draws of each node
