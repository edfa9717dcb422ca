"""Figures of the world's models, on scores known beforehand."""

from __future__ import annotations

import math

import pytest

from cats_jax.world import task, tokenizer
from studies.world.models import measure, prms, sampling, training
from studies.world.models.labels import LabelledPath

torch = pytest.importorskip("torch")

QUESTION = "(3+4)*5=?"


def path(*steps: str) -> LabelledPath:
    exact = tuple(map(int, task.check_steps(QUESTION, steps)))
    return LabelledPath(QUESTION, 1, steps, exact)


def tiny_model(*, tied: bool = False):
    return training.new_model(training.ModelSize(1, 1), seed=0, tied=tied).eval()


def test_siblings_share_a_right_prefix():
    paths = [
        path("3+4=7", "7*5=35"),
        path("3+4=7", "7*5=36"),
        path("3+4=7", "7*5=36"),  # as drawn: twice
        path("3+4=8", "8*5=40"),  # nothing after a wrong step is a sibling
        path("3+4=8", "8*5=41"),
    ]
    nodes = measure.siblings(paths)
    assert nodes == [
        measure.Siblings(QUESTION, (), ("3+4=7",) * 3, ("3+4=8",) * 2),
        measure.Siblings(QUESTION, ("3+4=7",), ("7*5=35",), ("7*5=36",) * 2),
    ]
    assert measure.siblings(paths, num_children=3) == nodes[1:]


@pytest.mark.parametrize(
    ("right", "wrong", "pair"), [(0.9, 0.1, 1.0), (0.1, 0.9, 0.0), (0.5, 0.5, 0.5)]
)
def test_pair_counts_wins_and_half_ties(monkeypatch, right, wrong, pair):
    def scores(model, paths):
        del model
        return [[0.0, right if task.check_steps(*path)[-1] else wrong] for path in paths]

    monkeypatch.setattr(measure, "score_paths", scores)
    nodes = measure.siblings([path("3+4=7"), path("3+4=8"), path("3+4=9")])
    figures = measure.pair_figures(None, nodes)
    assert figures == {"pair": pair, "pair_ci": [pair, pair], "pairs": 2}


def test_pair_without_pairs_is_none():
    assert measure.pair_figures(tiny_model(), [])["pair"] is None


def test_scores_are_the_read_out_at_each_closing_separator():
    """Against one forward pass for each prefix, without padding."""
    model = tiny_model()
    steps = ("3+4=7", "7*5=35", "\\boxed{35}")
    paths = [(QUESTION, steps[:2]), (QUESTION, steps), (QUESTION, steps[:2])]
    scores = measure.score_paths(model, paths)
    assert [len(row) for row in scores] == [2, 3, 2]
    assert scores[0] == scores[2] == scores[1][:2]
    for end in range(1, 4):
        ids = torch.tensor([tokenizer.path_ids(QUESTION, steps[:end])])
        with torch.no_grad():
            logits = model(input_ids=ids).logits[0, -1]
        expected = torch.sigmoid(logits[tokenizer.PLUS_ID] - logits[tokenizer.MINUS_ID])
        assert scores[1][end - 1] == pytest.approx(expected.item(), abs=1e-6)


def test_step_figures():
    figures = measure.step_figures([[0.9, 0.2], [0.6]], [[1, 0], [0]])
    entropy = -(math.log(0.9) + math.log(0.8) + math.log(0.4)) / 3
    assert figures["cross_entropy"] == pytest.approx(entropy, abs=1e-4)
    assert figures["auc"] == 1.0
    assert figures["step_accuracy"] == pytest.approx(2 / 3, abs=1e-4)
    assert figures["share_right"] == pytest.approx(1 / 3, abs=1e-4)


def test_best_of_n_by_hand():
    correct = [[True, False, False, True]]
    scores = [[[0.9, 0.1], [0.5, 0.5], None, [0.4, 1.0]]]
    table = measure.best_of_n(correct, scores, ns=(2, 4, 8))
    # .5 beats .1 and .4; of the last two only one counts
    assert table["min"] == {"2": 0.5, "4": 0.0}
    assert table["last"] == {"2": 0.5, "4": 1.0}
    assert table["mean"] == {"2": 1.0, "4": 1.0}
    assert table["product"] == {"2": 0.5, "4": 1.0}


def test_best_of_n_without_a_candidate_is_wrong():
    assert measure.best_of_n([[True]], [[None]], ns=(1,))["min"] == {"1": 0.0}


def test_product_does_not_underflow():
    many = [1e-9] * 100
    table = measure.best_of_n([[False, True]], [[[*many, 0.1], [*many, 0.2]]], ns=(2,))
    assert table["product"] == {"2": 1.0}


def test_policy_figures():
    problems = task.problems("validation", 5)
    wrong = sampling.Sample(("\\boxed{0}",), True)
    cut = [sampling.Sample(problem.steps, False) for problem in problems]
    samples = [
        [sampling.Sample(problem.steps, True), wrong, wrong, incomplete]
        for problem, incomplete in zip(problems, cut, strict=True)
    ]
    figures = measure.policy_figures(problems, samples)
    assert figures["pass@1"] == 0.25
    assert figures["pass@4"] == 1.0
    assert "pass@16" not in figures
    assert figures["pass@1_by_level"] == {str(level): 0.25 for level in task.LEVELS}


def test_sparsity_counts_each_stored_tensor_once():
    untied, tied = tiny_model(), tiny_model(tied=True)
    embedding = untied.model.embed_tokens.weight.numel()
    figures = measure.sparsity(untied)
    assert figures["parameters"] == measure.sparsity(tied)["parameters"] + embedding
    with torch.no_grad():
        untied.lm_head.weight[: len(tokenizer.VOCABULARY) // 2] = 0.0
    assert measure.sparsity(untied)["sparsity_last_layer"] == pytest.approx(0.5, abs=0.01)
    assert measure.sparsity(untied)["sparsity_total"] > figures["sparsity_total"]


# --- What the PRMs' training does to a model -----------------------------------------------------


def test_deepening_keeps_what_the_policy_predicts():
    policy = training.new_model(training.ModelSize(2, 2), seed=0).eval()
    deep = prms.deepen(policy, 0, seed=1).eval()
    ids = torch.tensor([tokenizer.path_ids(QUESTION, ("3+4=7",))])
    with torch.no_grad():
        torch.testing.assert_close(deep(input_ids=ids).logits, policy(input_ids=ids).logits)
    assert not deep.config.tie_word_embeddings
    assert prms.untie(deep) is deep


def test_the_fresh_layer_looks_one_position_back():
    policy = training.new_model(training.ModelSize(1, 2), seed=0).eval()
    deep = prms.deepen(policy, 1, seed=1).eval()
    deep.set_attn_implementation("eager")
    ids = torch.tensor([tokenizer.path_ids(QUESTION, ("3+4=7", "7*5=35", "\\boxed{35}"))])
    with torch.no_grad():
        attention = deep(input_ids=ids, output_attentions=True).attentions[1][0]
    assert attention[:2].diagonal(-1, 1, 2)[:, 1:].min() > 0.99


@pytest.mark.parametrize("share", [0.5, 0.8])
def test_pruning_zeroes_the_smallest_weights(share):
    model = tiny_model()
    masks = prms.prune(model, share)
    for name, parameter in model.named_parameters():
        zeros = (parameter == 0).float().mean().item()
        if name in masks:
            assert zeros == pytest.approx(share, abs=0.01)
            assert torch.equal(parameter != 0, masks[name].bool())
    assert "lm_head.weight" in masks
    assert "model.embed_tokens.weight" not in masks
