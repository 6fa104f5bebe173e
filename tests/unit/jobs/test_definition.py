from __future__ import annotations

from typing import Any

import pytest

import holdfast as hf
from holdfast.config.policies import RestartStrategy
from holdfast.errors import Invalid
from holdfast.jobs.definition import strategy_fields, strategy_from_fields


@hf.job(name="example", checkpoint=hf.Checkpoint("c", interval="1m", retain=5))
def example(spark: Any, day: str = "monday", rows: int = 10, share: float = 0.5, loud: bool = False) -> Any:
    return (spark, day, rows, share, loud)


def test_a_checkpoint_may_be_a_place_alone() -> None:
    made = hf.job(name="a", checkpoint="somewhere")(lambda spark: spark)
    assert made.checkpoint == hf.Checkpoint("somewhere")


def test_parameters_are_read_as_the_type_of_their_default() -> None:
    overrides = {"day": "friday", "rows": "12", "share": "0.25", "loud": "true"}
    assert example.with_overrides(overrides)("session") == ("session", "friday", 12, 0.25, True)
    assert example("session") == ("session", "monday", 10, 0.5, False)


def test_settings_below_a_dot() -> None:
    changed = example.with_overrides(
        {"checkpoint.retain": "7", "checkpoint.storage": "d", "backend.memory": "64m", "trigger": "3 seconds"}
    )
    assert changed.checkpoint == hf.Checkpoint("d", interval="1m", retain=7)
    assert changed.backend == hf.RocksDB(memory="64m")
    assert changed.effective_trigger() == hf.every("3 seconds")
    assert example.checkpoint.storage == "c"


def test_settings_that_go_only_together() -> None:
    both = {"checkpoint.savepoints": "/sp", "trigger": "3 seconds", "checkpoint.savepoint_every": "1h"}
    changed = example.with_overrides(both)
    assert (changed.checkpoint.savepoints, changed.checkpoint.savepoint_every_ms) == ("/sp", 3_600_000)
    # A directory alone is where savepoints go that are asked for.
    alone = example.with_overrides({"checkpoint.savepoints": "/sp"}).checkpoint
    assert (alone.savepoints, alone.savepoint_every_ms) == ("/sp", None)
    with pytest.raises(Invalid, match="periodic savepoints need a directory and an interval"):
        example.with_overrides({"checkpoint.savepoint_every": "1h"})


def test_the_interval_is_the_trigger_where_none_is_named() -> None:
    assert example.effective_trigger() == hf.every("1 minute")


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("nothing", "1", "trigger, name, checkpoint.…, backend.…, alerts.…, day, rows, share, loud"),
        ("checkpoint.nothing", "1", "checkpoint.retain"),
        ("loud", "perhaps", "bool"),
        ("trigger", "soonish", "trigger"),
        ("checkpoint.retain", "many", "at least 2"),
    ],
)
def test_what_cannot_be_set_says_what_can(key: str, value: str, expected: str) -> None:
    with pytest.raises(Invalid) as caught:
        example.with_overrides({key: value})
    assert expected in str(caught.value)


def test_conf_wins_over_settings() -> None:
    key = "spark.sql.streaming.minBatchesToRetain"
    made = hf.job(name="a", checkpoint=hf.Checkpoint("c", retain=5), conf={key: "9"})(lambda spark: spark)
    assert example.spark_conf()[key] == "5"
    assert made.spark_conf()[key] == "9"


def test_a_function_that_cannot_be_called_is_refused() -> None:
    with pytest.raises(Invalid, match="no default for day"):
        hf.job(name="a", checkpoint="c")(lambda spark, day: (spark, day))
    with pytest.raises(Invalid, match="no parameter"):
        hf.job(name="a", checkpoint="c")(lambda: None)


@pytest.mark.parametrize("name", ["", "a b", "-a", "a/b", "x" * 65, "ä"])
def test_a_name_that_cannot_be_a_directory_is_refused(name: str) -> None:
    with pytest.raises(Invalid, match="invalid job name"):
        hf.job(name=name, checkpoint="c")(lambda spark: spark)


@pytest.mark.parametrize(
    "strategy",
    [
        hf.no_restart(),
        hf.fixed_delay(attempts=5, delay="3s"),
        hf.exponential(initial="2s", max="5m", multiplier=3, jitter=0.2, reset_after="1h"),
        hf.failure_rate(failures=2, per="1m", delay="5s", same_failure=None),
    ],
)
def test_a_strategy_crosses_to_the_supervisor_as_it_is(strategy: RestartStrategy) -> None:
    assert strategy_from_fields(strategy_fields(strategy)) == strategy


def test_a_batch_of_real_time_mode_may_take_its_interval_before_the_timeout_counts() -> None:
    timed = hf.Checkpoint("./ck", timeout="1 minute")

    @hf.job(name="at-once", checkpoint=timed, trigger="real time 5 minutes")
    def at_once(spark: object) -> object:
        return spark

    @hf.job(name="batches", checkpoint=timed, trigger="5 minutes")
    def batches(spark: object) -> object:
        return spark

    assert (at_once.timeout_ms, batches.timeout_ms) == (360_000, 60_000)
    assert at_once.interval_ms is None


def test_a_pause_between_batches_of_real_time_mode_is_refused() -> None:
    paused = hf.Checkpoint("./ck", min_pause="30s")
    with pytest.raises(hf.Invalid, match="cannot be combined with real-time mode"):

        @hf.job(name="at-once", checkpoint=paused, trigger=hf.real_time("5 minutes"))
        def at_once(spark: object) -> object:
            return spark
