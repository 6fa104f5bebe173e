"""The next step after a verb: one line with real values, for a person at a terminal.

Each verb prints the call that usually follows it. Nothing is printed in a pipe, with --json or with --quiet,
and a verb never fails because a next step cannot be computed.
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
# The length of a savepoint id's time to the millisecond.
_MILLISECOND: Final = len("20260305T080000.000Z")

_silent = False


def on_terminal() -> bool:
    """Return whether both standard output and standard error are terminals."""
    return sys.stdout.isatty() and sys.stderr.isatty()


def is_wanted(json: bool) -> bool:
    """Return whether a next step is printed for this call."""
    return not (json or _silent or output.quiet()) and on_terminal()


def _tell(text: str) -> None:
    """Print a line without breaking it, so that it can be pasted."""
    standard_streams.say(f"{text}\n")


def say(json: bool, *words: str) -> None:
    """Print the next call.

    Args:
        json: Whether the result is JSON; if so, nothing is printed.
        words: The arguments after `holdfast`; if empty, nothing is printed.
    """
    if words and is_wanted(json):
        _tell(f"next: {shlex.join(('holdfast', *words))}")


def say_looked_up(json: bool, find: Callable[[], Sequence[str]]) -> None:
    """Print a next call that is computed only if it will be printed.

    Args:
        json: Whether the result is JSON; if so, nothing is printed.
        find: The function that returns the arguments after `holdfast`; empty for none.
    """
    if is_wanted(json):
        with suppress(HoldfastError, OSError):
            say(json, *find())


def say_for_real(json: bool, *, ready: bool = True) -> None:
    """Print this call without --dry-run as the next call.

    Args:
        json: Whether the result is JSON; if so, nothing is printed.
        ready: Whether the call would change something and needs no further option.
    """
    if ready and _DRY_RUN in sys.argv:
        say(json, *(word for word in sys.argv[1:] if word != _DRY_RUN))


def say_steps(json: bool, steps: Sequence[tuple[str, str]], end: str) -> None:
    """Print several next calls, each with its purpose.

    Args:
        json: Whether the result is JSON; if so, nothing is printed.
        steps: Shell commands, each with its purpose.
        end: A sentence to print below the commands.
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
    """Print the call that starts the original's job on a new checkpoint, or the option without a job.

    Args:
        json: Whether the result is JSON; if so, nothing is printed.
        checkpoint: The new checkpoint.
        original: The checkpoint from which the new one was created.
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
    """Print the option that starts a query without a job on a checkpoint."""
    from holdfast.config.checks import local_path

    if is_wanted(json):
        place = json_text.dumps(str(local_path(checkpoint) or checkpoint), ensure_ascii=False)
        _tell(f'next: start the query with .option("checkpointLocation", {place})')


@contextmanager
def silent() -> Iterator[None]:
    """Suppress next steps while verbs run inside this process."""
    global _silent  # noqa: PLW0603 - one value per process, like standard error
    before, _silent = _silent, True
    try:
        yield
    finally:
        _silent = before


def typed(address: str) -> str:
    """Return an address as typed in a shell: a local path, relative if it is below the working directory."""
    from holdfast.config.checks import local_path

    path = local_path(address)
    if path is None:
        return address
    short = str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else ""
    return str(path) if short in ("", ".") or short[0] in "-~" or ":" in short else short


def catalog_for(checkpoint: str, home: str | None) -> str | None:
    """Return the catalog for savepoints of a checkpoint: that of its job, or the directory next to it.

    Args:
        checkpoint: The checkpoint's URI.
        home: The value of `--home`; None for the default.

    Returns:
        The directory as typed in a shell; None if no directory can be next to the checkpoint.
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
    """Return a savepoint as typed: its directory and the shortest unambiguous prefix of its id.

    Any other address is returned unchanged.
    """
    from holdfast.savepoints.address import StateAddress
    from holdfast.savepoints.catalog import ids

    parsed = StateAddress.parse(address)
    if not parsed.is_savepoint:
        return address
    catalog, savepoint_id = parsed.open_savepoint()
    others = [other for other in ids(catalog) if other != savepoint_id]
    for length in (output.SAVEPOINT_ID, _MILLISECOND):
        if not any(other.startswith(savepoint_id[:length]) for other in others):
            return f"{typed(parsed.catalog)}/{savepoint_id[:length]}"
    return typed(address)


def restored_beside(checkpoint: str) -> str:
    """Return an unused directory next to a checkpoint, for restoring its savepoint."""
    from holdfast.config.checks import local_path

    place = f"{checkpoint.rstrip('/')}{_RESTORED}"
    name, number = place, 1
    while (path := local_path(name)) is not None and path.exists():
        number += 1
        name = f"{place}-{number}"
    return typed(name)


def restore_words(savepoint: str, checkpoint: str) -> tuple[str, ...]:
    """Return the arguments of `holdfast restore` with --dry-run.

    Args:
        savepoint: The savepoint's address.
        checkpoint: The checkpoint of which the savepoint was taken.
    """
    return ("restore", savepoint_word(savepoint), restored_beside(checkpoint), _DRY_RUN)


def run_words(target: str, home: str | None, *more: str) -> tuple[str, ...]:
    """Return the arguments that start a job; empty if the job file does not exist."""
    from holdfast.jobs.loader import split_target

    if not split_target(target)[0].is_file():
        return ()
    return ("run", target, *more, *home_words(home))


def home_words(home: str | None) -> tuple[str, ...]:
    """Return the `--home` option for a next call; empty if none was given."""
    return () if home is None else ("--home", home)


def given_words(option: str, given: Sequence[str] | None) -> Iterator[str]:
    """Yield an option with each of its values: `--set`, `a=1`, `--set`, `b=2`."""
    for value in given or ():
        yield from (option, value)


def job_at(checkpoint: str, home: str | None) -> JobDetails | None:
    """Return the job whose only query uses a checkpoint, or None."""
    jobs = options.control(home)
    for status in jobs.jobs():
        details = jobs.details(status.job.name, batches=1)
        places = [query.checkpoint for query in details.queries] or [status.job.checkpoint]
        if places == [checkpoint]:
            return details
    return None


def key_word(key: Any) -> str:
    """Return a key as typed in a shell: its value if that is a single word, otherwise JSON."""
    values = list(key.values()) if isinstance(key, dict) else []
    if len(values) == 1 and isinstance(values[0], (str, int)) and not isinstance(values[0], bool):
        text = str(values[0])
        if text.isascii() and text.isalnum():
            return text
    return json_text.dumps(key, ensure_ascii=False)


def _runs(details: JobDetails) -> bool:
    return details.status.supervised and not details.status.job.state.terminal
