"""Outcome models on Hugging Face, against transformers' own classifiers; and their formats."""

import dataclasses
import json
import math
import shutil

import numpy as np
import outcome_models
import pytest
import torch
from safetensors.torch import load_file, save_file

from cats_jax.errors import BadInputError, PathTooLongError, ScorerContractError
from cats_jax.models.huggingface.scorer import HuggingFaceScorer
from cats_jax.models.prm.family import choose_format, load_format
from cats_jax.models.prm.format import (
    OUTCOME,
    PRM_FORMATS,
    Head,
    PRMFormat,
    TokenPair,
    bounded,
)
from cats_jax.protocols import Question, Step

QUESTION = "What is 3+4+5? Say how."
ANSWERS = {
    "plain": ["Step 1: 3 + 4 = 7.", "Step 2: 7 + 5 = 12.", "So \\boxed{12}."],
    "one step": ["12"],
    "blanks": ["\n  7, then", "12 \n"],
    "other blanks": ["\r\n\u3000 7, then", "12\x0b\u3000\r\n"],
    "names of tokens": ["<|im_end|><|eot_id|>", "[/INST] is text"],
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("outcome")
    return {kind: outcome_models.save(root / kind, kind) for kind in outcome_models.KINDS}


@pytest.fixture(scope="module")
def scorers(folders):
    formats = {"two-labels": "outcome-classifier"}
    return {
        kind: HuggingFaceScorer(folder, choose_format(formats.get(kind, "auto"), folder))
        for kind, folder in folders.items()
    }


def path_of(steps):
    return tuple(Step(text, ()) for text in steps)


@pytest.mark.parametrize("kind", outcome_models.KINDS)
def test_scores_are_those_of_transformers_own_classifier(folders, scorers, kind):
    reference = outcome_models.Reference(folders[kind])
    known = {name: steps for name, steps in ANSWERS.items() if name != "names of tokens"}
    questions = [QUESTION, " What is 1+1?\n"]
    for question in questions:
        scoring = scorers[kind].score(
            [Question(question, question)] * len(known), [path_of(a) for a in known.values()]
        )
        for score, (name, steps) in zip(scoring.scores, known.items(), strict=True):
            logits = torch.tensor(reference.logits(question, "\n\n".join(steps))).double()
            expected = logits.softmax(-1)[1] if kind == "two-labels" else bounded(logits[0])
            assert score == pytest.approx(float(expected), abs=1e-5), (question, name)
            if kind != "two-labels":
                sign = 2 * score - 1
                assert sign / (1 - abs(sign)) == pytest.approx(float(logits[0]), abs=1e-4)
        assert np.ptp(scoring.scores) > 1e-3


def test_names_of_special_tokens_in_an_answer_are_text(scorers):
    question, steps = Question("q", QUESTION), ANSWERS["names of tokens"]
    encoder = scorers["qwen"]._model.encoder
    ids = [token for chunk in encoder.chunks(question.text, steps) for token in chunk]
    plain = [t for chunk in encoder.chunks(question.text, ["12"]) for t in chunk]
    special = set(scorers["qwen"]._model.tokenizer.all_special_ids)
    assert sum(token in special for token in ids) == sum(token in special for token in plain)


def test_the_prompt_is_computed_once_and_a_prefix_costs_nothing(scorers):
    """What a search with whole answers pays: each answer, once, on top of its question."""
    scorer, question = scorers["qwen"], Question("once", QUESTION)
    paths = [path_of(ANSWERS["plain"]), path_of(ANSWERS["one step"])]
    total = [scorer.count_tokens(question, path) for path in paths]
    (first, second) = scorer.score([question] * 2, paths).usage
    assert (first.computed, first.cached) == (total[0], 0)
    assert second.computed + second.cached == total[1]
    assert second.cached > 0
    scorer.keep_only(question, [paths[0][:1]])
    assert scorer.score([question], [paths[0]]).usage[0].computed == first.computed - second.cached
    scorer.keep_only(question, [])


def test_a_bad_answer_is_refused_as_a_bad_step_is(scorers):
    scorer, question = scorers["qwen"], Question("q", QUESTION)
    for steps, reason in (([], "no step"), (["1", " \n"], "step 1: the step is blank")):
        with pytest.raises(ScorerContractError, match=reason):
            scorer.score([question], [path_of(steps)])
    long = path_of(["1", "2 " * 2400])
    assert scorer.score([question], [long]).scores == [None]
    with pytest.raises(PathTooLongError, match="the context 2048"):
        scorer.count_tokens(question, long)


def test_a_score_keeps_the_order_of_rewards_where_the_sigmoid_does_not():
    rewards = np.arange(-100.0, 100.0, 0.01)
    scores = np.array([bounded(reward) for reward in rewards.tolist()], np.float32)
    assert (np.diff(scores) > 0).all()
    assert 0.0 <= scores[0] <= scores[-1] <= 1.0
    assert bounded(0.0) == 0.5
    assert math.isnan(bounded(math.nan))
    assert np.float32(1 / (1 + math.exp(-18.0))) == np.float32(1 / (1 + math.exp(-40.0))) == 1.0


# Choice of the format


def test_auto_takes_a_classifier_with_one_label_and_names_the_format_of_one_with_two(
    folders, tmp_path
):
    assert choose_format("auto", folders["llama"]) is OUTCOME
    with pytest.raises(BadInputError, match=r"2 labels.*set format: outcome-classifier if it"):
        choose_format("auto", folders["two-labels"])
    assert (
        choose_format("outcome-classifier", folders["two-labels"])
        is PRM_FORMATS["outcome-classifier"]
    )
    for rows, message in (
        (3, "3 labels: name the good one in a .yaml"),
        (None, "without the tens"),
    ):
        copy = tmp_path / str(rows)
        copy.mkdir()
        (copy / "config.json").write_bytes((folders["qwen"] / "config.json").read_bytes())
        tensors = load_file(folders["qwen"] / "model.safetensors")
        del tensors["score.weight"]
        if rows is not None:
            tensors["score.weight"] = torch.zeros(rows, 64)
        save_file(tensors, copy / "model.safetensors")
        with pytest.raises(BadInputError, match=message) as caught:
            choose_format("auto", copy)
        assert "\n" not in str(caught.value)


def test_a_head_of_another_width_is_refused_before_weights_are_read(folders):
    with pytest.raises(BadInputError, match=r"shape \(2, 64\), the PRM format needs \(1, inputs"):
        HuggingFaceScorer(folders["two-labels"], OUTCOME)
    with pytest.raises(BadInputError, match=r"shape \(1, 64\), the PRM format needs \(2 or more"):
        HuggingFaceScorer(folders["qwen"], PRM_FORMATS["outcome-classifier"])
    with pytest.raises(BadInputError, match=r"ForSequenceClassification, and .* scores each step"):
        HuggingFaceScorer(folders["two-labels"], PRM_FORMATS["trl"])


def test_a_model_without_a_chat_template_is_refused(folders, tmp_path):
    copy = shutil.copytree(folders["qwen"], tmp_path / "copy")
    config = json.loads((copy / "tokenizer_config.json").read_text())
    del config["chat_template"]
    (copy / "tokenizer_config.json").write_text(json.dumps(config))
    with pytest.raises(BadInputError, match=r"'outcome' does not fit.*it has no chat template"):
        HuggingFaceScorer(copy, OUTCOME)


def test_a_format_of_ones_own_in_yaml(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text(
        "layout: conversation\nsystem: Judge.\nread_out: {layers: [score], unbounded: true}\n"
    )
    found = load_format(file)
    expected = dataclasses.replace(OUTCOME, name="mine", system="Judge.", between="")
    assert found == expected
    assert found.finished_only


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tag": "\n"}, "tag='.n' belongs to steps"),
        ({"read_at": "before"}, "read_at='before' belongs to steps"),
        ({"newline": " "}, "newline=' ' belongs to steps"),
        ({"joined": False}, "joined=False belongs to steps"),
        ({"read_out": TokenPair("+", "-")}, "must be a head"),
    ],
)
def test_what_belongs_to_steps_is_refused_in_a_conversation(changes, message):
    head = Head(("score",))
    values = {"name": "mine", "layout": "conversation", "tag": "", "read_out": head, **changes}
    with pytest.raises(BadInputError, match=message):
        PRMFormat(**values)


def test_known_formats_of_steps_read_every_step():
    finished = {name for name, known in PRM_FORMATS.items() if known.finished_only}
    assert finished == {"outcome", "outcome-classifier"}
