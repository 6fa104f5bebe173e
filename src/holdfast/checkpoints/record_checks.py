"""What a record of good batches says of a checkpoint besides the bytes of its files."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast import layout
from holdfast.checkpoints.logs import Logs
from holdfast.checkpoints.record import Record
from holdfast.checkpoints.tree import Tree
from holdfast.checkpoints.verification import Problem, Remark
from holdfast.layout import StoreFile

UNLIKE = (
    "put the file back from a savepoint or another copy, and do not start the query before; "
    "what was changed on purpose is taken for good by `holdfast watch --anew`"
)
# The checkpoint as a whole.
WHOLE = "."


def check_record(record: Record, tree: Tree, logs: Logs) -> Iterator[Problem | Remark]:
    """Batches that the checkpoint has lost or come further by, and files that nobody has noted."""
    recorded, newest = record.batch_id, logs.newest
    if recorded is None:
        return
    if newest is None or newest < recorded:
        file = layout.LogFile(layout.Log.COMMITS, recorded).render()
        end = "is empty" if newest is None else f"ends at {newest}"
        what = f"batch {recorded} was committed, and the commit log {end}"
        hint = (
            "put back what was lost from a savepoint or another copy, or the query does batches again "
            "that its sink has had; if that is meant, `holdfast watch --anew` takes the checkpoint as it is"
        )
        yield Problem(file, what, hint)
    elif newest > recorded:
        what = f"the record of good batches ends at batch {recorded}; what came later is not in it"
        yield Remark(WHOLE, what)
    unknown = [
        path
        for path, place in tree.places()
        if isinstance(place, StoreFile) and place.version <= recorded + 1 and path not in record.files
    ]
    if record.sealed and newest == recorded and logs.offered[-1:] == (recorded,):
        for path in unknown:
            what = f"it was not there when the query had ended after batch {recorded}"
            hint = (
                "remove it: the query did not write it; `holdfast watch --anew` takes the checkpoint as it is"
            )
            yield Problem(path, what, hint)
    elif unknown:
        what = f"{len(unknown)} state files, such as {unknown[0]}, are not in the record of good batches"
        yield Remark(WHOLE, what)
