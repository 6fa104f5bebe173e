"""Files that Spark cleans up are no damage, wherever it stalls; files that others delete are. Seeded."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from grid import WHOLE, one_in
from spark_cleanup import PROVIDERS, Query, Settings

from holdfast import layout
from holdfast.checkpoints.record import Record, Recorder, RecordFile
from holdfast.checkpoints.verification.verifying import verify
from holdfast.layout import StoreFile
from holdfast.savepoints.planning import plan_take
from holdfast.storage.memory import MemoryStorage
from holdfast.storage.port import Names

URI = "memory://checkpoint"
CATALOG = "memory://catalog"
CASES = [
    (provider, format2)
    for provider in PROVIDERS
    for format2 in (False, True)
    if (provider, format2) != ("heap", True)
]
LOOKS = 100 if WHOLE else 8


class Running(MemoryStorage):
    """The checkpoint of a query that goes on while somebody looks, who may be stopped at any listing.

    Args:
        query: The query.
        rng: Chooses how far it goes on.
    """

    def __init__(self, query: Query, rng: random.Random) -> None:
        super().__init__(query.files, URI)
        self._query = query
        self._rng = rng

    def list(self, path: str = "") -> Names:
        for _ in range(self._rng.choice((0, 0, 0, 0, 0, 1, 3, 60))):
            self._query.step()
        return super().list(path)


def settings(provider: str, format2: bool, rng: random.Random) -> Settings:
    return Settings(
        provider,
        format2,
        retain=rng.choice((2, 2, 3, 5, 100)),
        deltas=rng.choice((1, 2, 3, 5)),
        most=rng.choice((-1, -1, 1, 4)),
    )


def noted(query: Query, file: RecordFile) -> Record:
    Recorder(MemoryStorage(query.files, URI), file).look()
    record = file.read()
    assert record is not None
    return record


@pytest.mark.parametrize("seed", range(6 if WHOLE else 2))
@pytest.mark.parametrize(("provider", "format2"), one_in(2, CASES))
def test_a_query_that_stalls_anywhere_raises_no_alarm(
    provider: str, format2: bool, seed: int, tmp_path: Path
) -> None:
    rng = random.Random(f"{provider} {format2} {seed}")
    query = Query(settings(provider, format2, rng), rng)
    file = RecordFile(tmp_path / "record.jsonl")
    while query.committed < 8:
        query.step()
    for look in range(LOOKS):
        for _ in range(rng.randrange(40)):
            query.step()
        if look == 0 or rng.random() < 0.7:
            record = noted(query, file)
        # The query is stopped where it is.
        found = verify(MemoryStorage(query.files, URI), record=record)
        assert found.problems == (), (seed, look, query.settings)
        assert found.batch_id == query.committed
        assert query.committed in found.restorable
        plan = plan_take(MemoryStorage(query.files, URI), MemoryStorage({}, CATALOG), record=record)
        assert plan.batch_id == query.committed
        # It goes on, and who looks is stopped now and then.
        found = verify(Running(query, rng), record=record)
        assert found.problems == (), (seed, look, query.settings)


@pytest.mark.parametrize("seed", range(6 if WHOLE else 2))
@pytest.mark.parametrize(("provider", "format2"), one_in(2, CASES))
def test_a_file_that_a_kept_batch_needs_is_missed(
    provider: str, format2: bool, seed: int, tmp_path: Path
) -> None:
    rng = random.Random(f"needed {provider} {format2} {seed}")
    query = Query(settings(provider, format2, rng), rng)
    file = RecordFile(tmp_path / "record.jsonl")
    missed = 0
    while query.committed < 8:
        query.step()
    for _ in range(LOOKS):
        for _ in range(rng.randrange(60)):
            query.step()
        record = noted(query, file)
        for path in rng.sample(sorted(query.files), 12):
            if not is_missed(query, path):
                continue
            rest = {each: data for each, data in query.files.items() if each != path}
            found = verify(MemoryStorage(rest, URI), record=record)
            assert path in {problem.file for problem in found.problems}, (seed, path, query.settings)
            missed += 1
    assert missed


def is_missed(query: Query, path: str) -> bool:
    """Whether a version that the query keeps cannot be loaded without a file.

    Nothing tells who has deleted the oldest base of a store, or changelogs below it.
    """
    place = layout.parse(path)
    if not isinstance(place, StoreFile) or place.version > query.committed + 1:
        return False
    number = place.store.partition
    oldest = max(query.released[number], query.oldest_base(number))
    if place.version < oldest or (place.version == oldest and place.kind.whole):
        return False
    versions = range(place.version, query.committed + 2)
    return any(
        query.loadable(number, version) and not query.loadable(number, version, path) for version in versions
    )
