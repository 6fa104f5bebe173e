"""`holdfast state`: read the state of any query, by key, in SQL, and over its history."""

from __future__ import annotations

import shlex
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli import next_step, options, output
from holdfast.cli.arguments import Key, Place, State, catalog_of, place_of
from holdfast.cli.help_text import examples
from holdfast.cli.progress import progress
from holdfast.clock import now_ms
from holdfast.errors import Invalid, NotFound
from holdfast.formats.rows.plain import plain
from holdfast.quantities import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from holdfast.at_rest.insight import KeyExplanation, KeyHistory
    from holdfast.at_rest.model import KeyState, NamedOperator, NamedState
    from holdfast.at_rest.state_reader import StateReader
    from holdfast.checkpoints.logs import InputRange, TablePosition, TopicRange
    from holdfast.formats.rows.spark_types import Struct


app = options.group(
    "Read the state of any query by key or in SQL, without Spark, while it runs; edit or migrate it."
)


def open_state(place: str, home: str | None, batch: int | None) -> StateReader:
    """Open the state at an address."""
    from holdfast.at_rest.state_reader import StateReader
    from holdfast.savepoints.address import StateAddress

    found = StateAddress.resolve(place_of(place, home)).open_state(batch)
    return StateReader(found.storage, found.batch_id)


def picked_key(
    reader: StateReader, state: str | None, key: list[str] | None, operator: str | None
) -> tuple[NamedOperator, NamedState, dict[str, Any]]:
    """Return the operator, the state and the key that the arguments name."""
    from holdfast.at_rest.state_reader import key_in

    name, words = _split_state_and_key(reader, state, key, operator)
    chosen, meant = reader.pick(name, operator)
    return chosen, meant, key_in(meant, words)


def _split_state_and_key(
    reader: StateReader, state: str | None, key: list[str] | None, operator: str | None
) -> tuple[str, list[str]]:
    """Return the state and the key in the arguments; with only one state, the first argument may be a key."""
    from holdfast.at_rest.state_reader import is_the_only

    words = key or []
    if state is None:
        return "", words
    whole = [state, *words]
    if is_the_only(reader.operators, state, operator):
        columns = reader.pick("", operator)[1].key.names
        # A bare word before a complete key can only be the name of a state.
        return ("", whole) if not words or "=" in state or len(whole) == len(columns) else (state, words)
    if not words:
        _refuse_bare_key(reader, state, operator)
    return state, words


def _refuse_bare_key(reader: StateReader, word: str, operator: str | None) -> None:
    """Check that a single argument is the name of a state, not a key, if there are several states.

    Raises:
        Invalid: Several states exist, and the argument is not the name of one.
    """
    try:
        reader.pick(word, operator)
    except NotFound as error:
        names = [state.full_name for owner in reader.operators for state in owner.states]
        if len(names) < 2:
            raise
        raise Invalid(
            "the key is given without a state, and there are several states",
            code="HF-E2149",
            found=f"{word!r} alone",
            expected=f"one of {', '.join(map(shlex.quote, names))} before the key",
            hint=f"name the state, as in `holdfast state get … {shlex.quote(names[0])} {shlex.quote(word)}`",
        ) from error


@app.command("list")
@examples("checkpoints/visits", "savepoints/20260305T080000")
def list_states(
    place: Place, batch: options.Batch = None, home: options.Home = None, json: options.Json = False
) -> None:
    """List the states of a query, with the columns of their keys and values."""
    reader = open_state(place, home, batch)
    if json:
        operators = [operator.as_dict() for operator in reader.operators]
        at = {"place": place, "batch_id": reader.batch_id}
        output.emit_json({**at, "operators": operators})
        return
    output.line(f"batch {reader.batch_id}")
    output.table(
        ["OPERATOR", "STATE", "HOLDS", "TTL", "PARTITIONS", "KEY", "VALUE"],
        [row for operator in reader.operators for row in _listed(operator)],
        spare=("PARTITIONS",),
        below=["KEY", "VALUE"],
        empty="the query has no state",
    )
    next_step.say_looked_up(json, lambda: _after_list(reader, place, batch, home))


@app.command("get")
@examples("checkpoints/visits ann", "savepoints/20260305T080000 aggregate ann")
def get(
    place: Place,
    state: State = None,
    key: Key = None,
    operator: options.Operator = None,
    batch: options.Batch = None,
    home: options.Home = None,
    json: options.Json = False,
) -> None:
    """Show the value of one key; exit code 3 if the key does not exist."""
    reader = open_state(place, home, batch)
    found = reader.get_written(*_split_state_and_key(reader, state, key, operator), operator)
    if not found.exists:
        raise missing(found)
    output.show(found, json, _show_found)
    next_step.say_looked_up(json, lambda: key_words("explain", place, state, key, operator, batch, home))


@app.command("scan")
@examples(
    "checkpoints/visits --where 'count > 1' --limit 20",
    "checkpoints/visits --sql 'select count(*) from aggregate'",
)
def scan(
    place: Place,
    state: Annotated[
        str | None, typer.Argument(metavar="[STATE]", help="The state, as for `get`. Not with --sql.")
    ] = None,
    where: Annotated[
        str | None, typer.Option("--where", metavar="SQL", help="A condition that selects rows.")
    ] = None,
    sql: Annotated[
        str | None,
        typer.Option(
            "--sql", metavar="SELECT", help="A query over states; each is a table with the state's name."
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option("--limit", min=0, metavar="N", help="The maximum number of rows. [all]"),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option("--output", metavar="FILE", help="An output file, FILE.parquet or FILE.jsonl."),
    ] = None,
    operator: options.Operator = None,
    batch: options.Batch = None,
    home: options.Home = None,
    json: options.Json = False,
) -> None:
    """List the rows of a state, or run a DuckDB SQL query over states; print or export the result."""
    from holdfast.at_rest.export import check_target, export

    if sql is not None and (state is not None or where is not None):
        raise Invalid(
            "--sql cannot be combined with a state or --where",
            code="HF-E2150",
            hint="run `holdfast state scan CHECKPOINT STATE`, or `holdfast state scan CHECKPOINT --sql"
            " 'select …'`",
        )
    target = None if to is None else Path(to)
    if target is not None:
        check_target(target)
    reader = open_state(place, home, batch)
    with ExitStack() as stack:
        tell = stack.enter_context(progress("scan", "stores"))
        rows = _rows(stack, reader, state, operator, where, sql, tell)
        if target is not None:
            written = export(_first(rows, limit), target)
            output.emit_json({"file": to, "rows": written}) if json else output.line(
                f"{counted(written, 'row')}: {to}"
            )
            return
        shown = _first(rows, limit).read_all()
    _show_rows(shown, reader.batch_id, json)
    if sql is None:
        next_step.say_looked_up(json, lambda: _after_scan(reader, shown, place, state, operator, batch, home))


def key_words(
    verb: str,
    place: str,
    state: str | None,
    key: list[str] | None,
    operator: str | None,
    batch: int | None,
    home: str | None,
) -> tuple[str, ...]:
    """Return the arguments that show the same key with a different verb."""
    named = [*([] if state is None else [state]), *(key or [])]
    options_ = [*([] if operator is None else ["--operator", operator])]
    options_ += [] if batch is None else ["--batch", str(batch)]
    options_ += next_step.home_words(home)
    # After `--`, a word that starts with a dash is not an option.
    dashed = any(word.startswith("-") for word in named)
    words = [*options_, "--", *named] if dashed else [*named, *options_]
    return ("state", verb, next_step.savepoint_word(place), *words)


def _after_list(reader: StateReader, place: str, batch: int | None, home: str | None) -> tuple[str, ...]:
    """Return the arguments that scan the first state."""
    states = [state.full_name for operator in reader.operators for state in operator.states]
    if not states:
        return ()
    words = key_words("scan", place, states[0] if len(states) > 1 else None, None, None, batch, home)
    return (*words, "--limit", "10")


def _after_scan(
    reader: StateReader,
    shown: pa.Table,
    place: str,
    state: str | None,
    operator: str | None,
    batch: int | None,
    home: str | None,
) -> tuple[str, ...]:
    """Return the arguments that get the key of the first row."""
    from holdfast.at_rest.state_reader import written_key

    chosen = reader.pick(state or "", operator)[1]
    row = next(iter(shown.slice(0, 1).to_pylist()), None)
    key = None if row is None else written_key(chosen, {name: row[name] for name in chosen.key.names})
    return () if key is None else key_words("get", place, state, [key], operator, batch, home)


def missing(found: KeyState) -> NotFound:
    """Return the error for a key that is not in a state."""
    from holdfast.at_rest.state_reader import sample_key
    from holdfast.formats.rows.plain import plain

    sample = sample_key(found.state)
    example = "" if sample is None else f"an existing key is {shlex.quote(sample)}; "
    return NotFound(
        "key not found in this state",
        code="HF-E3028",
        where=f"{found.state.full_name} at batch {found.batch_id}",
        found=output.compact(plain(found.key)),
        hint=f"{example}search with `holdfast state scan … --where`, or in other batches with"
        " `holdfast state history`",
    )


def _listed(operator: NamedOperator) -> list[tuple[Any, ...]]:
    return [
        (
            operator.named.label,
            state.name,
            state.form.value,
            "yes" if state.ttl else "no",
            operator.partitions,
            _columns(state.key),
            _columns(state.value, state.sub),
        )
        for state in operator.states
    ]


def _columns(*structs: Struct) -> str:
    from holdfast.at_rest.model import type_text

    named = [
        f"{name} {type_text(type_)}"
        for struct in reversed(structs)
        for name, type_ in zip(struct.names, struct.types, strict=True)
    ]
    return ", ".join(named) or "–"


def _show_found(found: KeyState) -> None:
    shown = found.as_dict()
    value = shown["value"]
    rows = value if isinstance(value, list) else []
    output.fields(
        [
            ("state", found.state.full_name),
            ("batch", str(found.batch_id)),
            ("partition", str(found.partition)),
            ("key", output.compact(shown["key"])),
            ("size", f"{found.size_bytes:,} bytes"),
            *([("expires", _expiry(found))] if found.state.ttl else []),
            ("value", counted(len(rows), "row") if rows else output.compact(value, None)),
        ]
    )
    for row in rows:
        output.line(f"  {output.compact(row, None)}")


def _expiry(found: KeyState) -> str:
    times = sorted(entry.expires_ms for entry in found.entries if entry.expires_ms is not None)
    if not times:
        return "–"
    several = times[0] // 1000 != times[-1] // 1000
    first, last = (output.moment(ms, in_utc=not several) for ms in (times[0], times[-1]))
    return first if first == last else f"{first} to {last}"


def _rows(
    stack: ExitStack,
    reader: StateReader,
    state: str | None,
    operator: str | None,
    where: str | None,
    sql: str | None,
    tell: Any,
) -> pa.RecordBatchReader:
    from holdfast.at_rest.sql import filtered
    from holdfast.at_rest.tables import state_table

    if sql is not None:
        return reader.ask(sql, tell=tell).to_reader()
    rows = state_table(reader.pick(state or "", operator)[1], tell=tell)
    return rows if where is None else stack.enter_context(filtered(rows, where))


def _first(rows: pa.RecordBatchReader, limit: int | None) -> pa.RecordBatchReader:
    """Return the first rows without reading the others."""
    import pyarrow as pa

    if limit is None:
        return rows

    def some() -> Any:
        left = limit
        for batch in rows:
            if left <= 0:
                return
            yield batch.slice(0, min(left, batch.num_rows))
            left -= batch.num_rows

    return pa.RecordBatchReader.from_batches(rows.schema, some())


def _show_rows(rows: pa.Table, batch_id: int, json: bool) -> None:
    from holdfast.formats.rows.plain import plain

    found = [plain(row) for row in rows.to_pylist()]
    if json:
        at = {"batch_id": batch_id}
        output.emit_json({**at, "columns": rows.schema.names, "rows": found})
        return
    output.table(
        rows.schema.names,
        [[_cell(row[name]) for name in rows.schema.names] for row in found],
        empty="no rows",
    )


def _cell(value: Any) -> Any:
    """Return text unchanged, and any other value as JSON."""
    if value is None:
        return None
    return value if isinstance(value, str) else output.compact(value, None)


# The maximum number of files or partitions of topics listed in text.
_FIRST = 10


@examples("checkpoints/visits ann", "checkpoints/visits ann --savepoints savepoints")
def history(
    place: Place,
    state: State = None,
    key: Key = None,
    savepoints: Annotated[
        str | None,
        typer.Option(
            "--savepoints", metavar="DIR|JOB", help="A directory of savepoints to search as well, or a job's."
        ),
    ] = None,
    operator: options.Operator = None,
    batch: options.Batch = None,
    home: options.Home = None,
    json: options.Json = False,
) -> None:
    """Show each value that a key had in the retained batches, and in savepoints."""
    from holdfast.at_rest.insight import key_history
    from holdfast.savepoints.catalog import require_catalog
    from holdfast.storage import open_storage

    reader = open_state(place, home, batch)
    chosen = picked_key(reader, state, key, operator)
    catalog = None if savepoints is None else open_storage(catalog_of(savepoints, home), "catalog")
    if catalog is not None:
        require_catalog(catalog)
    found = key_history(reader, *chosen, catalog=catalog)
    output.show(found, json, _show_history)
    next_step.say(json, *_after_history(place, found, home))


@examples("checkpoints/visits ann", "checkpoints/visits@1 ann --no-rank")
def explain(
    place: Place,
    state: State = None,
    key: Key = None,
    rank: Annotated[
        bool, typer.Option("--rank/--no-rank", help="Show the key's rank by size; reads all rows.")
    ] = True,
    operator: options.Operator = None,
    batch: options.Batch = None,
    home: options.Home = None,
    json: options.Json = False,
) -> None:
    """Show why a key has its value: which batch wrote it, from which input, and when it expires."""
    from holdfast.at_rest.insight import explain as explained

    reader = open_state(place, home, batch)
    chosen = picked_key(reader, state, key, operator)
    with progress("explain", "stores") as tell:
        found = explained(reader, *chosen, now_ms(), rank=rank, tell=tell)
    if not found.found.exists:
        raise missing(found.found)
    output.show(found, json, _show_explanation)
    next_step.say_looked_up(json, lambda: key_words("history", place, state, key, operator, batch, home))


def _after_history(place: str, found: KeyHistory, home: str | None) -> tuple[str, ...]:
    """Return the next step after a history: show all changes of the batch that last changed the key."""
    checkpoint, at, number = place.rpartition("@")
    checkpoint = checkpoint if at and number.isdecimal() else place
    changed = [version.batch_id for version in found.versions if version.savepoint is None]
    if not changed or changed[-1] - 1 not in found.batches:
        return ()
    sides = (f"{checkpoint}@{changed[-1] - 1}", f"{checkpoint}@{changed[-1]}")
    return ("state", "diff", *sides, *next_step.home_words(home))


def _show_history(found: KeyHistory) -> None:
    kept = f"{found.batches[0]} to {found.batches[-1]}" if found.batches else "none"
    output.fields(
        [
            ("state", found.state.full_name),
            ("key", output.compact(plain(found.key))),
            ("searched", f"{counted(len(found.batches), 'batch')}: {kept}"),
        ]
    )
    from_savepoints = any(version.savepoint for version in found.versions)
    output.line()
    output.table(
        ["BATCH", "PLANNED", "CHANGE", "FROM", "VALUE"],
        [
            (
                str(version.batch_id),
                output.moment(version.planned_ms),
                version.change,
                version.savepoint or ("the checkpoint" if from_savepoints else None),
                output.compact(plain(version.found.value), None) if version.found.exists else "–",
            )
            for version in found.versions
        ],
        below=["VALUE"],
    )


def _show_explanation(found: KeyExplanation) -> None:
    output.fields(
        [
            ("state", found.found.state.full_name),
            ("key", output.compact(plain(found.found.key))),
            ("value", output.compact(plain(found.found.value), 500)),
            ("batch", str(found.found.batch_id)),
            ("written", _written(found)),
            ("planned", output.moment(found.written_ms, in_utc=True)),
            (
                "watermark",
                f"{_moment(found.watermark_ms)} at that batch, {_moment(found.watermark_now_ms)} now",
            ),
            ("expires", _expiry_of(found)),
            ("partition", f"{found.partition} of {found.partitions}"),
            *([] if found.key_group is None else [("key group", str(found.key_group))]),
            (
                "size",
                f"{found.found.size_bytes:,} bytes in {counted(len(found.found.entries), 'row')}",
            ),
            *([] if found.rank is None else [("rank", _rank(found))]),
        ]
    )
    if found.inputs:
        output.line()
        output.table(
            ["SOURCE", "AFTER", "UP TO"],
            [(read.source, _offset(read.after), _offset(read.upto)) for read in found.inputs],
        )
    for read in found.inputs:
        _show_input(read)


def _show_input(read: InputRange) -> None:
    """Print the first files or records that a batch read; the JSON contains all of them."""
    if read.files is not None:
        output.line(f"source {read.source}: {counted(len(read.files), 'file')}")
        _first_line(read.files)
    if read.topics is not None:
        partitions = counted(len(read.topics), "topic partition")
        output.line(f"source {read.source}: records of {partitions}")
        _first_line([_records(part) for part in read.topics])
    if read.table_upto is not None:
        after = "its beginning" if read.table_after is None else _position(read.table_after)
        output.line(f"source {read.source}: Delta table, after {after} up to {_position(read.table_upto)}")
    if read.why_unknown is not None:
        output.line(f"source {read.source}: {read.why_unknown}")


def _first_line(lines: Sequence[str]) -> None:
    for line in lines[:_FIRST]:
        output.line(f"  {line}")
    if len(lines) > _FIRST:
        output.line(f"  and {len(lines) - _FIRST:,} more; --json shows all")


def _records(part: TopicRange) -> str:
    first = "its first record" if part.first is None else f"offset {part.first}"
    return f"{part.topic} partition {part.partition}: {first} to {part.last}"


def _position(position: TablePosition) -> str:
    return f"version {position.version} index {position.index}"


def _moment(ms: int | None) -> str:
    return "none" if ms is None else output.moment(ms)


def _written(found: KeyExplanation) -> str:
    if found.written_batch is None:
        return f"before batch {found.first_kept}, the oldest that is retained"
    return f"by batch {found.written_batch}" + (
        "" if found.exact else ", or later with the same value; the files record only changes"
    )


def _expiry_of(found: KeyExplanation) -> str:
    if found.expires_ms is None:
        return (
            "never" if found.clock is None else "with the watermark, at a time that the files do not record"
        )
    first, last = found.expires_ms
    when = output.moment(first) if first == last else f"{output.moment(first)} to {output.moment(last)}"
    if found.left_ms is None:
        return f"{when} in {found.clock} time"
    left = output.duration(abs(found.left_ms))
    return f"{when} in {found.clock} time, {f'in {left}' if found.left_ms >= 0 else f'{left} ago'}"


def _rank(found: KeyExplanation) -> str:
    rank = found.rank
    return (
        "" if rank is None else f"{rank.rank:,} of {counted(rank.keys, 'key')}, {rank.share:.1%} of the bytes"
    )


def _offset(offset: object) -> str:
    if offset is None:
        return "–"
    # Spark records most offsets as JSON.
    return offset if isinstance(offset, str) else output.compact(offset, 80)
