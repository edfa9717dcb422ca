"""Chat templates of strangers: bounded in time and memory, and otherwise those of transformers."""

import subprocess
import time

import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from cats_jax.models.prompts import bounded_template
from cats_jax.models.prompts.bounded_template import TemplateFailure, render
from cats_jax.models.prompts.chat_template import ChatError, ChatTemplate

HOSTILE = {
    "{{ 1/0 }}": "ZeroDivisionError",
    "{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}": "RecursionError",
    "{{ '%099999999999d' % 1 }}": "MemoryError|OverflowError|ValueError|too|memory",
    "{{ 'a' * 3000000000 }}": "MemoryError",
    "{{ 10 ** (10 ** 10) }}": "more than 2 s or more memory|MemoryError",
    "{% set n = namespace(x='ab') %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}"
    # A machine that is slow to hand out memory comes to the limit of time first.
    "{% endfor %}": "more than 2 s or more memory|MemoryError",
    "{{ 'ab' * 1000000 }}": "it makes more than 1048576 characters",
    "{% for i in range(9) %}": "endfor",
    "{{ raise_exception('only\nusers') }}": "^only users$",
    "{{ range(10 ** 9) }}": "OverflowError",
    "{{ ''.__class__.__mro__ }}": "SecurityError",
}


@pytest.mark.parametrize("template", HOSTILE, ids=lambda template: template[:24])
def test_a_hostile_template_is_one_line_and_the_next_is_rendered(template):
    with pytest.raises(TemplateFailure, match=HOSTILE[template]) as caught:
        render(template, {})
    assert "\n" not in str(caught.value)
    assert render("{{ a }}", {"a": template}) == template


def test_loops_without_an_end_are_ended():
    loops = "".join(f"{{% for i{n} in range(100000) %}}" for n in range(4))
    started = time.monotonic()
    with pytest.raises(TemplateFailure, match="more than 2 s"):
        render(loops + "{% endfor %}" * 4, {})
    assert time.monotonic() - started < 60


TEMPLATES = {
    "marks": "{%- for m in messages %}\n  {% if loop.first %}{{ bos_token }}{% endif %}\n"
    "<{{ m.role }}>{{ m['content'] | trim }}{% if not loop.last %}{% continue %}{% endif %}\n"
    "{%- endfor %}{{ '[A]' if add_generation_prompt }}\n",
    "tojson": "{{ messages | tojson(indent=1) }}"
    "{{ {'b': '<é>', 'a': 1} | tojson(sort_keys=true) }}",
    "generation": "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}"
    "{% endfor %}",
    "names": "{{ tools }}{{ documents is none }}{{ date_string is defined }}{{ nothing }}",
}


@pytest.mark.parametrize(
    ("name", "answer"), [*((name, True) for name in TEMPLATES), ("marks", False)]
)
def test_templates_render_as_those_of_transformers(name, answer):
    messages = [{"role": "user", "content": " \ufdd0 é\n"}, {"role": "assistant", "content": "x"}]
    variables = {"bos_token": "<s>", "date_string": "1", "add_generation_prompt": answer}
    ((theirs,), _) = render_jinja_template([messages], chat_template=TEMPLATES[name], **variables)
    ours = render(
        TEMPLATES[name], {**variables, "messages": messages, "tools": None, "documents": None}
    )
    assert ours == theirs


def test_the_day_of_a_template_is_always_the_same():
    # SmolLM3's, gpt-oss's and Mistral Small's ask for the day whatever they are given.
    day = render("{{ strftime_now('%d %B %Y') }} {{ strftime_now('%Y-%m-%d %H:%M') }}", {})
    assert day == "26 July 2024 2024-07-26 00:00"


def test_a_tokenizer_with_a_hostile_template_is_refused():
    class Tokenizer:
        added_tokens_decoder, special_tokens_map = {}, {}
        chat_template = "{{ 1/0 }}"

        def get_chat_template(self):
            return self.chat_template

    with pytest.raises(
        ChatError, match=r"refuses these turns .ZeroDivisionError: division by zero"
    ):
        ChatTemplate(Tokenizer(), "format").render([("user", "x")], answer=True)


def test_a_process_that_is_gone_is_started_again():
    assert render("a{{ 1 }}", {}) == "a1"
    process = bounded_template._worker._process
    assert process is not None
    process.kill()
    process.wait()
    assert render("b{{ 1 }}", {}) == "b1"
    bounded_template._worker.close()
    assert isinstance(process, subprocess.Popen)
