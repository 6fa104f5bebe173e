"""Every place where Holdfast itself may keep a key: one table, and what an erasure does about each place.

A new file, directory or database of Holdfast's gets a row here; a test compares the table with the code. What
is outside Holdfast (sources, sinks, backups) has rows too, because a certificate names what was not searched.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase
from typing import Final


class Root(str, Enum):
    """What the paths of a place are relative to."""

    CATALOG = "catalog"
    CHECKPOINT = "checkpoint"
    HOME = "state home"
    WORK = "directory of a catalog or checkpoint"
    OUTSIDE = "outside"


class Treatment(str, Enum):
    """What an erasure does about a place."""

    ERASED = "erased"
    SEARCHED = "searched as text"
    NOT_SEARCHED = "not searched"


@dataclass(frozen=True, slots=True)
class KeyPlace:
    """A kind of place.

    Attributes:
        name: Its name in a certificate.
        root: What its paths are relative to.
        paths: Patterns of paths; `*` matches any characters, also `/`.
        treatment: What an erasure does about it.
        holds: How a key gets there.
        advice: What to do where it was found there, or where nothing was searched.
    """

    name: str
    root: Root
    paths: tuple[str, ...]
    treatment: Treatment
    holds: str
    advice: str


_SEARCHED, _NOT = Treatment.SEARCHED, Treatment.NOT_SEARCHED
_HANDLED: Final = "nothing to do"


def _erased(name: str, paths: tuple[str, ...], holds: str) -> KeyPlace:
    """A place of a catalog that an erasure itself takes care of."""
    return KeyPlace(name, Root.CATALOG, paths, Treatment.ERASED, holds, _HANDLED)


def _in_home(
    name: str, paths: tuple[str, ...], holds: str, advice: str, treatment: Treatment = _SEARCHED
) -> KeyPlace:
    return KeyPlace(name, Root.HOME, paths, treatment, holds, advice)


def _outside(name: str, holds: str, advice: str) -> KeyPlace:
    """A place that Holdfast does not know the address of."""
    return KeyPlace(name, Root.OUTSIDE, (), _NOT, holds, advice)


KEY_PLACES: Final = (
    _erased(
        "state of savepoints",
        ("objects/*",),
        "rows of state, and rows that were deleted and are still in a file",
    ),
    _erased(
        "labels and audit records of savepoints",
        ("savepoints/*",),
        "people write keys into labels, statements and reasons",
    ),
    _erased(
        "takes and removals",
        ("takes/*", "staging/*", "sweep.json", "sweep.lock"),
        "a killed take leaves files of state; the erasure removes them",
    ),
    KeyPlace(
        "drills",
        Root.CATALOG,
        ("drills/*",),
        _SEARCHED,
        "a drill notes the name of its job and the address of its savepoint",
        "delete these files: they are measurements",
    ),
    KeyPlace(
        "logs and notes of savepoints",
        Root.CHECKPOINT,
        ("metadata", "offsets/*", "commits/*", "sources/*", "state/*", "_holdfast/*"),
        _SEARCHED,
        "a file source logs the names of its files; a plan note has the literals of a query",
        "delete these savepoints with `holdfast savepoint delete`, or checkpoints: Spark needs these files"
        " as they are",
    ),
    KeyPlace(
        "directories of work under way",
        Root.WORK,
        (".holdfast-*",),
        _NOT,
        "an edit, erasure, migration or rescale that runs now has a copy of state",
        "wait until it has ended, and erase once more",
    ),
    _in_home(
        "registry",
        ("registry.db*",),
        "the hot keys that a job watches, and the words of failures",
        "stop the jobs of this state home and move the file away: the next `holdfast run` makes a new one",
    ),
    _in_home(
        "operations",
        ("operations.db*",),
        "arguments, results and errors of what was asked over HTTP, such as a query over state",
        "stop the server and move the file away: a new one is made",
    ),
    _in_home(
        "alerts and numbers",
        ("watching.db*",),
        "labels of metrics, and the words of alerts",
        "stop the jobs of this state home and move the file away: a new one is made",
    ),
    _in_home(
        "logs of drivers and rescales",
        ("jobs/*.log",),
        "whatever a job's code and its failures print",
        "delete these files; the log of a running driver once it has ended",
    ),
    _in_home(
        "records of good batches",
        ("records/*",),
        "paths and hashes of a checkpoint's files",
        "delete these files: the record begins anew",
    ),
    _in_home(
        "locks and leases",
        ("jobs/*.lock", "locks/*", "operating/*", "leases/*"),
        "names of jobs and processes",
        "delete them once no job runs in this state home",
    ),
    _in_home(
        "sandboxes of comparisons and drills",
        ("sandboxes/*",),
        "a comparison or drill that runs now has a copy of state; those of killed ones are removed",
        "wait until it has ended, and erase once more",
        _NOT,
    ),
    _in_home(
        "savepoints of the state home",
        ("savepoints/*",),
        "a catalog that somebody keeps there",
        "erase there too: name it to `holdfast state erase`",
        _NOT,
    ),
    _in_home(
        "token of the server",
        ("server-token",),
        "random text, which no key gets into",
        _HANDLED,
    ),
    _in_home(
        "other files of the state home",
        ("*",),
        "files that Holdfast does not know",
        "look at these files",
    ),
    _outside(
        "ledger",
        "`holdfast_fence` and `holdfast_batches` have names of sinks, and tokens and numbers of batches",
        "no rows are in them; delete the key's rows from the sink's own table",
    ),
    _outside(
        "sources, sinks and side outputs",
        "input that a query reads again; its output, late rows and rejected rows included",
        "delete the key there with the means of that system",
    ),
    _outside(
        "working directories of Spark",
        "workers keep copies of state in `spark.local.dir` while a query runs; a killed one leaves them",
        "stop the query and remove what is left there; remove Spark's event logs if they are kept",
    ),
    _outside(
        "exports and what was sent",
        "files exported from state, alerts in a webhook, labels in a monitoring system",
        "delete the key there",
    ),
    _outside(
        "other checkpoints, catalogs and copies",
        "forks and restored checkpoints, other catalogs such as `CHECKPOINT.savepoints` where a server puts"
        " savepoints, backups, older versions that an object store keeps",
        "erase from each of them too, checkpoints with --checkpoint; let backups and versions expire",
    ),
)


def place_at(root: Root, path: str) -> KeyPlace | None:
    """The place that a path is in; None for a path that the table does not have."""
    for place in KEY_PLACES:
        if place.root is root and any(fnmatchcase(path, pattern) for pattern in place.paths):
            return place
    return None


def place_named(name: str) -> KeyPlace:
    """The row of this name."""
    return next(place for place in KEY_PLACES if place.name == name)
