"""The next step after a verb: one line with real values, for a person at a terminal.

A verb names the call that follows it. Nobody is told in a pipe, with --json or with --quiet, and a hint that
cannot be made is left out: no verb fails for want of one.
"""

from __future__ import annotations

import json as json_text
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdfast.cli import options, output, standard_streams
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.jobs.registry.client import JobDetails

_DRY_RUN: Final = "--dry-run"
_CATALOG: Final = "savepoints"
_RESTORED: Final = "-restored"
# So much of a savepoint's id has its time to the millisecond.
_MILLISECOND: Final = len("20260305T080000.000Z")

_silent = False


def on_terminal() -> bool:
    """Return whether a person reads both the result and the messages."""
    return sys.stdout.isatty() and sys.stderr.isatty()


def is_wanted(json: bool) -> bool:
    """Return whether a next step is printed."""
    return not (json or _silent or output.quiet()) and on_terminal()


def _tell(text: str) -> None:
    """A line in one piece, however wide the terminal is: a call is to be pasted."""
    standard_streams.say(f"{text}\n")


def say(json: bool, *words: str) -> None:
    """Name the next call.

    Args:
        json: Whether the answer is JSON.
        words: What follows `holdfast`; nothing is said without any.
    """
    if words and is_wanted(json):
        _tell(f"next: {shlex.join(('holdfast', *words))}")


def say_looked_up(json: bool, find: Callable[[], Sequence[str]]) -> None:
    """Name a call that takes some looking up, which is done for a listener only.

    Args:
        json: Whether the answer is JSON.
        find: Gives what follows `holdfast`, or nothing.
    """
    if is_wanted(json):
        with suppress(HoldfastError, OSError):
            say(json, *find())


def say_for_real(json: bool, *, ready: bool = True) -> None:
    """Name the same call without --dry-run.

    Args:
        json: Whether the answer is JSON.
        ready: Whether it would do something, and needs nothing else of the person.
    """
    if ready and _DRY_RUN in sys.argv:
        say(json, *(word for word in sys.argv[1:] if word != _DRY_RUN))


def say_steps(json: bool, steps: Sequence[tuple[str, str]], end: str) -> None:
    """Name several calls, each with what it is for.

    Args:
        json: Whether the answer is JSON.
        steps: Lines of a shell, with a few words on each.
        end: A sentence below them.
    """
    if not is_wanted(json):
        return
    width = max(len(command) for command, why in steps if why)
    room = output.width(sys.stderr)
    output.say("\nnext:")
    for command, why in steps:
        beside = f"  {command.ljust(width)}  {why}".rstrip()
        if room is None or len(beside) <= room:
            _tell(beside)
        else:
            _tell(f"  {command}")
            output.say(f"    {why}")
    output.say(f"\n{end}")


def say_start(json: bool, checkpoint: str, original: str) -> None:
    """Name what starts on a checkpoint that was made: the job that had the original, or one's own query.

    Args:
        json: Whether the answer is JSON.
        checkpoint: The new one.
        original: The one that it was made of.
    """
    if not is_wanted(json):
        return
    words: Sequence[str] = ()
    with suppress(HoldfastError, OSError):
        details = job_at(original, None)
        if details is not None and not _runs(details):
            words = run_words(
                details.status.job.target, None, "--set", f"checkpoint.storage={typed(checkpoint)}"
            )
    if words:
        say(json, *words)
    else:
        say_option(json, checkpoint)


def say_option(json: bool, checkpoint: str) -> None:
    """Name the option with which one's own query starts on a checkpoint."""
    from holdfast.config.checks import local_path

    if is_wanted(json):
        place = json_text.dumps(str(local_path(checkpoint) or checkpoint), ensure_ascii=False)
        _tell(f'next: start the query with .option("checkpointLocation", {place})')


@contextmanager
def silent() -> Iterator[None]:
    """Whoever runs verbs within this process says what comes next."""
    global _silent  # noqa: PLW0603 - as standard error is one for the process, so is this
    before, _silent = _silent, True
    try:
        yield
    finally:
        _silent = before


def typed(address: str) -> str:
    """An address as it is typed here: on this machine a path, and a short one below this directory."""
    from holdfast.config.checks import local_path

    path = local_path(address)
    if path is None:
        return address
    short = str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else ""
    return str(path) if short in ("", ".") or short[0] in "-~" or ":" in short else short


def catalog_for(checkpoint: str, home: str | None) -> str | None:
    """Return the catalog for a savepoint of a checkpoint: that of its job, or the one next to it.

    Args:
        checkpoint: The checkpoint's URI.
        home: The state home that was given.

    Returns:
        A directory as it is typed; None where there is nothing beside a checkpoint.
    """
    from holdfast.layout import SAVEPOINTS_BESIDE, beside

    details = job_at(checkpoint, home)
    configured = None if details is None else details.status.job.savepoint_catalog
    if configured is not None:
        return typed(configured)
    if details is not None and details.catalogs:
        return typed(details.catalogs[0])
    short = Path(typed(checkpoint))
    if checkpoint.startswith("file://") and not short.is_absolute() and short.parts[0] != _CATALOG:
        return _CATALOG
    place = beside(checkpoint, SAVEPOINTS_BESIDE)
    return None if place is None else typed(place)


def savepoint_word(address: str) -> str:
    """A savepoint as it is typed here: its directory, and so much of its id as tells it from others.

    What is not an address of a savepoint stays as it is.
    """
    from holdfast.savepoints.catalog import ids, is_savepoint, split_address
    from holdfast.storage import open_storage

    if not is_savepoint(address):
        return address
    catalog, savepoint_id = split_address(address)
    others = [other for other in ids(open_storage(catalog, "savepoint")) if other != savepoint_id]
    for length in (output.SAVEPOINT_ID, _MILLISECOND):
        if not any(other.startswith(savepoint_id[:length]) for other in others):
            return f"{typed(catalog)}/{savepoint_id[:length]}"
    return typed(address)


def restored_beside(checkpoint: str) -> str:
    """A directory next to a checkpoint for one that is made of its savepoint; nothing is there yet."""
    from holdfast.config.checks import local_path

    place = f"{checkpoint.rstrip('/')}{_RESTORED}"
    name, number = place, 1
    while (path := local_path(name)) is not None and path.exists():
        number += 1
        name = f"{place}-{number}"
    return typed(name)


def restore_words(savepoint: str, checkpoint: str) -> tuple[str, ...]:
    """The look at what a restore would make.

    Args:
        savepoint: The savepoint's address.
        checkpoint: The checkpoint that it was taken of.
    """
    return ("restore", savepoint_word(savepoint), restored_beside(checkpoint), _DRY_RUN)


def run_words(target: str, home: str | None, *more: str) -> tuple[str, ...]:
    """The start of a job; nothing where its file is not here."""
    from holdfast.jobs.loader import split_target

    if not split_target(target)[0].is_file():
        return ()
    return ("run", target, *more, *home_words(home))


def home_words(home: str | None) -> tuple[str, ...]:
    """The state home, where it was given."""
    return () if home is None else ("--home", home)


def given_words(option: str, given: Sequence[str] | None) -> Iterator[str]:
    """An option that was given several times."""
    for value in given or ():
        yield from (option, value)


def job_at(checkpoint: str, home: str | None) -> JobDetails | None:
    """The job whose only query has a checkpoint; None if unknown."""
    jobs = options.control(home)
    for status in jobs.jobs():
        details = jobs.details(status.job.name, batches=1)
        places = [query.checkpoint for query in details.queries] or [status.job.checkpoint]
        if places == [checkpoint]:
            return details
    return None


def key_word(key: Any) -> str:
    """A key as it is typed: its value alone where that is one word, else JSON."""
    values = list(key.values()) if isinstance(key, dict) else []
    if len(values) == 1 and isinstance(values[0], (str, int)) and not isinstance(values[0], bool):
        text = str(values[0])
        if text.isascii() and text.isalnum():
            return text
    return json_text.dumps(key, ensure_ascii=False)


def _runs(details: JobDetails) -> bool:
    return details.status.supervised and not details.status.job.state.terminal
