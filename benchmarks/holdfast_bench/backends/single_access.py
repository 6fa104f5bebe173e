"""Single reads and writes of a state store, timed within the JVM: a call from Python takes longer."""

from __future__ import annotations

import json
import random
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEYS: Final = 100_000
COUNT: Final = 2_000
SEED: Final = 7

# Spark brings a compiler along, Janino. Times are in nanoseconds.
_PROBE: Final = """
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.state.StateStore;

public class Probe {
  private static UnsafeRow row(int columns, long number) {
    UnsafeRow row = new UnsafeRow(columns);
    row.pointTo(new byte[8 + 8 * columns], 8 + 8 * columns);
    for (int i = 0; i < columns; i++) row.setLong(i, number);
    return row;
  }

  public static void fill(StateStore store, int keys) {
    for (int i = 0; i < keys; i++) store.put(row(1, i), row(2, i), "default");
  }

  public static String time(StateStore store, String numbers, boolean write) {
    String[] keys = numbers.split(",");
    StringBuilder taken = new StringBuilder();
    for (int i = 0; i < keys.length; i++) {
      UnsafeRow key = row(1, Long.parseLong(keys[i]));
      UnsafeRow value = row(2, i);
      long began = System.nanoTime();
      if (write) store.put(key, value, "default");
      else if (store.get(key, "default") == null) throw new IllegalStateException("a key is not there");
      taken.append(System.nanoTime() - began).append(',');
    }
    return taken.toString();
  }
}
"""
_STATE: Final = "org.apache.spark.sql.execution.streaming.state"
# Without this a backend outside the cluster would answer from the executor's memory.
_NO_CACHE: Final = {
    "spark.sql.streaming.stateStore.holdfast.cacheBytes": "0",
    "spark.sql.streaming.stateStore.checkpointFormatVersion": "1",
}


def single_access(spark: SparkSession, folder: Path) -> dict[str, list[float]]:
    """Time them on the backend that the session is set to; microseconds of each.

    Args:
        spark: The session.
        folder: For the store's checkpoint; it is made.
    """
    for key, value in _NO_CACHE.items():
        spark.conf.set(key, value)
    compiler = _jvm(spark).org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(_jvm(spark).java.lang.Thread.currentThread().getContextClassLoader())
    compiler.cook(_PROBE)
    methods = {each.getName(): each for each in compiler.getClassLoader().loadClass("Probe").getMethods()}
    provider = _provider(spark, folder)

    def call(name: str, *words: Any) -> Any:
        arguments = spark._sc._gateway.new_array(_jvm(spark).java.lang.Object, len(words))  # type: ignore[union-attr] # there is one, of Py4J
        for i, word in enumerate(words):
            arguments[i] = word
        return methods[name].invoke(None, arguments)

    try:
        nothing = _jvm(spark).scala.Option.empty()
        store = provider.getStore(0, nothing, False, False)
        call("fill", store, KEYS)
        store.commit()
        chance = random.Random(SEED)  # noqa: S311 - no secret
        found = {}
        for version, (name, write) in enumerate(
            (("warm", False), ("get_us", False), ("put_us", True)), start=1
        ):
            store = provider.getStore(version, nothing, False, False)
            numbers = ",".join(str(chance.randrange(KEYS)) for _ in range(COUNT))
            taken = str(call("time", store, numbers, write)).strip(",").split(",")
            found[name] = [int(each) / 1000 for each in taken]
            store.commit()
        del found["warm"]
        return found
    finally:
        provider.close()


def _provider(spark: SparkSession, folder: Path) -> Any:
    jvm = _jvm(spark)
    (folder / "state").mkdir(parents=True)
    (folder / "metadata").write_text(json.dumps({"id": str(uuid.UUID(int=SEED))}))
    package = jvm
    for word in _STATE.split("."):
        package = getattr(package, word)
    run = jvm.java.util.UUID.randomUUID()
    state = spark._jsparkSession.sessionState()
    state.streamingQueryManager()  # RocksDB's store asks an endpoint that this one starts
    hadoop = state.newHadoopConf()
    hadoop.set("sql.streaming.runId", run.toString())
    place = package.StateStoreId((folder / "state").as_uri(), 0, 0, "default")
    schemas = [
        jvm.org.apache.spark.sql.types.StructType.fromDDL(text)
        for text in ("key long", "count long, sum long")
    ]
    maker = getattr(package, "StateStoreProvider$")
    return getattr(maker, "MODULE$").createAndInit(
        package.StateStoreProviderId(place, run),
        *schemas,
        package.NoPrefixKeyStateEncoderSpec(schemas[0]),
        False,
        package.StateStoreConf(state.conf(), jvm.scala.Predef.Map().empty()),
        hadoop,
        False,
        jvm.scala.Option.empty(),
    )


def _jvm(spark: SparkSession) -> Any:
    return spark._jvm
