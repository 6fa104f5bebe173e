"""What a runner is made for, besides its processor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

    from holdfast.worker.runtime.features.instances import Instances


@dataclass(frozen=True, slots=True)
class RunnerSpec:
    """The place of a processor in its operator.

    Attributes:
        operator: The user's name of the operator, for errors.
        output: The schema of the output.
        key_names: The names of the key columns.
        stream_names: The names of the streams, as connected.
        time_columns: The column of each stream with the event time, where it has one.
        default_clock: "event" where the streams have a watermark, else "processing".
        on_error: "fail" or "dead-letter".
        parts: The name of the stream of parts that comes after the others, where hot keys are split.
        instances: The instances whose state it is; their stream comes after the others, too.
        before: Whether it runs before the shuffle, over nothing but a batch's events.
    """

    operator: str
    output: pa.Schema
    key_names: tuple[str, ...]
    stream_names: tuple[str, ...]
    time_columns: tuple[str | None, ...]
    default_clock: str
    on_error: str = "fail"
    parts: str | None = None
    instances: Instances | None = None
    before: bool = False
