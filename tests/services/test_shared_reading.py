"""State of a running query, read by a service without Spark: of one committed batch at a time."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from loopback import free_ports
from state_databases import StateDatabase

import holdfast as hf
from holdfast import shared
from holdfast.external.redis_store import READ, SCAN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.services]

Settings = Callable[[dict[str, str]], None]
ROOT = Path(__file__).parents[2]
KEYS = 40


def write(folder: Path, number: int, rows: list[dict[str, Any]]) -> None:
    """A file of a stream; files are read in the order of their numbers."""
    folder.mkdir(exist_ok=True)
    (folder / f"{number:03d}.json").write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def counts(spark: SparkSession, folder: Path) -> DataFrame:
    stream = spark.readStream.schema("who string, ts timestamp").option("maxFilesPerTrigger", 1)
    return stream.json(str(folder)).groupBy("who").count()


def run(frame: DataFrame, checkpoint: Path) -> str:
    """Read all that is there; the query's id."""
    query = (
        frame.writeStream.format("noop")
        .outputMode("update")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return str(query.id)


def until_noted(state: shared.SharedState, batch: int) -> None:
    """Spark tells of a batch a moment after it has committed it."""
    for _ in range(2000):
        if state.batch_id == batch:
            return
        threading.Event().wait(0.01)
    raise AssertionError(f"batch {state.batch_id} is the newest, and not {batch}")


def test_what_is_read_while_batches_run_is_of_one_committed_batch(
    spark: SparkSession, settings: Settings, database: StateDatabase, tmp_path: Path
) -> None:
    """Each batch counts each key once, so all counts of one look are the number of the batch, plus one."""
    settings({**database.conf, "spark.sql.shuffle.partitions": "2"})
    checkpoint, folder = tmp_path / "checkpoint", tmp_path / "in"
    rows = [{"who": f"k{number}"} for number in range(KEYS)]
    write(folder, 0, rows)
    state = database.shared(database.short_address, run(counts(spark, folder), checkpoint))
    assert (state.key_columns, state.value_columns) == (("who",), ("count",))
    until_noted(state, 0)
    for number in range(1, 9):
        write(folder, number, rows)
    wrong: list[object] = []
    seen: set[int] = set()
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            found = state.rows_of_keys([{"who": f"k{number}"} for number in range(KEYS)])
            told = {(row.batch_id, row.value["count"]) for [row] in found}
            seen.update(batch for batch, _ in told)
            if len(told) != 1 or any(count != batch + 1 for batch, count in told):
                wrong.append(told)

    with ThreadPoolExecutor(2) as pool:
        readers = [pool.submit(read) for _ in range(2)]
        try:
            run(counts(spark, folder), checkpoint)
        finally:
            done.set()
        for reader in readers:
            reader.result()
    assert wrong == []
    assert len(seen) > 1
    until_noted(state, 8)
    found = state.get("k7")
    assert found is not None
    assert (found.key, found.value, found.batch_id) == ({"who": "k7"}, {"count": 9}, 8)
    assert state.get(who="nobody") is None


def test_a_batch_that_is_in_the_stores_and_not_committed_is_not_read(
    spark: SparkSession, settings: Settings, database: StateDatabase, tmp_path: Path
) -> None:
    """Without the note of the newest batch, and without it having been committed, the one before is read."""
    settings({**database.conf, "spark.sql.shuffle.partitions": "2"})
    folder = tmp_path / "in"
    for number in range(2):
        write(folder, number, [{"who": "a"}])
    query_id = run(counts(spark, folder), tmp_path / "checkpoint")
    state = database.shared(database.short_address, query_id)
    until_noted(state, 1)
    database.forget_batch(query_id)
    found = state.get("a")
    assert found is not None
    assert (found.value["count"], found.batch_id) == (1, 0)
    # A note of a run that others have followed says nothing.
    database.note_batch(query_id, 1, "another")
    assert state.batch_id == 0


def test_the_last_batch_is_noted_also_if_spark_tells_of_it_when_the_query_has_ended(
    spark: SparkSession, settings: Settings, database: StateDatabase, tmp_path: Path
) -> None:
    from pyspark.sql.streaming.listener import StreamingQueryListener

    ended = threading.Event()

    class Slow(StreamingQueryListener):
        """Keeps what Spark tells waiting until the query has ended."""

        def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's name
            pass

        def onQueryProgress(self, event: Any) -> None:  # noqa: N802 - Spark's name
            ended.wait(60)

        def onQueryTerminated(self, event: Any) -> None:  # noqa: N802 - Spark's name
            pass

    settings({**database.conf, "spark.sql.shuffle.partitions": "2"})
    folder, slow = tmp_path / "in", Slow()
    for number in range(2):
        write(folder, number, [{"who": "a"}])
    spark.streams.addListener(slow)
    try:
        query_id = run(counts(spark, folder), tmp_path / "checkpoint")
        ended.set()
        until_noted(database.shared(database.short_address, query_id), 1)
    finally:
        ended.set()
        spark.streams.removeListener(slow)


def test_all_session_windows_of_a_key_are_read_together(
    spark: SparkSession, settings: Settings, database: StateDatabase, tmp_path: Path
) -> None:
    from pyspark.sql import functions as F  # noqa: N812

    settings({**database.conf, "spark.sql.shuffle.partitions": "2"})
    folder = tmp_path / "in"
    at = [f"2026-03-02T08:{minute:02d}:00Z" for minute in (0, 2, 30, 50)]
    write(folder, 0, [{"who": "a", "ts": moment} for moment in at] + [{"who": "b", "ts": at[0]}])
    stream = spark.readStream.schema("who string, ts timestamp").json(str(folder))
    sessions = stream.withWatermark("ts", "1 day").groupBy(F.session_window("ts", "5 minutes"), "who").count()
    query = (
        sessions.writeStream.format("noop")
        .outputMode("append")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    state = database.shared(database.short_address, str(query.id))
    until_noted(state, 1)  # the second moves the watermark
    assert state.key_columns == ("who",)
    assert sorted(row.value["count"] for row in state.rows("a")) == [1, 1, 2]
    assert [row.value["count"] for row in state.rows("b")] == [1]
    with pytest.raises(hf.Invalid, match="several rows for the key"):
        state.get("a")


def test_a_reader_goes_over_to_the_state_of_a_restored_and_rescaled_checkpoint(
    spark: SparkSession, settings: Settings, database: StateDatabase, tmp_path: Path
) -> None:
    settings({**database.conf, "spark.sql.shuffle.partitions": "3"})
    folder, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    rows = [{"who": f"k{number}"} for number in range(KEYS)]
    keys = [{"who": f"k{number}"} for number in range(KEYS)]
    write(folder, 0, rows)
    query_id = run(counts(spark, folder), checkpoint)
    state = database.shared(database.short_address, query_id)
    taken = hf.savepoints.take(str(checkpoint), str(tmp_path / "savepoints"))
    write(folder, 1, rows)
    run(counts(spark, folder), checkpoint)
    until_noted(state, 1)
    moved = tmp_path / "moved"
    hf.savepoints.rescale(taken.uri, str(moved), partitions=2)
    # Nobody has begun on it.
    assert [row.value["count"] for [row] in state.rows_of_keys(keys)] == [2] * KEYS
    write(folder, 1, rows[:1])
    write(folder, 2, rows[:1])
    settings({"spark.sql.shuffle.partitions": "2"})
    assert run(counts(spark, folder), moved) == query_id
    until_noted(state, 2)
    assert [row.value["count"] for [row] in state.rows_of_keys(keys)] == [3] + [1] * (KEYS - 1)


def test_what_is_asked_wrongly_is_said(
    spark: SparkSession, settings: Settings, database: StateDatabase, tmp_path: Path
) -> None:
    settings({**database.conf, "spark.sql.shuffle.partitions": "2"})
    write(tmp_path / "in", 0, [{"who": "a"}])
    query_id = run(counts(spark, tmp_path / "in"), tmp_path / "checkpoint")
    state = database.shared(database.address, query_id)
    for key, columns in ((("a", "b"), {}), ((), {}), ((), {"whom": "a"}), (("a",), {"whom": "a"})):
        with pytest.raises(hf.Invalid, match="do not match the key of the state"):
            state.get(*key, **columns)
    with pytest.raises(hf.Invalid, match="do not match the schema"):
        state.get(5)
    with pytest.raises(hf.NotFound, match="no state of this query exists"):
        database.shared(database.short_address, "another")
    with pytest.raises(hf.NotFound, match="unknown state of the query"):
        database.shared(database.short_address, query_id, operator_id=3)
    with pytest.raises(hf.Invalid, match=f"invalid {database.title} address"):
        database.shared(f"{database.kind}://user:sesame@127.0.0.1", query_id)
    (nobody,) = free_ports(1)
    with pytest.raises(hf.Unavailable, match=f"{database.title} does not answer"):
        database.shared(f"127.0.0.1:{nobody}", query_id)


def test_a_service_that_reads_loads_no_spark() -> None:
    code = "import sys, holdfast.shared; print([name for name in sys.modules if name in ('pyspark', 'py4j')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_python_and_the_jar_run_the_same_scripts() -> None:
    source = (ROOT / "jvm/src/holdfast/state/RedisScripts.scala").read_text()
    lines = {match[1] for match in re.finditer(r'^ *(?:"""|\|)(.*?)(?:""".*)?$', source, re.MULTILINE)}
    assert set(filter(None, (READ + SCAN).splitlines())) <= lines
