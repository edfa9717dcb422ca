"""Ray: two local nodes, and a worker killed in the middle, end in the rows of a single machine."""

import importlib
import os
import pathlib
import subprocess
import sys

import psutil
import pytest

from cats_jax import config, evaluate, runs
from cats_jax.cluster import RayEngines
from cats_jax.errors import BadInputError
from cats_jax.grading import MathJudge
from cats_jax.models import HuggingFaceModels
from cats_jax.recording import default_judge

_HERE = str(pathlib.Path(__file__).parent)
sys.path.append(_HERE)
scripted = importlib.import_module("scripted")

pytestmark = [
    pytest.mark.slow,
    # Ray's own sockets and files, closed when its processes are.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.timeout(600),
]
_QUESTIONS = 12


@pytest.fixture(scope="module")
def nodes():
    """A cluster of two nodes with one core each."""
    import ray
    from ray.cluster_utils import Cluster

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    # The actors load `scripted` by name.
    os.environ["PYTHONPATH"] = _HERE
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    yield ray
    ray.shutdown()
    cluster.shutdown()
    del os.environ["PYTHONPATH"]


def _recipe(**changes):
    return config.parse_recipe(
        {
            "name": "sums",
            "strategies": ["greedy", "beam"],
            "num_candidates": [4],
            "prms": ["good"],
            "questions": {"world": "test", "count": _QUESTIONS},
            "max_depth": 6,
            "in_flight": 2,
            **changes,
        }
    )


def _run(folder, recipe, models, questions=None, observers=(), **ray):
    evaluation = evaluate.prepare(recipe, models, questions)
    if not ray:
        return evaluate.evaluate(evaluation, models, folder)[0]
    with RayEngines(recipe, models, default_judge(recipe), **ray) as engines:
        run, _ = evaluate.evaluate(evaluation, models, folder, observers=observers, engines=engines)
    return run


def _check_same(run, alone):
    """All but seconds, cached counts and places in the file."""
    ours, theirs = ({row.key: (row, one.tree(row)) for row in one.rows} for one in (run, alone))
    assert len(run.rows) == len(alone.rows) == len(ours)
    assert ours.keys() == theirs.keys()
    for key in ours:
        described = []
        for row, tree in (ours[key], theirs[key]):
            texts = [(c.id, c.parent, c.text, c.kept, c.answer) for c in tree.candidates]
            costs = (row.ledger.candidates, row.ledger.generated)
            described.append((row.answer, row.correct, row.covered, row.status, costs, texts))
        assert described[0] == described[1]
        scores = [[c.score for c in tree.candidates] for _, tree in (ours[key], theirs[key])]
        assert scores[0] == pytest.approx(scores[1], abs=1e-5)


def test_two_nodes_end_in_the_same_rows(tmp_path, nodes):
    questions = scripted.question_set(_QUESTIONS)
    models = scripted.ScriptedModels()
    alone = _run(tmp_path / "alone", _recipe(), models, questions)
    run = _run(tmp_path / "ray", _recipe(), models, questions, address="auto")
    _check_same(run, alone)
    assert len(run.rows) == 2 * _QUESTIONS
    assert len({node["NodeID"] for node in nodes.nodes() if node["Alive"]}) == 2


class _Killer:
    """Kills a worker process as soon as some rows are there."""

    def __init__(self):
        self.killed = []

    def begin_cell(self, title, total, rows):
        pass

    def row(self, row):
        if self.killed:
            return
        # Ray names a process after what it is doing.
        for process in psutil.process_iter(["cmdline"]):
            if process.info["cmdline"][:1] == ["ray::_Worker.search"]:
                process.kill()
                self.killed.append(process.pid)
                return


def test_a_killed_workers_questions_are_redone(tmp_path, nodes):
    questions = scripted.question_set(_QUESTIONS)
    models = scripted.ScriptedModels(delay=0.2)
    alone = _run(tmp_path / "alone", _recipe(), scripted.ScriptedModels(), questions)
    killer = _Killer()
    run = _run(tmp_path / "ray", _recipe(), models, questions, observers=(killer,), address="auto")
    assert killer.killed
    assert len(run.rows) == len({row.key for row in run.rows}) == 2 * _QUESTIONS
    _check_same(run, alone)


def test_the_embedded_world_on_two_nodes(tmp_path, nodes):
    recipe = _recipe(
        policy={"path": "weak", "max_step_tokens": 32, "max_answer_tokens": 64},
        prms=["exact"],
        questions={"world": "validation", "count": 6},
        in_flight=3,
        max_depth=10,
    )
    models = HuggingFaceModels()
    alone = _run(tmp_path / "alone", recipe, models)
    run = _run(tmp_path / "ray", recipe, models, address="auto", workers=2)
    _check_same(run, alone)


def test_grading_inside_a_task(nodes):
    with MathJudge(workers=1) as judge:
        task = nodes.remote(lambda one, two: judge.equivalent(one, two))
        assert nodes.get([task.remote("2x", "x+x"), task.remote("2x", "x+1")]) == [True, False]


def test_more_workers_than_room(nodes):
    recipe = _recipe()
    with pytest.raises(BadInputError, match="9 workers, but the cluster has 2 CPUs"):
        RayEngines(recipe, scripted.ScriptedModels(), default_judge(recipe), address="auto",
                   workers=9)  # fmt: skip
    assert nodes.is_initialized()


def test_the_command_on_a_new_local_cluster(tmp_path, recipe_file):
    """In a process of its own: Ray takes two clusters in one process for one another."""
    output = tmp_path / "run"
    arguments = ["evaluate", recipe_file, "--output", str(output), "--ray", "local"]
    done = subprocess.run(
        [sys.executable, "-m", "cats_jax.cli", *arguments, "--ray-workers", "1"],
        cwd=pathlib.Path(_HERE).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "accuracy" in done.stdout
    assert len(runs.read_run(output).rows) == 4


def test_no_cluster_answers(tmp_path, recipe_file):
    arguments = ["evaluate", recipe_file, "--output", str(tmp_path / "run"), "--ray", "127.0.0.1:1"]
    done = subprocess.run(
        [sys.executable, "-m", "cats_jax.cli", *arguments],
        cwd=pathlib.Path(_HERE).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "no cluster answers there" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.fixture
def recipe_file(tmp_path):
    path = tmp_path / "r.yaml"
    path.write_text(
        "policy: {path: weak, max_step_tokens: 32, max_answer_tokens: 64}\n"
        "strategies: [greedy]\nnum_candidates: 4\nquestions: {world: test, count: 4}\n"
    )
    return str(path)
