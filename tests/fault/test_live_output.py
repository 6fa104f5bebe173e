"""What verbs print that start Spark or serve is what a person has read: `make output` writes it anew."""

from __future__ import annotations

import difflib

import pytest
from live_scenes import SCENES, WRITTEN, compared, folder_for_scenes, printed

pytestmark = pytest.mark.spark


def test_the_files_are_those_of_the_scenes() -> None:
    named = [f"{name}.txt" for group in SCENES.values() for name in group]
    assert sorted(named) == sorted(file.name for file in WRITTEN.iterdir())


@pytest.mark.parametrize("group", SCENES)
def test_a_verb_prints_what_was_read(group: str) -> None:
    with folder_for_scenes() as folder:
        said = printed(group, folder)
    for file, text in said.items():
        read = (WRITTEN / file).read_text(encoding="utf-8")
        changes = list(difflib.unified_diff(compared(file, read), compared(file, text), lineterm="", n=1))
        assert not changes, f"`make output`, then read {WRITTEN / file}:\n" + "\n".join(changes)
