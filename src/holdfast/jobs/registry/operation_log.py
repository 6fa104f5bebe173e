"""The log of requested operations: a SQLite file that outlives every process.

An operation is asked, runs, and is completed or has failed. A process claims an operation under an owner name
that shows whether it is alive; an operation of a dead owner is finished or undone by the next, never both.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, fields
from enum import Enum
from pathlib import Path
from typing import Any, Final

from holdfast.errors import Conflict, Internal, Invalid, NotFound, Unsupported
from holdfast.jobs.state_home import StateHome
from holdfast.json_shapes import NOT_IN_JSON, JsonShape
from holdfast.plain_values import READ, from_known, from_plain, wrong_fields
from holdfast.storage.shared_database import DatabaseShape, SharedDatabase


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments of one operation."""

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON; `decode` reads them back."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class TakeSavepoint(Arguments):
    """Take a savepoint of each query of a job, while it runs or after it has been stopped.

    Attributes:
        catalog: The catalog for the savepoints.
        label: The label.
        queries: The names of the queries; None means all.
        deep: True to count the rows too.
        running: True if the job has to run.
        drop_expired: True to omit expired rows of keyed state.
    """

    catalog: str
    label: str | None = None
    queries: tuple[str, ...] | None = None
    deep: bool = False
    running: bool = False
    drop_expired: bool = False


@dataclass(frozen=True, slots=True)
class Dispose(Arguments):
    """The addresses of savepoints to delete."""

    savepoints: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AwaitCheckpoint(Arguments):
    """Wait until the job's running batches are committed."""


@dataclass(frozen=True, slots=True)
class Rescale(Arguments):
    """The requested number of partitions, and the number `before`, by the query's name."""

    partitions: Mapping[str, int]
    before: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Restart(Arguments):
    """Let a new driver, with the job file as it is now, take over between two batches."""


@dataclass(frozen=True, slots=True)
class Verify(Arguments):
    """A savepoint to verify; `deep` compares its rows too."""

    savepoint: str
    deep: bool = False


@dataclass(frozen=True, slots=True)
class Diff(Arguments):
    """Two states to compare, with samples of each difference, or by `files` only."""

    first: str
    second: str
    samples: int = 5
    files: bool = False


@dataclass(frozen=True, slots=True)
class MakeCheckpoint(Arguments):
    """A savepoint, and the checkpoint to create from it."""

    savepoint: str
    checkpoint: str


RESTART: Final = "restart"

KINDS: Final[Mapping[str, type[Arguments]]] = {
    "savepoint": TakeSavepoint,
    "stop": TakeSavepoint,
    "dispose": Dispose,
    "checkpoint": AwaitCheckpoint,
    "rescale": Rescale,
    RESTART: Restart,
    "verify": Verify,
    "diff": Diff,
    "fork": MakeCheckpoint,
    "restore": MakeCheckpoint,
}


def decode(verb: str, values: Mapping[str, Any]) -> Arguments:
    """Return the arguments of an operation from their `as_dict` form.

    Raises:
        Unsupported: The verb is unknown, or the arguments do not fit it.
    """
    kind = KINDS.get(verb)
    if kind is None:
        raise _unreadable(verb, f"an unknown operation `{verb}`", ", ".join(KINDS))
    expected = ", ".join(item.name for item in fields(kind)) or "no arguments"
    if wrong := wrong_fields(kind, values):
        raise _unreadable(verb, ", ".join(wrong), expected)
    try:
        return from_plain(kind, values)
    except (AttributeError, TypeError, ValueError) as error:
        raise _unreadable(verb, str(error), expected) from error


def _unreadable(verb: str, found: str, expected: str) -> Unsupported:
    return Unsupported(
        "this version of Holdfast does not support the requested operation",
        code="HF-E7085",
        where=f"the arguments of `{verb}`",
        found=found,
        expected=expected,
        hint="run the same Holdfast version in the server, the supervisor and the command, then repeat"
        " the request",
    )


FILE: Final = "operations.db"
ENDED_KEPT: Final = 1000
ID: Final = re.compile(r"[0-9a-f]{32}")

_OPERATIONS: Final = DatabaseShape(
    "the file of operations",
    1,
    (
        """
CREATE TABLE operations (
  id TEXT PRIMARY KEY, verb TEXT NOT NULL, job TEXT, arguments TEXT NOT NULL, state TEXT NOT NULL,
  asked_ms INTEGER NOT NULL, started_ms INTEGER, ended_ms INTEGER, owner TEXT, steps TEXT NOT NULL,
  progress TEXT, result TEXT, error TEXT)
        """,
        """
CREATE INDEX by_state ON operations (state, asked_ms)
        """,
    ),
    "move it away; jobs, checkpoints and savepoints are not affected",
)


def _from_text(text: str | None) -> Any:
    return None if text is None else json.loads(text)


_AS_TEXT: Final = {READ: _from_text}


class OperationState(str, Enum):
    """The state of an operation."""

    ASKED = "asked"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"

    @property
    def ended(self) -> bool:
        """True if the state is final."""
        return self in (OperationState.COMPLETED, OperationState.FAILED)


@dataclass(frozen=True, slots=True)
class Operation(JsonShape):
    """One requested operation.

    Attributes:
        operation_id: The operation's id, 32 hexadecimal digits. The client may choose it; repeated requests
            with the same id are one operation.
        verb: `savepoint`, `stop`, `dispose`, `checkpoint`, `rescale`, `restart`, `verify`, `diff`, `fork` or
            `restore`.
        job: The name of the operation's job, as requested; None if it has none.
        arguments: The arguments, as recorded; `decode` reads them.
        state: `asked`, `running`, `completed` or `failed`.
        asked_ms: The time of the request, in epoch milliseconds.
        started_ms: The time when it first began.
        ended_ms: The time when it ended.
        owner: The process that runs it, or ran it last.
        steps: The recorded steps, with which another process can finish or undo it.
        progress: The progress: `done`, `total`, `what`.
        result: The result, in the format of its command.
        error: The error, in the common format of errors.
    """

    operation_id: str
    verb: str
    job: str | None
    arguments: Mapping[str, Any] = field(metadata=_AS_TEXT)
    state: OperationState
    asked_ms: int
    started_ms: int | None = None
    ended_ms: int | None = None
    owner: str | None = field(default=None, metadata=NOT_IN_JSON)
    steps: Mapping[str, Any] = field(default_factory=dict, metadata={**NOT_IN_JSON, **_AS_TEXT})
    progress: Mapping[str, Any] | None = field(default=None, metadata=_AS_TEXT)
    result: Mapping[str, Any] | None = field(default=None, metadata=_AS_TEXT)
    error: Mapping[str, Any] | None = field(default=None, metadata=_AS_TEXT)


class Operations:
    """The operations of one state home; cheap to open, safe to share between processes."""

    def __init__(self, home: StateHome) -> None:
        self.path: Path = home.path / FILE
        self._file = SharedDatabase(self.path, _OPERATIONS)

    def ask(
        self, operation_id: str, verb: str, job: str | None, arguments: Arguments, now_ms: int
    ) -> Operation:
        """Record a request; a repeated request with the same id returns the same operation.

        The arguments of the first request count, since defaults may resolve differently later.

        Raises:
            Invalid: The id is not valid.
            Conflict: A different operation has this id.
            Internal: The arguments belong to a different verb.
        """
        if type(arguments) is not KINDS.get(verb):
            raise Internal(
                f"invalid arguments for `{verb}`",
                code="HF-E9022",
                found=type(arguments).__name__,
                hint="please report this",
            )
        if not ID.fullmatch(operation_id):
            raise Invalid(
                "invalid operation id",
                code="HF-E2238",
                found=operation_id[:80],
                expected="32 hexadecimal digits (0-9a-f)",
                hint="omit the id to have one generated",
            )
        written = _text(arguments.as_dict())
        wanted = Operation(operation_id, verb, job, json.loads(written), OperationState.ASKED, now_ms)
        with self._file.write() as db:
            row = db.execute("SELECT * FROM operations WHERE id = ?", (operation_id,)).fetchone()
            if row is None:
                db.execute(
                    "INSERT INTO operations (id, verb, job, arguments, state, asked_ms, steps)"
                    " VALUES (?, ?, ?, ?, ?, ?, '{}')",
                    (operation_id, verb, job, written, wanted.state.value, now_ms),
                )
                _forget(db)
                return wanted
        operation = _operation(row)
        if (operation.verb, operation.job) != (verb, job):
            raise Conflict(
                "the operation id is already used by a different operation",
                code="HF-E4029",
                where=operation_id,
                found=operation.verb,
                expected=verb,
                hint="choose a different id, or omit it",
            )
        return operation

    def get(self, operation_id: str) -> Operation:
        """Return an operation.

        Raises:
            NotFound: The id is unknown, or the operation ended long ago and was deleted.
        """
        operations = self._read("SELECT * FROM operations WHERE id = ?", operation_id)
        if not operations:
            raise NotFound(
                "unknown operation",
                code="HF-E3047",
                where=operation_id,
                found=f"no operation with this id; only the last {ENDED_KEPT} ended operations are kept",
                hint="list the stored operations with GET /api/v1/operations",
            )
        return operations[0]

    def newest(self, job: str | None = None, limit: int = 100) -> list[Operation]:
        """Return the operations of a job or of all jobs, newest first."""
        return self._read(
            "SELECT * FROM operations WHERE job IS coalesce(?, job)"
            " ORDER BY asked_ms DESC, rowid DESC LIMIT ?",
            job,
            limit,
        )

    def waiting(self, verb: str, job: str | None = None) -> list[Operation]:
        """Return the requested operations that have not begun, oldest first."""
        return self._read(
            "SELECT * FROM operations WHERE state = 'asked' AND verb = ? AND job IS coalesce(?, job)"
            " ORDER BY asked_ms, rowid",
            verb,
            job,
        )

    def running(self) -> list[Operation]:
        """Return the running operations, including those of a dead owner."""
        return self._read("SELECT * FROM operations WHERE state = 'running' ORDER BY asked_ms, rowid")

    def claim(self, owner: str, verbs: Collection[str], now_ms: int) -> Operation | None:
        """Claim the oldest waiting operation with one of these verbs; only one caller gets it."""
        rows = self._file.read("SELECT * FROM operations WHERE state = 'asked' ORDER BY asked_ms, rowid")
        mine = (self.begin(row["id"], owner, now_ms) for row in rows if row["verb"] in verbs)
        return next((operation for operation in mine if operation is not None), None)

    def begin(self, operation_id: str, owner: str, now_ms: int) -> Operation | None:
        """Claim a waiting operation; None if another process was quicker."""
        return self._change(
            "UPDATE operations SET state = 'running', owner = ?, started_ms = ?"
            " WHERE id = ? AND state = 'asked' RETURNING *",
            owner,
            now_ms,
            operation_id,
        )

    def take_over(self, operation: Operation, owner: str) -> Operation | None:
        """Take over the operation of a dead owner; None if another process was quicker."""
        return self._change(
            "UPDATE operations SET owner = ? WHERE id = ? AND state = 'running' AND owner IS ? RETURNING *",
            owner,
            operation.operation_id,
            operation.owner,
        )

    def note(self, operation: Operation, **steps: Any) -> Operation:
        """Record a step, before or after it is done; it is on disk when this returns.

        Raises:
            Conflict: Another process has taken over the operation.
        """
        noted = self._change(
            "UPDATE operations SET steps = ? WHERE id = ? AND owner = ? AND state = 'running' RETURNING *",
            _text({**operation.steps, **steps}),
            operation.operation_id,
            operation.owner,
        )
        return _mine(noted, operation)

    def tell(self, operation: Operation, done: int, total: int, what: str) -> None:
        """Record the progress."""
        self._change(
            "UPDATE operations SET progress = ? WHERE id = ? AND owner = ? AND state = 'running' RETURNING *",
            _text({"done": done, "total": total, "what": what}),
            operation.operation_id,
            operation.owner,
        )

    def complete(self, operation: Operation, result: Mapping[str, Any], now_ms: int) -> Operation:
        """Record the result.

        Raises:
            Conflict: Another process has taken over the operation.
        """
        return self._end(operation, OperationState.COMPLETED, _text(result), None, now_ms)

    def fail(self, operation: Operation, error: Mapping[str, Any], now_ms: int) -> Operation:
        """Record that the operation failed or was undone.

        Raises:
            Conflict: Another process has taken over the operation.
        """
        return self._end(operation, OperationState.FAILED, None, _text(error), now_ms)

    def _end(
        self, operation: Operation, state: OperationState, result: str | None, error: str | None, now_ms: int
    ) -> Operation:
        ended = self._change(
            "UPDATE operations SET state = ?, result = ?, error = ?, ended_ms = ?, progress = NULL"
            " WHERE id = ? AND owner IS ? AND state IN ('asked', 'running') RETURNING *",
            state.value,
            result,
            error,
            now_ms,
            operation.operation_id,
            operation.owner,
        )
        return _mine(ended, operation)

    def _read(self, statement: str, *values: Any) -> list[Operation]:
        return [_operation(row) for row in self._file.read(statement, *values)]

    def _change(self, statement: str, *values: Any) -> Operation | None:
        """Apply a change and return the operation, or None if no row matches."""
        with self._file.write() as db:
            row = db.execute(statement, values).fetchone()
        return None if row is None else _operation(row)


def _mine(changed: Operation | None, operation: Operation) -> Operation:
    if changed is None:
        raise Conflict(
            "another process has taken over this operation",
            code="HF-E4030",
            where=operation.operation_id,
            found=f"operation `{operation.verb}`",
            hint="check the operation's progress with GET /api/v1/operations/ID",
        )
    return changed


def _forget(db: sqlite3.Connection) -> None:
    """Delete all but the newest ended operations."""
    db.execute(
        "DELETE FROM operations WHERE state IN ('completed', 'failed') AND id NOT IN (SELECT id FROM"
        " operations WHERE state IN ('completed', 'failed') ORDER BY ended_ms DESC LIMIT ?)",
        (ENDED_KEPT,),
    )


def _text(value: Mapping[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _operation(row: sqlite3.Row | Mapping[str, Any]) -> Operation:
    return from_known(Operation, {**row, "operation_id": row["id"]})
