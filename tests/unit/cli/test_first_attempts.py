"""What people type first works, or the right call is in the answer."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_runner import run_cli
from command import Holdfast
from verb_calls import furnished, leaves, words_of

from holdfast.cli.short_verbs import SHORT

# CK is a checkpoint, CAT a directory of savepoints, SP one of them; `made` does not exist.
WORKS = {
    "verify CK": "whole",
    "verify SP": "whole",
    "verify SP --deep": "same",
    "show CK": "query",
    "show SP": "savepoint",
    "show CAT": "BATCH",
    "show CK --json": '"query_id"',
    "history CK": "BATCH",
    "history CK c1": "BATCH",
    "history CK --last 2": "BATCH",
    "diff SP CK": "the states are the same",
    "diff CK@10 CK": "ADDED",
    "get CK c1": "count",
    "scan CK --limit 1": "customer",
    "explain CK c1": "partition",
    "explain HF-E3001": "unknown code",
    "explain hf102": "keys-without-end",
    "explain '[HF-E3001]'": "unknown code",
    "erase CAT c1 --dry-run": "row",
    "take CK made": "batch 11 of query",
    "evolve --help": "state migrate --code",
    "compare --help": "fork --compare",
    "check-spark CK 4.3": "Spark 4.3 can continue",
    "restore CAT@latest made": "made",
    "savepoint show CAT@latest": "edit",
    "restore ONE made": "made",
    "savepoint show ONE": "savepoint",
    "help take": "savepoint take",
    "help savepoint take": "Take a savepoint",
    "help verify": "CHECKPOINT",
    "help": "Back up and recover:",
    "version": "holdfast ",
    "--version": "holdfast ",
    "doctor CK": "checkpoint",
}
# What does not exist, and the call that is proposed.
PROPOSED = {
    "migrate CK": "holdfast state migrate",
    "savepoint restore SP made": "holdfast restore",
    "checkpoint CK": "holdfast checkpoint show CK",
    "savepoint CAT": "holdfast savepoint show CAT",
    "verfy CK": "holdfast verify",
    "savpoint take CK": "holdfast savepoint",
    "state verify CK": "holdfast checkpoint verify",
    "delete SP": "holdfast savepoint delete",
    "undo SP": "holdfast state undo",
    "checkpoint take CK": "holdfast savepoint take",
    "rescal CK": "holdfast rescale",
    "help tak": "take",
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with furnished(tmp_path_factory.mktemp("typed")) as folder:
        run(folder, "savepoint take CK ONE --no-digest")
        yield folder


def run(folder: Path, line: str, made: str = "made") -> tuple[int, str]:
    environ = {"HOME": str(folder), "HOLDFAST_HOME": str(folder / "home"), "PATH": os.environ["PATH"]}
    words = [str(folder / "ONE") if word == "ONE" else word for word in words_of(line, folder, made)]
    done = run_cli(words, folder=folder, environ=environ, timeout=60, together=True)
    return done.returncode, done.stdout


@pytest.mark.parametrize("line", WORKS)
def test_it_works(line: str, place: Path) -> None:
    code, text = run(place, line, made=f"made-{abs(hash(line))}")
    assert code == 0, text
    assert WORKS[line] in text


@pytest.mark.parametrize("line", PROPOSED)
def test_the_right_call_is_proposed(line: str, place: Path) -> None:
    code, text = run(place, line)
    assert code in (2, 3)
    assert PROPOSED[line] in " ".join(text.split())


def test_a_proposed_verb_exists(place: Path) -> None:
    groups = {verb.split()[0] for verb in leaves()}
    for line in PROPOSED:
        for call in re.findall(r"`holdfast ([^`]+)`", " ".join(run(place, line)[1].split())):
            words = [word for word in call.split() if word not in ("CK", "CAT")]
            assert " ".join(words) in leaves() | SHORT.keys() | groups | {"--help"}, call


def test_options_of_before_still_work_and_no_help_shows_them(holdfast: Holdfast) -> None:
    for words, former in (
        ("rescale", "--stopped"),
        ("run", "--fall-back-to"),
        ("state edit", "--why"),
        ("watch", "--anew"),
        ("skew", "--keys"),
        ("state scan", "--to"),
        ("doctor", "--deep"),
    ):
        shown = holdfast(*words.split(), "--help")
        assert former not in shown.stdout.split(), words
        refused = holdfast(*words.split(), former, "x", "--no-such-option")
        assert f"No such option: {former}" not in refused.stderr
        assert "--no-such-option" in refused.stderr
