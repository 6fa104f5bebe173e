"""Small files that anybody may have written: their readers never fail with an error of Python's own."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from catalogs import Hands, catalog, file_query, target

from holdfast.at_rest.keyed_operators import _notes
from holdfast.checkpoints.logs import Logs
from holdfast.checkpoints.verification.log_checks import check_origin
from holdfast.errors import Conflict, Corrupt, HoldfastError
from holdfast.formats.logs.operator_metadata import OperatorMetadata
from holdfast.formats.record_header import parse_header
from holdfast.formats.text import foreign_json, json_value
from holdfast.jobs.candidacy import LeaderRecord
from holdfast.ownership.storage_election import StorageElection
from holdfast.savepoints.catalog import drills
from holdfast.savepoints.leases import clear_dead_sweep, takes
from holdfast.storage.memory import MemoryStorage

_DEEP = b"[" * 100_000
ODD = {
    "deep": _DEEP,
    "deep in an object": b'{"token":' + _DEEP,
    "too large a number": b'{"token":"1","beat_ms":1e999,"owner":"x","at_ms":1e999,"key_groups":1e999}',
    "infinity": b'{"token":"1","beat_ms":Infinity,"owner":"x","at_ms":-Infinity,"current":1,"forms":[1]}',
    "no text": b"\xff\xfe\xff",
    "too many digits": b"9" * 5000,
    "a list": b"[]",
    "a number": b"5",
}


def origin(data: bytes) -> None:
    storage = MemoryStorage({**file_query(3), "_holdfast/origin.json": data})
    assert list(check_origin(storage, Logs(storage))) == []


def target_of_a_restore(data: bytes) -> None:
    hands, into, new = Hands(), catalog(), target()
    taken = hands.take(MemoryStorage(file_query(3)), into).manifest
    new.write("_holdfast/origin.json", data)
    with pytest.raises(Conflict, match="the directory of the new checkpoint is not empty"):
        hands.restore(into, taken.savepoint_id, new)


def note_of_a_take(data: bytes) -> None:
    storage = MemoryStorage({"takes/x.json": data})
    assert [note.token for note in takes(storage, 10**13, 1).dead] == ["x"]


def note_of_a_removal(data: bytes) -> None:
    storage = MemoryStorage({"sweep.json": data})
    clear_dead_sweep(storage)
    assert storage.read("sweep.json") == data


def drill(data: bytes) -> None:
    assert drills(MemoryStorage({"drills/20260305T080000.000Z-00000000.json": data})) == ()


def claim(data: bytes) -> None:
    storage = MemoryStorage({f"job/{1:020}.claim": data})
    election = StorageElection(storage, "job", 10, lambda: 0.0, lambda: 0.0)
    found = election.incumbent()
    assert found is not None
    assert found.holder == "an unknown process"


def leader_record(data: bytes) -> None:
    with pytest.raises(HoldfastError):
        LeaderRecord.parse(data, "elections")


def operator_note(data: bytes) -> None:
    storage = MemoryStorage({"_holdfast/operator-x.json": data})
    try:
        assert list(_notes(storage)) == []
    except HoldfastError as error:
        assert error.kind == "corrupt"  # noqa: PT017 - either will do


def savepoint_of_an_operator_note(data: bytes) -> None:
    files = {**file_query(3), "_holdfast/operator-x.json": data}
    try:
        Hands().take(MemoryStorage(files), catalog())
    except HoldfastError as error:
        assert error.kind == "corrupt"  # noqa: PT017 - either will do


def operator_properties(data: bytes) -> None:
    fields = {"operatorPropertiesJson": data.decode("latin-1")}
    found = OperatorMetadata(2, 0, "x", (), fields).properties
    assert isinstance(found, dict)


READERS: list[Callable[[bytes], None]] = [
    origin,
    target_of_a_restore,
    note_of_a_take,
    note_of_a_removal,
    drill,
    claim,
    leader_record,
    operator_note,
    savepoint_of_an_operator_note,
    operator_properties,
]


@pytest.mark.parametrize("data", ODD.values(), ids=ODD)
@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.__name__)
def test_a_reader_of_small_files_takes_anything(reader: Callable[[bytes], None], data: bytes) -> None:
    reader(data)


@pytest.mark.parametrize("data", [ODD[name] for name in ODD if name not in ("a list", "a number")])
def test_what_is_no_json_is_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - each in words of its own
        foreign_json(data)


@pytest.mark.parametrize(("levels", "fits"), [(200, True), (201, False), (900, False)])
@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_what_spark_writes_is_not_nested_deeper_than_any_reader_can_read(
    opening: str, levels: int, fits: bool
) -> None:
    closing = "]" if opening == "[" else "}"
    text = opening * levels + ("1" if opening != "[" else "") + closing * levels
    if fits:
        assert json_value(text, "it", "here") is not None
    else:
        with pytest.raises(Corrupt, match="it is damaged"):
            json_value(text, "it", "here")


def test_a_wide_document_is_not_a_deep_one() -> None:
    text = "[" + ",".join(['{"a":[]}'] * 1000) + "]"
    assert json_value(text, "it", "here") == [{"a": []}] * 1000


def test_json_is_read() -> None:
    assert foreign_json('{"a": [1, 2.5, null, "\\u00e9"]}') == {"a": [1, 2.5, None, "é"]}


@pytest.mark.parametrize("batch", ["²", "9" * 5000, "-1", ""])
def test_a_header_with_an_odd_batch_is_not_ours(batch: str) -> None:
    assert parse_header(f"query {batch} - identity".encode()) is None


@pytest.mark.parametrize("name", ["²", "9" * 200, "1", "-1", f"{1:019}²", "x"])
@pytest.mark.parametrize("suffix", [".claim", ".record", ".beat"])
def test_a_file_of_another_name_is_no_term(name: str, suffix: str) -> None:
    storage = MemoryStorage({f"job/{name}{suffix}": b"{}"})
    election = StorageElection(storage, "job", 10, lambda: 0.0, lambda: 100.0)
    assert election.incumbent() is None
    term = election.campaign()
    assert term is not None
    assert term.token == 101
    assert election.renew(term).token == 101
    assert election.look().token == 101
    election.write_record(term, b"{}")
    election.resign(term)
