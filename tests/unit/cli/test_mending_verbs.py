"""`holdfast state edit`, `undo` and `erase` as people run them: words, JSON, exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import holdfast as hf
from golden import golden_on_disk
from holdfast import savepoints
from holdfast.cli import app


@pytest.fixture
def saved(tmp_path: Path) -> str:
    golden_on_disk("4.2/aggregate-memory", tmp_path / "ck")
    return savepoints.take(tmp_path / "ck", tmp_path / "sp", deep=True).uri


def run(*words: str) -> Result:
    return CliRunner().invoke(app, ["state", *words])


@pytest.mark.slow
def test_an_edit_is_shown_made_and_taken_back(saved: str, tmp_path: Path) -> None:
    words = ("edit", saved, "aggregate", "--set", "count = 1", "--key", "customer=c1")
    looked = run(*words, "--dry-run")
    assert looked.exit_code == 0
    assert "1 changed, 0 deleted, 0 inserted" in looked.stdout
    assert '{"customer": "c1", "sum": ' in looked.stdout
    assert ": count 12 → 1" in looked.stdout
    assert len(savepoints.list(tmp_path / "sp")) == 1
    made = json.loads(run(*words, "--yes", "--reason", "it was wrong", "--json").stdout)
    assert (made["changed"], made["rows_before"], made["edited"]) == (1, 10, saved)
    assert made["change"]["why"] == "it was wrong"
    shown = CliRunner().invoke(app, ["savepoint", "show", made["savepoint"]])
    assert "set count = 1 with key customer=c1 in aggregate (it was wrong)" in shown.stdout
    assert "1 changed" in shown.stdout
    back = json.loads(run("undo", made["savepoint"], "--yes", "--json").stdout)
    assert back["back_to"] == saved
    listed = CliRunner().invoke(app, ["savepoint", "list", str(tmp_path / "sp")]).stdout.splitlines()
    assert [line.split()[-1] for line in listed] == ["CHANGE", "–", "edit", "undo"]


def test_nobody_is_there_to_be_asked(saved: str, tmp_path: Path) -> None:
    for words in (
        ("edit", saved, "aggregate", "--delete", "--key", "c1"),
        ("erase", str(tmp_path / "sp"), "c1"),
    ):
        found = run(*words)
        assert found.exit_code == 2
        assert "--yes" in found.stderr
    assert len(savepoints.list(tmp_path / "sp")) == 1


def test_what_is_wrong_has_its_exit_code(saved: str, tmp_path: Path) -> None:
    cases = {
        ("edit", saved, "nope", "--delete", "--key", "c1"): (3, "aggregate"),
        ("edit", saved, "aggregate", "--set", "count = 'x'", "--key", "c1"): (2, "bigint"),
        ("edit", saved, "aggregate", "--insert", "{"): (2, "JSON"),
        ("edit", saved, "aggregate", "--insert", "[]"): (2, "JSON object"),
        ("edit", str(tmp_path / "ck"), "aggregate", "--delete", "--key", "c1"): (2, "--to DIR"),
        ("undo", saved): (2, "not created by an edit"),
        ("erase", str(tmp_path / "sp"), "c1", "--column", "nope"): (3, "nope"),
    }
    for words, (code, said) in cases.items():
        found = run(*words, "--yes")
        assert (found.exit_code, said in found.stderr) == (code, True), (words, found.stderr)


def test_an_erasure_is_certified(saved: str, tmp_path: Path) -> None:
    file = tmp_path / "certificate.json"
    words = ("erase", str(tmp_path / "sp"), "c1", "--reason", "asked for")
    looked = json.loads(run(*words, "--dry-run", "--json").stdout)
    assert (looked["rows"], looked["touched"]) == (1, 1)
    made = run(*words, "--yes", "--certificate", str(file))
    assert made.exit_code == 0
    assert "asked for" in made.stdout
    assert "total: 1 savepoint searched, 1 row erased, 1 savepoint rewritten\n" in made.stdout
    written = json.loads(file.read_text())["certificate"]
    assert (written["rows"], written["proved"], written["rewritten"]) == (1, True, [saved])
    again = run(*words, "--yes", "--certificate", str(file))
    assert again.exit_code == 4
    assert "exists" in again.stderr
    shown = CliRunner().invoke(app, ["savepoint", "show", saved]).stdout
    assert "1 row of a key" in shown


@pytest.mark.usefixtures("guards_wait_no_time")
def test_sources_and_the_table_of_new_code(tmp_path: Path) -> None:
    golden_on_disk("4.2/join-memory", tmp_path / "old")
    old, new, table = (str(tmp_path / name) for name in ("old", "new", "table"))
    words = ("migrate", old, new, "--source", "+", "--source", "1", "--drop-source", "0", "--table", table)
    plan = json.loads(run(*words, "--dry-run", "--json").stdout)
    [sources] = plan["steps"]
    fates = [(fate["before"], fate["after"]) for fate in sources["plan"]["sources"]]
    assert fates == [(None, "0"), ("1", "1"), ("0", None)]
    assert not (tmp_path / "new").exists()
    made = run(*words, "--confirm-stopped")
    assert made.exit_code == 0, made.stderr
    assert [line.split() for line in made.stdout.splitlines()][1:4] == [
        ["SOURCE", "KIND", "BEFORE", "CONTINUES", "FROM"],
        ["0", "–", "new", "–"],
        ["1", "files", "1", '{"logOffset":11}'],
    ]
    assert [source.source for source in hf.offsets(new).sources] == ["0", "1"]
    batch = hf.checkpoints.read(new).batch_id
    assert (tmp_path / "table" / "_spark_metadata" / str(batch)).exists()
    named = str(tmp_path / "named")
    made = run(
        "migrate", new, named, "--source", "paid=1", "--source", "bought=0", "--confirm-stopped", "--json"
    )
    assert [source.source for source in hf.offsets(named).sources] == ["paid", "bought"], made.stderr


def test_sources_that_cannot_be_meant(tmp_path: Path) -> None:
    golden_on_disk("4.2/join-memory", tmp_path / "old")
    for words, text in {
        ("--source", "a=0", "--source", "1"): "some sources have a name",
        ("--source", "a=0", "--source", "a=1"): "the same name",
        ("--source", "=0", "--source", "1"): "no valid source",
        ("--source", "a=", "--source", "b=1"): "no valid source",
        ("--source", "0"): "does not mention a source",
        ("--drop-source", "0"): "without the sources of the new code",
    }.items():
        found = run("migrate", str(tmp_path / "old"), str(tmp_path / "new"), *words, "--dry-run")
        assert (found.exit_code, text in found.stderr) == (2, True), found.stderr
