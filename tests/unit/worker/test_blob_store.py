"""Blobs of keyed state in a database that is a plain model: what batches name is there, and no more."""

from __future__ import annotations

import pytest
from blob_histories import LEAST, NOWHERE, MemoryBlobs, append, check_calls, check_history, contents, fold

from holdfast.errors import Corrupt, Invalid
from holdfast.worker.state.blob_store import (
    BlobName,
    BlobReader,
    Blobs,
    BlobStore,
    BlobTask,
    BlobWrites,
    ReplacedBlobs,
    is_name,
    operator_of,
)
from holdfast.worker.state.store import MemoryStore


def test_any_history_of_tasks_leaves_every_retained_version_whole() -> None:
    database = MemoryBlobs()
    check_history(database, NOWHERE, lambda: list(database.blobs), rounds=500)
    assert {name for notes in database.notes.values() for name in notes} == {
        key.rpartition(":")[2] for key in database.blobs
    }


@pytest.mark.slow
def test_the_model_agrees_with_itself() -> None:
    check_calls(MemoryBlobs(), rounds=200)


class _Stopped(Exception):
    """The task ends here."""


class StoppedBlobs(MemoryBlobs):
    """Ends the task at its n-th step."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.steps = steps

    def _step(self) -> None:
        self.steps -= 1
        if self.steps < 0:
            raise _Stopped

    def write(self, home: str, writes: BlobWrites) -> list[ReplacedBlobs]:
        """Write, and end before or after it."""
        self._step()
        replaced = super().write(home, writes)
        self._step()
        return replaced

    def delete(self, home: str, replaced: object) -> None:
        """End instead of it."""
        self._step()


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_the_store_is_told_no_name_before_its_blob_is_there(steps: int) -> None:
    database, store = StoppedBlobs(steps), MemoryStore()
    task = BlobStore(store, Blobs(NOWHERE, LEAST), BlobTask("visits", "query", 1, "a"), database)
    with pytest.raises(_Stopped):
        task.write([fold(0, store, bytes(LEAST))])
    reader = BlobReader(store, "visits", database)
    assert contents(reader.load(0)) == ((bytes(LEAST),) if steps == 2 else ())


def test_an_operator_that_is_not_told_where_its_blobs_are_is_refused() -> None:
    store = MemoryStore()
    task = BlobStore(store, Blobs(NOWHERE, LEAST), BlobTask("visits", "query", 1, "a"), MemoryBlobs())
    task.write([append(0, store, bytes(LEAST))])
    with pytest.raises(Invalid, match="in a database, but no address is given") as refused:
        BlobReader(store, "visits").load(0)
    assert "hf.Redis(…) or hf.Cassandra(…)" in str(refused.value.hint)


def test_a_name_is_read_back_and_no_blob_is_one() -> None:
    name = BlobName.of("holdfast:keyed:ä:visits:1:2-a-0", b"blob")
    assert BlobName.decode(name.encode()) == name
    assert operator_of(name) == "visits"
    assert operator_of(BlobName.of("damaged", b"blob")) == ""
    assert is_name(name.encode())
    assert not is_name(b"blob" * 10)
    with pytest.raises(Corrupt):
        BlobName.decode(name.encode()[:20])
