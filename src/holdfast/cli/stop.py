"""`holdfast stop` and `cancel`: end a job."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer.core import TyperCommand

from holdfast.cli import next_step, options, output
from holdfast.cli.arguments import JobName, savepoints_of, warn_of_label
from holdfast.cli.help_text import examples
from holdfast.cli.progress import progress
from holdfast.cli.savepoint_proof import INTERRUPTED, digest_taken, digests_later
from holdfast.cli.standard_streams import confirm
from holdfast.config.checks import place_word
from holdfast.errors import Conflict, HoldfastError, Invalid

if TYPE_CHECKING:
    from holdfast.jobs.registry.client import Control, JobStatus
    from holdfast.savepoints.taking import Taken


@contextmanager
def until_stopped() -> Iterator[threading.Event]:
    """The event is set by Ctrl-C or SIGTERM, so that work is finished; a second one ends it at once."""
    stopped = threading.Event()

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        if stopped.is_set():
            raise KeyboardInterrupt
        stopped.set()

    former = {number: signal.signal(number, on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stopped
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


Timeout = Annotated[
    float, typer.Option("--timeout", metavar="SECONDS", help="How long to wait for the job to end.")
]


_OPTION: Final = "--savepoint"
# What no shell can give.
_NO_DIRECTORY: Final = "\0"


class OptionalDirectory(TyperCommand):
    """Lets --savepoint stand without a directory, which an option of Typer cannot."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put in what represents no directory."""
        for place, word in enumerate(args):
            if word == _OPTION and (place + 1 == len(args) or args[place + 1].startswith("-")):
                args = [*args[:place], f"{_OPTION}={_NO_DIRECTORY}", *args[place + 1 :]]
        return super().parse_args(ctx, args)


@examples("visits", "visits --savepoint savepoints --label 'before the upgrade'")
def stop(
    job: JobName,
    savepoint: Annotated[
        str | None,
        typer.Option(
            _OPTION,
            metavar="[DIR]",
            help="Take a savepoint of its last batch into this directory; without one, where the job's last"
            " savepoint is, else into CHECKPOINT.savepoints.",
        ),
    ] = None,
    label: Annotated[
        str | None, typer.Option("--label", metavar="TEXT", help="A name for the savepoint.")
    ] = None,
    digest: Annotated[
        bool,
        typer.Option(
            "--digest/--no-digest",
            help="Whether to count and hash the savepoint's rows, or leave that pending.",
        ),
    ] = True,
    drop_expired: options.DropExpired = False,
    timeout: Timeout = 300.0,
    home: options.Home = None,
    dry_run: options.DryRun = False,
    json: options.Json = False,
) -> None:
    """Stop a job after the batch that runs. It can be run again and continues where it stopped.

    With --savepoint one of each of its queries is taken once it has ended, and the addresses are printed.
    Then their rows are counted and hashed; Ctrl-C leaves that pending for `holdfast savepoint digest`.
    """
    jobs = options.control(home)
    if savepoint is None and label is not None:
        raise Invalid("a label is that of a savepoint", hint="take one with --savepoint")
    if savepoint is None and drop_expired:
        raise Invalid("only a savepoint can leave out what has expired", hint="take one with --savepoint")
    checkpoints = {} if savepoint is None else _checkpoints(jobs, job)
    if savepoint == _NO_DIRECTORY:
        savepoint = savepoints_of(jobs.details(job, batches=1))
    if savepoint is not None:
        _could_be_taken(checkpoints, savepoint, label)
    status = jobs.running(job) if dry_run else jobs.stop(job, timeout)
    taken = (
        {}
        if savepoint is None or dry_run
        else _take(jobs, status, checkpoints, savepoint, label, drop_expired=drop_expired)
    )
    if not json and not dry_run:
        output.line(f"{status.job.name}: {status.job.state.value}")
        for made in taken.values():
            output.whole(made.uri)
        warn_of_label(label, *(made.uri for made in taken.values()))
    content, waited = _digest(taken, wanted=digest)
    if json:
        found = [
            {"query": query, **made.as_dict(), "content": content[query]} for query, made in taken.items()
        ]
        output.emit_json({"dry_run": dry_run, **status.as_dict(), "savepoints": found})
    elif dry_run:
        output.line(f"{status.job.name}: {status.job.state.value}, would stop after the batch that runs")
        for query, checkpoint in checkpoints.items():
            output.line(f"would take a savepoint of query {query}, {checkpoint}, into {savepoint}")
    if not waited:
        raise typer.Exit(INTERRUPTED)
    if dry_run:
        next_step.say_for_real(json)
    else:
        next_step.say_looked_up(json, lambda: _after_stop(status, taken, home))


def _after_stop(status: JobStatus, taken: dict[str, Taken], home: str | None) -> tuple[str, ...]:
    """The start that continues: where it stopped, or elsewhere from the savepoints."""
    if not taken:
        return next_step.run_words(status.job.target, home)
    uris = {query: next_step.typed(made.uri) for query, made in taken.items()}
    named = uris.values() if len(uris) == 1 else (f"{query}={uri}" for query, uri in uris.items())
    start = [*next_step.given_words("-s", list(named))]
    place = next_step.restored_beside(status.job.checkpoint)
    return next_step.run_words(status.job.target, home, *start, "--set", f"checkpoint.storage={place}")


def _digest(taken: dict[str, Taken], *, wanted: bool) -> tuple[dict[str, str], bool]:
    """Make the digests of the savepoints, at full speed since no query runs.

    Returns:
        Whether each has them, by query; and False if a person did not wait for all.
    """
    from holdfast.savepoints.catalog import PENDING, RECORDED

    content = {query: RECORDED if made.manifest.has_content else PENDING for query, made in taken.items()}
    try:
        for query, made in taken.items():
            if wanted and content[query] == PENDING:
                content[query] = digest_taken(made.uri, gentle=False)
    except KeyboardInterrupt:
        for query, made in taken.items():
            if content[query] == PENDING:
                output.insist(digests_later(made.uri))
        return content, False
    return content, True


def _checkpoints(jobs: Control, job: str) -> dict[str, str]:
    """The checkpoint of each query of a job that runs."""
    name = jobs.running(job).job.name
    queries = jobs.details(name, batches=1).queries
    if not queries:
        raise Conflict(
            f"job {name!r} has not started a query yet",
            found="no query to take a savepoint of",
            hint=f"see `holdfast status {name}`, and try again when it runs",
        )
    return {query.name: query.checkpoint for query in queries}


def _could_be_taken(checkpoints: dict[str, str], catalog: str, label: str | None) -> None:
    """Find out what is wrong with a directory or a label before the job has been stopped for nothing."""
    from holdfast.savepoints.catalog import ids
    from holdfast.savepoints.nesting import check_apart, check_catalog
    from holdfast.savepoints.taking import check_label
    from holdfast.storage import open_storage

    check_label(label)
    into = open_storage(catalog, "catalog")
    for checkpoint in checkpoints.values():
        check_apart(open_storage(checkpoint), into)
    check_catalog(into)
    ids(into)


def _take(
    jobs: Control,
    status: JobStatus,
    checkpoints: dict[str, str],
    catalog: str,
    label: str | None,
    *,
    drop_expired: bool,
) -> dict[str, Taken]:
    """Take a savepoint of each query of a job that has ended.

    Raises:
        Conflict: It has not ended well, so that it is unknown whether its last batch is over.
        HoldfastError: A savepoint could not be taken; the job has ended all the same.
    """
    from holdfast import savepoints

    if not status.job.state.terminal:
        raise Conflict(
            f"the supervisor of job {status.job.name!r} ended before the job did",
            found=status.job.state.value,
            hint="its driver stops by itself; then take it with `holdfast savepoint take`",
        )
    taken: dict[str, Taken] = {}
    with progress("savepoint", "files") as tell:
        for query, checkpoint in checkpoints.items():
            began = time.monotonic()
            try:
                taken[query] = savepoints.take(
                    checkpoint,
                    catalog,
                    label=label,
                    digest=False,
                    gentle=False,
                    drop_expired=drop_expired,
                    tell=tell,
                )
            except HoldfastError as error:
                for made in taken.values():
                    output.whole(made.uri)
                raise type(error)(
                    f"job {status.job.name!r} has ended, but no savepoint of query {query!r} was taken: "
                    f"{error.fact}",
                    where=error.where,
                    found=error.found,
                    expected=error.expected,
                    hint=error.hint
                    or "take it with"
                    f" `holdfast savepoint take {place_word(checkpoint)} {place_word(catalog)}`",
                ) from error
            with suppress(HoldfastError):  # it is there, whether the registry knows of it or not
                took_ms = int((time.monotonic() - began) * 1000)
                jobs.note_savepoint(status.job.name, query, taken[query], took_ms)
    return taken


@examples("visits --dry-run", "visits")
def cancel(
    job: JobName,
    timeout: Timeout = 60.0,
    yes: options.Yes = False,
    home: options.Home = None,
    dry_run: options.DryRun = False,
    json: options.Json = False,
) -> None:
    """End a job's driver at once. Its checkpoint stays unless the job says `on_cancel="delete"`."""
    jobs = options.control(home)
    status = jobs.running(job)
    deletes = status.job.on_cancel == "delete"
    fate = f"{'delete' if deletes else 'keep'} its checkpoint {status.job.checkpoint}"
    if not dry_run:
        if deletes and not yes:
            confirm(f"Cancel {status.job.name} and {fate}?")
        status = jobs.cancel(status.job.name, timeout)
    if json:
        output.emit_json({"dry_run": dry_run, "deletes_checkpoint": deletes, **status.as_dict()})
    elif dry_run:
        output.line(f"{status.job.name}: {status.job.state.value}, would be ended at once and {fate}")
    else:
        output.line(f"{status.job.name}: {status.job.state.value}")
    if dry_run:
        next_step.say_for_real(json)
    elif not deletes:
        next_step.say_looked_up(json, lambda: next_step.run_words(status.job.target, home))
