"""Rows of state into a file: Parquet, or a line of JSON for each row."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast.errors import Conflict, Invalid, Unavailable
from holdfast.formats.rows.plain import plain

if TYPE_CHECKING:
    import pyarrow as pa

PARQUET: Final = ".parquet"
LINES: Final = (".jsonl", ".ndjson")


def check_target(target: Path) -> None:
    """Refuse a file that cannot be written, before anything is read.

    Raises:
        Invalid: Its name does not say which kind it is to be.
        Conflict: It is there already.
        Unavailable: Its directory is not there.
    """
    if target.suffix not in (PARQUET, *LINES):
        raise Invalid(
            "the name does not say what kind of file it is to be",
            found=str(target),
            expected=f"a name that ends in {PARQUET} or {LINES[0]}",
            hint="`.parquet` is smaller; `.jsonl` can be read by eye",
        )
    if target.exists():
        raise Conflict("the file is there already", where=str(target), hint="name another one, or remove it")
    if not target.parent.is_dir():
        raise Unavailable("there is no such directory", where=str(target.parent), hint="make it first")


def export(rows: pa.RecordBatchReader, target: Path) -> int:
    """Write rows into a new file: it is there whole, or not at all.

    Args:
        rows: The rows; read while they are written.
        target: The file; its end says which kind it is.

    Returns:
        How many rows.

    Raises:
        Invalid: The file's name does not say which kind it is to be.
        Conflict: The file is there already.
        Unavailable: It cannot be written.
    """
    check_target(target)
    with _beside(target) as part:
        return _parquet(rows, part) if target.suffix == PARQUET else _lines(rows, part)


@contextmanager
def _beside(target: Path) -> Iterator[Path]:
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        yield part
        with part.open("rb") as written:
            os.fsync(written.fileno())
        os.link(part, target)
    except FileExistsError as error:
        raise Conflict(
            "the file is there already", where=str(target), hint="name another one, or remove it"
        ) from error
    except OSError as error:
        raise Unavailable(
            "the file cannot be written",
            where=str(target),
            found=str(error),
            hint="name a file on another disk, or in a directory that may be written to",
        ) from error
    finally:
        part.unlink(missing_ok=True)


def _parquet(rows: pa.RecordBatchReader, part: Path) -> int:
    import pyarrow.parquet as pq

    count = 0
    with pq.ParquetWriter(part, rows.schema) as writer:
        for batch in rows:
            writer.write_batch(batch)
            count += batch.num_rows
    return count


def _lines(rows: pa.RecordBatchReader, part: Path) -> int:
    count = 0
    with part.open("x", encoding="utf-8") as file:
        for batch in rows:
            for row in batch.to_pylist():
                file.write(json.dumps(plain(row), ensure_ascii=False) + "\n")
            count += batch.num_rows
    return count
