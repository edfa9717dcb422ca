"""Recipes that name functions are code: nothing of it runs in a dry run, or where it is refused."""

import sys

import pytest
from made_runs import manifest, row

from cats_jax import cli
from cats_jax.errors import BadInputError
from cats_jax.runs.folder import RunWriter
from cats_jax.specs.functions import AT_ENDPOINTS, load_function, locate_function

_RECIPE = """
strategies: [{{name: "{module}:searches", label: mine, command: x}}]
policy: "{module}:policy"
prms: [{{path: "{module}:prm", label: judge}}]
num_candidates: [2]
questions: {{world: test, count: 1}}
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A module that leaves a file when it is imported."""
    package = tmp_path / "mine"
    package.mkdir()
    code = f"open({str(tmp_path / 'ran')!r}, 'w').close()\n"
    (package / "__init__.py").write_text(code)
    (package / "parts.py").write_text(f"{code}prm = 1\ndef searches(): ...\ndef policy(): ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield "mine.parts"
    for name in ("mine", "mine.parts"):
        sys.modules.pop(name, None)


@pytest.fixture
def recipe(tmp_path, module):
    path = tmp_path / "recipe.yaml"
    path.write_text(_RECIPE.format(module=module))
    return path


def test_a_dry_run_names_the_files_of_functions_and_runs_none_of_them(tmp_path, recipe, capsys):
    assert cli.run(["evaluate", str(recipe), "--dry-run"]) == 0
    output = capsys.readouterr().out
    file = tmp_path / "mine" / "parts.py"
    for what, name in (
        ("strategy 'mine'", "searches"),
        ("policy", "policy"),
        ("PRM 'judge'", "prm"),
    ):
        assert f"{what} is code: mine.parts:{name} of {file}\n" in output
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("command", ["evaluate", "bank", "serve", "collect", "train"])
def test_functions_are_refused_where_code_is_not_wanted(
    tmp_path, recipe, capsys, monkeypatch, command
):
    monkeypatch.chdir(tmp_path)
    if command == "bank":
        text = recipe.read_text().replace("num_candidates: [2]", "max_depth: 3")
        lines = [line for line in text.splitlines() if not line.startswith("strategies")]
        sampling = "sampling: [{temperature: 1.0, root_draws: 4}]"
        recipe.write_text("\n".join([*lines, sampling]))
    where = [] if command == "serve" else ["--output", "out"]
    named = ["--online", str(recipe)] if command == "train" else [str(recipe)]
    assert cli.run([command, *named, "--no-functions", *where]) == 2
    assert "is a function, and --no-functions refuses code" in capsys.readouterr().err
    assert not (tmp_path / "ran").exists()
    assert not (tmp_path / "out").exists()


def test_a_run_folder_makes_no_function_run(tmp_path, module, capsys):
    strategies = [(f"{module}:searches", "beam")]
    with RunWriter(tmp_path / "run", manifest(strategies=strategies)) as writer:
        writer.add(row("beam", status="failed", answer=None, correct=False), None)
    command = ["rescore", str(tmp_path / "run"), "--vote", "best"]
    assert cli.run(command) == 2
    assert "it is the function mine.parts:searches: --functions runs it" in capsys.readouterr().err
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("mine.parts:serches", "has no function 'serches': did you mean 'searches'?"),
        ("mine.nothing:x", r"cannot import the module 'mine.nothing' \(no such module\)"),
        ("mine.parts.deeper:x", "no such module"),
        ("no_such_package:x", "no such module"),
    ],
)
def test_what_is_not_there_is_found_without_its_code(tmp_path, module, name, said):
    with pytest.raises(BadInputError, match=said):
        locate_function(name)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("folders", [("deeper",), ("deeper", "still")])
def test_a_folder_without_init_is_a_part_of_its_package(tmp_path, module, folders):
    folder = tmp_path.joinpath("mine", *folders)
    folder.mkdir(parents=True)
    (folder / "own.py").write_text("def searches(): ...\n")
    name = ".".join(["mine", *folders, "own"])
    assert locate_function(f"{name}:searches") == str(folder / "own.py")
    with pytest.raises(BadInputError, match="no such module"):
        locate_function(f"{name}s:searches")
    assert not (tmp_path / "ran").exists()


def test_functions_that_no_file_defines_are_located():
    assert locate_function("sys:exit")
    assert locate_function("os:system")  # taken from another module by a star


def test_a_module_that_fails_when_it_is_imported_is_one_line(tmp_path, module):
    (tmp_path / "mine" / "parts.py").write_text("1 / 0\n")
    with pytest.raises(BadInputError, match=r"the module 'mine.parts' \(division by"):
        load_function("mine.parts:searches")


def test_the_names_in_earlier_manifests_stay():
    assert AT_ENDPOINTS == (
        "cats_jax.models.serving.chat:chat_policy",
        "cats_jax.models.chat_judge:chat_judge",
    )
    assert all(callable(load_function(name)) for name in AT_ENDPOINTS)
