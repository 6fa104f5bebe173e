"""`holdfast ttl`: show the state that a TTL or a watermark delay would free."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli import options, output
from holdfast.cli.arguments import Place
from holdfast.cli.help_text import examples
from holdfast.cli.progress import progress
from holdfast.cli.state import open_state
from holdfast.errors import Invalid
from holdfast.quantities import counted

if TYPE_CHECKING:
    from holdfast.at_rest.insight import WhatIf

_WIDTH = 40
# The width of the text next to a bar.
_BESIDE_BAR = len(f"  {'':>14}  {'':>12}  ")


@examples("checkpoints/visits --what-if 24h", "checkpoints/visits --watermark 2h")
def ttl(
    place: Place,
    what_if: Annotated[
        str | None, typer.Option("--what-if", metavar="TIME", help="A TTL, such as 24h.")
    ] = None,
    watermark: Annotated[
        str | None, typer.Option("--watermark", metavar="TIME", help="A watermark delay, such as 2h.")
    ] = None,
    state: Annotated[
        str | None, typer.Option("--state", metavar="STATE", help="The state to examine. [all]")
    ] = None,
    by: Annotated[
        str | None,
        typer.Option("--by", metavar="COLUMN", help="The column with the time, if the state records none."),
    ] = None,
    current_ttl: Annotated[
        str | None,
        typer.Option(
            "--current-ttl",
            metavar="TIME",
            help="The present TTL of Spark's state. [inferred]",
        ),
    ] = None,
    operator: options.Operator = None,
    batch: options.Batch = None,
    home: options.Home = None,
    json: options.Json = False,
) -> None:
    """Show the state that a TTL or a watermark delay would free, and the age of its rows; change nothing."""
    from holdfast.at_rest.insight import what_if as applied
    from holdfast.config.units import parse_duration

    if (what_if is None) == (watermark is None):
        raise Invalid(
            "the estimate needs either a TTL or a watermark delay",
            code="HF-E2018",
            found="neither" if what_if is None else "both",
            hint="run `holdfast ttl CHECKPOINT --what-if 24h` or `holdfast ttl CHECKPOINT --watermark 2h`",
        )
    ttl_ms = None if what_if is None else parse_duration(what_if, "--what-if", allow_zero=True)
    delay_ms = None if watermark is None else parse_duration(watermark, "--watermark", allow_zero=True)
    now_ttl = None if current_ttl is None else parse_duration(current_ttl, "--current-ttl")
    reader = open_state(place, home, batch)
    with progress("ttl", "stores") as tell:
        found = applied(
            reader,
            ttl_ms=ttl_ms,
            watermark_ms=delay_ms,
            state=state,
            operator=operator,
            by=by,
            current_ttl_ms=now_ttl,
            tell=tell,
        )
    if json:
        states = [preview.as_dict() for preview in found]
        at = {"batch_id": reader.batch_id}
        output.emit_json({**at, "ttl_ms": ttl_ms, "watermark_ms": delay_ms, "states": states})
        return
    rule = f"a TTL of {what_if}" if what_if is not None else f"a watermark delay of {watermark}"
    output.line(f"batch {reader.batch_id}, under {rule}")
    for preview in found:
        _show(preview)


def _show(found: WhatIf) -> None:
    output.line()
    output.line(f"{found.name}: {counted(found.rows, 'row')}, {found.size_bytes:,} bytes")
    if found.freed_rows is None:
        output.line(f"  effect unknown: {found.what}")
    else:
        share = found.freed_rows / max(found.rows, 1)
        output.line(
            f"  would free {counted(found.freed_rows, 'row')} ({share:.1%}), {found.freed_bytes or 0:,} bytes"
        )
        output.line(f"  by {found.what}, at {found.clock} time {output.moment(found.now_ms, in_utc=True)}")
    if found.histogram:
        output.line(f"  {'AGE':>14}  {'ROWS':>12}")
    room = output.width()
    longest = _WIDTH if room is None else min(_WIDTH, max(room - _BESIDE_BAR, 1))
    most = max((bucket.rows for bucket in found.histogram), default=0)
    for bucket in found.histogram:
        bar = "█" * max(round(longest * bucket.rows / max(most, 1)), 1 if bucket.rows else 0)
        output.whole(f"  {bucket.label:>14}  {bucket.rows:>12,}  {bar}".rstrip())
