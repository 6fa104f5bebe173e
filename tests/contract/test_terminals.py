"""Every verb on terminals of 40 and 200 columns, with closed or full standard streams, in odd locales."""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any, Final

import pytest
from command import PROGRAM, environment
from forked_cli import CLOSED, ForkedCli
from grid import WHOLE, one_in
from verb_calls import GOES_ON, STARTS_SPARK, WORKING, furnished, leaves, lines_of, verb_of, words_of

# A number that no system gives a user.
NAMELESS: Final = 54_321
SEED: Final = os.environ.get("HOLDFAST_SEED", "terminals")
NUMBERS: Final = count()
LINES: Final = lines_of(WORKING)

# What moves a cursor or gives a colour, and what stands before a value.
CONTROL: Final = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
FIELD: Final = re.compile(r"[A-Za-z][A-Za-z0-9 -]*  +")
# What stays in one piece, however wide: a command, a key between quotes, any other word.
PIECE: Final = re.compile(r"`[^`]*`\S*|'[^']*'\S*|\S+")
# A line that is a command to be typed, or is of a file that is shown as it stands.
AS_IT_STANDS: Final = (
    "$ ",
    "next: ",
    "  cd ",
    "  holdfast ",
    "    holdfast ",
    "  python ",
    "spark.conf.set(",
    "    spark.conf.set(",
    '{"arrival_id": ',
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with furnished(tmp_path_factory.mktemp("place")) as folder:
        yield folder


def around(place: Path, **variables: str) -> dict[str, str]:
    return {**environment(place / "home"), "TERM": "xterm-256color", **variables}


def typed(line: str, place: Path) -> list[str]:
    return words_of(line, place, f"made-{next(NUMBERS)}")


def test_every_verb_is_tried() -> None:
    assert {verb_of(line) for line in LINES} == leaves() - STARTS_SPARK - GOES_ON


def too_wide(shown: str, columns: int) -> list[str]:
    """Lines that are wider than the terminal and could have been broken."""
    lines = CONTROL.sub("", shown).replace("\r", "\n").split("\n")
    return [line for line in lines if len(line) > columns and is_breakable(line)]


def is_breakable(line: str) -> bool:
    if line.startswith(AS_IT_STANDS):
        return False
    rest = line.strip()
    named = FIELD.match(rest)
    return len(PIECE.findall(rest[named.end() :] if named else rest)) > 1


@pytest.mark.parametrize("columns", [40, 200] if WHOLE else [40])
@pytest.mark.parametrize("line", one_in(4, LINES))
def test_what_is_shown_fits_the_terminal(line: str, columns: int, cli: ForkedCli, place: Path) -> None:
    said = cli.on_terminal(typed(line, place), cwd=place, environ=around(place), columns=columns)
    assert said.returncode == 0, said.stdout
    assert "Traceback" not in said.stdout
    if line != "alerts export":  # it is a file, in one piece
        assert too_wide(said.stdout, columns) == []


@pytest.mark.parametrize("line", one_in(4, LINES))
def test_a_full_standard_output_is_told(line: str, cli: ForkedCli, place: Path) -> None:
    with Path("/dev/full").open("w") as full:
        said = cli.run(typed(line, place), cwd=place, environ=around(place), stdout=full.fileno())
    assert said.returncode == 5, said.stderr
    assert "error: cannot write to standard output" in said.stderr
    assert "Traceback" not in said.stderr


@pytest.mark.parametrize("line", one_in(4, LINES))
def test_nobody_needs_to_listen(line: str, cli: ForkedCli, place: Path) -> None:
    """A verb ends as it does with a listener; which streams are closed is drawn."""
    rng = random.Random(f"{SEED} {line}")
    closed = rng.choice([{"stdout"}, {"stderr"}, {"stdout", "stderr"}, {"stdin", "stdout", "stderr"}])
    streams: dict[str, Any] = dict.fromkeys(sorted(closed), CLOSED)
    said = cli.run(typed(line, place), cwd=place, environ=around(place), **streams)
    assert (said.returncode, "Traceback" in said.stderr) == (0, False), (SEED, closed, said)


def test_an_error_is_one_without_a_listener_too(cli: ForkedCli, place: Path) -> None:
    every: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), CLOSED)
    for streams in ({"stderr": CLOSED}, every):
        said = cli.run(["checkpoint", "show", "nowhere"], cwd=place, environ=around(place), **streams)
        assert said.returncode == 3


def locale_of(folder: Path, name: str) -> dict[str, str]:
    """Variables that choose a locale, which is made where the system has only what it is made from."""
    if shutil.which("localedef") and Path("/usr/share/i18n/locales", name).exists():
        made = subprocess.run(
            ["localedef", "-i", name, "-f", "UTF-8", str(folder / f"{name}.UTF-8")],
            capture_output=True,
            check=False,
        )
        if made.returncode == 0:
            return {"LOCPATH": str(folder), "LC_ALL": f"{name}.UTF-8"}
    return {"LC_ALL": f"{name}.UTF-8"}


ODD: Final[Mapping[str, Mapping[str, str]]] = {
    "C": {"LC_ALL": "C"},
    "C without UTF-8": {"LC_ALL": "C", "PYTHONUTF8": "0"},
    "POSIX": {"LC_ALL": "POSIX", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
    "none that is there": {"LC_ALL": "xx_YY.UTF-8", "LANGUAGE": "xx"},
    "ASCII": {"PYTHONIOENCODING": "ascii"},
    "Latin-1": {"PYTHONIOENCODING": "latin-1"},
    "a code page": {"PYTHONIOENCODING": "cp437:strict"},
    "a zone that nobody knows": {"TZ": "Nowhere/Town"},
    "a zone of its own": {"TZ": "<+1345>-13:45"},
    "no terminal": {"TERM": "dumb", "COLUMNS": "abc", "NO_COLOR": "1"},
    "a terminal without room": {"COLUMNS": "1", "LINES": "1"},
    "a terminal without an end": {"COLUMNS": "99999999"},
}


@pytest.mark.parametrize("variables", [*ODD, "de_DE", "tr_TR"])
def test_any_surroundings_will_do(variables: str, place: Path, tmp_path: Path) -> None:
    """In processes of their own: the interpreter reads all of it before the first line of ours."""
    set_ = ODD.get(variables) or locale_of(tmp_path, variables)
    umlauts = place / "Käse–ß"
    if not umlauts.exists():
        shutil.copytree(place / "CK", umlauts)

    def run(words: list[str]) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [PROGRAM, *words],
            cwd=place,
            env=around(place, **set_),
            capture_output=True,
            timeout=60,
            check=False,
        )

    lines = [
        ["checkpoint", "show", umlauts.name],
        ["state", "scan", "windows", "--limit", "2"],
        ["status", "shop"],
        ["state", "get", umlauts.name, "wer–auch"],
    ]
    with ThreadPoolExecutor(len(lines)) as threads:
        *found, missing = threads.map(run, lines)
    for said in found:
        assert (said.returncode, b"Traceback" in said.stderr) == (0, False), said.stderr
        assert said.stdout
    assert (missing.returncode, b"Traceback" in missing.stderr) == (3, False), missing.stderr


@pytest.mark.parametrize(
    "missing", [("HOME", "USER", "LOGNAME"), ("PATH",), ("TMPDIR", "LANG", "TERM"), ("HOLDFAST_HOME",)]
)
def test_what_is_not_set_is_not_needed(missing: tuple[str, ...], cli: ForkedCli, place: Path) -> None:
    variables = {name: text for name, text in around(place).items() if name not in missing}
    for line in ("state edit SP --set count=1 --key c1 --yes", "list", "checkpoint verify CK"):
        said = cli.run(typed(line, place), cwd=place, environ=variables)
        assert said.returncode == 0, said.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
def test_a_user_without_a_name_does(cli: ForkedCli, place: Path) -> None:
    """As in a container: its number is in no list of users, and it has no home."""
    variables = {
        name: text for name, text in around(place).items() if name not in {"HOME", "USER", "LOGNAME"}
    }
    for line in LINES:
        said = cli.run(typed(line, place), cwd=place, environ=variables, user=NAMELESS)
        # That this user is not the owner of the state home is for `doctor` to say.
        wanted = 1 if line.startswith("doctor") else 0
        assert said.returncode == wanted, (line, said.stderr)
