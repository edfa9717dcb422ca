"""The published families on Hugging Face, against literal readings of their model cards."""

import json
import shutil
import types

import numpy as np
import prm_families
import pytest
import torch
from prm_cards import ADVERSARIAL, CARDS, PATHS, QUESTION
from prm_families import FORMATS, NAMES
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer

from cats_jax.errors import BadInputError
from cats_jax.models.contracts import check_scorer
from cats_jax.models.huggingface.reward_model import _BackboneWithHead
from cats_jax.models.huggingface.scorer import HuggingFaceScorer
from cats_jax.models.prm.family import choose_format, detect_format
from cats_jax.models.prm.format import PRM_FORMATS
from cats_jax.models.source import ModelFolders
from cats_jax.protocols import Question, Step
from cats_jax.specs.recipe import PolicySpec, PrmSpec


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """name -> a folder with safetensors; the .bin releases were converted by the package."""
    return prm_families.released(tmp_path_factory.mktemp("families"))


@pytest.fixture(scope="module")
def scorers(folders):
    return {
        name: HuggingFaceScorer(folder, choose_format("auto", folder))
        for name, folder in folders.items()
    }


def steps_of(texts):
    return tuple(Step(text, ()) for text in texts)


def scores_of(scorer, question, texts):
    path = steps_of(texts)
    paths = [path[: i + 1] for i in range(len(path))]
    scorer.keep_only(Question("q", question), [])
    return scorer.score([Question("q", question)] * len(paths), paths).all_scores()


@pytest.fixture(scope="module")
def cards(folders):
    return {name: CARDS[name](folder) for name, folder in folders.items()}


@pytest.mark.parametrize("name", NAMES)
@torch.inference_mode()
def test_scores_equal_the_model_card(scorers, cards, name):
    for kind, texts in PATHS.items():
        got = scores_of(scorers[name], QUESTION, texts)
        assert len(got) == len(texts)
        np.testing.assert_allclose(got, cards[name](QUESTION, texts), atol=1e-5, err_msg=kind)
        assert len(got) < 3 or np.ptp(got) > 1e-3, kind


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("math-shepherd", ["newlines", "tags", "specials", "leading"]),
        ("rlhflow-mistral", ["newlines", "tags", "leading"]),
        ("rlhflow-deepseek", ["newlines", "tags", "leading"]),
        ("skywork", ["newlines", "tags", "leading"]),
        ("qwen2.5-math-prm", ["newlines", "leading"]),
        ("trl", ["newlines", "tags", "leading"]),
    ],
)
@torch.inference_mode()
def test_what_looks_like_a_separator_changes_nothing(scorers, cards, name, kinds):
    """Where the card's own text still has one reading, the scores are the card's."""
    for kind in kinds:
        got = scores_of(scorers[name], QUESTION, ADVERSARIAL[kind])
        expected = cards[name](QUESTION, ADVERSARIAL[kind])
        np.testing.assert_allclose(got, expected, atol=1e-5, err_msg=kind)


OPENINGS = {
    "rlhflow-mistral": "<|begin_of_text|>",
    "rlhflow-deepseek": (
        "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\n"
        "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n<|eot_id|>"
    ),
}
CONVERSATION = (
    "<|start_header_id|>user<|end_header_id|>\n\n"
    "What is 3+4+5? Step 1: 3 + 4 = 7.<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\n+<|eot_id|>"
    "<|start_header_id|>user<|end_header_id|>\n\n"
    "Step 2: 7 + 5 = 12.\n\nSo 12.<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\n"
)


@pytest.mark.parametrize("name", OPENINGS)
def test_white_space_around_a_step_is_not_read_by_rlhflow(folders, scorers, name):
    """`math-rm/prm_evaluate.py` of RLHFlow/RLHF-Reward-Modeling strips each step."""
    tokenizer = AutoTokenizer.from_pretrained(folders[name])
    expected = tokenizer(OPENINGS[name] + CONVERSATION, add_special_tokens=False)["input_ids"]
    for before in ("", " ", "\n", "\n\n", " \t ", "\u3000", "\r\n"):
        for after in ("", " \n"):
            steps = [
                before + "Step 1: 3 + 4 = 7." + after,
                before + "Step 2: 7 + 5 = 12.\n\nSo 12." + after,
            ]
            chunks = scorers[name]._model.encoder.chunks("What is 3+4+5?", steps)
            assert [token for chunk in chunks for token in chunk] == expected, (before, after)


@pytest.mark.parametrize("name", NAMES)
def test_every_step_has_exactly_one_score(folders, scorers, name):
    special = {int(i) for i in AutoTokenizer.from_pretrained(folders[name]).added_tokens_decoder}
    encoder = scorers[name]._model.encoder

    def count(steps):
        chunks = encoder.chunks(QUESTION, steps)
        return sum(token in special for chunk in chunks for token in chunk)

    for kind, steps in ADVERSARIAL.items():
        got = scores_of(scorers[name], QUESTION, steps)
        assert len(got) == len(steps), kind
        assert all(0.0 < score < 1.0 for score in got), kind
        # Names of special tokens are spelled out: only the format's own ids are special.
        assert count(steps) == count(["x"] * len(steps)), kind


@pytest.mark.parametrize("name", NAMES)
def test_the_scorers_keep_their_contract(scorers, name):
    questions = [Question("a", QUESTION), Question("b", "Then what is 1+1?\nAnd 2?")] * 6
    texts = list(PATHS.values())[1:] + list(ADVERSARIAL.values())
    paths = [steps_of(texts[i % len(texts)][: 1 + i % 3]) for i in range(12)]
    check_scorer(scorers[name], questions, paths)


@pytest.mark.parametrize("name", NAMES)
def test_each_token_is_computed_once(scorers, name):
    scorer, question = scorers[name], Question("q", QUESTION)
    scorer.keep_only(question, [])
    path = steps_of(PATHS["three"])
    paths = [path[: i + 1] for i in range(3)]
    grown = [scorer.score([question], [p]) for p in paths]
    computed = sum(scoring.usage[0].computed for scoring in grown)
    assert computed == scorer.count_tokens(question, path)
    assert [scoring.scores[0] for scoring in grown] == scores_of(scorer, QUESTION, PATHS["three"])
    # A sibling of the first step shares the prompt, question included.
    sibling = steps_of(["Step 1: 4 + 5 = 9."])
    usage = scorer.score([question], [sibling]).usage[0]
    assert usage.computed < 40
    assert usage.cached + usage.computed == scorer.count_tokens(question, sibling)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-3), ("bfloat16", 0.3)])
def test_cuda_is_near_the_cpu(folders, scorers, name, dtype, tolerance):
    on_device = HuggingFaceScorer(
        folders[name], PRM_FORMATS[FORMATS[name]], device="cuda", dtype=dtype
    )
    for texts in PATHS.values():
        expected = scores_of(scorers[name], QUESTION, texts)
        got = scores_of(on_device, QUESTION, texts)
        np.testing.assert_allclose(got, expected, atol=tolerance)


def test_recipes_name_a_format_or_leave_it_to_the_checkpoint(folders, scorers, tmp_path):
    folder, models = folders["skywork"], ModelFolders()
    file = tmp_path / "mine.yaml"
    file.write_text(
        'layout: text\ntag: "\\n"\nread_out: {layers: [v_head.summary]}\n'
        'prompt: "{question}\\n"\njoined: false\nnewline: " "\n'
    )
    expected = scores_of(scorers["skywork"], QUESTION, PATHS["three"])
    for name in ("auto", "skywork", str(file)):
        spec = PrmSpec(str(folder), format=name)
        assert "model.safetensors" in models.fingerprint(spec)["sha256"]
        assert scores_of(models.prm(spec), QUESTION, PATHS["three"]) == expected
    with pytest.raises(BadInputError, match="'other' is unknown"):
        models.fingerprint(PrmSpec(str(folder), format="other"))
    binary = folder.with_name("skywork-bin")
    with pytest.raises(BadInputError, match=f"cats-jax convert {binary} OUT"):
        models.fingerprint(PrmSpec(str(binary), format="auto"))


# --- which family it is ---


def test_every_family_is_known_by_its_files(folders, tmp_path):
    for name, folder in folders.items():
        assert detect_format(folder).name == FORMATS[name]
    # Not by the folder's name.
    shutil.copytree(folders["skywork"], tmp_path / "qwen2.5-math-prm-math-shepherd")
    found = choose_format("auto", tmp_path / "qwen2.5-math-prm-math-shepherd")
    assert found is PRM_FORMATS["skywork"]


def test_a_head_is_known_without_the_architecture(folders, tmp_path):
    copy = shutil.copytree(folders["qwen2.5-math-prm"], tmp_path / "copy")
    edit_config(copy, architectures=["Qwen2ForCausalLM"])
    assert detect_format(copy).name == "qwen2.5-math-prm"


def test_what_is_of_no_family_is_refused(folders, tmp_path):
    copy = shutil.copytree(folders["rlhflow-mistral"], tmp_path / "copy")
    edit_config(copy, architectures=["LlamaForQuestionAnswering"])
    with pytest.raises(BadInputError, match=r"QuestionAnswering\) looks like no known PRM"):
        choose_format("auto", copy)
    edit_config(copy, architectures=["LlamaForSequenceClassification"])
    with pytest.raises(BadInputError, match=r"outcome model without the tensor 'score"):
        detect_format(copy)
    edit_config(copy, architectures=None)
    assert detect_format(copy).name == "rlhflow"
    names = shutil.copytree(folders["trl"], tmp_path / "names")
    (weights,) = names.glob("*.safetensors")
    of_nine = {"score.weight": torch.zeros(9, 64), "score.bias": torch.zeros(9)}
    save_file({**load_file(weights), **of_nine}, weights)
    with pytest.raises(BadInputError, match="has 9 labels, and the PRM format 'trl' reads 2"):
        HuggingFaceScorer(names, detect_format(names))
    edit_config(copy, architectures=["LlamaForCausalLM"])
    for name in ("tokenizer.json", "tokenizer_config.json"):
        text = (copy / name).read_text().replace("<|eot_id|>", "<|other|>")
        (copy / name).write_text(text)
    with pytest.raises(BadInputError, match="looks like no known PRM family: name its format"):
        detect_format(copy)


def edit_config(folder, **changes):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))


# --- bad input ---


def refused(folder, name, match):
    with pytest.raises(BadInputError, match=match) as caught:
        HuggingFaceScorer(folder, PRM_FORMATS[name])
    assert "\n" not in str(caught.value)


def test_a_tokenizer_without_the_tag_is_refused(folders, tmp_path):
    refused(folders["skywork"], "qwen2.5-math-prm", "needs '<extra_0>' as one token")
    refused(folders["skywork"], "math-shepherd", "needs '▁ки' as one token")
    refused(folders["math-shepherd"], "rlhflow", "has no chat template")


def test_a_head_that_is_not_there_or_of_the_wrong_shape_is_refused(folders, tmp_path):
    refused(folders["rlhflow-mistral"], "skywork", r"stores no 'v_head\.summary\.weight'")
    copy = shutil.copytree(folders["skywork"], tmp_path / "copy")
    change(copy, "v_head.summary.weight", torch.zeros(1, 32))
    refused(copy, "skywork", r"'v_head\.summary\.weight' has shape \(1, 32\).*\(outputs, 64\)")
    change(copy, "v_head.summary.weight", torch.zeros(2, 64))
    refused(copy, "skywork", r"'v_head\.summary\.bias' has shape \(1,\).*\(2,\)")
    change(copy, "v_head.summary.bias", torch.zeros(2))
    refused(copy, "skywork", r"'v_head\.summary\.weight' has shape \(2, 64\).*\(1, inputs\)")
    copy = shutil.copytree(folders["qwen2.5-math-prm"], tmp_path / "other")
    change(copy, "score.2.weight", torch.zeros(1, 64))
    change(copy, "score.2.bias", torch.zeros(1))
    refused(copy, "qwen2.5-math-prm", r"'score\.2\.weight' has shape \(1, 64\).*2 or more")


@pytest.mark.parametrize("name", ["skywork", "qwen2.5-math-prm", "trl"])
def test_a_model_with_a_head_of_its_own_is_not_read_as_a_language_model(folders, name):
    """Its files may hold a language model's head, too, or name tied embeddings."""
    refused(folders[name], "rlhflow", "was trained with another head than a language model's")
    for spec in (
        PolicySpec(str(folders[name])),
        PrmSpec(str(folders[name]), format="judge-critique"),
    ):
        with pytest.raises(BadInputError, match="was trained with another head"):
            ModelFolders().check(spec)


def test_a_token_classifier_is_read_at_steps_and_its_two_labels_only(folders, tmp_path):
    refused(folders["trl"], "outcome-classifier", "ForTokenClassification, and .* finished answers")
    copy = shutil.copytree(folders["trl"], tmp_path / "three")
    change(copy, "score.weight", torch.zeros(3, 64))
    change(copy, "score.bias", torch.zeros(3))
    refused(copy, "trl", r"'score.weight' has 3 labels, .* label: INDEX")
    file = tmp_path / "mine.yaml"
    file.write_text(
        'layout: text\ntag: "\\n"\njoined: false\nread_out: {layers: [score], label: 2}\n'
    )
    (score,) = scores_of(HuggingFaceScorer(copy, choose_format(str(file), copy)), "1?", ["1"])
    assert score == pytest.approx(1 / 3)
    change(copy, "score.weight", None)
    with pytest.raises(BadInputError, match=r"stores no 'score\.weight'"):
        HuggingFaceScorer(copy, choose_format("auto", copy))


def test_a_chat_model_with_math_shepherd_s_tokens_is_not_taken_for_it(folders, tmp_path):
    copy = shutil.copytree(folders["math-shepherd"], tmp_path / "copy")
    (copy / "chat_template.jinja").write_text(prm_families.CHATML)
    hint = "the tokens of math-shepherd, which reads plain text, and a chat template: name its"
    with pytest.raises(BadInputError, match=f"looks like no known PRM family; it has {hint}"):
        choose_format("auto", copy)


def test_shards_of_several_dtypes_are_refused(folders, tmp_path):
    copy = shutil.copytree(folders["rlhflow-mistral"], tmp_path / "copy")
    file = copy / "model-00002-of-00002.safetensors"
    half = {name: tensor.bfloat16() for name, tensor in load_file(file).items()}
    save_file(half, file, metadata={"format": "pt"})
    refused(copy, "rlhflow", r"mixes dtypes: .* is F32, .* in model-00002.* is BF16")


def test_a_head_may_have_a_dtype_of_its_own(folders, tmp_path):
    copy = shutil.copytree(folders["skywork"], tmp_path / "copy")
    file = copy / "model.safetensors"
    tensors = {
        name: tensor if name.startswith("v_head") else tensor.bfloat16()
        for name, tensor in load_file(file).items()
    }
    save_file(tensors, file, metadata={"format": "pt"})
    assert len(scores_of(HuggingFaceScorer(copy, PRM_FORMATS["skywork"]), "1?", ["1", "2"])) == 2


def test_a_missing_shard_is_named(folders, tmp_path):
    copy = shutil.copytree(folders["qwen2.5-math-prm"], tmp_path / "copy")
    (copy / "model-00002-of-00002.safetensors").unlink()
    refused(copy, "qwen2.5-math-prm", "names 'model-00002-of-00002.safetensors', which is not")


def change(folder, name, values):
    """Puts other values in the place of a stored tensor; None takes it away."""
    for file in folder.glob("*.safetensors"):
        tensors = load_file(file)
        if tensors.pop(name, None) is not None:
            tensors |= {} if values is None else {name: values}
            save_file(tensors, file, metadata={"format": "pt"})
            return
    raise AssertionError(name)


def test_the_value_head_gives_a_row_the_same_bits_in_any_batch():
    class Hidden(torch.nn.Module):
        def forward(self, *, inputs_embeds):
            return types.SimpleNamespace(last_hidden_state=inputs_embeds)

    torch.manual_seed(0)
    model = _BackboneWithHead(Hidden(), [torch.nn.Linear(64, 2)])
    rows = torch.randn(33, 1, 64)
    with torch.no_grad():
        together = model(inputs_embeds=rows, logits_to_keep=1).logits
        alone = [model(inputs_embeds=row[None], logits_to_keep=1).logits for row in rows]
    assert torch.equal(together, torch.cat(alone))
