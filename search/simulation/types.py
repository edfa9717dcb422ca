"""The pytrees of the simulator.

`L` levels, `T` depths, `P` PRMs, `H` temperatures, `J` values of top-p, `C` kinds of scored steps,
`Z` points of a table over -3.5..3.5, linear between them and beyond. A *margin* is the log-odds of
writing the right step at temperature 1 without truncation; a node's *ease* is its margin's
deviation from the level's mean, in standard deviations.
"""

from __future__ import annotations

import jax
from flax import struct


class SamplingTables(struct.PyTreeNode):
    """Effects of temperature, top-p and top-k; linear between grid points, constant outside.

    With sampling parameters x the log-odds of the right step are slope(x) * margin + shift(x).
    At temperature 0 (or top-k 1) the step is right iff margin + shift > 0. Mistakes follow a power
    law; with a large exponent, as at easy nodes, most mistakes are the same text.
    """

    temperature: jax.Array  # f32[H]; ascending, the first is 0
    top_p: jax.Array  # f32[J]; ascending, the last is 1
    slope: jax.Array  # f32[H, J]; > 0; 1 at temperature 1 and top-p 1; unused at temperature 0
    shift: jax.Array  # f32[H, J]; 0 at temperature 1 and top-p 1
    exponent: jax.Array  # f32[H, J]; of the wrong texts' power law at a node of margin 0
    exponent_slope: jax.Array  # f32[]; change of the exponent's logarithm per unit of margin
    exponent_scale: jax.Array  # f32[]; sd of its logarithm between nodes of equal margin
    invalid: jax.Array  # f32[2, H, J]; share of blank or cut samples after a wrong | right path
    top_k_slope: jax.Array  # f32[]; log of the slope's factor at top-k k, times k
    top_k_shift: jax.Array  # f32[]; change of the shift at top-k k, times k


class ScoreTables(struct.PyTreeNode):
    """Parameters of a PRM's scores.

    A step's *kind* is 2 c + e: c = 0 right, 1 the first wrong one, 2 consistent with a wrong path,
    3 a further mistake on it; e = 1 where the step ends the path. Its score is sigmoid(logit(y)),

        y = offset + a * (parent's y) + g * (parent node's ease) + residual(z),
        z = b * (factor of the parent node) + sqrt(1 - b^2) * (the step's own draw),

    both draws standard normal. Siblings share the parent's y, the ease and the factor.
    """

    logit: jax.Array  # f32[Z]; of the score, as a function of y
    offset: jax.Array  # f32[C]
    loading: jax.Array  # f32[C, 3]; a, b in [-1, 1], g
    residual: jax.Array  # f32[C, Z]; quantile of the residual, as a function of z
    root: jax.Array  # f32[2]; mean and sd of y at the root, the parent of a first step


class SimulatorParams(struct.PyTreeNode):
    """A world: its questions, its policy and its PRMs."""

    margin: jax.Array  # f32[L, T]; mean margin of the step at each depth of a right path
    question_scale: jax.Array  # f32[L]; sd of the margins of one level's questions
    node_scale: jax.Array  # f32[L]; sd of the margins of one question's nodes
    wrong_shift: jax.Array  # f32[L]; change of the margin after a wrong step
    alternative: jax.Array  # f32[L, T]; share of right steps that reduce another operation first
    end: jax.Array  # f32[L, 2, T]; chance that a step ends a wrong | right path
    sampling: SamplingTables
    lucky: jax.Array  # f32[L]; chance that a wrong path ends in the right answer
    popular: jax.Array  # f32[L]; chance that a wrong answer is one of the question's popular ones
    no_answer: jax.Array  # f32[L]; chance that a wrong path ends without an answer
    num_tokens: jax.Array  # f32[L, T]; mean tokens of a step, separator included
    scores: ScoreTables  # with a leading [P]; `offset` is f32[P, C, L]
    sparsity_total: jax.Array  # f32[P]; share of the PRM's parameters near zero
    sparsity_last_layer: jax.Array  # f32[P]
    max_depth: jax.Array  # i32[]; steps a search may take


class QuestionModel(struct.PyTreeNode):
    """The slice of `SimulatorParams` for one question and one PRM: the params of `expand`."""

    seed: jax.Array  # u32[]
    answer: jax.Array  # i32[]; the right answer's class
    margin: jax.Array  # f32[T]; the question's own difficulty included
    rest_margin: jax.Array  # f32[T]; log-odds that all steps behind this one are right; or inf
    rest_tokens: jax.Array  # f32[T]; mean tokens behind this step
    ease: jax.Array  # f32[]; the question's part of a node's ease
    node_scale: jax.Array  # f32[]
    node_share: jax.Array  # f32[]; the node's own part of its ease, per unit
    wrong_shift: jax.Array  # f32[]
    alternative: jax.Array  # f32[T]
    end: jax.Array  # f32[2, T]
    sampling: SamplingTables
    lucky: jax.Array  # f32[]
    popular: jax.Array  # f32[]
    no_answer: jax.Array  # f32[]
    num_tokens: jax.Array  # f32[T]
    log_exponent: jax.Array  # f32[]; at temperature 1, top-p 1 and margin 0
    scores: ScoreTables


class Latent(struct.PyTreeNode):
    """Embedding of a path: with the question, it determines the distribution of all later steps."""

    seed: jax.Array  # u32; of the node: equal for equal texts
    answer_seed: jax.Array  # u32; of the value the written steps lead to; a slip changes it
    right: jax.Array  # bool; no wrong step so far
    score: jax.Array  # f32; y of the newest step, see `ScoreTables`
