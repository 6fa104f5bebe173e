"""The numbers of a job, worked out by hand."""

from __future__ import annotations

import select
import socket
import urllib.error
import urllib.request
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from golden import golden_on_disk
from holdfast.errors import NotFound, Unavailable
from holdfast.model import (
    BatchProgress,
    HeavyKey,
    KeyedProgress,
    KeyedState,
    OperatorProgress,
    SkewReport,
    TaskTimes,
)
from holdfast.observe.batch_numbers import query_samples
from holdfast.observe.files import FileFacts, StoreFiles, alone_samples, file_samples, look
from holdfast.observe.job_metrics import JobFacts, JobTotals, TakenSavepoint, job_samples
from holdfast.observe.metrics import BY_NAME, METRICS, MetricSample, packed, sample, unpacked
from holdfast.observe.prometheus import MetricsServer, ScrapeBounds, as_text
from holdfast.storage.local import LocalStorage

MINUTE = 60_000
# 2026-03-05T08:00:00Z
MORNING = 1_772_697_600_000

ROCKS = {
    "rocksdbGetCount": 300,
    "rocksdbGetLatency": 60,
    "rocksdbPutCount": 100,
    "rocksdbPutLatency": 20,
    "rocksdbSstFileSize": 5_000,
    "rocksdbReadBlockCacheHitCount": 30,
    "rocksdbReadBlockCacheMissCount": 10,
    "rocksdbLoadLatencyMs": 250,
    "rocksdbNumSnapshotsAutoRepaired": 0,
}


def operator(**changed: Any) -> OperatorProgress:
    fields = {
        "name": "dedupe",
        "rows": 40,
        "updated": 4,
        "removed": 1,
        "late_rows": 2,
        "memory_bytes": 900,
        "commit_ms": 75,
        "partitions": 4,
        "store": ROCKS,
    }
    return OperatorProgress(**{**fields, **changed})


def batch(number: int = 0, at_ms: int = MORNING, **changed: Any) -> BatchProgress:
    fields = {
        "query": "visits",
        "batch_id": number,
        "committed_ms": at_ms,
        "input_rows": 100,
        "duration_ms": 1_500,
        "watermark": "2026-03-05T07:59:30.000Z",
        "operators": (operator(),),
        "phases_ms": {"addBatch": 1_200, "walCommit": 30},
        "input_rate": 50.0,
        "processed_rate": 66.5,
    }
    return BatchProgress(**{**fields, **changed})


def found(samples: Iterable[MetricSample], metric: str) -> dict[tuple[str, ...], float]:
    return {each.labels: each.value for each in samples if each.metric == metric}


def one(samples: Iterable[MetricSample], metric: str) -> float:
    [value] = found(samples, metric).values()
    return value


def test_the_newest_batch_gives_its_numbers() -> None:
    samples = query_samples("shop", [batch()], MORNING + 5_000)
    assert {
        each.metric.removeprefix("holdfast_"): each.value for each in samples if len(each.labels) == 2
    } == {
        "batch_id": 0,
        "last_commit_timestamp_seconds": MORNING / 1000,
        "checkpoint_duration_seconds": 1.5,
        "input_rows_per_second": 50.0,
        "processed_rows_per_second": 66.5,
        "watermark_stuck_seconds": 0,
        "watermark_timestamp_seconds": MORNING / 1000 - 30,
        "watermark_lag_seconds": 35.0,
        "late_rows_ratio": 0.02,
        # Of 1.5 s, 1.2 s are spent with the rows.
        "critical_seconds": 0.3,
        "partitions": 4,
        "recommended_partitions": 4,
        "recommended_memory_bytes": 1024 * 1024,
    }
    of_operator = [each for each in samples if each.labels == ("shop", "visits", "0 dedupe")]
    assert {each.metric.removeprefix("holdfast_"): each.value for each in of_operator} == {
        "state_rows": 40,
        "state_bytes": 5_000,
        "state_memory_bytes": 900,
        "state_commit_seconds": 0.075,
        "state_access_seconds": 0.0002,
        "state_load_seconds": 0.25,
        "cache_hit_ratio": 0.75,
        "snapshots_repaired_lately": 0,
    }
    assert found(samples, "holdfast_batch_phase_seconds") == {
        ("shop", "visits", "addBatch"): 1.2,
        ("shop", "visits", "walCommit"): 0.03,
    }


def test_what_would_be_right_is_measured_too() -> None:
    tasks = TaskTimes(jobs_ms=1_100, run_ms=2_000, longest_ms=100)
    many = batch(operators=(operator(partitions=200),), interval_ms=10_000, cores=2, tasks=tasks)
    samples = query_samples("shop", [many], MORNING + 5_000)
    assert found(samples, "holdfast_provisioning") == {("shop", "visits", "over_provisioned"): 1}
    assert {
        metric: one(samples, f"holdfast_{metric}")
        for metric in ("allowed_seconds", "critical_seconds", "cores", "recommended_cores", "partitions")
    } == {
        "allowed_seconds": 10,
        "critical_seconds": 0.5,
        "cores": 2,
        "recommended_cores": 1,
        "partitions": 200,
    }
    assert one(samples, "holdfast_recommended_partitions") == 1


def test_the_forecast_of_an_operator_is_measured_from_its_newest_batch() -> None:
    history = [
        batch(each, MORNING + each * MINUTE, operators=(operator(store={"rocksdbSstFileSize": 100 * each}),))
        for each in range(1, 21)
    ]
    samples = query_samples("shop", history, MORNING + 30 * MINUTE, limit_bytes=2_500)
    # 500 bytes are left, and 100 come a minute.
    assert found(samples, "holdfast_operator_full_seconds") == {("shop", "visits", "0 dedupe"): 300}
    assert one(samples, "holdfast_state_full_seconds") == pytest.approx(300)


def test_a_store_on_the_heap_has_its_own_counters() -> None:
    heap = {
        "loadedMapCacheHitCount": 9,
        "loadedMapCacheMissCount": 1,
        "stateOnCurrentVersionSizeBytes": 700,
    }
    samples = query_samples("shop", [batch(operators=(operator(store=heap),))], MORNING)
    assert one(samples, "holdfast_state_bytes") == 700
    assert one(samples, "holdfast_cache_hit_ratio") == 0.9
    assert not found(samples, "holdfast_state_access_seconds")
    assert not found(samples, "holdfast_state_access_quantile_seconds")


def test_on_the_heap_an_update_is_measured_with_its_processing() -> None:
    # 3 ms for two rows that were updated and one that was removed.
    heap = {"stateOnCurrentVersionSizeBytes": 700}
    slow = operator(store=heap, updated=2, removed=1, update_ms=3)
    idle = operator(store=heap, updated=0, removed=0, update_ms=1)
    former = operator(store=heap, updated=2, removed=0, update_ms=None)
    labels = ("shop", "visits", "0 dedupe")
    history = [batch(0, operators=(former,)), batch(1, operators=(slow,)), batch(2, operators=(idle,))]
    assert found(query_samples("shop", history[:2], MORNING), "holdfast_state_update_seconds") == {
        labels: pytest.approx(0.001)
    }
    assert not found(query_samples("shop", history, MORNING), "holdfast_state_update_seconds")
    # Of the batches, only one had an update that was measured.
    means = found(query_samples("shop", history, MORNING), "holdfast_state_access_batches_seconds")
    assert means == {(*labels, share): pytest.approx(0.001) for share in ("0.5", "0.95", "0.99", "1")}


def test_the_means_of_the_last_batches_have_quantiles() -> None:
    """Of 1 to 20 µs a get in the batches of the last ten minutes; an older batch does not count."""
    history = [
        batch(
            number,
            MORNING + number * 1000,
            operators=(operator(store={"rocksdbGetCount": 1000, "rocksdbGetLatency": number}),),
        )
        for number in range(1, 21)
    ]
    old = batch(
        0,
        MORNING - 11 * MINUTE,
        operators=(operator(store={"rocksdbGetCount": 1, "rocksdbGetLatency": 9_000}),),
    )
    samples = query_samples("shop", [old, *history], MORNING + 20_000)
    by_share = found(samples, "holdfast_state_access_batches_seconds")
    assert {labels[-1]: value for labels, value in by_share.items()} == {
        "0.5": pytest.approx(10e-6),
        "0.95": pytest.approx(19e-6),
        "0.99": pytest.approx(20e-6),
        "1": pytest.approx(20e-6),
    }


# Of twenty requests, eight took up to 1 ms, ten 2 to 5 ms, and two 100 to 200 ms; 240 ms together.
DATABASE = {
    "externalRequestsTo1ms": 8,
    "externalRequestsTo5ms": 10,
    "externalRequestsTo200ms": 2,
    "externalRequestMicros": 240_000,
}


def test_a_store_in_a_database_reports_its_requests() -> None:
    one_batch = batch(operators=(operator(store=DATABASE),))
    samples = query_samples("shop", [one_batch], MORNING)
    labels = ("shop", "visits", "0 dedupe")
    assert found(samples, "holdfast_state_access_seconds") == {labels: pytest.approx(0.012)}
    assert found(samples, "holdfast_state_access_quantile_seconds") == {
        (*labels, "0.5"): pytest.approx(0.0026),
        (*labels, "0.95"): pytest.approx(0.150),
        (*labels, "0.99"): pytest.approx(0.190),
        (*labels, "1"): pytest.approx(0.200),
    }
    totals = JobTotals()
    totals.add(one_batch)
    totals.add(one_batch)
    counted = totals.samples("shop")
    assert found(counted, "holdfast_state_operations_total") == {(*labels, "request"): 40}
    assert found(counted, "holdfast_state_operations_seconds_total") == {
        (*labels, "request"): pytest.approx(0.48)
    }


def test_the_mean_of_rocksdb_has_no_quantiles() -> None:
    samples = query_samples("shop", [batch()], MORNING)
    assert one(samples, "holdfast_state_access_seconds") == 0.0002
    assert not found(samples, "holdfast_state_access_quantile_seconds")


def test_before_its_first_file_a_store_is_its_memory() -> None:
    [only] = [batch(operators=(operator(store={**ROCKS, "rocksdbSstFileSize": 0}),))]
    assert one(query_samples("shop", [only], MORNING), "holdfast_state_bytes") == 900


def test_a_batch_that_runs_longer_than_the_last_one_took_counts() -> None:
    samples = query_samples("shop", [batch()], MORNING + 90_000, busy_since_ms=MORNING)
    assert one(samples, "holdfast_checkpoint_duration_seconds") == 90.0
    samples = query_samples("shop", [batch()], MORNING + 200, busy_since_ms=MORNING)
    assert one(samples, "holdfast_checkpoint_duration_seconds") == 1.5


# Each batch: minute, watermark, rows. Stuck is the time from the first batch under a watermark to the last
# one of them that had rows.
@pytest.mark.parametrize(
    ("course", "minutes"),
    [
        ([(0, "07:00", 5), (1, "07:01", 5), (2, "07:02", 5)], 0),
        ([(0, "07:00", 5), (1, "07:00", 5), (4, "07:00", 5)], 4),
        ([(0, "07:00", 5), (3, "07:00", 5), (9, "07:00", 0)], 3),
        ([(0, "07:00", 5), (9, "07:00", 0)], 0),
        ([(0, "07:00", 0), (9, "07:00", 0)], 0),
        ([(0, "07:00", 5), (4, "07:00", 5), (5, "07:05", 5)], 0),
    ],
)
def test_a_watermark_is_stuck_while_rows_come_in(
    course: Sequence[tuple[int, str, int]], minutes: int
) -> None:
    history = [
        batch(number, MORNING + minute * MINUTE, watermark=f"2026-03-05T{clock}:00.000Z", input_rows=rows)
        for number, (minute, clock, rows) in enumerate(course)
    ]
    samples = query_samples("shop", history, MORNING + 20 * MINUTE)
    assert one(samples, "holdfast_watermark_stuck_seconds") == minutes * 60


def test_before_the_first_event_there_is_no_lag() -> None:
    samples = query_samples("shop", [batch(watermark="1970-01-01T00:00:00.000Z")], MORNING)
    assert not found(samples, "holdfast_watermark_lag_seconds")
    assert not found(
        query_samples("shop", [batch(watermark=None)], MORNING), "holdfast_watermark_stuck_seconds"
    )


def test_lately_is_ten_minutes() -> None:
    repairs = operator(store={"rocksdbNumSnapshotsAutoRepaired": 2}, late_rows=50)
    history = [
        batch(0, MORNING - 11 * MINUTE, operators=(repairs,)),
        batch(1, MORNING - 9 * MINUTE, operators=(repairs,)),
        batch(2, MORNING, late_events=10, operators=(operator(late_rows=0),)),
    ]
    samples = query_samples("shop", history, MORNING)
    assert one(samples, "holdfast_snapshots_repaired_lately") == 2
    # 50 and 10 late ones of 200 rows.
    assert one(samples, "holdfast_late_rows_ratio") == 0.3
    assert not found(query_samples("shop", history, MORNING + 30 * MINUTE), "holdfast_late_rows_ratio")


def test_growth_is_foretold_up_to_the_limit() -> None:
    history = [
        batch(
            each,
            MORNING + each * MINUTE,
            operators=(operator(store={"rocksdbSstFileSize": 1_000 * (each + 1)}),),
        )
        for each in range(10)
    ]
    samples = query_samples("shop", history, MORNING + 9 * MINUTE, limit_bytes=25_000)
    assert one(samples, "holdfast_state_full_seconds") == pytest.approx(15 * 60)
    assert not found(query_samples("shop", history, MORNING), "holdfast_state_full_seconds")
    # Buffers that fill before anything is in a file are no growth.
    filling = [
        batch(each, MORNING + each * MINUTE, operators=(operator(store={}, memory_bytes=1_000 * (each + 1)),))
        for each in range(10)
    ]
    samples = query_samples("shop", filling, MORNING + 9 * MINUTE, limit_bytes=25_000)
    assert one(samples, "holdfast_state_bytes") == 10_000
    assert not found(samples, "holdfast_state_full_seconds")


def test_the_heaviest_watched_key_is_a_number() -> None:
    heavy = (HeavyKey(("a",), 60, 0.6), HeavyKey(("b",), 10, 0.1))
    report = SkewReport("by customer", ("customer",), 100, 100, heavy, 0.01)
    samples = query_samples("shop", [batch(skew=(report,))], MORNING)
    assert found(samples, "holdfast_key_share_ratio") == {("shop", "visits", "by customer"): 0.6}


def test_counters_go_on() -> None:
    totals = JobTotals()
    totals.add(batch(0))
    again = JobTotals(totals.values)
    again.add(batch(1, late_events=3))
    samples = again.samples("shop")
    assert one(samples, "holdfast_batches_total") == 2
    assert one(samples, "holdfast_input_rows_total") == 200
    assert one(samples, "holdfast_late_rows_total") == 2 + 2 + 3
    assert one(samples, "holdfast_state_rows_updated_total") == 8
    assert one(samples, "holdfast_state_rows_removed_total") == 2
    assert found(samples, "holdfast_state_operations_total") == {
        ("shop", "visits", "0 dedupe", "get"): 600,
        ("shop", "visits", "0 dedupe", "put"): 200,
    }
    seconds = found(samples, "holdfast_state_operations_seconds_total")
    assert seconds["shop", "visits", "0 dedupe", "get"] == pytest.approx(0.12)


def test_a_job_is_more_than_its_batches() -> None:
    facts = JobFacts(
        "shop",
        started_ms=MORNING - 60 * MINUTE,
        running_ms=MORNING - 2 * MINUTE,
        restarts=3,
        failures={"query": 2, "process": 1},
        failed_ms=(MORNING - 20 * MINUTE, MORNING - 2 * MINUTE, MORNING),
        recovery_ms=4_000,
        savepoints={"visits": TakenSavepoint(MORNING - 30 * MINUTE, 1_200, 77), "sales": None},
        drills_ms={"visits": 9_000},
    )
    samples = job_samples(facts, MORNING)
    assert found(samples, "holdfast_checkpoint_failures_total") == {
        ("shop", "query"): 2,
        ("shop", "process"): 1,
    }
    assert one(samples, "holdfast_checkpoint_failures_lately") == 2
    assert one(samples, "holdfast_recovery_seconds") == 4
    assert one(samples, "holdfast_uptime_seconds") == 120
    assert one(samples, "holdfast_restarts_total") == 3
    assert found(samples, "holdfast_savepoint_age_seconds") == {
        ("shop", "visits"): 1800,
        ("shop", "sales"): 3600,
    }
    assert one(samples, "holdfast_savepoint_duration_seconds") == 1.2
    assert one(samples, "holdfast_savepoint_bytes") == 77
    assert one(samples, "holdfast_drill_seconds") == 9


def test_a_recovery_counts_while_it_lasts() -> None:
    facts = JobFacts("shop", recovery_ms=4_000, recovering_since_ms=MORNING - 400_000)
    assert one(job_samples(facts, MORNING), "holdfast_recovery_seconds") == 400
    assert one(job_samples(facts, MORNING), "holdfast_recovery_lately_seconds") == 400


@pytest.mark.parametrize(
    ("busy_since_ms", "seconds"),
    [
        (None, 15),  # it took 15 s until the queries ran; they have waited for rows since
        (MORNING - 30_000, 45),
        (MORNING - 800_000, 415),  # since before it failed: the first batch runs since the queries do
    ],
)
def test_a_recovery_does_not_count_the_wait_for_rows(busy_since_ms: int | None, seconds: int) -> None:
    facts = JobFacts("shop", running_ms=MORNING - 400_000, recovering_since_ms=MORNING - 415_000)
    samples = job_samples(facts, MORNING, busy_since_ms)
    assert one(samples, "holdfast_recovery_seconds") == seconds
    assert one(samples, "holdfast_recovery_lately_seconds") == seconds


def test_a_recovery_is_of_late_for_ten_minutes_and_in_one_run() -> None:
    facts = JobFacts("shop", started_ms=MORNING, recovery_ms=400_000, recovered_ms=MORNING + 500_000)

    def lately(facts: JobFacts, at_ms: int) -> dict[tuple[str, ...], float]:
        return found(job_samples(facts, at_ms), "holdfast_recovery_lately_seconds")

    assert lately(facts, MORNING + 500_000) == {("shop",): 400}
    assert lately(facts, MORNING + 500_000 + 10 * MINUTE - 1) == {("shop",): 400}
    assert lately(facts, MORNING + 500_000 + 10 * MINUTE) == {}
    # The next run of the job has not recovered from anything.
    assert lately(replace(facts, started_ms=MORNING + 500_001), MORNING + 500_001) == {}
    assert one(job_samples(facts, MORNING + 60 * MINUTE), "holdfast_recovery_seconds") == 400
    # A failure soon after it does not hide it.
    again = replace(facts, recovering_since_ms=MORNING + 520_000)
    assert lately(again, MORNING + 521_000) == {("shop",): 400}


def test_the_files_of_a_checkpoint_give_its_partitions(tmp_path: Path) -> None:
    place = golden_on_disk("4.2/aggregate-changelog", tmp_path / "checkpoint")
    facts = look(LocalStorage(place), MORNING)
    assert (facts.batch_id, facts.format_version) == (11, 1)
    samples = file_samples("shop", "visits", facts)
    sizes = found(samples, "holdfast_partition_bytes")
    assert [labels[4] for labels in sizes] == ["0", "1"]
    assert sum(sizes.values()) == one(samples, "holdfast_checkpoint_bytes") == facts.size_bytes
    assert sum(found(samples, "holdfast_partition_share_ratio").values()) == pytest.approx(1)
    assert one(samples, "holdfast_state_format_version") == 1
    # Each partition: a base and the changes since.
    on_disk = [
        each.stat().st_size
        for partition in ("0", "1")
        for each in (place / "state/0" / partition).glob("12.changelog")
    ]
    assert one(samples, "holdfast_checkpoint_new_bytes") == sum(on_disk)
    with pytest.raises(NotFound):
        look(LocalStorage(tmp_path / "nothing"), MORNING)
    # On the heap there is but one format, and nothing to do about it.
    heap = golden_on_disk("4.2/aggregate-memory", tmp_path / "heap")
    assert look(LocalStorage(heap), MORNING).format_version is None


def test_skew_is_told_of_stores_large_enough() -> None:
    mib = 1 << 20
    large = StoreFiles("0 dedupe", "default", (60 * mib, 10 * mib, 10 * mib, 0), (None,) * 4)
    assert large.skew == 3.0
    assert StoreFiles("0 dedupe", "default", (600, 1), (None,) * 2).skew is None
    assert StoreFiles("0 dedupe", "default", (60 * mib,), (None,)).skew is None
    facts = FileFacts(MORNING, 3, MORNING - 60_000, 2, 8, 10, (large, large))
    samples = alone_samples("shop", "visits", facts, MORNING)
    assert one(samples, "holdfast_state_bytes") == 160 * mib
    assert one(samples, "holdfast_watermark_lag_seconds") == 60
    assert one(samples, "holdfast_batch_id") == 3


def all_metrics() -> list[MetricSample]:
    return [
        MetricSample(metric.name, tuple(f'{label} "of" \\ it\n' for label in metric.labels), number + 0.5)
        for number, metric in enumerate(METRICS)
    ]


def test_prometheus_reads_every_metric_as_it_was() -> None:
    families = text_string_to_metric_families(as_text(all_metrics()))
    read = {each.name: (each.labels, each.value) for family in families for each in family.samples}
    assert read == {each.metric: (each.named, each.value) for each in all_metrics()}


def test_names_of_metrics_say_kind_and_unit() -> None:
    assert len(BY_NAME) == len(METRICS)
    for metric in METRICS:
        assert metric.name.endswith("_total") == (metric.kind == "counter")
        assert metric.meaning.endswith(".")
        if metric.unit in ("seconds", "bytes", "ratio"):
            assert metric.name.removesuffix("_total").endswith(metric.unit)


def test_samples_are_packed_and_read_back() -> None:
    listed = all_metrics()
    assert unpacked(packed(listed)) == tuple(listed)
    assert unpacked([["holdfast_of_a_newer_version", ["x"], 1], ["holdfast_up", ["a", "b"], 1]]) == ()
    with pytest.raises(ValueError, match="has the labels"):
        sample("holdfast_up", 1)


def test_a_port_answers_prometheus() -> None:
    server = MetricsServer(all_metrics, 0)
    try:
        with urllib.request.urlopen(server.url) as answer:
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            assert answer.read().decode() == as_text(all_metrics())
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(server.url + "/other")
        assert refused.value.code == 404
        refused.value.close()
        with pytest.raises(Unavailable, match="cannot open the metrics endpoint"):
            MetricsServer(all_metrics, server.port)
    finally:
        server.close()
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(server.url)


def ended(client: socket.socket) -> bool:
    """Whether the other side has ended a connection, waiting for it for a while."""
    client.settimeout(30)
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True


def scraped(server: MetricsServer) -> str:
    """What a port answers to a scrape."""
    with urllib.request.urlopen(server.url, timeout=8) as answer:
        text: str = answer.read().decode()
        return text


def test_a_client_that_says_nothing_keeps_no_scrape_waiting() -> None:
    server = MetricsServer(all_metrics, 0)
    try:
        with socket.create_connection(("127.0.0.1", server.port)) as silent:
            silent.sendall(b"GET /met")
            assert scraped(server) == as_text(all_metrics())
    finally:
        server.close()


def test_a_client_that_sends_byte_by_byte_is_ended(capfd: pytest.CaptureFixture[str]) -> None:
    server = MetricsServer(all_metrics, 0, within=ScrapeBounds(head_s=0.3))
    try:
        with socket.create_connection(("127.0.0.1", server.port)) as slow:
            head = iter(b"GET /metrics HTTP/1.0\r\nX: " + b"x" * 2_000)
            with suppress(OSError):
                while not select.select([slow], [], [], 0.05)[0]:
                    slow.sendall(bytes([next(head)]))
                assert slow.recv(1) == b""
        assert scraped(server)
    finally:
        server.close()
    assert capfd.readouterr().err == ""


def test_where_all_connections_are_taken_the_oldest_silent_one_makes_room() -> None:
    server = MetricsServer(all_metrics, 0, within=ScrapeBounds(connections=2))
    try:
        clients = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(2)]
        assert scraped(server)
        assert ended(clients[0])
        clients[1].sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        assert clients[1].recv(12) == b"HTTP/1.0 200"
        for client in clients:
            client.close()
    finally:
        server.close()


def test_an_error_in_measuring_is_answered_and_reported(capfd: pytest.CaptureFixture[str]) -> None:
    def broken() -> list[MetricSample]:
        raise ArithmeticError("no numbers today")

    server = MetricsServer(broken, 0)
    try:
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(server.url, timeout=8)
        assert refused.value.code == 500
        refused.value.close()
    finally:
        server.close()
    assert "no numbers today" in capfd.readouterr().err


def test_batches_are_noted_and_read_back_with_all_they_tell() -> None:
    assert BatchProgress.from_dict(batch().as_dict()) == batch()
    # As an older Holdfast noted one.
    former = batch().as_dict()
    for name in ("phases_ms", "input_rate", "processed_rate"):
        del former[name]
    del former["operators"][0]["store"]
    assert query_samples("shop", [BatchProgress.from_dict(former)], MORNING)


def keyed(name: str, **changed: Any) -> OperatorProgress:
    fields: dict[str, Any] = {
        "name": name,
        "keys": 12,
        "timers": 3,
        "size_bytes": 4_000,
        "uncounted_groups": 0,
        "touched": 30,
        "written": 10,
        "added": 1,
        "removed": 2,
        "expired": 4,
        "events": 50,
        "late": 0,
        "failed": 0,
        "read_us": 60_000,
        "write_us": 20_000,
        "states": (KeyedState("total", 11, 88, 4), KeyedState("seen", 40, 320, 0)),
    }
    counted = KeyedProgress(**{**fields, **changed})
    return operator(name=name, rows=counted.keys, updated=10, removed=2, keyed=counted)


def test_two_keyed_operators_are_told_apart_by_their_names_and_count_keys() -> None:
    one_batch = batch(operators=(keyed("visits"), keyed("items", keys=7, timers=0, states=())))
    samples = query_samples("shop", [one_batch], MORNING)
    visits, items = (("shop", "visits", name) for name in ("0 visits", "1 items"))
    assert found(samples, "holdfast_state_rows") == {visits: 12, items: 7}
    assert found(samples, "holdfast_state_timers") == {visits: 3, items: 0}
    assert found(samples, "holdfast_state_entries") == {(*visits, "total"): 11, (*visits, "seen"): 40}
    assert found(samples, "holdfast_state_entries_bytes") == {(*visits, "total"): 88, (*visits, "seen"): 320}
    # 80 ms for 30 keys that were looked up and 10 that were written.
    assert found(samples, "holdfast_state_access_seconds")[visits] == pytest.approx(0.002)
    assert not found(samples, "holdfast_state_access_quantile_seconds")
    totals = JobTotals()
    totals.add(one_batch)
    totals.add(one_batch)
    counted = totals.samples("shop")

    def key_of(label: str) -> tuple[str, ...]:
        return (*visits, label)

    assert found(counted, "holdfast_state_expired_total")[key_of("total")] == 8
    assert found(counted, "holdfast_state_operations_total")[key_of("get")] == 60
    assert found(counted, "holdfast_state_operations_seconds_total")[key_of("put")] == pytest.approx(0.04)


def test_the_reads_and_writes_of_tasks_have_quantiles() -> None:
    # Eight of up to 64 µs, and two of 128 to 256 µs.
    samples = query_samples(
        "shop", [batch(operators=(keyed("visits", accesses=(8, 0, 2, *[0] * 17)),))], MORNING
    )
    by_share = found(samples, "holdfast_state_access_quantile_seconds")
    assert {labels[-1]: value for labels, value in by_share.items()} == {
        "0.5": pytest.approx(40e-6),
        "0.95": pytest.approx(224e-6),
        "0.99": pytest.approx(249.6e-6),
        "1": pytest.approx(256e-6),
    }


def test_totals_that_are_not_known_are_no_numbers() -> None:
    states = (KeyedState("total", None, None, 4),)
    unknown = keyed("visits", keys=None, timers=None, uncounted_groups=3, states=states)
    samples = query_samples("shop", [batch(operators=(unknown,))], MORNING)
    for metric in ("holdfast_state_rows", "holdfast_state_timers", "holdfast_state_entries"):
        assert not found(samples, metric)
    assert one(samples, "holdfast_state_uncounted_groups") == 3


@pytest.mark.parametrize(
    ("took_ms", "busy_ms", "seconds"),
    [(300_000, None, 0), (307_000, None, 7), (250_000, 240_000, 0), (300_000, 375_000, 75)],
)
def test_in_real_time_mode_only_what_goes_beyond_the_interval_counts(
    took_ms: int, busy_ms: int | None, seconds: float
) -> None:
    batch = BatchProgress("visits", 3, MORNING, 40, took_ms, None, (), interval_ms=300_000, real_time=True)
    now = MORNING + 500_000
    began = None if busy_ms is None else now - busy_ms
    found = {each.metric: each.value for each in query_samples("shop", [batch], now, busy_since_ms=began)}
    assert found["holdfast_checkpoint_duration_seconds"] == seconds
