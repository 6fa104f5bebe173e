"""What the verbs print is what a person has read: `make output` writes it anew."""

from __future__ import annotations

import fcntl
import json
import os
import re
from pathlib import Path

import live_scenes
import pytest
from output_scenes import SCENES, WIDE, WRITTEN, printed
from parsed_call import parse_call
from verb_calls import leaves, verb_of


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Made by the first worker that asks; the others wait for it."""
    own = tmp_path_factory.getbasetemp()
    shared = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    made = shared / "output_scenes.json"
    with (shared / "output_scenes.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            made.write_text(json.dumps(printed()), encoding="utf-8")
    texts: dict[str, str] = json.loads(made.read_text(encoding="utf-8"))
    return texts


@pytest.mark.slow
def test_the_files_are_those_of_the_scenes(said: dict[str, str]) -> None:
    assert sorted(said) == sorted(file.name for file in WRITTEN.iterdir())


def test_there_is_a_scene_of_every_verb() -> None:
    """What a person has read of each. The completion is a script, for a shell to read."""
    live = (lines for group in live_scenes.SCENES.values() for lines in group.values())
    typed = (line for lines in (*(lines for _, lines in SCENES), *live) for line in lines)
    assert leaves() - {verb_of(line) for line in typed if line} == {
        "completion",
        "compare",
        "evolve",
        "version",
    }


@pytest.mark.parametrize("name", [name for name, _ in SCENES])
def test_a_verb_prints_what_was_read(name: str, said: dict[str, str]) -> None:
    for file in (name, *((f"{name}-40", f"{name}-200") if name in WIDE else ())):
        assert said[f"{file}.txt"] == (WRITTEN / f"{file}.txt").read_text(encoding="utf-8"), (
            f"`make output`, then read tests/golden/output/{file}.txt"
        )


def test_a_next_step_is_a_call_that_there_is(
    said: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    named = {
        call for text in said.values() for call in re.findall("^next: (holdfast .*)$", text, re.MULTILINE)
    }
    assert len(named) > 30
    for call in named:
        assert parse_call(call) is not None


def test_tables_keep_to_the_width(said: dict[str, str]) -> None:
    """Sentences may be longer: a terminal breaks them, and what is copied stays in one piece."""
    for file, text in said.items():
        width = 200 if file.endswith("-200.txt") else 40 if file.endswith("-40.txt") else 80
        for block in text.split("\n\n"):
            lines = [line for line in block.splitlines() if not line.startswith("$")]
            if len(lines) > 1 and "  " in lines[0] and re.fullmatch("[A-Z -]+", lines[0]):
                assert max(map(len, lines)) <= width, (file, block)
