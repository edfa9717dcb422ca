"""A language model of a chat endpoint as judge: `prms: [{path: chat-judge, ...}]`."""

from __future__ import annotations

from ..errors import BadInputError
from ..specs.models import PrmSpec
from .judge import JudgeScorer
from .prm.family import AUTO, choose_format
from .prm.format import JUDGE_CRITIQUE, PRMFormat
from .prm.judge_text import judge_policy_format
from .prm.verdict import WrittenVerdict


def chat_judge(spec: PrmSpec) -> JudgeScorer:
    """The judge of a recipe that names a model of a chat endpoint.

    It writes critiques, because endpoints report no probabilities of tokens that they did not
    sample. Its number of parameters and its sparsity are unknown and count as 0.

    Raises:
        BadInputError: the judge's format does not write, or the endpoint refuses the first request.
        RunStoppedError: the endpoint does not answer, or `max_cost` is reached.
    """
    from .serving.chat import ChatPolicy
    from .serving.chat_endpoint import ChatEndpoint

    chosen = chat_judge_format(spec)
    assert isinstance(chosen.read_out, WrittenVerdict)
    tokens = chosen.read_out.max_tokens
    form = judge_policy_format(chosen)
    writer = ChatPolicy(
        ChatEndpoint.of(spec, keeps_recent=True), format=form, max_answer_tokens=tokens
    )
    return JudgeScorer(chosen, writer)


def chat_judge_format(spec: PrmSpec) -> PRMFormat:
    """The format of a judge at a chat endpoint; "auto" is `judge-critique`.

    Raises:
        BadInputError: the format is unknown, or not that of a judge that writes.
    """
    chosen = JUDGE_CRITIQUE if spec.format == AUTO else choose_format(spec.format, "")
    if not isinstance(chosen.read_out, WrittenVerdict):
        raise BadInputError(
            f"PRM {spec.label!r}: format {chosen.name!r} reads probabilities of tokens, which "
            "a chat endpoint does not report: take judge-critique, or a file whose read_out has "
            "the key verdict or pattern"
        )
    return chosen
