"""State read from files beside the same state read by Spark: each kind of query, provider and format.

The whole grid takes minutes; `HOLDFAST_GRID=all` runs it. Otherwise some kinds meet one provider each.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import at_rest_queries
import pytest
from at_rest_queries import KINDS
from grid import WHOLE, one_in

import holdfast as hf
from holdfast.at_rest.model import NamedState, StateForm
from holdfast.at_rest.tables import column_names
from holdfast.config.spark_defaults import (
    CHANGELOG_KEY,
    FORMAT_KEY,
    MEMORY_PROVIDER,
    PROVIDER_KEY,
    ROCKSDB_PROVIDER,
    ROW_CHECKSUM_KEY,
)
from holdfast.engine.session.workers import ship_by_value

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
ship_by_value(at_rest_queries)

VALUES = ("value", "user_map_value", "list_element")
DELTAS_KEY = "spark.sql.streaming.stateStore.minDeltasForSnapshot"
PROVIDERS = {
    "memory": {PROVIDER_KEY: MEMORY_PROVIDER, FORMAT_KEY: "1"},
    "rocksdb1": {PROVIDER_KEY: ROCKSDB_PROVIDER, FORMAT_KEY: "1", CHANGELOG_KEY: "false"},
    "changelog1": {
        PROVIDER_KEY: ROCKSDB_PROVIDER,
        FORMAT_KEY: "1",
        CHANGELOG_KEY: "true",
        ROW_CHECKSUM_KEY: "false",
    },
    "rocksdb2": {PROVIDER_KEY: ROCKSDB_PROVIDER, FORMAT_KEY: "2", CHANGELOG_KEY: "true"},
}
OURS = ("keyed", "keyed_by_two")
GRID = [
    (kind, each)
    for each in PROVIDERS
    for kind in KINDS
    if kind not in OURS and (each != "memory" or KINDS[kind].heap)
]
SOME = [
    ("types", "rocksdb2"),
    ("window", "memory"),
    ("session", "rocksdb1"),
    ("join2", "memory"),
    ("join3", "rocksdb2"),
    ("groups", "changelog1"),
    ("state", "changelog1"),
]
if not WHOLE:
    GRID = SOME


def run(spark: SparkSession, kind: str, folder: Path) -> Path:
    at_rest_queries.write_input(folder / "in")
    at_rest_queries.run(KINDS[kind].build(spark, folder / "in"), folder / "state", KINDS[kind].mode)
    return folder / "state"


def by_spark(spark: SparkSession, checkpoint: Path, state: NamedState) -> DataFrame:
    """Key, value and partition as Spark's own reader has them, one row for each of ours."""
    reader = spark.read.format("statestore").option("operatorId", state.operator_id)
    if state.form is StateForm.ROWS:
        reader = reader.option("joinSide", state.name)
    elif state.form is StateForm.TIMERS:
        reader = reader.option("readRegisteredTimers", "true")
    elif state.kind.startswith("transformWithState"):
        reader = reader.option("stateVarName", state.name)
    return reader.load(str(checkpoint))


def rows_by_spark(spark: SparkSession, checkpoint: Path, state: NamedState) -> Counter[str]:
    found: Counter[str] = Counter()
    for row in by_spark(spark, checkpoint, state).collect():
        names = row.__fields__
        value: Any = next((row[name] for name in VALUES if name in names), ())
        cells = [*row["key"], *(row["user_map_key"] if "user_map_key" in names else ())]
        if state.form is StateForm.TIMERS:
            cells.append(row["expiration_timestamp_ms"])
        elif state.ttl:
            cells += [*value[0], value[1]]
        elif state.value.names:
            cells += [*value]
        found[repr([*map(steady, cells), row["partition_id"]])] += 1
    return found


def steady(value: Any) -> Any:
    """A value as it is compared: parts in their order, times in UTC whatever zone they came with."""
    if isinstance(value, dt.datetime):
        # Spark's session is in UTC, and its rows have times without a zone.
        return value.replace(tzinfo=None)
    if isinstance(value, Mapping):
        return [steady(each) for each in value.values()]
    if isinstance(value, (bytes, bytearray)):
        return bytes(value)
    return [steady(each) for each in value] if isinstance(value, (list, tuple)) else value


def rows_by_us(states: hf.StatesAtRest, state: NamedState) -> Iterator[list[Any]]:
    for row in states.arrow(state.full_name).read_all().to_pylist():
        cells = list(row.values())
        yield [steady(each) for each in cells]


@pytest.mark.parametrize(("kind", "provider"), one_in(3, GRID))
def test_rows_are_those_of_sparks_reader(
    spark: SparkSession,
    settings: Callable[[dict[str, str]], None],
    tmp_path: Path,
    kind: str,
    provider: str,
) -> None:
    settings({DELTAS_KEY: "2", **PROVIDERS[provider], **KINDS[kind].settings})
    checkpoint = run(spark, kind, tmp_path)
    states = hf.state(checkpoint)
    [operator] = states.operators()
    assert operator.states
    for state in operator.states:
        columns = column_names(state)
        # Spark's reader of a join has neither a row's place nor whether it has matched.
        hidden = {
            at
            for at, name in enumerate(columns)
            if state.form is StateForm.ROWS and name in ("index", "matched")
        }
        ours = Counter(
            repr([cell for at, cell in enumerate(row) if at not in hidden])
            for row in rows_by_us(states, state)
        )
        assert sum(ours.values()) > 0
        assert ours == rows_by_spark(spark, checkpoint, state), state.full_name
        assert by_key(states, state) == by_row(states, state)
        frame = states.frame(operator.name, state.name if len(operator.states) > 1 else None)
        assert frame.columns == columns
        assert frame.count() == sum(ours.values())


def by_row(states: hf.StatesAtRest, state: NamedState) -> dict[str, Counter[str]]:
    """Every row, by its key."""
    found: dict[str, Counter[str]] = {}
    for entry in states.scan(state.full_name):
        rows = found.setdefault(repr(dict(entry.key)), Counter())
        rows[repr((entry.sub, entry.value, entry.expires_ms, entry.partition))] += 1
    return found


def by_key(states: hf.StatesAtRest, state: NamedState) -> dict[str, Counter[str]]:
    """The same, each key looked up by itself."""
    keys = {repr(dict(each.key)): dict(each.key) for each in states.scan(state.full_name)}
    return {
        text: Counter(
            repr((entry.sub, entry.value, entry.expires_ms, entry.partition))
            for entry in states.get(state.full_name, key).entries
        )
        for text, key in keys.items()
    }


CODEC_KEY = "spark.sql.streaming.stateStore.compression.codec"
BLOCKS_KEY = "spark.sql.streaming.stateStore.rocksdb.compression"
COMPRESSIONS = [
    ("memory", {CODEC_KEY: "lzf"}),
    ("rocksdb1", {BLOCKS_KEY: "bzip2"}),
    *([("rocksdb2", {CODEC_KEY: "lzf", BLOCKS_KEY: "bzip2"})] if WHOLE else []),
]


@pytest.mark.parametrize(("provider", "compression"), COMPRESSIONS)
def test_every_compression_that_a_job_may_choose_is_read_and_written(
    spark: SparkSession,
    settings: Callable[[dict[str, str]], None],
    tmp_path: Path,
    provider: str,
    compression: dict[str, str],
) -> None:
    settings({DELTAS_KEY: "2", **PROVIDERS[provider], **compression})
    checkpoint = run(spark, "window", tmp_path)
    written = [path.read_bytes() for path in checkpoint.glob("state/**/*") if path.is_file()]
    assert any(data.startswith(b"ZV") for data in written) == (CODEC_KEY in compression)
    assert hf.checkpoints.verify(checkpoint).ok
    rescaled = tmp_path / "rescaled"
    taken = hf.savepoints.take(checkpoint, tmp_path / "savepoints", deep=True)
    hf.savepoints.rescale(taken.uri, rescaled, partitions=3)
    rows = {}
    for place in (checkpoint, rescaled):
        states = hf.state(place)
        [[state]] = [operator.states for operator in states.operators()]
        ours = Counter(repr([*row[:-1]]) for row in rows_by_us(states, state))
        theirs = by_spark(spark, place, state).collect()
        assert ours == Counter(repr([*map(steady, row["key"]), *map(steady, row["value"])]) for row in theirs)
        rows[place] = ours
    assert sum(rows[checkpoint].values()) > 0
    assert rows[checkpoint] == rows[rescaled]


def test_what_is_not_read_here_spark_reads(
    spark: SparkSession,
    settings: Callable[[dict[str, str]], None],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    settings({**PROVIDERS["rocksdb1"], BLOCKS_KEY: "z"})  # zlib, which `hf.RocksDB` refuses
    checkpoint = run(spark, "window", tmp_path)
    states = hf.state(checkpoint)
    with pytest.raises(hf.Unsupported, match="found zlib, expected none, snappy"):
        states.arrow("aggregate").read_all()
    assert hf.checkpoints.verify(checkpoint).ok
    with pytest.raises(hf.Unsupported, match="found zlib"):
        hf.savepoints.take(checkpoint, tmp_path / "savepoints", deep=True)
    frame = states.frame("aggregate")
    assert frame.columns == ["window", "who", "count", "partition_id"]
    assert frame.count() > 0
    assert "using Spark's reader" in caplog.text
