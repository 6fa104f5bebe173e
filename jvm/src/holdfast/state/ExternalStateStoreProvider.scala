package holdfast.state

import java.io.FileNotFoundException
import java.util.concurrent.atomic.AtomicInteger
import java.util.concurrent.locks.ReentrantReadWriteLock

import scala.jdk.CollectionConverters._

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path

import org.apache.spark.TaskContext
import org.apache.spark.internal.Logging
import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.types.StructType

/**
 * Keeps the state of Spark's own operators in a database outside the cluster.
 *
 * A version costs no file: a batch's changes go to the database, and one step there makes them count. So starting
 * again takes as long with much state as with little. What an executor has read or written it holds in memory,
 * within bounds, for as long as it goes on from the version that it has made itself.
 */
abstract class ExternalStateStoreProvider extends StateStoreProvider with Logging {
  import ExternalStateStoreProvider._

  private var id: StateStoreId = _
  private var conf: StateStoreConf = _
  private var hadoop: Configuration = _
  private var rows: Rows = _
  private var settings: Settings = _
  private var run: String = _
  private var retain = 0
  private var checked = false
  private var described: Option[Description] = None
  private var encoder: String = _
  private var schemas: (StructType, StructType) = _
  private var table: VersionedTable = _
  // Held by no store at the moment; and what the stores of a thread have, which reads before it writes.
  private var held: HeldFields = _
  private var lent: Option[Loan] = None
  // The requests that were sent before the batch in progress.
  @volatile private var reported: RequestCounts = _

  // Spark 4.3 lets a provider hold these two, which its trait declares and 4.2's does not: here they are members of
  // the class by the names that the trait's fields have once compiled.
  @volatile var unloaded: Boolean = false
  private var maintenance: ReentrantReadWriteLock = _

  /** Held while a store is cleaned up, and while it is closed. */
  def maintenanceLock: ReentrantReadWriteLock = maintenance

  /** Takes the lock that the trait makes. */
  def org$apache$spark$sql$execution$streaming$state$StateStoreProvider$_setter_$maintenanceLock_$eq(
      lock: ReentrantReadWriteLock): Unit = maintenance = lock

  /** Open a store of this name, which waits for so long where the database does not answer. */
  private[state] def open(settings: Settings, store: String, patienceMillis: Long): VersionedTable

  /** The database's name, as the settings have it, and where it is. */
  private[state] def place(settings: Settings): String

  override def init(
      stateStoreId: StateStoreId,
      keySchema: StructType,
      valueSchema: StructType,
      keyStateEncoderSpec: KeyStateEncoderSpec,
      useColumnFamilies: Boolean,
      storeConf: StateStoreConf,
      hadoopConf: Configuration,
      useMultipleValuesPerKey: Boolean,
      stateSchemaProvider: Option[StateSchemaProvider]): Unit = {
    if (useColumnFamilies || useMultipleValuesPerKey) {
      throw new ExternalStateException(
        s"$kind does not support column families, which transformWithState and joins of state format 3 or later " +
          "need. Use RocksDB; for joins you can set spark.sql.streaming.join.stateFormatVersion to 2 instead")
    }
    if (storeConf.enableStateStoreCheckpointIds) {
      throw new ExternalStateException(
        s"$kind does not support checkpoint ids. Set spark.sql.streaming.stateStore.checkpointFormatVersion to 1")
    }
    id = stateStoreId
    conf = storeConf
    hadoop = hadoopConf
    settings = new Settings(storeConf.sqlConfs)
    schemas = (keySchema, valueSchema)
    encoder = "plain"
    rows = keyStateEncoderSpec match {
      case NoPrefixKeyStateEncoderSpec(_) => new PlainRows(keySchema.length, valueSchema.length)
      case PrefixKeyScanStateEncoderSpec(_, columns) =>
        encoder = s"prefix:$columns"
        new PrefixedRows(keySchema, columns, valueSchema.length)
      case other => throw new ExternalStateException(s"$kind does not support the key encoding $other")
    }
    run = Option(hadoopConf.get(RunKey)).getOrElse(
      throw new ExternalStateException("Spark did not pass the run id of the query"))
    retain = settings.long("retain", DefaultRetained).toInt
    if (retain < 1) {
      throw new ExternalStateException("the setting retain must be at least 1, because a batch may run again")
    }
    described = description()
    table = open(settings, storeName, settings.long("patienceMillis", DefaultPatienceMillis))
    reported = table.times.total
    Providers.incrementAndGet()
  }

  private def kind: String = getClass.getSimpleName.stripSuffix("StateStoreProvider")

  override def stateStoreId: StateStoreId = id

  override def getStore(
      version: Long, checkpointId: Option[String], forceSnapshot: Boolean, loadEmpty: Boolean): StateStore = {
    if (loadEmpty) throw new ExternalStateException(s"$kind does not support loading an empty store")
    requireDescription(version)
    val attempt = table.begin(version, run)
    try {
      check()
      new WriteStore(attempt, borrow(version, writing = true))
    } catch {
      case error: Throwable =>
        table.discard(attempt)
        throw error
    }
  }

  override def getReadStore(version: Long, checkpointId: Option[String]): ReadStateStore = {
    requireDescription(version)
    new ReadOnlyStore(version, borrow(version, writing = false))
  }

  override def doMaintenance(): Unit = table.clean(retain)

  /** What Spark 4.3 calls in its place, but for a store that it is about to close. */
  def doCleanupMaintenance(): Unit = doMaintenance()

  override def close(): Unit = {
    Providers.decrementAndGet()
    table.close()
    synchronized {
      held = null
      lent = None
    }
  }

  override def supportedCustomMetrics: Seq[StateStoreCustomMetric] =
    Seq(AskedMetric, AnsweredHereMetric, WrittenMetric, RequestMicrosMetric) ++ RequestMetrics

  private def prefix: String = ExternalStateStoreProvider.prefix(settings)

  /**
   * The store's name in the database. A checkpoint that was restored or migrated says it; else it is made of the
   * query's own id, so that no other query has the same.
   */
  private def storeName: String = described.map(_.store).getOrElse(
    s"$prefix:{$queryId/${id.operatorId}/${id.partitionId}/${id.storeName}}")

  // Asked for by each partition that starts, and the file may be in an object store.
  private lazy val queryId: String = {
    val file = new Path(new Path(id.checkpointRootLocation).getParent, "metadata")
    val input = file.getFileSystem(hadoop).open(file)
    try {
      val text = new String(input.readAllBytes(), "UTF-8")
      QueryId.findFirstMatchIn(text).map(_.group(1)).getOrElse(
        throw new ExternalStateException(s"the file $file has no query id"))
    } finally input.close()
  }

  private def descriptionPath = new Path(id.storeCheckpointLocation(), DescriptionFile)

  /** What the checkpoint says of where the state is; nothing before the first batch. */
  private def description(): Option[Description] = {
    val file = descriptionPath
    try {
      val input = file.getFileSystem(hadoop).open(file)
      val text = try new String(input.readAllBytes(), "UTF-8") finally input.close()
      for (database <- DatabaseWord.findFirstMatchIn(text); store <- StoreWord.findFirstMatchIn(text))
        yield Description(database.group(1), store.group(1))
    } catch {
      case _: FileNotFoundException => None
    }
  }

  /** A checkpoint beyond its first batch says where its state is, and the state of another must not be taken. */
  private def requireDescription(version: Long): Unit = if (version > 0) {
    // Another executor may have written it since this one began.
    if (described.isEmpty) described = description()
    if (described.isEmpty) {
      throw new ExternalStateException(
        s"the file $descriptionPath, which names the store of version $version, is missing or damaged. Restore a " +
          "savepoint")
    }
  }

  /** Say where the state is, beside Spark's own files and in the database: for people and for other programs. */
  private def describe(): Unit = {
    val now = Description(place(settings), storeName)
    if (!described.contains(now)) {
      val files = CheckpointFileManager.create(descriptionPath.getParent, hadoop)
      files.mkdirs(descriptionPath.getParent)
      val output = files.createAtomic(descriptionPath, overwriteIfPossible = true)
      try {
        output.write(s"""{"database":"${now.database}","store":"${now.store}"}\n""".getBytes("UTF-8"))
        output.close()
      } catch {
        case error: Throwable =>
          output.cancel()
          throw error
      }
      described = Some(now)
    }
    val (key, value) = schemas
    table.describe(
      Names(
        s"$prefix:stores:$queryId",
        s"$prefix:query:$queryId",
        GenerationOf.findFirstMatchIn(now.store).fold("")(_.group(1))),
      Map("keySchema" -> key.json, "valueSchema" -> value.json, "encoder" -> encoder, "layout" -> Layout.Version))
  }

  private def check(): Unit = if (!checked) {
    table.check()
    describe()
    checked = true
  }

  /** What is held of a version, for one thread: Spark's aggregation reads with one store and writes with another. */
  private def borrow(version: Long, writing: Boolean): HeldFields = synchronized {
    val fields = lent match {
      case Some(loan) if (loan.thread eq Thread.currentThread) && loan.fields.version == version => loan.fields
      case _ if held != null && held.version == version => held
      case _ => new HeldFields(version, () => room())
    }
    held = null
    lent = Some(Loan(Thread.currentThread, fields, writing))
    fields
  }

  private def giveBack(fields: HeldFields, writing: Boolean, usable: Boolean): Unit = synchronized {
    if (lent.exists(loan => (loan.fields eq fields) && loan.writing == writing)) {
      lent = None
      held = if (usable) fields else null
    }
  }

  private def room(): Long =
    settings.long("cacheBytes", DefaultCacheBytes) / math.max(1, Providers.get)

  /** What both kinds of stores read: what is held, then the database. */
  private class Reading(version: Long, val fields: HeldFields, attempt: Option[Attempt]) {
    var asked = 0L
    var answeredHere = 0L
    private var sinceFilled = 0L
    private var triedToFill = false

    def get(field: UnsafeRow): Array[Byte] = {
      val found = fields.get(field)
      if (found ne HeldFields.Unknown) {
        answeredHere += 1
        found
      } else if (fill()) fields.get(field)
      else {
        asked += 1
        sinceFilled += 1
        val value = table.read(version, attempt, Array(Rows.bytes(field)))(0)
        fields.put(field.copy(), value)
        value
      }
    }

    /** Read many at once, as far as they are not held. */
    def prefetch(wanted: Seq[UnsafeRow]): Unit = {
      val missing = wanted.filter(field => fields.get(field) eq HeldFields.Unknown)
      if (missing.nonEmpty) {
        asked += missing.size
        val found = table.read(version, attempt, missing.map(Rows.bytes).toArray)
        missing.iterator.zip(found.iterator).foreach { case (field, value) => fields.put(field, value) }
      }
    }

    def all(): Iterator[(UnsafeRow, Array[Byte])] =
      if (fields.isWhole) fields.entries()
      else table.scan(version, attempt).map(entry => (Rows.row(entry.field, rows.columnsOfField), entry.value))

    /** Read everything in one go, once single questions have cost as much as that would. */
    private def fill(): Boolean =
      if (triedToFill || sinceFilled < FewQuestions || sinceFilled * QuestionsWorthAScan < table.size()) false
      else {
        triedToFill = true
        fields.fill(all())
      }
  }

  private final class ReadOnlyStore(val version: Long, held: HeldFields) extends ReadStateStore with OneFamily {
    private val reading = new Reading(version, held, None)
    private val fields = new Fields {
      override def get(field: UnsafeRow): Array[Byte] = reading.get(field)
      override def put(field: UnsafeRow, value: Array[Byte]): Unit = throw new UnsupportedOperationException("put")
    }

    override def id: StateStoreId = ExternalStateStoreProvider.this.id
    override def get(key: UnsafeRow, family: String): UnsafeRow = rows.get(fields, key)

    override def prefixScan(prefix: UnsafeRow, family: String): StateStoreIterator[UnsafeRowPair] =
      pairs(rows.prefixScan(fields, prefix))

    override def iterator(family: String): StateStoreIterator[UnsafeRowPair] =
      pairs(reading.all().flatMap { case (field, value) => rows.of(field, value) })

    override def abort(): Unit = release()
    override def release(): Unit = giveBack(held, writing = false, usable = true)
  }

  private final class WriteStore(attempt: Attempt, held: HeldFields) extends StateStore with OneFamily {
    private val reading = new Reading(attempt.version, held, Some(attempt))
    // The version that this store has made. What is held may be lent to the next task by then.
    private lazy val committed =
      new Reading(attempt.version + 1, new HeldFields(attempt.version + 1, () => room()), None)
    private val changes = new java.util.HashMap[UnsafeRow, Array[Byte]]
    private var changedBytes = 0L
    // Whether some changes are in the database already, and in what is held.
    private var staged = false
    private var written = 0L
    private var total = -1L
    // Counted once the store is committed, with the requests of the store that read this version for the same task.
    private var requests = RequestTimes.NoRequests
    @volatile private var state: String = "open"

    private val fields = new Fields {
      override def get(field: UnsafeRow): Array[Byte] =
        if (changes.containsKey(field)) changes.get(field) else current.get(field)

      override def put(field: UnsafeRow, value: Array[Byte]): Unit = {
        require(state == "open", s"the store is $state")
        changes.put(field, value)
        changedBytes += HeldFields.cost(field, value)
        if (changedBytes > ChangesTogether) stage()
      }
    }

    Option(TaskContext.get()).foreach(_.addTaskCompletionListener[Unit](_ => abort()))

    override def id: StateStoreId = ExternalStateStoreProvider.this.id
    override def version: Long = attempt.version
    override def get(key: UnsafeRow, family: String): UnsafeRow = rows.get(fields, key)

    /** What is read: the changes of this attempt, and once it is committed, the version that it has made. */
    private def current: Reading = if (hasCommitted) committed else reading

    override def multiGet(keys: Array[UnsafeRow], family: String): Iterator[UnsafeRow] = {
      current.prefetch(keys.toSeq.map(key => rows.fieldOf(key).copy()).distinct.filterNot(changes.containsKey))
      keys.iterator.map(rows.get(fields, _))
    }

    override def put(key: UnsafeRow, value: UnsafeRow, family: String): Unit = {
      require(value != null, "Cannot put a null value")
      rows.put(fields, key, value)
    }

    override def remove(key: UnsafeRow, family: String): Unit = rows.remove(fields, key)

    override def prefixScan(prefix: UnsafeRow, family: String): StateStoreIterator[UnsafeRowPair] =
      pairs(rows.prefixScan(fields, prefix))

    override def iterator(family: String): StateStoreIterator[UnsafeRowPair] = {
      val snapshot = new java.util.HashMap[UnsafeRow, Array[Byte]](changes)
      val unchanged = current.all().filterNot { case (field, _) => snapshot.containsKey(field) }
      val changed = snapshot.asScala.iterator.filter(_._2 != null)
      pairs((unchanged ++ changed).flatMap { case (field, value) => rows.of(field, value) })
    }

    override def commit(): Long = {
      require(state == "open", s"the store is $state")
      stage()
      total = table.commit(attempt, run)
      countRequests()
      held.advance(attempt.version + 1)
      state = "committed"
      giveBack(held, writing = true, usable = true)
      if (conf.commitValidationEnabled) StateStore.reportCommitToCoordinator(attempt.version + 1, id, hadoop)
      attempt.version + 1
    }

    override def abort(): Unit = if (state == "open") {
      state = "aborted"
      giveBack(held, writing = true, usable = !staged)
      try table.discard(attempt)
      catch {
        case error: ExternalStateException => logWarning("the staged rows of a task could not be deleted", error)
      } finally countRequests()
    }

    private def countRequests(): Unit = {
      val now = table.times.total
      requests = now.since(reported)
      reported = now
    }

    override def release(): Unit = abort()

    private def stage(): Unit = if (!changes.isEmpty) {
      staged = true
      written += changes.size
      table.stage(attempt, changes.asScala.iterator.map { case (field, value) => Entry(field.getBytes, value) })
      changes.forEach((field, value) => held.put(field, value))
      changes.clear()
      changedBytes = 0
    }

    override def metrics: StateStoreMetrics = StateStoreMetrics(
      if (total >= 0) total else table.size(),
      held.bytes,
      Map[StateStoreCustomMetric, Long](
        AskedMetric -> reading.asked,
        AnsweredHereMetric -> reading.answeredHere,
        WrittenMetric -> written,
        RequestMicrosMetric -> requests.micros) ++
        RequestMetrics.zipWithIndex.map { case (metric, bucket) => metric -> requests.inBucket(bucket) },
      Map.empty)

    override def getStateStoreCheckpointInfo(): StateStoreCheckpointInfo =
      StateStoreCheckpointInfo(id.partitionId, attempt.version + 1, None, None)

    override def hasCommitted: Boolean = state == "committed"

    override def createColFamilyIfAbsent(
        family: String, key: StructType, value: StructType, encoder: KeyStateEncoderSpec,
        multipleValues: Boolean, internal: Boolean): Unit = noFamilies()

    override def removeColFamilyIfExists(family: String): Boolean = noFamilies()
    override def putList(key: UnsafeRow, values: Array[UnsafeRow], family: String): Unit = noFamilies()
    override def merge(key: UnsafeRow, value: UnsafeRow, family: String): Unit = noFamilies()
    override def mergeList(key: UnsafeRow, values: Array[UnsafeRow], family: String): Unit = noFamilies()
  }

  /** What only RocksDB does, and no operator that this provider serves asks for. */
  private trait OneFamily {
    protected def noFamilies(): Nothing =
      throw new UnsupportedOperationException(s"$kind supports only one value per key and one column family")

    def allColumnFamilyNames: Set[String] = Set(StateStore.DEFAULT_COL_FAMILY_NAME)
    def valuesIterator(key: UnsafeRow, family: String): Iterator[UnsafeRow] = noFamilies()

    def prefixScanWithMultiValues(prefix: UnsafeRow, family: String): StateStoreIterator[UnsafeRowPair] =
      noFamilies()

    def iteratorWithMultiValues(family: String): StateStoreIterator[UnsafeRowPair] = noFamilies()
  }

  private def pairs(all: Iterator[(UnsafeRow, UnsafeRow)]): StateStoreIterator[UnsafeRowPair] = {
    val pair = new UnsafeRowPair()
    new StateStoreIterator(all.map { case (key, value) => pair.withRows(key, value) }, () => ())
  }
}

private[state] object ExternalStateStoreProvider {
  /** What all names in the database begin with. */
  def prefix(settings: Settings): String = settings.get("prefix").getOrElse("holdfast")

  // As Spark's StreamExecution has it.
  private val RunKey = "sql.streaming.runId"
  private val QueryId = "\"id\"\\s*:\\s*\"([0-9a-fA-F-]{36})\"".r
  private val DescriptionFile = "external.json"
  private val DatabaseWord = "\"database\"\\s*:\\s*\"([^\"\\\\]+)\"".r
  // A restored or migrated checkpoint has a word of its own at the end of its stores' names.
  private val GenerationOf = "\\{[^/]+/[0-9]+/[0-9]+/[^/]+/([^/}]+)\\}".r
  private val StoreWord = "\"store\"\\s*:\\s*\"([^\"\\\\]+)\"".r
  private val DefaultRetained = 10L
  private val DefaultPatienceMillis = 60000L
  private val DefaultCacheBytes = 256L << 20
  // How much one task gathers before it brings it to the database.
  private val ChangesTogether = 64L << 20
  private val FewQuestions = 200L
  // A scan reads a field this many times as fast as single questions do.
  private val QuestionsWorthAScan = 16L

  private val AskedMetric =
    StateStoreCustomSumMetric("externalReads", "fields read from the database")
  private val AnsweredHereMetric =
    StateStoreCustomSumMetric("externalHeldReads", "fields read from the executor's memory")
  private val WrittenMetric =
    StateStoreCustomSumMetric("externalWrites", "fields written to the database")
  private val RequestMicrosMetric =
    StateStoreCustomSumMetric("externalRequestMicros", "microseconds spent on requests to the database")

  // Spark adds up what its tasks report, and a percentile cannot be added up: so each bucket of the histogram is a metric.
  private val RequestMetrics: Seq[StateStoreCustomSumMetric] = {
    val limits = RequestTimes.LimitsMillis
    val bounded = limits.zip(0 +: limits).map { case (limit, before) =>
      StateStoreCustomSumMetric(s"externalRequestsTo${limit}ms", s"requests to the database, $before to $limit ms")
    }
    bounded :+ StateStoreCustomSumMetric(
      s"externalRequestsOver${limits.last}ms", s"requests to the database, over ${limits.last} ms")
  }

  /** Where a store is, as the checkpoint says it. */
  private final case class Description(database: String, store: String)

  private final case class Loan(thread: Thread, fields: HeldFields, writing: Boolean)

  /** The providers of this executor, which share the room for what is held. */
  private val Providers = new AtomicInteger
}

/** Keeps state in Redis. */
final class RedisStateStoreProvider extends ExternalStateStoreProvider {
  override def open(settings: Settings, store: String, patienceMillis: Long): VersionedTable =
    new RedisTable(RedisPlace.from(settings), store, patienceMillis)

  override def place(settings: Settings): String = RedisPlace.from(settings).toString
}

/** What Python compares with its own, so that a jar of another release is noticed. */
object Layout {
  val Version = "1"
}
