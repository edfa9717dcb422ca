"""The list of mutants fits the code; `make mutants` runs it."""

import importlib.util
import pathlib
import shlex

ROOT = pathlib.Path(__file__).resolve().parents[2]


def _mutants():
    spec = importlib.util.spec_from_file_location("mutants", ROOT / "tests/mutants.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_mutant_changes_one_place_and_names_tests_that_are_there():
    mutants, names = _mutants(), set()
    for mutant in mutants.MUTANTS:
        assert mutant.name not in names, mutant.name
        names.add(mutant.name)
        assert mutants.mutated_text(mutant)  # raises if the code to replace is not there once
        assert mutant.mutated != mutant.original, mutant.name
        tests = shlex.split(mutant.tests)
        files = [test.partition("::")[0] for test in tests if test.startswith("tests/")]
        assert files, mutant.name
        assert all((ROOT / file).is_file() for file in files), mutant.name
