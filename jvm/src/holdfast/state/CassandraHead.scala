package holdfast.state

import scala.collection.immutable.SortedMap

/** Why a store refuses what an attempt asks for. */
private[state] sealed trait Refusal
private[state] final case class Retired(by: String) extends Refusal
private[state] final case class Over(reached: Long) extends Refusal
private[state] final case class Missing(newest: Long) extends Refusal
private[state] case object Discarded extends Refusal

/**
 * What a store's row in `state_head` says, and how it changes: a plain value, which one transaction replaces.
 *
 * Every attempt is in one of three states. It is open while it may commit. It is in the lineage once it has
 * committed: `versions` names the attempts of the kept versions; of those up to the attempt of the oldest
 * kept version all are in the lineage that are not dead. It is dead where it will never count, or no longer
 * counts.
 *
 * @param generation what each change makes greater by one
 * @param run        the query run that may write
 * @param retired    the runs before it, the last one first
 * @param reached    the version that the run's newest batch began with
 * @param next       the last attempt's number
 * @param versions   the kept versions, each with the attempt that made it
 * @param fields     how many fields each of them has
 * @param open       the attempts of the run's newest batch that may commit
 * @param dead       the attempts that do not count, as ranges from first to last
 * @param unfolded   committed attempts whose replaced rows nobody has deleted yet
 * @param undeleted  dead attempts whose rows nobody has deleted yet
 */
private[state] final case class CassandraHead(
    generation: Long,
    run: String,
    retired: Seq[String],
    reached: Long,
    next: Long,
    versions: SortedMap[Long, Long],
    fields: SortedMap[Long, Long],
    open: Set[Long],
    dead: SortedMap[Long, Long],
    unfolded: Set[Long],
    undeleted: Set[Long]) {
  import CassandraHead._

  def newest: Long = versions.lastKey
  def oldest: Long = versions.firstKey

  /** Which rows a reader of a version counts. */
  def lineage(version: Long): Option[Lineage] = versions.get(version).map { last =>
    new Lineage(versions(oldest), dead, versions.rangeTo(version).values.toSet, last)
  }

  /** This head as what a change comes to, with what it says. */
  def andSaid[T](say: CassandraHead => T): Outcome[T] = Right((this, say(this)))

  def isDead(attempt: Long): Boolean = within(dead, attempt)

  def begin(version: Long, by: String): Outcome[Attempt] = versions.get(version) match {
    case None => Left(Missing(newest))
    case _ if by != run && retired.contains(by) => Left(Retired(run))
    case _ if version < reached => Left(Over(reached))
    case Some(base) =>
      val same = by == run && version == reached
      val before = if (same) this else copy(open = Set.empty).bury(open)
      val number = next + 1
      val after = before.copy(
        run = by,
        retired = if (by == run) retired else (run +: retired).take(KeptRuns),
        reached = version,
        next = number,
        open = before.open + number)
      Right((after, Attempt(number, version, base)))
  }

  /** The change that a commit is, and how many fields there are then; a second time it changes nothing. */
  def commit(attempt: Attempt, by: String, more: Long): Outcome[Long] = {
    val made = attempt.version + 1
    if (versions.get(made).contains(attempt.number)) Right((this, fields(made)))
    else if (run != by) Left(Retired(run))
    else if (reached != attempt.version) Left(Over(reached))
    else if (!versions.get(attempt.version).contains(attempt.base)) Left(Missing(newest))
    else if (!open(attempt.number)) Left(Discarded)
    else {
      val total = fields(attempt.version) + more
      val after = copy(
        versions = versions.rangeTo(attempt.version) + (made -> attempt.number),
        fields = fields.rangeTo(attempt.version) + (made -> total),
        open = open - attempt.number)
      Right((after.bury(versions.rangeFrom(made).values), total))
    }
  }

  def discard(attempt: Long): CassandraHead =
    if (open(attempt)) copy(open = open - attempt).bury(Seq(attempt)) else this

  /** Keep the newest version, so many before it, and the one that the query is at. */
  def forget(retain: Int): CassandraHead = {
    val first = math.min(newest - retain, reached)
    if (first <= oldest) this
    else copy(
      versions = versions.rangeFrom(first),
      fields = fields.rangeFrom(first),
      unfolded = unfolded ++ versions.range(oldest + 1, first + 1).values)
  }

  /** Say that the rows of these attempts have been worked off. */
  def cleaned(attempts: Set[Long]): CassandraHead =
    if ((unfolded ++ undeleted).intersect(attempts).isEmpty) this
    else {
      val left = undeleted -- attempts
      val surplus = dead.size - KeptRanges
      // What died a thousand failures ago has no writer any more, and the row has to stay small.
      val forgotten = dead.iterator.take(surplus).takeWhile { case (_, last) => left.forall(_ > last) }
      copy(unfolded = unfolded -- attempts, undeleted = left, dead = dead -- forgotten.map(_._1))
    }

  private def bury(attempts: Iterable[Long]): CassandraHead =
    if (attempts.isEmpty) this
    else copy(dead = attempts.foldLeft(dead)(joined), undeleted = undeleted ++ attempts)
}

private[state] object CassandraHead {
  type Outcome[T] = Either[Refusal, (CassandraHead, T)]

  private val KeptRuns = 100
  private val KeptRanges = 1000

  /** A store that has no version yet but the empty one. */
  def first(run: String): CassandraHead = CassandraHead(
    generation = 1, run = run, retired = Nil, reached = 0, next = 0,
    versions = SortedMap(0L -> 0L), fields = SortedMap(0L -> 0L), open = Set.empty,
    dead = SortedMap.empty, unfolded = Set.empty, undeleted = Set.empty)

  private[state] def within(ranges: SortedMap[Long, Long], number: Long): Boolean =
    ranges.maxBefore(number + 1).exists { case (_, last) => number <= last }

  private def joined(ranges: SortedMap[Long, Long], number: Long): SortedMap[Long, Long] =
    if (within(ranges, number)) ranges
    else {
      val from = ranges.maxBefore(number).collect { case (first, last) if last == number - 1 => first }
      ranges - (number + 1) + (from.getOrElse(number) -> ranges.getOrElse(number + 1, number))
    }
}

/**
 * The attempts whose rows count at a version.
 *
 * @param floor    up to this attempt every one counts that is not dead
 * @param dead     the dead ones, as ranges
 * @param attempts those that count of the later ones
 * @param last     no row of a later attempt needs to be read
 */
private[state] final class Lineage(
    val floor: Long, dead: SortedMap[Long, Long], attempts: Set[Long], val last: Long) {

  def has(attempt: Long): Boolean =
    if (attempt <= floor) !CassandraHead.within(dead, attempt) else attempts(attempt)

  /** The same with what an attempt has staged. */
  def and(attempt: Long): Lineage = new Lineage(floor, dead, attempts + attempt, attempt)
}
