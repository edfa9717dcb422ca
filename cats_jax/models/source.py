"""The models of a recipe: checked before a run, loaded when they are needed.

`ModelFolders` loads model folders in Hugging Face format on transformers or on a serving engine,
whose libraries are imported when needed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from .. import world
from ..errors import BadInputError, misspelt
from ..live.boost_step import BoostStep
from ..protocols import Question, StepGenerator, StepScorer, facts_of
from ..specs.example_steps import ExampleSteps, load_example_prompt
from ..specs.functions import AT_ENDPOINTS, CHAT, SHIPPED, is_function_name, load_function
from ..specs.models import ExamplesSpec, ModelSpec, PolicySpec, PrmSpec
from .adapter import Adapter
from .backend import choose_backend
from .chat_judge import chat_judge_format
from .digests import adapter_digests, file_digest, weight_digests
from .folders import MissingModelError, check_model_folder
from .footprint import (
    Footprint,
    Work,
    check_fit,
    device_memory,
    model_shape,
    transformers_footprint,
    vllm_footprint,
)
from .judge import JudgeScorer
from .prm.family import choose_format
from .prm.format import WORLD, Head, PRMFormat, TokenPair
from .prm.judge_text import judge_policy_format
from .prm.sparsity import checkpoint_sparsity
from .prm.verdict import WrittenVerdict
from .prompts.policy_format import AUTO, PLAIN, PolicyFormat
from .prompts.policy_format import choose_format as choose_policy_format

if TYPE_CHECKING:
    from .huggingface.scorer import HuggingFaceScorer
    from .serving.http_engine import ServerClient
    from .serving.scorer import EngineScorer


class ModelSource(Protocol):
    """Where policies and PRMs come from."""

    def fingerprint(self, spec: PolicySpec | PrmSpec) -> dict[str, Any]:
        """JSON values that identify the model; the model is not loaded.

        Raises:
            BadInputError: there is no such model.
        """
        ...

    def footprint(self, spec: PolicySpec | PrmSpec, work: Work) -> Footprint | None:
        """Memory of the model in a run of that much work; None if it can't be told.

        Raises:
            BadInputError: there is no such model.
        """
        ...

    def check(self, spec: PolicySpec | PrmSpec) -> None:
        """Check tokenizer, configuration and format of a model; its weights are not read.

        Raises:
            BadInputError: there is no such model, or the three do not fit together.
        """
        ...

    def policy(self, spec: PolicySpec) -> StepGenerator:
        """Load a policy; with examples, wrapped in a `BoostStep`."""
        ...

    def prm(self, spec: PrmSpec) -> StepScorer:
        """Load a process reward model."""
        ...


def check_models(
    models: ModelSource, policy: PolicySpec | None, prms: Sequence[PrmSpec], work: Work
) -> None:
    """Check all models of a run before one is loaded.

    Each tokenizer must fit its format. The policy and any one of the PRMs must fit into memory.

    Args:
        models, work: source of the models, and what the run has at once.
        policy, prms: the policy or None, and PRMs of which one is loaded at a time.

    Raises:
        BadInputError: a model fails `ModelSource.check`, or the models do not fit on a device; the
            message then has the arithmetic.
    """
    for spec in (policy, *prms):
        if spec is not None:
            models.check(spec)
    for prm in prms or (None,):
        found = [models.footprint(spec, work) for spec in (policy, prm) if spec is not None]
        check_fit([footprint for footprint in found if footprint is not None])


def _check_files(folder: pathlib.Path, spec: PolicySpec | PrmSpec, *, here: bool) -> str:
    """Check a model's tokenizer, configuration, adapter and format; returns the format's name.

    `here` says whether this package computes the model, not an engine.
    """
    silence_transformers()
    from .huggingface.model import CausalModel
    from .huggingface.reward_model import RewardModel
    from .huggingface.thoughts import Thoughts, check_closed

    if isinstance(spec, PrmSpec):
        chosen = choose_format(spec.format, folder, spec.head)
        name = chosen.name
        if isinstance(chosen.read_out, WrittenVerdict):
            model = CausalModel(folder, format=judge_policy_format(chosen), adapter=spec.adapter)
        else:
            model = RewardModel(folder, chosen, adapter=spec.adapter)
    else:
        model = CausalModel(folder, format=spec.format, adapter=spec.adapter)
        name = model.format.name
        if model.format.thinking is not None:
            Thoughts(model, model.format.thinking)
        else:
            check_closed(model, Question("?", "?"))
    if here:
        model.check_computable()
    return name


def format_name(spec: PolicySpec | PrmSpec) -> str:
    """The name of a model's format; "auto" becomes the format that it chooses by the folder.

    A file of a format, and the format of a user's own model, are as the spec has them.

    Raises:
        BadInputError: there is no such model, or it does not fit the format.
    """
    if spec.format != AUTO:
        return spec.format
    if spec.path == CHAT:
        return choose_policy_format(AUTO, ()).name
    if isinstance(spec, PrmSpec) and spec.path == SHIPPED["chat-judge"]:
        return chat_judge_format(spec).name
    if is_function_name(spec.path):
        return spec.format
    # The embedded world's models have one format each, and need not be read for it.
    if isinstance(spec, PolicySpec) and spec.path in world.POLICY_NAMES:
        return PLAIN.name
    if isinstance(spec, PrmSpec) and spec.path in world.PRM_NAMES:
        return WORLD.name
    return _check_spec(spec)


_CHECKED: dict[tuple[Any, ...], str] = {}
"""Names of formats by what was checked: each run checks twice, and vocabularies take seconds."""


def described_format(spec: PolicySpec | PrmSpec) -> str:
    """The format of a model for manifests and people: "auto: qwen2.5", or the spec's own.

    A model that is missing, or not in a folder, has the spec's own.
    """
    try:
        name = format_name(spec)
    except MissingModelError:
        return spec.format
    return name if name == spec.format else f"{spec.format}: {name}"


def thought_tokens(spec: PolicySpec) -> int:
    """Largest number of tokens of a thought in a policy's format; 0 without one.

    Raises:
        BadInputError: the format is unknown.
    """
    if spec.format == AUTO or is_function_name(spec.path):  # no format of "auto" has thoughts
        return 0
    thinking = choose_policy_format(spec.format, ()).thinking
    return 0 if thinking is None else thinking.most_tokens


def is_outcome_model(spec: PrmSpec) -> bool:
    """Whether a model reads finished answers only, by its format.

    False for a user's own model, which says so when it is loaded, and for a missing model.

    Raises:
        BadInputError: the model does not fit the format, or the format is unknown.
    """
    chosen = _prm_format(spec)
    return chosen is not None and chosen.finished_only


def is_judge(spec: PrmSpec) -> bool:
    """Whether a model is a language model as judge, by its format; see `is_outcome_model`."""
    chosen = _prm_format(spec)
    return chosen is not None and chosen.layout == "judge"


def writes_verdicts(spec: PrmSpec) -> bool | None:
    """Whether a PRM is a judge that writes, by its format; None for an own or a missing model."""
    chosen = _prm_format(spec)
    return None if chosen is None else isinstance(chosen.read_out, WrittenVerdict)


def format_to_read(spec: PrmSpec) -> PRMFormat:
    """The format of a PRM that is loaded to read given steps.

    Raises:
        BadInputError: there is no such model, it fits no format, or it reads no given steps.
    """
    if spec.path == SHIPPED["chat-judge"]:
        return chat_judge_format(spec)
    return choose_format(spec.format, model_folder(spec), spec.head)


def _prm_format(spec: PrmSpec) -> PRMFormat | None:
    """The format of a PRM; None for a user's own model and for a missing model."""
    if spec.path == SHIPPED["chat-judge"]:
        return chat_judge_format(spec)
    if is_function_name(spec.path):
        return None
    try:
        return choose_format(format_name(spec), spec.path, spec.head)
    except MissingModelError:
        return None


def check_scores_steps(specs: Sequence[PrmSpec], use: str) -> None:
    """Raise BadInputError if a model scores only finished answers; `use` needs step scores."""
    for spec in specs:
        if is_outcome_model(spec):
            raise _only_finished(spec.label, use)


def check_reads_steps(prm: StepScorer, label: str, use: str) -> None:
    """As `check_scores_steps`, of a loaded model, which may be of the user's own."""
    if facts_of(prm).finished_only:
        raise _only_finished(label, use)


def _only_finished(label: str, use: str) -> BadInputError:
    return BadInputError(
        f"{label!r} is an outcome model, which scores finished answers only, and {use} needs a "
        "score for each step: give a PRM"
    )


def _check_spec(spec: PolicySpec | PrmSpec) -> str:
    folder, here = model_folder(spec), choose_backend(spec).backend == "hf"
    what = (folder, spec.where, here, spec.adapter, getattr(spec, "head", None))
    if (name := _CHECKED.get((spec.format, *what))) is None:
        name = _check_files(folder, spec, here=here)
        _CHECKED[(spec.format, *what)] = name
        if spec.format == AUTO:  # the second time it has its name
            _CHECKED[(name, *what)] = name
    return name


class ModelFolders:
    """Model folders on this machine, the embedded world's models by name, and users' own models.

    For a path `module:function`, the function is called with the spec, and returns a
    `StepGenerator` or a `StepScorer`.
    """

    def fingerprint(self, spec: PolicySpec | PrmSpec) -> dict[str, Any]:
        """The folder's name and the SHA-256 of its config.json and of each file of weights.

        The digests of an adapter, of a head's file and of examples are added. A model of a user's
        own is identified by the name of its function, and a chat endpoint's by its name there.
        """
        shown = check_examples(spec)
        if is_function_name(spec.path):
            load_function(spec.path)
            named = {"name": spec.served_name} if spec.path in AT_ENDPOINTS else {}
            return {"function": spec.path, **named, **shown}
        folder = model_folder(spec)
        head = spec.head if isinstance(spec, PrmSpec) else None
        if isinstance(spec, PrmSpec):
            choose_format(spec.format, folder, head)
        found: dict[str, Any] = {"name": spec.name, "sha256": weight_digests(folder), **shown}
        if spec.adapter is not None:
            found["adapter"] = adapter_digests(spec.adapter)
        if head is not None:
            found["head"] = file_digest(pathlib.Path(head))
        return found

    def footprint(self, spec: PolicySpec | PrmSpec, work: Work) -> Footprint | None:
        """Memory of a model that this process or its vLLM engine loads.

        None for a server's model, a user's own, and a config.json that does not name the sizes.
        """
        spec = choose_backend(spec)
        if is_function_name(spec.path) or spec.backend not in ("hf", "vllm"):
            return None
        folder = model_folder(spec)
        head, writes = None, isinstance(spec, PolicySpec)
        if isinstance(spec, PrmSpec):
            work = work.of_prms()
            read_out = choose_format(spec.format, folder, spec.head).read_out
            head = read_out.layers if isinstance(read_out, Head) else None
            writes = isinstance(read_out, WrittenVerdict)
        shape = model_shape(folder, head)
        if shape is None:
            return None
        kind = "policy" if isinstance(spec, PolicySpec) else "PRM"
        title = f"{kind} {spec.name!r}"
        if spec.backend == "hf":
            return transformers_footprint(
                title,
                shape,
                work,
                samples=writes,
                free=None if (memory := device_memory(str(spec.device))) is None else memory.free,
                **_settings(spec, "device", "dtype", "batch_tokens", "kv_cache_gib"),
            )
        return vllm_footprint(
            title,
            shape,
            tensor_parallel_size=spec.tensor_parallel_size or 1,
            **_settings(
                spec, "device", "dtype", "max_model_len", "quantization", "gpu_memory_utilization"
            ),
        )

    def check(self, spec: PolicySpec | PrmSpec) -> None:
        """Check that a model's tokenizer, configuration and format fit together.

        For a model of a user's own, the function is looked up and not called.
        """
        if spec.path == CHAT or not is_function_name(spec.path):
            check_format_name(spec)
        check_examples(spec)
        if spec.path == SHIPPED["chat-judge"] and isinstance(spec, PrmSpec):
            chat_judge_format(spec)
        if is_function_name(spec.path):
            load_function(spec.path)
            return
        _check_spec(spec)

    def policy(self, spec: PolicySpec) -> StepGenerator:
        """Load a policy, or start its engine. With examples, a `BoostStep` of it."""
        spec = choose_backend(spec)
        shown = spec.examples
        examples = None if shown is None else example_steps(shown)
        own = is_function_name(spec.path)
        policy = _own_model(spec, StepGenerator) if own else _policy(spec, spec.format)
        if examples is None or shown is None:
            return policy
        return BoostStep(policy, examples, shown.threshold, shown.prompt)

    def prm(self, spec: PrmSpec) -> EngineScorer | HuggingFaceScorer | JudgeScorer:
        """Load a process reward model, or start its engine."""
        spec = choose_backend(spec)
        if is_function_name(spec.path):
            return _own_model(spec, StepScorer)
        silence_transformers()
        folder = model_folder(spec)
        prm_format = choose_format(spec.format, folder, spec.head)
        if isinstance(prm_format.read_out, WrittenVerdict):
            return _judge(spec, prm_format, prm_format.read_out)
        if spec.backend != "hf":
            return _engine_prm(spec, _engine_folder(spec))
        from .huggingface.scorer import HuggingFaceScorer

        return HuggingFaceScorer(folder, prm_format, **_settings(spec, *_LOADED))


def check_examples(spec: PolicySpec | PrmSpec) -> dict[str, Any]:
    """The entry `examples` of a policy's fingerprint, if it has examples.

    Raises:
        BadInputError: see `example_steps`; or there is no such prompt.
    """
    shown = getattr(spec, "examples", None)
    if shown is None:
        return {}
    problems, prompt = example_steps(shown).digest, load_example_prompt(shown.prompt).digests()
    return {"examples": {"problems": problems, **prompt, "threshold": shown.threshold}}


def example_steps(spec: ExamplesSpec) -> ExampleSteps:
    """The solved problems of a policy's examples.

    Raises:
        MissingModelError: there is no such file.
        BadInputError: it holds something else.
    """
    if not pathlib.Path(spec.file).exists():
        raise MissingModelError(
            f"example file {spec.file!r} does not exist: give a .jsonl file of solved problems"
        )
    return ExampleSteps.load(spec.file)


_ASKED = ("step_separator", "max_step_tokens", "max_answer_tokens")
_LOADED = ("device", "dtype", "batch_tokens", "kv_cache_gib", "num_threads", "adapter")


def _settings(spec: ModelSpec, *names: str) -> dict[str, Any]:
    """The named fields of a spec, as keyword arguments of a backend."""
    return {name: getattr(spec, name) for name in names}


def _server(spec: ModelSpec, context: int) -> ServerClient:
    """A connection to the server of a spec."""
    from .serving.http_engine import ServerClient, client_settings

    return ServerClient(
        spec.backend, model=spec.served_name, context=context, **client_settings(spec)
    )


def _own_model(spec: PolicySpec | PrmSpec, protocol: type) -> Any:
    """The model that the user's function returns for the spec, checked against the protocol."""
    function = load_function(spec.path)
    signature = None
    with contextlib.suppress(ValueError):  # a function of C code may have none
        signature = inspect.signature(function)
    try:
        if signature is not None:
            signature.bind(spec)
    except TypeError as error:
        raise BadInputError(
            f"{spec.path!r} is called with one argument, the {type(spec).__name__} of the recipe, "
            f"and takes {signature}: {error}"
        ) from error
    model = function(spec)
    if not isinstance(model, protocol):
        raise BadInputError(
            f"{spec.path!r} returned a {type(model).__name__}, which is not a {protocol.__name__}: "
            f"see cats_jax.protocols.{protocol.__name__} for what it needs"
        )
    return model


def _engine_folder(spec: PolicySpec | PrmSpec) -> pathlib.Path:
    """The folder that an engine reads: the model's, or a copy with the adapter merged."""
    folder = model_folder(spec)
    if spec.adapter is None:
        return folder
    from .merged_folder import merged_folder

    return merged_folder(folder, spec.adapter, spec.dtype)


def _policy(spec: PolicySpec, format: str | PolicyFormat) -> StepGenerator:
    """A policy on transformers or on vLLM, with a format in place of the spec's."""
    silence_transformers()
    if spec.backend != "hf":
        return _engine_policy(spec, format, _engine_folder(spec))
    from .huggingface.generator import HuggingFaceGenerator

    return HuggingFaceGenerator(
        model_folder(spec), format=format, **_settings(spec, *_ASKED, *_LOADED)
    )


def _judge(spec: PrmSpec, prm_format: PRMFormat, verdict: WrittenVerdict) -> JudgeScorer:
    """A judge that writes: the model as a policy that writes critiques."""
    from .huggingface.policy import StepPolicy

    here, folder = spec.backend == "hf", model_folder(spec)
    shared = _settings(spec, *(field.name for field in dataclasses.fields(ModelSpec)))
    writer = PolicySpec(
        **{**shared, "path": str(folder)},
        max_answer_tokens=verdict.max_tokens,
        log_probs=None if here else False,
    )
    adapter = None if spec.adapter is None else Adapter(spec.adapter, folder)
    sparsity = checkpoint_sparsity(folder, verdict, adapter=adapter)
    policy = _policy(writer, judge_policy_format(prm_format))
    if isinstance(policy, StepPolicy):
        policy.may_think = True
    return JudgeScorer(prm_format, policy, (sparsity.total, sparsity.last_layer))


def _engine_policy(
    spec: PolicySpec, format: str | PolicyFormat, folder: pathlib.Path
) -> StepGenerator:
    """A policy on vLLM, in an engine started here, or behind a server."""
    from .serving.generator import EngineGenerator
    from .serving.token_engine import Sampler

    def start(context: int) -> Sampler:
        if spec.backend == "vllm":
            from .serving.vllm_engine import VLLMSampler

            return VLLMSampler(folder, context=context, settings=spec)
        from .serving.http_engine import HTTPSampler
        from .serving.sglang_engine import SGLangSampler

        server = _server(spec, context)
        sampler = SGLangSampler if server.is_sglang else HTTPSampler
        return sampler(server, log_probs=spec.log_probs is not False)

    settings = _settings(spec, "max_model_len", *_ASKED)
    return EngineGenerator(folder, start, format=format, **settings)


def _engine_prm(spec: PrmSpec, folder: pathlib.Path) -> EngineScorer:
    """A PRM on vLLM, in an engine started here, or behind a server."""
    from .huggingface.reward_model import RewardModel
    from .serving.scorer import EngineScorer
    from .serving.token_engine import Classifier
    from .serving.vllm_engine import VLLMClassifier, classifier_overrides

    prm_format = choose_format(spec.format, folder)

    def start(model: RewardModel) -> Classifier:
        read_out, pair = prm_format.read_out, model.encoder.pair_ids
        if pair is not None:  # a format may name a token by its text
            read_out = TokenPair(*model.tokenizer.convert_ids_to_tokens(list(pair)))
        overrides = classifier_overrides(model.config.model_type, read_out)
        if spec.backend == "vllm":
            return VLLMClassifier(folder, context=model.context, overrides=overrides, settings=spec)
        from .serving.http_engine import HTTPClassifier
        from .serving.sglang_engine import SGLangClassifier

        server = _server(spec, model.context)
        if server.is_sglang:
            return SGLangClassifier(server, overrides, model.encoder.pair_ids)
        return HTTPClassifier(server, overrides)

    return EngineScorer(folder, prm_format, start, max_model_len=spec.max_model_len)


def model_folder(spec: PolicySpec | PrmSpec) -> pathlib.Path:
    """The folder of a model, by path or by its name in the embedded world.

    Raises:
        MissingModelError: see `check_model_folder`.
        BadInputError: the path is a misspelt name of the embedded world.
    """
    kind = "policy" if isinstance(spec, PolicySpec) else "PRM"
    names = world.POLICY_NAMES if isinstance(spec, PolicySpec) else world.PRM_NAMES
    if isinstance(spec, PrmSpec) and spec.is_confidence:
        raise BadInputError(
            "'confidence' is the policy's own confidence in steps that it sampled, and is not a "
            "model that reads other steps: give a PRM"
        )
    if spec.path in names:
        find = world.policy_path if isinstance(spec, PolicySpec) else world.prm_path
        try:
            return find(spec.path)
        except FileNotFoundError as error:
            raise BadInputError(str(error)) from error
    ways = f", one of the embedded world's ({', '.join(names)}), or a function as module:function"
    hint = misspelt(spec.path, names)
    if hint and not pathlib.Path(spec.path).exists():
        raise BadInputError(
            f"{kind} folder {spec.path!r} does not exist: {hint}give a local model folder{ways}"
        )
    return check_model_folder(spec.path, kind, ways)


def check_format_name(spec: PolicySpec | PrmSpec) -> None:
    """Raise BadInputError if a format is neither a known name nor a file; no folder is read."""
    if spec.format == AUTO:
        return
    if isinstance(spec, PrmSpec):
        choose_format(spec.format, spec.path, spec.head)
    else:
        choose_policy_format(spec.format, ())


def is_world_policy(spec: PolicySpec) -> bool:
    """Whether a policy is one of the embedded world's, which read only its questions."""
    return spec.path in world.POLICY_NAMES


def check_world_question(text: str, spec: PolicySpec, identity: str = "") -> None:
    """Check a question for a policy of the embedded world, which reads nothing but expressions.

    Args:
        text: the question.
        spec: the policy.
        identity: id of the question for the message, if it is one of several.

    Raises:
        BadInputError: the policy is one of these, and the text is not a question of the world.
    """
    if is_world_policy(spec):
        from ..world import task

        try:
            task.parse_question(text)
        except ValueError as error:
            named = f"{identity!r}, {text[:60]!r}," if identity else repr(text[:60])
            raise BadInputError(
                f"question {named} is not a question of the embedded world ({error}): write "
                "one like '((50*4)-21)+15=?', or name another model as the policy"
            ) from error


def silence_transformers() -> None:
    """Set transformers to log errors only; this package has its own errors for its warnings."""
    from transformers.utils import logging

    logging.set_verbosity_error()
