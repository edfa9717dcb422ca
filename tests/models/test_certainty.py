"""How certain a policy was: from logits to the one number of a path that a search reads."""

import dataclasses
import math
import types

import numpy as np
import pytest
import tiny_models
import torch
from hypothesis import given
from hypothesis import strategies as st
from scripted_engine import ScriptedEngine
from transformers import Qwen2ForCausalLM

import search
from cats_jax import Searcher
from cats_jax.errors import BadInputError, GeneratorContractError
from cats_jax.evaluation.cells import grid
from cats_jax.live.contract import check_generation
from cats_jax.live.path_certainty import path_certainty
from cats_jax.models.huggingface.generator import HuggingFaceGenerator
from cats_jax.models.serving.generator import EngineGenerator
from cats_jax.models.serving.vllm_client import Output, _add, _top
from cats_jax.protocols import (
    TOKEN_CERTAINTIES,
    Generation,
    Question,
    Step,
    StepRequest,
    StepSample,
    TokenUsage,
)
from cats_jax.specs.recipe import parse_recipe
from cats_jax.world import policy_path

QUESTION = Question("q", "(3+4)*2=?")
ASKED = StepRequest(QUESTION, (), (1, 2, 3, 4, 5), 1.0, 0.8, 7, False)


def test_both_packages_know_the_same_kinds():
    assert TOKEN_CERTAINTIES == search.certainty.TOKEN_CERTAINTIES


# From tokens to a path


def published(confs, summary, window):
    """`utils.py` of facebookresearch/deepconf at 675529d, and the mean, token by token."""
    if summary == "tail":
        confs = confs[-window:] if len(confs) > window else confs
    if summary in ("mean", "tail") or len(confs) < window:
        return sum(confs) / len(confs)
    means = []
    for first in range(len(confs) - window + 1):
        means.append(sum(confs[first : first + window]) / window)
    means.sort()
    lowest = means[: max(1, int(len(means) * 0.1))] if summary == "bottom" else means[:1]
    return sum(lowest) / len(lowest)


@given(
    st.lists(st.floats(0, 30, width=32), min_size=1, max_size=60),
    st.sampled_from(search.certainty.SUMMARIES),
    st.integers(1, 40),
)
def test_a_path_has_the_published_confidence(tokens, summary, window):
    certainty = search.certainty.Certainty("top", summary, window)
    found = path_certainty(tokens, certainty)
    assert found == pytest.approx(published(tokens, summary, window), rel=1e-9, abs=1e-9)


# From logits to tokens


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny_models.save_model(tmp_path_factory.mktemp("certain") / "model", vocab_size=40)


@pytest.mark.parametrize("kind", TOKEN_CERTAINTIES)
def test_transformers_reports_it_of_the_whole_distribution(model, kind):
    """Whatever the sampling: here the distribution is cut to 7 tokens and to 80 % of the mass."""
    policy = HuggingFaceGenerator(model, max_step_tokens=12)
    asked = dataclasses.replace(ASKED, certainty=kind)
    requests = [asked, dataclasses.replace(asked, seeds=(1, 9))]
    generation = policy.generate(requests)
    check_generation(generation, requests)
    prompt = list(policy._model.prompt_ids(QUESTION))
    plain = Qwen2ForCausalLM.from_pretrained(model).double()
    assert generation.samples[0][0] == generation.samples[1][0]
    for sample in generation.samples[0]:
        ids = torch.tensor([[*prompt, *sample.step.token_ids]])
        with torch.no_grad():
            log_probs = plain(ids).logits[0, len(prompt) - 1 : -1].log_softmax(-1).numpy()
        assert len(sample.certainties) == len(sample.step.token_ids)
        for certainty, row in zip(sample.certainties, log_probs, strict=True):
            likeliest = sorted(row, reverse=True)[:20]
            expected = -sum(likeliest) / 20
            if kind == "all":
                expected = -sum(math.log(40 * math.exp(each)) for each in row) / 40
            assert certainty == pytest.approx(expected, abs=1e-4)
    (samples,) = policy.generate([ASKED]).samples
    assert [each.certainties for each in samples] == [None] * 5
    assert [each.step for each in samples] == [each.step for each in generation.samples[0]]


class CertainEngine(ScriptedEngine):
    """The certainty of a token is its id."""

    reports_top = True

    def _sampled(self, request, seed):
        sampled = super()._sampled(request, seed)
        certainties = tuple(map(float, sampled.ids)) if request.certain else None
        return dataclasses.replace(sampled, certainties=certainties)


def test_an_engine_s_certainties_are_cut_with_its_steps():
    policy = EngineGenerator(policy_path("weak"), lambda context: CertainEngine())
    assert policy.certainties == {"top"}
    asked = dataclasses.replace(ASKED, certainty="top")
    steps = [sample for row in policy.generate([asked]).samples for sample in row]
    (answers,) = policy.generate_answers([asked], 6).answers
    steps += [sample for answer in answers for sample in answer]
    assert len(steps) > 10
    for sample in steps:
        assert sample.certainties == tuple(map(float, sample.step.token_ids))
    assert policy.generate([ASKED]).samples[0][0].certainties is None


def test_vllm_s_columns_are_the_sampled_token_and_the_most_likely_ones():
    table = np.log(np.arange(1.0, 23.0))[None, :] * np.array([[-1.0], [-2.0]])  # 22 columns
    part = types.SimpleNamespace(
        new_token_ids=[4, 5],
        new_logprobs=types.SimpleNamespace(logprobs=table),
        prefill_stats=None,
        finish_reason="stop",
        pooling_output=None,
    )
    output = Output()
    assert _add(output, part)
    assert output.log_probs == table[:, 0].tolist()
    mean = sum(map(math.log, range(2, 22))) / 20
    assert output.certainties == pytest.approx([mean, 2 * mean])
    # Here the sampled token is not among the twenty.
    listed = {i: types.SimpleNamespace(logprob=-float(i)) for i in (*range(1, 21), 99)}
    assert _top(listed) == pytest.approx(10.5)


# In a search


def test_a_search_reads_the_paths_and_not_the_last_steps():
    """The number is that of all tokens of a path, for whole answers and for single steps."""
    policy = EngineGenerator(policy_path("weak"), lambda context: CertainEngine())
    recorder = search.Recorder(
        init=lambda state: (),
        record=lambda memory, tick: (
            memory,
            (tick.after.finished.certainty, tick.after.finished.embedding),
        ),
    )
    for budget in (None, 1000):  # a limit makes the policy sample step by step
        searcher = Searcher(
            policy=policy,
            strategy=search.methods.deepconf(summary="mean"),
            num_candidates=4,
            budget=budget,
            recorder=recorder,
        )
        (result,) = searcher.run([QUESTION])
        certainty, node = result.records[-1]
        assert len(result.paths) > 0
        for row, path in enumerate(result.paths):
            line = _line(result, int(node[row]))
            tokens = [token for each in line for token in result.candidates[each - 1].token_ids]
            assert certainty[row] == pytest.approx(sum(tokens) / len(tokens), rel=1e-6), path


def _line(result, node):
    """Ids of a node and of the steps before it."""
    found = []
    while node != 0:
        found.append(node)
        node = result.candidates[node - 1].parent
    return found


def test_a_policy_that_reports_none_is_refused_before_a_call():
    engine = ScriptedEngine()
    policy = EngineGenerator(policy_path("weak"), lambda context: engine)
    with pytest.raises(BadInputError, match="'deepconf' reads the 20 most likely tokens'"):
        Searcher(policy=policy, strategy=search.methods.deepconf(), num_candidates=4)
    certain = EngineGenerator(policy_path("weak"), lambda context: CertainEngine())
    with pytest.raises(BadInputError, match=r"whole vocabulary, which .*, but only the 20 most"):
        Searcher(policy=certain, strategy=search.methods.self_certainty(), num_candidates=4)
    assert engine.calls == []


def _recipe(policy, strategies):
    return parse_recipe(
        {
            "name": "r",
            "policy": policy,
            "strategies": strategies,
            "num_candidates": [4],
            "questions": {"world": "test", "count": 2},
        }
    )


@pytest.mark.parametrize(
    ("policy", "strategy", "fault"),
    [
        ({"path": "weak"}, "self_certainty", False),
        ({"path": "weak", "backend": "vllm"}, "deepconf_online", False),
        ({"path": "weak", "backend": "vllm"}, "self_certainty", True),
        ({"path": "weak", "backend": "vllm", "log_probs": False}, "deepconf", True),
        ({"path": "weak", "backend": "http://localhost:1"}, "deepconf", True),
        (
            {"backend": "http://localhost:1", "chat": True, "served_name": "m"},
            "deepconf_online",
            True,
        ),
        ({"path": "weak", "format": "thinks.yaml"}, "deepconf", True),
    ],
)
def test_a_recipe_is_refused_if_its_engine_reports_none(
    tmp_path, monkeypatch, policy, strategy, fault
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "thinks.yaml").write_text("thinking: {budget: 8}\n")
    recipe = _recipe(policy, [strategy])
    if not fault:
        assert len(grid(recipe)) == 1
        return
    with pytest.raises(BadInputError, match=f"strategy '{strategy}' reads the .* take backend: hf"):
        grid(recipe)


def test_paths_are_shared_by_methods_that_read_the_same():
    labelled = {"name": "deepconf", "label": "mean", "summary": "mean"}
    recipe = _recipe({"path": "weak"}, ["majority", "deepconf", "self_certainty", labelled])
    majority, deepconf, borda, mean = (cell.pool for cell in grid(recipe))
    assert deepconf == mean
    assert len({majority, deepconf, borda}) == 3


@pytest.mark.parametrize("certainties", [None, (1.0,), (1.0, float("nan"))])
def test_a_sample_without_them_breaks_the_contract(certainties):
    sample = StepSample(Step("ab", (3, 4)), "step", -1.0, certainties)
    generation = Generation([[sample]], [TokenUsage()], 0.0)
    asked = dataclasses.replace(ASKED, seeds=(1,), certainty="top")
    with pytest.raises(GeneratorContractError, match="certaint"):
        check_generation(generation, [asked])
    check_generation(generation, [dataclasses.replace(asked, certainty=None)])
