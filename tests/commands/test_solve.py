"""`cats-jax solve` with settings of models and with a recipe."""

import json
import re

import chat_server
import made_certificates
import pytest
import scripted
from chat_server import serving

from cats_jax import cli
from cats_jax.commands import solve
from cats_jax.commands.solve_options import SolveOptions
from cats_jax.commands.solve_recipe import one_cell
from cats_jax.errors import BadInputError
from cats_jax.grading import MathGrader
from cats_jax.grading.boxed_integer import BoxedIntegerGrader
from cats_jax.specs.recipe import load_recipe

QUESTION = "((50*4)-21)+15=?"


@pytest.fixture
def checked(monkeypatch):
    """The specs of the models that a command would load, which it does not."""
    specs = []

    def stop(models, policy, prms, work):
        specs[:] = [policy, *prms]
        raise BadInputError("enough")

    monkeypatch.setattr("cats_jax.models.source.check_models", stop)
    # On other CPUs a model in 16 bits gets a warning.
    monkeypatch.setattr("torch.backends.cpu.get_cpu_capability", lambda: "AVX512")
    return specs


@pytest.fixture(scope="module")
def certified(tmp_path_factory):
    path = tmp_path_factory.mktemp("certified") / "c.json"
    made_certificates.write_certificate(path, scripted.ScriptedModels())
    return path.read_text()


@pytest.fixture
def certificate(tmp_path, certified):
    """A certificate that a test may change."""
    path = tmp_path / "c.json"
    path.write_text(certified)
    return path


@pytest.fixture
def scripted_models(monkeypatch):
    monkeypatch.setattr("cats_jax.models.source.ModelFolders", scripted.ScriptedModels)


def write(path, **changes):
    """A recipe of the embedded world's models with settings that are no defaults."""
    content = {
        "policy": {"path": "strong", "max_step_tokens": 40, "batch_tokens": 8192},
        "prms": [{"path": "sparse", "batch_tokens": 4096}, {"path": "exact", "label": "other"}],
        "strategies": [{"name": "beam", "label": "two", "beam_width": 2}, "greedy"],
        "num_candidates": [4, 8],
        "seeds": [3],
        "max_depth": 4,
        "questions": {"world": "test", "count": 2},
        **changes,
    }
    path.write_text(json.dumps(content))
    return str(path)


def refused(capsys, *options):
    """The last line of what `solve` says when it refuses options."""
    capsys.readouterr()
    assert cli.run(["solve", QUESTION, *options]) == 2
    return capsys.readouterr().err.strip().splitlines()[-1]


def searched(capsys, *options):
    """What `solve` prints, without its times."""
    assert cli.run(["solve", QUESTION, *options]) in (0, 1)
    return capsys.readouterr().out.partition("seconds:")[0]


def test_a_chat_endpoint_is_the_policy_and_the_prm_stays_here(checked, monkeypatch, capsys):
    monkeypatch.setenv("A_KEY", "0123456789abcdef")
    with serving(key="0123456789abcdef") as server:
        of_server = ["--backend", server.url, "--served-name", "m", "--api-key-env", "A_KEY"]
        options = [*of_server, "--chat", "--policy-format", "plain", "-n", "2", "--max-depth", "4"]
        assert cli.run(["solve", QUESTION, *options, "--dtype", "bfloat16"]) == 2
        policy, prm = checked
        assert (policy.chat, policy.backend, policy.served_name) == (True, server.url, "m")
        assert (policy.name, policy.dtype, policy.api_key_env) == ("m", "float32", "A_KEY")
        assert (prm.backend, prm.dtype, prm.served_name) == ("hf", "bfloat16", None)
        assert server.bodies == []
        monkeypatch.undo()
        monkeypatch.setenv("A_KEY", "0123456789abcdef")
        assert cli.run(["solve", QUESTION, *options, "--strategy", "best_of_n"]) == 0
        assert len(server.bodies) >= 2
    assert "policy 16, PRM 37" in capsys.readouterr().out
    with serving(continues=False) as server:
        options = ["--backend", server.url, "--served-name", "m", "--chat", "-n", "2"]
        assert "needs single steps" in refused(capsys, *options, "--strategy", "beam")
    for options in (["--chat"], ["--chat", "--policy", "strong"]):
        assert "chat: true needs the address of an endpoint" in refused(capsys, *options)


def test_a_judge_has_an_endpoint_and_prices_of_its_own(checked, capsys):
    """Beside a policy of another endpoint, and beside one that is here."""
    policy_at = ["--chat", "--backend", "http://p:1", "--served-name", "p", "--price", "1", "2"]
    judge_at = ["--prm", "chat-judge", "--prm-backend", "http://j:1", "--prm-served-name", "j"]
    limits = ["--prm-price", "3", "4", "--prm-max-cost", "5", "--prm-replies", "j.jsonl"]
    for here in (False, True):
        chosen = ["--dtype", "bfloat16"] if here else policy_at
        assert cli.run(["solve", QUESTION, "-n", "2", *chosen, *judge_at, *limits]) == 2
        policy, prm = checked
        assert (prm.label, prm.backend, prm.served_name) == ("chat-judge", "http://j:1", "j")
        assert (prm.price, prm.max_cost) == ({"input": 3.0, "output": 4.0}, 5.0)
        assert (prm.replies, prm.dtype, policy.replies) == ("j.jsonl", "float32", None)
        if here:
            assert (policy.path, policy.backend, policy.dtype) == ("weak", "hf", "bfloat16")
            assert (policy.price, policy.served_name) == (None, None)
        else:
            assert (policy.backend, policy.served_name) == ("http://p:1", "p")
            assert (policy.price, policy.max_cost) == ({"input": 1.0, "output": 2.0}, None)
    checked.clear()
    for options, message in (
        (["--prm-price", "3", "4"], "--prm-price: is for a PRM on a server of its own: give --p"),
        (["--prm-backend", "hf"], "--prm-backend 'hf': must be the address of a server"),
        ([*judge_at, "--prm-max-cost", "5"], "--prm-max-cost: needs --prm-price X Y"),
        ([*policy_at, *judge_at, "--dtype", "bfloat16"], "--dtype: is for a model that is loaded"),
        ([*policy_at, "--prm", "chat-judge"], "give --prm-backend and --prm-served-name"),
    ):
        assert message in refused(capsys, *options)
        assert not checked


def test_a_prm_on_a_server_has_a_context_of_its_own(checked, capsys):
    of_prm = ["--prm-backend", "http://j:1", "--prm-max-model-len", "512"]
    assert cli.run(["solve", QUESTION, *of_prm, "--dtype", "bfloat16"]) == 2
    policy, prm = checked
    assert (prm.backend, prm.max_model_len, prm.dtype) == ("http://j:1", 512, "float32")
    assert (policy.backend, policy.max_model_len, policy.dtype) == ("hf", None, "bfloat16")
    line = refused(capsys, *of_prm[2:])
    assert "--prm-max-model-len: is for a PRM on a server of" in line
    of_prm += ["--prm", "chat-judge", "--prm-served-name", "j"]
    assert "max_model_len=512 has no effect" in refused(capsys, *of_prm)


def test_a_judge_at_an_endpoint_scores(monkeypatch, capsys):
    monkeypatch.setattr(chat_server, "write", lambda asked, begun, seed: "Judgement: Yes")
    with serving() as server:
        judge = ["--prm", "chat-judge", "--prm-backend", server.url, "--prm-served-name", "j"]
        options = [*judge, "--prm-price", "2", "8", "--strategy", "best_of_n", "-n", "2"]
        assert cli.run(["solve", QUESTION, *options]) == 0, capsys.readouterr().err
        assert len(server.bodies) > 1


def test_a_model_s_settings_reach_policy_and_prm(checked):
    settings = ["--dtype", "bfloat16", "--kv-cache-gib", "0.01", "--batch-tokens", "4096"]
    formats = ["--policy-format", "plain", "--prm-format", "world"]
    assert cli.run(["solve", QUESTION, "-n", "2", *settings, *formats]) == 2
    policy, prm = checked
    for spec in (policy, prm):
        assert (spec.dtype, spec.kv_cache_gib, spec.batch_tokens) == ("bfloat16", 0.01, 4096)
        assert (spec.backend, spec.device) == ("hf", "cpu")
    assert (policy.format, prm.format) == ("plain", "world")


def test_a_check_of_memory_that_fails_hides_no_warning(checked, capsys):
    assert cli.run(["solve", QUESTION, "-n", "2", "--strategy", "cats", "--policy", "strong"]) == 2
    assert [spec.path for spec in checked] == ["strong", "exact"]
    said = " ".join(capsys.readouterr().err.split())
    assert 0 <= said.index("warning: ") < said.index("cats-jax: enough")
    assert "strong" in said


def test_a_recipe_s_first_cell_is_searched(tmp_path, capsys):
    found = searched(capsys, "--recipe", write(tmp_path / "r.json"))
    options = ["--policy", "strong", "--prm", "sparse", "--max-step-tokens", "40", "-n", "4"]
    options += ["--beam-width", "2", "--max-depth", "4", "--seed", "3", "--calibration", "none"]
    assert searched(capsys, *options) == found
    assert found.startswith(f"{QUESTION}\n")
    assert re.search(r"answer: \S+   status: answered", found)


@pytest.mark.parametrize(
    ("options", "paths"),
    [
        ([], ["strong", "sparse"]),
        (["--prm", "other", "-n", "2"], ["strong", "exact"]),
        (["--strategy", "greedy"], ["strong"]),
        (["--strategy", "best_of_n"], ["strong", "sparse"]),
    ],
)
def test_options_stand_in_place_of_a_recipe_s(tmp_path, checked, options, paths):
    recipe = write(tmp_path / "r.json")
    assert cli.run(["solve", QUESTION, "--recipe", recipe, *options]) == 2
    assert [spec.path for spec in checked] == paths
    assert (checked[0].batch_tokens, checked[0].max_step_tokens) == (8192, 40)
    assert all(prm.batch_tokens == 4096 for prm in checked[1:] if prm.path == "sparse")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--policy", "weak"], "--policy: the recipe .* names the models"),
        (["--dtype", "bfloat16"], "--dtype: the recipe .* names the models"),
        (["--served-name", "m"], "--served-name: the recipe"),
        (["--prm-backend", "http://j:1"], "--prm-backend: the recipe"),
        (["--prm", "exact"], "--prm 'exact' is not in the recipe .*: it has sparse, other"),
        (["--strategy", "bean"], "unknown strategy 'bean': did you mean 'beam'"),
    ],
)
def test_what_a_recipe_does_not_leave_open_is_refused(tmp_path, capsys, options, words):
    line = refused(capsys, "--recipe", write(tmp_path / "r.json"), *options)
    assert re.search(words, line)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--dtype", "float64"], "dtype='float64': backend hf has"),
        (["--device", "cuda:7"], "cuda:7.* not there"),
        (["--backend", "vllm"], "vLLM is not installed|does not start|imported"),
        (["--backend", "hf", "--served-name", "m"], "served_name='m' has no effect"),
        (["--backend", "http://127.0.0.1:9", "--api-key-env", "NO_SUCH"], "NO_SUCH is not set"),
    ],
)
def test_settings_are_checked_before_a_model_is_loaded(capsys, checked, options, words):
    assert re.search(words, refused(capsys, *options))
    assert not checked


@pytest.mark.usefixtures("scripted_models")
def test_a_certificate_names_models_strategy_and_n(tmp_path, capsys, checked, certificate):
    command = ["--certified", str(certificate)]
    assert refused(capsys, *command).endswith("enough")
    assert [spec.path for spec in checked] == ["weak", "exact"]
    assert checked[0].max_step_tokens == 32
    for options, words in (
        (["--prm", "sparse"], "the PRM is 'sparse', not 'exact'"),
        (["--max-depth", "3"], "limits.max_depth: 10 -> 3"),
        (["--strategy", "beam"], "--strategy: the certificate .* leave the option out"),
        (["-n", "2"], "--num-candidates: the certificate"),
        (["--recipe", write(tmp_path / "r.json")], "'sparse'|policy is 'strong', not 'weak'"),
    ):
        checked.clear()
        assert re.search(words, refused(capsys, *command, *options))
        assert not checked
    refused(capsys, *command, "--prm", "sparse", "--elsewhere")
    assert [spec.path for spec in checked] == ["weak", "sparse"]
    assert "give it with --certified" in refused(capsys, "--elsewhere")


@pytest.mark.usefixtures("scripted_models")
def test_a_certificate_does_not_say_where_questions_go(tmp_path, capsys, checked, certificate):
    content = json.loads(certificate.read_text())
    policy = content["config"]["policy"]

    def used():
        certificate.write_text(json.dumps(content))
        return refused(capsys, "--certified", str(certificate))

    for key, value in (
        ("backend", "http://127.0.0.1:9"),
        ("api_key_env", "NO_SUCH"),
        ("engine_args", {"worker_cls": "a.B"}),
    ):
        usual, policy[key] = policy.get(key), value
        assert f"its policy has {key}, and a file may not say" in used()
        assert not checked
        policy[key] = usual
    policy |= {"replies": str(tmp_path / "written"), "max_cost": 9.0}
    policy |= {"price": {"input": 0.0, "output": 0.0}}
    used()
    assert (checked[0].replies, checked[0].max_cost, checked[0].price) == (None, None, None)
    content |= {"chosen": None, "configurations": []}
    assert "certifies no configuration" in used()


def test_a_recipes_answers_are_graded_as_by_its_server(tmp_path):
    """The questions of a recipe choose the grader, also with a policy that is not the world's."""
    recipe = load_recipe(write(tmp_path / "recipe.json", policy="models/other"))
    assert isinstance(solve._grader(recipe, is_given=True), BoxedIntegerGrader)
    assert isinstance(solve._grader(recipe, is_given=False), MathGrader)


def test_a_certified_strategy_has_the_prm_of_its_certificate(tmp_path, certificate):
    content = json.loads(certificate.read_text())
    prm = content["configurations"][content["chosen"]]["prm"]
    recipe = write(
        tmp_path / "recipe.json",
        prms=[{"path": "sparse", "label": "other"}, prm],
        strategies=[{"certified": str(certificate)}],
    )
    (spec,) = one_cell({}, SolveOptions(), recipe).prms
    assert spec.label == prm
