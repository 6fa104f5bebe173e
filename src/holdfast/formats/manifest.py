"""The manifest of a savepoint, its labels, and the digests of its rows.

A manifest is a readable JSON document, with one field or one file per line. Its last field is the SHA-256 of
all preceding bytes. A manifest is accepted only if rendering its content gives the same bytes, so every edit
and every flipped bit is detected.

The manifest lists the files of a savepoint; `content.json` lists the counts and digests of the rows in those
files, with one state or one store per line. It ends with a SHA-256 and is verified in the same way.

Row hashes are summed without order, so the sums of a state's partitions add up to the sum of the state. Sums
are stored per store: a later savepoint that shares a store's files reuses its sums.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from holdfast import layout
from holdfast.errors import Unsupported
from holdfast.formats.operators import KEYED_VARIABLES, OperatorName, operator_names
from holdfast.formats.text import compact, damaged, decoded, inner_path, json_object, string, whole_number
from holdfast.json_shapes import NOT_IN_JSON, JsonShape, in_json, in_json_as, json_as

FORMAT: Final = 1
WHOLE: Final = "whole"
SOURCE_LOG: Final = "source log"
SCHEMA_PATHS: Final = "schema paths"
# The recorded changes of the state; savepoints taken from a checkpoint do not have these fields.
CHANGE: Final = "change"
ERASURES: Final = "erasures"
EXPIRED: Final = "expired_dropped"
_HOWS: Final = (WHOLE, SOURCE_LOG, SCHEMA_PATHS)
_WHAT = "the manifest"
_FILES = "files"
_DIGEST = "sha256"
_HASH = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class SavedFile(JsonShape):
    """One file of a savepoint.

    Attributes:
        path: The path of the file in the checkpoint, and in a restored one.
        size_bytes: The size of the file in bytes.
        sha256: The SHA-256 of the file, which is the name of the object that stores it.
        how: The form in which the file is stored: `whole` is unchanged, `source log` ends at the batch, and
            `schema paths` has paths of the checkpoint, which a restore replaces with those of the new one.
        modified_ns: The time of the last write in nanoseconds, if the object is a hard link to the file; a
            later write has also changed the savepoint.
    """

    path: str
    size_bytes: int = field(metadata=json_as("size"))
    sha256: str
    how: str = WHOLE
    modified_ns: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the file as plain values for JSON."""
        written = JsonShape.as_dict(self)
        if self.modified_ns is None:
            del written["modified_ns"]
        return written


@dataclass(frozen=True, slots=True)
class Manifest:
    """The manifest of a savepoint.

    Attributes:
        savepoint_id: The id of the savepoint.
        label: The label given when the savepoint was taken, or the newest label if it was looked up.
        created_ms: The time at which the savepoint was taken, in epoch milliseconds.
        checkpoint: The address of the checkpoint.
        query_id: The id of the query.
        batch_id: The committed batch of the savepoint; a restored query continues with the next batch.
        files: The files of the savepoint, in ascending order of their paths.
        new_bytes: The size of the files that were new to the catalog, in bytes.
        fields: All fields except the files, unchanged, including unknown ones.

    Example:
        manifest: hf.savepoints.Manifest = hf.savepoints.show("savepoints@daily")
        assert (manifest.batch_id, manifest.changed) == (11, False)
    """

    savepoint_id: str
    label: str | None
    created_ms: int
    checkpoint: str
    query_id: str
    batch_id: int
    files: tuple[SavedFile, ...] = field(metadata=json_as(convert=len, says="The number of its files."))
    new_bytes: int
    fields: Mapping[str, Any] = field(metadata=NOT_IN_JSON)

    @property
    @in_json
    def change(self) -> Mapping[str, Any] | None:
        """Return the change of the state, if an edit or an undo created this savepoint, or None."""
        found = self.fields.get(CHANGE)
        return found if isinstance(found, dict) else None

    @property
    @in_json
    def erasures(self) -> tuple[Mapping[str, Any], ...]:
        """Return the erasures from the savepoint, the oldest first, with keys only as hashes."""
        found = self.fields.get(ERASURES)
        return tuple(entry for entry in found if isinstance(entry, dict)) if isinstance(found, list) else ()

    @property
    @in_json_as(EXPIRED)
    def expired(self) -> Mapping[str, Any] | None:
        """Return the drop of expired values, if it was requested, or None."""
        found = self.fields.get(EXPIRED)
        return found if isinstance(found, dict) else None

    @property
    def changed(self) -> bool:
        """Return whether the state of the savepoint differs from what Spark wrote."""
        return self.change is not None or bool(self.erasures) or self.expired is not None

    @property
    def operator_names(self) -> dict[int, OperatorName]:
        """Return the names of the savepoint's operators, by number in the plan."""
        listed = self.fields.get("operators") or ()
        return operator_names(
            {operator["operator_id"]: operator["name"] for operator in listed},
            {
                operator["operator_id"]: operator["holdfast_name"]
                for operator in listed
                if operator["holdfast_name"] or set(operator["variables"]) == KEYED_VARIABLES
            },
        )

    @property
    def has_content(self) -> bool:
        """Return whether the manifest has the row counts and digests of all states."""
        operators = self.fields.get("operators") or ()
        return all(store.get("content") is not None for operator in operators for store in operator["stores"])

    @property
    @in_json
    def size_bytes(self) -> int:
        """Return the total size of the files in bytes."""
        return sum(file.size_bytes for file in self.files)

    def as_dict(self) -> dict[str, Any]:
        """Return the manifest as plain values for JSON, with the current label."""
        return {**self.fields, "label": self.label, _FILES: [file.as_dict() for file in self.files]}

    def render(self) -> bytes:
        """Return the bytes of the manifest file."""
        lines = [f"{compact(key)}:{compact(value)},\n" for key, value in self.fields.items()]
        files = ",\n".join(compact(file.as_dict()) for file in self.files)
        body = "{\n" + "".join(lines) + f'"{_FILES}":[\n{files}\n],\n'
        digest = hashlib.sha256(body.encode()).hexdigest()
        return f'{body}"{_DIGEST}":"{digest}"\n}}\n'.encode()


def manifest_of(fields: Mapping[str, Any], files: Sequence[SavedFile], where: str = "") -> Manifest:
    """Return a manifest with these fields and files, after checking them.

    Raises:
        Corrupt: A field is missing or invalid, or a file that every savepoint must have is not listed.
        Unsupported: The version of the manifest format is unknown.
    """
    given = dict(fields)
    version = whole_number(given, "format", _WHAT, where)
    if version != FORMAT:
        raise Unsupported(
            "unknown savepoint format",
            code="HF-E7070",
            where=where,
            found=f"format {version}",
            expected=f"format {FORMAT}",
            hint="upgrade Holdfast: a newer version took this savepoint",
        )
    batch_id = whole_number(given, "batch", _WHAT, where)
    label = given.get("label")
    if label is not None and not isinstance(label, str):
        raise damaged(_WHAT, where, f"`label` is {label!r}", "text")
    _complete(files, batch_id, where)
    return Manifest(
        savepoint_id=string(given, "id", _WHAT, where),
        label=label,
        created_ms=whole_number(given, "created_ms", _WHAT, where),
        checkpoint=string(given, "checkpoint", _WHAT, where),
        query_id=string(given, "query_id", _WHAT, where),
        batch_id=batch_id,
        files=tuple(files),
        new_bytes=whole_number(given, "new_bytes", _WHAT, where),
        fields=given,
    )


def parse_manifest(data: bytes, where: str) -> Manifest:
    """Parse a manifest file.

    Raises:
        Corrupt: The bytes differ from those that were written.
        Unsupported: The version of the manifest format is unknown.
    """
    fields = json_object(decoded(data, _WHAT, where), _WHAT, where)
    digest = fields.pop(_DIGEST, None)
    listed = fields.pop(_FILES, None)
    if not isinstance(listed, list):
        raise damaged(_WHAT, where, "no list of files", "a list of files")
    manifest = manifest_of(fields, [_file(file, where) for file in listed], where)
    if manifest.render() != data:
        named = isinstance(digest, str)
        found = f"SHA-256 {str(digest)[:16]}… does not match its bytes" if named else "no SHA-256"
        raise damaged(_WHAT, where, found, "a file as it was written")
    return manifest


def _file(given: Any, where: str) -> SavedFile:
    if not isinstance(given, dict):
        raise damaged(_WHAT, where, f"{given!r} in the list of files", "an object")
    path = inner_path(string(given, "path", _WHAT, where), _WHAT, where)
    sha256 = string(given, "sha256", _WHAT, where)
    if not _HASH.fullmatch(sha256):
        raise damaged(_WHAT, where, f"{path} with SHA-256 {sha256!r}", "64 hexadecimal digits")
    how = string(given, "how", _WHAT, where)
    if how not in _HOWS:
        raise damaged(_WHAT, where, f"{path} with `how` {how!r}", ", ".join(_HOWS))
    size = whole_number(given, "size", _WHAT, where)
    if size < 0:
        raise damaged(_WHAT, where, f"{path} with {size} bytes")
    modified_ns = whole_number(given, "modified_ns", _WHAT, where) if "modified_ns" in given else None
    return SavedFile(path, size, sha256, how, modified_ns)


def _complete(files: Sequence[SavedFile], batch_id: int, where: str) -> None:
    paths = [file.path for file in files]
    if paths != sorted(set(paths)):
        raise damaged(_WHAT, where, "duplicate or unsorted files", "each path once, in ascending order")
    logs = [layout.LogFile(log, batch_id).render() for log in layout.Log]
    for needed in (layout.METADATA, *logs):
        if needed not in paths:
            raise damaged(_WHAT, where, f"no {needed} among the files", f"this file, for batch {batch_id}")


_CONTENT = "the record of a savepoint's rows"
_STATES = "states"
_STORES = "stores"
_SUM = re.compile(r"[0-9a-f]{128}")


@dataclass(frozen=True, slots=True)
class RecordedState(JsonShape):
    """The row count and digest of one state over all partitions.

    Attributes:
        operator_id: The number of the operator in the plan.
        store: The name of the store.
        family: The column family in the store.
        rows: The number of keys.
        digest: The digest of the rows, as 64 hexadecimal digits.
        size_bytes: The total size of keys and values in bytes.
    """

    operator_id: int
    store: str
    family: str
    rows: int
    digest: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class FamilySum(JsonShape):
    """The row count and hash sum of one column family in one store of one partition.

    Attributes:
        family: The name of the column family.
        rows: The number of rows.
        total: The sum of the rows' hashes, as 128 hexadecimal digits.
        size_bytes: The total size of keys and values in bytes.
    """

    family: str
    rows: int
    total: str = field(metadata=json_as("sum"))
    size_bytes: int


@dataclass(frozen=True, slots=True)
class StoreSums(JsonShape):
    """The row counts and hash sums of one store of one partition.

    Attributes:
        operator_id: The number of the operator in the plan.
        partition: The number of the partition.
        store: The name of the store.
        files: A hash of all files on which the rows depend.
        families: The column families that have rows.
    """

    operator_id: int
    partition: int
    store: str
    files: str
    families: tuple[FamilySum, ...]


@dataclass(frozen=True, slots=True)
class SavepointContent:
    """The counts and digests of a savepoint's rows.

    Attributes:
        savepoint_id: The id of the savepoint.
        manifest_sha256: The SHA-256 of the savepoint's manifest.
        made_ms: The time at which the rows were read, in epoch milliseconds.
        holdfast: The version of Holdfast that read the rows.
        states: The states, in ascending order.
        stores: The stores of all partitions, in ascending order.
    """

    savepoint_id: str
    manifest_sha256: str
    made_ms: int
    holdfast: str
    states: tuple[RecordedState, ...]
    stores: tuple[StoreSums, ...]

    @property
    def rows(self) -> int:
        """Return the number of rows of all states."""
        return sum(state.rows for state in self.states)

    def render(self) -> bytes:
        """Return the bytes of the file."""
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
    """Parse a file `content.json`.

    Raises:
        Corrupt: The bytes differ from those that were written.
        Unsupported: The version of the file format is unknown.
    """
    fields = json_object(decoded(data, _CONTENT, where), _CONTENT, where)
    version = whole_number(fields, "format", _CONTENT, where)
    if version != FORMAT:
        raise Unsupported(
            f"unknown format of {_CONTENT}",
            code="HF-E7071",
            where=where,
            found=f"format {version}",
            expected=f"format {FORMAT}",
            hint="upgrade Holdfast: a newer version wrote this file",
        )
    content = SavepointContent(
        savepoint_id=string(fields, "savepoint", _CONTENT, where),
        manifest_sha256=_hex(fields, "manifest", _HASH, where),
        made_ms=whole_number(fields, "made_ms", _CONTENT, where),
        holdfast=string(fields, "holdfast", _CONTENT, where),
        states=tuple(_state(state, where) for state in _objects(fields, _STATES, where)),
        stores=tuple(_store(store, where) for store in _objects(fields, _STORES, where)),
    )
    if content.render() != data:
        raise damaged(_CONTENT, where, "a SHA-256 that does not match the bytes", "a file as it was written")
    return content


def _state(fields: dict[str, Any], where: str) -> RecordedState:
    return RecordedState(
        operator_id=whole_number(fields, "operator_id", _CONTENT, where),
        store=string(fields, "store", _CONTENT, where),
        family=string(fields, "family", _CONTENT, where),
        rows=whole_number(fields, "rows", _CONTENT, where),
        digest=_hex(fields, "digest", _HASH, where),
        size_bytes=whole_number(fields, "size_bytes", _CONTENT, where),
    )


def _store(fields: dict[str, Any], where: str) -> StoreSums:
    families = (
        FamilySum(
            family=string(family, "family", _CONTENT, where),
            rows=whole_number(family, "rows", _CONTENT, where),
            total=_hex(family, "sum", _SUM, where),
            size_bytes=whole_number(family, "size_bytes", _CONTENT, where),
        )
        for family in _objects(fields, "families", where)
    )
    return StoreSums(
        operator_id=whole_number(fields, "operator_id", _CONTENT, where),
        partition=whole_number(fields, "partition", _CONTENT, where),
        store=string(fields, "store", _CONTENT, where),
        files=_hex(fields, "files", _HASH, where),
        families=tuple(families),
    )


def _objects(fields: Mapping[str, Any], key: str, where: str) -> Sequence[dict[str, Any]]:
    listed = fields.get(key)
    if not isinstance(listed, list) or not all(isinstance(entry, dict) for entry in listed):
        raise damaged(_CONTENT, where, f"`{key}` of a different type", "a list of objects")
    return listed


def _hex(fields: dict[str, Any], key: str, form: re.Pattern[str], where: str) -> str:
    text = string(fields, key, _CONTENT, where)
    if not form.fullmatch(text):
        raise damaged(_CONTENT, where, f"`{key}` is {text!r}", "hexadecimal digits")
    return text


_LABEL: Final = "the label of a savepoint"


@dataclass(frozen=True, slots=True)
class LabelChange(JsonShape):
    """A change of a savepoint's label.

    Attributes:
        savepoint: The id of the savepoint.
        label: The new label, or None.
        before: The previous label, or None.
        who: The user who changed the label.
        when_ms: The time of the change, in epoch milliseconds.

    Example:
        change = hf.savepoints.label("savepoints@daily", "audit 2026")
        assert (change.before, change.label) == ("daily", "audit 2026")
    """

    savepoint: str
    label: str | None
    before: str | None
    who: str
    when_ms: int

    def render(self) -> bytes:
        """Return the bytes of the file that records the change."""
        return f"{compact(self.as_dict())}\n".encode()


def parse_label_change(data: bytes, where: str) -> LabelChange:
    """Parse a file that records a change of a label.

    Raises:
        Corrupt: The file is not valid JSON, or a field is missing or invalid.
    """
    fields = json_object(decoded(data, _LABEL, where), _LABEL, where)
    labels: dict[str, str | None] = {}
    for key in ("label", "before"):
        value = fields.get(key)
        if value is not None and not isinstance(value, str):
            raise damaged(_LABEL, where, f"`{key}` is {value!r}", "text or null")
        labels[key] = value
    return LabelChange(
        savepoint=string(fields, "savepoint", _LABEL, where),
        label=labels["label"],
        before=labels["before"],
        who=string(fields, "who", _LABEL, where),
        when_ms=whole_number(fields, "when_ms", _LABEL, where),
    )
