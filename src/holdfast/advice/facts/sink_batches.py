"""Sinks of files whose log does not fit the checkpoint: it has later batches, or lacks one before."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from holdfast.advice.source.hits import Hit
from holdfast.advice.source.values import Const, Writer
from holdfast.checkpoints.logs.logs import numbers
from holdfast.config.locations import SCHEME, local_path
from holdfast.formats.logs.sink_log import LOG_DIRECTORY, missing_batch, newest_batch
from holdfast.layout import COMMITS, OFFSETS


def sink_hits(writers: Iterable[Writer]) -> Iterator[Hit]:
    """Find the sinks of files of a program whose log does not fit the checkpoint of the query.

    Looks at directories that the code names in full and that are on this machine; a relative one is below
    the working directory, as it is for Spark.
    """
    for writer in writers:
        checkpoint, node = writer.options.get("checkpointlocation", (None, None))
        path, _ = writer.options.get("path", (writer.path, None))
        place, output = _local(checkpoint), _local(path)
        if node is None or place is None or output is None:
            continue
        for rule, look in (("HF413", _ahead), ("HF414", _gap)):
            try:
                seen = look(place, output)
            except (OSError, ValueError):  # what cannot be read is no evidence; no file has such a name
                continue
            if seen is not None:
                yield Hit(rule, node, seen)


def _ahead(checkpoint: Path, output: Path) -> str | None:
    written = newest_batch(_names(output / LOG_DIRECTORY))
    planned = max(numbers(_names(checkpoint / OFFSETS)), default=-1)
    if written is None or written <= planned:
        return None
    first = planned + 1
    lost = f"batch {first}" if first == written else f"batches {first} to {written}"
    return (
        f"{output} has batch {written} already, and the checkpoint goes on with batch {first}:"
        f" {lost} would be lost"
    )


def _gap(checkpoint: Path, output: Path) -> str | None:
    committed = max(numbers(_names(checkpoint / COMMITS)), default=-1)
    names = list(_names(output / LOG_DIRECTORY))
    missing = missing_batch(names, committed + 1)
    written = newest_batch(names)
    if missing is None or (written is not None and written > committed + 1):  # that is HF413
        return None
    return (
        f"{output} has no entry for batch {missing}, and the checkpoint has committed batch {committed}:"
        " the query would fail at the next compaction of the log"
    )


def _names(log: Path) -> Iterator[str]:
    """The names of a log's files; none where there is no log."""
    if log.is_dir():
        yield from (file.name for file in log.iterdir())


def _local(given: Any) -> Path | None:
    if not isinstance(given, Const) or not given.whole or not isinstance(given.value, str) or not given.value:
        return None
    if SCHEME.match(given.value) and not given.value.startswith("file:"):
        return None
    return local_path(given.value) or Path(given.value)
