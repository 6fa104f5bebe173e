package holdfast.state

import java.util.{LinkedHashMap => JavaLinkedHashMap}

import org.apache.spark.sql.catalyst.expressions.UnsafeRow

/**
 * Fields of one version that an executor has in memory, so that it need not ask for them again.
 *
 * The least lately used go first when there is no room. A field that the database has not is held too, with null.
 */
private[state] final class HeldFields(private var at: Long, roomBytes: () => Long) {
  private val rows = new JavaLinkedHashMap[UnsafeRow, Array[Byte]](64, 0.75f, true)
  private var size = 0L
  private var whole = at == 0

  def version: Long = at
  def bytes: Long = size

  /** Whether a field that is not held is not in the database either. */
  def isWhole: Boolean = whole

  /** The value, null if the field is known not to be there, or [[HeldFields.Unknown]]. */
  def get(field: UnsafeRow): Array[Byte] = {
    val found = rows.get(field)
    if (found != null) { if (found eq HeldFields.Absent) null else found }
    else if (whole) null
    else HeldFields.Unknown
  }

  /** Hold a field that is nobody else's row. */
  def put(field: UnsafeRow, value: Array[Byte]): Unit = {
    val before =
      if (value != null) rows.put(field, value)
      else if (whole) rows.remove(field)
      else rows.put(field, HeldFields.Absent)
    if (before != null) size -= HeldFields.cost(field, before)
    if (value != null || !whole) size += HeldFields.cost(field, value)
    if (size > roomBytes()) drop()
  }

  /** What is held of the next version: all changes have been put. */
  def advance(version: Long): Unit = at = version

  /** From here on every field of the version is held; false if there was no room for all. */
  def fill(all: Iterator[(UnsafeRow, Array[Byte])]): Boolean = {
    val room = roomBytes()
    while (all.hasNext && size <= room) {
      val (field, value) = all.next()
      if (rows.putIfAbsent(field, value) == null) size += HeldFields.cost(field, value)
    }
    whole = !all.hasNext && size <= room
    if (whole && rows.values.removeIf(_ eq HeldFields.Absent)) {
      size = 0
      rows.forEach((field, value) => size += HeldFields.cost(field, value))
    }
    whole
  }

  /** All fields that are there, as they are now. */
  def entries(): Iterator[(UnsafeRow, Array[Byte])] = {
    val all = new Array[(UnsafeRow, Array[Byte])](rows.size)
    var count = 0
    rows.forEach { (field, value) =>
      if (value ne HeldFields.Absent) {
        all(count) = (field, value)
        count += 1
      }
    }
    all.iterator.take(count)
  }

  private def drop(): Unit = {
    // A tenth at once: what is at the border would be dropped and asked for again and again.
    val enough = roomBytes() / 10 * 9
    val eldest = rows.entrySet.iterator
    whole = false
    while (size > enough && eldest.hasNext) {
      val entry = eldest.next()
      size -= HeldFields.cost(entry.getKey, entry.getValue)
      eldest.remove()
    }
  }
}

private[state] object HeldFields {
  /** Says that the database has to be asked. */
  val Unknown: Array[Byte] = Array(0.toByte)
  private val Absent: Array[Byte] = Array(1.toByte)
  // A map's entry, a row and two arrays.
  private val Overhead = 168L

  def cost(field: UnsafeRow, value: Array[Byte]): Long =
    Overhead + field.getSizeInBytes + (if (value == null) 0 else value.length)
}
