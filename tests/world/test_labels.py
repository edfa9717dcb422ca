"""Labels of the world's PRM training: exact, Monte-Carlo, and one for every token."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cats_jax.world import task, tokenizer
from studies.world.models import labels, sampling, slips, training

PROBLEMS = task.problems("prm", 25, seed=3)


def rows(question: str, steps: list[str]) -> list[tuple[str, float]]:
    """(token, label) of everything after the prompt."""
    labelled = labels.token_labels(question, steps)
    start = len(tokenizer.prompt_ids(question))
    assert set(labelled.labels[:start]) == {labels.NO_LABEL}
    tokens = [tokenizer.VOCABULARY[i] for i in labelled.ids[start:]]
    return list(zip(tokens, labelled.labels[start:], strict=True))


def test_token_labels_follow_the_path_as_written():
    # 3+4 was said to be 8: from there on 8*5 is what a right step computes, yet the path is wrong.
    assert rows("(3+4)*5=?", ["3+4=8", "8*5=40", "\\boxed{40}"]) == [
        *[(token, 1.0) for token in "3+4="],
        ("8", 0.0),
        ("\n\n", 0.0),
        *[(token, 1.0) for token in "8*5=40"],
        ("\n\n", 0.0),
        *[(token, 1.0) for token in ("\\boxed{", "4", "0", "}")],
        ("\n\n", 0.0),
    ]


def test_a_step_that_cannot_be_followed_ends_the_token_labels():
    labelled = rows("(3+4)*5=?", ["3+5=8", "8*5=40"])
    written = ["3", "+", "5", "=", "8", "\n\n"]
    assert labelled[:6] == list(zip(written, [1.0, 1.0, 0.0, 0.0, 0.0, 0.0], strict=True))
    assert [label for _, label in labelled[6:]] == [labels.NO_LABEL] * 6 + [0.0]


@given(st.integers(0, 10**6), st.sampled_from(PROBLEMS))
def test_separators_carry_exact_labels_and_right_steps_are_targets(seed, problem):
    steps = slips.slip_chain(random.Random(seed), problem, 0.4)
    exact = task.check_steps(problem.text, steps)
    labelled = labels.token_labels(problem.text, steps)
    assert labelled.ids == tokenizer.path_ids(problem.text, steps)
    columns = (labelled.ids, labelled.labels, labelled.weights, labelled.targets)
    assert set(map(len, columns)) == {len(labelled)}
    ends = [i for i, token in enumerate(labelled.ids) if token == tokenizer.SEPARATOR_ID][1:]
    assert [labelled.labels[i] for i in ends] == list(map(float, exact))
    targets = [target for target in labelled.targets if target != training.IGNORED]
    right = [step for step, label in zip(steps, exact, strict=True) if label]
    assert targets == tokenizer.path_ids("", right)[2:]


@given(st.integers(0, 10**6), st.sampled_from(PROBLEMS))
def test_slips_are_wrong_and_clean_chains_right(seed, problem):
    rng = random.Random(seed)
    assert slips.slip_chain(rng, problem, 0.0) == list(problem.steps)
    first = slips.slip_chain(rng, problem, 1.0)[0]
    assert first != problem.steps[0]
    step = rng.choice(problem.steps)
    assert slips.slip(rng, step) != step


def test_labels_of_samples(tmp_path):
    problem = PROBLEMS[0]
    wrong = (*problem.steps[:-1], "\\boxed{0}")
    drawn = [
        sampling.Sample(problem.steps, True),
        sampling.Sample(wrong, True),
        sampling.Sample(wrong, False),
    ]
    paths = labels.label_paths([problem], [drawn])
    assert [path.exact[-1] for path in paths] == [1, 0]
    assert all(path.exact[:-1] == (1,) * (len(wrong) - 1) for path in paths)
    labels.save_paths(paths, tmp_path / "paths.jsonl")
    assert labels.load_paths(tmp_path / "paths.jsonl") == paths


@given(st.lists(st.booleans(), max_size=30))
def test_as_many_right_paths_as_wrong_ones_are_kept(right):
    paths = [
        labels.LabelledPath(str(index), 1, ("a", "b"), (1, int(each)))
        for index, each in enumerate(right)
    ]
    kept = labels.as_many_right_as_wrong(paths)
    wrong = [path for path in paths if not path.exact[1]]
    all_right = [path for path in paths if path.exact[1]]
    assert [path for path in kept if not path.exact[1]] == wrong
    assert [path for path in kept if path.exact[1]] == all_right[: len(wrong)]
    assert kept == sorted(kept, key=lambda path: int(path.question))


def test_monte_carlo_labels_are_whether_a_rollout_reaches_the_answer(monkeypatch):
    problem = PROBLEMS[0]
    right, wrong = problem.steps, ("1+1=3", *problem.steps[1:])

    def generate(model, prompts, num_samples, seed):
        """Continues a right first step wrongly, and a wrong one, by luck, to the answer."""
        del model, seed
        lucky = [*tokenizer.encode(right[-1]), tokenizer.EOS_ID]
        unlucky = [*tokenizer.encode("\\boxed{0}"), tokenizer.EOS_ID]
        wrong_start = tokenizer.path_ids(problem.text, wrong[:1])
        return [
            [lucky if prompt[: len(wrong_start)] == wrong_start else unlucky] * num_samples
            for prompt in prompts
        ]

    monkeypatch.setattr(sampling, "generate", generate)
    paths = [
        labels.LabelledPath(problem.text, problem.level, steps, (1,) * len(steps))
        for steps in (right, wrong)
    ]
    estimated = labels.add_monte_carlo(None, paths, 2, seed=0)
    last = len(right) - 1
    assert estimated[0].monte_carlo == (0,) * last + (1,)  # the boxed step itself is judged
    assert estimated[1].monte_carlo == (1,) * (last + 1)


@pytest.mark.parametrize(
    ("text", "steps", "complete"),
    [
        ("3+4=7\n\n\\boxed{7}</s>", ("3+4=7", "\\boxed{7}"), True),
        ("3+4=7\n\n\\boxed{7}", ("3+4=7", "\\boxed{7}"), False),  # cut by the token limit
        ("3+4=7\n\n</s>", ("3+4=7", ""), False),  # a blank step
        ("\n\n\n\n3</s>", ("", "", "3"), False),
        ("</s>", ("",), False),
    ],
)
def test_samples_are_split_at_separators(text, steps, complete):
    ids = tokenizer.build_tokenizer().encode(text)
    assert sampling.to_sample(ids) == sampling.Sample(steps, complete)


def test_samples_with_special_tokens_are_no_candidates():
    ids = [tokenizer.PAD_ID, *tokenizer.encode("3+4=7"), tokenizer.EOS_ID]
    assert not sampling.to_sample(ids).complete
