"""The working copy of a partition's state: Arrow files next to Spark's local files.

The state store has the committed state. Reading all of it in each batch would be slow, so a task leaves its
rows in files, which the next task of the same partition maps into memory. Files are written once and never
changed; the manifest that lists them is replaced last. The manifest has the version of each key group, and a
group whose version differs from the store's is read from the store. A copy may be missing, outdated or left
by a failed task, so its versions are always checked.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast.errors import Corrupt
from holdfast.formats.key_groups import Meta
from holdfast.worker.state.tables import Levels, Run, Segment, Segments

_MANIFEST = "manifest.json"
# In one of this many batches, the records of all groups are read from the store for counting.
_COUNT_ANEW = 32


class Copies:
    """The files of one partition's working copy, in one directory.

    Args:
        folder: The partition's directory on a local disk.
        fingerprint: The fingerprint of the rows' schema; files with a different schema are not read.
        mark: A string unique to this task, for the names of files.
    """

    def __init__(self, folder: Path, fingerprint: bytes, mark: str) -> None:
        self._folder = folder
        self._form = fingerprint.hex()
        self._mark = mark
        self._count = 0
        self._files: dict[int, tuple[Run, str]] = {}
        self._batch_id: int | None = None
        self._records: dict[int, Meta | None] = {}

    def read(self, schemas: Mapping[str, pa.Schema]) -> tuple[dict[str, Levels], dict[int, bytes]]:
        """Return the tables of the copy, and the version of each group; both empty without a valid copy."""
        try:
            fields = json.loads((self._folder / _MANIFEST).read_bytes())
            if fields["form"] != self._form:
                return {}, {}
            tables = {name: self._levels(schema, fields["tables"][name]) for name, schema in schemas.items()}
            groups = {int(group): bytes.fromhex(token) for group, token in fields["groups"].items()}
            self._batch_id = fields.get("batch")
            self._records = {int(group): _record(text) for group, text in fields.get("records", {}).items()}
        except (OSError, ValueError, LookupError, TypeError, AttributeError, pa.ArrowException, Corrupt):
            # A concurrent task may replace the files, or a crash truncate them; the store has all data.
            self._files.clear()
            self._batch_id, self._records = None, {}
            return {}, {}
        return tables, groups

    def records(self, batch_id: int | None) -> Mapping[int, Meta | None]:
        """Return the records of groups from the previous batch, if it ran on this machine.

        Use them only for counts: the task that left them may have been repeated on a different machine.
        Therefore the result is empty at intervals, so that all records are read from the store.
        """
        if batch_id is None or self._batch_id != batch_id - 1 or batch_id % _COUNT_ANEW == 0:
            return {}
        return self._records

    def save(
        self,
        tables: Mapping[str, Levels],
        groups: Mapping[int, bytes],
        records: Mapping[int, Meta | None] | None = None,
        batch_id: int | None = None,
    ) -> None:
        """Save the tables for the next task; if the disk is full, that task only becomes slower."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            before = {file.name for file in self._folder.iterdir()}
            described = {name: self._describe(levels) for name, levels in tables.items()}
            fields = {
                "form": self._form,
                "tables": described,
                "groups": {str(group): token.hex() for group, token in groups.items()},
                "batch": batch_id,
                "records": {
                    str(group): None if record is None else record.encode().hex()
                    for group, record in (records or {}).items()
                },
            }
            beside = self._folder / f"{_MANIFEST}.{self._mark}"
            beside.write_text(json.dumps(fields), encoding="utf-8")
            beside.replace(self._folder / _MANIFEST)
            used = {name for table in described.values() for level in table.values() for _, name in level}
            for name in before - used - {_MANIFEST}:
                (self._folder / name).unlink(missing_ok=True)
        except OSError:
            with contextlib.suppress(OSError):
                (self._folder / _MANIFEST).unlink(missing_ok=True)

    def _levels(self, schema: pa.Schema, fields: Mapping[str, Any]) -> Levels:
        settled, tail = (
            [Segment(low, self._open(name)) for low, name in fields[level]] for level in ("settled", "tail")
        )
        return Levels(schema, settled, tail)

    def _open(self, name: str) -> Run:
        with pa.memory_map(os.fspath(self._folder / name)) as file:
            run = Run(pa.ipc.open_file(file).get_batch(0))
        self._files[id(run)] = (run, name)
        return run

    def _describe(self, levels: Levels) -> dict[str, Any]:
        return {"settled": self._files_of(levels.settled), "tail": self._files_of(levels.tail)}

    def _files_of(self, level: Segments) -> list[tuple[int, str]]:
        filled = [segment for segment in level.parts if len(segment.run)]
        return [(segment.low if at else 0, self._write(segment.run)) for at, segment in enumerate(filled)]

    def _write(self, run: Run) -> str:
        known = self._files.get(id(run))
        if known is not None:
            return known[1]
        self._count += 1
        name = f"{self._mark}-{self._count}.arrow"
        with (
            pa.OSFile(os.fspath(self._folder / name), "wb") as file,
            pa.ipc.new_file(file, run.batch.schema) as out,
        ):
            out.write_batch(run.batch)
        self._files[id(run)] = (run, name)
        return name


def copies_place(local_folder: Path) -> Path:
    """Return the directory of all working copies in one of Spark's local directories."""
    return local_folder / "holdfast"


def continue_copies(former: Path, local_folder: Path) -> None:
    """Move the working copies of a driver that was killed to the local directory of its successor.

    The versions of their key groups are checked as always. What cannot be moved is read from the store.
    """
    with contextlib.suppress(OSError):
        for query in copies_place(former).iterdir():
            place = copies_place(local_folder) / query.name
            if not query.is_symlink() and not place.exists():
                place.parent.mkdir(exist_ok=True)
                query.rename(place)


def _record(text: str | None) -> Meta | None:
    return None if text is None else Meta.decode(bytes.fromhex(text))
