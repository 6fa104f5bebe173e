"""Arguments that several verbs share, and what a person means by them: a directory, a savepoint, or a job."""

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
    """The whole address of a savepoint that is named by a short id or a label; any other as it is.

    Raises:
        Invalid: Several savepoints are named like this.
        NotFound: No savepoint of the directory has the label.
    """
    from holdfast.savepoints.names import savepoint_address

    # Where it is only asked what could be typed next, nothing is looked up.
    return given if context.resilient_parsing else savepoint_address(given)


def whole_address_or_directory(context: typer.Context, given: str) -> str:
    """The same where a directory of savepoints may be named as well."""
    from holdfast.savepoints.names import savepoint_address

    return given if context.resilient_parsing else savepoint_address(given, or_directory=True)


def whole_address_or_none(context: typer.Context, given: str | None) -> str | None:
    """The same of what may be left out."""
    return None if given is None else whole_address(context, given)


def warn_of_label(label: str | None, *uris: str) -> None:
    """Print why a label that was given to savepoints does not name one of them as DIR@LABEL.

    Args:
        label: The label, if one was given.
        uris: The whole addresses of the savepoints, all in one directory.
    """
    from holdfast.savepoints.catalog import split_address
    from holdfast.savepoints.names import list_labels, unnameable
    from holdfast.storage import open_storage

    if label is None or not uris:
        return
    why = unnameable(label)
    if why is not None:
        output.say(f"note: {label!r} cannot name the savepoint as DIR@LABEL, since {why}; its id does")
        return
    address, savepoint_id = split_address(uris[-1])
    ids: list[str] = []
    with suppress(HoldfastError):  # the label is set; only the note is missing
        ids = [each.savepoint_id for each in list_labels(open_storage(address, "savepoint")).get(label, ())]
    others = [other for other in ids if other != savepoint_id]
    if others:
        more = f" and {len(others) - 1} more have" if len(others) > 1 else " has"
        output.say(
            f"note: savepoint {others[-1]}{more} the label {label!r} too, so DIR@LABEL names none of them;"
            " name this one by its id, or give it a label of its own with `holdfast savepoint label`"
        )


JobName = Annotated[str, typer.Argument(metavar="JOB", help="The job's name or id.")]
Checkpoint = Annotated[
    str, typer.Argument(metavar="CHECKPOINT|JOB", help="A checkpoint's path or URI, or a job's name.")
]
AtRest = Annotated[
    str,
    typer.Argument(
        metavar="CHECKPOINT|JOB|SP",
        help="A checkpoint that no query uses, or a job's, or a savepoint.",
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
        help="A savepoint: DIR/ID, of which the beginning is enough, or DIR@LABEL.",
        callback=whole_address,
    ),
]
Catalog = Annotated[
    str,
    typer.Argument(metavar="DIR|JOB", help="The directory of savepoints, a path or URI, or a job's."),
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
        help="The values with commas between them, column=value …, or JSON. A window is named by its start.",
    ),
]


def checkpoint_of(given: str, home: str | None, query: str | None = None) -> str:
    """The checkpoint's address, from itself or from the name of a job in the state home.

    What is written like a path or a URI is one, and so is what names a directory; anything else names a job.

    Args:
        given: What a person wrote.
        home: The state home.
        query: Which query of a job, where it has several.

    Raises:
        NotFound: There is neither a directory nor a job of this name, or the job has no such query.
        Invalid: The job has several queries, each with a checkpoint of its own, and none is named.
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
                found=", ".join(checkpoints),
                hint=f"name one of them, or see them with `holdfast status {details.status.job.name}`",
            )
        return checkpoints[query]
    if len(checkpoints) > 1:
        raise Invalid(
            f"job {details.status.job.name!r} has {len(checkpoints)} queries with a checkpoint each",
            code="HF-E2115",
            found=", ".join(checkpoints),
            expected="the checkpoint of one of them",
            hint=f"name one of {', '.join(checkpoints.values())}",
        )
    return next(iter(checkpoints.values()), details.status.job.checkpoint)


def checkpoints_of(given: str, home: str | None) -> list[str]:
    """Return the checkpoints of all queries of a job; otherwise as `checkpoint_of`.

    Raises:
        NotFound: As `checkpoint_of`.
    """
    if is_address(given):
        return [given]
    details = job_details(given, home)
    return [query.checkpoint for query in details.queries] or [details.status.job.checkpoint]


def catalog_of(given: str, home: str | None) -> str:
    """The directory of savepoints, from itself or from the name of a job whose savepoints go there.

    Raises:
        NotFound: There is neither a directory nor a job of this name.
        Invalid: Nobody has said where the job's savepoints go.
    """
    return given if is_address(given) else job_details(given, home).require_savepoint_directory()


def catalog_for(given: str, home: str | None) -> str:
    """Return the default catalog for savepoints of a checkpoint or a job.

    Raises:
        NotFound: There is neither a directory nor a job of this name.
        Invalid: A checkpoint that is a whole bucket has nothing beside it.
    """
    from holdfast.layout import SAVEPOINTS_BESIDE, beside
    from holdfast.storage import open_storage

    if not is_address(given):
        return job_details(given, home).require_savepoint_directory()
    uri = open_storage(given).uri
    place = beside(uri, SAVEPOINTS_BESIDE)
    if place is None:
        raise Invalid(
            "a savepoint of this checkpoint needs a directory",
            code="HF-E2116",
            found=f"none, and {uri} has nothing beside it",
            hint="name the directory behind the checkpoint",
        )
    return place


def place_of(given: str, home: str | None) -> str:
    """The address of a savepoint or of a checkpoint, with the `@BATCH` that was given.

    Raises:
        NotFound: There is neither a directory nor a job of this name.
        Invalid: The job has several queries, each with a checkpoint of its own.
    """
    place = without_batch(given)
    return checkpoint_of(place, home) + given[len(place) :]


def without_batch(given: str) -> str:
    """Return the argument without a trailing `@BATCH`."""
    place, at, batch = given.rpartition("@")
    return place if at and batch.isascii() and batch.isdigit() else given


def is_address(given: str) -> bool:
    """Return whether this is a path, a URI, or an existing directory; otherwise it names a job."""
    return "/" in given or ":" in given or "\\" in given or Path(given).is_dir()


def job_details(given: str, home: str | None) -> JobDetails:
    """Return the state home's data on a job.

    Raises:
        NotFound: The job does not exist, and no directory either.
    """
    try:
        return options.control(home).details(given)
    except NotFound as error:
        raise NotFound(
            f"there is neither a directory nor a job {given!r}",
            code="HF-E3024",
            where=error.where,
            found=error.found,
            hint="see the jobs with `holdfast list`; write a path with a slash in it, such as ./checkpoint",
        ) from error
