"""State management for streaming on Spark.

Names are loaded when they are first used, so importing the package costs next to nothing and needs
neither Spark nor Java.
"""

from __future__ import annotations

import builtins
import importlib
from typing import TYPE_CHECKING

from holdfast._version import __version__ as __version__

if TYPE_CHECKING:
    from holdfast import checkpoints as checkpoints
    from holdfast import savepoints as savepoints
    from holdfast import skew
    from holdfast.at_rest.mending.dropping import drop_expired
    from holdfast.at_rest.mending.public import (
        edit,
        erase,
        plan_edit,
        plan_erase,
        plan_undo,
        undo,
    )
    from holdfast.at_rest.migrating import Migrated, MigrationPlan, migrate, plan_migrate
    from holdfast.at_rest.public import StatesAtRest, state
    from holdfast.at_rest.warm import Bootstrapped
    from holdfast.config.alerts import Alerts
    from holdfast.config.backend import Memory, RocksDB
    from holdfast.config.checkpoint import Checkpoint
    from holdfast.config.recovery import recovery
    from holdfast.config.restart import exponential, failure_rate, fixed_delay, no_restart
    from holdfast.config.trigger import available_now, every
    from holdfast.config.units import days, hours, minutes, seconds
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
    from holdfast.jobs.bootstrapping import bootstrap
    from holdfast.jobs.comparison import compare
    from holdfast.jobs.definition import Job, job
    from holdfast.jobs.drill import drill
    from holdfast.jobs.upgrade import check
    from holdfast.jobs.watching import Watch, watch
    from holdfast.model import UpgradeReport
    from holdfast.stream.broadcast import broadcast
    from holdfast.stream.buffered import BufferedSink
    from holdfast.stream.cautions import WatermarkWarning
    from holdfast.stream.dedupe import dedupe
    from holdfast.stream.enrich import enrich
    from holdfast.stream.explain_keyed import explain
    from holdfast.stream.joins import join_within
    from holdfast.stream.keyed import keyed
    from holdfast.stream.ledger import Ledger, ledger
    from holdfast.stream.operator_state import operate
    from holdfast.stream.promises import Promise
    from holdfast.stream.running import running
    from holdfast.stream.sessions import sessions
    from holdfast.stream.sinks import Sink, adopt, sink
    from holdfast.stream.split_hot import split_hot
    from holdfast.stream.states import add, aggregating, greatest, least, reducing, ttl, union_list, value
    from holdfast.stream.states import list_state as list  # noqa: A004 - the word that people know
    from holdfast.stream.states import map_state as map  # noqa: A004 - as above
    from holdfast.stream.windows import windowed
    from holdfast.worker.declared.bases import Keyed, KeyedTable, Operator
    from holdfast.worker.declared.states import Aggregate, Ttl

# Where each public name lives.
_HOMES = {
    "holdfast.at_rest.mending.public": (
        "edit",
        "erase",
        "plan_edit",
        "plan_erase",
        "plan_undo",
        "undo",
    ),
    "holdfast.at_rest.mending.dropping": ("drop_expired",),
    "holdfast.at_rest.migrating": ("Migrated", "MigrationPlan", "migrate", "plan_migrate"),
    "holdfast.at_rest.public": ("StatesAtRest", "state"),
    "holdfast.at_rest.warm": ("Bootstrapped",),
    "holdfast.config.alerts": ("Alerts",),
    "holdfast.config.backend": ("Memory", "RocksDB"),
    "holdfast.config.checkpoint": ("Checkpoint",),
    "holdfast.config.recovery": ("recovery",),
    "holdfast.config.restart": ("exponential", "failure_rate", "fixed_delay", "no_restart"),
    "holdfast.config.trigger": ("available_now", "every"),
    "holdfast.config.units": ("days", "hours", "minutes", "seconds"),
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
    "holdfast.jobs.bootstrapping": ("bootstrap",),
    "holdfast.jobs.comparison": ("compare",),
    "holdfast.jobs.definition": ("Job", "job"),
    "holdfast.jobs.drill": ("drill",),
    "holdfast.jobs.upgrade": ("check",),
    "holdfast.jobs.watching": ("Watch", "watch"),
    "holdfast.model": ("UpgradeReport",),
    "holdfast.stream.ledger": ("Ledger", "ledger"),
    "holdfast.stream.broadcast": ("broadcast",),
    "holdfast.stream.buffered": ("BufferedSink",),
    "holdfast.stream.cautions": ("WatermarkWarning",),
    "holdfast.stream.dedupe": ("dedupe",),
    "holdfast.stream.enrich": ("enrich",),
    "holdfast.stream.explain_keyed": ("explain",),
    "holdfast.stream.joins": ("join_within",),
    "holdfast.stream.keyed": ("keyed",),
    "holdfast.stream.states": (
        "add",
        "aggregating",
        "greatest",
        "least",
        "list_state",
        "map_state",
        "reducing",
        "ttl",
        "union_list",
        "value",
    ),
    "holdfast.stream.operator_state": ("operate",),
    "holdfast.stream.split_hot": ("split_hot",),
    "holdfast.stream.running": ("running",),
    "holdfast.stream.sessions": ("sessions",),
    "holdfast.stream.windows": ("windowed",),
    "holdfast.worker.declared.bases": ("Keyed", "KeyedTable", "Operator"),
    "holdfast.worker.declared.states": ("Aggregate", "Ttl"),
    "holdfast.stream.promises": ("Promise",),
    "holdfast.stream.sinks": ("Sink", "adopt", "sink"),
}
# Python's own words are taken inside the house; people write `hf.list` and `hf.map`.
_CALLED = {"list_state": "list", "map_state": "map"}
_NAMES = {_CALLED.get(name, name): (home, name) for home, names in _HOMES.items() for name in names}
# Rooms and modules that are used as a whole, as in `hf.checkpoints.verify(…)`.
_MODULES = ("checkpoints", "savepoints", "skew")

__all__ = [
    "Aggregate",
    "Alerts",
    "Bootstrapped",
    "BufferedSink",
    "Checkpoint",
    "Conflict",
    "Corrupt",
    "Failed",
    "HoldfastError",
    "Internal",
    "Invalid",
    "Job",
    "Keyed",
    "KeyedTable",
    "Ledger",
    "Memory",
    "Migrated",
    "MigrationPlan",
    "NotFound",
    "Operator",
    "Promise",
    "RocksDB",
    "Sink",
    "StatesAtRest",
    "Ttl",
    "Unavailable",
    "Unsupported",
    "UpgradeReport",
    "Watch",
    "WatermarkWarning",
    "add",
    "adopt",
    "aggregating",
    "available_now",
    "bootstrap",
    "broadcast",
    "check",
    "checkpoints",
    "compare",
    "configure",
    "days",
    "dedupe",
    "drill",
    "drop_expired",
    "edit",
    "enrich",
    "erase",
    "every",
    "explain",
    "exponential",
    "failure_rate",
    "fixed_delay",
    "greatest",
    "hours",
    "job",
    "join_within",
    "keyed",
    "least",
    "ledger",
    "list",
    "map",
    "migrate",
    "minutes",
    "no_restart",
    "operate",
    "plan_edit",
    "plan_erase",
    "plan_migrate",
    "plan_undo",
    "recovery",
    "reducing",
    "running",
    "savepoints",
    "seconds",
    "session",
    "sessions",
    "sink",
    "skew",
    "split_hot",
    "state",
    "ttl",
    "undo",
    "union_list",
    "value",
    "watch",
    "windowed",
]


def __getattr__(name: str) -> object:
    """Load a public name from the room it lives in."""
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name not in _NAMES:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    home, own = _NAMES[name]
    value: object = getattr(importlib.import_module(home), own)
    globals()[name] = value
    return value


def __dir__() -> builtins.list[str]:
    return __all__
