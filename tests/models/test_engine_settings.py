"""Settings of backends: what a recipe may say, what becomes of it, and what it is refused for."""

import dataclasses
import json
import shutil
import sys
import types
import warnings
from typing import Any

import chat_server
import made_runs
import pydantic
import pytest
import scripted

from cats_jax import world
from cats_jax.datasets import world_questions
from cats_jax.errors import BadInputError
from cats_jax.evaluation import evaluate
from cats_jax.models import backend
from cats_jax.models.backend import check_there, choose_backend, gpu_numbers
from cats_jax.models.prompts.thinking import Thinking
from cats_jax.models.resolve import check_gpu_shares, resolve_models
from cats_jax.models.serving.chat_endpoint import ChatEndpoint
from cats_jax.models.serving.generator import EngineGenerator
from cats_jax.models.serving.token_engine import SampleRequest
from cats_jax.models.serving.vllm_engine import (
    VLLMSampler,
    _stops_if_it_dies,
    check_names,
    engine_arguments,
    single_samples,
)
from cats_jax.models.serving.vllm_version import of_this_release
from cats_jax.models.source import ModelFolders
from cats_jax.runs.folder import MANIFEST, RunWriter, read_run
from cats_jax.runs.merge import merge_runs
from cats_jax.specs.models import (
    HF_KEYS,
    SERVER_KEYS,
    VLLM_KEYS,
    ExamplesSpec,
    PolicySpec,
    PrmSpec,
)
from cats_jax.specs.recipe import parse_recipe

SERVER = "http://localhost:8000"


@pytest.fixture
def machine(monkeypatch):
    """Sets what there is: a number of GPUs, and vLLM or not."""

    def has(gpus, vllm):
        monkeypatch.setattr(backend, "count_gpus", lambda: gpus)
        monkeypatch.setattr(backend, "has_vllm", lambda: vllm)

    return has


def recipe(**changes):
    content = {
        "name": "t",
        "strategies": ["majority"],
        "num_candidates": [2],
        "questions": {"world": "validation", "count": 3},
        "policy": "weak",
        "max_depth": 4,
    }
    return parse_recipe(content | changes)


# --- what a recipe may say ---


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tensor_paralel_size": 2}, "policy: unknown key .* did you mean 'tensor_parallel_size'"),
        ({"max_model_len": 0}, "policy: max_model_len=0: must be an integer of at least 1"),
        ({"max_num_seqs": True}, "policy: max_num_seqs=True"),
        ({"block_size": 1.5}, "policy: block_size=1.5"),
        ({"gpu_memory_utilization": 0}, r"policy: gpu_memory_utilization=0: .* in \(0, 1\]"),
        ({"gpu_memory_utilization": 1.01}, r"in \(0, 1\]"),
        ({"gpu_memory_utilization": "half"}, r"in \(0, 1\]"),
        ({"enforce_eager": "no"}, "enforce_eager='no': must be true or false"),
        ({"device": "gpu"}, "device='gpu': must be cpu, cuda, cuda:N or auto"),
        ({"dtype": "float64"}, "dtype='float64': backend vllm has float32, bfloat16, float16"),
        ({"backend": "hf", "dtype": "float16"}, "backend hf has float32, bfloat16"),
        ({"seed_per": "node"}, "seed_per='node': must be 'sample' or 'request'"),
        ({"backend": SERVER, "log_probs": 0}, "log_probs=0: must be true or false"),
        ({"backend": SERVER, "served_name": 3}, "policy: served_name=3: must be a name"),
        ({"backend": SERVER, "served_name": ""}, "served_name='': must be a name"),
        (
            {"backend": SERVER, "api_key_env": "sk-1"},
            "api_key_env: must .* capital letters.*, not the key itself$",
        ),
        ({"backend": SERVER, "api_key_env": "hf_aBc"}, "capital letters.*, not the key itself$"),
        ({"backend": "http://u:pw@host"}, "backend: an address must not hold a user or password"),
        ({"engine_args": [1]}, r"engine_args=\[1\]: must be a mapping"),
        ({"engine_args": {"max_model_len": 9}}, "set it by the key 'max_model_len'"),
        ({"engine_args": {"device_ids": [1]}}, "set it by the key 'device'"),
        ({"engine_args": {"trust_remote_code": True}}, "is set by cats-jax: leave it out"),
    ],
)
def test_bad_settings_are_refused_as_the_recipe_is_read(settings, message):
    with pytest.raises(BadInputError, match=message):
        recipe(policy={"path": "weak", "backend": "vllm", **settings})


GIVEN = {
    "device": "cuda",
    "dtype": "bfloat16",
    "batch_tokens": 9,
    "num_threads": 2,
    "max_model_len": 9,
    "gpu_memory_utilization": 0.1,
    "tensor_parallel_size": 2,
    "quantization": "fp8",
    "enforce_eager": False,
    "max_num_seqs": 9,
    "block_size": 32,
    "engine_args": {"seed": 1},
    "seed_per": "sample",
    "log_probs": False,
    "served_name": "m",
    "api_key_env": "A_KEY",
    "max_reply_seconds": 9,
    "adapter": "a",
}


@pytest.mark.parametrize("name", GIVEN)
@pytest.mark.parametrize("kind", ["hf", "vllm", SERVER])
def test_a_setting_that_the_backend_can_t_honour_is_refused(kind, name):
    honoured = {
        "hf": {"device", "dtype", *HF_KEYS},
        "vllm": {"device", "dtype", "max_model_len", "log_probs", *VLLM_KEYS},
        SERVER: {"max_model_len", "log_probs", *SERVER_KEYS},
    }[kind]
    if name in honoured:
        assert getattr(PolicySpec("weak", backend=kind, **{name: GIVEN[name]}), name) == GIVEN[name]
        return
    with pytest.raises(BadInputError, match=f"policy: {name}=.* has no effect with the backend"):
        PolicySpec("weak", backend=kind, **{name: GIVEN[name]})
    # A function may do with it what it likes, and "auto" drops it if the other backend is taken.
    for free in (PolicySpec("m:f", backend=kind, **{name: GIVEN[name]}),
                 PolicySpec("weak", backend="auto", **{name: GIVEN[name]})):  # fmt: skip
        assert getattr(free, name) == GIVEN[name]


def test_the_limit_of_a_reply_reaches_the_client_and_no_manifest():
    with chat_server.serving() as server:
        chat = {"backend": server.url, "served_name": "m", "chat": True, "max_reply_seconds": 7}
        endpoint = ChatEndpoint.of(PolicySpec(**chat))
        endpoint.close()
    assert endpoint._timeout == endpoint._client.timeout.read == 7
    given = recipe(policy=chat, prms=[], strategies=["majority"]).as_config()["policy"]
    assert "max_reply_seconds" not in given


def test_policies_and_prms_have_the_same_settings():
    names = [{entry.name for entry in dataclasses.fields(kind)} for kind in (PolicySpec, PrmSpec)]
    assert names[0] - names[1] == {
        "step_separator",
        "max_step_tokens",
        "max_answer_tokens",
        "examples",
        "seed_per",
        "log_probs",
        "chat",
    }
    assert names[1] - names[0] == {"label", "path_score", "head"}


# --- backend and device ---


@pytest.mark.parametrize(
    ("gpus", "vllm", "device", "expected"),
    [
        (1, True, None, ("vllm", "cuda")),
        (2, True, "cuda:1", ("vllm", "cuda:1")),
        (1, True, "cpu", ("hf", "cpu")),
        (1, False, None, ("hf", "cuda")),
        (0, True, None, ("hf", "cpu")),
        (0, False, "auto", ("hf", "cpu")),
    ],
)
def test_auto_takes_vllm_where_it_and_a_gpu_are(machine, gpus, vllm, device, expected):
    machine(gpus, vllm)
    asked = PolicySpec(
        "weak", backend="auto", device=device, block_size=16, batch_tokens=7, max_step_tokens=9
    )
    taken = choose_backend(asked)
    assert (taken.backend, taken.device) == expected
    assert (taken.block_size, taken.batch_tokens) == (
        (16, 1 << 16) if taken.backend == "vllm" else (None, 7)
    )
    assert taken.max_step_tokens == 9
    assert choose_backend(taken) == taken


def test_devices_of_the_other_backends(machine):
    machine(1, True)
    assert choose_backend(PrmSpec("exact")).device == "cpu"
    assert choose_backend(PrmSpec("exact", device="auto")).device == "cuda"
    assert choose_backend(PrmSpec("exact", backend="vllm")).device == "cuda"
    assert choose_backend(PrmSpec("exact", backend=SERVER)).device is None


def test_an_engine_over_several_gpus_takes_those_after_its_device():
    spec = PolicySpec("weak", backend="vllm", device="cuda:2", tensor_parallel_size=3)
    assert list(gpu_numbers(spec)) == [2, 3, 4]
    arguments = engine_arguments(spec, context=64)
    assert (arguments["device_ids"], arguments["tensor_parallel_size"]) == ([2, 3, 4], 3)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (PrmSpec("exact", device="cuda:2"), "prms: device 'cuda:2' is not there: torch sees 2"),
        (PolicySpec("weak", backend="vllm", device="cuda:1", tensor_parallel_size=2),
         "policy: device 'cuda:1' with tensor_parallel_size=2 is not there"),
    ],
)  # fmt: skip
def test_a_gpu_that_is_not_there(machine, spec, message):
    machine(2, True)
    check_there([PolicySpec("weak", device="cuda:1"), PolicySpec("weak", backend=SERVER)])
    with pytest.raises(BadInputError, match=message):
        check_there([PolicySpec("weak"), spec])


def test_sixteen_bits_on_a_cpu_without_instructions_for_them_warn(machine, monkeypatch):
    machine(1, True)
    specs = [
        PolicySpec("weak", dtype="bfloat16"),
        PrmSpec("exact", dtype="bfloat16", device="cpu"),
        PrmSpec("exact", dtype="float16", device="cpu", backend="vllm"),
        PrmSpec("exact", dtype="bfloat16", device="cuda"),
        PrmSpec("exact", device="cpu"),
        PolicySpec("weak", backend=SERVER),
    ]

    def said(capability):
        monkeypatch.setattr("torch.backends.cpu.get_cpu_capability", lambda: capability)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            check_there(specs)
        return [str(each.message) for each in caught]

    way = "takes several times as long as float32: set dtype: float32"
    no_avx512 = "this CPU has no AVX-512, without which"
    assert said("AVX2") == [
        f"policy: {no_avx512} bfloat16 {way}",
        f"prms: {no_avx512} bfloat16 {way}",
        f"prms: {no_avx512} float16 {way}",
    ]
    assert said("AVX512") == said("SVE256") == []


def test_a_run_looks_for_a_server_s_key_before_it_loads_a_model(monkeypatch):
    monkeypatch.setenv("A_KEY", "secret")
    check_there([PolicySpec("weak", backend=SERVER, api_key_env="A_KEY")])
    spec = PrmSpec("exact", backend=SERVER, api_key_env="NO_KEY")
    with pytest.raises(BadInputError, match="environment variable NO_KEY is not set"):
        check_there([PolicySpec("weak"), spec])
    asked = recipe(policy={"path": "weak", "backend": SERVER, "api_key_env": "A_KEY"})
    config = json.dumps(asked.as_config())
    assert "A_KEY" not in config
    assert "secret" not in config


def test_a_run_looks_for_the_prm_s_engine_before_it_loads_the_policy(machine, tmp_path):
    machine(0, False)
    asked = recipe(strategies=["best_of_n"], prms=[{"path": "exact", "backend": "vllm"}])
    models = scripted.ScriptedModels()
    prepared = evaluate.prepare(asked, models)
    with pytest.raises(BadInputError, match="prms: backend vllm: vLLM is not installed"):
        evaluate.evaluate(prepared, models, tmp_path / "run")


# --- contexts ---


def test_an_engine_gets_the_context_that_the_run_needs(machine, tmp_path):
    machine(1, False)
    questions = world_questions("validation", 8).questions
    policy = PolicySpec("weak", backend="vllm", max_step_tokens=10, max_answer_tokens=25)
    prm = PrmSpec("exact", backend="vllm")
    generator = EngineGenerator(world.policy_path("weak"), lambda context: None)
    longest = max(generator._model.check_prompt(question) for question in questions)
    assert longest < max(len(question.text) for question in questions) + 8

    resolved, (scorer,) = resolve_models(policy, (prm,), questions, max_depth=3)
    assert resolved.max_model_len == longest + 2 * 10 + 25
    assert resolved.max_model_len is not None
    assert scorer.max_model_len == 2 * resolved.max_model_len + 16 * 3
    assert resolve_models(resolved, (scorer,), questions, max_depth=9) == (resolved, (scorer,))
    # The prompt of a rewrite may be longer than a path; the PRM reads no prompts.
    rewrites, again = resolve_models(policy, (prm,), questions, 3, prompt_tokens=60)
    assert (rewrites.max_model_len, again) == (longest + 60 + 25, (scorer,))
    # So may the prompt with an example, which comes before each step; with its bytes.
    examples = tmp_path / "examples.jsonl"
    examples.write_text('{"problem": "7 * 8 = ?", "Step 1": "56"}\n{"problem": "", "Step 1": ""}')
    shown, example = tmp_path / "shown.yaml", "Problem: 7 * 8 = ?\nKey Step: Step 1: 56"
    shown.write_text("prompt: '{question}{example}'")
    folder = tmp_path / "weak"
    shutil.copytree(world.policy_path("weak"), folder)
    boosted = dataclasses.replace(
        policy, path=str(folder), examples=ExamplesSpec(str(examples), prompt=str(shown))
    )
    boosted, again = resolve_models(boosted, (prm,), questions, max_depth=3)
    room = len(example) + len("{question}{example}")
    assert boosted.max_model_len == longest + 2 * 10 + 25 + room
    assert again == (scorer,)
    # A rewrite has a thought of its own.
    own = tmp_path / "thinks.yaml"
    own.write_text("thinking: {budget: 8}\n")
    thinks = dataclasses.replace(policy, format=str(own))
    rewrites, _ = resolve_models(thinks, (), questions, 3, prompt_tokens=60)
    assert rewrites.max_model_len == longest + 60 + Thinking(8).most_tokens + 25
    # At most what the model has, and nothing where there is no engine.
    most, (scorer,) = resolve_models(policy, (prm,), questions, max_depth=99)
    assert (most.max_model_len, scorer.max_model_len) == (256, 256)
    plain, (scorer,) = resolve_models(PolicySpec("weak"), (prm,), questions, max_depth=3)
    assert plain.max_model_len is None
    served, _ = resolve_models(PolicySpec("weak", backend=SERVER), (), questions, max_depth=3)
    assert served.max_model_len is None


@pytest.mark.parametrize(
    ("max_model_len", "message"),
    [
        (257, "max_model_len=257 of .*weak.*: the model has a context of 256 tokens"),
        (12, r"question .* has \d+ prompt tokens, weak has a context of 12: raise max_model_len"),
    ],
)
def test_a_context_that_can_t_work_is_refused_before_weights_are_read(
    machine, max_model_len, message
):
    machine(1, False)
    policy = {"path": "weak", "backend": "vllm", "max_model_len": max_model_len}
    with pytest.raises(BadInputError, match=message):
        evaluate.prepare(recipe(policy=policy), ModelFolders())


def test_a_lower_context_reaches_the_engine_and_its_bridge():
    seen = []
    path = world.policy_path("weak")
    generator = EngineGenerator(path, seen.append, max_model_len=40)
    assert seen == [40]
    (question,) = world_questions("validation", 1).questions
    generator.check_question(question)
    with pytest.raises(BadInputError, match="context of 40: raise max_model_len"):
        generator.check_question(dataclasses.replace(question, text="1+" * 30 + "1=?"))


def test_shares_of_one_gpu_add_up_to_one_at_most(machine):
    machine(2, False)
    policy = PolicySpec("weak", backend="vllm", gpu_memory_utilization=0.6, tensor_parallel_size=2)
    large = PrmSpec("exact", backend="vllm", gpu_memory_utilization=0.5, device="cuda:1")
    with pytest.raises(
        BadInputError, match=r"PRM 'exact' are both on GPU 1 and request 1\.1 of its"
    ):
        check_gpu_shares(policy, (large,))
    fits = dataclasses.replace(large, gpu_memory_utilization=0.4)
    apart = dataclasses.replace(policy, tensor_parallel_size=None)
    check_gpu_shares(policy, (fits, dataclasses.replace(fits, label="b")))
    check_gpu_shares(apart, (large,))


# --- what vLLM is given ---


def test_defaults_on_a_gpu_are_vllm_s_own():
    spec = PolicySpec("weak", backend="vllm", device="cuda")
    gpu = engine_arguments(spec, context=64)
    assert (gpu["enforce_eager"], gpu["block_size"], gpu["device_ids"]) == (False, None, [0])
    assert "max_num_batched_tokens" not in gpu
    cpu = engine_arguments(dataclasses.replace(spec, device="cpu"), context=64)
    assert (cpu["enforce_eager"], cpu["block_size"]) == (True, 32)
    assert cpu["enable_chunked_prefill"] is False
    assert "device_ids" not in cpu


@pytest.mark.parametrize(
    ("settings", "bind", "one"),
    [
        ({}, None, True),
        ({}, "nobind", True),
        ({}, "0-3", False),
        ({"tensor_parallel_size": 2}, None, False),
        ({"engine_args": {"pipeline_parallel_size": 2}}, None, False),
        ({"engine_args": {"distributed_executor_backend": "mp"}}, None, False),
    ],
)
def test_an_engine_on_a_cpu_is_one_process_unless_it_needs_more(settings, bind, one, monkeypatch):
    monkeypatch.delenv("VLLM_CPU_OMP_THREADS_BIND", raising=False)
    if bind is not None:
        monkeypatch.setenv("VLLM_CPU_OMP_THREADS_BIND", bind)
    spec = PolicySpec("weak", backend="vllm", device="cpu", **settings)
    arguments = engine_arguments(spec, context=64)
    executor = arguments.get("distributed_executor_backend", "")
    assert executor.endswith("UniProcExecutor") == one
    gpu = engine_arguments(dataclasses.replace(spec, device="cuda"), context=64)
    assert not gpu.get("distributed_executor_backend", "").endswith("UniProcExecutor")


def test_settings_and_free_arguments_reach_vllm():
    settings = {
        "dtype": "bfloat16",
        "quantization": "fp8",
        "enforce_eager": False,
        "max_num_seqs": 7,
        "block_size": 64,
        "gpu_memory_utilization": 0.3,
    }
    free = {"seed": 5, "max_num_batched_tokens": 100}
    spec = PolicySpec("weak", backend="vllm", device="cpu", engine_args=free, **settings)
    expected = {"max_model_len": 64, **settings, **free}
    assert expected.items() <= engine_arguments(spec, context=64).items()


@pytest.fixture
def fake_vllm(monkeypatch):
    """As much of vLLM as `check_names` and `single_samples` ask."""

    @dataclasses.dataclass
    class EngineArgs:
        model: str = ""
        swap_space: float = 4.0

    names = ("vllm", "vllm.model_executor", "vllm.model_executor.layers", "vllm.v1")
    names += ("vllm.model_executor.layers.quantization", "vllm.v1.engine")
    modules = {name: types.ModuleType(name) for name in (*names, "vllm.v1.engine.exceptions")}
    contents = {
        "vllm": {
            "EngineArgs": EngineArgs,
            "SamplingParams": types.SimpleNamespace,
            "__version__": "0.32",
        },
        "vllm.model_executor.layers.quantization": {"QUANTIZATION_METHODS": ["awq", "fp8"]},
        "vllm.v1.engine.exceptions": {"EngineDeadError": RuntimeError},
    }
    for name, content in contents.items():
        vars(modules[name]).update(content)
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)


@pytest.mark.usefixtures("fake_vllm")
def test_names_are_checked_against_vllm_s_own():
    check_names(PrmSpec("p", backend="vllm", engine_args={"swap_space": 1}, quantization="fp8"))
    with pytest.raises(
        BadInputError, match=r"prms: engine_args: .*0\.32.*did you mean 'swap_space'"
    ):
        check_names(PrmSpec("p", backend="vllm", engine_args={"swap_spaces": 1}))
    with pytest.raises(BadInputError, match=r"quantization='fp8x' .*did you mean 'fp8'.*awq"):
        check_names(PrmSpec("p", backend="vllm", quantization="fp8x"))


def _params(names):
    """`SamplingParams` or `PoolingParams` of a release that has these arguments alone."""
    source = f"def __init__(self, *, {', '.join(names)}): vars(self).update(locals())"
    found: dict[str, object] = {}
    exec(source, found)
    return type("Params", (), {"__init__": found["__init__"]})


_ARGUMENTS = ("temperature", "top_p", "top_k", "max_tokens", "stop_token_ids", "ignore_eos")
_ARGUMENTS += ("detokenize", "logprobs")


@pytest.mark.usefixtures("fake_vllm")
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((*_ARGUMENTS, "skip_clone"), None),
        (_ARGUMENTS, None),  # without it copies cost time
        ((*_ARGUMENTS[:-1], "skip_clone"), "logprobs"),
    ],
)
def test_what_another_vllm_lacks_costs_speed_or_is_named_in_one_line(monkeypatch, arguments, says):
    vllm: Any = sys.modules["vllm"]
    monkeypatch.setattr(vllm, "SamplingParams", _params(arguments))
    monkeypatch.setattr(vllm, "__version__", "0.31.7")
    asked = SampleRequest((0,), (4,), 1.0, 1.0, 0, 1, (1,))
    if says is None:
        with of_this_release():
            ((_, params),) = single_samples(asked)
        assert params.seed == 2
        assert hasattr(params, "skip_clone") == ("skip_clone" in arguments)
        return
    message = rf"vLLM 0\.31\.7 lacks .*'{says}'.*: install vllm>=0\.32,<0\.33"
    with pytest.raises(BadInputError, match=message), of_this_release():
        list(single_samples(asked))


@pytest.mark.usefixtures("fake_vllm")
def test_a_vllm_without_a_module_or_its_error_for_dead_engines(monkeypatch):
    monkeypatch.delitem(sys.modules, "vllm.v1.engine.exceptions")
    monkeypatch.setitem(sys.modules, "vllm.v1.engine.exceptions", None)  # can't be imported
    with pytest.raises(KeyError), _stops_if_it_dies():
        raise KeyError("its own error passes")
    monkeypatch.setitem(sys.modules, "vllm.model_executor.layers.quantization", None)
    with pytest.raises(BadInputError, match=r"vLLM 0\.32 lacks .*quantization"):
        check_names(PrmSpec("p", backend="vllm", quantization="fp8"))


def _refused_by_pydantic():
    reason = {"error": ValueError("max_num_seqs is too large")}
    return pydantic.ValidationError.from_exception_data(
        "EngineArgs", [{"type": "value_error", "input": 9, "ctx": reason}]
    )


@pytest.mark.usefixtures("fake_vllm")
@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (RuntimeError, "RuntimeError"),
        (lambda: ValueError("first\nlast"), "last"),
        # vLLM's settings are classes of pydantic, whose last line is a link.
        (_refused_by_pydantic, "Value error, max_num_seqs is too large"),
    ],
)
def test_the_reason_why_an_engine_does_not_start_is_shown(monkeypatch, fault, reason):
    def fails(**arguments):
        raise fault()

    vllm, platforms = sys.modules["vllm"], types.ModuleType("vllm.platforms")
    monkeypatch.setattr(vllm, "LLM", fails, raising=False)
    cpu = types.SimpleNamespace(is_cpu=lambda: True)
    monkeypatch.setattr(platforms, "current_platform", cpu, raising=False)
    monkeypatch.setitem(sys.modules, "vllm.platforms", platforms)
    spec = PolicySpec("weak", backend="vllm", device="cpu", num_threads=1)
    with pytest.raises(BadInputError, match=f"does not start with 'weak': {reason}: its own"):
        VLLMSampler("weak", context=8, settings=spec)


@pytest.mark.usefixtures("fake_vllm")
def test_a_run_checks_names_where_vllm_is_installed(monkeypatch):
    monkeypatch.setattr("cats_jax.models.resolve.has_vllm", lambda: True)
    monkeypatch.setattr(backend, "count_gpus", lambda: 1)
    policy = {"path": "weak", "backend": "vllm", "engine_args": {"swap": 1}}
    with pytest.raises(BadInputError, match="no engine argument 'swap'"):
        evaluate.prepare(recipe(policy=policy), ModelFolders())


class FakeEngine:
    """Answers every sample with the seed that vLLM would sample it with."""

    def generate(self, prompts, parameters, use_tqdm):
        self.number = len(parameters)
        for prompt, asked in zip(prompts, parameters, strict=True):
            seed = getattr(asked, "seed", None)
            completion = types.SimpleNamespace(
                token_ids=[*prompt["prompt_token_ids"], seed],
                finish_reason="stop",
                logprobs=None
                if asked.logprobs is None
                else [{token: types.SimpleNamespace(logprob=-0.5)} for token in (5, 6, seed)],
            )
            yield types.SimpleNamespace(outputs=[completion], num_cached_tokens=None)


@pytest.mark.usefixtures("fake_vllm")
@pytest.mark.parametrize("log_probs", [True, False])
@pytest.mark.parametrize(
    ("together", "number", "seeds"), [(False, 5, [10, 20, 30]), (True, 4, [10, 11, 12])]
)
def test_seeds_of_the_samples_of_a_node(together, number, seeds, log_probs):
    sampler = VLLMSampler.__new__(VLLMSampler)
    sampler.engine, sampler._together, sampler._queue = FakeEngine(), together, None
    sampler._log_probs = log_probs
    sampled = SampleRequest((5, 6), (20, 40, 60), 1.0, 1.0, 0, 8, (2,))  # theirs are half of ours
    greedy = dataclasses.replace(sampled, seeds=(2, 4), temperature=0.0)
    answers = sampler.sample([sampled, greedy])
    assert sampler.engine.number == number
    assert [one.ids for one in answers[0]] == [(5, 6, seed) for seed in seeds]
    assert [one.ids for one in answers[1]] == [(5, 6, None)] * 2
    assert answers[0][0].log_probs == ((-0.5,) * 3 if log_probs else None)


# --- manifests ---


def begin(folder, **policy):
    """The policy's settings in the manifest of a run that begins or goes on in a folder."""
    prepared = evaluate.prepare(recipe(policy={"path": "weak", **policy}), ModelFolders())
    with RunWriter(folder, prepared.manifest) as writer:
        if not writer.keys:  # a folder without rows is locked by no manifest
            writer.add(made_runs.row(), None)
    return json.loads((folder / MANIFEST).read_text())["config"]["policy"]


def test_the_manifest_says_what_was_taken_and_another_backend_is_refused(machine, tmp_path):
    machine(0, False)
    assert begin(tmp_path, backend="auto")["backend"] == "hf"
    assert begin(tmp_path, backend="hf")["device"] == "cpu"  # the same run
    machine(1, True)
    with pytest.raises(BadInputError, match=r'config\.policy\.backend: "hf" -> "vllm"'):
        begin(tmp_path, backend="auto")
    assert begin(tmp_path / "vllm", backend="auto")["backend"] == "vllm"
    with pytest.raises(BadInputError, match=r"config\.policy\.max_model_len: \d+ -> 250"):
        begin(tmp_path / "vllm", backend="auto", max_model_len=250)


NEW = ("max_model_len", "tensor_parallel_size", "quantization", "enforce_eager", "max_num_seqs")
NEW += ("block_size", "engine_args", "seed_per", "log_probs", "served_name", "adapter")


@pytest.mark.parametrize("kind", ["hf", SERVER])
def test_a_run_from_before_the_settings_goes_on(tmp_path, kind):
    begin(tmp_path / "new", backend=kind)
    begin(tmp_path / "old", backend=kind)
    path = tmp_path / "old" / MANIFEST
    manifest = json.loads(path.read_text())
    policy = {k: v for k, v in manifest["config"]["policy"].items() if k not in NEW}
    assert len(policy) == len(manifest["config"]["policy"]) - len(NEW)
    manifest["config"]["policy"] = policy | {"device": "cpu"}  # it stood there for servers, too
    path.write_text(json.dumps(manifest))
    begin(tmp_path / "old", backend=kind)  # goes on
    # And its rows may stand beside those of today.
    assert len(merge_runs([read_run(tmp_path / name) for name in ("old", "new")])) == 1
