"""Step scores of paths at one place, for `cats-jax quality`.

    python -m studies.real.scores_at_step PATHS.jsonl OUTPUT.jsonl --step 2
    cats-jax quality OUTPUT.jsonl

PATHS.jsonl has sampled paths whose steps are labelled with the outcome of their path. A row of
OUTPUT.jsonl is a path as one step: its label is the outcome, and its scores are those of the given
step. A path with fewer steps, or without scores, is left out. The accuracy of pairs then tells how
well a PRM ranks paths of one question by the score of this step alone.
"""

from __future__ import annotations

import argparse
import json
import pathlib
from typing import Any


def at_step(row: dict[str, Any], step: int) -> dict[str, Any] | None:
    """The row of one path, or None; `step` counts from 1."""
    if "scores" not in row or len(row["steps"]) < step:
        return None
    return {
        "question": row["question"],
        "steps": ["\n\n".join(row["steps"])],
        "labels": row["labels"][:1],
        "scores": {name: [scores[step - 1]] for name, scores in row["scores"].items()},
    }


def main() -> None:
    """Write the rows and print their number."""
    parser = argparse.ArgumentParser(description="Step scores of paths at one place.")
    parser.add_argument("paths", type=pathlib.Path)
    parser.add_argument("output", type=pathlib.Path)
    parser.add_argument("--step", type=int, required=True, help="which step, from 1")
    options = parser.parse_args()
    if options.step < 1:
        parser.error("--step must be at least 1")
    lines = options.paths.read_text(encoding="utf-8").splitlines()
    rows = [row for line in lines if (row := at_step(json.loads(line), options.step))]
    options.output.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    print(f"{len(rows)} of {len(lines)} paths: {options.output}")


if __name__ == "__main__":
    main()
