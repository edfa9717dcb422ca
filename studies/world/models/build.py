"""Builds the embedded world from scratch: ``python -m studies.world.models.build``.

The build is a chain of stages, each a folder of its own below ``--work``. A stage whose folder was
made from the same recipe, seed and inputs is not run again, so an interrupted build resumes, and
``--stage`` runs a part of it (two processes can share the work). With the same seed the files are
the same, except for the seconds of the full build; ``--quick`` notes none. The full build takes two
to three hours on two cores.

Stages: policy-weak, policy-strong; paths, paths-strong (each policy on ``prm`` questions, labelled
exactly); rollouts (Monte-Carlo labels for some of the weak policy's); pool-weak, pool-strong (both
policies on ``validation`` questions); base; prm-NAME; measure-NAME. At last everything is put
together and replaces the output folder.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import pathlib
import random
import shutil
import time
from collections.abc import Callable, Sequence

import transformers
from transformers import Qwen2ForCausalLM

from cats_jax import world
from cats_jax.world import task, tokenizer

from . import labels, measure, policies, prms, recipe, sampling, training

_DONE = "stage.json"  # written last; holds the fingerprint of what the stage was made from
_MODEL = "model"
_PATHS = "paths.jsonl"
_PATHS_OF = {"weak": "paths", "strong": "paths-strong"}  # stages, by policy


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m studies.world.models.build",
        description="Builds the embedded world from scratch.",
    )
    parser.add_argument("--quick", action="store_true", help="a toy of the same shape, in a minute")
    parser.add_argument("--seed", type=int, default=0, help="seed of all stages (default: 0)")
    parser.add_argument(
        "--output", type=pathlib.Path, default=world.ASSETS, help="folder to make or replace"
    )
    parser.add_argument(
        "--work",
        type=pathlib.Path,
        help="folder of finished stages; kept if given (default: OUTPUT.work, removed at the end)",
    )
    parser.add_argument("--stage", help="run this stage and what it needs, then stop; needs --work")
    options = parser.parse_args(arguments)
    if options.stage and not options.work:
        parser.error("--stage needs --work: the folder in which the stage's result is kept")
    transformers.utils.logging.disable_progress_bar()
    work = options.work or options.output.with_name(options.output.name + ".work")
    build = Build(recipe.QUICK if options.quick else recipe.FULL, options.seed, work)
    if options.stage:
        if options.stage not in build.stages:
            parser.error(f"unknown stage {options.stage!r}; known: {', '.join(build.stages)}")
        build.need(options.stage)
        return
    build.assemble(options.output)
    if not options.work:
        shutil.rmtree(work)


@dataclasses.dataclass(frozen=True)
class Stage:
    """One stage of the build: the stages that it reads, and what in the recipe it depends on.

    `run` writes the stage's files into a folder, and returns its notes.
    """

    inputs: tuple[str, ...]
    settings: object
    run: Callable[[pathlib.Path], dict]


class Build:
    """All stages of one recipe and seed, with their results below `work`."""

    def __init__(self, numbers: recipe.WorldSettings, seed: int, work: pathlib.Path):
        training.use_one_thread()
        self._recipe = numbers
        self._seed = seed
        self._work = work
        self.stages = self._stages()

    # --- The chain -----------------------------------------------------------------------------

    def _stages(self) -> dict[str, Stage]:
        numbers = self._recipe
        stages: dict[str, Stage] = {}
        for name, policy in numbers.policies.items():
            stages[f"policy-{name}"] = Stage((), policy, lambda path, n=name: self._policy(path, n))
        for name in numbers.num_path_questions:
            settings: object = (numbers.num_path_questions[name], numbers.paths_per_question[name])
            stages[_PATHS_OF[name]] = Stage(
                (f"policy-{name}",), settings, lambda path, n=name: self._paths(path, n)
            )
        settings = (numbers.num_monte_carlo_paths, numbers.num_rollouts)
        stages["rollouts"] = Stage(("policy-weak", "paths"), settings, self._rollouts)
        for name, count in numbers.samples_per_question.items():
            settings = (numbers.num_questions, count)
            stages[f"pool-{name}"] = Stage(
                (f"policy-{name}",), settings, lambda path, n=name: self._pool(path, n)
            )
        settings = (numbers.base, numbers.num_curve_questions, numbers.samples_per_curve_question)
        stages["base"] = Stage(("policy-strong", "policy-weak", "paths"), settings, self._base)
        for name, prm in numbers.prms.items():
            stages[f"prm-{name}"] = Stage(
                (_start(prm), *_labels(prm)), prm, lambda path, n=name: self._prm(path, n)
            )
            stages[f"measure-{name}"] = Stage(
                (f"prm-{name}", "pool-weak", "pool-strong"),
                numbers.num_scored_samples,
                lambda path, n=name: self._measure(path, n),
            )
        return stages

    def need(self, name: str) -> pathlib.Path:
        """The folder of a stage, made now unless it is there."""
        stage = self.stages[name]
        for needed in stage.inputs:
            self.need(needed)
        folder = self._work / name
        fingerprint = self._fingerprint(name)
        done = folder / _DONE
        if done.is_file() and json.loads(done.read_text())["fingerprint"] == fingerprint:
            return folder
        self._log(f"stage {name}")
        partial = self._work / f"{name}.partial"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        start = time.monotonic()
        notes = stage.run(partial)
        seconds = round(time.monotonic() - start)
        _write_json(
            partial / _DONE, {"fingerprint": fingerprint, "seconds": seconds, "notes": notes}
        )
        shutil.rmtree(folder, ignore_errors=True)
        partial.rename(folder)
        self._log(f"stage {name}: {seconds} s")
        return folder

    def _fingerprint(self, name: str) -> str:
        stage = self.stages[name]
        inputs = [self._fingerprint(needed) for needed in stage.inputs]
        made_from = repr((name, self._seed, stage.settings, inputs))
        return hashlib.sha256(made_from.encode()).hexdigest()[:16]

    def _notes(self, name: str) -> dict:
        return json.loads((self.need(name) / _DONE).read_text())

    def _seed_of(self, name: str) -> int:
        return recipe.stage_seed(self._seed, name)

    def _log(self, line: str) -> None:
        print(f"[{time.strftime('%H:%M:%S')}] {line}", flush=True)

    # --- The stages ----------------------------------------------------------------------------

    def _policy(self, folder: pathlib.Path, name: str) -> dict:
        model, notes = policies.train_policy(
            self._recipe.policies[name], self._seed_of(f"policy-{name}"), self._log
        )
        model.save_pretrained(folder / _MODEL)
        return {"losses": notes}

    def _paths(self, folder: pathlib.Path, name: str) -> dict:
        num_questions = self._recipe.num_path_questions[name]
        per_question = self._recipe.paths_per_question[name]
        model = training.load_model(self.need(f"policy-{name}") / _MODEL)
        seed = self._seed_of(_PATHS_OF[name])
        problems = task.problems("prm", num_questions, seed)
        samples = sampling.sample_paths(
            model, [problem.text for problem in problems], per_question, seed
        )
        paths = labels.label_paths(problems, samples)
        # In random order, so that the first ones are of many questions.
        random.Random(seed).shuffle(paths)
        dropped = num_questions * per_question - len(paths)
        if name == "strong":
            paths = labels.as_many_right_as_wrong(paths)
        labels.save_paths(paths, folder / _PATHS)
        return {"paths": len(paths), "dropped": dropped}

    def _rollouts(self, folder: pathlib.Path) -> dict:
        numbers = self._recipe
        paths = labels.add_monte_carlo(
            training.load_model(self.need("policy-weak") / _MODEL),
            labels.load_paths(self.need("paths") / _PATHS)[: numbers.num_monte_carlo_paths],
            numbers.num_rollouts,
            self._seed_of("rollouts"),
        )
        labels.save_paths(paths, folder / _PATHS)
        agree = [
            exact == estimate
            for path in paths
            for exact, estimate in zip(path.exact, path.monte_carlo, strict=True)
        ]
        share = round(sum(agree) / max(1, len(agree)), 4)
        return {"paths": len(paths), "steps": len(agree), "agrees_with_exact": share}

    def _pool(self, folder: pathlib.Path, name: str) -> dict:
        model = training.load_model(self.need(f"policy-{name}") / _MODEL)
        problems = self._validation_problems()
        samples = sampling.sample_paths(
            model,
            [problem.text for problem in problems],
            self._recipe.samples_per_question[name],
            self._seed_of(f"pool-{name}"),
        )
        rows = [[[list(sample.steps), sample.complete] for sample in drawn] for drawn in samples]
        (folder / "samples.json").write_text(json.dumps(rows))
        return measure.policy_figures(problems, samples)

    def _base(self, folder: pathlib.Path) -> dict:
        numbers = self._recipe
        problems = self._validation_problems()[: numbers.num_curve_questions]
        samples = sampling.sample_paths(
            training.load_model(self.need("policy-weak") / _MODEL),
            [problem.text for problem in problems],
            numbers.samples_per_curve_question,
            self._seed_of("curve"),
        )
        nodes = measure.siblings(labels.label_paths(problems, samples))
        model, notes = prms.train_base(
            training.load_model(self.need("policy-strong") / _MODEL),
            labels.load_paths(self.need("paths") / _PATHS),
            numbers.base,
            self._seed_of("base"),
            nodes,
            self._log,
        )
        model.save_pretrained(folder / _MODEL)
        return notes

    def _prm(self, folder: pathlib.Path, name: str) -> dict:
        numbers = self._recipe.prms[name]
        model, notes = prms.train_prm(
            training.load_model(self.need(_start(numbers)) / _MODEL),
            [labels.load_paths(self.need(stage) / _PATHS) for stage in _labels(numbers)],
            numbers,
            self._seed_of(f"prm-{name}"),
            name,
            self._log,
        )
        model.save_pretrained(folder / _MODEL)
        return notes

    def _measure(self, folder: pathlib.Path, name: str) -> dict:
        del folder  # all there is are notes
        model = training.load_model(self.need(f"prm-{name}") / _MODEL)
        problems, samples = self._validation_problems(), self._samples("weak")
        figures = measure.sparsity(model)
        figures |= self._pair_figures(model, "weak")
        figures["strong"] = self._pair_figures(model, "strong")
        drawn_of = [
            [(problem, sample) for sample in drawn[: self._recipe.num_scored_samples]]
            for problem, drawn in zip(problems, samples, strict=True)
        ]
        paths = [
            (problem.text, sample.steps)
            for drawn in drawn_of
            for problem, sample in drawn
            if sample.complete
        ]
        scores = dict(zip(paths, measure.score_paths(model, paths), strict=True))
        exact = {path: task.check_steps(*path) for path in scores}
        figures |= measure.step_figures(
            [scores[path] for path in paths], [exact[path] for path in paths]
        )
        figures["best_of_n"] = measure.best_of_n(
            [[measure.is_correct(*pair) for pair in drawn] for drawn in drawn_of],
            [[scores.get((problem.text, s.steps)) for problem, s in drawn] for drawn in drawn_of],
        )
        return figures

    def _pair_figures(self, model: Qwen2ForCausalLM, policy: str) -> dict:
        """How the PRM ranks siblings that a policy sampled."""
        paths = labels.label_paths(self._validation_problems(), self._samples(policy))
        return measure.pair_figures(model, measure.siblings(paths))

    def _validation_problems(self) -> list[task.Problem]:
        return task.problems("validation", self._recipe.num_questions)

    def _samples(self, policy: str) -> list[list[sampling.Sample]]:
        rows = json.loads((self.need(f"pool-{policy}") / "samples.json").read_text())
        return [
            [sampling.Sample(tuple(steps), complete) for steps, complete in drawn] for drawn in rows
        ]

    # --- The result ----------------------------------------------------------------------------

    def assemble(self, output: pathlib.Path) -> None:
        """Makes what is missing, then replaces `output` by the finished assets in one move."""
        for name in self.stages:
            self.need(name)
        new = output.with_name(output.name + ".new")
        shutil.rmtree(new, ignore_errors=True)
        manifest = {
            "command": self._command(),
            "seed": self._seed,
            "questions": "validation",
            "policies": {
                name: self._write_policy(new / "policies" / name, name)
                for name in self._recipe.policies
            },
            **{
                stage: self._timed(stage, self._notes(stage)["notes"])
                for stage in (*_PATHS_OF.values(), "rollouts")
            },
            "base": self._base_info(),
            "prms": {
                name: self._write_prm(new / "prms" / name, name) for name in self._recipe.prms
            },
        }
        _write_json(new / "world.json", manifest)
        old = output.with_name(output.name + ".old")
        shutil.rmtree(old, ignore_errors=True)
        if output.exists():
            output.rename(old)
        output.parent.mkdir(parents=True, exist_ok=True)
        new.rename(output)
        shutil.rmtree(old, ignore_errors=True)
        self._log(f"the embedded world is in {output}")

    def _write_policy(self, folder: pathlib.Path, name: str) -> dict:
        stage = f"policy-{name}"
        model = training.load_model(self.need(stage) / _MODEL)
        info = {
            "kind": "policy",
            "name": name,
            "parameters": model.num_parameters(),
            "figures": self._notes(f"pool-{name}")["notes"],
            "losses": self._notes(stage)["notes"]["losses"],
            "recipe": dataclasses.asdict(self._recipe.policies[name]),
            "seed": self._seed_of(stage),
        }
        return self._write_model(folder, stage, self._timed(stage, info))

    def _write_prm(self, folder: pathlib.Path, name: str) -> dict:
        stage = f"prm-{name}"
        numbers = self._recipe.prms[name]
        info = {
            "kind": "prm",
            "name": name,
            **self._notes(f"measure-{name}")["notes"],
            "losses": self._notes(stage)["notes"]["losses"],
            "recipe": dataclasses.asdict(numbers),
            "seed": self._seed_of(stage),
        }
        if numbers.start == "base":
            info["base"] = self._base_info()
        written = self._write_model(folder, stage, self._timed(stage, info))
        return {key: value for key, value in written.items() if key != "base"}

    def _base_info(self) -> dict:
        info = {**self._notes("base")["notes"], "recipe": dataclasses.asdict(self._recipe.base)}
        if self._is_quick:
            info["curve"] = [{**point, "seconds": None} for point in info["curve"]]
        return self._timed("base", info)

    def _write_model(self, folder: pathlib.Path, stage: str, info: dict) -> dict:
        shutil.copytree(self.need(stage) / _MODEL, folder)
        tokenizer.build_tokenizer().save_pretrained(folder)
        _write_json(folder / "info.json", info)
        return info

    def _timed(self, stage: str, info: dict) -> dict:
        """`info` with the seconds of the stage; a toy notes none and is the same file each time."""
        return {**info, "seconds": None if self._is_quick else self._notes(stage)["seconds"]}

    @property
    def _is_quick(self) -> bool:
        return self._recipe is recipe.QUICK

    def _command(self) -> str:
        quick = " --quick" if self._is_quick else ""
        return f"python -m studies.world.models.build{quick} --seed {self._seed}"


def _start(numbers: prms.PrmRecipe) -> str:
    """The stage whose model a PRM starts from."""
    return {"base": "base", "weak": "policy-weak"}.get(numbers.start, f"prm-{numbers.start}")


def _labels(numbers: prms.PrmRecipe) -> tuple[str, ...]:
    """The stages whose labelled paths a PRM learns from."""
    if numbers.labels == "monte-carlo":
        return ("rollouts",)
    return tuple(_PATHS_OF[name] for name in numbers.policies)


def _write_json(file: pathlib.Path, value: object) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(value, indent=1) + "\n")


if __name__ == "__main__":
    main()
