"""What can't be read is one line, whatever it is, and costs little memory."""

import gzip
import json
import zlib

import pytest

from cats_jax.errors import BadInputError
from cats_jax.storage.reading import (
    MAX_INFLATED,
    inflated_lines,
    parse_json,
    read_json,
    reading,
)

TOO_MUCH = {
    "[" * 100_000: "nested too deeply",
    "[" * 65 + "]" * 65: "nested more than 64 deep",
    f"[{10**400}]": "has more than 64 bits",
    f'{{"a": -{"9" * 5000}}}': "has more than 64 bits",
    str(1 << 63): "has more than 64 bits",
    '{"a"': "delimiter",
}


@pytest.mark.parametrize("text", TOO_MUCH, ids=lambda text: text[:8])
def test_json_beyond_the_bounds_is_one_line_that_names_the_file(tmp_path, text):
    path = tmp_path / "file.json"
    path.write_text(text)
    with pytest.raises(BadInputError, match=rf"file.json' is damaged \(.*{TOO_MUCH[text]}"):  # noqa: SIM117
        with reading(repr(str(path))):
            read_json(path)


def test_json_within_the_bounds_is_read():
    assert parse_json('\ufeff[1, -9223372036854775808, 0.12345678901234567890123]'.encode()) == [
        1, -(1 << 63), 0.12345678901234568,
    ]  # fmt: skip


@pytest.mark.parametrize(
    "error",
    [RecursionError(), MemoryError(), OverflowError("x\ny"), KeyError("a"), zlib.error("z" * 999)],
    ids=lambda error: type(error).__name__,
)
def test_whatever_a_reader_raises_is_one_short_line(error):
    with pytest.raises(BadInputError, match=r"^'f' is damaged ") as caught:  # noqa: SIM117
        with reading("'f'"):
            raise error
    assert len(str(caught.value)) < 300
    assert "\n" not in str(caught.value)


def test_inflated_lines_are_those_of_gzip():
    text = b"".join(json.dumps({"a": "b" * i}).encode() + b"\n" for i in range(3000))
    assert list(inflated_lines(gzip.compress(text))) == text.splitlines()
    assert list(inflated_lines(gzip.compress(b"a\nb"))) == [b"a", b"b"]
    with pytest.raises(EOFError):
        list(inflated_lines(gzip.compress(text)[:-9]))


@pytest.mark.parametrize("line", [b"x" * (1 << 16), b"x" * ((1 << 16) - 1) + b"\n"])
def test_inflating_ends_at_its_bounds(line):
    deflater = zlib.compressobj(1, zlib.DEFLATED, 31)
    member = b"".join(deflater.compress(line) for _ in range(MAX_INFLATED // len(line) + 1))
    with pytest.raises(ValueError, match=r"more than (16|128) MiB"):
        sum(map(len, inflated_lines(member + deflater.flush())))
