"""A directory in which the examples of verbs hold: a checkpoint, savepoints, job files, a state home."""

from __future__ import annotations

import dataclasses
import datetime as dt
import time
from contextlib import AbstractContextManager
from pathlib import Path
from unittest.mock import patch

from shown_commands import FILE
from written_state import BATCH, JOB, QUERY

from golden import KAFKA, files_on_disk, files_read_from, kafka_files
from holdfast import savepoints
from holdfast.changes.edit_api import edit
from holdfast.jobs.registry.registry import Registry, job_id
from holdfast.jobs.state_home import StateHome

README = Path(__file__).resolve().parents[2] / "README.md"
HOME = ".holdfast"
# The savepoints of the examples: one of the checkpoint, and an edit of it.
TAKEN = dt.datetime(2026, 3, 5, 8, tzinfo=dt.timezone.utc)
EDITED = dt.datetime(2026, 3, 6, 8, tzinfo=dt.timezone.utc)


def make_place(folder: Path) -> None:
    """Make all of it."""
    checkpoint = files_on_disk(files_read_from("visits", "file:///in"), folder / "checkpoints" / "visits")
    files_on_disk(kafka_files("visits"), folder / "checkpoints" / "orders")
    # What Kafka's tool prints, and records that two clusters have.
    (folder / "offsets.txt").write_text("orders:0:12\norders:1:20\n", encoding="utf-8")
    pairs = [
        f"{topic},{at},0,dc2.{topic},{at},0\n" for topic, partitions in KAFKA.items() for at in partitions
    ]
    (folder / "offsets.csv").write_text("".join(pairs), encoding="utf-8")
    with clock_at(TAKEN):
        taken = savepoints.take(checkpoint, folder / "savepoints", batch=1)
    with clock_at(EDITED):
        edit(taken.uri, "aggregate", set={"count": 9}, key="customer=bob", why="counted twice", who="ann")
    (folder / "visits.py").write_text(job_of_the_readme(), encoding="utf-8")
    home = StateHome(folder / HOME)
    home.path.mkdir()
    registry = Registry(home.registry)
    address = f"file://{checkpoint}"
    registry.start_job(
        dataclasses.replace(
            JOB, name="visits", job_id=job_id("visits"), target="visits.py", checkpoint=address
        )
    )
    attempt = registry.start_attempt("visits", 4243, JOB.started_ms, recovers=False)
    query = dataclasses.replace(QUERY, checkpoint=address)
    registry.queries_started("visits", attempt, [query], JOB.started_ms)
    registry.add_batch("visits", attempt, BATCH)


def clock_at(moment: dt.datetime) -> AbstractContextManager[object]:
    """The wall clock stands at a moment."""
    at_ns = int(moment.timestamp()) * 1_000_000_000
    return patch.object(time, "time_ns", lambda: at_ns)


def job_of_the_readme() -> str:
    """The ten lines."""
    readme = README.read_text(encoding="utf-8")
    [text] = [file["text"] for file in FILE.finditer(readme) if file["name"] == "visits.py"]
    return text
