"""Which Spark's checkpoints of which operators are tried with which verbs, and what their state must be.

The queries and their input are in `tests/golden/golden_queries.py`; what is expected is worked out from that
in plain Python.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import golden_model as model
from grid import WHOLE
from state_rows import state_rows

from golden import GATHERED, NAMES, OTHERS, golden_files
from holdfast.storage.port import Storage

# Row by row, key and value, as text: the same for states of any shape.
Rows = Counter[str]

# What a join has besides its rows: counts in formats 1 to 3, times in format 4.
_BESIDE_JOINS = ("-keyToNumValues", "-tsWithKey")
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)

# What is tried on each, as the page of the documentation has it.
VERBS = (
    "checkpoint show",
    "checkpoint verify",
    "checkpoint history",
    "doctor",
    "savepoint take",
    "restore",
    "rescale",
    "state migrate",
    "state get",
    "state scan",
    "state diff",
    "state edit",
    "state erase",
)
# The query of a golden checkpoint, and the words for its operator.
OPERATORS = {
    "aggregate": "aggregation",
    "windowed": "aggregation by time window",
    "global": "aggregation without keys",
    "join": "stream-stream join",
    "join3": "stream-stream join, state format 3",
    "join4": "stream-stream join, state format 4",
    "joinlists": "stream-stream join, state format 4, several rows of one time",
    "distinct": "`dropDuplicates`",
    "dedupe": "`dropDuplicatesWithinWatermark`",
    "session": "aggregation by session window",
    "limit": "`limit`",
    "groups": "`applyInPandasWithState`",
    "state": "`transformWithState`",
}
PROVIDERS = {
    "memory": "memory",
    "rocksdb": "RocksDB, snapshots",
    "changelog": "RocksDB, changelogs",
    "format2": "RocksDB, changelogs, state format 2",
    "named": "RocksDB, changelogs, state format 2, named sources and sink",
}
JOINS = ("join", "join3", "join4", "joinlists")
# All rows of a key and a time are one list.
LISTED = ("join4", "joinlists")
# Queries with a watermark of one minute.
WITH_WATERMARK = (*JOINS, "windowed", "distinct", "dedupe", "session")


def version_of(name: str) -> str:
    return name.partition("/")[0]


def query_of(name: str) -> str:
    return name.partition("/")[2].partition("-")[0]


def provider_of(name: str) -> str:
    return name.rpartition("-")[2]


# Every golden checkpoint of a built-in operator.
CELLS = tuple(name for name in sorted({*NAMES, *GATHERED, *OTHERS}) if query_of(name) in OPERATORS)


def _of_each_operator() -> tuple[str, ...]:
    """Each operator, in one of the ways to keep its state: of the newest Spark, and of every second other."""
    found: dict[tuple[str, str], list[str]] = {}
    for name in CELLS:
        found.setdefault((version_of(name), query_of(name)), []).append(name)
    versions, queries = sorted({version for version, _ in found}), [*OPERATORS]
    return tuple(
        names[at % len(names)]
        for at, ((version, query), names) in enumerate(found.items())
        if version == versions[-1] or (versions.index(version) + queries.index(query)) % 2
    )


SOME = _of_each_operator()
# All of them is the long form, which `HOLDFAST_GRID=all` runs.
TRIED = CELLS if WHOLE else SOME


def expected(name: str) -> Rows:
    """The rows of the states that users know."""
    files = model.taken(golden_files(name))
    return Counter(map(repr, _EXPECTED[query_of(name)](files)))


def found(name: str, storage: Storage) -> Rows:
    """The same rows as they are in files."""
    return Counter(
        shown(name, row.state.label, row.key, value)
        for row in state_rows(storage)
        if not row.state.internal and not row.state.label.endswith(_BESIDE_JOINS)
        for value in (row.value if query_of(name) in LISTED else [row.value])
    )


def shown(name: str, label: str, key: Any, value: Any) -> str:
    """A row as text."""
    show: Callable[[str, Any, Any], Any] = _SHOWN.get(query_of(name), _plain)
    return repr(show(label, key, value))


def expected_history(name: str) -> dict[int, tuple[dict[str, int], int]]:
    """The end of each source and the next watermark in milliseconds, by batch: a file of each is a batch."""
    files = model.taken(golden_files(name))
    sides = ("left", "right") if query_of(name) in JOINS else ("in",)
    history = {}
    for batch in range(len(files) + 1):
        newest = min(batch, len(files) - 1)
        names = (
            f"{side}_events" if provider_of(name) == "named" else str(number)
            for number, side in enumerate(sides)
        )
        # A stream's own watermark begins at the epoch.
        watermark = model.watermark(files[: newest + 1]) if query_of(name) in WITH_WATERMARK else EPOCH
        if query_of(name) == "joinlists":
            watermark = watermark.replace(second=0)
        history[batch] = dict.fromkeys(names, newest), int(watermark.timestamp() * 1000)
    return history


def _plain(_: str, key: Mapping[str, Any], value: Any) -> Any:
    return tuple(key.values()), _values(value)


def _values(value: Any) -> Any:
    """A state of applyInPandasWithState has its columns in one."""
    flat = [tuple(each.values()) if isinstance(each, Mapping) else each for each in value.values()]
    return flat[0] if len(flat) == 1 and isinstance(flat[0], tuple) else tuple(flat)


def _window(_: str, key: Mapping[str, Any], value: Mapping[str, Any]) -> Any:
    return key["window"]["start"], key["customer"], value["count"]


def _session(_: str, key: Mapping[str, Any], value: Mapping[str, Any]) -> Any:
    return key["customer"], key["sessionStartTime"], value["count"]


def _joined(label: str, _: Mapping[str, Any], value: Mapping[str, Any]) -> Any:
    return label.partition("-")[0], tuple(value.values())[:3]


def _expiring(_: str, key: Mapping[str, Any], value: Mapping[str, Any]) -> Any:
    return key["customer"], EPOCH + dt.timedelta(microseconds=value["expiresAtMicros"])


def _processed(label: str, key: Mapping[str, Any], value: Any) -> Any:
    if label == "amounts":
        return label, key["customer"], [each["amount"] for each in value]
    return label, key["customer"], value["n"]


_SHOWN: dict[str, Callable[[str, Any, Any], Any]] = {
    "windowed": _window,
    "session": _session,
    **dict.fromkeys(JOINS, _joined),
    "dedupe": _expiring,
    "state": _processed,
    "limit": lambda _, __, value: tuple(value.values()),
    "distinct": lambda _, key, __: tuple(key.values()),
}


def _aggregated(files: list[int]) -> Iterable[Any]:
    return (((customer,), told) for customer, told in model.aggregate(files).items())


def _states(files: list[int]) -> Iterable[Any]:
    for customer, amounts in model.amounts(files).items():
        yield "count", customer, len(amounts)
        yield "amounts", customer, amounts


def _sides(_: list[int]) -> Iterable[Any]:
    for side in ("left", "right"):
        for event in model.joinable():
            yield side, (event.customer, event.amount, event.ts)


def _sides_by_minute(_: list[int]) -> Iterable[Any]:
    for side in ("left", "right"):
        for event in model.joinable_by_minute():
            yield side, (event.customer, event.amount, event.ts)


_EXPECTED: dict[str, Callable[[list[int]], Iterable[Any]]] = {
    "aggregate": _aggregated,
    "groups": _aggregated,
    "windowed": lambda _: ((start, customer, count) for (start, customer), count in model.windows().items()),
    "session": lambda _: ((customer, start, 1) for customer, start in model.sessions()),
    "global": lambda _: [((), (len(model.all_events()),))],
    "limit": lambda _: [(45,)],
    "dedupe": lambda files: model.seen_within_watermark(files, len(files) + 1).items(),
    "distinct": lambda _: (
        (event.customer, event.ts) for event in model.all_events() if event.ts > model.watermark()
    ),
    **dict.fromkeys(JOINS, _sides),
    "joinlists": _sides_by_minute,
    "state": _states,
}
