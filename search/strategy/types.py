"""The memories of strategies other than CATS."""

from __future__ import annotations

import jax
from flax import struct

from ..types import Paths


class StepTree(struct.PyTreeNode):
    """The memory of Monte-Carlo tree searches over steps: all nodes so far; node 0 is the root."""

    paths: Paths  # [M]; `parent` is the node's parent in this tree
    visits: jax.Array  # f32[M]; simulations of the node and of all nodes below it
    value_sum: jax.Array  # f32[M]; their values or rewards
    is_leaf: jax.Array  # bool[M]; without children and not done
    node_of_slot: jax.Array  # i32[S]; tree node of each frontier slot


class MctsTree(StepTree):
    """The memory of `mcts`."""

    completes: jax.Array  # bool[]; the tree stops growing, its best leaves are completed


class SimulatedTree(StepTree):
    """The memory of `global_mcts`, whose slots expand or simulate a node."""

    simulates: jax.Array  # bool[]; the frontier holds simulations, otherwise the chosen leaf


class OpenNodes(struct.PyTreeNode):
    """The memory of LiteSearch: all nodes so far, and its greedy path; node 0 is the root."""

    paths: Paths  # [M]; in the order in which they were sampled, without the greedy path
    is_open: jax.Array  # bool[M]; has no children yet and is not done
    greedy_grows: jax.Array  # bool[]; the frontier holds the greedy path
    greedy_value: jax.Array  # f32[]; path score of the greedy path once it has ended, 0 without
    num_grown: jax.Array  # i32[]; nodes that were given children


class AnswerStatistics(struct.PyTreeNode):
    """Number, sum and sum of squares of the scores that a posterior has seen."""

    own: jax.Array  # f32[M, 3]; of each node and all rewrites below it
    wider: jax.Array  # f32[M, 3]; of each node's children, without those below them
    deeper: jax.Array  # f32[M, 3]; of all nodes below each node's children


class SampledAnswers(struct.PyTreeNode):
    """The memory of AB-MCTS-A: all answers so far; node 0 is the question."""

    paths: Paths  # [M]; `parent` is the node's parent in this tree
    seen: AnswerStatistics
    key: jax.Array  # u32[...]; data of the key of the next draws
    node_of_slot: jax.Array  # i32[S]; tree node of each frontier slot
    count_of_slot: jax.Array  # i32[S]; children that each frontier slot gets


class RefinedAnswers(struct.PyTreeNode):
    """The memory of MCTSr: all answers so far; node 0 is the dummy answer."""

    paths: Paths  # [M]; `parent` is the node's parent in this tree, or itself without one
    visits: jax.Array  # i32[M]; rewards of each node
    node_of_slot: jax.Array  # i32[S]; tree node of each frontier slot


class RankedAnswers(struct.PyTreeNode):
    """The memory of LLaMA-Berry: all answers so far; node 0 is the question."""

    paths: Paths  # [M]; `parent` is the node's parent in this tree, or itself without one
    quality: jax.Array  # f32[M]; Q of each node
    visits: jax.Array  # i32[M]; visits of each node
    node_of_slot: jax.Array  # i32[S]; tree node of each frontier slot


class Waiting(struct.PyTreeNode):
    """The memory of look-ahead search: the candidates, while the frontier rolls them out."""

    candidates: Paths  # [N]; newest step scores are those of the rollouts that have ended
    row_of_slot: jax.Array  # i32[S]; candidate that each frontier slot rolls out, 0 without one
    steps_left: jax.Array  # i32[]; of the rollouts; 0: the frontier holds the beam, nothing waits


class PathCount(struct.PyTreeNode):
    """The memory of methods that write one path after the other."""

    root: Paths  # [1]; the question
    begun: jax.Array  # i32[]; paths begun so far, the one in progress included


class Resampled(struct.PyTreeNode):
    """The memory of particle filtering: the draws of the newest resampling."""

    copies: jax.Array  # i32[S]; of each finished path
    # f32[N + S]; Gumbel, of the step's children and of the finished paths; f32[0] if none is needed
    noise: jax.Array


class WindowCount(struct.PyTreeNode):
    """The memory of methods that write whole paths window by window."""

    root: Paths  # [1]; the question
    begun: jax.Array  # i32[]; paths begun so far, those of the window in progress included
    before: jax.Array  # i32[]; finished paths of earlier windows


class Rejection(struct.PyTreeNode):
    """The memory of speculative rejection."""

    length: jax.Array  # i32[S]; tokens of each frontier slot's path
    ranked: jax.Array  # bool[S]; finished paths that still take part in rejections


class Warmup(struct.PyTreeNode):
    """The memory of DeepConf online."""

    root: Paths  # [1]; the question
    bar: jax.Array  # f32[]; least confidence of a path that is good enough; 0 in the warm-up
    is_over: jax.Array  # bool[]; the warm-up has ended
    length: jax.Array  # i32[S]; tokens of each frontier slot's path


class Halving(struct.PyTreeNode):
    """The memory of sequential halving."""

    is_arm: jax.Array  # bool[S]; finished paths that no round has dropped
    steps_left: jax.Array  # i32[]; of the round


class Iterations(struct.PyTreeNode):
    """The memory of particle Gibbs: the newest resampling, and the reference particle.

    The reference grows beside the free particles, from its own recorded steps: its path is frontier
    slot 0 while it is unfinished, and row 0 of the finished paths after that.
    """

    copies: jax.Array  # i32[S]; of each finished path
    uniform: jax.Array  # f32[]; draws the next reference
    iteration: jax.Array  # i32[]; iterations that have ended
    reference: Paths  # [1]; all its steps; not valid in the first iteration
    root: Paths  # [1]; the question
    # [T, S]; the frontier at each depth of this iteration, without step scores. Slot 0 holds the
    # reference's path at every depth that it reaches and the search has not overwritten.
    trail: Paths


class Ancestors(struct.PyTreeNode):
    """The memory of ETS."""

    slot: jax.Array  # i32[S, T]; frontier slot of the ancestor at each depth; -1 from the own depth
    is_cut: jax.Array  # bool[]; the newest program reached the limit of its solver
