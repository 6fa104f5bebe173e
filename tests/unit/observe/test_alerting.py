"""What is told of alerts: once when they begin, once when they are over."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.config.alert_settings import Alerts
from holdfast.errors import Corrupt, Invalid, Unsupported
from holdfast.model import BatchProgress, OperatorProgress
from holdfast.observe.alerting import (
    CLEARED,
    EVENTS_KEPT,
    FIRING,
    GIVEN_UP,
    PENDING,
    WAITING,
    Alert,
    AlertEvent,
    AlertStore,
    Key,
    evaluate,
)
from holdfast.observe.job_metrics import JobFacts
from holdfast.observe.metrics import METRICS, MetricSample, sample
from holdfast.observe.rules import BY_RULE, RULES, shown_value
from holdfast.observe.watcher import Watcher

GIB = 1 << 30
MINUTE = 60_000


def threshold(rule: str, value: float, job: str = "shop") -> MetricSample:
    return sample("holdfast_alert_threshold", value, job, rule)


def state(size: float, query: str = "visits", operator: str = "0 dedupe", job: str = "shop") -> MetricSample:
    return sample("holdfast_state_bytes", size, job, query, operator)


def batch(number: int, size: int, at_ms: int, query: str = "visits") -> BatchProgress:
    operator = OperatorProgress("dedupe", 10, 1, 0, 0, size, 5, 4)
    return BatchProgress(query, number, at_ms, 100, 2_000, None, (operator,))


def test_operators_of_a_query_are_taken_together_and_queries_apart() -> None:
    limit = threshold("state_size", 10.0)
    both = [limit, state(6), state(6, operator="1 join"), state(9, query="sales")]
    standing, events = evaluate(both, {}, 0)
    assert [each.kind for each in events] == [FIRING]
    assert list(standing) == [("state_size", ("shop", "visits"))]
    assert events[0].text == "the state of query visits has grown to 12 B, over 10 B"


def test_what_stays_wrong_is_told_once() -> None:
    standing: dict[Key, Alert] = {}
    told = []
    for minute in range(100):
        standing, events = evaluate([threshold("state_size", 10.0), state(20)], standing, minute * MINUTE)
        told += [each.kind for each in events]
    assert told == [FIRING]


def test_a_number_that_swings_around_its_threshold_is_told_once() -> None:
    standing: dict[Key, Alert] = {}
    told = []
    for look in range(100):  # two a minute
        samples = [threshold("state_size", 10.0), state(20 if look % 2 else 5)]
        standing, events = evaluate(samples, standing, look * MINUTE // 2)
        told += [each.kind for each in events]
    assert told == [FIRING]


def test_each_job_has_its_own_thresholds_and_a_rule_without_one_is_off() -> None:
    samples = [state(20, job=job) for job in ("strict", "lax", "silent")]
    samples += [threshold("state_size", 10.0, "strict"), threshold("state_size", 30.0, "lax")]
    standing, _ = evaluate(samples, {}, 0)
    assert [each.job for each in standing.values()] == ["strict"]


def test_a_rule_that_is_turned_off_ends_its_alerts_at_once() -> None:
    standing, _ = evaluate([threshold("state_size", 10.0), state(20)], {}, 0)
    standing, events = evaluate([state(20)], standing, 1)
    assert standing == {}
    assert [each.kind for each in events] == [CLEARED]


def test_what_was_not_wrong_for_long_enough_goes_without_a_word() -> None:
    slow = sample("holdfast_state_access_seconds", 0.2, "shop", "visits", "0 dedupe")
    quick = sample("holdfast_state_access_seconds", 0.001, "shop", "visits", "0 dedupe")
    limit = threshold("access_latency", 0.1)
    standing, events = evaluate([limit, slow], {}, 0)
    assert [each.phase for each in standing.values()] == [PENDING]
    standing, more = evaluate([limit, quick], standing, 30_000)
    assert (standing, events, more) == ({}, (), ())


def test_a_diary_brings_alerts_over_a_restart(tmp_path: Path) -> None:
    diary = AlertStore(tmp_path)
    assert (diary.standing(), diary.events(), diary.numbers(), diary.totals("shop")) == ({}, [], {}, {})
    alerts = Alerts(state_size=100)
    first = Watcher("shop", alerts, diary)
    first.committed(batch(0, 500, 1_000))
    assert [each.kind for each in first.evaluate(JobFacts("shop"), 1_000)] == [FIRING]
    second = Watcher("shop", alerts, AlertStore(tmp_path), [batch(0, 500, 1_000)])
    assert second.evaluate(JobFacts("shop"), 60_000) == ()
    second.committed(batch(1, 50, 61_000))
    assert second.evaluate(JobFacts("shop"), 61_000) == ()
    assert [each.kind for each in second.evaluate(JobFacts("shop"), 61_000 + MINUTE)] == [CLEARED]
    assert [each.event.kind for each in diary.events("shop")] == [FIRING, CLEARED]
    assert diary.events("other") == []
    assert diary.standing() == {}
    # Two batches were counted by two processes, the first one's not twice.
    assert diary.totals("shop")["holdfast_batches_total", ("visits",)] == 2
    assert diary.totals("shop")["holdfast_input_rows_total", ("visits",)] == 200


def test_numbers_are_written_at_times_and_events_at_once(tmp_path: Path) -> None:
    diary = AlertStore(tmp_path)
    watcher = Watcher("shop", Alerts(state_size=100), diary)
    watcher.evaluate(JobFacts("shop"), 0)
    watcher.committed(batch(0, 50, 1_000))
    watcher.evaluate(JobFacts("shop"), 1_000)
    assert diary.numbers()["shop"][0] == 0
    watcher.committed(batch(1, 500, 2_000))
    watcher.evaluate(JobFacts("shop"), 2_000)
    assert diary.numbers()["shop"][0] == 2_000
    assert state(500, operator="0 dedupe") in diary.numbers()["shop"][1]


def test_what_has_waited_long_enough_is_written_at_once_too(tmp_path: Path) -> None:
    watcher = Watcher("shop", Alerts(), diary := AlertStore(tmp_path))
    slow = {"rocksdbGetCount": 10, "rocksdbGetLatency": 5_000}
    operator = OperatorProgress("dedupe", 10, 1, 0, 0, 5, 5, 4, slow)
    watcher.committed(BatchProgress("visits", 0, 0, 100, 2_000, None, (operator,)))
    for moment in (0, 58_000):
        assert watcher.evaluate(JobFacts("shop"), moment) == ()
    assert [each.kind for each in watcher.evaluate(JobFacts("shop"), MINUTE)] == [FIRING]
    assert [each.event.alert.rule for each in diary.events()] == ["access_latency"]


def test_a_diary_that_cannot_be_written_loses_no_event(tmp_path: Path) -> None:
    watcher = Watcher("shop", Alerts(state_size=100), diary := AlertStore(tmp_path))
    diary.path.write_text("this is no database, and long enough to be seen as none" * 3)
    watcher.committed(batch(0, 500, 1_000))
    with pytest.raises(Corrupt, match="damaged"):
        watcher.evaluate(JobFacts("shop"), 1_000)
    diary.path.unlink()
    assert [each.kind for each in watcher.evaluate(JobFacts("shop"), 2_000)] == [FIRING]


def test_a_diary_of_another_version_is_left_alone(tmp_path: Path) -> None:
    import sqlite3

    with sqlite3.connect(tmp_path / "watching.db") as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(Unsupported, match="a different version"):
        AlertStore(tmp_path).standing()


def test_at_the_end_all_is_over_but_for_a_failure(tmp_path: Path) -> None:
    watcher = Watcher("shop", Alerts(state_size=100), diary := AlertStore(tmp_path))
    watcher.committed(batch(0, 500, 1_000))
    watcher.evaluate(JobFacts("shop"), 1_000)
    told = watcher.end(JobFacts("shop", up=False, failed=True), 2_000)
    assert [(each.kind, each.alert.rule) for each in told] == [
        (FIRING, "job_failed"),
        (CLEARED, "state_size"),
    ]
    assert [each.rule for each in diary.standing().values()] == ["job_failed"]
    again = Watcher("shop", Alerts(state_size=100), diary)
    assert [(each.kind, each.alert.rule) for each in again.evaluate(JobFacts("shop"), 3_000)] == [
        (CLEARED, "job_failed")
    ]


def test_a_job_keeps_its_newest_events(tmp_path: Path) -> None:
    diary = AlertStore(tmp_path)
    alert = Alert("job_failed", ("shop",), FIRING, 0, None, 1.0, 0.0)
    events = [AlertEvent(FIRING, number, alert) for number in range(EVENTS_KEPT + 5)]
    diary.save("shop", 0, samples=(), totals={}, standing={}, events=events, told=WAITING)
    assert [each.event.at_ms for each in diary.events("shop", last=3)] == [1002, 1003, 1004]
    assert len(diary.events()) == EVENTS_KEPT
    waiting = diary.waiting("shop", since_ms=1003)
    assert [each.event.at_ms for each in waiting] == [1003, 1004]
    diary.settle(waiting[0].id, GIVEN_UP)
    assert [each.event.at_ms for each in diary.waiting("shop", 1003)] == [1004]
    assert waiting[1].event == AlertEvent.from_dict(waiting[1].event.as_dict())


def test_every_rule_looks_at_a_metric_and_has_a_setting() -> None:
    names = {metric.name for metric in METRICS}
    assert {rule.metric for rule in RULES} <= names
    # How long a topic keeps its records is known to its owner alone.
    assert set(Alerts().thresholds) == {rule.name for rule in RULES} - {"offsets_expiring"}
    assert {rule.name for rule in RULES} == set(Alerts(offsets_expiring="6d").thresholds)
    for rule in RULES:
        assert rule.by[0] == "job_name"
        assert rule.text(dict.fromkeys(rule.by, "x"), 1.5, 1.0)
    assert BY_RULE["state_size"].alert == "HoldfastStateSize"


def test_the_defaults_are_those_of_the_guide() -> None:
    found = Alerts().thresholds
    assert found["state_size"] == 10 * GIB
    assert (found["checkpoint_duration"], found["checkpoint_failures"]) == (60, 0)
    assert (found["access_latency"], found["recovery_time"]) == (0.1, 300)


def test_thresholds_are_read_from_text_and_turned_off() -> None:
    given = Alerts(
        state_size="1 GB",
        late_rows="0.5",
        skew="off",
        checkpoint_failures="3",
        recovery_time=None,
        job_failed=False,
        webhook="http://127.0.0.1:9/x/",
    )
    # A slash more or less is another address, to which a server may redirect.
    assert given.webhook == "http://127.0.0.1:9/x/"
    assert Alerts(alertmanager="http://127.0.0.1:9/x/").alertmanager == "http://127.0.0.1:9/x"
    found = given.thresholds
    assert (found["state_size"], found["late_rows"], found["checkpoint_failures"]) == (GIB, 0.5, 3)
    assert not {"skew", "recovery_time", "job_failed"} & set(found)
    assert Alerts.from_dict({**given.as_dict(), "of a newer version": 1}) == given


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("state_size", "much"),
        ("late_rows", 2.0),
        ("late_rows", "many"),
        ("skew", 0.5),
        ("checkpoint_failures", -1),
        ("access_latency", "0ms"),
        ("job_failed", "no"),
        ("webhook", "file:///etc/passwd"),
        ("webhook", "http://"),
        ("webhook", "http://127.0.0.1/a b"),
        ("webhook", "http://127.0.0.1/a\nb"),
        ("alertmanager", 9093),
        ("format_version", 3),
    ],
)
def test_a_threshold_that_cannot_be_right_is_refused(field: str, value: object) -> None:
    with pytest.raises(Invalid, match=field):
        Alerts(**{field: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (1536, "bytes", "1.5 KiB"),
        (0.012, "seconds", "12 ms"),
        (216_000, "seconds", "2 d 12 h"),
        (0.25, "ratio", "25.0%"),
        (12.5, "ratio", "12.5"),
        (1234.5, "batches", "1234"),
    ],
)
def test_a_value_is_shown_by_its_unit(value: float, unit: str, text: str) -> None:
    assert shown_value(value, unit) == text


def test_an_address_that_is_refused_is_not_repeated() -> None:
    for address in ("htp://hooks.example/s3cret", "http://hooks.example/s3cret s3cret", "s3cret"):
        with pytest.raises(Invalid) as told:
            Alerts(webhook=address)
        assert "s3cret" not in str(told.value)
