"""What the pages of states show, as values; see `views`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.server.dashboard.views import JobLine


@dataclass(frozen=True, slots=True)
class StateLine:
    """A state of an operator, with the types of its columns."""

    name: str
    operator: str
    operator_id: int
    kind: str
    operator_kind: str
    form: str
    partitions: int
    key: Mapping[str, str]
    sub: Mapping[str, str]
    value: Mapping[str, str]
    ttl: bool


@dataclass(frozen=True, slots=True)
class FoundLine:
    """What a state holds for a key.

    Attributes:
        key: The key's columns.
        value: The value; None where the state does not know the key.
        expires_ms: When it expires.
    """

    key: Mapping[str, Any]
    exists: bool
    value: Any
    partition: int | None
    size_bytes: int
    expires_ms: int | None


@dataclass(frozen=True, slots=True)
class MomentLine:
    """A batch at which the value of a key changed.

    Attributes:
        change: `set`, `changed`, `removed`, or `first` for what there was when what is kept begins.
        savepoint: The id of the savepoint that tells of it, where the checkpoint no longer does.
        exists: Whether the state knew the key from then on.
    """

    batch: int
    at_ms: int | None
    change: str
    savepoint: str | None
    exists: bool
    value: Any


@dataclass(frozen=True, slots=True)
class RowLine:
    """A row of a state.

    Attributes:
        written: Its key as it is written on a command line.
    """

    key: Mapping[str, Any]
    sub: Mapping[str, Any]
    value: Mapping[str, Any]
    expires_ms: int | None
    partition: int
    size_bytes: int
    written: str | None


@dataclass(frozen=True, slots=True)
class StateLook:
    """What was read of a state, for all who look at the same.

    Attributes:
        batch: Its batch.
        at_ms: When that batch was planned.
        states: What there is to look at.
        state: Which of them is looked at.
        found: What there is for the key that was asked for.
        history: At which of the batches that are kept its value changed, the newest first.
        rows: Some rows of the state, where no key was asked for.
        more: Whether there are more.
        example: A key that the state has, as it is written on a command line; None of a state without one.
        problem: Why nothing was found, as errors are told everywhere.
    """

    batch: int | None = None
    at_ms: int | None = None
    states: tuple[StateLine, ...] = ()
    state: StateLine | None = None
    found: FoundLine | None = None
    history: tuple[MomentLine, ...] = ()
    rows: tuple[RowLine, ...] = ()
    more: bool = False
    example: str | None = None
    problem: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StateView(StateLook):
    """The state of a query at its newest committed batch, or of a savepoint.

    Attributes:
        address: Where it was read.
        key: The key that was asked for, as it was written.
        offset: How many rows were left out before those that are shown.
    """

    now_ms: int
    job: JobLine
    queries: tuple[str, ...]
    query: str | None
    savepoint: str | None
    address: str | None
    key: str | None
    offset: int
    firing: int
