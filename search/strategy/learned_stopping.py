"""A learned rule that decides after each path whether to sample another.

The idea is that of Dai et al.: "Small RL Controller, Large Language Model: RL-Guided Adaptive
Sampling for Test-Time Scaling" (2026), arXiv:2606.03102. Adaptive sampling is a Markov decision
process. Reinforcement learning trains the controller to balance right answers against the cost of
samples, from statistics of the final answers. Only the abstract was read, so these parts are ours:

- The state is `stopping_features.STOPPING_FEATURES`. An option adds the scores of a PRM.
- The two actions are to stop and to sample one more path. The paper's controller acquires several
  samples in a round, and its reward also has the number of rounds.
- The reward is 1 for a right answer minus the price of the samples, see `learners.stopping`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
from jaxtyping import Array, Bool, Float

from ..aggregations import Aggregation, aggregation, path_scores
from ..answers import answer_rule
from ..interface import Sampling, Strategy
from ..types import Paths, SearchState
from .path_by_path import path_by_path
from .stopping_features import Answers, stopping_features

Stopper = Callable[[Any, Float[Array, " F"]], Bool[Array, ""]]
"""`(params, features) -> stop`, whether the search stops."""


@functools.cache
def learned_stopping(
    stopper: Stopper,
    *,
    uses_scores: bool = False,
    path_score: str = "min",
    sampling: Sampling = Sampling(),
) -> Strategy:
    """Whole paths, one after the other, until `stopper` stops the search; at most N.

    The price in the search's context is that of 100 paths, in units of a right answer.

    Args:
        stopper: the decision; its params are those of the search.
        uses_scores: whether the PRM scores the paths. Scores are then features and weights of the
            votes. Otherwise the PRM is not called, and the most frequent answer wins.
        path_score: name of the aggregation of step scores.

    Raises:
        ValueError: a name is unknown.
    """
    aggregated = aggregation(path_score)

    def decides(params: Any, state: SearchState) -> Bool[Array, ""]:
        features = stopping_features(
            answers_of(state.finished, aggregated),
            state.memory.begun - 1,
            state.num_candidates,
            state.context.price,
            uses_scores=uses_scores,
        )
        return stopper(params, features)

    return path_by_path(
        name="learned_stopping",
        decides=decides,
        samplings=(sampling, sampling),
        answer=answer_rule("weighted" if uses_scores else "majority"),
        aggregated=aggregated,
        uses_scores=uses_scores,
        needs_step_scores=path_score != "last",
    )


def answers_of(finished: Paths, aggregated: Aggregation) -> Answers:
    """The input of a stopper from finished paths."""
    return Answers(finished.valid, finished.answer, path_scores(finished, aggregated))


STOP, MORE = 0, 1
"""Actions of a stopper."""


@functools.cache
def network_stopper(apply: Callable[[Any, jax.Array], jax.Array]) -> Stopper:
    """The stopper of a network with a logit for each action; it takes the likelier one.

    Args:
        apply: `(params, features [N, F]) -> logits [N, 2]`, see `learners.make_actor`.
    """

    def stopper(params: Any, features: Float[Array, " F"]) -> Bool[Array, ""]:
        logits = apply(params, features[None, :])[0]
        return logits[STOP] >= logits[MORE]

    return stopper
