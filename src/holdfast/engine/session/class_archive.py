"""An archive of the classes of Spark's JVM, with which a session starts in two thirds of the processor time.

A JVM without one reads, checks and links about 20,000 classes at each start. Java 17 to 24 map them from an
archive for class data sharing, Java 25 and later from a cache for ahead-of-time linking. The archive belongs
to one Java and one set of jars; with any other the JVM ignores it.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast.config.installed_spark import jars_of_spark
from holdfast.engine.session.java import JavaRuntime, can_be_made, java_places

# A JVM says on standard output why it does not use an archive.
_SILENT: Final = "-Xlog:cds*=off"
_SILENT_CACHE: Final = "-Xlog:aot*=off -Xlog:cds*=off"
# Settings that keep the archive out: the user has chosen one, or none.
_OWN: Final = ("-XX:SharedArchiveFile", "-XX:AOT", "-Xshare", "-XX:ArchiveClassesAtExit")
_COLLECTOR: Final = re.compile(r"-XX:\+Use\w+GC\b")
_FILE: Final = re.compile(r"(?:java|spark)-[0-9a-f]{16}\.(?:jsa|aot|lock)")
_UNUSED_S: Final = 30 * 24 * 3600.0
SWITCH: Final = "HOLDFAST_CLASS_ARCHIVE"


@dataclass(frozen=True, slots=True)
class ClassArchive:
    """The archive of one Java and one set of jars.

    Attributes:
        java: The Java runtime.
        path: The file.
        base: The archive of the runtime's own classes, for a Java that comes without one; else None.
    """

    java: JavaRuntime
    path: Path
    base: Path | None

    @property
    def exists(self) -> bool:
        """Return whether the archive was made."""
        return self.path.is_file()

    def options(self) -> str:
        """Return the options of a JVM that uses the archive; empty if there is none."""
        if not self.exists:
            return ""
        if self.java.caches_linked_classes:
            return f"-XX:AOTCache={self.path} {_SILENT_CACHE}"
        files = self.path if self.base is None else f"{self.base}:{self.path}"
        return f"-XX:SharedArchiveFile={files} {_SILENT}"

    def training_options(self, fresh: Path) -> str:
        """Return the options of a JVM that writes the archive when it ends."""
        if self.java.caches_linked_classes:
            return f"-XX:AOTCacheOutput={fresh} {_SILENT_CACHE}"
        base = "" if self.base is None else f"-XX:SharedArchiveFile={self.base} "
        return f"{base}-XX:ArchiveClassesAtExit={fresh} {_SILENT}"

    def remove_unused(self, now_s: float) -> None:
        """Delete the archives of other Javas and jars that no session has used for a month."""
        for path in self.path.parent.glob("*"):
            ours = path in (self.path, self.base) or _FILE.fullmatch(path.name) is None
            with suppress(OSError):  # another process has deleted it
                if not ours and now_s - path.stat().st_mtime > _UNUSED_S:
                    path.unlink()

    def make_base(self) -> None:
        """Write the archive of the runtime's own classes if the runtime lacks one.

        Raises:
            OSError: It cannot be written.
            subprocess.CalledProcessError: Java failed.
        """
        if self.base is None or self.base.is_file():
            return
        fresh = self.base.with_suffix(f".{os.getpid()}")
        command = [str(self.java.real / "bin" / "java"), "-Xshare:dump", f"-XX:SharedArchiveFile={fresh}"]
        try:
            subprocess.run(command, check=True, capture_output=True)  # noqa: S603 - the Java that runs Spark
            fresh.replace(self.base)
        finally:
            fresh.unlink(missing_ok=True)


def archive_of(java: JavaRuntime, state_home: Path, environ: Mapping[str, str]) -> ClassArchive | None:
    """Return the archive for a Java and the installed Spark; None if none can be used.

    It is kept in the Python environment if that can be written, else in the state home.
    """
    jars = jars_of_spark(environ, "*.jar")
    if not jars or environ.get(SWITCH) == "off":
        return None
    real = java.real
    mark = hashlib.sha256(f"{real}|{java.version}".encode())
    for path in (real / "lib" / "server" / "libjvm.so", *jars):
        with suppress(OSError):
            facts = path.stat()
            mark.update(f"{path.name}|{facts.st_size}|{facts.st_mtime_ns}".encode())
    places = java_places(state_home)
    name = mark.hexdigest()[:16]
    for place in places:
        archive = _in(place, name, java)
        if archive.exists and " " not in str(place):
            return archive
    writable = next((place for place in places if can_be_made(place) and " " not in str(place)), None)
    return None if writable is None else _in(writable, name, java)


def jvm_options(java: JavaRuntime, state_home: Path, chosen: str, environ: Mapping[str, str]) -> str:
    """Return options that Holdfast adds to those chosen for the driver's JVM; empty if there are none."""
    added = []
    if java.corrupts_under_g1 and not _COLLECTOR.search(chosen):
        added.append("-XX:+UseParallelGC")
    archive = archive_of(java, state_home, environ)
    if archive is not None and archive.exists and not any(option in chosen for option in _OWN):
        added.append(archive.options())
        for path in filter(None, (archive.path, archive.base)):
            with suppress(OSError):  # on a read-only disk none is deleted either
                os.utime(path)
    return " ".join(added)


def _in(place: Path, name: str, java: JavaRuntime) -> ClassArchive:
    has_base = (java.real / "lib" / "server" / "classes.jsa").is_file()
    ending = "aot" if java.caches_linked_classes else "jsa"
    base = None if has_base or ending == "aot" else place / f"java-{name}.jsa"
    return ClassArchive(java, place / f"spark-{name}.{ending}", base)
