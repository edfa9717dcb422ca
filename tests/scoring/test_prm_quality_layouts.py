"""Labelled steps from files: the three layouts, and what breaks them."""

import json

import pytest

from cats_jax.errors import BadInputError, ScorerContractError
from cats_jax.protocols import Scoring, TokenUsage
from cats_jax.scoring.labelled import ALL, LabelledSteps, read_labelled
from cats_jax.scoring.score_labelled import add_scores, write_labelled

PLAIN = {"question": "q", "steps": ["a", "b", "c"], "labels": [1, 0]}
BENCH = {"id": "math-0", "problem": "p", "steps": ["a", "b", "c"], "label": 1}


def rated(text, rating, flagged=None):
    return {"text": text, "rating": rating, "flagged": flagged}


def step(*completions, chosen=0, human=None):
    return {
        "completions": list(completions),
        "human_completion": human,
        "chosen_completion": chosen,
    }


def prm800k(*steps, problem="p"):
    return {
        "labeler": "someone",
        "question": {"problem": problem, "ground_truth_answer": "4"},
        "label": {"steps": list(steps), "finish_reason": "found_error"},
    }


def read(tmp_path, *rows, **settings):
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return read_labelled([path], **settings)


def steps_and_labels(labelled):
    return [(path.steps, path.labels) for path in labelled.paths]


def test_a_plain_row_ends_at_its_last_label(tmp_path):
    labelled = read(tmp_path, {**PLAIN, "scores": [0.1, 0.2, 0.3]})
    where = f"{tmp_path / 'rows.jsonl'}:1"
    scores = {"scores": (0.1, 0.2)}
    assert labelled.paths == (LabelledSteps(where, "q", ("a", "b"), (1, 0), scores, ALL),)
    assert (labelled.num_rows, labelled.prms) == (1, ("scores",))


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ([1, 1, 1], (1, 1, 1)),
        ([None, 1, None], (None, 1)),
        ([True, False], (1, 0)),
        ([1.0, 0.0, None], (1, 0)),
        ([0], (0,)),
    ],
)
def test_labels_are_right_wrong_or_none(tmp_path, labels, expected):
    (path,) = read(tmp_path, {**PLAIN, "labels": labels}).paths
    assert path.labels == expected
    assert path.steps == ("a", "b", "c")[: len(expected)]


def test_scores_of_several_prms(tmp_path):
    both = {"x": [0, 0.5, 1], "y": [1, 1, 1]}
    labelled = read(tmp_path, {**PLAIN, "scores": both}, {**PLAIN, "scores": both})
    assert labelled.prms == ("x", "y")
    assert labelled.paths[1].scores == {"x": (0.0, 0.5), "y": (1.0, 1.0)}


def test_rows_without_a_label_are_counted_and_left_out(tmp_path):
    labelled = read(tmp_path, {**PLAIN, "labels": []}, PLAIN, {**PLAIN, "labels": [None, None]})
    assert (labelled.num_rows, labelled.num_unlabelled, len(labelled.paths)) == (3, 2, 1)


def test_rows_may_belong_to_one_solution(tmp_path):
    labelled = read(tmp_path, {**PLAIN, "row": "one"}, {**PLAIN, "row": "one"}, PLAIN)
    assert [path.row for path in labelled.paths[:2]] == ["one", "one"]
    assert labelled.paths[2].row.endswith("rows.jsonl:3")
    labelled = read(tmp_path, {**PLAIN, "row": None}, {**PLAIN, "row": None})
    assert [path.row[-2:] for path in labelled.paths] == [":1", ":2"]


def test_groups_are_a_column(tmp_path):
    rows = [{**PLAIN, "set": "a"}, {**BENCH, "set": 2}, {**prm800k(step(rated("x", 1))), "set": 1}]
    labelled = read(tmp_path, *rows, by="set")
    assert [path.group for path in labelled.paths] == ["a", "2", "1"]


@pytest.mark.parametrize(
    ("label", "labels"), [(-1, (1, 1, 1)), (0, (0,)), (1, (1, 0)), (2, (1, 1, 0))]
)
def test_processbench_labels_up_to_the_first_wrong_step(tmp_path, label, labels):
    (path,) = read(tmp_path, {**BENCH, "label": label, "scores": [0.1, 0.2, 0.3]}).paths
    assert (path.question, path.labels) == ("p", labels)
    assert path.steps == ("a", "b", "c")[: len(labels)]
    assert path.scores == {"scores": (0.1, 0.2, 0.3)[: len(labels)]}


def test_a_json_array_is_read_too(tmp_path):
    path = tmp_path / "gsm8k.json"
    path.write_text(json.dumps([BENCH, {**BENCH, "label": -1}], indent=2), encoding="utf-8")
    labelled = read_labelled([path, path])
    assert [path.labels for path in labelled.paths] == [(1, 0), (1, 1, 1)] * 2
    assert labelled.paths[1].row == f"{path}, row 2"
    path.write_text(json.dumps([BENCH]), encoding="utf-8-sig")
    assert len(read_labelled([path]).paths) == 1
    path.write_text(json.dumps([BENCH, 3]), encoding="utf-8")
    with pytest.raises(BadInputError, match="row 2: a row must be a JSON object"):
        read_labelled([path])
    for text in ("[{", json.dumps([BENCH])[:-2] + ', "x": ' + "[" * 65 + "]" * 65 + "}]"):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(BadInputError, match="is no JSON array"):
            read_labelled([path])


def test_prm800k_paths_are_the_chosen_one_and_its_alternatives(tmp_path):
    row = prm800k(
        step(rated("a", 1)),
        step(rated("b", -1), rated("c", 1), chosen=1),
        step(rated("d", -1), rated("e", 0), chosen=None),
    )
    labelled = read(tmp_path, row)
    assert steps_and_labels(labelled) == [
        (("a", "c"), (1, 1)),
        (("a", "b"), (None, 0)),
        (("a", "c", "d"), (None, None, 0)),
        (("a", "c", "e"), (None, None, 1)),
    ]
    assert {path.question for path in labelled.paths} == {"p"}
    assert len({path.row for path in labelled.paths}) == 1  # one solution


@pytest.mark.parametrize(("neutral", "label"), [("right", 1), ("wrong", 0)])
def test_prm800k_neutral_ratings(tmp_path, neutral, label):
    row = prm800k(step(rated("a", 0)), step(rated("b", -1)))
    assert steps_and_labels(read(tmp_path, row, neutral=neutral)) == [(("a", "b"), (label, 0))]


def test_prm800k_neutral_ratings_left_out(tmp_path):
    row = prm800k(step(rated("a", 0)), step(rated("b", -1), rated("c", 0)), step(rated("d", 0)))
    assert steps_and_labels(read(tmp_path, row, neutral="out")) == [(("a", "b"), (None, 0))]


@pytest.mark.parametrize("human", ["h", {"text": "h", "rating": None, "source": "human"}])
def test_prm800k_steps_of_labellers_are_not_labelled(tmp_path, human):
    row = prm800k(
        step(rated("a", -1), rated("b", -1), chosen=None, human=human), step(rated("c", 1))
    )
    assert steps_and_labels(read(tmp_path, row)) == [
        (("h", "c"), (None, 1)),
        (("a",), (0,)),
        (("b",), (0,)),
    ]


def test_prm800k_steps_that_were_not_rated(tmp_path):
    row = prm800k(
        step(rated("a", None)),
        step(rated("b", 1, flagged=True), rated("c", -1, flagged=False)),
        step(rated("d", 1)),
        {"completions": None, "human_completion": None, "chosen_completion": None},
        step(rated("e", 1)),
    )
    assert steps_and_labels(read(tmp_path, row)) == [
        (("a", "b", "d"), (None, None, 1)),
        (("a", "c"), (None, 0)),
    ]


SCORED = {**PLAIN, "scores": [0.1, 0.2, 0.3]}
BROKEN = [
    ({**PLAIN, "labels": [1, -1]}, r"labels\[1\]=-1: must be 1 \(right\), 0 \(wrong\) or null"),
    ({**PLAIN, "labels": ["+"]}, r"labels\[0\]='\+': must be 1"),
    ({**PLAIN, "labels": [0.5]}, r"labels\[0\]=0.5: must be 1"),
    ({**PLAIN, "labels": [[1]]}, r"labels\[0\]=\[1\]: must be 1"),
    ({**PLAIN, "labels": 1}, "labels must be a list of 0, 1 and null"),
    ({**PLAIN, "labels": [1, 1, 1, 1]}, "4 labels for 3 steps: .* fewer, not more"),
    ({**PLAIN, "steps": []}, "steps must be a list of texts, one or more"),
    ({**PLAIN, "steps": "abc"}, "steps must be a list of texts"),
    ({**PLAIN, "steps": ["a", 2, "c"]}, r"steps\[1\] must be a text, got int"),
    ({**PLAIN, "question": 3}, "question must be a text, got int"),
    ({"question": "q", "steps": ["a"]}, 'has the keys question, steps: a row is {"question"'),
    ({}, 'has the keys none: a row is {"question"'),
    ({**PLAIN, "scores": [0.1, 0.2]}, "scores: 2 for 3 steps: every step needs one score"),
    ({**PLAIN, "scores": {"x": [0.1] * 4}}, "scores of 'x': 4 for 3 steps"),
    ({**PLAIN, "scores": 0.5}, "scores: float for 3 steps"),
    ({**PLAIN, "scores": [0.1, float("nan"), 0.2]}, r"scores\[1\]=nan: must be a number in"),
    ({**PLAIN, "scores": [0.1, 0.2, 1.1]}, r"scores\[2\]=1.1: must be a number in \[0, 1\]"),
    ({**PLAIN, "scores": [-1e-9, 0.2, 1]}, r"scores\[0\]=-1e-09: must be a number in"),
    ({**PLAIN, "scores": [10**400, 0.2, 1]}, r"scores\[0\]=10+: must be a number in"),
    ({**PLAIN, "scores": {"x": [True, 0, 0]}}, r"scores of 'x'\[0\]=True: must be a number"),
    ({**PLAIN, "scores": [None, 0.2, 1]}, r"scores\[0\]=None: must be a number"),
    ({**BENCH, "label": 3}, "label=3: must be the index of the first wrong of 3 steps"),
    ({**BENCH, "label": -2}, "label=-2: must be the index"),
    ({**BENCH, "label": True}, "label=True: must be the index"),
    ({**BENCH, "label": None}, "label=None: must be the index"),
    ({**BENCH, "problem": None}, "problem must be a text, got NoneType"),
    (prm800k(step(rated("a", 2))), r"label.steps\[0\].completions\[0\].rating=2: must be -1"),
    (prm800k(step(rated("a", "1"))), r"completions\[0\].rating='1': must be -1"),
    (prm800k(step(rated("a", True))), r"completions\[0\].rating=True: must be -1"),
    (prm800k(step(rated(None, 1))), r"completions\[0\].text must be a text, got NoneType"),
    (prm800k(step("a")), r"completions\[0\] must be an object"),
    (prm800k(step(rated("a", 1), chosen=1)), "chosen_completion=1: must be the index of one of 1"),
    (prm800k(step(rated("a", 1), rated("b", 1), chosen=True)), "completion=True: must be the ind"),
    (prm800k({"completions": 5}), r"label.steps\[0\].completions must be a list"),
    (prm800k("a"), r"label.steps\[0\] must be an object"),
    (prm800k(step(human={"text": 3}, chosen=None)), "human_completion must be a text, got int"),
    (prm800k(step(rated("a", 1)), problem=7), "question.problem must be a text, got int"),
    ({"question": {"problem": "p"}}, "label.steps must be a list"),
    ({**prm800k(step(rated("a", 1))), "scores": [0.5]}, '"scores" has no place in PRM800K'),
]


@pytest.mark.parametrize(("row", "message"), BROKEN)
def test_a_broken_row_is_named(tmp_path, row, message):
    with pytest.raises(BadInputError, match=rf"rows\.jsonl:2: .*{message}"):
        read(tmp_path, PLAIN, row)


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (PLAIN, "has scores of no PRM, the first row of scores"),
        ({**PLAIN, "scores": None}, "has scores of no PRM, the first row of scores"),
        ({**PLAIN, "scores": {"x": [0, 0, 0]}}, "has scores of x, the first row of scores"),
    ],
)
def test_rows_with_scores_of_other_prms_are_named(tmp_path, second, message):
    with pytest.raises(BadInputError, match=rf"rows\.jsonl:2: {message}"):
        read(tmp_path, SCORED, second)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (PLAIN, "column 'set', by which rows are to be grouped, is missing: the columns are quest"),
        ({**PLAIN, "set": ["a"]}, "column 'set', .*, is no single value"),
    ],
)
def test_a_row_without_its_group_is_named(tmp_path, row, message):
    with pytest.raises(BadInputError, match=rf"rows\.jsonl:2: {message}"):
        read(tmp_path, {**PLAIN, "set": "a"}, row, by="set")


@pytest.mark.parametrize(("row", "by"), [(BENCH, "problem"), (BENCH, "label"), (PLAIN, "question")])
def test_rows_that_are_written_by_group_are_read(tmp_path, row, by):
    labelled = read(tmp_path, row, by=by)
    write_labelled(tmp_path / "written.jsonl", labelled, by=by)
    assert read_labelled([tmp_path / "written.jsonl"], by=by).paths == labelled.paths


def test_files_without_labels(tmp_path):
    with pytest.raises(BadInputError, match="no step of 1 rows is labelled: give labelled ones"):
        read(tmp_path, {**PLAIN, "labels": []})
    with pytest.raises(BadInputError, match="no rows: give a file of labelled steps"):
        read(tmp_path)
    with pytest.raises(BadInputError, match=r"'nowhere\.jsonl' does not exist: check the path"):
        read_labelled(["nowhere.jsonl"])
    (tmp_path / "text.jsonl").write_text("no json\n")
    with pytest.raises(BadInputError, match=r"text\.jsonl:1: not a JSON object"):
        read_labelled([tmp_path / "text.jsonl"])


class ShortQuestions:
    """A PRM that can read short questions only."""

    def count_tokens(self, question, path):
        if len(question.text) > 1:
            raise ScorerContractError("step 0: too long", step=0)
        return len(path)

    def score(self, questions, paths):
        return Scoring([0.5] * len(paths), [TokenUsage()] * len(paths), 0.0)

    def keep_only(self, question, paths):
        pass


def test_a_row_of_another_question_stays_if_one_with_its_number_is_left_out(tmp_path):
    rows = [{**PLAIN, "question": text, "row": 1} for text in ("long", "q")]
    scored = add_scores(read(tmp_path, *rows, rows[1]), ShortQuestions(), "prm")
    assert [path.question for path in scored.labelled.paths] == ["q", "q"]
    assert scored.errors == ("1: steps[0]: too long",)
