"""The page `docs/get_started/quick_start.md` carried out: its recipe and its commands."""

import pathlib
import re
import shlex

import pytest

from cats_jax import cli

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/get_started/quick_start.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_page_is_carried_out(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (recipe,) = blocks("yaml")
    assert "count: 50" in recipe
    pathlib.Path("first.yaml").write_text(recipe.replace("count: 50", "count: 5"))
    lines = "\n".join(blocks("sh")).splitlines()
    commands = [shlex.split(line)[1:] for line in lines if line.startswith("cats-jax ")]
    names = [command[0] for command in commands]
    assert names == ["solve", "evaluate", "evaluate", "report", "show", "page"]
    for command in commands:
        assert cli.run(command) == 0, (command, capsys.readouterr())
    # 1 greedy and 2 majority votes without a PRM, 3 strategies with two PRMs and two N.
    assert len(pathlib.Path("runs/first/results.jsonl").read_text().splitlines()) == 5 * (3 + 12)
    assert list(pathlib.Path().rglob("*.html"))
