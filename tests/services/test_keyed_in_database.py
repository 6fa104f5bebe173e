"""Keyed queries whose rows are in a database: exact over restarts, repeated batches, and a database away."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from blob_databases import PRODUCTS, CassandraKeeper, Keeper, RedisKeeper, keeper_of
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
from tcp_proxy import CountingProxy

import holdfast as hf
from holdfast.at_rest.keyed_reader import keyed_states
from holdfast.engine import keyed_operator
from holdfast.engine.cluster import of_spark_env
from holdfast.engine.spark_state import stored_groups
from holdfast.errors import Invalid, Unavailable, Unsupported
from holdfast.storage.local import LocalStorage
from holdfast.worker.state.blob_store import is_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.services]
ship()

Batches = Sequence[list[dict[str, Any]]]
Settings = Callable[[dict[str, str]], None]


@pytest.fixture(params=PRODUCTS)
def keeper(request: pytest.FixtureRequest) -> Keeper:
    """A shared server."""
    return keeper_of(request, request.param)


@pytest.fixture(params=PRODUCTS)
def own_keeper(request: pytest.FixtureRequest) -> Keeper:
    """A server that the test may kill."""
    return keeper_of(request, request.param, own=True)


@pytest.fixture(params=PRODUCTS)
def closed_keeper(request: pytest.FixtureRequest) -> tuple[Keeper, str, dict[str, Any]]:
    """A server that asks who comes; with the password, and what `hf.Redis` or `hf.Cassandra` has to say."""
    if request.param == "cassandra":
        server = request.getfixturevalue("closed_cassandra")
        facts = {"user": "cassandra", "tls": True, "trust_store": str(server.certificate)}
        return CassandraKeeper(server), "cassandra", facts
    redis = request.getfixturevalue("own_redis")
    redis.ask("CONFIG", "SET", "requirepass", "open sesame")
    return RedisKeeper(redis), "open sesame", {}


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
    blocks = of_spark_env(spark, "blockManager", "org.apache.spark.storage.BlockManager")
    for folder in blocks.diskBlockManager().localDirsString():
        shutil.rmtree(Path(folder) / "holdfast")


def agrees(rows: Sequence[tuple[int, dict[str, Any]]], folder: Path, batches: Batches) -> None:
    wanted = expected(folder / "checkpoint", batches, Model().batch)
    assert by_batch_and_key(rows) == {number: each for number, each in wanted.items() if each}


def test_restarts_and_repeated_batches_agree_with_the_model_and_the_state_is_read_at_rest(
    spark: SparkSession,
    closed_keeper: tuple[Keeper, str, dict[str, Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keeper, password, facts = closed_keeper
    product = keeper.product
    database = keeper.choice(password=password, **facts)
    batches = program(11, batches=4, events=30)
    rows = []
    for number, batch in enumerate(batches):
        write_batch(tmp_path / "in", number, batch)
        if number % 2:
            before = started(spark, tmp_path, blobs=database, blobs_from="1b")
            uncommit(tmp_path)
            again = started(spark, tmp_path, blobs=database, blobs_from="1b")
            newest = min(number for number, _ in again)
            rows += [row for row in before if row[0] < newest] + again
    agrees(rows, tmp_path, batches)
    names, blobs = names_and_blobs(spark, tmp_path)
    assert names
    assert not blobs

    # Whoever reads the state at rest finds the server in the checkpoint, and has to know the password and,
    # with TLS, whom to trust.
    if "trust_store" in facts:
        monkeypatch.setenv("HOLDFAST_CASSANDRA_CA", facts["trust_store"])
    storage = LocalStorage(tmp_path / "checkpoint")
    with pytest.raises(Invalid, match="rejected the user or the password"):
        list(keyed_states(storage)[0].rows())
    monkeypatch.setenv(f"HOLDFAST_{product.upper()}_PASSWORD", password)
    model = Model()
    for now, watermark, events in batches_read(tmp_path / "checkpoint", batches):
        model.batch(now, watermark, events)
    read = {row.key[0]: row.values for row in keyed_states(storage)[0].rows()}
    totals = {who: values["total"] for who, values in read.items() if "total" in values}
    assert totals
    assert totals == {who: key.total[0] for who, key in model.keys.items() if key.total and who in totals}
    who = next(iter(totals))
    assert hf.state(tmp_path / "checkpoint").get("everything.total", who).value == totals[who]
    elsewhere = {"Redis": "redis://127.0.0.1:1", "Cassandra": "cassandra://127.0.0.1:1/blobs"}[product]
    monkeypatch.setenv(f"HOLDFAST_{product.upper()}_ADDRESS", elsewhere)
    with pytest.raises(Unavailable, match=f"{product} does not answer"):
        list(keyed_states(storage)[0].rows())
    monkeypatch.delenv(f"HOLDFAST_{product.upper()}_ADDRESS")

    # A savepoint has the blobs, and no secret is in any file.
    taken = hf.savepoints.take(tmp_path / "checkpoint", tmp_path / "savepoints")
    assert hf.state(taken.uri).get("everything.total", who).value == totals[who]
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    secret = password.encode() if product == "Redis" else b'"password"'  # the user has the same name there
    assert not [path for path in files if secret in path.read_bytes()]


def test_a_query_moves_to_a_database_and_back(
    spark: SparkSession, keeper: Keeper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one key group, which has something that expires, every batch folds it."""
    database = keeper.choice(prefix="moves")
    choices: list[dict[str, Any]] = [{}, {"blobs": database}, {"blobs": database, "blobs_from": None}, {}]
    others = {"Redis": hf.Cassandra(), "Cassandra": hf.Redis()}
    batches = program(12, batches=4, events=30)
    rows, kinds = [], []
    for number, chosen in enumerate(choices):
        write_batch(tmp_path / "in", number, batches[number])
        if number == 2:
            # The checkpoint still knows where they are when the first start was told of another place.
            for blobs in (others[keeper.product], None):
                there = f"is in {keeper.product}, but no address is given"
                with pytest.raises(Invalid, match=there) as refused:
                    started(spark, tmp_path, 1, blobs=blobs)
                assert f"blobs=hf.{keeper.product}(…)" in str(refused.value.hint)
            with pytest.raises(StreamingQueryException, match="requires a query started by Holdfast"):
                run(answers(spark, tmp_path, 1, blobs=database), tmp_path / "checkpoint")
        # The public operator knows no number of a batch that it would fold by; it reads and writes the same.
        monkeypatch.setattr(keyed_operator, "grafts", [lambda: True, lambda: False][number == 1])
        rows += started(spark, tmp_path, 1, **chosen)
        kinds.append(names_and_blobs(spark, tmp_path))
    agrees(rows, tmp_path, batches)
    assert [bool(names) for names, _ in kinds] == [False, True, False, False]
    hf.savepoints.take(tmp_path / "checkpoint", tmp_path / "savepoints")


def test_a_database_that_is_cut_killed_and_started_again_loses_nothing_and_a_lost_blob_is_named(
    spark: SparkSession, own_keeper: Keeper, tmp_path: Path
) -> None:
    service = own_keeper.service
    batches = program(13, batches=4, events=30)

    def killed(_: int) -> None:
        service.kill()
        threading.Thread(target=service.start).start()

    with CountingProxy(own_keeper.port) as proxy:

        def cut(_: int) -> None:
            """End the connections in the middle of this batch's blobs."""
            proxy.allow(1_500)

            def mend() -> None:
                while proxy.passed < 1_500:
                    time.sleep(0.01)
                proxy.allow(None)

            threading.Thread(target=mend, daemon=True).start()

        rows = []
        for number, (before, port) in enumerate(((cut, proxy.port), (killed, own_keeper.port))):
            for file in (2 * number, 2 * number + 1):
                write_batch(tmp_path / "in", file, batches[file])
            database = own_keeper.choice(port)
            rows += started(spark, tmp_path, before=before, blobs=database, blobs_from="1b")
    agrees(rows, tmp_path, batches)

    own_keeper.lose_all()
    forget_working_copies(spark)
    write_batch(tmp_path / "in", 4, batches[0])
    gone = f"a blob of keyed state is missing in {own_keeper.product}"
    with pytest.raises(StreamingQueryException, match=gone) as lost:
        started(spark, tmp_path, blobs=database, blobs_from="1b")
    assert "operator everything, key group" in str(lost.value)


@pytest.mark.parametrize("backend", [hf.Redis(), hf.Cassandra()])
def test_a_session_that_keeps_all_state_in_a_database_is_told_what_to_write(
    spark: SparkSession, backend: hf.Redis | hf.Cassandra, settings: Settings, tmp_path: Path
) -> None:
    settings(backend.spark_conf())
    (tmp_path / "in").mkdir()
    with pytest.raises(Unsupported, match="RocksDB") as refused:
        answers(spark, tmp_path)
    assert f"blobs=hf.{type(backend).__name__}(" in str(refused.value.hint)


@pytest.mark.parametrize("backend", [hf.Redis, hf.Cassandra])
def test_what_python_cannot_use_is_refused_before_the_start(
    spark: SparkSession, backend: type[hf.Redis | hf.Cassandra], tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    with pytest.raises(Invalid, match="PEM file") as refused:
        answers(spark, tmp_path, blobs=backend(tls=True, trust_store="x", trust_store_password="y"))
    assert f"hf.{backend.__name__}(…, tls=True" in str(refused.value.hint)
    with pytest.raises(Invalid, match="unsupported database for keyed state"):
        answers(spark, tmp_path, blobs=hf.RocksDB())
