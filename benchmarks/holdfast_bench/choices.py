"""What a person chooses of the measurements, and what is measured then."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.engine.session.java import end_children
from holdfast.errors import Failed, Invalid
from holdfast.quantities import counted
from holdfast_bench import history_bench, overhead
from holdfast_bench.at_rest import savepoint_bench, state_bench
from holdfast_bench.backends import backends_bench
from holdfast_bench.backends.backends_bench import Backends
from holdfast_bench.cluster import cluster_bench
from holdfast_bench.defaults import defaults
from holdfast_bench.keyed import keyed_workloads
from holdfast_bench.keyed.keyed_bench import keyed
from holdfast_bench.keyed.keyed_workloads import Part
from holdfast_bench.latency import latency_bench
from holdfast_bench.latency.latency_bench import Latency
from holdfast_bench.measure import Beginning, Bench, Series, at_its_end, machine_fields, so_far
from holdfast_bench.nexmark import nexmark_bench
from holdfast_bench.nexmark.nexmark_bench import Nexmark
from holdfast_bench.operators import operators_bench
from holdfast_bench.peers import peers_bench
from holdfast_bench.peers.peers_bench import Peers
from holdfast_bench.recovery import recovery_bench
from holdfast_bench.skew import skew_bench
from holdfast_bench.skew.skew_bench import Skew
from holdfast_bench.startup import startup
from holdfast_bench.tables import tables_bench

KEYED = "keyed"
OPERATORS = "operators"
LATENCY = "latency"
SKEW = "skew"
SAVEPOINT = "savepoint"
OVERHEAD = "overhead"
STATE = "state"
BACKENDS = "backends"
CLUSTER = "cluster"
TABLES = "tables"
HISTORY = "history"
RECOVERY = "recovery"
PEERS = "peers"
NEXMARK = "nexmark"
RUNS = 5
SKEW_RUNS = 3
LATENCY_RUNS = 3
BACKENDS_RUNS = 3
CLUSTER_RUNS = 3
TABLES_RUNS = 3
HISTORY_RUNS = 3
PEERS_RUNS = 3
NEXMARK_RUNS = 3
KILLS = 20

Say = Callable[[str], None]

# Which measurement takes which choices.
_TAKES = {
    KEYED: frozenset({"only", "sides", "keys", "raw_keys", "rows", "batches"}),
    LATENCY: frozenset({"sides", "keys", "rows", "seconds", "warm_up"}),
    OPERATORS: frozenset({"only", "rows", "batches"}),
    OVERHEAD: frozenset({"rows", "batches"}),
    SAVEPOINT: frozenset({"keys", "rows"}),
    STATE: frozenset({"keys", "rows"}),
    SKEW: frozenset({"sides", "keys", "rows", "batches"}),
    BACKENDS: frozenset({"sides", "keys", "rows", "batches"}),
    CLUSTER: frozenset({"rows", "batches"}),
    TABLES: frozenset({"rows", "batches"}),
    HISTORY: frozenset({"rows", "batches"}),
    RECOVERY: frozenset({"sides", "keys", "rows"}),
    PEERS: frozenset({"sides", "rows", "batches"}),
    NEXMARK: frozenset({"only", "sides", "rows", "batches"}),
}
_ALONE: Mapping[str, Callable[[int], Bench]] = {"startup": startup, "defaults": defaults}
# The measurements that take sizes alone: the function, its sizes, and how often each side runs.
_OF_SIZES: Mapping[str, tuple[Callable[..., Bench], Callable[..., Any], int]] = {
    SAVEPOINT: (savepoint_bench.savepoint, savepoint_bench.Sizes, RUNS),
    STATE: (state_bench.state, state_bench.Sizes, RUNS),
    OVERHEAD: (overhead.overhead, overhead.Sizes, RUNS),
    CLUSTER: (cluster_bench.cluster, cluster_bench.Sizes, CLUSTER_RUNS),
    TABLES: (tables_bench.tables, tables_bench.Sizes, TABLES_RUNS),
    HISTORY: (history_bench.history, history_bench.Sizes, HISTORY_RUNS),
}
NAMES = (
    *_ALONE,
    OPERATORS,
    KEYED,
    LATENCY,
    SKEW,
    SAVEPOINT,
    STATE,
    BACKENDS,
    TABLES,
    HISTORY,
    OVERHEAD,
    CLUSTER,
    RECOVERY,
    PEERS,
    NEXMARK,
)


@dataclass(frozen=True, slots=True)
class Choices:
    """What is to be measured.

    Attributes:
        name: Which measurement; None for those that are quick.
        runs: Counted runs of each side; None for as many as it usually has.
        only: Some of its workloads, with commas between.
        sides: Some of its sides, with commas between.
        sizes: The sizes that differ from the defaults: keys, rows, batches, seconds.
    """

    name: str | None
    runs: int | None
    only: str | None
    sides: str | None
    sizes: Mapping[str, Any]


@dataclass(slots=True)
class Figures:
    """What was measured.

    Attributes:
        machine: Where.
        results: Medians of sides.
        parts: The workloads of keyed state, by name.
        latency: Of queries from topic to topic.
        hot: Of hot keys.
        backends: Of backends.
        peers: Of other engines.
        nexmark: Of the queries of Nexmark.
        broken_off: Whether it was broken off.
        so_far: What was timed of the measurement that was broken off.
    """

    machine: Mapping[str, Any] = field(default_factory=dict)
    results: list[Bench] = field(default_factory=list)
    parts: dict[str, Part] = field(default_factory=dict)
    latency: Latency | None = None
    hot: Skew | None = None
    backends: Backends | None = None
    peers: Peers | None = None
    nexmark: Nexmark | None = None
    broken_off: bool = False
    so_far: tuple[Series, ...] = ()

    def others(self) -> dict[str, Any]:
        """Plain values for JSON of what is more than medians, by name."""
        found: dict[str, Any] = {name: part.as_dict() for name, part in self.parts.items()}
        if self.latency is not None:
            found[LATENCY] = self.latency.as_dict()
        if self.hot is not None:
            found[SKEW] = self.hot.as_dict()
        if self.backends is not None:
            found[BACKENDS] = self.backends.as_dict()
        if self.peers is not None:
            found[PEERS] = self.peers.as_dict()
        if self.nexmark is not None:
            found[NEXMARK] = self.nexmark.as_dict()
        return found

    def require_answers(self) -> None:
        """Check that no side failed.

        Raises:
            Failed: A side broke off or gave a wrong answer.
        """
        for name, measurement in ((PEERS, self.peers), (NEXMARK, self.nexmark)):
            if measurement is not None and measurement.failed:
                raise Failed(
                    "a side of the measurement failed",
                    where=f"bench {name}",
                    found="; ".join(f"{side}: {reason}" for side, reason in measurement.failed.items()),
                )


def measured(choices: Choices, say: Say) -> Figures:
    """Measure what was chosen; broken off by Ctrl-C or SIGTERM, what was measured so far.

    Raises:
        Invalid: There is no such measurement, or it has no such choice.
    """
    _check(choices)
    before = Beginning.now()
    found = Figures()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        _measure(choices, say, found)
    except KeyboardInterrupt:
        found.broken_off, found.so_far = True, so_far()
        end_children()
    found.machine = machine_fields(before.machine())
    return found


def _measure(choices: Choices, say: Say, found: Figures) -> None:
    name, sizes, only, sides = choices.name, choices.sizes, listed(choices.only), listed(choices.sides)
    runs = choices.runs or RUNS
    if name == KEYED:
        keyed(
            keyed_workloads.Sizes(**sizes),
            found.parts,
            rounds=choices.runs or 1,
            only=only,
            sides=sides,
            say=say,
        )
    elif name == LATENCY:
        rounds = choices.runs or LATENCY_RUNS
        found.latency = latency_bench.latency(
            latency_bench.Sizes(**sizes), rounds=rounds, sides=sides, say=say
        )
    elif name == SKEW:
        rounds = choices.runs or SKEW_RUNS
        found.hot = skew_bench.skew(skew_bench.Sizes(**sizes), rounds=rounds, sides=sides, say=say)
    elif name == BACKENDS:
        found.backends = backends_bench.backends(
            backends_bench.Sizes(**sizes), runs=choices.runs or BACKENDS_RUNS, sides=sides, say=say
        )
    elif name == PEERS:
        found.peers = peers_bench.peers(
            peers_bench.Sizes(**sizes), runs=choices.runs or PEERS_RUNS, sides=sides, say=say
        )
    elif name == NEXMARK:
        found.nexmark = nexmark_bench.nexmark(
            nexmark_bench.Sizes(**sizes),
            runs=choices.runs or NEXMARK_RUNS,
            queries=only,
            sides=sides,
            say=say,
        )
    elif name == OPERATORS:
        found.results.append(
            operators_bench.operators(operators_bench.Sizes(**sizes), runs=runs, only=only, say=say)
        )
    elif name == RECOVERY:
        kills = choices.runs or KILLS
        made = recovery_bench.recovery(
            recovery_bench.Sizes(**sizes), runs=kills, sides=sides or None, say=say
        )
        found.results.append(made)
    elif name is not None and name in _OF_SIZES:
        measure, sizes_of, usual = _OF_SIZES[name]
        found.results.append(measure(sizes_of(**sizes), runs=choices.runs or usual, say=say))
    else:
        _measure_alone(list(_ALONE) if name is None else [name], runs, say, found)


def _measure_alone(names: Sequence[str], runs: int, say: Say, found: Figures) -> None:
    for name in names:
        say(f"measuring {name}, {counted(runs, 'run')} of each side …")
        found.results.append(_ALONE[name](runs))
        at_its_end()


def listed(text: str | None) -> list[str]:
    """Words with commas between."""
    return [word.strip() for word in text.split(",")] if text is not None else []


def _check(choices: Choices) -> None:
    """Refuse unknown benchmarks and options that a benchmark does not take."""
    name = choices.name
    if name is not None and name not in NAMES:
        raise Invalid(
            "unknown benchmark",
            found=name,
            expected=", ".join(NAMES),
            hint="`holdfast bench --help` lists the benchmarks",
        )
    words = {"only": choices.only, "sides": choices.sides}
    given = {*choices.sizes, *(word for word, value in words.items() if value is not None)}
    wrong = sorted(given - _TAKES.get(name or "", frozenset()))
    if not wrong:
        return
    able = [other for other, takes in _TAKES.items() if takes >= set(wrong)]
    raise Invalid(
        "this benchmark does not take these options",
        found=f"{', '.join('--' + option.replace('_', '-') for option in wrong)} with {name or 'no name'}",
        expected=" or ".join(able),
        hint=f"holdfast bench {able[0]} …",
    )
