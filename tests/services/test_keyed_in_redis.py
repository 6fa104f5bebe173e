"""Keyed queries whose rows are in Redis: exact over restarts, batches that run again, and a Redis away."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from keyed_programs import EVENTS, OUTPUT, Everything, Model
from keyed_runs import (
    batches_read,
    by_batch_and_key,
    expected,
    program,
    read_stream,
    run,
    ship,
    write_batch,
)
from pyspark.errors import StreamingQueryException
from redis_server import RedisServer
from tcp_proxy import CountingProxy

import holdfast as hf
from holdfast.at_rest.keyed.keyed_reader import keyed_states
from holdfast.engine.plans import keyed_operator
from holdfast.engine.state.spark_state_reader import stored_groups
from holdfast.errors import Invalid, Unavailable, Unsupported
from holdfast.storage.local import LocalStorage
from holdfast.worker.state.external.blob_name import is_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.services]
ship()

Batches = Sequence[list[dict[str, Any]]]
Settings = Callable[[dict[str, str]], None]


def started(
    spark: SparkSession,
    folder: Path,
    groups: int = 3,
    before: Callable[[int], None] = lambda _: None,
    **options: Any,
) -> list[tuple[int, dict[str, Any]]]:
    """Run what there is to its end, as Holdfast starts it; each row with the number of its batch."""
    rows: list[tuple[int, dict[str, Any]]] = []

    def take(batch: DataFrame, batch_id: int) -> None:
        before(batch_id)
        rows.extend((batch_id, row.asDict(recursive=True)) for row in batch.collect())

    sink = hf.sink(answers(spark, folder, groups, **options), mode="update").foreach_batch(take)
    query = sink.start(checkpoint=str(folder / "checkpoint"), trigger=hf.available_now())
    query.awaitTermination()
    return rows


def answers(spark: SparkSession, folder: Path, groups: int = 3, **options: Any) -> DataFrame:
    events = read_stream(spark, folder / "in", EVENTS).withWatermark("ts", "5 seconds")
    keyed = hf.keyed(events, by="who", key_groups=groups)
    return keyed.process(Everything(), output=OUTPUT, name="everything", **options)


def names_and_blobs(spark: SparkSession, folder: Path) -> tuple[int, int]:
    """How many names Spark's store has, and how many blobs."""
    (store,) = stored_groups(spark, str(folder / "checkpoint"))
    found = [
        is_name(blob) for group in store.groups for blob in (*store.load(group).base, *store.load(group).log)
    ]
    return sum(found), len(found) - sum(found)


def uncommit(folder: Path) -> None:
    """Leave the newest batch as a driver does that dies before it notes the batch."""
    newest = max((folder / "checkpoint" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    newest.unlink()
    newest.with_name(f".{newest.name}.crc").unlink(missing_ok=True)


def forget_working_copies(spark: SparkSession) -> None:
    """Let tasks read all from the store, as on a machine that has not run the query before."""
    jvm: Any = spark.sparkContext._jvm
    manager = jvm.org.apache.spark.SparkEnv.get().blockManager().diskBlockManager()
    for folder in manager.localDirsString():
        shutil.rmtree(Path(folder) / "holdfast")


def agrees(rows: Sequence[tuple[int, dict[str, Any]]], folder: Path, batches: Batches) -> None:
    wanted = expected(folder / "checkpoint", batches, Model().batch)
    assert by_batch_and_key(rows) == {number: each for number, each in wanted.items() if each}


def test_restarts_and_repeated_batches_agree_with_the_model_and_the_state_is_read_at_rest(
    spark: SparkSession, own_redis: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_redis.ask("CONFIG", "SET", "requirepass", "open sesame")
    redis = hf.Redis(own_redis.address, password="open sesame")
    batches = program(11, batches=4, events=30)
    rows = []
    for number, batch in enumerate(batches):
        write_batch(tmp_path / "in", number, batch)
        if number % 2:
            before = started(spark, tmp_path, blobs=redis, blobs_from="1b")
            uncommit(tmp_path)
            again = started(spark, tmp_path, blobs=redis, blobs_from="1b")
            newest = min(number for number, _ in again)
            rows += [row for row in before if row[0] < newest] + again
    agrees(rows, tmp_path, batches)
    names, blobs = names_and_blobs(spark, tmp_path)
    assert names
    assert not blobs

    # Whoever reads the state at rest finds the server in the checkpoint, and has to know the password.
    storage = LocalStorage(tmp_path / "checkpoint")
    with pytest.raises(Invalid, match="refuses the user or the password"):
        list(keyed_states(storage)[0].rows())
    monkeypatch.setenv("HOLDFAST_REDIS_PASSWORD", "open sesame")
    model = Model()
    for now, watermark, events in batches_read(tmp_path / "checkpoint", batches):
        model.batch(now, watermark, events)
    read = {row.key[0]: row.values for row in keyed_states(storage)[0].rows()}
    totals = {who: values["total"] for who, values in read.items() if "total" in values}
    assert totals
    assert totals == {who: key.total[0] for who, key in model.keys.items() if key.total and who in totals}
    who = next(iter(totals))
    assert hf.state(tmp_path / "checkpoint").get("everything.total", who).value == totals[who]
    monkeypatch.setenv("HOLDFAST_REDIS_ADDRESS", "redis://127.0.0.1:1")
    with pytest.raises(Unavailable, match="Redis does not answer"):
        list(keyed_states(storage)[0].rows())
    monkeypatch.delenv("HOLDFAST_REDIS_ADDRESS")

    # A savepoint has the blobs, and no secret is in any file.
    taken = hf.savepoints.take(tmp_path / "checkpoint", tmp_path / "savepoints")
    assert hf.state(taken.uri).get("everything.total", who).value == totals[who]
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not [path for path in files if b"open sesame" in path.read_bytes()]


def test_a_query_moves_to_redis_and_back(
    spark: SparkSession, redis_server: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one key group, which has something that expires, every batch folds it."""
    redis = hf.Redis(redis_server.address, prefix="moves")
    choices: list[dict[str, Any]] = [{}, {"blobs": redis}, {"blobs": redis, "blobs_from": None}, {}]
    batches = program(12, batches=4, events=30)
    rows, kinds = [], []
    for number, options in enumerate(choices):
        write_batch(tmp_path / "in", number, batches[number])
        if number == 2:
            with pytest.raises(Invalid, match="the operator is not told where"):
                started(spark, tmp_path, 1)
            with pytest.raises(StreamingQueryException, match="needs a start by Holdfast"):
                run(answers(spark, tmp_path, 1, blobs=redis), tmp_path / "checkpoint")
        # The public operator knows no number of a batch that it would fold by; it reads and writes the same.
        monkeypatch.setattr(keyed_operator, "grafts", [lambda: True, lambda: False][number == 1])
        rows += started(spark, tmp_path, 1, **options)
        kinds.append(names_and_blobs(spark, tmp_path))
    agrees(rows, tmp_path, batches)
    assert [bool(names) for names, _ in kinds] == [False, True, False, False]
    hf.savepoints.take(tmp_path / "checkpoint", tmp_path / "savepoints")


def test_a_redis_that_is_cut_killed_and_started_again_loses_nothing_and_a_lost_blob_is_named(
    spark: SparkSession, own_redis: RedisServer, tmp_path: Path
) -> None:
    batches = program(13, batches=4, events=30)

    def killed(_: int) -> None:
        own_redis.kill()
        threading.Thread(target=own_redis.start).start()

    with CountingProxy(own_redis.port) as proxy:

        def cut(_: int) -> None:
            """End the connections in the middle of this batch's blobs."""
            proxy.allow(1_500)

            def mend() -> None:
                while proxy.passed < 1_500:
                    time.sleep(0.01)
                proxy.allow(None)

            threading.Thread(target=mend, daemon=True).start()

        rows = []
        for number, (before, port) in enumerate(((cut, proxy.port), (killed, own_redis.port))):
            for file in (2 * number, 2 * number + 1):
                write_batch(tmp_path / "in", file, batches[file])
            redis = hf.Redis(f"127.0.0.1:{port}")
            rows += started(spark, tmp_path, before=before, blobs=redis, blobs_from="1b")
    agrees(rows, tmp_path, batches)

    own_redis.ask("FLUSHALL")
    forget_working_copies(spark)
    write_batch(tmp_path / "in", 4, batches[0])
    with pytest.raises(StreamingQueryException, match="a blob of keyed state is gone from Redis") as lost:
        started(spark, tmp_path, blobs=redis, blobs_from="1b")
    assert "operator everything, key group" in str(lost.value)


def test_a_session_that_keeps_all_state_in_redis_is_told_what_to_write(
    spark: SparkSession, redis_server: RedisServer, settings: Settings, tmp_path: Path
) -> None:
    settings(hf.Redis(redis_server.address).spark_conf())
    (tmp_path / "in").mkdir()
    with pytest.raises(Unsupported, match="RocksDB") as refused:
        answers(spark, tmp_path)
    assert "blobs=hf.Redis(" in str(refused.value.hint)
