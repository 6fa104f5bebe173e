"""The measured process of `bench backends`: all backends by turns in one Spark session."""

from __future__ import annotations

import json
import shutil
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import holdfast as hf
from holdfast.engine.session.jars import JARS_KEY
from holdfast_bench.backends.backends_bench import CASSANDRA, MEMORY, RECOVERED, REDIS, ROCKSDB
from holdfast_bench.backends.cassandra_node import flushed_bytes
from holdfast_bench.backends.single_access import single_access
from holdfast_bench.turns import in_turn

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from holdfast.config.backend import Backend

_PARTITIONS: Final = 2
_FEW: Final = 100
_CLIENTS: Final = Path(__file__).parents[3] / ".services" / "state-clients"


class Bench:
    """Runs the aggregate on a backend.

    Args:
        spark: The session.
        folder: For everything.
        task: Sizes, sides and addresses.
    """

    def __init__(self, spark: SparkSession, folder: Path, task: Mapping[str, Any]) -> None:
        self._spark = spark
        self._folder = folder
        self._task = task
        self._number = 0
        self._keyspace = "first"
        self._stores: dict[str, Backend] = {
            MEMORY: hf.Memory(),
            ROCKSDB: hf.RocksDB(),
        }
        if REDIS in task["sides"]:
            self._stores[REDIS] = hf.Redis(str(task["redis"]))
        if CASSANDRA in task["sides"]:
            self._stores[CASSANDRA] = hf.Cassandra(task["cassandra"]["address"], replication=1)

    def use(self, side: str) -> None:
        """Let the next queries keep their state there."""
        store = self._stores[side]
        if isinstance(store, hf.Cassandra):
            # Each run has tables of its own, of which the size can be told.
            store = replace(store, keyspace=self._keyspace)
        for key, value in store.spark_conf().items():
            self._spark.conf.set(key, value)

    def run(self, side: str) -> tuple[list[float], list[float], int, int]:
        """The counted batches of one run, their commits, the bytes of the state, and its rows."""
        self._keyspace = f"run{self._number}"
        self.use(side)
        keys, rows, batches = (self._task[name] for name in ("keys", "rows", "batches"))
        source, checkpoint = self._place(), self._place()
        before = self._used(side)
        # All keys, a warming batch, and those that count.
        self._write(source, keys, keys, 1)
        for seed in range(batches + 1):
            self._write(source, rows, keys, seed + 2)
        progress = self._query(source, checkpoint)[2:]
        operators = [each["stateOperators"][0] for each in progress]
        after = self._used(side)
        held = _size(checkpoint) if before is None or after is None else after - before
        shutil.rmtree(source)
        return (
            [each["durationMs"]["triggerExecution"] / 1000 for each in progress],
            [each["commitTimeMs"] / 1000 / _PARTITIONS for each in operators],
            held,
            operators[-1]["numRowsTotal"],
        )

    def recover(self, side: str, keys: int) -> tuple[float, float]:
        """The first batch of a restarted query, and the next one, in seconds."""
        self.use(side)
        source, checkpoint = self._place(), self._place()
        self._write(source, keys, keys, 1)
        self._query(source, checkpoint)
        self._unload()
        for seed in (2, 3):
            self._write(source, _FEW, keys, seed)
        first, second = self._query(source, checkpoint)
        shutil.rmtree(source)
        shutil.rmtree(checkpoint)
        return (
            first["durationMs"]["triggerExecution"] / 1000,
            second["durationMs"]["triggerExecution"] / 1000,
        )

    def _place(self) -> Path:
        self._number += 1
        place = self._folder / f"{self._number:04d}"
        place.mkdir()
        return place

    def _write(self, source: Path, rows: int, keys: int, seed: int) -> None:
        """A file of rows; the first has each key once, the others keys at random."""
        key = "id" if seed == 1 else f"pmod(hash(id, {seed}), {keys})"
        frame = self._spark.range(rows, numPartitions=1).selectExpr(f"cast({key} as bigint) key", "id amount")
        place = self._place()
        frame.write.mode("overwrite").parquet(str(place))
        [file] = place.glob("part-*.parquet")
        file.rename(source / f"{seed:04d}.parquet")
        shutil.rmtree(place)

    def _query(self, source: Path, checkpoint: Path) -> list[dict[str, Any]]:
        """Read what is there; the progress of each batch with rows."""
        stream = self._spark.readStream.schema("key long, amount long").option("maxFilesPerTrigger", 1)
        counted = stream.parquet(str(source)).groupBy("key").agg({"key": "count", "amount": "sum"})
        query: StreamingQuery = (
            counted.writeStream.format("noop")
            .outputMode("update")
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return [each for each in map(_plain, query.recentProgress) if each["numInputRows"]]

    def _unload(self) -> None:
        """Let the executor hold no state any more, as one that has just started."""
        jvm: Any = self._spark._jvm
        jvm.org.apache.spark.sql.execution.streaming.state.StateStore.stop()

    def _used(self, side: str) -> int | None:
        """What all state takes in a database; None of a backend that has it in the checkpoint."""
        if side == REDIS:
            import redis

            host, port = str(self._task["redis"]).split(":")
            return int(redis.Redis(host, int(port)).info("memory")["used_memory"])
        if side == CASSANDRA:
            node = self._task["cassandra"]
            return flushed_bytes(Path(node["folder"]), node["jmx"], self._keyspace)
        return None


def _plain(progress: Any) -> dict[str, Any]:
    return dict(json.loads(progress.json))


def _size(folder: Path) -> int:
    return sum(each.stat().st_size for each in (folder / "state").rglob("*") if each.is_file())


@contextmanager
def _session(folder: Path) -> Iterator[SparkSession]:
    jars = [hf.state_jar(), *sorted(_CLIENTS.glob("*/*.jar"))]
    conf = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": str(_PARTITIONS),
        "spark.sql.streaming.numRecentProgressUpdates": "1000",
        JARS_KEY: ",".join(map(str, jars)),
    }
    spark = hf.session("holdfast-bench", home=folder / "home", conf=conf)
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()


def _measure(task: Mapping[str, Any]) -> dict[str, Any]:
    folder = Path(task["folder"]) / "spark"
    folder.mkdir()
    found: dict[str, Any] = {
        side: {
            "batch_s": [],
            "commit_s": [],
            "recovery_s": defaultdict(list),
            "small_s": defaultdict(list),
        }
        for side in task["sides"]
    }
    with _session(folder) as spark:
        bench = Bench(spark, folder, task)
        for number in range(task["runs"] + 1):
            for side in in_turn(task["sides"], number):
                batches, commits, size, rows = bench.run(side)
                if number:
                    found[side]["batch_s"] += batches
                    found[side]["commit_s"] += commits
                    found[side] |= {"state_bytes": size, "rows": rows}
                for keys in RECOVERED:
                    first, second = bench.recover(side, keys)
                    if number:
                        found[side]["recovery_s"][str(keys)].append(first)
                        found[side]["small_s"][str(keys)].append(second)
        for side in task["sides"]:
            bench.use(side)
            found[side] |= single_access(spark, folder / side)
    return found


if __name__ == "__main__":
    sys.stdout.write(json.dumps(_measure(json.loads(sys.stdin.read()))) + "\n")
