package org.apache.spark.sql.execution.streaming.state
package examiners

import java.io.File
import java.nio.file.Files
import java.util.UUID

import scala.util.Random

import org.apache.hadoop.conf.Configuration
import org.scalatest.BeforeAndAfter

import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.types.StructType

import holdfast.state.RedisStateStoreProvider

object Redis {
  /** The settings of a session whose state is in Redis. */
  val settings: Seq[(String, String)] = Seq(
    "spark.sql.streaming.stateStore.providerClass" -> classOf[RedisStateStoreProvider].getName,
    "spark.sql.streaming.stateStore.holdfast.redis.address" -> sys.props("examiners.redis"),
    "spark.sql.streaming.stateStore.checkpointFormatVersion" -> "1",
    "spark.sql.streaming.stateStore.rowChecksum.enabled" -> "false")
}

/**
 * Spark's abstract suite of state stores on Redis.
 *
 * A query has two things that the suite's stores lack: the file `metadata` with the query's id next to the directory of
 * the state, and one run id for all stores. They are added here. Redis has no column families, so the tests run
 * without them, whatever a test asks for.
 */
class RedisStoreSuite extends StateStoreSuiteBase[RedisStateStoreProvider] with BeforeAndAfter {
  import StateStoreTestsHelper._

  private val run = UUID.randomUUID().toString

  before(StateStore.stop())
  after(StateStore.stop())

  private def stateDirectory(root: String): String =
    if (new File(root).getName == "state") root
    else {
      val metadata = new File(root.stripPrefix("file:"), "metadata")
      if (!metadata.exists() && !root.stripPrefix("file:").contains("://")) {
        Files.createDirectories(metadata.toPath.getParent)
        Files.writeString(metadata.toPath, s"""{"id":"${UUID.randomUUID()}"}""")
      }
      s"$root/state"
    }

  private def open(
      id: StateStoreId,
      conf: SQLConf,
      encoder: KeyStateEncoderSpec = NoPrefixKeyStateEncoderSpec(keySchema),
      hadoop: Configuration = new Configuration): RedisStateStoreProvider = {
    Redis.settings.foreach { case (key, value) => conf.setConfString(key, value) }
    hadoop.set("sql.streaming.runId", run)
    val provider = new RedisStateStoreProvider
    provider.init(
      StateStoreId(stateDirectory(id.checkpointRootLocation), id.operatorId, id.partitionId, id.storeName),
      keySchema, valueSchema, encoder, useColumnFamilies = false, new StateStoreConf(conf), hadoop,
      useMultipleValuesPerKey = false, stateSchemaProvider = None)
    provider
  }

  private def defaultConf = getDefaultSQLConf(
    SQLConf.STATE_STORE_MIN_DELTAS_FOR_SNAPSHOT.defaultValue.get,
    SQLConf.MAX_BATCHES_TO_RETAIN_IN_MEMORY.defaultValue.get)

  private def newId = StateStoreId(newDir(), Random.nextInt(Int.MaxValue), 0)

  override def newStoreProvider(): RedisStateStoreProvider = open(newId, defaultConf)
  override def newStoreProvider(id: StateStoreId): RedisStateStoreProvider = open(id, defaultConf)
  override def newStoreProvider(id: StateStoreId, columnFamilies: Boolean): RedisStateStoreProvider =
    open(id, defaultConf)
  override def newStoreProvider(id: StateStoreId, hadoop: Configuration): RedisStateStoreProvider =
    open(id, defaultConf, hadoop = hadoop)
  override def newStoreProvider(minDeltas: Int, versions: Int): RedisStateStoreProvider =
    open(newId, getDefaultSQLConf(minDeltas, versions))
  override def newStoreProvider(
      keys: StructType, encoder: KeyStateEncoderSpec, columnFamilies: Boolean): RedisStateStoreProvider =
    open(newId, defaultConf, encoder)
  override def newStoreProvider(columnFamilies: Boolean): RedisStateStoreProvider = open(newId, defaultConf)
  override def newStoreProviderWithClonedConf(id: StateStoreId): RedisStateStoreProvider = open(id, cloneSQLConf())
  override def newStoreProviderNoInit(): RedisStateStoreProvider = new RedisStateStoreProvider

  override def getLatestData(provider: RedisStateStoreProvider, families: Boolean): Set[((String, Int), Int)] =
    getData(provider, -1, families)

  override def getData(provider: RedisStateStoreProvider, version: Int, families: Boolean): Set[((String, Int), Int)] =
    tryWithProviderResource(newStoreProvider(provider.stateStoreId)) { reopened =>
      val store = reopened.getStore(if (version >= 0) version else newest(reopened))
      try rowPairsToDataSet(store.iterator())
      finally if (!store.hasCommitted) store.abort()
    }

  private def newest(provider: RedisStateStoreProvider): Int =
    Iterator.from(1).takeWhile { version =>
      try {
        val store = provider.getReadStore(version)
        try { store.iterator().hasNext; true } finally store.abort()
      } catch { case _: RuntimeException => false }
    }.foldLeft(0)((_, version) => version)

  override def getDefaultSQLConf(minDeltas: Int, versions: Int): SQLConf = {
    val conf = new SQLConf()
    conf.setConf(SQLConf.STATE_STORE_MIN_DELTAS_FOR_SNAPSHOT, minDeltas)
    conf.setConf(SQLConf.MAX_BATCHES_TO_RETAIN_IN_MEMORY, versions)
    conf.setConf(SQLConf.MIN_BATCHES_TO_RETAIN, 2)
    conf.setConf(SQLConf.STATE_STORE_COMPRESSION_CODEC, SQLConf.get.stateStoreCompressionCodec)
    conf
  }

  // Of Holdfast: Spark tests these only for its own providers.

  test("holdfast: a committed store that does not hold all rows shows the version that it made") {
    tryWithProviderResource(newStoreProvider()) { provider =>
      val first = provider.getStore(0)
      put(first, "a", 0, 1)
      put(first, "b", 0, 1)
      first.commit()
      tryWithProviderResource(newStoreProvider(provider.stateStoreId)) { reopened =>
        val store = reopened.getStore(1)
        put(store, "a", 0, 2)
        remove(store, _._1 == "b")
        put(store, "c", 0, 3)
        assert(store.commit() === 2)
        assert(rowPairsToDataSet(store.iterator()) === Set(("a", 0) -> 2, ("c", 0) -> 3))
        assert(get(store, "a", 0) === Some(2))
        assert(get(store, "b", 0) === None)
        // The next attempt changes nothing of it.
        val next = reopened.getStore(2)
        put(next, "a", 0, 9)
        assert(rowPairsToDataSet(store.iterator()) === Set(("a", 0) -> 2, ("c", 0) -> 3))
        next.abort()
      }
    }
  }

  test("holdfast: iterators show the store at the moment of their creation, as RocksDB's do") {
    tryWithProviderResource(newStoreProvider()) { provider =>
      val store = provider.getStore(0)
      val empty = store.iterator()
      put(store, "a", 0, 1)
      val one = store.iterator()
      put(store, "a", 0, 2)
      put(store, "b", 0, 3)
      assert(rowPairsToDataSet(empty) === Set.empty)
      assert(rowPairsToDataSet(one) === Set(("a", 0) -> 1))
      assert(rowPairsToDataSet(store.iterator()) === Set(("a", 0) -> 2, ("b", 0) -> 3))
      store.abort()
    }
  }

  test("holdfast: a batch that runs again replaces what its first run committed") {
    tryWithProviderResource(newStoreProvider()) { provider =>
      val first = provider.getStore(0)
      put(first, "a", 0, 1)
      put(first, "b", 0, 1)
      first.commit()
      val again = provider.getStore(0)
      put(again, "a", 0, 2)
      again.commit()
      assert(getLatestData(provider, families = false) === Set(("a", 0) -> 2))
    }
  }
}
