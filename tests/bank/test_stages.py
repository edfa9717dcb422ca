"""Banks that the policy grows alone and that are then scored by one PRM at a time."""

import dataclasses
import pathlib
import shutil
import weakref

import jax
import numpy as np
import pyarrow.parquet as pq
import pytest
from scripted import ScriptedModels, ScriptedPrm, question_set
from scripted_bank import ALONE, RICH, collected, grown, recipe

from cats_jax.bank import layout, score, store
from cats_jax.bank.trees import Nodes
from cats_jax.datasets import load_questions
from cats_jax.errors import BadInputError, RunWarning
from cats_jax.models.source import ModelFolders
from cats_jax.protocols import Scoring, TokenUsage
from cats_jax.specs.recipe import PolicySpec, PrmSpec, QuestionSpec
from search.bank import UNREADABLE

GOOD, BAD, SHORT = PrmSpec("good"), PrmSpec("bad"), PrmSpec("short")


class CachingPrm(ScriptedPrm):
    """Computes what of a path it has not kept: 9 tokens of prompt, 1 per step and 1 per letter."""

    def __init__(self, noise=0.2, refuses=0.0):
        super().__init__(noise, refuses=refuses)
        self.kept = {}
        self.most = 0
        self.asked = []

    def score(self, questions, paths):
        usage = []
        scores = super().score(questions, paths).scores
        for question, path, value in zip(questions, paths, scores, strict=True):
            texts = tuple(step.text for step in path)
            self.asked.append((question.id, texts))
            known = self.kept.setdefault(question.id, set())
            sizes = {texts[:end]: 1 + len(texts[end - 1]) for end in range(1, len(texts) + 1)}
            sizes[()] = 9
            if value is None:
                usage.append(TokenUsage())
                continue
            new = sum(size for prefix, size in sizes.items() if prefix not in known)
            usage.append(TokenUsage(computed=new, cached=sum(sizes.values()) - new))
            known.update(sizes)
        return Scoring(scores, usage, 0.0)

    def keep_only(self, question, paths):
        texts = [tuple(step.text for step in path) for path in paths]
        wanted = {path[:end] for path in texts for end in range(len(path) + 1)}
        self.kept[question.id] = self.kept.get(question.id, set()) & wanted
        self.most = max(self.most, sum(len(each) for each in self.kept.values()))


def trees(prms, **changes):
    return grown(ALONE, prms=prms, **changes)


@pytest.fixture(scope="module")
def alone():
    """The trees that the policy grows without a PRM; nobody changes them."""
    return trees({})


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The folder of a bank that was grown alone and scored without a stop; nobody changes it."""
    return collected(tmp_path_factory.mktemp("undisturbed"), allocation=ALONE)


def by_name(nodes):
    """The columns of the nodes apart from the scores."""
    values = dataclasses.asdict(nodes)
    return {name: values[name] for name in values if name not in ("score", "prm_tokens")}


def files(folder):
    return sorted(path.name for path in pathlib.Path(folder).glob("*.parquet"))


def rows(folder):
    return {name: pq.read_table(folder / name).to_pylist() for name in files(folder)}


# Scores


@pytest.mark.parametrize("paths", [256, 8])
def test_afterwards_the_scores_are_those_of_a_tree_scored_while_it_grew(monkeypatch, alone, paths):
    """Where the allocation reads no scores, tree, scores and token counts are the same."""
    monkeypatch.setattr(score, "PATHS_AT_ONCE", paths)
    noises = {"good": (0.2, 0.0), "bad": (0.9, 0.0), "short": (0.2, 0.1)}
    together = trees({label: CachingPrm(*each) for label, each in noises.items()})
    assert [by_name(tree.nodes) for tree in alone] == [by_name(tree.nodes) for tree in together]
    assert all(tree.prompt_tokens == [] for tree in alone)
    refused = 0
    for number, each in enumerate(noises.values()):
        prm = CachingPrm(*each)
        columns = score.score_column([(tree.question, tree.nodes) for tree in alone], prm)
        assert not any(prm.kept.values())
        for tree, column in zip(together, columns, strict=True):
            assert column.score == [row[number] for row in tree.nodes.score]
            assert column.prm_tokens == [row[number] for row in tree.nodes.prm_tokens]
            assert column.prompt_tokens == tree.prompt_tokens[number] == 9
            refused += column.score.count(UNREADABLE)
    assert refused > 10


def test_a_path_whose_beginning_is_too_long_is_not_asked_for(alone):
    """With no other PRM to go on for, a tree that grows with this one would end there."""
    prm = CachingPrm(refuses=0.1)
    columns = score.score_column([(tree.question, tree.nodes) for tree in alone], prm)
    below = 0
    for tree, column in zip(alone, columns, strict=True):
        for row, parent in enumerate(tree.nodes.parent):
            if row and column.score[parent] == UNREADABLE and not tree.nodes.invalid[row]:
                assert (column.score[row], column.prm_tokens[row]) == (UNREADABLE, 0)
                below += 1
    assert below > 3
    unreadable = {path for path in prm.asked if _refused(path, alone, columns)}
    assert unreadable
    assert not any((name, path[:-1]) in unreadable for name, path in prm.asked)
    ended = trees({"short": ScriptedPrm(refuses=0.1)})
    assert sum(len(tree.nodes) for tree in ended) < sum(len(tree.nodes) for tree in alone)


def _refused(asked, alone, columns):
    name, texts = asked
    for tree, column in zip(alone, columns, strict=True):
        if tree.question.id == name:
            nodes = tree.nodes
            row = 0
            for text in texts:
                row = next(
                    child
                    for child in range(row + 1, len(nodes))
                    if (nodes.parent[child], nodes.text[child], nodes.invalid[child])
                    == (row, text, False)
                    and (child in nodes.parent or text == texts[-1])
                )
            return column.score[row] == UNREADABLE
    raise AssertionError(name)


def test_the_cache_of_a_prm_is_bounded(monkeypatch, alone):
    """Few paths at once: fewer prefixes are kept, and each step is still computed once."""
    most, computed = {}, {}
    for paths in (10_000, 8):
        monkeypatch.setattr(score, "PATHS_AT_ONCE", paths)
        prm = CachingPrm()
        columns = score.score_column([(tree.question, tree.nodes) for tree in alone], prm)
        most[paths], computed[paths] = prm.most, [column.prm_tokens for column in columns]
        assert len(set(prm.asked)) == len(prm.asked)
    assert most[8] < most[10_000] / 2
    assert computed[8] == computed[10_000]


def _nodes(rows, prms):
    """Nodes of a tree from pairs of text and parent, without answers."""
    nodes = Nodes()
    same = {"text_class": 0, "num_tokens": 0, "log_prob": 0.0, "done": False, "answer": -1}
    for text, parent in rows:
        nodes.add(settings=1, prms=prms, parent=parent, text=text, invalid=False, **same)
    return nodes


def test_a_tree_without_valid_steps_has_a_column():
    nodes = _nodes([("", -1), ("", 0)], prms=0)
    nodes.invalid[1] = True
    (column,) = score.score_column([(question_set(1).questions[0], nodes)], CachingPrm())
    assert (column.score, column.prm_tokens, column.prompt_tokens) == ([0.0, 0.0], [0, 0], 0)


def test_costs_behind_a_cache_that_holds_more_than_the_prompt():
    nodes = _nodes([("", -1), ("a", 0), ("b", 0), ("c", 0)], prms=1)
    tree = score.ScoredTree(question_set(1).questions[0], nodes, 1)
    # The prompts of all questions begin alike, and two steps do.
    for row, computed, cached in ((1, 110, 32), (2, 14, 128), (3, 50, 112)):
        tree.set_score(row, 0, 0.5, TokenUsage(computed=computed, cached=cached))
    assert tree.prompt_tokens == [112]
    assert nodes.prm_tokens == [[0], [30], [30], [50]]


# Folders


class Tracked(ScriptedModels):
    """Notes which models are alive when another one is loaded; each is in a reference cycle."""

    def __init__(self):
        super().__init__()
        self.alive = weakref.WeakSet()
        self.others = []

    def _tracked(self, model):
        self.others.append(len(self.alive))
        model.itself = model
        self.alive.add(model)
        return model

    def policy(self, spec):
        return self._tracked(super().policy(spec))

    def prm(self, spec):
        return self._tracked(super().prm(spec))


def test_one_model_is_in_memory_at_a_time(tmp_path):
    models = Tracked()
    collected(tmp_path, models=models, allocation=ALONE)
    assert models.loaded == ["policy", "good", "bad"]
    assert models.others == [0, 0, 0]
    assert not models.alive


@pytest.mark.parametrize("allocation", [RICH, ALONE])
def test_the_notes_of_prms_are_shown(tmp_path, monkeypatch, allocation):
    monkeypatch.setattr(ScriptedPrm, "note", "two critiques had no verdict", raising=False)
    with pytest.warns(RunWarning, match="two critiques") as caught:
        collected(tmp_path, allocation=allocation)
    assert len(caught) == 2


@pytest.mark.parametrize("allocation", [RICH, dataclasses.replace(ALONE, root_draws_per_prm=1)])
def test_models_whose_scores_decide_are_loaded_together(tmp_path, allocation):
    models = Tracked()
    folder = collected(tmp_path, models=models, allocation=allocation)
    assert models.others == [0, 1, 2]
    assert not [name for name in files(folder) if name.startswith("scores")]


def test_a_bank_scored_afterwards_loads_as_one_scored_while_growing(tmp_path, undisturbed):
    loaded = layout.load_bank(undisturbed)
    known = load_questions(recipe(tmp_path).questions)
    together = trees({"good": ScriptedPrm(0.2), "bad": ScriptedPrm(0.9)}, known=known)
    folder = tmp_path / "together"
    folder.mkdir()
    for name in ("manifest.json", "sparsity.json"):
        (folder / name).write_text((undisturbed / name).read_text())
    manifest = (folder / "manifest.json").read_text()
    (folder / "manifest.json").write_text(manifest.replace(store.AFTERWARDS, store.WHILE_GROWING))
    for number in range(3):
        store.write_block(folder, number, together[2 * number : 2 * number + 2])
    for prms in (None, ["bad"], ["bad", "good"]):
        got = layout.load_bank(undisturbed, prms=prms).arrays
        jax.tree.map(np.testing.assert_array_equal, got, layout.load_bank(folder, prms=prms).arrays)
    assert float(loaded.arrays.score.max()) > 0.5


class Stops(Exception):
    pass


@pytest.mark.parametrize(
    ("parts", "left"),
    [
        (2, ["policy", "good", "bad"]),  # a block of trees
        (6, ["good", "bad"]),  # all trees, no score
        (8, ["good", "bad"]),  # a block of the first PRM's scores
        (12, ["bad"]),
        (18, []),
    ],
)
def test_a_collection_goes_on_where_it_stopped(tmp_path, undisturbed, parts, left):
    def stop(done, total):
        assert total == 18  # six questions are sampled, then scored twice
        if done == parts:
            raise Stops

    with pytest.raises(Stops):
        collected(tmp_path, allocation=ALONE, report=stop)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "bank").glob("*.parquet")}
    models = ScriptedModels()
    folder = collected(tmp_path, models=models, allocation=ALONE)
    assert models.loaded == left
    assert all(path.stat().st_mtime_ns == when for path, when in before.items())
    assert rows(folder) == rows(undisturbed)


def test_a_column_is_added_later_and_nothing_is_repeated(tmp_path):
    folder = collected(tmp_path, allocation=ALONE, prms=(GOOD,))
    before = {path: path.stat().st_mtime_ns for path in folder.glob("*.parquet")}
    models = ScriptedModels()
    collected(tmp_path, models=models, allocation=ALONE, prms=(GOOD, SHORT))
    assert models.loaded == ["short"]
    assert all(path.stat().st_mtime_ns == when for path, when in before.items())
    at_once = collected(tmp_path / "at once", allocation=ALONE, prms=(GOOD, SHORT))
    assert rows(folder) == rows(at_once)
    loaded = layout.load_bank(folder, expected={"prm short": {"name": "short"}})
    assert loaded.prms == ("good", "short")
    score = np.asarray(loaded.arrays.score)
    assert (score == UNREADABLE).any(axis=0).tolist() == [False, True]
    # A search that calls no PRM is not refused; an unreadable node has draws unless scores chose.
    for scored, refused in (("afterwards", False), ("while growing", True)):
        bank = dataclasses.replace(
            loaded,
            arrays=loaded.arrays.replace(score=score[:, 1:]),
            manifest={**loaded.manifest, "scored": scored},
        )
        free = np.asarray(layout.without_prm(bank).score)
        assert (free == UNREADABLE).any() == refused
        both = dataclasses.replace(bank, arrays=loaded.arrays)
        assert not (np.asarray(layout.without_prm(both).score) == UNREADABLE).any()


def test_the_prms_of_a_bank_stay(undisturbed):
    folder, above = undisturbed, undisturbed.parent
    before, manifest = rows(folder), (folder / "manifest.json").read_text()
    for prms in ((GOOD,), (BAD, GOOD), (GOOD, SHORT), (SHORT, GOOD, BAD)):
        models = ScriptedModels()
        named = ", ".join(spec.label for spec in prms)
        with pytest.raises(
            BadInputError,
            match=rf"has the PRMs good, bad, the recipe {named}: a recipe may add PRMs to the end "
            r"of the list, .*list the bank's PRMs first, or choose another",
        ):
            collected(above, models=models, allocation=ALONE, prms=prms)
        assert models.loaded == []
    changed = dataclasses.replace(BAD, dtype="bfloat16")
    with pytest.raises(BadInputError, match=r"settings: config\.prms\[1\]\.dtype: .* Use"):
        collected(above, allocation=ALONE, prms=(GOOD, changed, SHORT))
    with pytest.raises(BadInputError, match=r"settings: config\.seed: 0 -> 1"):
        collected(above, allocation=ALONE, prms=(GOOD, BAD, SHORT), seed=1)
    assert rows(folder) == before
    assert (folder / "manifest.json").read_text() == manifest


def test_prms_that_decided_what_is_drawn_stay_alone(tmp_path):
    collected(tmp_path, prms=(GOOD,))
    with pytest.raises(
        BadInputError, match=r"has the PRMs good, the recipe good, bad: its PRMs decided what"
    ):
        collected(tmp_path, prms=(GOOD, BAD))
    with pytest.raises(BadInputError, match=r"of other settings: .*revisits_per_prm: 2 -> 0"):
        collected(tmp_path, prms=(GOOD,), allocation=ALONE)


def test_scores_that_are_missing_are_named(tmp_path, undisturbed):
    folder = pathlib.Path(shutil.copytree(undisturbed, tmp_path / "bank"))
    whole = layout.load_bank(folder)
    (folder / "scores-01-00002.parquet").unlink()
    with pytest.raises(
        BadInputError,
        match=r"no scores of PRM 'bad' for 1 of its 3 blocks yet: run its `cats-jax bank` again, "
        r"or use only the PRMs that it has: good$",
    ):
        layout.load_bank(folder)
    part = layout.load_bank(folder, prms=["good"])
    np.testing.assert_array_equal(part.arrays.score[:, 0], whole.arrays.score[:, 0])
    for path in folder.glob("scores-*.parquet"):
        path.unlink()
    with pytest.raises(BadInputError, match=r"'good' for 3 of its 3 blocks yet: .* again$"):
        layout.load_bank(folder, prms=["good"])


def test_scores_of_trees_that_are_lost_are_lost_too(tmp_path, undisturbed):
    """A tree that is sampled again, on a GPU say, may be another one."""
    folder = collected(tmp_path, allocation=ALONE)
    for name in ("nodes", "questions"):
        (folder / f"{name}-00001.parquet").unlink()
    started = []

    def stop(done, total):
        if started and done == 14:
            raise Stops
        started.append(done)

    with pytest.raises(Stops):
        collected(tmp_path, allocation=ALONE, report=stop)
    assert not list(folder.glob("scores-*-00001.parquet"))
    assert len(list(folder.glob("scores-*.parquet"))) == 4
    models = ScriptedModels()
    collected(tmp_path, models=models, allocation=ALONE)
    assert models.loaded == ["good", "bad"]
    assert rows(folder) == rows(undisturbed)


@pytest.mark.slow
def test_language_models_give_the_same_scores_and_costs_in_both_ways():
    known = load_questions((QuestionSpec(world="validation", count=4),))
    models = ModelFolders()

    spec = PolicySpec("weak", max_step_tokens=32, max_answer_tokens=64)
    labels = ("exact", "pruned-80")
    prms = {label: models.prm(PrmSpec(label)) for label in labels}
    together = trees(prms, known=known, policy=models.policy(spec), depth=10)
    alone = trees({}, known=known, policy=models.policy(spec), depth=10)
    assert [by_name(tree.nodes) for tree in alone] == [by_name(tree.nodes) for tree in together]
    for number, label in enumerate(labels):
        prm = models.prm(PrmSpec(label))
        columns = score.score_column([(tree.question, tree.nodes) for tree in alone], prm)
        for tree, column in zip(together, columns, strict=True):
            assert column.score == [row[number] for row in tree.nodes.score]
            assert column.prm_tokens == [row[number] for row in tree.nodes.prm_tokens]
            assert column.prompt_tokens == tree.prompt_tokens[number]
        assert sum(column.prompt_tokens for column in columns) > 40


class Misfit(ScriptedModels):
    """One of whose PRMs has another tokenizer than its format's."""

    def check(self, spec):
        if spec.path == "bad":
            raise BadInputError("PRM 'bad': no tag")


@pytest.mark.parametrize("allocation", [ALONE, RICH])
def test_every_prm_is_checked_before_the_policy_is_loaded(tmp_path, allocation):
    models = Misfit()
    with pytest.raises(BadInputError, match="PRM 'bad': no tag"):
        collected(tmp_path, models=models, allocation=allocation)
    assert models.loaded == []
