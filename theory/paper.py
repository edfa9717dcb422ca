"""The tables of the paper as data: numbers from the paper, not measured here.

Source: Zeen Song, Wenwen Qiang, Siyu Zhao, Changwen Zheng and Gang Hua, "Reward Model
Generalization for Compute-Aware Test-Time Reasoning", arXiv:2505.18065. Each constant names its
table by the label in the paper's source. The plots of accuracy against N are left out: their source
has no numbers. Accuracies are in percent, as printed.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

NUM_CANDIDATES = (4, 8, 16, 32, 64, 128, 256)
"""Values of N in the experiments (section 6.2)."""

POLICIES = (
    "LLaMA3.1-Instruct-8B",
    "LLaMA3.2-Instruct-1B",
    "Qwen2.5-Instruct-0.5B",
    "Qwen2.5-Instruct-3B",
    "Qwen2.5-Instruct-7B",
)
"""The policy models (section 6.2)."""


class Compared(NamedTuple):
    """One row of `tab:compare`.

    Attributes:
        method: name of the system.
        base_model: its language model.
        gsm8k, math, olympiadbench: accuracy in percent; None where the paper prints no number.
    """

    method: str
    base_model: str
    gsm8k: float | None
    math: float | None
    olympiadbench: float | None


COMPARISON = (
    Compared("STILL-1", "Llama-3-8B-Instruct", None, None, 34.3),
    Compared("LiteSearch", "Llama-3-8B-Instruct", 75.7, None, None),
    Compared("AlphaMath", "DeepSeekMath-7B-Base", 83.2, 64.0, None),
    Compared("MCTS-DPO", "Llama-3.1-8B-Instruct", 85.7, None, None),
    Compared("NuminaMath-72B-CoT", "Qwen2-72B", 90.8, 66.7, 32.6),
    Compared("LLaMA-Berry", "Llama-3.1-8B-Instruct", 96.1, 75.3, 55.1),
    Compared("MCTSr", "Llama-3-8B-Instruct", 96.7, 58.2, None),
    Compared("BoostStep", "Qwen2.5-Math-72B-Instruct", None, 85.2, 52.7),
    Compared("CATS", "Llama-3.1-8B-Instruct", 97.1, 76.9, 56.1),
    Compared("CATS", "Llama-3.2-1B-Instruct", 88.4, 61.8, 33.6),
    Compared("CATS", "Qwen2.5-Instruct-3B", 96.5, 79.3, 38.1),
    Compared("CATS", "Qwen2.5-Instruct-7B", 98.0, 89.4, 58.4),
)
"""Eight systems of others, then the paper's own four rows (appendix E).

Table `tab:compare`. The paper does not name the source of the eight systems' numbers, except for
96.7, "reported by MCTSr". The table names neither the PRM nor N of its CATS rows, nor whether
"Math" is MATH-500 or the 5000 test questions. The text names "DeepSeekMath-72B", the table "-7B".
"""


class PrmSparsity(NamedTuple):
    """One row of `tab:sparse`.

    Attributes:
        parameters: their number, printed in billions to three digits.
        total_sparsity: share of all parameters with "values smaller than 1e-4", in [0, 1]; we read
            the values as magnitudes.
        last_layer_sparsity: the same share in the output layer.
        test_error: cross-entropy of step scores on the test set of PRM800K; the unit is not
            printed, we assume nats.
    """

    prm: str
    parameters: float
    total_sparsity: float
    last_layer_sparsity: float
    test_error: float

    @property
    def nonzero_parameters(self) -> float:
        """Parameters that do not count as zero; not printed."""
        return self.parameters * (1.0 - self.total_sparsity)


SPARSITY = (
    PrmSparsity("Math-Shepherd-PRM-7B", 7.11e9, 0.0290, 0.0196, 2.78),
    PrmSparsity("RLHFlow-PRM-Mistral-8B", 8.03e9, 0.0068, 0.0060, 3.87),
    PrmSparsity("RLHFlow-PRM-DeepSeek-8B", 8.03e9, 0.0068, 0.0060, 3.87),
    PrmSparsity("Skywork-PRM-1.5B", 1.54e9, 0.0029, 0.0059, 4.43),
    PrmSparsity("Qwen2.5-Math-PRM-7B", 7.08e9, 0.0060, 0.0080, 3.47),
)
"""Sparsity and test error of five PRMs (appendix G).

Table `tab:sparse`. The rows of the two RLHFlow PRMs are equal in every column.

A constant score of .5 has a cross-entropy of .69 nats a step. At 2.78 to 4.43 nats these PRMs would
be confidently wrong, unless the unit is another one or the sum is over steps, as in eq. 2."""


class SparsityAblation(NamedTuple):
    """One PRM of `tab:abl_sparse`: average accuracy in percent, with and without the sparsity.

    Attributes:
        math500_with, aime24_with: the sparsity is part of the state.
        math500_without, aime24_without: it is not.
    """

    prm: str
    math500_with: float
    aime24_with: float
    math500_without: float
    aime24_without: float


SPARSITY_ABLATION = (
    SparsityAblation("Math-Shepherd-PRM-7B", 83.64, 20.70, 82.14, 20.40),
    SparsityAblation("RLHFlow-PRM-Mistral-8B", 84.05, 21.13, 83.26, 20.76),
    SparsityAblation("RLHFlow-PRM-DeepSeek-8B", 83.61, 22.27, 82.55, 21.14),
    SparsityAblation("Skywork-PRM-1.5B", 85.98, 23.55, 84.47, 22.45),
    SparsityAblation("Qwen2.5-Math-PRM-7B", 86.26, 24.09, 85.59, 23.48),
)
"""With and without the sparsity in the state (appendix H.1); the policy is Qwen2.5-Instruct-7B."""


class RewardAblation(NamedTuple):
    """One row of `tab:lambda`.

    Attributes:
        lambda_c: weight of the cost in the reward (eq. 9).
        lambda_m: weight of the margin.
        lambda_r: weight of the largest score.
        accuracy: percent on MATH-500, mean over PRMs and budgets.
    """

    lambda_c: float
    lambda_m: float
    lambda_r: float
    accuracy: float


REWARD_ABLATION = (
    RewardAblation(0.2, 0.5, 0.3, 84.71),
    RewardAblation(0.3, 0.3, 0.3, 84.51),
    RewardAblation(0.0, 0.5, 0.5, 84.15),
    RewardAblation(0.5, 0.0, 0.5, 84.05),
    RewardAblation(0.5, 0.5, 0.0, 84.12),
    RewardAblation(0.0, 0.0, 1.0, 83.46),
    RewardAblation(0.0, 1.0, 0.0, 83.65),
    RewardAblation(1.0, 0.0, 0.0, 82.25),
)
"""Weights of the reward (appendix H.2).

Table `tab:lambda`. This ablation and the next two name Qwen2.5-Math-PRM-7B, a PRM, "as the policy
model". The mean of `math500_with` in `SPARSITY_ABLATION` is 84.708, so the policy is evidently
Qwen2.5-Instruct-7B.

The text says that excluding the margin or the largest score costs "over 1%". This is true for the
rows with one term (1.06 to 2.46 points), but not for the two rows without one term (.66 and .59).
"""


class NetworkAblation(NamedTuple):
    """One row of `tab:actor-critic-ablation`.

    Attributes:
        actor_layers, actor_dim: layers of the actor and their hidden dimension.
        critic_layers, critic_dim: of the critic.
        accuracy: percent on MATH-500, mean over PRMs and budgets.
    """

    actor_layers: int
    actor_dim: int
    critic_layers: int
    critic_dim: int
    accuracy: float


NETWORK_ABLATION = (
    NetworkAblation(2, 128, 2, 128, 84.61),
    NetworkAblation(2, 128, 2, 256, 84.71),
    NetworkAblation(2, 256, 2, 128, 84.44),
    NetworkAblation(2, 256, 2, 256, 84.53),
    NetworkAblation(2, 512, 2, 512, 84.23),
    NetworkAblation(3, 128, 3, 128, 84.41),
    NetworkAblation(3, 128, 3, 256, 84.66),
    NetworkAblation(3, 512, 3, 512, 84.03),
)
"""Sizes of the networks (appendix H.2). Our reading of "two-layer": two hidden layers."""


class DiscountAblation(NamedTuple):
    """One column of `tab:gamma-ablation`.

    Attributes:
        discount: gamma.
        accuracy: percent on MATH-500, mean over PRMs and budgets.
    """

    discount: float
    accuracy: float


DISCOUNT_ABLATION = (
    DiscountAblation(0.5, 84.21),
    DiscountAblation(0.7, 84.33),
    DiscountAblation(0.9, 84.71),
    DiscountAblation(0.95, 84.63),
    DiscountAblation(0.99, 84.60),
    DiscountAblation(1.0, 84.56),
)
"""Discounts.

Table `tab:gamma-ablation` (appendix H.2). The paper names gamma = .9 nowhere else.
"""


HUB_IDS: Mapping[str, str] = MappingProxyType(
    {
        "LLaMA3.1-Instruct-8B": "meta-llama/Llama-3.1-8B-Instruct",
        "LLaMA3.2-Instruct-1B": "meta-llama/Llama-3.2-1B-Instruct",
        "Qwen2.5-Instruct-0.5B": "Qwen/Qwen2.5-0.5B-Instruct",
        "Qwen2.5-Instruct-3B": "Qwen/Qwen2.5-3B-Instruct",
        "Qwen2.5-Instruct-7B": "Qwen/Qwen2.5-7B-Instruct",
        "Llama-3.1-8B-Instruct": "meta-llama/Llama-3.1-8B-Instruct",
        "Llama-3.2-1B-Instruct": "meta-llama/Llama-3.2-1B-Instruct",
        "Math-Shepherd-PRM-7B": "peiyi9979/math-shepherd-mistral-7b-prm",
        "RLHFlow-PRM-Mistral-8B": "RLHFlow/Llama3.1-8B-PRM-Mistral-Data",
        "RLHFlow-PRM-DeepSeek-8B": "RLHFlow/Llama3.1-8B-PRM-Deepseek-Data",
        "Skywork-PRM-1.5B": "Skywork/Skywork-o1-Open-PRM-Qwen-2.5-1.5B",
        "Qwen2.5-Math-PRM-7B": "Qwen/Qwen2.5-Math-PRM-7B",
    }
)
"""The paper's name of a model -> its id on the Hugging Face hub.

The paper prints no ids. Its names and citations describe these releases, which a study that it
cites uses (arXiv:2502.06703). Section 6.2 and `tab:compare` spell two policies differently."""
