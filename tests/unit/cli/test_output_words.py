"""What is said beside the answer: local times, progress by phases, and nothing with --quiet."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from cli_runner import cli_in
from command import Holdfast

from golden import golden_on_disk
from holdfast import savepoints
from holdfast.cli import output
from holdfast.cli.progress import progress
from holdfast.errors import NotFound

# 2026-03-05 08:00:00 UTC.
MOMENT_MS = 1_772_697_600_000


@pytest.fixture
def holdfast(tmp_path: Path) -> Holdfast:
    return cli_in(tmp_path, tmp_path / "home")


@pytest.mark.parametrize(
    ("zone", "text"),
    [
        ("UTC", "2026-03-05 08:00:00Z"),
        ("Asia/Kolkata", "2026-03-05 13:30:00+05:30 (2026-03-05 08:00:00Z)"),
        ("America/New_York", "2026-03-05 03:00:00-05 (2026-03-05 08:00:00Z)"),
    ],
)
def test_a_time_is_local_and_in_utc_as_well(zone: str, text: str, holdfast: Holdfast, tmp_path: Path) -> None:
    place = golden_on_disk("4.2/aggregate-format2", tmp_path / "ck")
    newest = max((place / "offsets").glob("[0-9]*"), key=lambda file: int(file.name))
    first, _, rest = newest.read_text().partition("\n")
    fields, _, sources = rest.partition("\n")
    changed = {**json.loads(fields), "batchTimestampMs": MOMENT_MS}
    newest.write_text(f"{first}\n{json.dumps(changed)}\n{sources}")
    (newest.parent / f".{newest.name}.crc").unlink()
    shown = holdfast("checkpoint", "show", str(place), environ={"TZ": zone}).stdout
    assert f"planned     {text}" in shown.splitlines()


def test_a_time_that_no_calendar_has_is_a_number() -> None:
    assert output.moment(2**62) == f"{2**62:,} ms since 1970"
    assert output.moment(None) == "–"


def test_progress_is_a_line_a_phase_where_there_is_no_terminal() -> None:
    said = io.StringIO()
    with progress("savepoint", "files", said) as tell:
        for done in range(3):
            tell(done, 3, "copying")
        for done in range(2):
            tell(done, 2, "reading state")
    with progress("coffee shop", "rows", said) as tell:
        tell(0, 100, "starting Spark")
        tell(40, 100, "driver killed")
    with progress("compare", "batches", said) as tell:
        tell(0, 20, "original: running")
        tell(0, 1, "new: running")
    assert said.getvalue().splitlines() == [
        "savepoint: copying 3 files",
        "savepoint: reading state of 2 stores",
        "coffee shop: starting Spark, 100 rows",
        "coffee shop: driver killed, 40 of 100 rows",
        "compare: original: running, 20 batches",
        "compare: new: running, 1 batch",
    ]


def test_quiet_leaves_the_answer_and_errors(holdfast: Holdfast, tmp_path: Path) -> None:
    place = str(golden_on_disk("4.2/aggregate-format2", tmp_path / "ck"))
    loud, quiet = holdfast("savepoint", "take", place, "sp"), holdfast("savepoint", "take", place, "sp", "-q")
    assert "savepoint: copying" in loud.stderr
    assert "of query" in loud.stderr
    assert (quiet.returncode, quiet.stderr) == (0, "")
    assert quiet.stdout.startswith("file:")
    wrong = holdfast("checkpoint", "show", "nowhere", "--quiet")
    assert wrong.returncode == 3
    assert wrong.stderr.startswith("error: ")
    assert "savepoint: copying" in holdfast("savepoint", "take", place, "sp2").stderr


def test_the_beginning_of_an_id_is_enough(holdfast: Holdfast, tmp_path: Path) -> None:
    place = golden_on_disk("4.2/aggregate-memory", tmp_path / "ck")
    taken = [savepoints.take(place, tmp_path / "sp").manifest.savepoint_id for _ in range(2)]
    for address in (f"sp/savepoints/{taken[0][:-1]}", f"{tmp_path}/sp/{taken[0][:-1]}/"):
        said = holdfast("savepoint", "show", address)
        assert said.stdout.splitlines()[0].split() == ["savepoint", taken[0]]
    several = holdfast("savepoint", "show", f"sp/{taken[0][:8]}")
    assert several.returncode == 2
    assert taken[0] in several.stderr
    assert taken[1] in several.stderr
    assert holdfast("savepoint", "show", "sp/19700101").returncode == 2


def test_nothing_that_is_printed_turns_or_hides_text(capsys: pytest.CaptureFixture[str]) -> None:
    """A name out of a checkpoint may hold whatever its writer chose."""
    name = "sums\u202egnp\x1b[2J\u200b"
    shown = r"sums\u202egnp\x1b[2J\u200b"
    output.line(f"operator {name}\nand\ttwo")
    output.prose(f"operator {name}")
    output.whole(f"/checkpoints/{name}")
    output.table(["NAME"], [[name]])
    output.fields([("name", name)])
    output.report_error(NotFound("unknown operator", where=name), as_json=False)
    printed = capsys.readouterr()
    assert printed.out == (
        f"operator {shown}\nand\ttwo\noperator {shown}\n/checkpoints/{shown}\nNAME\n{shown}\nname  {shown}\n"
    )
    assert printed.err == f"error: unknown operator\n  in {shown}\n"


def test_json_has_the_same_text_in_escapes(capsys: pytest.CaptureFixture[str]) -> None:
    value = {"name": "sums\u202e\x1b\x9b\U000e0041\n\té東"}
    output.emit_json(value)
    printed = capsys.readouterr().out
    assert printed == '{"name": "sums\\u202e\\u001b\\u009b\\udb40\\udc41\\n\\té東"}\n'
    assert json.loads(printed) == value
