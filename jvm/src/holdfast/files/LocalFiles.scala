package holdfast.files

import java.nio.file.Files

import org.apache.hadoop.fs.{LocalFileSystem, Path, RawLocalFileSystem}
import org.apache.hadoop.fs.permission.FsPermission

/** Hadoop's file system for local files, which sets permissions without a process of its own.
  *
  * Without Hadoop's native library, which PySpark does not contain, Hadoop starts `chmod` for each file that it
  * creates, several times in each batch of a query.
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
}
