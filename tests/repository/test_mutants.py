"""The list of mutants fits the code; `make mutants` runs it."""

import importlib.util
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]


def _mutants():
    spec = importlib.util.spec_from_file_location("mutants", ROOT / "tests/mutants.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.MUTANTS


def test_every_mutant_changes_one_place_and_names_tests_that_are_there():
    names = set()
    for mutant in _mutants():
        assert mutant.name not in names, mutant.name
        names.add(mutant.name)
        assert (ROOT / mutant.file).read_text().count(mutant.original) == 1, mutant.name
        assert mutant.mutated != mutant.original, mutant.name
        files = [test.partition("::")[0] for test in mutant.tests if test.startswith("tests/")]
        assert files, mutant.name
        assert all((ROOT / file).is_file() for file in files), mutant.name
