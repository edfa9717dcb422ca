"""What the documentation shows is run or parsed, and what it links to or names is there.

A block is treated by its language. ```python blocks of a page are executed in one namespace, the
commands of ```sh blocks are parsed without being run, ```yaml blocks are loaded as recipes, the
lines of ```json blocks are rows of JSONL, and the blocks of `_AS_THEY_ARE` are diagrams, outputs or
Sphinx directives. A comment in the line before a block says what else is done with it:

    <!-- run: no (REASON) -->                nothing
    <!-- run: substituted (REASON) -->       python, with `_SUBSTITUTES` in place of hub and GPU
    <!-- run: as part of a recipe -->        yaml, its keys replace those of `_RECIPE`
    <!-- run: as a prompt format -->         yaml, the file of a policy's `format`
    <!-- run: as a PRM format -->            yaml, the file of a PRM's `format`
    <!-- run: as a rewriting -->             yaml, the file of a strategy's `rewriting`
    <!-- run: as a comparison -->            yaml, the file of a strategy's `comparison`

A python block whose first line is a comment with a file's name is also written to that file, so
that a recipe further down the page can name its functions as module:function.
"""

import contextlib
import dataclasses
import functools
import importlib
import importlib.util
import inspect
import itertools
import json
import pathlib
import re
import shlex
import sys
import tomllib
import types
import urllib.parse
from collections.abc import Callable, Iterator
from typing import Any

import huggingface_hub
import jax
import pytest
import tyro
import yaml

import search
from cats_jax import cli, world
from cats_jax.controllers.strategies import build_strategy
from cats_jax.models.prm.family import load_format
from cats_jax.models.prompts.policy_format import choose_format
from cats_jax.models.source import ModelFolders
from cats_jax.protocols import StepGenerator, StepScorer
from cats_jax.specs.comparing import load_comparison
from cats_jax.specs.functions import is_function_name, load_function
from cats_jax.specs.recipe import PolicySpec, PrmSpec, load_recipe
from cats_jax.specs.rewriting import load_rewriting

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PACKAGES = ("cats_jax", "search", "learners", "theory")

_HUB = {
    "Qwen/Qwen2.5-0.5B-Instruct": world.policy_path("weak"),
    "Qwen/Qwen2.5-Math-PRM-7B": world.prm_path("exact"),
}
"""Models of the hub, and the embedded ones that stand for them."""

_SUBSTITUTES = {
    # The embedded PRM is of another family, and reads a path in its own format.
    'prm_format("qwen2.5-math-prm")': 'prm_format("world")',
    '"cuda"': '"cpu"',
    '"bfloat16"': '"float32"',  # several times slower than float32 on a CPU
}
"""What a `substituted` block is run with; each entry must occur in some such block."""

_RECIPE = {
    "policy": "weak",
    "prms": ["exact"],
    "strategies": ["greedy"],
    "num_candidates": [4],
    "questions": {"world": "validation", "count": 2},
}

_AS_THEY_ARE = ("", "bibtex", "{eval-rst}", "{include}", "{toctree}")

_OTHER_COMMANDS = ("git", "cd", "mkdir", "cp", "hf", ".")
"""Commands of others that a block may have; their arguments are not checked."""


@dataclasses.dataclass(frozen=True)
class Block:
    """A fenced block: where it is, its language, what the comment before it says, its text."""

    where: str
    line: int
    language: str
    mark: str
    text: str


def _pages(*more: str) -> list[str]:
    docs = [
        path.relative_to(ROOT).as_posix()
        for path in sorted(DOCS.rglob("*.md"))
        if not {"_build", "tables"} & set(path.relative_to(DOCS).parts)
    ]
    return ["README.md", "recipes/README.md", "studies/world/README.md", *more, *docs]


@functools.cache
def _text(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def _blocks(page: str) -> Iterator[Block]:
    lines = _text(page).splitlines()
    begin, marks = None, set()
    for number, line in enumerate(lines):
        if line.startswith("<!-- run:"):
            marks.add(number)
        if not re.match(r"\s*(```|~~~)", line):
            continue
        where = f"{page}:{number + 1}"
        assert line.startswith("```"), f"{where}: write a fence as ```, at the line's beginning"
        if begin is None:
            begin = number
            continue
        assert line == "```", f"{where}: the block above has no end"
        before = lines[begin - 1] if begin else ""
        found = re.fullmatch(r"<!-- run: (.*) -->", before)
        marks.discard(begin - 1)
        language = lines[begin].removeprefix("```").split(" ")[0]
        mark = found.group(1) if found else ""
        text = "".join(f"{line}\n" for line in lines[begin + 1 : number])
        yield Block(f"{page}:{begin + 1}", begin + 1, language, mark, text)
        begin = None
    assert begin is None, f"{page}: a block has no end"
    assert not marks, f"{page}: no block follows the comments in lines {[m + 1 for m in marks]}"


def _marked_with_reason(block: Block, kind: str) -> bool:
    return re.fullmatch(rf"{kind} \(\S.*\)", block.mark) is not None


# Blocks


_SLOW = {
    "README.md",
    "docs/design/simulator.md",
    "docs/get_started/first_search.md",
    "docs/get_started/quick_start.md",
    "docs/methods/cats.md",
    "docs/own/strategy.md",
}
"""Pages whose blocks take more than a few seconds."""


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=pytest.mark.slow if page in _SLOW else ())
        for page in _pages("CONTRIBUTING.md")
    ],
)
def test_blocks(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda name: str(_HUB[name]))
    before = set(sys.modules)
    # A module of its own, so that classes and dataclasses of the page find where they belong.
    module = types.ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", module)
    try:
        # As a user's JAX is set, which the other tests are not.
        with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
            for block in _blocks(page):
                _run(block, vars(module), tmp_path)
            _check_definitions(page, vars(module))
            # What the text names of a file that the page shows, as `my_package.rebase:rebase`.
            for name in re.findall(r"\b[\w.]+:[a-z]\w*\b", _text(page)):
                if (tmp_path / f"{name.split(':')[0].replace('.', '/')}.py").is_file():
                    load_function(name)
    finally:
        written = {path.stem for path in tmp_path.iterdir()}
        for name in set(sys.modules) - before:
            if name.split(".")[0] in written:
                del sys.modules[name]


def _run(block: Block, names: dict[str, Any], folder: pathlib.Path) -> None:
    if _marked_with_reason(block, "no"):
        return
    if block.language == "python":
        _run_python(block, names, folder)
    elif block.language == "sh":
        assert not block.mark, f"{block.where}: unknown comment {block.mark!r}"
        _check_shell(block)
    elif block.language == "yaml":
        _load_yaml(block, folder)
    elif block.language == "json":
        assert all(isinstance(json.loads(line), dict) for line in block.text.splitlines())
    else:
        assert not block.mark, f"{block.where}: unknown comment {block.mark!r}"
        known = block.language in _AS_THEY_ARE
        assert known, f"{block.where}: a block of the unknown language {block.language!r}"


def _run_python(block: Block, names: dict[str, Any], folder: pathlib.Path) -> None:
    text = block.text
    if _marked_with_reason(block, "substituted"):
        for name, substitute in _SUBSTITUTES.items():
            text = text.replace(name, substitute)
    else:
        assert not block.mark, f"{block.where}: unknown comment {block.mark!r}"
    named = re.match(r"# ([\w/]+\.py)\n", text)
    if named:
        file = folder / named.group(1)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        importlib.invalidate_caches()
    # Lines before the block, so that a traceback has the page's line numbers.
    path = str(ROOT / block.where.split(":")[0])
    exec(compile("\n" * block.line + text, path, "exec"), names)


def test_every_substitute_is_needed():
    blocks = [block for page in _pages() for block in _blocks(page)]
    texts = [block.text for block in blocks if _marked_with_reason(block, "substituted")]
    assert all(any(name in text for text in texts) for name in (*_SUBSTITUTES, *_HUB))


# Commands


def _check_shell(block: Block) -> None:
    text = block.text.replace("\\\n", " ")
    # Loops are written out, from the outermost inwards: their variables are in names of recipes.
    loop = r"^( *)for (\w+) in ([^\n]*); do\n(.*?)^\1done$"

    def rounds(found: re.Match[str]) -> str:
        _, variable, values, body = found.groups()
        return "".join(body.replace(f"${variable}", value) for value in values.split())

    while re.search(loop, text, re.M | re.S):
        text = re.sub(loop, rounds, text, flags=re.M | re.S)
    for line in text.splitlines():
        for command in line.split("&&"):
            words = shlex.split(command, comments=True)
            if words:
                try:
                    _check_command(words)
                except AssertionError as error:
                    raise AssertionError(f"{block.where}: {command.strip()}: {error}") from error


def _check_command(words: list[str]) -> None:
    name, *arguments = words
    if name == "cats-jax":
        _parse_command(arguments)
    elif name == "make":
        makefile = _text("Makefile")
        for argument in arguments:
            variable, assigned, _ = argument.partition("=")
            rule = rf"^{re.escape(variable)} *\?=" if assigned else rf"^{re.escape(argument)}:"
            assert re.search(rule, makefile, re.M), f"the Makefile has no {variable!r}"
    elif name in ("python", ".venv/bin/python"):
        if arguments[0] == "-m":
            assert importlib.util.find_spec(arguments[1]), f"no module {arguments[1]!r}"
        else:
            assert (ROOT / arguments[0]).is_file(), f"no file {arguments[0]!r}"
    elif name == "pip":
        for extra in re.findall(r"\[(.*?)\]", " ".join(arguments)):
            extras = tomllib.loads(_text("pyproject.toml"))["project"]["optional-dependencies"]
            assert set(extra.split(",")) <= set(extras), f"no extra {extra!r}"
    elif "/" in name:
        assert (ROOT / name).is_file(), f"no file {name!r}"
    else:
        assert name in _OTHER_COMMANDS, f"unknown command {name!r}"


def _parse_command(arguments: list[str]) -> None:
    """Parse the arguments as the command line does, and look for the recipes that they name."""
    parsed = []

    def recorded(command: Callable[..., Any]) -> Callable[..., None]:
        return functools.wraps(command)(lambda *args, **kwargs: parsed.append(1))

    commands = {name: recorded(command) for name, command in cli._COMMANDS.items()}
    try:
        tyro.extras.subcommand_cli_from_dict(commands, args=arguments, console_outputs=False)
    except SystemExit as error:
        raise AssertionError("the command line refuses it") from error
    assert parsed
    for argument in arguments:
        if argument.startswith(("recipes/", "studies/")):
            path = ROOT / argument  # or the folder of a step bank
            assert path.is_file() or (path / "manifest.json").is_file(), f"no file {argument!r}"


@pytest.mark.parametrize(
    "line",
    [
        "cats-jax solve",
        "cats-jax evaluate recipes/no-such.yaml",
        "cats-jax evaluate recipes/quick.yaml --no-such-option",
        "cats-jax no-such-command",
        "make no-such-target",
        "make demo NO_SUCH=1",
        "make demo && make no-such-target",
        "python benchmarks/no_such.py",
        "python -m cats_jax.no_such",
        "pip install -e '.[no-such]'",
        "no-such-program",
        "for part in quick no-such; do\ncats-jax evaluate recipes/$part.yaml\ndone",
    ],
)
def test_wrong_commands_are_noticed(line):
    with pytest.raises(AssertionError, match=r"page\.md:1"):
        _check_shell(Block("page.md:1", 1, "sh", "", line + "\n"))


# Recipes and formats


_FILES: dict[str, Callable[[str], object]] = {
    "as a prompt format": lambda file: choose_format(file, ()),
    "as a PRM format": load_format,
    "as a rewriting": load_rewriting,
    "as a comparison": load_comparison,
}
"""Readers of yaml blocks that are no recipes, by the comment before the block."""


def _load_yaml(block: Block, folder: pathlib.Path) -> None:
    file = folder / "block.yaml"
    file.write_text(block.text)
    if block.mark in _FILES:
        _FILES[block.mark](str(file))
        return
    if block.mark == "as part of a recipe":
        file.write_text(yaml.safe_dump({**_RECIPE, **yaml.safe_load(block.text)}))
    else:
        assert not block.mark, f"{block.where}: unknown comment {block.mark!r}"
    recipe = load_recipe(file)
    for spec in recipe.strategies:
        build_strategy(spec)
    # A function of the page's own returns what the protocol asks for.
    if is_function_name(recipe.policy.path) and not recipe.policy.chat:
        ModelFolders().policy(recipe.policy)
    for spec in recipe.prms:
        if is_function_name(spec.path):
            ModelFolders().prm(spec)


# What a page defines passes the contracts of the core


def _check_first_search(names: dict[str, Any]) -> None:
    search.check_expand_fn(names["expand"], 0.7, names["root"], capacity=names["ROWS"])
    # One greedy path of five steps is right with probability 0.7 ** 5 = 0.17.
    assert search.is_terminal(names["state"])
    assert names["accuracy"] > 0.5


def _check_simulator(names: dict[str, Any]) -> None:
    task = names["task"]
    search.check_expand_fn(names["expand_fn"], task.params, task.root, capacity=16)


_EXPAND_FUNCTIONS = {
    ("docs/get_started/first_search.md", "expand"): _check_first_search,
    ("docs/design/simulator.md", "expand_fn"): _check_simulator,
}
"""Checks of expand functions, each with its own parameters, root and capacity."""


def _check_definitions(page: str, names: dict[str, Any]) -> None:
    """Strategies, functions that return one, CATS policies and expand functions of a page."""
    checked = set()
    for name, value in names.items():
        if name.startswith("_") or isinstance(value, types.ModuleType | type):
            continue
        if isinstance(value, search.Strategy):
            search.check_strategy(value)
            continue
        with contextlib.suppress(TypeError, ValueError):  # not callable, or without a signature
            signature = inspect.signature(value)
            arguments = list(signature.parameters)
            returned = signature.return_annotation
            if returned is search.Strategy:
                search.check_strategy(value())
            elif returned in (StepGenerator, StepScorer):
                spec = PolicySpec("own") if returned is StepGenerator else PrmSpec("own")
                assert isinstance(value(spec), returned)
            elif arguments == ["params", "key", "observation"]:
                search.check_strategy(search.cats.cats(value, search.cats.CATS))
            elif len(arguments) == 3 and arguments[2] == "request":
                checked.add((page, name))
    assert checked == {key for key in _EXPAND_FUNCTIONS if key[0] == page}
    for key in checked:
        _EXPAND_FUNCTIONS[key](names)


# Links


_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def _prose(text: str) -> str:
    """The text without blocks and code in a line."""
    return re.sub(r"`[^`\n]*`", "", re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S))


def _anchors(text: str) -> set[str]:
    """The anchors of a page's headings, as GitHub and myst-parser make them."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)
    headings = re.findall(r"^#+ (.*)$", text, re.M)
    slugs = [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]
    return set(slugs)


@pytest.mark.parametrize(
    "page",
    _pages("CONTRIBUTING.md", "CHANGELOG.md", "notebooks/README.md", "benchmarks/README.md"),
)
def test_links(page):
    broken = []
    for link in _LINK.findall(_prose(_text(page))):
        target = urllib.parse.urlsplit(link)
        if target.scheme:
            continue
        path = (ROOT / page).parent / target.path if target.path else ROOT / page
        found = path.resolve().is_relative_to(ROOT) and path.exists()
        if found and target.fragment:
            found = target.fragment in _anchors(path.read_text(encoding="utf-8"))
        if not found:
            broken.append(link)
    assert not broken


# The page on the architecture


ARCHITECTURE = "docs/design/architecture.md"


def _tables(first_column: str) -> list[list[list[str]]]:
    """The rows of each of the page's tables whose first column has this heading."""
    tables = []
    for after in _text(ARCHITECTURE).split(f"\n| {first_column} |")[1:]:
        lines = itertools.takewhile(lambda line: line.startswith("|"), after.splitlines()[2:])
        tables.append([[cell.strip() for cell in line.strip("|").split("|")] for line in lines])
    assert tables
    assert all(tables)
    return tables


def _resolve(name: str) -> Any:
    """What a dotted name stands for: a module, or something in one.

    Raises:
        AttributeError: there is no such thing.
    """
    parts = name.split(".")
    value = importlib.import_module(parts[0])
    for depth, part in enumerate(parts[1:], 2):
        if not hasattr(value, part) and isinstance(value, types.ModuleType):
            with contextlib.suppress(ModuleNotFoundError):
                importlib.import_module(".".join(parts[:depth]))
        fields = getattr(value, "__dataclass_fields__", {})
        value = fields[part] if part in fields else getattr(value, part)
    return value


@pytest.mark.parametrize(
    "row",
    [row for table in _tables("X") for row in table],
    ids=lambda row: row[0].replace("`", ""),
)
def test_what_decides_is_there(row):
    names = re.findall(r"`([^`]+)`", row[1])
    assert names
    for name in names:
        if name.split(".")[0] not in PACKAGES:
            # A short name is a field of the strategy.
            name = f"search.Strategy.{name.removeprefix('Strategy.')}"
        _resolve(name)


def test_every_package_is_in_the_table():
    packages = [row[0] for row in _tables("package")[0] if "`" in row[0]]
    assert [name.strip("`") for name in packages] == ["search", "learners", "theory", "cats_jax"]
    text = _text(ARCHITECTURE)
    listed = text.split("imports point down this list only:")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (`.*?`) \|", listed, re.M)
    contracts = tomllib.loads(_text("pyproject.toml"))["tool"]["importlinter"]["contracts"]
    (layers,) = (each["layers"] for each in contracts if each.get("containers") == ["cats_jax"])
    assert [name for row in rows for name in re.findall(r"`(\w+)`", row)] == layers
