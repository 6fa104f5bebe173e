"""`holdfast savepoint`: take, list, show, verify, compare, label and delete savepoints."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

import holdfast as hf
from holdfast.cli import next_step, options, output
from holdfast.cli.arguments import (
    Catalog,
    Checkpoint,
    Savepoint,
    catalog_for,
    catalog_of,
    checkpoint_of,
    warn_of_label,
    whole_address_or_none,
)
from holdfast.cli.flows import each_flow
from holdfast.cli.help_text import examples
from holdfast.cli.progress import progress
from holdfast.cli.savepoint_proof import INTERRUPTED, digest_taken, digests_later, remember
from holdfast.cli.stop import until_stopped
from holdfast.clock import now_ms
from holdfast.config.checks import place_word
from holdfast.errors import HoldfastError, Invalid, NotFound, Unsupported
from holdfast.formats.operators import OperatorName, state_name
from holdfast.quantities import counted

if TYPE_CHECKING:
    from holdfast.checkpoints import Flow
    from holdfast.formats.manifest import Manifest, RecordedState
    from holdfast.savepoints.catalog import Listed
    from holdfast.savepoints.digests import PendingDigests
    from holdfast.savepoints.periodic import PeriodicTake
    from holdfast.savepoints.planning import TakePlan
    from holdfast.savepoints.taking import Taken
    from holdfast.storage.port import Storage


def take_periodically(
    checkpoint: str,
    catalog: str,
    *,
    every: str,
    keep: int | None,
    label: str | None,
    deep: bool,
    drop_expired: bool,
    home: str | None,
    digest: bool,
    json: bool,
) -> None:
    """Take savepoints until Ctrl-C or SIGTERM; a running take is finished.

    Between two takes, pending digests are computed, newest first.

    A permanent failure of the first take is raised as an error; later failures are reported and retried.

    Raises:
        Invalid: An address or a duration is not valid, or the catalog is inside the checkpoint.
        NotFound: The checkpoint does not exist.
    """
    from holdfast.config.units import parse_duration
    from holdfast.savepoints.digests import PendingDigests
    from holdfast.savepoints.periodic import LABEL
    from holdfast.storage import open_storage

    every_ms = parse_duration(every, "--every")
    into = open_storage(catalog, "catalog")
    first = True
    with until_stopped() as stopped:
        # Compute digests gently for half of the time between two takes, then at full speed.
        digests = PendingDigests(
            now_ms, lambda: not stopped.is_set(), pause=stopped.wait, longest_s=every_ms / 2000
        )
        while True:
            began = time.monotonic()
            due = began + every_ms / 1000
            try:
                found = hf.savepoints.take_and_retain(
                    checkpoint,
                    catalog,
                    retain=keep,
                    label=label or LABEL,
                    deep=deep,
                    drop_expired=drop_expired,
                    home=home,
                )
                due = time.monotonic() + every_ms / 1000
                output.show(found, json, _show)
                if found.taken is not None:
                    remember(checkpoint, found.taken, time.monotonic() - began, home)
                first = False
                if digest:
                    _digest(digests, into, found.query_id, due)
            except HoldfastError as error:
                if first and isinstance(error, (Invalid, NotFound, Unsupported)):
                    raise
                output.report_error(error, as_json=json)
            first = False
            if stopped.wait(max(due - time.monotonic(), 0)):
                return


def _digest(digests: PendingDigests, catalog: Storage, query_id: str, due: float) -> None:
    """Compute pending digests until the next take is due."""
    while time.monotonic() < due:
        made = digests.newest(catalog, [query_id])
        if made is None:
            return
        output.say(f"digests of {made.rows or 0:,} rows recorded: {made.uri}")


def _show(found: PeriodicTake) -> None:
    if found.taken is None:
        output.say(f"batch {found.batch_id}: nothing new since the last savepoint")
        return
    manifest = found.taken.manifest
    output.whole(found.taken.uri)
    gone = f"; {counted(len(found.removed), 'older savepoint')} deleted" if found.removed else ""
    output.say(
        f"batch {manifest.batch_id}: {counted(len(manifest.files), 'file')},"
        f" {manifest.new_bytes:,} bytes new{gone}"
    )
    if found.left is not None:
        output.insist(f"cannot delete older savepoints: {found.left}")


app = options.group(
    "Take and manage savepoints of any Structured Streaming query, without Spark, while it runs."
)


def _into_its_own_catalog(given: dict[str, Any], flow: Flow) -> None:
    """Give each flow of a pipeline a catalog, so that a label names one savepoint."""
    if given["every"] is not None:
        raise Invalid(
            "--every takes savepoints of one checkpoint, and the storage of a pipeline has several",
            code="HF-E2561",
            where=flow.storage,
            expected="the checkpoint of one flow with --every",
            hint=f"run `holdfast savepoint take {place_word(flow.checkpoint)} DIR --every TIME`",
        )
    catalog = given["catalog"] or f"{flow.storage}.savepoints"
    given["catalog"] = f"{catalog.rstrip('/')}/{flow.label}"


@app.command("take")
@examples(
    "checkpoints/visits savepoints --label nightly",
    "checkpoints/visits savepoints --every 10m --keep 5",
)
@each_flow("checkpoint", _into_its_own_catalog)
def take(
    checkpoint: Checkpoint,
    catalog: Annotated[
        str | None,
        typer.Argument(
            metavar="[DIR]",
            help="The directory of savepoints, a path or URI. [that of the job's last savepoint, else"
            " CHECKPOINT.savepoints]",
        ),
    ] = None,
    batch: options.Batch = None,
    label: options.Label = None,
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
            help="Count and hash the rows afterwards, or leave that pending.",
        ),
    ] = True,
    every: Annotated[
        str | None,
        typer.Option(
            "--every", metavar="TIME", help="The interval at which to take savepoints until Ctrl-C."
        ),
    ] = None,
    keep: Annotated[
        int | None,
        typer.Option(
            "--keep",
            min=1,
            metavar="N",
            help="With --every: the number of savepoints with this label to keep.",
        ),
    ] = None,
    drop_expired: options.DropExpired = False,
    *,
    id_of: Annotated[
        str | None,
        typer.Option(
            "--id-of",
            metavar="SP",
            help="A savepoint of the same query, for a checkpoint that has lost its query id.",
            callback=whole_address_or_none,
        ),
    ] = None,
    home: options.Home = None,
    dry_run: options.DryRun = False,
    json: options.Json = False,
) -> None:
    """Take a savepoint without pausing the query.

    The savepoint is published when its address is printed. Then its rows are counted and hashed, slowly if
    the query runs; Ctrl-C leaves that pending for `holdfast savepoint digest`.

    With --every the label is `periodic` unless you give one, and savepoints with other labels are kept. None
    is taken if no batch was committed since the last one.

    Of the storage of a pipeline, a savepoint of each flow is taken, into DIR/TABLE/FLOW.
    """
    from holdfast.savepoints.catalog import PENDING, RECORDED

    _check_every(every, keep, batch)
    address = checkpoint_of(checkpoint, home)
    into = catalog_for(checkpoint, home) if catalog is None else catalog
    if every is not None and not dry_run:
        take_periodically(
            address,
            into,
            every=every,
            keep=keep,
            label=label,
            deep=deep,
            drop_expired=drop_expired,
            digest=digest,
            home=home,
            json=json,
        )
        next_step.say(json, "savepoint", "list", next_step.typed(into))
        return
    if dry_run:
        plan = hf.savepoints.plan_take(address, into, batch=batch, id_of=id_of, home=home)
        output.show_plan(plan, json, _show_plan)
        next_step.say_for_real(json)
        return
    began = time.monotonic()
    with progress("savepoint", "files") as tell:
        taken = hf.savepoints.take(
            address,
            into,
            batch=batch,
            label=label,
            deep=deep,
            digest=False,
            drop_expired=drop_expired,
            id_of=id_of,
            home=home,
            tell=tell,
        )
    remember(address, taken, time.monotonic() - began, home)
    content = RECORDED if taken.manifest.has_content else PENDING
    try:
        if not json:
            _show_taken(taken)
        if digest and content == PENDING:
            content = digest_taken(taken.uri)
    except KeyboardInterrupt:
        output.insist(digests_later(taken.uri))
        raise typer.Exit(INTERRUPTED) from None
    finally:
        if json:
            output.emit_json({**taken.as_dict(), "content": content})
    then = "verify" if content == RECORDED else "digest"
    next_step.say_looked_up(json, lambda: ("savepoint", then, next_step.savepoint_word(taken.uri)))


def _check_every(every: str | None, keep: int | None, batch: int | None) -> None:
    if every is None and keep is not None:
        raise Invalid(
            "--keep can be given only with --every",
            code="HF-E2144",
            hint="give --every TIME, or omit --keep",
        )
    if every is not None and batch is not None:
        raise Invalid(
            "--batch cannot be combined with --every",
            code="HF-E2145",
            hint="omit --every or --batch",
        )


@app.command("list")
@examples("savepoints", "savepoints --json")
def list_savepoints(catalog: Catalog, home: options.Home = None, json: options.Json = False) -> None:
    """List the savepoints of a directory, oldest first.

    For a job, the directory is that of its newest savepoint, else CHECKPOINT.savepoints.
    """
    address = catalog_of(catalog, home)
    found = hf.savepoints.list(address)
    if not found:
        _refuse_no_catalog(address)
    if json:
        output.emit_json({"savepoints": [listed.as_dict() for listed in found]})
    else:
        _show_list(found)
    whole = [listed.uri for listed in found if listed.problem is None]
    if whole:
        next_step.say_looked_up(json, lambda: ("savepoint", "show", next_step.savepoint_word(whole[-1])))


def _refuse_no_catalog(catalog: str) -> None:
    """Check that a directory is a catalog, possibly an empty one."""
    from holdfast.savepoints.catalog import is_catalog
    from holdfast.storage import open_storage

    storage = open_storage(catalog, "catalog")
    if not is_catalog(storage):
        raise NotFound(
            "the directory is not a savepoint catalog",
            code="HF-E3026",
            where=storage.uri,
            hint="give the directory that was passed as DIR to `holdfast savepoint take CHECKPOINT DIR`, or"
            " take the first savepoint with this command",
        )


@app.command("show")
@examples("savepoints/20260305T080000", "savepoints/20260305T080000 --files --confs")
def show(
    savepoint: Savepoint,
    files: Annotated[bool, typer.Option("--files", help="Also list the files.")] = False,
    confs: Annotated[
        bool, typer.Option("--confs", help="Also list the settings that the checkpoint fixes for the query.")
    ] = False,
    json: options.Json = False,
) -> None:
    """Show the manifest of a savepoint: query, batch, offsets, operators, files."""
    from holdfast.savepoints.address import StateAddress
    from holdfast.savepoints.catalog import PENDING, RECORDED
    from holdfast.savepoints.digests import recorded_states
    from holdfast.savepoints.labels import label_changes

    manifest = hf.savepoints.show(savepoint)
    catalog, savepoint_id = StateAddress.resolve(savepoint).open_savepoint()
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
            ("watermark", output.moment(fields.get("watermark_ms"), in_utc=True)),
            ("provider", fields.get("provider")),
            *_database(fields),
            ("size", f"{manifest.size_bytes:,} bytes in {counted(len(manifest.files), 'file')}"),
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
    _show_operators(fields.get("operators", []), manifest.operator_names, states)
    if confs:
        output.line()
        for name, value in sorted(fields.get("confs", {}).items()):
            output.line(f"{name} = {value}")
    if files:
        output.line()
        output.table(
            ["BYTES", "STORED AS", "SHA-256", "FILE"],
            [(file.size_bytes, file.how, file.sha256, file.path) for file in manifest.files],
            ids={"SHA-256": output.SHA256},
            spare=("STORED AS", "SHA-256"),
            below=["FILE"],
        )
    then = "digest" if states is None else "verify"
    next_step.say_looked_up(json, lambda: ("savepoint", then, next_step.savepoint_word(savepoint)))


def _show_plan(plan: TakePlan) -> None:
    output.line(
        f"batch {plan.batch_id} of query {plan.query_id}: would save {counted(len(plan.files), 'file')},"
        f" {plan.size_bytes:,} bytes, {plan.new_bytes:,} of them new"
    )


def _show_taken(taken: Taken) -> None:
    manifest = taken.manifest
    output.whole(taken.uri)
    output.say(
        f"batch {manifest.batch_id} of query {manifest.query_id}: {counted(len(manifest.files), 'file')},"
        f" {manifest.size_bytes:,} bytes, {manifest.new_bytes:,} of them new"
    )
    if taken.untold is not None:
        output.say(f"note: the checkpoint: {taken.untold}")
    for path in taken.damaged:
        output.say(f"note: damaged file of the checkpoint, which the savepoint does not need: {path}")
    for path in taken.replaced:
        output.say(f"note: replaced a damaged file of the catalog: {path}")
    warn_of_label(manifest.label, taken.uri)
    for _, words in _expired(manifest):
        output.say(words)


def _show_list(found: tuple[Listed, ...]) -> None:
    output.table(
        ["SAVEPOINT", "AGE", "BATCH", "BYTES", "NEW BYTES", "DIGESTS", "QUERY", "LABEL", "CHANGE"],
        [
            (
                listed.savepoint_id,
                output.duration(now_ms() - listed.manifest.created_ms),
                listed.manifest.batch_id,
                listed.manifest.size_bytes,
                listed.manifest.new_bytes,
                listed.content,
                listed.manifest.query_id,
                listed.manifest.label if listed.problem is None else f"damaged: {listed.problem}",
                _changed(listed.manifest),
            )
            if listed.manifest is not None
            else (listed.savepoint_id, *[None] * 6, f"damaged: {listed.problem}", None)
            for listed in found
        ],
        ids={"SAVEPOINT": output.SAVEPOINT_ID, "QUERY": output.UUID},
        spare=("NEW BYTES", "DIGESTS", "QUERY"),
        empty="no savepoints in this directory",
    )


def _changed(manifest: Manifest) -> str | None:
    """Return a short description of the manual changes; None if there are none."""
    change = manifest.change
    words = [] if change is None else [str(change.get("kind"))]
    words += ["erased"] if manifest.erasures else []
    return ", ".join([*words, *(["expired dropped"] if manifest.expired is not None else [])]) or None


def _database(fields: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return the database of the state as a field; empty if the state is not in a database."""
    from holdfast.formats.providers import external_state

    external = external_state(fields.get("confs") or {})
    return () if external is None else (("database", external.database),)


def _changes(manifest: Manifest) -> list[tuple[str, str]]:
    """Describe the manual changes to the state."""
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
        found += [("author", who), ("original", str(change.get("of")))]
    for erasure in manifest.erasures:
        rows = counted(int(erasure["rows"]), "row")
        why = f" ({erasure['why']})" if erasure.get("why") else ""
        found.append(("erased", f"{rows} of a key, by {erasure.get('who')}{why}"))
    return [*found, *_expired(manifest)]


def _expired(manifest: Manifest) -> list[tuple[str, str]]:
    """Describe the expired values that were dropped."""
    expired = manifest.expired
    if expired is None:
        return []
    lost = [
        f"{state['operator']}.{state['state']} {state['values']:,} as of {output.moment(state['as_of_ms'])}"
        for state in expired["states"]
    ]
    counts = f"{expired['values']:,} expired values dropped, and {expired['keys']:,} keys with them"
    return [("expired", f"{counts}: {', '.join(lost)}" if lost else "no state has a TTL")]


def _content(states: tuple[RecordedState, ...] | None, savepoint: str) -> str:
    """Return the state of the digests as text."""
    if states is None:
        return f"pending: run `holdfast savepoint digest {place_word(savepoint)}`"
    rows = counted(sum(state.rows for state in states), "row")
    return f"recorded: {rows} of {counted(len(states), 'state')}"


def _show_operators(
    operators: list[dict[str, Any]],
    names: Mapping[int, OperatorName],
    states: tuple[RecordedState, ...] | None,
) -> None:
    if not operators:
        return
    rows_of: Counter[tuple[int, str]] = Counter()
    for state in states or ():
        if not state.family.startswith("$"):
            rows_of[state.operator_id, state.store] += state.rows
    output.line()
    rows = [
        (
            (name := names[operator["operator_id"]]).label,
            name.operator_kind,
            state_name(name, store["name"]),
            operator["partitions"],
            store["rows"] if states is None else rows_of[operator["operator_id"], store["name"]],
            operator["size_bytes"],
        )
        for operator in operators
        for store in operator["stores"]
    ]
    output.table(["OPERATOR", "KIND", "STATE", "PARTITIONS", "ROWS", "BYTES"], rows)


def _moment_and_age(ms: int) -> str:
    return f"{output.moment(ms, in_utc=True)}, {output.duration(now_ms() - ms)} ago"
