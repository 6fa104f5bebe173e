"""The operators that people write pipelines with, in one place."""

from __future__ import annotations

from holdfast.stream.dedupe import dedupe
from holdfast.stream.joins import JoinKind, join_within
from holdfast.stream.late import late_rows
from holdfast.stream.windows import Windowed, windowed

__all__ = ["JoinKind", "Windowed", "dedupe", "join_within", "late_rows", "windowed"]
