"""Samples and scores of a question that rows share, and their conversion to JSON and back.

A path is named by a digest, so that a stored step does not repeat the steps before it.
"""

from __future__ import annotations

import hashlib
import json
from array import array
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass
from typing import Any, NamedTuple, get_args

from ..live.contract import check_generation, check_scoring
from ..live.tree import why_invalid
from ..protocols import (
    Finish,
    Generation,
    Path,
    Question,
    Scoring,
    Step,
    StepRequest,
    StepSample,
    TokenUsage,
)
from ..storage.rules import NUMBER, TEXT, TRUTH, Rule, check_entries, list_of, one_of, optional

ROOT = ""
"""Name of the path without steps."""


class SampleKey(NamedTuple):
    """Everything that a sample depends on apart from its question.

    Attributes:
        before: name of the request's path, see `name_after`.
        seed, temperature, top_p, top_k, to_end: as in `StepRequest`.
    """

    before: str
    seed: int
    temperature: float
    top_p: float
    top_k: int
    to_end: bool


@dataclass(frozen=True, slots=True)
class StoredSample:
    """A sample and what it cost in addition to the samples before it."""

    sample: StepSample
    usage: TokenUsage
    seconds: float


class StoredScore(NamedTuple):
    """The score of a path's last step, and what it cost."""

    score: float | None
    usage: TokenUsage
    seconds: float


Samples = dict[SampleKey, StoredSample]
"""The samples of a question in the order of sampling."""

Scores = dict[str, list[StoredScore]]
"""The scores of a question by `text_name`. Of equal paths the first costs most: each has its own
entry."""


def sample_keys(request: StepRequest) -> list[SampleKey]:
    """The keys of a request's samples, one per seed."""
    before = ROOT
    for step in request.path:
        before = name_after(before, step)
    rest = request.temperature, request.top_p, request.top_k, request.to_end
    return [SampleKey(before, seed, *rest) for seed in request.seeds]


def name_after(before: str, step: Step) -> str:
    """Name of the path that adds a step to the path of name `before`: a digest of its tokens."""
    return _digest(before.encode() + array("q", step.token_ids).tobytes())


def text_name(path: Path) -> str:
    """Digest of what a PRM reads of a path; steps with different tokens may have the same text."""
    return _digest(json.dumps([step.text for step in path]).encode())


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def whole_paths(known: Samples) -> list[Path]:
    """The paths in a store of samples, by row, each up to its last usable step.

    Raises:
        LookupError: a sample continues no other one.
    """
    steps: dict[str, int] = {ROOT: 0}
    for key, sampled in known.items():
        steps.setdefault(name_after(key.before, sampled.sample.step), steps[key.before] + 1)
    paths: list[list[Step]] = []
    growing: dict[str, deque[list[Step]]] = {}
    # Within a step, samples are in the order of their rows, and so are the paths they belong to.
    for key, sampled in sorted(known.items(), key=lambda entry: steps[entry[0].before]):
        sample = sampled.sample
        if key.before == ROOT:
            paths.append(path := [])
        else:
            path = growing[key.before].popleft()
        if why_invalid(sample) is None:
            path.append(sample.step)
            growing.setdefault(name_after(key.before, sample.step), deque()).append(path)
    return [tuple(path) for path in paths if path]


def samples_to_json(known: Samples) -> Iterator[dict[str, Any]]:
    """One mapping per sample; ValueError for a sample with a vector, which is not stored."""
    for key, sampled in known.items():
        sample = sampled.sample
        if sample.vector is not None:
            raise ValueError("vectors are not stored")
        yield {
            **key._asdict(),
            "text": sample.step.text,
            "token_ids": sample.step.token_ids,
            "finish": sample.finish,
            "log_prob": sample.log_prob,
            "certainties": sample.certainties,
            "num_sampled": sample.num_sampled,
            "usage": astuple(sampled.usage),
            "seconds": sampled.seconds,
        }


def samples_from_json(values: Iterable[Any]) -> Samples:
    """The inverse of `samples_to_json`.

    Raises:
        ValueError, TypeError, LookupError, GeneratorContractError: they are not those of samples.
    """
    known: Samples = {}
    for value in values:
        check_entries(value, _SAMPLE)
        step = Step(value["text"], tuple(value["token_ids"]))
        certainties = value["certainties"]
        sample = StepSample(
            step,
            value["finish"],
            value["log_prob"],
            None if certainties is None else tuple(certainties),
            num_sampled=value["num_sampled"],
        )
        key = SampleKey(*(value[name] for name in SampleKey._fields))
        known[key] = StoredSample(sample, TokenUsage(*value["usage"]), value["seconds"])
    requests = [
        StepRequest(
            _NOBODY,
            (),
            (key.seed,),
            *key[2:],
            certainty=None if each.sample.certainties is None else "all",
        )
        for key, each in known.items()
    ]
    samples, usage = [[each.sample] for each in known.values()], [e.usage for e in known.values()]
    check_generation(Generation(samples, usage, 0.0), requests)
    whole_paths(known)
    return known


def scores_to_json(known: Scores) -> Iterator[dict[str, Any]]:
    """One mapping per score."""
    for path, entries in known.items():
        for score, usage, seconds in entries:
            yield {"path": path, "score": score, "usage": astuple(usage), "seconds": seconds}


def scores_from_json(values: Iterable[Any]) -> Scores:
    """The inverse of `scores_to_json`.

    Raises:
        ValueError, TypeError, ScorerContractError: the values are not those of scores.
    """
    known: Scores = {}
    for value in values:
        check_entries(value, _SCORE)
        entry = StoredScore(value["score"], TokenUsage(*value["usage"]), value["seconds"])
        known.setdefault(value["path"], []).append(entry)
    entries = [entry for each in known.values() for entry in each]
    scoring = Scoring([e.score for e in entries], [e.usage for e in entries], 0.0)
    check_scoring(scoring, [_NOBODY] * len(entries), [()] * len(entries))
    return known


_NOBODY = Question("", "")
# Sums of a question's values stay far below the largest that a row may have.
_LARGEST = 1 << 31
_COUNT = Rule(
    "a whole number from 0 to 2^31", lambda value: type(value) is int and 0 <= value <= _LARGEST
)
_AMOUNT = Rule(
    "a number from 0 to 2^31", lambda value: NUMBER.holds(value) and 0 <= value <= _LARGEST
)
_COST = {"usage": list_of(_AMOUNT), "seconds": _AMOUNT}
_SAMPLE = {
    **_COST,
    **dict.fromkeys(("before", "text"), TEXT),
    "seed": Rule("a whole number", lambda value: type(value) is int),
    **dict.fromkeys(("temperature", "top_p", "top_k"), NUMBER),
    "to_end": TRUTH,
    "token_ids": list_of(_COUNT),
    "finish": one_of(*get_args(Finish)),
    "log_prob": optional(NUMBER),
    "certainties": optional(list_of(NUMBER)),
    "num_sampled": optional(_COUNT),
}
_SCORE = {**_COST, "path": TEXT, "score": optional(NUMBER)}
