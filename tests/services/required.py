"""The services of the tests: the programs and files that a fresh machine lacks, and what installs each."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn

import pytest

ROOT: Final = Path(__file__).parents[2]
SERVICES: Final = ROOT / ".services"
PYFLINK: Final = ROOT / ".peers" / "pyflink" / "bin" / "python"


@dataclass(frozen=True, slots=True)
class Service:
    """A program or a set of files that some tests need.

    Attributes:
        title: Its name in the reason of a skipped test.
        path: Returns where it is installed, or None.
        hint: How to install it.
        in_ci: True if `make services` installs it, so that in CI a test without it fails.
    """

    title: str
    path: Callable[[], Path | None]
    hint: str = "run `make services`"
    in_ci: bool = True


def _program(*names: str) -> Callable[[], Path | None]:
    """Look for the first of these programs, in the directories of the system's own programs too."""

    def look() -> Path | None:
        for name in names:
            path = shutil.which(name) or shutil.which(name, path="/usr/sbin")
            if path is not None:
                return Path(path)
        return None

    return look


def _files(place: str) -> Callable[[], Path | None]:
    """Look for a path below `.services`."""
    return lambda: SERVICES / place if (SERVICES / place).exists() else None


def _flink() -> Path | None:
    jars = sorted((SERVICES / "flink").glob("lib/flink-dist-*.jar"))
    return jars[0].parents[1] if jars else None


def _flink_state() -> Path | None:
    """The reader of savepoints, where PyFlink is installed too."""
    jars = sorted((SERVICES / "flink-state").glob("flink-state-processor-api-*.jar"))
    return jars[-1] if jars and PYFLINK.exists() else None


def _postgres() -> Path | None:
    """The directory of the newest PostgreSQL's programs."""
    installed = Path("/usr/lib/postgresql").glob("*/bin/postgres")
    programs = (program for program in installed if os.access(program, os.X_OK))
    newest = max(programs, key=lambda program: int(program.parts[-3]), default=None)
    if newest is None and (program := shutil.which("postgres")):
        newest = Path(program)
    return newest.parent if newest else None


def _image() -> Path | None:
    """The image's storage, where this user can run it."""
    programs = shutil.which("podman") and shutil.which("runc")
    return _files("image/storage")() if programs and os.geteuid() == 0 else None


def _packages(*names: str) -> Callable[[], Path | None]:
    """Look for packages of Python's; a path stands for all of them."""

    def look() -> Path | None:
        try:
            complete = all(importlib.util.find_spec(name) is not None for name in names)
        except ModuleNotFoundError:  # a parent package is missing
            complete = False
        return Path(sys.prefix) if complete else None

    return look


_EXTRAS: Final = "install Holdfast with all its extras"

_TOOLS: Final = "run `make services-tools`"

_CLOUDS: Final = "run `make services-clouds`"

SERVICE: Final = {
    "adlfs": Service("adlfs", _packages("adlfs"), _EXTRAS),
    "azurite": Service("Azurite", _files("azurite/.ready"), _CLOUDS, in_ci=False),
    "airflow": Service("Airflow", _files("tools/airflow/.installed"), _TOOLS, in_ci=False),
    "bash": Service("bash", _program("bash"), "install bash"),
    "cassandra": Service("Cassandra", _files("cassandra/.ready")),
    "cassandra-client": Service("Cassandra's client for Java", _files("state-clients/cassandra")),
    "cassandra-driver": Service("Cassandra's driver for Python", _packages("cassandra"), _EXTRAS),
    "chromium": Service("Chromium", _program("chromium")),
    "connect": Service("Spark Connect", _packages("google.rpc", "grpc", "grpc_status", "zstandard"), _EXTRAS),
    "dagster": Service("Dagster", _files("tools/dagster/.installed"), _TOOLS, in_ci=False),
    "fish": Service("fish", _program("fish")),
    "flink": Service("Flink's client", _flink),
    "flink-state": Service(
        "Flink's reader of savepoints", _flink_state, "run `make services-flink-state`", in_ci=False
    ),
    "gcs": Service("fake-gcs-server", _files("bin/fake-gcs-server"), _CLOUDS, in_ci=False),
    "gcs-connector": Service("Google's connector", _files("gcs-connector/.ready"), _CLOUDS, in_ci=False),
    "gcsfs": Service("gcsfs", _packages("gcsfs"), _EXTRAS),
    "hdfs": Service("HDFS", _files("hdfs/.ready")),
    "helm": Service("Helm", _files("tools/helm/bin/helm"), _TOOLS, in_ci=False),
    "image": Service("the container image, as root", _image, "run `make services-image`"),
    "java": Service("Java", _program("java"), "install Java 17, 21 or 25"),
    "javac": Service("Java's compiler", _program("javac"), "install a JDK of Java 17 or 21"),
    "kafka": Service("Kafka", _files("kafka/.ready")),
    "mariadb": Service("MariaDB", _program("mariadbd")),
    "openssl": Service("openssl", _program("openssl"), "install openssl"),
    "postgresql": Service("PostgreSQL", _postgres),
    "pre-commit": Service("pre-commit", _files("tools/pre-commit/.installed"), _TOOLS, in_ci=False),
    "promtool": Service("promtool", _program("promtool")),
    "redis": Service("Redis", _program("redis-server")),
    "redis-client": Service("Redis's client for Java", _files("state-clients/redis")),
    "requests": Service("requests", _packages("requests"), _EXTRAS),
    "s3": Service("the S3 gateway", _files("bin/versitygw")),
    "s3a": Service("Hadoop's S3A", _files("s3a/.ready")),
    "s3a-cloud": Service("Spark's file manager for S3", _files("s3a-cloud/.ready")),
    "s3fs": Service("s3fs", _packages("s3fs"), _EXTRAS),
    "suites": Service("Spark's suites", _files("suites")),
    "tikv": Service("TiKV's test double", _files("bin/tikv-double"), "run `make services-tikv`", in_ci=False),
    "tikv-client": Service("TiKV's client for Java", _files("state-clients/tikv")),
    "yarn": Service("YARN", _files("yarn/.ready"), "run `make services-yarn`", in_ci=False),
    "zsh": Service("zsh", _program("zsh")),
}

# What the run without services keeps: `make` itself needs it.
_ON_EVERY_MACHINE: Final = ("bash",)
# Programs that no test starts without requiring their service.
_PROGRAMS: Final = {
    "chromium": "chromium",
    "azurite-blob": "azurite",
    "fake-gcs-server": "gcs",
    "fish": "fish",
    "helm": "helm",
    "initdb": "postgresql",
    "mariadbd": "mariadb",
    "openssl": "openssl",
    "podman": "image",
    "postgres": "postgresql",
    "promtool": "promtool",
    "redis-server": "redis",
    "tikv-double": "tikv",
    "versitygw": "s3",
    "zsh": "zsh",
}
_required: set[str] = set()


def require(*names: str) -> Path:
    """Return where the first of these services is installed, once all of them are.

    A test without its service is skipped. In CI it fails, if `make services` installs that service.
    """
    _required.update(names)
    paths = []
    for name in names:
        service = SERVICE[name]
        path = service.path()
        if path is None:
            missing_service(f"{service.title} is not installed: {service.hint}", in_ci=service.in_ci)
        paths.append(path)
    return paths[0]


def installed_programs() -> list[Path]:
    """Return the services' programs on this machine, for the run that hides them."""
    paths = {service.path() for service in SERVICE.values()}
    programs = {path.resolve() for path in paths if path is not None and path.is_file()}
    programs -= {path.resolve() for name in _ON_EVERY_MACHINE if (path := SERVICE[name].path())}
    postgres = SERVICE["postgresql"].path()
    if postgres is not None:
        programs.add(postgres / "postgres")
    podman = shutil.which("podman")
    if podman is not None:
        programs.add(Path(podman).resolve())
    return sorted(program for program in programs if not program.is_relative_to(SERVICES))


def missing_service(reason: str, *, in_ci: bool = True) -> NoReturn:
    """Skip the test; fail it in CI, if `make services` should have installed what it needs."""
    if in_ci and os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def _on_audit(event: str, arguments: tuple[object, ...]) -> None:
    if event != "subprocess.Popen":
        return
    program = Path(os.fsdecode(arguments[0])).name  # type: ignore[arg-type]  # what Popen was given
    service = _PROGRAMS.get(program)
    if service is not None and service not in _required:
        pytest.fail(f"the test starts {program} without require({service!r})")


@pytest.fixture(scope="session", autouse=True)
def services_are_required() -> None:
    """Let a test fail that starts a service's program without requiring the service."""
    sys.addaudithook(_on_audit)


@pytest.fixture(autouse=True)
def service_requirements() -> Iterator[None]:
    """Let each test require what it starts, whatever the tests before it required."""
    yield
    _required.clear()
