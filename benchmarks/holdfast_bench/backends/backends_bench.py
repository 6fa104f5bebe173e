"""The backends against each other: one aggregate, whose batches change most of its keys, on each of them."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from holdfast.errors import Invalid
from holdfast_bench.backends.servers import cassandra_node, redis_server
from holdfast_bench.measure import Result, measured_apart, note, percentile

MEMORY, ROCKSDB, REDIS, CASSANDRA = "memory", "rocksdb", "redis", "cassandra"
SIDES: Final = (MEMORY, ROCKSDB, REDIS, CASSANDRA)
# States of which the recovery is timed, beside the one that is asked for.
RECOVERED: Final = (10_000, 100_000, 1_000_000)
BOUND: Final = 3


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large the measurement is.

    Attributes:
        keys: Keys of the aggregate.
        rows: Rows in a batch, twice as many as keys by default: most keys change in each.
        batches: Counted batches of a run.
    """

    keys: int = 100_000
    rows: int = 200_000
    batches: int = 5


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured of one backend.

    Attributes:
        batch_s: Batches that change most keys.
        commit_s: What the slowest task of each of them took to commit its state.
        recovery_s: By the number of keys: from the start of a query on a checkpoint, by executors that hold
            nothing, to the end of its first batch, of a hundred rows.
        small_s: The batch of a hundred rows that follows.
        state_bytes: What the state takes where it is kept, once a run has ended.
        get_us: Single reads of a key of 100,000, in microseconds.
        put_us: Single writes, the same.
        rows: How many rows the state had in the end.
    """

    batch_s: Sequence[float]
    commit_s: Sequence[float]
    recovery_s: Mapping[str, Sequence[float]]
    small_s: Mapping[str, Sequence[float]]
    state_bytes: int
    get_us: Sequence[float]
    put_us: Sequence[float]
    rows: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """A figure of one backend beside another, and what is promised of it."""

    name: str
    bound: float | None = None
    at_least: bool = False


@dataclass(frozen=True, slots=True)
class Backends:
    """What was measured, by backend."""

    sizes: Sizes
    sides: Mapping[str, Measured]

    @property
    def results(self) -> list[Result]:
        """The comparisons of which both sides ran."""
        found = []
        for side, bound in ((REDIS, BOUND), (CASSANDRA, None)):
            if {side, ROCKSDB} <= set(self.sides):
                ours, theirs = (statistics.median(self.sides[each].batch_s) for each in (side, ROCKSDB))
                found.append(Result(Comparison(f"batch: {side} / rocksdb", bound), ours / theirs))
        for side, measured in self.sides.items():
            least, most = (statistics.median(measured.recovery_s[str(keys)]) for keys in _ends())
            name = f"recovery of {_ends()[1]:,} keys / of {_ends()[0]:,}: {side}"
            found.append(Result(Comparison(name), most / least))
        return found

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "sizes": asdict(self.sizes),
            "sides": {side: _fields(measured) for side, measured in self.sides.items()},
            "results": [result.as_dict() for result in self.results],
        }


def _fields(measured: Measured) -> dict[str, Any]:
    single = {
        name: {"p50": percentile(us, 0.5), "p99": percentile(us, 0.99)}
        for name, us in (("get_us", measured.get_us), ("put_us", measured.put_us))
    }
    return dict(_rounded({**asdict(measured), **single}))


def _ends() -> tuple[int, int]:
    return RECOVERED[0], RECOVERED[-1]


def _rounded(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _rounded(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(each) for each in value]
    return round(value, 4) if isinstance(value, float) else value


def backends(
    sizes: Sizes, *, runs: int, sides: Sequence[str] = (), say: Callable[[str], None] = lambda _: None
) -> Backends:
    """Measure backends, by turns in one session.

    Args:
        sizes: How large everything is.
        runs: Counted runs of each backend; one more is not counted.
        sides: The backends to measure, all by default.
        say: Told what is being measured.

    Raises:
        Invalid: There is no such backend.
        NotFound: The server of one is not installed.
        Failed: A query did not come to its end.
    """
    wrong = [each for each in sides if each not in SIDES]
    if wrong:
        raise Invalid("unknown backend", found=", ".join(wrong), expected=", ".join(SIDES))
    chosen = [each for each in SIDES if not sides or each in sides]
    say(f"measuring {', '.join(chosen)}: {runs} runs of each …")
    with ExitStack() as held:
        place = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-bench-")))
        address = held.enter_context(redis_server(place)) if REDIS in chosen else None
        task = {**asdict(sizes), "runs": runs, "sides": chosen, "redis": address, "folder": str(place)}
        if CASSANDRA in chosen:
            bench = held.enter_context(cassandra_node(place))
            task["cassandra"] = asdict(bench)
        taken = measured_apart("holdfast_bench.backends.backends_process", task, "backends")
    found = {side: Measured(**figures) for side, figures in taken.items()}
    for side, measured in found.items():
        note(f"{side}, a batch", *measured.batch_s)
    if len({measured.rows for measured in found.values()}) != 1:
        raise Invalid("the backends have different state", found=str({k: v.rows for k, v in found.items()}))
    return Backends(sizes, found)
