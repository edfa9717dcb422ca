"""Reading of Parquet files, whose content may be far larger than the files."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

MAX_TABLES = 1 << 32
"""Most bytes of the tables of a folder in memory: 4 GiB."""

MAX_RATIO = 1000
"""Most bytes of a file's content for one byte of the file; files below 1 MiB count as 1 MiB."""

_MAX_BATCH = 1 << 28
_MAX_ROWS = 1 << 16


def bounded_batches(path: pathlib.Path, limit: int) -> Iterator[pa.RecordBatch]:
    """The rows of a Parquet file in batches, in order; together at most `limit` bytes in memory.

    Equal values can be stored once, so a file of some kilobytes may hold billions of values. A
    batch has so few rows that it fits into memory even if each row has the longest value of the
    file.

    Raises:
        ValueError: the rows take more than `limit`, or more than `MAX_RATIO` times the file's size.
        pyarrow.ArrowException, OSError: the file can't be read, or is not a Parquet file.
    """
    from pyarrow import parquet

    if not path.is_file():
        raise ValueError("it is not a file")
    most = min(limit, MAX_RATIO * max(path.stat().st_size, 1 << 20))
    too_large = f"its rows take more than {most >> 20} MiB of memory"
    with parquet.ParquetFile(path) as file:
        groups = [file.metadata.row_group(i) for i in range(file.metadata.num_row_groups)]
        chunks = [group.column(i) for group in groups for i in range(group.num_columns)]
        longest = max((chunk.total_uncompressed_size for chunk in chunks), default=0)
        size = sum(chunk.total_uncompressed_size for chunk in chunks)
        if max(size, sum(chunk.num_values for chunk in chunks)) > most:
            raise ValueError(too_large)
        rows = max(1, min(_MAX_ROWS, _MAX_BATCH // max(longest, 1)))
        total = 0
        for batch in file.iter_batches(batch_size=rows):
            total += batch.nbytes
            if total > most:
                raise ValueError(too_large)
            yield batch
