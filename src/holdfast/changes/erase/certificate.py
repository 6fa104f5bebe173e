"""The certificate of an erasure: what was searched, found and rewritten."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from holdfast.config.units import counted
from holdfast.json_shapes import JsonShape, in_json, in_json_as
from holdfast.ownership.usage import CheckpointUsage

ERASED: Final = "erased"
ERASED_BEFORE: Final = "erased before"
NOT_FOUND: Final = "not found"


@dataclass(frozen=True, slots=True)
class ErasureFinding:
    """The occurrences of the key in one state of one savepoint.

    Attributes:
        state: Operator and column family.
        rows: The rows that held it and counted.
    """

    state: str
    rows: int


@dataclass(frozen=True, slots=True)
class Searched:
    """A savepoint, or a checkpoint, whose state was searched.

    Attributes:
        place: Its address.
        files: Its files of state.
        found: What was found in rows that count.
        traces: Files that held it, in rows that count or in what is left of others.
        rewritten: Files that were rewritten.
        before: The SHA-256 of its manifest before; None of a checkpoint.
        after: The SHA-256 of its manifest now; None where that is the same, and of a checkpoint.
        named: Whether its label, or the record of an edit, had the key in words.
        unsearched: States and columns of kinds that cannot be searched for it.
        erased_before_ms: When the key was erased from it before, as its manifest notes; else None.
        given_up: Of a checkpoint, how many older batches go, because the key may be in them.
        strays: Of a checkpoint, how many files go that belong to no batch which can be restored.
    """

    place: str
    files: int
    found: tuple[ErasureFinding, ...]
    traces: int
    rewritten: int
    before: str | None
    after: str | None
    named: bool = False
    unsearched: tuple[str, ...] = ()
    erased_before_ms: int | None = None
    given_up: int = 0
    strays: int = 0

    @property
    @in_json
    def rows(self) -> int:
        """The rows that held it."""
        return sum(finding.rows for finding in self.found)

    @property
    def holds(self) -> bool:
        """Return whether anything was found."""
        return bool(self.rows or self.traces or self.named)

    @property
    def touched(self) -> bool:
        """True if the digest changed."""
        return self.rewritten > 0 or self.after is not None or bool(self.given_up or self.strays)

    def words(self, *, planned: bool = False) -> str:
        """Describe what was found, and what was done or would be done."""
        if not self.holds:
            text = f"not found in {self.place}, {counted(self.files, 'file')} of state"
            if self.erased_before_ms is not None:
                text += f"; its manifest notes an erasure of this key on {_moment(self.erased_before_ms)}"
        else:
            text = f"{self.place}: {counted(self.rows, 'row')}"
            text += f", traces in {counted(self.traces, 'file')}" if self.traces else ""
            text += ", named in its label or the record of an edit" if self.named else ""
            if self.rewritten:
                text += f"; {counted(self.rewritten, 'file')} written anew"
            elif self.after is not None:
                text += "; its manifest written anew"
        gone = "would go" if planned else "gone"
        if self.given_up:
            text += f"; {self.given_up:,} older batches {gone}"
        if self.strays:
            text += f"; {counted(self.strays, 'file')} of no batch {gone}"
        if self.unsearched:
            text += f"; NOT searched in it: {', '.join(self.unsearched)}"
        return text


@dataclass(frozen=True, slots=True)
class PlaceReport:
    """A place besides state where the key may be.

    Attributes:
        name: What the place is.
        where: Its address, or where to look for it.
        searched: Whether it was searched, as text.
        files: How many files were searched.
        found: The files that have the key's text, which were left as they are.
        why: How a key gets there.
        advice: What to do where it was found there, or where nothing was searched.
    """

    name: str
    where: str
    searched: bool
    files: int
    found: tuple[str, ...]
    why: str
    advice: str

    def words(self) -> list[str]:
        """It for people."""
        if not self.searched:
            return [f"NOT searched: {self.name}, {self.where}: {self.why}; {self.advice}"]
        if not self.found:
            return [f"not found in the text of {self.name}, {self.where}, {counted(self.files, 'file')}"]
        return [
            f"FOUND, and left there: {self.name}, {self.where}: {self.advice}",
            *(f"  {file}" for file in self.found),
        ]


def _places(searched: tuple[Searched, ...]) -> list[str]:
    return [place.place for place in searched]


@dataclass(frozen=True, slots=True)
class Certificate(JsonShape):
    """The outcome of an erasure.

    Attributes:
        key_sha256: The hash of the key as it was given, with its columns.
        columns: The columns that it was looked for in; empty for all columns of keys.
        catalog: Where.
        searched: Every savepoint of the catalog, and the checkpoint if one was named.
        removed_files: Files that no savepoint needs any more and that are gone.
        removed_bytes: Their bytes.
        linked: How many of them other directories, such as a checkpoint, still have links to.
        who: Who did it.
        why: What for.
        begun_ms: When it began.
        ended_ms: When it ended.
        proved: Whether all savepoints were searched once more afterwards, no row, label or record of an edit
            had it, and those that were rewritten have been verified.
        elsewhere: Other places where the key may be: those that were searched as text, and the others.
    """

    key_sha256: str
    columns: tuple[str, ...]
    catalog: str
    searched: tuple[Searched, ...]
    removed_files: int
    removed_bytes: int
    linked: int
    who: str
    why: str | None
    begun_ms: int
    ended_ms: int
    proved: bool
    elsewhere: tuple[PlaceReport, ...] = ()

    @property
    @in_json
    def rows(self) -> int:
        """The rows that held the key; one that several places have counts in each."""
        return sum(place.rows for place in self.searched)

    @property
    def found(self) -> bool:
        """Return whether the key was in any savepoint or in the checkpoint."""
        return any(place.holds for place in self.searched)

    @property
    @in_json
    def outcome(self) -> str:
        """`erased`, `erased before`, or `not found`."""
        return outcome_of(self.searched)

    @property
    @in_json_as(convert=_places)
    def rewritten(self) -> tuple[Searched, ...]:
        """Return the rewritten locations."""
        return tuple(place for place in self.searched if place.touched)

    @property
    def left_in(self) -> tuple[PlaceReport, ...]:
        """The places besides state that have its text, and were left as they are."""
        return tuple(report for report in self.elsewhere if report.found)

    def render(self) -> bytes:
        """The file: JSON with a line for each fact, and the hash of all that at its end."""
        body = json.dumps(self.as_dict(), indent=1, ensure_ascii=False)
        digest = hashlib.sha256(body.encode()).hexdigest()
        return json.dumps(
            {"certificate": self.as_dict(), "sha256": digest}, indent=1, ensure_ascii=False
        ).encode()

    def lines(self) -> list[str]:
        """It for people."""
        began, ended = _moment(self.begun_ms), _moment(self.ended_ms)
        did = "erased by" if self.found else "looked for by"
        counts = f", rewritten {len(self.rewritten):,}, rows erased {self.rows:,}" if self.found else ""
        lines = [
            f"key with SHA-256 {self.key_sha256}, looked for in {looked_in(self.columns)}",
            f"{did} {self.who}" + (f" ({self.why})" if self.why else "") + f", {began} to {ended}",
            f"searched {len(self.searched):,}{counts}:",
            *(f"  {place.words()}" for place in self.searched),
        ]
        if not self.found:
            lines.append("not found, so nothing was erased")
        if self.removed_files:
            lines.append(
                f"{counted(self.removed_files, 'file')} removed that no savepoint needs,"
                f" {self.removed_bytes:,} bytes"
            )
        if self.linked:
            lines.append(f"{self.linked:,} of the removed files have links elsewhere, as in a checkpoint")
        if self.found:
            lines.append(
                "proved: afterwards all savepoints were searched once more, and no row, label or record of an"
                " edit has it; those that were rewritten have been verified"
                if self.proved
                else "NOT proved"
            )
        return [*lines, *(line for report in self.elsewhere for line in report.words())]


def outcome_of(searched: Sequence[Searched]) -> str:
    """Return the outcome of a search: `erased`, `erased before`, or `not found`."""
    if any(place.holds for place in searched):
        return ERASED
    return ERASED_BEFORE if any(place.erased_before_ms is not None for place in searched) else NOT_FOUND


def looked_in(columns: Sequence[str]) -> str:
    """Describe the searched columns."""
    if not columns:
        return "every column of keys, and no column of values"
    return f"columns named {', '.join(columns)}"


def key_hash(values: Mapping[str | None, Any]) -> str:
    """The hash by which a key is known once it is gone."""
    text = json.dumps(sorted((name or "", value) for name, value in values.items()), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def merged(findings: Sequence[ErasureFinding]) -> tuple[ErasureFinding, ...]:
    """Findings of the same state added up."""
    rows: dict[str, int] = {}
    for finding in findings:
        rows[finding.state] = rows.get(finding.state, 0) + finding.rows
    return tuple(ErasureFinding(state, count) for state, count in rows.items() if count)


def _moment(ms: int) -> str:
    return dt.datetime.fromtimestamp(ms / 1000, dt.timezone.utc).strftime("%Y-%m-%d %H:%M:%SZ")


@dataclass(frozen=True, slots=True)
class ErasePlan(JsonShape):
    """The plan of an erasure.

    Attributes:
        catalog: Where.
        key_sha256: The hash of the key.
        searched: What was found in the checkpoint, if one was named, and in each savepoint.
        elsewhere: Other places where the key may be: those that were searched as text, and the others.
        usage: Who may be using the checkpoint, if one was named; a person must confirm that none does.
    """

    catalog: str
    key_sha256: str
    searched: tuple[Searched, ...]
    elsewhere: tuple[PlaceReport, ...] = ()
    usage: CheckpointUsage | None = None

    @property
    @in_json
    def rows(self) -> int:
        """The rows that hold the key; one that several places have counts in each."""
        return sum(place.rows for place in self.searched)

    @property
    @in_json
    def touched(self) -> int:
        """The number of searched locations that would be rewritten."""
        return sum(place.holds for place in self.searched)

    @property
    @in_json
    def outcome(self) -> str:
        """`erased`, `erased before`, or `not found`."""
        return outcome_of(self.searched)

    def lines(self) -> list[str]:
        """It for people."""
        return [
            *(place.words(planned=True) for place in self.searched),
            *(line for report in self.elsewhere for line in report.words()),
        ]

    @property
    @in_json
    def savepoints(self) -> int:
        """The number of searched savepoints."""
        return sum(place.before is not None for place in self.searched)
