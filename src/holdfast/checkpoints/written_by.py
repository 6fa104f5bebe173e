"""Which Spark has written a checkpoint, as far as its files and Holdfast's own notes tell.

Spark notes its version nowhere in a checkpoint. Each batch of the offset log has the settings that the query
is fixed to, though, and newer Sparks fix more of them. A lower Spark passes over those that it does not know,
and may fail at the state that was written with them, or read it as something else.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast import layout
from holdfast.checkpoints.logs.logs import Logs
from holdfast.checkpoints.pinned_settings import PINNED
from holdfast.checkpoints.problems import no_checkpoint
from holdfast.checkpoints.record import find_record
from holdfast.engine.session.known_settings import InstalledSpark
from holdfast.engine.versions import minor
from holdfast.errors import Corrupt, NotFound, Unsupported
from holdfast.formats.savepoint.manifest import Manifest
from holdfast.json_shapes import JsonShape, in_json
from holdfast.storage import open_storage
from holdfast.storage.port import Storage

# Releases before it are not told apart here: their patch releases have pinned settings of later ones.
_OLDEST_TOLD: Final = "4.0"


@dataclass(frozen=True, slots=True)
class Writer(JsonShape):
    """Which Spark has written a checkpoint or savepoint.

    Attributes:
        checkpoint: Its address.
        batch_id: The newest batch that was planned; None before the first.
        noted: The version that Holdfast has noted while it watched the query; None where it has noted none.
        at_least: The lowest version that fixes these settings; None where they tell of none.
        unknown_settings: The settings it is fixed to that the installed Spark does not know.
        installed: The version of the installed Spark; None where there is none.
    """

    checkpoint: str
    batch_id: int | None
    noted: str | None
    at_least: str | None
    unknown_settings: tuple[str, ...]
    installed: str | None

    @property
    @in_json
    def newer(self) -> bool:
        """Whether that Spark is newer than the installed one, which then must not go on."""
        if self.installed is None:
            return False
        noted = self.noted is not None and minor(self.noted) > minor(self.installed)
        return noted or bool(self.unknown_settings)

    @property
    def text(self) -> str:
        """Which Spark, in words."""
        if self.noted is not None:
            return f"Spark {self.noted}, as Holdfast has noted"
        if self.at_least is None:
            return "the Spark that wrote it is not recorded"
        return f"Spark {self.at_least} or newer, by the settings it is fixed to; which one is not recorded"

    @property
    def remedy(self) -> str:
        """What to do where it is newer."""
        wanted = self.noted or self.at_least
        if wanted is None or self.installed is None or minor(wanted) <= minor(self.installed):
            return "install the Spark that wrote it, or a newer one"
        return "pip install 'pyspark~={}.{}.0', or a newer one".format(*minor(wanted))

    def refuse_newer(self) -> None:
        """Refuse to go on with a lower Spark.

        Raises:
            Unsupported: The Spark that wrote it is newer than the installed one.
        """
        if self.newer:
            settings = ", ".join(self.unknown_settings)
            raise Unsupported(
                "a newer Spark wrote this than the one that is installed, which may not read its state",
                where=self.checkpoint,
                found=self.text + (f"; Spark {self.installed} does not know {settings}" if settings else ""),
                expected=f"Spark {self.installed} or older",
                hint=self.remedy,
            )


def at_least(settings: Iterable[str]) -> str | None:
    """The lowest Spark that fixes a checkpoint to these settings; None where they tell of none."""
    names = frozenset(settings)
    told = [setting.since for setting in PINNED if setting.name in names]
    return max((since for since in told if minor(since) >= minor(_OLDEST_TOLD)), key=minor, default=None)


def writer_of(storage: Storage, home: Path, spark: InstalledSpark) -> Writer:
    """Which Spark has written a checkpoint.

    Cost: the listing of the logs, the newest file of the offset log, and the record of good batches.

    Args:
        storage: The checkpoint.
        home: The state home with Holdfast's own notes.
        spark: The installed Spark.

    Raises:
        NotFound: There is no checkpoint.
        Corrupt: The offset log is damaged.
        Unavailable: The storage does not answer.
    """
    logs = Logs(storage)
    if not logs.offered and storage.size(layout.METADATA) is None:
        raise no_checkpoint(storage)
    newest = logs.offered[-1] if logs.offered else None
    offsets = None if newest is None else logs.offsets(newest)
    confs: Mapping[str, str] = {} if offsets is None else offsets.confs
    record, _ = find_record(home, storage)
    noted = None if record is None else record.spark
    return Writer(storage.uri, newest, noted, at_least(confs), spark.unknown(confs), spark.version)


def savepoint_writer(address: str, manifest: Manifest, spark: InstalledSpark) -> Writer:
    """Which Spark has written a savepoint; the settings are in its manifest, whoever took it."""
    found = manifest.fields.get("confs")
    confs = found if isinstance(found, dict) else {}
    return Writer(address, manifest.batch_id, None, at_least(confs), spark.unknown(confs), spark.version)


def refuse_newer(checkpoints: Iterable[str], home: Path) -> None:
    """Refuse to start a query of these checkpoints with a lower Spark than the one that wrote them.

    Checkpoints that are not there yet, or whose logs cannot be read, are for others to judge.

    Args:
        checkpoints: The addresses; those of several queries of a job may be below one.
        home: The state home.

    Raises:
        Unsupported: A newer Spark has written one of them.
        Unavailable: The storage does not answer.
    """
    spark = InstalledSpark.here(os.environ)
    for address in dict.fromkeys(checkpoints):
        for storage in checkpoints_at(address):
            with suppress(NotFound, Corrupt):
                writer_of(storage, home, spark).refuse_newer()


def checkpoints_at(address: str) -> Iterator[Storage]:
    """The checkpoint at an address, or those of a job's queries directly below it."""
    storage = open_storage(address)
    if storage.size(layout.METADATA) is not None:
        yield storage
        return
    for name in sorted(storage.list().names):
        if storage.size(f"{name}/{layout.METADATA}") is not None:
            yield open_storage(f"{storage.uri}/{name}")
