package holdfast.state

/** A field and its value, both as bytes; a value that is null says that there is no such field. */
final case class Entry(field: Array[Byte], value: Array[Byte])

/**
 * A task's attempt to make a version of a store.
 *
 * @param number  what no other attempt on this store has: later ones have greater numbers
 * @param version the version that it begins with; it makes the next
 * @param base    the attempt that made the version it begins with, zero if none did
 */
final case class Attempt(number: Long, version: Long, base: Long)

/**
 * Where readers without a checkpoint begin.
 *
 * @param stores     the set of all stores of the query, also of those that a restored checkpoint had before
 * @param query      what is known of the query
 * @param generation which of the stores the query uses now; those of one checkpoint have the same
 */
final case class Names(stores: String, query: String, generation: String)

/**
 * One state store in an external database: fields with values, in versions.
 *
 * Whatever an attempt writes is its own until one small atomic step makes it the next version. That step is
 * refused to an attempt whose query run was followed by another, and to one whose batch is over. An attempt of
 * the same batch may replace what an earlier one has committed, as Spark's own stores allow. No run begins at a
 * version before the newest batch's: it was frozen while another run made later versions, which it would undo.
 */
trait VersionedTable extends AutoCloseable {
  /** The times of the requests that tasks have sent. */
  private[state] val times = new RequestTimes

  /** Begin to make the version after `version`, for a run of the query. */
  def begin(version: Long, run: String): Attempt

  /** How many fields the newest version has. */
  def size(): Long

  /** See that all of the newest version is there, and that the database keeps what it is given. */
  def check(): Unit

  /** Note what the rows are, for readers without a checkpoint, and that this store is in use. */
  def describe(names: Names, description: Map[String, String]): Unit

  /** Note which batch of a query was committed last, and by which run. */
  def noteBatch(query: String, batch: Long, run: String): Unit

  /** The values at a version, in the order of the fields; first what an attempt has staged, if one is given. */
  def read(version: Long, attempt: Option[Attempt], fields: Array[Array[Byte]]): Array[Array[Byte]]

  /** All fields at a version, in no order; with what an attempt has staged, if one is given. */
  def scan(version: Long, attempt: Option[Attempt]): Iterator[Entry]

  /** Bring changes to the database, where nobody but this attempt reads them. The last one of a field counts. */
  def stage(attempt: Attempt, changes: Iterator[Entry]): Unit

  /** Make what was staged the next version; returns how many fields it has. */
  def commit(attempt: Attempt, run: String): Long

  /**
   * Delete what an attempt has staged, unless it was committed: whose answer was lost cannot know. One that is
   * given up is never committed.
   */
  def discard(attempt: Attempt): Unit

  /** The fields that a version has changed, with their values in it. */
  def changes(version: Long): Iterator[Entry]

  /** Forget versions but the newest one and `retain` before it, and what dead attempts have left. */
  def clean(retain: Int): Unit
}

object VersionedTable {
  /** How many parts the fields of a store are divided into, so that no single read is large. */
  val Buckets = 64

  /** The part that a field is in: readers in other languages have CRC-32 too. */
  def bucket(field: Array[Byte]): Int = {
    val sum = new java.util.zip.CRC32
    sum.update(field)
    (sum.getValue % Buckets).toInt
  }

  /** Why a task may not begin at a version: a later batch has begun, perhaps by another run of the query. */
  private[state] def passed(version: Long, reached: Long, remedy: String): String =
    s"the task began at version $version, but a later batch of the query has begun at version $reached. If the " +
      s"checkpoint was reset to an earlier batch, $remedy"

  /** The remedy where Holdfast's commands read the database. */
  private[state] val RestoreEarlier = "take a savepoint of that batch and restore it"
}

/** State that cannot be used, with what to do about it. */
final class ExternalStateException(message: String, cause: Throwable = null)
    extends RuntimeException(message, cause)
