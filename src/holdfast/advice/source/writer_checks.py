"""Queries without a checkpoint, checkpoints in the wrong place, and sinks that repeat or keep too much."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any, Final

from holdfast.advice.source.evaluated import Evaluated
from holdfast.advice.source.hits import Hit
from holdfast.advice.source.values import Const, Function, Settings, Writer
from holdfast.config.spark_defaults import FILE_MANAGER_KEY

_DEFAULT: Final = "spark.sql.streaming.checkpointLocation"
# Spark gives queries with these sinks a checkpoint of their own that is gone with them.
_FOR_LOOKING: Final = frozenset(("console", "memory", "noop", "rate"))
_TEMPORARY: Final = tuple(
    f"{scheme}{place}/"
    for scheme in ("", "file:", "file://", "dbfs:", "/dbfs")
    for place in ("/tmp", "/var/tmp")  # noqa: S108 - what is looked for
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


def writer_hits(found: Evaluated) -> Iterator[Hit]:
    """What is wrong with the writers of a file."""
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


def _place_hits(writer: Writer, settings: Settings, local: bool) -> Iterator[Hit]:
    place, node = writer.options.get("checkpointlocation", (None, None))
    started = writer.started
    if place is None and not writer.own and started is not None:
        if (
            writer.known
            and settings.known
            and writer.format not in _FOR_LOOKING
            and _DEFAULT not in settings.made
        ):
            yield Hit("HF401", started, "the query is started without a checkpointLocation")
        place, node = (
            settings.made.get(_DEFAULT, (None, None)) if writer.format not in _FOR_LOOKING else (None, None)
        )
    if node is None or not isinstance(place, Const) or not isinstance(place.value, str):
        return
    yield from _temporary_hits(place, node)
    text = place.value.lower()
    if text.startswith("file:") and not text.startswith(_TEMPORARY) and not local:
        yield Hit("HF403", node, f"the checkpoint is at {place.value}, on the disk of one machine")
    if text.startswith(_OBJECTS) and started is not None and not writer.own:
        if not writer.triggered:
            yield Hit("HF407", started, f"no trigger, and the checkpoint is at {text.partition(':')[0]}:")
        if (
            text.startswith(("s3a:", "s3:"))
            and settings.built is not None
            and settings.known
            and not settings.own
        ) and FILE_MANAGER_KEY not in settings.made:
            yield Hit(
                "HF408",
                settings.built,
                f"the checkpoint is at {place.value}, with the usual file manager",
            )


def _shared_hits(found: Evaluated) -> Iterator[Hit]:
    """Queries that have one checkpoint; of two branches only one runs."""
    first: dict[str, ast.AST] = {}
    parents = {id(inner): outer for outer in ast.walk(found.tree) for inner in ast.iter_child_nodes(outer)}
    for writer in found.writers:
        place, node = writer.options.get("checkpointlocation", (None, writer.node))
        if writer.started is None or not isinstance(place, Const) or not place.whole or not place.value:
            continue
        before = first.setdefault(str(place.value), writer.started)
        if before is not writer.started and not _are_alternatives(before, writer.started, parents):
            line = Hit("", before, "").line
            yield Hit("HF409", node, f"the query in line {line} has the checkpoint {place.value} too")


def _are_alternatives(first: ast.AST, second: ast.AST, parents: dict[int, ast.AST]) -> bool:
    """Whether two statements are in different branches, or in different functions."""
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
    """What a node is in, from the outermost on, each with the part of it that leads there."""
    way = []
    while id(node) in parents:
        way.append((parents[id(node)], node))
        node = parents[id(node)]
    return way[::-1]


def _temporary_hits(place: Any, node: ast.AST) -> Iterator[Hit]:
    text = place.value if isinstance(place, Const) else None
    if isinstance(text, str) and f"{text.lower()}/".startswith(_TEMPORARY):
        yield Hit("HF402", node, f"the checkpoint is at {text}")


def _looking_hits(writer: Writer) -> Iterator[Hit]:
    if writer.format not in ("console", "memory"):
        return
    served = sorted(writer.frame.sources & _SERVICES)
    placed = "checkpointlocation" in writer.options and not writer.own
    if served or placed:
        why = f"a stream from {served[0]} goes to it" if served else "its query has a checkpoint"
        yield Hit("HF406", writer.nodes.get("format", writer.node), f"the sink is {writer.format}, and {why}")


def _file_hits(writer: Writer) -> Iterator[Hit]:
    """Sinks of files, whose log of what they have written grows for ever."""
    call = writer.started
    by_path = (
        isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "start"
    )
    kind = writer.format or ("parquet" if by_path and writer.path is not None else None)
    if not writer.own and writer.known and by_path and kind in _FILES and "retention" not in writer.options:
        yield Hit(
            "HF410", writer.nodes.get("format", writer.node), f"the sink is {kind}, and its log has no end"
        )


def _function_hits(writer: Writer, found: Evaluated) -> Iterator[Hit]:
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
            yield Hit("HF404", appended, f"foreachBatch {how} and does not use `{batch_id}`")
            break
    actions = _most_actions(body, derived)
    kept = any(method in _KEPT for _, method in _called(body, derived))
    if len(actions) > 1 and not kept:
        yield Hit("HF405", actions[1], f"foreachBatch computes `{batch}` {len(actions)} times")


def _definition(function: Any, writer: Writer, found: Evaluated) -> Any:
    if isinstance(function, Function):
        return function.node
    call = writer.nodes["function"]
    given = call.args[0] if isinstance(call, ast.Call) and call.args else None
    if isinstance(given, ast.Attribute) and isinstance(given.value, ast.Name) and given.value.id == "self":
        return found.functions.get(given.attr)
    return None


def _derived(body: list[ast.AST], first: str) -> set[str]:
    """The names that hold the batch, or a frame made of it."""
    names = {first}
    for node in (inner for statement in body for inner in ast.walk(statement)):
        if isinstance(node, ast.Assign) and _root(node.value) in names and not _is_action(node.value):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return names


def _is_action(node: ast.AST) -> bool:
    return any(isinstance(inner, ast.Attribute) and inner.attr in _ACTIONS for inner in ast.walk(node))


def _root(node: ast.AST) -> str | None:
    """The name that a chain of calls begins with."""
    while isinstance(node, (ast.Call, ast.Attribute, ast.Subscript)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else None


def _called(body: list[ast.AST], names: set[str]) -> Iterator[tuple[ast.AST, str]]:
    """The methods and writers of the batch that are used, the innermost of each chain."""
    for node in (inner for statement in body for inner in ast.walk(statement)):
        if isinstance(node, ast.Attribute) and _root(node) in names:
            outer = node.attr in _ACTIONS and any(
                isinstance(inner, ast.Attribute) and inner.attr in _ACTIONS for inner in ast.walk(node.value)
            )
            if not outer:
                yield node, node.attr


def _most_actions(body: list[ast.AST], names: set[str]) -> list[ast.AST]:
    """The actions on the batch along the way that has most of them: of two branches only one runs."""
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
    """The writes of the batch that add rows each time."""
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
