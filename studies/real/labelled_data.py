"""The labelled steps of the study as a file for each data set, and GSM8K without their questions.

    python -m studies.real.labelled_data STEPS.jsonl FOLDER --questions GSM8K.jsonl

STEPS.jsonl has rows with the keys `data`, `question`, `steps` and `labels`, such as those of
docs/results/prm_quality.md. FOLDER gets DATA.jsonl for each value of `data`, and
gsm8k_unlabelled.jsonl: the rows of GSM8K.jsonl whose question is in no row of STEPS.jsonl, so that
a PRM trained on the steps can be tested on them.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import re
from collections import defaultdict
from typing import Any


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


def main() -> None:
    """Write the files and print how many rows each has."""
    parser = argparse.ArgumentParser(description="Split labelled steps, and leave them out.")
    parser.add_argument("steps", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--questions", type=pathlib.Path, required=True)
    options = parser.parse_args()
    data = by_data(options.steps)
    known = {characters(row["question"]) for rows in data.values() for row in rows}
    questions = options.questions.read_text(encoding="utf-8").splitlines()
    unlabelled = [
        row for row in map(json.loads, questions) if characters(row["question"]) not in known
    ]
    options.folder.mkdir(parents=True, exist_ok=True)
    for name, rows in {**data, "gsm8k_unlabelled": unlabelled}.items():
        target = options.folder / f"{name}.jsonl"
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        target.write_text(text, encoding="utf-8")
        print(f"{target}: {len(rows)} rows")


if __name__ == "__main__":
    main()
