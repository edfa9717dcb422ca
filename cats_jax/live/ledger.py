"""What a question cost: one ledger for every strategy, the x-axis of every plot."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(slots=True)
class Ledger:
    """Costs of one question, dropped candidates included.

    Attributes:
        candidates: sampled reasoning steps, invalid ones included.
        prompt_computed: policy tokens of prefixes and fed-back samples that went through the
            model.
        prompt_cached: policy tokens of prefixes reused from the cache.
        generated: policy tokens sampled.
        prm_computed: PRM tokens that went through the model.
        prm_cached: PRM tokens reused from the cache.
        policy_calls: engine calls that carried a request of this question.
        prm_calls: the same for the PRM.
        flops: estimate, 2 * parameters * tokens computed, policy and PRM together.
        prm_flops: the PRM's part of them.
        policy_seconds: forward passes and sampling of token ids; of a shared call, the share of
            this question's tokens.
        prm_seconds: forward passes of the PRM, shared alike.
        core_seconds: plan and commit, shared equally among the questions of the batch.
        rest_seconds: everything else: tokenising, cache handling, splitting, bookkeeping.
    """

    candidates: int = 0
    prompt_computed: int = 0
    prompt_cached: int = 0
    generated: int = 0
    prm_computed: int = 0
    prm_cached: int = 0
    policy_calls: int = 0
    prm_calls: int = 0
    flops: float = 0.0
    prm_flops: float = 0.0
    policy_seconds: float = 0.0
    prm_seconds: float = 0.0
    core_seconds: float = 0.0
    rest_seconds: float = 0.0

    @property
    def tokens(self) -> int:
        """Tokens sampled by the policy plus tokens computed by the PRM: the x-axis of plots.

        A bridge may run samples that still share all their tokens as one row, so that
        `prompt_computed` says as much about the bridge as about the strategy; what was sampled
        says what a strategy asked for.
        """
        return self.generated + self.prm_computed

    @property
    def seconds(self) -> float:
        """All seconds."""
        return self.policy_seconds + self.prm_seconds + self.core_seconds + self.rest_seconds

    def as_dict(self) -> dict[str, int | float]:
        """All fields by name, and `tokens`."""
        return {**asdict(self), "tokens": self.tokens}
