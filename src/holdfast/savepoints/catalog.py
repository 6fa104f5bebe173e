"""A catalog of savepoints: its directory, its savepoints, and its drills.

Each drill is a file of its own, `drills/<time>-<random>.json`, written atomically, so concurrent drills do
not conflict. Object stores, which cannot append to a file, keep it as well.

```
objects/<2 digits>/<SHA-256>      the content of files, each stored once, never changed
savepoints/<id>/manifest.json     a savepoint; written last, which publishes it
savepoints/<id>/content.json      row counts and digests of its states; absent until the rows are read
savepoints/<id>/label-<n>.json    a later label; the highest number is the current one
takes/<token>.json                a running take
takes/<token>.ended               a take that counts as dead
staging/<token>-<number>          files that a running take holds
sweep.json                        a running removal
sweep.lock                        the lock of a removal, on a local disk
```
"""

from __future__ import annotations

import datetime as dt
import json
import os
import re
import stat
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from holdfast import layout
from holdfast.config.checks import local_path, place_word
from holdfast.errors import Corrupt, HoldfastError, Invalid, NotFound
from holdfast.formats.manifest import LabelChange, Manifest, parse_label_change, parse_manifest
from holdfast.formats.text import foreign_json
from holdfast.json_shapes import JsonShape, in_json, json_as, json_spread
from holdfast.storage.hashing import hash_file
from holdfast.storage.port import Storage, full

DRILLS: Final = "drills"
# A drill is slow if it took more than this factor times the median of this number of earlier drills.
GROWTH: Final = 1.5
COMPARED: Final = 5
_NAME = re.compile(r"[0-9]{8}T[0-9]{6}\.[0-9]{3}Z-[0-9a-f]{8}\.json")


@dataclass(frozen=True, slots=True)
class Drill(JsonShape):
    """The result of a restore drill.

    Attributes:
        at_ms: The time of the drill.
        savepoint: The savepoint.
        query_id: The query of the savepoint.
        size_bytes: The bytes of the savepoint.
        job: The job that was started on the savepoint; None if only files were read.
        empty: True if the first batch had no input.
        phases_ms: The duration of each phase, in order; recovery is their sum.
        load_ms: The time that the tasks of the first batch took together to load state; a part of that batch.
    """

    at_ms: int
    savepoint: str
    query_id: str
    size_bytes: int
    job: str | None
    empty: bool
    phases_ms: Mapping[str, int]
    load_ms: int | None

    @property
    @in_json
    def recovery_ms(self) -> int:
        """The time from the decision to recover to the first committed batch."""
        return sum(self.phases_ms.values())

    def is_like(self, other: Drill) -> bool:
        """Return whether both measured the same: the same query, with the same job or both without one."""
        return (self.query_id, self.job) == (other.query_id, other.job)


def note(catalog: Storage, drill: Drill, chance: bytes) -> None:
    """Write a drill down.

    Args:
        catalog: The catalog.
        drill: The drill.
        chance: Four random bytes or more, for drills of the same millisecond.

    Raises:
        Unavailable: The catalog cannot be written.
    """
    moment = dt.datetime.fromtimestamp(drill.at_ms / 1000, dt.timezone.utc)
    stamp = f"{moment:%Y%m%dT%H%M%S}.{drill.at_ms % 1000:03}Z"
    catalog.write(f"{DRILLS}/{stamp}-{chance[:4].hex()}.json", json.dumps(drill.as_dict()).encode())


def drills(catalog: Storage) -> tuple[Drill, ...]:
    """Return all drills of a catalog, oldest first; unreadable files are skipped.

    Raises:
        Unavailable: The catalog does not answer.
    """
    names = sorted(name for name in catalog.list(DRILLS).names if _NAME.fullmatch(name))
    found = (_read(catalog, name) for name in names)
    return tuple(drill for drill in found if drill is not None)


def usual_ms(earlier: Iterable[Drill], drill: Drill) -> int | None:
    """Return the median duration of the last few similar drills before this one; None without any."""
    alike = [former.recovery_ms for former in earlier if former.is_like(drill)]
    return int(statistics.median(alike[-COMPARED:])) if alike else None


def has_grown(earlier: Sequence[Drill], drill: Drill) -> bool:
    """Return whether recovery takes much longer than before."""
    usual = usual_ms(earlier, drill)
    return usual is not None and drill.recovery_ms > GROWTH * usual


def _read(catalog: Storage, name: str) -> Drill | None:
    try:
        given = foreign_json(catalog.read(f"{DRILLS}/{name}"))
        return Drill(
            at_ms=int(given["at_ms"]),
            savepoint=str(given["savepoint"]),
            query_id=str(given["query_id"]),
            # Earlier versions wrote `bytes` and `state_load_ms`.
            size_bytes=int(given["size_bytes"] if "size_bytes" in given else given["bytes"]),
            job=given["job"],
            empty=bool(given["empty"]),
            phases_ms={str(phase): int(ms) for phase, ms in given["phases_ms"].items()},
            load_ms=given["load_ms"] if "load_ms" in given else given["state_load_ms"],
        )
    except (NotFound, ValueError, TypeError, KeyError, AttributeError):
        return None


OBJECTS: Final = "objects"
SAVEPOINTS: Final = "savepoints"
TAKES: Final = "takes"
STAGING: Final = "staging"
SWEEP: Final = "sweep.json"
SWEEP_LOCK: Final = "sweep.lock"
MANIFEST: Final = "manifest.json"
CONTENT: Final = "content.json"
# Whether the row counts and digests of a savepoint's states are recorded.
RECORDED: Final = "recorded"
PENDING: Final = "pending"
_OBJECT_STORES = ("s3a", "gs", "abfs", "abfss")
_ID = re.compile(r"[0-9]{8}T[0-9]{6}\.[0-9]{3}Z-[0-9a-f]{8}-b[0-9]+-[0-9a-f]{4}")
_LABEL = re.compile(r"label-([1-9][0-9]*)\.json")


@dataclass(frozen=True, slots=True)
class Listed(JsonShape):
    """A savepoint in a catalog.

    Attributes:
        savepoint_id: The savepoint's id.
        uri: The savepoint's address.
        manifest: The manifest, with the current label; None if the manifest is damaged.
        problem: The damage of the manifest or of the label.
        content: `recorded` if the row counts and digests of the states are recorded, else `pending`; None
            if the manifest is damaged.

    Example:
        for saved in hf.savepoints.list("savepoints"):
            if saved.manifest is None:
                print(saved.uri, "is damaged:", saved.problem)
            else:
                print(saved.uri, saved.manifest.label, saved.manifest.batch_id)
    """

    savepoint_id: str
    uri: str = field(metadata=json_as("savepoint"))
    manifest: Manifest | None = field(metadata=json_spread())
    problem: str | None
    content: str | None = None

    @property
    @in_json
    def erasures(self) -> tuple[Mapping[str, Any], ...]:
        """The erasures from the savepoint, oldest first; keys are identified by their hashes only."""
        return () if self.manifest is None else self.manifest.erasures


def object_path(sha256: str) -> str:
    """Return the path of the object with this hash.

    In sixteen folders: some file systems bound the names in one, and making one takes as long as a few files.
    """
    return f"{OBJECTS}/{sha256[0]}/{sha256}"


def is_to_be_put(catalog: Storage, sha256: str, size_bytes: int, damaged: set[str] | None = None) -> bool:
    """Return whether bytes have to be put under their hash; delete a damaged object that has that name.

    An object counts if its content has the hash that is its name. A size alone says nothing of a flipped bit.

    Args:
        catalog: The catalog.
        sha256: The hash.
        size_bytes: How many bytes they are.
        damaged: Filled with the path of an object that is deleted.
    """
    path = object_path(sha256)
    try:
        found, _ = hash_file(catalog, path, size_bytes)
    except NotFound:
        return True
    if found == sha256:
        return False
    catalog.delete(path)
    if damaged is not None:
        damaged.add(path)
    return True


def manifest_path(savepoint_id: str) -> str:
    """Return the path of a savepoint's manifest."""
    return f"{SAVEPOINTS}/{savepoint_id}/{MANIFEST}"


def content_path(savepoint_id: str) -> str:
    """Return the path of the row counts and digests of a savepoint's states."""
    return f"{SAVEPOINTS}/{savepoint_id}/{CONTENT}"


def label_path(savepoint_id: str, number: int) -> str:
    """Return the path of a savepoint's label with this number."""
    return f"{SAVEPOINTS}/{savepoint_id}/label-{number}.json"


def label_numbers(names: Iterable[str]) -> list[int]:
    """The numbers of the labels among the files of a savepoint's directory, ascending."""
    return sorted(int(match[1]) for name in names if (match := _LABEL.fullmatch(name)))


def is_side_file(name: str) -> bool:
    """Return whether a file in a savepoint's directory belongs to its manifest."""
    return name == CONTENT or _LABEL.fullmatch(name) is not None


def savepoint_uri(catalog: Storage, savepoint_id: str) -> str:
    """Return a savepoint's address."""
    return full(catalog.uri, f"{SAVEPOINTS}/{savepoint_id}")


def new_id(created_ms: int, query_id: str, batch_id: int, chance: bytes) -> str:
    """Return an id that sorts by time, such as `20260305T080000.000Z-1f0c33aa-b41-9d2e` for batch 41.

    Args:
        created_ms: When it is taken.
        query_id: The query; eight digits of it are taken.
        batch_id: The batch.
        chance: Two random bytes or more, for takes of the same millisecond.
    """
    moment = dt.datetime.fromtimestamp(created_ms / 1000, dt.timezone.utc)
    stamp = f"{moment:%Y%m%dT%H%M%S}.{created_ms % 1000:03}Z"
    return f"{stamp}-{query_id[:8].lower()}-b{batch_id}-{chance[:2].hex()}"


def split_uri(address: str) -> tuple[str, str] | None:
    """Return the catalog and the id in the full address of a savepoint; None for any other address."""
    parts = address.rstrip("/").removesuffix(f"/{MANIFEST}").split("/")
    if len(parts) == 1 or parts[-2] != SAVEPOINTS or not _ID.fullmatch(parts[-1]):
        return None
    return "/".join(parts[:-2]) or ("/" if address.startswith("/") else "."), parts[-1]


def ids(catalog: Storage) -> list[str]:
    """Return the ids in a catalog, oldest first; an id may have no manifest during a take or removal."""
    return sorted(name for name in catalog.list(SAVEPOINTS).names if _ID.fullmatch(name))


def ids_of_query(catalog: Storage, query_id: str) -> list[str]:
    """Return the ids of a query's savepoints, oldest first; queries with a similar id may be included."""
    return [name for name in ids(catalog) if f"-{query_id[:8].lower()}-" in name]


def load(catalog: Storage, savepoint_id: str) -> Manifest:
    """Read a savepoint's manifest.

    Raises:
        NotFound: The savepoint does not exist.
        Corrupt: The manifest is damaged.
        Unsupported: A newer Holdfast wrote it.
    """
    path = manifest_path(savepoint_id)
    try:
        data = catalog.read(path)
    except NotFound as error:
        raise NotFound(
            "the savepoint does not exist",
            code="HF-E3051",
            where=savepoint_uri(catalog, savepoint_id),
            hint="list the savepoints of this catalog with"
            f" `holdfast savepoint list {place_word(catalog.uri)}`",
        ) from error
    manifest = parse_manifest(data, full(catalog.uri, path))
    if manifest.savepoint_id != savepoint_id:
        raise Corrupt(
            "the manifest belongs to a different savepoint",
            code="HF-E6039",
            where=full(catalog.uri, path),
            found=manifest.savepoint_id,
            expected=savepoint_id,
            hint="restore the right manifest from a copy, or delete this savepoint",
        )
    return manifest


def described(catalog: Storage, savepoint_id: str) -> Listed:
    """Return a savepoint with its newest label and the status of its digests.

    Cost: a listing, and the manifest and the label are read.

    Raises:
        NotFound: The savepoint does not exist.
        Corrupt: The manifest is damaged.
        Unsupported: A newer Holdfast wrote it.
    """
    manifest = load(catalog, savepoint_id)
    names = catalog.list(f"{SAVEPOINTS}/{savepoint_id}").names
    problem = None
    try:
        numbers = label_numbers(names)
        if numbers:
            manifest = replace(manifest, label=load_label(catalog, savepoint_id, numbers[-1]).label)
    except HoldfastError as error:
        problem = _problem(error)
    content = RECORDED if manifest.has_content or CONTENT in names else PENDING
    return Listed(savepoint_id, savepoint_uri(catalog, savepoint_id), manifest, problem, content)


def load_label(catalog: Storage, savepoint_id: str, number: int) -> LabelChange:
    """Read a later label of a savepoint.

    Raises:
        NotFound: No label has this number.
        Corrupt: The label is damaged, or belongs to a different savepoint.
    """
    path = label_path(savepoint_id, number)
    change = parse_label_change(catalog.read(path), full(catalog.uri, path))
    if change.savepoint != savepoint_id:
        raise Corrupt(
            "the label file belongs to a different savepoint",
            code="HF-E6040",
            where=full(catalog.uri, path),
            found=change.savepoint,
            expected=savepoint_id,
            hint="delete this file; the previous label then applies",
        )
    return change


def is_catalog(storage: Storage) -> bool:
    """Return whether a directory has, had, or is about to have savepoints."""
    return not {OBJECTS, SAVEPOINTS, TAKES, STAGING, SWEEP}.isdisjoint(storage.list().names)


def require_catalog(catalog: Storage) -> None:
    """Raise an error for a directory that is not a savepoint catalog; nothing is created.

    Raises:
        NotFound: The directory does not exist.
        Invalid: The directory is something else.
    """
    if is_catalog(catalog):
        return
    names = set(catalog.list("").names)
    root = local_path(catalog.uri)
    if not names and (root is None or not root.exists()):
        raise NotFound(
            "the savepoint catalog does not exist",
            code="HF-E3052",
            where=catalog.uri,
            hint="give the directory that was passed as DIR to `holdfast savepoint take`",
        )
    address = catalog.uri.rstrip("/")
    if split_uri(address) is not None:
        found, hint = "a savepoint", f"name its catalog: {address.rsplit('/', 2)[0]}"
    elif any(split_uri(f"{address}/{name}") is not None for name in names):
        found, hint = "a part of a catalog", f"name the directory above it: {address.rpartition('/')[0]}"
    elif {layout.OFFSETS, layout.COMMITS} & names:
        found = "a checkpoint"
        hint = "name the directory given to `holdfast savepoint take`; give a checkpoint with --checkpoint"
    elif root is not None and not root.is_dir():
        found, hint = "a file", "name the directory given to `holdfast savepoint take`"
    else:
        found = "an empty directory" if not names else f"{len(names)} entries, such as {min(names)}"
        hint = "name the directory given to `holdfast savepoint take`"
    raise Invalid(
        "the address is not a savepoint catalog",
        code="HF-E2247",
        where=catalog.uri,
        found=found,
        expected=f"a directory with {SAVEPOINTS}/ and {OBJECTS}/",
        hint=hint,
    )


def listed(catalog: Storage) -> Iterator[Listed]:
    """Return every savepoint of a catalog, oldest first.

    Cost: a listing of the catalog and one of each savepoint; every manifest is read.
    """
    for savepoint_id in ids(catalog):
        try:
            yield described(catalog, savepoint_id)
        except NotFound:  # noqa: PERF203 - a listing and a file are read in it
            continue  # removed, or not yet complete
        except HoldfastError as error:
            yield Listed(savepoint_id, savepoint_uri(catalog, savepoint_id), None, _problem(error))


def _problem(error: HoldfastError) -> str:
    return f"{error.fact}: {error.found}" if error.found else error.fact


def same_file(one: Storage, path: str, other: Storage, other_path: str) -> bool:
    """Return whether two paths are hard links to one file, which therefore has the same bytes."""
    here, there = _local(one, path), _local(other, other_path)
    if here is None or there is None:
        return False
    try:
        one_file = os.lstat(here)
        return stat.S_ISREG(one_file.st_mode) and os.path.samestat(one_file, os.lstat(there))
    except OSError:
        return False


def modified_ns(storage: Storage, path: str) -> int | None:
    """Return when a file was last written; None if unknown, or if it is missing."""
    place = _local(storage, path)
    try:
        return None if place is None else os.lstat(place).st_mtime_ns
    except OSError:
        return None


def same_disk(one: Storage, other: Storage) -> bool:
    """Return whether files of one can be hard links in the other: both local, and on one file system."""
    here, there = _local(one, ""), _local(other, "")
    return here is not None and there is not None and _device(here) == _device(there)


def copies_by_itself(one: Storage, other: Storage) -> bool:
    """Return whether a storage copies files from one to the other without their bytes coming here."""
    scheme = one.uri.partition(":")[0]
    return scheme in _OBJECT_STORES and other.uri.startswith(f"{scheme}:")


def _local(storage: Storage, path: str) -> str | None:
    # As text: a take asks for every file, and a path as an object costs more than what is asked.
    here = storage.uri.startswith("file://")
    return f"{storage.uri.removeprefix('file://')}/{path}" if here else None


def _device(path: str) -> int | None:
    """The file system of a path, or of the nearest directory above it that exists."""
    for folder in (Path(path), *Path(path).parents):
        try:
            return folder.stat().st_dev
        except OSError:  # noqa: PERF203 - a few directories at the most
            continue
    return None
