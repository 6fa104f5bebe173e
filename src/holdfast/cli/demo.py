"""`holdfast demo`: an example that runs to its end and checks itself."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli import next_step, options, output
from holdfast.cli.examples import examples
from holdfast.cli.progress import progress
from holdfast.cli.savepoint_records import INTERRUPTED
from holdfast.clock import now_ms
from holdfast.config.units import counted
from holdfast.errors import Conflict, NotFound
from holdfast.extras import require_package

if TYPE_CHECKING:
    from holdfast.demo.saving import Known
    from holdfast.demo.show import Shown

EXAMPLES = ("coffee-shop",)


@examples("", "--seed 11 --keep shop")
def demo(
    example: Annotated[str, typer.Argument(metavar="[coffee-shop]", help="Which example.")] = "coffee-shop",
    seed: Annotated[int, typer.Option("--seed", help="The same seed gives the same day.")] = 7,
    keep: Annotated[
        Path | None,
        typer.Option(
            "--keep",
            metavar="DIR",
            help="Keep the day, tables and checkpoint there.",
            callback=options.on_this_machine,
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """Run a seeded day at a coffee shop, kill its driver half-way, and check every answer.

    Exit code 1 if an answer is not exact, 130 if the run was stopped before its end.
    """
    if example not in EXAMPLES:
        raise NotFound(
            "there is no such example",
            found=example,
            expected=", ".join(EXAMPLES),
            hint=f"holdfast demo {EXAMPLES[0]}",
        )
    if keep is not None and keep.exists() and not keep.is_dir():
        raise Conflict("a file is where a directory should be", where=str(keep), hint="name another one")
    if keep is not None and keep.exists() and any(keep.iterdir()):
        raise Conflict("the folder is not empty", where=str(keep), hint="name one that is new or empty")
    require_package("pyspark")
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        shown = _show(keep.resolve(), seed)
    else:
        with tempfile.TemporaryDirectory(prefix="holdfast-demo-", ignore_cleanup_errors=True) as folder:
            shown = _show(Path(folder).resolve(), seed)
    if json:
        output.emit_json(shown.as_dict())
    else:
        _render(shown)
    if not shown.exact:
        raise typer.Exit(1)
    if keep is None:
        next_step.say(json, "tour")
    else:
        next_step.say(json, "status", EXAMPLES[0], "--home", str(keep / "home"))


def _show(folder: Path, seed: int) -> Shown:
    from holdfast.demo.show import CoffeeShop

    try:
        with progress("coffee shop", "rows") as tell:
            return CoffeeShop(folder, seed, now_ms, tell).run()
    except KeyboardInterrupt:
        output.insist("stopped before the end of the day: no answer was checked")
        raise typer.Exit(INTERRUPTED) from None


def _render(shown: Shown) -> None:
    output.line(
        f"coffee shop, seed {shown.seed}: {shown.events:,} events, out of order, some late, some twice"
    )
    output.line()
    output.table(
        ["QUESTION", "ROWS", "LATE", "MISSING", "EXTRA", "EXACT"],
        [
            (
                shown.questions[comparison.name],
                comparison.equal,
                shown.late[comparison.name],
                comparison.missing,
                comparison.extra,
                "yes" if comparison.exact else "NO",
            )
            for comparison in shown.comparisons
        ],
        below=["QUESTION"],
    )
    for comparison in shown.comparisons:
        for sample in comparison.missing_samples:
            output.line(f"  missing from {comparison.name}: {sample}")
        for sample in comparison.extra_samples:
            output.line(f"  too much in {comparison.name}: {sample}")
    output.line()
    output.fields(
        [
            ("batches", shown.batches),
            ("drivers", f"{shown.drivers}, the first killed with SIGKILL half-way"),
            ("recovery", output.duration(shown.recovery_ms)),
            ("state", f"{shown.peak_state_rows:,} rows at its largest, {shown.state_bytes:,} bytes on disk"),
            ("took", output.duration(shown.elapsed_ms)),
        ]
    )
    output.line()
    _render_saved(shown)
    output.line()
    output.line(f"exact: {'yes' if shown.exact else 'no'}")


def _render_saved(shown: Shown) -> None:
    """The savepoints, and their difference key by key."""
    saved = shown.saved
    first, second = saved.batches
    output.fields(
        [
            ("savepoints", f"2 of the query regulars while it ran, at batches {first} and {second}"),
            ("second savepoint", f"{saved.size_bytes:,} bytes, {saved.new_bytes:,} new"),
            (
                "restored",
                f"to another directory, {'every key unchanged' if saved.same else 'NOT every key unchanged'}",
            ),
            ("difference", f"{counted(saved.added, 'customer')} added, {saved.changed:,} changed"),
        ]
    )
    for customer in saved.seen:
        output.line(f"  {customer.customer}  {_known(customer.before)} → {_known(customer.after)}")


def _known(what: Known | None) -> str:
    if what is None:
        return "nothing known"
    return f"{counted(what.visits, 'visit')}, {what.cents / 100:.2f} spent"
