"""What the files of checkpoints tell: real ones, and facts in which one thing differs."""

from __future__ import annotations

import pytest
from made_facts import MB, facts

from golden import NAMES, STATELESS, UNNAMED, golden, golden_files, golden_with_confs
from holdfast.advice.checkpoint_checks import CheckpointFacts, FileCounts, checkpoint_findings, read_facts
from holdfast.advice.findings import FindingEvidence
from holdfast.advice.rules import PROGRESS_RULES, RULES
from holdfast.checkpoints.checkpoint import state_bytes
from holdfast.checkpoints.naming import pinned_by
from holdfast.config.spark_defaults import MEMORY_PROVIDER
from holdfast.formats.logs.batch_logs import PROVIDER
from holdfast.storage.memory import MemoryStorage

# Of the golden checkpoints: what was set when they were made.
FORMAT_1 = {"changelog", "rocksdb", "repartitioned"}
NO_CHANGELOG = {"rocksdb"}


def rules(found: CheckpointFacts) -> list[str]:
    return [rule for rule, _ in checkpoint_findings(found)]


STREAMING = "spark.sql.streaming."
GROWING = [MB * (10 + step) for step in range(12)]
SAWTOOTH = [MB * (10 + step % 4) for step in range(12)]
SLOW = [MB * 100 + step * MB for step in range(12)]
UP_AND_DOWN = [MB * size for size in (10, 11, 12, 13, 19, 18, 17, 16, 13, 14, 15, 16)]


def written_by_spark(release: str, files: FileCounts) -> CheckpointFacts:
    settings = {setting.name: "" for setting in pinned_by(release) if setting.name != PROVIDER}
    return facts(confs=settings, files=files)


# A rule, facts in which it is to be found, and the nearest ones in which it is not.
PAIRS = [
    (
        "HF207",
        facts(confs={f"{STREAMING}multipleWatermarkPolicy": "max"}),
        facts(confs={f"{STREAMING}multipleWatermarkPolicy": "min"}),
    ),
    (
        "HF301",
        facts(provider=MEMORY_PROVIDER, store_bytes=[25 * MB] * 4),
        facts(provider=MEMORY_PROVIDER, store_bytes=[24 * MB] * 4),
    ),
    ("HF307", facts(kept=2), facts(kept=3)),
    ("HF307", facts(kept=2), facts(kept=2, batch_id=9)),
    ("HF308", facts(files=FileCounts(2, 0)), facts(files=FileCounts(2, 1))),
    (
        "HF309",
        facts(confs={f"{STREAMING}stateStore.rowChecksum.enabled": "false"}),
        facts(confs={f"{STREAMING}stateStore.rowChecksum.enabled": "true"}),
    ),
    ("HF310", facts(form=1), facts(form=1, provider=MEMORY_PROVIDER)),
    ("HF601", facts(partitions=32, rows=99), facts(partitions=32, rows=100)),
    ("HF601", facts(partitions=32, rows=99), facts(partitions=31, rows=99)),
    (
        "HF601",
        facts(store_bytes=[16_383] * 32, rows=None),
        facts(store_bytes=[16_384] * 32, rows=None),
    ),
    (
        "HF602",
        facts(GROWING, watermark_ms=None, watermarks=(None, None)),
        facts(SAWTOOTH, watermark_ms=None, watermarks=(None, None)),
    ),
    ("HF602", facts(GROWING, watermarks=(7, 7)), facts(GROWING, watermarks=(7, 8))),
    ("HF602", facts(GROWING, watermarks=(7, 7)), facts(SLOW, watermarks=(7, 7))),
    ("HF602", facts(GROWING, watermarks=(7, 7)), facts(UP_AND_DOWN, watermarks=(7, 7))),
    (
        "HF602",
        facts(GROWING, watermarks=(7, 7)),
        facts(GROWING[:8], watermarks=(7, 7)),
    ),
    ("HF603", facts(store_bytes=[3 * MB, MB, MB, MB]), facts(store_bytes=[2 * MB, MB, MB, MB])),
    ("HF603", facts(store_bytes=[3 * MB, MB, MB, MB]), facts(store_bytes=[3 * MB, MB, MB])),
    (
        "HF604",
        facts(name="dedupe", watermark_ms=None, watermarks=(None, None)),
        facts(name="dedupe", watermark_ms=None, watermarks=(None, None), batch_id=9, kept=10),
    ),
    (
        "HF604",
        facts(name="symmetricHashJoin", watermark_ms=None, watermarks=(None, None)),
        facts(name="symmetricHashJoin"),
    ),
    ("HF605", written_by_spark("4.1", FileCounts(1, 2)), written_by_spark("4.2", FileCounts(1, 2))),
    ("HF605", written_by_spark("4.0", FileCounts(1, 0)), written_by_spark("3.5", FileCounts(1, 0))),
    ("HF606", facts(log=2), facts(log=2, confs={"spark.sql.shuffle.partitions": "4"})),
    ("HF606", facts(log=2), facts(log=1)),
]


@pytest.mark.parametrize(("rule", "bad", "good"), PAIRS, ids=[rule for rule, _, _ in PAIRS])
def test_one_thing_makes_the_difference(rule: str, bad: CheckpointFacts, good: CheckpointFacts) -> None:
    assert rules(bad) == [rule]
    assert rule not in rules(good)


def test_nothing_is_found_where_nothing_is_wrong() -> None:
    assert rules(facts()) == []


def test_every_rule_of_facts_has_a_pair() -> None:
    # Batches have their own, in test_progress_checks; output beside a checkpoint in test_lint_api.
    elsewhere = {"HF413", "HF414", *(rule.id for rule in PROGRESS_RULES)}
    wanted = {rule.id for rule in RULES.values() if FindingEvidence.FACTS in rule.evidence} - elsewhere
    assert {rule for rule, _, _ in PAIRS} == wanted


@pytest.mark.parametrize("name", [*NAMES, *UNNAMED])
def test_real_checkpoints_are_read(name: str) -> None:
    how = name.rpartition("-")[2]
    wanted = (["HF308"] if how in NO_CHANGELOG else []) + (["HF310"] if how in FORMAT_1 else [])
    wanted += ["HF605"] if name.startswith("3.5") and how == "changelog" else []
    assert rules(read_facts(golden(name))) == wanted


def test_a_query_without_state_has_nothing_to_find() -> None:
    assert rules(read_facts(golden(STATELESS))) == []


def test_what_a_checkpoint_is_fixed_to_is_found() -> None:
    storage = golden_with_confs("4.2/aggregate-format2", **{"stateStore.rowChecksum.enabled": "false"})
    assert rules(read_facts(storage)) == ["HF309"]


def test_batches_of_which_a_file_is_gone_say_nothing_of_growth() -> None:
    storage = golden("4.2/aggregate-memory")
    batches = range(12)
    whole = state_bytes(storage, batches, only_whole=True)
    assert whole == state_bytes(storage, sorted(whole))
    gone = "state/0/0/7.delta"
    files = {path: data for path, data in golden_files("4.2/aggregate-memory").items() if path != gone}
    cut = state_bytes(MemoryStorage(files, uri="memory://cut"), batches, only_whole=True)
    assert {4, 5} < set(cut) < set(whole)
    assert 6 not in cut
    assert cut == {batch_id: whole[batch_id] for batch_id in cut}
