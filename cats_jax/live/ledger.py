"""The cost of a question in tokens, calls, FLOPs and seconds, the same for every strategy."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(slots=True)
class Ledger:
    """Costs of one question, dropped candidates included.

    On a serving engine a prefix that another question computed counts as cached.

    Attributes:
        candidates: sampled reasoning steps, invalid ones included.
        prompt_computed: policy tokens of prefixes and fed-back samples that went through the
            model.
        prompt_cached: policy tokens of prefixes reused from the cache.
        generated: policy tokens sampled.
        prm_computed: PRM tokens that went through the model.
        prm_cached: PRM tokens reused from the cache.
        prm_refused: candidates that are invalid because the PRM can't read a path that long.
        comparisons: prompts in which finished answers were compared, see `live.comparisons`. Their
            tokens, calls and seconds count as the policy's. They count as the PRM's if the PRM
            compares or if they give the scores of a search.
        comparisons_unread: comparisons without a choice that could be read.
        unsolved: programs whose solver reached its limit, see `search.types.Unsolved`; the search
            continued with the best solution found.
        policy_calls: policy calls that carried a request of this question.
        prm_calls: PRM calls that carried a path of this question.
        flops: estimate, 2 * parameters * tokens computed, policy and PRM together.
        prm_flops: the PRM's part of `flops`.
        policy_cost, prm_cost: what chat endpoints charge for the tokens, in the unit of their
            prices; 0 for other models and without prices.
        policy_seconds: time in the policy's forward passes and in sampling token ids. The time of a
            shared call is divided as the bridge reports it, or by tokens (`shared_seconds`).
        prm_seconds: time in the PRM's forward passes, divided in the same way.
        core_seconds: the question's equal share of the time of plan and commit, without compiling.
        rest_seconds: its equal share of all other time (tokenising, cache handling, bookkeeping).
    """

    candidates: int = 0
    prompt_computed: int = 0
    prompt_cached: int = 0
    generated: int = 0
    prm_computed: int = 0
    prm_cached: int = 0
    prm_refused: int = 0
    comparisons: int = 0
    comparisons_unread: int = 0
    unsolved: int = 0
    policy_calls: int = 0
    prm_calls: int = 0
    flops: float = 0.0
    prm_flops: float = 0.0
    policy_cost: float = 0.0
    prm_cost: float = 0.0
    policy_seconds: float = 0.0
    prm_seconds: float = 0.0
    core_seconds: float = 0.0
    rest_seconds: float = 0.0

    @property
    def tokens(self) -> int:
        """Tokens sampled by the policy plus tokens computed by the PRM: the x-axis of plots.

        `prompt_computed` is left out because it depends on the bridge, which may compute equal
        samples as one row.
        """
        return self.generated + self.prm_computed

    @property
    def seconds(self) -> float:
        """Total seconds: policy, PRM, core and rest."""
        return self.policy_seconds + self.prm_seconds + self.core_seconds + self.rest_seconds

    def as_dict(self) -> dict[str, int | float]:
        """All fields by name, with `tokens` added."""
        return {**asdict(self), "tokens": self.tokens}
