"""Collecting a bank on the host: trees, values, folders; loaded, it replays what was recorded."""

import collections
import dataclasses
import functools
import itertools
import json
import os
import pathlib
import signal
import time

import forked
import jax
import jax.numpy as jnp
import numpy as np
import pyarrow.parquet as pq
import pytest
import scripted_bank
from scripted import ScriptedModels, ScriptedPolicy, ScriptedPrm
from scripted_bank import ALONE, MAX_DEPTH, RICH, collected, grown

import search
from cats_jax import cli
from cats_jax.bank import layout, store
from cats_jax.bank.cost import bank_cost
from cats_jax.bank.grow import level_number
from cats_jax.bank.recipe import load_bank_recipe
from cats_jax.bank.trees import Allocation, SettingDraws
from cats_jax.errors import BadInputError, RunStoppedError, RunWarning
from cats_jax.live.seeds import stable_seed
from cats_jax.protocols import Step
from cats_jax.specs.calibrations import IDENTITY
from cats_jax.storage import durable, table_folder
from search import bank as search_bank

ROOT = pathlib.Path(__file__).resolve().parents[2]
PLAIN = Allocation(
    (SettingDraws(search.Sampling(1.0), 16, 1),), revisits_per_prm=0, revisit_arrivals=100.0
)


def draws_below(nodes):
    """Draws of each setting below every node."""
    below = collections.defaultdict(lambda: np.zeros(len(nodes.draws[0]), int))
    for parent, counts in zip(nodes.parent, nodes.draws, strict=True):
        below[parent] += counts
    return below


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A bank of six questions in three blocks."""
    return collected(tmp_path_factory.mktemp("bank"))


# Trees


def test_children_are_consecutive_and_come_after_their_parent():
    for tree in grown():
        parent = tree.nodes.parent
        assert parent[0] == -1
        assert all(p < row for row, p in enumerate(parent))
        assert parent[1:] == sorted(parent[1:])


def test_every_node_that_may_go_on_does_and_no_other():
    for tree in grown():
        nodes = tree.nodes
        asked = set(nodes.parent[1:])
        for row in range(len(nodes)):
            ended = nodes.done[row] or nodes.invalid[row]
            assert (row in asked) != ended


def test_siblings_differ_in_text_or_end():
    for tree in grown():
        nodes = tree.nodes
        keys = list(zip(nodes.parent, nodes.text, nodes.done, nodes.invalid, strict=True))
        assert len(set(keys)) == len(keys)
        classes = {}
        for parent, text, text_class in zip(
            nodes.parent, nodes.text, nodes.text_class, strict=True
        ):
            assert classes.setdefault((parent, text), text_class) == text_class
        assert len(set((p, c) for (p, _), c in classes.items())) == len(classes)


def test_draws_follow_the_arriving_paths():
    """One setting, nothing on top: every node is drawn as often as its own draws."""
    for tree in grown(PLAIN):
        nodes = tree.nodes
        below = draws_below(nodes)
        assert below[0] == 16
        for row in range(1, len(nodes)):
            if not nodes.done[row] and not nodes.invalid[row]:
                assert below[row] == nodes.draws[row][0]


def test_nodes_that_searches_come_back_to_get_draws_of_every_setting():
    trees = grown(Allocation(RICH.draws, revisits_per_prm=2, revisit_arrivals=100.0))
    seen = 0
    for tree in trees:
        nodes, below = tree.nodes, draws_below(tree.nodes)
        assert below[0].tolist() == [1, 8, 16]
        lowest = {0: np.ones(2)}
        depth = {0: 0}
        for row in range(1, len(nodes)):
            lowest[row] = np.minimum(lowest[nodes.parent[row]], nodes.score[row])
            depth[row] = depth[nodes.parent[row]] + 1
        for level in range(1, MAX_DEPTH):
            rows = [r for r in depth if depth[r] == level and r in below]
            for prm in range(2):
                for row in sorted(rows, key=lambda r: -lowest[r][prm])[:2]:
                    assert below[row][0] == 1
                    assert below[row][1] >= 2
                    assert below[row][2] >= 4
                    seen += 1
    assert seen > 20


def test_favourites_are_drawn_like_the_root():
    """One more than nothing on top: at each depth each PRM's best node has the root's draws."""
    seen = 0
    for tree in grown(
        Allocation(RICH.draws, revisits_per_prm=0, revisit_arrivals=100.0, root_draws_per_prm=1)
    ):
        nodes, below = tree.nodes, draws_below(tree.nodes)
        children = [row for row in below if row > 0 and nodes.parent[row] == 0]
        for prm in range(2 if children else 0):
            best = max(children, key=lambda row: nodes.score[row][prm])
            assert below[best].tolist() == [1, 8, 16]
            seen += 1
        assert any(below[row].tolist() != [1, 8, 16] for row in children)
    assert seen >= 6


def test_each_text_is_scored_once_by_each_prm():
    asked = collections.Counter()

    class Counting(ScriptedPrm):
        def score(self, questions, paths):
            for question, path in zip(questions, paths, strict=True):
                asked[question.id, tuple(step.text for step in path)] += 1
            return super().score(questions, paths)

    trees = grown(count=4, prms={"a": Counting()})
    assert set(asked.values()) == {1}
    scores = [
        tree.nodes.score[row][0]
        for tree in trees
        for row in range(1, len(tree.nodes))
        if not tree.nodes.invalid[row]
    ]
    assert len(asked) <= len(scores)
    assert min(scores) > 0


def test_a_tree_depends_on_its_question_and_the_seed_alone():
    six, two = grown(count=6), grown(count=2)
    assert six[:2] == two
    assert grown(count=2, seed=1) != two


def test_values_are_shares_of_right_completions():
    """Against recursion from the root, over the draws nearest to temperature 1."""
    for tree in grown():
        nodes = tree.nodes
        children = collections.defaultdict(list)
        for row in range(1, len(nodes)):
            children[nodes.parent[row]].append(row)

        @functools.cache
        def value(row, nodes=nodes, children=children):
            if nodes.done[row]:
                return float(nodes.answer[row] == 0)
            for pick in (lambda d: d[2], sum):
                total = sum(pick(nodes.draws[c]) for c in children[row])
                if total:
                    return sum(pick(nodes.draws[c]) * value(c) for c in children[row]) / total
            return 0.0

        assert nodes.value == pytest.approx([value(row) for row in range(len(nodes))])
        assert 0 < nodes.value[0] < 1 or len(set(nodes.answer)) < 3


def test_answer_class_0_is_the_right_answer():
    for tree in grown():
        boxed = {}
        for text, answer in zip(tree.nodes.text, tree.nodes.answer, strict=True):
            if answer >= 0:
                assert text.startswith("\\boxed{")
                assert boxed.setdefault(answer, text) == text
        assert boxed.get(0, f"\\boxed{{{tree.gold}}}") == f"\\boxed{{{tree.gold}}}"
        assert len(set(boxed.values())) == len(boxed)


def test_prompts_are_charged_apart_from_steps():
    """A PRM that keeps prefixes: the first step of a question brings the prompt of 9 tokens."""

    class Caching(ScriptedPrm):
        def __init__(self):
            super().__init__()
            self.known = set()

        def score(self, questions, paths):
            scoring = super().score(questions, paths)
            usage = []
            for question in questions:
                prompt = 0 if question.id in self.known else 9
                self.known.add(question.id)
                usage.append(type(scoring.usage[0])(computed=prompt + 4, cached=9 - prompt))
            return type(scoring)(scoring.scores, usage, 0.0)

    for tree in grown(PLAIN, 4, {"a": Caching()}):
        assert tree.prompt_tokens == [9]
        valid = [not invalid for invalid in tree.nodes.invalid]
        assert {count for (count,) in itertools.compress(tree.nodes.prm_tokens, valid)} == {0, 4}


# Folders


def test_what_is_loaded_is_what_was_grown(folder):
    loaded = layout.load_bank(folder)
    trees = grown()
    assert loaded.ids == tuple(tree.question.id for tree in trees)
    assert loaded.prms == ("good", "bad")
    tables = jax.tree.map(np.asarray, loaded.arrays)
    start = 0
    for number, tree in enumerate(trees):
        nodes, size = tree.nodes, len(tree.nodes)
        assert tables.root[number] == start
        rows = slice(start, start + size)
        for name, column in (
            ("done", nodes.done),
            ("invalid", nodes.invalid),
            ("answer", nodes.answer),
            ("num_tokens", nodes.num_tokens),
            ("score", np.float32(nodes.score)),
            ("prm_tokens", nodes.prm_tokens),
            ("value", np.float32(nodes.value)),
            ("text", nodes.text_class),
        ):
            np.testing.assert_array_equal(getattr(tables, name)[rows], column)
        for row in range(size):
            drawn = [
                sorted(tables.drawn[tables.first_draw[cell] : tables.first_draw[cell + 1]].tolist())
                for cell in range((start + row) * 3, (start + row) * 3 + 3)
            ]
            children = [c for c in range(size) if nodes.parent[c] == row]
            own = [
                sorted(start + c for c in children for _ in range(nodes.draws[c][s]))
                for s in range(3)
            ]
            # A setting without draws takes those of the nearest one: 0 and 1 are nearer to .6.
            order = ((0, 1, 2), (1, 2, 0), (2, 1, 0))
            assert drawn == [next((own[s] for s in near if own[s]), []) for near in order]
        start += size
    np.testing.assert_allclose(tables.temperature, [0.0, 0.6, 1.0])
    np.testing.assert_allclose(_context(tables), [[0.1, 0.01, *IDENTITY, 1]] * 2)
    assert int(tables.max_depth) == MAX_DEPTH


def _context(tables):
    """[P, 9]: sparsity in all and of the last layer, the calibration, and the rate of the PRM."""
    price, *others = jax.tree.leaves(tables.context)
    assert not np.any(price)
    return np.stack(others, axis=1)


def test_a_search_that_takes_all_draws_sees_every_recorded_path(tmp_path, key):
    """Majority vote with N = the root's draws: its answers are the recorded paths' answers."""
    loaded = layout.load_bank(collected(tmp_path, allocation=PLAIN))
    tables = loaded.arrays
    strategy = search.majority()

    @jax.jit
    def finished(number):
        task = search_bank.question(tables, number, 0)
        state = search.init(
            task.root,
            strategy=strategy,
            num_candidates=16,
            max_depth=task.max_depth,
            context=task.context,
            capacity=16,
            depth_capacity=MAX_DEPTH,
        )
        end, _ = search.rollout(
            (), task.params, key, state, strategy=strategy, expand_fn=search_bank.expander(16)
        )
        return end.finished

    for number, tree in enumerate(grown(PLAIN)):
        paths = finished(jnp.int32(number))
        got = collections.Counter(np.asarray(paths.answer)[np.asarray(paths.valid)].tolist())
        nodes = tree.nodes
        recorded = collections.Counter()
        for row in range(len(nodes)):
            if nodes.done[row]:
                recorded[nodes.answer[row]] += nodes.draws[row][0]
        assert got == recorded


def test_a_part_of_a_bank_can_be_loaded(folder):
    whole, part = layout.load_bank(folder), layout.load_bank(folder, prms=["bad"])
    assert part.ids == whole.ids
    np.testing.assert_array_equal(part.arrays.score[:, 0], whole.arrays.score[:, 1])
    values = (0.5, 2.0, 0.25, 0.75, -0.5, 1.5)
    calibrated = layout.load_bank(folder, calibrations=(("bad", values),))
    np.testing.assert_allclose(
        _context(calibrated.arrays), [[0.1, 0.01, *IDENTITY, 1], [0.1, 0.01, *values, 1]]
    )


def _rows(folder):
    return [
        pq.read_table(path).to_pylist()
        for name in ("questions", "nodes", "scores")
        for path in sorted(pathlib.Path(folder).glob(f"{name}-*.parquet"))
    ]


def test_going_on_gives_the_same_rows(tmp_path, folder):
    class Stops(Exception):
        pass

    def stop(done, total):
        if done == 2:
            raise Stops

    with pytest.raises(Stops):
        collected(tmp_path, report=stop)
    with pytest.warns(RunWarning, match="has 2 of its 6 questions yet"):
        assert len(layout.load_bank(tmp_path / "bank").ids) == 2
    again = collected(tmp_path)
    assert _rows(again) == _rows(folder)
    # Nothing is left to do: no model is loaded.
    models = ScriptedModels()
    collected(tmp_path, models=models)
    assert models.loaded == []


def test_progress_moves_within_a_block(tmp_path):
    for name, allocation in (("together", RICH), ("alone", ALONE)):
        seen = []
        collected(
            tmp_path / name,
            2,
            allocation=allocation,
            report=lambda done, total, seen=seen: seen.append(done / total),
        )
        assert seen == sorted(seen)
        assert (seen[0], seen[-1]) == (0.0, 1.0)
        assert len(set(seen)) > 4


_CHILD = """
import pathlib
import scripted_bank
from scripted import ScriptedModels
def run(folder, allocation):
    scripted_bank.collected(
        pathlib.Path(folder),
        12,
        models=ScriptedModels(delay=0.01),
        allocation=getattr(scripted_bank, allocation),
    )
"""


@pytest.mark.slow
@pytest.mark.parametrize("allocation", ["RICH", "ALONE"])
def test_killed_at_any_moment_a_collection_ends_in_the_same_rows(tmp_path, allocation):
    killed = tmp_path / "killed"
    seen = 0
    with forked.forks(_CHILD, {**os.environ, "JAX_PLATFORMS": "cpu"}) as forks:
        for moment in (0.0, 0.05, 0.2, 0.4):
            forks.start(killed, allocation)
            time.sleep(moment)
            assert forks.kill() in (0, -signal.SIGKILL)
            blocks = len(list((killed / "bank").glob("[qs]*-*.parquet")))
            assert blocks >= seen
            seen = blocks
        forks.start(killed, allocation)
        assert forks.ending() == 0
    undisturbed = collected(
        tmp_path / "undisturbed", 12, allocation=getattr(scripted_bank, allocation)
    )
    assert _rows(killed / "bank") == _rows(undisturbed)


# Bad input


def test_a_folder_with_results_of_other_settings_is_refused(tmp_path):
    folder = collected(tmp_path)
    with pytest.raises(BadInputError, match=r"other settings: config\.seed: 0 -> 1\. Use"):
        collected(tmp_path, seed=1)
    with pytest.raises(BadInputError, match=r"settings: models\.policy: the content changed; "):
        collected(tmp_path, models=Renamed())
    for block in folder.glob("**/*.parquet"):
        block.unlink()
    collected(tmp_path, seed=1)  # nothing is left that the first seed has made


class Renamed(ScriptedModels):
    def fingerprint(self, spec):
        return {"name": spec.path, "sha256": "another"}


def test_strangers_are_refused(tmp_path, folder):
    (tmp_path / "bank").mkdir()
    (tmp_path / "bank" / "letter.txt").write_text("x")
    with pytest.raises(BadInputError, match="is no step bank"):
        collected(tmp_path)
    with pytest.raises(BadInputError, match="is no step bank: it has no"):
        layout.load_bank(tmp_path)
    with (
        table_folder.locked(folder, store.read_manifest(folder), store.KIND),
        pytest.raises(BadInputError, match="in use by another process"),
    ):
        collected(folder.parent)


def _edited(folder, tmp_path, **changes):
    manifest = json.loads((folder / table_folder.MANIFEST).read_text())
    (tmp_path / table_folder.MANIFEST).write_text(json.dumps({**manifest, **changes}))
    return tmp_path


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": 99}, "has format 99, this version reads 3: collect it anew"),
        ({"kind": "sonnet"}, "is a sonnet, not a step bank"),
        ({"world": 5}, "is damaged .'world' must be a text or null.: collect it anew"),
        ({"models": None}, "is damaged .'models' must be a mapping.: collect it anew"),
    ],
)
def test_another_format_is_refused(tmp_path, folder, changes, message):
    with pytest.raises(BadInputError, match=message):
        layout.load_bank(_edited(folder, tmp_path, **changes))


def test_a_bank_of_format_1_goes_on(tmp_path, folder):
    """Its manifest has other names for what is sampled; written out by hand."""
    new = store.read_manifest(folder)
    config = {**new["config"], "allocation": dict(new["config"]["allocation"])}
    allocation = config["allocation"]
    config["allocation"] = {
        "draws": [
            {
                "sampling": entry["sampling"],
                "root": entry["root_draws"],
                "few": entry["revisit_draws"],
            }
            for entry in allocation["draws"]
        ],
        "liked": allocation["revisits_per_prm"],
        "mixed": allocation["revisit_arrivals"],
        "favourites": allocation["root_draws_per_prm"],
    }
    old = _edited(folder, tmp_path, format=1, config=config)
    assert store.read_manifest(old) == new
    with table_folder.locked(old, new, store.KIND):
        pass  # the same recipe goes on with it
    (old / "blocks.parquet").touch()  # without results another recipe may take its place
    config["allocation"]["liked"] += 1
    _edited(folder, tmp_path, format=1, config=config)
    refused = pytest.raises(BadInputError, match=r"revisits_per_prm: ")
    with refused, table_folder.locked(old, new, store.KIND):
        pass


def test_a_bank_whose_policy_has_a_recipe_goes_on(tmp_path, folder):
    new = store.read_manifest(folder)
    policy = dict(new["config"]["policy"])
    policy["recipe"] = policy.pop("format")
    old = _edited(folder, tmp_path, config={**new["config"], "policy": policy})
    with table_folder.locked(old, new, store.KIND):
        pass  # what was `recipe` is now `format`


def test_another_world_or_model_is_refused_by_name(tmp_path, folder):
    _edited(folder, tmp_path, world="0123")
    with pytest.raises(BadInputError, match=r"version 0123 of the embedded world, this is 4567"):
        layout.load_bank(tmp_path, world="4567")
    expected = {"policy": {"name": "policy"}, "prm bad": {"name": "worse"}}
    with pytest.raises(BadInputError, match=r"collected with another prm bad: its fingerprint"):
        layout.load_bank(folder, expected=expected)
    with pytest.raises(BadInputError, match=r"has no prm ugly: .*known are"):
        layout.load_bank(folder, expected={"prm ugly": {}})
    with pytest.raises(BadInputError, match=r"has no PRM 'god': did you mean 'good'"):
        layout.load_bank(folder, prms=["god"])


def test_damage_is_named(tmp_path):
    folder = collected(tmp_path)
    (folder / "nodes-00001.parquet").write_bytes(b"PAR1")
    with pytest.raises(BadInputError, match=r"is damaged .*: delete the files of its number"):
        layout.load_bank(folder)


def test_what_is_lost_is_collected_again_and_nothing_else(tmp_path):
    folder = collected(tmp_path)
    undisturbed = _rows(folder)
    files = sorted(folder.glob("*-*.parquet"))
    for path in files:
        if path.stem.endswith("00001"):
            path.unlink()
    (folder / "sparsity.json").unlink()
    with pytest.raises(BadInputError, match=r"lacks block 1, but not those behind it: run its"):
        layout.load_bank(folder)
    written = {path: path.stat().st_mtime_ns for path in folder.glob("*-*.parquet")}
    collected(tmp_path)
    assert _rows(folder) == undisturbed
    assert sorted(folder.glob("*-*.parquet")) == files
    assert all(path.stat().st_mtime_ns == when for path, when in written.items())
    # A whole bank too gets back the file that it says to run the command for.
    (folder / "sparsity.json").unlink()
    with pytest.raises(BadInputError, match=r"no readable sparsity\.json: run its `cats-jax bank`"):
        layout.load_bank(folder)
    collected(tmp_path)
    layout.load_bank(folder)


def test_a_kill_before_the_manifest_is_gone_on_from(tmp_path):
    (tmp_path / "bank").mkdir()
    (tmp_path / "bank" / "manifest.json.new").write_text('{"ki')
    assert layout.load_bank(collected(tmp_path)).ids


@pytest.mark.parametrize(
    ("level", "number"),
    [(3, 3), (3.0, 3), ("4", 4), ("Level 5", 5), ("level 2", 2), (None, 0), ("hard", 0), ("-1", 0)],
)
def test_levels_of_data_sets_are_numbers(level, number):
    assert level_number(level) == number


def test_a_full_disk_stops_the_collection(tmp_path, monkeypatch):
    def full(path, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(durable, "replace", full)
    with pytest.raises(BadInputError, match=r"can't be written .No space left"):
        collected(tmp_path)
    with pytest.raises(RunStoppedError, match="the same command resumes"):
        store.write_block(tmp_path, 0, grown(count=1))
    with pytest.raises(RunStoppedError, match="the same command resumes"):
        store.write_sparsity(tmp_path, {"good": [0.0, 0.0]})


def test_overlapping_questions_are_refused():
    layout.check_disjoint(["a", "b"], ["c"], "these")
    with pytest.raises(BadInputError, match=r"training and test questions overlap: 2 .* 'b'"):
        layout.check_disjoint(["a", "b", "c"], ["c", "b"], "training and test questions")


RECIPE = """
policy: weak
prms: [exact]
questions: {world: controller, count: 2}
sampling:
  - {temperature: 0.6, root_draws: 8, revisit_draws: 2}
revisits_per_prm: 3
"""


def written(folder, text=RECIPE):
    path = folder / "bank.yaml"
    path.write_text(text)
    return path


def test_a_recipe_is_read(tmp_path):
    path = written(tmp_path)
    loaded = load_bank_recipe(path)
    assert loaded.policy.path == "weak"
    assert loaded.questions[0].world == "controller"
    assert loaded.allocation == Allocation(
        (SettingDraws(search.Sampling(0.6), 8, 2),), revisits_per_prm=3, revisit_arrivals=4.0
    )


def test_a_dry_run_says_what_a_bank_samples_and_costs(tmp_path, capsys):
    path = written(tmp_path)
    assert cli.run(["bank", str(path), "--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    table = {line.split("|")[1].strip(): line.split("|")[2:-1] for line in lines if "|" in line}
    # 8 draws of the root at each of 10 steps, and at each later step 2 draws each of 3 nodes of the
    # PRM, of 8 / 4 nodes of many arrivals, and of the paths that began at such nodes before.
    steps = 2 * (10 * 8 + 45 * (5 * 2))
    assert [cell.strip() for cell in table["policy"][:3]] == ["2", "8", f"{steps:,}"]
    assert "PRM exact" in table
    assert any(line.startswith("fits: policy 'weak' and PRM 'exact'") for line in lines)
    assert [each.name for each in tmp_path.iterdir()] == ["bank.yaml"]
    assert cli.run(["bank", str(path)]) == 2
    assert "give --output, the folder of the bank, or --dry-run" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("sampling:", "notes:", "unknown key 'notes'"),
        (
            "sampling:\n  - {temperature: 0.6, root_draws: 8, revisit_draws: 2}",
            "",
            "'sampling' is missing",
        ),
        ("prms: [exact]", "", "key 'prms' is missing: add it"),
        ("prms: [exact]", "prms: []", "prms is empty: give at least one"),
        ("temperature: 0.6, ", "", "sampling, entry 1: key 'temperature' is missing"),
        (
            "revisit_draws: 2",
            "revisit_drws: 2",
            "unknown key 'revisit_drws': did you mean 'revisit_draws'",
        ),
        ("revisit_draws: 2", "revisit_draws: 9", "revisit_draws=9 must be at most root_draws=8"),
        (
            "temperature: 0.6",
            "temperature: -1",
            "entry 1: temperature must be a finite number >= 0",
        ),
        ("temperature: 0.6", "temperature: warm", "entry 1: temperature='warm': must be a number"),
        (
            "root_draws: 8",
            "root_draws: 0",
            "entry 1: root_draws=0: must be an integer of at least 1",
        ),
        ("revisits_per_prm: 3", "revisits_per_prm: many", "revisits_per_prm='many'"),
        ("world: controller", "world: moon", "split = 'moon'; known question sets"),
        ("count: 2", "count: 0", "questions, entry 1: count=0: must be an integer of at least 1"),
        (
            "policy: weak",
            "policy: {path: weak, backend: 'http://localhost:1', log_probs: false}",
            "policy: log_probs=False: a bank keeps them",
        ),
        (
            "policy: weak",
            "policy: {backend: 'http://localhost:1', chat: true, served_name: m}",
            "policy: chat=True: a bank keeps token ids",
        ),
    ],
)
def test_a_wrong_recipe_is_one_line(tmp_path, capsys, old, new, message):
    path = written(tmp_path, RECIPE.replace(old, new))
    assert cli.run(["bank", str(path), "--output", str(tmp_path / "out")]) == 2
    line = capsys.readouterr().err
    assert message in line
    assert line.count("\n") == 1


def test_a_recipe_records_what_its_action_table_asks_for(tmp_path):
    path = tmp_path / "bank.yaml"
    setting = "  - {{temperature: {}, top_p: {}, top_k: {}, root_draws: 8}}\n".format
    settings = [
        dataclasses.astuple(each) for each in search.cats.ACTION_TABLES["top-k"].sampling_settings()
    ]
    entries = [setting(*each) for each in settings]

    def write(entries, table="top-k"):
        head, _, tail = RECIPE.partition("  - {temperature")
        tail = tail.partition("\n")[2]
        path.write_text(f"{head}{''.join(entries)}{tail}actions: {table}\n")

    write(entries)
    assert len(load_bank_recipe(path).allocation.draws) == 8
    # The table says what must be there, not what else may be.
    write([*entries, setting(0.0, 1.0, 0)])
    assert len(load_bank_recipe(path).allocation.draws) == 9
    for missing in range(8):
        write(entries[:missing] + entries[missing + 1 :])
        temperature, top_p, top_k = settings[missing]
        with pytest.raises(
            BadInputError,
            match=rf"actions: table 'top-k' samples with temperature {temperature:g}, top_p "
            rf"{top_p:g}, top_k {top_k}, which 'sampling' does not list: add - {{temperature: ",
        ):
            load_bank_recipe(path)
    for table in ("paper", "[top-k]", "7"):
        write(entries, table)
        with pytest.raises(BadInputError, match=r"actions: unknown action table .*: choose one of"):
            load_bank_recipe(path)


def test_a_setting_twice_is_refused(tmp_path):
    entry = "  - {temperature: 0.6, root_draws: 8, revisit_draws: 2}\n"
    with pytest.raises(BadInputError, match="a setting occurs twice"):
        load_bank_recipe(written(tmp_path, RECIPE.replace(entry, 2 * entry)))


@pytest.mark.parametrize("part", ["controller", "validation", "test"])
@pytest.mark.parametrize("policy", ["weak", "strong"])
def test_shipped_recipes_can_be_read(policy, part):
    loaded = load_bank_recipe(ROOT / "recipes" / "bank" / f"{policy}-{part}.yaml")
    assert loaded.policy.path == policy
    assert loaded.questions[0].world == part
    recorded = {entry.sampling for entry in loaded.allocation.draws}
    wanted = {
        search.Sampling(temperature, top_p, top_k)
        for num_extra, _, temperature, top_p, top_k in search.cats.CATS.actions.rows
        if num_extra > 0
    }
    assert wanted | {search.cats.CATS.base, search.Sampling(), search.Sampling(0.0)} <= recorded


def test_an_outcome_model_of_the_users_own_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(ScriptedPrm, "finished_only", True, raising=False)
    with pytest.raises(BadInputError, match=r"outcome model.* and a bank needs a score for each"):
        collected(tmp_path)


class Endless(ScriptedPolicy):
    """No two samples are equal, and none ends before the last step."""

    def generate(self, requests):
        made = super().generate(requests)
        for request, samples in zip(requests, made.samples, strict=True):
            where = (len(request.path), request.temperature, *(step.text for step in request.path))
            samples[:] = [
                dataclasses.replace(
                    sample,
                    step=Step(f"{stable_seed(*where)}{number:03d}", (1,)),
                    finish="end" if request.to_end else "step",
                )
                for number, sample in enumerate(samples)
            ]
        return made


@pytest.mark.parametrize("root_draws_per_prm", [0, 1])
def test_a_bank_has_no_more_samples_than_its_dry_run_says(tmp_path, root_draws_per_prm):
    """Draws of nodes that PRMs chose begin paths, which are drawn at all later depths."""
    allocation = dataclasses.replace(RICH, root_draws_per_prm=root_draws_per_prm)
    recipe = scripted_bank.recipe(tmp_path, allocation=allocation, max_depth=12)
    (tree,) = grown(allocation, 1, policy=Endless(), depth=12)
    assert sum(map(sum, tree.nodes.draws)) <= bank_cost(recipe, 1).samples
