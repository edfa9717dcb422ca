"""Whole answers in one request: the same steps as one by one, and an engine that is asked less."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_engine import DIGIT, END, STEP, ScriptedEngine, ScriptedPrm, Server, policy, prm

import search
from cats_jax import datasets
from cats_jax.errors import GeneratorContractError
from cats_jax.live.proxies import GeneratorProxy
from cats_jax.live.searcher import Searcher
from cats_jax.live.whole_answers import WholeAnswers
from cats_jax.models.prompts.step_text import cut_answer
from cats_jax.protocols import Question, Step, StepRequest

# How an answer is cut

RULES = policy(ScriptedEngine())._text


def one_by_one(tokens, max_depth, max_step_tokens, max_last_tokens):
    """Steps of a model that writes these tokens, asked as a search asks: (start, end, finish)."""
    steps, start = [], 0
    while len(steps) < max_depth:
        last = len(steps) == max_depth - 1
        limit = max_last_tokens if last else max_step_tokens
        for place in range(start, start + limit):
            if tokens[place] == END:
                return [*steps, (start, place + 1, "end")]
            # A separator behind nothing but separators closes nothing.
            if tokens[place] == STEP and not last and DIGIT in tokens[start:place]:
                steps.append((start, place + 1, "step"))
                start = place + 1
                break
        else:
            return [*steps, (start, start + limit, "length")]
    raise AssertionError("the last step ends the answer")


@given(
    tokens=st.lists(st.sampled_from([DIGIT] * 6 + [STEP] * 2 + [END]), max_size=60),
    max_depth=st.integers(2, 6),
    max_step_tokens=st.integers(1, 8),
    more=st.integers(0, 30),
)
def test_an_answer_is_cut_as_if_its_steps_were_sampled_one_by_one(
    tokens, max_depth, max_step_tokens, more
):
    limit = max_step_tokens + more
    tokens = [*tokens, *[DIGIT] * 200]
    expected = one_by_one(tokens, max_depth, max_step_tokens, limit)
    found, start = [], 0
    while not found or found[-1][2] == "step":
        depth = max_depth - len(found)
        if depth == 1:  # the last step is asked for by itself
            found += one_by_one(tokens[start:], 1, max_step_tokens, limit)
            found[-1] = (start, start + found[-1][1], found[-1][2])
            break
        stop = next((i for i in range(start, start + limit) if tokens[i] == END), None)
        finish, stop = ("length", start + limit) if stop is None else ("end", stop + 1)
        pieces = cut_answer(
            RULES,
            tuple(tokens[start:stop]),
            finish,
            rest=None,
            max_steps=depth,
            max_step_tokens=max_step_tokens,
        )
        found += [(start + each.start, start + each.end, each.finish) for each in pieces]
        assert pieces
        start = found[-1][1]
    *steps, last = found
    assert steps == expected[:-1]
    # The last step may have been sampled with those before it, and then has what was left of them.
    if last[2] == expected[-1][2]:
        assert last == expected[-1]


# Searches


class StepByStep:
    """A policy without its whole answers."""

    def __init__(self, inner):
        self.name, self.num_parameters = inner.name, inner.num_parameters
        self.check_question, self.generate = inner.check_question, inner.generate
        self.keep_only = inner.keep_only


@pytest.fixture(scope="module")
def questions():
    return datasets.world_questions("validation", 6).questions


def searched(generator, questions, strategy, num_candidates, **settings):
    searcher = Searcher(
        policy=generator, strategy=strategy, num_candidates=num_candidates, **settings
    )
    return searcher.run(questions)


def tree(result):
    return [
        (c.parent, c.step, c.pool_row, c.text, c.token_ids, c.invalid, c.done, c.log_prob)
        for c in result.candidates
    ]


@pytest.mark.parametrize("limit", [40, 9])
def test_greedy_decoding_is_the_same_with_one_request(questions, limit):
    whole, steps = ScriptedEngine(), ScriptedEngine()
    ours = searched(policy(whole, max_answer_tokens=limit), questions, search.greedy(), 1)
    theirs = searched(
        StepByStep(policy(steps, max_answer_tokens=limit)), questions, search.greedy(), 1
    )
    assert [tree(each) for each in ours] == [tree(each) for each in theirs]
    assert [each.answer for each in ours] == [each.answer for each in theirs]
    if limit == 40:
        assert len(whole.calls) == 1
    assert len(whole.calls) < len(steps.calls)


def test_an_interrupted_search_leaves_no_answers_to_the_next(questions):
    def interrupt(result):
        raise KeyboardInterrupt

    found = []
    for is_interrupted in (True, False):
        models = {"policy": policy(ScriptedEngine()), "scorer": prm(ScriptedPrm())}
        searcher = Searcher(strategy=search.best_of_n(), num_candidates=8, **models)
        if is_interrupted:
            with pytest.raises(KeyboardInterrupt):
                searcher.run(questions, interrupt)
        results = searcher.run(questions)
        found.append([(tree(each), each.answer, each.ledger.prm_computed) for each in results])
    assert found[0] == found[1]


def test_each_path_of_a_vote_is_one_answer(questions):
    engine = ScriptedEngine()
    generator = policy(engine)
    results = searched(generator, questions, search.majority(), 8)
    asked = {request.prompt: request for call in engine.calls for request in call}
    for result in results:
        request = asked[generator._prompt(result.question, ())]
        assert len(request.seeds) == 8
        paths = {0: ()}
        for each in result.candidates:
            paths[each.id] = (*paths[each.parent], *each.token_ids)
        grown = {each.parent for each in result.candidates}
        whole = [path for node, path in paths.items() if node not in grown]
        answers = [engine._sampled(request, seed).ids for seed in request.seeds]
        assert len(whole) == 8
        for path, answer in zip(sorted(whole), sorted(answers), strict=True):
            # What follows the last step of an answer that was cut at its limit is asked for again.
            end = "end" if answer[-1] == END else "length"
            pieces = cut_answer(RULES, answer, end, rest=None, max_steps=10, max_step_tokens=8)
            answer = answer[: pieces[-1].end]
            assert answer[: len(path)] == path or path[: len(answer)] == answer


def test_the_first_paths_do_not_depend_on_their_number(questions):
    many = searched(policy(ScriptedEngine()), questions, search.majority(), 8)
    few = searched(policy(ScriptedEngine()), questions, search.majority(), 4)

    def paths(result):
        """The paths from the root, by the row of their first step."""
        found = {}
        for each in result.candidates:
            row, path = found.get(each.parent, (each.pool_row, ()))
            found[each.id] = row, (*path, each.token_ids)
        return [path for row, path in found.values() if row < 4]

    assert list(map(paths, many)) == list(map(paths, few))


def test_all_tokens_are_charged_when_they_are_sampled(questions):
    engine = ScriptedEngine()
    results = searched(policy(engine), questions, search.majority(), 4)
    sampled = sum(
        len(engine._sampled(request, seed).ids)
        for call in engine.calls
        for request in call
        for seed in request.seeds
    )
    assert sum(result.ledger.generated for result in results) == sampled


@pytest.mark.parametrize("limit", [{"budget": 40}, {"max_tokens": 500}, {"max_seconds": 60.0}])
def test_a_search_with_a_limit_samples_step_by_step(questions, limit):
    engine = ScriptedEngine()
    searched(policy(engine), questions, search.majority(), 4, **limit)
    assert all(STEP in request.stop_ids for request in engine.calls[0])


def test_a_search_whose_later_steps_have_another_setting_samples_step_by_step(questions):
    hot, cold = search.Sampling(1.0), search.Sampling(0.0)

    def plan(params, key, state):
        first, later = search.request(state, 4, hot), search.request(state, 1, cold)
        asked = search.step.select(state.step == 0, first, later)
        return asked, state.memory

    strategy = dataclasses.replace(search.majority(), plan=plan, sampling=(hot, cold))
    engine = ScriptedEngine()
    searched(policy(engine), questions, strategy, 4)
    assert all(STEP in request.stop_ids for request in engine.calls[0])
    assert {request.temperature for call in engine.calls for request in call} == {0.0, 1.0}


def test_a_search_that_prunes_samples_step_by_step(questions):
    engine = ScriptedEngine()
    half = search.Strategy(
        name="half",
        plan=search.majority().plan,
        width=search.share_of_candidates(2),
        uses_scores=False,
    )
    searched(policy(engine), questions, half, 4)
    assert all(STEP in request.stop_ids for request in engine.calls[0])


# Scores


class NewestSteps:
    """A PRM without its scores of whole answers."""

    def __init__(self, inner):
        for name in ("name", "num_parameters", "sparsity_total", "sparsity_last_layer"):
            setattr(self, name, getattr(inner, name))
        self.score, self.keep_only = inner.score, inner.keep_only


def scores(result):
    return [(c.id, c.score, c.invalid) for c in result.candidates]


@pytest.mark.parametrize("context", [256, 40])
def test_scores_of_whole_answers_are_those_of_the_newest_steps(questions, context):
    def scored(scorer):
        generator = policy(ScriptedEngine())
        return searched(generator, questions, search.best_of_n(), 8, scorer=scorer)

    theirs = scored(NewestSteps(prm(ScriptedPrm(), context)))
    refused = sum(result.ledger.prm_refused for result in theirs)
    assert (refused > 0) == (context == 40)
    for engine in (ScriptedPrm(), ScriptedPrm(reads_cache=True), Server()):
        ours = scored(prm(engine, context))
        assert list(map(scores, ours)) == list(map(scores, theirs))
        assert [each.answer for each in ours] == [each.answer for each in theirs]
        assert sum(result.ledger.prm_refused for result in ours) == refused


def test_each_answer_is_read_once(questions):
    engine = ScriptedPrm()
    whole = policy(ScriptedEngine(), max_answer_tokens=150)
    results = searched(whole, questions, search.best_of_n(), 8, scorer=prm(engine))
    assert not engine.single
    assert len(engine.whole) == 1
    read = [ids for prompts in engine.whole for ids in prompts]
    assert len(set(read)) == len(read) <= 8 * len(questions)
    assert sum(result.ledger.prm_computed for result in results) == sum(map(len, read))


def test_paths_of_equal_ids_may_have_other_ends():
    """Steps may contain the tag, which is text in some formats; each has its score."""
    first = (Step("1+2=3\n\n3+1=4", (1,)), Step("4+1=5", (2,)))
    second = (Step("1+2=3", (3,)), Step("3+1=4\n\n4+1=5", (4,)))
    question, scorer = Question("q", "1+2+1+1=?"), prm(ScriptedPrm())
    found = scorer.score_answers([question] * 2, [first, second], [0, 0]).scores
    paths = [first[:1], first, second[:1], second]
    assert [*found[0], *found[1]] == scorer.score([question] * 4, paths).scores


class FailingSteps(GeneratorProxy):
    """A policy whose single steps fail, and whose whole answers do not."""

    def generate(self, requests):
        raise GeneratorContractError("a last step fails")

    def generate_answers(self, requests, max_steps):
        return self._model.generate_answers(requests, max_steps)


def test_answers_of_a_call_that_fails_are_not_kept(questions):
    """The call is repeated question by question, if a last step in it breaks the contract."""
    source = WholeAnswers(FailingSteps(policy(ScriptedEngine())), 5)
    settings = {"seeds": (1,), "temperature": 1.0, "top_p": 1.0, "top_k": 0}
    begun = StepRequest(questions[0], (), to_end=False, **settings)
    last = StepRequest(questions[1], (Step("7", (DIGIT, STEP)),), to_end=True, **settings)
    with pytest.raises(GeneratorContractError):
        source.generate([begun, last])
    source.generate([begun])
    assert len(source.unscored(questions[0])) == 1
