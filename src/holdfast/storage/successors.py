"""The successors of a checkpoint on remote storage, where a directory cannot be exchanged in one step.

A change puts a new checkpoint next to the old one: the first successor of `NAME` is `NAME.r1`. The checkpoint
is replaced at the moment when a file is created in `.NAME.holdfast.successors`. The name of the file is the
successor's number; of several processes that create the same file, one succeeds. The content is for people.

The file names no address, so it leads to siblings of the checkpoint only. The owner of the checkpoint's lease
creates it. The lease and the lock stay those of the first address, which is the one that a job is given.

A process may be suspended between its last look at the lease and the creation of the file. The next owner of
the lease therefore creates the missing files itself, with a content that makes their numbers void, before its
query starts. Whichever of the two creates the file first has decided; the late one gets a `Conflict`. A file
`NUMBER.void` is written before, so that a listing shows which contents must be read.

A query that is started on a replaced checkpoint would continue from old state. Therefore `retire` replaces
the query's id by an object, at which every Spark refuses to start. All other files are kept.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import Any, Final

from holdfast import layout
from holdfast.config.checks import local_path, place_word
from holdfast.errors import Conflict, Corrupt, NotFound
from holdfast.storage import open_storage
from holdfast.storage.port import Storage

_NUMBER: Final = re.compile(r"[1-9][0-9]{0,8}")
_VOID: Final = "void"
_SUCCESSOR: Final = re.compile(r"(?P<first>.*[^/])\.r(?P<number>[1-9][0-9]{0,8})")
# The field with the query's id in the metadata of a replaced checkpoint.
_FORMER_ID: Final = "former_id"
REPLACED: Final = "replaced"


def successor_address(first: str, number: int) -> str:
    """Return the address of a checkpoint's successor; of number 0, the first address."""
    return f"{first}.r{number}" if number else first


def parse_successor(address: str) -> tuple[str, int]:
    """Split an address into the first address and the number that it has by its form; 0 without one."""
    match = None if local_path(address) is not None else _SUCCESSOR.fullmatch(address)
    return (address, 0) if match is None else (match["first"], int(match["number"]))


def list_successors(first: str) -> list[int]:
    """Return the numbers of a checkpoint's successors, the newest last; empty on a local disk.

    Cost: lists one directory, and reads one small file for each void number.

    Raises:
        Unavailable: The storage does not answer.
    """
    return sorted(number for number, is_valid in _decided(first).items() if is_valid)


def is_published(first: str, number: int) -> bool | None:
    """Return True for the number of a successor, False for a void number, and None for an unused one.

    Cost and errors: as `list_successors`.
    """
    return _decided(first).get(number)


def _decided(first: str) -> dict[int, bool]:
    """Return the used numbers of a checkpoint: True for that of a successor, False for a void one."""
    beside = beside_checkpoint(first)
    if beside is None or local_path(first) is not None:
        return {}
    storage, name = beside
    folder = layout.successors_beside(name)
    names = frozenset(storage.list(folder).names)
    return {
        int(each): f"{each}.{_VOID}" not in names or not _is_void(storage.read(f"{folder}/{each}"))
        for each in names
        if _NUMBER.fullmatch(each)
    }


def _is_void(content: bytes) -> bool:
    note: Any = None
    with suppress(ValueError):
        note = json.loads(content)
    return isinstance(note, dict) and note.get(_VOID) is True


def unused_number(first: str) -> int:
    """Return the number of the next successor; void ones and those with a directory are skipped.

    Cost: lists two directories.
    """
    number = max(_decided(first), default=0) + 1
    while open_storage(successor_address(first, number)).list().names:
        number += 1
    return number


def former_address(first: str, number: int) -> str:
    """Return the address of the checkpoint that a successor has replaced or is to replace.

    Cost: lists one directory.
    """
    return successor_address(
        first, max((each for each in list_successors(first) if each < number), default=0)
    )


def first_address(address: str) -> str:
    """Return the first address of a checkpoint, which has its lease and its lock.

    Cost: lists one directory if the address has the form of a successor's.
    """
    first, number = parse_successor(address)
    return first if number and number in list_successors(first) else address


def current_address(address: str) -> str:
    """Return the address of the newest successor of a checkpoint; without any, the given address.

    Cost: lists one directory, or two for an address of the form of a successor's; none on a local disk.

    Raises:
        Unavailable: The storage does not answer.
    """
    if local_path(address) is not None:
        return address
    first = first_address(address)
    return successor_address(first, max(list_successors(first), default=0)) if first else address


def require_current(address: str) -> str:
    """Return `current_address`, and check that a successor exists.

    Without the check, a query would start from scratch if its checkpoint was deleted by mistake.

    Raises:
        Corrupt: The newest successor is missing.
        Unavailable: The storage does not answer.
    """
    current = current_address(address)
    if current != address and open_storage(current).size(layout.METADATA) is None:
        raise Corrupt(
            "the checkpoint that replaced this one is missing",
            code="HF-E6065",
            where=address,
            found=f"no checkpoint in {current}",
            expected="a file metadata, which a restore writes last",
            hint=f"restore a savepoint with `holdfast restore SAVEPOINT {place_word(current)}`",
        )
    return current


def resume_at(address: str) -> str:
    """Return `require_current` for a query that starts, and retire the checkpoint that it has replaced.

    The change that published the successor may have been killed before it retired the checkpoint.

    Raises:
        Corrupt, Unavailable: As `require_current`.
    """
    current = require_current(address)
    if current != address:
        replaced = open_storage(former_address(*parse_successor(current)))
        if replaced.size(layout.METADATA) is not None:
            retire(replaced, current)
    return current


def publish_successor(first: str, number: int, why: str) -> None:
    """Replace a checkpoint by a successor, which is complete; the caller holds the checkpoint's lease.

    Raises:
        Conflict: A different process has created a successor of this number, or made the number void.
        Unavailable: The storage does not answer.
    """
    storage, name = require_beside(first)
    note = {"checkpoint": successor_address(name, number), "why": why}
    try:
        storage.write(f"{layout.successors_beside(name)}/{number}", json.dumps(note).encode())
    except Conflict as error:
        raise Conflict(
            "the checkpoint was not replaced, because it has a new owner",
            code="HF-E4096",
            where=first,
            found=f"number {number} was published or made void by a different process",
            expected="an unused number",
            hint="repeat the command, unless the new owner has replaced the checkpoint",
        ) from error


def void_successor(first: str, number: int) -> bool:
    """Prevent the publication of a successor; return False if it has been published.

    The caller holds the checkpoint's lease. A second call changes nothing.

    Raises:
        Unavailable: The storage does not answer.
    """
    storage, name = require_beside(first)
    path = f"{layout.successors_beside(name)}/{number}"
    storage.write(f"{path}.{_VOID}", b"{}", replace=True)
    with suppress(Conflict):
        storage.write(path, json.dumps({_VOID: True}).encode())
    return not _decided(first)[number]


def void_unpublished(checkpoint: str) -> list[str]:
    """Prevent the publication of all successors that an earlier owner has created or begun to create.

    The new owner of a lease calls it before a query starts. Nothing is deleted.

    Cost: lists three directories, and writes two small files for each unpublished successor.

    Args:
        checkpoint: The first address of a query's checkpoint, or that of a job with several queries.

    Returns:
        The addresses that are void from now on.

    Raises:
        Unavailable: The storage does not answer.
    """
    if local_path(checkpoint) is not None:
        return []
    checkpoint = first_address(checkpoint)
    beside = beside_checkpoint(checkpoint)
    if beside is None:
        return []
    above, name = beside
    siblings = [(f"{above.uri}/{each}", f"{above.uri}/{name}") for each in above.list().names]
    below = open_storage(checkpoint)
    queries = [(f"{below.uri}/{each}", "") for each in below.list().names]
    void = []
    for address, of in siblings + queries:
        first, number = parse_successor(address)
        if number and of in ("", first) and number not in _decided(first) and void_successor(first, number):
            void.append(address)
    return void


def unpublish_successor(first: str, number: int, metadata: bytes) -> None:
    """Undo `publish_successor` and `retire`, of a checkpoint that a query was found to use.

    Args:
        first: The first address.
        number: The number of the successor, which no query has used.
        metadata: The file `metadata` of the checkpoint that it replaced.

    Raises:
        Unavailable: The storage does not answer.
    """
    storage, name = require_beside(first)
    open_storage(former_address(first, number)).write(layout.METADATA, metadata, replace=True)
    storage.delete(f"{layout.successors_beside(name)}/{number}")


def retire(checkpoint: Storage, successor: str) -> None:
    """Make a replaced checkpoint unusable for a query; the query's id is kept in a different field.

    Cost: reads and writes one small file. A second call changes nothing.

    Raises:
        Unavailable: The storage does not answer.
    """
    fields: Any = None
    with suppress(NotFound, ValueError):
        fields = json.loads(checkpoint.read(layout.METADATA))
    former = fields if isinstance(fields, dict) else {}
    if replaced_by(former) is not None:
        return
    name = successor.rpartition("/")[2]
    text = f"this checkpoint was replaced, start the query with {name}"
    retired = {"id": {REPLACED: text}, "successor": name, _FORMER_ID: former.get("id")}
    checkpoint.write(layout.METADATA, json.dumps(retired).encode(), replace=True)


def replaced_by(metadata: dict[str, Any]) -> str | None:
    """Return the name of the successor in the metadata of a replaced checkpoint; None in other metadata."""
    query_id, successor = metadata.get("id"), metadata.get("successor")
    replaced = isinstance(query_id, dict) and REPLACED in query_id
    return successor if replaced and isinstance(successor, str) else None


def beside_checkpoint(address: str) -> tuple[Storage, str] | None:
    """Return the directory above a checkpoint, and the checkpoint's name; None for the root of a bucket."""
    above, _, name = address.rstrip("/").rpartition("/")
    if not name or above.endswith(":/"):
        return None
    # The directory of `file:///name` is the root of the disk.
    return open_storage(above if above.strip("/").partition(":")[2] else f"{above}/"), name


def require_beside(address: str) -> tuple[Storage, str]:
    """Return the directory above a checkpoint, and the checkpoint's name.

    Raises:
        NotFound: The checkpoint is the root of a bucket.
    """
    beside = beside_checkpoint(address)
    if beside is None:
        raise NotFound(
            "nothing can be created next to a checkpoint that is the root of a bucket",
            code="HF-E3076",
            where=address,
            hint="restore a savepoint to a directory in the bucket, and run the query there",
        )
    return beside
