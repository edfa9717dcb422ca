"""Memory that a model needs, by arithmetic on its config.json and its safetensors headers.

No weight is read, so a start that can't fit is refused at once. No model library is imported but
transformers, where config.json leaves open whether the language-model head is tied.
Weights, keys and values are exact. Activations are an estimate, which
tests/models/test_footprint.py compares with measured tensors (within a factor of 2).
"""

from __future__ import annotations

import math
import os
import pathlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..errors import BadInputError, quoted
from .local_files import read_config, ties_embeddings
from .weights import stored_tensors

GIB = 1 << 30
"""Bytes of a GiB."""

FREE_SHARE = 0.25
"""Default share of the free memory for the cache of a model on transformers.

A policy and a PRM often share a device, and their micro-batches need the rest.
"""

PROMPT_TOKENS = 256
"""Tokens that a prompt is taken to have in every estimate; most of GSM8K and MATH have fewer."""

MARK_TOKENS = 16
"""Tokens that a PRM's format adds around a step, at most: RLHFlow's chat turns need the most."""

_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}

# Bytes of a weight that vLLM quantises while it loads; other methods are counted as stored.
_QUANTISED = {"fp8": 1.0, "bitsandbytes": 0.5}

# Elements of one block of the sampler, see `huggingface.sampling`, and the number of float64
# tensors of that size which top-k and top-p need at once.
_BLOCK_ELEMENTS = 1 << 24
_CPU_BLOCK_ELEMENTS = 1 << 20
_BLOCK_TENSORS = 6

# Columns by which a decoding buffer grows, also beyond the prefix at first, see
# `huggingface.model.WIDTH`.
_GROWTH = 32

# Tokens in a forward pass of vLLM: set on a CPU by `serving.vllm_engine`, assumed on a GPU.
_VLLM_BATCH_TOKENS = 8192

_GPU_WAYS_OUT = (
    "a smaller max_model_len",
    "a larger gpu_memory_utilization",
    "a larger tensor_parallel_size",
)


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Sizes of a causal model, or of a PRM made of its backbone and a head.

    Attributes:
        parameters: number of floating-point weights that are loaded, a tied tensor counted once.
        other_bytes: bytes of stored integer tensors, which quantised checkpoints have.
        layers, heads, kv_heads, head_dim, hidden, intermediate: sizes of the transformer.
        outputs: outputs of the last layer: the vocabulary, or 1 for a PRM's head.
        context: largest number of tokens in a sequence.
    """

    parameters: int
    other_bytes: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    hidden: int
    intermediate: int
    outputs: int
    context: int

    def weight_bytes(self, dtype: str, quantization: str | None = None) -> int:
        """Bytes of all weights at a dtype: "float32", "bfloat16" or "float16"."""
        each = _QUANTISED.get(quantization or "", _BYTES[dtype])
        return math.ceil(each * self.parameters) + self.other_bytes

    def kv_bytes(self, dtype: str) -> int:
        """Bytes of one token's keys and values: 2 x layers x kv_heads x head_dim x bytes."""
        return 2 * self.layers * self.kv_heads * self.head_dim * _BYTES[dtype]

    def chunk_bytes(self, rows: int, new: int, width: int, dtype: str) -> int:
        """Bytes at once of a forward pass over chunks of new tokens, on transformers (estimate).

        Per new token there are 4 vectors of `hidden` and 3 of `intermediate`, a row of the mask
        for each query head of a key head and one more, and two copies of its keys and values; per
        row, one copy of all keys and values and its outputs, also in float64.

        Args:
            rows: sequences in the micro-batch.
            new, width: new tokens of a sequence, and all its tokens.
            dtype: "float32" or "bfloat16".
        """
        size = _BYTES[dtype]
        token = size * (4 * self.hidden + 3 * self.intermediate)
        mask = size * width * (1 + self.heads // self.kv_heads)
        kv = self.kv_bytes(dtype) * (width + 2 * new)
        return rows * (new * (token + mask) + kv + self.outputs * (size + 8))

    def decode_bytes(self, rows: int, prefix: int, new: int, dtype: str, device: str) -> int:
        """Bytes at once of decoding a token for each row, on transformers (estimate).

        The keys and values are there twice, because taking out rows copies them. Prefixes are
        padded to blocks of columns, and new tokens take whole blocks. The sampler has two float64
        rows of log-probabilities per sample, and works in blocks.

        Args:
            rows: samples in the micro-batch.
            prefix, new: tokens of a sequence before the step, and in it.
            dtype: "float32" or "bfloat16".
            device: "cpu" or a GPU.
        """
        elements = _CPU_BLOCK_ELEMENTS if device == "cpu" else _BLOCK_ELEMENTS
        block = min(rows * self.outputs, max(elements, self.outputs))
        sampler = 8 * (2 * rows * self.outputs + _BLOCK_TENSORS * block)
        token = _BYTES[dtype] * (4 * self.hidden + 3 * self.intermediate + self.outputs)
        columns = _GROWTH * (math.ceil(prefix / _GROWTH) + math.ceil(new / _GROWTH))
        return rows * (2 * columns * self.kv_bytes(dtype) + token) + sampler


def model_shape(folder: pathlib.Path, head: Sequence[str] | None = None) -> ModelShape | None:
    """The sizes of a model folder; None if config.json does not name them in the usual way.

    Args:
        folder: model folder.
        head: stored names of the layers that replace the language-model head, if any.

    Raises:
        BadInputError: config.json is damaged, or a safetensors file is missing or broken.
    """
    whole = read_config(folder)
    try:
        config = {**whole, **(whole.get("text_config") or {})}  # nested beside images
        heads = int(config["num_attention_heads"])
        hidden = int(config["hidden_size"])
        vocabulary = int(config["vocab_size"])
        sizes = {
            "context": int(config["max_position_embeddings"]),
            "layers": int(config["num_hidden_layers"]),
            "kv_heads": int(config.get("num_key_value_heads") or heads),
            "head_dim": int(config.get("head_dim") or hidden // heads),
            "intermediate": int(config["intermediate_size"]),
        }
    except (ValueError, KeyError, TypeError, OverflowError):
        return None
    stored = stored_tensors(folder)
    unused = ["rotary_emb.inv_freq"]
    if "lm_head" not in (head or ()) and any(name.endswith("lm_head.weight") for name in stored):
        unused += ["lm_head.weight"] if head is not None or ties_embeddings(whole) else []
    tensors = [each for name, each in stored.items() if not name.endswith(tuple(unused))]
    return ModelShape(
        parameters=sum(math.prod(tensor.shape) for tensor in tensors if tensor.is_float),
        other_bytes=sum(tensor.stop - tensor.start for tensor in tensors if not tensor.is_float),
        heads=heads,
        hidden=hidden,
        outputs=vocabulary if head is None else 1,
        **sizes,
    )


@dataclass(frozen=True, slots=True)
class PromptLoad:
    """Prompts of rewrites or of comparisons, each for one answer.

    `tokens` bounds a prompt's tokens besides the question's, `count` a question's prompts at once.
    """

    tokens: int
    count: int


@dataclass(frozen=True, slots=True)
class Work:
    """The largest amounts of what a run has at once.

    Attributes:
        questions, paths, steps: questions in flight, paths of a question, N, and steps of a path.
        step_tokens, thought_tokens: tokens of a step, and of a thought before the answer.
        answer_tokens: tokens of the last step, if that is more.
        prompts: prompts that searches write and the model reads.
        prm_prompts: those that PRMs read, see `of_prms`.
    """

    questions: int = 1
    paths: int = 1
    steps: int = 1
    step_tokens: int = 256
    answer_tokens: int = 2048
    thought_tokens: int = 0
    prompts: tuple[PromptLoad, ...] = ()
    prm_prompts: tuple[PromptLoad, ...] = ()

    def of_prms(self) -> Work:
        """The work with the prompts that PRMs read in place of the policy's."""
        return replace(self, prompts=self.prm_prompts, prm_prompts=())

    @property
    def last_tokens(self) -> int:
        """Largest number of tokens of the last step."""
        return max(self.step_tokens, self.answer_tokens)

    def path_tokens(self, context: int) -> int:
        """Largest number of tokens of a path with its prompt, within a model's context."""
        # A reply to a prompt of the search is one step, the last one.
        before = max([(self.steps - 1) * self.step_tokens, *(each.tokens for each in self.prompts)])
        return self._ended(before, context)

    def cached_tokens(self, context: int) -> int:
        """Tokens of all live paths if each is as long as it can be.

        The paths of a question share its prompt. A prompt of the search has one path. At any time a
        question has only paths or only such prompts.
        """
        path = self._ended((self.steps - 1) * self.step_tokens, context)
        prompt = min(PROMPT_TOKENS, path)
        replies = [each.count * self._ended(each.tokens, context) for each in self.prompts]
        return self.questions * max(prompt + self.paths * (path - prompt), *replies, 0)

    def _ended(self, before: int, context: int) -> int:
        """Tokens of a path with `before` tokens between the question and its last step."""
        return min(context, PROMPT_TOKENS + before + self.thought_tokens + self.last_tokens)


@dataclass(frozen=True, slots=True)
class Footprint:
    """Memory of one model on one device, in bytes.

    Attributes:
        title: "policy" or "PRM" and the model's name.
        device: "cpu", "cuda" or "cuda:N".
        weights, kv_per_token: all weights, and keys and values of a token.
        cache: keys and values of a run at most; None if the engine fills its share of the GPU.
        least_cache: smallest cache of keys and values with which the run can continue.
        activations, least_activations: the run's largest micro-batch (estimate), and one sequence.
        gpu_share: share of the device that a vLLM engine takes for itself; None on transformers.
        ways_out: settings that make the model smaller.
    """

    title: str
    device: str
    weights: int
    kv_per_token: int
    cache: int | None
    least_cache: int
    activations: int
    least_activations: int
    gpu_share: float | None = None
    ways_out: tuple[str, ...] = ()

    @property
    def least(self) -> int:
        """Bytes below which the model can't work: micro-batches and caches shrink no further."""
        return self.weights + self.least_cache + self.least_activations

    def arithmetic(self) -> str:
        """`least` as a sum in words."""
        return (
            f"{self.title}: weights {gib(self.weights)} + cache {gib(self.least_cache)} + "
            f"activations {gib(self.least_activations)} = {gib(self.least)}"
        )


def transformers_footprint(
    title: str,
    shape: ModelShape,
    work: Work,
    *,
    samples: bool,
    device: str,
    dtype: str,
    batch_tokens: int,
    kv_cache_gib: float | None = None,
    free: int | None = None,
) -> Footprint:
    """Footprint of a model on transformers.

    Without `kv_cache_gib`, the bound of the cache is `FREE_SHARE` of the free memory that the
    weights leave. The least cache is that of one path as long as it can be.

    Args:
        title: "policy" or "PRM" and the model's name.
        shape, work, device, dtype: the model's sizes and place, and what the run has at once.
        samples: whether the model decodes, as a policy does.
        batch_tokens: tokens (rows x width) of a micro-batch.
        kv_cache_gib: bound of the cache in GiB, if there is one.
        free: bytes that the device has free; None if that is not known.
    """
    path = work.path_tokens(shape.context)
    # Prompts of a question at once, their samples, and the tokens of a prompt and of a sample.
    batches = [(1, work.paths, PROMPT_TOKENS, work.step_tokens)]
    for each in work.prompts:
        batches.append((each.count, each.count, PROMPT_TOKENS + each.tokens, work.last_tokens))

    def activations(budget: int) -> int:
        found = []
        for count, samples_of, prompt, step in batches:
            prompt, step = min(prompt, path), min(step, path)
            prompts = min(work.questions * count, max(1, budget // prompt))
            found.append(shape.chunk_bytes(prompts, prompt, prompt, dtype))
            # The first step has the shortest prefix and therefore the most rows.
            width = prompt + (_GROWTH if samples else step)
            rows = min(work.questions * samples_of, max(1, budget // width))
            if samples:
                found.append(shape.decode_bytes(rows, prompt, step, dtype, device))
            else:
                found.append(shape.chunk_bytes(rows, step, prompt + step, dtype))
        return max(found)

    each = shape.kv_bytes(dtype)
    cache = each * work.cached_tokens(shape.context)
    least = each * path
    weights = shape.weight_bytes(dtype)
    if kv_cache_gib is not None:
        cache = least = min(cache, int(kv_cache_gib * GIB))
    elif free is not None:
        cache = max(least, min(cache, int(FREE_SHARE * (free - weights))))
    ways = ("dtype bfloat16",) if dtype == "float32" else ()
    return Footprint(
        title=title,
        device=device,
        weights=weights,
        kv_per_token=each,
        cache=cache,
        least_cache=least,
        activations=activations(batch_tokens),
        least_activations=activations(1),
        ways_out=(*ways, *(("a smaller kv_cache_gib",) if kv_cache_gib is not None else ())),
    )


def vllm_footprint(
    title: str,
    shape: ModelShape,
    *,
    device: str,
    dtype: str,
    gpu_memory_utilization: float,
    max_model_len: int | None = None,
    tensor_parallel_size: int = 1,
    quantization: str | None = None,
) -> Footprint:
    """Footprint of a vLLM engine, on each of its GPUs.

    vLLM starts only if a sequence of `max_model_len` tokens fits, and fills its share of the GPU
    with cache. On the CPU the cache is VLLM_CPU_KVCACHE_SPACE GiB, 1 unless set.

    Args:
        title: "policy" or "PRM" and the model's name.
        shape, device, dtype: the model's sizes and place.
        gpu_memory_utilization: share of a GPU that the engine takes.
        max_model_len: tokens in a sequence; default: the model's context.
        tensor_parallel_size: number of GPUs that share the weights, keys and values.
        quantization: vLLM's name of a method, or None.

    Raises:
        BadInputError: VLLM_CPU_KVCACHE_SPACE is not a whole number.
    """
    context = min(max_model_len or shape.context, shape.context)
    each = -(-shape.kv_bytes(dtype) // tensor_parallel_size)
    batch = max(context, _VLLM_BATCH_TOKENS)
    # Its kernels need no mask and copy no keys: only the vectors of hidden states count.
    activations = batch * _BYTES[dtype] * (4 * shape.hidden + 3 * shape.intermediate)
    on_gpu, space = device != "cpu", os.environ.get("VLLM_CPU_KVCACHE_SPACE", "1")
    if not on_gpu and not space.isdecimal():
        raise BadInputError(
            f"the environment variable VLLM_CPU_KVCACHE_SPACE={quoted(space)} must be a whole "
            "number of GiB: set one, or unset it"
        )
    cache = None if on_gpu else int(space) * GIB
    return Footprint(
        title=title,
        device=device,
        weights=-(-shape.weight_bytes(dtype, quantization) // tensor_parallel_size),
        kv_per_token=each,
        cache=cache,
        least_cache=each * context if cache is None else cache,
        activations=activations,
        least_activations=activations,
        gpu_share=gpu_memory_utilization if on_gpu else None,
        ways_out=(
            *(("dtype bfloat16",) if dtype == "float32" else ()),
            *(_GPU_WAYS_OUT if on_gpu else ("a smaller VLLM_CPU_KVCACHE_SPACE",)),
        ),
    )


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory of a device in bytes: all of it, and what this process can still take."""

    free: int
    total: int


def device_memory(device: str) -> Memory | None:
    """Memory of a device; None for a GPU that is not there."""
    if device == "cpu":
        return _host_memory()
    import torch

    index = torch.device(device).index or 0
    if not torch.cuda.is_available() or index >= torch.cuda.device_count():
        return None
    free, total = torch.cuda.mem_get_info(index)
    return Memory(free, total)


def check_fit(models: Sequence[Footprint]) -> None:
    """Check that models which are loaded at the same time fit on their devices.

    Raises:
        BadInputError: a device's models need more memory than it has free; the message sums up.
    """
    by_device: dict[str, list[Footprint]] = {}
    for model in models:
        by_device.setdefault("cuda:0" if model.device == "cuda" else model.device, []).append(model)
    for device, here in by_device.items():
        memory = device_memory(device)
        line = None if memory is None else misfit(here, memory)
        if line is not None:
            raise BadInputError(line)


def misfit(models: Sequence[Footprint], memory: Memory) -> str | None:
    """Why models do not fit on their common device, in one line; None if they fit."""
    device = models[0].device
    shares = 0.0
    for model in models:
        if model.gpu_share is None:
            continue
        shares += model.gpu_share
        room = int(model.gpu_share * memory.total)
        if model.least > room:
            return (
                f"{model.arithmetic()}, but gpu_memory_utilization {model.gpu_share:g} of {device} "
                f"is {gib(room)}: {_advice([model])}"
            )
    plain = [model for model in models if model.gpu_share is None]
    free = memory.free - int(shares * memory.total)
    needed = sum(model.least for model in plain)
    if not plain or needed <= free:
        return None
    together = f", {gib(needed)} together" if len(plain) > 1 else ""
    beside = f" beside vLLM's share of {shares:g}" if shares else ""
    sums = "; ".join(model.arithmetic() for model in plain)
    return (
        f"{sums}{together}, but {gib(max(free, 0))} of {device} are free{beside}: {_advice(plain)}"
    )


def gib(number: int) -> str:
    """Bytes as text in GiB, or in MiB below a tenth of one."""
    if number < GIB // 10:
        return f"{number / (1 << 20):.1f} MiB"
    return f"{number / GIB:.1f} GiB"


def _advice(models: Sequence[Footprint]) -> str:
    ways = dict.fromkeys(way for model in models for way in model.ways_out)
    return "use " + ", ".join([*ways, "another device", "or a smaller model"])


def _host_memory() -> Memory:
    """Free memory, within the limit of a container (cgroup v2); outside Linux, all memory."""
    try:
        lines = pathlib.Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return Memory(total, total)
    table = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines}
    memory = Memory(table["MemAvailable"], table["MemTotal"])
    group = pathlib.Path("/sys/fs/cgroup")
    try:
        limit = int((group / "memory.max").read_text(encoding="ascii"))
        used = int((group / "memory.current").read_text(encoding="ascii"))
        stat = (group / "memory.stat").read_text(encoding="ascii").split()
    except (OSError, ValueError):  # no control group, or one without a limit ("max")
        return memory
    # Pages of files that the kernel would give back count as used.
    reclaimable = int(stat[stat.index("inactive_file") + 1])
    return Memory(min(memory.free, limit - used + reclaimable), min(memory.total, limit))
