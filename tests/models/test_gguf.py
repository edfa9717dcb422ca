"""`cats-jax convert` of GGUF files: against transformers' own reading, and files that are wrong."""

import hashlib
import json
import shutil
import struct
import sys

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Kind
from gguf import GGUFWriter
from safetensors import safe_open
from tiny_gguf import EOS, HEADS, TOKENS, WIDTH, metadata, tensors, write
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

from cats_jax.cli import run
from cats_jax.errors import BadInputError
from cats_jax.models import shards
from cats_jax.models.gguf import convert as convert_module
from cats_jax.models.gguf.config import model_config
from cats_jax.models.gguf.convert import convert_gguf
from cats_jax.models.gguf.tokenizer import tokenizer_files


def logits(model, count=24):
    ids = torch.arange(count).remainder(len(TOKENS))[None]
    with torch.no_grad():
        return model(ids).logits


def theirs(path):
    """The model as transformers reads it, without the package accelerate, which it asks for."""
    config = AutoConfig.from_pretrained(path.parent, gguf_file=path.name)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    state = load_gguf_checkpoint(str(path), True, model)["tensors"]
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected
    assert set(missing) <= ({"lm_head.weight"} if config.tie_word_embeddings else set())
    model.tie_weights()
    return model


def ours(folder):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, local_files_only=True)
    return model.eval()


@pytest.mark.parametrize(
    ("architecture", "kind"),
    [
        # Llama's rows are unmixed, of each type; the rest of the types' way is common to all.
        *(("llama", kind) for kind in (Kind.F32, Kind.Q8_0, Kind.Q4_0, Kind.BF16)),
        ("qwen2", Kind.Q8_0),
        ("qwen3", Kind.Q4_0),
        ("gemma3", Kind.BF16),
    ],
)
def test_logits_are_those_of_transformers(tmp_path, architecture, kind):
    tied = architecture == "gemma3"
    path = write(tmp_path / "m.gguf", architecture, tensors(architecture, tied=tied), kind)
    done = convert_gguf(path, tmp_path / "out", dtype="float32")
    expected, got = theirs(path), ours(tmp_path / "out")
    assert torch.allclose(logits(got), logits(expected), atol=1e-4)
    assert got.config.tie_word_embeddings == tied
    assert done.num_tensors == len(tensors(architecture, tied=tied))
    read = json.loads((tmp_path / "out" / "config.json").read_text())
    assert read["rms_norm_eps"] == 1e-5
    assert read["rope_theta"] == 50_000.0


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The folder made in float32 of the file beside it, and its `Conversion`."""
    path = write(tmp_path_factory.mktemp("gguf") / "m.gguf")
    folder = path.with_name("whole")
    return folder, convert_gguf(path, folder, dtype="float32")


def test_weights_are_rounded_to_bfloat16(tmp_path, whole):
    folder, done = whole
    half = convert_gguf(folder.with_name("m.gguf"), tmp_path / "half")
    assert done.num_bytes == 2 * half.num_bytes
    with (
        safe_open(folder / "model.safetensors", "pt") as expected,
        safe_open(tmp_path / "half" / "model.safetensors", "pt") as got,
    ):
        assert set(got.keys()) == set(expected.keys())
        for name in got.keys():  # noqa: SIM118
            assert torch.equal(got.get_tensor(name), expected.get_tensor(name).bfloat16())
    assert ours(tmp_path / "half").config.dtype == torch.float32  # as asked for
    assert AutoConfig.from_pretrained(tmp_path / "half").dtype == torch.bfloat16


def test_shards_and_pieces_of_tensors_are_put_together(tmp_path, monkeypatch):
    path = write(tmp_path / "m.gguf", kind=Kind.Q8_0)
    convert_gguf(path, tmp_path / "one", dtype="float32")
    monkeypatch.setattr(shards, "_SHARD_BYTES", 60_000)
    monkeypatch.setattr(convert_module, "_CHUNK_VALUES", 640)
    shares = []
    done = convert_gguf(path, tmp_path / "many", dtype="float32", progress=shares.append)
    assert len(done.files) > 3
    assert torch.equal(logits(ours(tmp_path / "one")), logits(ours(tmp_path / "many")))
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


def parts(tmp_path):
    write(tmp_path / "m.gguf", split=2)
    return sorted(tmp_path.glob("m-*.gguf"))


def test_parts_are_one_model(tmp_path, whole):
    files = parts(tmp_path)
    assert [file.name for file in files] == ["m-00001-of-00002.gguf", "m-00002-of-00002.gguf"]
    convert_gguf(files[0], tmp_path / "out", dtype="float32")
    assert torch.equal(logits(ours(tmp_path / "out")), logits(ours(whole[0])))
    record = json.loads((tmp_path / "out" / "conversion.json").read_text())
    digests = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
    assert record["source"] == digests


# --- configuration ---


def config_of(architecture, factors=None, **changes):
    said = {"general.architecture": architecture} | metadata(architecture, **changes)
    shapes = {name: value.shape for name, value in tensors(architecture).items()}
    return model_config(said, shapes, factors)


def test_rope_scaling_is_read():
    assert "rope_scaling" not in config_of("qwen2")
    yarn = {"type": "yarn", "factor": 4.0, "original_context_length": 64}
    config = config_of("qwen2", **{f"qwen2.rope.scaling.{key}": v for key, v in yarn.items()})
    expected = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
    assert config["rope_scaling"] == expected
    linear = {"gemma3.rope.scaling.type": "linear", "gemma3.rope.scaling.factor": 8.0}
    read = AutoConfig.for_model(**config_of("gemma3", **linear)).rope_parameters
    assert read["full_attention"] == {"rope_type": "linear", "factor": 8.0, "rope_theta": 5e4}
    assert read["sliding_attention"]["rope_theta"] == 10_000.0
    with pytest.raises(ValueError, match="'longrope' is not supported"):
        config_of("llama", **{"llama.rope.scaling.type": "longrope"})


def llama3_factors(factor):
    """What llama.cpp stores, from transformers' frequencies."""
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    scaling = {"rope_type": "llama3", "factor": factor, "low_freq_factor": 1.0,
               "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}  # fmt: skip
    config = AutoConfig.for_model(**config_of("llama"), rope_scaling=dict(scaling))
    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](config, "cpu")
    plain = config_of("llama")["rope_theta"] ** -(torch.arange(16) / 16)
    return scaling, (plain / scaled).numpy().astype(np.float32)


def test_llamas_scaling_follows_from_its_factors(tmp_path):
    scaling, factors = llama3_factors(32.0)
    assert config_of("llama", factors)["rope_scaling"] == scaling
    of_8, factors_of_8 = llama3_factors(8.0)
    assert config_of("llama", factors_of_8)["rope_scaling"] == of_8
    values = tensors("llama") | {"rope_freqs.weight": factors}
    convert_gguf(write(tmp_path / "m.gguf", values=values), tmp_path / "out")
    assert ours(tmp_path / "out").config.rope_parameters["factor"] == 32.0
    written = json.loads((tmp_path / "out" / "config.json").read_text())
    assert written["rope_scaling"] == scaling
    with pytest.raises(ValueError, match=r"not the scaling of Llama 3\.1"):
        config_of("llama", factors[::-1])


def test_windows_of_gemma_are_read():
    config = AutoConfig.for_model(**config_of("gemma3", **{"gemma3.block_count": 12}))
    assert config.layer_types.count("full_attention") == 2
    assert config.layer_types[5] == "full_attention"
    assert config.query_pre_attn_scalar == 256
    largest = config_of("gemma3", **{"gemma3.block_count": 62})
    assert largest["query_pre_attn_scalar"] == WIDTH // HEADS


# --- tokenizer ---


def test_the_tokenizer_is_that_of_the_file(whole):
    tokenizer = AutoTokenizer.from_pretrained(whole[0], local_files_only=True)
    text = "an an 12<|im_start|> <tool>\n"
    tokens = tokenizer.convert_ids_to_tokens(tokenizer(text)["input_ids"])
    # Qwen splits digits, so that "12" is never merged.
    assert tokens == ["an", "Ġan", "Ġ", "1", "2", "<|im_start|>", "Ġ", "<tool>", "Ċ"]
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
    skipped = tokenizer.decode(tokenizer(text)["input_ids"], skip_special_tokens=True)
    assert skipped == "an an 12 <tool>\n"
    assert len(tokenizer) == len(TOKENS) - 1
    assert tokenizer.eos_token_id == EOS
    chat = tokenizer.apply_chat_template([{"role": "user", "content": "an"}], tokenize=False)
    assert chat == "an<|im_end|>"


@pytest.mark.parametrize(
    ("split", "expected", "begins"),
    [
        ("llama-bpe", ["<|im_start|>", "an", "Ġ", "12"], True),
        ("smollm", ["an", "Ġ", "1", "2"], False),
        ("gpt-2", ["an", "Ġ", "12"], False),
    ],
)
def test_text_is_split_by_the_rule_that_the_file_names(tmp_path, split, expected, begins):
    tokenizer = built(tmp_path, **{"tokenizer.ggml.pre": split})
    assert tokenizer.convert_ids_to_tokens(tokenizer("an 12")["input_ids"]) == expected
    asked = built(tmp_path, **{"tokenizer.ggml.pre": split, "tokenizer.ggml.add_bos_token": False})
    assert len(asked("an 12")["input_ids"]) == len(expected) - begins


def built(folder, architecture="llama", **changes):
    said = {"general.architecture": architecture} | metadata(architecture, **changes)
    for name, text in tokenizer_files(said, 300).items():
        (folder / name).write_text(text)
    (folder / "config.json").write_text('{"model_type": "llama"}')
    return AutoTokenizer.from_pretrained(folder, local_files_only=True)


def pieces(**changes):
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256)), "▁", "a", "n", "b",
              "an", "▁a", "▁an", "  "]  # fmt: skip
    types = [2, 3, 3, *[6] * 256, *[1] * 7, 4]
    scores = [0.0] * 263 + [-1.0, -2.0, -3.0, 0.0]
    values = {"model": "llama", "tokens": tokens, "token_type": types, "scores": scores,
              "unknown_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "pre": None,
              "merges": None}  # fmt: skip
    return {f"tokenizer.ggml.{key}": value for key, value in (values | changes).items()}


def test_a_sentencepiece_vocabulary_merges_by_its_scores(tmp_path):
    tokenizer = built(tmp_path, **pieces())
    ids = tokenizer("an bé")["input_ids"]
    assert tokenizer.convert_ids_to_tokens(ids) == [
        "<s>", "▁an", "▁", "b", "<0xC3>", "<0xA9>"]  # fmt: skip
    assert tokenizer.decode(ids, skip_special_tokens=True) == "an bé"
    plain = built(tmp_path, **pieces(add_space_prefix=False, add_bos_token=False))
    assert plain.convert_ids_to_tokens(plain("an")["input_ids"]) == ["an"]


def test_gemma_has_no_space_before_a_text_and_tokens_of_spaces(tmp_path):
    tokenizer = built(tmp_path, "gemma3", **pieces())
    ids = tokenizer("a  an")["input_ids"]
    assert tokenizer.convert_ids_to_tokens(ids) == ["<s>", "a", "▁", "▁an"]
    assert tokenizer.decode(ids, skip_special_tokens=True) == "a  an"
    assert tokenizer("b  b")["input_ids"][2] == 266


def test_all_tokens_that_end_an_answer_are_named():
    said = {"general.architecture": "llama"} | metadata(
        "llama", **{"tokenizer.ggml.eos_token_id": 0}
    )
    files = tokenizer_files(said, len(TOKENS))
    assert json.loads(files["generation_config.json"])["eos_token_id"] == [0, EOS]


# --- files that are wrong ---


def refused(path, tmp_path, match, **options):
    target = tmp_path / "out"
    with pytest.raises(BadInputError, match=match) as caught:
        convert_gguf(path, target, **options)
    assert "\n" not in str(caught.value)
    assert not target.exists()
    assert not list(tmp_path.glob("out.partial-*"))


def test_a_torn_file_is_refused_wherever_it_ends(tmp_path):
    path = write(tmp_path / "m.gguf")
    whole = path.read_bytes()
    torn = tmp_path / "torn.gguf"
    places = {*range(0, 64), *range(64, len(whole), 4099), len(whole) - 1}
    for place in sorted(places):
        torn.write_bytes(whole[:place])
        refused(torn, tmp_path, "torn.gguf' is not a complete GGUF file .*: download it again")


def test_damaged_headers_are_refused_or_read(tmp_path):
    path = write(tmp_path / "m.gguf")
    whole = path.read_bytes()
    draw = np.random.default_rng(0)
    for place in draw.integers(0, 6000, 60):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << draw.integers(8)
        path.write_bytes(damaged)
        target = tmp_path / f"out-{place}"
        try:
            convert_gguf(path, target)
        except BadInputError as error:
            assert "\n" not in str(error)  # noqa: PT017
            assert not target.exists()


def test_claims_of_size_are_checked_before_memory_is_taken(tmp_path):
    path = tmp_path / "m.gguf"
    head = b"GGUF" + struct.pack("<I", 3)
    huge = struct.pack("<Q", 1 << 60)
    key = struct.pack("<Q", 1) + b"k"
    for content, match in (
        (head + huge + huge, "claims 1152921504606846976 items"),
        (head + struct.pack("<QQ", 0, 1) + huge, "claims a text of"),
        (
            head + struct.pack("<QQ", 0, 1) + key + struct.pack("<II", 9, 4) + huge,
            "claims .* items",
        ),
        (head + struct.pack("<QQ", 0, 1) + key + struct.pack("<IIQ", 9, 9, 1) + huge, "type 9"),
        (head + struct.pack("<QQ", 0, 1) + key + struct.pack("<I", 77), "unknown type 77"),
        (b"GGUF" + struct.pack("<I", 1), "version 1 is not read"),
        (b"GGUF" + struct.pack(">I", 3), "version 50331648 is not read"),
        (b"PK\3\4 no GGUF at all", "does not begin with GGUF"),
    ):
        path.write_bytes(content + bytes(64))
        refused(path, tmp_path, match)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"llama.expert_count": 8}, "'expert_count' has a meaning that is not supported"),
        ({"llama.block_count": 1 << 30}, "num_hidden_layers must be a whole number from 1 to"),
        ({"llama.block_count": 9000}, "lacks tensors of its 9000 layers"),
        ({"llama.block_count": 1}, "'blk.1.attn_norm.weight' has no place"),
        ({"llama.embedding_length": 128}, r"has shape \(104, 64\), expected \(104, 128\)"),
        ({"llama.rope.dimension_count": 16}, "rope.dimension_count must be the size of a head, 32"),
        ({"llama.attention.head_count": [4, 2]}, "attention.head_count must be a positive whole"),
        ({"llama.context_length": None}, "'max_position|'llama.context_length' is missing"),
        ({"tokenizer.ggml.model": "t5"}, "tokenizer.ggml.model 't5' is not gpt2 or llama"),
        ({"tokenizer.ggml.pre": "tekken2"}, "tokenizer.ggml.pre 'tekken2'.*known are llama-bpe"),
        ({"tokenizer.ggml.tokens": [*TOKENS, "x"]}, "has 105 tokens, and 104 rows"),
        ({"tokenizer.ggml.eos_token_id": 104}, "names token 104 of 104"),
        ({"tokenizer.ggml.merges": ["Ġ zz"]}, "can't be converted"),
    ],
)
def test_what_is_not_understood_is_refused(tmp_path, changes, match):
    refused(write(tmp_path / "m.gguf", **changes), tmp_path, match)


def test_tensors_must_be_those_of_the_architecture(tmp_path):
    values = tensors("llama")
    lacking = {name: value for name, value in values.items() if name != "blk.1.ffn_up.weight"}
    path = write(tmp_path / "m.gguf", values=lacking)
    refused(path, tmp_path, "lacks the tensor of 'model.layers.1.mlp.up_proj.weight'")
    more = values | {"blk.1.ffn_gate_exps.weight": values["output.weight"]}
    path = write(tmp_path / "m.gguf", values=more)
    refused(path, tmp_path, "'blk.1.ffn_gate_exps.weight' has no place in a model of llama")
    broken = values | {"blk.1.ffn_up.weight": values["blk.1.ffn_up.weight"] * np.float32(np.nan)}
    path = write(tmp_path / "m.gguf", values=broken)
    refused(path, tmp_path, r"value in 'model.layers.1.mlp.up_proj.weight' that is not finite")


def test_parts_must_belong_together(tmp_path):
    first, second = parts(tmp_path)
    refused(second, tmp_path, "is part 2 of 2: give 'm-00001-of-00002.gguf'")
    alone = shutil.copyfile(first, tmp_path / "alone.gguf")
    refused(alone, tmp_path, "part of 2 by its content and of 1 by its name")
    kept = second.read_bytes()
    shutil.copyfile(first, second)
    refused(first, tmp_path, "00002.gguf' is not part 2 of 2")
    second.write_bytes(kept[:-500])
    refused(first, tmp_path, "00002-of-00002.gguf' is not a complete GGUF file")
    second.unlink()
    refused(first, tmp_path, "first of 2 parts, and 'm-00002-of-00002.gguf' is not beside it")


def test_other_inputs_are_refused_in_one_line(tmp_path, monkeypatch):
    path = write(tmp_path / "m.gguf")
    refused(tmp_path / "none.gguf", tmp_path, "none.gguf' is not a file: give a GGUF")
    refused(path, tmp_path, "dtype must be one of bfloat16, float32", dtype="float16")
    other = GGUFWriter(tmp_path / "other.gguf", "falcon")
    other.add_tensor("token_embd.weight", np.zeros((2, 2), np.float32))
    other.write_header_to_file()
    other.write_kv_data_to_file()
    other.write_tensors_to_file()
    other.close()
    match = "of architecture 'falcon', and only those of llama, qwen2, qwen3, gemma3"
    refused(tmp_path / "other.gguf", tmp_path, match)
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    refused(path, tmp_path, "needs 0.00 GB and its disk has 0.00 GB free: free space")
    monkeypatch.setitem(sys.modules, "gguf", None)
    refused(path, tmp_path, "package gguf, which is not installed: `pip install gguf`")


def test_a_full_disk_leaves_nothing(tmp_path, monkeypatch):
    def fails(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(convert_module, "_encoded", fails)
    refused(write(tmp_path / "m.gguf"), tmp_path, "can't be written .No space left on device.")


def test_the_command_reports(tmp_path, capsys):
    path = write(tmp_path / "m.gguf")
    assert run(["convert", str(path), str(tmp_path / "out"), "--dtype", "float32"]) == 0
    assert "21 tensors" in capsys.readouterr().out
    assert run(["convert", str(path), str(tmp_path / "out")]) == 2
    assert "exists already" in capsys.readouterr().err
    assert run(["convert", str(path), str(tmp_path / "new"), "--max-seconds", "9"]) == 2
    assert "--max-seconds is for .bin files" in capsys.readouterr().err
    assert run(["convert", str(tmp_path), str(tmp_path / "new"), "--dtype", "float32"]) == 2
    assert "--dtype is for GGUF files" in capsys.readouterr().err
