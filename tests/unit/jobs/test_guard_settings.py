"""What `hf.guard` takes, where its lease lies, and what a platform is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.config.policies import Leading
from holdfast.errors import Conflict, Failed, HoldfastError, Invalid, Unavailable, Unsupported
from holdfast.jobs import given_query
from holdfast.jobs.given_query import GuardSettings

GIVEN: dict[str, Any] = {
    "checkpoint": None,
    "name": None,
    "trigger": None,
    "verify": "1m",
    "wait": "2m",
    "lease": "30s",
    "lease_at": None,
    "grace": "25s",
    "savepoints": None,
    "savepoint_every": None,
    "savepoints_retained": 5,
    "savepoints_drop_expired": False,
    "alerts": None,
    "port": None,
    "host": "127.0.0.1",
    "otlp": None,
    "on_alert": None,
    "consumer_group": None,
    "home": None,
}


def settings(**changed: Any) -> GuardSettings:
    return GuardSettings(**{**GIVEN, **changed})


@pytest.mark.parametrize(
    ("checkpoint", "changed", "expected"),
    [
        ("file:///data/ck", {}, None),
        ("s3a://bucket/jobs/ck", {}, Leading("s3a://bucket/jobs", 30_000)),
        ("s3a://bucket/ck", {"lease": "1m"}, Leading("s3a://bucket/", 60_000)),
        ("s3a://bucket/ck", {"lease": None}, None),
        ("hdfs:///ck", {"lease_at": "zookeeper://zk:2181/jobs"}, Leading("zookeeper://zk:2181/jobs", 30_000)),
        ("file:///data/ck", {"lease_at": "/leases"}, Leading("file:///leases", 30_000)),
        ("file:///data/ck", {"lease_at": "/leases", "lease": None}, None),
    ],
)
def test_where_the_lease_lies(checkpoint: str, changed: dict[str, Any], expected: Leading | None) -> None:
    assert settings(**changed).leading(checkpoint) == expected


def test_a_whole_bucket_has_no_place_beside_it() -> None:
    with pytest.raises(Invalid, match="the lease cannot be stored"):
        settings().leading("s3a://bucket/")


@pytest.mark.parametrize(
    "changed",
    [
        {"lease": "10ms"},
        {"lease": "often"},
        {"lease_at": "ftp://x/y"},
        {"grace": "-1s"},
        {"wait": 3.7},
        {"verify": "0s"},
        {"savepoints": "/sp"},
        {"savepoint_every": "1h"},
        {"savepoints": "/sp", "savepoint_every": "1h", "savepoints_retained": 0},
        {"savepoints": "/sp", "savepoint_every": "1h", "savepoints_drop_expired": "yes"},
        {"checkpoint": ""},
    ],
)
def test_what_cannot_be_right_is_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(Invalid):
        settings(**changed)


def test_savepoints_go_where_they_are_told() -> None:
    periodic = settings(savepoints="sp", savepoint_every="1h").periodic
    assert periodic is not None
    assert (periodic.catalog, periodic.every_ms) == (f"file://{Path('sp').resolve()}", 3_600_000)
    assert settings().periodic is None


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log.", Conflict),
        ("java.net.ConnectException: Connection refused", Unavailable),
        ("java.lang.OutOfMemoryError: Java heap space", Unavailable),
        ("[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012", Failed),
    ],
)
def test_which_failures_are_worth_another_start(text: str, kind: type[HoldfastError]) -> None:
    assert given_query.kind_of_failure(text) is kind


def test_errors_that_are_not_ours_have_a_code_too() -> None:
    assert given_query.of_error(ValueError("no such column")).exit_code == 1
    assert given_query.of_error(OSError("Connection refused")).exit_code == 5
    assert given_query.of_error(Unsupported("x")).exit_code == 7
    assert given_query.of_signal(15) == 143
