"""`holdfast savepoint`: take savepoints of any query, look at them, prove them, remove them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli import options, output
from holdfast.cli.asking import Yes, confirm
from holdfast.cli.periodic import take_periodically
from holdfast.cli.progress import progress
from holdfast.cli.where import checkpoint_of, place_of
from holdfast.errors import Corrupt, Invalid

if TYPE_CHECKING:
    from holdfast.savepoints.catalog import Listed
    from holdfast.savepoints.difference import Difference
    from holdfast.savepoints.planning import TakePlan
    from holdfast.savepoints.proof import Proof
    from holdfast.savepoints.removal import Removal
    from holdfast.savepoints.state_difference import Sample, StatesDifference
    from holdfast.savepoints.taking import Taken

app = typer.Typer(
    help="Savepoints of any Structured Streaming query, without Spark; it may run meanwhile.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

Catalog = Annotated[str, typer.Argument(metavar="DIR", help="The directory of savepoints, a path or URI.")]
Label = Annotated[str | None, typer.Option("--label", metavar="TEXT", help="A name for people.")]
Savepoint = Annotated[str, typer.Argument(metavar="SP", help="A savepoint: DIR/savepoints/ID.")]


@app.command("take")
def take(
    checkpoint: Annotated[
        str, typer.Argument(metavar="CHECKPOINT|JOB", help="A checkpoint's path or URI, or a job's name.")
    ],
    catalog: Catalog,
    batch: Annotated[
        int | None,
        typer.Option("--batch", min=0, metavar="N", help="A committed batch that is still kept. [newest]"),
    ] = None,
    label: Label = None,
    deep: Annotated[
        bool,
        typer.Option(
            "--deep",
            help="Read the rows of the state, for exact counts and digests; up to 2 MB are always read.",
        ),
    ] = False,
    every: Annotated[
        str | None,
        typer.Option("--every", metavar="TIME", help="Go on taking one after each such time, until Ctrl-C."),
    ] = None,
    keep: Annotated[
        int | None,
        typer.Option(
            "--keep", min=1, metavar="N", help="With --every: delete all but the newest N with this label."
        ),
    ] = None,
    home: options.Home = None,
    dry_run: options.DryRun = False,
    json: options.Json = False,
) -> None:
    """Take a savepoint; the query, if it runs, is not paused.

    With --every the label is `periodic` unless another is given, and savepoints with any other label are left
    alone. Where no batch was committed since the last one, none is taken.
    """
    from holdfast import savepoints  # noqa: PLC0415 - not needed for --help
    from holdfast.savepoints.planning import plan_take  # noqa: PLC0415 - as above
    from holdfast.storage import open_storage  # noqa: PLC0415 - as above

    _check_every(every, keep, batch)
    address = checkpoint_of(checkpoint, home)
    if every is not None and not dry_run:
        take_periodically(address, catalog, every=every, keep=keep, label=label, deep=deep, json=json)
        return
    if dry_run:
        plan = plan_take(open_storage(address), open_storage(catalog, "catalog"), batch)
        _show_plan(plan, json)
        return
    with progress("savepoint", "files") as tell:
        taken = savepoints.take(address, catalog, batch=batch, label=label, deep=deep, tell=tell)
    if json:
        output.emit_json(taken.as_dict())
    else:
        _show_taken(taken)


def _check_every(every: str | None, keep: int | None, batch: int | None) -> None:
    if every is None and keep is not None:
        raise Invalid(
            "--keep deletes savepoints that --every has taken", hint="say how often, or leave it out"
        )
    if every is not None and batch is not None:
        raise Invalid("a batch can be taken once", found=f"--every {every} and --batch {batch}")


@app.command("list")
def list_savepoints(catalog: Catalog, json: options.Json = False) -> None:
    """List the savepoints of a directory, oldest first."""
    from holdfast import savepoints  # noqa: PLC0415 - not needed for --help

    found = savepoints.list(catalog)
    if json:
        output.emit_json({"savepoints": [each.as_dict() for each in found]})
    else:
        _show_list(found)


@app.command("show")
def show(
    savepoint: Savepoint,
    files: Annotated[bool, typer.Option("--files", help="List the files too.")] = False,
    confs: Annotated[bool, typer.Option("--confs", help="List the settings that it has fixed too.")] = False,
    json: options.Json = False,
) -> None:
    """Show what a savepoint says of itself: query, batch, offsets, operators, files."""
    from holdfast import savepoints  # noqa: PLC0415 - not needed for --help

    manifest = savepoints.show(savepoint)
    if json:
        output.emit_json(manifest.as_dict())
        return
    fields = manifest.fields
    output.fields(
        [
            ("savepoint", manifest.savepoint_id),
            ("label", manifest.label),
            ("taken", _moment_and_age(manifest.created_ms)),
            ("checkpoint", manifest.checkpoint),
            ("query", manifest.query_id),
            ("batch", manifest.batch_id),
            ("watermark", output.moment(fields.get("watermark_ms"))),
            ("provider", fields.get("provider")),
            ("size", f"{manifest.size_bytes:,} bytes in {len(manifest.files):,} files"),
            ("new", f"{manifest.new_bytes:,} bytes when it was taken"),
        ]
    )
    output.line()
    output.table(["SOURCE", "OFFSET"], [(each["name"], each["offset"]) for each in fields.get("sources", [])])
    _show_operators(fields.get("operators", []))
    if confs:
        output.line()
        output.table(["SETTING", "VALUE"], sorted(fields.get("confs", {}).items()))
    if files:
        output.line()
        output.table(
            ["FILE", "BYTES", "SHA-256", "HOW"],
            [(each.path, each.size_bytes, each.sha256, each.how) for each in manifest.files],
        )


@app.command("verify")
def verify(
    savepoint: Savepoint,
    deep: Annotated[
        bool,
        typer.Option("--deep", help="Read every row of the state too, and compare with what was taken."),
    ] = False,
    json: options.Json = False,
) -> None:
    """Prove that a savepoint is what was taken; exit 0 if it is, 6 if it is damaged."""
    from holdfast import savepoints  # noqa: PLC0415 - not needed for --help

    with progress("verify", "files") as tell:
        proof = savepoints.verify(savepoint, deep=deep, tell=tell)
    if json:
        output.emit_json(proof.as_dict())
    else:
        _show_proof(proof)
    if not proof.ok:
        raise typer.Exit(Corrupt.exit_code)


@app.command("diff")
def diff(
    first: Annotated[
        str, typer.Argument(metavar="A", help="A savepoint, or a checkpoint or job, with @BATCH behind it.")
    ],
    second: Annotated[str, typer.Argument(metavar="B", help="Another one.")],
    samples: Annotated[
        int,
        typer.Option("--samples", min=0, metavar="N", help="How many keys to show of each kind."),
    ] = 5,
    files: Annotated[
        bool,
        typer.Option("--files", help="Compare two savepoints by their files alone."),
    ] = False,
    home: options.Home = None,
    json: options.Json = False,
) -> None:
    """Show what differs between two states, key by key."""
    from holdfast import savepoints  # noqa: PLC0415 - not needed for --help

    if files:
        by_files = savepoints.diff_files(first, second)
        if json:
            output.emit_json(by_files.as_dict())
        else:
            _show_difference(by_files)
        return
    with progress("diff", "stores") as tell:
        found = savepoints.diff(place_of(first, home), place_of(second, home), samples=samples, tell=tell)
    if json:
        output.emit_json(found.as_dict())
    else:
        _show_states(found)


@app.command("delete")
def delete(
    savepoint: Savepoint, yes: Yes = False, dry_run: options.DryRun = False, json: options.Json = False
) -> None:
    """Delete a savepoint, and the bytes that no other savepoint of its directory needs."""
    from holdfast import savepoints  # noqa: PLC0415 - not needed for --help
    from holdfast.savepoints.public import opened  # noqa: PLC0415 - as above
    from holdfast.savepoints.removal import plan_delete  # noqa: PLC0415 - as above

    removal = plan_delete(*opened(savepoint), options.now_ms())
    if not dry_run:
        if not yes:
            confirm(f"Delete {removal.savepoint} and free {removal.size_bytes:,} bytes?")
        with progress("delete", "files") as tell:
            removal = savepoints.delete(savepoint, tell=tell)
    _show_removal(removal, dry_run, json)


@app.command("gc")
def gc(
    catalog: Catalog,
    older_than: Annotated[
        str,
        typer.Option(
            "--older-than",
            metavar="TIME",
            help="How long a take may have been silent before it counts as killed; one that runs shows"
            " itself every minute.",
        ),
    ] = "1h",
    yes: Yes = False,
    dry_run: options.DryRun = False,
    json: options.Json = False,
) -> None:
    """Remove what no savepoint of a directory needs: what killed takes and deletes have left."""
    from holdfast import savepoints  # noqa: PLC0415 - not needed for --help
    from holdfast.config.units import parse_duration  # noqa: PLC0415 - as above
    from holdfast.savepoints.removal import plan_sweep  # noqa: PLC0415 - as above
    from holdfast.storage import open_storage  # noqa: PLC0415 - as above

    dead_after_ms = parse_duration(older_than, "older-than", allow_zero=True)
    removal = plan_sweep(open_storage(catalog, "catalog"), options.now_ms(), dead_after_ms)
    if not dry_run:
        if removal.paths and not yes:
            confirm(
                f"Remove {len(removal.paths):,} files, {removal.size_bytes:,} bytes, that no savepoint needs?"
            )
        with progress("gc", "files") as tell:
            removal = savepoints.gc(catalog, older_than=older_than, tell=tell)
    _show_removal(removal, dry_run, json)


def _show_plan(plan: TakePlan, json: bool) -> None:
    if json:
        output.emit_json({"dry_run": True, **plan.as_dict()})
        return
    output.line(
        f"batch {plan.batch_id} of query {plan.query_id}: would save {len(plan.files):,} files,"
        f" {plan.size_bytes:,} bytes, {plan.new_bytes:,} of them new"
    )


def _show_taken(taken: Taken) -> None:
    manifest = taken.manifest
    output.line(taken.uri)
    output.say(
        f"batch {manifest.batch_id} of query {manifest.query_id}: {len(manifest.files):,} files,"
        f" {manifest.size_bytes:,} bytes, {manifest.new_bytes:,} of them new"
    )


def _show_list(found: tuple[Listed, ...]) -> None:
    output.table(
        ["SAVEPOINT", "LABEL", "AGE", "QUERY", "BATCH", "BYTES", "NEW BYTES"],
        [
            (
                each.savepoint_id,
                each.manifest.label,
                output.duration(options.now_ms() - each.manifest.created_ms),
                each.manifest.query_id,
                each.manifest.batch_id,
                each.manifest.size_bytes,
                each.manifest.new_bytes,
            )
            if each.manifest is not None
            else (each.savepoint_id, f"damaged: {each.problem}", None, None, None, None, None)
            for each in found
        ],
    )


def _show_operators(operators: list[dict[str, object]]) -> None:
    if not operators:
        return
    output.line()
    rows = []
    for each in operators:
        stores = each["stores"]
        for store in stores if isinstance(stores, list) else []:
            name = each["holdfast_name"] or each["name"]
            rows.append(
                (
                    each["operator_id"],
                    name,
                    each["partitions"],
                    store["name"],
                    store["rows"],
                    each["size_bytes"],
                )
            )
    output.table(["OPERATOR", "NAME", "PARTITIONS", "STORE", "ROWS", "BYTES"], rows)


def _show_proof(proof: Proof) -> None:
    for problem in proof.problems:
        output.line(problem.file)
        output.line(f"  {problem.what}")
        output.line(f"  hint: {problem.hint}")
    verdict = "whole" if proof.ok else f"damaged: {len(proof.problems):,} of its files"
    batch = "" if proof.manifest is None else f"batch {proof.manifest.batch_id}; "
    output.line(f"{verdict} ({batch}{proof.files:,} files, {proof.size_bytes:,} bytes read)")
    if proof.states is not None:
        rows = sum(each.rows for each in proof.states)
        output.line(
            f"{rows:,} rows of {len(proof.states):,} states read, {proof.compared:,} of them compared"
        )
        if proof.compared < len(proof.states):
            output.line("the others could only be counted: the savepoint was taken without --deep")


def _show_difference(found: Difference) -> None:
    output.table(
        ["WHAT", "FIRST", "SECOND"],
        [(each.name, _plain(each.first), _plain(each.second)) for each in found.changes]
        + [(f"source {each.name}", each.first, each.second) for each in found.sources],
    )
    for each in found.operators:
        output.line()
        output.line(f"operator {each.name} is not the same: --json shows both")
    if found.partitions:
        output.line()
        output.table(
            ["OPERATOR", "PARTITION", "ONLY IN FIRST", "ONLY IN SECOND", "IN BOTH"],
            [
                (each.operator_id, each.partition, each.first_bytes, each.second_bytes, each.shared_bytes)
                for each in found.partitions
            ],
        )
    output.line()
    output.line("the same state files" if found.same_state else "other state files")


def _show_states(found: StatesDifference) -> None:
    output.table(
        ["OPERATOR", "STATE", "FIRST", "SECOND", "ADDED", "REMOVED", "CHANGED", "BYTES"],
        [
            (
                each.state.operator_id,
                each.state.label,
                each.first_rows,
                each.second_rows,
                each.added,
                each.removed,
                each.changed,
                each.second_bytes - each.first_bytes,
            )
            for each in found.states
        ],
    )
    for each in found.states:
        if each.samples:
            output.line()
            output.line(f"operator {each.state.operator_id}, state {each.state.label}")
        for sample in each.samples:
            _show_sample(sample)
    output.line()
    output.line("the same state" if found.same else "other state")


def _show_sample(sample: Sample) -> None:
    shown = sample.as_dict()
    key, first, second = (output.compact(shown[name]) for name in ("key", "first", "second"))
    sign = {"added": "+", "removed": "-", "changed": "~"}[sample.change]
    value = {"added": second, "removed": first, "changed": f"{first} -> {second}"}[sample.change]
    output.line(f"  {sign} {key}  {value}")


def _plain(value: object) -> str | None:
    """A number as it stands: batches and times are names here, and not amounts."""
    return None if value is None else str(value)


def _show_removal(removal: Removal, dry_run: bool, json: bool) -> None:
    if json:
        output.emit_json({"dry_run": dry_run, **removal.as_dict()})
        return
    would = "would remove" if dry_run else "removed"
    what = f"{removal.savepoint} and " if removal.savepoint else ""
    output.line(
        f"{would} {what}{len(removal.paths):,} files, {removal.size_bytes:,} bytes;"
        f" {removal.kept:,} savepoints stay"
    )
    for owner in removal.dead:
        output.line(f"a take of {owner} was killed")
    for owner in removal.live:
        output.say(f"a take is under way, by {owner}: nothing can be removed until it ends")
    for each in removal.unreadable:
        output.say(f"the manifest of {each} is damaged; nobody knows what it needs, so all bytes stay")


def _moment_and_age(ms: int) -> str:
    return f"{output.moment(ms)}, {output.duration(options.now_ms() - ms)} ago"
