"""The transformers bridge within a bound on its cache: samples, scores and usage stay the same."""

import dataclasses
import random

import pytest
import tiny_models

import search
from cats_jax import Searcher, world
from cats_jax.evaluation import evaluate
from cats_jax.models.huggingface import HuggingFaceGenerator, HuggingFaceScorer
from cats_jax.models.prm.format import WORLD
from cats_jax.models.source import ModelFolders
from cats_jax.protocols import Question, Step, StepRequest
from cats_jax.reporting.run_tables import timing_table
from cats_jax.specs.recipe import parse_recipe
from cats_jax.world import task, tokenizer

QUESTIONS = [
    Question("short", "1+2*3=?"),
    Question("middle", "((50*4)-21)+15*2=?"),
    Question("long", "((((50*4)-21)+15)*7-3)+((12+13)*(14-15))%16=?"),
    Question("other", "7+8=?"),
]
# In tokens: less than one question's paths, two or three questions, and no bound.
BOUNDS = [130, 260, 400, 100_000]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_models.save_model(tmp_path_factory.mktemp("models") / "tiny")


def within(tokens, make, *arguments, **settings):
    """A bridge whose cache holds this many tokens at most, and the list of what it has held."""
    unbounded = make(*arguments, kv_cache_gib=1.0, **settings)
    size = unbounded._model.kv_bytes_per_token
    bridge = make(*arguments, kv_cache_gib=(tokens + 1) * size / 2**30, **settings)
    cache, held = bridge._cache, []
    assert cache.capacity == tokens
    store = cache.store

    def watched(*given):
        store(*given)
        held.append(len(cache))
        assert cache.num_bytes <= (tokens + 1) * size

    cache.store = watched
    return bridge, held


def request(question, path, seeds):
    return StepRequest(question, path, seeds, 1.0, 1.0, 0, False)


def told(generation):
    return generation.samples, generation.usage, generation.sample_usage


def policy_calls(generator):
    """Four levels of a search with two calls each and pruning in between: what each call told."""
    rng = random.Random(0)
    live = [(question, ()) for question in QUESTIONS]
    for level in range(4):
        grown = []
        for call in range(2):
            requests = [request(q, path, tuple(range(9 * call, 9 * call + 9))) for q, path in live]
            answer = generator.generate(requests)
            yield told(answer)
            for asked, samples in zip(requests, answer.samples, strict=True):
                steps = dict.fromkeys(s.step for s in samples if s.finish == "step")
                grown += [(asked.question, (*asked.path, step)) for step in steps]
        live = []
        for question in QUESTIONS:
            mine = [entry for entry in grown if entry[0] == question]
            live += rng.sample(mine, min(5, len(mine)))
        if level % 2 == 0:
            for question in QUESTIONS:
                generator.keep_only(question, [p for q, p in live if q == question])


LIMITS = {"max_step_tokens": 20, "batch_tokens": 4000}


@pytest.fixture(scope="module")
def unbounded(folder):
    """What each call told without a bound on the cache."""
    generator = HuggingFaceGenerator(folder, **LIMITS)
    scorer = HuggingFaceScorer(folder, WORLD, batch_tokens=1000)
    told = [*policy_calls(generator)], [*score_calls(scorer)]
    assert generator.recomputed == scorer.recomputed == 0
    return told


@pytest.mark.parametrize("tokens", BOUNDS)
def test_no_sample_and_no_usage_depends_on_the_bound(folder, unbounded, tokens):
    generator, held = within(tokens, HuggingFaceGenerator, folder, **LIMITS)
    for got, expected in zip(policy_calls(generator), unbounded[0], strict=True):
        assert got == expected
    assert max(held) <= tokens
    assert (generator.recomputed > 0) == (tokens < BOUNDS[-1])
    for question in QUESTIONS:
        generator.keep_only(question, [])
    assert len(generator._cache) == 0


def score_calls(scorer):
    """Paths that grow by steps and paths at once, with pruning in between."""
    rng = random.Random(1)
    texts = ["50*4=200", "200-21=179", "1", "12+13=25", "7*8-3=53"]
    steps = [Step(text, (*tokenizer.encode(text), tokenizer.SEPARATOR_ID)) for text in texts]
    live = [(question, ()) for question in QUESTIONS]
    for level in range(5):
        live = [(q, (*path, rng.choice(steps))) for q, path in live for _ in range(3)]
        at_once = (rng.choice(QUESTIONS), tuple(rng.choices(steps, k=4)))
        paths = [*live, at_once]
        scoring = scorer.score([q for q, _ in paths], [path for _, path in paths])
        yield scoring.scores, scoring.usage
        live = rng.sample(live, 12)
        if level % 2 == 0:
            for question in QUESTIONS:
                scorer.keep_only(question, [path for q, path in live if q == question])


@pytest.mark.parametrize("tokens", BOUNDS)
def test_no_score_and_no_usage_depends_on_the_bound(folder, unbounded, tokens):
    scorer, held = within(tokens, HuggingFaceScorer, folder, WORLD, batch_tokens=1000)
    for got, expected in zip(score_calls(scorer), unbounded[1], strict=True):
        assert got == expected
    assert max(held) <= tokens
    assert (scorer.recomputed > 0) == (tokens < BOUNDS[-1])


def test_a_score_that_is_known_needs_no_room(folder):
    """What is asked again is answered from the tree, also if its keys and values are gone."""
    scorer, held = within(60, HuggingFaceScorer, folder, WORLD)
    path = (Step("50*4=200", (1,)), Step("200-21=179", (1,)))
    first = scorer.score([QUESTIONS[0]], [path])
    scorer.score(QUESTIONS[1:2], [path])
    del held[:]
    assert scorer.score([QUESTIONS[0]], [path]).scores == first.scores
    assert (held, scorer.recomputed) == ([], 0)


STRATEGIES = {
    "beam": search.beam(expansion=4),
    "cats": search.cats.cats(
        search.cats.random_policy, search.cats.CatsConfig(rounds=2, expansion=2)
    ),
}


@pytest.mark.parametrize("name", STRATEGIES)
def test_no_search_depends_on_the_bound(name):
    questions = [Question(p.id, p.text) for p in task.problems("validation", 5)]

    def results(policy, scorer):
        searcher = Searcher(
            policy=policy,
            scorer=scorer,
            strategy=STRATEGIES[name],
            num_candidates=16,
            max_depth=6,
            max_tokens=1500,
        )
        for result in searcher.run(questions):
            spent = dataclasses.asdict(result.ledger)
            counts = {key: value for key, value in spent.items() if not key.endswith("_seconds")}
            yield result.answer, result.status, result.paths, result.candidates, counts

    limits = {"max_step_tokens": 32, "max_answer_tokens": 64}
    expected = [
        *results(
            HuggingFaceGenerator(world.policy_path("weak"), **limits),
            HuggingFaceScorer(world.prm_path("exact"), WORLD),
        )
    ]
    for tokens in (140, 400):
        folder = world.policy_path("weak")
        policy, held = within(tokens, HuggingFaceGenerator, folder, **limits)
        scorer, prm_held = within(tokens, HuggingFaceScorer, world.prm_path("exact"), WORLD)
        assert [*results(policy, scorer)] == expected
        assert max(held + prm_held) <= tokens
        assert policy.recomputed > 0 or tokens > 140
        assert scorer.recomputed > 0 or tokens > 140


@pytest.mark.parametrize(("bound", "again"), [(None, False), (0.0005, True)])
def test_timings_say_what_was_computed_again(tmp_path, bound, again):
    recipe = parse_recipe(
        {
            "name": "bounded",
            "policy": {"path": "weak", "max_step_tokens": 32, "kv_cache_gib": bound},
            "prms": ["exact"],
            "strategies": ["beam"],
            "num_candidates": [16],
            "questions": {"world": "validation", "count": 8},
            "max_depth": 8,
        }
    )
    models = ModelFolders()
    _, times = evaluate.evaluate(evaluate.prepare(recipe, models), models, tmp_path / "run")
    assert (times.recomputed > 0) == again
    column = list(timing_table(times).columns[0].cells)
    assert any("computed again" in str(cell) for cell in column) == again
