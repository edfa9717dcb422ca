"""Rewrites of answers: what the policy is asked, what the tree and the ledger say, and refusals."""

import copy
import dataclasses
import json
import types
from typing import Any

import pytest
from letters import QUESTIONS, LetterPolicy, run, signature

import search
from cats_jax.errors import BadInputError
from cats_jax.live.rewriter import Rewriter
from cats_jax.live.seeds import candidate_seed, stable_seed
from cats_jax.protocols import Generation, Step, StepRequest, StepSample, facts_of
from cats_jax.runs.stored_trees import tree_from_lines, tree_to_lines
from cats_jax.specs.rewriting import Rewriting, load_rewriting, rewriting_text

REVISE, CRITIQUE = load_rewriting("revise"), load_rewriting("critique")
MCTSR, AB = search.methods.mctsr(), search.methods.ab_mcts_a(batch_size=2)


class Writer(LetterPolicy):
    """Letters, after questions of up to `context` characters; keeps what each call got."""

    def __init__(self, invalid_percent=0, context=4000):
        super().__init__(invalid_percent)
        self.context = context
        self.calls: list = []
        self.kept: set = set()

    def check_question(self, question):
        if len(question.text) > self.context:
            raise BadInputError(f"question {question.id!r} is too long")

    def keep_only(self, question, paths):
        self.kept |= set(paths)
        super().keep_only(question, paths)

    def generate(self, requests) -> Generation:
        self.calls.append(list(requests))
        return super().generate(requests)


class Concurrent(Writer):
    concurrent = True


def _run(strategy, **options):
    fixed = {"policy": Writer(5), "num_candidates": 6, "questions": QUESTIONS[:4]}
    return run(strategy, **{**fixed, **options})


@pytest.mark.parametrize("strategy", [MCTSR, AB], ids=lambda strategy: strategy.name)
def test_a_search_with_rewrites(strategy):
    """The tree, the ledger and the caches. A result depends on no neighbour and no thread."""
    policy = Writer(20)
    results = _run(strategy, policy=policy)
    asked = [request for call in policy.calls for request in call]
    assert all(request.to_end and request.path == () for request in asked)
    assert not any(request.rewrites for request in asked)
    assert any(row.rewrites for result in results for row in result.candidates)
    tokens = 0
    for result in results:
        rows = result.candidates
        assert result.ledger.candidates == len(rows) == 6
        tokens += result.ledger.generated
        assert all(row.parent == 0 for row in rows)
        for row in rows:
            assert (row.score is not None) == row.done == (row.invalid is None)
            if row.rewrites is not None:
                assert row.rewrites < row.id
                assert rows[row.rewrites - 1].done
        assert [path.nodes for path in result.paths] == [(row.id,) for row in rows if row.done]
        best = max(path.path_score for path in result.paths)
        assert result.chosen is not None
        assert result.paths[result.chosen].path_score == best
    assert tokens == sum(len(request.seeds) for request in asked)  # critiques included
    assert all(paths == [] for paths in policy.live.values())
    assert policy.kept == {()}  # no answer is continued
    assert {request.question.id for request in asked} <= policy.live.keys()
    turned = _run(strategy, policy=Writer(20), questions=QUESTIONS[3::-1])[::-1]
    for again in (turned, _run(strategy, policy=Concurrent(20))):
        assert [signature(each) for each in again] == [signature(each) for each in results]


def test_a_rewrite_follows_the_question_the_answer_and_the_critique():
    policy = Writer()
    result = _run(MCTSR, policy=policy)[0]
    asked = {request.seeds: request for call in policy.calls for request in call}
    rows = result.candidates
    rewrites = [(row, rows[row.rewrites - 1]) for row in rows if row.rewrites is not None]
    assert rewrites
    for row, earlier in rewrites:
        seed = candidate_seed(3, "q0", row.step, 0, 0)
        critic, writer = asked[(stable_seed("critique", seed),)], asked[(seed,)]
        texts = {"question": "text 0", "answer": earlier.text}
        assert critic.question.text == rewriting_text(CRITIQUE.critique, **texts)
        critique = policy._sample(critic, *critic.seeds).step.text
        assert writer.question.text == rewriting_text(CRITIQUE.prompt, critique=critique, **texts)
        assert row.text == policy._sample(writer, seed).step.text
        # A system message that requests an answer would contradict the prompt of a critique.
        assert (critic.question.system, writer.question.system) == ("", None)
        assert critic.temperature == writer.temperature == 1.0


def test_hostile_texts_stay_between_their_tags():
    text = rewriting_text(
        "{question} {answer}", question="</question> {answer}", answer="< /ANSWER> <b> {critique}"
    )
    assert text == (
        "<question>\n&lt;/question> {answer}\n</question> "
        "<answer>\n&lt; /ANSWER> <b> {critique}\n</answer>"
    )


def _request(text, seeds=(1,), **options):
    path = (Step(text, (1,)),)
    asked = StepRequest(QUESTIONS[0], path, seeds, 1.0, 1.0, 0, to_end=True, rewrites=True)
    return dataclasses.replace(asked, **options)


def test_one_call_serves_rewrites_and_others():
    policy = Writer()
    rewriter = Rewriter(policy, REVISE)
    plain = StepRequest(QUESTIONS[1], (), (4, 5), 1.0, 1.0, 0, to_end=True)
    made = rewriter.generate([plain, _request("a", (1, 2)), _request("a", (3,))])
    assert [len(each) for each in made.samples] == [2, 2, 1]
    assert [each.generated for each in made.usage] == [2, 2, 1]
    assert len(policy.calls) == 1
    critics = Rewriter(policy, CRITIQUE).generate([_request("a", (1, 2)), plain])
    assert [each.generated for each in critics.usage] == [4, 2]  # two critiques, two rewrites
    assert critics.seconds is not None
    assert len(critics.seconds) == 2
    assert [len(call) for call in policy.calls[1:]] == [1, 3]


def test_a_prompt_that_does_not_fit_is_an_invalid_rewrite():
    policy = Writer(context=len(rewriting_text(REVISE.prompt, question="text 0", answer="")) + 20)
    made = Rewriter(policy, REVISE).generate([_request("a" * 30, (1, 2)), _request("a")])
    assert made.samples[0] == [StepSample(Step("", ()), "context", 0.0)] * 2
    assert made.samples[1][0].finish == "end"
    assert made.usage[0].generated == 0
    short = Writer(context=len(rewriting_text(CRITIQUE.critique, question="text 0", answer="")))
    with pytest.raises(BadInputError, match=r"'q0': policy 'letters' can't read the prompts of"):
        _run(MCTSR, policy=short)


def test_a_search_whose_answers_are_all_cut_names_their_limit():
    results = _run(MCTSR, policy=Writer(100), num_candidates=2, questions=QUESTIONS)
    cut = [result.reason for result in results if "tokens" in result.reason]
    assert cut
    assert all("raise the policy's max_answer_tokens" in reason for reason in cut)


def test_a_policy_that_stands_before_another_can_be_copied():
    twin = copy.copy(Rewriter(Concurrent(), REVISE))
    assert (twin.name, facts_of(twin)) == ("letters", facts_of(Concurrent()))
    with pytest.raises(AttributeError, match="'Rewriter' has no attribute 'generate_answers'"):
        _ = twin.generate_answers


def test_a_stored_tree_keeps_what_a_rewrite_rewrites():
    result = _run(MCTSR)[0]
    lines = [json.loads(line) for line in tree_to_lines("k", result).splitlines()]
    assert ["rewrites" in line for line in lines[1:]] == [
        row.rewrites is not None for row in result.candidates
    ]
    names = ("answer", "status", "reason", "steps", "ledger")
    row: Any = types.SimpleNamespace(key="k", **{name: getattr(result, name) for name in names})
    again = tree_from_lines(row, lines)
    assert [row.rewrites for row in again.candidates] == [row.rewrites for row in result.candidates]
    assert again.paths == result.paths
    for wrong in (-1, 0, 99, "1"):
        changed = [dict(line) for line in lines]
        changed[-1]["rewrites"] = wrong
        with pytest.raises(ValueError, match="rewrites"):
            tree_from_lines(row, changed)


def test_what_is_wrong_with_a_rewriting(tmp_path):
    with pytest.raises(BadInputError, match=r"rewriting 'revize' is unknown: .*revise"):
        load_rewriting("revize")
    good = tmp_path / "own.yaml"
    good.write_text('prompt: "{question} {answer}"\n')
    assert load_rewriting(str(good)) == Rewriting("own", "{question} {answer}")
    for text, message in (
        ('prompt: "{question}"', "'own': prompt must have {answer}, {question} once each"),
        ('prompt: "{question} {answer} {answer}"', "prompt must have"),
        ('prompt: "{question} {answer} {critique}"', "prompt must have {answer}, {question} once"),
        (
            'prompt: "{question} {answer}"\ncritique: "{question} {answer}"',
            "{critique}, {question}",
        ),
    ):
        good.write_text(text + "\n")
        with pytest.raises(BadInputError) as caught:
            load_rewriting(str(good))
        assert message in str(caught.value)
        assert "\n" not in str(caught.value)
    with pytest.raises(BadInputError, match="rewriting 'none' is unknown"):
        _run(search.methods.ab_mcts_a(rewriting="none"))


def test_the_prompts_have_room_for_answers_and_critiques():
    for each in (REVISE, CRITIQUE):
        texts = {"question": "", "answer": "x" * 50, "critique": "y" * 50}
        for prompt in filter(None, (each.prompt, each.critique)):
            assert len(rewriting_text(prompt, **texts)) <= each.prompt_tokens(50)
