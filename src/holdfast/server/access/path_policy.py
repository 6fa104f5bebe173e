"""The directories that requests may use: those of jobs, and those that the operator allows."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from holdfast.config.checks import canonical_uri, parse_storage
from holdfast.errors import Invalid
from holdfast.jobs.registry.client import JobDetails
from holdfast.layout import SAVEPOINTS_BESIDE, beside
from holdfast.model import JobKind
from holdfast.savepoints.address import StateAddress
from holdfast.server.control_plane import ControlPlane

_BESIDE: Final = re.compile(r"(\.savepoints|-fork|-restored)([.-][^/]*)?(/|$)")
# The maximum number of allowed directories shown in an error.
_SHOWN: Final = 4


def resolve(plane: ControlPlane, address: str, setting: str) -> str:
    """Return the canonical URI of a directory in a request.

    Symbolic links are resolved before the check, so that none leads outside the allowed directories.

    Raises:
        Invalid: The address is invalid, not absolute, or not allowed.
    """
    text = parse_storage(address, setting)
    remote = ":" in text.partition("/")[0]
    if not remote and not text.startswith("/"):
        raise Invalid(
            "the directory in a request must be absolute",
            code="HF-E2261",
            where=setting,
            found=address[:200],
            expected="a path that starts with /, or a URI",
            hint="give the full path or the URI of the directory",
        )
    if remote and ".." in text.split("/"):
        raise Invalid(
            "the address of the directory contains `..`",
            code="HF-E2262",
            where=setting,
            found=address[:200],
            expected="an address without `..`",
            hint="give the resolved address of the directory",
        )
    uri = canonical_uri(text, Path("/"))
    if not _allowed(plane, uri):
        raise Invalid(
            "the directory is not allowed for requests to this server",
            code="HF-E2263",
            where=setting,
            found=address[:200],
            expected=_what_may_be_named(plane),
            hint="give an allowed directory or none, or start `holdfast run` or `holdfast serve`"
            f" with `--root {shlex.quote(address[:200])}`",
        )
    return uri


def _what_may_be_named(plane: ControlPlane) -> str:
    """Return the allowed directories as text, for the error about a refused directory."""
    proposed = (beside(status.job.checkpoint, SAVEPOINTS_BESIDE) for status in plane.jobs())
    places = list(dict.fromkeys([*(place for place in proposed if place is not None), *roots(plane)]))
    told = [place.removeprefix("file://") for place in places[:_SHOWN]]
    more = f", or one of {len(places) - _SHOWN} others" if len(places) > _SHOWN else ""
    return f"a directory at or below {' or '.join(told)}{more}"


def savepoint(plane: ControlPlane, address: str, setting: str) -> str:
    """Return the full address of a savepoint that a request names by address, id or label.

    Directories that are not allowed are not read.

    Raises:
        Invalid: The address is invalid, not allowed, or matches several savepoints.
        NotFound: No savepoint of the directory has the label.
    """
    found = _find_savepoint(plane, StateAddress.parse(address), setting)
    uri = resolve(plane, address if found is None else found.text, setting)
    return StateAddress.parse(uri.removesuffix("/_metadata")).uri


def state(plane: ControlPlane, address: str, setting: str) -> str:
    """Return the address of a savepoint, or of a checkpoint with the suffix `@BATCH`.

    Raises:
        Invalid: The address is invalid, not allowed, or matches several savepoints.
        NotFound: No savepoint of the directory has the label.
    """
    parsed = StateAddress.parse(address)
    found = parsed if parsed.is_savepoint else _find_savepoint(plane, parsed, setting)
    if found is not None:
        return savepoint(plane, found.text, setting)
    if parsed.batch is not None:
        return f"{resolve(plane, parsed.directory, setting)}@{parsed.batch}"
    uri = resolve(plane, address, setting)
    # A trailing slash marks a directory, whose name may contain an @.
    return f"{uri}/" if StateAddress.parse(uri).is_partial else uri


def _find_savepoint(plane: ControlPlane, address: StateAddress, setting: str) -> StateAddress | None:
    """Return the full address of a savepoint given by label or by the start of its id; otherwise None."""
    if not address.is_partial:
        return None
    try:
        catalog = resolve(plane, address.directory, setting)
    except Invalid:  # if the whole address may be used, its @ does not start a label
        return None
    return replace(address, directory=catalog).find()


def new_checkpoint(plane: ControlPlane, address: str, setting: str) -> str:
    """Return the address of a new checkpoint, after checking that it does not overlap with those of jobs.

    Raises:
        Invalid: The address overlaps with a job's checkpoint, or is not allowed.
    """
    uri = resolve(plane, address, setting)
    for used in _checkpoints(plane):
        if within(uri, used) or within(used, uri):
            raise Invalid(
                "the new checkpoint is inside or above the checkpoint of a job",
                code="HF-E2264",
                where=setting,
                found=uri,
                expected=f"a directory neither inside nor above {used}",
                hint="give a directory next to the checkpoint of the job",
            )
    return f"{uri}/" if StateAddress.parse(uri).is_partial else uri


def catalog_of(plane: ControlPlane, details: JobDetails, directory: str | None, setting: str) -> str:
    """Return the catalog for a job's savepoint: that of the request, the server or the job's settings.

    Raises:
        Invalid: No catalog is known, or the catalog is not allowed.
    """
    if directory is not None:
        return resolve(plane, directory, setting)
    known = plane.settings.savepoints or details.savepoint_directory
    job = details.status.job
    if known is None and job.kind is JobKind.CHECKPOINT:
        raise Invalid(
            "no default directory for savepoints of a query that is known from its checkpoint alone",
            code="HF-E2535",
            where=setting,
            found=f"the checkpoint {job.checkpoint}",
            hint="give a directory for the savepoint, or start the server with `--savepoint-dir DIR`",
        )
    if known is None:
        raise Invalid(
            "no default savepoint directory for this job",
            code="HF-E2237",
            where=setting,
            found=f"the checkpoint {details.status.job.checkpoint}, which is the root of a bucket",
            hint="start the server with `--savepoint-dir DIR`, or give a directory below a `--root DIR`",
        )
    return known


def roots(plane: ControlPlane) -> Iterator[str]:
    """Yield the addresses below which a request may use directories.

    A checkpoint's parent directory is not included: it may be a home directory.
    """
    yield from plane.settings.roots
    if plane.settings.savepoints is not None:
        yield plane.settings.savepoints
    yield f"file://{plane.home.path / 'savepoints'}"
    for status in plane.jobs():
        yield status.job.checkpoint
        if status.job.savepoint_catalog is not None:
            yield status.job.savepoint_catalog
        yield from plane.brief(status.job.name).catalogs


def _allowed(plane: ControlPlane, uri: str) -> bool:
    if any(within(uri, root) for root in roots(plane)):
        return True
    return any(_belongs(uri, status.job.checkpoint.rstrip("/")) for status in plane.jobs())


def _belongs(uri: str, checkpoint: str) -> bool:
    """Return whether a path is next to a checkpoint and its name starts with the checkpoint's name."""
    if not uri.startswith(checkpoint) or beside(checkpoint, "") is None:
        return False
    return _BESIDE.match(uri, len(checkpoint)) is not None


def within(uri: str, root: str) -> bool:
    """Return whether an address equals a root or is below it."""
    return uri == root or uri.startswith(f"{root.rstrip('/')}/")


def _checkpoints(plane: ControlPlane) -> Iterator[str]:
    for status in plane.jobs():
        yield status.job.checkpoint
        for query in plane.brief(status.job.name).queries:
            yield query.checkpoint
