"""Every message as a line and back, and lines that are refused."""

from __future__ import annotations

import json
from dataclasses import MISSING, fields
from typing import Any

import pytest

from holdfast.config.alert_settings import Alerts
from holdfast.config.policies import Autoscale, FixedDelay, Recovery
from holdfast.errors import Internal, Invalid
from holdfast.jobs.definition import Periodic
from holdfast.jobs.processes import protocol
from holdfast.model import BatchProgress, Failure, OperatorProgress, QueryStarted, TrialBatch

FAILURE = Failure("query", "ZeroDivisionError", "division by zero", query="q", detail="…", cause="user code")
ERROR = Invalid("no such day", where="job.py", found="Blursday", expected="a day", hint="look it up")
OPERATOR = OperatorProgress("dedupe", 3, 1, 0, 0, 100, 2, 4, store={"rocksdbGetCount": 5})
BATCH = BatchProgress("q", 7, 1000, 10, 5, "2026-01-01T00:00:00Z", (OPERATOR,), phases_ms={"addBatch": 4})
MESSAGES: dict[str, protocol.Message] = {
    "defined": protocol.JobDefined(
        name="job",
        checkpoint="file:/c",
        on_cancel="retain",
        timeout_ms=None,
        tolerable_failures=1,
        restart=FixedDelay(attempts=3, delay="2s"),
        record=False,
        savepoints=Periodic("file:/s", 1000, 3),
        alerts=Alerts(checkpoint_failures=4),
        recovery=Recovery(verify="2m"),
        autoscale=Autoscale(2, 8, after="1m"),
        savepoint_catalog="file:/s",
    ),
    "session": protocol.SessionStarted(spark="4.1.0", java_pid=1, slots=2),
    "built": protocol.Built(failed="TypeError: no column"),
    "warmed": protocol.Warmed(took_ms=900, memory_bytes=1 << 30, batches=3, note="no rows"),
    "warm": protocol.Warm("/log"),
    "build": protocol.Build(),
    "cluster": protocol.ClusterFound("cluster spark://a:1: 2 workers", {"slots": 2, "cautions": []}),
    "restored": protocol.CheckpointsRestored(({"query": "q", "batch": 3, "savepoint": "s"},)),
    "repeated": protocol.BatchesRepeated("q", None, "exactly once"),
    "started": protocol.QueriesStarted((QueryStarted("q", "id", "run", "file:/c", "none: x"),)),
    "caution": protocol.Caution("q", "a watermark is late"),
    "busy": protocol.Busy("q", busy=True),
    "batch": protocol.BatchCommitted(BATCH),
    "mended": protocol.Mended("q"),
    "finished": protocol.Finished(),
    "stopped": protocol.DriverStopped(),
    "failed": protocol.JobFailed(FAILURE, at_ms=12),
    "refused": protocol.Refused(ERROR),
    "go": protocol.Go("/log", restore=True, repeat={"q": "file:/c.bad"}, term=3, election="e", machine="m"),
    "lead": protocol.Lead(12.5),
    "stop": protocol.Stop(),
    "trial-defined": protocol.TrialDefined("job"),
    "trial-session": protocol.TrialSession("4.1.0"),
    "trial-batch": protocol.TrialCommitted(3, 10),
    "trial-done": protocol.TrialDone((TrialBatch(3, 10, 1.5, 20, None),), watermarks=1, empty=False),
    "rescale-progress": protocol.RescaleProgress(1, 2, "rows"),
    "rescale-done": protocol.RescaleDone(),
    "serve": protocol.Serve("/home", 5, {"port": 8080}),
    "close-server": protocol.CloseServer(),
    "serving": protocol.ServerStarted(),
    "server-failed": protocol.ServerFailed(ERROR),
}


def test_every_kind_has_an_example() -> None:
    assert {kind: type(message) for kind, message in MESSAGES.items()} == protocol.KINDS


@pytest.mark.parametrize("kind", sorted(protocol.KINDS))
def test_a_message_is_read_back_as_it_was(kind: str) -> None:
    line = protocol.encode(MESSAGES[kind])
    assert b"\n" not in line
    assert json.loads(line)["kind"] == kind
    again = protocol.decode(line)
    assert protocol.encode(again) == line
    if isinstance(again, (protocol.Refused, protocol.ServerFailed)):  # errors are equal to themselves alone
        assert (type(again.error), again.error.as_dict()) == (Invalid, ERROR.as_dict())
    else:
        assert again == MESSAGES[kind]


@pytest.mark.parametrize("kind", sorted(protocol.KINDS))
def test_a_missing_or_unknown_field_is_refused(kind: str) -> None:
    values = json.loads(protocol.encode(MESSAGES[kind]))
    del values["kind"]
    with pytest.raises(Internal, match=f"`{kind}`") as refused:
        protocol.message_of(kind, {**values, "nonsense": 1})
    assert refused.value.found == "unknown nonsense"
    for item in fields(protocol.KINDS[kind]):
        if item.default is MISSING and item.default_factory is MISSING:
            with pytest.raises(Internal, match=f"`{kind}`") as refused:
                protocol.message_of(kind, {name: values[name] for name in values if name != item.name})
            assert refused.value.found == f"no {item.name}"


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(Internal, match="unknown kind") as refused:
        protocol.decode(b'{"kind": "anybody"}')
    assert refused.value.found == "anybody"


@pytest.mark.parametrize("line", [b"", b"nonsense", b"\xff", b"[]", b"3", b'"kind"', b'{"query": "q"}'])
def test_what_is_no_message_is_refused(line: bytes) -> None:
    with pytest.raises(Internal, match="not a message"):
        protocol.decode(line)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("failed", {"failure": {"line": "x"}}),
        ("failed", {"failure": None}),
        ("refused", {"error": {}}),
        ("batch", {"batch": {"query": "q"}}),
        ("started", {"queries": [3]}),
        ("restored", {"queries": 3}),
    ],
)
def test_a_value_that_does_not_fit_is_refused(kind: str, values: dict[str, Any]) -> None:
    with pytest.raises(Internal, match=f"`{kind}` that cannot be read"):
        protocol.message_of(kind, values)
