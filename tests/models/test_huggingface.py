"""The Hugging Face bridge against literal, slow references, and its bitwise invariances."""

import random
import shutil

import numpy as np
import pytest
import tiny_models
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from cats_jax.errors import BadInputError, RunStoppedError, ScorerContractError
from cats_jax.models.contracts import check_generator, check_scorer
from cats_jax.models.huggingface import (
    HuggingFaceGenerator,
    HuggingFaceScorer,
    sampling,
    token_budget,
)
from cats_jax.models.prm.format import WORLD
from cats_jax.protocols import Question, Step, StepRequest, TokenUsage
from cats_jax.world import tokenizer as world

# Prompts of different padded widths: 9, 21 and 46 tokens.
QUESTIONS = [
    Question("short", "1+2*3=?"),
    Question("middle", "((50*4)-21)+15*2=?"),
    Question("long", "((((50*4)-21)+15)*7-3)+((12+13)*(14-15))%16=?"),
    Question("other", "7+8=?"),
]
MAX_STEP, MAX_ANSWER = 20, 45


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_models.save_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="module")
def model(folder):
    """The transformers model by itself, for the references."""
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def make_generator(folder, **changes):
    settings = {"max_step_tokens": MAX_STEP, "max_answer_tokens": MAX_ANSWER, **changes}
    return HuggingFaceGenerator(folder, **settings)


@pytest.fixture(scope="module")
def generator(folder):
    return make_generator(folder)


@pytest.fixture(scope="module")
def scorer(folder):
    return HuggingFaceScorer(folder, WORLD)


def request(question, path=(), seeds=(0,), temperature=1.0, top_p=1.0, top_k=0, to_end=False):
    return StepRequest(question, path, tuple(seeds), temperature, top_p, top_k, to_end)


def fresh(generator):
    for question in QUESTIONS:
        generator.keep_only(question, [])
    return generator


def step(text, closing=world.SEPARATOR_ID):
    return Step(text, (*world.encode(text), closing))


def random_paths(seed, count, max_steps=4):
    """Questions and paths of plausible steps; many share prefixes."""
    rng = random.Random(seed)
    pool = ["50*4=200", "200-21=179", "\\boxed{7}", "1", "12+13=25"]
    questions = [rng.choice(QUESTIONS) for _ in range(count)]
    return questions, [
        tuple(step(rng.choice(pool)) for _ in range(rng.randint(1, max_steps)))
        for _ in range(count)
    ]


# --- the policy ---


@torch.inference_mode()
def reference_sample(model, request, seed, limit):
    """One sample by a full forward pass per token: no cache, no batch, no padding."""
    ids = world.prompt_ids(request.question.text)
    for past in request.path:
        ids += past.token_ids
    tokens, log_prob, margin = [], 0.0, np.inf
    while True:
        logits = model(torch.tensor([ids + tokens])).logits[0, -1].double()
        log_probs = logits.log_softmax(-1)
        if request.temperature == 0:
            token = int(log_probs.argmax())
            top = log_probs.sort(descending=True).values
            margin = min(margin, float(top[0] - top[1]))
        else:
            one = torch.ones(1, dtype=torch.float64)
            weights = sampling.filtered_weights(
                log_probs[None],
                one * request.temperature,
                one * request.top_p,
                torch.tensor([request.top_k]),
                truncated=True,
            )[0]
            bits = torch.from_numpy(np.array([seed], np.uint64).view(np.int64))
            u = float(sampling.uniforms(bits, len(tokens)))
            cumulative = (weights / weights.sum()).cumsum(0)
            token = int((cumulative <= u).sum())
            margin = min(margin, float((cumulative - u).abs().min()))
        tokens.append(token)
        log_prob += float(log_probs[token])
        if token == world.EOS_ID:
            return tokens, "end", log_prob, margin
        blank = set(tokens) == {world.SEPARATOR_ID}
        if token == world.SEPARATOR_ID and not request.to_end and not blank:
            return tokens, "step", log_prob, margin
        if len(tokens) == limit:
            return tokens, "length", log_prob, margin


REQUESTS = [
    request(QUESTIONS[0], seeds=(1, 2, 3)),
    request(QUESTIONS[1], seeds=(1, 1 << 63), temperature=0.6, top_p=0.9),
    request(QUESTIONS[2], seeds=(4, 5), temperature=1.4, top_k=5),
    request(QUESTIONS[1], (step("50*4=200"), step("200-21=179")), seeds=(6, 7), top_p=0.8),
    request(QUESTIONS[0], seeds=(8,), temperature=0.0),
    request(QUESTIONS[2], (step("1+1=2"),), seeds=(9,), temperature=0.0),
    request(QUESTIONS[2], seeds=(10, 11), to_end=True),
]


def test_samples_equal_a_full_forward_pass_per_token(generator, model):
    answer = fresh(generator).generate(REQUESTS)
    compared = 0
    for wanted, samples in zip(REQUESTS, answer.samples, strict=True):
        limit = MAX_ANSWER if wanted.to_end else MAX_STEP
        for seed, sample in zip(wanted.seeds, samples, strict=True):
            tokens, finish, log_prob, margin = reference_sample(model, wanted, seed, limit)
            if margin < 1e-5:
                continue  # the two computations may round to different sides
            compared += 1
            assert list(sample.step.token_ids) == tokens
            assert sample.finish == finish
            assert sample.log_prob == pytest.approx(log_prob, abs=1e-4)
    assert compared >= 10


def test_the_generator_keeps_its_contract(generator):
    check_generator(generator, QUESTIONS)


@pytest.mark.parametrize("seed", range(2))
def test_a_sample_is_a_function_of_path_parameters_and_seed(folder, generator, seed):
    """Bitwise: any subset of the requests, any order, any micro-batch, any cache state."""
    rng = random.Random(seed)
    questions, paths = random_paths(seed, 8)
    requests = [
        request(
            question,
            path if rng.random() < 0.7 else (),
            [rng.getrandbits(64) for _ in range(rng.choice([1, 2, 12]))],
            temperature=rng.choice([0.5, 1.0, 1.3]),
            top_p=rng.choice([1.0, 0.9]),
            top_k=rng.choice([0, 6]),
            to_end=rng.random() < 0.2,
        )
        for question, path in zip(questions, paths, strict=True)
    ]
    reference = fresh(generator).generate(requests).samples
    for batch_tokens in (1, 600):
        small = make_generator(folder, batch_tokens=batch_tokens)
        order = list(range(len(requests)))
        rng.shuffle(order)
        while order:
            part, order = order[: rng.randint(1, 5)], order[5:]
            got = small.generate([requests[i] for i in part]).samples
            assert got == [reference[i] for i in part]
            if rng.random() < 0.5:
                some = requests[part[0]]
                small.keep_only(some.question, [some.path[:1]] if some.path else [])


def test_one_seed_alone_equals_many_together(generator):
    together = fresh(generator).generate([request(QUESTIONS[1], seeds=range(300))]).samples[0]
    for i in (0, 1, 17, 299):
        fresh(generator)
        assert generator.generate([request(QUESTIONS[1], seeds=(i,))]).samples == [[together[i]]]


def test_a_cached_step_equals_a_replayed_one_bit_for_bit(generator):
    root = request(QUESTIONS[1], seeds=range(40))
    steps = [s.step for s in fresh(generator).generate([root]).samples[0] if s.finish == "step"]
    followers = [request(QUESTIONS[1], (s,), (1, 2)) for s in steps]
    cached = generator.generate(followers)
    assert all(u.computed <= u.generated for u in cached.usage)
    replayed = fresh(generator).generate(followers)
    assert sum(u.computed for u in replayed.usage) > sum(u.computed for u in cached.usage)
    assert replayed.samples == cached.samples


def test_usage_adds_up(generator):
    prompt = len(world.prompt_ids(QUESTIONS[1].text))
    answer = fresh(generator).generate(
        [request(QUESTIONS[1], seeds=range(20)), request(QUESTIONS[1], seeds=range(20))]
    )
    first, second = answer.usage
    # Every sampled token is one fed token, the last prompt token being the first of them.
    for usage in (first, second):
        assert usage.computed + usage.cached == prompt - 1 + usage.generated
    # Two equal requests share every row.
    histories = {
        sample.step.token_ids[:length]
        for sample in answer.samples[0]
        for length in range(len(sample.step.token_ids))
    }
    assert first.computed + second.computed == prompt - 1 + len(histories)


def test_greedy_samples_are_one_row(generator):
    answer = fresh(generator).generate([request(QUESTIONS[0], seeds=range(9), temperature=0.0)])
    assert len(set(answer.samples[0])) == 1
    prompt = len(world.prompt_ids(QUESTIONS[0].text))
    assert answer.usage[0].computed == prompt - 1 + len(answer.samples[0][0].step.token_ids)


def test_finish_reasons_and_texts(generator):
    answer = fresh(generator).generate([request(QUESTIONS[0], seeds=range(200))])
    finishes = {"step": 0, "end": 0, "length": 0}
    skipped = 0
    for sample in answer.samples[0]:
        ids = sample.step.token_ids
        finishes[sample.finish] += 1
        # White space alone is no step: separators before any text are skipped.
        begin = next(k for k, token in enumerate(ids) if token != world.SEPARATOR_ID)
        assert not set(ids[begin:-1]) & {world.SEPARATOR_ID, world.EOS_ID}
        skipped += begin > 0
        if sample.finish == "length":
            assert len(ids) == MAX_STEP
            body = ids
        else:
            assert ids[-1] == {"step": world.SEPARATOR_ID, "end": world.EOS_ID}[sample.finish]
            body = ids[:-1]
        assert sample.step.text == "".join(world.VOCABULARY[i] for i in body[begin:])
    assert min(finishes.values()) > 0
    assert skipped > 0


def test_to_end_lifts_the_step_stop(generator):
    samples = generator.generate([request(QUESTIONS[0], seeds=range(60), to_end=True)]).samples[0]
    assert {s.finish for s in samples} <= {"end", "length"}
    assert any("\n\n" in s.step.text for s in samples)


def test_the_context_ends_a_sample(generator):
    question = Question("nearly full", "1" * 180)
    room = 192 - len(world.prompt_ids(question.text))
    assert room < MAX_STEP
    samples = generator.generate([request(question, seeds=range(40))]).samples[0]
    cut = [s for s in samples if s.finish == "context"]
    assert cut
    assert {len(s.step.token_ids) for s in cut} == {room}
    assert {s.finish for s in samples} <= {"context", "step", "end"}
    full = generator.generate([request(question, (cut[0].step,), (1, 2))]).samples[0]
    assert [(s.step, s.finish, s.log_prob) for s in full] == [(Step("", ()), "context", 0.0)] * 2


def test_a_question_that_leaves_no_room_is_refused(generator, monkeypatch):
    generator.check_question(Question("fits", "1" * 189))
    with monkeypatch.context() as patch:
        patch.setattr(generator._model, "vocab_size", 3)
        with pytest.raises(BadInputError, match=r"has the token \d+ in its prompt, but the vocab"):
            generator.check_question(Question("q", "1+2=?"))
    with pytest.raises(BadInputError, match="'big' has 192 prompt tokens"):
        generator.check_question(Question("big", "1" * 190))


def test_sampling_parameters_are_checked(generator):
    with pytest.raises(BadInputError, match="'short'"):
        generator.generate([request(QUESTIONS[0], top_p=0.0)])


def sentence_tokenizer():
    """Like real vocabularies: tokens with text around the newlines, and single newlines."""
    words = ["<pad>", "<s>", "</s>", "<unk>", "a", "b", " ", ".", "\n", "\n\n", ".\n\n", "\n\n\n"]
    table = {word: i for i, word in enumerate(words)}
    backend = Tokenizer(models.WordLevel(table, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(r"\.?\n\n+|."), "isolated")
    backend.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        chat_template="<s>{{ messages[0]['content'] }}\n\n",
    )


def test_a_step_closes_where_its_text_holds_the_separator(tmp_path):
    """By one token or by two, behind something that is not blank; to the end with the same ids."""
    tokenizer = sentence_tokenizer()
    folder = tiny_models.save_model(tmp_path / "words", tokenizer=tokenizer)
    generator = make_generator(folder)
    question = Question("words", "a.\n\nb")
    assert tokenizer("a.\n\nb")["input_ids"] == [4, 10, 5]
    samples = generator.generate([request(question, seeds=range(400))]).samples[0]
    seen, blank = set(), 0
    for sample in samples:
        ids = sample.step.token_ids
        texts = [str(tokenizer.decode(ids[:end])).lstrip() for end in range(len(ids) + 1)]
        assert not any("\n\n" in text for text in texts[:-1])
        if sample.finish == "step":
            seen.add(ids[-1])
            assert "\n\n" in texts[-1]
            assert sample.step.text.lstrip() == texts[-1].partition("\n\n")[0]
            assert not sample.step.text.startswith("\n")
        blank += ids[0] in (8, 9, 11)
    assert seen == {8, 9, 10, 11}
    assert blank > 0
    check_generator(generator, [question, Question("more", "b")])


# --- the PRM ---


@torch.inference_mode()
def reference_score(model, question, path):
    """One full forward pass over the whole path, and the read-out by rule."""
    ids = world.path_ids(question.text, [s.text for s in path])
    logits = model(torch.tensor([ids])).logits[0, -1].double()
    return float(logits[[world.PLUS_ID, world.MINUS_ID]].softmax(0)[0])


def test_scores_equal_one_full_forward_pass_per_path(scorer, model):
    questions, paths = random_paths(7, 30)
    got = fresh(scorer).score(questions, paths).scores
    expected = [reference_score(model, q, p) for q, p in zip(questions, paths, strict=True)]
    np.testing.assert_allclose(got, expected, atol=1e-5)
    assert np.ptp(got) > 0.1


def test_the_scorer_keeps_its_contract(scorer):
    check_scorer(scorer, *random_paths(8, 12))


@pytest.mark.parametrize("seed", range(2))
def test_a_score_is_a_function_of_question_and_path(folder, scorer, seed):
    rng = random.Random(seed)
    questions, paths = random_paths(100 + seed, 30)
    reference = fresh(scorer).score(questions, paths).scores
    for batch_tokens in (1, 500):
        small = HuggingFaceScorer(folder, WORLD, batch_tokens=batch_tokens)
        order = list(range(len(paths)))
        rng.shuffle(order)
        while order:
            part, order = order[: rng.randint(1, 9)], order[9:]
            got = small.score([questions[i] for i in part], [paths[i] for i in part]).scores
            assert got == [reference[i] for i in part]
            if rng.random() < 0.5:
                small.keep_only(questions[part[0]], [paths[part[0]][:1]])


def test_every_distinct_step_is_computed_once(scorer):
    fresh(scorer)
    first, second = step("50*4=200"), step("200-21=179")
    q = QUESTIONS[0]
    prompt = len(world.prompt_ids(q.text))
    sizes = [len(s.token_ids) for s in (first, second)]
    usage = scorer.score([q] * 3, [(first,), (first,), (first, second)]).usage
    assert [(u.computed, u.cached) for u in usage] == [
        (prompt + sizes[0], 0),
        (0, prompt + sizes[0]),
        (sizes[1], prompt + sizes[0]),
    ]
    again = scorer.score([q], [(first, second)]).usage[0]
    assert (again.computed, again.cached) == (0, prompt + sum(sizes))


ADVERSARIAL = [
    "a\n\nb",
    "50*4=200\n\n",
    "\n\n50*4=200",
    "+",
    "- + -",
    "</s><s><pad>",
    "é 中文 🙂 √2",
    "\\boxed{\n\n+}",
]


@pytest.mark.parametrize("text", ADVERSARIAL)
def test_nothing_inside_a_step_moves_its_tag(scorer, model, text):
    path = (step("50*4=200"), Step(text, (4,)), step("1+1=2"))
    ids = world.prompt_ids(QUESTIONS[0].text)
    expected = []
    reader = world.build_tokenizer()
    for past in path:
        encoded = reader(past.text, add_special_tokens=False, split_special_tokens=True)
        ids += [*encoded["input_ids"], world.SEPARATOR_ID]
        with torch.inference_mode():
            logits = model(torch.tensor([ids])).logits[0, -1].double()
        expected.append(float((logits[world.PLUS_ID] - logits[world.MINUS_ID]).sigmoid()))
    got = scorer.score([QUESTIONS[0]] * 3, [path[:1], path[:2], path]).all_scores()
    np.testing.assert_allclose(got, expected, atol=1e-5)


@pytest.mark.parametrize(
    ("path", "index", "reason"),
    [
        ((), 0, "no step"),
        ((step("1"), Step(" \n\t", (4,))), 1, "blank"),
    ],
)
def test_a_path_that_can_not_be_scored_raises(scorer, path, index, reason):
    with pytest.raises(ScorerContractError, match=f"'short', step {index}.*{reason}") as caught:
        scorer.score([QUESTIONS[1], QUESTIONS[0]], [(step("1"),), path])
    assert (caught.value.question_id, caught.value.step) == ("short", index)


def test_a_path_longer_than_the_context_has_no_score(scorer):
    paths = [(step("1"),), (step("1"), step("2" * 400)), (step("3"),)]
    questions = [QUESTIONS[1], QUESTIONS[0], QUESTIONS[0]]
    scoring = scorer.score(questions, paths)
    alone = [scorer.score([questions[i]], [paths[i]]).all_scores()[0] for i in (0, 2)]
    assert scoring.scores == [alone[0], None, alone[1]]
    assert scoring.usage[1] == TokenUsage(computed=0, cached=0)
    with pytest.raises(ScorerContractError, match="can't read 1 of 3 paths"):
        scoring.all_scores()
    with pytest.raises(ScorerContractError, match=r"'short', step 1: the path has \d+ tokens"):
        scorer.count_tokens(QUESTIONS[0], paths[1])


def test_a_score_that_is_no_number_raises(folder):
    broken = HuggingFaceScorer(folder, WORLD)
    with torch.no_grad():
        broken._model.model.get_parameter("lm_head.weight").fill_(float("nan"))
    with pytest.raises(ScorerContractError, match="'other', step 1: the score is nan"):
        broken.score([QUESTIONS[3]], [(step("1"), step("2"))])


def test_the_last_bit_of_a_score_does_not_depend_on_its_place(scorer):
    logits = 4 * torch.randn(50, scorer._model.vocab_size)
    together = scorer._model.scores(logits)
    assert together == [scorer._model.scores(row[None])[0] for row in logits]
    expected = (logits[:, world.PLUS_ID] - logits[:, world.MINUS_ID]).double().sigmoid()
    np.testing.assert_allclose(together, expected, rtol=1e-6)


def test_one_question_per_path(scorer):
    with pytest.raises(ValueError, match="1 questions for 2 paths"):
        scorer.score([QUESTIONS[0]], [(step("1"),), (step("2"),)])


# --- memory ---


def out_of_memory_above(monkeypatch, bridge, rows, error):
    """Makes every forward pass of more than `rows` rows fail; returns the sizes that were tried."""
    real, tried = bridge._model.forward, []

    def forward(parts, *args):
        tried.append(sum(part.kv.shape[1] for part in parts))
        if tried[-1] > rows:
            raise error
        return real(parts, *args)

    monkeypatch.setattr(bridge._model, "forward", forward)
    return tried


def test_running_out_of_memory_halves_the_micro_batch(folder, generator, scorer, monkeypatch):
    requests = [request(q, seeds=range(40)) for q in QUESTIONS]
    samples = fresh(generator).generate(requests).samples
    questions, paths = random_paths(1, 40)
    scores = fresh(scorer).score(questions, paths).scores
    for error in (
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"),
    ):
        tight = make_generator(folder)
        before = tight._budget.tokens
        tried = out_of_memory_above(monkeypatch, tight, 24, error)
        assert tight.generate(requests).samples == samples
        assert max(tried) > 24
        assert tight._budget.tokens < before

        tight = HuggingFaceScorer(folder, WORLD)
        out_of_memory_above(monkeypatch, tight, 3, error)
        assert tight.score(questions, paths).scores == scores


def test_when_a_single_row_does_not_fit_the_run_stops_with_one_line(folder, monkeypatch):
    tight = make_generator(folder)
    out_of_memory_above(monkeypatch, tight, 0, torch.OutOfMemoryError("no"))
    with pytest.raises(RunStoppedError, match=r"single row of 8 tokens: .*kv_cache_gib") as caught:
        tight.generate([request(QUESTIONS[0])])
    assert "\n" not in str(caught.value)


def test_other_errors_are_not_taken_for_a_lack_of_memory():
    assert not token_budget.is_out_of_memory(RuntimeError("size mismatch"))
    assert not token_budget.is_out_of_memory(ValueError("not enough memory"))
    calls = []

    def fail(items):
        calls.append(items)
        raise RuntimeError("size mismatch")

    with pytest.raises(RuntimeError, match="size mismatch"):
        token_budget.TokenBudget(100).run([1, 2, 3], [10] * 3, fail)
    assert calls == [[1, 2, 3]]


# --- other architectures and precisions ---


def test_bfloat16_is_valid_and_near_float32(folder, scorer):
    half = HuggingFaceScorer(folder, WORLD, dtype="bfloat16")
    questions, paths = random_paths(3, 10)
    got = half.score(questions, paths).all_scores()
    np.testing.assert_allclose(got, scorer.score(questions, paths).all_scores(), atol=0.15)
    check_generator(make_generator(folder, dtype="bfloat16"), QUESTIONS, exact=False)


def test_without_grouped_queries_and_with_an_untied_head(tmp_path):
    changes = {"num_key_value_heads": 4, "tie_word_embeddings": False}
    folder = tiny_models.save_model(tmp_path / "untied", **changes)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    scorer = HuggingFaceScorer(folder, WORLD)
    questions, paths = random_paths(4, 8)
    expected = [reference_score(model, q, p) for q, p in zip(questions, paths, strict=True)]
    np.testing.assert_allclose(scorer.score(questions, paths).all_scores(), expected, atol=1e-5)


@pytest.mark.slow
def test_invariance_holds_at_other_matrix_sizes(tmp_path):
    """BLAS chooses its kernels by the sizes, so that the small model alone proves little."""
    folder = tiny_models.save_model(
        tmp_path / "wide",
        hidden_size=320,
        intermediate_size=1000,
        num_attention_heads=10,
        num_key_value_heads=5,
        vocab_size=777,
        initializer_range=0.06,
    )
    check_generator(make_generator(folder), QUESTIONS)
    check_scorer(HuggingFaceScorer(folder, WORLD), *random_paths(9, 30))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-3), ("bfloat16", 0.15)])
def test_cuda_is_near_the_cpu(folder, scorer, dtype, tolerance):
    settings = {"device": "cuda", "dtype": dtype}
    check_generator(make_generator(folder, **settings), QUESTIONS, exact=False)
    on_device = HuggingFaceScorer(folder, WORLD, **settings)
    questions, paths = random_paths(5, 20)
    check_scorer(on_device, questions, paths, tolerance=tolerance)
    expected = scorer.score(questions, paths).all_scores()
    np.testing.assert_allclose(
        on_device.score(questions, paths).all_scores(), expected, atol=tolerance
    )


# --- bad input, before any weight is read ---


@pytest.fixture
def no_weights(monkeypatch):
    """Fails a test that gets as far as reading weights."""

    def refuse(*args, **kwargs):
        raise AssertionError("the weights were read")

    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", refuse)


@pytest.fixture
def copy(folder, tmp_path):
    """A copy of the model folder that a test may break."""
    return shutil.copytree(folder, tmp_path / "broken")


@pytest.mark.usefixtures("no_weights")
@pytest.mark.parametrize("load", [make_generator, lambda p, **k: HuggingFaceScorer(p, WORLD, **k)])
@pytest.mark.parametrize(
    ("spoil", "settings", "match"),
    [
        (shutil.rmtree, {}, "does not exist"),
        (lambda path: (path / "config.json").unlink(), {}, r"no config\.json"),
        (lambda path: (path / "config.json").write_text("{"), {}, "can't be read as a config"),
        (lambda path: (path / "chat_template.jinja").unlink(), {}, "no chat template"),
        (
            lambda path: (path / "model.safetensors").rename(path / "pytorch_model.bin"),
            {},
            r"holds weights as \.bin files: `cats-jax convert",
        ),
        (None, {"dtype": "float16"}, "dtype 'float16' is unknown"),
        (None, {"batch_tokens": 0}, "batch_tokens must be at least 1, got 0"),
        (None, {"kv_cache_gib": 2e-6}, "is less than three tokens need: .* take 1024 bytes"),
        *(
            (None, {"kv_cache_gib": size}, "kv_cache_gib=.*above 0")
            for size in (0.0, float("nan"), float("inf"))
        ),
        *((None, {"device": name}, f"device '{name}'") for name in ("gpu", "meta", "cuda:99")),
    ],
)
def test_bad_input_is_refused_in_one_line(load, copy, spoil, settings, match):
    if spoil is not None:
        spoil(copy)
    with pytest.raises(BadInputError, match=match) as caught:
        load(copy, **settings)
    assert "\n" not in str(caught.value)


def test_weights_that_lack_a_tensor_are_refused(copy):
    tensors = load_file(copy / "model.safetensors")
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, copy / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(BadInputError, match=r"lacks 1 of .*up_proj\.weight"):
        make_generator(copy)


@pytest.mark.usefixtures("no_weights")
def test_settings_of_the_policy_are_checked(copy):
    with pytest.raises(BadInputError, match=r"no token .* contains the step separator '\|'"):
        make_generator(copy, step_separator="|")
    with pytest.raises(BadInputError, match="step_separator must not be empty"):
        make_generator(copy, step_separator="")
    for name in ("max_step_tokens", "max_answer_tokens"):
        with pytest.raises(BadInputError, match=f"{name} must be at least 1"):
            make_generator(copy, **{name: 0})


def test_logits_that_are_no_numbers_stop_the_run(folder):
    policy = make_generator(folder)
    policy.generate([request(QUESTIONS[0])])
    policy._model.model.model.norm.weight.data.fill_(torch.nan)
    with pytest.raises(RunStoppedError, match="log-probabilities of its tokens are not finite"):
        policy.generate([request(QUESTIONS[3])])
