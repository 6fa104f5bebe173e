"""Where state is: in a checkpoint at a batch, or in a savepoint."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from holdfast.config.locations import local_path
from holdfast.errors import Invalid, Unavailable
from holdfast.external.view import open_checkpoint
from holdfast.savepoints.catalog import catalog as catalogs
from holdfast.savepoints.catalog.savepoint_names import savepoint_address
from holdfast.savepoints.view import SavepointView
from holdfast.storage import open_storage
from holdfast.storage.port import Storage
from holdfast.storage.sandbox import sandbox


@dataclass(frozen=True, slots=True)
class Place:
    """What an address means.

    Attributes:
        storage: A checkpoint, or a savepoint's view.
        batch_id: The batch; None for the newest of a checkpoint.
        name: The address, as messages show it.
        is_savepoint: Whether it is a savepoint.
    """

    storage: Storage
    batch_id: int | None
    name: str
    is_savepoint: bool = False


def place_of(address: str | os.PathLike[str], batch: int | None = None) -> Place:
    """The place of a savepoint's address, or of a checkpoint's with `@BATCH` behind it for another batch.

    Args:
        address: The address.
        batch: The batch, where the address does not name one.

    Raises:
        NotFound: There is no such savepoint. A checkpoint is not looked at.
        Corrupt: Its manifest is damaged.
        Invalid: The address cannot be one, or names another batch or several savepoints.
    """
    text = savepoint_address(os.fspath(address))
    if catalogs.is_savepoint(text):
        catalog_uri, savepoint_id = catalogs.split_address(text)
        catalog = open_storage(catalog_uri, "savepoint")
        manifest = catalogs.load(catalog, savepoint_id)
        uri = catalogs.savepoint_uri(catalog, savepoint_id)
        if batch not in (None, manifest.batch_id):
            raise Invalid(
                "a savepoint holds one batch",
                where=uri,
                found=f"batch {batch}",
                expected=str(manifest.batch_id),
                hint="leave the batch out, or name a savepoint of that batch",
            )
        return Place(SavepointView(catalog, manifest.files, uri), manifest.batch_id, uri, is_savepoint=True)
    base, at, number = text.rpartition("@")
    if at and number.isascii() and number.isdigit():
        if batch not in (None, int(number)):
            raise Invalid(
                "two batches are named", found=f"{text} and batch {batch}", hint="leave one of the two out"
            )
        text, batch = base, int(number)
    storage = open_checkpoint(text)
    return Place(storage, batch, storage.uri if batch is None else f"{storage.uri}@{batch}")


def workplace(target: Storage, purpose: str) -> AbstractContextManager[Path]:
    """A directory to work on what is to become a checkpoint or savepoint: on its disk if that is local.

    Args:
        target: A checkpoint or a catalog.
        purpose: What it is for: a part of its name.
    """
    local = local_path(target.uri)
    folder = Path(tempfile.gettempdir()) if local is None else local.parent
    return sandbox(folder, purpose, os.urandom(8).hex())


@contextmanager
def scratch(target: Storage) -> Iterator[Path]:
    """A directory for what is only looked at, and kept by nobody.

    It is beside the checkpoint, so that files of state are linked and not copied; among the temporary files
    where nothing may be written there.

    Args:
        target: A checkpoint.
    """
    with ExitStack() as stack:
        try:
            folder = stack.enter_context(workplace(target, "plan"))
        except Unavailable:
            elsewhere = sandbox(Path(tempfile.gettempdir()), "plan", os.urandom(8).hex())
            folder = stack.enter_context(elsewhere)
        yield folder
