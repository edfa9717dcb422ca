"""PRM formats as data: the known ones, those from files, and the ids they make."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from cats_jax.errors import BadInputError
from cats_jax.models.prm.encoder import StepEncoder
from cats_jax.models.prm.family import choose_format, load_format
from cats_jax.models.prm.format import (
    PRM_FORMATS,
    WORLD,
    Head,
    PRMFormat,
    TokenPair,
    prm_format,
)
from cats_jax.world import tokenizer as world

QUESTION = "(50*4)-21=?"


@pytest.fixture(scope="module")
def tokenizer():
    return world.build_tokenizer()


@pytest.fixture(scope="module")
def encoder(tokenizer):
    return StepEncoder(WORLD, tokenizer)


def test_formats_are_found_by_name():
    assert prm_format("world") is WORLD
    assert choose_format("skywork", "nowhere") is PRM_FORMATS["skywork"]
    assert all(name == value.name for name, value in PRM_FORMATS.items())
    with pytest.raises(BadInputError, match=r"'skyworks' is unknown: did you mean 'skywork'\?"):
        prm_format("skyworks")
    with pytest.raises(
        BadInputError, match=r"name=\['skywork'\]: must be the name of a PRM format"
    ):
        prm_format(["skywork"])


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"layout": "chat"}, "one of answer, turns, text"),
        ({"read_at": "after"}, "one of tag, before"),
        ({"prompt": "Q: A:"}, r"\{question\} exactly once"),
        ({"prompt": "{question}{question}"}, "exactly once"),
        ({"tag": ""}, "must name a token"),
        ({"read_out": Head(())}, "name the head's layers"),
        ({"read_out": Head(("score",), label=1, unbounded=True)}, "label and unbounded: give one"),
        ({"system": "Be brief.", "layout": "text"}, "belongs to a chat"),
        ({"between": "\n", "layout": "turns"}, "leave it out"),
    ],
)
def test_a_format_that_breaks_a_rule_is_refused(changes, rule):
    with pytest.raises(BadInputError, match=f"'world': {next(iter(changes))}=.*{rule}"):
        dataclasses.replace(WORLD, **changes)


# --- ids ---


def test_the_world_reads_paths_as_its_tokenizer_writes_them(encoder):
    steps = ["50*4=200", "200-21=179", "\\boxed{179}"]
    chunks = encoder.chunks(QUESTION, steps)
    assert len(chunks) == 4
    assert list(chunks[0]) == world.prompt_ids(QUESTION)
    assert [i for chunk in chunks for i in chunk] == world.path_ids(QUESTION, steps)
    assert encoder.tag_id == world.SEPARATOR_ID
    assert encoder.pair_ids == (world.PLUS_ID, world.MINUS_ID)


@pytest.mark.parametrize("text", ["a\n\nb", "x\n\n", "\n\n\n", "</s>", "<pad><unk>", "é🙂", "+-"])
def test_every_chunk_ends_with_one_appended_tag(encoder, text):
    prompt, *steps = encoder.chunks(QUESTION, [text, text])
    for ids in steps:
        assert ids[-1] == world.SEPARATOR_ID
        assert not {world.PAD_ID, world.BOS_ID, world.EOS_ID} & set(ids)
    assert list(prompt) == world.prompt_ids(QUESTION)


@given(
    question=st.text(min_size=1),
    steps=st.lists(st.text(min_size=1).filter(str.strip), min_size=1, max_size=5),
    layout=st.sampled_from(["answer", "text"]),
    read_at=st.sampled_from(["tag", "before"]),
    joined=st.booleans(),
)
def test_sequences_only_grow_at_the_end(tokenizer, question, steps, layout, read_at, joined):
    """Whatever the texts: a path's chunks begin every longer path's, and none is empty."""
    changes = {"layout": layout, "read_at": read_at, "joined": joined}
    encoder = StepEncoder(dataclasses.replace(WORLD, **changes), tokenizer)
    whole = encoder.chunks(question, steps)
    assert all(whole)
    for count in range(1, len(steps)):
        part = encoder.chunks(question, steps[:count])
        assert whole[: len(part)] == part
        assert len(whole) - len(part) == len(steps) - count
    assert encoder.chunks(question, ["another"])[0] == whole[0]
    ends = {chunk[-1] == world.SEPARATOR_ID for chunk in whole[len(whole) - len(steps) :]}
    assert read_at == "before" or ends == {True}


@pytest.mark.parametrize(
    ("change", "token", "reason"),
    [
        ({"tag": "<extra_0>"}, "<extra_0>", "has no such token"),
        ({"tag": "\n"}, r"\\n", "has no such token"),
        ({"tag": "12"}, "12", "makes 2 of it"),
        ({"read_out": TokenPair("yes", "-")}, "yes", "has no such token"),
        ({"read_out": TokenPair("+", "é")}, "é", "has no such token"),
    ],
)
def test_tokens_that_the_tokenizer_lacks_are_refused(tokenizer, change, token, reason):
    with pytest.raises(BadInputError, match=f"'{token}' as one token, the tokenizer {reason}"):
        StepEncoder(dataclasses.replace(WORLD, **change), tokenizer)


def with_template(template, **changes):
    tokenizer = world.build_tokenizer()
    tokenizer.chat_template = template
    return StepEncoder(dataclasses.replace(WORLD, **changes), tokenizer)


def test_templates_that_do_not_fit_the_layout_are_refused():
    with pytest.raises(BadInputError, match="no chat template; choose the format"):
        with_template(None)
    with pytest.raises(BadInputError, match="does not show the user's message once"):
        with_template("<s>nothing")
    with pytest.raises(BadInputError, match="does not show each of six turns once"):
        with_template("<s>{{ messages[0]['content'] }}", layout="turns")
    # As Qwen3's, which shows an empty thought in the last turn only.
    thinks = (
        "<s>{% for each in messages %}{{ '<pad>' if loop.last }}{{ each['content'] }}{% endfor %}"
    )
    with pytest.raises(BadInputError, match="writes the last turns unlike earlier ones; choose"):
        with_template(thinks, layout="turns", tag="+", read_at="before")
    with pytest.raises(BadInputError, match=r"refuses these turns \(one at a time\)"):
        with_template("{{ raise_exception('one at a time') }}")
    with pytest.raises(BadInputError, match="does not begin with a special token"):
        with_template("{{ messages[0]['content'] }}", joined=True)


def test_the_day_does_not_change_a_prompt():
    dated = "<s>{{ '7' if date_string == '26 Jul 2024' else strftime_now('%d') }}"
    encoder = with_template(dated + "{{ messages[0]['content'] }}")
    assert encoder.chunks("+", ["-"])[0] == (world.BOS_ID, *world.encode("7+"))


def test_white_space_around_a_turn_is_cut_off_whatever_the_template_does():
    template = "<s>{% for message in messages %}{{ message['content'] }}<pad>{% endfor %}"
    encoder = with_template(template, layout="turns", tag="+", read_at="before")
    first = (world.BOS_ID, *world.encode("1?2"), world.PAD_ID)
    later = (*world.encode("+"), world.PAD_ID, *world.encode("3"), world.PAD_ID)
    chunks = encoder.chunks("1?", ["\n\n2\n\n", "\n\n3\n\n"])
    assert [token for chunk in chunks for token in chunk] == [*first, *later]


def test_the_longer_of_two_special_tokens_is_meant():
    tokenizer = world.build_tokenizer()
    tokenizer.add_tokens(["<s>+", "-<s>+"], special_tokens=True)
    tokenizer.chat_template = "-<s>+{{ messages[0]['content'] }}"
    encoder = StepEncoder(WORLD, tokenizer)
    longest = tokenizer.convert_tokens_to_ids("-<s>+")
    assert encoder.chunks("1", ["2"])[0] == (longest, *world.encode("1"))


def test_a_read_out_of_one_token_is_refused(tokenizer):
    with pytest.raises(BadInputError, match="positive and negative of read_out are one token"):
        StepEncoder(dataclasses.replace(WORLD, read_out=TokenPair("+", "+")), tokenizer)


@pytest.mark.parametrize("layout", ["answer", "text"])
def test_only_the_first_text_has_the_space_that_a_tokenizer_puts_before_it(layout):
    letters = ["\u2581", "\n", *map(chr, range(33, 127))]
    backend = Tokenizer(models.BPE({letter: i for i, letter in enumerate(letters)}, []))
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token="<s>",
        eos_token="</s>",
        chat_template="<s>{{ messages[0]['content'] }}</s>",
    )
    tokenizer.add_tokens(["<tag>"], special_tokens=True)
    pair = TokenPair("+", "-")
    chosen = PRMFormat("mine", layout, "<tag>", pair, between="\n", prompt="{question}=")
    chunks = StepEncoder(chosen, tokenizer).chunks("1+1", ["2", "3"])
    # On the families' cards the tokenizer puts "<s>" before a plain text.
    text = {"answer": "<s>1+1=</s>2<tag>\n3<tag>", "text": "1+1=2<tag>\n3<tag>"}[layout]
    expected = tokenizer(text, add_special_tokens=False)["input_ids"]
    expected = [*[tokenizer.bos_token_id][layout == "answer" :], *expected]
    assert [token for chunk in chunks for token in chunk] == expected


def test_a_tokenizer_whose_parts_differ_from_the_whole_is_refused():
    words = ["<s>", "<unk>", "+", "-", "\n\n", ".\n\n", "."]
    backend = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(r"\.?\n\n|."), "isolated")
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token="<s>",
        unk_token="<unk>",
        chat_template="<s>{{ messages[0]['content'] + '\\n\\n' }}",
    )
    # Joined, a full stop and the tag behind it are one token.
    with pytest.raises(BadInputError, match="other ids as one text than in its parts"):
        StepEncoder(dataclasses.replace(WORLD, joined=True), tokenizer)
    prompt, step = StepEncoder(WORLD, tokenizer).chunks("+.", ["-."])
    assert (prompt, step) == ((0, 2, 5), (3, 6, 4))


# --- files ---

SIXTH = """
name: sixth
layout: answer
system: Check every step.
tag: <extra_0>
read_out:
  layers: [score.0, score.2]
  label: 1
"""


def write(tmp_path, text):
    path = tmp_path / "sixth.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_format_is_read_from_yaml(tmp_path):
    path = write(tmp_path, SIXTH)
    expected = PRMFormat(
        "sixth", "answer", "<extra_0>", Head(("score.0", "score.2"), 1), system="Check every step."
    )
    assert load_format(path) == expected
    assert choose_format(str(path), "nowhere") == expected


def test_known_formats_can_be_written_in_yaml(tmp_path):
    text = """
layout: text
tag: "▁ки"
read_out: {positive: "▁+", negative: "▁-"}
prompt: "{question} "
between: "\\n"
tokens: ["▁ки", "▁+", "▁-"]
"""
    expected = dataclasses.replace(PRM_FORMATS["math-shepherd"], name="sixth")
    assert load_format(write(tmp_path, text)) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("layout: [", "is not valid YAML"),
        ("- a", "must be a mapping with the keys name, layout"),
        (SIXTH + "colour: red", "key 'colour' is unknown: known are name, layout, tag"),
        (SIXTH.replace("tag: <extra_0>", ""), "key 'tag' is missing: add it"),
        (SIXTH.replace("<extra_0>", "[a]"), r"tag: \['a'\] must be a text"),
        (SIXTH.replace("<extra_0>", "1"), "tag: 1 must be a text: write it in quotes"),
        (SIXTH.replace("answer", "chat"), "layout='chat' must be one of answer, turns, text"),
        (SIXTH.replace("label: 1", "label: -1"), "read_out, label: -1 must be a number, 0 or more"),
        (
            SIXTH.replace("label: 1", "depth: 1"),
            "read_out: key 'depth' is unknown: known are layers",
        ),
        (SIXTH.replace("[score.0, score.2]", "score.0"), "layers: 'score.0' must be a list"),
        (SIXTH + "joined: 'yes'", "joined: 'yes' must be true or false"),
        ("layout: answer\ntag: x\nread_out: {positive: '+'}", "key 'negative' is missing"),
        ("layout: answer\ntag: x\nread_out: head", "read_out: must be a mapping"),
    ],
)
def test_files_that_are_no_format_name_key_rule_and_way_out(tmp_path, text, message):
    with pytest.raises(BadInputError, match=message) as caught:
        load_format(write(tmp_path, text))
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(BadInputError, match=r"none\.yaml' does not exist"):
        choose_format(str(tmp_path / "none.yaml"), tmp_path)
