"""How vLLM is told what a PRM is: overrides of its configuration, and the head's own arithmetic."""

import json
import pathlib
import re

import pytest
import tiny_models
import torch
from byte_vocabulary import byte_tokenizer
from hypothesis import given
from hypothesis import strategies as st

from cats_jax.errors import BadInputError
from cats_jax.models.prm.format import PRM_FORMATS, QWEN_MATH_PRM
from cats_jax.models.serving import vllm_engine, vllm_head
from cats_jax.models.serving.vllm_engine import classifier_overrides
from cats_jax.models.source import ModelFolders
from cats_jax.specs.models import PrmSpec

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs" / "engines" / "serving.md"
MODEL_TYPES = {"rlhflow": "llama", "skywork": "qwen2", "qwen2.5-math-prm": "qwen2"}


@pytest.mark.parametrize("name", MODEL_TYPES)
def test_the_page_says_what_a_server_needs(name):
    (shown,) = re.findall(rf"^\| `{re.escape(name)}` \| `(.*)` \|$", DOCS.read_text(), re.M)
    expected = classifier_overrides(MODEL_TYPES[name], PRM_FORMATS[name].read_out)
    assert json.loads(shown) == expected


def test_an_engine_gets_the_tokens_by_their_names(tmp_path, monkeypatch):
    """A format may name a token by its text, and vLLM looks the name up in the vocabulary."""
    folder = tiny_models.save_model(tmp_path / "m", tokenizer=byte_tokenizer(), vocab_size=280)
    file = tmp_path / "mine.yaml"
    pair = {"positive": "\n", "negative": " "}
    file.write_text(json.dumps({"layout": "answer", "tag": "+", "read_out": pair, "joined": False}))
    asked = []

    def start(path, **settings):
        asked.append(settings["overrides"]["classifier_from_token"])
        raise BadInputError("no engine")

    monkeypatch.setattr(vllm_engine, "VLLMClassifier", start)
    with pytest.raises(BadInputError, match="no engine"):
        ModelFolders().prm(PrmSpec(str(folder), backend="vllm", device="cpu", format=str(file)))
    assert asked == [["Ġ", "Ċ"]]


def test_a_model_without_a_causal_language_model_is_refused():
    with pytest.raises(BadInputError, match="'vit' has no causal language model"):
        classifier_overrides("vit", QWEN_MATH_PRM.read_out)


@given(
    st.lists(st.floats(-60, 60, width=32), min_size=2, max_size=5),
    st.data(),
)
def test_a_sigmoid_of_the_log_odds_is_the_softmax(outputs, data):
    label = data.draw(st.integers(0, len(outputs) - 1))
    values = torch.tensor([outputs], dtype=torch.float64)
    odds = vllm_head._log_odds(values, label)
    assert odds.shape == (1, 1)
    assert float(odds.sigmoid()) == pytest.approx(float(values.softmax(-1)[0, label]), abs=1e-12)
    assert vllm_head._log_odds(values[:, :1], None).tolist() == [[outputs[0]]]


def test_other_names_are_no_classes():
    with pytest.raises(AttributeError, match="Qwen2ForCausalLM"):
        _ = vllm_head.Qwen2ForCausalLM
