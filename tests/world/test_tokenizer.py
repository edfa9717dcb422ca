"""The world's tokenizer: one vocabulary, append-only paths, a chat template."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cats_jax.world import task, tokenizer

TOKENIZER = tokenizer.build_tokenizer()
STEP_TEXTS = st.text(alphabet="0123456789+-*/%()=?}", min_size=1, max_size=20) | st.sampled_from(
    ["\\boxed{194}", "\\boxed{", "\\boxed", "\\", "7\\boxed{7}7", "a b", "\u0663", "</s>", "x\n"]
)


@given(st.lists(STEP_TEXTS, min_size=1, max_size=6))
def test_a_path_grows_by_appending(steps):
    """Each step by itself, then the separator's id, is the encoding of the joined text."""
    joined = "".join(step + task.STEP_SEPARATOR for step in steps)
    appended = []
    for step in steps:
        appended += [*TOKENIZER.encode(step), tokenizer.SEPARATOR_ID]
    assert TOKENIZER.encode(joined) == appended


@pytest.mark.parametrize("problem", task.problems("validation", 10))
def test_the_fast_path_agrees(problem):
    text = problem.text + task.STEP_SEPARATOR + task.STEP_SEPARATOR.join(problem.steps)
    ids = tokenizer.encode(text)
    assert ids == TOKENIZER.encode(text)
    assert tokenizer.decode(ids) == TOKENIZER.decode(ids) == text
    expected = [tokenizer.BOS_ID, *TOKENIZER.encode(text), tokenizer.SEPARATOR_ID]
    assert tokenizer.path_ids(problem.text, problem.steps) == expected


def test_multi_character_tokens():
    assert TOKENIZER.tokenize("1\n\n\\boxed{1}") == ["1", "\n\n", "\\boxed{", "1", "}"]
    assert TOKENIZER.encode("\\boxed{") == [tokenizer.TOKEN_IDS["\\boxed{"]]
    assert len(TOKENIZER) == len(tokenizer.VOCABULARY) == len(set(tokenizer.VOCABULARY))
    assert TOKENIZER.convert_ids_to_tokens(list(range(len(TOKENIZER)))) == list(
        tokenizer.VOCABULARY
    )


def test_characters_outside_the_vocabulary():
    unknown = tokenizer.TOKEN_IDS[tokenizer.UNKNOWN]
    assert TOKENIZER.encode("a\u0663") == [unknown, unknown]
    with pytest.raises(ValueError, match="'a' in 'a1' is not in the world's vocabulary"):
        tokenizer.encode("a1")


def test_chat_template_opens_the_answer():
    messages = [{"role": "user", "content": "(3+4)*5=?"}]
    assert TOKENIZER.apply_chat_template(messages, tokenize=False) == "<s>(3+4)*5=?\n\n"
    ids = TOKENIZER.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    assert ids == tokenizer.prompt_ids("(3+4)*5=?")
    system = [{"role": "system", "content": "Think."}]
    partial = [{"role": "assistant", "content": "3+4=7\n\n"}]
    text = TOKENIZER.apply_chat_template(
        system + messages + partial, tokenize=False, continue_final_message=True
    )
    assert str(text).startswith("<s>(3+4)*5=?\n\n3+4=7")


def test_a_saved_tokenizer_is_the_same(tmp_path):
    from transformers import AutoTokenizer

    TOKENIZER.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    text = "(3+4)*5=?\n\n3+4=7\n\n7*5=35\n\n\\boxed{35}"
    assert loaded.encode(text) == TOKENIZER.encode(text)
    assert loaded.decode(loaded.encode(text)) == text
    assert loaded.chat_template == TOKENIZER.chat_template
    assert (loaded.pad_token_id, loaded.bos_token_id, loaded.eos_token_id) == (0, 1, 2)
