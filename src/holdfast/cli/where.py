"""What a person means by the address of a checkpoint: a directory, or a job."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.cli import options
from holdfast.errors import Invalid, NotFound

if TYPE_CHECKING:
    from holdfast.jobs.registry.client import JobDetails


def checkpoint_of(given: str, home: str | None) -> str:
    """The checkpoint's address, from itself or from the name of a job in the state home.

    What is written like a path or a URI is one, and so is what names a directory; anything else names a job.

    Raises:
        NotFound: There is neither a directory nor a job of this name.
        Invalid: The job has several queries, each with a checkpoint of its own.
    """
    if "/" in given or ":" in given or "\\" in given or Path(given).is_dir():
        return given
    try:
        details = options.control(home).details(given)
    except NotFound as error:
        raise NotFound(
            f"there is neither a directory nor a job {given!r}",
            where=error.where,
            found=error.found,
            hint="see the jobs with `holdfast list`; write a path with a slash in it, such as ./checkpoint",
        ) from error
    return _of_job(details)


def place_of(given: str, home: str | None) -> str:
    """The address of a savepoint or of a checkpoint, with the `@BATCH` that was given.

    Raises:
        NotFound: There is neither a directory nor a job of this name.
        Invalid: The job has several queries, each with a checkpoint of its own.
    """
    place, at, batch = given.rpartition("@")
    if at and batch.isascii() and batch.isdigit():
        return f"{checkpoint_of(place, home)}@{batch}"
    return checkpoint_of(given, home)


def _of_job(details: JobDetails) -> str:
    checkpoints = [query.checkpoint for query in details.queries]
    if len(checkpoints) > 1:
        raise Invalid(
            f"job {details.status.job.name!r} has {len(checkpoints)} queries with a checkpoint each",
            found=", ".join(query.name for query in details.queries),
            expected="the checkpoint of one of them",
            hint=f"name one of {', '.join(checkpoints)}",
        )
    return checkpoints[0] if checkpoints else details.status.job.checkpoint
