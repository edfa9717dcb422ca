"""Requests straight into the queue of vLLM's engine, and their outputs as they come.

`vllm.LLM.generate` copies and checks the parameters of each request, renders its prompt, keeps a
detokeniser and a progress bar, and sorts what comes back. For short steps that takes longer than
the model. Here a request is made once, and of its outputs only ids, log-probabilities and pooled
values are read.

The engine's queue is not part of vLLM's public API. It is used with the versions in `_TESTED`, for
which `tests/models/test_vllm.py` compares it with `LLM.generate`; others get `LLM.generate`.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

_TESTED = ("0.32.",)
"""Beginnings of the versions of vLLM whose queue this module knows."""


@dataclass(slots=True)
class Output:
    """What came back of one request.

    Attributes:
        ids: sampled token ids.
        log_probs: their log-probabilities at temperature 1, untruncated, in nats.
        cached: number of prompt tokens that were read from the prefix cache.
        finish: why the request ended, in vLLM's words; None while it runs.
        pooled: values of a pooling request.
    """

    ids: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    cached: int = 0
    finish: str | None = None
    pooled: Any = None


class QueueClient:
    """The queue of an engine that `vllm.LLM` has started.

    Args:
        engine: a `vllm.LLM` of a tested version, see `knows`.
    """

    def __init__(self, engine: Any):
        self._core = engine.llm_engine.engine_core
        self._numbers = itertools.count()

    @staticmethod
    def knows(engine: Any) -> bool:
        """Whether the queue of this engine can be used: a tested version, and one engine."""
        from vllm import __version__  # pyright: ignore[reportMissingImports]

        parallel = engine.llm_engine.vllm_config.parallel_config
        return __version__.startswith(_TESTED) and parallel.data_parallel_size == 1

    def run(self, requests: Sequence[tuple[list[int], Any]]) -> list[Output]:
        """Run all requests to their ends.

        Args:
            requests: ids of the prompt, and `SamplingParams` for one sample or `PoolingParams`.

        Returns:
            One output per request, in order.

        Raises:
            EngineDeadError: the engine's process has ended.
        """
        from vllm import SamplingParams  # pyright: ignore[reportMissingImports]
        from vllm.v1.engine import EngineCoreRequest  # pyright: ignore[reportMissingImports]

        running: dict[str, Output] = {}
        outputs: list[Output] = []
        now = time.time()
        try:
            for ids, params in requests:
                name = f"cats-jax-{next(self._numbers)}"
                samples = isinstance(params, SamplingParams)
                outputs.append(Output())
                running[name] = outputs[-1]
                self._core.add_request(
                    EngineCoreRequest(
                        request_id=name,
                        external_req_id=name,
                        prompt_token_ids=ids,
                        mm_features=None,
                        sampling_params=params if samples else None,
                        pooling_params=None if samples else params,
                        arrival_time=now,
                        lora_request=None,
                        cache_salt=None,
                        data_parallel_rank=None,
                    )
                )
            while running:
                for each in self._core.get_output().outputs:
                    # Outputs of a call that was interrupted may still come.
                    output = running.get(each.request_id)
                    if output is not None and _add(output, each):
                        del running[each.request_id]
        except BaseException:
            self._core.abort_requests(list(running))
            raise
        return outputs


def _add(output: Output, part: Any) -> bool:
    """Add a part to an output; whether it was the last one."""
    output.ids += part.new_token_ids
    if part.new_logprobs is not None:
        output.log_probs += part.new_logprobs.logprobs[:, 0].tolist()
    if part.prefill_stats is not None:
        output.cached = part.prefill_stats.num_cached_tokens
    if part.finish_reason is None:
        return False
    output.finish = str(part.finish_reason)
    output.pooled = part.pooling_output
    return True


def generate(engine: Any, requests: Sequence[tuple[list[int], Any]]) -> list[Output]:
    """What `QueueClient.run` does for samples, by `LLM.generate`."""
    prompts = [{"prompt_token_ids": ids} for ids, _ in requests]
    found = engine.generate(prompts, [params for _, params in requests], use_tqdm=False)
    outputs = []
    for each in found:
        (completion,) = each.outputs
        ids = list(completion.token_ids)
        outputs.append(
            Output(
                ids=ids,
                log_probs=[
                    known[token].logprob
                    for known, token in zip(completion.logprobs, ids, strict=True)
                ],
                cached=each.num_cached_tokens or 0,
                finish=completion.finish_reason,
            )
        )
    return outputs


def classify(engine: Any, prompts: Sequence[Sequence[int]]) -> list[Output]:
    """What `QueueClient.run` does for scores of whole prompts, by `LLM.classify`."""
    found = engine.classify([{"prompt_token_ids": list(ids)} for ids in prompts], use_tqdm=False)
    return [
        Output(cached=each.num_cached_tokens or 0, finish="stop", pooled=each.outputs.probs)
        for each in found
    ]
