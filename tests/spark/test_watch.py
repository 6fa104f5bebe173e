"""A plain query that never heard of Holdfast, watched with one line."""

from __future__ import annotations

import datetime as dt
import logging
import socket
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

import holdfast as hf
from holdfast.checkpoints.record import record_path
from holdfast.jobs import reports
from holdfast.jobs.state_home import StateHome, SupervisorLock
from holdfast.observe.alerting import AlertEvent

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.spark

NOON = dt.datetime(2026, 3, 5, 12, tzinfo=dt.timezone.utc)
# Minutes past noon at which events happen, by batch and key; the watermark is the greatest one less ten.
BATCHES = [
    [(0, "a"), (1, "b"), (2, "c"), (30, "a")],
    [(31, "a"), (25, "d"), (5, "a"), (6, "b"), (7, "c")],  # 20 is the watermark: three are late
    [(40, "e"), (29, "a"), (3, "b")],  # 21: one is late
]
DELAY, WINDOW = 10, 10


def until(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + 60
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


def model() -> dict[str, Any]:
    """What the batches come to, in plain Python: windows of ten minutes by key, update mode."""
    state: dict[tuple[int, str], int] = {}
    watermark, rows, late = None, 0, 0
    for batch in BATCHES:
        dropped = set()
        for minute, key in batch:
            rows += 1
            window = (minute // WINDOW * WINDOW, key)
            if watermark is not None and window[0] + WINDOW <= watermark:
                dropped.add(window)
            else:
                state[window] = state.get(window, 0) + 1
        # Spark counts what it drops after it has aggregated a task's rows: each window once, as there is one
        # file a batch.
        late += len(dropped)
        watermark = max([watermark or 0, max(minute for minute, _ in batch) - DELAY])
        # A batch without rows follows and takes out what is over.
        state = {each: count for each, count in state.items() if each[0] + WINDOW > watermark}
    return {"rows": rows, "late": late, "watermark": watermark, "state": state}


class Plain:
    """The query, as a PySpark user writes it."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self.files = folder / "files"
        self.files.mkdir()
        self.written = 0

    def write(self, batch: list[tuple[int, str]]) -> None:
        lines = "".join(
            f"{(NOON + dt.timedelta(minutes=minute)).isoformat()},{key}\n" for minute, key in batch
        )
        fresh = self.files / f".{self.written}"
        fresh.write_text(lines)
        fresh.rename(self.files / f"{self.written}.csv")
        self.written += 1

    def start(self, name: str = "visits") -> StreamingQuery:
        from pyspark.sql import functions as F  # noqa: N812 - as everybody has it

        events = (
            self.spark.readStream.schema("at timestamp, key string")
            .option("maxFilesPerTrigger", 1)
            .option("mode", "FAILFAST")
            .csv(str(self.files))
        )
        counts = (
            events.withWatermark("at", f"{DELAY} minutes")
            .groupBy(F.window("at", f"{WINDOW} minutes"), "key")
            .count()
        )
        writer = counts.writeStream.format("noop").outputMode("update").queryName(name)
        return writer.option("checkpointLocation", str(self.folder / "checkpoint")).start()

    @staticmethod
    def newest(query: StreamingQuery) -> int:
        progress = query.lastProgress
        assert progress is not None
        return int(progress["batchId"])

    @staticmethod
    def ended(query: StreamingQuery) -> None:
        from pyspark.errors import StreamingQueryException

        with pytest.raises(StreamingQueryException):
            query.processAllAvailable()

    def run(self, query: StreamingQuery) -> None:
        for batch in BATCHES:
            self.write(batch)
            query.processAllAvailable()


@pytest.fixture
def plain(spark: SparkSession, tmp_path: Path) -> Iterator[Plain]:
    yield Plain(spark, tmp_path)
    for query in spark.streams.active:
        query.stop()


def read(text: str) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(text):
        for each in family.samples:
            found.setdefault(each.name, {})[tuple(sorted(each.labels.items()))] = each.value
    return found


def numbers(watch: hf.Watch) -> dict[str, float]:
    return {each.metric: each.value for each in watch.metrics()}


def test_a_stop_takes_in_the_batches_of_which_listeners_had_not_heard(
    plain: Plain, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark tells its listeners after the commit, on a thread of its own; here that comes too late."""
    monkeypatch.setattr("holdfast.engine.queries.watch.listen_to_query", lambda query, heard: lambda: None)
    query = plain.start()
    with hf.watch(query, home=home) as watch:
        plain.run(query)
    assert watch.batches()[-1].batch_id == plain.newest(query)
    assert sum(batch.input_rows for batch in watch.batches()) == model()["rows"]


def test_one_line_gives_the_numbers_of_a_plain_query(plain: Plain, home: Path) -> None:
    query = plain.start()
    watch = hf.watch(query, port=0, home=home, record=True)
    with watch:
        plain.run(query)
        newest = plain.newest(query)
        until(lambda: watch.metrics() and watch.batches()[-1].batch_id == newest)
        expected = model()
        assert watch.url is not None
        with urllib.request.urlopen(watch.url) as answer:
            served = read(answer.read().decode())
        both = (("job_name", "visits"), ("query", "visits"))
        assert served["holdfast_input_rows_total"] == {both: expected["rows"]}
        assert served["holdfast_late_rows_total"] == {both: expected["late"]}
        assert served["holdfast_batch_id"] == {both: newest}
        watermark = NOON + dt.timedelta(minutes=expected["watermark"])
        assert served["holdfast_watermark_timestamp_seconds"] == {both: watermark.timestamp()}
        [state_rows] = served["holdfast_state_rows"].values()
        assert state_rows == len(expected["state"])
        [gets] = [
            value
            for labels, value in served["holdfast_state_operations_total"].items()
            if ("operation", "get") in labels
        ]
        assert gets > 0
        assert served["holdfast_up"] == {(("job_name", "visits"),): 1}
        until(lambda: "holdfast_partition_bytes" in {each.metric for each in watch.metrics()})
    assert record_path(home.resolve(), (plain.folder / "checkpoint").as_uri()).exists()
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(watch.url)
    assert query.isActive
    # What was written down outlives the watch.
    kept = {each.metric: each.value for each in reports.samples(StateHome(home.resolve()), 0)}
    assert kept["holdfast_input_rows_total"] == expected["rows"]
    assert kept["holdfast_up"] == 0


def test_an_alert_is_told_and_a_failure_and_its_recovery_are_seen(
    plain: Plain, home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "holdfast.watch")
    told: list[AlertEvent] = []
    query = plain.start()
    plain.write(BATCHES[0])
    query.processAllAvailable()
    watch = hf.watch(query, home=home, alerts=hf.Alerts(state_size=1), on_alert=told.append)
    until(lambda: {each.alert.rule for each in told} >= {"state_size"})
    # A line that cannot be read stops the query; once it is mended, the query goes on from where it was.
    plain.write([])
    broken = plain.files / "1.csv"
    broken.write_text("no moment,a\n")
    plain.ended(query)
    until(lambda: numbers(watch).get("holdfast_checkpoint_failures_lately") == 1)
    assert "holdfast_recovery_seconds" in numbers(watch)
    broken.write_text("2026-03-05T12:31:00Z,a\n")
    again = plain.start()
    again.processAllAvailable()
    until(lambda: watch.metrics() and watch.batches()[-1].batch_id == plain.newest(again))
    assert numbers(watch)["holdfast_restarts_total"] == 1
    assert numbers(watch)["holdfast_input_rows_total"] == len(BATCHES[0]) + 1
    assert numbers(watch)["holdfast_checkpoint_failures_total"] == 1
    until(lambda: "checkpoint_failures" in {each.alert.rule for each in told})
    second = hf.watch(again, home=home, alerts=hf.Alerts(state_size=1))
    assert second is not watch
    watch.stop()
    second.stop()
    assert not any(each.rule == "state_size" for each in watch.alerts())
    assert [each.kind for each in told if each.alert.rule == "state_size"] == ["firing", "cleared"]
    assert any("the state of query visits has grown" in each.message for each in caplog.records)


def test_what_a_supervisor_watches_is_not_watched_twice(plain: Plain, home: Path) -> None:
    query = plain.start("supervised")
    home.mkdir()
    lock = SupervisorLock(StateHome(home.resolve()), "supervised")
    assert lock.take()
    try:
        with pytest.raises(hf.Conflict, match="supervisor"):
            hf.watch(query, home=home)
        with hf.watch(query, home=home, name="beside it") as watch:
            assert watch.name == "beside it"
    finally:
        lock.release()


def test_a_port_that_is_taken_is_told_and_leaves_nothing_behind(plain: Plain, home: Path) -> None:
    query = plain.start()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(hf.Unavailable, match="cannot open the metrics endpoint"):
            hf.watch(query, port=taken.getsockname()[1], home=home)
    with hf.watch(query, home=home) as watch:
        assert watch.url is None
    assert "holdfast-watch" not in {each.name for each in threading.enumerate()}


def test_without_a_home_that_can_be_written_the_query_is_watched_all_the_same(
    plain: Plain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "file"))
    query = plain.start()
    plain.write(BATCHES[0])
    query.processAllAvailable()
    with hf.watch(query) as watch:
        until(lambda: any(each.metric == "holdfast_state_rows" for each in watch.metrics()))
    assert any("end with this process" in each.message for each in caplog.records)
    with pytest.raises(hf.Invalid):
        hf.watch(query, home=tmp_path / "file")
