package holdfast.state

import java.nio.charset.StandardCharsets.UTF_8

import scala.collection.immutable.SortedMap

/**
 * Which attempts count in a store in TiKV: one small value, changed by comparing and setting it.
 *
 * @param run      the query run that may write
 * @param retired  the runs before it, the newest first
 * @param reached  the version that the run's newest batch began with
 * @param next     the last attempt's number
 * @param versions what each kept version was made by, and how many fields it has; the first is the floor
 * @param open     the attempts that have not ended, with the version they began with
 * @param dead     attempts before the floor's that never counted: what they may still write has to be known as
 *                 theirs for ever, so this list only grows, by a few bytes for a task that failed
 * @param erasing  attempts that will never count, whose rows are to be deleted
 * @param folding  attempts up to the floor's, whose former rows are to be deleted
 */
private[state] final case class TiKvHead(
    run: String,
    retired: Seq[String],
    reached: Long,
    next: Long,
    versions: SortedMap[Long, TiKvHead.Made],
    open: Map[Long, Long],
    dead: Seq[(Long, Long)],
    erasing: Set[Long],
    folding: Set[Long]) {
  import TiKvHead._

  def newest: Long = versions.lastKey
  def fields: Long = versions.last._2.fields

  /** Whether a row that an attempt has written is part of a version, as long as no later one hides it. */
  def counts(version: Long): Long => Boolean = {
    val floor = versions.head._2.attempt
    val after = versions.rangeTo(version).valuesIterator.map(_.attempt).toSet
    attempt => if (attempt < floor) !isDead(attempt) else after(attempt)
  }

  /** What takes a run in that comes with a version; a run that has been followed has been refused. */
  def begun(version: Long, by: String): TiKvHead = copy(
    run = by,
    retired = if (by == run) retired else (run +: retired).take(RetiredKept),
    reached = version,
    next = next + 1,
    open = open + (next + 1 -> version))

  /** An attempt makes the next version; whatever was made after the one it began with no longer counts. */
  def committed(attempt: Attempt, more: Long): TiKvHead = {
    val (kept, undone) = versions.partition(_._1 <= attempt.version)
    copy(
      versions = kept + (attempt.version + 1 -> Made(attempt.number, kept(attempt.version).fields + more)),
      open = open - attempt.number,
      erasing = erasing ++ undone.valuesIterator.map(_.attempt))
  }

  /** Without old versions, and without attempts of batches that are over. */
  def cleaned(retain: Int): TiKvHead = {
    val floor = math.max(newest - retain, versions.firstKey)
    val folded = versions.rangeTo(floor).valuesIterator.map(_.attempt).drop(1).toSeq
    val ended = open.collect { case (attempt, version) if version < reached => attempt }
    // An attempt that may still commit began after the floor's had.
    val gaps = (versions.head._2.attempt +: folded).zip(folded)
      .collect { case (from, to) if to - from > 1 => (from + 1, to - 1) }
    copy(
      versions = versions.rangeFrom(floor),
      open = open -- ended,
      dead = joined(dead ++ gaps),
      erasing = erasing ++ ended,
      folding = folding ++ folded)
  }

  private def isDead(attempt: Long): Boolean = {
    val i = dead.lastIndexWhere(_._1 <= attempt)
    i >= 0 && attempt <= dead(i)._2
  }

  def text: Array[Byte] = Seq(
    s"layout ${Layout.Version}",
    s"run $run",
    s"retired ${retired.mkString(" ")}",
    s"reached $reached",
    s"next $next",
    s"versions ${versions.map { case (version, made) => s"$version:${made.attempt}:${made.fields}" }.mkString(" ")}",
    s"open ${open.toSeq.sorted.map { case (attempt, version) => s"$attempt:$version" }.mkString(" ")}",
    s"dead ${dead.map { case (from, to) => s"$from:$to" }.mkString(" ")}",
    s"erasing ${erasing.toSeq.sorted.mkString(" ")}",
    s"folding ${folding.toSeq.sorted.mkString(" ")}").mkString("\n").getBytes(UTF_8)
}

private[state] object TiKvHead {
  /** How a version was made. */
  final case class Made(attempt: Long, fields: Long)

  private val RetiredKept = 100

  def first(run: String): TiKvHead =
    TiKvHead(run, Nil, 0, 0, SortedMap(0L -> Made(0, 0)), Map.empty, Nil, Set.empty, Set.empty)

  def from(text: Array[Byte], place: String): TiKvHead = {
    val lines = new String(text, UTF_8).split('\n').map { line =>
      val cut = line.indexOf(' ')
      line.take(cut) -> line.drop(cut + 1)
    }.toMap
    def words(name: String): Seq[String] = lines(name).split(' ').toSeq.filter(_.nonEmpty)
    def pairs(name: String): Seq[(Long, Long)] = words(name).map(_.split(':').map(_.toLong)).map(p => (p(0), p(1)))
    if (!lines.get("layout").contains(Layout.Version)) {
      throw new ExternalStateException(
        s"state in $place was written by a different release of Holdfast. Use that release, or start the query on a " +
          "new checkpoint")
    }
    TiKvHead(
      lines("run"),
      words("retired"),
      lines("reached").toLong,
      lines("next").toLong,
      SortedMap.from(words("versions").map(_.split(':').map(_.toLong)).map(v => v(0) -> Made(v(1), v(2)))),
      pairs("open").toMap,
      pairs("dead"),
      words("erasing").map(_.toLong).toSet,
      words("folding").map(_.toLong).toSet)
  }

  /** Ranges in order, those that touch made one. */
  private def joined(ranges: Seq[(Long, Long)]): Seq[(Long, Long)] =
    ranges.foldLeft(Vector.empty[(Long, Long)]) {
      case (before :+ ((from, to)), (next, last)) if next == to + 1 => before :+ ((from, last))
      case (before, range) => before :+ range
    }
}
