"""Rows that share paths are, cost included, the rows of runs of their own."""

import dataclasses
import json
import os
import shutil
import time

import pytest
import scripted
import scripted_engine
from made_runs import contents
from tiny_models import save_model

from cats_jax.evaluation import evaluate
from cats_jax.evaluation.cells import grid
from cats_jax.models.source import ModelFolders
from cats_jax.protocols import StepRequest
from cats_jax.runs.folder import PATHS, RESULTS
from cats_jax.specs.recipe import parse_recipe
from cats_jax.storage import durable

_WHOLE = ["majority", "best_of_n", "best_of_n_weighted"]
_TWO = _WHOLE[:2]


def _recipe(**changes):
    content = {
        "name": "shared",
        "strategies": _WHOLE,
        "num_candidates": [2, 4],
        "prms": ["exact", "sparse"],
        "questions": {"world": "validation", "count": 3},
        "policy": {"path": "weak", "max_step_tokens": 32, "max_answer_tokens": 64},
        "max_depth": 6,
        "in_flight": 2,
    }
    return parse_recipe({**content, **changes})


class _Counting:
    """A `ModelSource` that counts what its models were asked."""

    def __init__(self, source):
        self.source = source
        self.samples = []
        self.scored = []

    def fingerprint(self, spec):
        return self.source.fingerprint(spec)

    def footprint(self, spec, work):
        return self.source.footprint(spec, work)

    def check(self, spec):
        self.source.check(spec)

    def policy(self, spec):
        policy = self.source.policy(spec)
        generate = policy.generate

        def counted(requests):
            for request in requests:
                path = tuple(step.token_ids for step in request.path)
                self.samples += [(request.question.id, path, seed) for seed in request.seeds]
            return generate(requests)

        policy.generate = counted
        return policy

    def prm(self, spec):
        prm = self.source.prm(spec)
        score = prm.score

        def counted(questions, paths):
            self.scored.append(spec.label)
            return score(questions, paths)

        prm.score = counted
        return prm


def _run(folder, recipe, models, questions=None, observers=()):
    evaluation = evaluate.prepare(recipe, models, questions)
    return evaluate.evaluate(evaluation, models, folder, observers=observers)[0]


def _alone(folder, recipe, models, questions=None):
    """Each cell in a run of its own, with models of its own."""
    rows = {}
    for index, cell in enumerate(grid(recipe)):
        one = dataclasses.replace(
            recipe,
            strategies=(cell.spec,),
            num_candidates=(cell.num_candidates,),
            prms=() if cell.prm is None else (cell.prm,),
            seeds=(cell.seed,),
        )
        rows |= contents(_run(folder / str(index), one, models, questions))
    return rows


@pytest.mark.slow
def test_rows_equal_those_of_runs_of_their_own(tmp_path):
    """On the embedded world, whose samples often have the same history."""
    recipe, models = _recipe(num_candidates=[2, 7]), _Counting(ModelFolders())
    shared = contents(_run(tmp_path / "shared", recipe, models))
    assert len(models.samples) == len(set(models.samples))
    assert shared == _alone(tmp_path, recipe, ModelFolders())
    assert len(shared) == 2 * (1 + 2 * 2) * 3


@pytest.mark.slow
def test_rows_of_a_model_whose_samples_differ_at_once(tmp_path):
    """Also with other sampling parameters, which have a pool of their own, and two seeds."""
    path = save_model(tmp_path / "model")
    hot = {"name": "majority", "label": "hot", "sampling": {"temperature": 1.5, "top_p": 0.9}}
    recipe = _recipe(
        policy={"path": str(path), "max_step_tokens": 8, "max_answer_tokens": 8},
        strategies=["majority", hot, "best_of_n"],
        num_candidates=[5, 16],
        prms=["exact"],
        seeds=[0, 1],
        max_depth=3,
    )
    models = _Counting(ModelFolders())
    shared = contents(_run(tmp_path / "shared", recipe, models))
    assert shared == _alone(tmp_path, recipe, ModelFolders())


def _of_the_largest(run):
    """Number of samples in the pool: the candidates of the largest majority vote."""
    largest = [r for r in run.rows if r.strategy == "majority" and r.num_candidates == 4]
    return sum(row.ledger.candidates for row in largest)


def test_every_path_is_sampled_once_and_scored_once_by_each_prm(tmp_path):
    models = _Counting(scripted.ScriptedModels())
    recipe = _recipe(prms=["good", "bad"])
    run = _run(tmp_path / "run", recipe, models, scripted.question_set(4))
    assert len(models.samples) == _of_the_largest(run)
    calls = max(row.ledger.prm_calls for row in run.rows)
    # At least one question a call, four questions, nothing after the first cell of a PRM.
    assert models.scored.count("good") == models.scored.count("bad") <= 4 * calls
    assert all(row.ledger.prm_calls for row in run.rows if row.prm)


def test_a_pool_that_was_cut_short_is_not_shared(tmp_path):
    """A row that hits its limit of tokens leaves the others to themselves."""
    questions = scripted.question_set(6)
    recipe = _recipe(prms=["good"], strategies=_TWO, max_tokens=30)
    models = scripted.ScriptedModels()
    shared = contents(_run(tmp_path / "shared", recipe, models, questions))
    statuses = {(r["strategy"], r["num_candidates"], r["status"]) for r, *_ in shared.values()}
    assert {(name, 4, "max_tokens") for name in _TWO} <= statuses
    assert {(name, 2, "answered") for name in _TWO} <= statuses
    assert shared == _alone(tmp_path, recipe, models, questions)


def test_what_one_prm_cannot_read_is_read_by_the_others(tmp_path):
    """Paths that one PRM refused end early, and are sampled anew for the others."""
    questions = scripted.question_set(6)
    # Without a strategy that needs no PRM, which would sample all paths to their ends.
    recipe = _recipe(prms=["short", "good"], strategies=["best_of_n"])
    models = _Counting(scripted.ScriptedModels())
    run = _run(tmp_path / "shared", recipe, models, questions)
    sampled, stored = 0, set()
    # As they were searched: of each PRM, the largest N first.
    for row in sorted(run.rows, key=lambda row: (row.prm == "good", -row.num_candidates)):
        sampled += row.ledger.candidates * (row.question not in stored)
        if row.prm == "good":
            assert not row.ledger.prm_refused
        if not row.ledger.prm_refused and row.num_candidates == 4:
            stored.add(row.question)
    assert any(row.ledger.prm_refused for row in run.rows)
    assert len(models.samples) == sampled
    assert contents(run) == _alone(tmp_path, recipe, models, questions)


@pytest.mark.parametrize("limit", [{"budget": 12}, {"max_seconds": 100.0}])
def test_runs_with_a_budget_or_a_clock_share_nothing(tmp_path, limit):
    questions = scripted.question_set(4)
    recipe = _recipe(prms=["good"], strategies=_TWO, **limit)
    models = _Counting(scripted.ScriptedModels())
    shared = contents(_run(tmp_path / "shared", recipe, models, questions))
    assert len(models.samples) == sum(r["ledger"]["candidates"] for r, *_ in shared.values())
    assert shared == _alone(tmp_path, recipe, scripted.ScriptedModels(), questions)


class _Interrupt:
    def __init__(self, after):
        self.after = after

    def begin_cell(self, title, total, rows):
        pass

    def row(self, title, row):
        self.after -= 1
        if self.after == 0:
            raise KeyboardInterrupt


_TWO_PRMS = _recipe(prms=["good", "bad"], strategies=_TWO)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The rows of four questions from runs of their own."""
    folder = tmp_path_factory.mktemp("alone")
    return _alone(folder, _TWO_PRMS, scripted.ScriptedModels(), scripted.question_set(4))


def _interrupted(folder, after=12):
    """A run of four questions, stopped after some rows.

    The first four are those of majority at N = 4, and the third four of best-of-N with one PRM.
    """
    questions, models = scripted.question_set(4), scripted.ScriptedModels(delay=0.01)
    with pytest.raises(KeyboardInterrupt):
        _run(folder, _TWO_PRMS, models, questions, observers=[_Interrupt(after)])
    return questions


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """The folder of such a run, which tests copy."""
    folder = tmp_path_factory.mktemp("stopped") / "run"
    _interrupted(folder)
    return folder


@pytest.mark.parametrize("after", [2, 4, 12, 14])
def test_a_resumed_run_samples_and_scores_nothing_again(tmp_path, alone, after):
    """Its rows are the same, wherever it was interrupted."""
    folder = tmp_path / "run"
    questions = _interrupted(folder, after)
    models = _Counting(scripted.ScriptedModels(delay=0.01))
    run = _run(folder, _TWO_PRMS, models, questions)
    assert bool(models.samples) == (after < 4)
    assert ("good" in models.scored) == (after < 12)
    assert contents(run) == alone
    seconds = {row.key: row.ledger.policy_seconds for row in run.rows}
    for i in range(4):
        first = seconds[f"majority|4|-|0|q{i}"]
        assert seconds[f"best_of_n|4|bad|0|q{i}"] == pytest.approx(first)
    assert not (folder / PATHS).exists()


def test_paths_are_on_the_disk_before_the_rows_that_share_them(tmp_path, monkeypatch):
    """A power cut keeps what was synced, and of anything else maybe nothing."""
    folder = tmp_path / "run"
    fsync, write, synced, named, checked = os.fsync, os.write, {}, [], []

    def keep(descriptor):
        fsync(descriptor)
        synced[os.fstat(descriptor).st_ino] = os.fstat(descriptor).st_size
        if os.path.samestat(os.fstat(descriptor), os.stat(folder)):
            named.append((folder / PATHS).exists())

    def check(descriptor, data):
        if os.path.samestat(os.fstat(descriptor), os.stat(folder / RESULTS)):
            paths, inode = (folder / PATHS).read_bytes(), (folder / PATHS).stat().st_ino
            lines = map(json.loads, paths[: synced.get(inode, 0)].splitlines())
            stored = {(line["prm"], line["question"]) for line in lines}
            rows = [json.loads(line) for line in bytes(data).splitlines()]
            checked.extend(any(named) and (row["prm"], row["question"]) in stored for row in rows)
        return write(descriptor, data)

    monkeypatch.setattr(os, "fsync", keep)
    monkeypatch.setattr(os, "write", check)
    _interrupted(folder)
    assert len(checked) == 12
    assert all(checked)


def test_paths_are_kept_until_the_last_row_is_on_the_disk(tmp_path, monkeypatch):
    """Also where the disk is slower than the searches."""
    paths, append, kept = tmp_path / "run" / PATHS, durable.append, []

    def slow(descriptor, data):
        time.sleep(0.2)
        kept.append(paths.exists())
        append(descriptor, data)

    monkeypatch.setattr(durable, "append", slow)
    recipe = _recipe(num_candidates=[4], prms=["good"], strategies=_TWO)
    _run(tmp_path / "run", recipe, scripted.ScriptedModels(), scripted.question_set(2))
    assert kept
    assert all(kept)
    assert not paths.exists()


@pytest.mark.parametrize("damage", ["torn", "zeros", "foreign", "folder"])
def test_a_damaged_store_is_sampled_again(tmp_path, stopped, alone, damage):
    folder = shutil.copytree(stopped, tmp_path / "run")
    path = folder / PATHS
    content = path.read_bytes()
    if damage == "folder":  # a file that can't be opened
        path.unlink()
        path.mkdir()
    else:
        middle = len(content) // 2
        zeros = content[:middle] + bytes(99) + content[middle + 99 :]
        foreign = b'{"kind": "candidate"}\n' * 9
        path.write_bytes({"torn": content[:middle], "zeros": zeros, "foreign": foreign}[damage])
    models = _Counting(scripted.ScriptedModels())
    run = _run(folder, _TWO_PRMS, models, scripted.question_set(4))
    assert models.samples or damage == "zeros"
    assert contents(run) == alone
    assert not path.is_file()


def test_a_folder_without_rows_has_no_paths_of_another_run(tmp_path, stopped):
    folder = shutil.copytree(stopped, tmp_path / "run")
    (folder / RESULTS).unlink()
    models = _Counting(scripted.ScriptedModels())
    run = _run(folder, _TWO_PRMS, models, scripted.question_set(4))
    assert len(models.samples) == _of_the_largest(run)


def test_a_broken_prm_fails_its_question_in_every_row(tmp_path):
    questions = scripted.question_set(4)
    recipe = _recipe(prms=["good"], strategies=_TWO)
    models = scripted.ScriptedModels(breaks_on="q2")
    run = _run(tmp_path / "run", recipe, models, questions)
    failed = [row.key for row in run.rows if row.status == "failed"]
    assert len(failed) == 2
    assert {row.question for row in run.rows if row.status == "failed"} == {"q2"}
    whole = contents(_run(tmp_path / "whole", recipe, scripted.ScriptedModels(), questions))
    for key, (row, *_) in contents(run).items():
        assert row["answer"] == (None if key in failed else whole[key][0]["answer"])


def test_seconds_are_those_of_the_sampling_that_is_shared(tmp_path):
    models = scripted.ScriptedModels(delay=0.02)
    recipe = _recipe(prms=["good"], strategies=_TWO)
    run = _run(tmp_path / "run", recipe, models, scripted.question_set(4))
    by_key = {row.key: row.ledger.policy_seconds for row in run.rows}
    for i in range(4):
        most = by_key[f"majority|4|-|0|q{i}"]
        assert 0 < by_key[f"majority|2|-|0|q{i}"] < most
        assert by_key[f"best_of_n|4|good|0|q{i}"] == pytest.approx(most)


def test_usage_by_sample_adds_up_and_a_prefix_costs_the_same(tmp_path):
    """Of the first samples alone, and of all in one call with others."""
    policy = ModelFolders().policy(_recipe().policy)
    question, other = evaluate.load_questions(_recipe().questions).questions[:2]

    def ask(which, count):
        return StepRequest(which, (), tuple(range(count)), 0.8, 1.0, 0, False)

    fresh = policy.generate([ask(other, 3), ask(question, 12)])
    assert fresh.sample_usage is not None
    whole = fresh.sample_usage[1]
    assert sum(u.computed for u in whole) == fresh.usage[1].computed
    assert sum(u.cached for u in whole) == fresh.usage[1].cached
    assert [u.generated for u in whole] == [len(s.step.token_ids) for s in fresh.samples[1]]
    policy.keep_only(question, [])
    alone = policy.generate([ask(question, 5)])
    assert alone.sample_usage is not None
    assert alone.sample_usage[0] == whole[:5]
    # Distinct histories, counted without a tree.
    prompt = alone.usage[0].computed + alone.usage[0].cached - alone.usage[0].generated
    histories = {
        sample.step.token_ids[:end]
        for sample in alone.samples[0]
        for end in range(len(sample.step.token_ids))
    }
    assert alone.usage[0].computed == prompt + len(histories)


class _Engines:
    """`ModelSource` of policy and PRMs on scripted engines, which work on whole answers."""

    def __init__(self):
        models = scripted.ScriptedModels()
        self.fingerprint, self.footprint, self.check = (
            models.fingerprint,
            models.footprint,
            models.check,
        )
        self.engine = scripted_engine.ScriptedEngine()
        self.scoring = {}

    def policy(self, spec):
        # Long enough for whole answers: one that is cut is read in parts, which cost more alone.
        return scripted_engine.policy(self.engine, max_answer_tokens=150)

    def prm(self, spec):
        return scripted_engine.prm(
            self.scoring.setdefault(spec.label, scripted_engine.ScriptedPrm())
        )


def test_whole_answers_are_shared_and_read_once_by_each_prm(tmp_path):
    models = _Engines()
    run = _run(tmp_path / "run", _recipe(), models)
    assert contents(run) == _alone(tmp_path, _recipe(), _Engines())
    sampled = sum(len(request.seeds) for call in models.engine.calls for request in call)
    assert sampled < _of_the_largest(run)  # whole answers
    read = [
        [ids for prompts in engine.whole for ids in prompts] for engine in models.scoring.values()
    ]
    assert len(read) == 2
    for engine, prompts in zip(models.scoring.values(), read, strict=True):
        assert not engine.single
        assert len(prompts) == len(set(prompts)) <= 4 * 3
