"""vLLM engines started by this process.

Only the modules `vllm_*.py` depend on vLLM's version; they are written for vLLM 0.32. An engine
runs in a process of its own, which imports the main module again, so a script must make the engine
under `if __name__ == "__main__":`.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import itertools
import multiprocessing.connection
import os
import pathlib
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pydantic
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from ...errors import BadInputError, RunStoppedError, known_names
from ...protocols import TOP_TOKENS, TokenUsage
from ...specs.models import ModelSpec, PolicySpec
from ..backend import choose_backend, gpu_numbers
from ..prm.format import Head, TokenPair
from ..prompts.step_text import StepEnd
from ..threads import default_threads
from . import vllm_head
from .token_engine import Classified, ClassifiedSteps, SampleRequest, TokenSample, by_beginnings
from .vllm_client import Output, QueueClient, classify, generate
from .vllm_version import dead_engine_error, of_this_release, takes

_CPU_BLOCK_SIZE = 32
"""Tokens in a block of the prefix cache; the CPU engine needs a multiple of 32."""

_CPU_BATCHED_TOKENS = 8192
"""Largest number of tokens in a forward pass on a CPU, unless the context is longer."""

_IN_THE_ENGINE_S_PROCESS = "vllm.v1.executor.uniproc_executor.UniProcExecutor"
"""The executor that carries the model out in the engine's process, as vLLM does on one GPU."""

_BIND = "VLLM_CPU_OMP_THREADS_BIND"
"""Environment variable of vLLM: the cores of a CPU engine's threads, "auto" or "nobind"."""

_DEFAULTS = ModelSpec("", backend="vllm")

_CONTEXTS: list[Any] = []
"""The ZeroMQ contexts of all engines, which are kept until the process ends.

Garbage collection would terminate a context, and that may wait for ever: vLLM 0.32 closes a socket
of a dead engine while another thread reads from it.
"""


class VLLMSampler:
    """`Sampler` on `vllm.LLM`.

    Every sample has its own seed. With `seed_per` "request", sample i has the seed s + i, where s
    is that of the first sample, as in a request to vLLM for n samples. Either way the first samples
    of a prompt do not depend on the number of samples.

    Args:
        path: a local model folder with safetensors weights.
        context: largest number of tokens in a sequence.
        settings: device, dtype and the settings of vLLM. An engine on a CPU takes
            VLLM_CPU_KVCACHE_SPACE GiB (1 unless set) in place of a share of a GPU.

    Attributes:
        reports_top: whether it reports the certainties of tokens, see `SampleRequest`.

    Raises:
        BadInputError: vLLM is not installed, or the engine does not start.
    """

    def __init__(
        self,
        path: str | pathlib.Path,
        *,
        context: int,
        settings: ModelSpec = _DEFAULTS,
    ):
        spec = settings if isinstance(settings, PolicySpec) else PolicySpec()
        self._together = spec.seed_per == "request"
        self._log_probs = spec.log_probs is not False
        self.reports_top = self._log_probs
        self.engine = _start(path, context, settings, skip_tokenizer_init=True)
        with of_this_release():
            list(single_samples(SampleRequest((0,), (0,), 1.0, 1.0, 0, 1, (1,))))
        self._queue, self.concurrent = _queue(self.engine)

    def sample(self, requests: Sequence[SampleRequest]) -> list[list[TokenSample]]:
        """All samples of all requests, in order, in one call."""
        settings = {"together": self._together, "log_probs": self._log_probs}
        settings["early"] = self._queue is None
        asked = [one for request in requests for one in single_samples(request, **settings)]
        with _stops_if_it_dies():
            if self._queue is not None:
                outputs = self._queue.run(asked, self._rules(requests))
            else:
                outputs = generate(self.engine, asked)
        found = iter(outputs)
        answers = []
        for request in requests:
            own = itertools.islice(found, self._number(request))
            samples = [_sampled(each, self._log_probs, request.certain) for each in own]
            if len(samples) < len(request.seeds):
                samples = samples[0].copies(request.prompt, len(request.seeds))
            answers.append(samples)
        return answers

    def _rules(self, requests: Sequence[SampleRequest]) -> list[StepEnd | None]:
        """The rule for each sample's end, None where the engine's stop ids tell it."""
        return [
            None if request.step_end is None or not request.step_end.is_split else request.step_end
            for request in requests
            for _ in range(self._number(request))
        ]

    def _number(self, request: SampleRequest) -> int:
        """Number of samples that the engine is asked for."""
        # One greedy sample stands for all: they are the same.
        return 1 if self._together and request.temperature == 0 else len(request.seeds)


def single_samples(
    request: SampleRequest,
    *,
    together: bool = False,
    log_probs: bool = True,
    early: bool = False,
) -> Iterator[tuple[list[int], Any]]:
    """Prompt and `vllm.SamplingParams` of each sample.

    Args:
        request: what to sample.
        together: whether the seeds follow from the first one, as those of one request to vLLM with
            n samples; a greedy request is then one sample.
        log_probs: whether the engine reports the log-probability of each token.
        early: whether samples stop at every token at which a step may close, for an engine whose
            output is not read while it samples.
    """
    from vllm import SamplingParams  # pyright: ignore[reportMissingImports]

    closers = request.step_end.text.closers if early and request.step_end is not None else ()
    params = SamplingParams(
        temperature=request.temperature,
        top_p=request.top_p,
        top_k=request.top_k,
        max_tokens=request.max_tokens,
        stop_token_ids=list({*request.stop_ids, *closers}),
        ignore_eos=True,  # stop_token_ids has all stops
        detokenize=False,
        logprobs=TOP_TOKENS if request.certain else (0 if log_probs else None),
        **({"skip_clone": True} if takes(SamplingParams, "skip_clone") else {}),  # not shared
    )
    prompt = list(request.prompt)
    if request.temperature == 0:
        yield from [(prompt, params)] * (1 if together else len(request.seeds))
        return
    for number, seed in enumerate(request.seeds):
        params = copy.copy(params)  # checked once for all samples
        # vLLM's seeds are signed.
        params.seed = (request.seeds[0] >> 1) + number if together else seed >> 1
        yield prompt, params


class VLLMClassifier:
    """`Classifier` on `vllm.LLM`, which reads the score at the last position.

    Args:
        path, context, settings: as for `VLLMSampler`.
        overrides: values that replace those of config.json, see `classifier_overrides`.

    Raises:
        BadInputError: vLLM is not installed, or the engine does not start.
    """

    def __init__(
        self,
        path: str | pathlib.Path,
        *,
        context: int,
        overrides: dict[str, Any],
        settings: ModelSpec = _DEFAULTS,
    ):
        self.engine = _start(
            path, context, settings, runner="pooling", convert="classify", hf_overrides=overrides
        )
        with of_this_release():
            _pooling("classify")
        self._queue, self.concurrent = _queue(self.engine)

    def classify(self, prompts: Sequence[tuple[int, ...]]) -> list[Classified]:
        """The score of every prompt, in order, in one call."""
        outputs = self._pool("classify", prompts)
        return [Classified(float(output.pooled[0]), output.cached) for output in outputs]

    def classify_steps(
        self, prompts: Sequence[tuple[int, ...]], ends: Sequence[Sequence[int]]
    ) -> list[ClassifiedSteps]:
        """The scores at several positions of every prompt, in one call; see `Classifier`.

        A prompt is computed once, from the end of its cached prefix.
        """
        if self._queue is None:
            return by_beginnings(self.classify, prompts, ends)
        outputs = self._pool("token_classify", prompts)
        found = []
        for prompt, places, output in zip(prompts, ends, outputs, strict=True):
            cached = output.cached
            rows = _computed_rows(output, prompt)
            scores = [float(rows[end - 1 - cached][0]) if end > cached else None for end in places]
            usage = TokenUsage(computed=len(prompt) - cached, cached=cached)
            found.append(ClassifiedSteps(scores, usage))
        return found

    def _pool(self, task: str, prompts: Sequence[tuple[int, ...]]) -> list[Output]:
        params = _pooling(task)
        with _stops_if_it_dies():
            if self._queue is not None:
                return self._queue.run([(list(prompt), params) for prompt in prompts])
            return classify(self.engine, prompts)


def _computed_rows(output: Output, prompt: tuple[int, ...]) -> Any:
    """A row of numbers for each computed token; tokens of the cached prefix have none."""
    if len(output.pooled) != len(prompt) - output.cached:
        raise RuntimeError(
            f"vLLM gave {len(output.pooled)} rows for a prompt of {len(prompt)} tokens, "
            f"{output.cached} of them cached: the scores of its steps are unknown"
        )
    return output.pooled


def _pooling(task: str) -> Any:
    """`vllm.PoolingParams` of a task."""
    from vllm import PoolingParams  # pyright: ignore[reportMissingImports]

    return PoolingParams(task=task, use_activation=True, skip_reading_prefix_cache=False)


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
            f"model type {model_type!r} has no causal language model: use the backend hf"
        )
    backbone = causal.removesuffix("ForCausalLM")
    if isinstance(read_out, TokenPair):
        return {
            "architectures": [f"{backbone}ForSequenceClassification"],
            "classifier_from_token": [read_out.negative, read_out.positive],
            "method": "from_2_way_softmax",
        }
    head: dict[str, Any] = {"layers": list(read_out.layers), "label": read_out.label}
    if read_out.unbounded:
        head["unbounded"] = True
    return {
        "architectures": [f"{vllm_head.PREFIX}{backbone}{vllm_head.SUFFIX}"],
        vllm_head.HEAD_KEY: head,
    }


@contextlib.contextmanager
def _stops_if_it_dies() -> Iterator[None]:
    """Turns vLLM's error for a dead engine process into RunStoppedError."""
    try:
        yield
    except dead_engine_error() as error:
        raise RunStoppedError(
            "vLLM's engine has died: see its own messages and start again, nothing is lost"
        ) from error


def check_names(settings: ModelSpec) -> None:
    """Check the names of engine arguments and quantization against vLLM's, which must be installed.

    Raises:
        BadInputError: a name is unknown to this version of vLLM.
    """
    with of_this_release():
        from vllm import EngineArgs, __version__  # pyright: ignore[reportMissingImports]
        from vllm.model_executor.layers.quantization import (  # pyright: ignore[reportMissingImports]
            QUANTIZATION_METHODS,
        )

    known = [entry.name for entry in dataclasses.fields(EngineArgs) if entry.name[0] != "_"]
    for name in settings.engine_args or {}:
        if name not in known:
            # There are hundreds of names.
            near = known_names(name, known).rpartition("known are")[0]
            raise BadInputError(
                f"{settings.where}: engine_args: vLLM {__version__} has no engine argument "
                f"{name!r}: {near}its names are the fields of vllm.EngineArgs"
            )
    method = settings.quantization
    if method is not None and method not in QUANTIZATION_METHODS:
        raise BadInputError(
            f"{settings.where}: quantization={method!r} is unknown to vLLM {__version__}: "
            f"{known_names(method, QUANTIZATION_METHODS)}"
        )


def engine_arguments(settings: ModelSpec, *, context: int) -> dict[str, Any]:
    """Arguments of `vllm.LLM` that follow from the settings, without path and task.

    Args:
        settings: settings of the model, whose device is that of vLLM's platform.
        context: largest number of tokens in a sequence.
    """
    on_cpu = settings.device == "cpu"
    arguments = {
        "max_model_len": context,
        "dtype": settings.dtype,
        "gpu_memory_utilization": settings.gpu_memory_utilization,
        "enforce_eager": on_cpu if settings.enforce_eager is None else settings.enforce_eager,
        "tensor_parallel_size": settings.tensor_parallel_size or 1,
        "quantization": settings.quantization,
        "max_num_seqs": settings.max_num_seqs,
        "block_size": settings.block_size,
        "enable_prefix_caching": True,
    }
    if on_cpu:
        arguments["block_size"] = settings.block_size or _CPU_BLOCK_SIZE
        arguments["max_num_batched_tokens"] = max(context, _CPU_BATCHED_TOKENS)
        # A prompt must not be cut: the CPU's random generator can't be turned back behind a piece
        # of a request with a seed (vLLM 0.32: "CPU Generator does not use offset").
        arguments["enable_chunked_prefill"] = False
        if _is_one_process(settings) and _binds_no_cores():
            # vLLM would start a second process, with as many imports, to bind threads to cores.
            arguments["distributed_executor_backend"] = _IN_THE_ENGINE_S_PROCESS
    else:
        arguments["device_ids"] = list(gpu_numbers(settings))
    return arguments | dict(settings.engine_args or {})


def _is_one_process(settings: ModelSpec) -> bool:
    given = settings.engine_args or {}
    pieces = (settings.tensor_parallel_size, given.get("pipeline_parallel_size"))
    return all(count in (None, 1) for count in pieces)


def _start(path: str | pathlib.Path, context: int, settings: ModelSpec, **task: Any) -> Any:
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    # A fork would take over the threads of JAX and torch, and can't use a GPU that torch has used.
    os.environ.setdefault("VLLM_WORKER_MULTIPROC_METHOD", "spawn")
    try:
        from vllm import LLM  # pyright: ignore[reportMissingImports]
        from vllm.platforms import current_platform  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise BadInputError(
            f"vLLM can't be imported ({error}): install the extra 'vllm', or on a machine without "
            "a GPU `make vllm-env`"
        ) from error
    settings = choose_backend(settings)
    on_cpu = bool(current_platform.is_cpu())
    if on_cpu != (settings.device == "cpu"):
        raise BadInputError(
            f"{settings.where}: device {settings.device!r}: this vLLM is built for "
            f"{'the CPU' if on_cpu else 'GPUs'}: set device: {'cpu' if on_cpu else 'cuda'}, or "
            "install the other build"
        )
    threads = settings.num_threads or default_threads(path, str(settings.device))
    try:
        with _environment(_thread_variables(threads) if on_cpu else {}):
            engine = LLM(
                model=str(path),
                disable_log_stats=True,
                use_tqdm_on_load=False,
                load_format="safetensors",
                trust_remote_code=False,
                worker_extension_cls=f"{vllm_head.__name__}.{vllm_head.DeviceOf.__name__}",
                **engine_arguments(settings, context=context),
                **task,
            )
    except (RuntimeError, ValueError, TypeError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[-1]
        if isinstance(error, pydantic.ValidationError):  # whose last line is a link
            first = error.errors()[0]
            reason = " ".join(": ".join(map(str, [*first["loc"], first["msg"]])).split())
        raise BadInputError(
            f"vLLM does not start with {str(path)!r}: {reason}: its own messages, with "
            f"VLLM_LOGGING_LEVEL=INFO more of them, say why; it was asked for {context} tokens of "
            "context (max_model_len), and too little memory for that wants fewer, or a larger "
            "gpu_memory_utilization"
        ) from error
    with of_this_release():
        _check_devices(engine, settings)
    _wake_when_it_dies(engine)
    return engine


def _queue(engine: Any) -> tuple[QueueClient | None, bool]:
    """The queue of an engine, None if it can't be used; and whether threads may share it."""
    queue = QueueClient(engine) if QueueClient.knows(engine) else None
    return queue, queue is not None and queue.concurrent


def _thread_variables(threads: int) -> dict[str, str]:
    """Environment variables that give an engine on a CPU its threads.

    By default vLLM binds threads to all cores but one, the same ones for every engine. A user who
    sets VLLM_CPU_OMP_THREADS_BIND to other than "nobind" chooses the cores.
    """
    if not _binds_no_cores():
        return {}
    return {_BIND: "nobind", "OMP_NUM_THREADS": str(threads)}


def _binds_no_cores() -> bool:
    return os.environ.get(_BIND, "nobind") == "nobind"


@contextlib.contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    """Sets environment variables in the block, which processes that it starts keep."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _check_devices(engine: Any, settings: ModelSpec) -> None:
    """Raise BadInputError unless the engine's processes are on the devices of the settings."""
    asked = [f"cuda:{number}" for number in gpu_numbers(settings)] or ["cpu"]
    found = sorted(set(engine.collective_rpc("cats_jax_device")))
    if found != sorted(asked):
        raise BadInputError(
            f"{settings.where}: vLLM's engine is on {', '.join(found)}, not on {', '.join(asked)}: "
            "leave out engine_args that place it, such as distributed_executor_backend"
        )


def _wake_when_it_dies(engine: Any) -> None:
    """Makes calls in flight fail when the engine's process dies; vLLM 0.32 would wait for ever."""
    core = getattr(engine.llm_engine, "engine_core", None)
    manager = getattr(getattr(core, "resources", None), "engine_manager", None)
    if core is None or manager is None:
        return  # no process of its own
    error = dead_engine_error()
    try:
        # Nothing that keeps the engine alive: it ends when nothing refers to it any more.
        processes, replies = manager.sentinels(), core.outputs_queue
        _CONTEXTS.append(core.resources.ctx)
    except AttributeError:
        return  # another release, whose own check must suffice

    def watch() -> None:
        multiprocessing.connection.wait(processes)
        replies.put_nowait(error())

    threading.Thread(target=watch, daemon=True, name="engine-watch").start()


def _sampled(output: Output, log_probs: bool, certain: bool) -> TokenSample:
    if output.finish not in ("stop", "length"):
        raise RuntimeError(f"vLLM ended a sample with {output.finish!r}")
    stopped = output.finish == "stop"
    known = tuple(output.log_probs) if log_probs else None
    # A batch may report the most likely tokens to requests that did not ask for them.
    certainties = tuple(output.certainties) if certain else None
    return TokenSample(tuple(output.ids), stopped, known, output.cached, certainties)
