"""A job: a function that builds queries, and its settings."""

from __future__ import annotations

import dataclasses
import inspect
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast, get_args

from holdfast.config.alert_settings import Alerts
from holdfast.config.backend import Backend, RocksDB
from holdfast.config.checkpoint_settings import Checkpoint
from holdfast.config.checks import group_name
from holdfast.config.policies import (
    Autoscale,
    Every,
    RealTime,
    Recovery,
    RestartStrategy,
    Trigger,
    exponential,
    parse_trigger,
)
from holdfast.config.units import exact_duration
from holdfast.errors import Invalid

if TYPE_CHECKING:
    from holdfast.engine.session.jars import Extra

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

# Settings that `--set` may reach below a dot, and where they live.
_NESTED = ("checkpoint", "backend", "alerts")


@dataclass(frozen=True, slots=True)
class Job:
    """A pipeline with its settings, created by `@holdfast.job`.

    Attributes:
        name: The job's name, unique within a state home.
        build: The user's function; called once per driver, in the driver, with the session and the
            job's parameters. It returns one sink or several named ones.
        checkpoint: The checkpoint of its queries and its settings.
        trigger: The trigger; by default the checkpoint's interval, else as soon as possible.
        backend: The state store.
        restart: The restart strategy after a failure of the driver.
        recovery: The recovery from a damaged checkpoint.
        master: The Spark master.
        conf: Further Spark settings; they override all others.
        extras: The connectors whose jars are added: `delta`, `kafka`.
        py_files: Modules, archives and directories that tasks import, relative to the job file.
        alerts: The thresholds and routes of alerts.
        consumer_group: The Kafka consumer group to which its driver commits the offsets of its queries.
        parameters: The values of the function's own parameters.
        strict: True to refuse a start on lint errors in its source or its plan.
        standby: True to keep a second driver ready that replaces the one that runs the job when it ends.
        autoscale: The bounds of the automatic rescale; None for none.

    Example:
        @hf.job(name="visits", checkpoint="checkpoints/shop", trigger="1 minute")
        def visits(session, table="orders"): ...

        night = visits.with_overrides({"trigger": "available now", "table": "orders_of_the_day"})
        assert str(night.trigger) == "available now"
        assert night.parameters == {"table": "orders_of_the_day"}
    """

    name: str
    build: Callable[..., Any]
    checkpoint: Checkpoint
    trigger: Trigger | None = None
    backend: Backend = field(default_factory=RocksDB)
    restart: RestartStrategy = field(default_factory=exponential)
    recovery: Recovery = field(default_factory=Recovery)
    master: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    extras: tuple[Extra, ...] = ()
    py_files: tuple[str, ...] = ()
    alerts: Alerts = field(default_factory=Alerts)
    consumer_group: str | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    strict: bool = False
    standby: bool = False
    autoscale: Autoscale | None = None

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise Invalid(
                "invalid job name",
                code="HF-E2209",
                where="@holdfast.job(name=…)",
                found=repr(self.name),
                expected="1 to 64 letters, digits, dots, dashes or underscores, a letter or digit first",
                hint=f"choose a valid name, for example name={_usable_name(self.name)!r}",
            )
        if self.consumer_group is not None:
            group_name(self.consumer_group, "@holdfast.job(consumer_group=…)")
        if isinstance(self.trigger, RealTime) and self.checkpoint.min_pause_ms:
            raise Invalid(
                "min_pause cannot be combined with real-time mode",
                code="HF-E2210",
                where="@holdfast.job(checkpoint=…)",
                found=f"min_pause of {exact_duration(self.checkpoint.min_pause_ms)}",
                hint="omit min_pause; the interval of hf.real_time(…) sets how often the job commits",
            )

    def __call__(self, spark: Any, **parameters: Any) -> Any:
        """Build the job's queries without starting them."""
        return self.build(spark, **{**self.parameters, **parameters})

    def effective_trigger(self) -> Trigger | None:
        """Return the job's trigger, else the one of the checkpoint's interval."""
        return self.trigger or self.checkpoint.default_trigger()

    @property
    def interval_ms(self) -> int | None:
        """The interval between the starts of two batches; None if not set."""
        return self.trigger.interval_ms if isinstance(self.trigger, Every) else self.checkpoint.interval_ms

    @property
    def timeout_ms(self) -> int | None:
        """The limit of a batch's duration; in real-time mode it counts from the end of the interval."""
        timeout_ms = self.checkpoint.timeout_ms
        meant_ms = self.trigger.interval_ms if isinstance(self.trigger, RealTime) else 0
        return None if timeout_ms is None else timeout_ms + meant_ms

    def spark_conf(self) -> dict[str, str]:
        """Return the job's settings as Spark settings; `conf` overrides the others."""
        return {**self.backend.spark_conf(), **self.checkpoint.spark_conf(), **self.conf}

    def with_overrides(self, overrides: Mapping[str, str]) -> Job:
        """Return the job with `--set key=value` applied.

        A key is `trigger`, `name`, a field below `checkpoint.`, `backend.` or `alerts.`, or a parameter of
        the job's function, whose value is read as the type of its default. Keys of one group are set
        together, since some need each other.

        Raises:
            Invalid: A key is unknown, or a value does not fit.
        """
        job = self
        below: dict[str, dict[str, str]] = {}
        for key, text in overrides.items():
            head, dot, rest = key.partition(".")
            if key == "trigger":
                job = dataclasses.replace(job, trigger=parse_trigger(text))
            elif key == "name":
                job = dataclasses.replace(job, name=text)
            elif dot and head in _NESTED:
                below.setdefault(head, {})[rest] = text
            else:
                values = {**job.parameters, key: _parameter(job.build, key, text)}
                job = dataclasses.replace(job, parameters=values)
        changed = {head: _replaced(getattr(job, head), head, texts) for head, texts in below.items()}
        return dataclasses.replace(job, **changed) if changed else job


@dataclass(frozen=True, slots=True)
class Periodic:
    """The schedule of a job's periodic savepoints.

    Attributes:
        catalog: The directory, as a canonical URI.
        every_ms: The interval between two savepoints.
        retained: The number of savepoints to keep.
        drop_expired: True to omit expired rows of keyed state.
    """

    catalog: str
    every_ms: int
    retained: int
    drop_expired: bool = False


def job(
    *,
    name: str,
    checkpoint: Checkpoint | str,
    trigger: Trigger | str | None = None,
    backend: Backend | None = None,
    restart: RestartStrategy | None = None,
    recovery: Recovery | None = None,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    extras: Iterable[Extra] = (),
    py_files: Iterable[str | os.PathLike[str]] = (),
    alerts: Alerts | None = None,
    consumer_group: str | None = None,
    strict: bool = False,
    standby: bool = False,
    autoscale: Autoscale | None = None,
) -> Callable[[Callable[..., Any]], Job]:
    """Turn a function into a job that `holdfast run` can start.

    The function gets the SparkSession, then its own parameters, which need defaults and can be set with
    `--set key=value`. It returns what is to run: `hf.sink(…)`, a `DataStreamWriter`, or a list of named
    sinks. It must not start a query itself.

    The job file and this package are shipped to the tasks of a cluster; modules that the job file imports are
    shipped if `py_files` lists them.

    Args:
        name: The job's name, unique within a state home.
        checkpoint: The checkpoint settings, or only the location.
        trigger: The trigger, or its text, such as "1 minute" or "available now"; by default the checkpoint's
            interval, else as soon as possible.
        backend: The state store; RocksDB by default.
        restart: The restart strategy after a failure of the driver; `hf.exponential()` by default.
        recovery: The recovery from a damaged checkpoint; `hf.recovery()` by default.
        master: The Spark master; by default that of the user's settings, or `local[*]`.
        conf: Further Spark settings; they override all others.
        extras: The connectors whose jars are added: `delta`, `kafka`.
        py_files: Modules, archives and directories that tasks import, relative to the job file.
        alerts: The thresholds and routes of alerts.
        consumer_group: The Kafka consumer group to which the driver commits the offsets of the queries, for
            Kafka's own tools. The group must have no consumers, and no query continues from these offsets.
            If two queries read one topic, the group has the offsets of the later commit.
        strict: True to run the rules of `holdfast lint --plan` at each start, after the function has built
            the queries and before they start; an error among the findings ends the job.
        standby: True to keep a second driver with a Spark session of its own. It has run the queries without
            rows and touches no checkpoint; it takes over when the driver ends, and calls the function again.
            It needs the memory of a second driver, and a core for about 15 seconds when it starts.
        autoscale: The bounds within which the supervisor changes the number of partitions, as
            `hf.autoscale(…)`; by default it never does.

    Raises:
        Invalid: A value is not allowed, or the function has a parameter without a default.

    Example:
        @hf.job(name="visits", checkpoint="checkpoints/shop", trigger="1 minute", restart=hf.fixed_delay(5))
        def visits(spark, folder="arrivals"):
            schema = "customer string, drink string, amount double"
            orders = spark.readStream.schema(schema).json(folder)
            return hf.sink(orders.groupBy("customer").count(), mode="complete").memory("visits")

        assert visits.effective_trigger() == hf.every("1 minute")
    """

    def decorate(build: Callable[..., Any]) -> Job:
        _check_signature(build)
        return Job(
            name=name,
            build=build,
            checkpoint=checkpoint if isinstance(checkpoint, Checkpoint) else Checkpoint(checkpoint),
            trigger=None if trigger is None else parse_trigger(trigger),
            backend=backend if backend is not None else RocksDB(),
            restart=restart if restart is not None else exponential(),
            recovery=recovery if recovery is not None else Recovery(),
            master=master,
            conf=dict(conf or {}),
            extras=tuple(extras),
            py_files=_code_paths(py_files),
            alerts=alerts if alerts is not None else Alerts(),
            consumer_group=consumer_group,
            strict=strict,
            standby=standby,
            autoscale=autoscale,
        )

    return decorate


def _code_paths(given: Iterable[str | os.PathLike[str]]) -> tuple[str, ...]:
    if isinstance(given, (str, os.PathLike)):
        raise Invalid(
            "py_files must be a list of paths",
            code="HF-E2211",
            where="@holdfast.job(py_files=…)",
            found=repr(given),
            hint=f"write py_files=[{os.fspath(given)!r}]",
        )
    return tuple(os.fspath(path) for path in given)


def strategy_fields(strategy: RestartStrategy) -> dict[str, Any]:
    """Return a restart strategy as plain values; `strategy_from_fields` reads them back."""
    values = {item.name: getattr(strategy, item.name) for item in dataclasses.fields(strategy)}
    return {"strategy": type(strategy).__name__, **values}


def strategy_from_fields(values: Mapping[str, Any]) -> RestartStrategy:
    """Parse what `strategy_fields` wrote."""
    kinds = {kind.__name__: kind for kind in get_args(RestartStrategy)}
    return cast(
        "RestartStrategy",
        kinds[values["strategy"]](**{key: value for key, value in values.items() if key != "strategy"}),
    )


def _usable_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("._-")[:64] or "my-job"


def _check_signature(build: Callable[..., Any]) -> None:
    parameters = list(inspect.signature(build).parameters.values())
    required = [p.name for p in parameters[1:] if p.default is p.empty and p.kind not in _VARIADIC]
    if not parameters or required:
        raise Invalid(
            "the parameters of the job's function are invalid",
            code="HF-E2212",
            where=f"{build.__module__}.{build.__qualname__}{inspect.signature(build)}",
            found=f"no default for {', '.join(required)}" if required else "no parameter",
            expected="a parameter for the session, and a default for each other parameter",
            hint="write `def job(spark, day='today')`; `holdfast run FILE.py --set day=monday` replaces"
            " a default",
        )


_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def _replaced(value: Any, head: str, texts: Mapping[str, str]) -> Any:
    fields = {item.name: getattr(value, item.name) for item in dataclasses.fields(value)}
    for name in texts:
        if name not in fields:
            raise _unknown(f"{head}.{name}", [f"{head}.{field}" for field in fields])
    changed = {name: _converted(f"{head}.{name}", fields[name], text) for name, text in texts.items()}
    return dataclasses.replace(value, **changed)


def _parameter(build: Callable[..., Any], name: str, text: str) -> Any:
    parameters = dict(list(inspect.signature(build).parameters.items())[1:])
    if name not in parameters:
        nested = [f"{head}.…" for head in _NESTED]
        raise _unknown(name, ["trigger", "name", *nested, *parameters])
    return _converted(name, parameters[name].default, text)


def _unknown(key: str, allowed: list[str]) -> Invalid:
    return Invalid(
        "unknown setting of the job",
        code="HF-E2213",
        where=f"--set {key}=…",
        found=key,
        expected=", ".join(allowed),
        hint="list the job's settings with `holdfast run FILE.py --dry-run`",
    )


def _converted(key: str, present: Any, text: str) -> Any:
    """Read a text as the type of the value that it replaces."""
    try:
        if isinstance(present, bool):
            return {"true": True, "false": False}[text.lower()]
        if isinstance(present, (int, float)) and _is_number(text):
            return type(present)(text)
    except (KeyError, ValueError):
        raise Invalid(
            "invalid value for a setting of the job",
            code="HF-E2214",
            where=f"--set {key}=…",
            found=repr(text),
            expected=f"a value of type {type(present).__name__}, such as {present!r}",
            hint=f"write the value like the default: --set {key}={present}",
        ) from None
    return text


def _is_number(text: str) -> bool:
    return re.fullmatch(r"[+-]?\d+(\.\d*)?([eE][+-]?\d+)?", text) is not None
