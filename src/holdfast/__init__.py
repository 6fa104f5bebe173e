"""State management for streaming on Spark.

Names are loaded on first use, so importing the package is fast and needs neither Spark nor Java.
"""

from __future__ import annotations

import builtins
import importlib
import sys

from holdfast._version import __version__ as __version__

# `typing` would take most of the time of this import, during which Ctrl-C prints a traceback.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from holdfast import checkpoints as checkpoints
    from holdfast import jobs as jobs
    from holdfast import savepoints as savepoints
    from holdfast import shared, skew
    from holdfast.advice.advice import AdviceReport
    from holdfast.advice.codes import CodeExplanation, explain_code, known_codes
    from holdfast.advice.cost_api import cost, forecast_cost
    from holdfast.advice.cost_report import CostReport
    from holdfast.advice.findings import Finding, LintReport
    from holdfast.advice.plan_forecast import CostForecast
    from holdfast.advice.prices import Prices
    from holdfast.at_rest.insight import HeavyKeys, KeyExplanation, KeyHistory, WhatIf
    from holdfast.at_rest.model import KeyState, NamedOperator, NamedState, StateEntry
    from holdfast.at_rest.state_api import StateRows, StatesAtRest, state
    from holdfast.changes.bootstrap import Bootstrapped
    from holdfast.changes.change import ChangeReport, StepsPlan
    from holdfast.changes.edit.editing import EditPlan, EditReport
    from holdfast.changes.edit.row_changes import EditedRow
    from holdfast.changes.edit.undoing import UndoPlan, UndoReport
    from holdfast.changes.edit_api import edit, erase, plan_edit, plan_erase, plan_undo, undo
    from holdfast.changes.erase.certificate import Certificate, ErasePlan, LocationReport, SearchReport
    from holdfast.changes.evolving import EvolutionPlan, Evolved
    from holdfast.changes.expiry import drop_expired
    from holdfast.changes.offsets.moving import OffsetPlan, OffsetsMoved
    from holdfast.changes.offsets.offsets_api import move_offsets, offsets, plan_offsets
    from holdfast.changes.offsets.position_changes import (
        OffsetChange,
        RenameTopic,
        SkipRecords,
        SyncPoint,
        ToOffset,
        ToRecord,
        ToVersion,
        Translate,
    )
    from holdfast.changes.offsets.positions import SourcePositions
    from holdfast.changes.releasing import Release, ReplacedCheckpoint, plan_release, release
    from holdfast.changes.reshaping import Migrated, MigrationPlan, migrate, plan_migrate
    from holdfast.checkpoints.state.contents import StateContent
    from holdfast.config.alert_settings import Alerts
    from holdfast.config.backend import Memory, RocksDB
    from holdfast.config.checkpoint_settings import Checkpoint
    from holdfast.config.database_stores import Cassandra, Redis, TiKV
    from holdfast.config.flink import FlinkSettings
    from holdfast.config.policies import (
        Autoscale,
        AvailableNow,
        Every,
        Exponential,
        FailureRate,
        FixedDelay,
        NoRestart,
        RealTime,
        Recovery,
        TriggerArguments,
        autoscale,
        available_now,
        every,
        exponential,
        failure_rate,
        fixed_delay,
        no_restart,
        real_time,
        recovery,
    )
    from holdfast.config.setting_report import SettingReport
    from holdfast.config.units import days, hours, minutes, seconds
    from holdfast.engine.session.jars import state_jar
    from holdfast.engine.session.session import configure, session
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
    from holdfast.formats.logs.notes import QueryPlan
    from holdfast.formats.logs.table_logs import committed_files
    from holdfast.formats.operators import OperatorName
    from holdfast.jobs.advise_api import advise
    from holdfast.jobs.definition import Job, job
    from holdfast.jobs.guard_api import Guard, guard
    from holdfast.jobs.health import Health, health
    from holdfast.jobs.open_checkpoint import OpenCheckpoint, checkpoint
    from holdfast.jobs.query_watch import Watch, watch
    from holdfast.jobs.trials.bootstrapping import bootstrap
    from holdfast.jobs.trials.change_api import Change, change
    from holdfast.jobs.trials.comparison import ComparisonReport, compare
    from holdfast.jobs.trials.compatibility import check
    from holdfast.jobs.trials.drill import DrillReport, drill
    from holdfast.jobs.trials.evolution import evolve, plan_evolve
    from holdfast.jobs.trials.linting import lint
    from holdfast.model import BatchProgress, UpgradeReport
    from holdfast.observe.alerting import Alert, AlertEvent
    from holdfast.observe.metrics import MetricSample
    from holdfast.savepoints.spark_upgrade import SparkReport, check_spark
    from holdfast.stream.cautions import ForkWarning, ObjectStoreWarning, WatermarkWarning
    from holdfast.stream.dedupe import dedupe
    from holdfast.stream.idle import watermarked
    from holdfast.stream.joins import enrich, join_within
    from holdfast.stream.keyed import state_declarations as _states
    from holdfast.stream.keyed.broadcast_stream import BroadcastStream, broadcast
    from holdfast.stream.keyed.explain_keyed import ProcessorExplanation, explain
    from holdfast.stream.keyed.keyed_stream import KeyedStream, keyed
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
    from holdfast.stream.late import late_rows
    from holdfast.stream.running import running
    from holdfast.stream.sessions import sessions
    from holdfast.stream.sinks.buffered_sink import BufferedSink
    from holdfast.stream.sinks.ledger import BatchRecord, Ledger, SinkOwner, Transaction, ledger
    from holdfast.stream.sinks.query_sink import Promise, PromiseLevel, Sink
    from holdfast.stream.sinks.record_repeats import RepeatFilter, without_repeats
    from holdfast.stream.sinks.sinks import DeltaSink, SinkBuilder, adopt, sink
    from holdfast.stream.split_hot import SplitStream, split_hot
    from holdfast.stream.windows import WindowedStream, windowed
    from holdfast.worker.declarations.handler_arguments import Context, Event, Timer
    from holdfast.worker.declarations.state_descriptors import (
        Aggregate,
        Keyed,
        KeyedTable,
        Operator,
        State,
        Ttl,
    )
    from holdfast.worker.runtime.handles import AggregatingState, ListState, MapState, ReducingState
    from holdfast.worker.runtime.state_table import StateTable

    list = _states.list_state  # noqa: A001 - the word that people know
    map = _states.map_state  # noqa: A001 - as above

# The module of each public name.
_HOMES = {
    "holdfast.advice.codes": ("explain_code", "known_codes", "CodeExplanation"),
    "holdfast.advice.cost_api": ("cost", "forecast_cost"),
    "holdfast.advice.prices": ("Prices",),
    "holdfast.jobs.advise_api": ("advise",),
    "holdfast.changes.edit_api": ("edit", "erase", "plan_edit", "plan_erase", "plan_undo", "undo"),
    "holdfast.changes.expiry": ("drop_expired",),
    "holdfast.changes.releasing": ("Release", "ReplacedCheckpoint", "plan_release", "release"),
    "holdfast.changes.reshaping": ("Migrated", "MigrationPlan", "migrate", "plan_migrate"),
    "holdfast.changes.evolving": ("EvolutionPlan", "Evolved"),
    "holdfast.at_rest.state_api": ("StateRows", "StatesAtRest", "state"),
    "holdfast.changes.bootstrap": ("Bootstrapped",),
    "holdfast.config.alert_settings": ("Alerts",),
    "holdfast.config.backend": ("Memory", "RocksDB"),
    "holdfast.config.database_stores": ("Cassandra", "Redis", "TiKV"),
    "holdfast.config.checkpoint_settings": ("Checkpoint",),
    "holdfast.config.policies": (
        "autoscale",
        "Autoscale",
        "recovery",
        "exponential",
        "failure_rate",
        "fixed_delay",
        "no_restart",
        "available_now",
        "every",
        "real_time",
        "Every",
        "AvailableNow",
        "RealTime",
        "TriggerArguments",
        "NoRestart",
        "FixedDelay",
        "Exponential",
        "FailureRate",
        "Recovery",
    ),
    "holdfast.config.units": ("days", "hours", "minutes", "seconds"),
    "holdfast.engine.session.jars": ("state_jar",),
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
    "holdfast.formats.logs.table_logs": ("committed_files",),
    "holdfast.jobs.trials.change_api": ("Change", "change"),
    "holdfast.jobs.trials.bootstrapping": ("bootstrap",),
    "holdfast.jobs.trials.comparison": ("compare", "ComparisonReport"),
    "holdfast.jobs.definition": ("Job", "job"),
    "holdfast.jobs.guard_api": ("Guard", "guard"),
    "holdfast.jobs.health": ("Health", "health"),
    "holdfast.jobs.open_checkpoint": ("OpenCheckpoint", "checkpoint"),
    "holdfast.jobs.trials.drill": ("drill", "DrillReport"),
    "holdfast.jobs.trials.evolution": ("evolve", "plan_evolve"),
    "holdfast.jobs.trials.compatibility": ("check",),
    "holdfast.changes.offsets.moving": ("OffsetPlan", "OffsetsMoved"),
    "holdfast.changes.offsets.offsets_api": ("move_offsets", "offsets", "plan_offsets"),
    "holdfast.changes.offsets.position_changes": (
        "RenameTopic",
        "SkipRecords",
        "SyncPoint",
        "ToOffset",
        "ToRecord",
        "ToVersion",
        "Translate",
        "OffsetChange",
    ),
    "holdfast.savepoints.spark_upgrade": ("check_spark", "SparkReport"),
    "holdfast.jobs.trials.linting": ("lint",),
    "holdfast.jobs.query_watch": ("Watch", "watch"),
    "holdfast.model": ("UpgradeReport", "BatchProgress"),
    "holdfast.stream.sinks.ledger": ("Ledger", "ledger", "BatchRecord", "SinkOwner", "Transaction"),
    "holdfast.stream.keyed.broadcast_stream": ("broadcast", "BroadcastStream"),
    "holdfast.stream.sinks.buffered_sink": ("BufferedSink",),
    "holdfast.stream.cautions": ("ForkWarning", "ObjectStoreWarning", "WatermarkWarning"),
    "holdfast.stream.dedupe": ("dedupe",),
    "holdfast.stream.idle": ("watermarked",),
    "holdfast.stream.late": ("late_rows",),
    "holdfast.stream.joins": ("enrich", "join_within"),
    "holdfast.stream.keyed.explain_keyed": ("explain", "ProcessorExplanation"),
    "holdfast.stream.keyed.keyed_stream": ("keyed", "KeyedStream"),
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
    "holdfast.stream.split_hot": ("split_hot", "SplitStream"),
    "holdfast.stream.running": ("running",),
    "holdfast.stream.sessions": ("sessions",),
    "holdfast.stream.windows": ("windowed", "WindowedStream"),
    "holdfast.worker.declarations.handler_arguments": ("Context", "Event", "Timer"),
    "holdfast.worker.runtime.handles": ("AggregatingState", "ListState", "MapState", "ReducingState"),
    "holdfast.worker.declarations.state_descriptors": (
        "Keyed",
        "KeyedTable",
        "Operator",
        "State",
        "Aggregate",
        "Ttl",
    ),
    "holdfast.worker.runtime.state_table": ("StateTable",),
    "holdfast.stream.sinks.query_sink": ("Promise", "Sink", "PromiseLevel"),
    "holdfast.stream.sinks.record_repeats": ("RepeatFilter", "without_repeats"),
    "holdfast.stream.sinks.sinks": ("adopt", "sink", "SinkBuilder", "DeltaSink"),
    "holdfast.advice.advice": ("AdviceReport",),
    "holdfast.advice.cost_report": ("CostReport",),
    "holdfast.advice.findings": ("LintReport", "Finding"),
    "holdfast.advice.plan_forecast": ("CostForecast",),
    "holdfast.at_rest.insight": ("HeavyKeys", "KeyExplanation", "KeyHistory", "WhatIf"),
    "holdfast.at_rest.model": ("StateEntry", "KeyState", "NamedOperator", "NamedState"),
    "holdfast.changes.change": ("StepsPlan", "ChangeReport"),
    "holdfast.changes.edit.editing": ("EditPlan", "EditReport"),
    "holdfast.changes.edit.row_changes": ("EditedRow",),
    "holdfast.changes.edit.undoing": ("UndoPlan", "UndoReport"),
    "holdfast.changes.erase.certificate": ("ErasePlan", "Certificate", "SearchReport", "LocationReport"),
    "holdfast.changes.offsets.positions": ("SourcePositions",),
    "holdfast.checkpoints.state.contents": ("StateContent",),
    "holdfast.config.flink": ("FlinkSettings",),
    "holdfast.config.setting_report": ("SettingReport",),
    "holdfast.formats.logs.notes": ("QueryPlan",),
    "holdfast.formats.operators": ("OperatorName",),
    "holdfast.observe.alerting": ("Alert", "AlertEvent"),
    "holdfast.observe.metrics": ("MetricSample",),
}
# Inside the package, builtin names are avoided; the public names are `hf.list` and `hf.map`.
_CALLED = {"list_state": "list", "map_state": "map"}
_NAMES = {_CALLED.get(name, name): (home, name) for home, names in _HOMES.items() for name in names}
# Packages and modules that are used as a namespace, as in `hf.checkpoints.verify(…)`.
_MODULES = ("checkpoints", "jobs", "savepoints", "shared", "skew")

# Without `list` and `map`, because a star import must not hide the builtins.
__all__ = [
    "AdviceReport",
    "Aggregate",
    "AggregatingState",
    "Alert",
    "AlertEvent",
    "Alerts",
    "Autoscale",
    "AvailableNow",
    "BatchProgress",
    "BatchRecord",
    "Bootstrapped",
    "BroadcastStream",
    "BufferedSink",
    "Cassandra",
    "Certificate",
    "Change",
    "ChangeReport",
    "Checkpoint",
    "CodeExplanation",
    "ComparisonReport",
    "Conflict",
    "Context",
    "Corrupt",
    "CostForecast",
    "CostReport",
    "DeltaSink",
    "DrillReport",
    "EditPlan",
    "EditReport",
    "EditedRow",
    "ErasePlan",
    "Event",
    "Every",
    "EvolutionPlan",
    "Evolved",
    "Exponential",
    "Failed",
    "FailureRate",
    "Finding",
    "FixedDelay",
    "FlinkSettings",
    "ForkWarning",
    "Guard",
    "Health",
    "HeavyKeys",
    "HoldfastError",
    "Internal",
    "Invalid",
    "Job",
    "KeyExplanation",
    "KeyHistory",
    "KeyState",
    "Keyed",
    "KeyedStream",
    "KeyedTable",
    "Ledger",
    "LintReport",
    "ListState",
    "LocationReport",
    "MapState",
    "Memory",
    "MetricSample",
    "Migrated",
    "MigrationPlan",
    "NamedOperator",
    "NamedState",
    "NoRestart",
    "NotFound",
    "ObjectStoreWarning",
    "OffsetChange",
    "OffsetPlan",
    "OffsetsMoved",
    "OpenCheckpoint",
    "Operator",
    "OperatorName",
    "Prices",
    "ProcessorExplanation",
    "Promise",
    "PromiseLevel",
    "QueryPlan",
    "RealTime",
    "Recovery",
    "Redis",
    "ReducingState",
    "Release",
    "RenameTopic",
    "RepeatFilter",
    "ReplacedCheckpoint",
    "RocksDB",
    "SearchReport",
    "SettingReport",
    "Sink",
    "SinkBuilder",
    "SinkOwner",
    "SkipRecords",
    "SourcePositions",
    "SparkReport",
    "SplitStream",
    "State",
    "StateContent",
    "StateEntry",
    "StateRows",
    "StateTable",
    "StatesAtRest",
    "StepsPlan",
    "SyncPoint",
    "TiKV",
    "Timer",
    "ToOffset",
    "ToRecord",
    "ToVersion",
    "Transaction",
    "Translate",
    "TriggerArguments",
    "Ttl",
    "Unavailable",
    "UndoPlan",
    "UndoReport",
    "Unsupported",
    "UpgradeReport",
    "Watch",
    "WatermarkWarning",
    "WhatIf",
    "WindowedStream",
    "add",
    "adopt",
    "advise",
    "aggregating",
    "autoscale",
    "available_now",
    "bootstrap",
    "broadcast",
    "change",
    "check",
    "check_spark",
    "checkpoint",
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
    "explain_code",
    "exponential",
    "failure_rate",
    "fixed_delay",
    "forecast_cost",
    "greatest",
    "guard",
    "health",
    "hours",
    "job",
    "jobs",
    "join_within",
    "keyed",
    "known_codes",
    "late_rows",
    "least",
    "ledger",
    "lint",
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
    "plan_release",
    "plan_undo",
    "real_time",
    "recovery",
    "reducing",
    "release",
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
    """Load a public name from its module, or return a stand-in if its extra is not installed."""
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name not in _NAMES:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    home, own = _NAMES[name]
    try:
        value: object = getattr(importlib.import_module(home), own)
    except ModuleNotFoundError as error:
        from holdfast.extras import NOT_ON_WINDOWS, stand_in

        if sys.platform == "win32":
            raise ImportError(NOT_ON_WINDOWS) from error
        for_jobs = home.startswith((f"{__name__}.stream.", f"{__name__}.worker."))
        lacking = stand_in(f"{__name__}.{name}", error, for_jobs=for_jobs)
        if lacking is None:
            raise
        return lacking  # not cached: the extra may be installed later
    globals()[name] = value
    return value


def __dir__() -> builtins.list[str]:
    return sorted({*__all__, *_NAMES})
