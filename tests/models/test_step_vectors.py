"""Vectors of steps: from a policy's hidden states to the numbers that a search compares."""

import dataclasses

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
from cats_jax.errors import BadInputError, GeneratorContractError, RunWarning
from cats_jax.evaluation.cells import Cell, grid
from cats_jax.live.contract import check_generation
from cats_jax.live.step_vectors import projected
from cats_jax.models.huggingface.generator import HuggingFaceGenerator
from cats_jax.models.huggingface.scorer import HuggingFaceScorer
from cats_jax.models.prm.format import WORLD
from cats_jax.models.serving.generator import EngineGenerator
from cats_jax.protocols import Generation, Question, Step, StepRequest, StepSample, TokenUsage
from cats_jax.specs.recipe import parse_recipe
from cats_jax.world import policy_path, prm_path
from search.strategy import ets_program

QUESTION = Question("q", "(3+4)*2=?")
ASKED = StepRequest(QUESTION, (), (1, 2, 3, 4, 5), 1.0, 0.8, 7, False, vectors=True)


# From a model to a step


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny_models.save_model(tmp_path_factory.mktemp("vectors") / "model", vocab_size=40)


def vector_by_hand(plain, prompt, path, ids):
    """From one pass of transformers over all tokens, without a cache."""
    before = [*prompt, *(token for step in path for token in step.token_ids)]
    with torch.no_grad():
        output = plain(torch.tensor([[*before, *ids]]), output_hidden_states=True)
    # After the token before the last one.
    return output.hidden_states[-1][0, len(before) + len(ids) - 2].numpy()


@pytest.mark.parametrize("in_line", [True, False])
def test_transformers_reports_the_last_hidden_state_before_the_end(model, in_line):
    policy = HuggingFaceGenerator(model, max_step_tokens=12)
    policy._model._in_line = in_line
    first = policy.generate([ASKED]).samples[0][0].step
    requests = [ASKED, dataclasses.replace(ASKED, path=(first,), seeds=(6, 7, 8))]
    generation = policy.generate(requests)
    check_generation(generation, requests)
    prompt = list(policy._model.prompt_ids(QUESTION))
    plain = Qwen2ForCausalLM.from_pretrained(model)
    for request, samples in zip(requests, generation.samples, strict=True):
        for sample in samples:
            ids = sample.step.token_ids
            expected = vector_by_hand(plain, prompt, request.path, ids)
            assert sample.vector is not None
            np.testing.assert_allclose(sample.vector, expected, atol=1e-4)
    # Neither the neighbours of a call nor an earlier call change a bit.
    alone = HuggingFaceGenerator(model, max_step_tokens=12)
    alone._model._in_line = in_line
    (samples,) = alone.generate([requests[1]]).samples
    pairs = zip(samples, generation.samples[1], strict=True)
    assert all(np.array_equal(one.vector, other.vector) for one, other in pairs)
    (plain_samples,) = policy.generate([dataclasses.replace(ASKED, vectors=False)]).samples
    assert [each.vector for each in plain_samples] == [None] * 5
    assert [each.step for each in plain_samples] == [each.step for each in generation.samples[0]]


# From a step to the state


@given(st.integers(1, 600), st.integers(0, 2**16))
def test_a_projection_keeps_angles_about(length, seed):
    draw = np.random.default_rng(seed)
    one = draw.normal(size=length).astype(np.float32)
    other = one + draw.normal(size=length).astype(np.float32) * draw.choice([0.1, 1.0, 3.0])

    def cosine(a, b):
        return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))

    found = [projected(each) for each in (one, other.astype(np.float32))]
    assert all(each.shape == (search.vectors.VECTOR_SIZE,) for each in found)
    expected = cosine(one, other)
    off = 0.0 if length <= search.vectors.VECTOR_SIZE else 6 * (1 - expected**2) / 128**0.5
    assert cosine(*found) == pytest.approx(expected, abs=off + 1e-4)


@pytest.fixture(scope="module")
def policy():
    return HuggingFaceGenerator(policy_path("weak"), max_step_tokens=32, max_answer_tokens=64)


def test_a_search_gets_the_vector_of_each_newest_step(policy, monkeypatch):
    seen, generate = {}, policy.generate

    def watched(requests):
        generation = generate(requests)
        for request, samples in zip(requests, generation.samples, strict=True):
            for sample in samples:
                path = (*(step.token_ids for step in request.path), sample.step.token_ids)
                seen[path] = sample.vector
        return generation

    monkeypatch.setattr(policy, "generate", watched)
    searcher = Searcher(
        policy=policy,
        strategy=dataclasses.replace(search.majority(), needs_vectors=True),
        num_candidates=4,
        max_depth=3,
        recorder=search.Recorder(
            init=lambda state: (),
            record=lambda memory, tick: (memory, (tick.after.frontier, tick.after.finished)),
        ),
    )
    (result,) = searcher.run([QUESTION])
    compared = 0
    for paths in (paths for parts in result.records for paths in parts):
        for row in np.flatnonzero(paths.valid):
            line = _line(result, int(paths.embedding[row]))
            expected = projected(seen[tuple(line)])
            assert paths.vector[row].tobytes() == expected.tobytes()
            compared += len(line) > 1
    assert compared > 0


def _line(result, node):
    """Token ids of the steps of a node's path."""
    found = []
    while node != 0:
        candidate = result.candidates[node - 1]
        found.append(tuple(candidate.token_ids))
        node = candidate.parent
    return found[::-1]


def searched_with_a_prm(policy, strategy, *questions):
    scorer = HuggingFaceScorer(prm_path("exact"), WORLD)
    searcher = Searcher(policy=policy, scorer=scorer, strategy=strategy, num_candidates=4)
    return searcher.run(questions)


def test_searches_of_the_embedded_world_are_answered(policy):
    other = Question("r", "(7+5)*(9-2)=?")
    results = searched_with_a_prm(policy, search.methods.dora(), QUESTION, other)
    assert [result.status for result in results] == ["answered", "answered"]


def test_a_search_counts_the_programs_that_were_not_solved(policy, monkeypatch):
    monkeypatch.setattr(ets_program, "MAX_VISITS", 0)
    # The distance is of no other test, so that the search is compiled anew.
    strategy = search.methods.ets(cluster_distance=0.06)
    with pytest.warns(
        RunWarning, match=r"'ets', N=4: the solver reached its limit in (\d+) of \1 s"
    ):
        (result,) = searched_with_a_prm(policy, strategy, QUESTION)
    assert result.ledger.unsolved == result.steps > 0
    assert result.status == "answered"


# Refusals


def test_a_policy_without_vectors_is_refused_before_a_call():
    engine = ScriptedEngine()
    policy = EngineGenerator(policy_path("weak"), lambda context: engine)
    reading = dataclasses.replace(search.majority(), name="mine", needs_vectors=True)
    with pytest.raises(BadInputError, match="'mine' compares steps by the policy's hidden states"):
        Searcher(policy=policy, strategy=reading, num_candidates=4)
    assert engine.calls == []


@pytest.mark.parametrize(
    ("policy", "fault"),
    [
        ({"path": "weak"}, False),
        ({"path": "weak", "backend": "vllm"}, True),
        ({"path": "weak", "backend": "http://localhost:1"}, True),
        ({"backend": "http://localhost:1", "chat": True, "served_name": "m"}, True),
        ({"path": "weak", "format": "thinks.yaml"}, True),
    ],
)
def test_a_recipe_is_refused_if_its_engine_reports_none(tmp_path, monkeypatch, policy, fault):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "thinks.yaml").write_text("thinking: {budget: 8}\n")
    recipe = {
        "name": "r",
        "policy": policy,
        "prms": ["exact"],
        "strategies": [{"name": "ets", "lambdas": 0.0, "label": "kv"}],
        "num_candidates": [4],
        "questions": {"world": "test", "count": 2},
    }
    assert len(grid(parse_recipe(recipe))) == 1  # it reads no vectors
    recipe["strategies"].append("ets")
    if not fault:
        assert len(grid(parse_recipe(recipe))) == 2
        return
    with pytest.raises(BadInputError, match=r"strategy 'ets' compares steps .* take backend: hf"):
        grid(parse_recipe(recipe))


def test_paths_with_vectors_are_not_shared_with_methods_that_read_none():
    majority = search.majority()
    reading = dataclasses.replace(majority, needs_vectors=True)
    pools = {
        Cell(spec=None, strategy=each, params=(), num_candidates=4, prm=None, seed=0).pool
        for each in (majority, reading)
    }
    assert len(pools) == 2


def test_vectors_of_two_lengths_break_the_contract():
    samples = [
        StepSample(Step("ab", (3, 4)), "step", -1.0, vector=np.ones(length, np.float32))
        for length in (3, 3, 4)
    ]
    generation = Generation([samples[:2], samples[2:]], [TokenUsage()] * 2, 0.0)
    asked = [dataclasses.replace(ASKED, seeds=seeds) for seeds in ((1, 2), (3,))]
    with pytest.raises(GeneratorContractError, match="vectors of 3 and of 4 numbers"):
        check_generation(generation, asked)


@pytest.mark.parametrize(
    "vector",
    [
        None,
        (1.0, 2.0),
        np.ones(3),
        np.ones((1, 3), np.float32),
        np.array([], np.float32),
        np.array([1.0, np.nan], np.float32),
    ],
)
def test_a_sample_without_a_vector_breaks_the_contract(vector):
    sample = StepSample(Step("ab", (3, 4)), "step", -1.0, vector=vector)
    generation = Generation([[sample]], [TokenUsage()], 0.0)
    asked = dataclasses.replace(ASKED, seeds=(1,))
    with pytest.raises(GeneratorContractError, match="vector"):
        check_generation(generation, [asked])
    check_generation(generation, [dataclasses.replace(asked, vectors=False)])
