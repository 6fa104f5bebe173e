from __future__ import annotations

import json
from dataclasses import replace

import pytest

from holdfast.errors import Unsupported
from holdfast.jobs.candidacy import LeaderRecord, QueryPlace
from holdfast.jobs.pending_rescale import CheckpointMark, CheckpointMove, PendingRescale
from holdfast.model import JobState
from holdfast.ownership.process_identity import ProcessIdentity

WHOLE = LeaderRecord(
    holder="app-1 pid 4711",
    checkpoint="s3a://bucket/job",
    begun_ms=1_800_000_000_000,
    ran=True,
    queries={"q": QueryPlace("s3a://bucket/job", "5b1f")},
    driver=ProcessIdentity("app-1 boot", 4712, 99),
    request="stop",
    resigned=True,
    state=JobState.FINISHED,
    reason="stopped",
)


# Whole but for its format, whose fields may mean something else.
LATER = json.dumps({**json.loads(WHOLE.render()), "format": 3}).encode()


def test_what_was_put_down_is_read_back() -> None:
    move = CheckpointMove("q", "file:///c", "file:///c.rescale-a", "file:///c.before-a", 5)
    pending = PendingRescale((move,), {"q": CheckpointMark(7, 11, 12)})
    rescaled = replace(WHOLE, pending=pending, state=None)
    for record in (WHOLE, LeaderRecord("app-1 pid 4711", "file:///c", 1), rescaled):
        assert LeaderRecord.parse(record.render(), "here") == record
    # A version that knows nothing of rescales refuses a record with one.
    assert [json.loads(record.render())["format"] for record in (WHOLE, rescaled)] == [1, 2]


def test_a_field_of_a_later_version_is_passed_over() -> None:
    fields = {**json.loads(WHOLE.render()), "later": 1}
    assert LeaderRecord.parse(json.dumps(fields).encode(), "here") == WHOLE


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"format": 2}', b'{"format": 1, "queries": 3}', LATER])
def test_what_cannot_be_read_is_told(data: bytes) -> None:
    with pytest.raises(Unsupported, match="record of the job's leader cannot be read") as caught:
        LeaderRecord.parse(data, "zookeeper://a/b/job")
    assert caught.value.where == "zookeeper://a/b/job"
