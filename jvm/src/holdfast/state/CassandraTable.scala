package holdfast.state

import java.io.{ByteArrayOutputStream, DataInputStream, DataOutputStream}
import java.lang.{Long => JavaLong}
import java.nio.ByteBuffer
import java.util.concurrent.{CompletionStage, ConcurrentHashMap, ExecutionException}

import scala.annotation.tailrec
import scala.collection.immutable.SortedMap
import scala.collection.mutable
import scala.jdk.CollectionConverters._

import com.datastax.oss.driver.api.core.{AllNodesFailedException, DriverException, DriverTimeoutException}
import com.datastax.oss.driver.api.core.RequestThrottlingException
import com.datastax.oss.driver.api.core.auth.AuthenticationException
import com.datastax.oss.driver.api.core.connection.{ClosedConnectionException, HeartbeatException}
import com.datastax.oss.driver.api.core.cql.{AsyncResultSet, BatchStatement, BoundStatement, DefaultBatchType}
import com.datastax.oss.driver.api.core.cql.{PreparedStatement, Row, Statement}
import com.datastax.oss.driver.api.core.servererrors.{QueryExecutionException, QueryValidationException}
import com.datastax.oss.driver.api.core.servererrors.{ReadFailureException, ServerError}
import com.datastax.oss.driver.api.core.servererrors.UnauthorizedException
import com.datastax.oss.protocol.internal.util.Bytes

/**
 * A store in Cassandra; [[CassandraSession]] says how it lies there.
 *
 * Nothing that is read is changed in place. An attempt adds rows of its own, and a version is the newest row
 * of each field among those that count: [[Lineage]]. Which ones count is in one row, which only transactions
 * change that compare first. Where their answer does not come, they may have been done or not, and may still
 * be done: then the row is read in a way that ends what is under way, and the change is thought out anew.
 */
final class CassandraTable(place: CassandraPlace, name: String, patienceMillis: Long) extends VersionedTable {
  import CassandraTable._
  import VersionedTable.Buckets

  private var session: CassandraSession = _
  // As this process knows it; a change that is built on an older one is not applied.
  @volatile private var known: CassandraHead = _
  private val staging = new ConcurrentHashMap[Long, Staging]

  override def begin(version: Long, run: String): Attempt = {
    if (version == 0) make(run)
    val begun = change(version) { head =>
      head.begin(version, run).map { case (after, attempt) =>
        (after, (attempt, new Staging(head.lineage(version).get, head.fields(version))))
      }
    }
    begun match {
      case Right((attempt, stage)) =>
        staging.put(attempt.number, stage)
        attempt
      case Left(Over(reached)) =>
        throw refused(VersionedTable.passed(version, reached, VersionedTable.RestoreEarlier))
      case Left(why) => throw refused(version, why)
    }
  }

  override def size(): Long = readHead(serially = false).fold(0L)(head => head.fields(head.newest))

  override def check(): Unit = readHead(serially = false).filter(_.newest > 0).foreach { head =>
    val found = presentBuckets()
    if (found.size < Buckets) {
      val lost = (0 until Buckets).filterNot(found)
      throw new ExternalStateException(
        s"state in $place is damaged: store $name lacks ${lost.size} of $Buckets parts at version " +
          s"${head.newest}, among them part ${lost.head}. They were deleted outside Holdfast. " +
          "Restore a savepoint")
    }
  }

  override def describe(names: Names, description: Map[String, String]): Unit =
    together(Seq(
      bind(_.describe, names.stores, name, description.asJava),
      bind(_.noteGeneration, names.generation, names.query)))

  override def noteBatch(query: String, batch: Long, run: String): Unit =
    together(Seq(bind(_.noteBatch, batch, run, query)))

  override def read(version: Long, attempt: Option[Attempt], fields: Array[Array[Byte]]): Array[Array[Byte]] =
    reading(version, attempt) { lineage =>
      val found = new Array[Array[Byte]](fields.length)
      val places = mutable.HashMap.empty[ByteBuffer, List[Int]]
      for (i <- fields.indices) {
        val field = ByteBuffer.wrap(fields(i))
        places(field) = i :: places.getOrElse(field, Nil)
      }
      newest(_.read, lineage, places.keys) { (field, row) =>
        if (row.getBoolean(Live)) for (i <- places(field)) found(i) = bytes(row.getByteBuffer(Value))
      }
      found
    }

  override def scan(version: Long, attempt: Option[Attempt]): Iterator[Entry] =
    (0 until Buckets).iterator.grouped(ScannedTogether).flatMap { some =>
      val first = together(some.map(b => bind(_.scan, name, b).setPageSize(ScannedRows)))
      // Page by page in all of them: a page, and the field that the one before ended with.
      Iterator.unfold(first.map(page => (page, null: ByteBuffer))) { pages =>
        if (pages.isEmpty) None
        else {
          val rows = pages.map(_._1.currentPage.asScala.toSeq)
          val found = reading(version, attempt) { lineage =>
            rows.zip(pages).map { case (some, (_, last)) => entries(some, lineage, last) }
          }
          val more = pages.zip(found).collect {
            case ((page, _), (_, last)) if page.hasMorePages => (page, last)
          }
          Some((found.flatMap(_._1), followed(more.map(_._1)).zip(more.map(_._2))))
        }
      }.flatten
    }

  /**
   * The entries among rows that come by field, the newest first; and the field that the last of them is of.
   */
  private def entries(rows: Seq[Row], lineage: Lineage, before: ByteBuffer): (Seq[Entry], ByteBuffer) = {
    var last = before
    val all = mutable.ArrayBuffer.empty[Entry]
    // A bucket without fields has one row for what is said of the bucket itself.
    for (row <- rows if !row.isNull(Field) && lineage.has(row.getLong(Number))) {
      val field = row.getByteBuffer(Field)
      if (field != last && row.getBoolean(Live)) all += Entry(bytes(field), bytes(row.getByteBuffer(Value)))
      last = field
    }
    (all.toSeq, last)
  }

  override def stage(attempt: Attempt, changes: Iterator[Entry]): Unit = {
    val stage = staged(attempt)
    for (some <- changes.grouped(StagedTogether)) {
      val values = mutable.LinkedHashMap.empty[ByteBuffer, Array[Byte]]
      some.foreach(entry => values(ByteBuffer.wrap(entry.field)) = entry.value)
      together(packed(values.keys).map(part => bind(_.note, name, attempt.number, stage.nextPart(), part)))
      val there = mutable.HashSet.empty[ByteBuffer]
      if (!stage.isFirst) {
        newest(_.readFields, stage.lineage.and(attempt.number), values.keys) { (field, row) =>
          if (row.getBoolean(Live)) there += field
        }
      }
      val step = stage.nextStep()
      inBatches(values.toSeq) { case (field, value) =>
        val stored = if (value == null) Array.emptyByteArray else value
        val row = bind(
          _.write, name, bucketOf(field), field, attempt.number, value != null, ByteBuffer.wrap(stored), step)
        (row, field.remaining + stored.length)
      }
      stage.more += values.count { case (field, value) => value != null && !there(field) } -
        values.count { case (field, value) => value == null && there(field) }
    }
  }

  override def commit(attempt: Attempt, run: String): Long = {
    val more = Option(staging.get(attempt.number)).fold(0L)(_.more)
    change(attempt.version)(_.commit(attempt, run, more)) match {
      case Right(total) =>
        staging.remove(attempt.number)
        total
      case Left(Over(reached)) =>
        throw refused(s"the task is too late to commit version ${attempt.version + 1}: the query is at $reached")
      case Left(Discarded) => throw refused(s"attempt ${attempt.number} was discarded earlier")
      case Left(why) => throw refused(attempt.version, why)
    }
  }

  override def discard(attempt: Attempt): Unit = {
    staging.remove(attempt.number)
    val dead = change(attempt.version) { head =>
      head.discard(attempt.number).andSaid(_.isDead(attempt.number))
    }
    // What has committed, though its answer was lost, stays.
    if (dead.contains(true)) deleteRowsOf(attempt.number)
  }

  override def changes(version: Long): Iterator[Entry] = {
    val head = readHead(serially = false).getOrElse(throw gone(version))
    val attempt = head.versions.getOrElse(version, throw refused(version, Missing(head.newest)))
    if (version > 0 && version == head.oldest) {
      throw new ExternalStateException(
        s"the changes of version $version of store $name are not in $place, because it is the oldest version")
    }
    notes(attempt).flatMap { case (_, fields) => fields.distinct.grouped(ReadTogether) }.flatMap { fields =>
      val asked = fields.map(bytes).toArray
      asked.iterator.zip(read(version, None, asked).iterator).map {
        case (field, value) => Entry(field, value)
      }
    }
  }

  override def clean(retain: Int): Unit = for (seen <- readHead(serially = false)) {
    def left(head: CassandraHead) =
      head.unfolded.toSeq.sorted.map(number => (number, true)) ++
        head.undeleted.toSeq.sorted.map(number => (number, false))

    if ((seen.forget(retain) ne seen) || left(seen).nonEmpty) {
      val forgotten = change(seen.newest)(_.forget(retain).andSaid(identity))
      for (head <- forgotten; some <- left(head).grouped(CleanedTogether)) {
        for ((number, committed) <- some) {
          if (committed) fold(number, head.lineage(head.oldest).get) else deleteRowsOf(number)
        }
        change(seen.newest)(_.cleaned(some.map(_._1).toSet).andSaid(_ => ()))
      }
    }
  }

  override def close(): Unit = synchronized {
    if (session != null) CassandraSessions.giveBack(place)
    session = null
  }

  /**
   * See that the store is there, if only without a version: whoever began with it may have died in between.
   */
  private def make(run: String): Unit = {
    if (readHead(serially = true).isEmpty) {
      if (presentBuckets().nonEmpty && readHead(serially = true).isEmpty) {
        throw new ExternalStateException(
          s"store $name in $place has rows, but its head row is missing. " +
            "It was deleted outside Holdfast. Restore a savepoint")
      }
      val patience = new Patience
      do attempted(patience)(transact(bind(_.makeHead, values(CassandraHead.first(run)) :+ name: _*)))
      while (readHead(serially = true).isEmpty)
    }
    together((0 until Buckets).map(b => bind(_.mark, name, b)))
  }

  private def presentBuckets(): Set[Int] =
    together((0 until Buckets).map(b => bind(_.marked, name, b)))
      .flatMap(_.currentPage.asScala).filter(_.getBoolean("present")).map(_.getInt("bucket")).toSet

  /** Delete the rows that the committed changes of an attempt have replaced for every kept version. */
  private def fold(number: Long, oldest: Lineage): Unit =
    workedOff(number) { fields =>
      val rows = mutable.LinkedHashMap.empty[ByteBuffer, List[Row]]
      ask(_.readFields, oldest.floor, fields)(row => rows.updateWith(row.getByteBuffer(Field)) { before =>
        Some(row :: before.getOrElse(Nil))
      })
      val replaced = rows.toSeq.flatMap { case (field, all) =>
        val counting = all.filter(row => oldest.has(row.getLong(Number)))
        counting.maxByOption(_.getLong(Number)).flatMap { last =>
          // A deletion that is the oldest of its field says nothing any more.
          val upTo = if (last.getBoolean(Live)) last.getLong(Number) - 1 else last.getLong(Number)
          if (all.exists(_.getLong(Number) <= upTo)) Some((field, upTo)) else None
        }
      }
      inBatches(replaced) { case (field, upTo) =>
        (bind(_.deleteUpTo, name, bucketOf(field), field, upTo), field.remaining)
      }
    }

  private def deleteRowsOf(number: Long): Unit =
    workedOff(number) { fields =>
      inBatches(fields.map(field => (field, number))) { case (field, _) =>
        (bind(_.delete, name, bucketOf(field), field, number), field.remaining)
      }
    }

  /** Do something with all fields that an attempt has written; then it has written none. */
  private def workedOff(number: Long)(use: Seq[ByteBuffer] => Unit): Unit = {
    var last = 0
    for ((part, fields) <- notes(number)) {
      fields.distinct.grouped(ReadTogether).foreach(use)
      last = part
    }
    // Not what comes later: an attempt that writes on finds its own fields when it gives up.
    if (last > 0) together(Seq(bind(_.deleteNotes, name, number, last)))
  }

  /** The fields that an attempt has written, part by part. */
  private def notes(number: Long): Iterator[(Int, Seq[ByteBuffer])] = {
    val first = together(Seq(bind(_.noted, name, number).setPageSize(NotedRows)))
    pages(first.head).flatMap(_.iterator).map(row => (row.getInt(0), unpacked(row.getByteBuffer(1))))
  }

  /** The newest row that counts of each field that has one. */
  private def newest(
      statement: CassandraSession => PreparedStatement, lineage: Lineage, fields: Iterable[ByteBuffer])(
      use: (ByteBuffer, Row) => Unit): Unit = {
    val found = mutable.HashSet.empty[ByteBuffer]
    ask(statement, lineage.last, fields) { row =>
      val field = row.getByteBuffer(Field)
      if (lineage.has(row.getLong(Number)) && found.add(field)) use(field, row)
    }
  }

  /** All rows of fields, those of a field together and the newest first. */
  private def ask(
      statement: CassandraSession => PreparedStatement, last: Long, fields: Iterable[ByteBuffer])(
      use: Row => Unit): Unit = {
    val questions = fields.toSeq.groupBy(bucketOf).toSeq.flatMap { case (b, all) =>
      all.grouped(FieldsTogether).map(some => bind(statement, name, b, some.asJava, last))
    }
    for (some <- questions.grouped(AskedTogether); answer <- together(some); rows <- pages(answer)) {
      rows.foreach(use)
    }
  }

  /**
   * Read at a version. For no attempt, see afterwards that the version was kept so long, and is still the
   * same.
   */
  private def reading[T](version: Long, attempt: Option[Attempt])(look: Lineage => T): T = attempt match {
    // An attempt that has read what was cleaned cannot commit.
    case Some(one) => look(staged(one).lineage.and(one.number))
    case None =>
      var before = Option(known).orElse(readHead(serially = false)).filter(_.versions.contains(version))
      while (true) {
        val found = before.flatMap(_.lineage(version)).map(look)
        val after = readHead(serially = false).getOrElse(throw gone(version))
        if (!after.versions.contains(version)) throw refused(version, Missing(after.newest))
        if (before.exists(_.versions.get(version) == after.versions.get(version))) return found.get
        before = Some(after)
      }
      throw endless
  }

  private def staged(attempt: Attempt): Staging = staging.computeIfAbsent(attempt.number, _ => {
    val head = readHead(serially = false).getOrElse(throw gone(attempt.version))
    if (!head.versions.get(attempt.version).contains(attempt.base)) {
      throw refused(attempt.version, Missing(head.newest))
    }
    new Staging(head.lineage(attempt.version).get, Long.MaxValue)
  })

  /** Change the head, or find that this step changes nothing; only what was read just now can say that. */
  private def change[T](version: Long)(
      step: CassandraHead => CassandraHead.Outcome[T]): Either[Refusal, T] = {
    val patience = new Patience
    var before = known
    while (true) {
      val fresh = before == null
      if (fresh) before = readHead(serially = true).getOrElse(throw gone(version))
      step(before) match {
        case Right((after, answer)) if after ne before =>
          val next = after.copy(generation = before.generation + 1)
          val done = attempted(patience) {
            transact(bind(_.changeHead, values(next) :+ name :+ before.generation: _*))
          }
          if (done.contains(true)) {
            known = next
            return Right(answer)
          }
        case Right((_, answer)) if fresh =>
          known = before
          return Right(answer)
        case Left(refusal) if fresh =>
          known = before
          return Left(refusal)
        case _ =>
      }
      before = null
    }
    throw endless
  }

  private def transact(transaction: BoundStatement): Boolean =
    times.measure(taken().cql.execute(transaction.setIdempotent(false)).wasApplied)

  private def readHead(serially: Boolean): Option[CassandraHead] = {
    val question = bind(_.head, name)
    val answer = together(Seq(if (serially) question.setConsistencyLevel(place.serial) else question)).head
    Option(answer.one()).map(headOf)
  }

  private def bind(statement: CassandraSession => PreparedStatement, arguments: Any*): BoundStatement =
    statement(asking(taken())).bind(arguments.map(_.asInstanceOf[AnyRef]): _*)

  /** One partition's changes go together, which costs Cassandra one write. */
  private def inBatches[A](changes: Seq[(ByteBuffer, A)])(
      make: ((ByteBuffer, A)) => (BoundStatement, Int)): Unit = {
    val batches = changes.groupBy { case (field, _) => bucketOf(field) }.valuesIterator.flatMap { all =>
      val some = mutable.ArrayBuffer.empty[BatchStatement]
      var size = BatchBytes
      for ((statement, bytes) <- all.map(make)) {
        if (size >= BatchBytes || some.last.size >= BatchRows) {
          some += BatchStatement.newInstance(DefaultBatchType.UNLOGGED)
          size = 0
        }
        some(some.length - 1) = some.last.add(statement)
        size += bytes
      }
      some
    }
    batches.grouped(WrittenTogether).foreach(together)
  }

  /** Ask all at once. */
  private def together(statements: Iterable[Statement[_]]): Seq[AsyncResultSet] =
    answered(statements.toSeq.map(statement => () => taken().cql.executeAsync(statement)))

  /** The next pages. */
  private def followed(pages: Seq[AsyncResultSet]): Seq[AsyncResultSet] =
    answered(pages.map(page => () => page.fetchNextPage()))

  private def pages(first: AsyncResultSet): Iterator[Seq[Row]] =
    Iterator.iterate(Option(first))(_.filter(_.hasMorePages).map(page => followed(Seq(page)).head))
      .takeWhile(_.nonEmpty).map(_.get.currentPage.asScala.toSeq)

  /** All answers; where one does not come, its question is asked again. */
  private def answered(questions: Seq[() => CompletionStage[AsyncResultSet]]): Seq[AsyncResultSet] = times.measure {
    val answers = new Array[AsyncResultSet](questions.length)
    val patience = new Patience
    while (answers.contains(null)) attempted(patience) {
      val open = questions.indices.filter(answers(_) == null)
      val sent = open.map(i => i -> questions(i)().toCompletableFuture)
      val failed = sent.flatMap { case (i, answer) =>
        try {
          answers(i) = answer.get()
          None
        } catch { case error: ExecutionException => Some(error.getCause) }
      }
      failed.find(!passes(_)).orElse(failed.headOption).foreach(throw _)
    }
    answers.toSeq
  }

  private def taken(): CassandraSession = synchronized {
    if (session == null) session = CassandraSessions.take(place)
    session
  }

  /** Ask, and ask again where no answer comes, for as long as patience lasts. */
  private def asking[T](question: => T): T = {
    val patience = new Patience
    @tailrec def ask(): T = attempted(patience)(question) match {
      case Some(answer) => answer
      case None => ask()
    }
    ask()
  }

  /** The answer, or nothing where none came and there is patience left. */
  private def attempted[T](patience: Patience)(question: => T): Option[T] =
    try Some(question)
    catch {
      case error: AllNodesFailedException if login(error).nonEmpty =>
        throw new ExternalStateException(
          s"$place rejected the user or the password: ${login(error).get.getMessage}. Check both")
      case error: ReadFailureException if error.getReasonMap.containsValue(TooManyTombstones) =>
        throw new ExternalStateException(
          s"$place aborted a read of store $name, because a part has more tombstones than " +
            "tombstone_failure_threshold. Repair and compact the table state_rows, then start the query " +
            "again", error)
      case error: DriverException if passes(error) =>
        patience.after(error)
        None
      case error: UnauthorizedException =>
        throw new ExternalStateException(
          s"${error.getMessage}. The user of $place needs SELECT and MODIFY on keyspace ${place.keyspace}, " +
            "and CREATE until the tables exist")
      case error: QueryValidationException =>
        throw new ExternalStateException(s"$place rejected a statement: ${error.getMessage}", error)
    }

  private final class Patience {
    private val giveUp = System.nanoTime() + patienceMillis * 1000000L
    private var pause = 50L

    def after(error: DriverException): Unit = {
      if (System.nanoTime() > giveUp) {
        throw new ExternalStateException(
          s"$place did not answer for ${patienceMillis / 1000} s: ${error.getMessage}. The last request may or " +
            "may not have taken effect; the batch can run again. Check that the database runs and is reachable",
          error)
      }
      Thread.sleep(pause)
      pause = math.min(pause * 2, 1000L)
    }
  }

  private def refused(why: String) =
    new ExternalStateException(s"$why. Store $name in $place is unchanged")

  private def refused(version: Long, why: Refusal): ExternalStateException = why match {
    case Retired(later) => refused(s"a later run of the query has taken over: $later")
    case Missing(newest) =>
      new ExternalStateException(
        s"version $version of store $name is no longer in $place; the newest version is $newest. A batch can run " +
          "again only on one of the retained versions. Restore a savepoint")
    case other => refused(other.toString)
  }

  private def gone(version: Long) =
    new ExternalStateException(
      s"store $name is missing from $place, but the checkpoint is at version $version. Check the contact " +
        "points and the keyspace; if the tables were emptied, recover their data or restore a savepoint")
}

private object CassandraTable {
  private val ReadTogether = 5000
  private val FieldsTogether = 50
  private val AskedTogether = 16
  private val ScannedTogether = 8
  private val ScannedRows = 2000
  private val StagedTogether = 20000
  private val WrittenTogether = 32
  private val BatchRows = 200
  private val BatchBytes = 64 << 10
  private val NotedBytes = 64 << 10
  private val NotedRows = 20
  private val CleanedTogether = 16
  private val Field = 0
  private val Number = 1
  private val Live = 2
  private val Value = 3
  // As the protocol has it, READ_TOO_MANY_TOMBSTONES.
  private val TooManyTombstones = Int.box(1)

  /** What an attempt has done so far, in the process that does it. */
  private final class Staging(val lineage: Lineage, fieldsBefore: Long) {
    /** How many fields there are more than before. */
    var more = 0L
    private var steps = 0L
    private var parts = 0

    /** Whether there is no field yet that a change could replace. */
    def isFirst: Boolean = fieldsBefore == 0 && steps == 0

    /** What a row is written with, so that it counts over those of earlier steps. */
    def nextStep(): JavaLong = {
      steps += 1
      Long.box(steps)
    }

    def nextPart(): Integer = {
      parts += 1
      Int.box(parts)
    }
  }

  private def bucketOf(field: ByteBuffer): Integer = Int.box(VersionedTable.bucket(bytes(field)))
  private def bytes(buffer: ByteBuffer): Array[Byte] = Bytes.getArray(buffer)

  /** Fields as one value, cut where it becomes large. */
  private def packed(fields: Iterable[ByteBuffer]): Seq[ByteBuffer] = {
    val all = mutable.ArrayBuffer.empty[ByteBuffer]
    var part = new ByteArrayOutputStream
    def cut(): Unit = if (part.size > 0) {
      all += ByteBuffer.wrap(part.toByteArray)
      part = new ByteArrayOutputStream
    }
    for (field <- fields) {
      val output = new DataOutputStream(part)
      output.writeInt(field.remaining)
      output.write(bytes(field))
      if (part.size >= NotedBytes) cut()
    }
    cut()
    all.toSeq
  }

  private def unpacked(part: ByteBuffer): Seq[ByteBuffer] = {
    val input = new DataInputStream(new java.io.ByteArrayInputStream(bytes(part)))
    Iterator.continually(input).takeWhile(_.available > 0)
      .map(_ => ByteBuffer.wrap(input.readNBytes(input.readInt()))).toSeq
  }

  private def headOf(row: Row): CassandraHead = {
    def ranges(name: String) =
      row.getMap(name, classOf[JavaLong], classOf[JavaLong]).asScala.map { case (k, v) => (k: Long, v: Long) }
        .to(SortedMap)
    def numbers(name: String) = row.getSet(name, classOf[JavaLong]).asScala.map(number => number: Long).toSet
    CassandraHead(
      row.getLong("generation"), row.getString("run"),
      row.getList("retired", classOf[String]).asScala.toSeq,
      row.getLong("reached"), row.getLong("next"), ranges("versions"), ranges("fields"),
      numbers("open"), ranges("dead"), numbers("unfolded"), numbers("undeleted"))
  }

  /** In the order of the statements. */
  private def values(head: CassandraHead): Seq[AnyRef] = {
    def ranges(all: SortedMap[Long, Long]) = all.map { case (k, v) => (Long.box(k), Long.box(v)) }.asJava
    def numbers(all: Set[Long]) = all.map(Long.box).asJava
    Seq(
      Long.box(head.generation), head.run, head.retired.asJava, Long.box(head.reached), Long.box(head.next),
      ranges(head.versions), ranges(head.fields), numbers(head.open), ranges(head.dead),
      numbers(head.unfolded), numbers(head.undeleted))
  }

  private def login(error: AllNodesFailedException): Option[Throwable] =
    error.getAllErrors.values.asScala.flatMap(_.asScala).find(_.isInstanceOf[AuthenticationException])

  /** Whether an error may be over in a moment: a connection that broke, a node that is starting. */
  private def passes(error: Throwable): Boolean = error match {
    case _: AllNodesFailedException | _: DriverTimeoutException | _: QueryExecutionException => true
    case _: ClosedConnectionException | _: HeartbeatException | _: ServerError => true
    case _: RequestThrottlingException => true
    case _ => false
  }

  private def endless = new IllegalStateException("the loop above has no end")
}

/** Keeps state in Cassandra. */
final class CassandraStateStoreProvider extends ExternalStateStoreProvider {
  override def open(settings: Settings, store: String, patienceMillis: Long): VersionedTable =
    new CassandraTable(CassandraPlace.from(settings), store, patienceMillis)

  override def place(settings: Settings): String = CassandraPlace.from(settings).toString
}
