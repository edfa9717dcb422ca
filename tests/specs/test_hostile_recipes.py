"""Recipes of strangers: what costs more than it is long, or means two things, is refused."""

import pytest

from cats_jax.errors import BadInputError
from cats_jax.specs.recipe import load_recipe, parse_strategy
from cats_jax.storage.yaml_reading import load_yaml

RECIPE = {
    "strategies": "[greedy]",
    "num_candidates": "[1]",
    "questions": "{world: test, count: 1}",
}


def _bomb(key: str) -> str:
    """Twelve lines that stand for nine to the tenth values."""
    lines = ["b0: &b0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"b{i}: &b{i} [{', '.join([f'*b{i - 1}'] * 9)}]" for i in range(1, 10)]
    return "\n".join([*lines, f"{key}: *b9"])


def _refusal(tmp_path, text: str) -> str:
    path = tmp_path / "recipe.yaml"
    path.write_text(text)
    with pytest.raises(BadInputError) as caught:
        load_recipe(path)
    message = str(caught.value)
    assert message.startswith(f"recipe {str(path)!r}")
    assert "\n" not in message
    assert len(message) < 1000
    return message


def _with(**changes: str) -> str:
    return "".join(f"{key}: {value}\n" for key, value in (RECIPE | changes).items())


@pytest.mark.parametrize("key", ["name", "calibration", "policy"])
def test_aliases_that_stand_for_too_much_are_refused_at_once(tmp_path, key):
    assert "aliases stand for more than" in _refusal(tmp_path, _with() + _bomb(key))


REFUSED = {
    "a: &a [*a]\n": "an alias refers to a value that contains it",
    f"name: &n {'x' * 60_000}\na: [{', '.join(['*n'] * 20)}]\n": "aliases stand for more than",
    f"seeds: [{', '.join(map(str, range(20_001)))}]\n": "more than 20000 values",
    f"seeds: {'[' * 5000}\n": "nested more than 64 deep",
    f"name: {'x' * (1 << 20)}\n": "more than 1 MiB",
    "name: a\nname: b\n": ":5 is not valid YAML: key 'name' occurs twice",
    "max_seconds: 1:30\n": ":4 is not valid YAML: '1:30' means different things",
    "max_depth: 010\n": "'010' means different things",
    "max_depth: 1_0\n": "'1_0' means different things",
    "trees: yes\n": "'yes' means different things in different versions of YAML: write true",
    "max_depth: !!int '1:30'\n": "means different things",
    "max_seconds: .inf\n": "'.inf' is not a finite number",
    "max_seconds: 1e999\n": "is too large",
    f"budget: {'9' * 400}\n": "more than 64 bits",
    "name: !!python/object/apply:os.system [id]\n": "could not determine a constructor",
    "name: !!binary aGFsbG8=\n": "could not determine a constructor",
    'name: "a\\0b"\n': "a text has a character that no file can have",
    'name: "a\\uD800"\n': "a text has a character that no file can have",
    "? [a]\n: b\n": "a key must be a text or a number",
    "trees: 'no'\n": "trees='no': must be true or false",
    "name: ..\n": "name='..': must be a text of 1 to 100 characters",
    "name: .\n": "which does not begin with '.'",
    "name: a/b\n": "without '/'",
    f"name: {'n' * 101}\n": "of 1 to 100 characters",
    'name: "a\\nb"\n': "name='a\\nb': must be a text",
    f"seeds: [{', '.join(map(str, range(1001)))}]\n": "1001 are too many: give at most 1000",
    "seeds: [[1], [1]]\n": "seeds: [1] must be an integer",
    "budget: 9223372036854775807\n": "budget=9223372036854775807: must be below 2147483648",
    "max_depth: true\n": "max_depth=True: must be an integer",
    f"policy: {'p' * 300}\n": "must be a name or a path",
    f"calibration: {'c/' * 2500}\n": "must be a name or a path",
    "calibration: [1]\n": "calibration=[1]: must be a name or a path",
}


@pytest.mark.parametrize("text", REFUSED, ids=lambda text: text[:24])
def test_a_recipe_that_costs_too_much_or_means_two_things_is_refused(tmp_path, text):
    assert REFUSED[text] in _refusal(tmp_path, _with() + text)


@pytest.mark.parametrize(
    ("questions", "said"),
    [
        ("{world: test, count: 1000000000000}", "gives at most 1000000"),
        ("{world: test, count: 1, seed: false}", "seed=False: must be an integer"),
        ("{file: [a]}", "file=['a']: must be a name or a path"),
    ],
)
def test_a_selection_of_questions_is_bounded(tmp_path, questions, said):
    assert said in _refusal(tmp_path, _with(questions=questions))


def test_scalars_are_those_of_yaml_1_2(tmp_path):
    path = tmp_path / "values.yaml"
    path.write_text(
        "base: &base {a: 1, b: -2.5e-3}\nmerged: {<<: *base, b: 0x1F}\ntimes: [1e3, .5, 0o17, +3]\n"
        "texts: ['yes', 2026-11-26, y, 1.2.3, =, '', '010']\nnulls: [~, null, Null,]\n"
        "truths: [true, False, TRUE]\nempty:\n"
    )
    assert load_yaml(path, "file") == {
        "base": {"a": 1, "b": -0.0025},
        "merged": {"a": 1, "b": 31},
        "times": [1000.0, 0.5, 15, 3],
        "texts": ["yes", "2026-11-26", "y", "1.2.3", "=", "", "010"],
        "nulls": [None, None, None],
        "truths": [True, False, True],
        "empty": None,
    }


@pytest.mark.parametrize(("given", "label"), [(None, "beam"), ("", "beam"), (4, "4"), ("b", "b")])
def test_a_label_is_a_text_or_a_number(given, label):
    assert parse_strategy({"name": "beam", "label": given}).label == label


@pytest.mark.parametrize("given", [["a"], True, {"a": 1}])
def test_other_labels_are_refused(given):
    with pytest.raises(BadInputError, match=r"strategies: label=.*must be a name"):
        parse_strategy({"name": "beam", "label": given})
