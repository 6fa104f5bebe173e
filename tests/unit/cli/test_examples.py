"""The examples that the help of a verb ends with: real calls, which do what is asked."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
import typer.main
from command import Holdfast
from example_place import HOME, make_place
from parsed_call import parse_call
from typer.core import TyperGroup

from holdfast.cli import app, help_text
from holdfast.jobs.state_home import StateHome, SupervisorLock

WIDTH = 80


def group() -> TyperGroup:
    made = typer.main.get_command(app)
    assert isinstance(made, TyperGroup)
    return made


VERBS: dict[str, Any] = dict(help_text.verbs("holdfast", group().commands.values()))
LINES = [line for words, verb in VERBS.items() for line in help_text.example_lines(words, verb)]

# What has to have more than files, and is not called here: where else it is.
ELSEWHERE = {
    "holdfast evolve savepoints/20260305T080000 visits.py --initial spend=0": "starts Spark",
    "holdfast evolve checkpoints/visits visits.py evolved --confirm-stopped": "starts Spark",
    "holdfast compare savepoints/20260305T080000 new.py --original visits.py": "starts Spark",
    "holdfast compare savepoints/20260305T080000 new.py --original old.py": "starts Spark",
    "holdfast demo": "starts Spark",
    "holdfast demo --seed 11 --keep shop": "starts Spark",
    "holdfast tour": "test_tour.py walks it",
    "holdfast tour shop --yes": "test_tour.py walks it",
    "holdfast run visits.py": "starts Spark",
    "holdfast serve": "goes on until Ctrl-C",
    "holdfast serve checkpoints --savepoint-dir savepoints": "goes on until Ctrl-C",
    "holdfast status visits --watch": "goes on until the job ends",
    "holdfast stop visits": "waits for a supervisor",
    "holdfast stop visits --savepoint savepoints --label 'before the upgrade'": "waits for a supervisor",
    "holdfast restart visits": "waits for a supervisor",
    "holdfast upgrade visits visits_v2.py --dry-run": "starts Spark",
    "holdfast upgrade visits visits_v2.py": "starts Spark",
    "holdfast apply deployment.toml --dry-run": "starts Spark",
    "holdfast apply deployment.toml": "starts Spark",
    "holdfast cancel visits": "waits for a supervisor",
    "holdfast mirror checkpoints/visits s3://backups/visits --retain 30d": "goes on until Ctrl-C",
    "holdfast watch checkpoints/visits --metrics-port 9400 --alert state_size=50g": "goes on until Ctrl-C",
    "holdfast savepoint take checkpoints/visits savepoints --every 10m --keep 5": "goes on until Ctrl-C",
    "holdfast state bootstrap visits.py savepoints --from history.py": "starts Spark",
    "holdfast state bootstrap visits.py savepoints --from history.py --dry-run": "starts Spark",
    "holdfast fork savepoints/20260305T080000 --compare new.py --original visits.py": "starts Spark",
    "holdfast drill savepoints --job visits.py --max 2m": "starts Spark",
    "holdfast check visits.py --against savepoints/20260305T080000": "starts Spark",
    "holdfast bench": "starts Spark",
    "holdfast bench startup --runs 3": "starts Spark",
}


@pytest.mark.parametrize("words", VERBS)
def test_every_verb_has_two_examples_at_the_end_of_its_help(words: str, holdfast: Holdfast) -> None:
    shown = holdfast(*words.split()[1:], "-h", environ={"COLUMNS": str(WIDTH)})
    assert shown.returncode == 0, shown.stderr
    _, heading, end = shown.stdout.partition("\nExamples:\n")
    assert heading
    listed = end.splitlines()
    assert len(listed) == len(set(listed)) == 2
    for line in listed:
        assert re.match(rf"  {words}( |$)", line), line
        assert len(line) <= WIDTH


@pytest.mark.parametrize("line", LINES)
def test_an_example_is_read_as_a_call_of_its_verb(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parser raises on an option or an argument that there is not; nothing is executed."""
    monkeypatch.chdir(tmp_path)
    assert parse_call(line) is not None


def test_what_is_not_called_here_is_an_example() -> None:
    assert set(ELSEWHERE) <= set(LINES)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("examples") / "made"
    make_place(place)
    return place


@pytest.mark.parametrize("line", [line for line in LINES if line not in ELSEWHERE])
def test_an_example_over_files_does_what_it_says(
    line: str, made: Path, holdfast_at_once: Holdfast, tmp_path: Path
) -> None:
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    lock = SupervisorLock(StateHome(tmp_path / HOME), "visits")
    assert lock.take()  # the job of the state home has a supervisor
    try:
        done = holdfast_at_once(*shlex.split(line)[1:], environ={"HOLDFAST_HOME": str(tmp_path / HOME)})
    finally:
        lock.release()
    assert done.returncode == 0, done.stderr
    assert done.stdout
