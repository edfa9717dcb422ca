"""The embedded models behind the server: batches, caches, and the command line's own answers."""

import json
import pathlib
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import openai
import pytest
from search_server import own_fields, running

from cats_jax import datasets
from cats_jax.commands.serve import _WORLD
from cats_jax.errors import BadInputError
from cats_jax.models.source import ModelFolders
from cats_jax.protocols import Question
from cats_jax.server.offer import Offer, Settings
from cats_jax.specs.recipe import load_recipe, parse_recipe
from cats_jax.storage.yaml_reading import load_yaml

RECIPE = {
    **load_yaml(_WORLD, "recipe"),
    "strategies": ["beam", "majority"],
    "num_candidates": [4],
    "in_flight": 8,
}


@pytest.fixture(scope="module")
def server():
    offer = Offer(parse_recipe(RECIPE), name="weak", max_prompt_characters=200)
    with running(offer.load(ModelFolders())) as found:
        yield found


@pytest.fixture(scope="module")
def oracle(server):
    """Models of its own: those of the server are its thread's."""
    return server.loaded.offer.load(ModelFolders())


@pytest.fixture(scope="module")
def texts():
    questions = datasets.world_questions("test", 8, seed=3).questions
    return [question.text for question in questions]


def ask(found, text, **extra):
    return found.client().chat.completions.create(
        model="weak", messages=[{"role": "user", "content": text}], extra_body=extra
    )


def expected(oracle, texts, settings):
    """What a searcher finds for each text, one after the other."""
    searcher = oracle.searcher(settings)
    answers = []
    for text in texts:
        (result,) = searcher.run([Question("question", text)])
        content = "" if result.chosen is None else "\n\n".join(result.paths[result.chosen].steps)
        answers.append((content, result.status, result.ledger.generated, result.ledger.candidates))
    return answers


def found_in(answer):
    usage = own_fields(answer.usage)
    return (
        answer.choices[0].message.content,
        own_fields(answer)["status"],
        usage["generated"],
        usage["candidates"],
    )


def test_requests_of_the_reference_cases_get_their_status(server, shared):
    """What is refused by its documentation is refused unless the server ignores it."""
    for line in shared("cases/server_requests.jsonl").read_text().splitlines():
        case = json.loads(line)
        response = httpx.post(f"{server.url}/chat/completions", json=case["body"], timeout=60)
        assert response.status_code == int(str(case["expected_status"])[:3]), line


def test_searches_with_and_without_a_budget_are_those_of_a_searcher(server, oracle, texts):
    """Majority samples whole answers, but step by step where a budget may cut it short."""
    asked = [(text, budget) for text in texts[:3] for budget in (None, 9)]
    with ThreadPoolExecutor(6) as clients:
        answers = list(
            clients.map(lambda job: ask(server, job[0], strategy="majority", budget=job[1]), asked)
        )
    for budget in (None, 9):
        settings = Settings("majority", 4, budget, 0.0, 0)
        wanted = expected(oracle, texts[:3], settings)
        own = [
            found_in(answer) for answer, job in zip(answers, asked, strict=True) if job[1] == budget
        ]
        assert own == wanted
    # Whichever request comes first: a batch has the policy of its first search.
    assert Settings("majority", 4, 9, 0.0, 0).batch != Settings("majority", 4, None, 0.0, 0).batch
    last = time.monotonic() + 10
    while server.loaded.policy._cache._roots:  # the engine forgets after its last answer
        assert time.monotonic() < last


def test_an_equal_question_keeps_its_cache_when_the_other_is_dropped(server, oracle, texts):
    body = {"model": "weak", "messages": [{"role": "user", "content": texts[0]}]}
    with ThreadPoolExecutor(4) as clients:
        staying = [clients.submit(ask, server, texts[0], seed=seed) for seed in (0, 0, 1)]
        with httpx.stream(
            "POST", f"{server.url}/chat/completions", json={**body, "stream": True}, timeout=60
        ) as response:
            next(response.iter_lines())  # it has begun
        same, again, other = [found_in(each.result()) for each in staying]
    assert same == again
    for seed, each in ((0, same), (1, other)):
        assert [each] == expected(oracle, texts[:1], Settings("beam", 4, None, 0.0, seed))


@pytest.mark.slow
def test_the_documented_example_is_right():
    """And a vote is wrong; answers and costs are those that the page states."""
    page = (pathlib.Path(__file__).parents[2] / "docs" / "engines" / "serve.md").read_text()
    text = re.search(r'"content": "(.+)=\?"', page)
    assert text is not None
    loaded = Offer(load_recipe(_WORLD), name="weak", max_prompt_characters=200).load(ModelFolders())
    right = str(eval(text[1]))
    for strategy, answer, tokens in (("cats", right, 149), ("majority", "88", 480)):
        assert f"answers {answer}" in page
        assert f"{tokens} tokens" in page
        settings = Settings(strategy, 16, None, loaded.offer.cell(strategy).price, 7)
        (result,) = loaded.searcher(settings).run([Question("question", f"{text[1]}=?")])
        assert (result.answer, result.ledger.tokens) == (answer, tokens)


@pytest.mark.slow
def test_the_command_serves_and_ends_and_answers_as_solve_does(tmp_path, texts):
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(
        "policy: {path: weak, max_step_tokens: 256}\nprms: [exact]\ncalibration: weak\n"
        "strategies: [beam]\nnum_candidates: [4]\nquestions: {world: test, count: 1}\n"
    )
    token = tmp_path / "token"
    token.write_text("sesame\n")
    command = [sys.executable, "-m", "cats_jax.cli"]
    options = ["--port", "0", "--token-file", str(token), "--model-name", "searches"]
    with subprocess.Popen(
        [*command, "serve", str(recipe), *options], stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        try:
            url = re.search(r"http://\S+/v1", process.stderr.readline())
            assert url is not None
            with openai.OpenAI(base_url=url[0], api_key="sesame", max_retries=20) as client:
                answer = client.chat.completions.create(
                    model="searches",
                    messages=[{"role": "user", "content": texts[0]}],
                    seed=7,
                )
        finally:
            process.terminate()
        began = time.monotonic()
        assert process.wait(30) == 0, process.stderr.read()
        assert time.monotonic() - began < 20
        assert "the server has ended" in process.stderr.read()
    solved = subprocess.run(
        [*command, "solve", texts[0], "-n", "4", "--seed", "7"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    own = own_fields(answer)
    assert f"answer: {own['answer']}" in solved.stdout
    ledger = own_fields(answer.usage)
    assert f"candidates: {ledger['candidates']}" in solved.stdout
    assert f"tokens: {ledger['tokens']} " in solved.stdout


def test_a_server_without_the_grader_of_its_questions_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    changes = {"questions": {"file": str(tmp_path / "questions.jsonl")}}
    with pytest.raises(BadInputError, match=r"math-verify, which is not installed: pip install"):
        Offer(parse_recipe({**RECIPE, **changes}), name="weak", max_prompt_characters=200)


def test_a_recipe_that_can_not_be_served_is_refused():
    for changes, match in (
        ({"prms": ["exact", "sparse"]}, "one PRM"),
        ({"prms": []}, "reads PRM scores"),
        ({"strategies": ["beam", "baem"]}, "did you mean"),
    ):
        with pytest.raises(BadInputError, match=match):
            Offer(parse_recipe({**RECIPE, **changes}), name="weak", max_prompt_characters=200)
