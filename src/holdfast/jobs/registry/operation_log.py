"""The log of requested operations, a SQLite file that outlives every process.

An operation is asked, runs, and is completed or has failed. Who runs one has claimed it first, under a name
that tells others whether he lives: what a dead one has left is finished or undone by the next, never both.
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
        """Plain values for JSON; `decode` reads them back."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class TakeSavepoint(Arguments):
    """A savepoint of each query of a job, while it runs or once it has been stopped.

    Attributes:
        catalog: The catalog that they are put into.
        label: A name for people.
        queries: The queries that are meant; None means all.
        deep: Whether the rows are counted too.
        running: Whether the job has to run.
    """

    catalog: str
    label: str | None = None
    queries: tuple[str, ...] | None = None
    deep: bool = False
    running: bool = False


@dataclass(frozen=True, slots=True)
class Dispose(Arguments):
    """Savepoints that are to be deleted, by their addresses."""

    savepoints: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AwaitCheckpoint(Arguments):
    """All that a job has begun to work on is to be committed."""


@dataclass(frozen=True, slots=True)
class Rescale(Arguments):
    """The requested number of partitions, and the number `before`, by the query's name."""

    partitions: Mapping[str, int]
    before: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Verify(Arguments):
    """A savepoint that is to be proved; `deep` compares its rows too."""

    savepoint: str
    deep: bool = False


@dataclass(frozen=True, slots=True)
class Diff(Arguments):
    """Two states that are compared: with so many samples of each difference, or by `files` alone."""

    first: str
    second: str
    samples: int = 5
    files: bool = False


@dataclass(frozen=True, slots=True)
class MakeCheckpoint(Arguments):
    """A savepoint, and the checkpoint that is made of it."""

    savepoint: str
    checkpoint: str


KINDS: Final[Mapping[str, type[Arguments]]] = {
    "savepoint": TakeSavepoint,
    "stop": TakeSavepoint,
    "dispose": Dispose,
    "checkpoint": AwaitCheckpoint,
    "rescale": Rescale,
    "verify": Verify,
    "diff": Diff,
    "fork": MakeCheckpoint,
    "restore": MakeCheckpoint,
}


def decode(verb: str, values: Mapping[str, Any]) -> Arguments:
    """Read back what `as_dict` gave for an operation of a kind.

    Raises:
        Unsupported: The kind does not exist, or these are not its arguments.
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
        "this version of Holdfast cannot do what was asked for",
        code="HF-E7085",
        where=f"the arguments of `{verb}`",
        found=found,
        expected=expected,
        hint="ask for it again; if it was another version that asked, run the same version everywhere",
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
    "move it away: jobs, checkpoints and savepoints are untouched",
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
        """Return whether it is final."""
        return self in (OperationState.COMPLETED, OperationState.FAILED)


@dataclass(frozen=True, slots=True)
class Operation(JsonShape):
    """One thing that was asked for.

    Attributes:
        operation_id: Its id, 32 hexadecimal digits; whoever asks may choose them, and asks once however often
            he sends them.
        verb: What: `savepoint`, `stop`, `dispose`, `checkpoint`, `rescale`, `verify`, `diff`, `fork` or
            `restore`.
        job: The job that it is about, as it was named; None where it is about none.
        arguments: How, as it was written down; `decode` reads it.
        state: Where it stands: `asked`, `running`, `completed` or `failed`.
        asked_ms: When it was asked for, in epoch milliseconds.
        started_ms: When it was first begun.
        ended_ms: When it ended.
        owner: Who runs it, or ran it last.
        steps: What it has noted on its way, so that another can continue or undo it.
        progress: How far it is: `done`, `total`, `what`.
        result: What came of it, in the verb's own shape.
        error: Why it failed, in the form of all errors.
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
        """Write down that something is wanted; asked again under the same id, it is the same operation.

        How it was asked the first time counts: what was not named then may have been found elsewhere since.

        Raises:
            Invalid: This is not an id.
            Conflict: Something else was asked under this id.
            Internal: The arguments are those of another verb.
        """
        if type(arguments) is not KINDS.get(verb):
            raise Internal(
                f"these are no arguments of `{verb}`", code="HF-E9022", found=type(arguments).__name__
            )
        if not ID.fullmatch(operation_id):
            raise Invalid(
                "this is no id of an operation",
                code="HF-E2238",
                found=operation_id[:80],
                expected="32 digits 0-9a-f",
                hint="leave the id out, and one is made",
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
                "something else was asked for under this id",
                code="HF-E4029",
                where=operation_id,
                found=operation.verb,
                expected=verb,
                hint="choose another id, or none",
            )
        return operation

    def get(self, operation_id: str) -> Operation:
        """One operation.

        Raises:
            NotFound: There is none, or it ended so long ago that it was forgotten.
        """
        operations = self._read("SELECT * FROM operations WHERE id = ?", operation_id)
        if not operations:
            raise NotFound(
                "there is no such operation",
                code="HF-E3047",
                where=operation_id,
                found=f"no such id, or one of those that ended before the last {ENDED_KEPT}",
                hint="GET /api/v1/operations lists those that are remembered",
            )
        return operations[0]

    def newest(self, job: str | None = None, limit: int = 100) -> list[Operation]:
        """Operations, of a job or of all, the newest first."""
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
        """Return the operations under way, also those of a dead owner."""
        return self._read("SELECT * FROM operations WHERE state = 'running' ORDER BY asked_ms, rowid")

    def claim(self, owner: str, verbs: Collection[str], now_ms: int) -> Operation | None:
        """Take the oldest operation of these kinds that nobody has begun; only one caller gets it."""
        rows = self._file.read("SELECT * FROM operations WHERE state = 'asked' ORDER BY asked_ms, rowid")
        mine = (self.begin(row["id"], owner, now_ms) for row in rows if row["verb"] in verbs)
        return next((operation for operation in mine if operation is not None), None)

    def begin(self, operation_id: str, owner: str, now_ms: int) -> Operation | None:
        """Take one operation that nobody has begun; None if somebody was quicker."""
        return self._change(
            "UPDATE operations SET state = 'running', owner = ?, started_ms = ?"
            " WHERE id = ? AND state = 'asked' RETURNING *",
            owner,
            now_ms,
            operation_id,
        )

    def take_over(self, operation: Operation, owner: str) -> Operation | None:
        """Take what a dead owner was doing; None if somebody was quicker."""
        return self._change(
            "UPDATE operations SET owner = ? WHERE id = ? AND state = 'running' AND owner IS ? RETURNING *",
            owner,
            operation.operation_id,
            operation.owner,
        )

    def note(self, operation: Operation, **steps: Any) -> Operation:
        """Note a step, before or after it is done; it is on disk when this returns.

        Raises:
            Conflict: The operation is no longer its owner's.
        """
        noted = self._change(
            "UPDATE operations SET steps = ? WHERE id = ? AND owner = ? AND state = 'running' RETURNING *",
            _text({**operation.steps, **steps}),
            operation.operation_id,
            operation.owner,
        )
        return _mine(noted, operation)

    def tell(self, operation: Operation, done: int, total: int, what: str) -> None:
        """Show how far it is."""
        self._change(
            "UPDATE operations SET progress = ? WHERE id = ? AND owner = ? AND state = 'running' RETURNING *",
            _text({"done": done, "total": total, "what": what}),
            operation.operation_id,
            operation.owner,
        )

    def complete(self, operation: Operation, result: Mapping[str, Any], now_ms: int) -> Operation:
        """Note that it is done.

        Raises:
            Conflict: The operation is no longer its owner's.
        """
        return self._end(operation, OperationState.COMPLETED, _text(result), None, now_ms)

    def fail(self, operation: Operation, error: Mapping[str, Any], now_ms: int) -> Operation:
        """Note that it failed, or was undone.

        Raises:
            Conflict: The operation is no longer its owner's.
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
        """The operation after a change; None if it does not stand as the change wants it."""
        with self._file.write() as db:
            row = db.execute(statement, values).fetchone()
        return None if row is None else _operation(row)


def _mine(changed: Operation | None, operation: Operation) -> Operation:
    if changed is None:
        raise Conflict(
            "this operation is no longer in these hands",
            code="HF-E4030",
            where=operation.operation_id,
            found=f"{operation.verb}, which another process has taken over",
            hint="look at how far that process is with it",
        )
    return changed


def _forget(db: sqlite3.Connection) -> None:
    """Keep the newest of those that have ended."""
    db.execute(
        "DELETE FROM operations WHERE state IN ('completed', 'failed') AND id NOT IN (SELECT id FROM"
        " operations WHERE state IN ('completed', 'failed') ORDER BY ended_ms DESC LIMIT ?)",
        (ENDED_KEPT,),
    )


def _text(value: Mapping[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _operation(row: sqlite3.Row | Mapping[str, Any]) -> Operation:
    return from_known(Operation, {**row, "operation_id": row["id"]})
