"""A catalog under random takes, deletes, sweeps and crashes never loses what a savepoint needs."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress

from catalogs import Hands, file_query, target
from grid import WHOLE
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from holdfast.errors import Conflict
from holdfast.storage.memory import MemoryStorage
from holdfast.testing.failing_storage import FaultyStorage, Killed

OTHER = "0c9c4a52-1111-4222-8333-444455556666"
QUERIES = [file_query(8), file_query(8, OTHER)]
HOUR_MS = 3_600_000


class Catalogs(RuleBasedStateMachine):
    """The model: for each savepoint that was said to exist, the bytes of the checkpoint at that batch."""

    def __init__(self) -> None:
        super().__init__()
        self.hands = Hands()
        self.into = MemoryStorage(uri="memory://catalog")
        self.model: dict[str, dict[str, str]] = {}

    @rule(query=st.sampled_from([0, 1]), batch=st.integers(1, 7))
    def take(self, query: int, batch: int) -> None:
        with suppress(Conflict):
            taken = self.hands.take(MemoryStorage(QUERIES[query]), self.into, batch)
            self.model[taken.manifest.savepoint_id] = saved(QUERIES[query], batch)

    @rule(query=st.sampled_from([0, 1]), batch=st.integers(1, 7), at=st.integers(1, 25), late=st.booleans())
    def take_and_die(self, query: int, batch: int, at: int, late: bool) -> None:
        before = set(self.existing())
        with suppress(Conflict, Killed):
            self.hands.take(MemoryStorage(QUERIES[query]), FaultyStorage(self.into, at, late=late), batch)
        for each in set(self.existing()) - before:
            self.model[each] = saved(QUERIES[query], batch)

    @precondition(lambda self: self.model)
    @rule(data=st.data(), at=st.integers(0, 12), late=st.booleans())
    def delete(self, data: st.DataObject, at: int, late: bool) -> None:
        chosen = data.draw(st.sampled_from(sorted(self.model)))
        with suppress(Conflict, Killed):
            self.hands.delete(FaultyStorage(self.into, at, late=late), chosen)
        if chosen not in self.existing():
            del self.model[chosen]

    @rule(at=st.integers(0, 12), late=st.booleans())
    def sweep(self, at: int, late: bool) -> None:
        with suppress(Conflict, Killed):
            self.hands.sweep(FaultyStorage(self.into, at, late=late))

    @rule()
    def an_hour_goes_by(self) -> None:
        self.hands.now_ms += HOUR_MS

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def restore(self, data: st.DataObject) -> None:
        chosen = data.draw(st.sampled_from(sorted(self.model)))
        new = target()
        self.hands.restore(self.into, chosen, new)
        found = {path: hashlib.sha256(each).hexdigest() for path, each in new.files.items()}
        del found["_holdfast/origin.json"]
        assert found == self.model[chosen]

    @invariant()
    def every_savepoint_has_its_bytes(self) -> None:
        assert sorted(self.existing()) == sorted(self.model)
        files = self.into.files
        for each, wanted in self.model.items():
            listed = json.loads(files[f"savepoints/{each}/manifest.json"])["files"]
            assert {file["path"]: file["sha256"] for file in listed} == wanted
            for sha256 in wanted.values():
                assert hashlib.sha256(files[f"objects/{sha256[:1]}/{sha256}"]).hexdigest() == sha256

    def existing(self) -> list[str]:
        return [path.split("/")[1] for path in self.into.files if path.endswith("/manifest.json")]


def saved(files: dict[str, bytes], batch: int) -> dict[str, str]:
    """What a savepoint at a batch holds, by the recipe: two batches, and what the source had read."""
    wanted = ["metadata", *(f"{log}/{each}" for log in ("offsets", "commits") for each in (batch - 1, batch))]
    wanted += [f"sources/0/{each}" for each in range(batch + 1)]
    return {path: hashlib.sha256(files[path]).hexdigest() for path in wanted}


Catalogs.TestCase.settings = settings(
    max_examples=300 if WHOLE else 25, stateful_step_count=25, deadline=None
)
TestCatalogs = Catalogs.TestCase
