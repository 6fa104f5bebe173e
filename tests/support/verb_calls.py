"""A place with one of everything, and a call of each verb that works there."""

from __future__ import annotations

import functools
import hashlib
import os
import shlex
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import written_state
from typer.core import TyperGroup
from typer.main import get_command

from golden import files_on_disk, files_read_from, golden_on_disk, kafka_files
from holdfast import savepoints
from holdfast.changes.edit_api import edit
from holdfast.cli import app
from holdfast.jobs.registry.registry import Registry
from holdfast.jobs.state_home import StateHome, SupervisorLock

JOB: Final = """\
import holdfast as hf


@hf.job(name="typed", checkpoint="new")
def typed(spark):
    raise AssertionError("nothing is to be run")
"""
HISTORY: Final = "def warm(spark):\n    return spark.range(3)\n"
SAVEPOINTS: Final = ("SP", "EDITED")

# A call of each verb. CK, windows, joined, keyed and orders are checkpoints, CAT is a directory of
# savepoints, SP is one of them and EDITED another; what is to be made is called `made`.
WORKING: Final = """
    advise CK
    advise --rate 100 --keys 1000
    alerts export
    alerts export --output made
    alerts list --home home
    apply DEPLOYMENT.toml --home home
    cancel shop --home home --dry-run
    completion bash
    check-spark CK 4.3
    checkpoint history CK
    checkpoint release CK --dry-run
    checkpoint show joined --by-partition --confs
    checkpoint verify CK
    cost CK
    cost SP
    cost --rate 5000 --keys 1000000
    doctor CK
    drill SP
    explain HF-E3001
    fork SP made
    help take
    init made
    lint CK
    lint JOB.py
    list --home home
    offsets set orders made --at orders:0:12 --dry-run
    offsets show orders
    offsets skip SP made --file file:///arrivals/bad.json
    offsets translate orders made --topic orders=elsewhere --dry-run
    rescale SP made --partitions 3
    restore SP made
    run JOB.py --dry-run --no-rest
    savepoint delete SP --dry-run
    savepoint diff SP EDITED
    savepoint digest CAT
    savepoint gc CAT --dry-run
    savepoint label SP later
    savepoint list CAT
    savepoint show SP --files
    savepoint take CK made
    savepoint verify SP --deep
    skew joined --top 2
    state diff SP EDITED
    state edit SP --set count=1 --key c1 --yes
    state erase CAT c1 --dry-run
    state explain CK c1
    state get windows '2026-03-05 08:10,c0'
    state history CK c1
    state list joined
    state migrate SP made --backend rocksdb
    state scan windows
    state scan CK --output made.jsonl
    state undo EDITED --yes
    status shop --home home
    restart shop --home home --dry-run
    stop shop --home home --dry-run
    tour made --yes
    ttl windows --what-if 1h
    version
    mirror CK made --once
    watch CK --once
"""
# What starts Spark, or goes on until it is ended, is tried where that is waited for.
STARTS_SPARK: Final = {"bench", "check", "compare", "demo", "evolve", "state bootstrap", "upgrade"}
GOES_ON: Final = {"serve"}


@functools.cache
def leaves() -> frozenset[str]:
    """Every verb, such as `savepoint take`."""
    return frozenset(_leaves(get_command(app), ()))


def _leaves(command: Any, words: tuple[str, ...]) -> Iterator[str]:
    if isinstance(command, TyperGroup):
        for name, inner in command.commands.items():
            yield from _leaves(inner, (*words, name))
    else:
        yield " ".join(words)


def verb_of(line: str) -> str | None:
    """The verb that a line calls; None where it calls none."""
    words = line.split()
    return next((verb for verb in (" ".join(words[:2]), words[0]) if verb in leaves()), None)


def lines_of(text: str) -> list[str]:
    """The lines that are typed."""
    return [line.strip() for line in text.splitlines() if line.strip()]


@contextmanager
def furnished(folder: Path) -> Iterator[Path]:
    """Everything that calls name; a job is supervised as long as this lasts."""
    for name, golden in (
        ("windows", "4.2/windowed-memory"),
        ("joined", "4.2/join-format2"),
        ("keyed", "4.2/keyed-format2"),
    ):
        golden_on_disk(golden, folder / name)
    files_on_disk(files_read_from("4.2/aggregate-memory", "file:///arrivals"), folder / "CK")
    files_on_disk(kafka_files("4.2/aggregate-memory"), folder / "orders")
    taken = savepoints.take(folder / "CK", folder / "CAT", deep=True)
    edited = edit(taken.uri, "aggregate", set={"count": 1}, key="customer=c2", why="mistyped", who="ann")
    (folder / "SP").write_text(taken.uri)
    (folder / "EDITED").write_text(edited.uri)
    (folder / "FILE").write_text("a file\n")
    (folder / "empty").mkdir()
    (folder / "JOB.py").write_text(JOB)
    (folder / "DEPLOYMENT.toml").write_text('[jobs.typed]\ncode = "JOB.py"\nstate = "stopped"\n')
    (folder / "WRONG.toml").write_text('[jobs.typed]\ncode = "JOB.py"\nstate = "asleep"\n')
    (folder / "HISTORY.py").write_text(HISTORY)
    home = StateHome(folder / "home")
    written_state.write_registry(home.path)
    Registry(home.registry, written_state.LEADER.token).lead("shop", written_state.LEADER)
    lock = SupervisorLock(home, "shop")
    assert lock.take()
    try:
        yield folder
    finally:
        lock.release()


def words_of(line: str, place: Path, made: str = "made") -> list[str]:
    """The words of a line, with the addresses of savepoints in them.

    Args:
        line: What is typed.
        place: Where.
        made: What `made` is called this time.
    """
    return [_word(word, place, made) for word in shlex.split(line)]


def _word(word: str, place: Path, made: str) -> str:
    for name in SAVEPOINTS:
        if word == name or word.startswith(f"{name}/"):
            return (place / name).read_text() + word.removeprefix(name)
    return word.replace("made", made, 1) if word in {"made", "made.jsonl"} else word


def below(folder: Path) -> dict[str, str]:
    """Every file and directory, and the bytes of each file.

    A lock is a file that may stay, and so is what Python makes of a job file that it has loaded.
    """
    found = {}
    for at, directories, files in os.walk(folder):
        directories[:] = [name for name in directories if name != "__pycache__"]
        for name in (*directories, *files):
            if not name.endswith((".lock", "-wal", "-shm")):
                path = os.path.join(at, name)  # noqa: PTH118 - a path of a thousand files is looked at for each case
                found[os.path.relpath(path, folder)] = _content(path)
    return dict(sorted(found.items()))


def _content(path: str) -> str:
    told = os.lstat(path)
    if stat.S_ISLNK(told.st_mode):
        return f"-> {Path(path).readlink()}"
    if not stat.S_ISREG(told.st_mode):
        return ""
    return _hash(path, told.st_ino, told.st_size, told.st_mtime_ns, told.st_ctime_ns)


@functools.cache
def _hash(path: str, *_told: int) -> str:
    """The hash of a file, read again if anything is told of it that was not told before."""
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()
