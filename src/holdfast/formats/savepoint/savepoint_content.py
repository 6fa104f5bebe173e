"""What the rows of a savepoint were when it was new: counts and digests, in a file beside its manifest.

The manifest says which bytes a savepoint has, this file which rows those bytes hold. One JSON document, laid
out for people: a state a line, a store a line. As with the manifest its last field is the SHA-256 of all
before it, and it is read only if it is byte for byte what would be written.

Row hashes are added up without order, so the sums of a state's partitions make the sum of the state. They are
kept for each store: a later savepoint that shares a store's files takes over its sums unread.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from holdfast.errors import Unsupported
from holdfast.formats.text import compact, damaged, decoded, json_object, string, whole_number
from holdfast.json_shapes import JsonShape, json_as

FORMAT: Final = 1
_WHAT = "the record of a savepoint's rows"
_DIGEST = "sha256"
_STATES = "states"
_STORES = "stores"
_HASH = re.compile(r"[0-9a-f]{64}")
_SUM = re.compile(r"[0-9a-f]{128}")


@dataclass(frozen=True, slots=True)
class RecordedState(JsonShape):
    """One state over all partitions.

    Attributes:
        operator_id: The operator's number in the plan.
        store: The store.
        family: The column family in it.
        rows: Its keys.
        digest: The digest of its rows, 64 hexadecimal digits.
        size_bytes: The bytes of keys and values.
    """

    operator_id: int
    store: str
    family: str
    rows: int
    digest: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class FamilySum(JsonShape):
    """The rows of one column family in one store of one partition.

    Attributes:
        family: The column family.
        rows: Its rows.
        total: The sum of their hashes, 128 hexadecimal digits.
        size_bytes: The bytes of keys and values.
    """

    family: str
    rows: int
    total: str = field(metadata=json_as("sum"))
    size_bytes: int


@dataclass(frozen=True, slots=True)
class StoreSums(JsonShape):
    """What was read of one store of one partition.

    Attributes:
        operator_id: The operator's number in the plan.
        partition: The partition.
        store: The store.
        files: A hash of all files that its rows depend on.
        families: Its column families that have rows.
    """

    operator_id: int
    partition: int
    store: str
    files: str
    families: tuple[FamilySum, ...]


@dataclass(frozen=True, slots=True)
class SavepointContent:
    """The rows of a savepoint, counted and hashed.

    Attributes:
        savepoint_id: The savepoint.
        manifest_sha256: The hash of the manifest whose files were read.
        made_ms: When they were read, in epoch milliseconds.
        holdfast: The version of Holdfast that read them.
        states: Every state, ascending.
        stores: Every store of every partition, ascending.
    """

    savepoint_id: str
    manifest_sha256: str
    made_ms: int
    holdfast: str
    states: tuple[RecordedState, ...]
    stores: tuple[StoreSums, ...]

    @property
    def rows(self) -> int:
        """The rows of all states."""
        return sum(state.rows for state in self.states)

    def render(self) -> bytes:
        """The file."""
        fields = {
            "format": FORMAT,
            "savepoint": self.savepoint_id,
            "manifest": self.manifest_sha256,
            "made_ms": self.made_ms,
            "holdfast": self.holdfast,
        }
        lines = "".join(f"{compact(key)}:{compact(value)},\n" for key, value in fields.items())
        states = ",\n".join(compact(state.as_dict()) for state in self.states)
        stores = ",\n".join(compact(store.as_dict()) for store in self.stores)
        body = f'{{\n{lines}"{_STATES}":[\n{states}\n],\n"{_STORES}":[\n{stores}\n],\n'
        digest = hashlib.sha256(body.encode()).hexdigest()
        return f'{body}"{_DIGEST}":"{digest}"\n}}\n'.encode()


def parse_savepoint_content(data: bytes, where: str) -> SavepointContent:
    """Read the file.

    Raises:
        Corrupt: It is not byte for byte what was written.
        Unsupported: A newer Holdfast wrote it.
    """
    fields = json_object(decoded(data, _WHAT, where), _WHAT, where)
    version = whole_number(fields, "format", _WHAT, where)
    if version != FORMAT:
        raise Unsupported(
            f"this format of {_WHAT} is not known",
            where=where,
            found=f"format {version}",
            expected=f"format {FORMAT}",
            hint="a newer Holdfast wrote it",
        )
    content = SavepointContent(
        savepoint_id=string(fields, "savepoint", _WHAT, where),
        manifest_sha256=_hex(fields, "manifest", _HASH, where),
        made_ms=whole_number(fields, "made_ms", _WHAT, where),
        holdfast=string(fields, "holdfast", _WHAT, where),
        states=tuple(_state(state, where) for state in _objects(fields, _STATES, where)),
        stores=tuple(_store(store, where) for store in _objects(fields, _STORES, where)),
    )
    if content.render() != data:
        raise damaged(_WHAT, where, "bytes that its SHA-256 is not of", "the bytes that were written")
    return content


def _state(fields: dict[str, Any], where: str) -> RecordedState:
    return RecordedState(
        operator_id=whole_number(fields, "operator_id", _WHAT, where),
        store=string(fields, "store", _WHAT, where),
        family=string(fields, "family", _WHAT, where),
        rows=whole_number(fields, "rows", _WHAT, where),
        digest=_hex(fields, "digest", _HASH, where),
        size_bytes=whole_number(fields, "size_bytes", _WHAT, where),
    )


def _store(fields: dict[str, Any], where: str) -> StoreSums:
    families = (
        FamilySum(
            family=string(family, "family", _WHAT, where),
            rows=whole_number(family, "rows", _WHAT, where),
            total=_hex(family, "sum", _SUM, where),
            size_bytes=whole_number(family, "size_bytes", _WHAT, where),
        )
        for family in _objects(fields, "families", where)
    )
    return StoreSums(
        operator_id=whole_number(fields, "operator_id", _WHAT, where),
        partition=whole_number(fields, "partition", _WHAT, where),
        store=string(fields, "store", _WHAT, where),
        files=_hex(fields, "files", _HASH, where),
        families=tuple(families),
    )


def _objects(fields: Mapping[str, Any], key: str, where: str) -> Sequence[dict[str, Any]]:
    listed = fields.get(key)
    if not isinstance(listed, list) or not all(isinstance(entry, dict) for entry in listed):
        raise damaged(_WHAT, where, f"no list of objects under `{key}`", "one")
    return listed


def _hex(fields: dict[str, Any], key: str, form: re.Pattern[str], where: str) -> str:
    text = string(fields, key, _WHAT, where)
    if not form.fullmatch(text):
        raise damaged(_WHAT, where, f"`{key}` is {text!r}", "hexadecimal digits")
    return text
