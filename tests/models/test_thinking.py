"""Policies that think before they answer: scripted engines, and tiny models against plain loops."""

import dataclasses
import itertools
import math
from typing import Any

import pytest
import scripted_engine
import tiny_models
import torch
import yaml
from byte_vocabulary import byte_tokenizer, token_id
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM

import search
from cats_jax import check_generator
from cats_jax.errors import BadInputError, PathTooLongError, ScorerContractError
from cats_jax.grading.boxed_integer import BoxedIntegerGrader
from cats_jax.live.searcher import Searcher
from cats_jax.live.tree import SearchTree, candidate_step, sampled_step
from cats_jax.models.contracts import check_scorer
from cats_jax.models.huggingface.generator import HuggingFaceGenerator
from cats_jax.models.huggingface.scorer import HuggingFaceScorer
from cats_jax.models.prm.format import WORLD
from cats_jax.models.prompts.policy_format import PLAIN, choose_format
from cats_jax.models.prompts.thinking import Thinking
from cats_jax.models.resolve import resolve_models
from cats_jax.models.serving.generator import EngineGenerator
from cats_jax.models.serving.token_engine import TokenSample
from cats_jax.models.source import ModelFolders, thought_tokens
from cats_jax.protocols import Question, Scoring, Step, StepRequest, TokenUsage
from cats_jax.specs.models import PolicySpec
from cats_jax.world import prm_path

WORDS = ("\n\n", "<think>", "</think>", "Wait")
CLOSE = "\n</think>\n\n"
QUESTION = Question("q", "1+2=?")
ONE = StepRequest(QUESTION, (), (1,), 0.0, 1.0, 0, False)
END = "\0"


def closing():
    """Token ids that are put in at the budget, encoded without merges."""
    return (*ids_of("\n</think>"), *ids_of("\n"), *ids_of("\n"))


def thinking(**values):
    return dataclasses.replace(PLAIN, name="mine", thinking=Thinking(**values))


def ids_of(text):
    """Token ids of a text, WORDS as single tokens, END as the end-of-text token."""
    found = []
    while text:
        word = next((word for word in WORDS if text.startswith(word)), text[0])
        found.append(1 if word == END else token_id(word, WORDS))
        text = text[len(word) :]
    return tuple(found)


def tokenizer(template=None):
    """A tokenizer that encodes the tags as single tokens, as those of thinking models do."""
    made = byte_tokenizer(WORDS)
    made.add_tokens(list(WORDS[1:]))
    made.chat_template = template or made.chat_template
    return made


def save_model(path, template=None):
    sizes = {"hidden_size": 16, "num_attention_heads": 1, "num_key_value_heads": 1}
    return tiny_models.save_model(path, tokenizer=tokenizer(template), vocab_size=280, **sizes)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_model(tmp_path_factory.mktemp("thinking") / "model")


@pytest.fixture(scope="module")
def plain(folder):
    return HuggingFaceGenerator(folder, format=PLAIN)._model


class Writer:
    """An engine that writes what a function of the answer so far says."""

    concurrent = False

    def __init__(self, model, story):
        self.model, self.story, self.asked = model, story, []
        self.first = len(model.prompt_ids(QUESTION))

    def sample(self, requests):
        self.asked += requests
        return [[self._sampled(each)] * len(each.seeds) for each in requests]

    def _sampled(self, request):
        ids = ids_of(self.story(self.model.decode(request.prompt[self.first :])))
        ids = ids[: request.max_tokens]
        stop = next((i for i, token in enumerate(ids, 1) if token in request.stop_ids), None)
        ids = ids[:stop]
        return TokenSample(ids, stop is not None, (-0.5,) * len(ids), 0)


def writing(folder, plain, story, format, **limits):
    engine = Writer(plain, story)
    limits = {"max_step_tokens": 40, "max_answer_tokens": 60, **limits}
    return EngineGenerator(folder, lambda context: engine, format=format, **limits), engine


def telling(*texts):
    """A story that continues the one of several texts that the answer so far begins."""

    def story(so_far):
        return next(text[len(so_far) :] for text in texts if text.startswith(so_far)) + END

    return story


def path_of(policy, to_end=False):
    """The samples of a path, step by step."""
    path, samples = (), []
    while not samples or samples[-1].finish == "step":
        made = policy.generate([dataclasses.replace(ONE, path=path, to_end=to_end)])
        samples += made.samples[0]
        path = (*path, samples[-1].step)
    return samples


CALM = "<think>\nIs it 5? \\boxed{5}</think>\n\nSo 1+2=3\n\nIt is \\boxed{3}"
BODY = "Is it 5? \\boxed{5}"


def test_a_thought_and_the_first_step_of_the_answer_are_one_step(folder, plain):
    policy, engine = writing(folder, plain, telling(CALM), thinking(budget=40))
    first, second = path_of(policy)
    assert first.step.text == f"<think>\n{BODY}\n</think>\n\nSo 1+2=3"
    assert second.step.text == "It is \\boxed{3}"
    assert first.step.token_ids + second.step.token_ids == (*ids_of(CALM), 1)
    assert [each.finish for each in (first, second)] == ["step", "end"]
    # "<think>\n" was put in, and has no probability.
    assert first.log_prob == -0.5 * (len(first.step.token_ids) - 2)
    assert sampled_step(first).confidence == math.exp(-0.5)
    judge = BoxedIntegerGrader()
    assert judge.extract([first.step.text]) is None
    assert judge.extract([first.step.text, second.step.text]) == "3"
    # The pieces of a path are its tokens, so that nothing is encoded anew.
    assert engine.asked[-1].prompt[engine.first :] == first.step.token_ids
    ((whole,),) = policy.generate([dataclasses.replace(ONE, to_end=True)]).samples
    assert whole.step.token_ids == (*ids_of(CALM), 1)
    assert whole.finish == "end"


def test_a_thought_is_closed_at_its_budget(folder, plain):
    forced = "<think>\nIs it 5?\n</think>\n\nThus \\boxed{4}"
    policy, engine = writing(folder, plain, telling(CALM, forced), thinking(budget=8))
    (step,) = path_of(policy)
    assert step.step.text == "<think>\nIs it 5?\n</think>\n\nThus \\boxed{4}"
    head, tail = forced.split(CLOSE)
    assert step.step.token_ids == (*ids_of(head), *closing(), *ids_of(tail), 1)
    assert [request.max_tokens for request in engine.asked] == [8, 40]
    # What closed the thought was not sampled, and says nothing about how sure the policy is.
    assert sampled_step(step).confidence == math.exp(-0.5)
    tree = SearchTree(QUESTION, BoxedIntegerGrader())
    candidate = tree.add(0, step, step=0, phase=0, pool_row=0)
    assert candidate.num_tokens == 8 + len(ids_of(tail)) + 1
    assert candidate_step(candidate).confidence == math.exp(-0.5)
    made = policy.generate([dataclasses.replace(ONE, seeds=(1, 2), temperature=1.0)])
    assert [each.step for each in made.samples[0]] == [step.step] * 2
    assert made.sample_usage is not None
    assert made.usage[0].generated == sum(each.generated for each in made.sample_usage[0])
    assert made.sample_usage[0][0].generated == 8 + len(ids_of("Thus \\boxed{4}")) + 1


def test_a_thought_is_prolonged_as_often_as_the_format_says(folder, plain):
    again = CALM.replace("</think>", "Wait, 3.</think>", 1)
    twice = again.replace("</think>", "Wait; 3.</think>", 1)
    stories = telling(CALM, again, twice)
    policy, _ = writing(folder, plain, stories, thinking(budget=60, waits=2))
    first, second = path_of(policy)
    assert first.step.token_ids + second.step.token_ids == (*ids_of(twice), 1)
    assert first.step.text.splitlines()[1] == f"{BODY}Wait, 3.Wait; 3."
    assert sampled_step(first).confidence == math.exp(-0.5)
    # The budget counts the tokens that stay, and has room for one more or for none.
    spent = len(ids_of(BODY + "Wait"))
    policy, _ = writing(folder, plain, stories, thinking(budget=spent, waits=2))
    assert path_of(policy)[0].step.text.splitlines()[1] == BODY


LETTERS = "abcdefghijklmnopqrstuvwxy"
PROBE = "\n\n**Final Answer**\n\n\\[ \\boxed{"


def probed(said, *texts):
    """A story that answers the probe after `n` letters of the thought with `said[n]`."""

    def story(so_far):
        before, probe, _ = so_far.partition(PROBE)
        if probe:
            return said[len(before.removeprefix("<think>\n"))] + END
        return telling(*texts)(so_far)

    return story


@pytest.mark.parametrize(
    ("said", "stops"),
    [
        ({5: "3}", 10: "3} is it"}, 10),
        ({5: "3} no", 10: "3}", 15: "3}"}, 15),
        ({5: "3}", 10: "4}", 15: "", 20: "3", 25: "}"}, 25),
        ({5: "4}", 10: "{3}", 15: "{3}}", 20: "Hmm, {3}}", 25: "3 }"}, 25),
    ],
)
def test_a_thought_is_closed_when_the_answers_to_probes_agree(folder, plain, said, stops):
    """In the last two cases they don't, and the budget of 25 tokens closes the thought."""
    whole = f"<think>\n{LETTERS}zz</think>\n\nSo \\boxed{{9}}"
    forced = f"<think>\n{LETTERS[:stops]}{CLOSE}Thus \\boxed{{3}}"
    format = thinking(budget=25, probe_every=5, probes=2, waits=1)
    policy, engine = writing(folder, plain, probed(said, whole, forced), format)
    (sample,) = path_of(policy)
    assert sample.step.text == f"<think>\n{LETTERS[:stops]}\n</think>\n\nThus \\boxed{{3}}"
    tail = (*ids_of("Thus \\boxed{3}"), 1)
    assert sample.step.token_ids == (*ids_of("<think>\n" + LETTERS[:stops]), *closing(), *tail)
    # Probes are charged, and are neither in the path nor in its likelihood.
    asked = [said[at] for at in range(5, min(stops, 20) + 1, 5)]
    assert [request.max_tokens for request in engine.asked if request.max_tokens != 40] == [
        *itertools.chain.from_iterable([5, 20] for _ in asked),
        *([5] if stops == 25 else []),
    ]
    assert sampled_step(sample).confidence == math.exp(-0.5)
    made = policy.generate([dataclasses.replace(ONE, seeds=(1, 2), temperature=1.0)])
    answers = sum(len(ids_of(each)) + 1 for each in asked)
    assert made.sample_usage is not None
    assert [each.generated for each in made.sample_usage[0]] == [stops + answers + len(tail)] * 2
    # As a search continues the path, it finds the same pieces.
    pieces = policy._pieces((sample.step,))
    thought = [ids_of(LETTERS[at : at + 5]) for at in range(0, stops, 5)]
    assert [each.token_ids for each in pieces] == [ids_of("<think>\n"), *thought, closing(), tail]


def dynasor_stops(said, most):
    """The rule of `should_early_exit` and `obtain_answer` in Dynasor's code, for plain answers."""
    answers, certain = [], []
    for text in said:
        opened, answer = 0, ""
        for place, character in enumerate(text):
            if character == "{":
                opened += 1
            elif character == "}" and opened == 0:
                answer = text[:place]
                break
            elif character == "}":
                opened -= 1
        answers.append(answer)
        words = ("wait", "hold", "but", "okay", "no", "hmm")
        certain.append(not any(word in text.lower() for word in words))
    last = answers[-most:]
    return len(answers) >= most and all(last) and len(set(last)) == 1 and all(certain[-most:])


@given(
    st.lists(st.sampled_from(["3}", "4}", "3} x", "3} But", "", "}", "3", "{3}}", "No 3}"])),
    st.integers(1, 3),
)
def test_the_rule_is_dynasor_s(said, most):
    rule = Thinking(budget=9, probe_every=3, probes=most)
    assert rule.is_certain([rule.answer_of(text) for text in said]) == dynasor_stops(said, most)


@pytest.mark.parametrize(
    ("rule", "texts"),
    [
        ({"step_separator": "\n\n"}, ["<think>\none", "two Wait three", "four\n</think>\n\nSo"]),
        (
            {"step_separator": "Wait"},
            ["<think>\none\n\ntwo Wait", "three\n\nfour\n</think>\n\nSo"],
        ),
        (
            {"step_tokens": 9},
            ["<think>\none\n\ntwo Wait", "three\n\nfo", "ur\n</think>\n\nSo"],
        ),
    ],
)
def test_a_thought_is_cut_into_steps(folder, plain, rule, texts):
    told = "<think>\none\n\ntwo Wait three\n\nfour</think>\n\nSo\n\n\\boxed{3}"
    policy, engine = writing(folder, plain, telling(told), thinking(budget=60, **rule))
    samples = path_of(policy)
    assert [each.step.text for each in samples] == [*texts, "\\boxed{3}"]
    assert tuple(t for each in samples for t in each.step.token_ids) == (*ids_of(told), 1)
    request = dataclasses.replace(ONE, path=(samples[0].step,), to_end=True)
    ((rest,),) = policy.generate([request]).samples
    assert rest.step.token_ids == (*ids_of(told)[len(samples[0].step.token_ids) :], 1)
    # Steps of a thought share its budget.
    assert engine.asked[-2].max_tokens == 60 - len(samples[0].step.token_ids) + 2


def test_a_model_that_ends_within_its_thought_gives_no_answer(folder, plain):
    policy, _ = writing(folder, plain, telling("<think>\n\\boxed{5}"), thinking(budget=40))
    (sample,) = path_of(policy)
    assert (sample.finish, sample.step.text) == ("end", "<think>\n\\boxed{5}\n</think>")
    assert BoxedIntegerGrader().extract([sample.step.text]) is None


def test_whole_answers_and_searches(folder, plain):
    format = thinking(budget=40)
    policy, engine = writing(folder, plain, telling(CALM), format)
    for strategy in (search.best_of_n(), search.beam(expansion=2)):
        searcher = Searcher(
            policy=policy, scorer=Halves(), strategy=strategy, num_candidates=2, max_depth=4
        )
        (result,) = searcher.run([QUESTION])
        assert result.answer == "3"
        assert result.ledger.generated >= len(ids_of(CALM)) - 1
    assert any(request.step_end is None for request in engine.asked)  # whole answers


class Halves:
    name, num_parameters, sparsity_total, sparsity_last_layer = "halves", 0, 0.0, 0.0

    def score(self, questions, paths):
        return Scoring([0.5] * len(paths), [TokenUsage()] * len(paths), 0.0)

    def keep_only(self, question, paths):
        pass


def greedy_by_hand(folder, prompt, budget, most):
    """The greedy thought and first step by whole forward passes, and the ids put in."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()

    def grow(ids: Any, limit, stops) -> Any:
        for count in itertools.count(1):
            with torch.inference_mode():
                logits = model(torch.tensor([ids])).logits[0, -1]
            ids = [*ids, int(logits.argmax())]
            if ids[-1] in stops or count == limit:
                return ids

    thought = grow([*prompt, *ids_of("<think>\n")], budget, [token_id("</think>", WORDS), 1])
    if thought[-1] != token_id("</think>", WORDS):
        thought += closing()
    return tuple(grow(thought, most, [1])[len(prompt) :])


def test_transformers_thinks_as_a_plain_loop_does(folder):
    policy = HuggingFaceGenerator(
        folder, format=thinking(budget=12), max_step_tokens=9, max_answer_tokens=9
    )
    prompt = policy._model.prompt_ids(QUESTION)
    ((sample,),) = policy.generate([dataclasses.replace(ONE, to_end=True)]).samples
    assert sample.step.token_ids == greedy_by_hand(folder, prompt, 12, 9)


@pytest.mark.parametrize(
    "more", [{"step_tokens": 3}, {"waits": 1}, {"probe_every": 2, "probes": 1, "probe": "{"}]
)
def test_transformers_keeps_the_contract_of_a_policy(tmp_path_factory, more):
    log_probs = torch.full((280,), -9.0)
    ends = 0.1 if "probes" in more else 0.3
    for word, chance in (("</think>", ends), ("\n\n", ends), ("a", 0.25), ("}", 0.2), (END, 0.1)):
        log_probs[ids_of(word)[0]] = torch.log(torch.tensor(chance))
    path = tmp_path_factory.mktemp("often") / "model"
    tiny_models.save_unigram_model(path, log_probs, tokenizer=tokenizer())
    policy = HuggingFaceGenerator(path, format=thinking(budget=6, **more), max_step_tokens=9)
    check_generator(policy, [QUESTION, Question("r", "2+2=?")])
    request = dataclasses.replace(ONE, seeds=tuple(range(12)), temperature=1.0)
    made = policy.generate([request])
    texts = {each.step.text for each in made.samples[0]}
    assert all(text.startswith("<think>\n") for text in texts)
    if "probes" in more:
        thoughts = [text[len("<think>\n") :].partition("\n</think>")[0] for text in texts]
        assert any(2 <= len(thought) < 6 for thought in thoughts)
    if "waits" in more:
        assert all("</think>" in text for text in texts)
    # With and without its cache a path goes on in the same way.
    step = next(each.step for each in made.samples[0] if each.finish == "step")
    again = dataclasses.replace(request, path=(step,))
    kept = policy.generate([again])
    policy.keep_only(QUESTION, ())
    assert policy.generate([again]).samples == kept.samples


SUMS = {f"{a}+{b}=?": a + b for a in range(1, 5) for b in range(1, 5)}


def taught(text):
    """What the trained model writes for a sum: a thought with a wrong box, then the answer."""
    total = SUMS[text]
    return f"Is it \\boxed{{{total + 1}}}?</think>\n\n{text[:-1]}{total}\n\n\\boxed{{{total}}}{END}"


@pytest.fixture(scope="module")
def thinker(tmp_path_factory):
    """A model that was trained to think in tags before it answers."""
    path = tiny_models.save_model(
        tmp_path_factory.mktemp("thinker") / "model", tokenizer=tokenizer(), vocab_size=280
    )
    prompt_ids = HuggingFaceGenerator(path, format=PLAIN)._model.prompt_ids
    rows, firsts = [], []
    for text in SUMS:
        firsts.append(len(prompt := [*prompt_ids(Question(text, text)), *ids_of("<think>\n")]))
        rows.append([*prompt, *ids_of(taught(text))])
    width = max(map(len, rows))
    ids = torch.tensor([row + [0] * (width - len(row)) for row in rows])
    labels = torch.full_like(ids, -100)
    for row, first, label in zip(rows, firsts, labels, strict=True):
        label[first : len(row)] = torch.tensor(row[first:])
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(300):
        optimizer.zero_grad()
        model(input_ids=ids, labels=labels).loss.backward()
        optimizer.step()
    model.save_pretrained(path)
    return path


@pytest.mark.slow
def test_a_model_trained_to_think_is_searched_by_its_answers(thinker):
    questions = [Question(text, text) for text in SUMS]
    policy = HuggingFaceGenerator(thinker, format=thinking(budget=60), max_step_tokens=40)
    prm = HuggingFaceScorer(prm_path("exact"), WORLD)
    calm = search.Sampling(temperature=0.5)
    strategies = (
        search.greedy(),
        search.majority(sampling=calm),
        search.beam(expansion=2, sampling=calm),
    )
    for strategy in strategies:
        searcher = Searcher(
            policy=policy, scorer=prm, strategy=strategy, num_candidates=4, max_depth=4
        )
        results = searcher.run(questions)
        # The wrong box of each thought is not graded.
        assert [result.answer for result in results] == [str(SUMS[each.text]) for each in questions]
        for result in results:
            assert result.chosen is not None
            chosen = result.paths[result.chosen]
            first = result.candidates[chosen.nodes[0] - 1].text
            assert first.startswith("<think>\n")
            assert "</think>\n\n" in first
            if strategy.name == "greedy":
                told = taught(result.question.text)
                thought, _, steps = told.partition("</think>\n\n")
                assert first == f"<think>\n{thought}{CLOSE}" + steps.split("\n")[0]
                assert result.ledger.generated == len(ids_of(told))
    # At its budget a thought is closed, and the answer follows.
    short = HuggingFaceGenerator(thinker, format=thinking(budget=5), max_step_tokens=40)
    (sample,) = short.generate([dataclasses.replace(ONE, to_end=True)]).samples[0]
    assert sample.step.text.startswith("<think>\nIs it\n</think>\n\n")


def path(*texts):
    return tuple(Step(text, (7,)) for text in texts)


THOUGHT = "<think>\n1+2=4\n\n"


@pytest.mark.parametrize("engine", [False, True])
def test_a_prm_reads_the_answer_s_steps_only(engine):
    prm: Any
    if engine:
        prm = scripted_engine.prm(scripted_engine.ScriptedPrm())
        reading = None
    else:
        prm = HuggingFaceScorer(prm_path("exact"), WORLD)
        reading = HuggingFaceScorer(prm_path("exact"), dataclasses.replace(WORLD, thoughts=True))
    bare = path("1+2=3", "3+1=4")
    full = path(f"{THOUGHT}3</think>\n\n1+2=3", "3+1=4")
    split = path("<think>\n1", f"2</think>\n\n{bare[0].text}", "3+1=4")
    blank = path("<think>\n1+2=4\n</think>")
    question = Question("q", "1+2+1=?")
    paths = [bare, full, full[:1], bare[:1], split[:1], split[:2], split, blank]
    found = prm.score([question] * len(paths), paths)
    whole, first = found.scores[0], found.scores[3]
    assert found.scores == [whole, whole, first, first, 1.0, first, whole, 0.0]
    assert found.usage[4].computed + found.usage[7].computed == 0
    assert prm.count_tokens(question, full) == prm.count_tokens(question, bare)
    prm.keep_only(question, [full])
    check_scorer(prm, [question, question], [bare[:1], full])
    # An error counts the steps as the path was given, with those of its thought.
    late = path("<think>\n1", f"2</think>\n\n{bare[0].text}", " \n", "3+1=4")
    for call in (lambda: prm.score([question], [late]), lambda: prm.count_tokens(question, late)):
        with pytest.raises(ScorerContractError, match="step 2: the step is blank") as caught:
            call()
        assert caught.value.step == 2
    with pytest.raises(PathTooLongError, match="step 2: the path has") as caught:
        prm.count_tokens(question, (*split[:2], Step("3+1=4 " * 900, (7,))))
    assert (caught.value.step, caught.value.question_id) == (2, "q")
    if reading is not None:
        words = path("1", "2", "3")
        assert reading.score([question], [words]).scores == prm.score([question], [words]).scores
        assert reading.score([question], [split[:1]]).usage[0].computed > 0
    else:
        known = [0, 1, 2, 0]
        scored = prm.score_answers([question] * 4, [bare, full, split, blank], known)
        assert scored.scores == [[first, whole], [whole], [whole], [0.0]]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"budget": 0}, "budget=0 must be a number from 1"),
        ({"budget": 5, "end": "</b>"}, "must be one of the pairs <think> </think>"),
        ({"budget": 5, "close": "Stop."}, "close='Stop.' must contain '</think>' once"),
        ({"budget": 5, "waits": 100}, "waits=100 must be a number from 0 to 64"),
        ({"budget": 5, "wait": " "}, "wait=' ' must be a text"),
        ({"budget": 5, "step_separator": "think"}, "step_separator='think' must be a text"),
        ({"budget": 5, "step_tokens": 6}, "step_tokens=6 must be a number from 1 to the budget"),
        ({"budget": 5, "step_tokens": 2, "waits": 1}, "waits=1 needs a thought in one step"),
        ({"budget": 5, "probe_every": 6}, "probe_every=6 must be a number from 1 to the budget"),
        ({"budget": 5, "probe_every": 2, "probes": 0}, "probes=0 must be a number from 1"),
        ({"budget": 5, "probe": "So:"}, "probe='So:' must end with '{'"),
        ({"budget": 5, "probe_every": 2, "step_tokens": 3}, "probe_every=2 needs a thought in one"),
        ({"budget": "5"}, "'5' must be a number"),
        ({"limit": 5}, "key 'limit' is unknown"),
        ({}, "key 'budget' is missing"),
    ],
)
def test_a_wrong_value_is_named(tmp_path, values, message):
    file = tmp_path / "mine.yaml"
    file.write_text(yaml.safe_dump({"thinking": values}))
    with pytest.raises(BadInputError, match="thinking") as error:
        choose_format(str(file), ())
    assert message in str(error.value)
    assert "\n" not in str(error.value)


TEMPLATE = (
    "<s>{{ messages[0]['content'] }}"
    "{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}"
)


def test_the_switch_of_a_chat_template(folder, tmp_path):
    switched = save_model(tmp_path / "switched", TEMPLATE)
    texts = []
    for value in (None, True, False):
        format = dataclasses.replace(PLAIN, enable_thinking=value)
        policy = EngineGenerator(switched, lambda context: None, format=format)
        texts.append(policy._model.decode(policy._model.prompt_ids(QUESTION)))
    assert texts == ["<s>1+2=?", "<s>1+2=?", "<s>1+2=?<think></think>"]
    with pytest.raises(BadInputError, match="has no switch enable_thinking"):
        EngineGenerator(folder, lambda context: None, format=format)
    with pytest.raises(BadInputError, match="thinking and enable_thinking=False exclude"):
        dataclasses.replace(thinking(budget=5), enable_thinking=False)


def test_a_tokenizer_without_the_end_tag_is_refused_as_models_are_checked(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("thinking: {budget: 5}\n")
    with pytest.raises(BadInputError, match=r"'mine': thinking: no token of 'weak' .*/thi"):
        ModelFolders().check(PolicySpec("weak", format=str(file)))


def test_prompts_that_open_or_close_the_thought(tmp_path):
    made = {
        name: save_model(tmp_path / name, "<s>{{ messages[0]['content'] }}" + tail)
        for name, tail in (("opens", "<think>\n"), ("closes", "<think></think>\n"))
    }
    policy = EngineGenerator(made["opens"], lambda c: None, format=thinking(budget=40))
    policy._engine = Writer(policy._model, telling(CALM.removeprefix("<think>\n")))
    first, second = path_of(policy)
    assert first.step.text == f"<think>\n{BODY}\n</think>\n\nSo 1+2=3"
    assert first.step.token_ids + second.step.token_ids == (*ids_of(CALM)[2:], 1)
    with pytest.raises(BadInputError, match="closes the thought before it begins"):
        EngineGenerator(made["closes"], lambda c: None, format=thinking(budget=40))
    # A box in a thought that no format knows of would be an answer.
    with pytest.raises(BadInputError, match=r"prompt opens a thought \(<think>\), whose guesses"):
        EngineGenerator(made["opens"], lambda c: None).check_question(QUESTION)
    with pytest.raises(BadInputError, match="opens a thought"):
        ModelFolders().check(PolicySpec(str(made["opens"])))
    judge = EngineGenerator(made["opens"], lambda c: None)
    judge.may_think = True
    judge.check_question(QUESTION)
    EngineGenerator(made["closes"], lambda c: None).check_question(QUESTION)
    ModelFolders().check(PolicySpec(str(made["closes"])))


def test_the_context_has_room_for_the_thought(folder, tmp_path):
    file = tmp_path / "long.yaml"
    file.write_text("thinking: {budget: 150}\n")
    spec = PolicySpec(str(folder), format=str(file), max_step_tokens=30)
    assert thought_tokens(spec) == 150 + len("<think>\n\n</think>\n\n")
    policy = EngineGenerator(folder, lambda c: None, format=str(file), max_step_tokens=30)
    with pytest.raises(BadInputError, match=r"need 2\d\d tokens, and 'model' has a context of 192"):
        policy.check_question(QUESTION)
    small = tmp_path / "small.yaml"
    small.write_text("thinking: {budget: 20}\n")
    spec = dataclasses.replace(spec, max_answer_tokens=1, backend="vllm", device="cpu")

    def length(format) -> Any:
        resolved, _ = resolve_models(dataclasses.replace(spec, format=format), (), [QUESTION], 2)
        return resolved.max_model_len

    assert length(str(small)) - length("plain") == 20 + len("<think>\n\n</think>\n\n")
