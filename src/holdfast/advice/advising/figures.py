"""What backends take: as `holdfast bench backends` has measured it here, or as the guide has it."""

from __future__ import annotations

import json
import math
import os
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from holdfast.errors import Invalid, NotFound

MEMORY, ROCKSDB, REDIS, CASSANDRA = "memory", "rocksdb", "redis", "cassandra"
BACKENDS: Final = (MEMORY, ROCKSDB, REDIS, CASSANDRA)
# What one row of the measurement holds: a number as the key, a count and a sum.
VALUE_BYTES: Final = 16
# Tasks that ran side by side in it.
TASKS: Final = 2
_LARGEST_FILE: Final = 16 << 20
_HINT: Final = "write one with `holdfast bench backends --json > backends.json`"


@dataclass(frozen=True, slots=True)
class Figures:
    """What was measured of one backend.

    Attributes:
        rows_a_second: Rows worked off, in batches that change most keys.
        read_us: A single read of a key, in the median.
        bytes_a_key: What a key takes, with the versions that are kept.
        recovery_ms: The first batch of a restarted query, by the number of keys.
    """

    rows_a_second: float
    read_us: float
    bytes_a_key: float
    recovery_ms: Mapping[int, float]

    def recovery(self, keys: float, tasks: int = TASKS) -> float:
        """What a restart with so many keys takes, in milliseconds, where so many tasks load side by side."""
        least, most = min(self.recovery_ms), max(self.recovery_ms)
        fixed = self.recovery_ms[least]
        a_key = max(self.recovery_ms[most] - fixed, 0.0) / (most - least)
        return fixed + a_key * max(keys - least, 0) * TASKS / max(tasks, 1)

    def state_bytes(self, keys: float, value_bytes: float = VALUE_BYTES) -> int:
        """What so many keys take, with values of this size."""
        return round(keys * (self.bytes_a_key + value_bytes - VALUE_BYTES))


# The guide's: docs/guides/which-backend.md has the same.
GUIDE: Final[Mapping[str, Figures]] = {
    MEMORY: Figures(357_800, 0.6, 104, {10_000: 300, 100_000: 344, 1_000_000: 1_626}),
    ROCKSDB: Figures(265_100, 2.8, 139, {10_000: 414, 100_000: 722, 1_000_000: 3_676}),
    REDIS: Figures(184_900, 72, 752, {10_000: 272, 100_000: 318, 1_000_000: 365}),
    CASSANDRA: Figures(65_600, 900, 137, {10_000: 569, 100_000: 730, 1_000_000: 588}),
}
GUIDE_TEXT: Final = "the guide `Which backend?`, measured on two cores; `--measured` takes your own"


@dataclass(frozen=True, slots=True)
class Measured:
    """Figures, and where they come from."""

    by_backend: Mapping[str, Figures]
    source: str

    def of(self, backend: str) -> Figures:
        """Those of a backend."""
        return self.by_backend[backend]


def figures(file: str | os.PathLike[str] | None) -> Measured:
    """The figures of a file that `holdfast bench backends --json` has written, or the guide's.

    Backends that were not measured keep the guide's.

    Raises:
        NotFound: There is no such file.
        Invalid: It is not what the bench writes.
    """
    if file is None:
        return Measured(GUIDE, GUIDE_TEXT)
    where = os.fspath(file)
    own = {name: _figures_of(side, where, name) for name, side in _sides(where).items() if name in BACKENDS}
    if not own:
        raise _wrong(where, "no backend that is known here", ", ".join(BACKENDS))
    rest = [name for name in BACKENDS if name not in own]
    of_rest = f"; of {' and '.join(rest)} the guide's" if rest else ""
    return Measured({**GUIDE, **own}, f"measured here, {where}{of_rest}")


def _sides(where: str) -> Mapping[str, Any]:
    path = Path(where)
    try:
        if not path.exists():
            raise NotFound("there is no file of measurements", where=where, hint=_HINT)
        if not path.is_file() or path.stat().st_size > _LARGEST_FILE:
            raise _wrong(where, "no file, or one that is too large", "JSON of `holdfast bench backends`")
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise _wrong(where, str(error), "JSON of `holdfast bench backends`") from error
    bench = content.get("backends") if isinstance(content, dict) else None
    sides = bench.get("sides") if isinstance(bench, dict) else None
    sizes = bench.get("sizes") if isinstance(bench, dict) else None
    if not isinstance(sides, dict) or not isinstance(sizes, dict):
        raise _wrong(where, "no measurement of backends", "`backends` with `sizes` and `sides`")
    rows = sizes.get("rows")
    return {
        name: {**side, "batch_rows": rows} if isinstance(side, dict) else side for name, side in sides.items()
    }


def _figures_of(side: Any, where: str, name: str) -> Figures:
    try:
        batch_s = statistics.median(_positive(second) for second in side["batch_s"])
        recovery = {
            int(keys): 1000 * statistics.median(_positive(second) for second in seconds)
            for keys, seconds in side["recovery_s"].items()
        }
        read_us = _positive(side["get_us"]["p50"])
        rows_a_second = _positive(side["batch_rows"]) / batch_s
        bytes_a_key = _positive(side["state_bytes"]) / _positive(side["rows"])
    except (KeyError, TypeError, AttributeError, ValueError, statistics.StatisticsError) as error:
        raise _wrong(f"{where}: backends.sides.{name}", repr(error), "what the bench writes") from error
    if len(recovery) < 2 or min(recovery) < 1:
        raise _wrong(f"{where}: backends.sides.{name}", f"{len(recovery)} recoveries", "two or more")
    return Figures(rows_a_second, read_us, bytes_a_key, recovery)


def _positive(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{value!r} is no number")
    if not math.isfinite(value) or value <= 0:
        raise ValueError(f"{value!r} is not positive")
    return float(value)


def _wrong(where: str, found: str, expected: str) -> Invalid:
    return Invalid(
        "these are no measurements of backends", where=where, found=found, expected=expected, hint=_HINT
    )
