"""Where the right path was lost: by hand, and against a walk over steps that follows all paths."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from run_folders import candidate, row_of, searched

from cats_jax.grading.boxed_integer import BoxedIntegerGrader
from cats_jax.reporting.right_path import follow_right_path
from cats_jax.runs.folder import RunFolder
from cats_jax.world import task

QUESTION, GOLD = "((1+2)+3)+4=?", "10"
RIGHT = ("1+2=3", "3+3=6", "6+4=10", "\\boxed{10}")
WRONG = ("1+2=4", "3+3=5", "6+4=11", "\\boxed{9}")


def _fate(result, policy="weak", gold=GOLD, tmp_path=None, **fields):
    run = RunFolder(tmp_path, {"config": {"policy": {"path": policy}}}, ())
    return follow_right_path(run, row_of(result, gold, **fields), result, BoxedIntegerGrader())


def _end(identity, parent, step, answer, score=None, **fields):
    fields = {"kept": True, **fields}
    text = f"\\boxed{{{answer}}}"
    return candidate(identity, parent, step, text, score, done=True, answer=answer, **fields)


def test_a_right_answer_lost_nothing():
    steps = [candidate(i + 1, i, i, RIGHT[i], 0.9, kept=True) for i in range(3)]
    fate = _fate(searched("q", QUESTION, [*steps, _end(4, 3, 3, "10", 0.9)], chosen=4))
    assert (fate.cause, fate.step, fate.summary) == ("none", None, "")
    assert fate.sentence == "The answer is right, and so is every step of its path."


def test_a_right_answer_by_luck():
    steps = [candidate(1, 0, 0, "1+2=4", 0.9, kept=True), _end(2, 1, 1, "10", 0.9)]
    fate = _fate(searched("q", QUESTION, steps, chosen=2))
    assert fate.cause == "none"
    assert fate.sentence == "The answer is right, although step 1 of its path is wrong."


def test_a_right_step_that_was_dropped():
    steps = [
        candidate(1, 0, 0, "1+2=3", 0.4),
        candidate(2, 0, 0, "1+2=4", 0.9, kept=True),
        candidate(3, 0, 0, "1+2=5", 0.8, kept=True),
        _end(4, 2, 1, "11", 0.9),
    ]
    fate = _fate(searched("q", QUESTION, steps, chosen=4))
    assert (fate.cause, fate.step, fate.summary) == ("dropped", 0, "dropped at step 1")
    assert "one sample was right, and dropped: `1+2=3` (0.400)." in fate.sentence
    assert fate.sentence.endswith("Kept at that step: `1+2=4` (0.900), `1+2=5` (0.800).")
    assert fate.remarks[1].startswith("the right path was lost here")
    assert fate.remarks[2] == fate.remarks[3] == "first wrong step"
    assert fate.knows_steps


@pytest.mark.parametrize(
    ("dropped", "lowest", "end"),
    [
        (0.5, 0.6, "`1+2=5` (0.600)."),
        (0.5, 0.5, " The dropped step tied in score with a kept one."),
        (0.5, 0.4, " A step with a lower score than the dropped one was kept."),
        (None, None, "`1+2=5`."),
    ],
)
def test_a_step_that_was_dropped_without_a_lower_score(dropped, lowest, end):
    steps = [
        candidate(1, 0, 0, "1+2=3", dropped),
        candidate(2, 0, 0, "1+2=4", 0.9, kept=True),
        candidate(3, 0, 0, "1+2=5", lowest, kept=True),
        candidate(4, 0, 0, "1+2=6", 0.1),
    ]
    fate = _fate(searched("q", QUESTION, steps))
    assert fate.cause == "dropped"
    assert fate.sentence.endswith(end)
    assert ("tied" in fate.sentence) == (dropped is not None and dropped == lowest)


def test_no_right_sample():
    steps = [
        candidate(1, 0, 0, "1+2=3", 0.9, kept=True),
        candidate(2, 1, 1, "3+3=5", 0.9, kept=True),
        candidate(3, 1, 1, "3+3=7", 0.1),
    ]
    fate = _fate(searched("q", QUESTION, steps))
    assert (fate.cause, fate.step) == ("not sampled", 1)
    assert "none of 2 samples that continued a right path was right" in fate.sentence
    # The mark stands at the step that the sentence names, on the kept one of its samples.
    assert "lost at step 2" in fate.sentence
    assert fate.remarks == {2: "the right path was lost here: none of 2 samples is right"}


def test_a_search_that_ended_too_early():
    steps = [candidate(1, 0, 0, "1+2=3", 0.9, kept=True)]
    fate = _fate(searched("q", QUESTION, steps, status="budget"))
    assert (fate.cause, fate.step) == ("not continued", 1)
    assert fate.sentence.startswith("The search ended (budget) before step 2 of a right path")
    assert fate.remarks == {1: "right, and step 2 was not sampled"}


def test_a_search_without_a_candidate():
    fate = _fate(searched("q", QUESTION, [], status="failed", reason="x"))
    assert fate.cause == "not continued"


def test_a_grader_that_finds_no_path_right_in_a_covered_row():
    """As after a change of the grader, or at a limit of a comparison."""
    steps = [candidate(1, 0, 0, "1+2=3", 0.9, kept=True), _end(2, 1, 1, "7", 0.9)]
    result = searched("q", QUESTION, steps, chosen=2)
    fate = _fate(result, policy="other", correct=False, covered=True)
    assert (fate.cause, fate.sentence) == ("unknown", "None of 1 finished paths is right.")


def test_the_choice_lost_it():
    steps = [candidate(i + 1, i, i, RIGHT[i], 0.9, kept=True) for i in range(3)]
    ends = [_end(4, 3, 3, "10", 0.5), _end(5, 3, 3, "9", 0.8)]
    fate = _fate(searched("q", QUESTION, [*steps, *ends], chosen=5))
    assert (fate.cause, fate.summary) == ("choice", "lost by the choice")
    assert "1 of 2 finished paths is right, with a score of 0.500" in fate.sentence
    assert fate.sentence.endswith("Its first wrong step is step 4.")
    assert fate.remarks[4] == "right, not chosen"


def test_the_rest_of_an_answer_may_be_one_step():
    rest = "\n\n".join(RIGHT[1:])
    last = candidate(2, 1, 1, rest, 0.9, done=True, answer="10", kept=True)
    fate = _fate(
        searched("q", QUESTION, [candidate(1, 0, 0, RIGHT[0], 0.9, kept=True), last], chosen=2)
    )
    assert fate.sentence.endswith("so is every step of its path.")


@pytest.mark.parametrize(
    ("policy", "text", "gold"),
    [("/models/qwen", QUESTION, GOLD), ("weak", "What is 1+2?", "10"), ("weak", QUESTION, "12")],
)
def test_of_other_data_only_answers_are_known(policy, text, gold):
    ends = [
        candidate(1, 0, 0, "so", 0.2, done=True, answer=gold, kept=True),
        candidate(2, 0, 0, "or", 0.7, done=True, answer="7", kept=True),
    ]
    result = searched("q", text, ends, chosen=2)
    fate = _fate(result, policy, gold)
    assert (fate.cause, fate.knows_steps, fate.step) == ("choice", False, None)
    assert dict(fate.remarks) == {1: "right, not chosen"}
    lost = _fate(result, policy, "8")
    assert (lost.cause, lost.sentence) == ("unknown", "None of 2 finished paths is right.")
    assert _fate(result, policy, "7").sentence == "The answer is right."
    nothing = searched("q", text, [], status="failed")
    assert _fate(nothing, policy, gold).sentence == "No path finished."


@st.composite
def trees(draw):
    """Trees of a search that continues what it kept in the step before, right or wrong."""
    nodes, frontier = [], [(0, True)]
    for step in range(draw(st.integers(1, 4))):
        grown = []
        for parent, is_right in frontier:
            for _ in range(draw(st.integers(0, 3))):
                right = is_right and draw(st.booleans())
                text = RIGHT[step] if right else WRONG[step]
                kept, done = draw(st.booleans()), step == 3
                answer = text[7:-1] if done else None
                node = candidate(len(nodes) + 1, parent, step, text, draw(st.floats(0, 1)))
                node.kept, node.done, node.answer = kept, done, answer
                nodes.append(node)
                if kept and not done:
                    grown.append((node.id, right))
        frontier = grown
    return nodes


@given(trees())
def test_the_step_is_the_first_one_after_which_no_right_path_is_kept(nodes):
    result = searched("q", QUESTION, nodes)
    fate = _fate(result)

    def texts(node):
        return [] if node == 0 else [*texts(nodes[node - 1].parent), nodes[node - 1].text]

    def right(node):
        return all(task.check_steps(QUESTION, texts(node.id)))

    sampled = {s: [n for n in nodes if n.step == s and right(n)] for s in range(4)}
    kept = [any(n.kept for n in sampled[s]) for s in range(4)]
    if all(kept):
        assert fate.cause == "choice"  # none was chosen here
        return
    lost = kept.index(False)
    assert fate.step == lost
    assert f"step {lost + 1}" in fate.sentence
    here = {i for i, text in fate.remarks.items() if text.startswith("the right path was lost")}
    assert {nodes[i - 1].step for i in here} == ({lost} if fate.cause != "not continued" else set())
    if sampled[lost]:
        assert fate.cause == "dropped"
    else:
        before = [n.id for n in nodes if n.step == lost - 1 and n.kept and right(n)] or [0]
        continued = any(n.parent in before for n in nodes if n.step == lost)
        assert fate.cause == ("not sampled" if continued else "not continued")
