"""State management for streaming on Spark.

Names are loaded when they are first used, so importing the package costs next to nothing and needs
neither Spark nor Java.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.config import (
        Checkpoint,
        Memory,
        RocksDB,
        available_now,
        days,
        every,
        exponential,
        failure_rate,
        fixed_delay,
        hours,
        minutes,
        no_restart,
        seconds,
    )
    from holdfast.engine.session import configure, session
    from holdfast.errors import (
        Conflict,
        Corrupt,
        Failed,
        HoldfastError,
        Internal,
        Invalid,
        NotFound,
        Unavailable,
        Unsupported,
    )
    from holdfast.jobs.definition import Job, job
    from holdfast.stream.dedupe import dedupe
    from holdfast.stream.joins import join_within
    from holdfast.stream.ledger import Ledger, ledger
    from holdfast.stream.promises import Promise
    from holdfast.stream.sinks import Sink, adopt, sink
    from holdfast.stream.windows import windowed

__version__ = "0.1.0"

# Where each public name lives.
_HOMES = {
    "holdfast.config": (
        "Checkpoint",
        "Memory",
        "RocksDB",
        "available_now",
        "days",
        "every",
        "exponential",
        "failure_rate",
        "fixed_delay",
        "hours",
        "minutes",
        "no_restart",
        "seconds",
    ),
    "holdfast.engine.session": ("configure", "session"),
    "holdfast.errors": (
        "Conflict",
        "Corrupt",
        "Failed",
        "HoldfastError",
        "Internal",
        "Invalid",
        "NotFound",
        "Unavailable",
        "Unsupported",
    ),
    "holdfast.jobs.definition": ("Job", "job"),
    "holdfast.stream.ledger": ("Ledger", "ledger"),
    "holdfast.stream.dedupe": ("dedupe",),
    "holdfast.stream.joins": ("join_within",),
    "holdfast.stream.windows": ("windowed",),
    "holdfast.stream.promises": ("Promise",),
    "holdfast.stream.sinks": ("Sink", "adopt", "sink"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Checkpoint",
    "Conflict",
    "Corrupt",
    "Failed",
    "HoldfastError",
    "Internal",
    "Invalid",
    "Job",
    "Ledger",
    "Memory",
    "NotFound",
    "Promise",
    "RocksDB",
    "Sink",
    "Unavailable",
    "Unsupported",
    "adopt",
    "available_now",
    "configure",
    "days",
    "dedupe",
    "every",
    "exponential",
    "failure_rate",
    "fixed_delay",
    "hours",
    "job",
    "join_within",
    "ledger",
    "minutes",
    "no_restart",
    "seconds",
    "session",
    "sink",
    "windowed",
]


def __getattr__(name: str) -> object:
    """Load a public name from the room it lives in."""
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    value: object = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
