"""Models of a recipe and the settings of the backends that run them."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Annotated, Any, ClassVar, Literal

from .. import world
from ..errors import BadInputError, quoted
from ..protocols import TOKEN_CERTAINTIES
from ..storage.schema import Amount, Count, PathText, checked, must, nested
from .functions import AT_ENDPOINTS, CHAT, SHIPPED, is_function_name

HF_KEYS = ("batch_tokens", "kv_cache_gib", "num_threads", "adapter", "head")
"""Settings of the backend "hf" that servers do not have."""

VLLM_KEYS = (
    "tensor_parallel_size",
    "quantization",
    "enforce_eager",
    "gpu_memory_utilization",
    "max_num_seqs",
    "block_size",
    "engine_args",
    "seed_per",
    "num_threads",
    "adapter",
)
"""Settings of the backend "vllm" that servers do not have."""

SERVER_KEYS = ("served_name", "api_key_env", "max_reply_seconds")
"""Settings of servers alone."""

PAID_KEYS = ("price", "max_cost", "max_requests_per_minute", "replies")
"""Settings of chat endpoints that change no result."""

_CHAT = "a chat endpoint"
_HONOURED = {
    "hf": ("device", "dtype", *HF_KEYS),
    "vllm": ("device", "dtype", "max_model_len", "log_probs", *VLLM_KEYS),
    "a server": ("max_model_len", "log_probs", *SERVER_KEYS),
    _CHAT: (*SERVER_KEYS, "chat", *PAID_KEYS),
}
_DTYPES = {"hf": ("float32", "bfloat16"), "vllm": ("float32", "bfloat16", "float16")}
_ADDRESSES = ("http://", "https://")


def _is_text(pattern: str) -> Callable[[Any], bool]:
    """Whether a value is a text of a form."""
    return lambda value: isinstance(value, str) and re.fullmatch(pattern, value) is not None


_Name = Annotated[str, must("must be a name", _is_text(r"(?s).+"))]
_File = Annotated[PathText, must("must be the path of a file or folder", _is_text(r"(?s).+"))]
_Device = Annotated[
    str, must("must be cpu, cuda, cuda:N or auto", _is_text(r"auto|cpu|cuda(:\d+)?"))
]
# Not quoted: it may be the key itself.
_Variable = Annotated[
    str,
    must(
        "must be the name of an environment variable in capital letters, such as MY_SERVER_KEY, "
        "not the key itself",
        _is_text(r"[A-Z_][A-Z0-9_]{0,63}"),
        secret=True,
    ),
]
_Share = Annotated[
    float,
    must(
        "must be a share of the GPU's memory in (0, 1], such as 0.45",
        lambda value: type(value) in (int, float) and 0 < value <= 1,
    ),
]


def _is_price(value: Any) -> bool:
    return (
        isinstance(value, Mapping)
        and set(value) == {"input", "output"}
        and all(type(each) in (int, float) and 0 <= each <= 1e9 for each in value.values())
    )


_Price = Annotated[
    Mapping[str, float],
    must("must be {input: X, output: Y}, the prices of a million tokens", _is_price),
]

# Engine arguments that this package sets itself, with the recipe's key for each, or None.
_OF_CATS = {
    "model": "path",
    "device_ids": "device",
    **{
        name: name
        for name in ("max_model_len", "dtype", *VLLM_KEYS)
        if name not in ("engine_args", "seed_per")
    },
    **dict.fromkeys(
        (
            "runner",
            "convert",
            "hf_overrides",
            "tokenizer",
            "skip_tokenizer_init",
            "trust_remote_code",
            "load_format",
            "logprobs_mode",
            "disable_log_stats",
            "worker_extension_cls",
        )
    ),
}


@checked
class ModelSpec:
    """What policies and PRMs have in common: the model, its backend, and the backend's settings.

    A setting that the backend can't honour is an error. For `module:function`, a model of the
    user's own, the function reads all settings.

    Attributes:
        path: a model folder, an id of the Hugging Face hub (`owner/name`, see `models.hub`), a name
            of the embedded world's, or `module:function`, a function that is called with this spec
            and returns the model.
        backend: "hf" (transformers), "vllm" (an engine started here), the address of a server of
            vLLM or SGLang, or "auto": "vllm" if vLLM is installed and there is a GPU, else "hf".
            "auto" drops the settings of the backend that was not taken.
        format: format of the model's input: a format's name, a .yaml file, or "auto".
        device: "cpu", "cuda", "cuda:N", or "auto", which takes a GPU if there is one. An engine
            with `tensor_parallel_size` K takes the GPUs N..N + K - 1. Default: "cpu" for "hf",
            "auto" for "vllm" and for the backend "auto". For "hf" and "vllm".
        dtype: "float32" or "bfloat16", for "vllm" also "float16"; a server has its own.
        batch_tokens, kv_cache_gib: see `HuggingFaceGenerator`; for "hf".
        num_threads: number of CPU threads that a model computes with. Default: one for a small
            model and on a GPU, otherwise all CPUs of the process, see `models.threads`. For "hf",
            and for "vllm" on a CPU.
        max_model_len: largest number of tokens in a sequence, at most the model's own. Default: for
            "vllm", the most that the run can need, see `models.resolve`; for a server, the
            model's own. For "vllm" and servers.
        gpu_memory_utilization: share of each GPU's memory that the engine takes, in (0, 1]. The
            settings from here to `engine_args` are for "vllm"; None is vLLM's default, unless
            stated.
        tensor_parallel_size: number of GPUs that the weights are spread over; 1 by default.
        quantization: vLLM's name of a method that compresses the weights.
        enforce_eager: whether CUDA graphs are left out. Default: False on a GPU, True on a CPU.
        max_num_seqs: largest number of sequences that the engine works on at once.
        block_size: tokens in a block of the prefix cache; 32 on a CPU by default.
        engine_args: any other arguments of `vllm.EngineArgs`, by name.
        served_name: name of the model in a server's /v1/models. Default: the server's only model.
            For servers.
        api_key_env: name of the environment variable that holds a server's API key; the key appears
            in no recipe, manifest or log. For servers.
        max_reply_seconds: seconds within which a whole reply must arrive; default: 600. For
            servers.
        price: price of a million tokens, {input: X, output: Y}. This setting and the next three are
            for chat endpoints.
        max_cost: largest cost of all requests of this model, in the unit of `price`.
        max_requests_per_minute: largest number of requests in a minute.
        replies: file of the endpoint's replies, from which repeated requests are served. Each model
            has a file of its own.
        adapter: folder of a LoRA adapter in PEFT's layout, which is merged into the weights, see
            `models.adapter`. For "hf" and "vllm"; a server has its own.
    """

    # A key that is added later needs the default None: in earlier manifests it reads as null.
    path: PathText
    backend: PathText = "hf"
    format: PathText = "auto"
    device: _Device | None = None
    dtype: str = "float32"
    batch_tokens: Count = 1 << 16
    kv_cache_gib: Amount | None = None
    num_threads: Count | None = None
    max_model_len: Count | None = None
    gpu_memory_utilization: _Share = 0.45
    tensor_parallel_size: Count | None = None
    quantization: str | None = None
    enforce_eager: bool | None = None
    max_num_seqs: Count | None = None
    block_size: Count | None = None
    # Not part of the hash: a mapping is not hashable.
    engine_args: Mapping[str, Any] | None = field(default=None, hash=False)
    served_name: _Name | None = None
    api_key_env: _Variable | None = None
    max_reply_seconds: Amount | None = None
    price: _Price | None = field(default=None, hash=False)
    max_cost: Amount | None = None
    max_requests_per_minute: Amount | None = None
    replies: _File | None = None
    adapter: _File | None = None

    where: ClassVar[str] = "model"
    """Key of a recipe under which such a model stands, for messages."""

    def __post_init__(self) -> None:
        if self.device is None and self.backend == "hf":
            object.__setattr__(self, "device", "cpu")
        _check_backend(self)
        known = _DTYPES.get(self.backend, _DTYPES["vllm"])
        if self.dtype not in known and not is_function_name(self.path):
            raise BadInputError(
                f"{self.where}: dtype={quoted(self.dtype)}: backend {self.backend} has "
                f"{', '.join(known)}"
            )
        _check_engine_args(self)
        if self.max_cost is not None and self.price is None:
            raise BadInputError(
                f"{self.where}: max_cost needs price: add price: {{input: X, output: Y}}"
            )
        is_chat = self.path in AT_ENDPOINTS
        if is_chat or (self.backend != "auto" and not is_function_name(self.path)):
            _check_honoured(self, _CHAT if is_chat else _kind(self.backend))

    @property
    def name(self) -> str:
        """The last parts of `path` and adapter, and the head's without suffix: "BASE+ADAPTER"."""
        names = [pathlib.Path(path).name for path in (self.path, self.adapter) if path]
        head = getattr(self, "head", None)
        return "+".join([*names, *([pathlib.Path(head).stem] if head else [])])

    def given(self) -> dict[str, Any]:
        """The backends' settings that differ from their defaults, by name."""
        fields = {entry.name: entry for entry in dataclasses.fields(self)}
        names = dict.fromkeys(name for names in _HONOURED.values() for name in names)
        return {
            name: getattr(self, name)
            for name in names
            if name in fields and getattr(self, name) != fields[name].default
        }


@checked
class ExamplesSpec:
    """Solved problems, of which a similar step is shown before each step; see `live.boost_step`.

    Attributes:
        file: .jsonl file of the problems, see `ExampleSteps`.
        threshold: smallest similarity of an example, in [0, 1].
        prompt: name or .yaml file of the prompt, see `specs.example_steps`.
    """

    file: PathText
    threshold: Annotated[
        float,
        must(
            "must be a number in [0, 1], such as 0.7",
            lambda value: type(value) in (int, float) and 0 <= value <= 1,
        ),
    ] = 0.7
    prompt: PathText = "key-step"

    where: ClassVar[str] = "policy: examples"


@checked
class PolicySpec(ModelSpec):
    """A policy to load; for the settings shared with PRMs, see `ModelSpec`.

    Attributes:
        path: "weak" and "strong" are the embedded world's policies; a function returns a
            `StepGenerator`.
        format, step_separator, max_step_tokens, max_answer_tokens: prompt, end of steps and limits
            of tokens, see `StepPolicy`.
        seed_per: "sample" (default) gives every sample a seed of its own. "request" gives all
            samples of a node one seed, from which their seeds follow, as in a request to a server.
            For "vllm"; a server of vLLM always gets "request", and one of SGLang "sample".
        log_probs: whether the engine returns the log-probability of each token. Trees and banks
            keep them. Searches that read them are refused without them. For "vllm" and servers.
            Default: True.
        chat: whether the backend is an endpoint of OpenAI's chat completions without token ids, see
            `models.serving.chat`. `served_name` is then its model, and there is no `path`.
        examples: solved problems for BoostStep, which wraps the policy then; or their file.
    """

    path: PathText = "weak"
    step_separator: str | None = None
    max_step_tokens: Count = 256
    max_answer_tokens: Count = 2048
    seed_per: Literal["sample", "request"] | None = None
    log_probs: bool | None = None
    chat: bool | None = None
    examples: Annotated[ExamplesSpec, nested(ExamplesSpec, "file")] | None = None

    where: ClassVar[str] = "policy"
    renamed: ClassVar[Mapping[str, str]] = {"recipe": "format"}

    def __post_init__(self) -> None:
        _check_chat(self)
        if self.chat:
            object.__setattr__(self, "path", CHAT)
        if self.examples is not None and self.path in world.POLICY_NAMES:
            raise BadInputError(
                f"policy: examples: path={self.path!r} reads arithmetic expressions only: give a "
                "language model, or leave examples out"
            )
        super().__post_init__()

    @property
    def certainties(self) -> tuple[str, ...] | None:
        """Kinds of token certainty that the engine reports; None if that is not known yet."""
        if self.chat or self.log_probs is False:
            return ()
        if is_function_name(self.path) or self.backend == "auto":
            return None
        return {"hf": TOKEN_CERTAINTIES, "vllm": ("top",)}.get(_kind(self.backend), ())

    @property
    def vectors(self) -> bool | None:
        """Whether the engine reports vectors of steps; None if that is not known yet."""
        if self.chat:
            return False
        if is_function_name(self.path) or self.backend == "auto":
            return None
        return self.backend == "hf"

    @property
    def name(self) -> str:
        """As `ModelSpec.name`; for a chat endpoint the last part of its model's name."""
        return pathlib.Path(str(self.served_name)).name if self.chat else super().name


@checked
class PrmSpec(ModelSpec):
    """A process reward model to load; for the settings shared with policies, see `ModelSpec`.

    Attributes:
        path: `cats_jax.world.PRM_NAMES` are the embedded world's PRMs; a function returns a
            `StepScorer`. "confidence" is the policy's own confidence, see `models.confidence`.
            "chat-judge" is the model `served_name` of the chat endpoint `backend` as judge, see
            `models.chat_judge`.
        label: name in tables and row keys; default: `name`.
        path_score: aggregation of the PRM's step scores, for strategies that don't name one.
        head: .safetensors file of a linear head on the last hidden state, in place of the format's
            read-out, see `models.prm.head_file`. For "hf", which "auto" then chooses.
    """

    label: PathText = ""
    path_score: str | None = None
    head: _File | None = None

    where: ClassVar[str] = "prms"

    def __post_init__(self) -> None:
        if self.path in SHIPPED:
            object.__setattr__(self, "label", self.label or self.path)
            object.__setattr__(self, "path", SHIPPED[self.path])
        is_remote = self.backend.startswith(_ADDRESSES)
        if self.path in AT_ENDPOINTS and not (is_remote and self.served_name):
            raise BadInputError(
                f"prms: {self.label!r} needs backend, the address of a chat endpoint such as "
                "https://openrouter.ai/api, and served_name, its model there"
            )
        super().__post_init__()
        if not self.label:
            object.__setattr__(self, "label", self.name)

    @property
    def is_confidence(self) -> bool:
        """Whether this is the policy's own confidence, for which no token is computed."""
        return self.path == SHIPPED["confidence"]


def check_replies(specs: Sequence[ModelSpec]) -> None:
    """Raise BadInputError if two models of a run keep their replies in one file."""
    known: dict[str, ModelSpec] = {}
    for spec in specs:
        if spec.replies is None:
            continue
        other = known.setdefault(os.path.realpath(spec.replies), spec)
        if other is not spec:
            raise BadInputError(
                f"{spec.where}: replies={quoted(spec.replies)} is the file of another model of the "
                "recipe, too: give each model its own"
            )


def of_backend(spec: ModelSpec, backend: str) -> dict[str, Any]:
    """The settings of a spec that a backend honours, by name; the others with their defaults."""
    return {
        entry.name: getattr(spec, entry.name) if entry.name in _HONOURED[backend] else entry.default
        for entry in dataclasses.fields(spec)
        if any(entry.name in names for names in _HONOURED.values())
    }


def _kind(backend: str) -> str:
    return backend if backend in _HONOURED else "a server"


def _check_backend(spec: ModelSpec) -> None:
    backend = spec.backend
    if backend in ("auto", "hf", "vllm"):
        return
    if not backend.startswith(_ADDRESSES):
        raise BadInputError(
            f"{spec.where}: backend={backend!r}: must be hf, vllm, auto, or a server's address "
            "such as http://localhost:8000"
        )
    if "@" in backend.partition("://")[2].partition("/")[0]:
        # Not quoted: it holds a secret, which would also stand in manifests.
        raise BadInputError(
            f"{spec.where}: backend: an address must not hold a user or password: name the "
            "environment variable of the server's API key by api_key_env"
        )
    if not re.fullmatch(r"https?://[^/?#\s]+[^?#\s]*", backend):
        # Not quoted either: some gateways take a key in the query.
        raise BadInputError(
            f"{spec.where}: backend: an address has a host, and neither blanks, ? nor #: give the "
            "server's address such as http://localhost:8000"
        )


def _check_chat(spec: PolicySpec) -> None:
    if spec.chat and not spec.backend.startswith(_ADDRESSES):
        raise BadInputError(
            f"policy: backend={spec.backend!r}: chat: true needs the address of an endpoint, such "
            "as https://openrouter.ai/api"
        )
    if spec.chat and spec.path not in ("weak", CHAT):
        raise BadInputError(
            f"policy: path={spec.path!r}: a chat endpoint selects its model by served_name: set "
            "it, and leave path out"
        )
    if spec.chat and spec.served_name is None:
        raise BadInputError("policy: chat: true needs served_name, the model at the endpoint")


def _check_engine_args(spec: ModelSpec) -> None:
    for name in spec.engine_args or ():
        if name in _OF_CATS:
            key = _OF_CATS[name]
            way_out = f"set it by the key {key!r} of the model" if key else "leave it out"
            raise BadInputError(
                f"{spec.where}: engine_args: {name!r} is set by cats-jax: {way_out}"
            )


def _check_honoured(spec: ModelSpec, kind: str) -> None:
    for name, value in spec.given().items():
        if name not in _HONOURED[kind]:
            others = " or ".join(other for other, names in _HONOURED.items() if name in names)
            raise BadInputError(
                f"{spec.where}: {name}={quoted(value)} has no effect with the backend "
                f"{spec.backend}: leave it out, or take {others}"
            )
