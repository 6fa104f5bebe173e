"""State files that a run of a batch wrote and did not put in place.

An earlier Holdfast gave local checkpoints a file manager that kept an existing file. Under state-checkpoint
format 1 a batch that ran again then kept the state file of its first run, and the file of its second run was
left next to it, complete, under its temporary name.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

from holdfast import layout
from holdfast.checkpoints.tree import Tree
from holdfast.checkpoints.verification.findings import Remark
from holdfast.errors import Corrupt, NotFound, Unsupported
from holdfast.formats.files.compression import READABLE, decompressed
from holdfast.formats.files.records import records_of
from holdfast.formats.files.snapshot import parse_snapshot
from holdfast.layout import Kind, StoreFile
from holdfast.storage.port import Storage

_GUIDE: Final = "docs/guides/repeated-batches.md"


def find_left_files(storage: Storage, tree: Tree, codec: str, newest: int) -> Iterator[Remark]:
    """Report complete state files of committed batches under temporary names, in one remark.

    A file that equals the one in place is not reported, and neither is one that a killed process cut off.

    Args:
        storage: The checkpoint.
        tree: The checkpoint's folders.
        codec: The compression of its state files.
        newest: The newest committed batch.
    """
    left = []
    for path, place in tree.places():
        target = layout.left_state_file(place)
        if target is None or target.version > newest + 1:
            continue
        in_place = tree.has(target.render())
        if target.kind.whole and not in_place:
            continue  # a running query writes snapshots of committed versions too
        data = _read(storage, path)
        if data is None or not _is_whole(data, target, codec, path):
            continue
        if in_place and data == _read(storage, target.render()):
            continue
        left.append((path, target))
    if not left:
        return
    path, target = left[0]
    is_in_place = tree.has(target.render())
    relation = f"differs from {target.name}" if is_in_place else f"has no {target.name} next to it"
    more = f" ({len(left) - 1} more like it)" if len(left) > 1 else ""
    yield Remark(
        path,
        f"batch {target.version - 1} ran more than once, and this complete state file of one run {relation}"
        f"{more}: an earlier Holdfast kept the state of the first run on local disks, and then the state may"
        f" be wrong; {_GUIDE} shows how to find out",
    )


def _is_whole(data: bytes, target: StoreFile, codec: str, path: str) -> bool:
    try:
        if target.kind is Kind.ZIP:
            parse_snapshot(data, path)
        elif codec not in READABLE:
            return False
        else:
            deque(records_of(target.kind, decompressed(data, codec, path), path), maxlen=0)
    except (Corrupt, Unsupported):
        return False
    return True


def _read(storage: Storage, path: str) -> bytes | None:
    try:
        return storage.read(path)
    except NotFound:
        return None
