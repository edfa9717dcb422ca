"""The command line: help, exit codes, and one line for each kind of bad input."""

import functools
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import types

import jax
import numpy
import pytest
import scripted
from jax.experimental.compilation_cache import compilation_cache
from unfitted_recipes import load_before_fitting
from untrained import untrained

import cats_jax
import learners
from cats_jax import cli, world
from cats_jax.commands import interruption
from cats_jax.compiled_programs import cache_environment, keep_compiled_programs
from cats_jax.controllers import checkpoint
from cats_jax.errors import RunWarning
from cats_jax.evaluation import cluster
from cats_jax.evaluation.evaluate import prepare
from cats_jax.grading.math_grader import Grade, MathGrader
from cats_jax.models import source
from cats_jax.runs.folder import read_run
from cats_jax.specs.recipe import PolicySpec, PrmSpec, load_recipe
from cats_jax.storage.former_names import FormerNameWarning

ROOT = pathlib.Path(__file__).resolve().parents[2]

_RECIPE = """
name: tiny
strategies: [greedy, beam]
num_candidates: [4]
prms: [exact]
questions: {file: QUESTIONS}
max_depth: 6
in_flight: 2
"""


@pytest.fixture
def no_models(monkeypatch):
    """Bad input must be found before any model is loaded."""

    def refuse(self, spec):
        raise AssertionError("a model was loaded")

    monkeypatch.setattr(source.ModelFolders, "policy", refuse)
    monkeypatch.setattr(source.ModelFolders, "prm", refuse)


@pytest.fixture
def recipe(tmp_path):
    """Writes a recipe with some text replaced and its question file; returns the path."""

    def write(old="", new="", questions='{"id": "a", "question": "1+2=?", "answer": "3"}\n'):
        (tmp_path / "q.jsonl").write_text(questions)
        assert old in _RECIPE
        text = _RECIPE.replace(old, new) if old else _RECIPE
        path = tmp_path / "recipe.yaml"
        path.write_text(text.replace("QUESTIONS", str(tmp_path / "q.jsonl")))
        return str(path)

    return write


@pytest.fixture
def scripted_models(monkeypatch):
    monkeypatch.setattr(source, "ModelFolders", scripted.ScriptedModels)


@pytest.fixture
def refused_recipe(capsys, recipe, tmp_path):
    """Evaluates a recipe, which must be refused, into the folder "run"; returns the line."""

    def refuse(*changes, **questions):
        path = recipe(*changes, **questions)
        return _refused(capsys, "evaluate", path, "--output", str(tmp_path / "run"))

    return refuse


def _refused(capsys, *arguments):
    """Runs a command that must end with one line on stderr and code 2; returns the line."""
    assert cli.run(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert line.startswith("cats-jax: ")
    return line


# Help, weight


def test_help(capsys):
    for command in ((), ("demo",), ("solve",), ("evaluate",), ("train",), ("report",)):
        with pytest.raises(SystemExit) as exit_:
            cli.run([*command, "--help"])
        assert exit_.value.code == 0
        assert f"usage: {' '.join(['cats-jax', *command])}" in capsys.readouterr().out


@pytest.mark.parametrize("category", [FormerNameWarning, RunWarning])
def test_a_warning_for_the_user_is_one_line(category):
    line = "strategies: 'factor' is now called 'expansion': rename the key"
    shown = cli._formatted(category(line), category, "recipe.py", 7)
    assert shown == f"cats-jax: warning: {line}\n"
    assert cli._formatted("x", UserWarning, "own.py", 7).startswith("own.py:7: UserWarning: x")


@pytest.mark.parametrize("given", [["--family", "x"], ["--family=x"]])
def test_the_former_name_of_an_option_is_read_with_one_line(given, tmp_path, capsys):
    command = ["sparsity", str(tmp_path)]
    with pytest.warns(FormerNameWarning) as caught:
        assert cli.run([*command, *given]) == 2
    (line,) = [str(warning.message) for warning in caught]
    assert line == "--family is now called --prm-format: rename the option"
    assert "PRM format 'x' is unknown" in capsys.readouterr().err
    for name in ("--prm-format", "--prm_format"):
        assert cli.run([*command, *given, name, "y"]) == 2
        error = "cats-jax: --family is the former name of --prm-format: leave it out\n"
        assert capsys.readouterr().err == error
    with pytest.raises(SystemExit) as exit_:
        cli.run(["theory", *given])
    assert exit_.value.code == 2
    assert "family" in capsys.readouterr().err


def _python(code, **environment):
    """What a new interpreter with these environment variables prints."""
    command = [sys.executable, "-c", code]
    environment = {"PATH": "", **environment}
    return subprocess.check_output(command, cwd=ROOT, env=environment, text=True).strip()


_PRINTS = """
from cats_jax import cli
from cats_jax.commands.terminal import make_console
cli.tyro.extras.subcommand_cli_from_dict = lambda *a, **k: make_console().print('x') or 0
cli.main(['report'])
"""


@pytest.mark.parametrize("arguments", [("-m", "cats_jax.cli", "--version"), ("-c", _PRINTS)])
def test_an_output_that_is_full_is_one_line(arguments):
    """Python's own flush at its end says "Exception ignored", and exits with 120."""
    command = [sys.executable, *arguments]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with open("/dev/full", "wb") as full:
        found = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, env=environment, check=False
        )
    assert found.returncode == 1
    (line,) = found.stderr.splitlines()
    assert "No space left" in line


def test_a_closed_output_is_no_error():
    command = [sys.executable, "-m", "cats_jax.cli", "--version"]
    closed = f"exec {shlex.join(command)} >&-"
    assert subprocess.run(closed, shell=True, check=False).returncode == 0


_MAIN = """
import os, sys, cats_jax.cli as c
print({'torch', 'transformers', 'jax', 'scipy', 'matplotlib'} & set(sys.modules))
def run(arguments):
    print(os.environ['JAX_PLATFORMS'], os.environ['OMP_NUM_THREADS'])
    print('\u2713 gr\u00f6\u00dfe')
c.run = run
c.main([])
"""


@pytest.fixture(scope="module")
def told():
    """What `main` is told by the user's environment: three lines without and with variables."""
    variables = {"JAX_PLATFORMS": "cuda", "PYTHONIOENCODING": "ascii"}
    return [_python(_MAIN, **each).splitlines() for each in ({}, variables)]


def test_the_command_line_is_light(told):
    assert told[0][0] == "set()"


def test_jax_is_told_to_stay_on_the_cpu_unless_the_user_says_otherwise(told):
    assert [lines[1] for lines in told] == ["cpu 1", "cuda 1"]


def test_a_terminal_that_is_not_of_utf8_shows_question_marks(told):
    assert told[1][2] == "? gr??e"


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (
            ImportError("cannot import name 'Cache'\n of it", name="numpy.cache_utils"),
            rf"numpy {numpy.__version__} lacks .*\(cannot import name 'Cache' of it\): install",
        ),
        (
            ModuleNotFoundError("No module named 'invented'", name="invented"),
            r"a package is missing \(No module named 'invented'\): install cats-jax with the extra",
        ),
    ],
)
def test_what_another_release_lacks_is_one_line(monkeypatch, capsys, error, says):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(cli.tyro.extras, "subcommand_cli_from_dict", fail)
    assert cli.run([]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert re.match(f"cats-jax: {says}", line)


def test_compiled_programs_are_kept_in_the_users_own_folder(monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", "/me")
    kept = "JAX_COMPILATION_CACHE_DIR"
    assert cache_environment()[kept] == "/me/.cache/cats-jax/xla"
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert cache_environment()[kept] == "/caches/cats-jax/xla"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("HOME")
    assert cache_environment() == {}


_KEEPS = """
import jax
from cats_jax.compiled_programs import keep_compiled_programs
jax.jit(lambda x: x + 1)(1)  # the process has compiled before its first search
keep_compiled_programs()
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
jax.jit(lambda x: x * 2)(1)
"""


def test_python_callers_keep_programs_there(tmp_path):
    _python(_KEEPS, JAX_PLATFORMS="cpu", XDG_CACHE_HOME=str(tmp_path))
    assert any((tmp_path / "cats-jax" / "xla").glob("*-cache"))


def test_python_callers_keep_programs_there_unless_jax_is_told_otherwise(monkeypatch):
    monkeypatch.setattr(compilation_cache, "reset_cache", lambda: None)
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")

    def kept(**told):
        values = {"jax_compilation_cache_dir": None, "jax_enable_compilation_cache": True, **told}
        config = types.SimpleNamespace(values=values, update=values.__setitem__)
        with monkeypatch.context() as patch:
            patch.setattr(jax, "config", config)
            keep_compiled_programs()
        return values["jax_compilation_cache_dir"] == "/caches/cats-jax/xla"

    assert kept()
    assert not kept(jax_enable_compilation_cache=False)
    assert not kept(jax_compilation_cache_dir="/own")
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "")
    assert not kept()


# Bad input


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("beam]", "beams]", r"'beams': did you mean 'beam'\? known are ab_mcts_a, adaptive_"),
        ("[4]", "[0]", r"num_candidates=0: N must be an integer from 1 to 256$"),
        ("[4]", "[257]", r"num_candidates=257: N must be"),
        ("[4]", "[4.5]", r"num_candidates=4\.5: N must be"),
        ("[4]", "[4, 4]", r"num_candidates: value 4 occurs twice"),
        ("beam]", "{name: beam, beam_width: 5}]", r"K=5 paths kept, but N=4 .* lower the beam w"),
        ("beam]", "{name: beam, depth: 5}]", r"'beam': unknown option 'depth': known are expan"),
        ("beam]", "{name: beam, expansion: 0}]", r"'beam': expansion must be an integer >= 1"),
        ("beam]", "{name: beam, path_score: worst}]", r"'beam': .*worst"),
        ("beam]", "{name: cats, checkpoint: /no/such}]", r"controller folder .* does not exist"),
        ("beam]", "beam, beam]", r"strategies: label 'beam' occurs twice"),
        ("[exact]", "[/no/such]", r"PRM folder '/no/such' does not exist: give a local model"),
        ("[exact]", "[{path: exact, format: best}]", r"PRM format 'best' is unknown: known are"),
        ("[exact]", "[{path: exact, fromat: world}]", r"key 'fromat': did you mean 'format'\?"),
        ("[exact]", "[{path: exact, backend: vlm}]", r"prms, entry 1: backend='vlm': must be hf,"),
        ("[exact]", "[]", r"'beam' reads PRM scores, but the recipe has no PRM: add 'prms'"),
        ("max_depth: 6", "policy: /no/such", r"policy folder '/no/such' does not exist"),
        ("max_depth: 6", "policy: {path: weak, recipe: plain}", r"'recipe': it is now 'format'"),
        ("max_depth: 6", "max_deph: 6", r"'max_deph': did you mean 'max_depth'\? known are"),
        ("max_depth: 6", "max_depth: 0", r"max_depth=0: must be an integer of at least 1"),
        ("max_depth: 6", "policy: {path: weak, max_step_tokens: -3}",
            r"recipe '.*recipe\.yaml': policy: max_step_tokens=-3: must be an integer of at lea"),
        ("max_depth: 6", "seeds: [a]", r"seeds: 'a' must be an integer"),
        ("[greedy, beam]", r'[{name: greedy, label: "\ud83d"}]', r"half of a pair"),
        ("max_depth: 6", "max_depth: [", r"is not valid YAML"),
        ("{file: QUESTIONS}", "{file: /no/such.jsonl}", r"'/no/such\.jsonl' does not exist"),
        ("{file: QUESTIONS}", "{world: tests, count: 3}", r"embedded world: .*tests"),
        ("{file: QUESTIONS}", "{world: test}", r"are endless: give 'count'"),
        ("{file: QUESTIONS}", "{}", r"give 'dataset' .*, 'file' .* or 'world'"),
        ("{file: QUESTIONS}", "[[]]", r"questions, entry 1: must be a mapping with the keys world"),
        ("{file: QUESTIONS}", "math-500", r"data set 'math-500': did you mean 'math500'"),
        ("{file: QUESTIONS}", "{file: QUESTIONS, answer_column: anwser}",
            r"q\.jsonl:1: column 'anwser' is missing: did you mean 'answer'"),
        ("{file: QUESTIONS}", "{file: q.txt}", r"'q\.txt' does not exist"),
        ("{file: QUESTIONS}", "{file: QUESTIONS, start: 99}", r"so start=99 leaves none"),
        ("{file: QUESTIONS}", "{world: test, count: 3, shuffle: 1}", r"have no 'start', 'shuffle'"),
        ("{file: QUESTIONS}", "{world: test, file: QUESTIONS}", r"give 'world' alone"),
        ("{file: QUESTIONS}", "{file: QUESTIONS, split: test}", r"a file has no 'split'"),
        ("{file: QUESTIONS}", "[{file: QUESTIONS}, {file: QUESTIONS, label: b}]",
            r"id .* occurs in"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("no_models")
def test_bad_recipes(refused_recipe, tmp_path, old, new, message):
    line = refused_recipe(old, new)
    assert re.search(message, line), line
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("questions", "message"),
    [
        ("", r"q\.jsonl has no rows: write a question a line"),
        ("\n\n", r"has no rows"),
        ('{"id": 1, "question": "1+2", "answer": 3}\n{"id": 2\n', r"q\.jsonl:2: not a JSON object"),
        ("[1]\n", r"q\.jsonl:1: the line is a list: write one JSON object a line"),
        ("1\n", r"q\.jsonl:1: a row must be a JSON object, got int"),
        ('{"id": 1, "question": "1+2"}\n', r"q\.jsonl:1: column 'answer' is missing"),
        ('{"id": 1, "question": " ", "answer": 3}\n', r"q\.jsonl:1: 'question' must be a text"),
        ('{"id": 1, "question": "x", "answer": null}\n', r"q\.jsonl:1: 'answer' must be a text or"),
        ('{"id": 1, "question": "x", "answer": 3}\n' * 2, r"q\.jsonl:2: id '1' occurs twice"),
        ("\xff\xfe\n", r"q\.jsonl:1: not a JSON object"),
    ],
)
@pytest.mark.usefixtures("no_models")
def test_bad_questions(refused_recipe, questions, message):
    line = refused_recipe(questions=questions)
    assert re.search(message, line), line


@pytest.mark.usefixtures("no_models")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("evaluate", "no-such.yaml"), r"recipe 'no-such\.yaml' does not exist"),
        (("evaluate", "."), r"is a folder: name one of the \.yaml files in it$"),
        (("report",), r"name at least one run folder"),
        (("report", "no-such"), r"'no-such' is no run folder"),
        (("solve", " "), r"question is blank"),
        (("solve", "1+2=?", "--show-dropped", "-1"), r"--show-dropped -1: must be at least 0"),
        (("solve", "1+2=?", "--kv-cache-gib", "nan"), r"kv_cache_gib=nan: must be a finite"),
        (("solve", "what is 1+2?"), r"is not a question of the embedded world .* write one like"),
        (("solve", "(1+2)*3=?", "--strategy", "best"), r"unknown strategy 'best': known are"),
        (("solve", "(1+2)*3=?", "-n", "300"), r"num_candidates=300"),
        (("solve", "(1+2)*3=?", "-n", "4", "--beam-width", "8"), r"K=8 paths kept, but N=4"),
        (("solve", "x", "--policy", "/no/such"), r"policy folder '/no/such' does not exist"),
        (("solve", "(1+2)*3=?", "--prm", "/no/such"), r"PRM folder '/no/such' does not exist"),
        (("solve", "1+\udce9"), r"question is not UTF-8 text"),
        (("solve", "(1+2)*3=?", "--prm-format", "x"), r"PRM format 'x' is unknown"),
        # The PRM's tokenizer is read before the policy is loaded.
        (("solve", "(1+2)*3=?", "--prm-format", "qwen2.5-math-prm"), r"needs '<extra_0>' as one"),
        (("serve", "no-such.yaml"), r"recipe 'no-such\.yaml' does not exist"),
        (("serve", "--host", "0.0.0.0"), r"others can reach it, so the server needs a token"),
        (("serve", "--port", "70000"), r"--port 70000: must be in 0\.\.65535"),
        (("serve", "--in-flight", "0"), r"in_flight=0: must be an integer of at least 1"),
        (("serve", "--max-waiting", "-1"), r"--max-waiting -1: must be at least 0"),
        (("serve", "--grace", "nan"), r"--grace nan: must be a number of seconds"),
        (("serve", "--token-file", "/no/such"), r"--token-file '/no/such' can't be read"),
        (("serve", "--token-file", "/dev/null"), r"must hold one token"),
        (("demo", "--num-candidates", "0"), r"num_candidates=0"),
        (("demo", "--questions", "0"), r"count=0"),
        (("demo", "--prms", "perfect"), r"PRM 'perfect' is not of the embedded world: .*exact"),
        (("demo", "--ray-workers", "2"), r"--ray-workers 2: this process searches"),
        (("evaluate", "x.yaml", "--ray-workers", "2"), r"--ray-workers 2: this process searches"),
        (("demo", "--seed", str(1 << 63)), r"seed=9223372036854775808: must be below 9223"),
        (("theory", "--seed", "-1"), r"seed=-1: must be an integer from 0 to 2147483647"),
        (("train", "--output", "x", "--online", "x", "--seed", "-1"), r"seed=-1: must be an int"),
        (("ablations", "--bank", "x", "--test", "x", "--output", "x", "--seed", "-1"), r"seed=-1"),
        (("train", "--output", "x", "--config", "best"), r"unknown configuration 'best'"),
    ],
)
def test_bad_arguments(capsys, monkeypatch, tmp_path, arguments, message):
    monkeypatch.chdir(tmp_path)
    assert re.search(message, _refused(capsys, *arguments))


@pytest.mark.usefixtures("no_models")
def test_overrides_name_what_is_in_the_recipe(capsys, recipe):
    line = _refused(capsys, "evaluate", recipe(), "--strategies", "majority")
    assert "'majority' is not in the recipe: it has greedy, beam" in line


@pytest.mark.usefixtures("no_models")
@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "max_depth: 6",
            "policy: {path: BARE}",
            "policy format 'plain' does not fit the tokenizer: it has no chat template",
        ),
        (
            "prms: [exact]",
            "prms: [sparse, {path: exact, format: qwen2.5-math-prm}]",
            "PRM format 'qwen2.5-math-prm' needs '<extra_0>' as one token",
        ),
    ],
)
def test_tokenizers_that_do_not_fit_are_refused_before_any_model_is_loaded(
    refused_recipe, tmp_path, old, new, message
):
    bare = shutil.copytree(world.policy_path("weak"), tmp_path / "bare")
    (bare / "chat_template.jinja").unlink()
    assert message in refused_recipe(old, new.replace("BARE", str(bare)))
    assert not (tmp_path / "run").exists()


def test_a_folder_without_a_model_is_refused(tmp_path):
    with pytest.raises(source.BadInputError, match="holds no model: it needs config"):
        source.model_folder(PolicySpec(str(tmp_path)))


@pytest.mark.usefixtures("scripted_models")
def test_a_question_longer_than_the_context_is_named(refused_recipe):
    long = json.dumps({"id": "long", "question": "1+" * 60 + "1", "answer": "61"})
    assert "question 'long' is too long" in refused_recipe(questions=long)


@pytest.mark.slow
def test_a_question_longer_than_the_world_reads_is_refused(refused_recipe):
    text = "(" * 3000 + "1+2" + "=?"
    line = refused_recipe(questions=json.dumps({"id": "long", "question": text, "answer": "3"}))
    assert re.search(r"question 'long', .* 3005 characters, at most 512 are read", line)


@pytest.mark.slow
def test_a_tokenizer_without_the_separator_is_refused(refused_recipe):
    line = refused_recipe("max_depth: 6", 'policy: {path: weak, step_separator: "ZZZ"}')
    assert "contains the step separator 'ZZZ'" in line


# Commands


@pytest.mark.usefixtures("no_models")
def test_dry_run_prints_bounds_and_leaves_nothing(capsys, recipe, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.run(["evaluate", recipe(), "--dry-run"]) == 0
    out = capsys.readouterr().out
    cells = {
        line.split("|")[1].strip(): line.split("|")[2:] for line in out.splitlines() if "|" in line
    }
    # One question, at most 6 steps of 4 candidates, the last step 4 x 2048 tokens.
    row = [cell.strip() for cell in cells["beam N=4 exact seed 0"]]
    assert row[:3] == ["1", "24", f"{20 * 256 + 4 * 2048:,}"]
    assert "greedy N=1 seed 0" in cells
    assert re.search(r"threads \(num_threads\), of \d+ CPUs: policy 'weak' 1, PRM 'exact' 1\n", out)
    assert not (tmp_path / "runs").exists()


@pytest.mark.usefixtures("no_models")
@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("max_depth: 6", "policy: {path: weak, format: qwen}", "did you mean 'qwen2.5'"),
        ("max_depth: 6", "policy: {path: /no/such, format: qwen}", "policy format 'qwen' is unk"),
        ("max_depth: 6", "policy: weka", "policy folder 'weka' .* did you mean 'weak'"),
        ("max_depth: 6", "policy: no_such_module:policy", "cannot import the module 'no_such_mod"),
        ("max_depth: 6", "calibration: weka", "calibration 'weka': .* did you mean 'weak'"),
        ("[exact]", "[{path: /no/such, format: best}]", "PRM format 'best' is unknown"),
        ("[exact]", "[exakt]", "PRM folder 'exakt' .* did you mean 'exact'"),
        ("beam]", "{name: cats, checkpoint: cat}]", "controller folder 'cat' .* mean 'cats'"),
        ("beam]", "{name: cats, checkpoint: BARE}]", "is no checkpoint"),
    ],
)
def test_a_dry_run_refuses_what_no_download_mends(capsys, recipe, tmp_path, old, new, message):
    path = recipe(old, new.replace("BARE", str(tmp_path)))
    line = _refused(capsys, "evaluate", path, "--dry-run")
    assert re.search(message, line), line


@pytest.mark.usefixtures("no_models")
@pytest.mark.parametrize("where", [["--output", "run"], ["--dry-run"]])
def test_questions_that_the_policy_cannot_read_are_refused(capsys, recipe, where):
    rows = '{"id": "b", "question": "Wieviel ist (3+4)+5? 😀", "answer": 12}\n'
    line = _refused(capsys, "evaluate", recipe(questions=rows), *where)
    assert "question 'b', 'Wieviel ist (3+4)+5? 😀', is not a question of the embedded w" in line


@pytest.mark.usefixtures("no_models")
@pytest.mark.parametrize("where", [["--output", "run"], ["--dry-run"]])
def test_a_bank_of_questions_that_the_policy_cannot_read_is_refused(capsys, tmp_path, where):
    (tmp_path / "q.jsonl").write_text('{"id": "b", "question": "Wieviel?", "answer": 12}\n')
    bank = tmp_path / "bank.yaml"
    bank.write_text(
        f"policy: {{path: weak}}\nprms: [exact]\nquestions: {{file: {tmp_path}/q.jsonl}}\n"
        "sampling: [{temperature: 1.0, root_draws: 4}]\n"
    )
    line = _refused(capsys, "bank", str(bank), *where)
    assert "question 'b', 'Wieviel?', is not a question of the embedded world" in line


@pytest.mark.usefixtures("no_models")
@pytest.mark.parametrize("where", [["--output", "run"], ["--dry-run"]])
def test_two_files_without_ids_are_refused_with_a_way_out(capsys, recipe, tmp_path, where):
    (tmp_path / "more.jsonl").write_text('{"question": "4+5=?", "answer": 9}\n')
    two = f"questions: [{{file: QUESTIONS}}, {{file: {tmp_path}/more.jsonl}}]"
    path = recipe("questions: {file: QUESTIONS}", two, '{"question": "1+2=?", "answer": 3}\n')
    line = _refused(capsys, "evaluate", path, *where)
    assert "id '0' occurs in 'q' and in 'more': ids must be unique" in line
    assert "name it by the key id_column" in line


@pytest.mark.usefixtures("no_models")
def test_a_dry_run_notes_what_is_not_there_yet(capsys, recipe):
    changes = (
        ("max_depth: 6", "policy: {path: /no/such, format: qwen2.5}", "policy folder '/no/such'"),
        ("[exact]", "[/no/such]", "PRM folder '/no/such'"),
        ("max_depth: 6", "calibration: /no/such.json", "calibration '/no/such.json'"),
        ("beam]", "{name: cats, checkpoint: runs/cats}]", "controller folder 'runs/cats'"),
    )
    for old, new, message in changes:
        new = new if "cats" not in new else f"{new}\ncalibration: weak"
        assert cli.run(["evaluate", recipe(old, new), "--dry-run"]) == 0
        notes = [line for line in capsys.readouterr().out.splitlines() if line[:9] == "not there"]
        assert len(notes) == 1
        assert message in notes[0]


def test_models_are_looked_at_before_data(refused_recipe, monkeypatch):
    def refuse(specs):
        raise AssertionError("data were loaded")

    monkeypatch.setattr("cats_jax.evaluation.evaluate.load_questions", refuse)
    assert "PRM folder '/no/such' does not exist" in refused_recipe("[exact]", "[/no/such]")


def test_version(capsys):
    assert cli.run(["--version"]) == 0
    assert capsys.readouterr().out == f"cats-jax {cats_jax.__version__}\n"


def _sums(count, name="q", first=0):
    """Questions of the scripted models, in a file."""
    numbers = range(first, first + count)
    rows = [{"id": f"{name}{i}", "question": f"{i}+2+4", "answer": i + 6} for i in numbers]
    return "\n".join(map(json.dumps, rows))


@pytest.mark.usefixtures("scripted_models")
def test_evaluate_certifies_with_a_run_on_other_questions(capsys, recipe, tmp_path):
    other, folder = tmp_path / "other", tmp_path / "run"
    assert cli.run(["evaluate", recipe(questions=_sums(20, "a")), "--output", str(other)]) == 0
    assert "certified" not in capsys.readouterr().out
    command = ["evaluate", recipe(questions=_sums(20, "b", first=20)), "--output", str(folder)]
    assert cli.run([*command, "--held-out", str(other), "--quantile", "0.7"]) == 0
    assert "lead by more than 2 epsilon, quantile 0.7" in capsys.readouterr().out
    line = _refused(capsys, *command, "--held-out", str(other), "--quantile", "2")
    assert "--quantile 2: must be in (0, 1]" in line
    line = _refused(capsys, *command, "--held-out", str(tmp_path / "none"))
    assert "is no run folder" in line


@pytest.mark.usefixtures("scripted_models")
def test_evaluate_and_report(capsys, recipe, tmp_path):
    path, folder = recipe(questions=_sums(4)), tmp_path / "run"
    assert cli.run(["evaluate", path, "--output", str(folder), "--timings"]) == 0
    out = capsys.readouterr().out
    # Plain: no colours, no box characters, a line for each cell.
    assert out.isascii()
    assert "\x1b" not in out
    assert re.search(
        r"\[1/2\] greedy N=1 seed 0: 4/4, accuracy [01]\.\d+, [\d.]+ s, \d+ tokens/s", out
    )
    assert re.search(r"beam +\| +4 +\| exact +\|", out)
    assert "where the time went" in out
    assert f"run folder: {folder}" in out
    names = {path.name for path in folder.iterdir()}
    assert names >= {"manifest.json", "results.jsonl", "trees.jsonl.gz", "summary.json"}
    assert (folder / "accuracy-tokens.png").read_bytes()[:4] == b"\x89PNG"
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["rows"] == 8
    assert [group["questions"] for group in summary["groups"]] == [4, 4]

    # Again: nothing is searched, the same tables are printed.
    assert cli.run(["evaluate", path, "--output", str(folder)]) == 0
    assert "already there" in capsys.readouterr().out
    assert cli.run(["report", str(folder), "--paired"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"greedy +\| +1 +\| - +\|", out)

    # With other settings it is refused.
    line = _refused(capsys, "evaluate", path, "--output", str(folder), "--num-candidates", "8")
    assert "config.num_candidates[0]: 4 -> 8" in line
    line = _refused(capsys, "evaluate", path, "--output", str(folder), "--no-resume")
    assert "has results already" in line


def test_all_questions_of_a_cell_failing_is_a_failed_run(capsys, recipe, tmp_path, monkeypatch):
    broken = functools.partial(scripted.ScriptedModels, breaks_on="a")
    monkeypatch.setattr(source, "ModelFolders", broken)
    path = recipe(questions='{"id": "a", "question": "1+2", "answer": "3"}\n')
    assert cli.run(["evaluate", path, "--output", str(tmp_path / "run")]) == 1
    said = capsys.readouterr().out
    assert re.search(r"every search of beam N=4 failed: question 'a', step 0: NaN", said)


def test_a_run_in_which_every_search_fails_stops_and_names_the_setting(
    capsys, recipe, tmp_path, monkeypatch
):
    wordy = functools.partial(scripted.ScriptedModels, finish="length")
    monkeypatch.setattr(source, "ModelFolders", wordy)
    path, folder = recipe(questions=_sums(30)), tmp_path / "run"
    command = ["evaluate", path, "--in-flight", "8", "--output", str(folder)]
    assert cli.run(command) == 1
    said = capsys.readouterr()
    assert re.fullmatch(
        r"cats-jax: stopped, because every search failed, 20 of them alike: every candidate of "
        r"step 0 is invalid: cut at max_step_tokens .*--keep-going searches the rest .*\n",
        said.err,
    )
    assert len(read_run(folder).rows) == 20
    assert cli.run([*command, "--keep-going"]) == 1
    assert "every search of greedy N=1 failed: every candidate of" in capsys.readouterr().out
    assert len(read_run(folder).rows) == 60
    assert cli.run(["show", str(folder), "--question", "q0"]) == 0
    assert "raise the policy's max_step_tokens" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("how", ["Ctrl-C", "SIGTERM"])
def test_an_interrupted_run_says_how_it_goes_on(capsys, recipe, tmp_path, monkeypatch, how):
    def interrupted():
        if how == "Ctrl-C":
            raise KeyboardInterrupt
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)  # the signal ends it

    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(source, "ModelFolders", interrupted)
    assert cli.run(["evaluate", recipe(), "--output", str(tmp_path / "run")]) == 1
    assert capsys.readouterr().err == (
        "cats-jax: interrupted; what is finished is kept: the same command resumes\n"
    )
    assert signal.getsignal(signal.SIGTERM) is before


def test_sigterm_ends_a_command_as_ctrl_c_does_so_that_no_part_stays(tmp_path, capsys, monkeypatch):
    (tmp_path / "rows").write_text('{"prediction": "1", "answer": "1"}\n')

    def grade(*_):
        assert (tmp_path / "graded.new").exists()
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.1)
        return Grade(True)

    monkeypatch.setattr(MathGrader, "grade", grade)
    command = ["grade", "--input", str(tmp_path / "rows"), "--output", str(tmp_path / "graded")]
    assert cli.run(command) == 1
    assert "interrupted; `grade` keeps nothing unfinished" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["rows"]


class Finalized:
    """Its end is interrupted, which Python ignores."""

    def __del__(self):
        raise KeyboardInterrupt


def test_an_interrupt_that_python_ignores_is_raised_again():
    def work():
        Finalized()
        time.sleep(60)  # the interrupt ends it

    with pytest.raises(KeyboardInterrupt), interruption.interruptible():
        work()


def test_an_interrupt_that_python_ignores_ends_nothing_after_the_command():
    with interruption.interruptible():
        Finalized()
    time.sleep(4 * interruption._SOON)  # SIGTERM would end this process


def test_a_cluster_of_ray_leaves_sigterm_as_it_was():
    def init(**options):
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(number))

    ray = types.SimpleNamespace(init=init, exceptions=types.SimpleNamespace(RayError=OSError))
    with interruption.interruptible():
        before = signal.getsignal(signal.SIGTERM)
        cluster._connect(ray, cluster.LOCAL)
        assert signal.getsignal(signal.SIGTERM) is before


def test_what_does_not_go_on_says_so():
    assert "`solve` keeps nothing unfinished" in interruption.interrupted(["solve", "1+1"])
    # A killed training may leave checkpoints, and a folder that has some is refused.
    assert "another --output" in interruption.interrupted(["train", "--output", "x"])
    assert interruption.resumes(["train", "--online", "recipe.yaml"])
    for command in ("rescore", "ablations"):  # these keep finished rows
        assert "the same command resumes" in interruption.interrupted([command, "x"])


def test_demo_refuses_a_folder_with_results(capsys, tmp_path):
    (tmp_path / "results.jsonl").touch()
    assert "a demo does not resume" in _refused(capsys, "demo", "--output", str(tmp_path))


@pytest.mark.usefixtures("no_models")
@pytest.mark.parametrize("command", ["demo", "evaluate"])
def test_the_options_of_ray_reach_the_runner(recipe, tmp_path, monkeypatch, command):
    given = {}

    class Stop(BaseException):  # not an error, which the command line would report
        pass

    def runner(*arguments, **options):
        given.update(options)
        raise Stop

    monkeypatch.setattr("cats_jax.evaluation.cluster.RayRunner", runner)
    where = ["--output", str(tmp_path / "run"), "--ray", "auto", "--ray-workers", "3"]
    with pytest.raises(Stop):
        cli.run([command, *([recipe()] if command == "evaluate" else []), *where])
    assert given == {"address": "auto", "workers": 3}


@pytest.mark.parametrize("path", sorted((ROOT / "recipes").glob("*.yaml")), ids=lambda p: p.name)
def test_recipes_can_be_run(path):
    assert prepare(load_recipe(path), scripted.ScriptedModels()).cells


def test_recipes_of_the_study_can_be_read():
    """Some name controllers that are trained first, and calibrations that are fitted first."""
    paths = sorted((ROOT / "studies/world/recipes").glob("*.yaml"))
    assert paths
    for path in paths:
        assert load_before_fitting(path).name == f"study-{path.stem}"
        assert f"studies/world/recipes/{path.name}" in path.read_text()


@pytest.mark.usefixtures("no_models")
def test_a_checkpoint_trained_with_other_features_is_refused(capsys, refused_recipe, tmp_path):
    folder = tmp_path / "controller"
    checkpoint.save(folder, untrained(learners.CATS), learners.CATS)
    document = json.loads((folder / "checkpoint.json").read_text())
    document["feature_names"][0] = "colour"
    (folder / "checkpoint.json").write_text(json.dumps(document))
    assert "features" in refused_recipe("beam]", f"{{name: cats, checkpoint: {folder}}}]")
    line = _refused(capsys, "solve", "(1+2)*3=?", "--strategy", "cats", "--checkpoint", str(folder))
    assert "features" in line


def test_the_worlds_names_are_found():
    for name in world.PRM_NAMES:
        assert source.model_folder(PrmSpec(name)).name == name


def test_unknown_arguments_are_code_2():
    with pytest.raises(SystemExit) as exit_:
        cli.run(["solve", "1+2=?", "--no-such-option"])
    assert exit_.value.code == 2
