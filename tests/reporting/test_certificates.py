"""Certificates: what a lead proves, against brute force, and the report made of run folders."""

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from run_folders import finished, row_of, write_run

from cats_jax import cli
from cats_jax.errors import BadInputError
from cats_jax.grading.boxed_integer import BoxedIntegerGrader
from cats_jax.reporting import certificates
from cats_jax.runs.folder import read_run

JUDGE = BoxedIntegerGrader()
GOLD = "1"


def searched(question, paths, answer="best"):
    """A search that finished with (answer, score) paths of one step each."""
    result = finished(question, paths)
    usable = [pair for pair in paths if None not in pair]
    if answer == "best":
        answer = max(usable, key=lambda pair: pair[1])[0] if usable else None
    result.answer, result.status = answer, "answered" if answer else "no_answer"
    return result


def write(folder, searches, *, strategy="best_of_n", prm="exact", trees=True):
    rows = [row_of(result, GOLD, strategy, prm=prm) for result in searches]
    return read_run(write_run(folder, list(zip(rows, searches, strict=True)), trees=trees))


# The lead


@pytest.mark.parametrize(
    ("paths", "gap"),
    [
        ([("1", 0.9), ("2", 0.5), ("3", 0.6)], 0.3),
        ([("1", 0.9), ("01", 0.8), ("2", 0.5)], 0.4),  # equal answers are one
        ([("1", 0.9), ("1", 0.8)], None),  # nothing to lead
        ([("1", 0.9)], None),
        ([("1", 0.9), (None, 0.95), ("2", 0.5)], 0.4),  # a path without answer is not selectable
        ([("1", 0.7), ("2", 0.7)], 0.0),
        ([("1", None), ("2", None)], None),
        ([], None),
    ],
)
def test_the_lead_is_over_other_answers(paths, gap):
    found = certificates.observed_gap(searched("q", paths), JUDGE)
    assert found == (None if gap is None else pytest.approx(gap))


def test_a_vote_against_the_best_path_has_no_lead():
    paths = [("1", 0.9), ("2", 0.5), ("2", 0.5)]
    result = searched("q", paths, answer="2")
    assert certificates.observed_gap(result, JUDGE) is None
    assert certificates.describe_certificate(result, 0.1, JUDGE) == (
        "not certified: no path with another answer to lead, or the answer is not that of the path "
        "with the best score"
    )
    result.answer = None
    assert certificates.describe_certificate(result, 0.1, JUDGE).endswith("gives no answer")


def test_the_lead_must_exceed_two_epsilon():
    result = searched("q", [("1", 0.75), ("2", 0.25)])
    assert certificates.is_certified(result, 0.24, JUDGE)
    assert not certificates.is_certified(result, 0.25, JUDGE)
    assert "certified: it leads by 0.500, 2 epsilon is 0.480" in (
        certificates.describe_certificate(result, 0.24, JUDGE)
    )
    assert certificates.describe_certificate(result, 0.3, JUDGE).startswith("not certified")


@given(
    st.lists(st.tuples(st.sampled_from("123"), st.floats(0, 1)), min_size=1, max_size=5),
    st.floats(0, 0.6),
)
def test_a_certified_answer_is_right_unless_a_score_is_off_by_more(paths, epsilon):
    result = searched("q", paths)
    deviates = any(abs(score - (answer == GOLD)) > epsilon for answer, score in paths)
    if certificates.is_certified(result, epsilon, JUDGE):
        assert result.answer == GOLD or deviates


def test_a_planned_run_without_a_configuration_of_the_held_out_run(tmp_path):
    reference = write(tmp_path / "held-out", held_out(2))
    bare = write(tmp_path / "bare", held_out(2), trees=False)
    row = reference.rows[0]
    same = (row.strategy, row.num_candidates, row.prm)
    certificates.check_certifiable([("beam", 4, "exact"), same], reference)
    for planned, there in (
        ([("beam", 4, "exact")], reference),
        ([("majority", 4, None)], reference),
        ([same], bare),
    ):
        with pytest.raises(BadInputError, match="none of this run's strategies"):
            certificates.check_certifiable(planned, there)


# Runs


def held_out(n=40):
    """A PRM that is off by .1 on most questions, and by .9 on one in five."""
    return [
        searched(f"h{i}", [("1", 0.9 if i % 5 else 0.1), ("2", 0.05)], answer="1") for i in range(n)
    ]


def test_a_report_of_certified_answers(tmp_path):
    reference = write(tmp_path / "held-out", held_out())
    run = write(
        tmp_path / "run",
        [
            searched("a", [("1", 0.95), ("2", 0.05)]),  # certified, right
            searched("b", [("2", 0.95), ("1", 0.05)]),  # certified, wrong: epsilon is exceeded
            searched("c", [("1", 0.5), ("2", 0.4)]),  # not certified, right
            searched("d", [("2", 0.5), ("1", 0.4)]),  # not certified, wrong
            searched("e", [("1", 0.95), ("1", 0.9)]),  # nothing to lead
            searched("f", [(None, 0.9)]),  # no answer
        ],
    )
    found = dict[str, Any](*certificates.certify(run, reference, quantile=0.7))
    assert found["epsilon"] == pytest.approx(0.1)
    assert found["epsilon_low"] <= found["epsilon"] <= found["epsilon_high"]
    assert found["certified"] == pytest.approx(2 / 6)
    assert found["accuracy"] == 0.5
    assert found["others"] == pytest.approx(2 / 4)
    assert found["wrong"] == pytest.approx(1 / 6)
    assert found["exceeded"] == pytest.approx(3 / 5)  # of the questions with an answer
    assert found["wrong"] <= found["exceeded"]
    # At a level that the hard fifth counts for, nothing can be certified.
    (strict,) = certificates.certify(run, reference, quantile=0.9)
    assert strict["epsilon"] == pytest.approx(0.9)
    assert (strict["certified"], strict["accuracy"]) == (0.0, None)
    assert strict["others"] is not None


def test_groups_without_scores_trees_or_reference_are_left_out(tmp_path):
    reference = write(tmp_path / "held-out", held_out())
    scored = searched("a", [("1", 0.9), ("2", 0.1)])
    unscored = searched("a", [("1", None)], answer="1")
    for name, result, options in (
        ("prm", scored, {"prm": "other"}),
        ("strategy", scored, {"strategy": "beam"}),
        ("trees", scored, {"trees": False}),
        ("scores", unscored, {}),
    ):
        run = write(tmp_path / name, [result], **options)
        with pytest.raises(BadInputError, match="nothing to certify"):
            certificates.certify(run, reference)


def test_epsilon_is_that_of_all_data_sets_of_the_held_out_run(tmp_path):
    def write_sets(name, sets):
        pairs = [
            (row_of(result, GOLD, "best_of_n", dataset=dataset), result)
            for dataset, searches in sets.items()
            for result in searches
        ]
        return read_run(write_run(tmp_path / name, pairs))

    hard = [searched(f"h{i}", [("1", 0.1), ("2", 0.05)]) for i in range(30)]
    easy = [searched(f"e{i}", [("1", 0.95), ("2", 0.05)]) for i in range(10)]
    run = write_sets("run", {one: [searched(one, [("1", 0.9), ("2", 0.1)])] for one in ("x", "y")})
    for name, reference in (("a", {"h": hard, "e": easy}), ("b", {"e": easy, "h": hard})):
        sheet = certificates.certified_answers(run, write_sets(name, reference), 0.5)
        assert [record["epsilon"] for record in sheet.records] == pytest.approx([0.9, 0.9])
        assert [cells[0] for cells in sheet.rows()] == ["x", "y"]


def test_epsilon_must_come_from_other_questions(tmp_path):
    run = write(tmp_path / "run", held_out(3))
    with pytest.raises(BadInputError, match="not held out: it shares 3 questions"):
        certificates.certify(run, run)
    # Ids may be mere numbers of rows: digests of texts decide where both runs have them.
    texts = [dataclasses.replace(run, manifest={**run.manifest, "texts": [t]}) for t in "ab"]
    with pytest.raises(BadInputError, match="shares 1 questions"):
        certificates.check_held_out(["other"], texts[0].manifest, run.folder, texts[0])
    certificates.check_held_out(["q0", "q1"], texts[0].manifest, run.folder, texts[1])


def test_epsilon_must_come_from_the_same_setting(tmp_path):
    run = write(tmp_path / "run", held_out(3))
    run.manifest["config"]["prms"] = [{"path": "exact", "label": "exact"}]
    models = run.manifest["models"]

    def refused(message, **changes):
        other = dataclasses.replace(run, manifest={**run.manifest, **changes})
        with pytest.raises(certificates.NothingToCertifyError, match=message):
            certificates.check_held_out(["a"], run.manifest, run.folder, other)

    refused("another setting .*policy.name", models={**models, "policy": {"name": "strong"}})
    refused("another setting .*max_depth", config={**run.manifest["config"], "max_depth": 3})
    retrained = {"name": "exact", "sha256": "1"}
    refused("PRM 'exact' is another one", models={**models, "prm exact": retrained})
    rescored = {"path_score": "last", "vote": None, "prm": None}
    refused("another setting .*rescored", config={**run.manifest["config"], "rescored": rescored})


def test_a_report_names_a_run_without_scored_paths_and_certifies_the_others(tmp_path, capsys):
    reference = write(tmp_path / "held-out", held_out())
    scored = write(tmp_path / "scored", [searched("a", [("1", 0.9), ("2", 0.1)])])
    bare = write(tmp_path / "bare", [searched("b", [("1", 0.9)])], strategy="beam")
    command = ["report", str(bare.folder), str(scored.folder), "--held-out", str(reference.folder)]
    assert cli.run([*command, "--output", str(tmp_path / "out")]) == 0
    output = capsys.readouterr()
    assert "lead by more than 2 epsilon" in output.out
    assert f"skipped: nothing to certify in '{bare.folder}'" in output.err
    assert list((tmp_path / "out").glob("*.csv"))
    assert cli.run(["report", str(bare.folder), "--held-out", str(reference.folder)]) == 2


def test_an_evaluation_of_held_out_questions_is_refused_before_it_searches(tmp_path, capsys):
    write(tmp_path / "held-out", [searched("a", [("1", 0.95), ("2", 0.05)])])
    questions, recipe = tmp_path / "questions.jsonl", tmp_path / "recipe.yaml"
    questions.write_text('{"id": "a", "question": "1+2=?", "answer": "3"}')
    recipe.write_text(
        f"{{name: x, policy: weak, strategies: greedy, num_candidates: [1], "
        f"questions: {{file: {str(questions)!r}}}}}"
    )
    folders = ["--output", str(tmp_path / "run"), "--held-out", str(tmp_path / "held-out")]
    assert cli.run(["evaluate", str(recipe), *folders]) == 2
    assert "is not held out: it shares 1 questions" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_the_command_prints_the_table(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    write(tmp_path / "held-out", held_out())
    write(tmp_path / "run", [searched("a", [("1", 0.95), ("2", 0.05)])])
    arguments = ["report", str(tmp_path / "run"), "--held-out", str(tmp_path / "held-out")]
    assert cli.run(arguments) == 0
    output = capsys.readouterr().out
    assert "quantile 0.5" in output
    row = next(line for line in output.splitlines() if "0.100" in line)
    assert "| best_of_n | 4 | exact |   0.100 |" in row
    write(tmp_path / "two", [searched("b", [("1", 0.95), ("2", 0.05)])])
    both = ["report", str(tmp_path / "two"), *arguments[1:], "--output", str(tmp_path / "out")]
    assert cli.run(both) == 0
    titles = [line for line in capsys.readouterr().out.splitlines() if "certified answers" in line]
    assert titles == [
        f"{tmp_path / name}: certified answers: they lead by more than 2 epsilon, quantile 0.5"
        for name in ("two", "run")
    ]
    assert (tmp_path / "out" / "certificates-two.md").is_file()
    assert cli.run([*arguments, "--quantile", "0"]) == 2
    assert "--quantile 0" in capsys.readouterr().err
    for command in (arguments[:2], ["evaluate", "recipes/quick.yaml"]):
        assert cli.run([*command, "--quantile", "0.9"]) == 2
        assert "--quantile 0.9: is that of --held-out" in capsys.readouterr().err
