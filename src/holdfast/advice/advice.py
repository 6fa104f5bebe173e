"""Advice, its confidence, and the commands that it recommends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Literal, TypeAlias

from holdfast.advice.findings import Severity
from holdfast.advice.plan_forecast import CostForecast
from holdfast.config.checks import place_word
from holdfast.json_shapes import JsonShape
from holdfast.quantities import rounded_duration, rounded_size

TopicName: TypeAlias = Literal["backend", "checkpoint", "partitions", "memory"]


class Topic(str, Enum):
    """The subject of a piece of advice."""

    BACKEND = "backend"
    CHECKPOINT = "checkpoint"
    PARTITIONS = "partitions"
    MEMORY = "memory"


class Confidence(str, Enum):
    """The confidence of a piece of advice.

    `CERTAIN`: files or the job's batches prove the advice. `LIKELY`: they prove the cause, and its size is
    estimated. `GUESS`: the advice depends on facts that no file records.
    """

    CERTAIN = "certain"
    LIKELY = "likely"
    GUESS = "guess"


@dataclass(frozen=True, slots=True)
class Cost(JsonShape):
    """The cost of leaving a setting unchanged; unknown amounts are None.

    Attributes:
        what: The cost as a sentence.
        disk_bytes: Bytes of checkpoint storage.
        memory_bytes: Bytes of memory over all executors.
        requests_a_day: Requests to object storage per day.
        files_a_day: Files written per day.
        batch_ms: Time per batch, in milliseconds.
        recovery_ms: Time per restart until its first batch, in milliseconds.
        money_a_month: Money per month, in the currency of the prices.
    """

    what: str
    disk_bytes: int | None = None
    memory_bytes: int | None = None
    requests_a_day: float | None = None
    files_a_day: float | None = None
    batch_ms: float | None = None
    recovery_ms: float | None = None
    money_a_month: float | None = None

    def text(self, currency: str) -> str:
        """Return the cost as text: the sentence and the amounts."""
        numbers = [
            f"{shown(number)} {noun}"
            for number, shown, noun in (
                (self.disk_bytes, rounded_size, "of storage"),
                (self.memory_bytes, rounded_size, "of memory"),
                (self.files_a_day, count, "files per day"),
                (self.requests_a_day, count, "requests per day"),
                (self.batch_ms, rounded_duration, "of each batch"),
                (self.recovery_ms, rounded_duration, "of each restart"),
                (self.money_a_month, _money, f"{currency} per month"),
            )
            if number is not None
        ]
        return f"{self.what}: {', '.join(numbers)}" if numbers else self.what


def count(number: float) -> str:
    """Format a number with three significant digits: `1,230,000`, `45`, `0.7`."""
    if number < 10:
        return f"{number:.1f}".removesuffix(".0")
    digits = max(len(str(int(number))) - 3, 0)
    return f"{round(number, -digits):,.0f}"


def _money(amount: float) -> str:
    return f"{amount:,.2f}"


@dataclass(frozen=True, slots=True)
class AdviceKind:
    """A kind of advice.

    Attributes:
        id: The stable ID.
        name: The short name.
        topic: The subject.
        severity: The default severity.
        sureness: The default confidence.
        looks_for: The condition under which the advice is given.
        costs: The cost of leaving the setting, and how it is estimated.
        instead: The recommended action.
        rule: The lint rule that reports the same problem; None without one.
    """

    id: str
    name: str
    topic: Topic
    severity: Severity
    sureness: Confidence
    looks_for: str
    costs: str
    instead: str
    rule: str | None = None

    def advice(
        self,
        seen: str,
        cost: Cost,
        do: str,
        commands: Iterable[str],
        *,
        severity: Severity | None = None,
        sureness: Confidence | None = None,
        rule: str | None = None,
    ) -> Advice:
        """Return advice of this kind, with the kind's severity and confidence as defaults."""
        return Advice(
            self.id,
            self.name,
            self.topic,
            severity or self.severity,
            sureness or self.sureness,
            seen,
            cost,
            do,
            tuple(commands),
            rule or self.rule,
        )


@dataclass(frozen=True, slots=True)
class Advice(JsonShape):
    """A recommendation for a checkpoint or a plan.

    Attributes:
        id: The ID of the kind of advice.
        name: The name of the kind of advice.
        topic: `backend`, `checkpoint`, `partitions` or `memory`.
        severity: `error`, `warning` or `note`, as in lint.
        sureness: `certain`, `likely` or `guess`.
        seen: The observation.
        cost: The cost of leaving the setting unchanged.
        do: The recommended action.
        commands: Commands and settings to copy.
        rule: The lint rule that reports the same problem; None without one.
    """

    id: str
    name: str
    topic: Topic
    severity: Severity
    sureness: Confidence
    seen: str
    cost: Cost
    do: str
    commands: tuple[str, ...]
    rule: str | None = None


@dataclass(frozen=True, slots=True)
class Option(JsonShape):
    """A backend for state, or a location for a checkpoint.

    Attributes:
        name: `memory`, `rocksdb`, `redis` or `cassandra`; for a location `local`, `efs`, `hdfs` or `s3`.
        advised: Whether this is the recommended option: one per list, or none if no option fits.
        now: Whether this is the current option.
        fits: Whether the option is possible.
        why: The reason for or against it.
        state_bytes: The size of the state with this option in bytes, including all kept versions.
        recovery_ms: Time from a restart to the end of its first batch, in milliseconds; None if unknown.
        rows_a_second: Rows per second that a query processed in the measurement; None if unknown.
        read_us: Median time of one key read, in microseconds.
        money_a_month: Cost of storage and requests per month; None if no price is known.
        unpriced: Items without a price, which `money_a_month` does not include: `requests`, or `writes` and
            `reads`.
        settings: The Spark settings that select this option.
    """

    name: str
    advised: bool
    now: bool
    fits: bool
    why: str
    state_bytes: int | None = None
    recovery_ms: float | None = None
    rows_a_second: float | None = None
    read_us: float | None = None
    money_a_month: float | None = None
    unpriced: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AdviceReport(JsonShape):
    """All advice on a checkpoint or a plan.

    Attributes:
        place: The address of the checkpoint; None for a plan.
        batch_id: The newest committed batch.
        topics: The requested topics.
        advice: The advice, most severe first.
        backends: The possible backends, if that topic was requested.
        places: The possible locations of the checkpoint, if that topic was requested.
        forecast: The forecast of a plan; None for a checkpoint.
        settings: The Spark settings for a plan.
        figures: The source of the backend measurements.
        currency: The currency of all amounts.
        not_told: What could not be determined, with the missing information.
        lint: Rules that `holdfast lint` reports for the checkpoint and that no advice covers.

    Example:
        report: hf.AdviceReport = hf.advise("checkpoints/visits", topics=["checkpoint"])
        assert report.batch_id == 11 and report.currency == "USD"
    """

    place: str | None
    batch_id: int | None
    topics: tuple[Topic, ...]
    advice: tuple[Advice, ...]
    backends: tuple[Option, ...] = ()
    places: tuple[Option, ...] = ()
    forecast: CostForecast | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    figures: str = ""
    currency: str = "USD"
    not_told: tuple[str, ...] = ()
    lint: tuple[str, ...] = ()


_SEVERITIES: Final = tuple(Severity)
_SURENESSES: Final = tuple(Confidence)


def worst_first(advice: Iterable[Advice]) -> tuple[Advice, ...]:
    """Sort advice by severity, then confidence, then monthly cost, then ID."""

    def rank(each: Advice) -> tuple[int, int, float, str, str]:
        severity, sureness = _SEVERITIES.index(each.severity), _SURENESSES.index(each.sureness)
        return severity, sureness, -(each.cost.money_a_month or 0.0), each.id, each.seen

    return tuple(sorted(advice, key=rank))


def rescale(uri: str, partitions: int) -> str:
    """Return the command that creates a checkpoint with a different number of partitions."""
    return f"holdfast rescale {place_word(uri)} NEW --partitions {partitions} --confirm-stopped"


def migrate(uri: str, backend: str) -> str:
    """Return the command that moves state to a different backend."""
    database = {
        "redis": " --database redis://HOST:6379/0",
        "cassandra": " --database cassandra://HOST:9042/KEYSPACE",
    }.get(backend, "")
    return f"holdfast state migrate {place_word(uri)} NEW --backend {backend}{database} --confirm-stopped"


def conf(key: str, value: str) -> str:
    """Return the call that sets a session setting."""
    return f'spark.conf.set("{key}", "{value}")'


def trigger(interval_ms: int) -> str:
    """Return the call that sets the trigger of a query."""
    seconds, rest = divmod(interval_ms, 1000)
    text = f"{interval_ms} milliseconds" if rest else f"{seconds} second{'' if seconds == 1 else 's'}"
    return f'.trigger(processingTime="{text}")'
