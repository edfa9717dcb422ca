"""`cats-jax train`: its configurations, what it leaves behind, and what it refuses."""

import dataclasses
import json
import types

import jax
import numpy as np
import pytest

import learners
import search
from cats_jax.bank.layout import LoadedBank
from cats_jax.controllers import checkpoint
from cats_jax.errors import BadInputError
from cats_jax.storage import durable
from cats_jax.training import comparison, questions, stopping, train
from cats_jax.training.ablations import load_ablations
from cats_jax.training.options import TrainingOptions
from cats_jax.training.questions import TrainingQuestions, bank_questions, simulator_questions
from cats_jax.training.train import CONFIGS, configure, run
from search import bank as search_bank
from search import simulation

TINY = (
    "actor_hidden=4",
    "critic_hidden=4",
    "num_episodes=2",
    "searches_per_question=2",
    "learner.algorithm.num_epochs=1",
    "learner.algorithm.num_minibatches=1",
    "prices=0.1,0.5",
    "num_candidates=4",
)


def test_settings_reach_every_level():
    config = configure(
        "cats",
        num_candidates=(4, 128),
        num_iterations=7,
        settings=(
            "learner.learning_rate=1e-2",
            "learner.algorithm.normalize_advantages=False",
            "cats.reward.discount=0.5",
            "cats.excluded_features=gap,std",
            "actor_hidden=8,16",
            "prices=0.1,0.3",
            "gae_lambda=0.5",
            "num_steps=3",
            "searches_per_question=1",
        ),
    )
    assert config.num_candidates == (4, 128)
    assert config.num_iterations == 7
    assert config.learner.learning_rate == 1e-2
    assert not config.learner.algorithm.normalize_advantages
    assert config.cats.reward.discount == 0.5
    assert config.cats.excluded_features == ("gap", "std")
    assert config.actor_hidden == (8, 16)
    assert config.prices == (0.1, 0.3)
    assert (config.gae_lambda, config.num_steps) == (0.5, 3)
    assert (
        dataclasses.replace(config.learner.algorithm, normalize_advantages=True)
        == learners.CATS.learner.algorithm
    )
    untouched = dataclasses.replace(learners.CATS, num_iterations=7)
    assert configure("cats", num_iterations=7) == untouched


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ((), learners.CATS.learner.algorithm),
        (("algorithm=A2C",), learners.A2C()),
        (("algorithm.temperature=0.2", "algorithm=AWR"), learners.AWR(temperature=0.2)),
        # It has PPO already: nothing is set back to PPO's defaults.
        (("algorithm=PPO",), learners.CATS.learner.algorithm),
        (
            ("algorithm=A2C", "algorithm.clip=0.1", "algorithm=PPO", "algorithm.num_epochs=2"),
            dataclasses.replace(learners.CATS.learner.algorithm, clip=0.1, num_epochs=2),
        ),
    ],
)
def test_settings_choose_the_algorithm(settings, expected):
    config = configure("cats", settings=[f"learner.{setting}" for setting in settings])
    assert config.learner == dataclasses.replace(learners.CATS.learner, algorithm=expected)


def test_the_default_price_is_among_the_prices(tmp_path):
    assert configure("cats", settings=["prices=0.02,0.06"]).default_price == 0.06
    assert configure("cats", settings=["prices=0.2,1"]).default_price == learners.CATS.default_price
    # Trajectories may have other prices, so that it is refused at the training.
    given = ("prices=0.02,0.06", "default-price=0.2")
    assert configure("cats", settings=given).default_price == 0.2
    with pytest.raises(BadInputError, match=r"default_price=0\.2: is above the largest of the p"):
        run(TrainingOptions(settings=given, output=tmp_path / "run"))
    with pytest.raises(BadInputError, match="is above the largest of the prices"):
        run(TrainingOptions(settings=given, online=tmp_path / "x", output=tmp_path / "run"))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (("prices",), "--set prices: write NAME=VALUE"),
        (("max-depth=4",), "--set max-depth=4: the bank, the recipe or the simulator has it"),
        (("=3",), "write NAME=VALUE"),
        (("learner.speed=3",), r"--set: .*learner\.speed.*the fields are those"),
        (("learner.algorithm=TRPO",), "algorithm=TRPO: unknown algorithm: .*A2C, AWR, PPO"),
        (("learner.algorithm.temperature=1",), r"--set: .*temperature.*the fields are those"),
        (("num_iterations=many",), r"--set: .*num-iterations.*the fields are those"),
        (("learner.learning_rate=-1",), "learning_rate must be > 0, got -1"),
        (("cats.reward.cost=-0.2",), r"reward weight cost must be >= 0, got -0\.2"),
        (("searches_per_question=3",), "searches_per_question=3 must divide num_episodes=128"),
        (("cats.actions.rows=1,1,1.0,1.0,0",), "needs an entry with num_extra = 0"),
    ],
)
def test_refuses_settings_without_meaning(settings, message):
    with pytest.raises(BadInputError, match=message) as error:
        configure("cats", settings=settings)
    assert "\n" not in str(error.value)


def test_refuses_an_unknown_configuration():
    with pytest.raises(BadInputError, match="unknown configuration 'best'"):
        configure("best")


def test_a_restricted_simulator_has_those_prms():
    whole = simulator_questions()
    part = simulator_questions((whole.prms[3], whole.prms[0]))
    assert part.prms == (whole.prms[3], whole.prms[0])
    for row, source in enumerate((3, 0)):
        for name in ("sparsity_total", "sparsity_last_layer"):
            assert getattr(part.tables, name)[row] == getattr(whole.tables, name)[source]
        jax.tree.map(
            lambda a, b, row=row, source=source: np.testing.assert_array_equal(a[row], b[source]),
            part.tables.scores,
            whole.tables.scores,
        )


def test_refuses_an_unknown_prm():
    with pytest.raises(BadInputError, match=r"the simulator has no PRM 'exakt': did you mean"):
        simulator_questions(("exakt",))


@pytest.mark.parametrize("config", ["cats", "stopping"])
def test_refuses_an_empty_list_of_prms(tmp_path, config):
    with pytest.raises(BadInputError, match="--prms names no PRM: name one"):
        run(TrainingOptions(output=tmp_path / "x", config=config, prms=()))


def test_refuses_what_belongs_to_banks(tmp_path):
    with pytest.raises(BadInputError, match="--validation belongs to --bank"):
        run(TrainingOptions(tmp_path / "out", validation=tmp_path))


def test_refuses_a_missing_bank(tmp_path):
    with pytest.raises(BadInputError):
        bank_questions(tmp_path / "nothing", sampling=search.cats.CATS.sampling)


def test_refuses_an_output_in_use(tmp_path):
    (tmp_path / "summary.json").write_text("{}")
    with pytest.raises(BadInputError, match="holds a training already"):
        run(TrainingOptions(tmp_path))
    # What a kill leaves between the first checkpoint, that of the best controller, and the summary.
    for part in ("seed-0", "seed-2"):
        (tmp_path / part / part).mkdir(parents=True)
        with pytest.raises(BadInputError, match="or part of one: choose another --output"):
            stopping.check_is_new(tmp_path / part)
    with pytest.raises(BadInputError, match="or part of one: choose another --output"):
        run(TrainingOptions(tmp_path / "seed-0"))
    with pytest.raises(BadInputError, match="is a file: choose another output folder"):
        run(TrainingOptions(tmp_path / "summary.json", num_iterations=1))


@pytest.mark.parametrize(
    ("module", "name", "config"),
    [(train, "train_seeds", "cats"), (learners, "make_stopping", "stopping")],
)
def test_no_other_process_can_write_to_the_folder_of_a_training(
    tmp_path, monkeypatch, module, name, config
):
    def in_training(*_, **__):
        with pytest.raises(BadInputError, match="is in use by another process"):
            durable.hold(tmp_path)
        raise RuntimeError("in training")

    monkeypatch.setattr(module, name, in_training)
    monkeypatch.setattr(stopping, "record", lambda *_: None)
    with pytest.raises(RuntimeError, match="in training"):
        run(TrainingOptions(tmp_path, config=config, num_iterations=1))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Options, checkpoints and reported lines of a training of two controllers."""
    options = TrainingOptions(
        tmp_path_factory.mktemp("trained") / "out",
        num_iterations=2,
        num_seeds=2,
        settings=TINY,
        prms=("exact", "labels-only"),
        seed=5,
    )
    lines = []
    return options, run(options, report=lines.append), lines


@pytest.mark.slow
def test_training_leaves_checkpoints_and_a_summary(trained):
    options, paths, lines = trained
    summary = json.loads((options.output / "summary.json").read_text())
    assert summary["prms"] == ["exact", "labels-only"]
    assert summary["prices"] == [0.1, 0.5]
    assert set(summary["rivals"]) == {"constant action", "threshold rule", "random policy"}
    for rival in summary["rivals"].values():
        assert [row["price"] for row in rival] == [0.1, 0.5]
        for row in rival:
            cost = row["price"] * np.mean(row["candidates"]) / 100
            assert row["value"] == pytest.approx(np.mean(row["accuracy"]) - cost, abs=1e-3)
    values = [np.mean(one["value"]) for one in summary["controllers"]]
    assert [path.name for path in paths] == [f"seed-{i}" for i in np.argsort(-np.array(values))]
    loaded = checkpoint.load(paths[0])
    assert loaded.train_config.actor_hidden == (4,)
    assert loaded.info["prms"] == ["exact", "labels-only"]
    assert loaded.info["collapsed"] == any(loaded.info["collapse"].values())
    assert (options.output / "curves.png").is_file()
    for collapsed, path in zip(summary["collapsed"], sorted(paths), strict=True):
        said = next(line for line in lines if line.startswith(path.name))
        assert ("COLLAPSED" in said) == collapsed


@pytest.mark.slow
def test_training_goes_on_from_a_controller(trained, tmp_path):
    options, (first, _), _ = trained
    idle = dataclasses.replace(
        options,
        output=tmp_path / "second",
        start=str(first),
        num_iterations=1,
        settings=("learner.learning_rate=1e-30",),
        rivals=False,
    )
    for path in run(idle):
        second = checkpoint.load(path)
        jax.tree.map(np.testing.assert_array_equal, second.actor, checkpoint.load(first).actor)
        assert second.train_config.actor_hidden == (4,)
        assert second.info["start"] == checkpoint.digest(checkpoint.load(first))


def test_a_controller_to_start_from_was_not_taught_the_held_out_questions(tmp_path, monkeypatch):
    config = CONFIGS["cats"]
    info = {"questions": ["a", "b"], "texts": ["of a", "of b"]}
    start = types.SimpleNamespace(train_config=config, config=config.cats, info=info)
    monkeypatch.setattr(train, "_start", lambda options: start)
    known = dataclasses.replace(simulator_questions(), held_out_texts=("of c", "of b"))
    monkeypatch.setattr(train, "_questions", lambda config, options: known)
    message = r"questions of the controller to start from and validation overlap: 1 .* as 'b'"
    with pytest.raises(BadInputError, match=message):
        run(TrainingOptions(tmp_path / "out", start="cats"))
    assert not (tmp_path / "out").exists()


def test_a_greedy_controller_of_one_action_is_found_out():
    """Its logits differ by so little that its sampled actions look varied."""
    world = simulation.toy_params(num_steps=(2,), max_depth=2)
    held_out = TrainingQuestions(
        environment=simulation.ENVIRONMENT,
        tables=world,
        held_out=world,
        held_out_ids=(),
        max_depth=2,
        prms=("a", "b"),
        info={},
    )
    actions = search.cats.ActionTable(((0, 1, 1.0, 1.0, 0), (1, 1, 1.0, 1.0, 0)))
    config = dataclasses.replace(
        learners.CATS,
        cats=dataclasses.replace(search.cats.CATS, actions=actions, rounds=1),
        actor_hidden=(),
        num_candidates=(4,),
        max_depth=2,
        prices=(0.0, 1.0),
    )
    actor = learners.make_actor(2, ()).init(jax.random.key(0))
    layer = actor["layer_0"]
    kernel = np.zeros_like(layer["kernel"])
    one = {"layer_0": {"kernel": kernel, "bias": np.array([0.0, 1e-3], np.float32)}}
    # The other one goes by the price: 0.0 is 0 as a feature, 1.0 is 1.
    kernel = kernel.copy()
    kernel[search.cats.FEATURE_NAMES.index("price"), 0] = 1.0
    two = {"layer_0": {"kernel": kernel, "bias": np.array([0.0, 0.5], np.float32)}}
    both = jax.tree.map(lambda *leaves: jax.numpy.stack(leaves), one, two)
    found = comparison.compare(config, held_out, both, jax.random.key(0), rivals=False)
    figures = found.controllers
    assert figures.top_action[0] == 1.0
    assert figures.entropy[0] == pytest.approx(0.0, abs=1e-9)
    assert 0.3 < figures.top_action[1] < 0.9
    assert figures.entropy[1] > 0.3
    assert np.all(figures.candidates[1, 0] > figures.candidates[1, 1])
    np.testing.assert_allclose(figures.candidates[0, 0], figures.candidates[0, 1])
    np.testing.assert_allclose(
        figures.value[0],
        (figures.accuracy - np.array([[[0.0], [1.0]]]) * figures.candidates / 100)[0, :, 0],
    )


# Step banks


def _bank(ids, *, temperatures=(0.0, 0.6, 1.0), texts=None, max_depth=7):
    """As much of a bank as `bank_questions` looks at."""
    count = len(ids)
    arrays = search_bank.Bank(
        **{field.name: np.zeros(1) for field in dataclasses.fields(search_bank.Bank)}
    ).replace(
        root=np.arange(count) * 10,
        level=np.arange(count),
        prompt_tokens=np.arange(2 * count).reshape(count, 2),
        temperature=np.asarray(temperatures, np.float32),
        top_p=np.ones(len(temperatures), np.float32),
        top_k=np.zeros(len(temperatures), np.int32),
        max_depth=np.int32(max_depth),
    )
    texts = tuple(f"text of {name}" for name in ids) if texts is None else texts
    return LoadedBank(
        arrays=arrays,
        ids=tuple(ids),
        texts=texts,
        gold=(),
        nodes={},
        prms=("good", "bad"),
        manifest={"models": {"policy": "weak", "prm good": 1, "prm bad": 2, "prm other": 3}},
    )


@pytest.fixture
def banks(monkeypatch, tmp_path):
    """Folder name -> bank; `bank_questions` on them."""
    known = {}
    monkeypatch.setattr(questions, "_load", lambda folder, prms, calibrations: known[folder.name])

    def make(**options):
        options = {"sampling": search.cats.CATS.sampling, **options}
        return bank_questions(tmp_path / "training", **options)

    return known, make, tmp_path


def test_a_random_fifth_of_the_questions_is_held_out_of_training(banks):
    known, make, _ = banks
    known["training"] = _bank([f"q{i}" for i in range(100)])
    found = make()
    held_out = [int(name[1:]) for name in found.held_out_ids]
    assert len(held_out) == 20
    assert make().held_out_ids == found.held_out_ids
    # Not every fifth one: the levels of questions may follow each other in a cycle.
    assert len({number % 5 for number in held_out}) == 5
    assert found.held_out.root.tolist() == [10 * i for i in held_out]
    assert found.held_out.prompt_tokens.tolist() == [[2 * i, 2 * i + 1] for i in held_out]
    rest = [i for i in range(100) if i not in held_out]
    assert found.tables.root.tolist() == [10 * i for i in rest]
    assert found.info["questions"] == [f"q{i}" for i in rest]
    assert found.info["models"] == {"policy": "weak", "prm good": 1, "prm bad": 2}
    assert found.max_depth == 7


def test_each_prm_of_a_bank_has_a_calibration(banks):
    known, make, path = banks
    known["training"] = _bank([f"q{i}" for i in range(10)])
    file = path / "calibration.json"
    file.write_text(
        json.dumps({"prms": {"good": {"intercept": 0.0, "slope": 1.0, "agreement": 0.0}}})
    )
    with pytest.raises(BadInputError, match=r"has none of PRM 'bad': .*--prms"):
        make(calibration=str(file))
    values = {"intercept": 0.0, "slope": 1.0, "agreement": 0.0}
    content = {"prms": {"good": values, "bad": values}, "models": {"policy": "weak", "prm bad": 2}}
    file.write_text(json.dumps(content))
    assert make(calibration=str(file)).info["calibration"]["bad"][:3] == [0.0, 1.0, 0.0]
    for part in ("policy", "prm bad"):
        file.write_text(json.dumps({**content, "models": {part: "retrained"}}))
        with pytest.raises(BadInputError, match=f"was fitted with another {part} than the bank"):
            make(calibration=str(file))
    assert set(make(calibration="none").info["calibration"]) == {"good", "bad"}


def test_refuses_a_bank_too_small_to_keep_any_out(banks):
    known, make, _ = banks
    known["training"] = _bank(["a", "b"])
    with pytest.raises(BadInputError, match="has 2 questions, of which one in 5 is for"):
        make()


def test_refuses_banks_that_share_a_question(banks):
    known, make, folder = banks
    known["training"], known["other"] = _bank(["a", "b", "c"]), _bank(["d", "b"])
    with pytest.raises(BadInputError, match=r"--bank and --validation overlap.*'text of b'"):
        make(validation=folder / "other")
    known["other"] = _bank(["d", "e"])
    assert make(validation=folder / "other").held_out_ids == ("d", "e")
    # White space is no difference, as where a controller's questions are compared.
    known["other"] = _bank(["d"], texts=(" text of\nb ",))
    with pytest.raises(BadInputError, match=r"--bank and --validation overlap: 1 are in both"):
        make(validation=folder / "other")
    # Ids may be mere numbers of rows: other texts are other questions.
    known["other"] = _bank(["a", "b"], texts=("these are", "others"))
    assert make(validation=folder / "other").held_out_ids == ("a", "b")


def test_a_text_under_two_ids_is_not_in_both_parts(banks):
    known, make, _ = banks
    ids = [f"q{i}" for i in range(50)]
    known["training"] = _bank(ids, texts=[f"text {i // 2}" for i in range(50)])
    found = make()
    assert set(found.info["texts"]).isdisjoint(found.held_out_texts)
    assert len(found.held_out_ids) == 10


def test_refuses_banks_of_another_policy(banks):
    known, make, folder = banks
    known["training"], known["other"] = _bank(["a"]), _bank(["b"])
    known["other"].manifest["models"]["policy"] = "strong"
    with pytest.raises(BadInputError, match="--validation were collected with different policies"):
        make(validation=folder / "other")


def test_refuses_banks_of_another_depth(banks):
    known, make, folder = banks
    known["training"], known["other"] = _bank(["a"]), _bank(["b"], max_depth=9)
    with pytest.raises(BadInputError, match=r"training.* and .*other.* with max_depth 7 and 9"):
        make(validation=folder / "other")


@pytest.mark.parametrize("which", ["training", "other"])
def test_refuses_actions_that_a_bank_has_not_recorded(banks, which):
    known, make, folder = banks
    known["training"], known["other"] = _bank(["a"]), _bank(["b"])
    known[which] = _bank(["a" if which == "training" else "b"], temperatures=(0.0, 0.6))
    with pytest.raises(BadInputError, match=rf"{which}.*temperature 1, .* is not in the bank"):
        make(validation=folder / "other")
    with pytest.raises(BadInputError, match="is not in the bank"):
        make(validation=folder / "other", sampling=(search.Sampling(1.4),))


def test_the_rows_of_the_ablations_are_different_trainings():
    tables = load_ablations()
    names = ["sparsity", "reward", "networks", "discount", "ours", "additions"]
    assert list(tables) == names
    assert [len(tables[name]) for name in names[:4]] == [2, 8, 8, 6]
    for table in tables.values():
        configs = [row.configuration() for row in table]
        assert len(set(configs)) == len(configs)
        assert len({row.label for row in table}) == len(table)
    # One row of each of the paper's tables is its own setting.
    for name in names[:4]:
        assert sum(row.configuration() == CONFIGS["paper-bank"] for row in tables[name]) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[", "is not valid YAML"),
        ("a: {b: {config: best}}", "table 'a', row 'b': unknown configuration 'best'"),
        ("a: {b: {set: [trace]}}", "table 'a', row 'b': --set trace: write NAME=VALUE"),
        ("a: {b: {sett: [trace]}}", "table 'a', row 'b': unknown key 'sett'"),
        ("a: 3", "table 'a' must map labels to rows"),
        ("a: {b: 5}", "table 'a', row 'b': must be a mapping"),
        ("a: {b: {set: 3}}", "table 'a', row 'b': set=3: must be a list, such as"),
        ("a: {b: {set: null}}", "table 'a', row 'b': set=None: must be a list, such as"),
        ("a: {b: {set: [cats.vote=loudest]}}", "table 'a', row 'b': .*unknown answer rule"),
    ],
)
def test_refuses_damaged_ablations(tmp_path, text, message):
    file = tmp_path / "ablations.yaml"
    file.write_text(text)
    with pytest.raises(BadInputError, match=message):
        load_ablations(file)


def test_imitation_needs_decisions_to_imitate(tmp_path):
    with pytest.raises(BadInputError, match="imitates the decisions of other policies: choose"):
        run(TrainingOptions(tmp_path / "out", config="clone"))
    assert not (tmp_path / "out").exists()
