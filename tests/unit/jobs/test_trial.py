"""What a query is started with in a sandbox."""

from __future__ import annotations

from pathlib import Path

import pytest
from catalogs import Hands, catalog, file_query

from golden import golden
from holdfast.config.spark_defaults import (
    FORMAT_KEY,
    MEMORY_PROVIDER,
    PROVIDER_KEY,
    RETAIN_KEY,
    ROCKSDB_PROVIDER,
)
from holdfast.jobs.trials.comparison import trial_conf
from holdfast.jobs.trials.trial import TrialSpec
from holdfast.storage.memory import MemoryStorage


@pytest.mark.parametrize(
    ("name", "provider", "version"),
    [("aggregate-memory", MEMORY_PROVIDER, "1"), ("aggregate-format2", ROCKSDB_PROVIDER, "2")],
)
def test_a_session_reads_the_state_as_the_savepoint_has_it(name: str, provider: str, version: str) -> None:
    saved = Hands().take(golden(f"4.2/{name}"), catalog()).manifest
    conf = trial_conf(saved, Path("/sandbox/spark"), 7)
    assert (conf[PROVIDER_KEY], conf[FORMAT_KEY]) == (provider, version)
    assert conf["spark.local.dir"] == "/sandbox/spark"


def test_without_state_the_session_keeps_its_own_and_all_batches_are_kept() -> None:
    saved = Hands().take(MemoryStorage(file_query(2)), catalog()).manifest
    conf = trial_conf(saved, Path("/sandbox/spark"), 5000)
    assert PROVIDER_KEY not in conf
    assert FORMAT_KEY not in conf
    assert int(conf[RETAIN_KEY]) > 5000


def test_a_spec_reaches_the_child_as_it_is() -> None:
    spec = TrialSpec("a.py:job", "/home", "/c", "file:///o", "/log", 3, overrides={"day": "x"}, or_empty=True)
    assert TrialSpec.from_text(spec.as_text()) == spec
