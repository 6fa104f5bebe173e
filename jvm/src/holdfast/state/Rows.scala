package holdfast.state

import java.io.{ByteArrayOutputStream, DataOutputStream}
import java.nio.ByteBuffer

import scala.collection.mutable.ArrayBuffer

import org.apache.spark.sql.catalyst.expressions.{BoundReference, UnsafeProjection, UnsafeRow}
import org.apache.spark.sql.types.StructType

/** How an operator's rows lie in fields: a row a field, or all rows with one prefix of their key. */
private[state] trait Rows {
  def get(fields: Fields, key: UnsafeRow): UnsafeRow
  def put(fields: Fields, key: UnsafeRow, value: UnsafeRow): Unit
  def remove(fields: Fields, key: UnsafeRow): Unit
  def prefixScan(fields: Fields, prefix: UnsafeRow): Iterator[(UnsafeRow, UnsafeRow)]

  /** The rows of a field. */
  def of(field: UnsafeRow, value: Array[Byte]): Iterator[(UnsafeRow, UnsafeRow)]

  /** The fields of keys, to be read in one go. */
  def fieldOf(key: UnsafeRow): UnsafeRow
  def columnsOfField: Int
}

/** Fields with values, as a task sees them. */
private[state] trait Fields {
  def get(field: UnsafeRow): Array[Byte]

  /** Set a field; a value that is null deletes it. */
  def put(field: UnsafeRow, value: Array[Byte]): Unit
}

private[state] object Rows {
  def row(bytes: Array[Byte], columns: Int): UnsafeRow = {
    val row = new UnsafeRow(columns)
    row.pointTo(bytes, bytes.length)
    row
  }

  /** The bytes of a row that whoever gave it will use again. */
  def bytes(row: UnsafeRow): Array[Byte] = row.copy().getBytes
}

/** A row a field. */
private[state] final class PlainRows(keyColumns: Int, valueColumns: Int) extends Rows {
  override def get(fields: Fields, key: UnsafeRow): UnsafeRow = {
    val value = fields.get(key)
    if (value == null) null else Rows.row(value, valueColumns)
  }

  override def put(fields: Fields, key: UnsafeRow, value: UnsafeRow): Unit =
    fields.put(key.copy(), Rows.bytes(value))

  override def remove(fields: Fields, key: UnsafeRow): Unit = fields.put(key.copy(), null)

  override def prefixScan(fields: Fields, prefix: UnsafeRow): Iterator[(UnsafeRow, UnsafeRow)] =
    throw new UnsupportedOperationException("the operator has not requested scans by prefix")

  override def of(field: UnsafeRow, value: Array[Byte]): Iterator[(UnsafeRow, UnsafeRow)] =
    Iterator.single((field, Rows.row(value, valueColumns)))

  override def fieldOf(key: UnsafeRow): UnsafeRow = key
  override def columnsOfField: Int = keyColumns
}

/**
 * All rows with one prefix in a field, so that a scan by prefix is one read: of session windows few have one.
 *
 * A value is, row by row, the length of the key, the key, the length of the value and the value.
 */
private[state] final class PrefixedRows(key: StructType, prefixColumns: Int, valueColumns: Int) extends Rows {
  private val prefix = UnsafeProjection.create(
    key.take(prefixColumns).zipWithIndex.map { case (column, i) =>
      BoundReference(i, column.dataType, column.nullable)
    })

  override def fieldOf(key: UnsafeRow): UnsafeRow = prefix(key).copy()
  override def columnsOfField: Int = prefixColumns

  override def get(fields: Fields, key: UnsafeRow): UnsafeRow = {
    val value = fields.get(fieldOf(key))
    if (value == null) null else of(null, value).find(_._1 == key).map(_._2).orNull
  }

  override def put(fields: Fields, key: UnsafeRow, value: UnsafeRow): Unit = change(fields, key, Some(value))

  override def remove(fields: Fields, key: UnsafeRow): Unit = change(fields, key, None)

  override def prefixScan(fields: Fields, prefix: UnsafeRow): Iterator[(UnsafeRow, UnsafeRow)] = {
    val value = fields.get(prefix)
    if (value == null) Iterator.empty else of(null, value)
  }

  override def of(field: UnsafeRow, value: Array[Byte]): Iterator[(UnsafeRow, UnsafeRow)] = {
    val buffer = ByteBuffer.wrap(value)
    def part(columns: Int) = {
      val bytes = new Array[Byte](buffer.getInt())
      buffer.get(bytes)
      Rows.row(bytes, columns)
    }
    Iterator.continually(()).takeWhile(_ => buffer.hasRemaining).map(_ => (part(key.length), part(valueColumns)))
  }

  private def change(fields: Fields, key: UnsafeRow, value: Option[UnsafeRow]): Unit = {
    val field = fieldOf(key)
    val former = fields.get(field)
    val rows = ArrayBuffer.from(if (former == null) Iterator.empty else of(null, former))
    val at = rows.indexWhere(_._1 == key)
    value match {
      case Some(row) if at >= 0 => rows(at) = (key, row)
      case Some(row) => rows += ((key, row))
      case None if at >= 0 => rows.remove(at)
      case None => return
    }
    fields.put(field, if (rows.isEmpty) null else packed(rows))
  }

  private def packed(rows: Iterable[(UnsafeRow, UnsafeRow)]): Array[Byte] = {
    val bytes = new ByteArrayOutputStream
    val output = new DataOutputStream(bytes)
    for ((key, value) <- rows; row <- Seq(key, value)) {
      output.writeInt(row.getSizeInBytes)
      row.writeToStream(output, null)
    }
    bytes.toByteArray
  }
}
