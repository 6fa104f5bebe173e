"""The certificate of an erasure, which records what was searched, found and rewritten."""

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
        state: The operator and the column family.
        rows: The number of current rows with the key.
    """

    state: str
    rows: int


@dataclass(frozen=True, slots=True)
class SearchReport:
    """A savepoint or checkpoint whose state was searched.

    Attributes:
        place: The address.
        files: The number of state files.
        found: The occurrences in current rows.
        traces: The number of files with the key, in current rows or in remaining bytes of old rows.
        rewritten: The number of files that were rewritten.
        before: The SHA-256 of the manifest before the erasure; None for a checkpoint.
        after: The SHA-256 of the manifest after the erasure; None if it is unchanged, and for a checkpoint.
        named: Whether the label or the record of an edit contained the key as text.
        unsearched: The states and columns that cannot be searched.
        erased_before_ms: The time of an earlier erasure of the key, from the manifest; None without one.
        given_up: For a checkpoint, the number of older batches that are deleted because they may contain the
            key.
        strays: For a checkpoint, the number of deleted files that belong to no restorable batch.
        successor: For a checkpoint on S3 or HDFS, the address of the new one without the key.

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
    successor: str | None = None

    @property
    @in_json
    def rows(self) -> int:
        """The number of rows with the key."""
        return sum(finding.rows for finding in self.found)

    @property
    def holds(self) -> bool:
        """Return whether the key was found, in rows, remaining bytes or text."""
        return bool(self.rows or self.traces or self.named)

    @property
    def touched(self) -> bool:
        """Return whether any file was rewritten or deleted."""
        return self.rewritten > 0 or self.after is not None or bool(self.given_up or self.strays)

    def words(self, *, planned: bool = False) -> str:
        """Return a description of the findings, and of the changes made or planned."""
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
        if self.successor is not None:
            text += f"; replaced by {self.successor}"
        if self.unsearched:
            text += f"; NOT searched: {', '.join(self.unsearched)}"
        return text


@dataclass(frozen=True, slots=True)
class LocationReport:
    """A location outside state that may contain the key.

    Attributes:
        name: The name of the location.
        where: The address of the location, or a description of where to find it.
        searched: Whether the location was searched for the text of the key.
        files: The number of files that were searched.
        found: The files that contain the key's text, which were not changed.
        why: The reason why a key can occur there.
        advice: The recommended action if the key was found there, or if the location was not searched.

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
        key_sha256: The hash of the key as given, with its columns.
        columns: The searched columns; empty for all key columns.
        catalog: The address of the catalog.
        searched: The results for every savepoint of the catalog, and for the checkpoint if one was given.
        removed_files: The number of files deleted because no savepoint needs them any more.
        removed_bytes: The size of the deleted files in bytes.
        linked: The number of deleted files to which other directories, such as a checkpoint, still have hard
            links.
        who: The author of the erasure.
        why: The reason for the erasure.
        begun_ms: The time of the start, in epoch milliseconds.
        ended_ms: The time of the end, in epoch milliseconds.
        proved: Whether a second search of all savepoints found the key in no row, label or edit record, and
            all rewritten savepoints were verified.
        elsewhere: The other locations that may contain the key, both searched and not searched.

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
        """The outcome: `erased`, `erased before`, or `not found`."""
        return outcome_of(self.searched)

    @property
    @in_json_as(convert=_places)
    def rewritten(self) -> tuple[SearchReport, ...]:
        """The savepoints and the checkpoint that were rewritten."""
        return tuple(place for place in self.searched if place.touched)

    @property
    def left_in(self) -> tuple[LocationReport, ...]:
        """Return the locations outside state that contain the key's text, and were not changed."""
        return tuple(report for report in self.elsewhere if report.found)

    def render(self) -> bytes:
        """Return the certificate's file: JSON with one fact per line, and a hash at the end."""
        body = json.dumps(self.as_dict(), indent=1, ensure_ascii=False)
        digest = hashlib.sha256(body.encode()).hexdigest()
        return json.dumps(
            {"certificate": self.as_dict(), "sha256": digest}, indent=1, ensure_ascii=False
        ).encode()

    def lines(self) -> list[str]:
        """Return the certificate as lines of text."""
        began, ended = _moment(self.begun_ms), _moment(self.ended_ms)
        did = "erased by" if self.found else "searched by"
        lines = [
            f"key with SHA-256 {self.key_sha256}, searched in {looked_in(self.columns)}",
            f"{did} {self.who}" + (f" ({self.why})" if self.why else "") + f", {began} to {ended}",
            *(place.words() for place in self.searched),
            *_lines_elsewhere(self.elsewhere),
        ]
        searched = f"total: {_stores(self.searched)} searched"
        if self.found:
            rewritten = _stores(self.rewritten)
            lines.append(f"{searched}, {counted(self.rows, 'row')} erased, {rewritten} rewritten")
        else:
            lines.append(f"{searched}, key not found; nothing was erased")
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
        return [*lines, *_total_elsewhere(self.elsewhere)]


def _stores(searched: Sequence[SearchReport]) -> str:
    """Return the number of searched savepoints, and the checkpoint if one was searched."""
    checkpoints = sum(place.before is None for place in searched)
    savepoints = counted(len(searched) - checkpoints, "savepoint")
    return f"{savepoints} and the checkpoint" if checkpoints else savepoints


def _lines_elsewhere(reports: Sequence[LocationReport]) -> list[str]:
    """Return the reports on other locations as lines of text; those that need an action come last."""
    ordered = sorted(reports, key=lambda report: (bool(report.found), not report.searched))
    return [line for report in ordered for line in report.words()]


def _total_elsewhere(reports: Sequence[LocationReport]) -> list[str]:
    """Return the numbers of other locations that contain the key or were not searched, as text."""
    found = sum(bool(report.found) for report in reports)
    unsearched = sum(not report.searched for report in reports)
    counts = [f"key found and not erased in {counted(found, 'location')}"] if found else []
    counts += [f"{counted(unsearched, 'location')} not searched"] if unsearched else []
    return [f"elsewhere: {', '.join(counts)}"] if counts else []


def outcome_of(searched: Sequence[SearchReport]) -> str:
    """Return the outcome of a search: `erased`, `erased before`, or `not found`."""
    if any(place.holds for place in searched):
        return ERASED
    return ERASED_BEFORE if any(place.erased_before_ms is not None for place in searched) else NOT_FOUND


def looked_in(columns: Sequence[str]) -> str:
    """Return a description of the searched columns."""
    if not columns:
        return "every column of keys, and no column of values"
    return f"columns named {', '.join(columns)}"


def key_hash(values: Mapping[str | None, Any]) -> str:
    """Return the hash that identifies a key after it is erased."""
    text = json.dumps(sorted((name or "", value) for name, value in values.items()), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def merged(findings: Sequence[ErasureFinding]) -> tuple[ErasureFinding, ...]:
    """Return the findings with their numbers added up by state."""
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
        catalog: The address of the catalog.
        key_sha256: The hash of the key.
        searched: The findings in the checkpoint, if one was given, and in each savepoint.
        elsewhere: The other locations that may contain the key, both searched and not searched.
        usage: The evidence of queries that may be using the checkpoint, if one was given; a person must
            confirm that none is.

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
        """The outcome: `erased`, `erased before`, or `not found`."""
        return outcome_of(self.searched)

    def lines(self) -> list[str]:
        """Return the plan as lines of text, with the totals at the end."""
        rewritten = _stores([place for place in self.searched if place.holds])
        counts = f"would erase {counted(self.rows, 'row')} and rewrite {rewritten}"
        return [
            *(place.words(planned=True) for place in self.searched),
            *_lines_elsewhere(self.elsewhere),
            f"total: {_stores(self.searched)} searched; {counts}",
            *_total_elsewhere(self.elsewhere),
        ]

    @property
    @in_json
    def savepoints(self) -> int:
        """The number of searched savepoints."""
        return sum(place.before is not None for place in self.searched)
