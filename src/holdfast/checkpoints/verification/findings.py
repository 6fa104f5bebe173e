"""What verify has found, as values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from holdfast.errors import HoldfastError


@dataclass(frozen=True, slots=True)
class Problem:
    """Damage.

    Attributes:
        file: The file, from the checkpoint's directory on.
        what: What is wrong with it.
        hint: What to do.
    """

    file: str
    what: str
    hint: str

    def as_dict(self) -> dict[str, str]:
        """Plain values for JSON."""
        return {"file": self.file, "what": self.what, "hint": self.hint}


@dataclass(frozen=True, slots=True)
class Remark:
    """Something to know that is no damage: what could not be looked into, or what may surprise later."""

    file: str
    what: str

    def as_dict(self) -> dict[str, str]:
        """Plain values for JSON."""
        return {"file": self.file, "what": self.what}


@dataclass(frozen=True, slots=True)
class Verification:
    """The outcome of a verification.

    Attributes:
        uri: The checkpoint.
        batch_id: The newest committed batch; a restart goes on behind it.
        problems: Damage, by file.
        remarks: What else there is to say.
        restorable: The committed batches whose files are all there and whole, ascending.
        files: The files that were read.
        size_bytes: Their bytes.
        recorded_batch: The newest batch in the record of good batches that files were compared with; None
            without a record.
        compared: How many files were compared with it.
        stateful: Whether the query keeps state; None where it keeps none or has lost it, and nothing tells.
    """

    uri: str
    batch_id: int | None
    problems: tuple[Problem, ...]
    remarks: tuple[Remark, ...]
    restorable: tuple[int, ...]
    files: int
    size_bytes: int
    recorded_batch: int | None = None
    compared: int = 0
    stateful: bool | None = True

    @property
    def ok(self) -> bool:
        """Whether nothing is damaged."""
        return not self.problems

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "ok": self.ok,
            "checkpoint": self.uri,
            "batch": self.batch_id,
            "problems": [each.as_dict() for each in self.problems],
            "remarks": [each.as_dict() for each in self.remarks],
            "restorable": list(self.restorable),
            "files": self.files,
            "size_bytes": self.size_bytes,
            "recorded_batch": self.recorded_batch,
            "compared": self.compared,
            "stateful": self.stateful,
        }


def said(error: HoldfastError, file: str) -> str:
    """An error about a file as one sentence, without the file's name."""
    place = (error.where or "").removeprefix(file).lstrip(", ")
    parts = [error.fact, f" ({place})" if place else ""]
    if error.found is not None:
        parts.append(f": {error.found}")
    if error.expected is not None:
        parts.append(f", expected {error.expected}")
    return "".join(parts)
