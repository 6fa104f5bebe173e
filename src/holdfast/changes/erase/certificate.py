"""The certificate of an erasure: what was searched, found and rewritten."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from holdfast.json_shapes import JsonShape, in_json, in_json_as
from holdfast.ownership.usage import CheckpointUsage
from holdfast.quantities import counted

ERASED: Final = "erased"
ERASED_BEFORE: Final = "erased before"
NOT_FOUND: Final = "not found"


@dataclass(frozen=True, slots=True)
class ErasureFinding:
    """The occurrences of the key in one state of one savepoint.

    Attributes:
        state: Operator and column family.
        rows: The number of current rows with the key.
    """

    state: str
    rows: int


@dataclass(frozen=True, slots=True)
class SearchReport:
    """A savepoint or checkpoint whose state was searched.

    Attributes:
        place: Its address.
        files: The number of its state files.
        found: The occurrences in current rows.
        traces: The number of files with the key, in current rows or in remains of old ones.
        rewritten: The number of files that were rewritten.
        before: The SHA-256 of its manifest before; None for a checkpoint.
        after: The SHA-256 of its manifest now; None if it is unchanged, and for a checkpoint.
        named: True if its label, or the record of an edit, contained the key as text.
        unsearched: States and columns that cannot be searched.
        erased_before_ms: The time of an earlier erasure of the key, from its manifest; else None.
        given_up: For a checkpoint, the number of older batches that are deleted because they may contain the
            key.
        strays: For a checkpoint, the number of deleted files that belong to no restorable batch.

    Example:
        searched: tuple[hf.SearchReport, ...] = hf.plan_erase("c7", everywhere="savepoints").searched
        assert [(report.rows, report.holds) for report in searched] == [(1, True)]
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
        """The number of rows with the key."""
        return sum(finding.rows for finding in self.found)

    @property
    def holds(self) -> bool:
        """Return whether anything was found."""
        return bool(self.rows or self.traces or self.named)

    @property
    def touched(self) -> bool:
        """Return whether anything was rewritten or deleted."""
        return self.rewritten > 0 or self.after is not None or bool(self.given_up or self.strays)

    def words(self, *, planned: bool = False) -> str:
        """Return a description of what was found, and what was done or would be done."""
        if not self.holds:
            text = f"not found in {self.place}, {counted(self.files, 'file')} of state"
            if self.erased_before_ms is not None:
                text += f"; its manifest records an erasure of this key on {_moment(self.erased_before_ms)}"
        else:
            text = f"{self.place}: {counted(self.rows, 'row')}"
            text += f", traces in {counted(self.traces, 'file')}" if self.traces else ""
            text += ", in its label or an edit record" if self.named else ""
            if self.rewritten:
                text += f"; {counted(self.rewritten, 'file')} rewritten"
            elif self.after is not None:
                text += "; its manifest rewritten"
        gone = "would be deleted" if planned else "deleted"
        if self.given_up:
            text += f"; {self.given_up:,} older batches {gone}"
        if self.strays:
            text += f"; {counted(self.strays, 'file')} of no batch {gone}"
        if self.unsearched:
            text += f"; NOT searched: {', '.join(self.unsearched)}"
        return text


@dataclass(frozen=True, slots=True)
class LocationReport:
    """A location outside state that may contain the key.

    Attributes:
        name: The name of the location.
        where: Its address, or where to look for it.
        searched: True if it was searched as text.
        files: The number of files that were searched.
        found: The files that contain the key's text, which were not changed.
        why: How a key gets there.
        advice: What to do if the key was found there, or if nothing was searched.

    Example:
        locations: tuple[hf.LocationReport, ...] = hf.plan_erase("c7", everywhere="savepoints").elsewhere
        for location in locations:
            print(location.name, location.where, location.found, location.advice)
    """

    name: str
    where: str
    searched: bool
    files: int
    found: tuple[str, ...]
    why: str
    advice: str

    def words(self) -> list[str]:
        """Return the report as lines of text."""
        if not self.searched:
            return [f"NOT searched: {self.name}, {self.where}: {self.why}; {self.advice}"]
        if not self.found:
            return [f"not found in the text of {self.name}, {self.where}, {counted(self.files, 'file')}"]
        return [
            f"FOUND, not erased: {self.name}, {self.where}: {self.advice}",
            *(f"  {file}" for file in self.found),
        ]


def _places(searched: tuple[SearchReport, ...]) -> list[str]:
    return [place.place for place in searched]


@dataclass(frozen=True, slots=True)
class Certificate(JsonShape):
    """The outcome of an erasure.

    Attributes:
        key_sha256: The hash of the key as it was given, with its columns.
        columns: The columns that were searched; empty for all columns of keys.
        catalog: The catalog.
        searched: Every savepoint of the catalog, and the checkpoint if one was given.
        removed_files: The number of deleted files that no savepoint needs any more.
        removed_bytes: Their size.
        linked: The number of them that other directories, such as a checkpoint, still have links to.
        who: The author.
        why: The reason.
        begun_ms: The time of the start.
        ended_ms: The time of the end.
        proved: True if a second search of all savepoints found the key in no row, label or edit record, and
            all rewritten savepoints have been verified.
        elsewhere: Other locations that may contain the key: those that were searched as text, and the others.

    Example:
        certificate: hf.Certificate = hf.erase("c7", everywhere="savepoints", column="customer")
        assert certificate.proved and certificate.rows == 1
    """

    key_sha256: str
    columns: tuple[str, ...]
    catalog: str
    searched: tuple[SearchReport, ...]
    removed_files: int
    removed_bytes: int
    linked: int
    who: str
    why: str | None
    begun_ms: int
    ended_ms: int
    proved: bool
    elsewhere: tuple[LocationReport, ...] = ()

    @property
    @in_json
    def rows(self) -> int:
        """The number of rows with the key; a row in several savepoints counts in each."""
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
    def rewritten(self) -> tuple[SearchReport, ...]:
        """The rewritten locations."""
        return tuple(place for place in self.searched if place.touched)

    @property
    def left_in(self) -> tuple[LocationReport, ...]:
        """Return the locations outside state that contain the key's text, and were not changed."""
        return tuple(report for report in self.elsewhere if report.found)

    def render(self) -> bytes:
        """Return the file: JSON with a line for each fact, and their hash at its end."""
        body = json.dumps(self.as_dict(), indent=1, ensure_ascii=False)
        digest = hashlib.sha256(body.encode()).hexdigest()
        return json.dumps(
            {"certificate": self.as_dict(), "sha256": digest}, indent=1, ensure_ascii=False
        ).encode()

    def lines(self) -> list[str]:
        """Return the certificate as lines of text."""
        began, ended = _moment(self.begun_ms), _moment(self.ended_ms)
        did = "erased by" if self.found else "searched by"
        counts = f", rewritten {len(self.rewritten):,}, rows erased {self.rows:,}" if self.found else ""
        lines = [
            f"key with SHA-256 {self.key_sha256}, searched in {looked_in(self.columns)}",
            f"{did} {self.who}" + (f" ({self.why})" if self.why else "") + f", {began} to {ended}",
            f"searched {len(self.searched):,}{counts}:",
            *(f"  {place.words()}" for place in self.searched),
        ]
        if not self.found:
            lines.append("key not found; nothing was erased")
        if self.removed_files:
            lines.append(
                f"{counted(self.removed_files, 'file')} deleted that no savepoint needs, "
                f"{self.removed_bytes:,} bytes"
            )
        if self.linked:
            lines.append(
                f"{self.linked:,} of the deleted files have links elsewhere, such as in a checkpoint"
            )
        if self.found:
            lines.append(
                "proved: a second search of all savepoints found the key in no row, label or edit "
                "record; all rewritten savepoints have been verified"
                if self.proved
                else "NOT proved"
            )
        return [*lines, *(line for report in self.elsewhere for line in report.words())]


def outcome_of(searched: Sequence[SearchReport]) -> str:
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
    """Return the hash that identifies a key after it is erased."""
    text = json.dumps(sorted((name or "", value) for name, value in values.items()), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def merged(findings: Sequence[ErasureFinding]) -> tuple[ErasureFinding, ...]:
    """Return the findings, added up by state."""
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
        catalog: The catalog.
        key_sha256: The hash of the key.
        searched: The findings in the checkpoint, if one was given, and in each savepoint.
        elsewhere: Other locations that may contain the key: those that were searched as text, and the others.
        usage: The possible users of the checkpoint, if one was given; a person must confirm that there are
            none.

    Example:
        plan: hf.ErasePlan = hf.plan_erase("c7", everywhere="savepoints", column="customer")
        assert (plan.savepoints, plan.rows) == (1, 1)
    """

    catalog: str
    key_sha256: str
    searched: tuple[SearchReport, ...]
    elsewhere: tuple[LocationReport, ...] = ()
    usage: CheckpointUsage | None = None

    @property
    @in_json
    def rows(self) -> int:
        """The number of rows with the key; a row in several savepoints counts in each."""
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
        """Return the plan as lines of text."""
        return [
            *(place.words(planned=True) for place in self.searched),
            *(line for report in self.elsewhere for line in report.words()),
        ]

    @property
    @in_json
    def savepoints(self) -> int:
        """The number of searched savepoints."""
        return sum(place.before is not None for place in self.searched)
