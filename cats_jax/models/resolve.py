"""The models of a run, resolved before one is loaded: backends, devices, contexts of engines."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

from .. import world
from ..errors import BadInputError
from ..protocols import Question
from ..specs.example_steps import load_example_prompt
from ..specs.functions import AT_ENDPOINTS, is_function_name
from ..specs.models import ModelSpec, PolicySpec, PrmSpec
from .backend import choose_backend, gpu_numbers, has_vllm
from .folders import MissingModelError
from .prm.family import AUTO, choose_format
from .prm.verdict import WrittenVerdict
from .source import example_steps, format_name, model_folder, silence_transformers, thought_tokens
from .threads import default_threads

if TYPE_CHECKING:
    from .huggingface.model import CausalModel

_PRM_FACTOR = 2
"""PRM tokens reserved for each token of the policy: the vocabularies differ."""

_TAG_TOKENS = 16
"""Tokens reserved for each step, for the tags of a PRM's format."""

Spec = TypeVar("Spec", bound=PolicySpec | PrmSpec)


def resolve_models(
    policy: PolicySpec,
    prms: tuple[PrmSpec, ...],
    questions: Sequence[Question],
    max_depth: int,
    prompt_tokens: int = 0,
    compared_tokens: int = 0,
) -> tuple[PolicySpec, tuple[PrmSpec, ...]]:
    """The models as this machine will run them; the choices belong in the manifest.

    Backends and devices are chosen, see `choose_backend`, and threads, see `choose_threads`. The
    format "auto" becomes the name of its format, except for the embedded world's models, which have
    one each. An engine of vLLM without `max_model_len` gets what the run can need, at most the
    model's own. The policy's engine gets

        longest prompt + (max_depth - 1) max_step_tokens + max(max_step_tokens, max_answer_tokens)

    tokens, those of a thought if its format has one, and those of its longest example, so that no
    sample depends on it. For rewrites and comparisons it gets at least the longest prompt of a
    question, `prompt_tokens`, the tokens of a thought, and max(max_step_tokens, max_answer_tokens).
    A PRM's engine, with its other vocabulary, gets twice as many as the formula without examples
    and 16 per step for the tags of its format; see `prm_context` for judges.

    Args:
        policy, prms: those of a recipe; one PRM at a time is in memory beside the policy.
        questions, max_depth: questions of the run, and largest number of steps of a path.
        prompt_tokens: most tokens that the prompt of a rewrite or a comparison by the policy has
            besides the question's; 0 if the run has none.
        compared_tokens: the same for comparisons by PRMs.

    Raises:
        BadInputError: there is no such model; or a setting of an engine can't work: an unknown
            argument or quantization (known where vLLM is installed), or a context longer than the
            model's or too short for a question.
    """
    policy = choose_threads(resolve_format(policy))
    prms = tuple(choose_threads(resolve_format(spec)) for spec in prms)
    _check_names((policy, *prms))
    if not any(map(_has_own_engine, (policy, *prms))):
        return policy, prms
    silence_transformers()
    policy, longest = _with_prompts(policy, questions, max_depth, prompt_tokens)
    return policy, tuple(
        _with_context(spec, prm_context(spec, longest, max_depth, compared_tokens))
        if _has_own_engine(spec)
        else spec
        for spec in prms
    )


def prm_context(spec: PrmSpec, path_tokens: int, max_depth: int, compared_tokens: int = 0) -> int:
    """Context that a PRM gets for paths of some tokens of the policy, prompt included.

    A judge also gets room for its messages, for a critique, and for the larger of a second copy of
    the path, if its prompt shows the last step, and the answers that it compares.
    """
    needed = _PRM_FACTOR * path_tokens + _TAG_TOKENS * max_depth
    if spec.format == AUTO:  # of a missing model, or of the embedded world's
        return needed
    chosen = choose_format(spec.format, spec.path, spec.head)
    if chosen.layout != "judge":
        return needed
    critique = chosen.read_out.max_tokens if isinstance(chosen.read_out, WrittenVerdict) else 0
    messages = len((chosen.system + chosen.prompt).encode())
    shown = max(needed * chosen.prompt.count("{step}"), _PRM_FACTOR * compared_tokens)
    return needed + shown + messages + critique


def choose_threads(spec: Spec) -> Spec:
    """A spec with the number of threads that its model gets, see `default_threads`.

    A function gets 1. A model behind a server keeps None, as does one that can't be read: loading
    it reports what is wrong.
    """
    if spec.num_threads is not None:
        return spec
    if is_function_name(spec.path) and spec.path not in AT_ENDPOINTS:
        return dataclasses.replace(spec, num_threads=1)
    if spec.backend not in ("hf", "vllm"):
        return spec
    try:
        threads = default_threads(model_folder(spec), str(spec.device))
    except BadInputError:
        return spec
    return dataclasses.replace(spec, num_threads=threads)


def resolve_format(spec: Spec) -> Spec:
    """A spec whose backend is chosen, and whose format "auto" has the name that it stands for."""
    spec = choose_backend(spec)
    if spec.path in (*world.POLICY_NAMES, *world.PRM_NAMES):
        return spec  # as manifests have had it from the beginning
    try:
        return dataclasses.replace(spec, format=format_name(spec))
    except MissingModelError:
        return spec  # the models are not folders, but from a `ModelSource` of another kind


def _has_own_engine(spec: ModelSpec) -> bool:
    return spec.backend == "vllm" and not is_function_name(spec.path)


def _with_prompts(
    policy: PolicySpec, questions: Sequence[Question], max_depth: int, prompt_tokens: int
) -> tuple[PolicySpec, int]:
    """The policy with a context, and the largest number of tokens of a path, prompt included."""
    last = max(policy.max_step_tokens, policy.max_answer_tokens)
    thought = thought_tokens(policy)
    steps = (max_depth - 1) * policy.max_step_tokens + last + thought
    if is_function_name(policy.path):
        # A text has at most as many tokens as bytes.
        return policy, max((len(q.text.encode()) for q in questions), default=0) + steps
    model = _without_weights(policy, format=policy.format)
    model.limit_context(policy.max_model_len)
    longest = max(map(model.check_prompt, questions), default=0)
    needed = longest + max(steps + example_tokens(policy), prompt_tokens + last + thought)
    needed = min(needed, model.context)
    if _has_own_engine(policy) and policy.max_model_len is None:
        policy = dataclasses.replace(policy, max_model_len=needed)
    return policy, min(longest + steps, model.context)


def example_tokens(policy: PolicySpec) -> int:
    """Most tokens of an example and its prompt: a text has at most as many tokens as bytes."""
    if policy.examples is None:
        return 0
    prompt = load_example_prompt(policy.examples.prompt).prompt
    return example_steps(policy.examples).most_bytes + len(prompt.encode())


def _with_context(spec: PrmSpec, needed: int) -> PrmSpec:
    model = _without_weights(spec, format=None)
    model.limit_context(spec.max_model_len)
    if spec.max_model_len is not None:
        return spec
    return dataclasses.replace(spec, max_model_len=min(needed, model.own_context))


def _without_weights(spec: PolicySpec | PrmSpec, *, format: str | None) -> CausalModel:
    """A model's tokenizer and configuration."""
    from .huggingface.model import CausalModel

    return CausalModel(model_folder(spec), format=format)


def check_gpu_shares(policy: PolicySpec, prms: tuple[PrmSpec, ...]) -> None:
    """Check that two engines on one GPU, of a policy and a PRM, do not take more than its memory.

    Raises:
        BadInputError: they do.
    """
    policy = choose_backend(policy)
    for prm in map(choose_backend, prms):
        if policy.backend != "vllm" or prm.backend != "vllm":
            continue
        shared = set(gpu_numbers(policy)) & set(gpu_numbers(prm))
        both = policy.gpu_memory_utilization + prm.gpu_memory_utilization
        if shared and both > 1 + 1e-9:
            raise BadInputError(
                f"policy and PRM {prm.label!r} are both on GPU {min(shared)} and request "
                f"{both:g} of its memory: lower gpu_memory_utilization to a sum below 1, or set "
                "another device for one of them"
            )


def _check_names(specs: Sequence[ModelSpec]) -> None:
    named = [s for s in specs if s.backend == "vllm" and (s.engine_args or s.quantization)]
    if named and has_vllm():
        from .serving.vllm_engine import check_names

        for spec in named:
            check_names(spec)
