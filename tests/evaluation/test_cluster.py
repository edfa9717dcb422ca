"""Ray: two local nodes, and a worker killed in the middle, end in the rows of a single machine."""

import concurrent.futures
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import time
import types
import warnings

import psutil
import pytest
import scripted

from cats_jax.errors import BadInputError, RunStoppedError, RunWarning
from cats_jax.evaluation import evaluate
from cats_jax.evaluation.cells import grid
from cats_jax.evaluation.cluster import RayRunner, _connect, needs, room_on
from cats_jax.evaluation.wall_times import WallTimes
from cats_jax.grading import MathGrader
from cats_jax.grading.graders import default_grader
from cats_jax.models.source import ModelFolders
from cats_jax.runs.folder import read_run
from cats_jax.specs.recipe import parse_recipe

ROOT = pathlib.Path(__file__).resolve().parents[2]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    # Ray's own sockets and files, closed when its processes are.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    *(
        pytest.mark.filterwarnings(f"ignore::{name}Warning")
        for name in ("Resource", "Future", "Deprecation", "User")
    ),
]
_QUESTIONS = 12


@pytest.fixture(scope="module")
def cluster():
    """Two nodes with one core each."""
    from ray.cluster_utils import Cluster

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    # The actors load `scripted` by name.
    os.environ["PYTHONPATH"] = str(ROOT / "tests" / "support")
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    yield cluster
    cluster.shutdown()
    del os.environ["PYTHONPATH"]


@pytest.fixture(scope="module")
def nodes(cluster):
    """Ray, connected to the two nodes."""
    import ray

    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    yield ray
    ray.shutdown()


def _recipe(**changes):
    return parse_recipe(
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


def _runner(recipe, cells=None, models=None, **ray):
    cells, models = cells or grid(recipe), models or scripted.ScriptedModels()
    grader = default_grader(recipe.questions)
    return RayRunner(recipe, cells, models, grader, **{"address": "auto", **ray})


def _run(folder, recipe, models, questions=None, observers=(), **ray):
    evaluation = evaluate.prepare(recipe, models, questions)
    if not ray:
        return evaluate.evaluate(evaluation, models, folder)[0]
    with _runner(evaluation.recipe, evaluation.cells, models, **ray) as runner:
        run, _ = evaluate.evaluate(evaluation, models, folder, observers=observers, runner=runner)
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
    """Also rows that share paths, whose actor remembers them or not."""
    questions = scripted.question_set(_QUESTIONS)
    recipe = _recipe(strategies=["greedy", "beam", "majority", "best_of_n"], num_candidates=[2, 4])
    models = scripted.ScriptedModels()
    alone = _run(tmp_path / "alone", recipe, models, questions)
    run = _run(tmp_path / "ray", recipe, models, questions, address="auto")
    _check_same(run, alone)
    assert len(run.rows) == (1 + 2 + 2 + 2) * _QUESTIONS
    assert len({node["NodeID"] for node in nodes.nodes() if node["Alive"]}) == 2


def _models(stops=False):
    """Models with notes; if `stops`, the policy stops a run near the end of the question q5."""

    # In a function, so that a worker gets them with their code.
    class Policy(scripted.ScriptedPolicy):
        def generate(self, requests):
            if stops and any(r.question.id == "q5" and len(r.path) == 4 for r in requests):
                raise RunStoppedError("the server is gone: nothing is lost")
            return super().generate(requests)

    class Prm(scripted.ScriptedPrm):
        note = "two critiques had no verdict"

    class Models(scripted.ScriptedModels):
        def policy(self, spec):
            return Policy()

        def prm(self, spec):
            warnings.warn("the PRM is slow here", RunWarning, stacklevel=2)
            return Prm()

    return Models()


def test_finished_questions_of_a_batch_that_stops_are_kept(tmp_path, nodes):
    recipe = _recipe(strategies=["beam"], in_flight=_QUESTIONS)
    questions, kept = scripted.question_set(_QUESTIONS), []
    for ray in ({}, {"address": "auto", "workers": 1}):
        folder = tmp_path / f"run{len(kept)}"
        with pytest.raises(RunStoppedError) as stopped:
            _run(folder, recipe, _models(stops=True), questions, **ray)
        assert str(stopped.value) == "the server is gone: nothing is lost"
        kept.append({row.key for row in read_run(folder).rows})
    assert 0 < len(kept[0]) < _QUESTIONS
    assert kept[0] == kept[1]


def test_the_warnings_of_workers_are_shown(tmp_path, nodes):
    questions = scripted.question_set(_QUESTIONS)
    with pytest.warns(RunWarning) as shown:
        _run(tmp_path, _recipe(), _models(), questions, address="auto", workers=1)
    texts = {str(each.message) for each in shown}
    assert texts == {"the PRM is slow here", "two critiques had no verdict"}


def test_workers_use_the_prompts_of_the_process_that_started_the_run(tmp_path, nodes):
    """A worker that starts later does not read the file, which is gone by then."""
    file = tmp_path / "own.yaml"
    file.write_text("prompt: '{question} {answer}'\n")
    recipe = _recipe(strategies=["greedy", {"name": "mctsr", "rewriting": str(file)}])
    cells, found = grid(recipe), []
    file.unlink()
    with _runner(recipe, cells) as runner:
        runner.search(cells[0], scripted.question_set(3).questions, found.append)
        runner.finish(WallTimes())
    assert {result.status for result in found} == {"answered"}
    assert len(found) == 3


# Where workers go


_GPU = {"backend": "vllm", "device": "cuda"}


@pytest.mark.parametrize(
    ("policy", "prms", "expected"),
    [
        ({}, [{}], (1, 0)),
        ({"num_threads": 4}, [{"num_threads": 2}], (4, 0)),
        (_GPU, [_GPU], (1, 0.9)),
        # One PRM at a time beside the policy.
        ({**_GPU, "gpu_memory_utilization": 0.2},
         [{**_GPU, "gpu_memory_utilization": 0.1},
          {**_GPU, "gpu_memory_utilization": 0.3}], (1, 0.5)),
        ({**_GPU, "gpu_memory_utilization": 0.8}, [_GPU], (1, 1)),
        (_GPU, [{"num_threads": 3}], (3, 0.45)),
        ({**_GPU, "device": "cpu"}, [{**_GPU, "device": "cpu"}], (1, 0)),
        (_GPU, [{**_GPU, "device": "cuda:1"}], (1, 2)),
        ({**_GPU, "device": "cuda:1", "tensor_parallel_size": 2}, [_GPU], (1, 3)),
        ({"device": "cuda"}, [{}], (1, 1)),
        ({"device": "cuda"}, [{"device": "cuda:1"}], (1, 2)),
        ({"backend": "http://localhost:8000"}, [{}], (1, 0)),
    ],
)  # fmt: skip
def test_what_a_worker_needs(policy, prms, expected):
    specs = [{"path": "p", "label": str(i), **prm} for i, prm in enumerate(prms)]
    recipe = _recipe(policy={"path": "weak", **policy}, prms=specs)
    assert needs(recipe) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("resources", "cpus", "gpus", "room"),
    [
        ({"CPU": 8.0}, 1, 0, 8),
        ({"CPU": 8.0}, 3, 0, 2),
        ({"CPU": 8.0}, 1, 1, 0),
        ({"CPU": 8.0, "GPU": 2.0}, 1, 1, 2),
        ({"CPU": 1.0, "GPU": 2.0}, 1, 1, 1),
        ({"CPU": 8.0, "GPU": 3.0}, 1, 2, 1),
        ({"CPU": 8.0, "GPU": 2.0}, 1, 0.6, 2),  # not three: a part lies on one device
        ({"CPU": 8.0, "GPU": 2.0}, 1, 0.5, 4),
    ],
)
def test_room_on_a_node(resources, cpus, gpus, room):
    assert room_on(resources, cpus, gpus) == room


def test_workers_with_vllm_take_gpus(cluster, nodes):
    """A node that says it has GPUs is enough to see what is asked for."""
    recipe = _recipe(policy={"path": "weak", **_GPU, "gpu_memory_utilization": 0.3})
    with pytest.raises(BadInputError, match=r"has room for 0: each needs 1 CPU\(s\) and 0\.3 GPU"):
        _runner(recipe)
    node = cluster.add_node(num_cpus=4, num_gpus=1)
    try:
        cluster.wait_for_nodes()
        with _runner(recipe) as runner:
            assert runner.num_workers == 3
            deadline = time.monotonic() + 60
            while nodes.available_resources().get("GPU", 0) > 0.1 + 1e-6:
                assert time.monotonic() < deadline, nodes.available_resources()
                time.sleep(0.2)
    finally:
        cluster.remove_node(node)


class _Killer:
    """Kills a worker process as soon as some rows are there."""

    def __init__(self):
        self.killed = []

    def begin_cell(self, title, total, rows):
        pass

    def row(self, title, row):
        if self.killed:
            return
        # Ray names a process after what it is doing.
        for process in psutil.process_iter(["cmdline"]):
            if (process.info["cmdline"] or [])[:1] == ["ray::_Worker.search"]:
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
    models = ModelFolders()
    alone = _run(tmp_path / "alone", recipe, models)
    run = _run(tmp_path / "ray", recipe, models, address="auto", workers=2)
    _check_same(run, alone)


def test_grading_inside_a_task(nodes):
    with MathGrader(workers=1) as grader:
        task = nodes.remote(lambda one, two: grader.equivalent(one, two))
        assert nodes.get([task.remote("2x", "x+x"), task.remote("2x", "x+1")]) == [True, False]


def test_more_workers_than_room(nodes):
    said = "9 workers, but the cluster has room for 2: each needs 1 CPU"
    with pytest.raises(BadInputError, match=said):
        _runner(_recipe(), workers=9)
    assert nodes.is_initialized()


def _command(*arguments, env=None):
    """A command in a process of its own: Ray takes two clusters in one for one another."""
    command = [sys.executable, "-m", "cats_jax.cli", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)


_OF_THE_DEMO = ("greedy", "majority", "best_of_n", "beam", "cats_constant", "cats_random")


def test_a_demo_with_two_workers_prints_what_one_process_prints(tmp_path):
    """But for seconds. Its cells are open at once, and end in another order."""
    arguments = ["demo", "--questions", 5, "--num-candidates", 4]
    printed, runs = [], []
    for name, options in (("alone", []), ("ray", ["--ray", "local", "--ray-workers", 2])):
        output = tmp_path / name
        done = _command(*arguments, "--output", output, *options)
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
        for strategy in _OF_THE_DEMO:
            assert strategy in done.stdout
        assert (output / "accuracy-tokens.png").exists()
        first, *_ = re.findall("^demo-0: .*", done.stdout, re.MULTILINE)
        tables, rest = done.stdout[done.stdout.index(first) :].split("figure: ", 1)
        tree = rest[rest.index("One search: ") : rest.index("   seconds: ")]
        # The last columns but one of the table of costs are seconds.
        printed.append(
            [re.sub(r" [\d.]+ \|( +\d+ \|)$", r"\1", line) for line in tables.split("\n")]
        )
        printed[-1] += tree.split("\n")
        runs.append(read_run(output))
        assert ("workers (2): searching" in done.stdout) == bool(options)
    assert printed[0] == printed[1]
    assert len(runs[0].rows) == 7 * 5
    _check_same(*runs)


def test_no_cluster_answers(tmp_path, recipe_file):
    done = _command("evaluate", recipe_file, "--output", tmp_path / "run", "--ray", "127.0.0.1:1")
    assert done.returncode == 2
    assert "no cluster answers there" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_cluster_that_does_not_start():
    """Ray has a plain exception for a start that takes too long."""

    def init(**options):
        raise Exception("The current node timed out during startup.")

    ray = types.SimpleNamespace(init=init)
    line = r"--ray local: no cluster starts here \(The current node timed out during startup\.\)"
    with pytest.raises(BadInputError, match=line):
        _connect(ray, "local")


@pytest.fixture
def guarded_head(tmp_path):
    """A cluster as `ray start --head` makes it where a token has been generated: it asks for it."""
    ray = pathlib.Path(sys.executable).with_name("ray")
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("RAY_")},
        "HOME": str(tmp_path / "home"),
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    subprocess.run(
        [ray, "get-auth-token", "--generate"], env=environment, check=True, capture_output=True
    )
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:  # short: sockets lie in it
        options = ["--num-cpus=1", "--include-dashboard=false", f"--temp-dir={folder}"]
        head = subprocess.Popen(
            [ray, "start", "--head", "--block", f"--port={port}", *options],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert head.stdout is not None
        for line in head.stdout:
            if "Ray runtime started" in line:
                break
        yield f"127.0.0.1:{port}", environment
        children = psutil.Process(head.pid).children(recursive=True)
        head.terminate()
        head.communicate(timeout=60)
        _, left = psutil.wait_procs(children, timeout=20)
        for process in left:
            process.kill()
        psutil.wait_procs(left, timeout=20)


def test_a_cluster_that_asks_for_a_token(tmp_path, recipe_file, guarded_head):
    address, environment = guarded_head
    token = {"RAY_AUTH_MODE": "token"}
    more = {"refused": {}, "in": token, "missing": {**token, "HOME": str(tmp_path / "elsewhere")}}

    def run(name):
        arguments = ["evaluate", recipe_file, "--output", tmp_path / name, "--ray", address]
        return _command(*arguments, env={**environment, **more[name]})

    with concurrent.futures.ThreadPoolExecutor() as pool:
        refused, let_in, missing = pool.map(run, more)
    assert refused.returncode == 2
    assert "if it asks for a token, set RAY_AUTH_MODE=token" in refused.stderr
    assert refused.stderr.count("\n") == 1
    assert let_in.returncode == 0, let_in.stderr
    assert "accuracy" in let_in.stdout
    assert len(read_run(tmp_path / "in").rows) == 4
    assert missing.returncode == 2
    assert "no authentication token was found" in missing.stderr
    assert missing.stderr.count("\n") == 1


@pytest.fixture
def recipe_file(tmp_path):
    path = tmp_path / "r.yaml"
    path.write_text(
        "policy: {path: weak, max_step_tokens: 32, max_answer_tokens: 64}\n"
        "strategies: [greedy]\nnum_candidates: 4\nquestions: {world: test, count: 4}\n"
    )
    return str(path)
