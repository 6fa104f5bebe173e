"""State management for streaming on Spark.

Names are loaded when they are first used, so importing the package costs next to nothing and needs
neither Spark nor Java.
"""

from __future__ import annotations

import builtins
import importlib

from holdfast._version import __version__ as __version__

# `typing` would take most of the time of this import, in which Ctrl-C still prints a traceback.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from holdfast import checkpoints as checkpoints
    from holdfast import savepoints as savepoints
    from holdfast import shared, skew
    from holdfast.advice.cost.cost_api import cost, forecast_cost
    from holdfast.advice.cost.prices import Prices
    from holdfast.at_rest.create.bootstrap import Bootstrapped
    from holdfast.at_rest.create.migrating import Migrated, MigrationPlan, migrate, plan_migrate
    from holdfast.at_rest.edit_api import (
        edit,
        erase,
        plan_edit,
        plan_erase,
        plan_undo,
        undo,
    )
    from holdfast.at_rest.evolve.evolution_plan import EvolutionPlan
    from holdfast.at_rest.evolve.evolving import Evolved
    from holdfast.at_rest.expiry.dropping import drop_expired
    from holdfast.at_rest.state_api import StatesAtRest, state
    from holdfast.config.checkpoint_settings import Checkpoint
    from holdfast.config.job.alert_settings import Alerts
    from holdfast.config.job.backend import Memory, RocksDB
    from holdfast.config.job.cassandra_store import Cassandra
    from holdfast.config.job.external_store import Redis
    from holdfast.config.job.recovery import recovery
    from holdfast.config.job.restart import exponential, failure_rate, fixed_delay, no_restart
    from holdfast.config.job.tikv_store import TiKV
    from holdfast.config.job.trigger import available_now, every, real_time
    from holdfast.config.units import days, hours, minutes, seconds
    from holdfast.engine.session.session import configure, session
    from holdfast.engine.session.state_jar import state_jar
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
    from holdfast.formats.logs.sink_log import committed_files
    from holdfast.jobs.advise_api import advise
    from holdfast.jobs.definition import Job, job
    from holdfast.jobs.guarded.guard_api import Guard, guard
    from holdfast.jobs.monitoring.query_watch import Watch, watch
    from holdfast.jobs.trials.bootstrapping import bootstrap
    from holdfast.jobs.trials.comparison import compare
    from holdfast.jobs.trials.compatibility import check
    from holdfast.jobs.trials.drill import drill
    from holdfast.jobs.trials.evolution import evolve, plan_evolve
    from holdfast.jobs.trials.linting import lint
    from holdfast.model import UpgradeReport
    from holdfast.savepoints.offsets.moving import OffsetPlan, OffsetsMoved
    from holdfast.savepoints.offsets.offsets_api import move_offsets, offsets, plan_offsets
    from holdfast.savepoints.offsets.position_changes import (
        RenameTopic,
        SkipRecords,
        SyncPoint,
        ToOffset,
        ToRecord,
        ToVersion,
        Translate,
    )
    from holdfast.savepoints.upgrade.spark_upgrade import check_spark
    from holdfast.stream.aggregates.running import running
    from holdfast.stream.aggregates.sessions import sessions
    from holdfast.stream.aggregates.windows import windowed
    from holdfast.stream.dedupe import dedupe
    from holdfast.stream.idle import watermarked
    from holdfast.stream.joins.enrich import enrich
    from holdfast.stream.joins.stream_joins import join_within
    from holdfast.stream.keyed.broadcast_stream import broadcast
    from holdfast.stream.keyed.explain_keyed import explain
    from holdfast.stream.keyed.keyed_stream import keyed
    from holdfast.stream.keyed.operator_state import operate
    from holdfast.stream.keyed.state_declarations import (
        add,
        aggregating,
        greatest,
        least,
        reducing,
        ttl,
        union_list,
        value,
    )
    from holdfast.stream.keyed.state_declarations import list_state as list  # noqa: A004 - the word that people know
    from holdfast.stream.keyed.state_declarations import map_state as map  # noqa: A004 - as above
    from holdfast.stream.late import late_rows
    from holdfast.stream.query.cautions import ForkWarning, ObjectStoreWarning, WatermarkWarning
    from holdfast.stream.sinks.buffered_sink import BufferedSink
    from holdfast.stream.sinks.kafka.record_repeats import RepeatFilter, without_repeats
    from holdfast.stream.sinks.ledger import Ledger, ledger
    from holdfast.stream.sinks.promises import Promise
    from holdfast.stream.sinks.query_sink import Sink
    from holdfast.stream.sinks.sinks import adopt, sink
    from holdfast.stream.skew.split_hot import split_hot
    from holdfast.worker.declarations.base_classes import Keyed, KeyedTable, Operator
    from holdfast.worker.declarations.state_descriptors import Aggregate, Ttl
    from holdfast.worker.runtime.table_state.state_table import StateTable

# Where each public name lives.
_HOMES = {
    "holdfast.advice.cost.cost_api": ("cost", "forecast_cost"),
    "holdfast.advice.cost.prices": ("Prices",),
    "holdfast.jobs.advise_api": ("advise",),
    "holdfast.at_rest.edit_api": (
        "edit",
        "erase",
        "plan_edit",
        "plan_erase",
        "plan_undo",
        "undo",
    ),
    "holdfast.at_rest.expiry.dropping": ("drop_expired",),
    "holdfast.at_rest.create.migrating": ("Migrated", "MigrationPlan", "migrate", "plan_migrate"),
    "holdfast.at_rest.evolve.evolution_plan": ("EvolutionPlan",),
    "holdfast.at_rest.evolve.evolving": ("Evolved",),
    "holdfast.at_rest.state_api": ("StatesAtRest", "state"),
    "holdfast.at_rest.create.bootstrap": ("Bootstrapped",),
    "holdfast.config.job.alert_settings": ("Alerts",),
    "holdfast.config.job.backend": ("Memory", "RocksDB"),
    "holdfast.config.job.cassandra_store": ("Cassandra",),
    "holdfast.config.job.external_store": ("Redis",),
    "holdfast.config.job.tikv_store": ("TiKV",),
    "holdfast.config.checkpoint_settings": ("Checkpoint",),
    "holdfast.config.job.recovery": ("recovery",),
    "holdfast.config.job.restart": ("exponential", "failure_rate", "fixed_delay", "no_restart"),
    "holdfast.config.job.trigger": ("available_now", "every", "real_time"),
    "holdfast.config.units": ("days", "hours", "minutes", "seconds"),
    "holdfast.engine.session.state_jar": ("state_jar",),
    "holdfast.engine.session.session": ("configure", "session"),
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
    "holdfast.formats.logs.sink_log": ("committed_files",),
    "holdfast.jobs.trials.bootstrapping": ("bootstrap",),
    "holdfast.jobs.trials.comparison": ("compare",),
    "holdfast.jobs.definition": ("Job", "job"),
    "holdfast.jobs.guarded.guard_api": ("Guard", "guard"),
    "holdfast.jobs.trials.drill": ("drill",),
    "holdfast.jobs.trials.evolution": ("evolve", "plan_evolve"),
    "holdfast.jobs.trials.compatibility": ("check",),
    "holdfast.savepoints.offsets.moving": ("OffsetPlan", "OffsetsMoved"),
    "holdfast.savepoints.offsets.offsets_api": ("move_offsets", "offsets", "plan_offsets"),
    "holdfast.savepoints.offsets.position_changes": (
        "RenameTopic",
        "SkipRecords",
        "SyncPoint",
        "ToOffset",
        "ToRecord",
        "ToVersion",
        "Translate",
    ),
    "holdfast.savepoints.upgrade.spark_upgrade": ("check_spark",),
    "holdfast.jobs.trials.linting": ("lint",),
    "holdfast.jobs.monitoring.query_watch": ("Watch", "watch"),
    "holdfast.model": ("UpgradeReport",),
    "holdfast.stream.sinks.ledger": ("Ledger", "ledger"),
    "holdfast.stream.keyed.broadcast_stream": ("broadcast",),
    "holdfast.stream.sinks.buffered_sink": ("BufferedSink",),
    "holdfast.stream.query.cautions": ("ForkWarning", "ObjectStoreWarning", "WatermarkWarning"),
    "holdfast.stream.dedupe": ("dedupe",),
    "holdfast.stream.idle": ("watermarked",),
    "holdfast.stream.late": ("late_rows",),
    "holdfast.stream.joins.enrich": ("enrich",),
    "holdfast.stream.keyed.explain_keyed": ("explain",),
    "holdfast.stream.joins.stream_joins": ("join_within",),
    "holdfast.stream.keyed.keyed_stream": ("keyed",),
    "holdfast.stream.keyed.state_declarations": (
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
    "holdfast.stream.keyed.operator_state": ("operate",),
    "holdfast.stream.skew.split_hot": ("split_hot",),
    "holdfast.stream.aggregates.running": ("running",),
    "holdfast.stream.aggregates.sessions": ("sessions",),
    "holdfast.stream.aggregates.windows": ("windowed",),
    "holdfast.worker.declarations.base_classes": ("Keyed", "KeyedTable", "Operator"),
    "holdfast.worker.declarations.state_descriptors": ("Aggregate", "Ttl"),
    "holdfast.worker.runtime.table_state.state_table": ("StateTable",),
    "holdfast.stream.sinks.promises": ("Promise",),
    "holdfast.stream.sinks.kafka.record_repeats": ("RepeatFilter", "without_repeats"),
    "holdfast.stream.sinks.query_sink": ("Sink",),
    "holdfast.stream.sinks.sinks": ("adopt", "sink"),
}
# Python's own words are taken inside the house; people write `hf.list` and `hf.map`.
_CALLED = {"list_state": "list", "map_state": "map"}
_NAMES = {_CALLED.get(name, name): (home, name) for home, names in _HOMES.items() for name in names}
# Rooms and modules that are used as a whole, as in `hf.checkpoints.verify(…)`.
_MODULES = ("checkpoints", "savepoints", "shared", "skew")

__all__ = [
    "Aggregate",
    "Alerts",
    "Bootstrapped",
    "BufferedSink",
    "Cassandra",
    "Checkpoint",
    "Conflict",
    "Corrupt",
    "EvolutionPlan",
    "Evolved",
    "Failed",
    "ForkWarning",
    "Guard",
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
    "ObjectStoreWarning",
    "OffsetPlan",
    "OffsetsMoved",
    "Operator",
    "Prices",
    "Promise",
    "Redis",
    "RenameTopic",
    "RepeatFilter",
    "RocksDB",
    "Sink",
    "SkipRecords",
    "StateTable",
    "StatesAtRest",
    "SyncPoint",
    "TiKV",
    "ToOffset",
    "ToRecord",
    "ToVersion",
    "Translate",
    "Ttl",
    "Unavailable",
    "Unsupported",
    "UpgradeReport",
    "Watch",
    "WatermarkWarning",
    "add",
    "adopt",
    "advise",
    "aggregating",
    "available_now",
    "bootstrap",
    "broadcast",
    "check",
    "check_spark",
    "checkpoints",
    "committed_files",
    "compare",
    "configure",
    "cost",
    "days",
    "dedupe",
    "drill",
    "drop_expired",
    "edit",
    "enrich",
    "erase",
    "every",
    "evolve",
    "explain",
    "exponential",
    "failure_rate",
    "fixed_delay",
    "forecast_cost",
    "greatest",
    "guard",
    "hours",
    "job",
    "join_within",
    "keyed",
    "late_rows",
    "least",
    "ledger",
    "lint",
    "list",
    "map",
    "migrate",
    "minutes",
    "move_offsets",
    "no_restart",
    "offsets",
    "operate",
    "plan_edit",
    "plan_erase",
    "plan_evolve",
    "plan_migrate",
    "plan_offsets",
    "plan_undo",
    "real_time",
    "recovery",
    "reducing",
    "running",
    "savepoints",
    "seconds",
    "session",
    "sessions",
    "shared",
    "sink",
    "skew",
    "split_hot",
    "state",
    "state_jar",
    "ttl",
    "undo",
    "union_list",
    "value",
    "watch",
    "watermarked",
    "windowed",
    "without_repeats",
]


def __getattr__(name: str) -> object:
    """Load a public name from the room it lives in, or a stand-in where its extra is not installed."""
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name not in _NAMES:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    home, own = _NAMES[name]
    try:
        value: object = getattr(importlib.import_module(home), own)
    except ModuleNotFoundError as error:
        from holdfast.extras import stand_in

        for_jobs = home.startswith((f"{__name__}.stream.", f"{__name__}.worker."))
        lacking = stand_in(f"{__name__}.{name}", error, for_jobs=for_jobs)
        if lacking is None:
            raise
        return lacking  # not kept: the extra may be installed meanwhile
    globals()[name] = value
    return value


def __dir__() -> builtins.list[str]:
    return __all__
