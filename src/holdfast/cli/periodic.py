"""`holdfast savepoint take --every`: one savepoint after another, until somebody ends it."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from holdfast.cli import output
from holdfast.cli.savepoint_records import remember
from holdfast.cli.until_stopped import until_stopped
from holdfast.clock import now_ms
from holdfast.config.units import counted
from holdfast.errors import HoldfastError, Invalid, NotFound, Unsupported

if TYPE_CHECKING:
    from holdfast.savepoints.periodic import PeriodicTake
    from holdfast.savepoints.proof.pending_digests import PendingDigests
    from holdfast.storage.port import Storage


def take_periodically(
    checkpoint: str,
    catalog: str,
    *,
    every: str,
    keep: int | None,
    label: str | None,
    deep: bool,
    home: str | None,
    digest: bool,
    json: bool,
) -> None:
    """Take savepoints until Ctrl-C or SIGTERM; one under way is finished.

    Between two takes the digests of the newest are made, and what was left pending before.

    What the first one cannot do for good is an error; what fails later is told and tried again.

    Raises:
        Invalid: An address or a time is wrong, or the catalog is inside the checkpoint.
        NotFound: There is no checkpoint.
    """
    from holdfast.checkpoints import record_of
    from holdfast.config.units import parse_duration
    from holdfast.external.view import open_checkpoint
    from holdfast.savepoints.periodic import LABEL, take_and_retain
    from holdfast.savepoints.proof.pending_digests import PendingDigests
    from holdfast.storage import open_storage

    every_ms = parse_duration(every, "--every")
    origin, into = open_checkpoint(checkpoint), open_storage(catalog, "catalog")
    first = True
    with until_stopped() as stopped:
        # Half the time between two takes at a pace, and the rest at full speed: the next one is to come.
        digests = PendingDigests(
            now_ms, lambda: not stopped.is_set(), pause=stopped.wait, longest_s=every_ms / 2000
        )
        while True:
            began = time.monotonic()
            due = began + every_ms / 1000
            try:
                found = take_and_retain(
                    origin,
                    into,
                    retained=keep,
                    clock=now_ms,
                    chance=os.urandom,
                    label=label or LABEL,
                    deep=deep,
                    record=record_of(origin, home),
                )
                due = time.monotonic() + every_ms / 1000
                output.show(found, json, _show)
                if found.taken is not None:
                    remember(checkpoint, found.taken, time.monotonic() - began, home)
                first = False
                if digest:
                    _digest(digests, into, found.query_id, due)
            except HoldfastError as error:
                if first and isinstance(error, (Invalid, NotFound, Unsupported)):
                    raise
                output.report_error(error, as_json=json)
            first = False
            if stopped.wait(max(due - time.monotonic(), 0)):
                return


def _digest(digests: PendingDigests, catalog: Storage, query_id: str, due: float) -> None:
    """Make pending digests until the next take is due."""
    while time.monotonic() < due:
        made = digests.newest(catalog, [query_id])
        if made is None:
            return
        output.say(f"digests of {made.rows or 0:,} rows recorded: {made.uri}")


def _show(found: PeriodicTake) -> None:
    if found.taken is None:
        output.say(f"batch {found.batch_id}: nothing new since the last savepoint")
        return
    manifest = found.taken.manifest
    output.whole(found.taken.uri)
    gone = f"; {len(found.removed)} older ones deleted" if found.removed else ""
    output.say(
        f"batch {manifest.batch_id}: {counted(len(manifest.files), 'file')},"
        f" {manifest.new_bytes:,} bytes new{gone}"
    )
    if found.left is not None:
        output.insist(f"older ones could not be deleted: {found.left}")
