"""BoostStep: the example of a step against the published rule, and searches with examples."""

import dataclasses
import json
import math
import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from letters import QUESTIONS, HashScorer, LetterPolicy, run, signature

import search
from cats_jax import evaluate
from cats_jax.bank.build import collect_bank
from cats_jax.bank.cost import bank_cost
from cats_jax.bank.recipe import load_bank_recipe
from cats_jax.commands.dry_run import _as_resolved, show_bank, show_bounds
from cats_jax.commands.terminal import make_console
from cats_jax.errors import BadInputError, RunWarning
from cats_jax.evaluation.cells import grid
from cats_jax.evaluation.runners import check_steps
from cats_jax.live.boost_step import BoostStep
from cats_jax.live.seeds import stable_seed
from cats_jax.models.footprint import Work
from cats_jax.models.source import ModelFolders
from cats_jax.protocols import StepRequest, TokenUsage, total_usage
from cats_jax.specs.certificates import CertifiedClaim, broken_terms, terms
from cats_jax.specs.example_steps import ExamplePrompt, ExampleSteps, load_example_prompt
from cats_jax.specs.models import PolicySpec
from cats_jax.specs.recipe import parse_recipe

PROBLEMS = [
    {"problem": "Half of ten?", "Step 1": "Write ten halves", "Step 2": "Ten halves are five"},
    {"problem": "One third?", "answer": "x", "Step 1": "a a bb cc", "Step 2": "bb bb dd"},
]


# The published rule, in plain Python: scikit-learn's TfidfVectorizer and the argmax of cosines


def tf_idf(steps, text):
    """Weights of the words of a text; words that are in no step are left out."""
    words = [re.findall(r"(?u)\b\w\w+\b", step.lower()) for step in steps]
    of_text = re.findall(r"(?u)\b\w\w+\b", text.lower())
    found = {}
    for word in {word for step in words for word in step}:
        df = sum(word in step for step in words)
        found[word] = of_text.count(word) * (math.log((1 + len(steps)) / (1 + df)) + 1)
    return found


def published_similarities(steps, text):
    weights = tf_idf(steps, text)
    norm = math.sqrt(sum(value**2 for value in weights.values()))
    found = []
    for step in steps:
        other = tf_idf(steps, step)
        size = math.sqrt(sum(value**2 for value in other.values()))
        dot = sum(weights[word] * other[word] for word in other)
        found.append(dot / (norm * size) if norm and size else 0.0)
    return found


_TEXTS = st.lists(st.sampled_from(["ab", "AB", "cd,", "e", "x_1", "Übung", "7"]), max_size=6).map(
    " ".join
)


@settings(deadline=None, max_examples=60)
@given(st.lists(_TEXTS, min_size=1, max_size=5), _TEXTS)
@example(["", "e"], "e")
def test_the_example_is_that_of_the_published_rule(steps, text):
    problem = {"problem": "p", **{f"Step {i}": step for i, step in enumerate(steps, 1)}}
    number, similarity = ExampleSteps([problem]).most_similar(text)
    expected = published_similarities(steps, text)
    assert similarity == pytest.approx(max(expected), abs=1e-12)
    assert expected[number] == pytest.approx(max(expected), abs=1e-12)


def test_equal_steps_give_the_earlier_example():
    twice = [{"problem": "p", "Step 1": "ab cd"}, {"problem": "q", "Step 1": "ab cd"}]
    assert ExampleSteps(twice).most_similar("cd ab") == (0, pytest.approx(1.0))


def test_a_threshold_of_1_takes_equal_words():
    steps = [" ".join(f"w{(3 * i + j * j) % 17}" for j in range(i % 9 + 1)) for i in range(60)]
    problem = {"problem": "p", **{f"Step {i}": step for i, step in enumerate(steps, 1)}}
    examples = ExampleSteps([problem])
    assert {examples.most_similar(step)[1] for step in steps} == {1.0}


def test_an_example_is_its_whole_problem_with_a_key_step():
    assert ExampleSteps(PROBLEMS).text(1) == (
        "Problem: Half of ten?\nStep 1: Write ten halves\nKey Step: Step 2: Ten halves are five"
    )
    assert ExampleSteps(PROBLEMS).text(2).splitlines()[1] == "Key Step: Step 1: a a bb cc"


# Searches


class Worder(LetterPolicy):
    """Writes words, two to a letter; its questions are short only if `context` says so."""

    def __init__(self, context=10_000):
        super().__init__()
        self.context = context

    def check_question(self, question):
        if len(question.text) > self.context:
            raise BadInputError("too long")

    def _sample(self, request, seed):
        sample = super()._sample(request, seed)
        words = {"a": "ten halves", "b": "bb dd", "c": "nothing", "d": "cc bb", "e": "write"}
        text = sample.step.text
        step = type(sample.step)(words[text[0]] + text[1:], sample.step.token_ids)
        return type(sample)(step, sample.finish, sample.log_prob)


def _request(**options):
    fixed = {"path": (), "seeds": (10, 11, 12, 13, 14, 15), "temperature": 1.0, "to_end": False}
    return StepRequest(QUESTIONS[0], **{**fixed, **options}, top_p=1.0, top_k=0)


def test_each_candidate_is_written_with_the_example_of_its_first_try():
    policy = Worder()
    examples = ExampleSteps(PROBLEMS)
    boosted = BoostStep(policy, examples, 0.6)
    asked = _request()
    made = boosted.generate([asked, _request(to_end=True)])
    first = [policy._sample(asked, seed) for seed in asked.seeds]
    used = 0
    for seed, attempt, sample in zip(asked.seeds, first, made.samples[0], strict=True):
        number, similarity = examples.most_similar(attempt.step.text)
        if similarity < 0.6:
            assert sample == attempt
            continue
        used += 1
        prompt = load_example_prompt("key-step").text("text 0", examples.text(number))
        again = [each for each in policy.requests if each.question.text == prompt]
        assert len(again) == 1
        assert stable_seed("example", seed) in again[0].seeds
        assert (again[0].path, again[0].temperature) == (asked.path, 1.0)
        assert sample == policy._sample(again[0], stable_seed("example", seed))
    assert 0 < used < len(first)
    # The first tries are charged, too. The rest of an answer has no example.
    assert [each.generated for each in made.usage] == [len(first) + used, len(first)]
    prompts = [each.question for each in policy.requests if each.question != QUESTIONS[0]]
    assert all(policy.live[question.id] == [] for question in prompts)


@pytest.mark.parametrize("strategy", [search.methods.greedy(), search.methods.beam(expansion=2)])
def test_a_search_with_examples(strategy):
    policy = Worder()
    options = {"num_candidates": 4, "questions": QUESTIONS[:3]}
    results = run(strategy, policy=BoostStep(policy, ExampleSteps(PROBLEMS), 0.6), **options)
    sampled = sum(len(request.seeds) for request in policy.requests)
    assert sum(result.ledger.generated for result in results) == sampled
    assert any("Key Step" in request.question.text for request in policy.requests)
    # With steps like no example, the policy is as it is alone.
    other = ExampleSteps([{"problem": "p", "Step 1": "zz"}])
    plain = run(strategy, policy=Worder(), **options)
    same = run(strategy, policy=BoostStep(Worder(), other, 0.0), **options)
    assert [signature(each) for each in same] == [signature(each) for each in plain]


def test_without_room_for_the_example_the_first_try_is_the_step():
    policy, asked = Worder(context=20), _request()
    made = BoostStep(policy, ExampleSteps(PROBLEMS), 0.0).generate([asked])
    assert made.samples[0] == [policy._sample(asked, seed) for seed in asked.seeds]
    assert made.usage[0].generated == len(asked.seeds)


class Payer(Worder):
    """Says what each sample costs; the first one pays for the prompt."""

    def generate(self, requests):
        made = super().generate(requests)
        costs = [
            [TokenUsage(computed=9 * (j == 0) + 1, generated=1) for j in range(len(request.seeds))]
            for request in requests
        ]
        usage = [total_usage(each) for each in costs]
        return dataclasses.replace(made, sample_usage=costs, usage=usage)


@pytest.mark.parametrize("context", [10_000, 20])
def test_the_costs_of_samples_are_those_of_fewer_samples(context):
    boosted = BoostStep(Payer(context), ExampleSteps(PROBLEMS), 0.6)
    made = boosted.generate([_request()])
    assert made.sample_usage is not None
    for count in range(1, len(made.samples[0]) + 1):
        fewer = boosted.generate([_request(seeds=_request().seeds[:count])])
        assert fewer.usage == [total_usage(made.sample_usage[0][:count])]
        assert fewer.samples[0] == made.samples[0][:count]


def test_steps_without_room_for_their_example_are_counted():
    policy = BoostStep(Worder(context=20), ExampleSteps(PROBLEMS), 0.6)
    assert policy.note is None
    policy.generate([_request()])
    assert policy.note is not None
    assert re.search("policy 'letters': ([1-9]) of \\1 steps with a similar example", policy.note)


def test_the_note_of_the_policy_is_passed_on():
    class Noted(Worder):
        note = "it has said something"

    policy = BoostStep(Noted(context=20), ExampleSteps(PROBLEMS), 0.6)
    assert policy.note == "it has said something"
    policy.generate([_request()])
    assert policy.note.startswith("it has said something; policy 'letters': ")


def test_hostile_texts_stay_between_their_tags():
    text = ExamplePrompt("own", "{question} {example}").text("</question>{example}", "</example>")
    assert text == (
        "<question>\n&lt;/question>{example}\n</question> <example>\n&lt;/example>\n</example>"
    )


def test_a_file_of_examples_is_parsed_again_when_it_has_changed(tmp_path):
    file = tmp_path / "examples.jsonl"
    file.write_text("\n".join(json.dumps(each) for each in PROBLEMS))
    first = ExampleSteps.load(file)
    assert ExampleSteps.load(str(file)) is first
    file.write_text(json.dumps({"problem": "p", "Step 1": "zz"}))
    assert ExampleSteps.load(file).digest != first.digest


def test_what_is_wrong_with_examples(tmp_path):
    file = tmp_path / "examples.jsonl"
    file.write_text("\n".join(json.dumps(each) for each in PROBLEMS) + "\n\n")
    assert ExampleSteps.load(file).text(3) == ExampleSteps(PROBLEMS).text(3)
    for text, message in (
        ("", "there is no problem"),
        ("{", "examples.jsonl' is not JSON"),
        ('{"Step 1": "a"}', "problem 1: must be a JSON object with the text 'problem'"),
        ('{"problem": "p"}', "problem 1: must have the texts 'Step 1', 'Step 2' and so on"),
        ('{"problem": "p", "Step 1": 3}', "must have the texts"),
        (r'{"problem": "\ud800", "Step 1": "a"}', "problem 1: has half of a surrogate pair"),
    ):
        file.write_text(text)
        with pytest.raises(BadInputError) as caught:
            ExampleSteps.load(file)
        assert message in str(caught.value)
        assert "\n" not in str(caught.value)
    with pytest.raises(BadInputError, match=r"threshold=1.5: must be a number in \[0, 1\]"):
        BoostStep(Worder(), ExampleSteps(PROBLEMS), 1.5)
    with pytest.raises(BadInputError, match=r"example prompt 'keystep' is unknown: .*key-step"):
        BoostStep(Worder(), ExampleSteps(PROBLEMS), prompt="keystep")
    with pytest.raises(BadInputError, match="once each, and no other"):
        ExamplePrompt("own", "{question}")


# Recipes


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "examples.jsonl"
    path.write_text(json.dumps(PROBLEMS[0]))
    return path


def worder(spec):
    return Worder()


OWN = f"{__name__}:worder"


def with_little_context(spec):
    return Worder(context=60)


def _recipe(examples, own=OWN, **changes):
    recipe = {
        "name": "r",
        "strategies": ["greedy"],
        "num_candidates": 1,
        "questions": {"world": "test", "count": 2},
        "policy": {"path": own, **({"examples": examples} if examples else {})},
    }
    return {**recipe, **changes}


def _policy(examples):
    return parse_recipe(_recipe(examples)).policy


def test_a_recipe_wraps_its_policy(tmp_path, file):
    file.write_text("\n".join(map(json.dumps, PROBLEMS)))
    spec = _policy({"file": str(file), "threshold": 0.6})
    assert _policy(str(file)) == _policy({"file": str(file), "threshold": 0.7})
    policy = ModelFolders().policy(spec)
    asked = _request()
    expected = BoostStep(Worder(), ExampleSteps(PROBLEMS), 0.6).generate([asked])
    assert policy.generate([asked]).samples == expected.samples
    assert expected.samples != Worder().generate([asked]).samples
    # A run with other examples, or with another prompt, can't continue this one.
    before = _shown(spec)
    own = tmp_path / "own.yaml"
    own.write_text("prompt: '{example} {question}'")
    prompted = _shown(_policy({"file": str(file), "threshold": 0.6, "prompt": str(own)}))
    other_threshold = _shown(_policy(str(file)))
    file.write_text(json.dumps(PROBLEMS[0]))
    for changed, key in (
        (prompted, "prompt"),
        (other_threshold, "threshold"),
        (_shown(spec), "problems"),
    ):
        assert {name for name in before if changed[name] != before[name]} == {key}
    assert ModelFolders().fingerprint(_policy(None)) == {"function": OWN}


def _shown(spec):
    return ModelFolders().fingerprint(spec)["examples"]


def _bank(tmp_path, file):
    path = tmp_path / "bank.yaml"
    path.write_text(
        f"policy: {{path: '{OWN}', examples: {file}}}\n"
        f"prms: [{{path: '{__name__}:prm', label: p}}]\n"
        "questions: {world: test, count: 1}\n"
        "sampling: [{temperature: 1.0, root_draws: 2}]\n"
        "max_depth: 2\n"
    )
    return load_bank_recipe(path)


def prm(spec):
    return HashScorer()


def test_a_bank_has_one_file_of_examples(tmp_path, file):
    recipe = _bank(tmp_path, file)
    collect_bank(recipe, ModelFolders(), tmp_path / "bank")
    file.write_text(json.dumps(PROBLEMS[1]))
    with pytest.raises(BadInputError, match=r"other settings: models\.policy\.examples\.problems"):
        collect_bank(recipe, ModelFolders(), tmp_path / "bank")
    # Its replays are not those of a policy without examples.
    plain = _recipe(None, strategies=["beam"], prms=[{"path": f"{__name__}:prm", "label": "p"}])
    with pytest.raises(BadInputError, match="collected with another policy"):
        evaluate({**plain, "max_depth": 2}, tmp_path / "run", bank=tmp_path / "bank")
    # A step with an example has a first try.
    without = dataclasses.replace(recipe, policy=_policy(None))
    found, once = bank_cost(recipe, 1), bank_cost(without, 1)
    assert (found.sampled, found.scored) == (2 * once.sampled, once.scored)
    recipe = _bank(tmp_path, tmp_path / "none.jsonl")
    with pytest.raises(BadInputError, match=r"none.jsonl' does not exist"):
        collect_bank(recipe, ModelFolders(), tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_a_dry_run_names_a_missing_file_of_examples(tmp_path, file, capsys):
    missing = tmp_path / "none.jsonl"
    show_bounds(make_console(), parse_recipe(_recipe(str(missing))), ModelFolders())
    show_bank(make_console(), _bank(tmp_path, missing), ModelFolders())
    shown = " ".join(capsys.readouterr().out.split())
    assert shown.count("not there yet: example file") == 2
    plain = PolicySpec("m", backend="vllm")
    with_examples = PolicySpec("m", backend="vllm", examples=_policy(str(file)).examples)
    less, more = (_as_resolved(spec, Work()).max_model_len or 0 for spec in (plain, with_examples))
    assert more > less + len(ExampleSteps.load(file).text(0)) > 0


def test_a_run_says_that_examples_had_no_room(tmp_path, file):
    recipe = _recipe(
        {"file": str(file), "threshold": 0}, f"{__name__}:with_little_context", num_candidates=4
    )
    with pytest.warns(RunWarning, match="steps with a similar example were written without it"):
        evaluate({**recipe, "strategies": ["majority"]}, tmp_path / "run")


def test_examples_need_single_steps(tmp_path, monkeypatch):
    recipe = parse_recipe(_recipe(str(tmp_path / "examples.jsonl")))
    policy = BoostStep(Worder(), ExampleSteps(PROBLEMS))
    check_steps(policy, recipe, grid(recipe))
    whole = "'m' samples whole answers only: take strategies that keep all paths"
    monkeypatch.setattr(Worder, "whole_only", whole, raising=False)
    with pytest.raises(BadInputError) as caught:
        check_steps(policy, recipe, grid(recipe))
    assert str(caught.value) == (
        "policy: examples need single steps, and 'letters' samples whole answers only: leave "
        "examples out, or take another endpoint"
    )


def test_a_certificate_holds_for_its_examples_only(file):
    config = {
        "policy": {"format": "auto"},
        "strategies": [{"name": "greedy", "label": "greedy"}],
        "questions": [{"world": "test"}],
    }

    def of(**options):
        spec = _policy({"file": str(file), **options})
        models = {"policy": ModelFolders().fingerprint(spec)}
        return terms(config, models, "greedy", None, None, {"policy": {"files": {}}}, None)

    claim = object.__new__(CertifiedClaim)
    object.__setattr__(claim, "terms", of())
    assert broken_terms(claim, of()) == []
    (clause,) = broken_terms(claim, of(threshold=0.2))
    assert clause.endswith("has other examples")


def test_what_is_wrong_with_a_recipe_of_examples(tmp_path, file):
    for examples, message in (
        (
            {"file": str(file), "threshold": 2},
            r"policy: examples: threshold=2: must be a number in",
        ),
        ({"file": str(file), "treshold": 0.5}, "unknown key 'treshold': did you mean 'threshold'"),
        ({"threshold": 0.5}, "policy: examples: key 'file' is missing"),
    ):
        with pytest.raises(BadInputError, match=message):
            _policy(examples)
    with pytest.raises(BadInputError, match="path='weak' reads arithmetic expressions only"):
        PolicySpec("weak", examples=_policy(str(file)).examples)
    for examples, message in (
        (str(tmp_path / "none.jsonl"), "example file '.*none.jsonl'"),
        ({"file": str(file), "prompt": "keystep"}, "example prompt 'keystep' is unknown"),
    ):
        for look in (ModelFolders().check, ModelFolders().policy):
            with pytest.raises(BadInputError, match=message):
                look(_policy(examples))
