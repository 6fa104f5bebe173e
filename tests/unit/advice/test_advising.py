"""Advice: each kind has facts in which it is given, the nearest in which it is not, and its cost by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from made_facts import MB, facts

from golden import NAMES, STATELESS, UNNAMED, golden
from holdfast.advice.advice import Advice, Confidence, Topic
from holdfast.advice.advising import ALL_TOPICS, KINDS, Planned, on_checkpoint, on_plan
from holdfast.advice.checkpoint_checks import (
    CheckpointFacts,
    CheckpointLocation,
    FileCounts,
    Lasting,
    checkpoint_findings,
)
from holdfast.advice.evidence import (
    CASSANDRA,
    GUIDE,
    GUIDE_TEXT,
    Evidence,
    MeasuredBackends,
    Needs,
    read_evidence,
)
from holdfast.advice.findings import Severity
from holdfast.advice.prices import Prices
from holdfast.advice.rules import RULES
from holdfast.advice.usage import QueryShape, daily_requests
from holdfast.config.spark_defaults import (
    ABORTABLE_MANAGER,
    CASSANDRA_PROVIDER,
    FILE_MANAGER_KEY,
    MEMORY_PROVIDER,
    ROCKSDB_PROVIDER,
    SHUFFLE_PARTITIONS_KEY,
)
from holdfast.formats.logs.batch_logs import PROVIDER
from holdfast.model import BatchProgress, OperatorProgress

GB = 1 << 30
GUIDES = MeasuredBackends(GUIDE, GUIDE_TEXT)
SHARED = CheckpointLocation(Lasting.SHARED, "nfs4")
BOUNDED = "spark.sql.streaming.stateStore.rocksdb.boundedMemoryUsage"
S3 = "s3a://bucket/ck"
ON_S3 = {BOUNDED: "true", FILE_MANAGER_KEY: ABORTABLE_MANAGER}


def batches(count: int = 10, **fields: Any) -> tuple[BatchProgress, ...]:
    """Batches of a job that are well, but for what is given of them or of their operator."""
    rest = {name: value for name, value in fields.items() if name in OperatorProgress.__dataclass_fields__}
    own = {name: value for name, value in fields.items() if name not in rest}
    usual: dict[str, Any] = {
        "rows": 4000, "updated": 10, "removed": 0, "late_rows": 0, "memory_bytes": 0, "commit_ms": 40,
        "partitions": 4,
    }  # fmt: skip
    operator = OperatorProgress("stateStoreSave", **{**usual, **rest})
    default: dict[str, Any] = {
        "input_rows": 500, "duration_ms": 5_000, "watermark": None, "operators": (operator,),
        "phases_ms": {"addBatch": 4_000, "walCommit": 30}, "input_rate": 50.0, "processed_rate": 100.0,
        "load_ms": 0,
    }  # fmt: skip
    return tuple(BatchProgress("q", number, number * 10_000, **{**default, **own}) for number in range(count))


def evidence(
    made: CheckpointFacts | None = None,
    *,
    gap_ms: float | None = 60_000,
    span_ms: int | None = 300_000,
    kept_bytes: int = 0,
    place: CheckpointLocation = SHARED,
    job: tuple[BatchProgress, ...] = (),
    conf: Mapping[str, str] | None = None,
    prices: Prices | None = None,
    **needs: Any,
) -> Evidence:
    """What is known where nothing could be better, but for what is given."""
    known = Needs(confs=conf or {BOUNDED: "true"}, **needs)
    return Evidence(
        made or facts(), place, gap_ms, span_ms, kept_bytes, job, known, GUIDES, prices or Prices()
    )


def given(known: Evidence) -> list[Advice]:
    return list(on_checkpoint(known, ALL_TOPICS).advice)


def ids(known: Evidence) -> list[str]:
    return [each.id for each in given(known)]


def only(known: Evidence) -> Advice:
    (advice,) = given(known)
    return advice


GROWING = [MB * (10 + step) for step in range(12)]
ENDLESS = facts(GROWING, watermark_ms=None, watermarks=(None, None))
IN_CASSANDRA = facts(provider=CASSANDRA_PROVIDER)
BEHIND = batches(input_rate=100.0, processed_rate=90.0)
# An id, what it is given for, and the nearest for which it is not.
PAIRS = [
    (
        "AD101",
        evidence(facts(provider=MEMORY_PROVIDER, store_bytes=[25 * MB] * 4)),
        evidence(facts(provider=MEMORY_PROVIDER, store_bytes=[24 * MB] * 4)),
    ),
    ("AD102", evidence(shared=True), evidence(IN_CASSANDRA, shared=True)),
    (
        "AD103",
        # 414 ms, and 3,262 ms for each 990,000 rows more than 10,000: a minute has 18.1 million.
        evidence(facts(partitions=2, rows=9_100_000)),
        evidence(facts(partitions=2, rows=9_000_000)),
    ),
    (
        "AD104",
        evidence(IN_CASSANDRA, job=batches(updated=2000)),
        evidence(IN_CASSANDRA, job=batches(updated=1999)),
    ),
    ("AD201", evidence(place=CheckpointLocation(Lasting.DISK, "ext4")), evidence()),
    # Four files each 3.4 seconds are 101,647 a day, each 3.5 seconds 98,743.
    ("AD202", evidence(gap_ms=3_400), evidence(gap_ms=3_500)),
    ("AD202", evidence(gap_ms=3_400), evidence(facts(new_bytes=64 << 10), gap_ms=3_400)),
    ("AD202", evidence(gap_ms=3_400), evidence(gap_ms=3_400, latency_ms=9_999)),
    ("AD203", evidence(facts(files=FileCounts(2, 0))), evidence(facts(files=FileCounts(2, 1)))),
    ("AD204", evidence(facts(changes=21)), evidence(facts(changes=20))),
    (
        "AD205",
        evidence(facts(kept=61), kept_bytes=GB, gap_ms=90_000),
        evidence(facts(kept=61), kept_bytes=GB - 1, gap_ms=90_000),
    ),
    (
        "AD205",
        evidence(facts(kept=61), kept_bytes=GB, gap_ms=90_000),
        evidence(facts(kept=40), kept_bytes=GB, gap_ms=90_000),
    ),
    ("AD206", evidence(facts(kept=2)), evidence(facts(kept=3))),
    (
        "AD207",
        evidence(job=batches(phases_ms={"walCommit": 1_000, "commitOffsets": 500})),
        evidence(job=batches(phases_ms={"walCommit": 1_000, "commitOffsets": 499})),
    ),
    (
        "AD208",
        evidence(facts(uri=S3)),
        evidence(facts(uri=S3), conf=ON_S3),
    ),
    ("AD208", evidence(facts(uri=S3)), evidence(facts(uri="gs://bucket/ck"))),
    ("AD301", evidence(facts(partitions=32, rows=99)), evidence(facts(partitions=32, rows=100))),
    ("AD302", evidence(facts(rows=1000), cores=8), evidence(facts(rows=199), cores=8)),
    ("AD302", evidence(facts(rows=1000), cores=8), evidence(facts(rows=1000), cores=4)),
    ("AD302", evidence(cores=8), evidence(cores=8, gap_ms=10_001, job=batches())),
    ("AD303", evidence(facts(partitions=9), cores=8), evidence(facts(partitions=12), cores=8)),
    (
        "AD304",
        evidence(facts(store_bytes=[3 * MB, MB, MB, MB])),
        evidence(facts(store_bytes=[2 * MB, MB, MB, MB])),
    ),
    ("AD305", evidence(facts(store_bytes=[2 * GB] * 3)), evidence(facts(store_bytes=[2 * GB - 1] * 3))),
    ("AD306", evidence(job=BEHIND), evidence(job=BEHIND[:7] + batches(3))),
    # Two tasks load side by side: a second of both is half a second of the batch.
    ("AD307", evidence(job=batches(load_ms=1_000)), evidence(job=batches(load_ms=999))),
    ("AD401", evidence(facts(partitions=8), conf={"x": "y"}), evidence(facts(partitions=7), conf={"x": "y"})),
    (
        "AD401",
        evidence(facts(partitions=8), conf={"x": "y"}),
        evidence(facts(partitions=8), conf={BOUNDED: "true"}),
    ),
    (
        "AD402",
        evidence(
            job=batches(store={"rocksdbReadBlockCacheHitCount": 799, "rocksdbReadBlockCacheMissCount": 201})
        ),
        evidence(
            job=batches(store={"rocksdbReadBlockCacheHitCount": 800, "rocksdbReadBlockCacheMissCount": 200})
        ),
    ),
    (
        "AD403",
        evidence(job=batches(store={"rocksdbWriterStallLatencyMs": 500})),
        evidence(job=batches(store={"rocksdbWriterStallLatencyMs": 499})),
    ),
    ("AD404", evidence(ENDLESS), evidence(facts(GROWING, watermarks=(7, 8)))),
    (
        "AD404",
        evidence(facts(name="dedupe", watermark_ms=None, watermarks=(None, None))),
        evidence(facts(name="dedupe")),
    ),
]


@pytest.mark.parametrize(("id_", "bad", "good"), PAIRS, ids=[f"{id_}" for id_, _, _ in PAIRS])
def test_one_thing_makes_the_difference(id_: str, bad: Evidence, good: Evidence) -> None:
    assert id_ in ids(bad)
    assert id_ not in ids(good)


def test_every_kind_has_a_pair() -> None:
    assert {id_ for id_, _, _ in PAIRS} | {"AD308"} == set(KINDS)


def test_nothing_is_advised_where_nothing_could_be_better() -> None:
    assert ids(evidence(cores=4, job=batches())) == []


def test_a_job_of_too_few_batches_tells_nothing() -> None:
    assert ids(evidence(job=BEHIND[:9])) == []


def test_files_that_partitions_too_many_write() -> None:
    """64 partitions on 8 cores: 56 files in each of 1,440 batches a day, and 56 of 64 parts of a commit."""
    known = evidence(
        facts(partitions=64, rows=99), cores=8, job=batches(commit_ms=640, partitions=64)
    )  # fmt: skip
    advice = only(known)
    assert advice.cost.files_a_day == 56 * 1_440
    assert advice.cost.batch_ms == 640 * 56 / 64 / 8
    assert advice.commands == ("holdfast rescale memory://ck NEW --partitions 8 --confirm-stopped",)
    assert advice.rule == "HF601"


def test_time_of_idle_cores() -> None:
    """4 of 16 cores have a partition: of 4 s of work 12 of 16 parts."""
    advice = only(evidence(cores=16, gap_ms=6_000, job=batches(duration_ms=5_000)))
    assert (advice.id, advice.sureness) == ("AD302", Confidence.LIKELY)
    assert advice.cost.batch_ms == 3_000


def test_time_of_the_last_round() -> None:
    """9 partitions on 8 cores take two rounds, and 7 of 16 places stay empty."""
    advice = only(evidence(facts(partitions=9), cores=8, job=batches()))
    assert advice.cost.batch_ms == 4_000 * 7 / 16
    assert advice.commands == ("holdfast rescale memory://ck NEW --partitions 8 --confirm-stopped",)


def test_requests_and_money_of_small_files() -> None:
    """A batch each second, of 4 stores, at 5 s instead, by the model of requests that `cost` has."""
    prices = Prices(writes=0.000_005, reads=0.000_000_4)
    known = evidence(facts(uri=S3), gap_ms=1_000, prices=prices, conf=ON_S3)
    advice = only(known)
    assert advice.severity is Severity.WARNING
    assert advice.commands == ('.trigger(processingTime="5 seconds")',)
    assert advice.cost.files_a_day == 4 * (86_400 - 17_280)
    shape = QueryShape(stores=4)
    before, after = (daily_requests(shape, ms).total for ms in (1_000, 5_000))
    assert advice.cost.requests_a_day == pytest.approx(before.total - after.total)
    # Listings without a price of their own cost what writes do; a month has 730 hours.
    writes = before.writes + before.lists - after.writes - after.lists
    a_day = writes * 0.000_005 + (before.reads - after.reads) * 0.000_000_4
    assert advice.cost.money_a_month == pytest.approx(a_day * 730 / 24)


def test_requests_of_renames() -> None:
    """Four stores and two logs in each of 1,440 batches a day.

    Before a rename FileContext asks for source, target and target's parent, of which the last two are not
    there as files: 1 + 2 + 2 requests, twice. The rename asks for the source, the target and the source, and
    then copies and deletes: 1 + 2 + 1 + 2.
    """
    advice = only(evidence(facts(uri=S3)))
    assert advice.cost.requests_a_day == 6 * 1_440 * 16
    assert (advice.sureness, advice.rule) == (Confidence.GUESS, "HF408")
    usual = {BOUNDED: "true", FILE_MANAGER_KEY: "org.apache.Usual"}
    assert only(evidence(facts(uri=S3), conf=usual)).sureness is Confidence.CERTAIN


def test_time_of_a_long_replay() -> None:
    """30 changes of 1 MiB in each of 4 stores, at the 139 bytes that the guide's RocksDB keeps of a key.

    905,000 keys are 895,000 more than 10,000, at 3,262 ms for each 990,000, by two tasks as there.
    """
    advice = only(evidence(facts(changes=30, new_bytes=MB), gap_ms=600_000))
    keys = 4 * 30 * MB / 139
    assert advice.cost.recovery_ms == pytest.approx((keys - 10_000) * (3_676 - 414) / 990_000)
    assert advice.commands == (
        'spark.conf.set("spark.sql.streaming.stateStore.minDeltasForSnapshot", "10")',
    )  # fmt: skip


def test_quick_batches_have_snapshots_when_maintenance_runs() -> None:
    found = [
        each for each in given(evidence(facts(changes=30, new_bytes=MB), gap_ms=1_500)) if each.id == "AD204"
    ]
    assert found[0].commands == (
        'spark.conf.set("spark.sql.streaming.stateStore.maintenanceInterval", "15s")',
    )


def test_what_is_kept_beyond_an_hour_has_a_price() -> None:
    """A batch each 90 s: 40 an hour, of 80 that are kept with 8 GiB: half of it, at 0.023 a GB-month."""
    advice = only(
        evidence(facts(kept=80, batch_id=100, uri=S3), gap_ms=90_000, kept_bytes=8 * GB, conf=ON_S3)
    )
    assert (advice.id, advice.cost.disk_bytes) == ("AD205", 4 * GB)
    assert advice.cost.money_a_month == pytest.approx(4 * GB / 10**9 * 0.023)
    assert advice.commands == ('spark.conf.set("spark.sql.streaming.minBatchesToRetain", "40")',)


def test_growth_of_a_day() -> None:
    """10 MiB is the least of the first third, 18 of the last: 8 more in two thirds of five minutes."""
    advice = only(evidence(ENDLESS, span_ms=300_000))
    assert advice.cost.disk_bytes == 8 * MB * 86_400 // 200
    assert advice.commands == ("holdfast ttl memory://ck --what-if 24h",)


def test_memory_of_unbounded_stores() -> None:
    """8 stores, each with 8 MiB of cache and two buffers of 64 MiB; or as the session has set them."""
    made = facts(partitions=8)
    guess = only(evidence(made, conf={"x": "y"}))
    assert (guess.sureness, guess.cost.memory_bytes) == (Confidence.GUESS, 8 * 136 * MB)
    rocksdb = "spark.sql.streaming.stateStore.rocksdb"
    conf = {BOUNDED: "false", f"{rocksdb}.blockCacheSizeMB": "200", f"{rocksdb}.writeBufferSizeMB": "10"}
    certain = only(evidence(made, conf=conf))
    assert (certain.sureness, certain.cost.memory_bytes) == (Confidence.CERTAIN, 8 * 220 * MB)
    assert only(evidence(made, conf={BOUNDED: "false"}, own_session=True)).id == "AD401"
    assert ids(evidence(made, conf={"x": "y"}, own_session=True)) == []


def test_state_in_memory_is_what_the_job_reports() -> None:
    made = facts(provider=MEMORY_PROVIDER, store_bytes=[25 * MB] * 4)
    reckoned, told = only(evidence(made)), only(evidence(made, job=batches(1, memory_bytes=GB)))
    assert (reckoned.sureness, reckoned.cost.memory_bytes) == (Confidence.LIKELY, 200 * MB)
    assert (told.sureness, told.cost.memory_bytes) == (Confidence.CERTAIN, GB)


def test_the_worst_comes_first() -> None:
    known = evidence(
        facts(GROWING, watermark_ms=None, watermarks=(None, None), partitions=32, rows=10),
        place=CheckpointLocation(Lasting.MEMORY, "tmpfs"),
        conf={"x": "y"},
    )
    # An error, what is likely, what is a guess, then a note.
    assert ids(known) == ["AD201", "AD404", "AD401", "AD301"]


def test_a_topic_narrows_it() -> None:
    known = evidence(facts(partitions=32, rows=99), place=CheckpointLocation(Lasting.DISK, "ext4"))
    report = on_checkpoint(known, {Topic.PARTITIONS})
    assert [each.id for each in report.advice] == ["AD301"]
    assert (report.topics, report.backends, report.places) == ((Topic.PARTITIONS,), (), ())


def test_nothing_is_said_in_two_ways() -> None:
    """What advice covers is not among the rules that lint has more of; what it does not cover is."""
    known = evidence(facts(form=1, files=FileCounts(2, 0)))
    report = on_checkpoint(known, ALL_TOPICS)
    assert [each.rule for each in report.advice] == ["HF308"]
    assert report.lint == ("HF310",)
    assert {kind.rule for kind in KINDS.values() if kind.rule} <= set(RULES)


@pytest.mark.parametrize("name", [*NAMES, *UNNAMED, STATELESS])
def test_real_checkpoints_are_read(name: str) -> None:
    storage = golden(name)
    known = read_evidence(storage, (), Needs(), GUIDES, Prices())
    report = on_checkpoint(known, ALL_TOPICS)
    assert report.batch_id == known.checkpoint.batch_id
    reported = {rule for rule, _ in checkpoint_findings(known.facts)}
    assert reported == {each.rule for each in report.advice if each.rule} | set(report.lint)
    stateful = name != STATELESS
    assert [option.advised for option in report.backends].count(True) == stateful
    assert [option.advised for option in report.places].count(True) == 1
    assert [option.now for option in report.backends].count(True) == stateful


def test_the_pace_of_a_real_checkpoint() -> None:
    """Its offset logs are 766, 507, 1005, 1130, 1030 and 1081 ms apart: 1,017.5 in the median."""
    known = read_evidence(golden("4.2/aggregate-format2"), (), Needs(), GUIDES, Prices())
    assert (known.gap_ms, known.stores, known.rows) == (1_017.5, 2, 10)
    advice = next(each for each in on_checkpoint(known, ALL_TOPICS).advice if each.id == "AD202")
    # Two files in each of 84,914 batches, of which a batch each two seconds has 43,200.
    assert advice.cost.files_a_day == pytest.approx(2 * (86_400 / 1.0175 - 43_200))


def test_backends_of_a_checkpoint() -> None:
    """A million rows: what the guide has measured of as many."""
    report = on_checkpoint(evidence(facts(partitions=2, rows=500_000, store_bytes=[MB, MB])), {Topic.BACKEND})
    by_name = {option.name: option for option in report.backends}
    assert {name: option.recovery_ms for name, option in by_name.items()} == {
        "memory": 1_626, "rocksdb": 3_676, "redis": 365, "cassandra": 588,
    }  # fmt: skip
    assert [name for name, option in by_name.items() if option.advised] == ["rocksdb"]
    assert by_name["rocksdb"].now


@pytest.mark.parametrize(
    ("known", "advised"),
    [
        (evidence(), "rocksdb"),
        (evidence(facts(provider=MEMORY_PROVIDER)), "memory"),
        (evidence(facts(provider=MEMORY_PROVIDER, store_bytes=[25 * MB] * 4)), "rocksdb"),
        (evidence(IN_CASSANDRA), "cassandra"),
        (evidence(IN_CASSANDRA, job=batches(updated=2000)), "rocksdb"),
        (evidence(shared=True), "redis"),
        (evidence(facts(name="transformWithStateInPandasExec"), latency_ms=500), "rocksdb"),
    ],
)
def test_the_backend_of_a_checkpoint(known: Evidence, advised: str) -> None:
    options = on_checkpoint(known, {Topic.BACKEND}).backends
    assert [option.name for option in options if option.advised] == [advised]
    assert all(option.fits for option in options if option.advised)


def test_state_of_transform_with_state_is_in_rocksdb_alone() -> None:
    known = evidence(facts(name="transformWithStateInPandasExec"), shared=True)
    options = on_checkpoint(known, {Topic.BACKEND}).backends
    assert [option.name for option in options if option.fits or option.advised] == []
    advice = only(known)
    assert (advice.id, advice.commands) == ("AD102", ())


def test_what_removes_nothing_names_its_own_rule() -> None:
    assert only(evidence(facts(name="dedupe", watermark_ms=None, watermarks=(None, None)))).rule == "HF604"
    assert only(evidence(ENDLESS)).rule == "HF602"


@pytest.mark.parametrize(
    ("needs", "keys", "advised"),
    [
        ({}, 1_000_000, "rocksdb"),
        ({"latency_ms": 1_000}, 1_000_000, "memory"),
        ({"latency_ms": 1_001}, 1_000_000, "rocksdb"),
        ({"latency_ms": 1_000}, 100_000_000, "rocksdb"),
        ({"shared": True}, 1_000_000, "redis"),
        ({"shared": True}, 100_000_000, CASSANDRA),
        ({"shared": True, "latency_ms": 86_400_000}, 100_000_000, CASSANDRA),
    ],
)
def test_the_backend_of_a_plan(needs: dict[str, Any], keys: int, advised: str) -> None:
    report = on_plan(Planned(10_000_000, keys), Needs(**needs), GUIDES, Prices(), ALL_TOPICS)
    assert [option.name for option in report.backends if option.advised] == [advised]
    assert report.settings[PROVIDER] == report.backends[0].settings[PROVIDER] or advised != "memory"


def test_a_plan_has_settings_and_a_forecast() -> None:
    """A core works off 132,550 rows a second on RocksDB: twice 300,000 need five."""
    report = on_plan(Planned(300_000, 1_000_000), Needs(latency_ms=30_000), GUIDES, Prices(), ALL_TOPICS)
    assert report.settings[PROVIDER] == ROCKSDB_PROVIDER
    assert report.settings[SHUFFLE_PARTITIONS_KEY] == "5"
    assert report.forecast is not None
    assert (report.forecast.plan.interval_ms, report.forecast.plan.partitions) == (15_000, 5)
    assert report.advice == ()
    few = on_plan(Planned(300_000, 1_000_000), Needs(cores=2), GUIDES, Prices(), ALL_TOPICS)
    assert [each.id for each in few.advice] == ["AD308"]
    # Two cores leave 34,900 rows a second.
    assert few.advice[0].cost.what.startswith("the backlog grows by 3,020,000,000 rows")


def test_a_plan_of_few_keys_has_few_partitions() -> None:
    """A hundred keys in each, at least."""
    partitions = {
        keys: on_plan(Planned(10, keys), Needs(cores=64), GUIDES, Prices(), ALL_TOPICS).forecast
        for keys in (10, 1_000, 6_399, 6_400)
    }
    assert [found.plan.partitions for found in partitions.values() if found] == [2, 10, 63, 64]


def test_a_plan_says_what_is_not_known_of_it() -> None:
    files, database = (
        on_plan(Planned(10, 10), Needs(shared=shared), GUIDES, Prices(), ALL_TOPICS).not_told
        for shared in (False, True)
    )
    assert [what.partition(":")[0] for what in files] == [
        "the number of cores",
        "the cost of requests and memory",
    ]
    assert [what.partition(":")[0] for what in database] == [
        "the number of cores",
        "the cost of the database",
        "the cost of requests and memory",
    ]


def test_the_place_of_a_plan() -> None:
    slow = on_plan(Planned(10, 10), Needs(latency_ms=20_000), GUIDES, Prices(), {Topic.CHECKPOINT})
    quick = on_plan(Planned(10, 10), Needs(latency_ms=19_999), GUIDES, Prices(), {Topic.CHECKPOINT})
    assert [option.name for option in slow.places if option.advised] == ["s3"]
    assert [option.name for option in quick.places if option.advised] == ["hdfs"]
