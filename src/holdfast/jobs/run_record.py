"""The record of a job's last run: its settings, its working directory, and a copy of its job file.

The supervisor writes the record when it accepts a driver. The job file at its path may be a newer one by then
or later; the copy has the code that ran, so an upgrade can return to it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast.config.settings import make_directory
from holdfast.errors import Corrupt
from holdfast.jobs.launching import Launch
from holdfast.jobs.loader import split_target
from holdfast.jobs.state_home import StateHome
from holdfast.plain_values import from_known
from holdfast.storage.local import LocalStorage

if TYPE_CHECKING:
    from holdfast.jobs.processes.driver import DriverSpec

_FILE: Final = "run.json"
_WHAT: Final = "the record of a job's last run"
_COPIES: Final = "code"
_COPIES_KEPT: Final = 10


@dataclass(frozen=True, slots=True)
class RunRecord:
    """The settings of a job's last run.

    Attributes:
        target: The job file as an absolute path, and the job in it.
        directory: The working directory.
        digest: The SHA-256 of the job file.
        overrides: Settings and parameters of the job.
        conf: Spark settings.
        master: The Spark master.
        standby: True if a second driver was kept ready.
        fallback: The fallback for a damaged checkpoint, if set for the run.
    """

    target: str
    directory: str
    digest: str
    overrides: Mapping[str, str] = field(default_factory=dict)
    conf: Mapping[str, str] = field(default_factory=dict)
    master: str | None = None
    standby: bool = False
    fallback: str | None = None

    def launch(self, target: str | None = None) -> Launch:
        """Return the start of the same job file, or of a different one with the same settings."""
        return Launch(
            target or self.target,
            self.overrides,
            self.conf,
            master=self.master,
            standby=self.standby,
            fallback=self.fallback,
            directory=Path(self.directory),
        )


def digest_of(target: str) -> str | None:
    """Return the SHA-256 of a job file, or None if it cannot be read."""
    try:
        return hashlib.sha256(split_target(target)[0].read_bytes()).hexdigest()
    except OSError:
        return None


def absolute_target(target: str, directory: Path) -> str:
    """Return a target with the absolute path of its file."""
    path, name = split_target(target)
    return str(directory / path) + ("" if name is None else f":{name}")


def note_run(home: StateHome, job: str, spec: DriverSpec) -> None:
    """Record how this process runs a job, with a copy of the job file.

    Raises:
        OSError: The job file cannot be read, or the state home cannot be written.
        HoldfastError: The state home cannot be written.
    """
    directory = Path.cwd()
    target = absolute_target(spec.target, directory)
    path, _ = split_target(target)
    code = path.read_bytes()
    record = RunRecord(
        target,
        str(directory),
        hashlib.sha256(code).hexdigest(),
        spec.overrides,
        spec.conf,
        spec.master,
        spec.standby,
        spec.fallback,
    )
    folder = home.job(job)
    make_directory(folder)
    storage = LocalStorage(folder)
    storage.write(f"{_COPIES}/{record.digest[:16]}/{path.name}", code, replace=True)
    home.write_json(job, _FILE, record)
    _delete_old_copies(folder / _COPIES, record.digest[:16])


def _delete_old_copies(folder: Path, newest: str) -> None:
    with suppress(OSError):
        os.utime(folder / newest)
        copies = sorted(folder.iterdir(), key=lambda copy: copy.stat().st_mtime)
        for copy in copies[:-_COPIES_KEPT]:
            shutil.rmtree(copy, ignore_errors=True)


def last_run(home: StateHome, job: str) -> RunRecord | None:
    """Return the record of a job's last run; None if it was never run, or only by an earlier release.

    Raises:
        Corrupt: The record is damaged.
    """
    fields = home.read_json(job, _FILE, _WHAT)
    if fields is None:
        return None
    try:
        return from_known(RunRecord, fields)
    except (TypeError, ValueError, AttributeError) as error:
        raise Corrupt(
            "the record of a job's last run is damaged",
            code="HF-E6062",
            where=str(home.job(job) / _FILE),
            found=str(error),
            hint="delete the file, stop the job and run it again",
        ) from error


def runnable_target(home: StateHome, job: str, record: RunRecord) -> str:
    """Return a target with the code of a run: its job file, or a copy if the file has changed since.

    A copy is put among links to the files next to the job file, which it may import or read.

    Raises:
        OSError: There is no copy, or the links cannot be created.
    """
    if digest_of(record.target) == record.digest:
        return record.target
    path, name = split_target(record.target)
    copy = home.job(job) / _COPIES / record.digest[:16] / path.name
    copy.open("rb").close()
    for file in path.parent.iterdir():
        if file.name not in (path.name, "__pycache__"):
            with suppress(FileExistsError):
                (copy.parent / file.name).symlink_to(file)
    return str(copy) + ("" if name is None else f":{name}")
