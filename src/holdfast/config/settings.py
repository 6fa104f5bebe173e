"""Holdfast's own settings with their origins, and the creation of private files.

Precedence: flag, environment variable, file, default.
"""

from __future__ import annotations

import difflib
import os
import stat
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from holdfast.config.checks import SCHEME, refused
from holdfast.config.policies import DEFAULT_LEASE, Leading
from holdfast.config.units import exact_duration
from holdfast.errors import Invalid, NotFound

DIRECTORY: Final = 0o700
FILE: Final = 0o600
_OTHERS: Final = 0o077
# The entries of a state home. In a catalog, which may have millions of files, only the directory is closed.
_FOLDERS: Final = frozenset({"jobs", "records", "operating", "locks", "sandboxes", "java", "shipped"})
_CLOSED_FOLDERS: Final = frozenset({"savepoints"})
_FILES: Final = ("registry.db", "operations.db", "watching.db", "server-token", ".server-token", ".writable-")


def make_directory(path: Path) -> None:
    """Create a directory and its missing parents durably, accessible only to the owner.

    Raises:
        OSError: The directory cannot be created.
    """
    missing = []
    for above in (path, *path.parents):
        if above.is_dir():
            break
        missing.append(above)
    for folder in reversed(missing):
        with suppress(FileExistsError):
            folder.mkdir(DIRECTORY)
            flush_directory(folder.parent)
    if not path.is_dir():
        raise NotADirectoryError(f"not a directory: {path}")


def flush_directory(path: Path) -> None:
    """Make the names in a directory outlive a power failure, if this user may list it."""
    with suppress(PermissionError):
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def make_file(path: Path) -> None:
    """Create an empty file accessible only to the owner, unless it exists.

    An existing file is not opened, because closing a SQLite file releases all locks of this process on it.
    """
    with suppress(OSError):
        os.mknod(path, FILE | stat.S_IFREG)


def open_file(path: Path, flags: int) -> int:
    """Open a file and return its descriptor; a missing file is created with access only for the owner.

    Raises:
        OSError: The file cannot be opened.
    """
    return os.open(path, flags | os.O_CREAT | os.O_CLOEXEC, FILE)


def close_to_others(home: Path) -> None:
    """Remove other users' access to a state home that an earlier version or the umask left open.

    If the directory also has other files, such as a working directory, only Holdfast's entries are changed.
    """
    try:
        entries = list(os.scandir(home))
    except OSError:
        return
    ours = [entry for entry in entries if _is_ours(entry.name)]
    if len(ours) == len(entries):
        _close(home)
    for entry in ours:
        loose = _close(Path(entry.path))
        if loose and entry.name in _FOLDERS and entry.is_dir(follow_symlinks=False):
            for path in _below(Path(entry.path)):
                _close(path)


def _is_ours(name: str) -> bool:
    return name in _FOLDERS or name in _CLOSED_FOLDERS or name.startswith(_FILES)


def _below(folder: Path) -> Iterator[Path]:
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            yield Path(place, name)


def _close(path: Path) -> bool:
    """Remove other users' access to a path of this user; return whether that was necessary."""
    try:
        status = path.lstat()
        mode = stat.S_IMODE(status.st_mode)
        if stat.S_ISLNK(status.st_mode) or not mode & _OTHERS or status.st_uid != os.geteuid():
            return False
        path.chmod(mode & ~_OTHERS & ~(stat.S_ISUID | stat.S_ISGID))
    except OSError:  # the file was deleted in between
        return False
    return True


if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found,unused-ignore]

FILE_NAME = "holdfast.toml"
FILE_VARIABLE = "HOLDFAST_CONFIG"
TABLE = "holdfast"
_MOST_PORT = 65535


@dataclass(frozen=True, slots=True)
class _Setting:
    name: str
    variable: str
    default: str

    @property
    def option(self) -> str:
        return f"--{self.name}"


_HOME = _Setting("home", "HOLDFAST_HOME", ".holdfast")
_HA = _Setting("ha", "HOLDFAST_HA", "none")
_LEASE = _Setting("lease", "HOLDFAST_LEASE", DEFAULT_LEASE)
_PORT = _Setting("port", "HOLDFAST_PORT", "8081")
_SETTINGS = (_HOME, _HA, _LEASE, _PORT)
_NAMES = tuple(setting.name for setting in _SETTINGS)


@dataclass(frozen=True, slots=True)
class SettingOrigin:
    """The origin of a setting.

    Args:
        kind: "flag", "environment", "file" or "default".
        place: The option, variable or file; for a default, the value itself.
    """

    kind: str
    place: str

    def __str__(self) -> str:
        return self.kind if self.kind == "default" else f"{self.kind} {self.place}"


@dataclass(frozen=True, slots=True)
class ResolvedSetting:
    """A setting of Holdfast with its resolved value.

    Attributes:
        name: The name in `holdfast.toml`.
        value: The value in effect.
        source: The origin of the value: `flag`, `environment` or `file` with the name of the option, variable
            or file, or `default`.
    """

    name: str
    value: str
    source: str


@dataclass(frozen=True, slots=True)
class Settings:
    """Holdfast's own settings, resolved from flags, environment and file.

    Args:
        home: The state home, an absolute path; it has the registry, logs and other data that outlive a run.
        sources: The origin of each setting, by name.
        leading: The elections of several supervisors of one job; None for a single supervisor.
        port: The port of REST and the dashboard; 0 for any free port.
    """

    home: Path
    sources: Mapping[str, SettingOrigin] = field(default_factory=dict)
    leading: Leading | None = None
    port: int = int(_PORT.default)

    @classmethod
    def resolve(cls, flags: Mapping[str, object], environ: Mapping[str, str], cwd: Path) -> Settings:
        """Resolve all settings, each with its origin.

        A relative path is relative to `cwd`, or to the file's directory if it is from a file. An empty
        environment variable counts as not set.

        Args:
            flags: Options of the command line, by the name of the setting; None for an option that is not
                given.
            environ: The environment. `HOLDFAST_CONFIG` names the file; by default it is `holdfast.toml` in
                `cwd`, if it exists.
            cwd: The working directory; must be absolute.

        Raises:
            Invalid: A name is not a setting, a value is not allowed, or a file cannot be read.
            NotFound: The file that `HOLDFAST_CONFIG` names is missing.
        """
        _only_known(flags, "flags")
        path = _file(environ, cwd)
        table = {} if path is None else _table(path)
        winners = {setting.name: _first(setting, flags, environ, cwd, path, table) for setting in _SETTINGS}
        sources = {name: source for name, (_, source, _) in winners.items()}
        value, source, base = winners[_HOME.name]
        home = _path(value, _HOME, source, base)
        lease = _text(winners[_LEASE.name], _LEASE)
        leading = Leading.of(_text(winners[_HA.name], _HA), lease, winners[_HA.name][2], home)
        return cls(home=home, sources=sources, leading=leading, port=_port(winners[_PORT.name]))

    @classmethod
    def here(cls, home: str | os.PathLike[str] | None = None, **others: str | int | None) -> Settings:
        """Return the settings of this process, from its environment and working directory.

        Args:
            home: The state home, as `--home` sets it; None if not given.
            others: Other settings, with the precedence of flags; None for a setting that is not given.

        Raises:
            Invalid, NotFound: As for `resolve`.
        """
        flags = {"home": None if home is None else os.fspath(home), **others}
        return cls.resolve(flags, os.environ, Path.cwd())

    def resolved(self) -> list[ResolvedSetting]:
        """Return each setting with its value and origin."""
        values = {
            _HOME.name: str(self.home),
            _HA.name: _HA.default if self.leading is None else self.leading.address,
            _PORT.name: str(self.port),
        }
        if self.leading is not None:
            values[_LEASE.name] = exact_duration(self.leading.lease_ms)
        return [ResolvedSetting(name, value, str(self.sources[name])) for name, value in values.items()]

    @property
    def real_home(self) -> Path:
        """The state home with symbolic links resolved as far as they exist."""
        return Path(os.path.realpath(self.home))

    def ensure_home(self) -> Path:
        """Create the state home if it is missing, and check that it is writable.

        Only the owner has access, because the logs and errors in it contain values of rows. Cost: lists the
        directory, and writes and removes a small file.

        Raises:
            Invalid: The state home cannot be created or written.
        """
        try:
            self.home.parent.mkdir(parents=True, exist_ok=True)
            make_directory(self.home)
            close_to_others(self.home)
            with tempfile.NamedTemporaryFile(dir=self.home, prefix=".writable-") as probe:
                probe.write(b"1")
                probe.flush()
                os.fsync(probe.fileno())
        except OSError as error:
            raise self._unwritable(error.strerror or str(error)) from error
        return self.home

    def look_at_home(self) -> Path:
        """Check the permissions for writing the state home; create nothing.

        Raises:
            Invalid: The user has no permission to write the state home, or the directory in which it would be
                created.
        """
        why = unwritable(self.home)
        if why is not None:
            raise self._unwritable(why)
        return self.home

    def _unwritable(self, found: str) -> Invalid:
        source = self.sources.get("home")
        return Invalid(
            "the state home is not writable",
            code="HF-E2167",
            where=f"{self.home}" + ("" if source is None else f" (from {source})"),
            found=found,
            expected="a directory that this user can write",
            hint="give a different state home with --home or HOLDFAST_HOME",
        )


def unwritable(directory: Path) -> str | None:
    """Return the reason why a directory, existing or not, is not writable; None if it is.

    Checks permissions only; creates nothing.
    """
    # `Path.exists` raises an error without permission.
    place = next(path for path in (directory, *directory.parents) if os.path.exists(path))  # noqa: PTH110
    if not place.is_dir():
        return f"{place} is not a directory"
    if os.statvfs(place).f_flag & os.ST_RDONLY:
        return f"{place} is on a read-only file system"
    if not os.access(place, os.W_OK | os.X_OK):
        return f"no permission to write {place}"
    return None


def _first(
    setting: _Setting,
    flags: Mapping[str, object],
    environ: Mapping[str, str],
    cwd: Path,
    path: Path | None,
    table: Mapping[str, object],
) -> tuple[object, SettingOrigin, Path]:
    """Return the value in effect, its origin, and the base directory of a relative path in it."""
    if flags.get(setting.name) is not None:
        return flags[setting.name], SettingOrigin("flag", setting.option), cwd
    if environ.get(setting.variable):
        return environ[setting.variable], SettingOrigin("environment", setting.variable), cwd
    if path is not None and setting.name in table:
        return table[setting.name], SettingOrigin("file", str(path)), path.parent
    return setting.default, SettingOrigin("default", setting.default), cwd


def _text(winner: tuple[object, SettingOrigin, Path], setting: _Setting) -> str:
    value, source, _ = winner
    if not isinstance(value, str) or "\0" in value:
        raise refused(setting.name, value, "a string", where=str(source))
    return value


def _path(value: object, setting: _Setting, source: SettingOrigin, base: Path) -> Path:
    text = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(text, str) or not text.strip() or "\0" in text:
        raise refused(setting.name, value, "a directory", where=str(source))
    if SCHEME.match(text):
        raise refused(setting.name, value, "a local directory", where=str(source))
    try:
        expanded = Path(text).expanduser()
    except RuntimeError as error:
        raise Invalid(
            f"cannot expand ~ in the setting {setting.name}",
            code="HF-E2168",
            where=str(source),
            found=f"{text}, and HOME is not set",
            hint="give an absolute path, or set HOME",
        ) from error
    # Not resolve(), so that the home is shown as it was given, including symbolic links.
    return Path(os.path.abspath(base / expanded))  # noqa: PTH100


def _port(winner: tuple[object, SettingOrigin, Path]) -> int:
    value, source, _ = winner
    number = int(value) if isinstance(value, str) and value.isascii() and value.isdigit() else value
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= _MOST_PORT:
        raise refused(_PORT.name, value, f"a whole number from 0 to {_MOST_PORT}", where=str(source))
    return number


def _file(environ: Mapping[str, str], cwd: Path) -> Path | None:
    named = environ.get(FILE_VARIABLE)
    path = cwd / (named or FILE_NAME)
    if path.is_file():
        return path
    if named:
        raise NotFound(
            "settings file not found",
            code="HF-E3030",
            where=f"{FILE_VARIABLE}={named}",
            found=f"no file at {path}",
            hint=f"unset {FILE_VARIABLE}, or create the file with a table [{TABLE}]",
        )
    return None


def read_toml(path: Path) -> dict[str, Any]:
    """Return the content of a TOML file.

    Raises:
        OSError: The file cannot be read.
        ValueError: It is not TOML, not UTF-8, or nested too deeply.
    """
    try:
        content: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    return content


def _table(path: Path) -> Mapping[str, object]:
    try:
        content = read_toml(path)
    except OSError as error:
        raise Invalid(
            "cannot read the settings file",
            code="HF-E2169",
            where=str(path),
            found=error.strerror or str(error),
            hint=f"make the file readable, or give a different file with {FILE_VARIABLE}",
        ) from error
    except ValueError as error:
        raise Invalid(
            "the settings file is not valid TOML",
            code="HF-E2170",
            where=str(path),
            found=str(error),
            hint=f'write settings as `home = "/data/holdfast"` below a line [{TABLE}]',
        ) from error
    stray = [name for name in content if name != TABLE]
    if stray:
        raise Invalid(
            f"the settings file has entries outside the table [{TABLE}]",
            code="HF-E2171",
            where=str(path),
            found=", ".join(stray),
            hint=f"move these entries below a line [{TABLE}], or remove them",
        )
    table = content.get(TABLE, {})
    if not isinstance(table, dict):
        raise Invalid(
            f"{TABLE} in the settings file is not a table",
            code="HF-E2172",
            hint=f"write the settings below a line [{TABLE}]",
            where=str(path),
            found=repr(table),
        )
    _only_known(table, f"[{TABLE}] of {path}")
    return table


def _only_known(given: Mapping[str, object], where: str) -> None:
    unknown = [name for name in given if name not in _NAMES]
    if unknown:
        close = difflib.get_close_matches(unknown[0], _NAMES, n=1)
        raise Invalid(
            "unknown setting",
            code="HF-E2173",
            where=where,
            found=", ".join(unknown),
            expected=", ".join(_NAMES),
            hint=f"did you mean {close[0]}?" if close else "see docs/settings.md",
        )
