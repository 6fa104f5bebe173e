"""Checkpoints that Spark 4.3 wrote in real-time mode, whose aggregation has a name of its own there.

Their queries read `(a, 1), (b, 1), (a, 1)`, and then `(a, n), (c, n)` for each n from 1 to 7.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from golden import golden_on_disk
from holdfast import checkpoints, savepoints

RECORDS = [("a", "1"), ("b", "1"), ("a", "1"), *((who, str(n)) for n in range(1, 8) for who in "ac")]
EXPECTED = {"aggregate": Counter(Counter(who for who, _ in RECORDS).items()), "dedupe": Counter(set(RECORDS))}


def rows(operator: str, at: Path | str) -> Counter[tuple[Any, ...]]:
    entries = hf.state(at).scan(operator)
    return Counter((*entry.key.values(), *entry.value.values()) for entry in entries)


@pytest.mark.parametrize("operator", EXPECTED)
@pytest.mark.usefixtures("guards_wait_no_time")
def test_every_verb_knows_the_operator(operator: str, tmp_path: Path) -> None:
    checkpoint = golden_on_disk(f"4.3/live-{operator}", tmp_path / "ck")
    (named,) = checkpoints.read(checkpoint).operators
    assert named.named.display_name == operator
    assert checkpoints.verify(checkpoint).problems == ()
    assert [batch.batch_id for batch in checkpoints.history(checkpoint)] == [0, 1, 2, 3]
    assert rows(operator, checkpoint) == EXPECTED[operator]
    saved = savepoints.take(checkpoint, tmp_path / "sp", home=tmp_path / "home")
    assert savepoints.verify(saved.uri, deep=True).ok
    savepoints.restore(saved.uri, tmp_path / "restored")
    savepoints.rescale(saved.uri, tmp_path / "rescaled", partitions=3)
    for made in ("restored", "rescaled"):
        assert rows(operator, tmp_path / made) == EXPECTED[operator]
        assert checkpoints.verify(tmp_path / made).ok
    hf.erase("a", everywhere=tmp_path / "sp", who="ada@desk", home=tmp_path / "home")
    assert not any(who == "a" for who, _ in rows(operator, saved.uri))
