"""The repository itself: layout, direction and weight of imports, public names, the wheel."""

import ast
import importlib
import inspect
import os
import pathlib
import pkgutil
import re
import resource
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile

import jax.numpy as jnp
import jaxtyping
import pytest
import yaml

import cats_jax
import search

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGES = ("cats_jax", "search", "learners", "theory")


def _files() -> list[pathlib.Path]:
    """What git tracks or would track; outside a checkout, what is not obviously a by-product."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listing.returncode == 0 and listing.stdout:
        paths = [ROOT / name for name in listing.stdout.split("\0") if name]
    else:
        by_products = {"__pycache__", "_build", "build", "dist"}
        paths = []
        for folder, folders, names in os.walk(ROOT):
            folders[:] = [
                name
                for name in folders
                if name == ".ci" or not (name.startswith(".") or name in by_products)
                if pathlib.Path(folder, name) != ROOT / "runs"
            ]
            paths += [pathlib.Path(folder) / name for name in names]
    return [path for path in paths if path.is_file()]


def _python(code: str, **kwargs) -> subprocess.CompletedProcess[str]:
    kwargs.setdefault("cwd", ROOT)
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, **kwargs
    )


# Layout


def test_the_citations_have_the_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    (version,) = re.findall(r"version = \{(.*)\}", (ROOT / "README.md").read_text())
    assert citation["version"] == version == cats_jax.__version__
    # What the format asks for: https://github.com/citation-file-format/citation-file-format
    assert {"cff-version", "message", "title", "authors"} <= set(citation)
    assert all(set(author) <= {"name"} and author["name"] for author in citation["authors"])


def test_ci_is_executable():
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


def test_tests_are_no_packages():
    # tests/search/__init__.py would be imported instead of search.
    assert not list((ROOT / "tests").rglob("__init__.py"))


def test_no_test_module_imports_another():
    tests = sorted((ROOT / "tests").rglob("test_*.py"))
    names = {path.stem for path in tests}
    importers = [
        str(path.relative_to(ROOT))
        for path in tests
        if any(set(name.split(".")[:1]) & names for name in _imported_names(path))
    ]
    assert tests
    assert not importers


def test_no_module_is_a_drawer_for_the_rest():
    drawers = {"utils", "util", "common", "helpers", "misc"}
    assert not [
        path
        for path in _files()
        if path.suffix == ".py" and drawers & {path.stem, path.parent.name}
    ]


def test_no_path_of_one_machine():
    # Written in pieces, so that this file passes its own test.
    folders = "|".join(["root", "home", "Users", "work", "opt", "mnt", "var/folders"])
    machine_path = re.compile(r"(?<![\w.\-~})])/(?:" + folders + r")/\w")
    found = []
    for path in _files():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:  # model files and plots
            continue
        for number, line in enumerate(text.splitlines(), 1):
            if machine_path.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:120]}")
    assert not found, "\n".join(found)


def test_every_package_is_marked_as_typed():
    assert all((ROOT / package / "py.typed").exists() for package in PACKAGES)


# Imports. Their direction is checked by import-linter (`make lint`).


def _imported_names(path: pathlib.Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def test_only_networks_knows_nnx():
    users = {
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        if "flax" in path.read_text(encoding="utf-8")
        and any(re.match(r"flax\.(nnx|linen)\b", name) for name in _imported_names(path))
    }
    assert users <= {"learners/networks.py"}


def test_search_brings_only_jax_flax_struct_chex_jaxtyping():
    found = _python(
        "import sys, jax, flax.struct, chex, jaxtyping; base = set(sys.modules); import search; "
        "print(*set(sys.modules) - base)"
    )
    assert found.returncode == 0, found.stderr
    extra = set(found.stdout.split())
    assert "search" in extra
    # More of jax or of the standard library is no further dependency; more of flax would be.
    allowed = {"search", "jax", "jaxlib"} | set(sys.stdlib_module_names)
    assert not {name for name in extra if name.split(".")[0] not in allowed}


@pytest.mark.slow
def test_search_imports_in_less_than_twice_the_time_of_jax():
    # Of the processor: what else runs on the machine takes none of it.
    def spent() -> float:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    def seconds(code: str) -> float:
        start = spent()
        assert _python(code).returncode == 0
        return spent() - start

    # The best of several: a core that two processes share is slower.
    runs = [(seconds("import jax"), seconds("import search")) for _ in range(5)]
    jax_seconds, search_seconds = (min(column) for column in zip(*runs, strict=True))
    assert search_seconds < 2 * jax_seconds


def test_cats_jax_imports_neither_torch_nor_jax():
    code = "import cats_jax, sys; print({'torch', 'transformers', 'jax'} & set(sys.modules))"
    assert _python(code).stdout.strip() == "set()"


# The guard against other modules named like ours


@pytest.mark.parametrize("name", ["search", "learners", "theory"])
@pytest.mark.parametrize("form", ["module", "package"])
def test_guard_names_the_shadowing_file(tmp_path, name, form):
    if form == "module":
        shadow = tmp_path / f"{name}.py"
    else:
        shadow = tmp_path / name / "__init__.py"
        shadow.parent.mkdir()
    shadow.write_text("")
    # cats_jax comes from PYTHONPATH, behind the working directory, as it does when installed.
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    result = _python("import cats_jax", cwd=tmp_path, env=env)
    assert result.returncode != 0
    last_line = result.stderr.strip().splitlines()[-1]
    assert last_line.startswith(f"ImportError: `{name}` resolves to")
    assert str(shadow) in last_line
    assert "Rename that file" in last_line


@pytest.mark.parametrize("name", ["search", "learners", "theory"])
def test_guard_tells_a_package_that_was_installed_over_ours(tmp_path, name):
    for package in ("search", "learners", "theory", "cats_jax"):
        (tmp_path / package).mkdir()
        for file in ("__init__.py", "version.py"):
            if (ROOT / package / file).exists():
                shutil.copy(ROOT / package / file, tmp_path / package)
    code, env = "import cats_jax", {**os.environ, "PYTHONPATH": str(tmp_path)}
    assert _python(code, cwd=tmp_path, env=env).returncode == 0
    (tmp_path / name / "__init__.py").write_text('"""Another package."""')
    last_line = _python(code, cwd=tmp_path, env=env).stderr.strip().splitlines()[-1]
    assert last_line.startswith(f"ImportError: `{name}` in '{tmp_path}' belongs to another")
    assert "Uninstall that distribution" in last_line


def test_the_sibling_packages_are_attributes():
    siblings = [getattr(cats_jax, name) for name in ("learners", "search", "theory")]
    assert [module.__name__ for module in siblings] == ["learners", "search", "theory"]


# Public names


@pytest.mark.parametrize("package", PACKAGES)
def test_public_names_resolve_and_are_documented(package):
    module = importlib.import_module(package)
    assert module.__doc__
    undocumented = []
    for name in dir(module):
        value = getattr(module, name)
        if name.startswith("_") or inspect.ismodule(value):
            continue
        kinds = (inspect.isroutine, inspect.isclass)
        # A jitted function is none of these but wraps one. Constants can't carry a docstring.
        if not (any(kind(value) for kind in kinds) or hasattr(value, "__wrapped__")):
            continue
        doc = (value.__doc__ or "").strip()
        # Dataclasses and named tuples without a docstring get "Name(field, ...)".
        if not doc or doc.startswith(f"{name}("):
            undocumented.append(name)
    assert not undocumented


def test_search_has_the_names_of_a_search_loop_and_subjects():
    modules = {name for name in dir(search) if inspect.ismodule(getattr(search, name))}
    names = {name for name in dir(search) if not name.startswith("_")} - modules
    assert names == {
        *("Calibration", "Context", "Environment", "ExpandFn", "Expansion", "Paths", "Plan"),
        *("Recorder", "Request", "Sampling", "SearchState", "StepOutput", "Strategy", "Task"),
        *("Tick", "answer", "beam", "best_of_n", "check_expand_fn", "check_strategy", "commit"),
        *("greedy", "init", "is_terminal", "majority", "plan", "play", "request", "rollout"),
        *("share_of_candidates", "tick", "tick_keys"),
    }


def test_no_name_of_search_hides_a_module():
    for found in pkgutil.iter_modules(search.__path__):
        assert importlib.import_module(f"search.{found.name}") is getattr(search, found.name)


@pytest.mark.parametrize("package", ["search.cats", "search.answers", "search.state", "learners"])
def test_constants_are_in_the_documentation(package):
    # autodoc finds functions and classes by itself, and constants only in the module they are in.
    page = (ROOT / "docs" / "api" / f"{package.split('.')[0]}.md").read_text(encoding="utf-8")
    module = importlib.import_module(package)
    public = {name for name in dir(module) if name.isupper() and not name.startswith("_")}
    constants = {name for name in public if not inspect.isclass(getattr(module, name))}
    assert constants
    assert [name for name in sorted(constants) if f".{name}\n" not in page] == []


def test_an_unknown_name_is_an_attribute_error():
    module = importlib.import_module("cats_jax")
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = module.no_such_name


# What every test runs under


def test_annotations_are_enforced():
    two, three = jnp.zeros(2, jnp.int32), jnp.zeros(3)
    with pytest.raises(jaxtyping.TypeCheckError):
        search.ranking.segment_ranks(three, two, three > 0)


def test_jax_is_strict():
    with pytest.raises(ValueError, match="rank_promotion"):
        jnp.add(jnp.zeros(2), jnp.zeros((1, 2)))
    with pytest.raises(ValueError, match="promotion path"):
        jnp.add(jnp.zeros(2), jnp.zeros(2, jnp.int32))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ci", "mark", "workers", "code"),
    [
        ("true", "", "0", 1),
        ("true", "", "1", 1),
        ("true", "@pytest.mark.gpu", "1", 0),
        ("", "", "0", 0),
    ],
    ids=["in CI", "in CI, worker", "gpu in CI, worker", "elsewhere"],
)
def test_a_skip_fails_in_ci(tmp_path, ci, mark, workers, code):
    shutil.copy(ROOT / "tests" / "conftest.py", tmp_path)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "test_it.py").write_text(
        "import pytest\n"
        f"{mark}\n"
        "def test_skipped(): pytest.skip('no engine here')\n"
        "@pytest.mark.xfail(strict=True)\n"
        "def test_expected_failure(): assert False\n"
        "def test_passed(): pass\n"
    )
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-n", workers, "test_it.py"],
        cwd=tmp_path,
        env={**os.environ, "CI": ci},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == code, result.stdout
    assert ("test_it.py::test_skipped: Skipped: no engine here" in result.stdout) == (code == 1)
    assert "1 passed, 1 skipped, 1 xfailed" in result.stdout


def test_slow_tests_are_in_the_files_that_name_their_mark():
    """`make test-slow` looks for the mark in test files, so no other file may hand it on."""
    for path in (ROOT / "tests").rglob("*.py"):
        text = path.read_text()
        marks = re.findall(r"(\w+)\.(?:slow|emitters)\b", text)
        assert set(marks) <= {"mark"}, path
        assert not marks or path.name.startswith("test_"), path
        assert path == pathlib.Path(__file__) or "add_marker" not in text, path


# The wheel


_PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
_OFFLINE = ["--no-deps", "--no-index"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [*_PIP, "wheel", *_OFFLINE, "--no-build-isolation", "--wheel-dir", str(folder), str(ROOT)],
        check=True,
    )
    (wheel,) = folder.glob("cats_jax-*.whl")
    return wheel


@pytest.mark.slow
def test_wheel_holds_the_packages(wheel):
    # Every file of the packages is in it, the world's model files included, and nothing else.
    with zipfile.ZipFile(wheel) as archive:
        inside = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert {name.split("/")[0] for name in inside} == set(PACKAGES)
    # What makes the world and the published results stays in the repository.
    folders = {folder for name in inside for folder in name.split("/")[:-1]}
    assert not folders & {"studies", "study", "world_build"}
    tree = {str(path.relative_to(ROOT)) for path in _files()}
    assert inside == {name for name in tree if name.split("/")[0] in PACKAGES}


@pytest.mark.slow
@pytest.mark.timeout(900)  # installs all dependencies
def test_wheel_runs_in_an_environment_without_the_checkout(wheel, tmp_path):
    """All that commands read is in the wheel: an empty folder has no recipes and no packages."""
    environment, here = tmp_path / "environment", tmp_path / "empty"
    here.mkdir()
    venv.create(environment, symlinks=True)
    python = environment / "bin" / "python"
    # As the Makefile does: uv, and pip where uv finds no packages.
    options = ("-c", ROOT / "constraints.txt", f"{wheel}[hf]")
    uv = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", python, *options]
    if subprocess.run(uv, check=False).returncode:
        subprocess.run([*_PIP, "--python", python, "install", "--no-compile", *options], check=True)
    site = sysconfig.get_path("purelib", vars={"base": environment})
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def run(*arguments: object, code: int = 0) -> str:
        result = subprocess.run(
            [str(argument) for argument in arguments],
            cwd=here,
            env=variables,
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.returncode == code, result.stdout + result.stderr
        return result.stdout + result.stderr

    origins = f"import {', '.join(PACKAGES)}; print({', '.join(f'{p}.__file__' for p in PACKAGES)})"
    assert all(name.startswith(str(site)) for name in run(python, "-c", origins).split())
    command = environment / "bin" / "cats-jax"
    assert run(command, "--version").startswith("cats-jax ")
    demo = ("demo", "--questions", "5", "--num-candidates", "4", "--output", "run")
    assert "One search: cats, N = 4" in run(command, *demo)
    assert "5 of 5 questions" in run(command, "show", "run")
    assert "status: answered" in run(command, "solve", "((50*4)-21)+15=?", "-n", "4")
    assert "usage: cats-jax ablations" in run(command, "ablations", "--help")
    folders = ("--output", "a", "--bank", "b", "--test", "c")
    assert "known are additions, discount" in run(command, "ablations", "none", *folders, code=2)
