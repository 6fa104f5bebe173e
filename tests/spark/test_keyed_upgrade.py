"""A query whose code cannot read its checkpoint's keyed state is refused before its first batch."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from keyed_runs import read_stream, write_batch

import holdfast as hf
from holdfast.layout import OWN, operator_note
from holdfast.stream.operator_check import SPREAD_KEY

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def processor(**states: Any) -> hf.Keyed:
    def on_event(self: Any, event: Any, state: Any, ctx: Any) -> dict[str, Any]:
        state.visits += 1
        return {"who": event.who, "visits": state.visits}

    made: hf.Keyed = type("Visits", (hf.Keyed,), {**states, "on_event": on_event})()
    return made


def start(spark: SparkSession, folder: Path, visits: hf.Keyed, key_groups: int = 4) -> None:
    events = read_stream(spark, folder / "in", "who string")
    out = hf.keyed(events, by="who", key_groups=key_groups).process(
        visits, output="who string, visits long", name="visits"
    )
    query = (
        hf.sink(out)
        .parquet(folder / "out")
        .start(checkpoint=(folder / "checkpoint").as_uri(), trigger=hf.available_now())
    )
    query.awaitTermination()


def test_a_change_that_would_lose_state_is_refused_before_the_first_batch(
    spark: SparkSession, tmp_path: Path, settings: Callable[[dict[str, str]], None]
) -> None:
    write_batch(tmp_path / "in", 0, [{"who": "ann", "ts": 0}])
    start(spark, tmp_path, processor(visits=hf.value("int", default=0)))
    write_batch(tmp_path / "in", 1, [{"who": "ann", "ts": 0}])
    before = sorted(path.name for path in (tmp_path / "checkpoint" / "offsets").iterdir())

    with pytest.raises(hf.Invalid, match="visits") as narrowed:
        start(spark, tmp_path, processor(visits=hf.value("short", default=0)))
    assert (narrowed.value.found, narrowed.value.expected) == ("short in the declaration", "int, as stored")
    with pytest.raises(hf.Invalid, match="key_groups differs"):
        start(spark, tmp_path, processor(visits=hf.value("int", default=0)), key_groups=5)
    settings({SPREAD_KEY: "false"})
    with pytest.raises(hf.Invalid, match="the order of key groups differs") as stored:
        start(spark, tmp_path, processor(visits=hf.value("int", default=0)))
    settings({SPREAD_KEY: "perhaps"})
    with pytest.raises(hf.Invalid, match="invalid value for"):
        start(spark, tmp_path, processor(visits=hf.value("int", default=0)))
    spark.conf.unset(SPREAD_KEY)
    assert stored.value.hint == f"start the query with {SPREAD_KEY}=true"
    with pytest.raises(hf.Invalid, match="does not declare"):
        start(spark, tmp_path, processor(times=hf.value("int", default=0)))
    assert sorted(path.name for path in (tmp_path / "checkpoint" / "offsets").iterdir()) == before

    start(spark, tmp_path, processor(visits=hf.value("long", default=0)))
    found = spark.read.parquet(str(tmp_path / "out")).orderBy("visits").collect()
    assert [tuple(row) for row in found] == [("ann", 1), ("ann", 2)]


def test_groups_that_were_read_by_new_code_and_then_written_keep_their_former_rows(
    spark: SparkSession, tmp_path: Path
) -> None:
    """More state than one batch brings to the new form: a batch reads it, and the next one writes it."""

    def on_event(self: Any, event: Any, state: Any, ctx: Any) -> dict[str, Any]:
        if event.adds:
            state.visits += 1
        if event.note:
            state.notes.append(event.note)
        return {"who": event.who, "visits": state.visits, "size": sum(map(len, state.notes))}

    def run(kind: str) -> None:
        states = {"visits": hf.value(kind, default=0), "notes": hf.list("string")}
        events = read_stream(spark, tmp_path / "in", "who string, adds long, note string")
        out = hf.keyed(events, by="who", key_groups=40).process(
            type("Visits", (hf.Keyed,), {**states, "on_event": on_event})(),
            output="who string, visits long, size long",
            name="visits",
        )
        query = (
            hf.sink(out)
            .parquet(tmp_path / "out")
            .start(checkpoint=(tmp_path / "checkpoint").as_uri(), trigger=hf.available_now())
        )
        query.awaitTermination()

    names = [f"visitor {number}" for number in range(40)]
    chance = Random(5)
    for batch, (adds, digits) in enumerate(((1, 200_000), (1, 0), (0, 0), (1, 0))):
        rows = [
            {"who": who, "ts": 0, "adds": adds, "note": chance.randbytes(digits // 2).hex()} for who in names
        ]
        write_batch(tmp_path / "in", batch, rows)
        if batch in (1, 3):
            run("int" if batch == 1 else "long")
    found = spark.read.parquet(str(tmp_path / "out")).orderBy("who", "visits").collect()
    assert [tuple(row) for row in found] == [
        (who, visits, 200_000) for who in sorted(names) for visits in (1, 2, 2, 3)
    ]


def test_a_ttl_counts_from_the_start_that_brought_it_in_whichever_run_a_key_is_first_read(
    spark: SparkSession, tmp_path: Path
) -> None:
    timed = processor(visits=hf.value("int", default=0, ttl="1h"))
    write_batch(tmp_path / "in", 0, [{"who": "ann", "ts": 0}])
    start(spark, tmp_path, processor(visits=hf.value("int", default=0)))
    start(spark, tmp_path, timed)  # it has nothing to do, and reads nobody

    # As if that start had been two hours ago.
    path = tmp_path / "checkpoint" / OWN / operator_note("visits")
    note = json.loads(path.read_text(encoding="utf-8"))
    note["periods"][1][1] -= 2 * 60 * 60 * 1000
    path.write_text(json.dumps(note), encoding="utf-8")
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    write_batch(tmp_path / "in", 1, [{"who": "ann", "ts": 0}])
    start(spark, tmp_path, timed)
    found = spark.read.parquet(str(tmp_path / "out")).collect()
    assert [tuple(row) for row in found] == [("ann", 1), ("ann", 1)]
