"""vLLM engines started by this process.

Only this module and `vllm_head.py`, which vLLM itself loads, depend on vLLM's version; both are
written for vLLM 0.32. An engine runs in a process of its own, which imports the main module again,
so a script must make the engine under `if __name__ == "__main__":`.
"""

from __future__ import annotations

import contextlib
import multiprocessing.connection
import os
import pathlib
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from ...errors import BadInputError, RunStoppedError
from ..prm.format import Head, TokenPair
from . import vllm_head
from .token_engine import Classified, Sampled, SampleRequest

_BLOCK_SIZE = 32
"""Tokens in a block of the prefix cache; the CPU engine needs a multiple of 32."""

_MAX_BATCHED_TOKENS = 8192
"""Largest number of tokens in a forward pass, unless the context is longer."""


class VLLMSampler:
    """`Sampler` on `vllm.LLM`.

    Every sample is a request of its own with its own seed, so the first samples of a prompt do not
    depend on the number of samples.

    Args:
        path: a local model folder with safetensors weights.
        context: largest number of tokens in a sequence.
        dtype: "float32" or "bfloat16".
        gpu_memory_utilization: share of a GPU's memory for this engine; a CPU engine takes
            VLLM_CPU_KVCACHE_SPACE GiB instead (1 unless set).

    Attributes:
        engine: the `vllm.LLM`.

    Raises:
        BadInputError: vLLM is not installed, or the engine does not start.
    """

    def __init__(
        self,
        path: str | pathlib.Path,
        *,
        context: int,
        dtype: str = "float32",
        gpu_memory_utilization: float = 0.45,
    ):
        self.engine = _start(
            path,
            context=context,
            dtype=dtype,
            gpu_memory_utilization=gpu_memory_utilization,
            skip_tokenizer_init=True,
        )

    def sample(self, requests: Sequence[SampleRequest]) -> list[list[Sampled]]:
        """All samples of all requests, in order, in one call."""
        with _stops_if_it_dies():
            outputs = iter(self.engine.generate(*sampling_inputs(requests), use_tqdm=False))
        return [[_sampled(next(outputs)) for _ in request.seeds] for request in requests]


def sampling_inputs(requests: Sequence[SampleRequest]) -> tuple[list[Any], list[Any]]:
    """Prompts and sampling parameters for `vllm.LLM.generate`, one of each per sample."""
    from vllm import SamplingParams  # pyright: ignore[reportMissingImports]

    prompts, parameters = [], []
    for request in requests:
        for seed in request.seeds:
            prompts.append({"prompt_token_ids": list(request.prompt)})
            parameters.append(
                SamplingParams(
                    temperature=request.temperature,
                    top_p=request.top_p,
                    top_k=request.top_k,
                    seed=None if request.temperature == 0 else seed >> 1,  # theirs are signed
                    max_tokens=request.max_tokens,
                    stop_token_ids=list(request.stop_ids),
                    ignore_eos=True,  # the stops are all there
                    detokenize=False,
                    logprobs=0,
                    skip_clone=True,  # nobody else has them
                )
            )
    return prompts, parameters


class VLLMClassifier:
    """`Classifier` on `vllm.LLM`, which reads the score at the last position.

    Args:
        path, context, dtype, gpu_memory_utilization: as for `VLLMSampler`.
        overrides: values that replace those of config.json, see `classifier_overrides`.

    Attributes:
        engine: the `vllm.LLM`.

    Raises:
        BadInputError: vLLM is not installed, or the engine does not start.
    """

    def __init__(
        self,
        path: str | pathlib.Path,
        *,
        context: int,
        overrides: dict[str, Any],
        dtype: str = "float32",
        gpu_memory_utilization: float = 0.45,
    ):
        self.engine = _start(
            path,
            context=context,
            dtype=dtype,
            gpu_memory_utilization=gpu_memory_utilization,
            runner="pooling",
            convert="classify",
            hf_overrides=overrides,
        )

    def classify(self, prompts: Sequence[tuple[int, ...]]) -> list[Classified]:
        """The score of every prompt, in order, in one call."""
        with _stops_if_it_dies():
            outputs = self.engine.classify(
                [{"prompt_token_ids": list(prompt)} for prompt in prompts], use_tqdm=False
            )
        return [
            Classified(float(output.outputs.probs[0]), int(output.num_cached_tokens or 0))
            for output in outputs
        ]


def classifier_overrides(model_type: str, read_out: TokenPair | Head) -> dict[str, Any]:
    """Values for config.json that make vLLM compute a PRM's score, also for `--hf-overrides`.

    Args:
        model_type: `model_type` of config.json.
        read_out: read-out of the PRM. vLLM supports two tokens by itself; a head needs
            `vllm_head.py`, which the process that runs vLLM must be able to import.

    Raises:
        BadInputError: transformers has no causal language model of this type.
    """
    causal = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(model_type)
    if not isinstance(causal, str):
        raise BadInputError(
            f"model type {model_type!r} has no causal language model: use the Hugging Face back end"
        )
    backbone = causal.removesuffix("ForCausalLM")
    if isinstance(read_out, TokenPair):
        return {
            "architectures": [f"{backbone}ForSequenceClassification"],
            "classifier_from_token": [read_out.negative, read_out.positive],
            "method": "from_2_way_softmax",
        }
    return {
        "architectures": [f"{vllm_head.PREFIX}{backbone}{vllm_head.SUFFIX}"],
        vllm_head.HEAD_KEY: {"layers": list(read_out.layers), "label": read_out.label},
    }


@contextlib.contextmanager
def _stops_if_it_dies() -> Iterator[None]:
    """Turns vLLM's error for a dead engine process into RunStoppedError."""
    from vllm.v1.engine.exceptions import EngineDeadError  # pyright: ignore[reportMissingImports]

    try:
        yield
    except EngineDeadError as error:
        raise RunStoppedError(
            "vLLM's engine has died: see its own messages and start again, nothing is lost"
        ) from error


def _start(path: str | pathlib.Path, *, context: int, **options: Any) -> Any:
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    try:
        from vllm import LLM  # pyright: ignore[reportMissingImports]
        from vllm.platforms import current_platform  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise BadInputError(
            f"vLLM can't be imported ({error}): install the extra 'vllm', or on a machine without "
            "a GPU `make vllm-env`"
        ) from error
    if current_platform.is_cpu():
        # A prompt must not be cut: the CPU's random generator can't be turned back when a piece of
        # a request with a seed is through (vLLM 0.32: "CPU Generator does not use offset").
        options |= {"enable_chunked_prefill": False}
    try:
        engine = LLM(
            model=str(path),
            max_model_len=context,
            max_num_batched_tokens=max(context, _MAX_BATCHED_TOKENS),
            block_size=_BLOCK_SIZE,
            enable_prefix_caching=True,
            enforce_eager=True,
            disable_log_stats=True,
            use_tqdm_on_load=False,
            load_format="safetensors",
            trust_remote_code=False,
            **options,
        )
    except (RuntimeError, ValueError) as error:
        reason = str(error).strip().splitlines()[-1]
        raise BadInputError(
            f"vLLM does not start with {str(path)!r}: {reason}: its own messages, with "
            f"VLLM_LOGGING_LEVEL=INFO more of them, say why; it was asked for {context} tokens of "
            "context, config.json's max_position_embeddings, and too little memory for that wants "
            "fewer, or a larger gpu_memory_utilization"
        ) from error
    _wake_when_it_dies(engine)
    return engine


def _wake_when_it_dies(engine: Any) -> None:
    """Makes calls in flight fail when the engine's process dies; vLLM 0.32 would wait for ever."""
    from vllm.v1.engine.exceptions import EngineDeadError  # pyright: ignore[reportMissingImports]

    core = engine.llm_engine.engine_core
    manager = getattr(getattr(core, "resources", None), "engine_manager", None)
    if manager is None:
        return  # no process of its own
    # Nothing that keeps the engine alive: it ends when nobody holds it any more.
    processes, replies = manager.sentinels(), core.outputs_queue

    def watch() -> None:
        multiprocessing.connection.wait(processes)
        replies.put_nowait(EngineDeadError())

    threading.Thread(target=watch, daemon=True, name="engine-watch").start()


def _sampled(output: Any) -> Sampled:
    (completion,) = output.outputs
    if completion.finish_reason not in ("stop", "length"):
        raise RuntimeError(f"vLLM ended a sample with {completion.finish_reason!r}")
    return Sampled(
        ids=tuple(completion.token_ids),
        stopped=completion.finish_reason == "stop",
        log_prob=float(completion.cumulative_logprob),
        cached=int(output.num_cached_tokens or 0),
    )
