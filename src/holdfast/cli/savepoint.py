"""`holdfast savepoint`: take savepoints of any query, look at them, prove them, remove them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli import options, output
from holdfast.cli.asking import Yes, confirm
from holdfast.cli.periodic import take_periodically
from holdfast.cli.progress import progress
from holdfast.cli.savepoint_records import INTERRUPTED, digest_taken, digests_later
from holdfast.cli.where import checkpoint_of, place_of
from holdfast.clock import now_ms
from holdfast.errors import Corrupt, Invalid

if TYPE_CHECKING:
    from holdfast.formats.savepoint.manifest import Manifest
    from holdfast.formats.savepoint.savepoint_content import RecordedState
    from holdfast.savepoints.catalog.catalog import Listed
    from holdfast.savepoints.catalog.removal import Removal
    from holdfast.savepoints.differences.key_diff import Sample, StatesDifference
    from holdfast.savepoints.differences.manifest_diff import Difference
    from holdfast.savepoints.proof.proof import Proof
    from holdfast.savepoints.taking.planning import TakePlan
    from holdfast.savepoints.taking.taking import Taken

app = typer.Typer(
    help="Savepoints of any Structured Streaming query, without Spark; it may run meanwhile.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

Catalog = Annotated[str, typer.Argument(metavar="DIR", help="The directory of savepoints, a path or URI.")]
Label = Annotated[str | None, typer.Option("--label", metavar="TEXT", help="A name for people.")]
DropExpired = Annotated[
    bool,
    typer.Option(
        "--drop-expired",
        help="Leave out expired keyed state, by the batch's own time and watermark.",
    ),
]
Savepoint = Annotated[str, typer.Argument(metavar="SP", help="A savepoint: DIR/savepoints/ID.")]


@app.command("take")
def take(
    checkpoint: Annotated[
        str, typer.Argument(metavar="CHECKPOINT|JOB", help="A checkpoint's path or URI, or a job's name.")
    ],
    catalog: Catalog,
    batch: Annotated[
        int | None,
        typer.Option(
            "--batch", min=0, metavar="N", help="A committed batch whose state is still retained. [newest]"
        ),
    ] = None,
    label: Label = None,
    deep: Annotated[
        bool,
        typer.Option(
            "--deep",
            help="Count and hash the rows before the savepoint is published; always done up to 2 MB.",
        ),
    ] = False,
    digest: Annotated[
        bool,
        typer.Option(
            "--digest/--no-digest",
            help="Whether to count and hash the rows afterwards, or to leave that pending.",
        ),
    ] = True,
    every: Annotated[
        str | None,
        typer.Option("--every", metavar="TIME", help="Take a savepoint at this interval until Ctrl-C."),
    ] = None,
    keep: Annotated[
        int | None,
        typer.Option(
            "--keep", min=1, metavar="N", help="With --every: delete all but the newest N with this label."
        ),
    ] = None,
    drop_expired: DropExpired = False,
    home: options.Home = None,
    dry_run: options.DryRun = False,
    json: options.Json = False,
) -> None:
    """Take a savepoint; the query, if it runs, is not paused.

    The savepoint is there as soon as its address is printed. Then its rows are counted and hashed, slowly
    where the query runs; Ctrl-C leaves that pending for `holdfast savepoint digest`.

    With --every the label is `periodic` unless another is given, and savepoints with any other label are left
    alone. Where no batch was committed since the last one, none is taken.
    """
    from holdfast import savepoints
    from holdfast.checkpoints import record_of
    from holdfast.savepoints.catalog.catalog import PENDING, RECORDED
    from holdfast.savepoints.taking.planning import plan_take
    from holdfast.storage import open_storage

    _check_every(every, keep, batch, drop_expired=drop_expired)
    address = checkpoint_of(checkpoint, home)
    if every is not None and not dry_run:
        take_periodically(
            address,
            catalog,
            every=every,
            keep=keep,
            label=label,
            deep=deep,
            digest=digest,
            home=home,
            json=json,
        )
        return
    if dry_run:
        origin = open_storage(address)
        plan = plan_take(origin, open_storage(catalog, "catalog"), batch, record_of(origin, home))
        _show_plan(plan, json)
        return
    with progress("savepoint", "files") as tell:
        taken = savepoints.take(
            address,
            catalog,
            batch=batch,
            label=label,
            deep=deep,
            digest=False,
            drop_expired=drop_expired,
            home=home,
            tell=tell,
        )
    content = RECORDED if taken.manifest.has_content else PENDING
    try:
        if not json:
            _show_taken(taken)
        if digest and content == PENDING:
            content = digest_taken(taken.uri)
    except KeyboardInterrupt:
        output.say(digests_later(taken.uri))
        raise typer.Exit(INTERRUPTED) from None
    finally:
        if json:
            output.emit_json({**taken.as_dict(), "content": content})


def _check_every(every: str | None, keep: int | None, batch: int | None, *, drop_expired: bool) -> None:
    if every is not None and drop_expired:
        raise Invalid(
            "savepoints that are taken again and again have all state",
            found=f"--every {every} and --drop-expired",
            hint="take one with --drop-expired alone",
        )
    if every is None and keep is not None:
        raise Invalid(
            "--keep deletes savepoints that --every has taken", hint="say how often, or leave it out"
        )
    if every is not None and batch is not None:
        raise Invalid("a batch can be taken once", found=f"--every {every} and --batch {batch}")


@app.command("list")
def list_savepoints(catalog: Catalog, json: options.Json = False) -> None:
    """List the savepoints of a directory, oldest first."""
    from holdfast import savepoints

    found = savepoints.list(catalog)
    if json:
        output.emit_json({"savepoints": [listed.as_dict() for listed in found]})
    else:
        _show_list(found)


@app.command("show")
def show(
    savepoint: Savepoint,
    files: Annotated[bool, typer.Option("--files", help="Also list the files.")] = False,
    confs: Annotated[
        bool, typer.Option("--confs", help="Also list the settings that the checkpoint fixes.")
    ] = False,
    json: options.Json = False,
) -> None:
    """Show what a savepoint says of itself: query, batch, offsets, operators, files."""
    from holdfast import savepoints
    from holdfast.savepoints.access import opened
    from holdfast.savepoints.catalog.catalog import PENDING, RECORDED
    from holdfast.savepoints.proof.digests import recorded_states
    from holdfast.savepoints.taking.labels import label_changes

    manifest = savepoints.show(savepoint)
    catalog, savepoint_id = opened(savepoint)
    labels = label_changes(catalog, savepoint_id)
    states = recorded_states(catalog, manifest)
    if json:
        output.emit_json(
            {
                **manifest.as_dict(),
                "content": PENDING if states is None else RECORDED,
                "states": None if states is None else [state.as_dict() for state in states],
                "labels": [change.as_dict() for change in labels],
            }
        )
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
            ("digests", _content(states, savepoint)),
            *_changes(manifest),
            *(
                (
                    "labelled",
                    f"{change.label or 'no label'}, by {change.who}, {output.moment(change.when_ms)}",
                )
                for change in labels
            ),
        ]
    )
    output.line()
    output.table(
        ["SOURCE", "OFFSET"], [(source["name"], source["offset"]) for source in fields.get("sources", [])]
    )
    _show_operators(fields.get("operators", []), states)
    if confs:
        output.line()
        output.table(["SETTING", "VALUE"], sorted(fields.get("confs", {}).items()))
    if files:
        output.line()
        output.table(
            ["FILE", "BYTES", "SHA-256", "HOW"],
            [(file.path, file.size_bytes, file.sha256, file.how) for file in manifest.files],
        )


@app.command("verify")
def verify(
    savepoint: Savepoint,
    deep: Annotated[
        bool,
        typer.Option("--deep", help="Also read every row and compare with the recorded digests."),
    ] = False,
    json: options.Json = False,
) -> None:
    """Prove that a savepoint is what was taken; exit 0 if it is, 6 if it is damaged.

    With --deep the rows are counted, hashed and compared with what was recorded when the savepoint was new.
    Where that is pending there is nothing to compare with, and that is said.
    """
    from holdfast import savepoints

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
    from holdfast import savepoints

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
    from holdfast import savepoints
    from holdfast.savepoints.access import opened
    from holdfast.savepoints.catalog.removal import plan_delete

    removal = plan_delete(*opened(savepoint), now_ms())
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
            help="How long a take may be silent before it counts as killed; a running one reports"
            " every minute.",
        ),
    ] = "1h",
    yes: Yes = False,
    dry_run: options.DryRun = False,
    json: options.Json = False,
) -> None:
    """Remove what no savepoint of a directory needs: what killed takes and deletes have left."""
    from holdfast import savepoints
    from holdfast.config.units import parse_duration
    from holdfast.savepoints.catalog.removal import plan_sweep
    from holdfast.storage import open_storage

    dead_after_ms = parse_duration(older_than, "older-than", allow_zero=True)
    removal = plan_sweep(open_storage(catalog, "catalog"), now_ms(), dead_after_ms)
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
    if taken.untold is not None:
        output.say(f"note: the checkpoint: {taken.untold}")
    for _, words in _expired(manifest):
        output.say(words)


def _show_list(found: tuple[Listed, ...]) -> None:
    output.table(
        ["SAVEPOINT", "LABEL", "AGE", "QUERY", "BATCH", "BYTES", "NEW BYTES", "DIGESTS", "CHANGED"],
        [
            (
                listed.savepoint_id,
                listed.manifest.label if listed.problem is None else f"damaged: {listed.problem}",
                output.duration(now_ms() - listed.manifest.created_ms),
                listed.manifest.query_id,
                listed.manifest.batch_id,
                listed.manifest.size_bytes,
                listed.manifest.new_bytes,
                listed.content,
                _changed(listed.manifest),
            )
            if listed.manifest is not None
            else (listed.savepoint_id, f"damaged: {listed.problem}", None, None, None, None, None, None, None)
            for listed in found
        ],
    )


def _changed(manifest: Manifest) -> str | None:
    """In a word what was done to the state by hand; None where nothing was."""
    change = manifest.change
    words = [] if change is None else [str(change.get("kind"))]
    words += ["erased"] if manifest.erasures else []
    return ", ".join([*words, *(["expired dropped"] if manifest.expired is not None else [])]) or None


def _changes(manifest: Manifest) -> list[tuple[str, str]]:
    """What was done to the state by hand, for people."""
    found = []
    change = manifest.change
    if change is not None:
        who = f"{change.get('who')}, {output.moment(change.get('when_ms'))}"
        state = f" in {change['state']}" if change.get("state") else ""
        why = f" ({change['why']})" if change.get("why") else ""
        found.append((str(change.get("kind")), f"{change.get('statement')}{state}{why}"))
        if change.get("rows_before") is not None:
            counts = ", ".join(f"{change.get(name):,} {name}" for name in ("changed", "deleted", "inserted"))
            found.append(
                ("rows", f"{change['rows_before']:,} before, {change['rows_after']:,} after: {counts}")
            )
        found += [("by", who), ("made of", str(change.get("of")))]
    for erasure in manifest.erasures:
        why = f" ({erasure['why']})" if erasure.get("why") else ""
        found.append(("erased", f"{erasure.get('rows'):,} rows of a key, by {erasure.get('who')}{why}"))
    return [*found, *_expired(manifest)]


def _expired(manifest: Manifest) -> list[tuple[str, str]]:
    """What had expired and was dropped, for people."""
    expired = manifest.expired
    if expired is None:
        return []
    lost = [
        f"{each['operator']}.{each['state']} {each['values']:,} as of {output.moment(each['as_of_ms'])}"
        for each in expired["states"]
    ]
    counts = f"{expired['values']:,} expired values dropped, and {expired['keys']:,} keys with them"
    return [("expired", f"{counts}: {', '.join(lost)}" if lost else "no state has a time to live")]


def _content(states: tuple[RecordedState, ...] | None, savepoint: str) -> str:
    """Whether the digests are recorded, for people."""
    if states is None:
        return f"pending: `holdfast savepoint digest {savepoint}` reads the rows"
    return f"recorded: {sum(state.rows for state in states):,} rows of {len(states):,} states"


def _show_operators(operators: list[dict[str, Any]], states: tuple[RecordedState, ...] | None) -> None:
    if not operators:
        return
    rows_of: Counter[tuple[int, str]] = Counter()
    for state in states or ():
        if not state.family.startswith("$"):
            rows_of[state.operator_id, state.store] += state.rows
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
                    store["rows"] if states is None else rows_of[each["operator_id"], store["name"]],
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
    if proof.content is not None:
        _show_content(proof)


def _show_content(proof: Proof) -> None:
    """What was read of the rows, and what they were compared with."""
    later = f"`holdfast savepoint digest {proof.uri}` records them"
    if proof.states is None:
        told = proof.recorded
        if told is None:
            output.line(f"digests pending: there is nothing to compare the rows with; {later}")
        elif told:
            output.line(f"rows not read: --deep compares the digests of {len(told):,} states")
        return
    rows = sum(state.rows for state in proof.states)
    output.line(f"{rows:,} rows of {len(proof.states):,} states read, {proof.compared:,} of them compared")
    if proof.recorded is None:
        output.line(f"digests pending: the rows were counted, and there was nothing to compare with; {later}")
    told_of = {
        (recorded.operator_id, recorded.store, recorded.family): recorded for recorded in proof.recorded or ()
    }
    lines = []
    for content in proof.states:
        told_state = told_of.get((content.state.operator_id, content.state.store, content.state.family))
        same = told_state is not None and (told_state.rows, told_state.digest) == (
            content.rows,
            content.digest,
        )
        verdict = "not compared" if told_state is None else "same" if same else "differs"
        lines.append(
            (content.state.operator_id, content.state.label, content.rows, f"{content.digest[:12]}…", verdict)
        )
    output.table(["OPERATOR", "STATE", "ROWS", "DIGEST", "COMPARED"], lines)


def _show_difference(found: Difference) -> None:
    output.table(
        ["WHAT", "FIRST", "SECOND"],
        [(change.name, _plain(change.first), _plain(change.second)) for change in found.changes]
        + [(f"source {source.name}", source.first, source.second) for source in found.sources],
    )
    for each in found.operators:
        output.line()
        output.line(f"operator {each.name} is not the same: --json shows both")
    if found.partitions:
        output.line()
        output.table(
            ["OPERATOR", "PARTITION", "ONLY IN FIRST", "ONLY IN SECOND", "IN BOTH"],
            [
                (
                    partition.operator_id,
                    partition.partition,
                    partition.first_bytes,
                    partition.second_bytes,
                    partition.shared_bytes,
                )
                for partition in found.partitions
            ],
        )
    output.line()
    output.line("the same state files" if found.same_state else "other state files")


def _show_states(found: StatesDifference) -> None:
    output.table(
        ["OPERATOR", "STATE", "FIRST", "SECOND", "ADDED", "REMOVED", "CHANGED", "BYTES"],
        [
            (
                difference.state.operator_id,
                difference.state.label,
                difference.first_rows,
                difference.second_rows,
                difference.added,
                difference.removed,
                difference.changed,
                difference.second_bytes - difference.first_bytes,
            )
            for difference in found.states
        ],
    )
    for difference in found.states:
        if difference.samples:
            output.line()
            output.line(f"operator {difference.state.operator_id}, state {difference.state.label}")
        for sample in difference.samples:
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
    return f"{output.moment(ms)}, {output.duration(now_ms() - ms)} ago"
