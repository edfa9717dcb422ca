"""Memory by arithmetic: published configurations, a measured tiny model, and what is refused."""

import dataclasses
import functools
import json
import math
import pathlib
import weakref

import pytest
import torch
import transformers
from tiny_models import save_model
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from cats_jax import cli
from cats_jax.errors import BadInputError
from cats_jax.models import footprint, source
from cats_jax.models.footprint import GIB, Footprint, Memory, ModelShape, PromptLoad, Work
from cats_jax.models.huggingface import sampling
from cats_jax.models.huggingface.generator import HuggingFaceGenerator
from cats_jax.models.huggingface.model import WIDTH, CausalModel
from cats_jax.models.serving import vllm_engine
from cats_jax.protocols import Question, StepRequest
from cats_jax.specs.recipe import PolicySpec, PrmSpec

# What the releases' config.json say, and their number of parameters.
_QWEN_7B = {
    "model_type": "qwen2",
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "vocab_size": 152064,
    "max_position_embeddings": 32768,
    "sliding_window": 131072,
    "use_sliding_window": False,
    "tie_word_embeddings": False,
}
_QWEN_HALF_B = {
    **_QWEN_7B,
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "vocab_size": 151936,
    "tie_word_embeddings": True,
}
_LLAMA_8B = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
}


def _tensors(config):
    """Names and shapes of a Qwen2 or Llama model; only Qwen2 has biases."""
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    kv = hidden // config["num_attention_heads"] * config["num_key_value_heads"]
    shapes = {
        "model.embed_tokens.weight": [config["vocab_size"], hidden],
        "model.norm.weight": [hidden],
        "lm_head.weight": [config["vocab_size"], hidden],
    }
    for layer in range(config["num_hidden_layers"]):
        sizes = {"q_proj": hidden, "k_proj": kv, "v_proj": kv}
        for name, size in sizes.items():
            shapes[f"model.layers.{layer}.self_attn.{name}.weight"] = [size, hidden]
            if config["model_type"] == "qwen2":
                shapes[f"model.layers.{layer}.self_attn.{name}.bias"] = [size]
        shapes[f"model.layers.{layer}.self_attn.o_proj.weight"] = [hidden, hidden]
        shapes[f"model.layers.{layer}.mlp.gate_proj.weight"] = [inner, hidden]
        shapes[f"model.layers.{layer}.mlp.up_proj.weight"] = [inner, hidden]
        shapes[f"model.layers.{layer}.mlp.down_proj.weight"] = [hidden, inner]
        shapes[f"model.layers.{layer}.input_layernorm.weight"] = [hidden]
        shapes[f"model.layers.{layer}.post_attention_layernorm.weight"] = [hidden]
    return shapes


def _folder(path, config, more=()):
    """A model folder whose weights are a hole in a file: a header and nothing else."""
    path.mkdir(parents=True)
    (path / "config.json").write_text(json.dumps(config))
    header, at = {}, 0
    for name, shape in {**_tensors(config), **dict(more)}.items():
        size = 2 * math.prod(shape)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    with (path / "model.safetensors").open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + at)
    return path


def _shape(folder, head=None) -> ModelShape:
    shape = footprint.model_shape(folder, head)
    assert shape is not None
    return shape


def _footprint(spec, work) -> Footprint:
    found = source.ModelFolders().footprint(spec, work)
    assert found is not None
    return found


def _on_transformers(shape, work, *, samples=True, device="cpu", batch_tokens=1 << 16, **settings):
    return footprint.transformers_footprint(
        "m",
        shape,
        work,
        samples=samples,
        device=device,
        dtype="bfloat16",
        batch_tokens=batch_tokens,
        **settings,
    )


@pytest.mark.parametrize(
    ("config", "parameters", "kv"),
    [
        (_QWEN_7B, 7_615_616_512, 57_344),
        (_LLAMA_8B, 8_030_261_248, 131_072),
        # Its release stores no lm_head; here it is there, and tied to the embedding.
        (_QWEN_HALF_B, 494_032_768, 12_288),
    ],
    ids=["Qwen2.5-7B", "Llama-3.1-8B", "Qwen2.5-0.5B"],
)
def test_published_models(tmp_path, config, parameters, kv):
    shape = _shape(_folder(tmp_path / "model", config))
    assert shape.parameters == parameters
    assert shape.weight_bytes("bfloat16") == 2 * parameters
    assert shape.weight_bytes("float32") == 4 * parameters
    assert shape.weight_bytes("bfloat16", "fp8") == parameters
    assert shape.kv_bytes("bfloat16") == kv
    assert shape.kv_bytes("float32") == 2 * kv
    assert shape.context == config["max_position_embeddings"]


def test_a_prm_has_its_head_in_place_of_the_language_model_head(tmp_path):
    more = {"score.0.weight": [3584, 3584], "score.2.weight": [2, 3584]}
    folder = _folder(tmp_path / "prm", _QWEN_7B, more)
    shape = _shape(folder, ("score.0", "score.2"))
    assert shape.parameters == 7_615_616_512 - 152064 * 3584 + 3584 * 3584 + 2 * 3584
    assert shape.outputs == 1
    spec = PrmSpec(str(folder), format="qwen2.5-math-prm", dtype="bfloat16")
    found = _footprint(spec, Work())
    assert found.weights == 2 * shape.parameters
    assert found.title == "PRM 'prm'"


def test_a_prm_s_head_with_the_name_of_the_language_model_head_counts(tmp_path):
    config = {**_QWEN_7B, "tie_word_embeddings": True}
    folder = _folder(tmp_path / "prm", config, {"lm_head.weight": [2, 3584]})
    assert _shape(folder, ("lm_head",)).parameters == 7_615_616_512 - (152064 - 2) * 3584


def test_a_head_that_its_model_type_ties_counts_once(tmp_path):
    config = {**_LLAMA_8B, "model_type": "gemma"}
    tied = _shape(_folder(tmp_path / "m", config)).parameters
    assert tied == 8_030_261_248 - config["vocab_size"] * config["hidden_size"]


def test_a_sliding_window_is_not_the_context(tmp_path):
    config = {**_QWEN_HALF_B, "use_sliding_window": True, "sliding_window": 4096}
    expected = _shape(_folder(tmp_path / "m", config))
    assert expected.context == config["max_position_embeddings"]
    # A model of text and images has the sizes of its language model nested.
    nested = _folder(tmp_path / "n", config)
    (nested / "config.json").write_text(json.dumps({"text_config": config}))
    assert _shape(nested) == expected
    (nested / "config.json").write_text(json.dumps({**config, "text_config": None}))
    assert _shape(nested) == expected


def test_sizes_under_other_names_are_not_guessed(tmp_path):
    folder = _folder(tmp_path / "m", _QWEN_HALF_B)
    (folder / "config.json").write_text(json.dumps({"n_layer": 2}))
    assert footprint.model_shape(folder) is None
    assert source.ModelFolders().footprint(PolicySpec(str(folder)), Work()) is None
    assert source.ModelFolders().footprint(PolicySpec("x", backend="http://h:1"), Work()) is None


def test_tokens_of_a_run():
    work = Work(questions=64, paths=256, steps=40, step_tokens=512, answer_tokens=2048)
    path = 256 + 39 * 512 + 2048
    assert work.path_tokens(131072) == path
    assert work.cached_tokens(131072) == 64 * (256 + 256 * (path - 256))
    assert work.path_tokens(4096) == 4096
    assert work.cached_tokens(4096) == 64 * (256 + 256 * (4096 - 256))


def test_a_model_has_room_for_the_prompts_that_it_reads():
    usual = Work(questions=2, paths=8, steps=3, step_tokens=100, answer_tokens=400)
    prompts, judged = (PromptLoad(150, 12), PromptLoad(1000, 8)), (PromptLoad(5000, 3),)
    work = dataclasses.replace(usual, thought_tokens=50, prompts=prompts, prm_prompts=judged)
    rewrite = 256 + 1000 + 50 + 400  # the prompt, a thought and the new answer
    assert work.path_tokens(131072) == rewrite
    assert work.cached_tokens(131072) == 2 * 8 * rewrite
    # Many short prompts may need more than few long ones, and a context bounds both.
    assert work.cached_tokens(900) == 2 * 12 * (256 + 150 + 50 + 400)
    assert work.cached_tokens(700) == 2 * 12 * 700
    assert work.of_prms().path_tokens(131072) == 256 + 5000 + 50 + 400
    plain = dataclasses.replace(work, prm_prompts=()).of_prms()
    assert plain.path_tokens(131072) == 256 + 2 * 100 + 50 + 400
    # A short prompt of a rewrite leaves a path of many steps the longest.
    short = dataclasses.replace(usual, prompts=prompts[:1])
    assert short.path_tokens(131072) == 256 + 2 * 100 + 400
    # Without such prompts, the paths of a question need more.
    assert usual.cached_tokens(131072) == 2 * (256 + 8 * (2 * 100 + 400))


def test_long_prompts_take_activations(tmp_path):
    """Two prompts of a comparison are computed together, or one of them if the batch is small."""
    shape = _shape(_folder(tmp_path / "m", _QWEN_HALF_B))

    def activations(batch_tokens, **prompts):
        work = Work(questions=1, paths=1, answer_tokens=256, **prompts)
        return _on_transformers(shape, work, batch_tokens=batch_tokens).activations

    prompts = {"prompts": (PromptLoad(4000, 2),)}
    chunk = shape.chunk_bytes(1, 4256, 4256, "bfloat16")
    assert activations(1, **prompts) == chunk
    assert activations(1 << 16, **prompts) == 2 * chunk > 10 * activations(1 << 16)


# Measured


class _Live(TorchDispatchMode):
    """The largest number of bytes in tensors at once, of those made under this mode."""

    def __init__(self):
        super().__init__()
        self.peak = self._now = 0
        self._sizes = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            if isinstance(leaf, torch.Tensor):
                storage = leaf.untyped_storage()
                key = storage._cdata
                if key not in self._sizes:
                    self._sizes[key] = storage.nbytes()
                    self._now += storage.nbytes()
                    self.peak = max(self.peak, self._now)
                    weakref.finalize(storage, self._freed, key)
        return out

    def _freed(self, key):
        self._now -= self._sizes.pop(key, 0)


_TINY = {
    "small": {},
    "wide": {"hidden_size": 256, "intermediate_size": 1024, "num_hidden_layers": 4},
    "large vocabulary": {"vocab_size": 4096},
}


@pytest.fixture(scope="module", params=_TINY)
def tiny(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiny") / "tiny"
    return save_model(folder, max_position_embeddings=1024, **_TINY[request.param])


@pytest.mark.parametrize(("rows", "new"), [(32, 64), (8, 256)])
def test_chunks_take_what_the_estimate_says(tiny, rows, new):
    shape = _shape(tiny)
    model = CausalModel(tiny, device="cpu", dtype="float32", num_threads=1, kv_cache_gib=0.05)
    model.load_weights()
    weights = sum(p.numel() * p.element_size() for p in model.model.parameters())
    assert shape.weight_bytes("float32") == weights
    cache = model.new_cache()
    assert shape.kv_bytes("float32") == model.kv_bytes_per_token
    cache._room(rows * new)  # the cache's own bytes are counted apart
    chunks = [tuple(range(5, 25)) * (new // 20) + (5,) * (new % 20)] * rows
    questions = [Question(str(row), "x") for row in range(rows)]
    with torch.inference_mode(), _Live() as live:
        _, kv = model.extend(cache, [None] * rows, chunks)
        segments = [
            cache.root(question, chunk, len(chunk))
            for question, chunk in zip(questions, chunks, strict=True)
        ]
        cache.store(segments, kv)
    assert 0.5 < live.peak / shape.chunk_bytes(rows, new, new, "float32") < 1


@pytest.mark.parametrize(
    ("tiny", "samples", "top_p", "tokens"),
    [
        *((name, 16, 1.0, 40) for name in _TINY),
        # The buffers have 32 columns for the new tokens.
        ("small", 512, 0.95, 16),
        ("wide", 512, 0.95, 16),
        ("large vocabulary", 512, 0.95, 4),  # its sampler needs the most from the first token on
    ],
    indirect=["tiny"],
)
def test_decoding_takes_what_the_estimate_says(tiny, samples, top_p, tokens):
    shape = _shape(tiny)
    policy = HuggingFaceGenerator(tiny, max_step_tokens=tokens)
    # Every sample goes on to its limit.
    policy._may_close[:] = False
    policy._is_end[:] = False
    question = Question("q", "1+2")
    request = StepRequest(question, (), tuple(range(samples)), 1.0, top_p, 0, False)
    policy.generate([StepRequest(question, (), (1,), 1.0, 1.0, 0, False)])
    with _Live() as live:
        policy.generate([request])
    assert 0.5 < live.peak / shape.decode_bytes(samples, 32, tokens, "float32", "cpu") < 1


# What is refused


def _model(weights, *, title="policy 'a'", device="cuda:0", least=(0.0, 0.0), share=None, ways=()):
    return Footprint(
        title=title,
        device=device,
        weights=int(weights * GIB),
        kv_per_token=1,
        cache=None,
        least_cache=int(least[0] * GIB),
        activations=0,
        least_activations=int(least[1] * GIB),
        gpu_share=share,
        ways_out=ways,
    )


def _memory(monkeypatch, free, total=None):
    memory = Memory(int(free * GIB), int((total or free) * GIB))
    monkeypatch.setattr(footprint, "device_memory", lambda device: memory)


def test_a_model_that_does_not_fit_is_refused_with_the_sum(monkeypatch):
    _memory(monkeypatch, 16)
    model = _model(14.2, least=(1.0, 2.1), ways=("dtype bfloat16",))
    with pytest.raises(BadInputError) as caught:
        footprint.check_fit([model])
    assert str(caught.value) == (
        "policy 'a': weights 14.2 GiB + cache 1.0 GiB + activations 2.1 GiB = 17.3 GiB, but "
        "16.0 GiB of cuda:0 are free: use dtype bfloat16, another device, or a smaller model"
    )
    footprint.check_fit([_model(12.8, least=(1.0, 2.1))])


def test_models_on_one_device_add_up(monkeypatch):
    _memory(monkeypatch, 24)
    policy, prm = _model(14), _model(13, title="PRM 'b'")
    with pytest.raises(BadInputError, match=r"PRM 'b': .*, 27\.0 GiB together, but 24\.0 GiB of"):
        footprint.check_fit([policy, prm])
    footprint.check_fit([policy])
    footprint.check_fit([policy, _model(13, title="PRM 'b'", device="cuda:1")])
    with pytest.raises(BadInputError, match=r"but 24\.0 GiB of cuda are free"):
        footprint.check_fit([_model(14, device="cuda"), prm])


def test_engines_have_their_shares(monkeypatch):
    _memory(monkeypatch, 80)
    footprint.check_fit([_model(30, share=0.45), _model(30, share=0.45), _model(7)])
    with pytest.raises(BadInputError, match=r"but gpu_memory_utilization 0\.45 of cuda:0 is 36\.0"):
        footprint.check_fit([_model(30, least=(7, 0), share=0.45)])
    with pytest.raises(BadInputError, match=r"8\.0 GiB of cuda:0 are free beside vLLM's share of"):
        footprint.check_fit([_model(1, share=0.9), _model(9)])


def test_vllm_needs_one_full_context(tmp_path, monkeypatch):
    shape = _shape(_folder(tmp_path / "m", _LLAMA_8B))
    settings = {"device": "cuda", "dtype": "bfloat16", "gpu_memory_utilization": 0.45}
    whole = footprint.vllm_footprint("policy", shape, **settings)
    assert whole.least_cache == 131072 * 131_072 == 16 * GIB
    short = footprint.vllm_footprint("policy", shape, max_model_len=8192, **settings)
    assert short.least_cache == GIB
    split = footprint.vllm_footprint("policy", shape, tensor_parallel_size=2, **settings)
    assert (2 * split.weights, 2 * split.least_cache) == (whole.weights, whole.least_cache)
    assert whole.gpu_share == 0.45
    on_cpu = {**settings, "device": "cpu"}
    assert footprint.vllm_footprint("policy", shape, **on_cpu).cache == GIB
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "2 GiB")
    with pytest.raises(BadInputError, match="KVCACHE_SPACE='2 GiB' must be a whole number of GiB"):
        footprint.vllm_footprint("policy", shape, **on_cpu)
    assert footprint.vllm_footprint("policy", shape, **settings) == whole  # a GPU has its share


def test_a_bounded_cache_counts_with_its_bound(tmp_path):
    shape = _shape(_folder(tmp_path / "m", _QWEN_7B))
    work = Work(questions=64, paths=256, steps=40, step_tokens=512)
    found = functools.partial(_on_transformers, shape, work, device="cuda")
    free = found()
    assert free.least_cache == 57_344 * (256 + 39 * 512 + 2048)
    assert free.cache == 57_344 * work.cached_tokens(shape.context) > 10_000 * GIB
    # By default a quarter of what the weights leave.
    shared = found(free=80 * GIB)
    assert shared.cache == (80 * GIB - shared.weights) // 4
    assert shared.least_cache == free.least_cache
    bounded = found(kv_cache_gib=8)
    assert bounded.cache == bounded.least_cache == 8 * GIB
    assert bounded.ways_out == ("a smaller kv_cache_gib",)
    assert free.least_activations < free.activations / 100


def test_smaller_micro_batches_need_less():
    shape = ModelShape(10**9, 0, 28, 28, 4, 128, 3584, 18944, 152064, 32768)
    work = Work(questions=64, paths=256)
    for samples in (True, False):
        small, large = (
            _on_transformers(shape, work, samples=samples, batch_tokens=tokens).activations
            for tokens in (1 << 13, 1 << 16)
        )
        assert small < large / 3


# Before weights are loaded

_RECIPE = """
name: tiny
policy: {path: POLICY, max_step_tokens: 16, max_answer_tokens: 16}
prms: [exact]
strategies: [STRATEGY]
num_candidates: [4]
calibration: none
questions: {world: test, count: 2}
max_depth: 3
"""


@pytest.fixture
def recipe(tmp_path):
    def write(strategy):
        save_model(tmp_path / "tiny")
        text = _RECIPE.replace("POLICY", str(tmp_path / "tiny")).replace("STRATEGY", strategy)
        (tmp_path / "recipe.yaml").write_text(text)
        return tmp_path / "recipe.yaml"

    return write


def test_a_run_that_does_not_fit_is_refused_before_weights_are_read(
    recipe, capsys, monkeypatch, tmp_path
):
    class Read(BaseException):  # not an error, which the command line would report
        pass

    def read(*arguments, **options):
        raise Read

    path = recipe("beam")
    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", read)
    # The policy alone would fit: the PRM that is loaded after it does not.
    needs = _footprint(PolicySpec(str(tmp_path / "tiny")), Work(steps=3))
    _memory(monkeypatch, 1.2 * needs.least / GIB)
    command = ["evaluate", str(path), "--output", str(tmp_path / "run")]
    assert cli.run(command) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("cats-jax: policy 'tiny': weights ")
    assert "; PRM 'exact': weights " in line
    assert " together, but " in line
    assert not (tmp_path / "run").exists()

    assert cli.run([*command, "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "does not fit: policy 'tiny': weights " in out

    _memory(monkeypatch, 16)
    with pytest.raises(Read):
        cli.run(command)
    # The folder is there now, and a run that goes on is checked when it loads its models.
    _memory(monkeypatch, 1.2 * needs.least / GIB)
    assert cli.run(command) == 2
    assert "policy 'tiny': weights " in capsys.readouterr().err


@pytest.mark.parametrize("name", ["quick", "world"])
def test_a_dry_run_says_whether_the_models_fit(capsys, monkeypatch, tmp_path, name):
    recipes = pathlib.Path(__file__).resolve().parents[2] / "recipes"
    monkeypatch.chdir(tmp_path)
    assert cli.run(["evaluate", str(recipes / f"{name}.yaml"), "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "policy 'weak'" in out
    assert "768 B" in out  # 2 x 3 layers x 1 head x 32 x 4 bytes
    assert "fits: policy 'weak' and PRM 'exact' on cpu" in out
    assert ("PRM 'labels-only'" in out) == (name == "world")
    assert not list(tmp_path.iterdir())


def test_the_kernels_figures_are_read():
    memory = footprint.device_memory("cpu")
    assert memory is not None
    assert 0 < memory.free <= memory.total
    assert footprint.device_memory("cuda:99") is None


def test_numbers_of_the_bridges_are_theirs():
    """Repeated in footprint.py, which must not import torch."""
    assert footprint._GROWTH == WIDTH
    assert footprint._BLOCK_ELEMENTS == sampling._BLOCK_ELEMENTS
    assert footprint._CPU_BLOCK_ELEMENTS == sampling._CPU_BLOCK_ELEMENTS
    assert footprint._VLLM_BATCH_TOKENS == vllm_engine._CPU_BATCHED_TOKENS
