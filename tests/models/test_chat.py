"""The policy on a chat endpoint, against a scripted server that counts what it bills."""

import contextlib
import dataclasses
import email.utils
import fcntl
import functools
import gc
import json
import time
from concurrent.futures import ThreadPoolExecutor

import chat_server
import pytest
from chat_server import PROBES, SECRET, serving, write
from hypothesis import given
from hypothesis import strategies as st
from mutations import damaged, mutations, reads_or_refuses

import search
from cats_jax.errors import BadInputError, GeneratorContractError, RunStoppedError
from cats_jax.evaluation.cells import grid
from cats_jax.evaluation.evaluate import cost_bounds
from cats_jax.live.searcher import Searcher
from cats_jax.models.contracts import check_generator
from cats_jax.models.serving import chat, chat_endpoint, http_engine
from cats_jax.models.serving.chat import ChatPolicy, path_text, split_steps, text_ids
from cats_jax.models.serving.chat_endpoint import ChatEndpoint, ChatReply, ReplyFile
from cats_jax.models.serving.spending import Spending
from cats_jax.protocols import Question, Step, StepRequest, TokenUsage, total_usage
from cats_jax.specs.recipe import parse_recipe

pytestmark = pytest.mark.usefixtures("short_waits")

QUESTIONS = [Question("a", "1+2=?"), Question("b", "3*4=?")]
_SOON = {"Retry-After": "0"}
_PROBED = (None,) * PROBES


def request(question=QUESTIONS[0], path=(), seeds=(1 << 40, 2 << 40), **changes):
    settings = {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "to_end": False, **changes}
    return StepRequest(question, path, tuple(seeds), **settings)


@pytest.fixture
def connect():
    """Makes policies, and closes their connections."""
    with contextlib.ExitStack() as stack:

        def connect(server, limits=None, **settings):
            settings = {"patience": 5.0, "concurrency": 8, **settings}
            endpoint = ChatEndpoint(server.url, "m", **settings)
            stack.callback(endpoint._closing)  # keeps no reference to it
            limits = {"max_step_tokens": 16, "max_answer_tokens": 64, **(limits or {})}
            return ChatPolicy(endpoint, format="plain", **limits)

        yield connect


def _saying(text):
    """A fault that puts another content into a reply."""

    def change(reply):
        reply["choices"][0]["message"]["content"] = text
        return reply

    return change


def texts(answer):
    return [sample.step.text for sample in answer]


def close_files():
    """Closes the files of replies of endpoints that nothing refers to."""
    gc.collect(1)  # the young objects: all of a session's take seconds
    if chat_endpoint._OPEN:
        gc.collect()


def total(generation, name):
    return sum(getattr(usage, name) for usage in generation.usage)


@pytest.mark.parametrize("honours_n", [True, False, 400, 403, "one"])
def test_whole_answers_are_cut_into_steps_and_charged_as_the_server_counts(connect, honours_n):
    with serving(honours_n=honours_n) as server:
        policy = connect(server)
        assert ("each sample is a request of its own" in policy.found) == (honours_n is not True)
        before = server.prompt_tokens, server.completion_tokens, server.samples
        seeds = tuple(seed << 33 for seed in (5, 6, 7))  # those that follow the first one
        requests = [request(question, seeds=seeds) for question in QUESTIONS]
        found = policy.generate_answers(requests, 8)
    for asked, answers in zip(requests, found.answers, strict=True):
        for seed, answer in zip((5, 6, 7), answers, strict=True):
            expected = write(asked.question.text, "", seed)
            assert texts(answer) == expected.split("\n\n")
            assert path_text([sample.step for sample in answer]) == expected
            assert [sample.finish for sample in answer[:-1]] == ["step"] * (len(answer) - 1)
            assert answer[-1].finish == "end"
    prompt, completion, samples = (
        now - then
        for now, then in zip(
            (server.prompt_tokens, server.completion_tokens, server.samples), before, strict=True
        )
    )
    assert total(found, "generated") == completion
    assert total(found, "computed") + total(found, "cached") == prompt + completion - samples
    assert samples == 6


@pytest.mark.parametrize(
    ("tells", "continues"), [("text", True), ("reason", True), (None, True), (None, "whole")]
)
def test_steps_continue_the_turn(connect, tells, continues):
    with serving(tells=tells, continues=continues) as server:
        policy = connect(server)
        before = server.completion_tokens
        path, generated = (), 0
        for _ in range(30):
            found = policy.generate([request(path=path, seeds=[9 << 33])])
            ((sample,),) = found.samples
            generated += total(found, "generated")
            path = (*path, sample.step)
            if sample.finish == "end":
                break
            assert sample.finish == "step"
        assert generated == server.completion_tokens - before
    # Each step was written for what stood before it, with separators.
    text = path_text(path)
    steps, last = split_steps(text, "\n\n")
    assert len(steps) == len(path) - 1
    for i, step in enumerate([*steps, last]):
        assert write("1+2=?", "".join(steps[:i]), 9).startswith(step)
    bodies = [body for body in server.bodies[1:] if len(body["messages"]) > 1]
    assert all(body["continue_final_message"] for body in bodies)
    asked = server.bodies[PROBES:]
    assert all(("stop" in body) == (tells is not None) for body in asked)


def test_an_endpoint_that_fails_at_n_is_asked_for_single_samples(connect):
    """A plain request shows that `n` is the reason; a fault that passes is none."""
    with serving(honours_n=500) as server:
        policy = connect(server)
        assert "each sample is a request of its own" in policy.found
        assert [body.get("n", 1) for body in server.bodies] == [1, 2, 1, 2]
        assert f"takes {server.prompt_tokens + server.completion_tokens} tokens" in policy.found
        policy.generate_answers([request()], 8)
    assert all("n" not in body for body in server.bodies[4:])
    # An overloaded server, which may be so several times.
    with serving(None, *[(503, _SOON, b"")] * 2, None) as server:
        assert "request of its own" not in connect(server).found
        assert [body.get("n", 1) for body in server.bodies] == [1, 2, 2, 2]
    stays = [(500, {}, b"")] * 99
    with serving(None, *stays) as server, pytest.raises(RunStoppedError, match="status 500"):
        connect(server, patience=0.1)


def test_a_turn_that_is_not_repeated_as_others_were_is_refused(connect):
    with serving(continues="whole") as server:
        policy = connect(server)
        ((sample,),) = policy.generate([request(seeds=[1])]).samples
        server.faults = iter([_saying("12\n\n34")])
        with pytest.raises(GeneratorContractError, match=r"127.*does not repeat this one"):
            policy.generate([request(path=(sample.step,), seeds=[1])])


def test_the_contract_of_policies_holds(connect):
    with serving() as server:
        check_generator(connect(server), QUESTIONS, exact=False)


def test_a_stop_before_a_step_is_asked_again_without_it(connect):
    """Templates that take blank lines off a turn make every continuation begin with them."""
    blank, goes_on = _saying("\n\n"), _saying("\n\n12\n\n34")
    with serving(*_PROBED, blank, goes_on) as server:
        ((sample,),) = connect(server).generate([request(seeds=[1])]).samples
    assert (sample.step.text, sample.finish) == ("12", "step")
    assert path_text([sample.step]) == "\n\n12\n\n"
    assert "stop" not in server.bodies[-1]


def test_a_server_without_continuation_gives_whole_answers_only(connect):
    with serving(continues=False) as server:
        policy = connect(server, {"max_answer_tokens": 16})
        assert "only: it does not continue" in policy.found
        answers = policy.generate_answers([request(seeds=range(0, 20 << 33, 1 << 33))], 9).answers
        cut = [a for a in answers[0] if a[-1].finish == "length"]
        assert cut
        for i, answer in enumerate(answers[0]):
            whole = write("1+2=?", "", i)
            text = path_text([sample.step for sample in answer])
            assert text == (whole[:32] if answer in cut else whole)
        number = len(server.bodies)
        for wrong in (request(), request(path=(Step("1", (257,)),), to_end=True)):
            with pytest.raises(GeneratorContractError, match=r"127.*not continue.*strategies that"):
                policy.generate([wrong])
        assert len(server.bodies) == number


def test_an_answer_that_was_cut_continues_from_its_last_whole_step(connect):
    with serving() as server:
        policy = connect(server, {"max_answer_tokens": 16})
        found = policy.generate_answers([request(seeds=range(0, 20 << 33, 1 << 33))], 9)
        cut = [answer for answer in found.answers[0] if answer[-1].finish == "step"]
        assert cut
        path = tuple(sample.step for sample in cut[0])
        policy.generate_answers([request(path=path, seeds=[3])], 9)
    assert server.bodies[-1]["messages"][-1] == {"role": "assistant", "content": path_text(path)}


def test_the_bound_of_a_dry_run_holds_for_answers_that_are_cut(connect, monkeypatch):
    monkeypatch.setattr(chat_server, "write", lambda asked, begun, seed: "12\n\n" * 20)
    limits = {"max_step_tokens": 2, "max_answer_tokens": 3}
    with serving() as server:
        content = {
            "name": "r",
            "policy": {"backend": server.url, "chat": True, "served_name": "m", **limits},
            "strategies": ["majority"],
            "num_candidates": 2,
            "max_depth": 9,
            "questions": {"world": "test", "count": 1},
        }
        recipe = parse_recipe(content)
        ((cell, _, _, bound, _),) = cost_bounds(recipe, grid(recipe), 1)
        policy, rest = connect(server, limits), {"num_candidates": 2, "max_depth": 9}
        search = Searcher(policy=policy, scorer=None, strategy=cell.strategy, **rest)
        (result,) = search.run(QUESTIONS[:1])
    assert result.ledger.generated == 2 * 9 * 3 <= bound  # of 3 tokens, a step keeps 2


def test_a_failed_search_names_the_limit_of_whole_answers(connect):
    with serving(continues=False) as server:
        policy = connect(server, {"max_answer_tokens": 1, "max_step_tokens": 1})
        searcher = Searcher(policy=policy, strategy=search.majority(), num_candidates=2)
        results = searcher.run(QUESTIONS)
    assert all("max_answer_tokens" in str(result.reason) for result in results)


def test_what_each_sample_cost_adds_up_to_the_reply(connect):
    with serving() as server:
        policy = connect(server)
        seeds = (1 << 33, 2 << 33, 3 << 33)
        one, other = (request(question, seeds=seeds) for question in QUESTIONS)
        greedy = dataclasses.replace(one, temperature=0.0)
        found = policy.generate([one, other, greedy])
    assert found.sample_usage is not None
    for usage, each in zip(found.usage, found.sample_usage, strict=True):
        assert total_usage(each) == usage
        assert len(each) == 3
        assert all(later.computed <= each[0].computed for later in each[1:])
    assert found.sample_usage[2][1:] == [TokenUsage()] * 2
    hidden = chat._sampled(ChatReply((("", "stop"), ("", "stop")), 5, 0, 9))
    assert [sample.tokens for sample in hidden] == [4, 5]


def test_greedy_samples_are_paid_once(connect):
    with serving() as server:
        policy = connect(server)
        (row,) = policy.generate([request(temperature=0.0, seeds=range(5))]).samples
        assert len(server.bodies) == PROBES + 1
    assert row == row[:1] * 5


@given(st.lists(st.text(min_size=1, max_size=12), max_size=4), st.integers(1, 9))
def test_made_up_ids_give_back_the_text_and_are_as_many_as_asked(parts, count):
    steps = tuple(Step(part, text_ids(part, count)) for part in parts)
    assert path_text(steps) == "".join(parts)
    assert all(len(step.token_ids) == count and min(step.token_ids) > 0 for step in steps)


@given(st.text("a\n ", max_size=30))
def test_steps_make_up_the_text_and_none_is_blank(text):
    steps, rest = split_steps(text, "\n\n")
    assert "".join(steps) + rest == text
    assert all(step.strip() and step.endswith("\n\n") for step in steps)
    assert "\n\n" not in rest.lstrip()


def test_blank_lines_are_split_in_time_that_grows_with_their_number():
    begun = time.process_time()
    assert split_steps("\n" * 200_000, "\n\n") == ([], "\n" * 200_000)
    assert time.process_time() - begun < 1.0
    assert split_steps("#### a##b", "##") == (["####", " a##"], "b")


def test_a_content_in_parts_is_the_text_of_its_parts(connect):
    # Mistral's models that think give parts, and so do gateways to Claude.
    parts = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]},
        {"type": "text", "text": "1"},
        {"type": "text", "text": "2"},
    ]
    with serving(*_PROBED, *map(_saying, (parts, [], None))) as server:
        policy = connect(server)
        for number, text in enumerate(("12", "", ""), PROBES + 1):
            ((answer,),) = policy.generate_answers([request(seeds=[1])], 8).answers
            assert "".join(texts(answer)) == text
            assert len(server.bodies) == number


def test_a_sample_that_an_endpoint_cut_is_cut(connect):
    def cut(reason, reply):
        reply["choices"][0] |= {"finish_reason": reason, "message": {"content": "12"}}
        return reply

    reasons = ["model_length", "tool_calls", "function_call", "sensitive"]
    with serving(*_PROBED, *(functools.partial(cut, reason) for reason in reasons)) as server:
        policy = connect(server)
        for number, reason in enumerate(reasons, PROBES + 1):
            ((answer,),) = policy.generate_answers([request(seeds=[1])], 8).answers
            assert [each.finish for each in answer] == ["length"], reason
            assert len(server.bodies) == number


# What can go wrong

_PAGE = (200, {}, b"<html>Sign in</html>")
_NOT_WHOLE = (200, {}, b'{"choices": [{"mess')


def _without(*path):
    def change(reply):
        *before, last = path
        functools.reduce(lambda value, key: value[key], before, reply).pop(last)
        return reply

    return change


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (_PAGE, "web page: a policy with chat: true needs"),
        ((404, {}, b'{"error": "no model"}'), "404.*no model.*check backend and served_name"),
        ((301, {"Location": "/x"}, b""), "status 301"),
        ((200, {"Content-Encoding": "gzip, gzip"}, b""), "content encoding other than gzip"),
        (_saying("x" * 20_000), "a text of 20000 bytes where max_tokens allows 16 tokens"),
        (_without("usage"), "does not count tokens .usage.*another endpoint"),
        (_without("choices", 0, "finish_reason"), "does not say why an answer ended"),
        (lambda reply: {**reply, "usage": {"prompt_tokens": 1, "completion_tokens": 10**6}},
         "counts 1000000 sampled tokens where max_tokens allows"),
    ],
)  # fmt: skip
def test_what_another_try_would_not_change_is_one_line_at_once(connect, fault, words):
    with serving(*_PROBED, fault) as server:
        policy = connect(server)
        with pytest.raises(BadInputError, match=words) as caught:
            policy.generate([request(seeds=[1])])
        assert server.url in str(caught.value)
        assert "\n" not in str(caught.value)
        assert len(server.bodies) == PROBES + 1


@pytest.mark.parametrize(
    "fault",
    [(429, _SOON, b"{}"), (500, {}, b"no"), "close", "half", _NOT_WHOLE,
     (200, {"Content-Encoding": "gzip"}, b"no gzip"), (200, {}, b'{"error": {"code": 429}}'),
     "never"],
    ids=str,
)  # fmt: skip
def test_a_fault_changes_nothing_and_one_that_stays_stops_the_run(connect, fault):
    with serving() as server:
        policy = connect(server, timeout=2.0)
        undisturbed = policy.generate([request(seeds=[1])]).samples
        server.faults = iter([fault, None])
        assert policy.generate([request(seeds=[1])]).samples == undisturbed
        assert len(server.bodies) == PROBES + 3
    with serving(*_PROBED, *[fault] * 99) as server:
        policy = connect(server, timeout=0.2, patience=0.1)
        with pytest.raises(RunStoppedError, match=r"no good reply.*start again") as caught:
            policy.generate([request(seeds=[1])])
        assert server.url in str(caught.value)


@pytest.mark.parametrize("seeds", [[1], [1 << 33, 2 << 33]])
def test_a_question_that_is_refused_fails_alone(connect, seeds):
    too_long = (400, {}, b'{"error": "maximum context length"}')
    with serving(*_PROBED, too_long, too_long) as server:
        policy = connect(server)
        with pytest.raises(GeneratorContractError, match=r"127.*400 .*maximum context length"):
            policy.generate([request(seeds=seeds)])
        server.faults, number = iter([None] * 9), len(server.bodies)
        assert policy.generate([request(QUESTIONS[1], seeds=seeds)]).samples
        assert len(server.bodies) == number + 1  # all samples of a question are still one request


def test_a_key_that_is_no_secret_changes_no_answer(connect, monkeypatch):
    monkeypatch.setenv("A_KEY", "1")
    with serving(key="1") as server:
        policy = connect(server, api_key_env="A_KEY")
        seeds = [seed << 33 for seed in range(8)]
        (answers,) = policy.generate_answers([request(seeds=seeds)], 9).answers
    found = [path_text([sample.step for sample in answer]) for answer in answers]
    assert found == [write("1+2=?", "", seed) for seed in range(8)]
    assert any("1" in text for text in found)


def test_retry_after_is_respected(connect):
    with serving((429, {"Retry-After": "0.4"}, b"")) as server:
        connect(server)
    assert server.times[1] - server.times[0] >= 0.4
    with serving(*[(429, {"Retry-After": "3600"}, b"")] * 9) as server:
        begun = time.monotonic()
        with pytest.raises(RunStoppedError, match=r" \d s \(status 429, try again in 3600 s\)"):
            connect(server)
        assert time.monotonic() - begun < 5


@pytest.mark.parametrize(
    ("header", "least", "most"),
    [(None, 0, 0), ("7", 7, 7), ("-7", 0, 0), ("nan", 0, 0), ("soon", 0, 0), ("1e999", 1e9, None),
     (email.utils.formatdate(time.time() + 90_000, usegmt=True), 80_000, 90_000),
     (email.utils.formatdate(0, usegmt=True), 0, 0)],
    # Workers that collect in different seconds must name the cases alike.
    ids=["none", "seconds", "negative", "nan", "text", "huge", "later", "1970"],
)  # fmt: skip
def test_retry_after_is_a_number_or_a_date(header, least, most):
    found = http_engine._seconds(header)
    assert least <= found
    assert most is None or found <= most


def test_requests_keep_their_distance(connect):
    with serving() as server:
        policy = connect(server, max_requests_per_minute=600)
        policy.generate([request(seeds=[i], temperature=0.0) for i in range(5)])
    times = sorted(server.times)
    assert times[-1] - times[0] >= 0.1 * (len(times) - 1) - 0.05


def test_waiting_for_a_turn_costs_no_patience(connect):
    with serving(*_PROBED, *[(503, {}, b"")] * 4) as server:
        policy = connect(server, max_requests_per_minute=120, patience=0.75)
        # Three tries and their pauses take a second, of which most is waiting for turns.
        assert policy.generate([request(seeds=[1])]).samples


def test_no_request_is_sent_after_an_error_that_stops_the_run(connect):
    asked = [request(seeds=[i << 33]) for i in range(40)]
    unpaid = (402, {}, b"no credit")

    def slow(reply):
        time.sleep(0.5)
        return reply

    def stops(policy):
        with pytest.raises(BadInputError, match=r"402 .no credit.: it wants to be paid"):
            policy.generate(asked)
        policy._endpoint.close()
        assert len(server.bodies) <= PROBES + 4

    with serving(*_PROBED, slow, unpaid) as server:
        stops(connect(server, max_requests_per_minute=240))
    with serving(*_PROBED, unpaid) as server:
        policy = connect(server, price={"input": 0.0, "output": 1.0}, max_cost=1.0)
        spending = policy._endpoint._spending
        spending._limit = spending.spent + 1.5 * spending.cost(0, 16)  # one call at a time
        stops(policy)


def test_the_error_that_stops_the_run_is_named(connect):
    """Not that of a call which gave up because of it."""
    later = (503, {"Retry-After": "3"}, b"")
    with serving(*_PROBED, later, (402, {}, b"no credit")) as server:
        policy = connect(server, concurrency=2)
        with pytest.raises(BadInputError, match=r"402 .no credit."):
            policy.generate([request(seeds=[i << 33]) for i in range(2)])


def test_a_reply_that_fails_one_question_leaves_the_others(connect):
    """The first question's turn is not repeated, while the second one waits for its next try."""
    with serving(continues="whole") as server:
        policy = connect(server)
        path = (policy.generate([request(seeds=[1])]).samples[0][0].step,)
        server.faults = iter([_saying("another turn"), (503, {"Retry-After": "1"}, b""), None])
        with ThreadPoolExecutor(2) as pool:
            first = pool.submit(policy.generate, [request(path=path, seeds=[2])])
            time.sleep(0.2)
            second = pool.submit(policy.generate, [request(QUESTIONS[1], seeds=[3])])
            assert isinstance(first.exception(), GeneratorContractError)
            assert second.result().samples


PRICE = {"input": 2.0, "output": 8.0}


@pytest.mark.parametrize("choices", [{}, {"choices": None}, {"choices": []}], ids=str)
def test_an_error_in_a_reply_with_status_200_is_that_status(connect, choices):
    def says(code):
        content = {"error": {"code": code, "message": "the reason"}, **choices}
        return 200, {}, json.dumps(content).encode()

    with serving() as server:
        policy = connect(server, price=PRICE, max_cost=1.0)
        undisturbed = policy.generate([request(seeds=[1])]).samples
    with serving(*_PROBED, says(429), says(502)) as server:
        policy = connect(server, price=PRICE, max_cost=1.0)
        assert policy.generate([request(seeds=[1])]).samples == undisturbed
        assert policy._endpoint._spending.spent == pytest.approx(billed(server))
    for code, error in ((400, GeneratorContractError), (401, BadInputError)):
        with serving(*_PROBED, says(code)) as server:
            policy = connect(server)
            with pytest.raises(error, match=rf"status {code} .*the reason"):
                policy.generate([request(seeds=[1])])


def billed(server):
    return (2.0 * server.prompt_tokens + 8.0 * server.completion_tokens) / 1e6


def test_the_cost_limit_holds_and_what_was_paid_for_is_not_paid_again(connect, tmp_path):
    asked = [request(seeds=[seed << 33]) for seed in range(40)]
    with serving() as server:
        undisturbed = connect(server).generate(asked).samples
        limit = billed(server) / 2 + 0.001  # one request costs less at its largest
    file = str(tmp_path / "replies.jsonl")
    with serving() as server:
        policy = connect(server, price=PRICE, max_cost=limit, replies=file)
        with pytest.raises(RunStoppedError, match=r"max_cost=0.00\d+ has no room.*start again"):
            policy.generate(asked)
        assert limit - 0.001 < billed(server) <= limit
        assert policy._endpoint._spending.spent == pytest.approx(billed(server))
        number = len(server.bodies)
        assert number < PROBES + 40
        del policy
        close_files()
        with open(file, "a") as torn:
            torn.write('{"key": "')
        policy = connect(server, price=PRICE, max_cost=1.0, replies=file)
        assert len(server.bodies) == number  # the probes are kept, too
        assert policy.generate(asked).samples == undisturbed
        assert len(server.bodies) == PROBES + 40
        assert len({json.dumps(body, sort_keys=True) for body in server.bodies}) == PROBES + 40
        # Another policy of this process has the same replies.
        again = connect(server, price=PRICE, max_cost=1.0, replies=file)
        assert again.generate(asked).samples == undisturbed
        assert len(server.bodies) == PROBES + 40


def test_the_replies_of_another_model_do_not_count(tmp_path):
    """Runs with one model after another may use the same file."""
    file, body = tmp_path / "replies.jsonl", {"messages": [], "max_tokens": 1000}
    turn = {"role": "user", "content": "1+2"}

    def spent(server, model, *, ask=False):
        found = ChatEndpoint(server.url, model, price=PRICE, replies=str(file))
        if ask:
            found.ask({**body, "messages": [turn]}, time.monotonic())
        found.close()
        return found._spending.spent

    with serving() as server:
        first = spent(server, "a", ask=True)
        assert first == pytest.approx(billed(server))
        second = spent(server, "b", ask=True)
        assert first + second == pytest.approx(billed(server))
        assert (spent(server, "a"), spent(server, "b")) == (first, second)
        assert spent(server, "c") == 0
    # Earlier versions did not write whose reply it was, so that it may be anyone's.
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    close_files()
    for line in lines:
        del line["payee"]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    for model in ("a", "c"):
        assert spent(server, model) == pytest.approx(first + second)
        close_files()


def test_a_file_of_replies_is_one_process_s(tmp_path):
    file = tmp_path / "replies.jsonl"
    with file.open("ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(BadInputError, match=r"replies.jsonl' is in use by another process"):
            ChatEndpoint("http://localhost:1", "m", replies=str(file))
    ChatEndpoint("http://localhost:1", "m", replies=str(file)).close()


def test_calls_in_progress_count_against_the_limit():
    spending = Spending("server x", {"input": 1.0, "output": 1.0}, 10.0)

    def call(number):
        try:
            # Every second one costs less than it might, which makes room for those that wait.
            with spending.call(2.0) as bill:
                time.sleep(0.02)
                bill.cost = 2.0 if number % 2 else 0.5
        except RunStoppedError:
            return 0.0
        return bill.cost

    with ThreadPoolExecutor(20) as pool:
        costs = list(pool.map(call, range(20)))
    assert 8.0 < sum(costs) <= 10.0
    assert spending.spent == sum(costs)
    assert 0.0 in costs


def test_a_lost_reply_counts_at_its_largest_cost(connect):
    refused = [(500, {}, b""), (429, {}, b""), (400, {}, b"")]
    with serving(*_PROBED, *refused[:2]) as server:
        policy = connect(server, price=PRICE)
        policy.generate([request(seeds=[1])])
        assert policy._endpoint._spending.spent == pytest.approx(billed(server))
        server.faults = iter([*refused[2:], "half", None])
        with pytest.raises(GeneratorContractError):
            policy.generate([request(seeds=[1])])
        assert policy._endpoint._spending.spent == pytest.approx(billed(server))
        policy.generate([request(seeds=[1])])
        assert policy._endpoint._spending.spent > billed(server) + 1e-4


def test_a_lost_reply_counts_after_a_restart(connect, tmp_path):
    settings = {"price": PRICE, "replies": str(tmp_path / "replies.jsonl")}
    with serving(*_PROBED, "half") as server:
        policy = connect(server, **settings)
        policy.generate([request(seeds=[1])])
        spent = policy._endpoint._spending.spent
        assert spent > billed(server) / 2 + 1e-4  # the server billed the same reply twice
        del policy
        close_files()
        again = connect(server, **settings)
    assert again._endpoint._spending.spent == pytest.approx(spent)
    assert again.generate([request(seeds=[1])]).samples


def test_the_key_is_sent_and_shown_nowhere(connect, monkeypatch, tmp_path):
    monkeypatch.setenv("A_KEY", SECRET)
    file = tmp_path / "replies.jsonl"
    quotes = _saying(f"the key is {SECRET}")

    def refuses(reply):
        return {"error": f"not with {SECRET}"}

    with serving(*_PROBED, quotes, refuses, key=SECRET) as server:
        policy = connect(server, api_key_env="A_KEY", replies=str(file))
        ((sample,),) = policy.generate([request(seeds=[1])]).samples
        assert sample.step.text == "the key is ***"
        server.key = "another"
        with pytest.raises(BadInputError, match=r"401.*check the API key .* A_KEY") as caught:
            policy.generate([request(seeds=[2 << 33])])
        assert SECRET not in str(caught.value)
        server.key = None
        server.faults = iter([refuses] * 9)
        policy._endpoint._patience = 0.0
        with pytest.raises(RunStoppedError) as stopped:
            policy.generate([request(seeds=[3 << 33])])
        assert SECRET not in str(stopped.value)
    assert SECRET not in file.read_text()


def test_a_reply_with_one_wrong_value_is_read_or_one_line(connect, monkeypatch):
    monkeypatch.setattr("cats_jax.models.serving.http_engine._TRIES", 1)
    sound = {
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"content": "12"}}],
        "usage": {"prompt_tokens": 5, "completion_tokens": 2},
    }
    with serving() as server:
        policy = connect(server, patience=0.0)

        def read():
            try:
                return policy.generate([request(seeds=[1])])
            except RunStoppedError as error:
                raise BadInputError(error) from error

        texts = [text.encode() for text in mutations(sound, 7)]
        texts += damaged(json.dumps(sound).encode(), 10)
        for content in texts:
            server.faults = iter([(200, {}, content)] * 9)
            reads_or_refuses(read, server.url, content)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("[]\n", "is damaged"),
        ("my only copy", "not a file of replies"),
        ('{"key": "a", "samples": [["x", "stop"]], "prompt": -1, "cached": 0, "completion": 1}\n',
         "not a number of tokens"),
        ('{"key": "", "samples": null, "prompt": 1, "cached": 0}\n', "is damaged"),
        ('{"key": "a", "samples": [], "prompt": 1, "cached": 0, "completion": 1}\n', "is broken"),
    ],
)  # fmt: skip
def test_a_damaged_file_of_replies_is_refused_by_name(tmp_path, line, words):
    file = tmp_path / "replies.jsonl"
    file.write_text(line)
    with pytest.raises(BadInputError, match=words) as caught:
        ChatEndpoint("http://localhost:1", "m", replies=str(file))
    assert str(file) in str(caught.value)
    assert file.read_text() == line


def test_a_reply_of_any_size_is_read_from_its_file(tmp_path):
    reply = ChatReply((("é" * 3_000_000, "stop"),), 1, 0, 1)  # its line has 18 MB
    file = ReplyFile(tmp_path / "replies.jsonl")
    file.add("key", reply, "payee")
    file.close()
    again = ReplyFile(tmp_path / "replies.jsonl")
    assert again.get("key") == reply
    again.close()


def test_a_server_that_samples_greedily_is_named_once(connect, monkeypatch):
    """As transformers' own server does unless generation_config.json says do_sample: true."""
    long = "so it is 12, " * 12
    monkeypatch.setattr(chat_server, "write", lambda asked, begun, seed: long)
    with serving() as server:
        policy = connect(server, {"max_answer_tokens": 200})
        policy.generate_answers([request(temperature=0.0)], 4)
        policy.generate_answers([request(seeds=(1 << 40,))], 4)
        with pytest.warns(UserWarning, match="2 samples of question 'a' .* are equal: 'm' may be"):
            policy.generate_answers([request()], 4)
        policy.generate_answers([request(QUESTIONS[1])], 4)
