"""Read a deployment file: which jobs a state home is to run, and how.

It has a table for each job. Paths are relative to the working directory, as those in the code of a job are.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Final

from holdfast.config.settings import read_toml
from holdfast.config.units import parse_duration
from holdfast.errors import HoldfastError, Invalid, NotFound
from holdfast.jobs.definition import NAME
from holdfast.jobs.upgrades.upgrade_record import UpgradeMode

_JOBS: Final = "jobs"
_LARGEST_FILE: Final = 4 << 20


class DeclaredState(str, Enum):
    """The state that a deployment file asks for."""

    RUNNING = "running"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class Deployment:
    """A job as its table in a deployment file describes it.

    Attributes:
        job: The job's name.
        code: The job file, `FILE.py[:JOB]`.
        state: Whether it is to run.
        mode: The mode of an upgrade: `savepoint`, `last-state` or `stateless`.
        savepoints: The savepoint of each query for the first start; a job's only query needs no name.
        master: The Spark master; None for that of the last run, else that of the job.
        settings: Settings and parameters of the job.
        conf: Spark settings.
        batches: The number of batches that new code has to commit.
        within: The time for that.
        accept_loss: States that may be lost or reinterpreted.
        initial: Initial values of new columns.
        rename: New names of columns and operators.
        drop: Columns and operators to discard with their state.
        merge: True to merge rows that get the same key.
    """

    job: str
    code: str
    state: DeclaredState = DeclaredState.RUNNING
    mode: UpgradeMode = UpgradeMode.SAVEPOINT
    savepoints: Mapping[str, str] = field(default_factory=dict)
    master: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    conf: Mapping[str, str] = field(default_factory=dict)
    batches: int = 3
    within: str = "10m"
    accept_loss: tuple[str, ...] = ()
    initial: Mapping[str, str] = field(default_factory=dict)
    rename: Mapping[str, str] = field(default_factory=dict)
    drop: tuple[str, ...] = ()
    merge: bool = False


def read_deployments(path: str | os.PathLike[str]) -> tuple[Deployment, ...]:
    """Read a deployment file; the order of its jobs is kept.

    Raises:
        NotFound: The file does not exist.
        Invalid: The file cannot be read, is not TOML, or has an unknown name or a wrong value.
    """
    where = os.fspath(path)
    content = _content(Path(where), where)
    stray = [name for name in content if name != _JOBS]
    tables = content.get(_JOBS)
    if stray or not isinstance(tables, dict) or not tables:
        raise _wrong(where, ", ".join(map(repr, stray)) or "no job", "a table [jobs.NAME] for each job")
    return tuple(_deployment(name, table, f"{where}: {_JOBS}.{name}") for name, table in tables.items())


def _content(file: Path, where: str) -> dict[str, Any]:
    try:
        if not file.exists():
            raise NotFound(
                "the deployment file does not exist",
                code="HF-E3075",
                where=where,
                hint="give the path of a TOML file with a table [jobs.NAME] for each job",
            )
        if not file.is_file() or file.stat().st_size > _LARGEST_FILE:
            raise _wrong(
                where,
                "a file that is too large" if file.is_file() else "no regular file",
                f"a TOML file of at most {_LARGEST_FILE >> 20} MiB",
            )
        content = read_toml(file)
    except (OSError, ValueError) as error:
        # Errors in TOML and UTF-8 are ValueErrors, as is an impossible file name.
        raise Invalid(
            "cannot read the deployment file",
            code="HF-E2551",
            where=where,
            found=error.strerror if isinstance(error, OSError) else str(error),
            hint="give a readable TOML file with a table [jobs.NAME] for each job",
        ) from error
    return content


def _deployment(name: str, table: Any, where: str) -> Deployment:
    if not NAME.fullmatch(name):
        raise _wrong(where, repr(name), "the name of a job")
    if not isinstance(table, dict):
        raise _wrong(where, repr(table), f"a table [{_JOBS}.{name}]")
    unknown = [repr(key) for key in table if key not in _READERS]
    if unknown:
        raise _wrong(where, ", ".join(unknown), ", ".join(_READERS))
    if "code" not in table:
        raise _wrong(where, "no code", 'code = "FILE.py", or "FILE.py:JOB"')
    values: dict[str, Any] = {}
    for key, given in table.items():
        attribute, read, expected = _READERS[key]
        try:
            values[attribute] = read(given)
        except (ValueError, HoldfastError):
            raise _wrong(f"{where}.{key}", repr(given), expected) from None
    return Deployment(name, **values)


def _wrong(where: str, found: str, expected: str) -> Invalid:
    return Invalid(
        "wrong entry in the deployment file",
        code="HF-E2552",
        where=where,
        found=found,
        expected=expected,
        hint="correct the entry, and check the file with `holdfast apply FILE --dry-run`",
    )


def _text(given: Any) -> str:
    if not isinstance(given, str) or not given.strip():
        raise ValueError
    return given


def _texts(given: Any) -> tuple[str, ...]:
    if not isinstance(given, list):
        raise ValueError
    return tuple(map(_text, given))


def _word(given: Any) -> str:
    """Return a value as an option of the command line has it."""
    if isinstance(given, bool):
        return str(given).lower()
    if not isinstance(given, (str, int, float)):
        raise ValueError
    return str(given)


def _words(given: Any) -> dict[str, str]:
    if not isinstance(given, dict):
        raise ValueError
    return {key: _word(value) for key, value in given.items()}


def _dotted(given: Any) -> dict[str, str]:
    """Return a table by dotted names; TOML reads a dot in a name as a table within the table."""
    if not isinstance(given, dict):
        raise ValueError
    found: dict[str, str] = {}
    for key, value in given.items():
        below = _dotted(value) if isinstance(value, dict) else {"": _word(value)}
        found |= {f"{key}.{rest}" if rest else key: text for rest, text in below.items()}
    return found


def _savepoints(given: Any) -> dict[str, str]:
    return (
        {key: _text(value) for key, value in given.items()} if isinstance(given, dict) else {"": _text(given)}
    )


def _count(given: Any) -> int:
    if isinstance(given, bool) or not isinstance(given, int) or given < 0:
        raise ValueError
    return given


def _duration(given: Any) -> str:
    parse_duration(_text(given), "within")
    return _text(given)


def _flag(given: Any) -> bool:
    if not isinstance(given, bool):
        raise ValueError
    return given


_NAMES: Final = "a list of names"
_VALUES: Final = "a table of texts and numbers"
# Each name of a table: the attribute, how it is read, and what is expected.
_READERS: Final[Mapping[str, tuple[str, Callable[[Any], Any], str]]] = {
    "code": ("code", _text, '"FILE.py", or "FILE.py:JOB"'),
    "state": ("state", DeclaredState, " or ".join(f'"{each.value}"' for each in DeclaredState)),
    "mode": ("mode", UpgradeMode, ", ".join(f'"{each.value}"' for each in UpgradeMode)),
    "savepoint": ("savepoints", _savepoints, "a savepoint, or a table with one for each query"),
    "master": ("master", _text, 'a Spark master such as "local[2]"'),
    "settings": ("settings", _dotted, _VALUES),
    "conf": ("conf", _dotted, _VALUES),
    "batches": ("batches", _count, "a whole number from 0"),
    "within": ("within", _duration, 'a time such as "10m"'),
    "accept-loss": ("accept_loss", _texts, _NAMES),
    "initial": ("initial", _words, _VALUES),
    "rename": ("rename", _words, "a table of names"),
    "drop": ("drop", _texts, _NAMES),
    "merge": ("merge", _flag, "true or false"),
}
