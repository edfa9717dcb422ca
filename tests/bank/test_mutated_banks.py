"""Every field and column of a step bank with a wrong value: read, or refused in one line."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from mutations import damaged, mutations, reads_or_refuses
from scripted_bank import ALONE, collected

from cats_jax.bank import layout

_COLUMNS = {
    "nothing": lambda column: None,
    "nulls": lambda column: pa.nulls(len(column), column.type),
    "texts": lambda column: pa.array(["x\0\n"] * len(column)),
    "negative": lambda column: pa.array([-(1 << 31)] * len(column), pa.int32()),
    "large": lambda column: pa.array([(1 << 62) + i for i in range(len(column))]),
    "numbers": lambda column: pa.array([[float("nan"), 1e308][i % 2] for i in range(len(column))]),
    "ragged": lambda column: pa.array([[1.0] * (i % 3) for i in range(len(column))]),
    "long": lambda column: pa.array(["x" * 10_000] * len(column)),
}
"""What takes the place of a column."""


@pytest.fixture(scope="module", params=["while growing", "afterwards"])
def folder(request, tmp_path_factory):
    changes = {} if request.param == "while growing" else {"allocation": ALONE}
    parent = tmp_path_factory.mktemp("bank")
    collected(parent, 2, **changes)
    return parent / "bank"


def _check(folder, what):
    return reads_or_refuses(lambda: layout.load_bank(folder), str(folder), what)


@pytest.mark.parametrize("name", ["manifest.json", "sparsity.json"])
def test_a_bank_with_one_wrong_value_is_read_or_refused_by_folder(folder, name):
    assert _check(folder, "nothing")
    file = folder / name
    whole = file.read_bytes()
    for text in mutations(json.loads(whole), 37):
        file.write_text(text)
        _check(folder, text)
    for data in damaged(whole, 3):
        file.write_bytes(data)
        _check(folder, data)
    file.unlink()
    assert not _check(folder, "no such file")
    file.write_bytes(whole)


def test_a_bank_with_one_wrong_column_is_read_or_refused_by_folder(folder):
    for file in sorted(folder.glob("*.parquet")):
        whole = file.read_bytes()
        table = pq.read_table(file)
        for index, name in enumerate(table.column_names):
            for kind, change in _COLUMNS.items():
                column = change(table[name])
                changed = table.remove_column(index)
                if column is not None:
                    changed = changed.add_column(index, name, column)
                pq.write_table(changed, file)
                _check(folder, (file.name, name, kind))
        pq.write_table(table.slice(0, 0), file)
        assert not _check(folder, (file.name, "no rows"))
        for data in damaged(whole, 3):
            file.write_bytes(data)
            _check(folder, data)
        file.write_bytes(whole)
    assert _check(folder, "nothing")
