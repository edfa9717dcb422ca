"""The file of samples and scores: what is read is what was stored, and nothing else is read."""

import base64
import errno
import gzip
import json
import math
import os
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cats_jax.errors import BadInputError
from cats_jax.evaluation.paths_file import Name, PathsFile
from cats_jax.evaluation.stored_paths import (
    StoredSample,
    StoredScore,
    sample_keys,
    samples_from_json,
    samples_to_json,
    scores_from_json,
    scores_to_json,
    whole_paths,
)
from cats_jax.protocols import Question, Step, StepRequest, StepSample, TokenUsage

_NAME = Name("seed 0", None, "q")
_counts = st.integers(0, 1 << 20)
_seconds = st.floats(0.0, 1e6)
_usages = st.builds(TokenUsage, _counts, _counts, _counts, _seconds)
_ids = st.lists(st.integers(0, 1 << 20), min_size=1, max_size=4).map(tuple)
_log_probs = st.none() | st.floats(-1e6, 0.0)


def _load(file, paths=1, decode=samples_from_json, name=_NAME) -> Any:
    return file.load(name, paths, decode)


@st.composite
def _samples(draw):
    """Rows that grow step by step, as a search samples them."""
    known = {}
    rows = [()] * draw(st.integers(1, 4))
    seed = draw(st.integers(0, (1 << 64) - 100))
    certain = draw(st.booleans())
    for depth in range(draw(st.integers(1, 3))):
        grown = []
        for path in rows:
            seed += 1
            ids = draw(_ids)
            request = StepRequest(
                Question("q", "1+1"), path, (seed,), 0.8, draw(_seconds), 0, depth == 2
            )
            end = request.to_end or draw(st.booleans())
            step = Step(draw(st.text(min_size=1)), ids)
            numbers = st.lists(st.floats(-9, 9), min_size=len(ids), max_size=len(ids))
            sample = StepSample(
                step,
                "end" if end else "step",
                draw(_log_probs),
                tuple(draw(numbers)) if certain else None,
                num_sampled=draw(st.none() | _counts),
            )
            (key,) = sample_keys(request)
            known[key] = StoredSample(sample, draw(_usages), draw(_seconds))
            if not end and step.text.strip():
                grown.append((*path, step))
        rows = grown
    return known


@given(known=_samples(), paths=st.integers(1, 9))
def test_samples_are_read_as_they_were_stored(known, paths):
    file = PathsFile(None)
    file.save(_NAME, paths, samples_to_json(known))
    assert _load(file, paths) == (known, paths)
    assert list(_load(file, paths)[0]) == list(known)  # the order is that of the rows
    assert _load(file, paths + 1) is None
    file.close()


@given(
    known=st.dictionaries(
        st.text(),
        st.lists(
            st.builds(
                StoredScore, st.none() | st.floats(0.0, 1.0), st.just(TokenUsage(3)), _seconds
            ),
            min_size=1,
            max_size=3,
        ),
    )
)
def test_scores_are_read_as_they_were_stored(known):
    file = PathsFile(None)
    file.save(_NAME._replace(prm="exact"), 2, scores_to_json(known))
    found = file.load(_NAME._replace(prm="exact"), 2, scores_from_json)
    assert found == (known, 2)
    assert _load(file) is None
    file.close()


def _one(**changes):
    """A stored sample as JSON, written out by hand."""
    value = {
        "before": "",
        "seed": (1 << 64) - 1,
        "temperature": 0.8,
        "top_p": 1.0,
        "top_k": 0,
        "to_end": False,
        "text": "7",
        "token_ids": [5, 6],
        "finish": "end",
        "log_prob": -0.5,
        "certainties": None,
        "num_sampled": None,
        "usage": [6, 0, 2, 0.0],
        "seconds": 0.25,
    }
    return {**value, **changes}


def _line(*values, name=_NAME, paths=1, content=None, version="1, cats-jax 0.1.0"):
    if content is None:
        content = gzip.compress("".join(json.dumps(value) + "\n" for value in values).encode())
    text = base64.b64encode(content).decode()
    head = {**name._asdict(), "paths": paths, "version": version, "content": text}
    return json.dumps(head).encode() + b"\n"


def test_the_format_is_as_described(tmp_path):
    (tmp_path / "paths.jsonl").write_bytes(_line(_one()))
    file = PathsFile(tmp_path / "paths.jsonl")
    known, _ = _load(file)
    assert whole_paths(known) == [(Step("7", (5, 6)),)]
    assert sample_keys(
        StepRequest(Question("q", ""), (), ((1 << 64) - 1,), 0.8, 1.0, 0, False)
    ) == list(known)
    (sampled,) = known.values()
    assert sampled.usage == TokenUsage(6, 0, 2)
    assert (sampled.sample.log_prob, sampled.seconds) == (-0.5, 0.25)


_BOMB = gzip.compress(b" " * (200 << 20), compresslevel=9)
_WRONG = {
    "no JSON": b"\xff\x00{\n",
    "deep": b"[" * 100_000 + b"\n",
    "another mapping": b'{"pool": "seed 0", "question": "q", "paths": 1, "prm": 5}\n',
    "no base64": json.dumps({**_NAME._asdict(), "paths": 1, "content": "?"}).encode() + b"\n",
    "no gzip": _line(content=b"none"),
    "cut": _line(content=gzip.compress(b"{}\n" * 99)[:-9]),
    "bomb": _line(content=_BOMB),
    "no continuation": _line(_one(), _one(before="ab", seed=2)),
    "two continuations of one path": _line(
        _one(finish="step"),
        *(
            _one(
                before=sample_keys(
                    StepRequest(Question("q", ""), (Step("7", (5, 6)),), (1,), 0.8, 1.0, 0, False)
                )[0].before,
                seed=seed,
            )
            for seed in (1, 2)
        ),
    ),
    **{
        f"{name} {value!r}": _line(_one(**{name: value}))
        for name, value in [
            ("seed", True),
            ("seed", "1"),
            ("temperature", []),
            ("text", None),
            ("token_ids", [-1]),
            ("token_ids", [1.0]),
            ("token_ids", [1 << 40]),
            ("token_ids", []),
            ("token_ids", "56"),
            ("finish", "never"),
            ("log_prob", 0.5),
            ("log_prob", math.nan),
            ("certainties", [0.5]),
            ("num_sampled", -1),
            ("usage", [6, 0, 2.5, 0.0]),
            ("usage", [1 << 60, 0, 0, 0.0]),
            ("usage", [0, 0, 0, 0.0, 0]),
            ("seconds", -1.0),
            ("seconds", math.inf),
        ]
    },
}


@pytest.mark.parametrize("wrong", _WRONG.values(), ids=_WRONG)
def test_a_wrong_line_counts_as_absent(tmp_path, wrong):
    other = _NAME._replace(question="other")
    path = tmp_path / "paths.jsonl"
    path.write_bytes(wrong + _line(_one(), name=other) + b"torn")
    file = PathsFile(path)
    assert _load(file) is None
    known, _ = _load(file, name=other)
    file.save(_NAME, 1, samples_to_json(known))
    assert _load(file) == (known, 1)
    file.close()
    again = PathsFile(path)
    assert _load(again) == _load(again, name=other) == (known, 1)


def test_a_wrong_score_counts_as_absent(tmp_path):
    path = tmp_path / "paths.jsonl"
    for score in (1.5, "1", -0.1):
        value = {"path": "", "score": score, "usage": [3, 0, 0, 0.0], "seconds": 0.0}
        path.write_bytes(_line(value))
        assert _load(PathsFile(path), decode=scores_from_json) is None
    value["score"] = None
    path.write_bytes(_line(value))
    assert _load(PathsFile(path), decode=scores_from_json) is not None


def test_a_later_line_replaces_an_earlier_one_unless_it_has_fewer_paths(tmp_path):
    path = tmp_path / "paths.jsonl"
    first, later, fewer = _line(_one()), _line(_one(text="8"), paths=2), _line(_one(text="9"))
    path.write_bytes(first + later + fewer)
    known, paths = _load(PathsFile(path))
    assert (paths, *(each.sample.step.text for each in known.values())) == (2, "8")


def test_lines_of_another_version_count_as_absent(tmp_path):
    path = tmp_path / "paths.jsonl"
    path.write_bytes(_line(_one(), version="1, cats-jax 0.0.9"))
    assert _load(PathsFile(path)) is None


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_a_link_is_refused(tmp_path, link):
    (tmp_path / "elsewhere").write_bytes(b"")
    link(tmp_path / "elsewhere", tmp_path / "paths.jsonl")
    with pytest.raises(BadInputError, match="is a link"):
        PathsFile(tmp_path / "paths.jsonl")


def test_on_a_full_disk_nothing_is_stored(tmp_path, monkeypatch):
    """A line of which a part was written takes no room, and the next one is written."""
    path = tmp_path / "paths.jsonl"
    path.write_bytes(_line(_one()))
    file = PathsFile(path)
    known, _ = _load(file)
    write, room = os.pwrite, [10]

    def full(descriptor, data, offset):
        if not room:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, data[: room.pop()], offset)

    monkeypatch.setattr(os, "pwrite", full)
    other = _NAME._replace(question="other")
    size = path.stat().st_size
    file.save(other, 1, samples_to_json(known))
    assert _load(file, name=other) is None
    assert path.stat().st_size == size
    monkeypatch.setattr(os, "pwrite", write)
    file.save(other, 1, samples_to_json(known))
    for each in (file, PathsFile(path)):
        assert _load(each) == _load(each, name=other) == (known, 1)


def test_numbers_of_numpy_are_stored_and_vectors_are_not():
    step = Step("7", (np.int64(5), np.int32(6)))
    sample = StepSample(step, "end", np.float32(-0.1))
    (key,) = sample_keys(StepRequest(Question("q", ""), (), (1,), 0.8, 1.0, 0, False))
    known = {key: StoredSample(sample, TokenUsage(np.int64(6)), np.float64(0.1))}
    file = PathsFile(None)
    file.save(_NAME, 1, samples_to_json(known))
    assert _load(file) == (known, 1)
    vector = StepSample(step, "end", -0.1, vector=np.zeros(2, np.float32))
    other = _NAME._replace(question="other")
    file.save(other, 1, samples_to_json({key: StoredSample(vector, TokenUsage(), 0.0)}))
    assert _load(file, name=other) is None
