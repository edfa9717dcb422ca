"""Digests of files that identify a model."""

import hashlib
import os

import pytest

from cats_jax.models import digests


@pytest.mark.parametrize("large", [False, True])
def test_a_file_that_has_changed_is_read_again(tmp_path, monkeypatch, large):
    monkeypatch.setattr(digests, "_LARGE", 1 if large else 100)
    reads = []
    read = digests.read_digest
    monkeypatch.setattr(digests, "read_digest", lambda path: reads.append(path) or read(path))
    file = tmp_path / "weights"
    file.write_bytes(b"first")
    for _ in range(2):
        assert digests.file_digest(file) == hashlib.sha256(b"first").hexdigest()
    assert len(reads) == (1 if large else 2)
    file.write_bytes(b"other")
    os.utime(file, ns=(0, 1))
    assert digests.file_digest(file) == hashlib.sha256(b"other").hexdigest()
