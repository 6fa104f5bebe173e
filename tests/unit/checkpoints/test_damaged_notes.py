"""Verification of the notes that Holdfast writes into a checkpoint."""

from __future__ import annotations

import pytest

from golden import golden_files
from holdfast.checkpoints.verification.verifying import verify
from holdfast.storage.memory import MemoryStorage

CHECKPOINT = "4.2/aggregate-memory"
NOTES = ("origin.json", "plan.json", "ledger.json", "operator-visits.json", "split-orders.json")


@pytest.mark.parametrize("content", [b"", b'{"version":1', b"[]", b"\xff"], ids=repr)
@pytest.mark.parametrize("name", NOTES)
def test_a_note_that_is_not_a_json_object_is_damaged(name: str, content: bytes) -> None:
    path = f"_holdfast/{name}"
    found = verify(MemoryStorage({**golden_files(CHECKPOINT), path: content}, uri="memory://ck"))
    assert [problem.file for problem in found.problems] == [path]


@pytest.mark.parametrize("name", NOTES)
def test_a_note_with_unknown_fields_is_undamaged(name: str) -> None:
    """A later version of Holdfast may have written them."""
    files = {**golden_files(CHECKPOINT), f"_holdfast/{name}": b'{"version":99,"later":1}'}
    assert verify(MemoryStorage(files, uri="memory://ck")).problems == ()
