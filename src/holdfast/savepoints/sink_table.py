"""A new table of Spark's file sink, for a query that resumes from a savepoint."""

from __future__ import annotations

import os
from typing import Final

from holdfast.errors import Conflict
from holdfast.formats.logs.sink_log import LOG_DIRECTORY, empty_log
from holdfast.savepoints.nesting import check_apart
from holdfast.storage import open_storage
from holdfast.storage.port import Storage

_NEW: Final = "name a new directory; a table that has rows is not changed"


def open_table(address: str | os.PathLike[str], checkpoint: Storage) -> Storage:
    """Open the directory of a table that the query of a new checkpoint will write to.

    Raises:
        Invalid: The address is not valid, or table and checkpoint are inside one another.
    """
    table = open_storage(os.fspath(address), "table")
    check_apart(checkpoint, table, "table", hint="name the directory that the query writes its files to")
    return table


def require_new(table: Storage, batch_id: int) -> None:
    """Require that a table has nothing but the log that `prepare` writes, or a part of it.

    Raises:
        Conflict: The directory has files.
    """
    names = set(table.list().names) - {LOG_DIRECTORY}
    wanted = empty_log(batch_id)
    entries = set(table.list(LOG_DIRECTORY).names)
    other = sorted(names) or sorted(
        f"{LOG_DIRECTORY}/{name}"
        for name in entries
        if name not in wanted or table.read(f"{LOG_DIRECTORY}/{name}") != wanted[name]
    )
    if other:
        raise Conflict("the table exists", where=table.uri, found=other[0], expected="no files", hint=_NEW)


def prepare(table: Storage, batch_id: int) -> None:
    """Write the log of a new table, so that a query can resume after a batch.

    Without it Spark's file sink fails for good at its next compaction, up to ten batches later, since its log
    has no entries of the batches before.

    Raises:
        Conflict: The directory has files.
    """
    require_new(table, batch_id)
    for name, data in empty_log(batch_id).items():
        table.write(f"{LOG_DIRECTORY}/{name}", data, replace=True)
