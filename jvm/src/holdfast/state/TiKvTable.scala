package holdfast.state

import java.nio.ByteBuffer
import java.nio.charset.StandardCharsets.UTF_8
import java.util.{ConcurrentModificationException, List => JavaList, Optional}
import java.util.concurrent.ConcurrentHashMap

import scala.collection.mutable
import scala.jdk.CollectionConverters._
import scala.jdk.OptionConverters._

import org.tikv.common.exception.{RawCASConflictException, TiKVException}
import org.tikv.common.util.ScanOption
import org.tikv.kvproto.Kvrpcpb.KvPair
import org.tikv.shade.com.google.protobuf.ByteString
import org.tikv.shade.io.grpc.{Status, StatusRuntimeException}

/**
 * A store in TiKV, by its RawKV interface.
 *
 * The keys of a store `S`, which is its name and a zero byte; numbers are big-endian:
 *
 *  - `S h`: the [[TiKvHead]], the only key that is ever written again, by comparing and setting it.
 *  - `S d L F A P K`: a row. `L` is the length of field `F` in 4 bytes, `A` the complement of the attempt that
 *    has written it in 8 and `P` of its part in 4, so that the newest row of a field comes first. `K` is 1 for a
 *    value, 0 where the field was deleted. The row is `K` and the value.
 *  - `S i A P`: which fields part `P` of attempt `A` changes, written before its rows: for each its length in 4
 *    bytes, the field, and `K`.
 *
 * For readers without a checkpoint, as lines of a word and its text, each key with a zero byte before its last part:
 *
 *  - `<prefix>:stores:<query id>`, `<store>`: Spark's JSON of the `keySchema` and `valueSchema`, the `encoder`, and
 *    the `layout`.
 *  - `<prefix>:query:<query id>`, `generation`: that of the stores in use, as in Redis: see [[RedisScripts]].
 *  - `<prefix>:query:<query id>`, `batch`: the `batch` that was committed last, and its `run`.
 *
 * A row that an attempt has written is part of a version if the head says that the attempt counts there; the
 * first such row of a field is its value. So staging overwrites nothing, and a commit is one change of the head.
 * A row is always written with the same bytes, so writing it again changes nothing. Where an answer does not come,
 * the question is asked again; whether the head was changed is seen in the head.
 */
final class TiKvTable(place: TiKvPlace, name: String, patienceMillis: Long) extends VersionedTable {
  import TiKvTable._

  private val prefix = ByteString.copyFrom(s"$name\u0000", UTF_8)
  private val head = prefix.concat(ByteString.copyFromUtf8("h"))
  private val data = prefix.concat(ByteString.copyFromUtf8("d"))
  private val index = prefix.concat(ByteString.copyFromUtf8("i"))
  // The open attempts that this table has begun: how many parts each has, and how many fields more.
  private val begun = new ConcurrentHashMap[Long, Progress]
  private var client: TiKvClient = _
  // What the head was when it was last looked at: an attempt at a version has the same ones before it for ever.
  @volatile private var seen: Option[TiKvHead] = None

  override def begin(version: Long, run: String): Attempt = {
    val attempt = change {
      case None if version != 0 => throw absent(version, None)
      case found =>
        val now = found.getOrElse(TiKvHead.first(run))
        val made = now.versions.getOrElse(version, throw absent(version, found))
        if (now.run != run && now.retired.contains(run)) throw followed(now)
        if (version < now.reached) {
          throw refused(VersionedTable.passed(version, now.reached, "start the query on a new checkpoint"))
        }
        val next = now.begun(version, run)
        (next, Attempt(next.next, version, made.attempt))
    }
    begun.put(attempt.number, new Progress)
    attempt
  }

  override def size(): Long = look().fold(0L)(_.fields)

  override def check(): Unit = {
    var unsure = true
    while (unsure) {
      val before = look()
      for (now <- before) {
        val found = rows(now.counts(now.newest), None, keysOnly = true).count(_.kept)
        unsure = look().forall(later => later.newest != now.newest || later.versions != now.versions)
        if (!unsure && found != now.fields) {
          throw new ExternalStateException(
            s"state in $place is damaged: store $name has $found of ${now.fields} fields. The others were " +
              "deleted outside Holdfast. Recover them, or start the query on a new checkpoint")
        }
      }
      if (before.isEmpty) unsure = false
    }
  }

  override def describe(names: Names, description: Map[String, String]): Unit = {
    note(names.stores, name, description)
    note(names.query, "generation", Map("generation" -> names.generation))
  }

  override def noteBatch(query: String, batch: Long, run: String): Unit =
    note(query, "batch", Map("batch" -> batch.toString, "run" -> run))

  private def note(key: String, part: String, words: Map[String, String]): Unit = {
    val lines = words.toSeq.sorted.map { case (word, text) => s"$word $text" }
    asking(_.plain.put(ByteString.copyFromUtf8(s"$key\u0000$part"), ByteString.copyFromUtf8(lines.mkString("\n"))))
  }

  override def read(version: Long, attempt: Option[Attempt], fields: Array[Array[Byte]]): Array[Array[Byte]] =
    steady(version) { now =>
      newest(fields.toSeq, counting(now, version, attempt), keysOnly = false)
        .map(row => if (row == null) null else row.value)
        .toArray
    }._1

  override def scan(version: Long, attempt: Option[Attempt]): Iterator[Entry] = {
    val now = kept(version)
    rows(counting(now, version, attempt), Some(() => unchanged(version, now)), keysOnly = false)
      .filter(_.kept)
      .map(row => Entry(row.field, row.value))
  }

  override def stage(attempt: Attempt, changes: Iterator[Entry]): Unit = {
    val progress = progressOf(attempt)
    for (some <- changes.grouped(StagedTogether)) {
      val last = mutable.LinkedHashMap.empty[ByteString, Array[Byte]]
      some.foreach(entry => last.put(ByteString.copyFrom(entry.field), entry.value))
      last.foreach { case (field, value) => refuseLarge(field, value) }
      val fields = last.keysIterator.map(_.toByteArray).toSeq
      val (former, now) = steady(attempt.version) { now =>
        existing(fields, counting(now, attempt.version, Some(attempt)), now.fields)
      }
      // What an attempt writes after it was given up nobody reads, and nobody may delete.
      if (!now.open.contains(attempt.number)) throw refused(s"attempt ${attempt.number} was discarded earlier")
      asking(_.plain.put(part(attempt.number, progress.parts), fieldsText(last)))
      val written = last.map { case (field, value) =>
        val kept = value != null
        row(field, attempt.number, progress.parts, kept) ->
          (if (kept) Kept.concat(ByteString.copyFrom(value)) else Deleted)
      }
      asking(_.plain.batchPut(written.asJava))
      progress.parts += 1
      progress.more += last.valuesIterator.count(_ != null) - former
    }
  }

  override def commit(attempt: Attempt, run: String): Long = {
    val made = attempt.version + 1
    val fields = change {
      case None => throw absent(attempt.version, None)
      case Some(now) if now.versions.get(made).exists(_.attempt == attempt.number) =>
        (now, now.versions(made).fields)
      case found @ Some(now) =>
        if (now.run != run) throw followed(now)
        if (now.reached != attempt.version) {
          throw refused(s"the task is too late to commit version $made: the query is at ${now.reached}")
        }
        if (!now.versions.get(attempt.version).exists(_.attempt == attempt.base)) {
          throw absent(attempt.version, found)
        }
        if (!now.open.contains(attempt.number)) throw refused(s"attempt ${attempt.number} was discarded earlier")
        val next = now.committed(attempt, progressOf(attempt).more)
        (next, next.fields)
    }
    begun.remove(attempt.number)
    fields
  }

  override def discard(attempt: Attempt): Unit = {
    begun.remove(attempt.number)
    val dead = change {
      case Some(now) if now.open.contains(attempt.number) =>
        (now.copy(open = now.open - attempt.number, erasing = now.erasing + attempt.number), true)
      case found => (found.orNull, found.exists(_.erasing(attempt.number)))
    }
    if (dead) erase(attempt.number)
  }

  override def changes(version: Long): Iterator[Entry] = {
    val changed = mutable.LinkedHashSet.empty[ByteString]
    parts(kept(version).versions(version).attempt).foreach(_.fields.foreach(change => changed += change.field))
    changed.iterator.map(_.toByteArray).grouped(ReadTogether).flatMap { some =>
      val fields = some.toArray
      fields.iterator.zip(read(version, None, fields).iterator).map { case (field, value) => Entry(field, value) }
    }
  }

  override def clean(retain: Int): Unit = {
    val now = change {
      case None => (null, None)
      case Some(before) =>
        val cleaned = before.cleaned(retain)
        (cleaned, Some(cleaned))
    }
    for (head <- now) {
      head.erasing.foreach(erase)
      head.folding.foreach(fold)
    }
  }

  override def close(): Unit = synchronized {
    if (client != null) TiKvClients.giveBack(place)
    client = null
  }

  /** Delete what an attempt has written, which will never count; what names its rows goes after them. */
  private def erase(attempt: Long): Unit = {
    for (part <- parts(attempt)) {
      delete(part.fields.map(change => row(change.field, attempt, part.number, change.kept)))
      delete(Seq(part.key))
    }
    change {
      case Some(now) => (now.copy(erasing = now.erasing - attempt), ())
      case None => (null, ())
    }
  }

  /** Delete what an attempt up to the floor's has replaced, and its deletions once nothing is under them. */
  private def fold(attempt: Long): Unit = {
    for (part <- parts(attempt)) {
      for (some <- part.fields.grouped(ReadTogether)) {
        val written = some.map(change => row(change.field, attempt, part.number, change.kept))
        val under = some.zip(written).map { case (change, key) => (following(key), end(rowsOf(change.field))) }
        delete(wholly(under))
        delete(some.zip(written).collect { case (change, key) if !change.kept => key })
      }
      delete(Seq(part.key))
    }
    change {
      case Some(now) => (now.copy(folding = now.folding - attempt), ())
      case None => (null, ())
    }
  }

  private def delete(keys: Seq[ByteString]): Unit =
    keys.grouped(DeletedTogether).foreach { some =>
      // The client sorts what it is given.
      asking(_.plain.batchDelete(new java.util.ArrayList(some.asJava)))
    }

  /** Which rows count at a version, and for an attempt. */
  private def counting(now: TiKvHead, version: Long, attempt: Option[Attempt]): Long => Boolean = {
    val counts = now.counts(version)
    val own = attempt.fold(-1L)(_.number)
    number => number == own || counts(number)
  }

  /** How many of these fields are there. */
  private def existing(fields: Seq[Array[Byte]], counts: Long => Boolean, all: Long): Int =
    if (fields.size.toLong * RowsWorthAQuestion < all) newest(fields, counts, keysOnly = true).count(_ != null)
    else {
      val wanted = fields.map(ByteString.copyFrom).toSet
      rows(counts, None, keysOnly = true).count(row => row.kept && wanted(ByteString.copyFrom(row.field)))
    }

  /** The newest row of each field that counts, null where there is none or the field was deleted. */
  private def newest(fields: Seq[Array[Byte]], counts: Long => Boolean, keysOnly: Boolean): Seq[Row] = {
    val starts = fields.map(field => rowsOf(ByteString.copyFrom(field)))
    val found = new Array[Row](fields.size)
    var open: Seq[(Int, ByteString)] = starts.indices.map(i => (i, starts(i)))
    while (open.nonEmpty) {
      open = open.grouped(ReadTogether).toSeq.flatMap { some =>
        val answers = scans(some.map { case (i, from) => (from, end(starts(i))) }, RowsOfAField, keysOnly)
        some.zip(answers).flatMap { case ((i, _), pairs) =>
          pairs.iterator.map(rowFrom).find(row => counts(row.attempt)) match {
            case Some(row) =>
              found(i) = if (row.kept) row else null
              None
            case None if pairs.size == RowsOfAField => Some((i, following(pairs.last.getKey)))
            case None => None
          }
        }
      }
    }
    found.toSeq
  }

  /** The newest row that counts, of every field; each piece is used only once `sure` has been asked. */
  private def rows(counts: Long => Boolean, sure: Option[() => Unit], keysOnly: Boolean): Iterator[Row] = {
    var from = data
    var last: ByteString = null
    val stop = end(data)
    Iterator.continually {
      if (from == null) Nil
      else {
        val pairs = asking(_.plain.scan(from, stop, ScannedTogether, keysOnly)).asScala.toSeq
        sure.foreach(_.apply())
        from = if (pairs.size < ScannedTogether) null else following(pairs.last.getKey)
        pairs
      }
    }.takeWhile(_.nonEmpty).flatten.map(rowFrom).filter(row => counts(row.attempt)).filter { row =>
      val field = ByteString.copyFrom(row.field)
      val first = field != last
      last = field
      first
    }
  }

  private def rowFrom(pair: KvPair): Row = {
    val key = pair.getKey.asReadOnlyByteBuffer
    key.position(data.size)
    val field = new Array[Byte](key.getInt())
    key.get(field)
    val attempt = ~key.getLong()
    key.getInt()
    val value = pair.getValue
    new Row(field, attempt, key.get() == 1, if (value.isEmpty) null else value.substring(1).toByteArray)
  }

  /** What an attempt has written, part by part. */
  private def parts(attempt: Long): Seq[Part] = {
    val start = index.concat(number(attempt))
    var from = start
    val found = Vector.newBuilder[Part]
    while (from != null) {
      val pairs = asking(_.plain.scan(from, end(start), PartsTogether, false)).asScala.toSeq
      found ++= pairs.map(pair => new Part(pair.getKey, pair.getKey.substring(start.size), pair.getValue))
      from = if (pairs.size < PartsTogether) null else following(pairs.last.getKey)
    }
    found.result()
  }

  /** All keys of ranges of rows. */
  private def wholly(ranges: Seq[(ByteString, ByteString)]): Seq[ByteString] = {
    val found = Vector.newBuilder[ByteString]
    var open = ranges
    while (open.nonEmpty) {
      open = open.zip(scans(open, RowsOfAField, keysOnly = true)).collect {
        case ((from, to), pairs) if { found ++= pairs.map(_.getKey); pairs.size == RowsOfAField } =>
          (following(pairs.last.getKey), to)
      }
    }
    found.result()
  }

  private def scans(ranges: Seq[(ByteString, ByteString)], limit: Int, keysOnly: Boolean): Seq[Seq[KvPair]] = {
    val options: JavaList[ScanOption] = ranges.map { case (from, to) =>
      ScanOption.newBuilder().setStartKey(from).setEndKey(to).setLimit(limit).setKeyOnly(keysOnly).build()
    }.asJava
    asking(_.plain.batchScan(options)).asScala.toSeq.map(_.asScala.toSeq)
  }

  private def look(): Option[TiKvHead] = parsed(asking(_.swapping.get(head)))

  private def parsed(text: Optional[ByteString]): Option[TiKvHead] = {
    seen = text.toScala.map(found => TiKvHead.from(found.toByteArray, place.toString))
    seen
  }

  private def kept(version: Long): TiKvHead = {
    val now = look()
    now.filter(_.versions.contains(version)).getOrElse(throw absent(version, now))
  }

  /** Do something that reads a version, which nobody has forgotten or replaced when it is done. */
  private def steady[T](version: Long)(action: TiKvHead => T): (T, TiKvHead) = {
    var now = seen.filter(_.versions.contains(version)).getOrElse(kept(version))
    while (true) {
      val result = action(now)
      val later = kept(version)
      if (sameAt(version, now, later)) return (result, later)
      now = later
    }
    throw new IllegalStateException("the loop above has no end")
  }

  /** See that a version still is the one that was read: rows may be deleted once it is not. */
  private def unchanged(version: Long, before: TiKvHead): Unit = {
    val now = look()
    if (!now.exists(sameAt(version, before, _))) throw absent(version, now)
  }

  private def sameAt(version: Long, one: TiKvHead, other: TiKvHead): Boolean =
    one.versions.get(version).map(_.attempt) == other.versions.get(version).map(_.attempt)

  /**
   * Change the head, in one step. Where somebody else was quicker, or an answer was lost, `step` is asked again
   * with what is there now: it has to know its own work when it sees it, or to do no harm a second time.
   */
  private def change[T](step: Option[TiKvHead] => (TiKvHead, T)): T = {
    while (true) {
      val text = asking(_.swapping.get(head))
      val before = parsed(text)
      val (after, result) = step(before)
      if (after == before.orNull || swapped(text, ByteString.copyFrom(after.text))) return result
    }
    throw new IllegalStateException("the loop above has no end")
  }

  private def swapped(before: Optional[ByteString], after: ByteString): Boolean = asking { client =>
    try {
      client.swapping.compareAndSet(head, before, after)
      true
    } catch {
      case _: RawCASConflictException => false
    }
  }

  /** Ask, and ask again where no answer comes, for as long as patience lasts. */
  private def asking[T](question: TiKvClient => T): T = times.measure(askUntilAnswered(question))

  private def askUntilAnswered[T](question: TiKvClient => T): T = {
    val giveUp = System.nanoTime() + patienceMillis * 1000000L
    var pause = 50L
    while (true) {
      try return question(connected())
      catch {
        case error: RuntimeException if unanswered(error) =>
          if (Thread.currentThread.isInterrupted) throw error
          Refusals.get(Status.fromThrowable(error).getCode).foreach { hint =>
            throw new ExternalStateException(s"$place refused a request: ${reason(error)}. $hint", error)
          }
          if (System.nanoTime() > giveUp) {
            throw new ExternalStateException(
              s"$place did not answer for ${patienceMillis / 1000} s: ${reason(error)}. The last request may or " +
                "may not have taken effect; the batch can run again. Check that the database runs and is reachable",
              error)
          }
          Thread.sleep(pause)
          pause = math.min(pause * 2, 1000L)
      }
    }
    throw new IllegalStateException("the loop above has no end")
  }

  private def connected(): TiKvClient = synchronized {
    if (client == null) client = TiKvClients.take(place)
    client
  }

  private def progressOf(attempt: Attempt): Progress =
    Option(begun.get(attempt.number)).getOrElse(throw refused(s"attempt ${attempt.number} was discarded earlier"))

  private def refuseLarge(field: ByteString, value: Array[Byte]): Unit = {
    val length = row(field, 0, 0, kept = true).size
    if (length > LongestKey) {
      throw new ExternalStateException(
        s"a key of the state has $length bytes in $place, but TiKV allows at most $LongestKey. Use a shorter " +
          "key, such as a hash")
    }
    if (value != null && value.length > LargestValue) {
      throw new ExternalStateException(
        s"a value of the state has ${value.length} bytes, but TiKV allows at most $LargestValue. Store less per key, " +
          "or use RocksDB")
    }
  }

  private def followed(now: TiKvHead) = refused(s"a later run of the query has taken over: ${now.run}")

  private def refused(why: String) =
    new ExternalStateException(s"$why. Store $name in $place is unchanged")

  private def absent(version: Long, now: Option[TiKvHead]) = now match {
    case Some(found) =>
      new ExternalStateException(
        s"version $version of store $name is no longer in $place; the newest version is ${found.newest}. A batch can " +
          "run again only on one of the retained versions. Start the query on a new checkpoint")
    case None =>
      new ExternalStateException(
        s"store $name is missing from $place, but the checkpoint is at version $version. Check the address; if the " +
          "database was emptied, recover its data or start the query on a new checkpoint")
  }

  private def rowsOf(field: ByteString): ByteString =
    data.concat(bytes(4)(_.putInt(field.size))).concat(field)

  private def row(field: ByteString, attempt: Long, part: Int, kept: Boolean): ByteString =
    rowsOf(field).concat(bytes(13)(_.putLong(~attempt).putInt(~part).put((if (kept) 1 else 0).toByte)))

  private def part(attempt: Long, part: Int): ByteString =
    index.concat(number(attempt)).concat(bytes(4)(_.putInt(part)))
}

private object TiKvTable {
  private val ReadTogether = 1000
  private val StagedTogether = 1000
  private val DeletedTogether = 1000
  private val ScannedTogether = 512
  private val PartsTogether = 16
  // More than one only where attempts have died, or versions are kept.
  private val RowsOfAField = 4
  // A scan reads a row this many times as fast as single questions do.
  private val RowsWorthAQuestion = 16L
  // What TiKV takes by default, with room for what a request has beside it.
  private val LongestKey = 4096
  private val LargestValue = 6 << 20

  private val Kept = ByteString.copyFrom(Array[Byte](1))
  private val Deleted = ByteString.copyFrom(Array[Byte](0))

  private val Refusals = Map(
    Status.Code.UNIMPLEMENTED -> "Upgrade TiKV to 5.0 or newer",
    Status.Code.PERMISSION_DENIED -> "Check the client certificate",
    Status.Code.UNAUTHENTICATED -> "Check the client certificate")

  /** How far an attempt is. */
  private final class Progress {
    @volatile var parts = 0
    @volatile var more = 0L
  }

  private final class Row(val field: Array[Byte], val attempt: Long, val kept: Boolean, val value: Array[Byte])

  private final class Change(val field: ByteString, val kept: Boolean)

  /** A part of what an attempt has written: its key, its number as bytes, and its fields as text. */
  private final class Part(val key: ByteString, numbered: ByteString, text: ByteString) {
    val number: Int = numbered.asReadOnlyByteBuffer.getInt()

    def fields: Seq[Change] = {
      val buffer = text.asReadOnlyByteBuffer
      Iterator.continually(()).takeWhile(_ => buffer.hasRemaining).map { _ =>
        val field = new Array[Byte](buffer.getInt())
        buffer.get(field)
        new Change(ByteString.copyFrom(field), buffer.get() == 1)
      }.toVector
    }
  }

  private def fieldsText(changes: Iterable[(ByteString, Array[Byte])]): ByteString = {
    val output = ByteString.newOutput()
    for ((field, value) <- changes) {
      output.write(ByteBuffer.allocate(4).putInt(field.size).array)
      field.writeTo(output)
      output.write(if (value != null) 1 else 0)
    }
    output.toByteString
  }

  private def number(value: Long): ByteString = bytes(8)(_.putLong(value))

  private def bytes(size: Int)(fill: ByteBuffer => ByteBuffer): ByteString =
    ByteString.copyFrom(fill(ByteBuffer.allocate(size)).array)

  /** The key right after this one. */
  private def following(key: ByteString): ByteString = key.concat(Deleted)

  /** The first key after all that begin so. */
  private def end(start: ByteString): ByteString = {
    val bytes = start.toByteArray
    val last = bytes.lastIndexWhere(_ != -1)
    bytes(last) = (bytes(last) + 1).toByte
    ByteString.copyFrom(bytes, 0, last + 1)
  }

  /** What the client throws where a server is not there, or did not say what it should. */
  private def unanswered(error: RuntimeException): Boolean = error match {
    case _: TiKVException | _: StatusRuntimeException => true
    // The client writes a log of a call that fails while its other threads still add to it, and this hides
    // the failure.
    case _: ConcurrentModificationException => true
    // So it says that no placement driver has answered.
    case _: NullPointerException => String.valueOf(error.getMessage).startsWith("Failed to init client")
    case _ => false
  }

  private def reason(error: Throwable): String = {
    val causes = Iterator.iterate(error)(_.getCause).takeWhile(_ != null).toSeq
    val telling = causes.collect { case status: StatusRuntimeException => status } ++ causes.reverse
    telling.map(_.getMessage).find(text => text != null && text.nonEmpty).getOrElse(error.toString).linesIterator.next()
  }
}

/** Keeps state in TiKV. */
final class TiKvStateStoreProvider extends ExternalStateStoreProvider {
  override def open(settings: Settings, store: String, patienceMillis: Long): VersionedTable =
    new TiKvTable(TiKvPlace.from(settings), store, patienceMillis)

  override def place(settings: Settings): String = TiKvPlace.from(settings).toString
}
