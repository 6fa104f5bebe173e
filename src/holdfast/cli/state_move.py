"""`holdfast state migrate` and `bootstrap`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

import holdfast as hf
from holdfast.cli import next_step, options, output
from holdfast.cli.arguments import AtRest, checkpoint_of, warn_of_label
from holdfast.cli.fork import say_format, show_moved, show_usage
from holdfast.cli.help_text import examples
from holdfast.cli.progress import progress
from holdfast.cli.standard_streams import without_sparks_words
from holdfast.errors import Invalid
from holdfast.quantities import counted

if TYPE_CHECKING:
    from holdfast.changes.bootstrap import Bootstrapped, BootstrapPlan
    from holdfast.changes.change import ChangeReport, StepsPlan
    from holdfast.changes.evolving import EvolutionPlan, Evolved, OperatorChange
    from holdfast.changes.reshaping import Migrated, MigrationPlan
    from holdfast.model import PlanChange


To = Annotated[
    str | None,
    typer.Option("--code", metavar="FILE.py[:JOB]", help="The new code, for which the state is converted."),
]
Old = Annotated[
    str | None,
    typer.Option(
        "--old",
        metavar="FILE.py[:JOB]",
        help="With new code: the code that wrote the state, if the savepoint does not record its plan.",
    ),
]
Initial = Annotated[
    list[str] | None,
    typer.Option(
        "--initial",
        metavar="NAME=VALUE",
        help="With new code: the value of a new aggregate or grouping column for existing keys. Repeatable.",
    ),
]
Map = Annotated[
    list[str] | None,
    typer.Option(
        "--map",
        metavar="OLD=NEW",
        help="With new code: the old and new name of a column or operator. Repeatable.",
    ),
]
Drop = Annotated[
    list[str] | None,
    typer.Option(
        "--drop",
        metavar="NAME",
        help="With new code: a column or operator whose state is dropped. Repeatable.",
    ),
]
Merge = Annotated[
    bool,
    typer.Option(
        "--merge", help="With new code: merge rows that get the same key, where the result is exact."
    ),
]
Query = Annotated[
    str | None,
    typer.Option("--query", metavar="NAME", help="With new code: the query, if the job has several."),
]

# The sources of the new code: in its order, or by name; None for one that it adds.
Sources: TypeAlias = "Sequence[str | None] | Mapping[str, str | None]"
GivenSources = Annotated[
    list[str] | None,
    typer.Option(
        "--source",
        metavar="[NAME=]OLD|+",
        help="A source of the new code, in its order: the number or name of the source that it continues, or"
        " + for a new one. For named sources, NAME= before it. Repeatable.",
    ),
]
DropSources = Annotated[
    list[str] | None,
    typer.Option(
        "--drop-source",
        metavar="OLD",
        help="A source that the new code lacks; its offset is lost. Repeatable.",
    ),
]
# The value of --source for a source that the new code adds; no name has this character.
_ADDED = "+"


def _new_sources(given: list[str], dropped: list[str] | None) -> Sources | None:
    """Parse the values of --source; None if it is not given.

    Raises:
        Invalid: A value is empty, a name is given twice, some sources have names and others do not, or
            --drop-source is given alone.
    """
    if not given:
        if dropped:
            raise Invalid(
                "--drop-source is given without the sources of the new code",
                code="HF-E2562",
                found=f"--drop-source {dropped[0]}",
                expected="--source once for each source of the new code",
                hint="list the sources with `holdfast offsets show CHECKPOINT`",
            )
        return None
    pairs = [text.rpartition("=") for text in given]
    wrong = [
        text
        for text, (name, equals, old) in zip(given, pairs, strict=True)
        if not old or bool(name) != bool(equals)
    ]
    if wrong or len({equals for _, equals, _ in pairs}) > 1:
        raise Invalid(
            "--source has no valid source" if wrong else "some sources have a name and others do not",
            code="HF-E2563",
            where="--source",
            found=" ".join(f"--source {text or repr(text)}" for text in wrong or given),
            expected="OLD or + for each source, or NAME=OLD or NAME=+ for each",
            hint="list the sources with `holdfast offsets show CHECKPOINT`",
        )
    continued = [None if old == _ADDED else old for _, _, old in pairs]
    if not pairs[0][1]:
        return continued
    names = [name for name, _, _ in pairs]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise Invalid(
            "two sources of the new code have the same name",
            code="HF-E2564",
            where="--source",
            found=twice,
            expected="a different name for each source, as in DataStreamReader.name",
            hint="give each source once",
        )
    return dict(zip(names, continued, strict=True))


def _require_code(to: str | None, code: Mapping[str, object]) -> None:
    """Check that options for new code are given only with --code.

    Raises:
        Invalid: Such an option is given without --code.
    """
    names = {"rename": "map", "overrides": "set"}
    codes = [f"--{names.get(name, name)}" for name, value in code.items() if value]
    if to is None and codes:
        raise Invalid(
            f"{', '.join(codes)} can be given only with --code",
            code="HF-E2154",
            hint="give the new code with --code FILE.py[:JOB]",
        )


def run(
    address: str,
    checkpoint: str | None,
    to: str,
    code: Mapping[str, Any],
    *,
    home: str | None,
    stopped: bool,
    dry_run: bool,
    json: bool,
) -> None:
    """Convert the state for new code, or show the plan."""
    wanted = {**code, "to": to, "home": options.settings(home).ensure_home().resolve()}
    if dry_run:
        with without_sparks_words():
            planned = hf.plan_evolve(address, checkpoint, **wanted)
        output.show_plan(planned, json, _show_evolution)
        next_step.say_for_real(json, ready=stopped or planned.usage is None)
        return
    with without_sparks_words() as words, progress("migrate", "steps", words) as tell:
        made = hf.evolve(address, checkpoint, **wanted, stopped=stopped, tell=tell)
    output.show(made, json, _show_evolved)
    _say_run(json, made.checkpoint, to, home, code)


def _say_run(json: bool, checkpoint: str, to: str, home: str | None, code: Mapping[str, Any]) -> None:
    place = f"checkpoint.storage={next_step.typed(checkpoint)}"
    given = (f"{name}={value}" for name, value in code["overrides"].items())
    settings = tuple(next_step.given_words("--set", [place, *given]))
    next_step.say_looked_up(json, lambda: next_step.run_words(to, home, *settings))


def _run_steps(
    address: str,
    checkpoint: str | None,
    to: str | None,
    code: Mapping[str, Any],
    layout: Mapping[str, Any],
    *,
    sources: Sources | None,
    dropped: Sequence[str],
    table: str | None,
    home: str | None,
    stopped: bool,
    dry_run: bool,
    json: bool,
) -> None:
    """Change the sources, the code, the layout and the table in one step, or show the plan."""
    known = options.settings(home).ensure_home().resolve()
    asked = hf.change(address, home=known)
    if sources is not None:
        asked.sources(sources, drop=dropped)
    if to is not None:
        asked.code(to, **code)
    if table is not None:
        asked.table(table)
    for name, value in layout.items():
        if name == "partitions" and value is not None:
            asked.partitions(value, master=code["master"])
        elif value is not None:
            getattr(asked, name)(value)
    if dry_run:
        with without_sparks_words():
            planned = asked.plan(checkpoint)
        output.show_plan(planned, json, _show_steps)
        next_step.say_for_real(json, ready=stopped or planned.usage is None)
        return
    with without_sparks_words() as words, progress("migrate", "steps", words) as tell:
        made = asked.to(checkpoint, stopped=stopped, tell=tell)
    output.show(made, json, _show_changed)
    if to is None:
        next_step.say_start(json, made.checkpoint, made.plan.original)
    else:
        _say_run(json, made.checkpoint, to, home, code)


def _show_steps(plan: StepsPlan) -> None:
    output.line(f"would create {plan.checkpoint} from batch {plan.batch_id}")
    _show_each(plan)
    show_usage(plan.usage, output.line)


def _show_changed(made: ChangeReport) -> None:
    output.whole(made.checkpoint)
    _show_each(made.plan)
    output.say(f"every step is verified; the query continues with batch {made.batch_id + 1}")


def _show_each(plan: StepsPlan) -> None:
    for step in plan.steps:
        if isinstance(step.plan, hf.EvolutionPlan):
            _show_operators(step.plan.operators)
            _show_changes(step.plan.changes)
        elif isinstance(step.plan, hf.MigrationPlan):
            output.say(_change(step.plan))
        elif step.step == "sources":
            _show_sources_of(step.plan)
        else:
            before = ", ".join(map(str, sorted(set(step.plan.before)))) or "1"
            output.say(f"partitions {before} to {step.plan.partitions}")
    if plan.table is not None:
        output.say(f"the sink log of {plan.table} has the batches up to {plan.batch_id}")


def _show_sources_of(plan: Any) -> None:
    output.table(
        ["SOURCE", "KIND", "BEFORE", "CONTINUES FROM"],
        [
            (
                fate.after if fate.after is not None else "removed",
                None if fate.kind is None else fate.kind.value,
                fate.before if fate.before is not None else "new",
                fate.offset if fate.after is not None else None,
            )
            for fate in plan.sources
        ],
    )


def _show_evolution(plan: EvolutionPlan) -> None:
    output.line(f"would create {plan.checkpoint} from batch {plan.batch_id}, for {plan.target}")
    _show_operators(plan.operators)
    _show_changes(plan.changes)
    show_usage(plan.usage, output.line)


def _show_evolved(made: Evolved) -> None:
    output.whole(made.checkpoint)
    _show_operators(made.plan.operators)
    _show_changes(made.plan.changes)
    if made.merged:
        output.say(f"{counted(made.merged, 'row')} merged with a row of the same key")
    output.say(f"{counted(made.rows, 'row')} of state; the query continues with batch {made.batch_id + 1}")


def _show_operators(operators: tuple[OperatorChange, ...]) -> None:
    output.table(
        ["OPERATOR", "COLUMN", "CHANGE", "BEFORE", "AFTER", "STARTS WITH"],
        [row for operator in operators for row in _rows(operator)],
    )


def _rows(operator: OperatorChange) -> list[tuple[str | None, ...]]:
    name = operator.after or operator.before or ""
    rows: list[tuple[str | None, ...]] = [
        (name, None, operator.change, operator.before, operator.after, None)
    ]
    rows += [
        (name, column.column, column.change, column.before, column.after, column.initial)
        for column in operator.columns
        if column.before != column.after
    ]
    return rows


def _show_changes(changes: tuple[PlanChange, ...]) -> None:
    for change in changes:
        output.say(f"{change.what} is different: {change.why}")


@examples(
    "savepoints/20260305T080000 --backend rocksdb",
    "checkpoints/visits new --partitions 4 --confirm-stopped",
)
def migrate(
    source: AtRest,
    checkpoint: Annotated[
        str | None,
        typer.Argument(
            metavar="[CHECKPOINT]",
            help="A new directory, as path or URI. [the checkpoint's name with -migrated; with -evolved for"
            " new code alone, with -changed for several changes]",
        ),
    ] = None,
    *,
    to: To = None,
    old: Old = None,
    initial: Initial = None,
    map_: Map = None,
    drop: Drop = None,
    merge: Merge = False,
    query: Query = None,
    set_: options.Pairs = None,
    conf: options.Conf = None,
    master: options.MovingMaster = None,
    backend: Annotated[
        str | None,
        typer.Option(
            "--backend",
            metavar="rocksdb|memory|redis|cassandra",
            help="The state backend; Spark's hashmap is memory. [unchanged]",
        ),
    ] = None,
    partitions: Annotated[
        int | None,
        typer.Option("--partitions", min=1, metavar="N", help="The number of partitions. [unchanged]"),
    ] = None,
    state_format: Annotated[
        int | None,
        typer.Option(
            "--state-format",
            min=1,
            max=2,
            metavar="1|2",
            help="RocksDB's state-checkpoint format. [unchanged; 2 when moving from memory]",
        ),
    ] = None,
    key_groups: Annotated[
        int | None,
        typer.Option(
            "--key-groups", min=1, metavar="G", help="The number of key groups of Holdfast's keyed state."
        ),
    ] = None,
    database: options.Database = None,
    source_of: GivenSources = None,
    drop_source: DropSources = None,
    table: options.Table = None,
    stopped: options.Stopped = False,
    home: options.Home = None,
    dry_run: options.DryRun = False,
    json: options.Json = False,
) -> None:
    """Create a checkpoint with the same state on a different backend, format or number of partitions.

    One call can change all of these, without Spark, and verifies that the state is the same. The query
    continues with the next batch. The source stays unchanged. A checkpoint needs --confirm-stopped, a
    savepoint does not. With --master the state is moved by a Spark job, for state that one machine cannot
    move in time.

    With --code, the state is first converted for new code: aggregates and grouping columns that are added,
    removed, renamed or widened, and operators that are inserted, removed or moved. Columns and operators are
    matched by name. Spark plans the code on this machine, which takes some seconds.

    With --source for each source of the new code, the checkpoint gets these sources. A continued source keeps
    its offset. A new output directory of a query that writes files needs --table.
    """
    from holdfast.jobs.loader import require_job_file

    address = checkpoint_of(source, home)
    wanted: dict[str, Any] = {
        "backend": backend,
        "partitions": partitions,
        "state_format": state_format,
        "key_groups": key_groups,
        "database": database,
    }
    code = {
        "old": old,
        "query": query,
        "initial": options.pairs("--initial", initial),
        "rename": options.pairs("--map", map_),
        "drop": tuple(drop or ()),
        "merge": merge,
        "overrides": options.pairs("--set", set_),
        "conf": options.pairs("--conf", conf),
        "master": master,
    }
    _require_code(to, {name: value for name, value in code.items() if name != "master"})
    sources = _new_sources(source_of or [], drop_source)
    how: dict[str, Any] = {"home": home, "stopped": stopped, "dry_run": dry_run, "json": json}
    for file in (to, old):
        if file is not None:
            require_job_file(file)
    if to is not None and set(wanted.values()) == {None} and sources is None and table is None:
        run(address, checkpoint, to, code, **how)
        return
    if to is not None or sources is not None or table is not None:
        steps: dict[str, Any] = {"sources": sources, "dropped": drop_source or (), "table": table}
        _run_steps(address, checkpoint, to, code, wanted, **steps, **how)
        return
    if dry_run:
        planned = hf.plan_migrate(address, checkpoint, **wanted)
        output.show_plan(planned, json, _show_plan)
        next_step.say_for_real(json, ready=stopped or planned.usage is None)
        return
    with without_sparks_words() as words, progress("migrate", "stores", words) as tell:
        made = hf.migrate(address, checkpoint, **wanted, master=master, stopped=stopped, home=home, tell=tell)
    output.show(made, json, _show_made)
    next_step.say_start(json, made.checkpoint, made.plan.original)


@examples(
    "savepoints/20260305T080000 visits.py --initial spend=0",
    "checkpoints/visits visits.py evolved --confirm-stopped",
)
def evolve(
    source: AtRest,
    to: Annotated[
        str,
        typer.Argument(metavar="FILE.py[:JOB]", help="The new code, for which the state is converted."),
    ],
    checkpoint: Annotated[
        str | None,
        typer.Argument(
            metavar="[CHECKPOINT]",
            help="A new directory, as path or URI. [the checkpoint's name with -evolved]",
        ),
    ] = None,
    *,
    old: Old = None,
    initial: Initial = None,
    map_: Map = None,
    drop: Drop = None,
    merge: Merge = False,
    query: Query = None,
    set_: options.Pairs = None,
    conf: options.Conf = None,
    master: options.MovingMaster = None,
    stopped: options.Stopped = False,
    home: options.Home = None,
    dry_run: options.DryRun = False,
    json: options.Json = False,
) -> None:
    """Create a checkpoint with the state converted for new code; the old one stays unchanged.

    The same as `state migrate --code`, which can also change the backend or the number of partitions in one
    step. A checkpoint needs --confirm-stopped, a savepoint does not.
    """
    migrate(
        source,
        checkpoint,
        to=to,
        old=old,
        initial=initial,
        map_=map_,
        drop=drop,
        merge=merge,
        query=query,
        set_=set_,
        conf=conf,
        master=master,
        stopped=stopped,
        home=home,
        dry_run=dry_run,
        json=json,
    )


@examples(
    "visits.py savepoints --from history.py",
    "visits.py savepoints --from history.py --dry-run",
)
def bootstrap(
    target: Annotated[
        str, typer.Argument(metavar="FILE.py[:JOB]", help="The job that will start from the savepoint.")
    ],
    catalog: Annotated[
        str, typer.Argument(metavar="DIR", help="The directory of savepoints; created if missing.")
    ],
    *,
    given: Annotated[
        Path,
        typer.Option(
            "--from",
            metavar="PLAN.py",
            help="A file with a function warm(spark) that returns the history: a batch DataFrame with the"
            " columns of the source; or a dictionary of history, start, states and watermark.",
        ),
    ],
    label: options.Label = None,
    query: options.Query = None,
    set_: options.Pairs = None,
    master: options.Master = None,
    home: options.Home = None,
    dry_run: options.DryRun = False,
    json: options.Json = False,
) -> None:
    """Create a savepoint with the state of a job after it has read a history, so that it starts warm.

    The job runs over the history without its sink, in a temporary directory. Start the job with
    `holdfast run FILE.py -s SAVEPOINT`.
    """
    from holdfast.jobs.loader import require_job_file
    from holdfast.jobs.trials import bootstrapping

    require_job_file(target)
    wanted: dict[str, Any] = {
        "history": bootstrapping.plan_of(given),
        "query": query,
        "overrides": options.pairs("--set", set_),
        "master": master,
        "home": options.settings(home).home,
    }
    if dry_run:
        with without_sparks_words(), bootstrapping.warm_query(target, catalog, **wanted) as warm:
            plan = warm.plan
        output.show_plan(plan, json, _show_start)
        next_step.say_for_real(json)
        return
    with without_sparks_words() as words, progress("bootstrap", "stores", words) as tell:
        made = hf.bootstrap(target, catalog, **wanted, label=label, tell=tell)
    output.show(made, json, _show_warm)
    warn_of_label(label, made.uri)
    settings = next_step.given_words("--set", set_)
    next_step.say_looked_up(
        json, lambda: next_step.run_words(target, home, "-s", next_step.typed(made.uri), *settings)
    )


def _show_start(plan: BootstrapPlan) -> None:
    given = f"states {', '.join(plan.states)}" if plan.states else "its history"
    output.line(f"would run {plan.name} over {given} and create a savepoint in {plan.catalog}")
    _show_sources(plan)


def _show_warm(made: Bootstrapped) -> None:
    output.whole(made.uri)
    over = f"states {', '.join(made.plan.states)}" if made.plan.states else counted(made.input_rows, "row")
    output.say(f"{made.plan.name}: {counted(made.rows, 'row')} of state from {over}")
    _show_sources(made.plan)


def _show_sources(plan: BootstrapPlan) -> None:
    for number, source in enumerate(plan.sources):
        facts = source.beginning.as_dict()
        begins = (
            f"after {counted(facts['files_read'], 'file')} marked as read"
            if facts["files_read"] is not None
            else f"at {output.compact(facts['offset'])}"
            if facts["offset"] is not None
            else "as its own options say"
        )
        output.say(f"source {number}, {source.kind}, begins {begins}")


def _show_plan(plan: MigrationPlan) -> None:
    output.line(
        f"would create {plan.checkpoint} from batch {plan.batch_id}: {_change(plan)};"
        f" {plan.size_bytes:,} bytes"
    )
    show_usage(plan.usage, output.line)


def _show_made(made: Migrated) -> None:
    show_moved(made, _change(made.plan))
    if made.plan.after.database is not None:
        output.say(f"its state is in {made.plan.after.database}, in its own stores")
    if made.plan.has_formats:
        say_format(made.plan.after.state_format, "; the checkpoint records its backend and partitions")


def _change(plan: MigrationPlan) -> str:
    facts = plan.as_dict()
    before = ", ".join(map(str, sorted(set(plan.partitions_before)))) or "1"
    pairs: tuple[tuple[str, str, str], ...] = (
        ("backend", facts["backend_before"], facts["backend"]),
        ("partitions", before, str(facts["partitions"]) if plan.partitions_before else "1"),
        ("format", str(facts["state_format_before"]), str(facts["state_format"])),
    )
    if plan.key_groups is not None:
        groups = ", ".join(map(str, sorted(set(plan.key_groups_before.values()))))
        pairs += (("key groups", groups, str(plan.key_groups)),)
    moved = [f"{what} {old} to {new}" for what, old, new in pairs if old != new]
    return ", ".join(moved) or "no change"
