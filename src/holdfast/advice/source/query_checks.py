"""Lint checks over the queries of a program: settings, state, sinks and failures."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any, Final

from holdfast.advice.sizes import cores_of, rocksdb_budget_mb, room_beside_heap_mb, too_many
from holdfast.advice.source.calls import Evaluated
from holdfast.advice.source.values import (
    CodeLocation,
    ColumnExpression,
    Const,
    Function,
    Module,
    ProgramSettings,
    Stateful,
    Watermark,
    WriterValue,
    listed,
)
from holdfast.config.spark_defaults import (
    BOUNDED_MEMORY_KEY,
    FILE_MANAGER_KEY,
    MEMORY_PROVIDER,
    ROCKSDB_PROVIDER,
    SHUFFLE_PARTITIONS_KEY,
)
from holdfast.config.spark_defects import defects_of
from holdfast.config.spark_versions import installed
from holdfast.config.units import parse_duration
from holdfast.errors import HoldfastError

_WAITING: Final = frozenset(("awaitTermination", "awaitAnyTermination", "processAllAvailable"))
# Exceptions that a failed query raises in code that waits for it.
_CAUGHT: Final = frozenset(("Exception", "BaseException", "StreamingQueryException", "PySparkException"))
_ENDING: Final = frozenset(("exit", "_exit", "quit", "abort", "kill"))


def ending_hits(found: Evaluated) -> Iterator[CodeLocation]:
    """Yield the handlers that catch the failure of a query and then end with a successful exit code.

    Two cases are not reported: a handler in a loop, which may restart the query, and a file that sets its own
    exit code or reads a query's exception.
    """
    nodes = list(ast.walk(found.tree))
    if any(_calls_of(node) in _ENDING or _asks(node) for node in nodes):
        return
    looped = {
        id(inner) for node in nodes if isinstance(node, (ast.While, ast.For)) for inner in ast.walk(node)
    }
    for node in nodes:
        if not isinstance(node, ast.Try) or id(node) in looped:
            continue
        waits = any(_calls_of(inner) in _WAITING for each in node.body for inner in ast.walk(each))
        for handler in node.handlers if waits else ():
            if _catches(handler) and _is_silent(handler):
                yield CodeLocation(
                    "HF411",
                    handler,
                    "the failure of a query is caught here, and the program exits with code 0",
                )


def _calls_of(node: ast.AST) -> str:
    """Return the last parts of all names that code calls or reads, as one text."""
    if isinstance(node, ast.Call):
        node = node.func
        return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return node.name if isinstance(node, ast.alias) else ""


def _asks(node: ast.AST) -> bool:
    """Return whether code reads a query's exception or passes an exception to a logger."""
    return isinstance(node, ast.Call) and _calls_of(node) == "exception" and not node.args


def _catches(handler: ast.ExceptHandler) -> bool:
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    names = {
        kind.id if isinstance(kind, ast.Name) else kind.attr if isinstance(kind, ast.Attribute) else ""
        for kind in kinds
    }
    return handler.type is None or bool(names & _CAUGHT)


def _is_silent(handler: ast.ExceptHandler) -> bool:
    """Return whether a handler only prints, and does not raise, return, record or branch."""
    return all(isinstance(each, (ast.Pass, ast.Expr)) for each in handler.body)


STREAMING: Final = "spark.sql.streaming."
STORE: Final = f"{STREAMING}stateStore."
PROVIDER: Final = f"{STORE}providerClass"
# Settings that turn a check off, each with that value and the consequence.
UNSAFE: Final = {
    f"{STREAMING}statefulOperator.checkCorrectness.enabled": (
        "false",
        "chains of operators with a wrong result may start",
    ),
    f"{STREAMING}unsupportedOperationCheck": (
        "false",
        "queries that Spark cannot answer correctly may start",
    ),
    f"{STREAMING}statefulOperator.useStrictDistribution": (
        "false",
        "rows may be sent to a partition without their state",
    ),
    f"{STORE}stateSchemaCheck": (
        "false",
        "state is read with a schema other than the one it was written with",
    ),
    f"{STORE}formatValidation.enabled": ("false", "rows of a damaged store are read without an error"),
    f"{STORE}skipNullsForStreamStreamJoins.enabled": (
        "true",
        "a damaged store of a join loses rows without an error",
    ),
    "spark.sql.files.ignoreCorruptFiles": ("true", "unreadable input is skipped without an error"),
    "spark.sql.files.ignoreMissingFiles": ("true", "missing input is skipped without an error"),
}
# Settings that limit the data kept for Spark's UI.
_PAGES: Final = frozenset(
    [
        "spark.ui.enabled",
        "spark.ui.retainedJobs",
        "spark.ui.retainedStages",
        "spark.ui.retainedTasks",
        "spark.sql.ui.retainedExecutions",
    ]
)
_FEWEST_BATCHES: Final = 3
_PROVIDER: Final = f"{STORE}providerClass"


def setting_hits(found: Evaluated) -> Iterator[CodeLocation]:
    """Yield the violations in the settings of a file."""
    settings = found.settings
    for key, (bad, outcome) in UNSAFE.items():
        if settings.text(key) == bad:
            yield CodeLocation("HF305", settings.made[key][1], f"`{key}` is {bad}: {outcome}")
    for _, key, value, node in found.options:
        if (
            key.lower() == "failondataloss"
            and isinstance(value, Const)
            and str(value.value).lower() == "false"
        ):
            yield CodeLocation("HF306", node, "failOnDataLoss is false")
    yield from _plain_hits(settings)
    yield from _page_hits(found)
    operators = [each for each in found.operators() if each.kind != "own" or not settings.own]
    if operators:
        yield from _stateful_hits(found)
        for name, _, node in found.own_calls:
            if name == "Memory":
                yield CodeLocation("HF301", node, "the backend is hf.Memory")


def _room_hits(settings: ProgramSettings) -> Iterator[CodeLocation]:
    """Find too few cores for the partitions, and too little memory outside the heap for RocksDB."""
    text, cores = settings.text(SHUFFLE_PARTITIONS_KEY) or "", cores_of(settings.master, settings.text)
    if text.isdecimal() and cores is not None and too_many(int(text), cores):
        node = settings.made[SHUFFLE_PARTITIONS_KEY][1]
        yield CodeLocation("HF312", node, f"{text} partitions run on {cores} cores")
    budget, room = rocksdb_budget_mb(settings.text), room_beside_heap_mb(settings.master, settings.text)
    if budget is not None and room is not None and settings.known and budget >= room:
        key = next(
            key for key in (f"{STORE}rocksdb.maxMemoryUsageMB", BOUNDED_MEMORY_KEY) if key in settings.made
        )
        what = f"RocksDB may take {budget} MB, but an executor has {room} MB outside its heap"
        yield CodeLocation("HF313", settings.made[key][1], what)


def _page_hits(found: Evaluated) -> Iterator[CodeLocation]:
    settings = found.settings
    if settings.built is None or not settings.known or settings.own or _PAGES & settings.made.keys():
        return
    if any(writer.started is not None and not writer.ends for writer in found.writers):
        yield CodeLocation(
            "HF314", settings.built, "the session is built without limits for what Spark's UI retains"
        )


def _plain_hits(settings: ProgramSettings) -> Iterator[CodeLocation]:
    policy = f"{STREAMING}multipleWatermarkPolicy"
    if settings.text(policy) == "max":
        yield CodeLocation("HF207", settings.made[policy][1], "the policy for several watermarks is max")
    retained = f"{STREAMING}minBatchesToRetain"
    text = settings.text(retained)
    if text is not None and text.isdecimal() and int(text) < _FEWEST_BATCHES:
        yield CodeLocation("HF307", settings.made[retained][1], f"only {text} batches are retained")
    changelog = f"{STORE}rocksdb.changelogCheckpointing.enabled"
    if settings.text(changelog) == "false":
        yield CodeLocation("HF308", settings.made[changelog][1], "changelog checkpointing is off")
    spark = installed("pyspark")
    if spark is not None and settings.text(_PROVIDER) == ROCKSDB_PROVIDER:
        defects = defects_of([spark], changelogs=settings.text(changelog) == "true")
        if defects:
            what = f"pyspark {spark} has {', '.join(defect.issue for defect in defects)}"
            yield CodeLocation("HF315", settings.made[_PROVIDER][1], what)
    checksum = f"{STORE}rowChecksum.enabled"
    if settings.text(checksum) == "false":
        yield CodeLocation("HF309", settings.made[checksum][1], "row checksums are off")
    form = f"{STORE}checkpointFormatVersion"
    if settings.text(form) == "1":
        yield CodeLocation("HF310", settings.made[form][1], "checkpointFormatVersion is 1")


def _stateful_hits(found: Evaluated) -> Iterator[CodeLocation]:
    settings = found.settings
    provider = settings.text(PROVIDER)
    if provider is not None and provider.rpartition(".")[2] == MEMORY_PROVIDER.rpartition(".")[2]:
        yield CodeLocation(
            "HF301", settings.made[PROVIDER][1], "the provider is HDFSBackedStateStoreProvider"
        )
    if settings.text("spark.dynamicAllocation.enabled") == "true":
        node = settings.made["spark.dynamicAllocation.enabled"][1]
        yield CodeLocation("HF311", node, "dynamic allocation is on, and the query is stateful")
    bounded = f"{STORE}rocksdb.boundedMemoryUsage"
    unbounded = settings.text(bounded) == "false" or bounded not in settings.made
    if provider == ROCKSDB_PROVIDER and unbounded and settings.known and not settings.own:
        what = "is false" if bounded in settings.made else "is not set"
        node = settings.made[bounded if bounded in settings.made else PROVIDER][1]
        yield CodeLocation("HF303", node, f"RocksDB is the provider, and boundedMemoryUsage {what}")
    yield from _room_hits(settings)
    if settings.built is None or not settings.known or settings.own:
        return
    if PROVIDER not in settings.made:
        yield CodeLocation(
            "HF302",
            settings.built,
            "the session is built without a state store provider, and the query is stateful",
        )
    if "spark.sql.shuffle.partitions" not in settings.made:
        yield CodeLocation(
            "HF304", settings.built, "the session is built without spark.sql.shuffle.partitions"
        )


_WINDOWS: Final = frozenset(("window", "session_window"))
_COLLECTING: Final = frozenset(("collect_list", "collect_set", "array_agg", "listagg", "string_agg"))
# Functions with as many results as input values.
_KEEPING: Final = frozenset(
    [
        "cast",
        "lower",
        "upper",
        "trim",
        "coalesce",
        "concat",
        "concat_ws",
        "md5",
        "sha1",
        "sha2",
        "hash",
        "xxhash64",
    ]
)
_CHANCE: Final = frozenset(("rand", "randn", "uuid", "random"))
_DAY_MS: Final = 24 * 3_600_000
_MONTH_MS: Final = 30 * _DAY_MS
_MONTHS: Final = re.compile(r"(\d{1,4})\s*(month|year)s?")
_LOSING: Final = frozenset(
    ("withWatermark", "dropDuplicates", "dropDuplicatesWithinWatermark", "drop_duplicates")
)


def state_hits(found: Evaluated) -> Iterator[CodeLocation]:
    """Yield the violations in the state of each operator, and in watermarks."""
    operators = found.operators()
    for operator in operators:
        yield from _of_operator(operator)
    yield from _watermark_hits(found, operators)
    for writer in found.writers:
        yield from _complete_hits(writer)
        yield from _salt_hits(writer)


def _of_operator(operator: Stateful) -> Iterator[CodeLocation]:
    if operator.kind == "aggregate":
        yield from _aggregate_hits(operator)
        collected = sorted(operator.columns.calls & _COLLECTING)
        if collected:
            yield CodeLocation(
                "HF109", operator.node, f"{collected[0]} keeps every value of a group in its state"
            )
    elif operator.kind == "own" and operator.columns.calls & _COLLECTING:
        collected = sorted(operator.columns.calls & _COLLECTING)
        yield CodeLocation(
            "HF109", operator.node, f"{collected[0]} keeps every value of a window in its state"
        )
    elif operator.kind == "dedupe":
        yield from _dedupe_hits(operator)
    elif operator.kind == "dedupe-within":
        if operator.known and not operator.watermarks:
            yield CodeLocation("HF103", operator.node, f"{operator.method} has no watermark before it")
    elif operator.kind == "join":
        yield from _join_hits(operator)
    elif operator.kind == "groups":
        yield CodeLocation("HF501", operator.node, f"{operator.method} is called")
        timeout = dict(operator.arguments).get("timeoutConf", dict(operator.arguments).get("4"))
        if _is_no_timeout(timeout):
            yield CodeLocation("HF502", operator.node, f"{operator.method} has no timeout")


def _is_no_timeout(value: object) -> bool:
    if isinstance(value, Const):
        return bool(value.value == "NoTimeout")
    return isinstance(value, Module) and value.name.endswith("GroupStateTimeout.NoTimeout")


def _aggregate_hits(operator: Stateful) -> Iterator[CodeLocation]:
    keys = operator.keys
    if not operator.known or not keys.known or not (keys.names or keys.used or keys.calls):
        return  # an aggregate over all rows has one row
    if not keys.names and not keys.calls <= _KEEPING | _WINDOWS:
        return  # such as `value % 8`, which has few results
    windowed = bool(keys.calls & _WINDOWS)
    if not operator.watermarks:
        if windowed or keys.names & operator.time_columns:
            yield CodeLocation("HF101", operator.node, "windows are aggregated without a watermark")
        else:
            yield CodeLocation(
                "HF102",
                operator.node,
                f"{operator.method} over {listed(keys)} has no watermark and no window",
            )
        return
    if None in {mark.column for mark in operator.watermarks}:
        return
    columns = {mark.column for mark in operator.watermarks}
    marks = ", ".join(sorted(f"`{column}`" for column in columns))
    if windowed and keys.unmarked & columns:
        yield CodeLocation(
            "HF208", operator.node, f"the window's column {marks} does not carry the watermark"
        )
    elif windowed and not (keys.used | keys.names) & operator.time_columns:
        if keys.used & columns:
            yield CodeLocation(
                "HF208",
                operator.node,
                f"{marks} is computed again after the watermark, and no longer carries it",
            )
            return
        yield CodeLocation(
            "HF202", operator.node, f"the window uses a column other than the watermark's, {marks}"
        )
    elif not windowed and not keys.names & operator.time_columns:
        yield CodeLocation(
            "HF102", operator.node, f"the keys {listed(keys)} include neither a window nor the event time"
        )


def _dedupe_hits(operator: Stateful) -> Iterator[CodeLocation]:
    keys = operator.keys
    if not operator.known or not keys.known:
        return
    if not operator.watermarks:
        yield CodeLocation("HF103", operator.node, f"{operator.method} has no watermark before it")
        return
    if not keys.names or None in {mark.column for mark in operator.watermarks}:
        return  # all columns, including the event time
    if not keys.names & operator.time_columns:
        yield CodeLocation(
            "HF104", operator.node, f"{operator.method} by {listed(keys)} does not include the event time"
        )
    elif len(keys.names) > 1:
        time = ", ".join(f"`{name}`" for name in sorted(keys.names & operator.time_columns))
        yield CodeLocation(
            "HF105", operator.node, f"{operator.method} includes the event time {time} among its keys"
        )


def _join_hits(operator: Stateful) -> Iterator[CodeLocation]:
    if not operator.known:
        return
    missing = [
        side for side, marks in (("left", operator.watermarks), ("right", operator.other)) if not marks
    ]
    if missing:
        which = (
            "neither side has a watermark" if len(missing) == 2 else f"the {missing[0]} side has no watermark"
        )
        yield CodeLocation("HF106", operator.node, f"two streams are joined, and {which}")
        return
    keys: ColumnExpression = operator.keys
    columns = {mark.column for mark in (*operator.watermarks, *operator.other)}
    if not keys.known or None in columns:
        return
    timed = keys.compares or keys.names & operator.time_columns or keys.calls & {"window", "between"}
    if not timed and not (keys.used & operator.time_columns):
        yield CodeLocation(
            "HF107", operator.node, "two streams are joined without a bound on their event times"
        )


def _watermark_hits(found: Evaluated, operators: list[Stateful]) -> Iterator[CodeLocation]:
    again: set[int] = set()
    for frame, node in found.dropped:
        method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        if method in _LOSING and (frame.streaming or method == "withWatermark"):
            yield CodeLocation("HF201", node, f"the DataFrame that {method} returns is discarded")
    for mark, before in found.marks:
        needing = [each for each in before.operators if each.kind == "aggregate" and not each.watermarks]
        if before.streaming and needing and needing[-1].known:
            yield CodeLocation(
                "HF203",
                mark.node,
                f"the watermark is declared after the aggregate in line {_line(needing[-1])}",
            )
        if before.watermarks and before.known and not before.operators:
            again.add(id(mark.node))
            yield CodeLocation("HF205", mark.node, "a stream that already has a watermark gets a second one")
    seen: set[int] = set()
    for operator in operators:
        for mark in (*operator.watermarks, *operator.other):
            if id(mark.node) not in seen:
                seen.add(id(mark.node))
                yield from _long_hits(mark)
    for operator in operators:
        marks = {id(mark.node) for mark in (*operator.watermarks, *operator.other)} - again
        if len(marks) > 1 and operator.known:
            yield CodeLocation("HF206", operator.node, f"{len(marks)} watermarks are combined here")
            break


def _line(operator: Stateful) -> int:
    return CodeLocation("", operator.node, "").line


def _long_hits(mark: Watermark) -> Iterator[CodeLocation]:
    ms = delay_ms(mark.delay)
    if ms is not None and ms > _DAY_MS:
        yield CodeLocation("HF204", mark.node, f"the watermark has a delay of {mark.delay}")


def delay_ms(text: str | None) -> int | None:
    """Return a delay as Spark reads it; None if unknown."""
    if text is None:
        return None
    words = text.lower().removeprefix("interval").strip()
    months = _MONTHS.fullmatch(words)
    if months is not None:
        return int(months[1]) * (12 if months[2] == "year" else 1) * _MONTH_MS
    try:
        return parse_duration(words, "")
    except HoldfastError:
        return None


def _complete_hits(writer: WriterValue) -> Iterator[CodeLocation]:
    if writer.mode != "complete":
        return
    last = next((each for each in reversed(writer.frame.operators) if each.kind == "aggregate"), None)
    if last is None or not last.keys.known or not (last.keys.names or last.keys.calls):
        return
    node = writer.nodes.get("mode", writer.node)
    yield CodeLocation("HF108", node, f"output mode complete with the keys {listed(last.keys)}")


def _salt_hits(writer: WriterValue) -> Iterator[CodeLocation]:
    aggregates = [each for each in writer.frame.operators if each.kind == "aggregate"]
    for position, operator in enumerate(aggregates):
        by_chance = operator.keys.calls & _CHANCE or operator.keys.used & operator.random_columns
        if by_chance and position == len(aggregates) - 1 and operator.known:
            yield CodeLocation(
                "HF110",
                operator.node,
                "rows are grouped by a random number, and no second aggregate adds the parts up",
            )


_DEFAULT: Final = "spark.sql.streaming.checkpointLocation"
# Spark gives queries with these sinks a temporary checkpoint, which is deleted with the query.
_FOR_LOOKING: Final = frozenset(("console", "memory", "noop", "rate"))
_TEMPORARY: Final = tuple(
    f"{scheme}{place}/"
    for scheme in ("", "file:", "file://", "dbfs:", "/dbfs")
    for place in ("/tmp", "/var/tmp")  # noqa: S108 - searched for in code
)
_OBJECTS: Final = ("s3:", "s3a:", "s3n:", "gs:", "abfs:", "abfss:", "wasbs:", "oss:")
_SERVICES: Final = frozenset(("kafka", "kinesis", "eventhubs", "pulsar", "pubsub", "delta", "iceberg"))
_FILES: Final = frozenset(("parquet", "json", "csv", "orc", "text", "avro"))
_ACTIONS: Final = frozenset(
    [
        "write",
        "writeTo",
        "count",
        "collect",
        "show",
        "toPandas",
        "foreach",
        "foreachPartition",
        "first",
        "head",
        "take",
        "isEmpty",
        "toLocalIterator",
    ]
)
_KEPT: Final = frozenset(("persist", "cache", "localCheckpoint", "checkpoint"))
_APPENDING: Final = frozenset(
    ("insertInto", "saveAsTable", "save", "jdbc", "append", "parquet", "json", "csv", "orc")
)
_MERGING: Final = frozenset(
    ("merge", "executemerge", "mergeInto".lower(), "upsert", "overwritePartitions".lower())
)


def writer_hits(found: Evaluated) -> Iterator[CodeLocation]:
    """Yield the violations in the writers of a file."""
    settings = found.settings
    local = settings.master is not None and settings.master.startswith("local")
    for writer in found.writers:
        if writer.started is not None or (writer.own and settings.own):
            yield from _place_hits(writer, settings, local)
            yield from _looking_hits(writer)
            yield from _file_hits(writer)
        yield from _function_hits(writer, found)
    yield from _shared_hits(found)
    for name, given, node in found.own_calls:
        place = (
            given.named.get("checkpoint")
            if name == "job"
            else given.get(0, "storage")
            if name == "Checkpoint"
            else None
        )
        yield from _temporary_hits(place, node)


def _place_hits(writer: WriterValue, settings: ProgramSettings, local: bool) -> Iterator[CodeLocation]:
    place, node = writer.options.get("checkpointlocation", (None, None))
    started = writer.started
    if place is None and not writer.own and started is not None:
        if (
            writer.known
            and settings.known
            and writer.format not in _FOR_LOOKING
            and _DEFAULT not in settings.made
        ):
            yield CodeLocation("HF401", started, "the query is started without a checkpointLocation")
        place, node = (
            settings.made.get(_DEFAULT, (None, None)) if writer.format not in _FOR_LOOKING else (None, None)
        )
    if node is None or not isinstance(place, Const) or not isinstance(place.value, str):
        return
    yield from _temporary_hits(place, node)
    text = place.value.lower()
    if text.startswith("file:") and not text.startswith(_TEMPORARY) and not local:
        yield CodeLocation(
            "HF403", node, f"the checkpoint is at {place.value}, on the local disk of one machine"
        )
    if text.startswith(_OBJECTS) and started is not None and not writer.own:
        if not writer.triggered:
            yield CodeLocation(
                "HF407", started, f"no trigger, and the checkpoint is at {text.partition(':')[0]}:"
            )
        if (
            text.startswith(("s3a:", "s3:"))
            and settings.built is not None
            and settings.known
            and not settings.own
        ) and FILE_MANAGER_KEY not in settings.made:
            yield CodeLocation(
                "HF408",
                settings.built,
                f"the checkpoint is at {place.value}, with the default file manager",
            )


def _shared_hits(found: Evaluated) -> Iterator[CodeLocation]:
    """Find queries with the same checkpoint, except those in alternative branches."""
    first: dict[str, ast.AST] = {}
    parents = {id(inner): outer for outer in ast.walk(found.tree) for inner in ast.iter_child_nodes(outer)}
    for writer in found.writers:
        place, node = writer.options.get("checkpointlocation", (None, writer.node))
        if writer.started is None or not isinstance(place, Const) or not place.whole or not place.value:
            continue
        before = first.setdefault(str(place.value), writer.started)
        if before is not writer.started and not _are_alternatives(before, writer.started, parents):
            line = CodeLocation("", before, "").line
            yield CodeLocation(
                "HF409", node, f"the query in line {line} also has the checkpoint {place.value}"
            )


def _are_alternatives(first: ast.AST, second: ast.AST, parents: dict[int, ast.AST]) -> bool:
    """Return whether two statements are in different branches, or in different functions."""
    ways = [_way(node, parents) for node in (first, second)]
    for (one, in_one), (other, in_other) in zip(*ways, strict=False):
        if one is not other:
            return False
        if in_one is not in_other and isinstance(one, ast.If):
            body = [id(each) for each in one.body]
            return (id(in_one) in body) != (id(in_other) in body)
    functions = [[node for node, _ in way if isinstance(node, ast.FunctionDef)] for way in ways]
    return functions[0] != functions[1]


def _way(node: ast.AST, parents: dict[int, ast.AST]) -> list[tuple[ast.AST, ast.AST]]:
    """Return the ancestors of a node, outermost first, each with its child that contains the node."""
    way = []
    while id(node) in parents:
        way.append((parents[id(node)], node))
        node = parents[id(node)]
    return way[::-1]


def _temporary_hits(place: Any, node: ast.AST) -> Iterator[CodeLocation]:
    text = place.value if isinstance(place, Const) else None
    if isinstance(text, str) and f"{text.lower()}/".startswith(_TEMPORARY):
        yield CodeLocation("HF402", node, f"the checkpoint is at {text}")


def _looking_hits(writer: WriterValue) -> Iterator[CodeLocation]:
    if writer.format not in ("console", "memory"):
        return
    served = sorted(writer.frame.sources & _SERVICES)
    placed = "checkpointlocation" in writer.options and not writer.own
    if served or placed:
        why = f"it receives a stream from {served[0]}" if served else "its query has a checkpoint"
        yield CodeLocation(
            "HF406", writer.nodes.get("format", writer.node), f"the sink is {writer.format}, and {why}"
        )


def _file_hits(writer: WriterValue) -> Iterator[CodeLocation]:
    """Find file sinks, whose log of written files grows without limit."""
    call = writer.started
    by_path = (
        isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "start"
    )
    kind = writer.format or ("parquet" if by_path and writer.path is not None else None)
    if not writer.own and writer.known and by_path and kind in _FILES and "retention" not in writer.options:
        yield CodeLocation(
            "HF410",
            writer.nodes.get("format", writer.node),
            f"the sink is {kind}, and its log grows without limit",
        )


def _function_hits(writer: WriterValue, found: Evaluated) -> Iterator[CodeLocation]:
    if "function" not in writer.nodes or writer.format == "foreach":
        return
    ledger, _ = writer.options.get("ledger", (None, None))
    node = _definition(writer.function, writer, found)
    if node is None:
        return
    names = [each.arg for each in (*node.args.posonlyargs, *node.args.args)]
    if names[:1] == ["self"]:
        names = names[1:]
    if len(names) < 2:
        return
    batch, batch_id = names[:2]
    body: list[ast.AST] = list(node.body) if not isinstance(node, ast.Lambda) else [node.body]
    derived = _derived(body, batch)
    if ledger is None and not _reads(body, batch_id):
        for appended, how in _appends(body, derived):
            yield CodeLocation("HF404", appended, f"foreachBatch {how} and does not use `{batch_id}`")
            break
    actions = _most_actions(body, derived)
    kept = any(method in _KEPT for _, method in _called(body, derived))
    if len(actions) > 1 and not kept:
        yield CodeLocation("HF405", actions[1], f"foreachBatch computes `{batch}` {len(actions)} times")


def _definition(function: Any, writer: WriterValue, found: Evaluated) -> Any:
    if isinstance(function, Function):
        return function.node
    call = writer.nodes["function"]
    given = call.args[0] if isinstance(call, ast.Call) and call.args else None
    if isinstance(given, ast.Attribute) and isinstance(given.value, ast.Name) and given.value.id == "self":
        return found.functions.get(given.attr)
    return None


def _derived(body: list[ast.AST], first: str) -> set[str]:
    """Return the names of the batch and of DataFrames derived from it."""
    names = {first}
    for node in (inner for statement in body for inner in ast.walk(statement)):
        if isinstance(node, ast.Assign) and _root(node.value) in names and not _is_action(node.value):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return names


def _is_action(node: ast.AST) -> bool:
    return any(isinstance(inner, ast.Attribute) and inner.attr in _ACTIONS for inner in ast.walk(node))


def _root(node: ast.AST) -> str | None:
    """Return the name that a chain of calls begins with."""
    while isinstance(node, (ast.Call, ast.Attribute, ast.Subscript)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else None


def _called(body: list[ast.AST], names: set[str]) -> Iterator[tuple[ast.AST, str]]:
    """Yield the methods and writers called on the batch, the innermost of each chain."""
    for node in (inner for statement in body for inner in ast.walk(statement)):
        if isinstance(node, ast.Attribute) and _root(node) in names:
            outer = node.attr in _ACTIONS and any(
                isinstance(inner, ast.Attribute) and inner.attr in _ACTIONS for inner in ast.walk(node.value)
            )
            if not outer:
                yield node, node.attr


def _most_actions(body: list[ast.AST], names: set[str]) -> list[ast.AST]:
    """Return the actions on the batch in the branch that has the most actions."""
    found: list[ast.AST] = []
    for node in body:
        if isinstance(node, (ast.If, ast.IfExp)):
            first = node.body if isinstance(node, ast.If) else [node.body]
            second = node.orelse if isinstance(node, ast.If) else [node.orelse]
            found += _most_actions([node.test], names)
            ways = _most_actions([*first], names), _most_actions([*second], names)
            found += ways[len(ways[1]) > len(ways[0])]
        elif isinstance(node, (ast.With, ast.For, ast.Try, ast.While)):
            found += _most_actions([*ast.iter_child_nodes(node)], names)
        else:
            found += [call for call, method in _called([node], names) if method in _ACTIONS]
    return found


def _reads(body: list[ast.AST], name: str) -> bool:
    return any(
        isinstance(node, ast.Name) and node.id == name for statement in body for node in ast.walk(statement)
    )


def _appends(body: list[ast.AST], names: set[str]) -> Iterator[tuple[ast.AST, str]]:
    """Yield the writes that append the rows of each batch."""
    for node in (inner for statement in body for inner in ast.walk(statement)):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        chain = _chain(node)
        if node.func.attr not in _APPENDING or _root(node) not in names or not chain & {"write", "writeTo"}:
            continue
        texts = {
            inner.value.lower()
            for inner in ast.walk(node)
            if isinstance(inner, ast.Constant) and isinstance(inner.value, str)
        }
        if "overwrite" in texts or "txnversion" in texts or chain & _MERGING or "ignore" in texts:
            continue
        if node.func.attr == "insertInto" or "append" in texts or node.func.attr == "append":
            yield node, f"appends by {node.func.attr}"


def _chain(node: ast.AST) -> set[str]:
    found: set[str] = set()
    while isinstance(node, (ast.Call, ast.Attribute)):
        if isinstance(node, ast.Attribute):
            found.add(node.attr)
        node = node.func if isinstance(node, ast.Call) else node.value
    return found
