"""Whole answers, of which a language model chooses one by comparing them.

The strategies sample N whole answers as `majority` does, so that they share its samples. They
differ in their `Comparison`. Paths without an answer are not compared, nor are answers that are all
equal. Without a readable choice the most frequent answer wins; see `cats_jax.live.comparisons`.
"""

from __future__ import annotations

import functools
from typing import Any

import jax

from ..answers import answer_majority
from ..comparison import Comparison
from ..interface import Sampling, Strategy, request
from ..types import Request, SearchState
from .fixed import samples_then_one


@functools.cache
def gen_select(
    *,
    window_size: int = 8,
    comparison: str = "best",
    judge_temperature: float = 0.6,
    judge: str = "policy",
    sampling: Sampling = Sampling(),
) -> Strategy:
    """GenSelect: the policy reads up to 8 of its answers and chooses the best one.

    Toshniwal et al.: "GenSelect: A Generative Approach to Best-of-N" (2025), arXiv:2507.17797; rule
    and defaults as in NeMo-Skills, nemo_skills/inference/model/parallel_thinking.py at 05efc4a.
    Thoughts in answers are not shown.

    What differs from that code:

    - It shows at most `window_size` answers and leaves out all others. Here more answers are
      divided into windows, whose winners are compared again.
    - If the choice can't be read, it draws an answer. Here the window's answer wins that most paths
      of the search gave.
    - It draws the order of the answers in a prompt. Here a hash of the texts gives the order, and
      equal texts are shown once.
    - It reads the last match anywhere in a reply, also with the spelling "Judgement". Here the last
      line that states a choice counts, and a reply that was cut is unreadable. Answers are numbered
      from 1.
    - It also shows answers without a final answer, and answers that all agree.

    Args:
        window_size: most answers in one prompt, >= 2.
        comparison: prompt of a comparison, a name or a .yaml file; see `Strategy.comparison`.
        judge: "policy", or "prm" for the PRM of the search, a language model as judge that writes.

    Raises:
        ValueError: an argument is out of range.
    """
    return _compared(
        "gen_select",
        Comparison(
            prompt=comparison, window=window_size, temperature=judge_temperature, judge=judge
        ),
        sampling,
    )


@functools.cache
def universal_self_consistency(
    *,
    comparison: str = "consistent",
    judge_temperature: float = 0.0,
    judge: str = "policy",
    sampling: Sampling = Sampling(),
) -> Strategy:
    """Universal self-consistency: the policy chooses the answer that agrees best with the others.

    Chen et al.: "Universal Self-Consistency for Large Language Model Generation" (2023),
    arXiv:2311.17311. All answers are in one prompt, each as often as it was sampled. Four things
    are not published. If the reply can't be read, or the answers do not fit the context, the most
    frequent answer wins. The choice is greedy. A hash of the texts gives the order of the answers.
    Texts without a final answer are left out, and equal answers are not compared.

    Args:
        comparison: prompt of the comparison, a name or a .yaml file; see `Strategy.comparison`.
        judge: "policy", or "prm" for the PRM of the search, a language model as judge that writes.

    Raises:
        ValueError: an argument is out of range.
    """
    return _compared(
        "universal_self_consistency",
        Comparison(
            prompt=comparison,
            window=None,
            repeats=True,
            temperature=judge_temperature,
            judge=judge,
        ),
        sampling,
    )


@functools.cache
def pairwise_borda(
    *,
    comparison: str = "best",
    judge_temperature: float = 0.0,
    judge: str = "policy",
    sampling: Sampling = Sampling(),
) -> Strategy:
    """Best-of-N by all pairs of answers, with the Enhanced Borda Count of LLaMA-Berry.

    Zhang et al.: "LLaMA-Berry: Pairwise Optimization for Olympiad-level Mathematical Reasoning via
    O1-like Monte Carlo Tree Search" (2024), arXiv:2410.02884, section 2.4. Answer i beats answer j
    if the judge prefers i in the prompt that shows i first. The transitive closure of this relation
    adds the answers that i beats indirectly. The answer that beats most others wins. Among answers
    that beat equally many, i is better than j if P(i > j) > P(j > i).

    This is the publication's aggregation, without its search. What differs:

    - The publication reads P from the logits of a trained pairwise model. Here P is 1 for the
      choice in a reply, 0 for the other answer, and 1/2 if the reply can't be read.
    - P(i > j) > P(j > i) need not be transitive. Among equal answers, the one that is better than
      most of them wins; then the most frequent one, and the one that finished first.
    - Algorithm 2 of the publication also fills the closure with defeats. Its text does not.

    Args:
        comparison: prompt of a comparison, a name or a .yaml file; see `Strategy.comparison`.
        judge: "policy", or "prm" for the PRM of the search, a language model as judge that writes.

    Raises:
        ValueError: an argument is out of range.
    """
    return _compared(
        "pairwise_borda",
        Comparison(prompt=comparison, rule="borda", temperature=judge_temperature, judge=judge),
        sampling,
    )


def _compared(name: str, comparison: Comparison, sampling: Sampling) -> Strategy:
    def plan(params: Any, key: jax.Array, state: SearchState) -> tuple[Request, Any]:
        return request(state, samples_then_one(state), sampling, scored=False), state.memory

    return Strategy(
        name=name,
        plan=plan,
        sampling=(sampling,),
        answer=answer_majority,
        uses_scores=comparison.judge == "prm",
        needs_step_scores=False,
        keeps_all_paths=True,
        comparison=comparison,
    )
