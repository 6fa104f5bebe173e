"""The rows of a broadcast stream: stored before a batch's events, and read by the handlers.

Every key group stores a copy of all rows, so that a rescale never separates a partition from them. Only rows
of the stream change the copies, and every group receives those rows in the same order, so all copies are
equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import pyarrow as pa

from holdfast.errors import Invalid, Unsupported
from holdfast.worker.declarations.handler_arguments import Event, record_class
from holdfast.worker.declarations.processor import handlers_of
from holdfast.worker.declarations.state_descriptors import State, StateKind
from holdfast.worker.interface import FailedEvent, Moment
from holdfast.worker.runtime.columns import Unfit, column_of, plain, records, table_of, values_of
from holdfast.worker.runtime.context import KeyContext
from holdfast.worker.runtime.event_dispatcher import ErrorContext, failure, line_of, misfit, summary

# The share of a worker's memory for the rows of a broadcast stream, all copies together.
_SHARE = 2
ROW, GONE = "row", "gone"


@dataclass(frozen=True, slots=True)
class Broadcast:
    """The definition of a broadcast stream, as the workers need it.

    Attributes:
        name: The name of the stream and of the state that stores its rows.
        schema: The columns of the stream.
        keys: The columns that identify a row; a later row replaces an earlier one.
        version: The column that orders rows with the same key, or None for the order of arrival.
        withdrawn: The boolean column that marks a row as the deletion of the earlier row with its key, or
            None.
    """

    name: str
    schema: pa.Schema
    keys: tuple[str, ...]
    version: str | None = None
    withdrawn: str | None = None

    @property
    def state(self) -> State:
        """Return the state that stores the rows: a map from the key to the row and a deletion mark."""
        key = pa.struct([self.schema.field(name) for name in self.keys])
        row = pa.struct(list(self.schema))
        kept = pa.struct([pa.field(ROW, row), pa.field(GONE, pa.bool_())])
        return State(StateKind.BROADCAST, kept, name=self.name, key_type=key)


@dataclass(frozen=True, slots=True)
class BroadcastRow:
    """One stored row of a broadcast stream.

    Attributes:
        slot: The index under which the row is stored.
        row: The columns of the row.
        gone: Whether the row is deleted; a deleted row is kept because of its version.
    """

    slot: int
    row: Event
    gone: bool


class BroadcastRows(Mapping[Any, Event]):
    """A read-only mapping of the rows of a broadcast stream by key.

    The key is the value of the key column, or a tuple if there are several key columns. Deleted rows are not
    included.
    """

    def __init__(self, kept: Mapping[Any, BroadcastRow]) -> None:
        self._kept = kept

    def __getitem__(self, key: Any) -> Event:
        kept = self._kept.get(key)
        if kept is None or kept.gone:
            raise KeyError(key)
        return kept.row

    def __iter__(self) -> Iterator[Any]:
        return (key for key, row in self._kept.items() if not row.gone)

    def __len__(self) -> int:
        return sum(not row.gone for row in self._kept.values())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({dict(self)!r})"

    def __setitem__(self, _key: Any, _row: Any) -> NoReturn:
        raise TypeError("broadcast rows can be changed only in on_broadcast")

    __delitem__: Any = __setitem__


class BroadcastPass:
    """The rows of a broadcast stream in one pass, decoded at the first read."""

    def __init__(self, broadcast: Broadcast, keeper: Keeper, stored: pa.Table) -> None:
        self._broadcast = broadcast
        self._keeper = keeper
        self._stored = stored
        self._kept: dict[Any, BroadcastRow] | None = None

    @property
    def kept(self) -> dict[Any, BroadcastRow]:
        """Return all stored rows by key, including deleted ones; the pass updates the dict."""
        if self._kept is None:
            self._kept = self._keeper.read(self._stored)
        return self._kept

    @property
    def by_key(self) -> BroadcastRows:
        """Return the rows by key, without deleted ones."""
        return BroadcastRows(self.kept)

    @property
    def table(self) -> pa.Table:
        """Return all rows as a table, in the order of their first arrival."""
        rows = [row.row for row in sorted(self.kept.values(), key=lambda row: row.slot) if not row.gone]
        return table_of(rows, self._broadcast.schema)


class WritableRows(MutableMapping[Any, Any]):
    """A mapping of the rows by key that `on_broadcast` may change."""

    def __init__(self, kept: Mapping[Any, BroadcastRow]) -> None:
        self._kept = kept
        self._rows = BroadcastRows(kept)
        self.written: dict[Any, Any] = {}

    def __getitem__(self, key: Any) -> Any:
        row = self.written[key] if key in self.written else self._rows[key]
        if row is None:
            raise KeyError(key)
        return row

    def __setitem__(self, key: Any, row: Any) -> None:
        if row is None:
            raise TypeError("a row cannot be None: use `del rows[key]` to delete it")
        self.written[key] = row

    def __delitem__(self, key: Any) -> None:
        self[key]
        self.written[key] = None

    def __iter__(self) -> Iterator[Any]:
        keys = dict.fromkeys([*self._kept, *self.written])
        return (key for key in keys if key in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)


class Keeper:
    """A reader and writer of the rows of one broadcast stream, used in the tasks.

    Args:
        broadcast: The definition of the stream.
        processor: The user's processor.
        operator: The name of the operator, for error messages.
        on_error: "fail", or "dead-letter" to set aside a row for which `on_broadcast` raises.
        memory_bytes: The approximate memory limit of a worker.
    """

    def __init__(
        self, broadcast: Broadcast, processor: Any, operator: str, on_error: str, memory_bytes: int
    ) -> None:
        self._broadcast = broadcast
        self._name = type(processor).__name__
        self._handler: Callable[..., Any] | None = handlers_of(processor).get("on_broadcast")
        self._place = ErrorContext(operator, stream=broadcast.name)
        self._sets_aside = on_error != "fail"
        self._limit = memory_bytes // _SHARE
        self._make = record_class(tuple(broadcast.schema.names))

    def read(self, stored: pa.Table) -> dict[Any, BroadcastRow]:
        """Return the stored rows by key, from a table with the columns `slot`, `k` and `v`."""
        keys = [self._key(key) for key in values_of(stored.column("k").combine_chunks())]
        values = values_of(stored.column("v").combine_chunks())
        slots = stored.column("slot").to_pylist()
        return {
            key: BroadcastRow(slot, value.row, bool(value.gone))
            for key, slot, value in zip(keys, slots, values, strict=True)
        }

    def take(
        self, kept: dict[Any, BroadcastRow], events: pa.Table, moment: Moment
    ) -> tuple[dict[Any, BroadcastRow], list[FailedEvent]]:
        """Apply new rows in the order of their versions, and update `kept`.

        Returns:
            The changed rows by key, and the rows that were set aside.

        Raises:
            Failed: `on_broadcast` raised or wrote an invalid row, and `on_error` is "fail".
        """
        changed: dict[Any, BroadcastRow] = {}
        failed: list[FailedEvent] = []
        following = max((row.slot for row in kept.values()), default=-1) + 1
        for row in self._ordered(records(events)):
            if self._is_stale(row, kept):
                continue
            try:
                written = self._written(row, kept, moment)
            except _Refused as refused:
                if not self._sets_aside:
                    raise self._failure(refused.error, moment) from refused.error
                failed.append(FailedEvent(self._broadcast.name, plain(row), summary(refused.error)))
                continue
            for key, value in written.items():
                known = kept.get(key)
                slot = following if known is None else known.slot
                following += known is None
                if value is None:
                    last = row if key == self._key_of(row) or known is None else known.row
                    kept[key] = changed[key] = BroadcastRow(slot, last, gone=True)
                else:
                    kept[key] = changed[key] = BroadcastRow(slot, value, gone=False)
        return changed, failed

    def columns(self, changed: Mapping[Any, BroadcastRow]) -> dict[str, pa.Array]:
        """Return changed rows as the columns `slot`, `dead`, `k` and `v`."""
        state = self._broadcast.state
        keys = [key if isinstance(key, tuple) else (key,) for key in changed]
        values = [(row.row, row.gone) for row in changed.values()]
        return {
            "slot": pa.array([row.slot for row in changed.values()], pa.int64()),
            "dead": pa.array([False] * len(changed)),
            "k": column_of(keys, state.key_type),
            "v": column_of(values, state.type),
        }

    def check_room(self, size: int, groups: int) -> None:
        """Check that all copies of the rows fit into a worker's memory.

        Raises:
            Unsupported: The copies of a partition's key groups are too large together.
        """
        if size * groups <= self._limit:
            return
        raise Unsupported(
            "broadcast rows do not fit in the worker's memory",
            code="HF-E7119",
            where=str(self._place),
            found=(
                f"about {size * groups / (1 << 20):.1f} MiB in total, for {groups} key groups of a partition"
            ),
            expected=f"at most {self._limit / (1 << 20):.1f} MiB",
            hint="join the broadcast stream as a table, raise process(…, memory=…), or start with fewer"
            " key_groups",
        )

    def _ordered(self, rows: list[Event]) -> list[Event]:
        """Return the rows ordered by version, and by arrival within a version."""
        column = self._broadcast.version
        if column is None:
            return rows
        # A null version is older than all others.
        return sorted(rows, key=lambda row: (False, 0) if row[column] is None else (True, row[column]))

    def _is_stale(self, row: Event, kept: Mapping[Any, BroadcastRow]) -> bool:
        """Return whether the stored row with the same key has the same or a later version."""
        column = self._broadcast.version
        known = kept.get(self._key_of(row))
        if column is None or known is None or known.row[column] is None:
            return False
        return row[column] is None or bool(row[column] <= known.row[column])

    def _written(
        self, row: Event, kept: Mapping[Any, BroadcastRow], moment: Moment
    ) -> dict[Any, Event | None]:
        """Return the changes that a row of the stream causes, directly or through `on_broadcast`."""
        withdrawn = self._broadcast.withdrawn
        if self._handler is None:
            return {self._key_of(row): None if withdrawn is not None and row[withdrawn] else row}
        rows = WritableRows(kept)
        context = KeyContext(self._name, "processing", has_timers=False)
        context._begin(moment, None, None)
        try:
            if self._handler(row, rows, context) is not None:
                raise Invalid(
                    "on_broadcast returned a value",
                    code="HF-E2474",
                    hint="return nothing; set rows[key] = row, or del rows[key]",
                )
            return {self._checked_key(key): self._checked(value) for key, value in rows.written.items()}
        except Exception as error:
            raise _Refused(error) from error

    def _checked(self, row: Any) -> Event | None:
        """Return a row converted to the types of the stream, or None for a deletion."""
        if row is None:
            return None
        return self._make(self._in_type(row, pa.struct(list(self._broadcast.schema))))

    def _checked_key(self, key: Any) -> Any:
        given = key if isinstance(key, tuple) else (key,)
        return self._key(self._in_type(given, self._broadcast.state.key_type))

    @staticmethod
    def _in_type(value: Any, kind: pa.DataType) -> Any:
        try:
            return values_of(column_of([value], kind))[0]
        except Unfit as unfit:
            raise unfit.why from unfit

    def _key_of(self, row: Event) -> Any:
        return self._key(tuple(row[name] for name in self._broadcast.keys))

    @staticmethod
    def _key(values: tuple[Any, ...]) -> Any:
        return values[0] if len(values) == 1 else tuple(values)

    def _failure(self, error: Exception, moment: Moment) -> Exception:
        handler = self._handler
        line = line_of(error, handler) if handler is not None else None
        place = replace(self._place, batch_id=moment.batch_id, line=line)
        if handler is None or (isinstance(error, Invalid) and place.line is None):
            why = (
                error
                if isinstance(error, Invalid)
                else Invalid(
                    summary(error),
                    code="HF-E2475",
                    hint="fix on_broadcast, or filter such rows out of the broadcast stream",
                )
            )
            return misfit("on_broadcast wrote an invalid row", why, place)
        return failure(
            self._name, handler, error, place,
            hint='fix the handler, or set such rows aside with on_error="dead-letter"',
        )  # fmt: skip


class _Refused(Exception):
    """The exception for a row for which `on_broadcast` raised or wrote an invalid row."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error
