"""The note of a ledger in a checkpoint: which query wrote which batches."""

from __future__ import annotations

import pytest

from holdfast import layout
from holdfast.errors import Corrupt
from holdfast.formats.logs.notes import LEDGER_NOTE, LedgerNote, parse_ledger_note


def test_a_note_comes_back_as_it_was_written() -> None:
    note = LedgerNote("q").with_batch("q", "sales", 3).with_batch("q", "till", 7)
    assert note == LedgerNote("q", {"sales": 3, "till": 7})
    assert parse_ledger_note(note.render(), "ledger.json") == note


def test_batches_are_owed_from_the_first_that_was_written() -> None:
    note = LedgerNote("").with_batch("q", "sales", 3).with_batch("q", "sales", 5)
    assert [note.has_written("q", "sales", batch) for batch in (3, 4, 9)] == [False, True, True]
    assert not note.has_written("q", "till", 9)


def test_an_older_checkpoint_owes_from_its_own_batch_on() -> None:
    assert LedgerNote("q", {"sales": 8}).with_batch("q", "sales", 6) == LedgerNote("q", {"sales": 6})


def test_a_fork_owes_nothing_of_the_query_that_it_was_made_from() -> None:
    note = LedgerNote("q", {"sales": 3, "till": 0})
    assert not note.has_written("fork", "sales", 9)
    assert note.with_batch("fork", "sales", 9) == LedgerNote("fork", {"sales": 9})


def test_a_note_of_a_later_version_says_nothing() -> None:
    assert parse_ledger_note('{"version": 2, "batches": []}', "ledger.json") == LedgerNote("")


@pytest.mark.parametrize(
    "fields",
    [
        "[]",
        "{",
        '{"version": 1}',
        '{"version": 1, "query_id": 7, "first_batches": {}}',
        '{"version": 1, "query_id": "q", "first_batches": {"sales": "x"}}',
    ],
)
def test_what_holdfast_cannot_have_written_is_damaged(fields: str) -> None:
    with pytest.raises(Corrupt) as caught:
        parse_ledger_note(fields, "_holdfast/ledger.json")
    assert "_holdfast/ledger.json" in str(caught.value.where)


def test_its_file_is_one_of_holdfasts_own() -> None:
    """So a savepoint has it too, and a restored checkpoint."""
    assert layout.parse(layout.OwnFile(LEDGER_NOTE).render()) == layout.OwnFile(LEDGER_NOTE)
