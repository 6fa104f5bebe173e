"""What an operation is asked to do: one type for each kind, and how the log of operations holds it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final

from holdfast.errors import Unsupported
from holdfast.plain_values import from_plain, wrong_fields


@dataclass(frozen=True, slots=True)
class Arguments:
    """How one operation is to be done."""

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
    """How many partitions the state of queries is to have, and had `before`, by the query's name."""

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
        Unsupported: There is no such kind, or these are not its arguments.
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
        where=f"the arguments of `{verb}`",
        found=found,
        expected=expected,
        hint="ask for it again; if it was another version that asked, run the same version everywhere",
    )
