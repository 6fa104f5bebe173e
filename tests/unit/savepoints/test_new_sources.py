"""Sources of new code: each keeps its offset and its log, wherever Spark will look for it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import holdfast as hf
from golden import KAFKA, files_on_disk, golden_files, kafka_files
from holdfast import checkpoints
from holdfast.changes.offsets.sources import NewSources
from holdfast.checkpoints.state.contents import contents
from holdfast.errors import HoldfastError, Invalid, NotFound, Unsupported
from holdfast.formats.logs.batch_logs import OffsetLog, parse_offsets
from holdfast.storage.local import LocalStorage

JOIN = "4.2/join-memory"
AGGREGATE = "4.2/aggregate-memory"
DELTA = {"sourceVersion": 1, "reservoirId": "7b0e", "reservoirVersion": 12, "index": 4}

pytestmark = pytest.mark.usefixtures("guards_wait_no_time")


def on_disk(files: dict[str, bytes], folder: Path) -> Path:
    return files_on_disk(files, folder / "old")


def changed(old: Path, new: NewSources, drop: tuple[str, ...] = ()) -> Path:
    """A new checkpoint, verified and with the same state."""
    target = old.with_name("new")
    before = {path: path.read_bytes() for path in old.rglob("*") if path.is_file()}
    report = hf.change(old).sources(new, drop=drop).to(target, stopped=True)
    assert [step.step for step in report.reports] == ["sources"]
    assert {path: path.read_bytes() for path in old.rglob("*") if path.is_file()} == before
    assert checkpoints.verify(target).problems == ()
    assert contents(LocalStorage(target)) == contents(LocalStorage(old))
    assert checkpoints.read(target).query_id == checkpoints.read(old).query_id
    return target


def offsets(checkpoint: Path) -> OffsetLog:
    names = [path.name for path in (checkpoint / "offsets").iterdir() if path.name.isdecimal()]
    path = f"offsets/{max(map(int, names))}"
    return parse_offsets((checkpoint / path).read_bytes(), path)


def first_file(checkpoint: Path, folder: str) -> str:
    """The directory of the files that a source has read, by its own log."""
    [log] = [path for path in (checkpoint / "sources" / folder).iterdir() if path.name == "9.compact"]
    return str(json.loads(log.read_text().split("\n")[1])["path"].split("/")[-2])


@pytest.fixture
def join(tmp_path: Path) -> Path:
    return on_disk(dict(golden_files(JOIN)), tmp_path)


def test_a_source_is_added_before_the_others(join: Path) -> None:
    new = changed(join, [None, "0", "1"])
    end = offsets(join).offsets["0"]
    assert offsets(new).offsets == {"0": None, "1": end, "2": end}
    assert [path.name for path in sorted((new / "sources").iterdir())] == ["1", "2"]
    assert (first_file(new, "1"), first_file(new, "2")) == ("left", "right")


def test_a_source_is_removed_and_the_next_one_takes_its_number(join: Path) -> None:
    new = changed(join, ["1"], drop=("0",))
    assert list(offsets(new).offsets) == ["0"]
    assert [path.name for path in (new / "sources").iterdir()] == ["0"]
    assert first_file(new, "0") == "right"


def test_sources_exchange_their_positions(join: Path) -> None:
    new = changed(join, ["1", "0"])
    assert (first_file(new, "0"), first_file(new, "1")) == ("right", "left")


def test_sources_get_names_and_other_names(join: Path, tmp_path: Path) -> None:
    named = changed(join, {"payments": "1", "orders": "0", "returns": None})
    log, end = offsets(named), offsets(join).offsets["0"]
    assert (log.version, log.offsets) == (2, {"payments": end, "orders": end, "returns": None})
    assert log.confs["spark.sql.streaming.queryEvolution.enableSourceEvolution"] == "true"
    assert (first_file(named, "orders"), first_file(named, "payments")) == ("left", "right")
    renamed = tmp_path / "renamed"
    hf.change(named).sources({"paid": "payments", "orders": "orders"}, drop=["returns"]).to(
        renamed, stopped=True
    )
    assert (first_file(renamed, "orders"), first_file(renamed, "paid")) == ("left", "right")
    assert [source.source for source in hf.offsets(renamed).sources] == ["paid", "orders"]


def test_a_stream_that_is_read_twice_keeps_its_one_log(tmp_path: Path) -> None:
    """Spark numbers folders by stream: the new source before it moves its log by one, behind it by none."""
    files = {path: data for path, data in golden_files(JOIN).items() if not path.startswith("sources/1/")}
    old = on_disk(files, tmp_path)
    new = changed(old, [None, "0", "1"])
    assert [path.name for path in (new / "sources").iterdir()] == ["1"]
    more = tmp_path / "more"
    hf.change(new).sources(["1", "2", "0", None]).to(more, stopped=True)
    assert [path.name for path in (more / "sources").iterdir()] == ["0"]
    with pytest.raises(Unsupported, match="cannot be assigned"):
        hf.change(old).sources({"a": "0", "b": "1"}).plan(tmp_path / "no")


def test_named_sources_with_an_offset_log_by_position_keep_their_names(tmp_path: Path) -> None:
    """As Spark 4.2 and 4.3 write it by default."""
    names = {"sources/0/": "sources/orders/", "sources/1/": "sources/payments/"}
    files = {names.get(path[:10], path[:10]) + path[10:]: data for path, data in golden_files(JOIN).items()}
    old = on_disk(files, tmp_path)
    for wrong in (["1", "0"], {"orders": "0", "paid": "1"}):
        with pytest.raises(Unsupported, match="have names"):
            hf.change(old).sources(wrong).plan(tmp_path / "no")
    new = changed(old, {"returns": None, "orders": "0", "payments": "1"})
    assert list(offsets(new).offsets) == ["returns", "orders", "payments"]
    assert (first_file(new, "orders"), first_file(new, "payments")) == ("left", "right")


def test_kafka_and_delta_keep_their_offsets(tmp_path: Path) -> None:
    old = on_disk(kafka_files(AGGREGATE, KAFKA, DELTA), tmp_path)
    new = changed(old, ["1", None, "0"])
    ends = [json.loads(end or "null") for end in offsets(new).offsets.values()]
    assert ends == [DELTA, None, KAFKA]
    plan = hf.change(old).sources(["0"], drop=["1"]).plan(tmp_path / "other").steps[0].plan
    assert [(fate.before, fate.after, fate.kind.value) for fate in plan.sources] == [
        ("0", "0", "kafka"),
        ("1", None, "delta"),
    ]


@pytest.mark.parametrize(
    ("new", "drop", "error", "text"),
    [
        (["0"], (), Invalid, "does not mention a source"),
        (["0", "0"], ("1",), Invalid, "occurs twice"),
        (["0", "1"], ("1",), Invalid, "occurs twice"),
        (["0", "7"], (), NotFound, "no source '7'"),
        (["0"], ("7",), NotFound, "no source '7'"),
        (["0", "1"], (), Invalid, "leaves every source"),
        ([], ("0", "1"), Invalid, "has no source"),
        ({"the orders": "0", "b": "1"}, (), Invalid, "invalid name"),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_is_written(
    join: Path, new: NewSources, drop: tuple[str, ...], error: type[HoldfastError], text: str
) -> None:
    with pytest.raises(error, match=text):
        hf.change(join).sources(new, drop=drop).to(join.with_name("new"), stopped=True)
    assert not join.with_name("new").exists()
