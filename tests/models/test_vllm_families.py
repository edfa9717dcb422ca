"""Real vLLM engines with the published families of PRMs: `make test-vllm`."""

import itertools

import outcome_models
import prm_cards
import prm_families
import pytest
import torch
from vllm_engines import BLOCK, prm_in_process, prm_over_http

from cats_jax.errors import ScorerContractError
from cats_jax.models.huggingface.scorer import HuggingFaceScorer
from cats_jax.models.prm.family import choose_format
from cats_jax.models.prm.format import OUTCOME, PRM_FORMATS, bounded
from cats_jax.protocols import Question, Step

pytestmark = pytest.mark.vllm


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return prm_families.released(tmp_path_factory.mktemp("families"))


# An engine takes ten seconds of a core and more, and what it is asked for depends on the read-out
# alone: one release of RLHFlow; over HTTP a head with labels (two tokens are in `test_vllm.py`).
_FAMILIES = [(name, "in_process") for name in prm_families.NAMES if name != "rlhflow-deepseek"]
_FAMILIES += [("qwen2.5-math-prm", "http")]


@pytest.fixture(scope="module", params=_FAMILIES, ids="-".join)
def family(request, folders):
    """A released layout's folder, its scorer on vLLM, and its model card."""
    name, backend = request.param
    folder = folders[name]
    prm_format = PRM_FORMATS[prm_families.FORMATS[name]]
    card = prm_cards.CARDS[name](folder)
    if backend == "in_process":
        yield folder, prm_in_process(folder, prm_format), card
        return
    with prm_over_http(folder, prm_format) as scorer:
        yield folder, scorer, card


def steps_of(texts):
    return tuple(Step(text, ()) for text in texts)


def prefixes(texts):
    path = steps_of(texts)
    return [path[: length + 1] for length in range(len(path))]


@torch.inference_mode()
def test_a_family_has_the_scores_of_its_card(family):
    _, scorer, card = family
    question = Question("q", prm_cards.QUESTION)
    for kind, texts in prm_cards.PATHS.items():
        expected = card(prm_cards.QUESTION, texts)
        paths = prefixes(texts)
        for known in (0, 0, 1):  # the second time from the prefix cache
            once = scorer.score_answers([question], [paths[-1]], [known]).scores[0]
            assert once == pytest.approx(expected[known:], abs=1e-5), (kind, known)
        whole = scorer.score([question] * len(paths), paths).scores
        assert whole == pytest.approx(expected, abs=1e-5), kind
        grown = [scorer.score([question], [path]).scores[0] for path in paths]
        assert grown == pytest.approx(expected, abs=1e-5), kind
        assert len(texts) < 3 or max(whole) - min(whole) > 1e-3


def test_a_family_has_one_score_for_every_step(family):
    """Text that looks like a separator, against the Hugging Face bridge."""
    folder, scorer, _ = family
    reference = HuggingFaceScorer(folder, choose_format("auto", folder))
    question = Question("q", prm_cards.QUESTION)
    for kind, texts in prm_cards.ADVERSARIAL.items():
        paths = prefixes(texts)
        asked = [question] * len(paths)
        expected = reference.score(asked, paths).scores
        assert scorer.score(asked, paths).scores == pytest.approx(expected, abs=1e-5), kind
    for texts, index, reason in (
        ([], 0, "no step"),
        (["1", " \n\t", "2"], 1, "blank"),
    ):
        with pytest.raises(ScorerContractError, match=f"step {index}: .*{reason}"):
            scorer.score([question], [steps_of(texts)])
    too_long = scorer.score([question] * 2, [steps_of(["1", "2 " * 2400, "3"]), steps_of(["1"])])
    assert [score is None for score in too_long.scores] == [True, False]
    (once,) = scorer.score_answers([question], [steps_of(["1", "2 " * 2400, "3"])], [0]).scores
    assert once == [pytest.approx(too_long.scores[1], abs=1e-5), None, None]


def test_of_a_family_only_the_newest_step_is_computed(request, family):
    if request.node.callspec.params["family"][1] == "http":
        return  # `/classify` does not say what was cached
    _, scorer, _ = family
    question = Question("new", "How much is a step, when forty are there already?")
    paths = prefixes(prm_cards.PATHS["forty"])
    usage = [scorer.score([question], [path]).usage[0] for path in paths]
    for before, now in itertools.pairwise(usage):
        known, length = before.computed + before.cached, now.computed + now.cached
        assert now.cached == known // BLOCK * BLOCK
        assert now.computed == length - now.cached


def test_an_outcome_model_has_the_rewards_of_transformers_own_classifier(tmp_path):
    folder = outcome_models.save(tmp_path / "outcome", "llama")
    scorer, reference = prm_in_process(folder, OUTCOME), outcome_models.Reference(folder)
    assert scorer.finished_only
    question = Question("q", prm_cards.QUESTION)
    answers = list(prm_cards.PATHS.values())
    rewards = [reference.logits(question.text, "\n\n".join(texts))[0] for texts in answers]
    expected = [bounded(reward) for reward in rewards]
    assert max(expected) - min(expected) > 1e-3
    for _ in range(2):  # the second time from the prefix cache
        scoring = scorer.score([question] * len(answers), [steps_of(texts) for texts in answers])
        assert scoring.scores == pytest.approx(expected, abs=1e-5)
