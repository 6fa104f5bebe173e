"""Leases on a catalog: which operations may run at the same time.

Takes may run concurrently. A removal must not run concurrently with a take: it could delete objects that the
take has found and is about to use. Neither waits for the other. A take writes a lease file and then checks
for a removal; a removal writes a lease file and then checks for takes. Each fails if it sees the other, so at
least one of them fails.

A killed process leaves its lease file behind. A removal treats a lease that was not renewed for an hour as
dead. If its owner was only frozen, the owner detects this later: a take checks again after it has written its
manifest, and withdraws the manifest.

A removal that froze just before it deletes a file cannot check again. On a local disk it holds a lock until
its process ends, and no other removal starts before. An object store has no such lock.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from typing import Any, Final

from holdfast.clock import now_ms
from holdfast.config.checks import local_path, place_word
from holdfast.errors import Conflict, HoldfastError, NotFound
from holdfast.formats.text import foreign_json
from holdfast.ownership.process_identity import ProcessIdentity, host_name
from holdfast.savepoints.catalog import STAGING, SWEEP, SWEEP_LOCK, TAKES
from holdfast.storage.atomic_swap import passing
from holdfast.storage.file_lock import FileLock
from holdfast.storage.port import Storage, full

Clock = Callable[[], int]
Chance = Callable[[int], bytes]

DEAD_AFTER_MS: Final = 3_600_000
BEAT_MS: Final = 60_000
_LOOK_MS: Final = 1_000
# What was given up is remembered this many times longer than it takes to be given up.
_REMEMBERED: Final = 24
_NOTE = ".json"
_ENDED = ".ended"


@dataclass(frozen=True, slots=True)
class Note:
    """The content of a lease file: the take or removal that wrote it, and the time of its last renewal.

    Attributes:
        token: The name of the take or removal.
        beat_ms: The time of the last renewal.
        owner: The process and machine, for messages.
        process: The process; None if the file does not contain it.
    """

    token: str
    beat_ms: int
    owner: str
    process: ProcessIdentity | None = None

    @property
    def has_died(self) -> bool:
        """True if its process ran on this machine and has ended."""
        return self.process is not None and self.process.has_died()

    def dead(self, now_ms: int, after_ms: int) -> bool:
        """Return True if the last renewal is at least `after_ms` ago."""
        return now_ms - self.beat_ms >= after_ms

    def render(self) -> bytes:
        """Return the content of the lease file."""
        return json.dumps(asdict(self)).encode()


@dataclass(frozen=True, slots=True)
class Takes:
    """The takes of a catalog: running ones, dead ones, and the paths of old `.ended` files to delete."""

    live: tuple[Note, ...]
    dead: tuple[Note, ...]
    forgotten: tuple[str, ...]


class TakeLease:
    """The lease of a take on a catalog, from `begin` to `end`.

    Args:
        catalog: The catalog.
        token: The unique name of the take.
        clock: The time in epoch milliseconds.
    """

    def __init__(self, catalog: Storage, token: str, clock: Clock) -> None:
        self._catalog = catalog
        self._clock = clock
        self._path = f"{TAKES}/{token}{_NOTE}"
        self._ended = f"{TAKES}/{token}{_ENDED}"
        self._beat_ms = 0
        self.token = token

    def begin(self) -> None:
        """Write the take's lease file, then check that no removal is running.

        Raises:
            Conflict: A removal is running in the catalog; the lease file was deleted again.
        """
        self._write(replace=False)
        sweep = _read(self._catalog, SWEEP)
        if sweep is not None:
            self._catalog.delete(self._path)
            raise Conflict(
                "no savepoint can be created while a removal is running in the catalog",
                code="HF-E4052",
                where=full(self._catalog.uri, SWEEP),
                found=sweep.owner,
                hint="retry when the removal has ended; if its process was killed, "
                f"`holdfast savepoint gc {place_word(self._catalog.uri)} --older-than 0s` cleans up after it",
            )

    def beat(self) -> None:
        """Renew the lease if its last renewal is a minute old.

        Raises:
            Conflict: A removal has treated the lease as dead.
        """
        if self._clock() - self._beat_ms >= BEAT_MS:
            self.check()
            self._write(replace=True)

    def check(self) -> None:
        """Check that no removal has treated the lease as dead.

        Raises:
            Conflict: A removal has, so copied files may be deleted.
        """
        if self._catalog.size(self._ended) is not None or self._catalog.size(self._path) is None:
            raise Conflict(
                "the savepoint was not taken, because this process did not renew the lease in time",
                code="HF-E4053",
                where=full(self._catalog.uri, self._path),
                hint="take the savepoint again; the copied files were removed",
            )

    def end(self) -> None:
        """Delete the lease file."""
        self._catalog.delete(self._path)

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Hold the lease from `begin` to `end`; a take that fails releases its files.

        Raises:
            Conflict: A removal is running.
        """
        self.begin()
        try:
            yield
        except BaseException:
            with suppress(HoldfastError):  # what is left is cleared up by the next removal
                let_go(self._catalog, self.token)
                self.end()
            raise
        self.end()

    def _write(self, *, replace: bool) -> None:
        self._beat_ms = self._clock()
        note = _note(self.token, self._beat_ms)
        passing(self._catalog).write(self._path, note.render(), replace=replace)


class GcLease:
    """The lease of a removal on a catalog, from `begin` to `end`.

    Args:
        catalog: The catalog.
        token: The unique name of the removal.
        clock: The time in epoch milliseconds.
        dead_after_ms: The age of the last renewal at which a lease counts as dead.
    """

    def __init__(
        self, catalog: Storage, token: str, clock: Clock, dead_after_ms: int = DEAD_AFTER_MS
    ) -> None:
        self._catalog = catalog
        self._token = token
        self._clock = clock
        self._dead_after_ms = dead_after_ms
        self._beat_ms = 0
        self._looked_ms = 0
        root = local_path(catalog.uri)
        self._lock = FileLock(root / SWEEP_LOCK) if root is not None and root.is_dir() else None

    def begin(self) -> Takes:
        """Write the removal's lease file, then check that no take is running.

        Returns:
            The takes, none of which is running.

        Raises:
            Conflict: A take or another removal is running.
        """
        other = _read(self._catalog, SWEEP)
        if other is not None and not other.dead(self._clock(), self._dead_after_ms):
            raise _removing(self._catalog, other)
        self._take_lock(other)
        self._write(replace=other is not None)
        self.check()
        found = takes(self._catalog, self._clock(), self._dead_after_ms)
        if found.live:
            self.end()
            raise _taking(self._catalog, found.live[0])
        return found

    def check(self) -> None:
        """Check, at most once a second, that this removal still holds the lease.

        Raises:
            Conflict: Another removal has treated it as dead.
        """
        now = self._clock()
        if now - self._looked_ms < _LOOK_MS:
            return
        self._looked_ms = now
        note = _read(self._catalog, SWEEP)
        if note is None or note.token != self._token:
            raise Conflict(
                "another process has taken over the removal",
                code="HF-E4054",
                where=full(self._catalog.uri, SWEEP),
                hint=f"delete the remaining files with `holdfast savepoint gc"
                f" {place_word(self._catalog.uri)}`",
            )
        if now - self._beat_ms >= BEAT_MS:
            self._write(replace=True)

    def give_up(self, note: Note) -> None:
        """Mark a take as dead, then delete its lease file."""
        with suppress(Conflict):  # given up before, by a removal that was killed
            self._catalog.write(f"{TAKES}/{note.token}{_ENDED}", Note(note.token, self._clock(), "").render())
        self._catalog.delete(f"{TAKES}/{note.token}{_NOTE}")

    def end(self) -> None:
        """Delete the lease file, if it still belongs to this removal."""
        try:
            note = _read(self._catalog, SWEEP)
            if note is not None and note.token == self._token:
                self._catalog.delete(SWEEP)
        finally:
            if self._lock is not None:
                self._lock.release()
                with suppress(OSError):  # the file may stay: a different user may not be able to open it
                    self._lock.clear()

    @contextmanager
    def hold(self) -> Iterator[Takes]:
        """Hold the lease from `begin` to `end`, and yield the takes, which have all ended.

        Raises:
            Conflict: A take or another removal is running.
        """
        try:
            found = self.begin()
        except BaseException:
            if self._lock is not None:
                self._lock.release()
            raise
        try:
            yield found
        finally:
            with suppress(HoldfastError):  # nobody renews the note, so the next removal takes it for dead
                self.end()

    def _take_lock(self, other: Note | None) -> None:
        """Raise Conflict if another removal has not ended, regardless of the age of its lease."""
        taken = True
        if self._lock is not None:
            with suppress(OSError):  # no file can be made there, and writing the note says why
                taken = self._lock.take()
        if not taken and other is None:
            raise Conflict(
                "the removal cannot start, because another removal has just started in the catalog",
                code="HF-E4055",
                where=full(self._catalog.uri, SWEEP_LOCK),
                hint="retry when the other removal has ended",
            )
        if not taken and other is not None:
            raise Conflict(
                (
                    "the removal cannot start, because a different removal holds the lease of the catalog"
                    " without renewing it"
                ),
                code="HF-E4056",
                where=full(self._catalog.uri, SWEEP_LOCK),
                found=other.owner,
                hint="end the process of the other removal, then retry",
            )

    def _write(self, *, replace: bool) -> None:
        self._beat_ms = self._clock()
        self._catalog.write(SWEEP, _note(self._token, self._beat_ms).render(), replace=replace)


def takes(catalog: Storage, now_ms: int, dead_after_ms: int) -> Takes:
    """Return the takes that have a lease file in a catalog."""
    live: list[Note] = []
    dead: list[Note] = []
    forgotten: list[str] = []
    for name in sorted(catalog.list(TAKES).names):
        path = f"{TAKES}/{name}"
        note = _read(catalog, path)
        if note is None:
            continue
        if name.endswith(_NOTE):
            (dead if note.dead(now_ms, dead_after_ms) else live).append(note)
        elif name.endswith(_ENDED) and note.dead(now_ms, dead_after_ms * _REMEMBERED):
            forgotten.append(path)
    return Takes(tuple(live), tuple(dead), tuple(forgotten))


def require_no_turn(catalog: Storage, clock: Clock = now_ms) -> None:
    """Check that no take or removal is running in a catalog; writes nothing.

    Raises:
        Conflict: A take or a removal is running.
    """
    sweep = _read(catalog, SWEEP)
    if sweep is not None and not sweep.dead(clock(), DEAD_AFTER_MS) and not sweep.has_died:
        raise _removing(catalog, sweep)
    for note in takes(catalog, clock(), DEAD_AFTER_MS).live:
        raise _taking(catalog, note)


def _removing(catalog: Storage, note: Note) -> Conflict:
    return _busy("another removal is running in this catalog", catalog, SWEEP, note)


def _taking(catalog: Storage, note: Note) -> Conflict:
    return _busy(
        "a savepoint is being taken into this catalog", catalog, f"{TAKES}/{note.token}{_NOTE}", note
    )


def _busy(fact: str, catalog: Storage, path: str, note: Note) -> Conflict:
    return Conflict(
        fact,
        code="HF-E4057",
        where=full(catalog.uri, path),
        found=note.owner,
        hint="retry when that process has ended; if it was killed, "
        f"`holdfast savepoint gc {place_word(catalog.uri)} --older-than 0s` cleans up after it",
    )


def clear_dead_sweep(catalog: Storage) -> None:
    """Delete the lease file of a removal whose process has died on this machine.

    A process on a different machine may be alive, so its lease file is kept until the lease expires.
    """
    note = _read(catalog, SWEEP)
    if note is not None and note.has_died:
        catalog.delete(SWEEP)


def let_go(catalog: Storage, token: str) -> None:
    """Delete the staged files of a take."""
    for name in catalog.list(STAGING).names:
        if name.startswith(f"{token}-"):
            catalog.delete(f"{STAGING}/{name}")


def staged(token: str, number: int) -> str:
    """Return the path where a take keeps a file until its hash is known."""
    return f"{STAGING}/{token}-{number}"


def _read(catalog: Storage, path: str) -> Note | None:
    """Read a lease file; an unreadable one counts as infinitely old and has no known owner."""
    try:
        data = catalog.read(path)
    except NotFound:
        return None
    try:
        given: Any = foreign_json(data)
        process = ProcessIdentity.parse(given.get("process"))
        return Note(str(given["token"]), int(given["beat_ms"]), str(given["owner"]), process)
    except (ValueError, TypeError, KeyError, AttributeError):
        return Note(path.rpartition("/")[2].partition(".")[0], 0, "an unknown process")


def _note(token: str, beat_ms: int) -> Note:
    """Return the content of a lease file of this process."""
    process = ProcessIdentity.own()
    return Note(token, beat_ms, f"process {process.pid} on {host_name(process.machine)}", process)
