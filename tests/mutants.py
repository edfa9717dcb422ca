"""Breaks the code in known ways and asks the tests to notice (`make mutants`).

Each mutant is one small edit, applied to a fresh copy of the tree, never to the working tree. The
tests named by a mutant must pass before the edit and fail after it. Exit code 0: all caught;
1: one survived; 2: the list itself is wrong (the text to replace is not there exactly once, or
the tests do not pass unmutated, or pytest did not run them).
"""

import dataclasses
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import rich.console
import rich.table

ROOT = pathlib.Path(__file__).resolve().parents[1]


@dataclasses.dataclass(frozen=True, slots=True)
class Mutant:
    """One way to break the code.

    Attributes:
        name: what is broken, in a few words.
        file: path from the root of the repository.
        original: text that occurs exactly once in that file.
        mutated: what replaces it.
        tests: arguments of pytest that select the tests which must notice.
    """

    name: str
    file: str
    original: str
    mutated: str
    tests: tuple[str, ...]


def _parts(name: str) -> tuple[str, ...]:
    return ("tests/test_search_parts.py", "-k", name)


def _loop(strategy: str) -> tuple[str, ...]:
    return (f"tests/test_search_loop.py::test_graph_host_and_oracle_agree[{strategy}]",)


MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        name="siblings share a seed",
        file="cats_jax/driver.py",
        original="slot.tree.question.id, slot.step, slot.phase, row + offset",
        mutated="slot.tree.question.id, slot.step, slot.phase, row",
        tests=("tests/test_driver.py", "-k", "seeds_differ"),
    ),
    Mutant(
        name="a broken score counts as zero",
        file="cats_jax/driver.py",
        original="if not (math.isfinite(score) and 0.0 <= score <= 1.0):",
        mutated="if not (score <= 1.0 or score != score):",
        tests=("tests/test_driver.py", "-k", "bad_score"),
    ),
    Mutant(
        name="ranks start at one",
        file="search/ranking.py",
        original="ranks = jnp.sum((better | tie) & rival, axis=1, dtype=jnp.int32)",
        mutated="ranks = jnp.sum((better | tie) & rival, axis=1, dtype=jnp.int32) + 1",
        tests=_parts("segment_ranks or retain or prune"),
    ),
    Mutant(
        name="ranking ties go to the higher row",
        file="search/ranking.py",
        original="(rows[None, :] < rows[:, None])",
        mutated="(rows[None, :] > rows[:, None])",
        tests=_parts("segment_ranks or retain or prune"),
    ),
    Mutant(
        name="one candidate over the limit",
        file="search/allocation.py",
        original="jnp.clip(available - served_before, 0, wanted)",
        mutated="jnp.clip(available + 1 - served_before, 0, wanted)",
        tests=_parts("allocate"),
    ),
    Mutant(
        name="allocation ties go to the higher slot",
        file="search/allocation.py",
        original="(rows[None, :] < rows[:, None])",
        mutated="(rows[None, :] > rows[:, None])",
        tests=_parts("allocate"),
    ),
    Mutant(
        name="a path without answer has a vote",
        file="search/selection.py",
        original="voter = valid & (answer >= 0)",
        mutated="voter = valid",
        tests=_parts("votes"),
    ),
    Mutant(
        name="the cost is not normalised by N",
        file="search/reward.py",
        original="cost = num_extra.astype(jnp.float32) / num_candidates.astype(jnp.float32)",
        mutated="cost = num_extra.astype(jnp.float32)",
        tests=_parts("reward"),
    ),
    Mutant(
        name="zeros make products incomparable",
        file="search/aggregation.py",
        original="jnp.maximum(step_scores, smallest)",
        mutated="step_scores",
        tests=_parts("products or tenth or gradient"),
    ),
    Mutant(
        name="the budget does not limit a step",
        file="search/step.py",
        original="jnp.minimum(state.num_candidates - state.used, state.budget - state.spent)",
        mutated="state.num_candidates - state.used",
        tests=_loop("beam"),
    ),
    Mutant(
        name="finished paths take no place",
        file="search/step.py",
        original="free = state.width - count(state.finished)",
        mutated="free = state.width",
        tests=("tests/test_search_loop.py", "-k", "keep_their_places"),
    ),
    Mutant(
        name="the last step is not sampled to its end",
        file="search/step.py",
        original="to_end=frontier.depth >= state.max_depth - 1",
        mutated="to_end=frontier.depth >= state.max_depth",
        tests=_loop("beam"),
    ),
    Mutant(
        name="subtrees of unequal size",
        file="search/step.py",
        original="rows * state.width // state.num_candidates",
        mutated="rows % state.width",
        tests=_loop("dvts"),
    ),
    Mutant(
        name="the discount is not zeroed at the end",
        file="search/step.py",
        original="discount_t=jnp.zeros_like(last_words.reward)",
        mutated="discount_t=jnp.ones_like(last_words.reward)",
        tests=_loop("cats_one_round"),
    ),
    Mutant(
        name="pending decisions stay in their slots",
        file="search/step.py",
        original="inherited = take(pending, frontier.parent)",
        mutated="inherited = pending",
        tests=_loop("cats_one_round"),
    ),
    Mutant(
        name="a closed node decides again",
        file="search/strategy/cats.py",
        original="(num_children(state) > 0) & state.memory.is_open",
        mutated="(num_children(state) > 0)",
        tests=_loop("cats_three_rounds"),
    ),
    Mutant(
        name="a tick after the end changes the state",
        file="search/step.py",
        original="return select(active, after, state), output",
        mutated="return after, output",
        tests=("tests/test_search_invariants.py", "-k", "after_the_end and beam"),
    ),
    Mutant(
        name="the guard against shadowing never runs",
        file="cats_jax/__init__.py",
        original="\n_check_neighbours()\n",
        mutated="\n",
        tests=("tests/test_repository.py", "-k", "guard"),
    ),
    Mutant(
        name="a skipped test passes in CI",
        file="tests/conftest.py",
        original="session.exitstatus = pytest.ExitCode.TESTS_FAILED",
        mutated="pass",
        tests=("tests/test_repository.py", "-k", "skip_fails_in_ci"),
    ),
)


class BrokenListError(Exception):
    """The list of mutants does not fit the tree."""


def main() -> int:
    """Try every mutant, print a table, return the exit code."""
    console = rich.console.Console()
    table = rich.table.Table("mutant", "file", "tests", "result")
    survivors = 0
    try:
        for mutant in MUTANTS:  # all texts first: a wrong one should not cost a test run
            _mutated_text(mutant)
        for tests in dict.fromkeys(mutant.tests for mutant in MUTANTS):
            with console.status(f"unmutated: {' '.join(tests)}"):
                _expect_pass(tests)
        for mutant in MUTANTS:
            with console.status(mutant.name):
                caught = _is_caught(mutant)
            survivors += not caught
            result = "[green]caught[/]" if caught else "[bold red]SURVIVED[/]"
            table.add_row(mutant.name, mutant.file, " ".join(mutant.tests), result)
    except BrokenListError as error:
        console.print(f"[red]error:[/] {error}", highlight=False)
        return 2
    console.print(table)
    console.print(f"{len(MUTANTS) - survivors} of {len(MUTANTS)} mutants caught")
    return 1 if survivors else 0


def _mutated_text(mutant: Mutant) -> str:
    text = (ROOT / mutant.file).read_text(encoding="utf-8")
    count = text.count(mutant.original)
    if count != 1:
        raise BrokenListError(
            f"mutant {mutant.name!r}: its original text occurs {count} times in {mutant.file}, "
            f"not once: {mutant.original!r}"
        )
    return text.replace(mutant.original, mutant.mutated)


def _expect_pass(tests: tuple[str, ...]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run = _pytest(_copy_tree(folder), tests)
    if run.returncode != 0:
        raise BrokenListError(f"{' '.join(tests)} does not pass unmutated:\n{run.stdout[-2000:]}")


def _is_caught(mutant: Mutant) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        tree = _copy_tree(folder)
        (tree / mutant.file).write_text(_mutated_text(mutant), encoding="utf-8")
        run = _pytest(tree, mutant.tests)
    # 1 is "tests ran and some failed". Anything else (no such test, interrupted) proves nothing.
    if run.returncode not in (0, 1):
        raise BrokenListError(
            f"mutant {mutant.name!r}: pytest ended with {run.returncode}:\n{run.stdout[-2000:]}"
        )
    return run.returncode == 1


def _copy_tree(folder: str) -> pathlib.Path:
    ignore = shutil.ignore_patterns(".venv*", ".git", "__pycache__", "_build", ".*_cache", "runs")
    return pathlib.Path(shutil.copytree(ROOT, pathlib.Path(folder) / "tree", ignore=ignore))


def _pytest(tree: pathlib.Path, tests: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    # PYTHONPATH: the copy must win over the working tree, which is installed editable.
    # Derandomised, so that a mutant is caught today because it was caught yesterday.
    env = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1", "CI": "true"}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    return subprocess.run(
        command,
        cwd=tree,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


if __name__ == "__main__":
    sys.exit(main())
