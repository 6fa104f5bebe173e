"""`holdfast demo`, `tour` and `init`: a sample run, a tour, and a job to start with."""

from __future__ import annotations

import io
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from holdfast.cli import next_step, options, output
from holdfast.cli.help_text import examples
from holdfast.cli.progress import progress
from holdfast.cli.savepoint_proof import INTERRUPTED
from holdfast.clock import now_ms
from holdfast.errors import Conflict, Failed, Invalid, NotFound
from holdfast.extras import require_package
from holdfast.quantities import counted

if TYPE_CHECKING:
    from holdfast.demo.saving import Known
    from holdfast.demo.show import DemoResult
    from holdfast.demo.starter.writing import Starter
    from holdfast.demo.tour.steps import TourStep, Walked


EXAMPLES = ("coffee-shop",)


@examples("", "--seed 11 --keep shop")
def demo(
    example: Annotated[str, typer.Argument(metavar="[coffee-shop]", help="The example.")] = "coffee-shop",
    seed: Annotated[int, typer.Option("--seed", help="Seed of the generated day.")] = 7,
    keep: Annotated[
        Path | None,
        typer.Option(
            "--keep",
            metavar="DIR",
            help="A directory to keep the input, tables and checkpoint in.",
            callback=options.on_this_machine,
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """Run a generated day at a coffee shop, kill the driver half-way, and check every result.

    Exit code 0: all results are exact; 1: some are not; 130: the run was interrupted.
    """
    if example not in EXAMPLES:
        raise NotFound(
            "unknown example of `holdfast demo`",
            code="HF-E3025",
            found=example,
            expected=", ".join(EXAMPLES),
            hint=f"run `holdfast demo {EXAMPLES[0]}`",
        )
    if keep is not None and keep.exists() and not keep.is_dir():
        raise Conflict(
            "the path is a file, not a directory",
            code="HF-E4006",
            where=str(keep),
            hint="give --keep a different directory",
        )
    if keep is not None and keep.exists() and any(keep.iterdir()):
        raise Conflict(
            "the directory is not empty",
            code="HF-E4008",
            where=str(keep),
            hint="name a new or empty directory",
        )
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


def _show(folder: Path, seed: int) -> DemoResult:
    from holdfast.demo.show import CoffeeShop

    try:
        with progress("coffee shop", "rows") as tell:
            return CoffeeShop(folder, seed, now_ms, tell).run()
    except KeyboardInterrupt:
        output.insist("interrupted before the end of the day; no results were checked")
        raise typer.Exit(INTERRUPTED) from None


def _render(shown: DemoResult) -> None:
    output.line(
        f"coffee shop, seed {shown.seed}: {shown.events:,} events, out of order, some late, some duplicated"
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
            output.line(f"  extra in {comparison.name}: {sample}")
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


def _render_saved(shown: DemoResult) -> None:
    """Print the savepoints and their difference key by key."""
    saved = shown.saved
    first, second = saved.batches
    output.fields(
        [
            ("savepoints", f"2 of the running query regulars, at batches {first} and {second}"),
            ("second savepoint", f"{saved.size_bytes:,} bytes, {saved.new_bytes:,} new"),
            (
                "restored",
                f"to a different directory, {'all keys equal' if saved.same else 'KEYS DIFFER'}",
            ),
            ("difference", f"{counted(saved.added, 'customer')} added, {saved.changed:,} changed"),
        ]
    )
    for customer in saved.seen:
        output.line(
            f"  {customer.customer}  {_format_known(customer.before)} → {_format_known(customer.after)}"
        )


def _format_known(what: Known | None) -> str:
    if what is None:
        return "no state"
    return f"{counted(what.visits, 'visit')}, {what.cents / 100:.2f} spent"


_PROMPT: Final = "Enter continues, q quits "
_END_KEYS: Final = ("q", "Q", "\x1b")


@examples("", "shop --yes")
def tour(
    context: typer.Context,
    folder: Annotated[
        Path | None,
        typer.Argument(
            metavar="[DIR]",
            help="A new or empty directory for the files. [a temporary one]",
            callback=options.on_this_machine,
        ),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Run all steps without waiting for a key.")
    ] = False,
    json: options.Json = False,
) -> None:
    """Walk through the commands on a small checkpoint: each one is shown, then run.

    Enter continues, q quits. If standard input is not a terminal, all steps run without waiting. Spark and
    Java are not needed, and nothing outside the directory changes. Steps with SQL are skipped if the extra
    `sql` is not installed.
    """
    from holdfast.demo.tour.steps import STEPS, Toured, fill_command, unpack

    place = _place(folder)
    try:
        with _written(place):
            unpack(place)
        # The verbs run in this process, so set the working directory and unset the state home.
        os.chdir(place)
        for variable in ("HOLDFAST_HOME", "HOLDFAST_CONFIG"):
            os.environ.pop(variable, None)
        quiet = ["--quiet"] if output.quiet() else []  # each verb sets it again for the process
        waits = sys.stdin is not None and sys.stdin.isatty() and not yes and not json
        if not json:
            _begin(place)
        walked: list[Walked] = []
        steps = [step for step in STEPS if not step.needs_sql or _has_sql()]
        for number, step in enumerate(steps, 1):
            if waits and not _goes_on():
                output.line(f"stopped before step {number} of {len(steps)}; the files are in {place}")
                return
            heading = None if json else f"{number}/{len(steps)}  {step.why}"
            walked.append(_walk(context, step, fill_command(step.command, place), heading, quiet))
    except (KeyboardInterrupt, typer.Exit):  # the latter if a verb handled Ctrl-C
        _forget(place, folder)
        raise
    if json:
        output.emit_json(Toured(str(place), tuple(walked), len(STEPS) - len(steps)).as_dict())
    else:
        _end(place, len(STEPS) - len(steps))
    next_step.say(json, "init")


def _place(folder: Path | None) -> Path:
    with _written(folder or Path(tempfile.gettempdir())):
        if folder is None:
            return Path(tempfile.mkdtemp(prefix="holdfast-tour-")).resolve()
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise Conflict(
                "the tour needs an empty directory",
                code="HF-E4009",
                where=str(folder),
                hint="name a new or empty directory, or omit the directory to use a temporary one",
            )
        folder.mkdir(parents=True, exist_ok=True)
    return folder.resolve()


@contextmanager
def _written(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Invalid(
            "cannot write the files of the tour",
            code="HF-E2122",
            where=str(folder),
            found=error.strerror or str(error),
            hint="name a different directory: `holdfast tour DIR`",
        ) from error


def _forget(place: Path, folder: Path | None) -> None:
    """Delete the temporary directory of an interrupted tour; keep a directory that the user named."""
    if folder is None:
        os.chdir(place.parent)
        shutil.rmtree(place, ignore_errors=True)
    else:
        output.say(f"the files so far are in {place}")


def _begin(place: Path) -> None:
    output.line("Input: a day at a coffee shop, and the checkpoint of a query that counts visits.")
    output.line("Each command also works on a checkpoint of your own.")
    output.line()
    output.whole(f"$ cd {shlex.quote(str(place))}")


def _goes_on() -> bool:
    """Wait for a key; return False if the key ends the tour."""
    typer.echo(f"\n{_PROMPT}", nl=False, err=True)
    try:
        return typer.getchar() not in _END_KEYS
    except EOFError:  # Ctrl-D
        return False
    finally:
        typer.echo(f"\r{' ' * len(_PROMPT)}\r", nl=False, err=True)


def _walk(
    context: typer.Context, step: TourStep, command: str, heading: str | None, quiet: list[str]
) -> Walked:
    """Run one step and print it under `heading`; without a heading only capture its output.

    Raises:
        Failed: The step ended with an unexpected exit code.
        Exit: Ctrl-C ended the step.
    """
    from holdfast.demo.tour.steps import Walked

    kept = io.StringIO()
    if heading is not None:
        output.line()
        output.line(heading)
        output.whole(f"$ {command}")
        code = _run(context, command, quiet)
    else:
        with redirect_stdout(kept):
            code = _run(context, command, quiet)
    if code == INTERRUPTED:
        raise typer.Exit(INTERRUPTED)
    if code != step.exit_code:
        raise Failed(
            "a step of the tour failed",
            code="HF-E1002",
            where=command,
            found=f"exit code {code}",
            expected=f"exit code {step.exit_code}",
            hint="read the step's output above, and run `holdfast tour` in a different directory",
        )
    return Walked(step.why, command, code, kept.getvalue())


def _run(context: typer.Context, command: str, quiet: list[str]) -> int:
    """Run a command line and return its exit code; verbs run within this process."""
    words = shlex.split(command)
    if words[0] != "holdfast":
        import subprocess

        shell = ["/bin/sh", "-c", command]
        done = subprocess.run(shell, stdout=subprocess.PIPE, text=True, check=False)  # noqa: S603 - our own
        sys.stdout.write(done.stdout)
        sys.stdout.flush()
        return done.returncode
    try:
        with next_step.silent():
            context.find_root().command.main(args=[*words[1:], *quiet], prog_name=words[0])
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


def _has_sql() -> bool:
    return all(find_spec(package) for package in ("duckdb", "pyarrow"))


def _end(place: Path, left_out: int) -> None:
    output.line()
    if left_out:
        output.line(f"{left_out} steps were skipped; to include them: pip install 'holdfast[sql]'")
    output.line(f"End of the tour. The files are in {place}; nothing else was changed.")
    output.line()
    output.line("For a checkpoint of your own, while its query runs or not:")
    output.line("  holdfast checkpoint verify DIR     check it for damage")
    output.line("  holdfast state list DIR            list its states")
    output.line("  holdfast savepoint take DIR SP     save a copy in the directory SP")


@examples("", "pipelines --name totals")
def init(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="[DIR]",
            help="The directory to write to; created if missing.",
            callback=options.on_this_machine,
        ),
    ] = Path(),
    name: Annotated[
        str, typer.Option("--name", metavar="NAME", help="The job's name; its file is NAME.py.")
    ] = "shop",
    dry_run: options.DryRun = False,
    json: options.Json = False,
) -> None:
    """Write a small job to start with: NAME.py, its test, its data and holdfast.toml.

    The job keeps a count and a sum per customer over a directory of JSON files. It runs unchanged once the
    extra `spark` and Java are installed; the output names what is missing. Existing files are not replaced.
    """
    from holdfast.demo.starter.writing import plan_starter, write_starter

    starter = plan_starter(folder, name)
    if not dry_run:
        write_starter(starter)
    output.show_plan(starter, json, partial(_show_files, dry_run=dry_run), dry_run=dry_run)
    if starter.install is not None and not json and (dry_run or not next_step.is_wanted(json)):
        output.say(f"to install what the job needs: {starter.install}")
    if dry_run:
        next_step.say_for_real(json)
    else:
        _say_next(starter, json)


def _show_files(starter: Starter, *, dry_run: bool) -> None:
    output.say(f"{'would write' if dry_run else 'wrote'} {counted(len(starter.files), 'file')}:")
    for file in starter.files:
        output.whole(str(Path(starter.folder) / file))


def _say_next(starter: Starter, json: bool) -> None:
    name = starter.name
    steps = [
        (f"python -m pytest test_{name}.py", "test the job without Spark"),
        (f"holdfast run {name}.py", "run it until all orders are read"),
        (f"holdfast state scan {name} totals", "show the state of each customer"),
        (f"holdfast check {name}.py --against checkpoint", "check which state a code change keeps"),
    ]
    if Path(starter.folder) != Path.cwd():
        steps.insert(0, (f"cd {shlex.quote(starter.folder)}", ""))
    if starter.install is not None:
        steps.insert(0, (starter.install, "install what is missing"))
    next_step.say_steps(
        json, steps, "Add a file to orders/ and run the job again: it continues from its checkpoint."
    )
