"""The labelled steps as a file for each data set, and test sets without their questions.

    python -m studies.real.labelled_data STEPS.jsonl FOLDER --questions GSM8K.jsonl [MATH500.jsonl]

STEPS.jsonl has rows with the keys `data`, `question`, `steps` and `labels`, such as those of
docs/results/prm_quality.md. FOLDER gets DATA.jsonl for each value of `data`. It also gets
gsm8k_unlabelled.jsonl and math500_unlabelled.jsonl: the rows of the two files of questions whose
`question` (or `problem`) is in no row of STEPS.jsonl, as tests of a PRM that the steps train.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import re
from collections import defaultdict
from typing import Any

_UNLABELLED = ("gsm8k_unlabelled", "math500_unlabelled")


def characters(question: str) -> str:
    """The letters and digits of a question: the files differ in spaces and punctuation."""
    return re.sub(r"[\W_]", "", question.lower())


def by_data(file: pathlib.Path) -> dict[str, list[dict[str, Any]]]:
    """The labelled rows of a file, grouped by data set."""
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for line in file.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        found[row["data"]].append({name: row[name] for name in ("question", "steps", "labels")})
    return found


def _without(file: pathlib.Path, known: set[str]) -> list[dict[str, Any]]:
    """The rows of a file whose questions are not known."""
    rows = map(json.loads, file.read_text(encoding="utf-8").splitlines())
    return [row for row in rows if characters(row.get("question") or row["problem"]) not in known]


def main() -> None:
    """Write the files and print how many rows each has."""
    parser = argparse.ArgumentParser(description="Split labelled steps, and leave them out.")
    parser.add_argument("steps", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--questions", type=pathlib.Path, nargs="+", required=True)
    options = parser.parse_args()
    data = by_data(options.steps)
    known = {characters(row["question"]) for rows in data.values() for row in rows}
    if len(options.questions) > len(_UNLABELLED):
        parser.error("--questions: give GSM8K's file, and MATH-500's after it")
    unlabelled = {
        name: _without(file, known)
        for name, file in zip(_UNLABELLED, options.questions, strict=False)
    }
    options.folder.mkdir(parents=True, exist_ok=True)
    for name, rows in {**data, **unlabelled}.items():
        target = options.folder / f"{name}.jsonl"
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        target.write_text(text, encoding="utf-8")
        print(f"{target}: {len(rows)} rows")


if __name__ == "__main__":
    main()
