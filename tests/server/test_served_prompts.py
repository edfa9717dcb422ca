"""Strategies whose prompts a server writes: rewrites and comparisons of answers."""

import httpx
from compared import Comparer
from search_server import letters, running

OWN = 'prompt: "{answers}{question}"\n'
REWRITE = 'prompt: "{answer}{question}"\n'


def first(answers):
    return f"Judgment: {1 + answers.index(min(answers))}"


def _post(found, text, strategy):
    body = {
        "model": "letters",
        "messages": [{"role": "user", "content": text}],
        "strategy": strategy,
    }
    return httpx.post(f"{found.url}/chat/completions", json=body, timeout=60)


def test_a_question_whose_comparison_does_not_fit_is_refused():
    """The policy reads 200 characters, and the prompt of a comparison alone has more."""
    policy = Comparer(first, context=200)
    compared = ["gen_select", "pairwise_borda", "llama_berry"]
    with running(letters(policy, strategies=[*compared, "majority"])) as found:
        for strategy in compared:
            refused = _post(found, "which letters?", strategy)
            assert refused.status_code == 400
            assert "prompt" in refused.json()["error"]["message"]
            assert "of this request" in refused.json()["error"]["message"]
        assert not policy.calls
        assert _post(found, "which letters?", "majority").status_code == 200
        assert found.engine.state == "ready"


def test_the_prompts_are_those_of_the_start(tmp_path):
    """A server reads the files of prompts once, and works on without them."""
    compared, rewritten = tmp_path / "own.yaml", tmp_path / "again.yaml"
    compared.write_text(OWN)
    rewritten.write_text(REWRITE)
    policy = Comparer(first)
    strategies = [
        {"name": "gen_select", "comparison": str(compared)},
        {"name": "mctsr", "rewriting": str(rewritten)},
    ]
    with running(letters(policy, strategies=strategies)) as found:
        compared.write_text("prompt: none\n")
        rewritten.unlink()
        made = [_post(found, "which letters?", each["name"]) for each in strategies]
        assert [each.status_code for each in made] == [200, 200]
    assert policy.comparisons
    assert all(each.question.text.startswith("<answer_1>") for each in policy.comparisons)
