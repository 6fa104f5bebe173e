"""`holdfast state`: look into the state of any query, by key or in SQL."""

from __future__ import annotations

import shlex
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli import next_step, options, output
from holdfast.cli.arguments import Key, Place, State, place_of
from holdfast.cli.examples import examples
from holdfast.cli.progress import progress
from holdfast.config.units import counted
from holdfast.errors import Invalid, NotFound

if TYPE_CHECKING:
    import pyarrow as pa

    from holdfast.at_rest.read.model import KeyState, NamedOperator, NamedState
    from holdfast.at_rest.read.state_reader import StateReader
    from holdfast.formats.rows.spark_types import Struct

app = options.group(
    "Look into the state of any query, by key or in SQL, without Spark; it may run meanwhile."
)


def opened(place: str, home: str | None, batch: int | None) -> StateReader:
    """What reads the state at an address."""
    from holdfast.at_rest.read.state_reader import StateReader
    from holdfast.savepoints.places import place_of as parsed

    found = parsed(place_of(place, home), batch)
    return StateReader(found.storage, found.batch_id)


def picked_key(
    reader: StateReader, state: str | None, key: list[str] | None, operator: str | None
) -> tuple[NamedOperator, NamedState, dict[str, Any]]:
    """The operator, the state and the key that a person means."""
    from holdfast.at_rest.read.written_keys import key_in

    name, words = _named(reader, state, key, operator)
    chosen, meant = reader.pick(name, operator)
    return chosen, meant, key_in(meant, words)


def _named(
    reader: StateReader, state: str | None, key: list[str] | None, operator: str | None
) -> tuple[str, list[str]]:
    """A state and a key out of the words for them, of which the first is the key's where one state is all."""
    from holdfast.at_rest.read.state_catalog import is_the_only

    words = key or []
    if state is None:
        return "", words
    whole = [state, *words]
    if is_the_only(reader.operators, state, operator):
        columns = reader.pick("", operator)[1].key.names
        # A bare word in front of a key that is whole without it can only be meant for a state.
        return ("", whole) if not words or "=" in state or len(whole) == len(columns) else (state, words)
    if not words:
        _refuse_bare_key(reader, state, operator)
    return state, words


def _refuse_bare_key(reader: StateReader, word: str, operator: str | None) -> None:
    """Refuse a key without a state, where there are several.

    Raises:
        Invalid: The only word is no state's name.
    """
    try:
        reader.pick(word, operator)
    except NotFound as error:
        names = [state.full_name for owner in reader.operators for state in owner.states]
        if len(names) < 2:
            raise
        raise Invalid(
            "name the state in front of the key: there are several",
            found=f"{word!r} alone",
            expected=f"one of {', '.join(map(shlex.quote, names))}",
            hint=f"for the first of them: `holdfast state get … {shlex.quote(names[0])} {shlex.quote(word)}`",
        ) from error


@app.command("list")
@examples("checkpoints/visits", "savepoints/20260305T080000")
def list_states(
    place: Place, batch: options.Batch = None, home: options.Home = None, json: options.Json = False
) -> None:
    """List the states that there are, with the columns of their keys and values."""
    reader = opened(place, home, batch)
    if json:
        operators = [operator.as_dict() for operator in reader.operators]
        at = {"place": place, "batch_id": reader.batch_id, "batch": reader.batch_id}
        output.emit_json({**at, "operators": operators})
        return
    output.line(f"batch {reader.batch_id}")
    output.table(
        ["OPERATOR", "STATE", "HOLDS", "TTL", "PARTITIONS", "KEY", "VALUE"],
        [row for operator in reader.operators for row in _listed(operator)],
        spare=("PARTITIONS",),
        below=["KEY", "VALUE"],
        empty="the query keeps no state",
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
    """Show what a state holds for one key; exit 3 if the key is not there."""
    reader = opened(place, home, batch)
    found = reader.get_written(*_named(reader, state, key, operator), operator)
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
        str | None, typer.Argument(metavar="[STATE]", help="As for `get`. Not with --sql.")
    ] = None,
    where: Annotated[
        str | None, typer.Option("--where", metavar="SQL", help="Only rows for which this condition holds.")
    ] = None,
    sql: Annotated[
        str | None,
        typer.Option(
            "--sql", metavar="SELECT", help="Query several states; each is a table with the state's name."
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option("--limit", min=0, metavar="N", help="The most rows to show. [all]"),
    ] = None,
    to: Annotated[
        str | None, typer.Option("--to", metavar="FILE", help="Write the rows to FILE.parquet or FILE.jsonl.")
    ] = None,
    operator: options.Operator = None,
    batch: options.Batch = None,
    home: options.Home = None,
    json: options.Json = False,
) -> None:
    """Show the rows of a state, or what a query in DuckDB's SQL says of states, or write them to a file."""
    from holdfast.at_rest.read.export import check_target, export

    if sql is not None and (state is not None or where is not None):
        raise Invalid(
            "scan a state, with --where if need be, or ask in SQL",
            hint="holdfast state scan CHECKPOINT STATE, or holdfast state scan CHECKPOINT --sql 'select …'",
        )
    target = None if to is None else Path(to)
    if target is not None:
        check_target(target)
    reader = opened(place, home, batch)
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
    """Another verb's look at the same key, in the same words."""
    named = [*([] if state is None else [state]), *(key or [])]
    options_ = [*([] if operator is None else ["--operator", operator])]
    options_ += [] if batch is None else ["--batch", str(batch)]
    options_ += next_step.home_words(home)
    # Behind -- a word that begins with a dash is no option.
    dashed = any(word.startswith("-") for word in named)
    words = [*options_, "--", *named] if dashed else [*named, *options_]
    return ("state", verb, next_step.savepoint_word(place), *words)


def _after_list(reader: StateReader, place: str, batch: int | None, home: str | None) -> tuple[str, ...]:
    """The rows of the first state."""
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
    """The first row's key, with all that there is to know of it."""
    from holdfast.at_rest.read.written_keys import written_key

    chosen = reader.pick(state or "", operator)[1]
    row = next(iter(shown.slice(0, 1).to_pylist()), None)
    key = None if row is None else written_key(chosen, {name: row[name] for name in chosen.key.names})
    return () if key is None else key_words("get", place, state, [key], operator, batch, home)


def missing(found: KeyState) -> NotFound:
    """The error for a key that a state does not know."""
    from holdfast.at_rest.read.written_keys import sample_key
    from holdfast.formats.rows.plain import plain

    sample = sample_key(found.state)
    example = "" if sample is None else f"a key of this state: {shlex.quote(sample)}; "
    return NotFound(
        "there is no such key in this state",
        where=f"{found.state.full_name} at batch {found.batch_id}",
        found=output.compact(plain(found.key)),
        hint=f"{example}look for it with `holdfast state scan … --where`, or in other batches with"
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
    from holdfast.at_rest.read.model import type_text

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
    from holdfast.at_rest.read.sql import filtered
    from holdfast.at_rest.read.tables import state_table

    if sql is not None:
        return reader.ask(sql, tell=tell).to_reader()
    rows = state_table(reader.pick(state or "", operator)[1], tell=tell)
    return rows if where is None else stack.enter_context(filtered(rows, where))


def _first(rows: pa.RecordBatchReader, limit: int | None) -> pa.RecordBatchReader:
    """So many of the first rows; the others are not read."""
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
        at = {"batch_id": batch_id, "batch": batch_id}
        output.emit_json({**at, "columns": rows.schema.names, "rows": found})
        return
    output.table(
        rows.schema.names,
        [[_cell(row[name]) for name in rows.schema.names] for row in found],
        empty="no row",
    )


def _cell(value: Any) -> Any:
    """Text as it is, and what has parts as JSON."""
    if value is None:
        return None
    return value if isinstance(value, str) else output.compact(value, None)
