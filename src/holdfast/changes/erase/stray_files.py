"""The search of state files that belong to no restorable batch.

Killed tasks and Spark's cleanup leave such files behind. It is unknown which of their rows are current, so
their bytes are searched: a file that may contain the key, or that cannot be decompressed, counts as one with
the key. An empty file of a killed task does not contain the key.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from holdfast import layout
from holdfast.at_rest.model import NamedOperator
from holdfast.changes.erase.purge import SparkSearch
from holdfast.changes.erase.searching import Subject, noted_keys
from holdfast.checkpoints.state.states import OperatorStates
from holdfast.errors import Corrupt, NotFound, Unsupported
from holdfast.formats.files.compression import decompressed
from holdfast.formats.files.sst import sst_entries
from holdfast.layout import FileKind, SharedSstFile, StoreFile
from holdfast.storage.port import Storage

if TYPE_CHECKING:
    from holdfast.changes.erase.keyed_erasing import KeyedSearch


# A function that returns whether the bytes of one or many rows may contain the subject.
_MayBe = Callable[[bytes], bool]


class StrayFiles:
    """A search of files that belong to no batch.

    Args:
        checkpoint: The checkpoint.
        operators: The operators of the checkpoint at the newest batch.
        subject: The key.
    """

    def __init__(self, checkpoint: Storage, operators: Sequence[NamedOperator], subject: Subject) -> None:
        self._checkpoint = checkpoint
        self._operators = {
            operator.operator_id: (operator.files, _search(operator, subject).may_hold(operator))
            for operator in operators
        }

    def holding(self, paths: Sequence[str]) -> int:
        """Return the number of these files that may contain the subject."""
        return sum(self._may_hold(path) for path in paths)

    def _may_hold(self, path: str) -> bool:
        if _is_schema(path):
            return False
        try:
            data = self._checkpoint.read(path)
        except NotFound:
            return False  # Spark's cleanup has deleted the file
        return bool(data) and self._may_be_in(path, data)

    def _may_be_in(self, path: str, data: bytes) -> bool:
        place = layout.parse(path)
        if not isinstance(place, (StoreFile, SharedSstFile)):
            return True
        known = self._operators.get(place.store.operator_id)
        if known is None:
            return True  # the operator was removed, so the format of its rows is unknown
        try:
            return _in_rows(path, data, place, *known)
        except (Corrupt, Unsupported, zipfile.BadZipFile):
            return True


def _search(operator: NamedOperator, subject: Subject) -> SparkSearch | KeyedSearch:
    if operator.keyed is None:
        return SparkSearch(subject)
    from holdfast.changes.erase.keyed_erasing import KeyedSearch  # it needs Arrow

    return KeyedSearch(subject)


def _in_rows(
    path: str, data: bytes, place: StoreFile | SharedSstFile, operator: OperatorStates, may_be: _MayBe
) -> bool:
    """Return whether the content of a store's file may contain the subject."""
    if isinstance(place, SharedSstFile):
        if place.folder != layout.SSTS:
            return may_be(data)
        return any(may_be(key + b"\0" + (value or b"")) for key, value in sst_entries(data, path))
    if place.kind is FileKind.ZIP:
        # The rows are in data files, which are searched separately; this file contains the first and last
        # keys.
        return any(map(may_be, noted_keys(data)))
    return may_be(decompressed(data, operator.codec, path))


def _is_schema(path: str) -> bool:
    """Return whether a file is a schema file, which has no rows."""
    return isinstance(layout.parse(path), (layout.OperatorMetadataFile, layout.SchemaFile))
