"""The state and the offsets that a full refresh of a declarative pipeline discards."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from holdfast.checkpoints.checkpoint import Source, read
from holdfast.checkpoints.discovery import Flow
from holdfast.checkpoints.state.contents import contents
from holdfast.external.view import open_checkpoint
from holdfast.json_shapes import JsonShape, json_spread

# Rows of larger state are not counted, because a report takes seconds at most.
_MOST_BYTES: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class FlowRefresh(JsonShape):
    """The state and the offsets of a flow that a full refresh of its table discards.

    Attributes:
        flow: The flow.
        batch_id: The newest committed batch; None before the first.
        rows: The number of rows of all states; None if the state is larger than 64 MiB.
        size_bytes: The bytes of state that the next run would read.
        sources: The sources, which are read again from their start up to these offsets.

    Example:
        for refresh in hf.checkpoints.full_refresh("pipeline-storage"):
            print(refresh.flow.table, refresh.rows, refresh.size_bytes)
    """

    flow: Flow = field(metadata=json_spread())
    batch_id: int | None
    rows: int | None
    size_bytes: int
    sources: tuple[Source, ...]


def refresh_of(flow: Flow) -> FlowRefresh:
    """Return what a full refresh of a flow discards.

    Cost: reads the logs of its checkpoint, and the rows of state up to 64 MiB.

    Raises:
        Corrupt: The checkpoint is damaged.
        Unavailable: The storage does not answer.
    """
    if not flow.started:
        return FlowRefresh(flow, None, 0, 0, ())
    storage = open_checkpoint(flow.checkpoint)
    checkpoint = read(storage)
    if checkpoint.batch_id is None:
        return FlowRefresh(flow, None, 0, 0, checkpoint.sources)
    size_bytes, rows = sum(operator.size_bytes for operator in checkpoint.operators), None
    if size_bytes <= _MOST_BYTES:
        rows = sum(state.rows for state in contents(storage, checkpoint.batch_id))
    return FlowRefresh(flow, checkpoint.batch_id, rows, size_bytes, checkpoint.sources)
