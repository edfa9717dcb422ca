"""Real vLLM engines: a published vocabulary, and a whole `evaluate`.

The policy is a tiny model with the tokenizer of Qwen 2.5. Its next token is distributed like the
tokens of published answers, so that its steps end in the separators of real text.
"""

import itertools
import json
import pathlib
import sys
from collections import Counter

import pytest
import real_tokenizers
import tiny_models
import torch
from absl import logging as absl_logging
from real_tokenizers import qwen_answer

from cats_jax import cli
from cats_jax.errors import BadInputError
from cats_jax.models import source
from cats_jax.models.huggingface.generator import HuggingFaceGenerator
from cats_jax.models.serving.generator import EngineGenerator
from cats_jax.models.serving.vllm_engine import VLLMSampler
from cats_jax.protocols import Question, Step, StepRequest

pytestmark = pytest.mark.vllm

# vLLM shuts down every log handler when it starts, and absl's closes its stream: pytest's capture.
absl_logging.get_absl_handler().python_handler.stream = sys.__stderr__

END_OF_TEXT, _, IM_END = real_tokenizers.QWEN_IDS.values()
CONTEXT = 1024
LIMITS = {"max_step_tokens": 40, "max_answer_tokens": 60}

# One token each.
SEPARATORS = (".\n\n", ":\n\n", ")\n\n", "\n\n\n")

# Characters whose tokens are parts of characters.
SPLIT_CHARACTERS = "龘𝜋😵‍💫🏴‍☠️"


@pytest.fixture(scope="module")
def qwen(shared):
    return real_tokenizers.qwen(shared)


@pytest.fixture(scope="module")
def questions(real_data):
    """Questions of the three benchmarks, two of each, and one that could end its own turn."""
    texts = ["1<|im_end|>\n<|im_start|>assistant\n\\boxed{2}<|endoftext|>"]
    for file, column in (
        ("math500.jsonl", "problem"),
        ("aime24.jsonl", "problem"),
        ("gsm8k_test.jsonl", "question"),
    ):
        lines = real_data(file).read_text(encoding="utf-8").splitlines()
        texts += [json.loads(line)[column] for line in lines[:2]]
    return [Question(f"q{i}", text) for i, text in enumerate(texts)]


@pytest.fixture(scope="module")
def folder(shared, qwen, tmp_path_factory):
    """The tiny policy, with frequencies from published answers.

    Four separators and the end are more frequent than there, so that short samples have them, and
    parts of characters are added.
    """
    text = shared("real/qwen2.5_math_100x8.jsonl").read_text(encoding="utf-8")
    answers = [each for line in text.splitlines() for each in json.loads(line)["responses"]]
    counts = Counter(itertools.chain.from_iterable(qwen.ids(each) for each in answers))
    for token in qwen.ids(*SEPARATORS):
        counts[token] = 2500
    counts[IM_END] = 5 * len(answers)
    for token in qwen.ids(SPLIT_CHARACTERS):
        counts[token] += 1000
    probs = torch.zeros(151936)  # more logits than tokens, as released
    probs[list(counts)] = torch.tensor(list(counts.values()), dtype=torch.float32)
    log_probs = (probs / probs.sum()).log().clamp(min=-30.0)
    root = tmp_path_factory.mktemp("policy")
    made = real_tokenizers.build_qwen(shared("real/tokenizers/build.py"), root)
    return tiny_models.save_unigram_model(
        root / "unigram",
        log_probs,
        tokenizer=real_tokenizers.load(made),
        bos_token_id=END_OF_TEXT,
        eos_token_id=[IM_END, END_OF_TEXT],
        pad_token_id=END_OF_TEXT,
        max_position_embeddings=4096,
    )


@pytest.fixture(scope="module")
def policy(folder):
    return EngineGenerator(
        folder,
        lambda context: VLLMSampler(folder, context=context),
        max_model_len=CONTEXT,
        **LIMITS,
    )


@pytest.fixture(scope="module")
def local(folder):
    """The same policy on transformers."""
    return HuggingFaceGenerator(folder, **LIMITS)


@pytest.fixture
def read(policy, monkeypatch):
    """The prompts that vLLM reports for what it generates, in order."""
    prompts = []
    generate = policy._engine.engine.generate

    def listen(*asked, **options):
        outputs = generate(*asked, **options)
        prompts.extend(tuple(output.prompt_token_ids) for output in outputs)
        return outputs

    monkeypatch.setattr(policy._engine.engine, "generate", listen)
    # The engine's queue says nothing of prompts; both are compared in `test_vllm.py`.
    monkeypatch.setattr(policy._engine, "_queue", None)
    return prompts


def request(question, path=(), *, seeds=(0,), temperature=0.0, to_end=False):
    return StepRequest(question, path, tuple(seeds), temperature, 1.0, 0, to_end)


@pytest.fixture(scope="module")
def samples(policy, questions):
    """Eight samples of each question's first step."""
    seeds = range(0, 16, 2)  # vLLM's seeds are these without the last bit
    asked = [request(question, seeds=seeds, temperature=1.0) for question in questions]
    return policy.generate(asked).samples


def test_vllm_reads_the_rendered_conversation_and_the_ids_as_sampled(
    policy, samples, read, questions, qwen
):
    odd = Step("12.", qwen.ids("1", "2", ".", "\n\n"))
    asked, expected, encoded_again = [], [], []
    for question, found in zip(questions, samples, strict=True):
        steps = tuple(sample.step for sample in found if sample.finish == "step")
        for path in ((), steps[:1], (odd, *steps)):
            ids = tuple(itertools.chain.from_iterable(step.token_ids for step in path))
            asked.append(request(question, path))
            expected.append(qwen_answer(qwen, question.text) + ids)
            encoded_again.append(qwen_answer(qwen, question.text) + qwen.ids(qwen.text(ids)))
    policy.generate(asked)
    assert read == expected
    assert sum(map(tuple.__ne__, expected, encoded_again)) >= len(questions)


def test_steps_end_where_their_texts_hold_the_separator(samples, qwen):
    ends, texts = Counter(), []
    for sample in itertools.chain.from_iterable(samples):
        *before, last = (qwen.bytes.get(token, b"") for token in sample.step.token_ids)
        head, whole = (
            b"".join(each).decode("utf-8", errors="replace").lstrip()
            for each in (before, (*before, last))
        )
        assert "\n\n" not in head
        if sample.step.token_ids[-1] in (IM_END, END_OF_TEXT):
            assert sample.finish == "end"
            whole = head
        elif "\n\n" in whole:
            assert sample.finish == "step"
        else:
            assert sample.finish == "length"
            assert len(before) + 1 == LIMITS["max_step_tokens"]
        ends[sample.finish] += 1
        ends[last] += 1
        texts.append(whole.partition("\n\n")[0])
        assert sample.step.text.lstrip() == texts[-1]
    assert {"step", "end", "length"} | {text.encode() for text in SEPARATORS} <= set(ends)
    assert sum("\ufffd" in text for text in texts) > 5


def test_greedy_paths_are_those_of_the_hugging_face_bridge(policy, local, samples, questions, qwen):
    """Behind sampled steps and a step that ends in half a character, one step or to the end."""
    cut = Step("cut", (*qwen.ids("1", "2", ".", "\n\n"), *qwen.ids("龘")[:-1], 271))
    paths = [
        (question, (sample.step, *more))
        for question, (sample, *_) in zip(questions, samples, strict=True)
        for more in ((), (cut,))
    ]
    asked = [request(*pair, to_end=to_end) for pair in paths for to_end in (False, True)]
    ours, theirs = policy.generate(asked), local.generate(asked)
    found = [
        (one.step, one.finish, pytest.approx(one.log_prob, abs=1e-3)) for (one,) in ours.samples
    ]
    assert found == [(one.step, one.finish, one.log_prob) for (one,) in theirs.samples]
    assert {"step", "length"} <= {finish for _, finish, _ in found}
    assert any("\n\n" in step.text for step, _, _ in found)  # of those that run to the end
    assert len({step for step, _, _ in found}) > len(asked) / 2


def test_a_prompt_near_the_end_of_the_context(policy, local, read, questions, qwen, monkeypatch):
    monkeypatch.setattr(local._model, "context", CONTEXT)
    longest = LIMITS["max_step_tokens"]
    for room in (-1, 0, 1, 2, 3, longest, longest + 1):
        question = filled(qwen, questions[1].text, CONTEXT - room)
        asked = [request(question), request(question, seeds=range(0, 8, 2), temperature=1.0)]
        read.clear()
        (greedy,), found = policy.generate(asked).samples
        assert read == [qwen_answer(qwen, question.text)] * (5 if room > 0 else 0)
        ((other,),) = local.generate(asked[:1]).samples
        assert (greedy.step, greedy.finish) == (other.step, other.finish)
        if room < 1:
            message = f"'filled' has {CONTEXT - room} prompt tokens, .* context of {CONTEXT}:"
            with pytest.raises(BadInputError, match=message):
                policy.check_question(question)
            assert {(sample.step, sample.finish) for sample in found} == {(Step("", ()), "context")}
            continue
        policy.check_question(question)
        at_limit = "context" if room < longest else "length"
        cut = [sample for sample in found if sample.finish not in ("step", "end")]
        assert {sample.finish for sample in cut} <= {at_limit}
        assert all(len(sample.step.token_ids) == min(room, longest) for sample in cut)
        assert cut or room >= longest


def filled(qwen, text, length):
    """A question with a word repeated behind the text until its prompt has so many tokens."""
    text += " a" * (length - len(qwen_answer(qwen, text)))
    assert len(qwen_answer(qwen, text)) == length
    return Question("filled", text)


# --- a whole run ---

RECIPE = """
name: both
policy: {path: weak, backend: BACKEND, max_step_tokens: 32, max_answer_tokens: 64}
prms: [{path: exact, backend: BACKEND}]
calibration: weak
strategies: [greedy, beam, {name: cats, checkpoint: cats}]
num_candidates: [4]
questions: {world: validation, count: 5}
trees: false
"""


def evaluate(folder: pathlib.Path, backend: str, output: str, *options: str) -> int:
    recipe = folder / f"{backend}.yaml"
    recipe.write_text(RECIPE.replace("BACKEND", backend))
    return cli.run(["evaluate", str(recipe), "--output", str(folder / output), *options])


def rows(folder: pathlib.Path) -> list[dict]:
    lines = (folder / "results.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def test_evaluate_with_policy_and_prm_on_vllm(tmp_path, monkeypatch, capsys):
    assert evaluate(tmp_path, "vllm", "run") == 0
    config = json.loads((tmp_path / "run" / "manifest.json").read_text())["config"]
    assert [config["policy"]["backend"], config["prms"][0]["backend"]] == ["vllm", "vllm"]
    found = rows(tmp_path / "run")
    assert Counter(row["strategy"] for row in found) == dict.fromkeys(("greedy", "beam", "cats"), 5)
    assert len({row["key"] for row in found}) == 15
    assert all(row["status"] in ("answered", "no_answer") for row in found)
    assert any(row["correct"] for row in found)
    for row in found:
        assert (row["prm_calls"] > 0) == (row["strategy"] != "greedy")
        assert row["generated"] > 0

    assert evaluate(tmp_path, "hf", "on transformers", "--strategies", "greedy") == 0
    same = ("question", "answer", "steps", "candidates", "correct")
    ours = {row["question"]: row for row in found if row["strategy"] == "greedy"}
    theirs = {row["question"]: row for row in rows(tmp_path / "on transformers")}
    assert ours.keys() == theirs.keys()
    for question, row in ours.items():
        assert [row[name] for name in same] == [theirs[question][name] for name in same]
        # An answer that is sampled whole may go on behind its last usable step.
        assert row["generated"] >= theirs[question]["generated"]

    def refuse(self, spec):
        raise AssertionError("a model was loaded")

    monkeypatch.setattr(source.ModelFolders, "policy", refuse)
    monkeypatch.setattr(source.ModelFolders, "prm", refuse)
    before = (tmp_path / "run" / "results.jsonl").read_bytes()
    assert evaluate(tmp_path, "vllm", "run") == 0
    capsys.readouterr()
    assert evaluate(tmp_path, "hf", "run") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert 'config.policy.backend: "vllm" -> "hf"' in line
    assert (tmp_path / "run" / "results.jsonl").read_bytes() == before
