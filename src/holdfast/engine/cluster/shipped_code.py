"""Code that executors get from the driver: this package, and the modules of a job.

An archive is the same bytes for the same files, under a name that has their hash: two drivers of one release
send one archive, and another release another one.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
import zipfile
from collections.abc import Container, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdfast._version import __version__
from holdfast.config.cluster_settings import Manager, manager_of
from holdfast.config.private_files import make_directory
from holdfast.config.settings import Settings
from holdfast.errors import Invalid, NotFound

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Where Python workers look for modules first; the current directory of an executor is where files come to.
WORKER_PATH_KEY: Final = "spark.executorEnv.PYTHONPATH"
_FOLDER: Final = "shipped"
_PACKAGE: Final = Path(__file__).parents[2]
_TIME: Final = (1980, 1, 1, 0, 0, 0)
_MODE: Final = 0o644 << 16
_UNIX: Final = 3
_NOT_FOR_WORKERS: Final = frozenset({"cli", "demo", "server"})
_HASH_DIGITS: Final = 12
_ARCHIVES: Final = (".zip", ".egg")


def needs_code(master: str) -> bool:
    """Whether executors may be where this package is not installed."""
    return manager_of(master) is not Manager.LOCAL


@cache
def package_archive(home: Path) -> Path:
    """The archive of this package, below the state home; made once for a release.

    It has the modules of Python that a task may import.
    """
    return _archive(home, f"holdfast-{__version__}", _PACKAGE, _PACKAGE.parent, _NOT_FOR_WORKERS)


def code_archives(paths: Iterable[str | os.PathLike[str]], base: Path, home: Path) -> list[Path]:
    """The files that bring a job's modules to the executors.

    Args:
        paths: Modules (`.py`), archives (`.zip`, `.egg`), and folders: a package with its name, of any other
            folder what is in it.
        base: Where paths begin that are not absolute.
        home: The state home, where archives of folders are kept.

    Raises:
        NotFound: One is not there.
        Invalid: One is nothing that Python imports from, or two have one name.
    """
    found: list[Path] = []
    for path in paths:
        place = base / os.fspath(path)
        if place.is_dir():
            top = place.parent if (place / "__init__.py").is_file() else place
            found.append(_archive(home, place.resolve().name, place, top))
        elif not place.exists():
            raise NotFound("there is no such code", where="py_files", found=str(place))
        elif place.suffix in (".py", *_ARCHIVES):
            found.append(place)
        else:
            raise Invalid(
                "Python imports nothing from such a file",
                where="py_files",
                found=str(place),
                expected="a .py file, a .zip or .egg archive, or a folder",
                hint="wheels are installed, not shipped: pack them with venv-pack into spark.archives",
            )
    doubled = {place.name for place in found if [each.name for each in found].count(place.name) > 1}
    if doubled:
        raise Invalid(
            "two files of a job's code have one name, and executors keep all in one folder",
            where="py_files",
            found=", ".join(sorted(doubled)),
            hint="rename one, or put them into a package",
        )
    return found


def send_code(spark: SparkSession, files: Iterable[Path]) -> None:
    """Have the tasks of a session import from these files; a file that it has already is not sent again.

    What is planned before keeps what it had, so this comes before a query is built.
    """
    context: Any = spark.sparkContext
    for file in files:
        if not any(str(path).endswith(f"/{file.name}") for path in context.listFiles):
            before = list(sys.path)
            context.addPyFile(str(file))
            if file.name.startswith(f"holdfast-{__version__}-"):
                # The driver has the package; it must not import a copy of it.
                sys.path[:] = before
        elif file.suffix in _ARCHIVES and file.name not in context._python_includes:
            # It is among the session's files already; tasks are to import from it.
            context._python_includes.append(file.name)
        _show_driver(context, file)


def send_package(spark: SparkSession, home: Path | None = None) -> None:
    """Have the tasks of a session on a cluster import this package, installed there or not.

    Args:
        spark: The session.
        home: The state home; without it a session that has the package is left as it is.
    """
    context: Any = spark.sparkContext
    if not needs_code(str(context.master)):
        return
    if home is None and any(f"/holdfast-{__version__}-" in str(path) for path in context.listFiles):
        return
    send_code(spark, [package_archive(home or Settings.resolve({}, os.environ, Path.cwd()).home)])


def _show_driver(context: Any, file: Path) -> None:
    """Let the worker that Spark runs beside the driver, when it plans keyed state, import from a file too.

    Spark tells that worker of no files. It has the environment of all workers, where a path of this machine
    does no harm on another one.
    """
    from pyspark import SparkFiles

    shown = str(file.resolve()) if file.suffix in _ARCHIVES else SparkFiles.getRootDirectory()
    paths = str(context.environment.get("PYTHONPATH", "")).split(os.pathsep)
    if shown not in paths:
        context.environment["PYTHONPATH"] = os.pathsep.join(path for path in (*paths, shown) if path)


def worker_path(given: str | None, archive: Path) -> str:
    """The path of Python workers with the archive in front, so that a copy installed there does not win."""
    others = [entry for entry in (given or "").split(":") if entry not in ("", archive.name)]
    return ":".join([archive.name, *others])


def _archive(home: Path, name: str, folder: Path, top: Path, without: Container[str] = ()) -> Path:
    """The archive of the modules below a folder, named as seen from another one; made if it is not there.

    It appears whole, and is never changed.
    """
    modules = {path.relative_to(top).as_posix(): path.read_bytes() for path in _modules(folder, without)}
    digest = hashlib.sha256()
    for module, content in sorted(modules.items()):
        digest.update(f"{module}\0{len(content)}\0".encode() + content)
    path = home.resolve() / _FOLDER / f"{name}-{digest.hexdigest()[:_HASH_DIGITS]}.zip"
    if zipfile.is_zipfile(path):
        return path
    make_directory(path.parent)
    number, fresh = tempfile.mkstemp(prefix=".", suffix=".zip", dir=path.parent)
    with os.fdopen(number, "wb") as file, zipfile.ZipFile(file, "w") as archive:
        for module, content in sorted(modules.items()):
            archive.writestr(_entry(module), content)
    Path(fresh).replace(path)
    return path


def _entry(module: str) -> zipfile.ZipInfo:
    """An entry that is the same whenever and wherever it is made."""
    entry = zipfile.ZipInfo(module, _TIME)
    entry.compress_type, entry.external_attr, entry.create_system = zipfile.ZIP_DEFLATED, _MODE, _UNIX
    return entry


def _modules(folder: Path, without: Container[str]) -> Iterator[Path]:
    for place, folders, files in os.walk(folder):
        left_out = without if Path(place) == folder else ()
        folders[:] = [name for name in folders if _has_code(name) and name not in left_out]
        yield from (Path(place, name) for name in files if name.endswith(".py"))


def _has_code(name: str) -> bool:
    return name != "__pycache__" and not name.startswith(".")
