"""vLLM engines started by this process, and all that depends on vLLM's version.

Written for vLLM 0.32: another version that changes a name is met here and nowhere else. An engine
runs in a process of its own, which imports the main module again, so that a script must make it
under `if __name__ == "__main__":`.
"""

from __future__ import annotations

import os
import pathlib
from collections.abc import Sequence
from typing import Any

from cats_jax.bridges.token_engine import Classified, Sampled, SampleRequest
from cats_jax.errors import BadInputError

_BLOCK_SIZE = 32
"""Tokens of a block of the prefix cache; the CPU engine wants a multiple of 32."""

_MAX_BATCHED_TOKENS = 8192
"""Tokens of one forward pass, or the context where that is longer."""


class VLLMSampler:
    """`Sampler` on `vllm.LLM`.

    Every sample is a request of its own with its own seed, so that the first samples of a prompt do
    not depend on how many there are.

    Args:
        path: a local model folder with safetensors weights.
        context: tokens a sequence may have.
        dtype: "float32" or "bfloat16".
        gpu_memory_utilization: share of a GPU's memory for this engine; a CPU engine takes
            VLLM_CPU_KVCACHE_SPACE GiB instead (1 unless set).

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
        self._engine = _start(
            path,
            context=context,
            dtype=dtype,
            gpu_memory_utilization=gpu_memory_utilization,
            skip_tokenizer_init=True,
        )

    def sample(self, requests: Sequence[SampleRequest]) -> list[list[Sampled]]:
        """All samples of all requests, in order, in one call."""
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
                    )
                )
        outputs = iter(self._engine.generate(prompts, parameters, use_tqdm=False))
        return [[_sampled(next(outputs)) for _ in request.seeds] for request in requests]


class VLLMClassifier:
    """`Classifier` on `vllm.LLM`: a causal model read as a classifier of its next token.

    The score is the softmax over the logits of two tokens, at the last position.

    Args:
        path, context, dtype, gpu_memory_utilization: as for `VLLMSampler`.
        architecture: of the model's config.json.
        negative, positive: the tokens, by their names in the vocabulary.

    Raises:
        BadInputError: vLLM is not installed, or the engine does not start.
    """

    def __init__(
        self,
        path: str | pathlib.Path,
        *,
        context: int,
        architecture: str,
        negative: str,
        positive: str,
        dtype: str = "float32",
        gpu_memory_utilization: float = 0.45,
    ):
        self._engine = _start(
            path,
            context=context,
            dtype=dtype,
            gpu_memory_utilization=gpu_memory_utilization,
            runner="pooling",
            convert="classify",
            hf_overrides=two_token_classifier(architecture, negative, positive),
        )

    def classify(self, prompts: Sequence[tuple[int, ...]]) -> list[Classified]:
        """The score of every prompt, in order, in one call."""
        outputs = self._engine.classify(
            [{"prompt_token_ids": list(prompt)} for prompt in prompts], use_tqdm=False
        )
        return [
            Classified(float(output.outputs.probs[0]), int(output.num_cached_tokens or 0))
            for output in outputs
        ]


def two_token_classifier(architecture: str, negative: str, positive: str) -> dict[str, Any]:
    """What config.json must say for vLLM to read a causal model so; for `--hf-overrides`, too."""
    return {
        "architectures": [architecture.removesuffix("ForCausalLM") + "ForSequenceClassification"],
        "classifier_from_token": [negative, positive],
        "method": "from_2_way_softmax",
    }


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
        return LLM(
            model=str(path),
            max_model_len=context,
            max_num_batched_tokens=max(context, _MAX_BATCHED_TOKENS),
            block_size=_BLOCK_SIZE,
            enable_prefix_caching=True,
            enforce_eager=True,
            disable_log_stats=True,
            load_format="safetensors",
            trust_remote_code=False,
            **options,
        )
    except (RuntimeError, ValueError) as error:
        reason = str(error).strip().splitlines()[-1]
        raise BadInputError(
            f"vLLM does not start with {str(path)!r}: {reason} (VLLM_LOGGING_LEVEL=INFO says more)"
        ) from error


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
