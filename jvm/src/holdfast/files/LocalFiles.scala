package holdfast.files

import java.io.{File, IOException}
import java.nio.channels.FileChannel
import java.nio.file.{Files, StandardOpenOption}
import java.util.concurrent.ConcurrentHashMap

import org.apache.hadoop.fs.{LocalFileSystem, Path, RawLocalFileSystem}
import org.apache.hadoop.fs.permission.FsPermission

/** Hadoop's file system for local files, which sets permissions without a process of its own and flushes logs.
  *
  * Without Hadoop's native library, which PySpark does not contain, Hadoop starts `chmod` for each file that it
  * creates, several times in each batch of a query.
  *
  * A file of an offset log, a commit log, a file source or a table of files, and a `metadata` file, is flushed before
  * it gets its name, and its name afterwards, so that a power cut loses none that Spark relied on. State is not
  * flushed: a batch is run again when its state is lost, with the same input.
  */
final class LocalFiles extends LocalFileSystem(new RawFiles)

private final class RawFiles extends RawLocalFileSystem {
  override def setPermission(path: Path, permission: FsPermission): Unit =
    try {
      Files.setAttribute(pathToFile(path).toPath, "unix:mode", Integer.valueOf(permission.toShort.toInt))
      ()
    } catch {
      case _: UnsupportedOperationException | _: IllegalArgumentException => super.setPermission(path, permission)
    }

  override def rename(from: Path, to: Path): Boolean =
    if (!Flushed.contains(to)) super.rename(from, to)
    else {
      Flushed.file(pathToFile(from))
      val renamed = super.rename(from, to)
      // Without its Hadoop checksum a file is read as it is.
      if (renamed && !to.getName.endsWith(".crc")) Flushed.names(pathToFile(to).getParentFile)
      renamed
    }
}

private object Flushed {
  // No Scala collections: Spark 3.5 has an earlier Scala, whose library this jar is not compiled with.
  private val Levels = 4
  private val known = ConcurrentHashMap.newKeySet[File]()

  def contains(path: Path): Boolean = {
    val above = path.getParent
    above != null && (isLog(above.getName) || path.getName == "metadata" || path.getName == ".metadata.crc" ||
      above.getParent != null && above.getParent.getName == "sources")
  }

  private def isLog(name: String): Boolean = name == "offsets" || name == "commits" || name == "_spark_metadata"

  def file(path: File): Unit = flush(path, StandardOpenOption.WRITE)

  /** Flush the names in a directory, and the first time its own name and those of the directories above it. */
  def names(directory: File): Unit = {
    flush(directory, StandardOpenOption.READ)
    var each = directory
    var level = 0
    while (level < Levels && each.getParentFile != null && known.add(each)) {
      each = each.getParentFile
      level += 1
      flushIfAllowed(each)
    }
  }

  private def flushIfAllowed(directory: File): Unit =
    try flush(directory, StandardOpenOption.READ)
    catch { case _: IOException => () }

  private def flush(path: File, option: StandardOpenOption): Unit = {
    val channel = FileChannel.open(path.toPath, option)
    try channel.force(true)
    finally channel.close()
  }
}
