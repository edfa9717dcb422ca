"""The page on the theory says what the code says."""

import pathlib
import re

import theory.checks
import theory.estimators

ROOT = pathlib.Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs/theory/statements.md").read_text()


def test_every_check_is_on_the_page_and_every_name_exists():
    checks = set(theory.checks.CHECKS)
    named = set(re.findall(r"`(?:check_)?([a-z_]+)`", TEXT))
    assert checks <= named, checks - named
    # What looks like a call is a check, or something of `theory` or `theory.estimators`.
    for name in set(re.findall(r"`check_([a-z_]+)`", TEXT)):
        assert name in checks
    notebooks = {path.stem for path in (ROOT / "notebooks").glob("*.ipynb")}
    for name in named - checks - notebooks - {"misranking_", "notebooks"}:
        assert hasattr(theory, name), name
    for name in re.findall(r"`(?:theory\.)?estimators\.([a-z_]+)`", TEXT):
        assert hasattr(theory.estimators, name), name


def test_every_bound_is_on_the_page():
    for name in vars(theory):
        if re.match(r"(misranking|accuracy)_|.*_(bound|budget|coverage)$", name):
            short = name.replace("accuracy_lower_bound", "…")
            assert f"`{name}`" in TEXT or f"`{short}`" in TEXT or f".{name}(" in TEXT, name
