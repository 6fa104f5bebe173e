"""What verify has found, as values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from holdfast.checkpoints.stores import NO_DAMAGE, Damage
from holdfast.errors import HoldfastError
from holdfast.json_shapes import NOT_IN_JSON, JsonShape, in_json, json_as


@dataclass(frozen=True, slots=True)
class Problem(JsonShape):
    """Damage.

    Attributes:
        file: The file, from the checkpoint's directory on.
        what: What is wrong with it.
        hint: What to do.
    """

    file: str
    what: str
    hint: str


@dataclass(frozen=True, slots=True)
class Remark(JsonShape):
    """Something to know that is no damage: what could not be looked into, or what may surprise later.

    Attributes:
        file: The file that it is about, from the checkpoint's directory on.
        what: What there is to know.
    """

    file: str
    what: str


@dataclass(frozen=True, slots=True)
class Verification(JsonShape):
    """The outcome of a verification.

    Attributes:
        uri: The checkpoint.
        batch_id: The newest committed batch; a restart goes on behind it.
        problems: Damage, by file.
        remarks: What else there is to say.
        restorable: The committed batches that `holdfast savepoint take --batch` takes, ascending: all files
            that they need exist and are whole.
        files: The files that were read.
        size_bytes: Their bytes.
        recorded_batch: The newest batch in the record of good batches that files were compared with; None
            without a record.
        compared: How many files were compared with it.
        stateful: Whether the query keeps state; None where it keeps none or has lost it, and nothing tells.
        damage: The damaged files, for who makes a copy without them.
    """

    uri: str = field(metadata=json_as("checkpoint"))
    batch_id: int | None = field(metadata=json_as(formerly="batch"))
    problems: tuple[Problem, ...]
    remarks: tuple[Remark, ...]
    restorable: tuple[int, ...]
    files: int
    size_bytes: int
    recorded_batch: int | None = None
    compared: int = 0
    stateful: bool | None = True
    damage: Damage = field(default=NO_DAMAGE, repr=False, metadata=NOT_IN_JSON)

    @property
    @in_json
    def ok(self) -> bool:
        """Whether nothing is damaged."""
        return not self.problems


def in_short(problems: Sequence[Problem]) -> str:
    """The first of several problems, and how many more there are."""
    first, more = problems[0].what, len(problems) - 1
    return f"{first}; and {more} more" if more else first


def said(error: HoldfastError, file: str) -> str:
    """An error about a file as one sentence, without the file's name."""
    place = (error.where or "").removeprefix(file).lstrip(", ")
    parts = [error.fact, f" ({place})" if place else ""]
    if error.found is not None:
        parts.append(f": {error.found}")
    if error.expected is not None:
        parts.append(f", expected {error.expected}")
    return "".join(parts)
