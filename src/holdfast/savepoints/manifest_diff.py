"""Compare two savepoints by their manifests; no state is read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from holdfast import layout
from holdfast.formats.manifest import Manifest, SavedFile
from holdfast.json_shapes import JsonShape, in_json
from holdfast.layout import SharedSstFile, StoreFile


@dataclass(frozen=True, slots=True)
class ManifestChange(JsonShape):
    """A difference between the first savepoint and the second.

    Attributes:
        name: The field that differs.
        first: The value in the first savepoint; None if missing.
        second: The value in the second savepoint; None if missing.
    """

    name: str
    first: Any
    second: Any


@dataclass(frozen=True, slots=True)
class PartitionDifference(JsonShape):
    """The state files of one partition of one operator, compared by content.

    Attributes:
        operator_id: The operator.
        partition: The partition.
        first_bytes: Bytes only in the first savepoint.
        second_bytes: Bytes only in the second savepoint.
        shared_bytes: Bytes in both.
        display_name: The display name of the operator.
    """

    operator_id: int
    partition: int
    first_bytes: int
    second_bytes: int
    shared_bytes: int
    display_name: str


@dataclass(frozen=True, slots=True)
class Difference(JsonShape):
    """The differences between two savepoints, by their manifests.

    Attributes:
        first: The first savepoint.
        second: The second savepoint.
        changes: Differences in query, batch, watermark and settings.
        sources: The offsets of each source that has moved.
        operators: Operators that were added or removed, or whose partitions, stores or schemas differ.
        partitions: The state files of every partition.

    Example:
        edited = hf.edit("savepoints@daily", "aggregate", key="c1", set={"count": 0})
        difference = hf.savepoints.diff_files("savepoints@daily", edited.uri)
        assert not difference.same_state
        assert [partition.partition for partition in difference.partitions if partition.second_bytes] == [0]
    """

    first: str
    second: str
    changes: tuple[ManifestChange, ...]
    sources: tuple[ManifestChange, ...]
    operators: tuple[ManifestChange, ...]
    partitions: tuple[PartitionDifference, ...]

    @property
    @in_json
    def same_state(self) -> bool:
        """Return whether all state files are the same. Different files may still hold the same state."""
        return not any(partition.first_bytes or partition.second_bytes for partition in self.partitions)


def compare(first: Manifest, second: Manifest) -> Difference:
    """Compare two savepoints, possibly of different queries and from different catalogs."""
    return Difference(
        first.savepoint_id,
        second.savepoint_id,
        changes=(*_changes(_facts(first), _facts(second)), *_changes(_confs(first), _confs(second))),
        sources=_changes(_by(first, "sources", "name", "offset"), _by(second, "sources", "name", "offset")),
        operators=_changes(_operators(first), _operators(second)),
        partitions=tuple(_partitions(first, second)),
    )


def _facts(manifest: Manifest) -> dict[str, Any]:
    named = ("checkpoint", "query_id", "batch", "watermark_ms", "provider")
    return {name: manifest.fields.get(name) for name in named}


def _confs(manifest: Manifest) -> Mapping[str, Any]:
    return manifest.fields.get("confs") or {}


def _by(manifest: Manifest, listed: str, key: str, value: str) -> dict[str, Any]:
    return {str(entry[key]): entry[value] for entry in manifest.fields.get(listed) or ()}


def _operators(manifest: Manifest) -> dict[str, Any]:
    """Return the constant properties of an operator: not its sizes and rows."""
    return {
        str(operator["operator_id"]): {
            "name": operator["holdfast_name"] or operator["name"],
            "display_name": manifest.operator_names[operator["operator_id"]].display_name,
            "partitions": operator["partitions"],
            "variables": operator["variables"],
            "stores": {store["name"]: store["schema"] for store in operator["stores"]},
        }
        for operator in manifest.fields.get("operators") or ()
    }


def _changes(first: Mapping[str, Any], second: Mapping[str, Any]) -> tuple[ManifestChange, ...]:
    names = [*first, *(name for name in second if name not in first)]
    return tuple(
        ManifestChange(name, first.get(name), second.get(name))
        for name in names
        if first.get(name) != second.get(name)
    )


def _partitions(first: Manifest, second: Manifest) -> Iterable[PartitionDifference]:
    one, other = _state(first.files), _state(second.files)
    names = {**first.operator_names, **second.operator_names}
    for place in sorted({*one, *other}):
        here, there = one.get(place, {}), other.get(place, {})
        yield PartitionDifference(
            *place,
            first_bytes=sum(size for sha256, size in here.items() if sha256 not in there),
            second_bytes=sum(size for sha256, size in there.items() if sha256 not in here),
            shared_bytes=sum(size for sha256, size in here.items() if sha256 in there),
            display_name=names[place[0]].display_name,
        )


def _state(files: Iterable[SavedFile]) -> dict[tuple[int, int], dict[str, int]]:
    """Hash and size of state files, by operator and partition."""
    found: dict[tuple[int, int], dict[str, int]] = {}
    for file in files:
        place = layout.parse(file.path)
        if isinstance(place, (StoreFile, SharedSstFile)):
            store = place.store
            found.setdefault((store.operator_id, store.partition), {})[file.sha256] = file.size_bytes
    return found
