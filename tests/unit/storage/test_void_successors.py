"""A suspended owner cannot publish a successor after the next owner of the lease has started its query."""

from __future__ import annotations

import itertools
from contextlib import suppress

import pytest

from holdfast.errors import Conflict
from holdfast.storage import successors
from holdfast.storage.memory import MemoryStorage
from holdfast.storage.port import Names
from holdfast.storage.successors import (
    current_address,
    first_address,
    list_successors,
    publish_successor,
    unused_number,
    void_successor,
    void_unpublished,
)

FIRST = "s3a://bucket/jobs/ck"


class Folder:
    """A folder of one bucket in memory, with a step before each request."""

    def __init__(self, bucket: MemoryStorage, uri: str) -> None:
        self.uri = uri
        self._bucket = bucket
        self._root = uri.removeprefix("s3a://bucket/").removeprefix("s3a://bucket")

    def _at(self, path: str) -> str:
        return "/".join(filter(None, (self._root, path)))

    def list(self, path: str = "") -> Names:
        return self._bucket.list(self._at(path))

    def size(self, path: str) -> int | None:
        return self._bucket.size(self._at(path))

    def read(self, path: str) -> bytes:
        return self._bucket.read(self._at(path))

    def write(self, path: str, data: bytes, *, replace: bool = False) -> None:
        self._bucket.write(self._at(path), data, replace=replace)


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> MemoryStorage:
    made = MemoryStorage({"jobs/ck/metadata": b"{}"})
    monkeypatch.setattr(successors, "open_storage", lambda uri: Folder(made, uri))
    return made


def begun(bucket: MemoryStorage, address: str) -> None:
    bucket.write(f"{address.removeprefix('s3a://bucket/')}/metadata", b"{}")


def test_what_an_earlier_owner_made_is_not_published_late(bucket: MemoryStorage) -> None:
    begun(bucket, f"{FIRST}.r1")
    assert void_unpublished(FIRST) == [f"{FIRST}.r1"]
    with pytest.raises(Conflict, match="because it has a new owner"):
        publish_successor(FIRST, 1, "rescale")
    assert current_address(FIRST) == FIRST
    # The address is not one of the checkpoint any more, and its number is not used again.
    assert first_address(f"{FIRST}.r1") == f"{FIRST}.r1"
    assert unused_number(FIRST) == 2
    assert void_unpublished(FIRST) == []


def test_what_was_published_in_time_stays(bucket: MemoryStorage) -> None:
    begun(bucket, f"{FIRST}.r1")
    publish_successor(FIRST, 1, "rescale")
    assert void_unpublished(FIRST) == []
    assert not void_successor(FIRST, 1)
    assert current_address(FIRST) == f"{FIRST}.r1"
    begun(bucket, f"{FIRST}.r2")
    assert void_unpublished(f"{FIRST}.r1") == [f"{FIRST}.r2"]
    begun(bucket, f"{FIRST}.r3")
    publish_successor(FIRST, 3, "rescale")
    assert list_successors(FIRST) == [1, 3]


def test_a_missing_directory_between_two_hides_nothing(bucket: MemoryStorage) -> None:
    begun(bucket, f"{FIRST}.r4")
    assert void_unpublished(FIRST) == [f"{FIRST}.r4"]


def test_the_queries_of_a_job_are_looked_at(bucket: MemoryStorage) -> None:
    for address in (f"{FIRST}/visits", f"{FIRST}/visits.r1", f"{FIRST}/bills", f"{FIRST}-other.r1"):
        begun(bucket, address)
    assert void_unpublished(FIRST) == [f"{FIRST}/visits.r1"]
    with pytest.raises(Conflict):
        publish_successor(f"{FIRST}/visits", 1, "rescale")
    publish_successor(f"{FIRST}-other", 1, "rescale")


@pytest.mark.parametrize("order", sorted(set(itertools.permutations("PVVRR"))))
def test_at_each_step_all_see_the_same_decision(order: tuple[str, ...], bucket: MemoryStorage) -> None:
    """The two writes of the new owner, the publication, and readers, in every order.

    Once a number is decided, no reader ever finds the opposite.
    """
    begun(bucket, f"{FIRST}.r1")
    intent, decision = ".ck.holdfast.successors/1.void", ".ck.holdfast.successors/1"
    parent = Folder(bucket, "s3a://bucket/jobs")
    voids = iter([(intent, True), (decision, False)])
    published = False
    decided: str | None = None
    for step in order:
        if step == "P":
            with suppress(Conflict):
                publish_successor(FIRST, 1, "rescale")
                published, decided = True, "published"
        elif step == "V":
            path, replace = next(voids)
            with suppress(Conflict):
                parent.write(path, b'{"void": true}', replace=replace)
                decided = "void" if path == decision else decided
        else:
            assert list_successors(FIRST) == ([1] if decided == "published" else [])
    assert (decided == "published") == published
    assert list_successors(FIRST) == ([1] if published else [])
