"""The deletion of all rows that are older than a given time: `hf.change(…).keep_newer_than(…)`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime, time, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.at_rest.model import StateForm
from holdfast.at_rest.state_reader import named_operators, pick, utc_time
from holdfast.changes.edit.editable_state import type_words
from holdfast.changes.rows import EditedRows, EditRows
from holdfast.changes.working_copy import WorkingCopy
from holdfast.checkpoints.checkpoint import ProgressCallback, read
from holdfast.errors import Invalid, Unsupported
from holdfast.formats.rows.spark_types import Struct
from holdfast.formats.sql_names import sql_identifier
from holdfast.storage.port import Storage

if TYPE_CHECKING:
    from holdfast.at_rest.model import NamedOperator, NamedState


@dataclass(frozen=True, slots=True)
class KeepNewerThan:
    """The step that deletes the rows whose time is before a given time.

    Attributes:
        when: The given time. A date, or a time without a zone, is in UTC.
        column: The column with the time of a row: a timestamp or a date. Rows without a time are kept.
        state: The only state to change; None for every state with the column.
    """

    when: datetime | date | str
    column: str
    state: str | None = None
    name: str = "keep_newer_than"

    def expressions(self, checkpoint: Storage) -> dict[str, str]:
        """Return the states to change, each with the SQL expression of its column.

        Raises:
            NotFound: The named state does not exist.
            Invalid: No state has such a column, or the given time cannot be parsed.
        """
        micros_of(self.when)
        times = dict(_times(checkpoint, self.state))
        fitting = {state: columns[self.column] for state, columns in times.items() if self.column in columns}
        if not fitting:
            known = [f"{state}: {', '.join(columns)}" for state, columns in times.items() if columns]
            raise Invalid(
                f"no state has a column {self.column!r} of type timestamp or date",
                code="HF-E2073",
                where=checkpoint.uri,
                expected="; ".join(known) or "a column of type timestamp or date",
                hint="list the columns of each state with `holdfast state list CHECKPOINT`",
            )
        return fitting

    def apply(self, work: WorkingCopy, folder: Path, tell: ProgressCallback | None) -> tuple[EditedRows, ...]:
        """See `Step`; every row of the changed stores is read back."""
        from holdfast.changes.edit.request import Edit

        micros = micros_of(self.when)
        reports = []
        for number, (state, column) in enumerate(self.expressions(work.checkpoint).items()):
            request = Edit(state, where=f"epoch_us({column}) < {micros}", delete=True)
            step = EditRows(request, why=f"keep newer than {self.when}", may_change_nothing=True)
            own = folder / str(number)
            own.mkdir()
            reports.append(step.apply(work, own, tell))
        return tuple(reports)


def micros_of(when: datetime | date | str) -> int:
    """Return a time in microseconds since 1970.

    Raises:
        Invalid: The value is neither a date nor a time in ISO 8601.
    """
    if isinstance(when, str):
        parsed = utc_time(when)
        if parsed is None:
            raise Invalid(
                f"invalid point in time {when!r}",
                code="HF-E2074",
                expected="a date or a time in ISO 8601, such as 2026-11-01 or 2026-11-01T06:00:00Z",
                hint="write the date as YYYY-MM-DD, and a time as YYYY-MM-DDThh:mm:ssZ",
            )
        when = parsed
    elif not isinstance(when, datetime):
        when = datetime.combine(when, time())
    whole = when if when.tzinfo is not None else when.replace(tzinfo=timezone.utc)
    since = whole - datetime(1970, 1, 1, tzinfo=timezone.utc)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def _times(checkpoint: Storage, state: str | None) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield each editable state, with the SQL expressions of its timestamps and dates by name."""
    batch_id = read(checkpoint).batch_id
    operators = [] if batch_id is None else named_operators(checkpoint, batch_id)
    if state is not None:
        operator, named = pick(operators, state)
        yield named.full_name, _time_columns(operator, named)
        return
    for operator in operators:
        for named in operator.states:
            # The combined state of a keyed operator has all its states as columns.
            if operator.keyed is None or named.form is StateForm.KEYED:
                with suppress(Unsupported):  # the state cannot be edited
                    yield named.full_name, _time_columns(operator, named)


def _time_columns(operator: NamedOperator, named: NamedState) -> dict[str, str]:
    from holdfast.changes.edit.editable_state import NamedColumns, editable
    from holdfast.changes.edit.keyed_edits import keyed_table

    table: NamedColumns = (
        editable(operator, named) if operator.keyed is None else keyed_table(operator.keyed, named)
    )
    found = {}
    for column in table.columns:
        for path, type_ in ((column.name,), column.type), *_fields(column.name, column.type):
            if type_words(type_).startswith(("timestamp", "date")):
                found[".".join(path)] = ".".join(map(sql_identifier, path))
    return found


def _fields(column: str, type_: Any) -> Iterator[tuple[tuple[str, str], Any]]:
    """Yield the fields of a column with structs, such as the start and end of a window."""
    if isinstance(type_, Struct):
        yield from (((column, name), kind) for name, kind in zip(type_.names, type_.types, strict=True))
    elif type_words(type_).startswith("struct"):  # an Arrow type of keyed state
        yield from (((column, part.name), part.type) for part in type_)
