"""Savepoints that know their rows, and prove them."""

from __future__ import annotations

import pytest
from catalogs import Hands, catalog, target

from golden import NAMES, golden, golden_files
from holdfast.checkpoints.state.contents import contents
from holdfast.errors import Unsupported
from holdfast.formats.manifest import manifest_of
from holdfast.savepoints import planning
from holdfast.savepoints.catalog import load, manifest_path
from holdfast.savepoints.proof import prove
from holdfast.storage.memory import MemoryStorage


@pytest.mark.parametrize("name", NAMES)
def test_small_state_is_counted_and_proved(name: str) -> None:
    hands, into, new = Hands(), catalog(), target()
    taken = hands.take(golden(name), into)
    proof = prove(into, taken.manifest.savepoint_id, deep=True, workers=1)
    assert proof.problems == ()
    assert proof.states == contents(golden(name))
    assert proof.compared == len(proof.states) > 0
    rows = {
        (store["name"], told["family"]): told["rows"]
        for operator in taken.manifest.fields["operators"]
        for store in operator["stores"]
        for told in store["content"]
    }
    assert rows == {(each.state.store, each.state.family): each.rows for each in proof.states}
    hands.restore(into, taken.manifest.savepoint_id, new)
    assert contents(new) == proof.states


def test_rows_are_those_of_people() -> None:
    """What Spark keeps for itself is told of each state, and left out of the sum."""
    taken = Hands().take(golden("4.2/state-format2"), catalog())
    [operator] = taken.manifest.fields["operators"]
    [store] = operator["stores"]
    assert store["rows"] == 20
    assert {told["family"]: told["rows"] for told in store["content"]} == {
        "count": 10,
        "amounts": 10,
        "$rowCounter_amounts": 10,
    }


def test_large_state_is_read_when_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "SMALL_BYTES", 0)
    hands, into = Hands(), catalog()
    quick = hands.take(golden("4.2/aggregate-format2"), into).manifest
    assert quick.fields["operators"][0]["stores"][0]["content"] is None
    proof = prove(into, quick.savepoint_id, deep=True, workers=1)
    assert (proof.ok, proof.compared, [each.rows for each in proof.states or ()]) == (True, 0, [10])
    exact = hands.take(golden("4.2/aggregate-format2"), into, deep=True).manifest
    assert exact.fields["operators"][0]["stores"][0]["rows"] == 10
    assert prove(into, exact.savepoint_id, deep=True, workers=1).compared == 1
    assert prove(into, exact.savepoint_id, workers=1).states is None


@pytest.mark.parametrize("field", ["rows", "digest"])
def test_a_manifest_that_says_something_else(field: str) -> None:
    """Every byte has its hash, and yet the rows are not those that were counted."""
    hands, into = Hands(), catalog()
    savepoint_id = hands.take(golden("4.2/join-format2"), into).manifest.savepoint_id
    manifest = load(into, savepoint_id)
    told = manifest.fields["operators"][0]["stores"][1]["content"][0]
    told[field] = {"rows": 22, "digest": "0" * 64}[field]
    into.write(
        manifest_path(savepoint_id), manifest_of(manifest.fields, manifest.files).render(), replace=True
    )
    assert prove(into, savepoint_id, workers=1).ok
    [problem] = prove(into, savepoint_id, deep=True, workers=1).problems
    assert problem.file == "state/0/0/left-keyWithIndexToValue"
    assert "21 rows" in problem.what


def test_state_that_cannot_be_read_is_saved_all_the_same() -> None:
    files = {
        path: data.replace(b'mergeOperatorVersion":"2"', b'mergeOperatorVersion":"9"')
        for path, data in golden_files("4.2/aggregate-memory").items()
        if not path.endswith(".crc")
    }
    hands, into = Hands(), catalog()
    taken = hands.take(MemoryStorage(files, uri="memory://own"), into)
    assert taken.manifest.fields["operators"][0]["stores"][0]["content"] is None
    with pytest.raises(Unsupported, match="merge operator"):
        hands.take(MemoryStorage(files, uri="memory://own"), into, deep=True)
    with pytest.raises(Unsupported, match="merge operator"):
        prove(into, taken.manifest.savepoint_id, deep=True, workers=1)
