"""Where a step ends: by the decoded text of its tokens, against a decoder of every prefix."""

import dataclasses
import functools
import json
import pathlib

import pytest
from byte_vocabulary import byte_tokenizer, token_id
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models

from cats_jax.errors import BadInputError
from cats_jax.models.prompts.step_text import StepEnd, StepText, check_parameters, cut_answer
from cats_jax.protocols import Question, Step, StepRequest

END = 1


class Text:
    """A model's tokenizer, of which nothing else is there."""

    name = "text"

    def __init__(self, backend, vocab_size=None):
        self.decode = lambda ids: backend.decode(list(ids), skip_special_tokens=False)
        self.vocab_size = vocab_size or backend.get_vocab_size()

    def end_ids(self):
        return [END]


@functools.cache
def bytes_text(words, separator, vocab_size=None):
    return StepText(Text(byte_tokenizer(words).backend_tokenizer, vocab_size), separator)


def words_text(words, separator, decoder=None):
    backend = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, words[0]))
    if decoder is not None:
        backend.decoder = decoder
    return StepText(Text(backend), separator)


def steps_of(text, ids):
    """Steps of an answer that ends with an end token, as one path."""
    pieces = cut_answer(
        text, tuple(ids), "end", rest=None, max_steps=99, max_step_tokens=len(ids) + 1
    )
    return [piece.text for piece in pieces]


WORDS = ("\n\n", ".\n", ".\n\n", "\n\n\n", "\n\nSo", "\nA", "So", "é\n", "é", b"\xa9\n", b"\xa9")


def oracle(decode, ids, separator):
    """The ends of the steps: the first prefix of each whose text holds the separator."""
    ends, begin, before = [], 0, ""
    for end in range(1, len(ids) + 1):
        text = before + decode(ids[begin:end])
        parts = text.split(separator)
        if any(part.strip() for part in parts[:-1]):
            ends.append(end)
            last = max(i for i, part in enumerate(parts[:-1]) if part.strip())
            begin, before = end, separator.join(parts[last + 1 :])
    return ends


@pytest.mark.parametrize("separator", ["\n\n", "\n", "###", "。", "é\n", "\nA\n"])
@given(data=st.data())
def test_steps_end_where_a_decoder_of_every_prefix_says(separator, data):
    words = (*WORDS, "#", "##", "x##", "。".encode()[:2], "。".encode()[2:] + b"\n")
    text = bytes_text(words, separator, vocab_size=300)
    used = [token_id(word, words) for word in (*words, "\n", " ", "x", "#", b"\xe3", b"\x80")]
    ids = tuple(data.draw(st.lists(st.sampled_from([*used, 299]), min_size=1, max_size=14)))
    decode = text._model.decode
    pieces = cut_answer(text, ids, "context", rest=None, max_steps=99, max_step_tokens=99)
    ends = [piece.end for piece in pieces if piece.finish == "step"]
    joined = "".join(decode([i]) for i in ids)
    if joined == decode(ids) or separator.isascii():
        # Bytes of a character on both sides of a step's end are in no text by themselves.
        assert ends == oracle(decode, ids, separator)
    assert [i for piece in pieces for i in ids[piece.start : piece.end]] == list(ids)
    assert all(piece.text.strip() for piece in pieces if piece.finish == "step")
    # Step by step: the same ends, texts and rests.
    path, begin = (), 0
    for piece in pieces:
        rest = text.rest_of(path)
        end = StepEnd(text, rest).place(ids[begin:])
        assert end == (piece.end - begin if piece.finish == "step" else None)
        if end is not None:
            part = ids[begin : begin + end]
            assert StepEnd(text, rest, part[:1]).place(part[1:]) == (end - 1 or None)
            path = (*path, Step(text.text(part, "step", rest), part))
            begin += end
    assert [step.text for step in path] == [p.text for p in pieces if p.finish == "step"]
    # No character but white space and separators is lost, and none is read twice.
    kept = "".join(piece.text for piece in pieces)
    if begin == len(ids) and (rest := text.rest_of(path)):  # no step follows to begin with it
        kept += decode(ids)[-rest.length :]
    if "\ufffd" not in decode(ids):
        assert without(kept, separator) == without(decode(ids), separator)


def without(text, separator):
    return "".join(text.replace(separator, "").split())


@pytest.mark.parametrize(
    ("tokens", "steps"),
    [
        (["So", "\n", "\n", "A"], ["So", "A"]),
        (["So", ".\n", "\n", "A"], ["So.", "A"]),
        (["So", "\n", "299", "\n", "A"], ["So", "A"]),  # an id without a text
        (["\n\n", "So", ".\n\n", "A"], ["So.", "A"]),
        (["\n", "\n", "\n", "So", ".\n\n", "A"], ["So.", "A"]),
        (["\n", "So", ".\n\n", "A"], ["So.", "A"]),
        (["So", "\n\n\n", "A"], ["So", "A"]),
        (["So", "\n", "\n\n", "A"], ["So", "A"]),
        (["So", "\n\n", "\n\n", "\n", "A"], ["So", "A"]),
        (["A", "\n\nSo", " ", "x", "\n\n", "A"], ["A", "So x", "A"]),
        (["A", "\n\nSo", "\n", "\nA"], ["A", "So", "A"]),
        (["A", "\n\n", "  ", "So"], ["A", "  So"]),
        ([b"\xc3", b"\xa9\n", "\n", "A"], ["é", "A"]),
    ],
)
def test_separators_of_real_text(tokens, steps):
    words = (*WORDS, "  ")
    text = bytes_text(words, "\n\n", vocab_size=300)
    ids = [299 if token == "299" else token_id(token, words) for token in tokens]
    assert steps_of(text, [*ids, END]) == steps


def test_a_character_that_a_closing_token_begins_is_whole_in_the_next_step():
    words = ("\n\n" + chr(0), b"\n\n\xc3", b"\n\nA\n\n")
    text = bytes_text(words, "\n\n")
    ids = [token_id(word, words) for word in ("x", b"\n\n\xc3", b"\xa9", "y", "\n", "\n", "z")]
    assert steps_of(text, [*ids, END]) == ["x", "éy", "z"]
    # A token closes one step, also if it spells another one.
    ids = [token_id(word, words) for word in ("x", b"\n\nA\n\n", "z")]
    assert steps_of(text, [*ids, END]) == ["x\n\nA", "z"]


def test_a_vocabulary_with_one_separator_token_has_nothing_to_look_for():
    text = words_text(["<s>", "</s>", "a", "\n\n", "b"], "\n\n", decoders.Fuse())
    assert text.closers == text.separators == [3]
    assert not StepEnd(text).is_split
    assert text.rest((2, 3)) is None


def test_sentencepiece_spells_it_by_bytes_and_keeps_spaces():
    words = ["<s>", "</s>", "<0x0A>", "▁So", "▁A", "<0xE2>", "▁-", "▁x"]
    decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    text = words_text(words, "\n\n", decoder)
    assert text.closers == [2]
    assert text.separators == []
    assert steps_of(text, [3, 4, 2, 2, 4, END]) == ["So A", "A"]
    # A byte that makes no character is no reason to lose the newline behind it.
    lines = words_text(words, "\n", decoder)
    assert steps_of(lines, [3, 5, 2, 4, END]) == ["So\ufffd", "A"]
    dashes = words_text(words, " -", decoder)
    assert dashes.separators == [6]
    assert steps_of(dashes, [3, 6, 4, END]) == ["So", "A"]


@pytest.mark.parametrize(
    ("words", "separator", "decoder"),
    [
        (["<s>", "</s>", "a", "b"], "\n\n", decoders.Fuse()),
        (["<s>", "</s>", "#x", "b#"], "###", decoders.Fuse()),  # its middle is nowhere
        (["<s>", "</s>", "a", "\n"], "\n\n", None),  # this decoder writes spaces between tokens
    ],
)
def test_a_policy_that_can_end_no_step_is_refused(words, separator, decoder):
    with pytest.raises(BadInputError, match="no sequence of its tokens spells it") as error:
        words_text(words, separator, decoder)
    assert "\n" not in str(error.value)


def test_the_shared_cases(shared):
    rows = pathlib.Path(shared("cases/step_split.jsonl")).read_text().splitlines()
    cases = [row for row in map(json.loads, rows) if "tokens" in row]
    words = tuple(token for row in cases for token in row["tokens"])
    text = bytes_text(words, "\n\n", vocab_size=400)
    for row in cases:
        ids = [399 if "beyond" in word else token_id(word, words) for word in row["tokens"]]
        steps = steps_of(text, [*ids, END])
        assert steps == row.get("expected_steps", steps), row
        assert all(step.strip() for step in steps), row
        assert "\\boxed{24}" in steps[-1], row
        assert len(steps) == 2, row


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"seeds": (0, 1 << 64)}, r"seeds must be in 0\.\.2\*\*64 - 1"),
        ({"seeds": (-1,)}, r"seeds must be in 0\.\.2\*\*64 - 1"),
        ({"temperature": float("nan")}, "temperature must be a finite number >= 0, got nan"),
        ({"top_p": 0.0}, r"top_p must be in \(0, 1\], got 0\.0"),
        ({"top_k": -1}, "top_k must be >= 0, got -1"),
    ],
)
def test_a_sampling_parameter_outside_its_range_is_refused(changes, rule):
    request = StepRequest(Question("q", "1+1"), (), (0, (1 << 64) - 1), 0.0, 1.0, 0, False)
    check_parameters(request)
    with pytest.raises(BadInputError, match=f"request for question 'q': {rule}"):
        check_parameters(dataclasses.replace(request, **changes))
