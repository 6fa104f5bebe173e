"""Every verb where it may not read or write, or finds no room: one message, and nothing half-made."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Final

import pytest
from command import environment
from forked_cli import ForkedCli
from small_disk import fill, small_disk
from verb_calls import below, furnished, lines_of, words_of

WRONG, UNAVAILABLE, CONFLICT = 2, 5, 4
NUMBERS: Final = count()
NO_ROOM: Final = "No space left on device"
DENIED: Final = ("Permission denied", "no permission to write", "cannot be read", "is not readable")


def close(*paths: str) -> Callable[[Path], None]:
    """Let nobody into these; a name may be a pattern."""

    def prepare(place: Path) -> None:
        for path in paths:
            for found in place.glob(path):
                found.chmod(0)

    return prepare


def open_to_readers(path: str) -> Callable[[Path], None]:
    """Let nobody write below this."""

    def prepare(place: Path) -> None:
        for folder in (place / path, *(place / path).rglob("*")):
            if folder.is_dir():
                folder.chmod(0o555)

    return prepare


READING: Final = """
    checkpoint history CK
    checkpoint show CK
    checkpoint verify CK
    cost CK
    doctor CK
    lint CK
    advise CK
    rescale CK made --partitions 3 --confirm-stopped
    savepoint diff CK SP
    savepoint take CK made
    skew CK
    state diff CK SP
    state erase CAT c1 --checkpoint CK --confirm-stopped --yes
    state explain CK c1
    state get CK c1
    state history CK c1
    state list CK
    state migrate CK made --backend rocksdb --confirm-stopped
    state scan CK
    ttl CK --what-if 1h
    watch CK --once
"""
OF_SAVEPOINTS: Final = """
    check JOB.py --against SP
    cost SP
    drill SP
    fork SP made
    rescale SP made --partitions 3
    restore SP made
    savepoint delete SP --yes
    savepoint diff SP EDITED
    savepoint digest CAT
    savepoint gc CAT --yes
    savepoint label SP later
    savepoint list CAT
    savepoint show SP
    savepoint take CK CAT
    savepoint verify SP
    state edit SP --set count=1 --key c1 --yes
    state erase CAT c1 --yes
    state history CK c1 --savepoints CAT
    state undo EDITED --yes
"""
MAKING: Final = """
    alerts export --output made
    demo --keep made
    fork SP made
    init made
    rescale SP made --partitions 3
    restore SP made
    savepoint take CK made
    state erase CAT c1 --certificate made --dry-run
    state migrate SP made --backend rocksdb
    state scan CK --output made.jsonl
    tour made --yes
"""
CHANGING: Final = """
    savepoint delete SP --yes
    savepoint gc CAT --yes
    savepoint label SP later
    savepoint take windows CAT
    state edit SP --set count=1 --key c1 --yes
    state erase CAT c1 --yes
    state undo EDITED --yes
"""
AT_HOME: Final = """
    alerts list
    cancel shop --yes
    cost shop
    check JOB.py --against CK
    doctor
    drill SP
    lint shop
    advise shop
    list
    run JOB.py --no-rest
    serve --port 0
    skew shop
    state get shop c1
    status shop
    stop shop
    watch CK --once
"""
OF_FILES: Final = """
    check JOB.py --against CK
    doctor --job JOB.py
    lint JOB.py
    drill SP --job JOB.py
    fork SP --compare JOB.py --original JOB.py
    run JOB.py --dry-run
    run JOB.py --no-rest
    serve --port 0 --tls-cert JOB.py --tls-key JOB.py
    serve --port 0 --token-file JOB.py
    state bootstrap HISTORY.py made --from JOB.py
    state bootstrap JOB.py made --from HISTORY.py
"""
# What is closed, then what is typed.
CLOSED: Final[dict[str, tuple[Callable[[Path], None], str]]] = {
    "the checkpoint": (close("CK"), READING),
    "its state": (close("CK/state/0/0"), "checkpoint verify CK\nstate get CK c1\nsavepoint take CK made"),
    "a file of it": (
        close("CK/state/0/0/*.delta"),
        "checkpoint verify CK\nstate scan CK\nstate get CK c1\nsavepoint take CK made\nwatch CK --once",
    ),
    "the savepoints": (close("CAT"), OF_SAVEPOINTS),
    "their bytes": (close("CAT/objects"), "savepoint verify SP\nrestore SP made\nstate get SP c1"),
    "the savepoints to writers": (open_to_readers("CAT"), CHANGING),
    "the directory to writers": (lambda place: place.chmod(0o555), MAKING),
    "the state home": (close("home"), AT_HOME),
    "the job": (close("JOB.py"), OF_FILES),
    "the settings": (
        lambda place: (place / "holdfast.toml").touch(mode=0),
        "list\nrun JOB.py --dry-run\nstatus shop\nserve",
    ),
}


def content(place: Path) -> dict[str, str]:
    """What is there, but for directories that are empty: they stand in nobody's way."""
    return {path: told for path, told in below(place).items() if told}


@pytest.mark.parametrize("closed", CLOSED)
def test_what_is_closed_is_told(closed: str, cli: ForkedCli, tmp_path: Path) -> None:
    prepare, lines = CLOSED[closed]
    with furnished(tmp_path) as place:
        prepare(place)
        before = content(place)
        for line in lines_of(lines):
            words = words_of(line, place, f"made-{next(NUMBERS)}")
            said = cli.run(words, cwd=place, environ=environment(place / "home"), powerless=True)
            assert said.returncode in {WRONG, UNAVAILABLE}, (line, said)
            assert any(fact in said.stderr for fact in DENIED), (line, said.stderr)
            assert "Traceback" not in said.stderr
            after = content(place)
            # Bytes that a take has put into a directory of savepoints are taken up by the next one.
            assert {
                path for path in after if after[path] != before.get(path) and "/objects/" not in path
            } == set()
            assert before.keys() <= after.keys()
        reopen(place)


def reopen(place: Path) -> None:
    for folder in (place, *place.iterdir(), place / "CAT/objects", place / "CK/state/0/0"):
        if folder.is_dir():
            folder.chmod(0o755)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small disk."""
    with small_disk(tmp_path / "disk", "size=16m") as place:
        yield place


def test_a_full_disk_is_told(disk: Path, cli: ForkedCli) -> None:
    with furnished(disk) as place:
        rest = fill(disk)
        before = content(place)
        for line in (*lines_of(MAKING), *lines_of(CHANGING)):
            made = f"made-{next(NUMBERS)}"
            said = cli.run(words_of(line, place, made), cwd=place, environ=environment(place / "home"))
            if line.startswith("state erase") and "--dry-run" in line:
                assert said.returncode == 0
                continue
            assert said.returncode in {WRONG, UNAVAILABLE}, (line, said)
            assert NO_ROOM in said.stderr
            assert content(place) == before, line
        # With room again, what failed is done, at the same places.
        rest.unlink()
        for line in (
            "restore SP made-0",
            "init made-1",
            "alerts export --output made-2",
            "savepoint take CK made-3",
        ):
            assert (
                cli.run(words_of(line, place), cwd=place, environ=environment(place / "home")).returncode == 0
            )
