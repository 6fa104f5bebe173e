"""What is known of a query without Holdfast: names, state, batches, and how often its files are read."""

from __future__ import annotations

import json
import os
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from golden import files_on_disk, golden_on_disk, kafka_files
from holdfast.checkpoints.logs import Logs
from holdfast.formats.logs.batch_logs import OffsetLog
from holdfast.jobs.registry import plain_queries
from holdfast.jobs.registry.client import Control
from holdfast.jobs.registry.plain_queries import PlainQueries, PlainQuery, unique_names
from holdfast.jobs.registry.registry import JobRecord, Registry, job_id
from holdfast.jobs.registry.served_addresses import ServedAddresses, served_addresses
from holdfast.jobs.state_home import StateHome
from holdfast.model import JobKind, JobState
from holdfast.observe.lag import lags
from holdfast.storage.local import LocalListing, LocalStorage

AGGREGATE = "4.2/aggregate-changelog"
NOW_MS = 1_772_700_100_000
# Long after the last batch of every golden checkpoint.
LATER_MS = 1_900_000_000_000


def written(folder: Path, *planned_ms: int, committed: int | None = None) -> Path:
    """A checkpoint whose query has planned batches at these times, and committed all of them or some."""
    for name in ("offsets", "commits"):
        (folder / name).mkdir(parents=True)
    (folder / "metadata").write_text('{"id":"a9dec4b3-ead2-45b9-984a-9c5769ffdee9"}')
    for number, at_ms in enumerate(planned_ms):
        fields = {"batchWatermarkMs": 0, "batchTimestampMs": at_ms, "conf": {}}
        log = OffsetLog(1, fields, {"0": json.dumps({"orders": {"0": 10 * number}})})
        path = folder / "offsets" / str(number)
        path.write_bytes(log.render())
        os.utime(path, ns=((at_ms + 100) * 1_000_000,) * 2)
        if committed is None or number <= committed:
            path = folder / "commits" / str(number)
            path.write_text('v1\n{"nextBatchWatermarkMs":0}')
            os.utime(path, ns=((at_ms + 400) * 1_000_000,) * 2)
    return folder


def query(folder: Path, now_ms: int = NOW_MS) -> PlainQuery:
    return PlainQuery(f"file://{folder}", folder.parent, lambda: now_ms)


def test_a_name_is_the_directory_s_and_unique() -> None:
    uris = [
        "file:///data/clicks",
        "s3a://bucket/a/orders",
        "s3a://bucket/b/orders",
        "file:///x/shop/_checkpoint",
        "file:///data/visits per day",
    ]
    assert list(unique_names(uris, {"clicks"}).values()) == [
        "data-clicks",
        "a-orders",
        "b-orders",
        "checkpoint",
        "visits-per-day",
    ]
    same = unique_names(["s3a://one/a/orders", "s3a://two/a/orders"])
    assert same == {uri: f"orders-{job_id(uri)[:6]}" for uri in same}
    assert unique_names(["s3a://bucket"]) == {"s3a://bucket": "bucket"}
    assert unique_names(["file:///…"]) == {"file:///…": "query"}


@pytest.mark.parametrize(
    ("silent_ms", "interval_ms", "committed", "runs"),
    [
        (50_000, 1_000, None, True),
        (70_000, 1_000, None, False),
        (70_000, 30_000, None, True),  # three times the interval
        (100_000, 30_000, None, False),
        (500_000, 1_000, 1, True),  # a planned batch may take long
        (700_000, 1_000, 1, False),
    ],
)
def test_a_query_runs_while_its_batches_are_recent(
    tmp_path: Path, silent_ms: int, interval_ms: int, committed: int | None, runs: bool
) -> None:
    newest_ms = NOW_MS - silent_ms
    planned = [newest_ms - 2 * interval_ms, newest_ms - interval_ms, newest_ms]
    folder = written(tmp_path / "clicks", *planned, committed=committed)
    record = query(folder).record("clicks")
    assert (record.state is JobState.RUNNING) is runs
    assert record.kind is JobKind.CHECKPOINT
    assert record.started_ms == planned[0]
    # A commit is 400 ms after the planning of its batch.
    last_ms = newest_ms + 400 if committed is None else newest_ms
    assert (record.updated_ms, record.ended_ms) == (last_ms, None if runs else last_ms)
    assert record.reason is None if runs else record.reason is not None and "no batch since" in record.reason


def test_before_its_first_batch_a_query_is_known_without_one(tmp_path: Path) -> None:
    plain = query(written(tmp_path / "clicks"))
    assert plain.record("clicks").reason == "no batch yet"
    assert plain.batches("clicks", 10) == plain.newest("clicks") == []


def test_a_damaged_log_is_told_and_hides_no_other_query(tmp_path: Path) -> None:
    folder = written(tmp_path / "clicks", NOW_MS)
    (folder / "offsets" / "0").write_bytes(b"nonsense")
    written(tmp_path / "visits", NOW_MS)
    plain = PlainQueries(lambda: [str(tmp_path)], tmp_path, lambda: NOW_MS).named()
    assert list(plain) == ["clicks", "visits"]
    assert "offsets/0" in str(plain["clicks"].record("clicks").reason)
    assert plain["visits"].record("visits").state is JobState.RUNNING


def test_batches_have_their_times_and_the_size_of_their_state(tmp_path: Path) -> None:
    folder = golden_on_disk(AGGREGATE, tmp_path / "visits")
    plain = query(folder)
    (newest,) = plain.newest("visits")
    assert (newest.batch_id, newest.measured, newest.rows_read) == (11, False, None)
    batches = plain.batches("visits", 3)
    assert [batch.batch_id for batch in batches] == [9, 10, 11]
    # Its files have the time of the copying.
    assert [batch.took_ms for batch in batches] == [None, None, None]
    (operator,) = batches[-1].operators
    restart = (path for path in (folder / "state" / "0").rglob("*") if path.is_file())
    sizes = sum(path.stat().st_size for path in restart)
    assert 0 < operator.store["checkpointFileBytes"] <= sizes
    assert (operator.partitions, operator.rows, operator.display_name) == (2, None, "aggregate")
    assert batches[-1].state_rows is None


def test_durations_come_from_the_times_of_the_logs(tmp_path: Path) -> None:
    plain = query(written(tmp_path / "clicks", NOW_MS - 2000, NOW_MS - 1000))
    assert [batch.took_ms for batch in plain.batches("clicks", 10)] == [300, 300]
    assert plain.newest("clicks")[0].committed_ms == NOW_MS - 600


def test_lag_is_what_a_planned_batch_has_still_to_commit(tmp_path: Path) -> None:
    folder = written(tmp_path / "clicks", NOW_MS - 2000, NOW_MS - 1000, committed=0)
    found = lags(query(folder).batches("clicks", 10), NOW_MS)
    assert [(lag.topic, lag.partition, lag.next, lag.latest, lag.left) for lag in found] == [
        ("orders", 0, 0, 10, 10)
    ]
    done = files_on_disk(kafka_files(AGGREGATE), tmp_path / "done")
    assert lags(query(done).batches("done", 10), NOW_MS) == ()


class CountedLogs(Logs):
    """Logs that count how often each checkpoint is looked at."""

    looks: Counter[str]

    def __init__(self, storage: object) -> None:
        type(self).looks[storage.uri] += 1  # type: ignore[attr-defined] # any storage
        super().__init__(storage)  # type: ignore[arg-type] # as above


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    CountedLogs.looks = Counter()
    monkeypatch.setattr(plain_queries, "Logs", CountedLogs)
    return CountedLogs.looks


def test_however_many_readers_ask_a_checkpoint_is_looked_at_once_a_second(
    tmp_path: Path, looks: Counter[str]
) -> None:
    for number in range(20):
        written(tmp_path / f"q{number}", NOW_MS)
    plain = PlainQueries(lambda: [str(tmp_path)], tmp_path, lambda: NOW_MS)
    began = time.monotonic()

    def read() -> None:
        for _ in range(30):
            for name, each in plain.named().items():
                each.record(name)

    readers = [threading.Thread(target=read) for _ in range(8)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    took_s = time.monotonic() - began
    assert len(looks) == 20
    assert max(looks.values()) <= 1 + int(took_s)


class SeenStorage(LocalStorage):
    """A checkpoint that notes what of it is listed and read."""

    seen: list[str]

    def list(self, path: str = "") -> LocalListing:
        self.seen.append(path)
        return super().list(path)

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        self.seen.append(path)
        return super().read(path, start, length)


def test_a_list_reads_logs_and_no_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    SeenStorage.seen = []
    seen = lambda uri: SeenStorage(Path(uri.removeprefix("file://")))  # noqa: E731 - short
    monkeypatch.setattr(plain_queries, "open_storage", seen)
    folder = golden_on_disk(AGGREGATE, tmp_path / "ck" / "visits")
    plain = PlainQueries(lambda: [str(folder)], tmp_path, lambda: LATER_MS)
    (status,) = Control(StateHome(tmp_path), lambda: LATER_MS, plain).jobs()
    assert (status.job.name, status.word) == ("visits", "FINISHED, or waiting for rows")
    # The newest batch, the oldest kept one, and the commit.
    assert SeenStorage.seen == ["commits", "offsets", "metadata", "offsets/11", "commits/11", "offsets/5"]


def test_the_checkpoint_of_a_job_is_listed_once_as_the_job(tmp_path: Path) -> None:
    home = StateHome(tmp_path / "home")
    home.path.mkdir()
    mine = written(tmp_path / "ck" / "shop" / "orders", NOW_MS)
    other = written(tmp_path / "ck" / "clicks", NOW_MS)
    job = JobRecord(
        "shop",
        job_id("shop"),
        "shop.py",
        f"file://{mine.parent}",
        "retain",
        JobState.FINISHED,
        None,
        0,
        0,
        0,
        1,
    )
    Registry(home.registry).start_job(job)
    plain = PlainQueries(lambda: [str(tmp_path / "ck")], home.path, lambda: NOW_MS)
    statuses = Control(home, lambda: NOW_MS, plain).jobs()
    assert [(status.job.name, status.job.checkpoint) for status in statuses] == [
        ("shop", job.checkpoint),
        ("clicks", f"file://{other}"),
    ]


def test_other_commands_see_what_a_living_server_serves(tmp_path: Path) -> None:
    home = StateHome(tmp_path / "home")
    written(tmp_path / "ck" / "clicks", NOW_MS)
    control = Control(home, lambda: NOW_MS)
    assert control.jobs() == []
    served = ServedAddresses(home.path, [f"file://{tmp_path}/ck"])
    served.publish()
    (status,) = Control(home, lambda: NOW_MS).jobs()
    assert (status.job.name, status.accepts, status.word) == ("clicks", ("savepoint",), "RUNNING")
    served.withdraw()
    assert served_addresses(home.path) == ()
    assert list((home.path / "serving").iterdir()) == []


def test_what_a_killed_server_served_counts_no_more_and_is_cleared_by_the_next(tmp_path: Path) -> None:
    folder = tmp_path / "serving"
    folder.mkdir()
    (folder / "dead.json").write_text('{"addresses":["file:///gone"]}')
    (folder / "dead.lock").touch()
    assert served_addresses(tmp_path) == ()
    served = ServedAddresses(tmp_path, ["file:///here"])
    served.publish()
    assert served_addresses(tmp_path) == ("file:///here",)
    assert not (folder / "dead.json").exists()
    served.withdraw()
