"""Arguments that several verbs share, and their resolution to directories, savepoints and jobs."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli import options, output
from holdfast.errors import HoldfastError, Invalid, NotFound

if TYPE_CHECKING:
    from holdfast.jobs.registry.client import JobDetails


def whole_address(context: typer.Context, given: str) -> str:
    """Return the full address of a savepoint given by a short id or a label; any other text unchanged.

    Raises:
        Invalid: Several savepoints match.
        NotFound: No savepoint of the directory has the label.
    """
    from holdfast.savepoints.address import StateAddress

    # Completion makes no lookups.
    return given if context.resilient_parsing else StateAddress.resolve(given).text


def whole_address_or_directory(context: typer.Context, given: str) -> str:
    """Return the address of a savepoint as `whole_address` does, or a directory of savepoints unchanged."""
    from holdfast.savepoints.address import StateAddress

    return given if context.resilient_parsing else StateAddress.resolve(given, or_directory=True).text


def whole_address_or_none(context: typer.Context, given: str | None) -> str | None:
    """Return the full address of a savepoint as `whole_address` does; None for None."""
    return None if given is None else whole_address(context, given)


def warn_of_label(label: str | None, *uris: str) -> None:
    """Print a note if DIR@LABEL cannot address the newest of these savepoints.

    Args:
        label: The label, if one was given.
        uris: The full addresses of the savepoints, all in one directory.
    """
    from holdfast.savepoints.address import StateAddress, list_labels, unnameable

    if label is None or not uris:
        return
    why = unnameable(label)
    if why is not None:
        output.say(f"note: DIR@LABEL cannot address label {label!r}, because {why}; use the savepoint's id")
        return
    catalog, savepoint_id = StateAddress.parse(uris[-1]).open_savepoint()
    ids: list[str] = []
    with suppress(HoldfastError):  # the label is set; only the note is missing
        ids = [each.savepoint_id for each in list_labels(catalog).get(label, ())]
    others = [other for other in ids if other != savepoint_id]
    if others:
        more = f" and {len(others) - 1} more have" if len(others) > 1 else " has"
        output.say(
            f"note: savepoint {others[-1]}{more} the label {label!r} too, so DIR@LABEL is ambiguous;"
            " use this savepoint's id, or give it a unique label with `holdfast savepoint label`"
        )


JobName = Annotated[str, typer.Argument(metavar="JOB", help="The job's name or id.")]
Checkpoint = Annotated[
    str, typer.Argument(metavar="CHECKPOINT|JOB", help="A checkpoint's path or URI, or a job's name.")
]
AtRest = Annotated[
    str,
    typer.Argument(
        metavar="CHECKPOINT|JOB|SP",
        help="A checkpoint that no query uses, a job, or a savepoint.",
        callback=whole_address,
    ),
]
Place = Annotated[
    str,
    typer.Argument(
        metavar="CHECKPOINT|JOB|SP",
        help="A checkpoint, a job, or a savepoint; append @BATCH for an older batch.",
        callback=whole_address,
    ),
]
Savepoint = Annotated[
    str,
    typer.Argument(
        metavar="SP",
        help="A savepoint: DIR/ID (the start of the id is enough), or DIR@LABEL.",
        callback=whole_address,
    ),
]
Catalog = Annotated[
    str,
    typer.Argument(metavar="DIR|JOB", help="A directory of savepoints, as path or URI, or a job's name."),
]
NewCheckpoint = Annotated[str, typer.Argument(metavar="CHECKPOINT", help="A new directory, as path or URI.")]
State = Annotated[
    str | None,
    typer.Argument(
        metavar="[STATE]",
        help="STATE, OPERATOR.STATE, or an operator with one state. Optional if there is only one.",
    ),
]
Key = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="KEY",
        help="The values separated by commas, column=value …, or JSON. A window is given by its start.",
    ),
]


def checkpoint_of(given: str, home: str | None, query: str | None = None) -> str:
    """Return the address of a checkpoint given by its address or by the name of a job in the state home.

    A text with the form of a path or a URI is an address, and so is the name of an existing directory; any
    other text is a job's name.

    Args:
        given: The argument as typed.
        home: The state home.
        query: The query, if the job has several.

    Raises:
        NotFound: No directory or job has this name, or the job has no such query.
        Invalid: The job has several queries, each with its own checkpoint, and `query` is None.
    """
    if is_address(given):
        return given
    details = job_details(given, home)
    checkpoints = {named.name: named.checkpoint for named in details.queries}
    if query is not None and checkpoints:
        if query not in checkpoints:
            raise NotFound(
                f"job {details.status.job.name!r} has no query {query!r}",
                code="HF-E3023",
                expected=", ".join(checkpoints),
                hint=f"list the job's queries with `holdfast status {details.status.job.name}`",
            )
        return checkpoints[query]
    if len(checkpoints) > 1:
        raise Invalid(
            f"job {details.status.job.name!r} does not identify one checkpoint, because it has"
            f" {len(checkpoints)} queries",
            code="HF-E2115",
            found=", ".join(checkpoints),
            hint=f"give the checkpoint of one query: {' or '.join(checkpoints.values())}",
        )
    return next(iter(checkpoints.values()), details.status.job.checkpoint)


def checkpoints_of(given: str, home: str | None) -> list[str]:
    """Return the checkpoints of all queries of a job, or the one checkpoint that is given.

    Raises:
        NotFound: No directory or job has this name.
    """
    if is_address(given):
        return [given]
    details = job_details(given, home)
    return [query.checkpoint for query in details.queries] or [details.status.job.checkpoint]


def catalog_of(given: str, home: str | None) -> str:
    """Return a directory of savepoints given by its address or by the name of a job.

    Raises:
        NotFound: No directory or job has this name.
        Invalid: The job has no savepoint directory.
    """
    return given if is_address(given) else job_details(given, home).require_savepoint_directory()


def catalog_for(given: str, home: str | None) -> str:
    """Return the default catalog for savepoints of a checkpoint or a job.

    Raises:
        NotFound: No directory or job has this name.
        Invalid: The checkpoint is the root of a bucket or disk, so no directory can be next to it.
    """
    from holdfast.layout import SAVEPOINTS_BESIDE, beside
    from holdfast.storage import open_storage

    if not is_address(given):
        return job_details(given, home).require_savepoint_directory()
    uri = open_storage(given).uri
    place = beside(uri, SAVEPOINTS_BESIDE)
    if place is None:
        raise Invalid(
            (
                "no directory given for savepoints, and a checkpoint at the root of a bucket or disk"
                " has no default"
            ),
            code="HF-E2116",
            where=uri,
            hint="give the directory for savepoints after the checkpoint",
        )
    return place


def place_of(given: str, home: str | None) -> str:
    """Return the address of a savepoint or a checkpoint, including `@BATCH` if given.

    Raises:
        NotFound: No directory or job has this name.
        Invalid: The job has several queries, each with its own checkpoint.
    """
    place = without_batch(given)
    return checkpoint_of(place, home) + given[len(place) :]


def without_batch(given: str) -> str:
    """Return the argument without a trailing `@BATCH`."""
    place, at, batch = given.rpartition("@")
    return place if at and batch.isascii() and batch.isdigit() else given


def is_address(given: str) -> bool:
    """Return True for a path, a URI or an existing directory; any other text is a job's name."""
    return "/" in given or ":" in given or "\\" in given or Path(given).is_dir()


def job_details(given: str, home: str | None) -> JobDetails:
    """Return the details of a job from the state home.

    Raises:
        NotFound: No job has this name.
    """
    try:
        return options.control(home).details(given)
    except NotFound as error:
        raise NotFound(
            f"no directory or job is named {given!r}",
            code="HF-E3024",
            where=error.where,
            found=error.found,
            hint="list the jobs with `holdfast list`; write a path with a slash, such as ./checkpoint",
        ) from error
