"""Show the verdict of `holdfast fork --compare`."""

from __future__ import annotations

import json as json_text
from collections.abc import Iterable
from typing import TYPE_CHECKING

from holdfast.cli import output
from holdfast.cli.new_checkpoint import show_restored
from holdfast.config.units import counted

if TYPE_CHECKING:
    from holdfast.jobs.trials.comparison import Compared
    from holdfast.jobs.trials.output_diff import Outputs, RowSample


def show_compared(compared: Compared) -> None:
    """Print both verdicts, and what differs."""
    first, last = compared.batches[0], compared.batches[-1]
    batches = f"batch {first}" if first == last else f"batches {first} to {last}"
    output.line(
        f"{batches} over {counted(compared.input_rows, 'row')} of input:"
        f" original {compared.original}, new {compared.new}"
    )
    output.line()
    _show_outputs(compared.outputs)
    output.line()
    for line in compared.states.lines():
        output.line(line)
    output.line()
    output.line(
        "equal: outputs and final state"
        if compared.equal
        else f"different: {' and '.join(_different(compared))}"
    )
    if compared.fork is not None:
        show_restored(compared.fork)


def _different(compared: Compared) -> Iterable[str]:
    if not compared.outputs.equal:
        yield "outputs"
    if not compared.states.equal:
        yield "final state"


def _show_outputs(outputs: Outputs) -> None:
    rows = outputs.original_rows
    if outputs.equal:
        batches = counted(len(outputs.batches), "batch")
        output.line(f"outputs equal: {counted(rows, 'row')} in {batches}")
        return
    output.line(
        f"outputs different: {counted(rows, 'row')} from the original, {outputs.new_rows:,} from the new code"
    )
    if outputs.original_columns != outputs.new_columns:
        for sign, columns, others in (
            ("-", outputs.original_columns, outputs.new_columns),
            ("+", outputs.new_columns, outputs.original_columns),
        ):
            for column in columns:
                if column not in others:
                    output.line(f"  {sign} column {column}")
        output.line("  rows are compared by the columns that both have")
    if outputs.same_rows and any(batch.missing for batch in outputs.batches):
        output.line("  all batches together hold the same rows; some come in another batch")
    differing = [
        (batch.batch_id, batch.original_rows, batch.new_rows, batch.missing, batch.extra)
        for batch in outputs.batches
        if batch.missing or batch.extra
    ]
    if differing:
        output.table(["BATCH", "ORIGINAL", "NEW", "MISSING", "EXTRA"], differing)
    for sign, samples in (("-", outputs.missing), ("+", outputs.extra)):
        for sample in samples:
            output.line(f"  {sign} {_row(sample)}")


def _row(sample: RowSample) -> str:
    from holdfast.formats.rows.plain import plain

    text = json_text.dumps({name: plain(value) for name, value in sample.row.items()}, ensure_ascii=False)
    times = f", {sample.count:,} times" if sample.count > 1 else ""
    return f"batch {sample.batch_id}: {text}{times}"
