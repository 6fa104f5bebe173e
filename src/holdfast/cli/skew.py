"""`holdfast skew`: show the heaviest keys and partitions."""

from __future__ import annotations

import json as json_
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from holdfast.cli import next_step, options, output
from holdfast.cli.arguments import checkpoint_of
from holdfast.cli.help_text import examples
from holdfast.cli.progress import progress
from holdfast.cli.state import key_words

if TYPE_CHECKING:
    from holdfast.at_rest.insight import HeavyKeys
    from holdfast.checkpoints.state.contents import StoreShares
    from holdfast.model import SkewReport

# The default number of largest keys.
_KEYS: Final = "10"


@examples("visits", "checkpoints/visits --top 10")
def skew(
    target: Annotated[
        str, typer.Argument(metavar="CHECKPOINT|JOB", help="A query's checkpoint, or a job's name or id.")
    ],
    keys: Annotated[
        int | None,
        typer.Option(
            "--top",
            min=1,
            metavar="N",
            help="The number of largest keys to show per state of the checkpoint; reads all state.",
        ),
    ] = None,
    home: options.Home = None,
    json: options.Json = False,
) -> None:
    """Show the keys of a job with the most rows, or the largest partitions of a checkpoint's state.

    For a job: the report of hf.skew.watch on the newest batch. For a checkpoint: for each state, the largest
    partition, its share of the bytes, and the share under an even distribution; ROWS is RocksDB's count as of
    the newest snapshot. With --top, for either, the largest keys of each state of the checkpoint.
    """
    if _is_checkpoint(target):
        heavy = _show_checkpoint(target, keys, as_json=json)
        next_step.say_looked_up(json, lambda: _after_checkpoint(target, keys, heavy))
    elif keys is not None:
        _show_checkpoint(checkpoint_of(target, home), keys, as_json=json)
    else:
        checkpoint = _show_job(target, home, as_json=json)
        if checkpoint is not None:
            next_step.say_looked_up(json, lambda: _largest_keys(next_step.typed(checkpoint)))


def _largest_keys(checkpoint: str) -> tuple[str, ...]:
    return ("skew", checkpoint, "--top", _KEYS)


def _after_checkpoint(checkpoint: str, keys: int | None, heavy: list[HeavyKeys]) -> tuple[str, ...]:
    """Return the arguments that show the largest keys, or after these, the value of the largest one."""
    from holdfast.at_rest.state_reader import written_key

    if keys is None:
        return _largest_keys(checkpoint)
    largest = next((state for state in heavy if state.heaviest), None)
    if largest is None:
        return ()
    key = written_key(largest.state, largest.heaviest[0].key)
    return () if key is None else key_words("get", checkpoint, largest.name, [key], None, None, None)


def _is_checkpoint(target: str) -> bool:
    """Return whether a target is an address: it has a slash, which a job's name cannot have, or exists."""
    return "/" in target or (Path(target) / "commits").is_dir()


def _show_job(name: str, home: str | None, *, as_json: bool) -> str | None:
    """Show the reports of a job; return the checkpoint of the first query."""
    from holdfast.jobs.reports import newest_skew

    details = options.control(home).details(name)
    reports = newest_skew(details)
    if as_json:
        listed = [{"query": query, **report.as_dict()} for query, report in reports]
        output.emit_json({"job": details.status.job.name, "watched": listed})
        return None
    for number, (query, report) in enumerate(reports):
        if number:
            output.line()
        _render_report(query, report)
    return next((query.checkpoint for query in details.queries if query.name == reports[0][0]), None)


def _render_report(query: str, report: SkewReport) -> None:
    looked = "all" if report.looked_at == report.rows else f"{report.looked_at:,}"
    output.fields(
        [
            ("query", query),
            ("watched", report.name),
            ("key", ", ".join(report.by)),
            ("batch", report.batch_id),
            (
                "rows",
                f"{report.rows:,}, examined {looked}; error of the shares at most {_percent(report.error)}",
            ),
        ]
    )
    output.line()
    output.table(
        ["SHARE", "PARTITION", "KEY"],
        [(_percent(key.share), key.partition, _key(key.key)) for key in report.heavy],
    )
    if report.partitions:
        most = max(report.partitions)
        output.line()
        output.line(
            f"largest partition: {report.partitions.index(most)}, with {_percent(most)} of the rows"
            f" ({len(report.partitions)} partitions, even share {_percent(1 / len(report.partitions))})"
        )


def _key(values: tuple[Any, ...]) -> str:
    return ", ".join(
        value if isinstance(value, str) else json_.dumps(value, ensure_ascii=False) for value in values
    )


def _show_checkpoint(address: str, keys: int | None, *, as_json: bool) -> list[HeavyKeys]:
    """Print the distribution of the state over partitions; return the largest keys if requested."""
    from holdfast.checkpoints import read
    from holdfast.checkpoints.state.contents import shares

    found = read(address)
    stores = shares(found)
    heavy = [] if keys is None else _heaviest(address, keys)
    if as_json:
        listed = [store.as_dict() for store in stores]
        at = {"checkpoint": found.uri, "batch_id": found.batch_id}
        told = {**at, "stores": listed}
        output.emit_json(told if keys is None else {**told, "states": [state.as_dict() for state in heavy]})
        return heavy
    output.table(
        [
            "OPERATOR",
            "KIND",
            "STATE",
            "PARTITIONS",
            "LARGEST",
            "MAX SHARE",
            "EVEN SHARE",
            "BYTES",
            "ROWS",
        ],
        [_row(store) for store in stores],
        spare=("KIND", "EVEN SHARE", "ROWS"),
        empty="the query has no state",
    )

    for largest in heavy:
        output.line()
        output.line(f"{largest.state.full_name}: {largest.keys:,} keys, {largest.size_bytes:,} bytes")
        output.table(
            ["ROWS", "BYTES", "SHARE", "PARTITION", "KEY"],
            [
                (
                    key.rows,
                    key.size_bytes,
                    _percent(key.share),
                    key.partition,
                    output.compact(key.as_dict()["key"], None),
                )
                for key in largest.heaviest
            ],
        )
        call = _split_call(address, largest)
        if call is not None:
            output.line(f"split these keys, too: {call}")
    return heavy


def _split_call(address: str, largest: HeavyKeys) -> str | None:
    """Return the Python call that splits the largest keys of a join, if more keys are worth splitting."""
    from holdfast.at_rest.insight import split_call
    from holdfast.savepoints.address import StateAddress

    return split_call(StateAddress.resolve(address).open_state().storage, largest)


def _heaviest(address: str, most: int) -> list[HeavyKeys]:
    """Return the largest keys of each state; for a keyed operator, all states of a key are added up."""
    from holdfast.at_rest.insight import heaviest
    from holdfast.at_rest.model import StateForm
    from holdfast.at_rest.state_reader import StateReader
    from holdfast.savepoints.address import StateAddress

    place = StateAddress.resolve(address).open_state()
    reader = StateReader(place.storage, place.batch_id)
    found = []
    for operator in reader.operators:
        whole = [state for state in operator.states if state.form is StateForm.KEYED]
        for state in whole or operator.states:
            with progress("skew", "stores") as tell:
                found.append(heaviest(state, most=most, tell=tell))
    return found


def _row(store: StoreShares) -> tuple[Any, ...]:
    return (
        store.named.label,
        store.named.operator_kind,
        store.state_name,
        len(store.partitions),
        None if store.largest is None else store.largest.partition,
        _percent(store.largest_share),
        _percent(1 / max(1, len(store.partitions))),
        store.bytes,
        store.rows,
    )


def _percent(share: float) -> str:
    return output.WholeText(f"{share:.1%}")
