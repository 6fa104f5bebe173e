"""What an erasure has searched, found and rewritten, to be shown; the key itself is not in it."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found of the key in one state of one savepoint.

    Attributes:
        state: Operator and column family.
        rows: The rows that held it and counted.
    """

    state: str
    rows: int


@dataclass(frozen=True, slots=True)
class Searched:
    """A savepoint, or a checkpoint, that was searched.

    Attributes:
        place: Its address.
        files: Its files of state.
        found: What was found in rows that count.
        traces: Files that held it in rows that were deleted or overwritten before.
        rewritten: Files that were written anew.
        before: The SHA-256 of its manifest before; None of a checkpoint.
        after: The SHA-256 of its manifest now, or that it is the same.
    """

    place: str
    files: int
    found: tuple[Finding, ...]
    traces: int
    rewritten: int
    before: str | None
    after: str | None

    @property
    def rows(self) -> int:
        """The rows that held it."""
        return sum(each.rows for each in self.found)

    @property
    def touched(self) -> bool:
        """Whether anything of it was there."""
        return self.rewritten > 0


@dataclass(frozen=True, slots=True)
class Certificate:
    """The outcome of an erasure.

    Attributes:
        key_sha256: The hash of the key as it was given, with its columns.
        columns: The columns that it was looked for in; empty for all columns of keys.
        catalog: Where.
        searched: Every savepoint of the catalog, and the checkpoint if one was named.
        removed_files: Files that nobody needs any more and that are gone.
        removed_bytes: Their bytes.
        linked: How many of them other directories, such as a checkpoint, still have links to.
        who: Who did it.
        why: What for.
        begun_ms: When it began.
        ended_ms: When it ended.
        proved: Whether everything was searched once more afterwards, and every savepoint verified.
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

    @property
    def rows(self) -> int:
        """The rows that held the key, in all that was searched."""
        return sum(each.rows for each in self.searched)

    @property
    def rewritten(self) -> tuple[Searched, ...]:
        """What was rewritten."""
        return tuple(each for each in self.searched if each.touched)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {**asdict(self), "rows": self.rows, "rewritten": [each.place for each in self.rewritten]}

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
        where = ", ".join(self.columns) or "every column of keys"
        found = [
            f"  {each.place}: {each.rows:,} rows"
            + (f", traces in {each.traces:,} files" if each.traces else "")
            + (f"; {each.rewritten:,} files written anew" if each.touched else "; nothing of it")
            for each in self.searched
        ]
        proof = "searched once more and verified afterwards" if self.proved else "NOT verified"
        return [
            f"key with SHA-256 {self.key_sha256}, looked for in {where}",
            f"erased by {self.who}" + (f" ({self.why})" if self.why else "") + f", {began} to {ended}",
            f"searched {len(self.searched):,}, rewritten {len(self.rewritten):,}, rows erased {self.rows:,}:",
            *found,
            f"{self.removed_files:,} files removed, {self.removed_bytes:,} bytes; {proof}",
            *(
                [f"{self.linked:,} of the removed files have links elsewhere, as in a checkpoint"]
                if self.linked
                else []
            ),
        ]


def key_hash(values: Mapping[str | None, Any]) -> str:
    """The hash by which a key is known once it is gone."""
    text = json.dumps(sorted((name or "", value) for name, value in values.items()), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def merged(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Findings of the same state added up."""
    rows: dict[str, int] = {}
    for each in findings:
        rows[each.state] = rows.get(each.state, 0) + each.rows
    return tuple(Finding(state, count) for state, count in rows.items() if count)


def _moment(ms: int) -> str:
    return dt.datetime.fromtimestamp(ms / 1000, dt.timezone.utc).strftime("%Y-%m-%d %H:%M:%SZ")
