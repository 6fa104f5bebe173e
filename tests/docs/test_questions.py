"""The twenty questions are answered: two sentences and a link each, within two clicks of the start page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from command import Holdfast

from golden import golden_on_disk

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGE = DOCS / "questions.md"
_ANSWER = re.compile(
    r"^(\d+)\. \*\*(?P<question>[^*]+)\*\* (?P<answer>.*?)(?=^\d+\. |\Z)", re.MULTILINE | re.DOTALL
)
_LINK = re.compile(r"→\s+\[[^\]]+\]\((?P<target>[^)#\s]+)(?P<anchor>#[^)\s]+)?\)")
ANSWERS = list(_ANSWER.finditer(PAGE.read_text(encoding="utf-8")))


def test_there_are_twenty() -> None:
    assert [answer[1] for answer in ANSWERS] == [str(number) for number in range(1, 21)]


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: answer[1])
def test_each_has_two_sentences_and_a_link(answer: re.Match[str]) -> None:
    assert answer["question"].rstrip().endswith(("?", "sentence?"))
    text, arrow, _ = answer["answer"].partition("→")
    assert arrow
    assert len(re.findall(r"[.!](?=\s|$)", re.sub(r"\d\.\d", "", text))) == 2, text
    [link] = _LINK.finditer(answer["answer"])
    file = (DOCS / link["target"]).resolve()
    assert file.is_file()
    if link["anchor"]:
        headings = re.findall(r"^#+ (.*)$", file.read_text(encoding="utf-8"), re.MULTILINE)
        anchors = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
        assert link["anchor"][1:] in anchors


def test_they_are_one_click_from_the_start_and_so_is_every_answer() -> None:
    start = (DOCS / "README.md").read_text(encoding="utf-8")
    assert "(questions.md)" in start
    for name in ("comparison", "limits", "compatibility", "project", "faq", "guides/leave"):
        assert f"({name}.md)" in start


def test_what_is_left_when_nothing_is_restorable(holdfast: Holdfast, tmp_path: Path) -> None:
    """As `docs/guides/nothing-restorable.md` says: offsets, and the keys of undamaged partitions."""
    checkpoint = golden_on_disk("4.2/aggregate-changelog", tmp_path / "visits")
    for name in ("4.zip", "8.zip", "1.changelog"):
        (checkpoint / "state/0/0" / name).unlink()
    verified = holdfast("checkpoint", "verify", str(checkpoint))
    assert verified.returncode == 6
    shown = re.search(r"^\$ holdfast checkpoint verify .*\n((?s:.*?))^```", _guide(), re.MULTILINE)
    assert shown is not None
    said = [line for line in verified.stdout.splitlines() if not line.startswith("note:")]
    assert shown[1].splitlines() == said
    assert '{"logOffset":11}' in holdfast("offsets", "show", str(checkpoint)).stdout
    assert '"count": 12' in holdfast("state", "get", str(checkpoint), "c0").stdout
    damaged = holdfast("state", "get", str(checkpoint), "c1")
    assert damaged.returncode == 3
    assert "state/0/0/1.changelog" in damaged.stderr
    assert holdfast("state", "scan", str(checkpoint)).returncode != 0


def _guide() -> str:
    return (DOCS / "guides/nothing-restorable.md").read_text(encoding="utf-8")
