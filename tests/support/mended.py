"""What tests of edits and erasures share: states as plain rows, and what Spark relies on beside them."""

from __future__ import annotations

import io
import re
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

from state_rows import state_rows

from holdfast.formats.files.compression import decompressed
from holdfast.formats.files.snapshot import SST_MAGIC
from holdfast.formats.files.sst import sst_entries
from holdfast.savepoints.catalog import load
from holdfast.savepoints.view import SavepointView
from holdfast.storage.port import Storage


def view_of(catalog: Storage, savepoint_id: str) -> SavepointView:
    """A savepoint as a checkpoint."""
    return SavepointView(catalog, load(catalog, savepoint_id).files, "savepoint")


def rows_of(storage: Storage, label: str) -> list[tuple[dict[str, Any], Any]]:
    """Key and value of every row of a state, straight from its family."""
    return [(row.key, row.value) for row in state_rows(storage) if row.state.label == label]


def simple(storage: Storage, label: str) -> dict[Any, Any]:
    """The same of a state with one key column: values as tuples."""
    found = {}
    for key, value in rows_of(storage, label):
        (only,) = key.values()
        assert only not in found
        found[only] = (
            [tuple(each.values()) for each in value] if isinstance(value, list) else tuple(value.values())
        )
    return found


def joined_rows(storage: Storage, side: str) -> dict[str, list[tuple[Any, ...]]]:
    """The rows of a join's side by key; the numbers have no gaps and the counts are right."""
    found: dict[str, dict[int, tuple[Any, ...]]] = {}
    for key, value in rows_of(storage, f"{side}-keyWithIndexToValue"):
        found.setdefault(key["field0"], {})[key["index"]] = tuple(value.values())
    counts = {key["field0"]: value["value"] for key, value in rows_of(storage, f"{side}-keyToNumValues")}
    assert counts == {key: len(each) for key, each in found.items()}
    for each in found.values():
        assert sorted(each) == list(range(len(each)))
    return {key: [each[at] for at in sorted(each)] for key, each in found.items()}


def counted(storage: Storage, label: str) -> None:
    """The counter beside a list is right for every key."""
    lists = {key: len(value) for key, value in simple(storage, label).items()}
    counts = {key: value[0] for key, value in simple(storage, f"$rowCounter_{label}").items()}
    assert counts == lists


def leaks(root: Path, word: str) -> list[str]:
    """The files below a directory in which a word is, packed or not, in whatever part of them."""
    needle = word.encode()
    return [
        str(file.relative_to(root))
        for file in sorted(root.rglob("*"))
        if file.is_file() and _has(file, needle)
    ]


def _has(file: Path, needle: bytes) -> bool:
    data = file.read_bytes()
    parts = [data]
    if data[:2] == b"PK":
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            parts += [archive.read(name) for name in archive.namelist()]
    elif data[-8:] == SST_MAGIC:
        parts += [key + b"|" + value for key, value in sst_entries(data, str(file))]
    elif data[:8] == b"LZ4Block":
        parts.append(decompressed(data, "lz4", str(file)))
    return any(needle in part for part in parts)


def all_rows(storage: Storage) -> Counter[str]:
    """Every row of every family, as text."""
    return Counter(
        re.sub(r"\s+", " ", repr((row.state.store, row.state.family, row.key, row.value)))
        for row in state_rows(storage)
    )
