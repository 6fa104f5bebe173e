"""Broadcast rows in Spark: every key sees the same at one point of each batch, also after restarts."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from broadcast_programs import EVENTS, OUTPUT, RULES, Alerts, events_and_rules, expected
from keyed_runs import START, read_stream, run, write_batch

import holdfast as hf
from holdfast.engine import keyed_operator
from holdfast.engine.session.workers import ship_by_value
from holdfast.errors import Invalid

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def ship() -> None:
    import broadcast_programs

    ship_by_value(broadcast_programs)


ship()


def alerts(spark: SparkSession, folder: Path, key_groups: int = 8) -> DataFrame:
    rules = read_stream(spark, folder / "rules", RULES)
    by_name = hf.broadcast(rules, key="rule", version="version", withdrawn="off", name="rules")
    events = hf.keyed(read_stream(spark, folder / "events", EVENTS), by="who", key_groups=key_groups)
    return events.with_broadcast(by_name).process(Alerts(), output=OUTPUT, name="alerts")


def by_batch(rows: list[tuple[int, dict[str, Any]]]) -> dict[int, Counter[Any]]:
    """Rows as `expected` gives them."""
    found: dict[int, Counter[Any]] = {}
    for batch, row in rows:
        found.setdefault(batch, Counter())[tuple(row.values())] += 1
    return found


@pytest.mark.parametrize(("seed", "grafts"), [(1, True), (2, False)])
def test_random_rules_and_events_with_restarts_agree_with_the_model(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, grafts: bool
) -> None:
    if not grafts:
        monkeypatch.setattr(keyed_operator, "grafts", lambda: False)
    files = events_and_rules(seed, batches=8, size=30, start=START)
    rows = []
    for number, (events, rules) in enumerate(files):
        write_batch(tmp_path / "events", number, events)
        write_batch(tmp_path / "rules", number, rules)
        if number % 4 == 3:
            rows += run(alerts(spark, tmp_path), tmp_path / "checkpoint")
    found = by_batch(rows)
    assert found == expected(tmp_path / "checkpoint", files)
    assert sum(map(len, found.values())) > 20


def test_a_change_among_many_rules_writes_that_change_alone(spark: SparkSession, tmp_path: Path) -> None:
    """Each group has a copy of all rules; what a group keeps is put together anew once it has grown."""

    def rule(name: str, least: int, version: int) -> dict[str, Any]:
        return {"rule": name, "least": least, "version": version, "off": False, "ts": START}

    events = [{"who": f"u{number}", "n": 5, "ts": START} for number in range(20)]
    many = [rule(f"r{number:03}", 1000, 0) for number in range(1000)]
    files: list[tuple[list[dict[str, Any]], list[dict[str, Any]]]] = [
        ([], many),
        (events, []),
        (events, [rule("r007", 3, 1)]),
        (events, []),
        (events, [rule("r008", 3, 1)]),
        (events, []),
    ]
    for number, (some, rules) in enumerate(files):
        write_batch(tmp_path / "events", number, some)
        write_batch(tmp_path / "rules", number, rules)
    rows = run(alerts(spark, tmp_path, key_groups=128), tmp_path / "checkpoint")
    assert by_batch(rows) == expected(tmp_path / "checkpoint", files)
    written = [changes(tmp_path / "checkpoint", batch + 1) for batch in range(len(files))]
    for batch in (3, 4, 5):
        assert written[batch] < written[0] / 50, written


def changes(checkpoint: Path, version: int) -> int:
    """Bytes of the changes of state that led to a version."""
    found = list(checkpoint.glob(f"state/0/*/{version}*.changelog"))
    assert found
    return sum(each.stat().st_size for each in found if each.name[len(str(version))] in "._")


def test_what_cannot_be_broadcast_is_refused_at_once(spark: SparkSession, tmp_path: Path) -> None:
    for folder in ("rules", "events"):
        (tmp_path / folder).mkdir()
    rules = read_stream(spark, tmp_path / "rules", RULES)
    keyed = hf.keyed(read_stream(spark, tmp_path / "events", EVENTS), by="who")
    one = hf.broadcast(rules, key="rule")
    with pytest.raises(Invalid, match="hold back event time"):
        hf.broadcast(rules.withWatermark("ts", "1 second"), key="rule")
    with pytest.raises(Invalid, match="not a stream"):
        hf.broadcast(spark.createDataFrame([("a", 1)], "rule string, n int"), key="rule")
    with pytest.raises(Invalid, match="withdrawn= column is not a boolean"):
        hf.broadcast(rules, key="rule", withdrawn="least")
    with pytest.raises(Invalid, match="cannot be the version"):
        hf.broadcast(rules, key="rule", version="off")
    with pytest.raises(Invalid, match="one broadcast stream"):
        keyed.with_broadcast(one).with_broadcast(one)
    with pytest.raises(Invalid, match="two streams of an operator have the same name"):
        keyed.with_broadcast(hf.broadcast(rules, key="rule", name="event"))
