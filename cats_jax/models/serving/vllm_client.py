"""Requests straight into the queue of vLLM's engine, and their outputs as they come.

`vllm.LLM.generate` copies and checks the parameters of each request, renders its prompt, keeps a
detokeniser and a progress bar, and sorts the outputs. For short steps that takes longer than the
model. Here a request is made once, and only ids, log-probabilities and pooled values are read.

The engine's queue is not part of vLLM's public API. It is used with the versions in `TESTED`, for
which `tests/models/test_vllm.py` compares it with `LLM.generate`; others get `LLM.generate`.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ...protocols import TOP_TOKENS
from ..prompts.step_text import StepEnd
from .vllm_version import TESTED


@dataclass(slots=True)
class Output:
    """What came back of one request.

    Attributes:
        ids: sampled token ids.
        log_probs: their log-probabilities at temperature 1, untruncated, in nats; none if the
            request did not ask for them.
        certainties: minus the mean log-probability of the `TOP_TOKENS` most likely tokens at each
            place; none if the request did not ask for it.
        cached: number of prompt tokens that were read from the prefix cache.
        finish: why the request ended, in vLLM's words; None while it runs.
        pooled: values of a pooling request.
        rule: the rule by which a sample ends before its engine ends it, if there is one.
    """

    ids: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    certainties: list[float] = field(default_factory=list)
    cached: int = 0
    finish: str | None = None
    pooled: Any = None
    rule: StepEnd | None = None


class _Call:
    """Requests of one call, and what wakes the thread that waits for them."""

    def __init__(self, rules: Sequence[StepEnd | None]):
        self.outputs = [Output(rule=rule) for rule in rules]
        self.running: dict[str, Output] = {}
        self.awake = threading.Event()
        self.errors: list[Exception] = []


class QueueClient:
    """The queue of an engine that `vllm.LLM` has started; several threads may call it at a time.

    One of the waiting threads takes the outputs of all calls from the engine, until its own call is
    done. `engine` is of a tested version, see `knows`.
    """

    def __init__(self, engine: Any):
        self._core = engine.llm_engine.engine_core
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._calls: dict[str, _Call] = {}  # by the names of running requests
        self._leader: _Call | None = None
        self._dead = False

    @staticmethod
    def knows(engine: Any) -> bool:
        """Whether the queue of this engine can be used: a tested version, and one engine."""
        from vllm import __version__  # pyright: ignore[reportMissingImports]

        if not __version__.startswith(TESTED):
            return False
        parallel = engine.llm_engine.vllm_config.parallel_config
        return parallel.data_parallel_size == 1

    @property
    def concurrent(self) -> bool:
        """Whether the engine runs in a process of its own, and takes requests while it works."""
        return hasattr(self._core, "outputs_queue")

    def run(
        self,
        requests: Sequence[tuple[list[int], Any]],
        rules: Sequence[StepEnd | None] | None = None,
    ) -> list[Output]:
        """Run all requests to their ends; one output per request, in order.

        Args:
            requests: ids of the prompt, and `SamplingParams` for one sample or `PoolingParams`.
            rules: one per request, which ends it at the first token that closes a step; or None.

        Raises:
            EngineDeadError: the engine's process has ended.
        """
        if not requests:
            return []
        call = _Call(rules or [None] * len(requests))
        try:
            self._send(call, requests)
            while call.running:
                if self._leader is call and not call.errors:
                    self._take_outputs(call)
                else:
                    call.awake.wait()
                    call.awake.clear()
                if call.errors:
                    raise call.errors.pop()  # no variable: its frames would hold the engine
        except BaseException:
            self._take_back(call)
            raise
        finally:
            self._hand_over(call)
        return call.outputs

    def _send(self, call: _Call, requests: Sequence[tuple[list[int], Any]]) -> None:
        from vllm import SamplingParams  # pyright: ignore[reportMissingImports]
        from vllm.v1.engine import EngineCoreRequest  # pyright: ignore[reportMissingImports]
        from vllm.v1.engine.exceptions import (  # pyright: ignore[reportMissingImports]
            EngineDeadError,
        )

        now = time.time()
        with self._lock:
            if self._dead:
                raise EngineDeadError  # the engine reports it once, to another thread
            for (ids, params), output in zip(requests, call.outputs, strict=True):
                name = f"cats-jax-{next(self._numbers)}"
                samples = isinstance(params, SamplingParams)
                call.running[name] = output
                self._calls[name] = call
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
            if self._leader is None:
                self._leader = call

    def _take_outputs(self, call: _Call) -> None:
        """Take outputs from the engine until those of this call are complete."""
        try:
            while call.running:
                outputs = self._core.get_output().outputs
                with self._lock:
                    closed = []
                    for each in outputs:
                        # Outputs of samples that have been ended here may still come.
                        found = self._calls.get(each.request_id)
                        if found is not None and _add(found.running[each.request_id], each):
                            del found.running[each.request_id], self._calls[each.request_id]
                            if each.finish_reason is None:
                                closed.append(each.request_id)
                            if not found.running:
                                found.awake.set()
                    if closed:
                        self._core.abort_requests(closed)
        except Exception as error:
            # Any error is passed on: all other threads wait for this one.
            with self._lock:
                self._dead = True
                for other in set(self._calls.values()) - {call}:
                    other.errors.append(error)
                    other.awake.set()
            raise

    def _take_back(self, call: _Call) -> None:
        with self._lock:
            names = list(call.running)
            call.running.clear()
            for name in names:
                self._calls.pop(name, None)
            if not self._dead:
                self._core.abort_requests(names)

    def _hand_over(self, call: _Call) -> None:
        """Make another call take the outputs, if this one did."""
        with self._lock:
            if self._leader is call:
                self._leader = next(iter(self._calls.values()), None)
                if self._leader is not None:
                    self._leader.awake.set()


def _add(output: Output, part: Any) -> bool:
    """Add a part to an output; returns whether that completes it, by the part or by its rule."""
    known = len(output.ids)
    output.ids += part.new_token_ids
    if part.new_logprobs is not None:
        # The first column is the sampled token; the most likely ones follow.
        known_ones = part.new_logprobs.logprobs
        output.log_probs += known_ones[:, 0].tolist()
        if known_ones.shape[1] > 1:
            output.certainties += (-known_ones[:, 1 : 1 + TOP_TOKENS].mean(1)).tolist()
    if part.prefill_stats is not None:
        output.cached = part.prefill_stats.num_cached_tokens
    closed = None if output.rule is None else output.rule.place(output.ids, known)
    if closed is not None:
        del output.ids[closed:], output.log_probs[closed:], output.certainties[closed:]
        output.finish = "stop"
        return True
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
        known = completion.logprobs  # None if the request did not ask for them
        outputs.append(
            Output(
                ids=ids,
                log_probs=[]
                if known is None
                else [at[token].logprob for at, token in zip(known, ids, strict=True)],
                certainties=[] if known is None else [_top(at) for at in known if len(at) > 1],
                cached=each.num_cached_tokens or 0,
                finish=completion.finish_reason,
            )
        )
    return outputs


def _top(at: Any) -> float:
    """Certainty of one token: vLLM lists the most likely tokens, and the sampled one."""
    found = sorted((each.logprob for each in at.values()), reverse=True)[:TOP_TOKENS]
    return -sum(found) / len(found)


def classify(engine: Any, prompts: Sequence[Sequence[int]]) -> list[Output]:
    """What `QueueClient.run` does for scores of whole prompts, by `LLM.classify`."""
    found = engine.classify([{"prompt_token_ids": list(ids)} for ids in prompts], use_tqdm=False)
    return [
        Output(cached=each.num_cached_tokens or 0, finish="stop", pooled=each.outputs.probs)
        for each in found
    ]
