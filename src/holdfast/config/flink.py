"""Conversion of Flink's settings into Holdfast's."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from holdfast.config.backend import Backend, Memory, RocksDB
from holdfast.config.checkpoint_fields import CheckpointFields, checkpoint_knobs
from holdfast.config.checks import refused
from holdfast.config.flink_keys import FLINK_FAMILIES, FLINK_KEYS, OWN_PREFIXES, FlinkKey
from holdfast.config.policies import (
    ZOOKEEPER,
    RestartStrategy,
    exponential,
    failure_rate,
    fixed_delay,
    no_restart,
)
from holdfast.config.setting_report import SettingOutcome, SettingReport, format_setting
from holdfast.config.spark_defaults import PROVIDER_KEY, ROCKSDB
from holdfast.config.units import exact_duration
from holdfast.errors import Invalid

T = TypeVar("T")
C = TypeVar("C", bound=CheckpointFields)

_KNOWN = {name: entry for entry in FLINK_KEYS for name in (entry.name, *entry.aliases)}

# The entry of a key that is not in the table.
_NO_ENTRY = FlinkKey("")

_STRATEGIES: dict[str, Callable[..., RestartStrategy]] = {
    "none": no_restart,
    "fixed-delay": fixed_delay,
    "failure-rate": failure_rate,
    "exponential-delay": exponential,
}

# The precedence of Flink's three settings of RocksDB's memory if several are given.
_MEMORY_ORDER = tuple(
    f"state.backend.rocksdb.memory.{name}" for name in ("fixed-per-slot", "managed", "fixed-per-tm")
)

_FIELD = re.compile(r"\((\w+)")
# The minimum similarity of two names for one to count as a misspelling of the other.
_ALIKE = 0.86


@dataclass(frozen=True, slots=True)
class FlinkSettings(Generic[C]):
    """Holdfast's settings, converted from Flink's.

    Attributes:
        checkpoint: The checkpoint settings.
        backend: The state backend.
        restart: The restart strategy; Holdfast's default if Flink's settings have none.
        savepoints: The directory of savepoints, also set in `checkpoint`; None if not given.
        report: The report on each key, in the order given.
        further_conf: Spark settings without a field of the checkpoint or the backend.
        ha: The address of the elections, in the form of `--ha`; None for a single supervisor.
        lease_ms: The time after which an unresponsive leader is replaced, in milliseconds; None if not given.

    Example:
        flink = {"execution.checkpointing.interval": "1 min", "state.backend.type": "rocksdb"}
        settings: hf.FlinkSettings = hf.Checkpoint.from_flink(flink, storage="checkpoints/visits")
        assert settings.checkpoint.interval_ms == 60_000
        for report in settings.report:
            print(report.name, report.becomes)
    """

    checkpoint: C
    backend: Backend
    restart: RestartStrategy
    savepoints: str | None
    report: tuple[SettingReport, ...]
    further_conf: Mapping[str, str] = field(default_factory=dict)
    ha: str | None = None
    lease_ms: int | None = None

    def spark_conf(self) -> dict[str, str]:
        """Return all Spark settings; explicit ones override a profile."""
        return {**self.backend.spark_conf(), **self.checkpoint.spark_conf(), **self.further_conf}


@dataclass(frozen=True, slots=True)
class _Given:
    """A given key with its raw value, its parsed value and its entry in the table of known keys."""

    written: str
    raw: object
    value: Any = None
    entry: FlinkKey = _NO_ENTRY

    def report(self, outcome: SettingOutcome, becomes: str, why: str) -> SettingReport:
        """Return the report of this key."""
        return SettingReport(self.written, format_setting(self.raw), outcome, becomes, why)

    def no_use(self, why: str) -> SettingReport:
        """Return the report of this key as one without effect."""
        return self.report(SettingOutcome.NO_USE, "", why)

    def explained(self, knobs: tuple[SettingReport, ...], name: str) -> SettingReport:
        """Return the report of the field that this key sets."""
        knob = next(knob for knob in knobs if knob.name == name)
        return replace(knob, name=self.written, value=format_setting(self.raw))


def read_flink(
    keys: Mapping[str, object], build: Callable[..., C], *, storage: str | os.PathLike[str] | None = None
) -> FlinkSettings[C]:
    """Read Flink's settings; see `Checkpoint.from_flink`.

    Args:
        keys: Flink's keys with their values.
        build: Creates the checkpoint from its fields.
        storage: The location of the checkpoint; overrides Flink's key.

    Raises:
        Invalid: A value is not allowed, a key is misspelt, a setting is given under two names with different
            values, or the location of the checkpoint is missing.
    """
    given = [_look_up(written, raw) for written, raw in keys.items()]
    _refuse_contradictions(given)
    kind = _chosen(given, "backend", "rocksdb")
    strategy = _chosen(given, "restart", "exponential-delay")
    checkpoint = _checkpoint(given, build, storage)
    backend: Backend = Memory() if kind == "memory" else _rocksdb(given)
    restart = _built(_STRATEGIES[strategy], _fields(given, strategy))
    reporter = _Reporter(checkpoint, backend, restart, strategy, given, storage_given=storage is not None)
    return FlinkSettings(
        checkpoint=checkpoint,
        backend=backend,
        restart=restart,
        savepoints=_chosen(given, "checkpoint.savepoints", None),
        ha=_elections(given),
        lease_ms=_chosen(given, "ha.lease", None),
        report=tuple(reporter.knob(setting) for setting in given),
        further_conf={
            setting.entry.spark_key: format_setting(setting.value)
            for setting in given
            if setting.entry.spark_key and reporter.reaches_spark(setting.entry)
        },
    )


@dataclass(frozen=True, slots=True)
class _Reporter:
    """A builder of the reports on all keys."""

    checkpoint: CheckpointFields
    backend: Backend
    restart: RestartStrategy
    strategy: str
    given: list[_Given]
    storage_given: bool

    def knob(self, setting: _Given) -> SettingReport:
        entry = setting.entry
        if entry is _NO_ENTRY:
            return self._unknown(setting)
        section, _, name = entry.target.partition(".")
        if section == "checkpoint":
            return self._of_checkpoint(setting, name)
        if section == "backend" or entry.spark_key:
            return self._of_backend(setting, entry, name)
        if section in _STRATEGIES:
            return self._of_restart(setting, section, name)
        if section in ("restart", "ha"):
            return self._of_supervisor(setting, entry, name)
        return setting.report(entry.outcome, "", entry.why)

    def _of_supervisor(self, setting: _Given, entry: FlinkKey, name: str) -> SettingReport:
        if entry.target.startswith("restart"):
            why = "The supervisor applies it after each failure of the driver."
            return setting.report(SettingOutcome.SUPERVISOR, str(setting.value), why)
        address = _elections(self.given)
        if address is None:
            return setting.no_use("There is one supervisor: high-availability.type is not zookeeper.")
        becomes = f"--lease {exact_duration(setting.value)}" if name == "lease" else f"--ha {address}"
        return setting.report(SettingOutcome.SUPERVISOR, becomes, entry.why)

    def reaches_spark(self, entry: FlinkKey) -> bool:
        """Return whether the Spark setting of a key applies to the chosen backend."""
        return isinstance(self.backend, RocksDB) or not entry.spark_key.startswith(ROCKSDB)

    def _of_checkpoint(self, setting: _Given, name: str) -> SettingReport:
        if name == "storage" and self.storage_given:
            return setting.no_use("Overridden by the argument storage=….")
        knob = setting.explained(checkpoint_knobs(self.checkpoint), name)
        if name == "storage":
            why = "Flink creates a directory for each job below it; here it belongs to one job. "
            return replace(knob, why=why + knob.why)
        if name == "retain" and setting.value != _as_number(setting.raw):
            return replace(knob, why="A restart reads the last two batches. " + knob.why)
        return knob

    def _of_backend(self, setting: _Given, entry: FlinkKey, name: str) -> SettingReport:
        if entry.target == "backend":
            provider = self.backend.spark_conf()[PROVIDER_KEY]
            why = "The first start writes it into the checkpoint, and Spark ignores later changes."
            return setting.report(SettingOutcome.SPARK, f"{PROVIDER_KEY} = {provider}", why)
        if isinstance(self.backend, Memory) and (name or not self.reaches_spark(entry)):
            return setting.no_use("The state backend is the heap, and this is a RocksDB setting.")
        if not name:
            becomes = f"{entry.spark_key} = {format_setting(setting.value)}"
            return setting.report(SettingOutcome.SPARK, becomes, entry.why)
        winner = _memory(self.given)
        if name == "memory" and winner is not None and winner is not setting:
            return setting.no_use(f"Overridden by {winner.written}.")
        knob = setting.explained(self.backend.knobs(), name)
        if entry.name.endswith("fixed-per-slot"):
            return replace(knob, why="An executor has one budget for all its slots. " + knob.why)
        return knob

    def _of_restart(self, setting: _Given, section: str, name: str) -> SettingReport:
        if section != self.strategy:
            return setting.no_use(f"The restart strategy is {self.strategy}.")
        return setting.explained(self.restart.knobs(), name)

    @staticmethod
    def _unknown(setting: _Given) -> SettingReport:
        for prefix, why in FLINK_FAMILIES:
            if setting.written.startswith(prefix):
                return setting.no_use(why)
        if setting.written.startswith(OWN_PREFIXES):
            return setting.no_use("Not a Flink setting that Holdfast knows.")
        return setting.no_use("Not a state or checkpoint setting.")


def _look_up(written: str, raw: object) -> _Given:
    entry = _KNOWN.get(written)
    if entry is not None:
        return _Given(written, raw, entry.read(raw, written), entry)
    if written.startswith(OWN_PREFIXES) and not written.startswith(tuple(f for f, _ in FLINK_FAMILIES)):
        close = difflib.get_close_matches(written, _KNOWN, n=1, cutoff=_ALIKE)
        if close:
            raise Invalid(
                "unknown Flink setting",
                code="HF-E2160",
                where="Checkpoint.from_flink",
                found=written,
                hint=f"did you mean {close[0]}?",
            )
    return _Given(written, raw)


def _refuse_contradictions(given: list[_Given]) -> None:
    seen: dict[str, _Given] = {}
    for setting in given:
        first = seen.setdefault(setting.entry.name, setting)
        if setting.entry is not _NO_ENTRY and first.value != setting.value:
            raise Invalid(
                "a Flink setting is given under two names with different values",
                code="HF-E2161",
                hint="remove one of the two settings",
                where="Checkpoint.from_flink",
                found=f"{first.written} = {first.raw!r} and {setting.written} = {setting.raw!r}",
                expected=f"only {setting.entry.name}",
            )


def _checkpoint(given: list[_Given], build: Callable[..., C], storage: str | os.PathLike[str] | None) -> C:
    fields = _fields(given, "checkpoint")
    if storage is not None:
        fields["storage"] = _Given("storage", storage, storage)
    if "storage" not in fields:
        raise Invalid(
            "no directory given for the checkpoint",
            code="HF-E2162",
            where="Checkpoint.from_flink",
            expected="execution.checkpointing.dir, or storage=… of from_flink",
            hint="set execution.checkpointing.dir in the Flink configuration, or pass storage=…",
        )
    return _built(build, fields)


def _rocksdb(given: list[_Given]) -> RocksDB:
    fields = _fields(given, "backend")
    memory = _memory(given)
    if memory is not None:
        fields["memory"] = memory
    return _built(RocksDB, fields)


def _memory(given: list[_Given]) -> _Given | None:
    named = {setting.entry.name: setting for setting in reversed(given)}
    return next((named[name] for name in _MEMORY_ORDER if name in named), None)


def _fields(given: list[_Given], section: str) -> dict[str, _Given]:
    head = f"{section}."
    return {
        setting.entry.target.removeprefix(head): setting
        for setting in given
        if setting.entry.target.startswith(head)
    }


def _chosen(given: list[_Given], target: str, default: Any) -> Any:
    return next((setting.value for setting in given if setting.entry.target == target), default)


def _elections(given: list[_Given]) -> str | None:
    """Return the address of the elections, which Flink splits into several keys."""
    if _chosen(given, "ha.type", "none") != "zookeeper":
        return None
    quorum = _chosen(given, "ha.quorum", None)
    if quorum is None:
        raise Invalid(
            "no ZooKeeper address for the elections",
            code="HF-E2163",
            hint="set high-availability.zookeeper.quorum to the servers, such as host:2181",
            where="high-availability.type: zookeeper",
        )
    root = str(_chosen(given, "ha.root", "/flink")).strip("/")
    return f"{ZOOKEEPER}{quorum}/{root}"


def _built(make: Callable[..., T], fields: dict[str, _Given]) -> T:
    """Create a Holdfast setting; errors name Flink's key."""
    try:
        return make(**{name: setting.value for name, setting in fields.items()})
    except Invalid as error:
        field_name = _FIELD.search(error.where or "")
        setting = fields.get(field_name[1]) if field_name else None
        if setting is None:
            raise
        raise refused(setting.written, setting.raw, error.expected or "", hint=error.hint) from error


def _as_number(raw: object) -> int:
    return int(str(raw).strip())
