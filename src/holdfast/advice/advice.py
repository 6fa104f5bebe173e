"""An advice, its confidence, and the commands that it names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from holdfast.advice.findings import Severity
from holdfast.advice.plan_forecast import Forecast
from holdfast.config.checks import place_word
from holdfast.config.units import rounded_duration, rounded_size
from holdfast.json_shapes import JsonShape


class Topic(str, Enum):
    """The subject of an advice."""

    BACKEND = "backend"
    CHECKPOINT = "checkpoint"
    PARTITIONS = "partitions"
    MEMORY = "memory"


class Confidence(str, Enum):
    """The confidence of an advice.

    `CERTAIN`: files, or the job's own batches, show it. `LIKELY`: they show what leads to it, and its size is
    estimated. `GUESS`: it depends on something that no file tells.
    """

    CERTAIN = "certain"
    LIKELY = "likely"
    GUESS = "guess"


@dataclass(frozen=True, slots=True)
class Cost(JsonShape):
    """The cost of leaving a setting as it is; None if unknown.

    Attributes:
        what: In a sentence.
        disk_bytes: Bytes where the checkpoint is.
        memory_bytes: Bytes of memory, over all executors.
        requests_a_day: Requests to an object store.
        files_a_day: Files that are written.
        batch_ms: Time of each batch.
        recovery_ms: Time of each restart, before its first batch.
        money_a_month: In the currency of the prices.
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
        """The sentence and the numbers."""
        numbers = [
            f"{shown(number)} {noun}"
            for number, shown, noun in (
                (self.disk_bytes, rounded_size, "of storage"),
                (self.memory_bytes, rounded_size, "of memory"),
                (self.files_a_day, count, "files a day"),
                (self.requests_a_day, count, "requests a day"),
                (self.batch_ms, rounded_duration, "of each batch"),
                (self.recovery_ms, rounded_duration, "of each restart"),
                (self.money_a_month, _money, f"{currency} a month"),
            )
            if number is not None
        ]
        return f"{self.what}: {', '.join(numbers)}" if numbers else self.what


def count(number: float) -> str:
    """A number with three digits that count: `1,230,000`, `45`, `0.7`."""
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
        id: Its id, for life.
        name: What people call it.
        topic: What it is about.
        severity: How bad it usually is; the worst comes first.
        sureness: How sure it usually is.
        looks_for: What is seen where it is given.
        costs: What it costs to leave it, and how that is estimated.
        instead: What to do.
        rule: The rule of lint that sees the same, if there is one.
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
        """Advice of this kind; what is usual of it holds where nothing else is given."""
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
    """One piece of advice.

    Attributes:
        id: The id of its kind.
        name: What people call its kind.
        topic: `backend`, `checkpoint`, `partitions` or `memory`.
        severity: `error`, `warning` or `note`, as in lint.
        sureness: `certain`, `likely` or `guess`.
        seen: What was seen.
        cost: What it costs to leave it as it is.
        do: What to do.
        commands: Calls and settings to be copied.
        rule: The rule of lint that reports the same; None where lint has none.
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
    """Somewhere that state, or a checkpoint, could be.

    Attributes:
        name: `memory`, `rocksdb`, `redis` or `cassandra`; of a place `local`, `efs`, `hdfs` or `s3`.
        advised: Whether it is the one to take; of one list one is, unless none fits.
        now: Whether it is the one that exists.
        fits: Whether it could be taken at all.
        why: Why it is advised, would do, or would not.
        state_bytes: What the state takes there, with the versions that are kept.
        recovery_ms: What a restart takes to the end of its first batch; None where nothing tells.
        rows_a_second: Rows that a query worked off in the measurement; None where nothing tells.
        read_us: A single read of a key, in the median, in microseconds.
        money_a_month: What storage and requests cost there; None where no price is known.
        unpriced: What is not in that sum, for want of a price: `requests`, or `writes` and `reads`.
        settings: Settings of Spark that lead there.
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
        place: The checkpoint; None for a plan.
        batch_id: Its newest committed batch.
        topics: What was asked about.
        advice: The worst first.
        backends: Where state could be kept, where that was asked about.
        places: Where the checkpoint could be, where that was asked about.
        forecast: What a plan comes to; None of a checkpoint.
        settings: Settings of Spark for a plan.
        figures: Where the figures of backends come from.
        currency: What money is in.
        not_told: What could not be looked at, and what would tell it.
        lint: Rules that `holdfast lint` reports of the checkpoint, and that are no advice here.
    """

    place: str | None
    batch_id: int | None
    topics: tuple[Topic, ...]
    advice: tuple[Advice, ...]
    backends: tuple[Option, ...] = ()
    places: tuple[Option, ...] = ()
    forecast: Forecast | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    figures: str = ""
    currency: str = "USD"
    not_told: tuple[str, ...] = ()
    lint: tuple[str, ...] = ()


_SEVERITIES: Final = tuple(Severity)
_SURENESSES: Final = tuple(Confidence)


def worst_first(advice: Iterable[Advice]) -> tuple[Advice, ...]:
    """Advice by how bad it is, then how sure, then what it costs each month, then by id."""

    def rank(each: Advice) -> tuple[int, int, float, str, str]:
        severity, sureness = _SEVERITIES.index(each.severity), _SURENESSES.index(each.sureness)
        return severity, sureness, -(each.cost.money_a_month or 0.0), each.id, each.seen

    return tuple(sorted(advice, key=rank))


def rescale(uri: str, partitions: int) -> str:
    """The call that makes a checkpoint with another number of partitions."""
    return f"holdfast rescale {place_word(uri)} NEW --partitions {partitions} --stopped"


def migrate(uri: str, backend: str) -> str:
    """The call that moves state to another backend."""
    database = {
        "redis": " --database redis://HOST:6379/0",
        "cassandra": " --database cassandra://HOST:9042/KEYSPACE",
    }.get(backend, "")
    return f"holdfast state migrate {place_word(uri)} NEW --backend {backend}{database} --stopped"


def conf(key: str, value: str) -> str:
    """A setting of the session."""
    return f'spark.conf.set("{key}", "{value}")'


def trigger(interval_ms: int) -> str:
    """The trigger of a query."""
    seconds, rest = divmod(interval_ms, 1000)
    text = f"{interval_ms} milliseconds" if rest else f"{seconds} second{'' if seconds == 1 else 's'}"
    return f'.trigger(processingTime="{text}")'
