"""Write the reference page of JSON: each field of the commands' output and of REST, with type and meaning."""

from __future__ import annotations

import tempfile
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, is_dataclass
from enum import Enum
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from holdfast.advice.advice import AdviceReport
from holdfast.advice.codes import CodeExplanation
from holdfast.advice.cost_report import CostReport
from holdfast.advice.findings import LintReport
from holdfast.advice.plan_forecast import CostForecast
from holdfast.at_rest.insight import HeavyKeys, KeyExplanation, KeyHistory, WhatIf
from holdfast.at_rest.model import KeyState, NamedOperator
from holdfast.changes.bootstrap import Bootstrapped, BootstrapPlan
from holdfast.changes.change import ChangeReport, StepsPlan
from holdfast.changes.edit.editing import EditPlan
from holdfast.changes.edit.request import Audit
from holdfast.changes.edit.undoing import UndoPlan
from holdfast.changes.erase.certificate import Certificate, ErasePlan
from holdfast.changes.evolving import EvolutionPlan, Evolved
from holdfast.changes.offsets.moving import OffsetPlan, OffsetsMoved
from holdfast.changes.offsets.positions import SourcePositions
from holdfast.changes.partitions import RescalePlan, RescaleReport
from holdfast.changes.releasing import Release
from holdfast.changes.reshaping import Migrated, MigrationPlan
from holdfast.checkpoints.checkpoint import CheckpointReport, CommittedBatch
from holdfast.checkpoints.discovery import Flow
from holdfast.checkpoints.record import Noting, WrittenBy
from holdfast.checkpoints.refreshing import FlowRefresh
from holdfast.checkpoints.state.contents import StoreShares
from holdfast.checkpoints.verification.file_checks import Verification
from holdfast.config.policies import Leading
from holdfast.config.settings import ResolvedSetting
from holdfast.demo.show import DemoResult
from holdfast.demo.starter.writing import Starter
from holdfast.demo.tour.steps import Toured
from holdfast.engine.session.doctor import Check, ClusterExamination, Examination
from holdfast.formats.manifest import LabelChange, RecordedState, SavedFile
from holdfast.jobs.autoscaling import ScaleDecision
from holdfast.jobs.health import Health
from holdfast.jobs.loader import JobExplained
from holdfast.jobs.recovery import Prediction, RecoveryTimes
from holdfast.jobs.registry.client import JobDetails, JobStatus
from holdfast.jobs.reports import QuerySizing
from holdfast.jobs.trials.comparison import ComparisonReport
from holdfast.jobs.trials.drill import DrillReport
from holdfast.jobs.upgrades.apply_api import Applied, ApplyPlan
from holdfast.jobs.upgrades.planning import UpgradePlan
from holdfast.jobs.upgrades.upgrade_api import Upgraded
from holdfast.json_shapes import JsonField, json_fields, json_spread
from holdfast.model import BatchProgress, SkewReport, UpgradeReport
from holdfast.observe.alerting import Alert, AlertEvent, NotedEvent
from holdfast.observe.lag import Lag
from holdfast.ownership.usage import CheckpointUsage
from holdfast.savepoints.catalog import Listed
from holdfast.savepoints.digests import Digested
from holdfast.savepoints.key_diff import StatesDifference
from holdfast.savepoints.manifest_diff import Difference
from holdfast.savepoints.periodic import PeriodicTake
from holdfast.savepoints.planning import TakePlan
from holdfast.savepoints.proof import Proof
from holdfast.savepoints.removal import Removal
from holdfast.savepoints.restoring import Restored, RestorePlan
from holdfast.savepoints.spark_upgrade import SparkReport
from holdfast.savepoints.taking import Taken


@dataclass(frozen=True)
class Answer:
    """A JSON document, or a line, that a command prints.

    Attributes:
        when: The condition under which it is printed.
        shapes: The dataclasses whose fields it has.
        own: Its other fields, with their types and descriptions.
    """

    when: str = ""
    shapes: tuple[type, ...] = ()
    own: Mapping[str, tuple[Any, str]] = field(default_factory=dict)

    def fields(self) -> dict[str, JsonField]:
        """Return all fields by name; a field of its own overrides an inherited one."""
        found = {name: JsonField(name, kind, says) for name, (kind, says) in self.own.items()}
        inherited = {described.name: described for shape in self.shapes for described in json_fields(shape)}
        return inherited | found


@dataclass(frozen=True)
class StoppedSavepoint:
    """A savepoint of a query that was stopped.

    Attributes:
        query: The sink's name.
        taken: The savepoint.
        content: `recorded` if the row counts and digests of its states are recorded, otherwise `pending`.
    """

    query: str
    taken: Taken = field(metadata=json_spread())
    content: str = ""


@dataclass(frozen=True)
class FlowResult:
    """The result of a command for one flow of a pipeline.

    Attributes:
        flow: The flow.
        result: The document that the command prints for the flow's checkpoint, or its error; null if no run
            has started on the checkpoint.
    """

    flow: Flow = field(metadata=json_spread())
    result: Any = None


@dataclass(frozen=True)
class WatchedSkew:
    """The distribution of the keys that a query watches.

    Attributes:
        query: The sink's name.
        report: The report.
    """

    query: str
    report: SkewReport = field(metadata=json_spread())


def of_pipeline(*answers: Answer) -> tuple[Answer, ...]:
    """Return the answers of a verb that answers for all flows of a pipeline, with that document."""
    own = {
        "pipeline": (str, "The storage of the pipeline."),
        "flows": (list[FlowResult], "The flows, by table and name."),
    }
    return (*answers, Answer("For the storage of a declarative pipeline", own=own))


DRY_RUN = {"dry_run": (bool, "True with `--dry-run`: nothing was changed.")}
EVENT = {"event": (str, "The event."), "text": (str, "The event as a sentence.")}
BATCH = {
    "batch_id": (int, "The batch of the state."),
}
CONTENT = {
    "content": (
        str,
        "`recorded` if the row counts and digests of its states are recorded, otherwise `pending`.",
    )
}
PLAN = "With `--dry-run`"
ERROR = Answer(
    "If a command fails",
    own={
        "error": (str, "The failure, as one clause."),
        "kind": (str, "The kind of the error: see [Errors](errors.md)."),
        "exit_code": (int, "The exit code of the command."),
        "code": (str | None, "The stable code of the error: see `holdfast explain CODE`."),
        "where": (str | None, "The file, setting or address concerned."),
        "found": (str | None, "The value found."),
        "expected": (str | None, "The values allowed."),
        "hint": (str | None, "The next command or step."),
    },
)
SERVING = Answer(
    "When the HTTP server is ready",
    own={
        "event": (str, "`serving`."),
        "url": (str, "The address."),
        "home": (str, "The state home."),
        "warning": (str, "A security risk of the address; absent if there is none."),
        "login": (
            str,
            "A one-time address that opens a browser session; absent if no login is needed.",
        ),
    },
)
STATE_DIFF = (
    Answer("Key by key", (StatesDifference,)),
    Answer("With `--files`", (Difference,)),
)


def plan_and_result(plan: type, result: type) -> tuple[Answer, Answer]:
    """Return the two outputs of a command with `--dry-run`: its plan and its result."""
    return Answer(PLAN, (plan,), DRY_RUN), Answer("Otherwise", (result,))


def changed(plan: type, verb: str) -> tuple[Answer, Answer]:
    """Return the outputs of a command that creates a savepoint from an existing one."""
    own = {
        verb: (str, "The savepoint that the new one was created from."),
        "change": (Audit, "The record of the change in the manifest of the new savepoint."),
    }
    return Answer(PLAN, (plan,), DRY_RUN), Answer("Otherwise", (plan, Taken), own)


VERBS: Mapping[str, tuple[Answer, ...]] = {
    "demo": (Answer(shapes=(DemoResult,)),),
    "tour": (Answer(shapes=(Toured,)),),
    "init": (Answer(shapes=(Starter,), own=DRY_RUN),),
    "run": (
        Answer(
            PLAN,
            (JobExplained,),
            DRY_RUN
            | {
                "savepoints": (
                    dict[str, str],
                    "The savepoint that each query would start from, by the query's name.",
                ),
                "leading": (Leading | None, "The address at which the leading supervisor is elected."),
                "settings": (list[ResolvedSetting], "Holdfast's own settings, and the origin of each."),
            },
        ),
        Answer(
            "A line for each event, with its facts; the fields of `batch` and `recovered` are in "
            "[BatchProgress](#batchprogress) and [RecoveryTimes](#recoverytimes)",
            own=EVENT | {"job": (str, "The job.")},
        ),
        SERVING,
        Answer("If the HTTP server cannot start", own={"event": (str, "`not-served`."), **ERROR.own}),
    ),
    "serve": (
        Answer(
            SERVING.when,
            own={
                **SERVING.own,
                "checkpoints": (int, "The number of checkpoints found at the addresses."),
            },
        ),
    ),
    "list": (Answer(own={"jobs": (list[JobStatus], "The jobs, most recently started first.")}),),
    "status": (
        Answer(
            "Once",
            (JobDetails,),
            {
                "prediction": (
                    Prediction | None,
                    "The expected duration of the next recovery; null without earlier ones.",
                ),
                "alerts": (list[Alert], "The alerts that are firing."),
                "sizing": (
                    list[QuerySizing],
                    "The resources that each query has and needs, and the growth of its state.",
                ),
                "lag": (list[Lag], "The lag of each query behind each partition of its topics."),
                "autoscale": (
                    list[ScaleDecision],
                    "The newest decisions of the automatic rescale, oldest first.",
                ),
            },
        ),
        Answer("With `--watch`, a line when the state changes", (JobStatus,), EVENT),
        Answer("With `--watch`, a line for each batch", (BatchProgress,), EVENT),
        Answer("With `--watch`, a line for each alert: `alert` or `cleared`", (Alert,), EVENT),
    ),
    "stop": (
        Answer(
            shapes=(JobStatus,),
            own=DRY_RUN
            | {"savepoints": (list[StoppedSavepoint], "With `--savepoint`: a savepoint of each query.")},
        ),
    ),
    "restart": (
        Answer(
            shapes=(JobStatus,),
            own=DRY_RUN
            | {
                "warm_ms": (int, "The time until the new driver was ready."),
                "took_ms": (int, "The time from the stop of the former driver to the start of the new one."),
            },
        ),
    ),
    "upgrade": (Answer(PLAN, (UpgradePlan,), DRY_RUN), Answer("Otherwise", (Upgraded,), DRY_RUN)),
    "apply": (Answer(PLAN, (ApplyPlan,), DRY_RUN), Answer("Otherwise", (Applied,), DRY_RUN)),
    "cancel": (
        Answer(
            shapes=(JobStatus,),
            own=DRY_RUN | {"deletes_checkpoint": (bool, "True if its checkpoint is deleted.")},
        ),
    ),
    "mirror": (
        Answer("A line for each check", (PeriodicTake,)),
        Answer("A line when an alert fires or clears", (AlertEvent,), {"text": EVENT["text"]}),
        Answer(
            "With `--metrics-port`, when the server is ready",
            own={name: SERVING.own[name] for name in ("event", "url")},
        ),
        Answer("A line when a step fails and will be retried", own={"event": (str, "`error`."), **ERROR.own}),
    ),
    "watch": (
        Answer(
            "A line for each update of the integrity record",
            (Noting,),
            {"event": (str, "`noted`."), "checkpoint": (str, "The checkpoint.")},
        ),
        Answer("A line when an alert fires or clears", (AlertEvent,), {"text": EVENT["text"]}),
        Answer(
            "With `--metrics-port`, when the server is ready",
            own={name: SERVING.own[name] for name in ("event", "url")},
        ),
        Answer("A line when a step fails and will be retried", own={"event": (str, "`error`."), **ERROR.own}),
    ),
    "restore": plan_and_result(RestorePlan, Restored),
    "fork": (*plan_and_result(RestorePlan, Restored), Answer("With `--compare`", (ComparisonReport,))),
    "drill": (Answer(shapes=(DrillReport,)),),
    "rescale": plan_and_result(RescalePlan, RescaleReport),
    "offsets show": of_pipeline(Answer(shapes=(SourcePositions,))),
    "offsets set": plan_and_result(OffsetPlan, OffsetsMoved),
    "offsets skip": plan_and_result(OffsetPlan, OffsetsMoved),
    "offsets translate": plan_and_result(OffsetPlan, OffsetsMoved),
    "check": (
        Answer("Against a savepoint or checkpoint", (UpgradeReport,)),
        Answer("With `--spark`", (SparkReport,)),
    ),
    "check-spark": (Answer(shapes=(SparkReport,)),),
    "compare": (Answer(shapes=(ComparisonReport,)),),
    "evolve": plan_and_result(EvolutionPlan, Evolved),
    "lint": of_pipeline(Answer(shapes=(LintReport,))),
    "cost": (Answer(shapes=(CostReport,)), Answer("For a planned job", shapes=(CostForecast,))),
    "advise": (Answer(shapes=(AdviceReport,)),),
    "explain": (Answer(shapes=(CodeExplanation,)),),
    "skew": (
        Answer(
            "For a job",
            own={
                "job": (str, "The job."),
                "watched": (list[WatchedSkew], "A report for each query and watched name."),
            },
        ),
        Answer(
            "For a checkpoint",
            own={"checkpoint": (str, "Its address.")}
            | BATCH
            | {
                "stores": (list[StoreShares], "The stores of its operators."),
                "states": (list[HeavyKeys], "With `--keys`: the largest keys of each state."),
            },
        ),
    ),
    "ttl": (
        Answer(
            own=BATCH
            | {
                "ttl_ms": (int | None, "The TTL to evaluate."),
                "watermark_ms": (int | None, "The watermark delay to evaluate."),
                "states": (list[WhatIf], "The effect on each state."),
            }
        ),
    ),
    "doctor": (
        Answer(
            shapes=(Examination,),
            own={
                "deep": (Check, "With `--deep`: the result of a small stateful query."),
                "cluster": (
                    ClusterExamination,
                    "With `--master`: the findings of a session there.",
                ),
                "job": (JobExplained, "For a job: its settings."),
                "checkpoints": (
                    list[WrittenBy],
                    "The Spark version of each given checkpoint and of each job's checkpoints.",
                ),
                "unread": (list[dict[str, Any]], "The errors of checkpoints that could not be read."),
                "health": (list[Health], "The health of the given checkpoints and savepoints."),
                "full_refresh": (
                    list[FlowRefresh],
                    "What a full refresh of the given pipelines discards, flow by flow.",
                ),
            },
        ),
    ),
    "completion": (
        Answer(own={"shell": (str, "The shell."), "script": (str, "The script for the shell to run.")}),
    ),
    "bench": (
        Answer(
            "In a checkout only; the measurements depend on the bench",
            own={
                "machine": (dict[str, Any], "The machine that was measured."),
                "benches": (list[dict[str, Any]], "The results."),
                "broken_off": (bool, "True if the run was interrupted; the exit code is then 130."),
                "so_far": (list[dict[str, Any]], "The measurements so far of a bench that did not finish."),
            },
        ),
    ),
    "checkpoint show": of_pipeline(Answer(shapes=(CheckpointReport,))),
    "checkpoint history": of_pipeline(
        Answer(
            own={
                "checkpoint": (str, "The checkpoint."),
                "batches": (list[CommittedBatch], "Its committed batches, oldest first."),
            }
        ),
    ),
    "checkpoint verify": of_pipeline(Answer(shapes=(Verification,))),
    "checkpoint release": (Answer(shapes=(Release,), own=DRY_RUN),),
    "alerts list": (
        Answer(
            own={
                "alerts": (list[Alert], "The current alerts, firing ones first."),
                "events": (list[NotedEvent], "The alert events, oldest first."),
            }
        ),
    ),
    "alerts export": (
        Answer(
            "To standard output",
            own={
                "rules": (str, "The rules for Prometheus."),
                "dashboard": (str, "The dashboard for Grafana."),
            },
        ),
        Answer("With `--output`", own=DRY_RUN | {"files": (list[str], "The files written.")}),
    ),
    "state list": (
        Answer(
            own={"place": (str, "The checkpoint, savepoint or job.")}
            | BATCH
            | {"operators": (list[NamedOperator], "The stateful operators and their states.")}
        ),
    ),
    "state get": (Answer(shapes=(KeyState,)),),
    "state scan": (
        Answer(
            "To standard output",
            own=BATCH
            | {
                "columns": (list[str], "The names of the columns."),
                "rows": (list[dict[str, Any]], "The rows, by column."),
            },
        ),
        Answer(
            "With `--to`",
            own={"file": (str, "The file that was written."), "rows": (int, "The number of rows in it.")},
        ),
    ),
    "state history": (Answer(shapes=(KeyHistory,)),),
    "state explain": (Answer(shapes=(KeyExplanation,)),),
    "state diff": STATE_DIFF,
    "state edit": changed(EditPlan, "edited"),
    "state undo": changed(UndoPlan, "undone"),
    "state erase": (
        Answer(
            PLAN,
            (ErasePlan,),
            DRY_RUN
            | {
                "usage": (
                    CheckpointUsage | None,
                    "The users of the checkpoint; null for a savepoint.",
                )
            },
        ),
        Answer("Otherwise", (Certificate,)),
    ),
    "state migrate": (
        *plan_and_result(MigrationPlan, Migrated),
        Answer("With `--source` or `--table`, and `--dry-run`", (StepsPlan,), DRY_RUN),
        Answer("With `--source` or `--table` otherwise", (ChangeReport,)),
    ),
    "state bootstrap": plan_and_result(BootstrapPlan, Bootstrapped),
    "savepoint take": of_pipeline(
        Answer(PLAN, (TakePlan,), DRY_RUN),
        Answer("Otherwise", (Taken,), CONTENT),
        Answer("With `--every`, a line for each savepoint", (PeriodicTake,)),
    ),
    "savepoint list": (Answer(own={"savepoints": (list[Listed], "The savepoints, oldest first.")}),),
    "savepoint show": (
        Answer(
            "The manifest, and the records added later",
            own={
                "format": (int, "The version of its format."),
                "holdfast": (str, "The version of Holdfast that took it."),
                "id": (str, "Its id."),
                "label": (str | None, "Its label."),
                "created_ms": (int, "When it was taken, in epoch milliseconds."),
                "checkpoint": (str, "The checkpoint it was taken from."),
                "query_id": (str, "The id of the query."),
                "batch": (int, "The committed batch it contains."),
                "planned_ms": (int, "When that batch was planned, in epoch milliseconds."),
                "watermark_ms": (int | None, "The watermark of the next batch."),
                "spark_at_least": (str | None, "The lowest Spark version that fixes these settings."),
                "provider": (str | None, "The class of the state store."),
                "confs": (dict[str, str], "The settings that the checkpoint has fixed."),
                "sources": (list[dict[str, Any]], "The query's sources, with their offsets."),
                "operators": (
                    list[dict[str, Any]],
                    "Its stateful operators, with stores, schemas and content.",
                ),
                "keyed": (dict[str, Any], "The metadata of Holdfast's keyed operators, by file."),
                "size_bytes": (int, "The size of all its files, in bytes."),
                "new_bytes": (int, "The bytes that it added to the catalog."),
                "change": (Audit, "The changes of an edit or an undo; absent if there was none."),
                "erasures": (list[dict[str, Any]], "The erasures from it; absent if there was none."),
                "expired_dropped": (
                    dict[str, Any],
                    "The expired rows that were dropped; absent if none.",
                ),
                "files": (list[SavedFile], "Its files."),
                **CONTENT,
                "states": (
                    list[RecordedState] | None,
                    "The recorded content of each state; null while pending.",
                ),
                "labels": (list[LabelChange], "The changes of its label, oldest first."),
            },
        ),
    ),
    "savepoint verify": (Answer(shapes=(Proof,)),),
    "savepoint digest": (
        Answer("For one savepoint", (Digested,), DRY_RUN),
        Answer(
            "For a directory",
            own=DRY_RUN | {"savepoints": (list[Digested], "The savepoints whose digests were pending.")},
        ),
    ),
    "savepoint label": (Answer(shapes=(LabelChange,), own=DRY_RUN),),
    "savepoint diff": STATE_DIFF,
    "savepoint delete": (Answer(shapes=(Removal,), own=DRY_RUN),),
    "savepoint gc": (Answer(shapes=(Removal,), own=DRY_RUN),),
}


def answers_of_rest() -> dict[str, Any]:
    """Return the OpenAPI description of Holdfast's own resources."""
    from holdfast.server.app import app

    with tempfile.TemporaryDirectory() as home:
        described: dict[str, Any] = app(Path(home)).openapi()
    return described


def shapes_in(kind: Any) -> Iterator[type]:
    """Yield the dataclasses in a type."""
    if is_dataclass(kind):
        yield kind  # type: ignore[misc]
    for part in get_args(kind):
        yield from shapes_in(part)


def all_shapes() -> list[type]:
    """Return every dataclass that is part of a document, by name."""
    found: dict[type, None] = {}
    waiting = [
        shape
        for answers in VERBS.values()
        for answer in answers
        for described in answer.fields().values()
        for shape in shapes_in(described.type)
    ]
    # Events of `run` have the fields of these.
    waiting += [BatchProgress, RecoveryTimes]
    while waiting:
        shape = waiting.pop()
        if shape not in found:
            found[shape] = None
            waiting += [inner for described in json_fields(shape) for inner in shapes_in(described.type)]
    return sorted(found, key=lambda shape: (shape.__name__, shape.__module__))


def json_page(note: str) -> str:
    """Return the page: commands, then the objects in their output, then REST."""
    titles = _titles()
    text = (
        "Every command prints JSON with `--json`: one document, or one line for each event. Fields may be\n"
        "added, but are never removed or renamed. Times are in epoch milliseconds and durations in\n"
        "milliseconds, both with the suffix `_ms`; sizes are in bytes.\n"
    )
    parts = [
        "# JSON\n",
        note,
        text,
        _table(ERROR.when, ERROR.fields(), titles),
        "## Commands\n",
    ]
    for verb, answers in sorted(VERBS.items()):
        parts.append(f"### holdfast {verb}\n")
        parts += [_table(answer.when, answer.fields(), titles) for answer in answers]
    parts.append("## Objects in the output\n")
    for shape, title in titles.items():
        about = (shape.__doc__ or "").partition("\n")[0]
        named = {described.name: described for described in json_fields(shape)}
        parts += [f"### {title}\n", _table(about, named, titles)]
    return "\n".join([*parts, *_rest()])


def _titles() -> dict[type, str]:
    shapes = all_shapes()
    names = [shape.__name__ for shape in shapes]
    return {
        shape: shape.__name__
        if names.count(shape.__name__) == 1
        else f"{shape.__name__} of {shape.__module__.rsplit('.', 1)[-1]}"
        for shape in shapes
    }


def _table(when: str, fields: Mapping[str, JsonField], titles: Mapping[type, str]) -> str:
    rows = [
        f"| `{name}` | {_words(described.type, titles)} | {_cell(described.description)} |"
        for name, described in fields.items()
    ]
    head = textwrap.fill(f"{when.rstrip('.')}:", 120, break_long_words=False) + "\n\n" if when else ""
    return head + "\n".join(["| Field | Type | Meaning |", "|---|---|---|", *rows]) + "\n"


_WORDS = {str: "text", int: "integer", float: "number", bool: "boolean", type(None): "null", Any: "anything"}


def _words(kind: Any, titles: Mapping[type, str]) -> str:
    """Describe a type."""
    origin, parts = get_origin(kind), [part for part in get_args(kind) if part is not ...]
    if kind in titles:
        return f"[{titles[kind]}](#{titles[kind].lower().replace(' ', '-')})"
    if origin is Literal or (isinstance(kind, type) and issubclass(kind, Enum)):
        return "text"
    if origin in (Union, UnionType):
        return " or ".join(_words(part, titles) for part in parts)
    if origin in (list, tuple):
        return "list of " + " and ".join(dict.fromkeys(_words(part, titles) for part in parts))
    if origin is not None:
        return f"object of {_words(parts[1], titles)} by name"
    return _WORDS[kind]


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _rest() -> Iterator[str]:
    """Yield the table of resources, then the fields of each response."""
    described = answers_of_rest()
    schemas = described["components"]["schemas"]
    rows = []
    needed: dict[str, None] = {}
    for path, operations in described["paths"].items():
        for method, operation in operations.items():
            answer = next(answer for code, answer in operation["responses"].items() if code < "300")
            schema = answer["content"]["application/json"]["schema"]
            rows.append(f"| `{method.upper()} {path}` | {operation['summary']} | {_schema_words(schema)} |")
            needed |= dict.fromkeys(_named(schema, schemas))
    yield "## REST\n"
    yield "\n".join(["| Resource | Description | Response |", "|---|---|---|", *rows]) + "\n"
    for name in sorted({*needed, "Problem"}):
        schema = schemas[name]
        lines = [
            f"| `{field}` | {_schema_words(value)} | {_cell(value.get('description', ''))} |"
            for field, value in schema.get("properties", {}).items()
        ]
        yield f"### REST {name}\n"
        yield f"{_cell(schema.get('description', '').partition(chr(10))[0])}\n"
        yield "\n".join(["| Field | Type | Meaning |", "|---|---|---|", *lines]) + "\n"


def _named(schema: Any, schemas: Mapping[str, Any], seen: frozenset[str] = frozenset()) -> Iterator[str]:
    """Yield the schemas that a schema refers to, directly or indirectly."""
    if isinstance(schema, list):
        for part in schema:
            yield from _named(part, schemas, seen)
    elif isinstance(schema, dict):
        name = str(schema.get("$ref", "")).rpartition("/")[2]
        if name and name not in seen:
            yield name
            yield from _named(schemas[name], schemas, seen | {name})
        for part in schema.values():
            yield from _named(part, schemas, seen)


def _schema_words(schema: Mapping[str, Any]) -> str:
    """Describe a schema."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#rest-{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_schema_words(part) for part in schema["anyOf"]))
    kind = schema.get("type", "anything")
    if kind == "array":
        return f"list of {_schema_words(schema.get('items', {}))}"
    if kind == "object":
        inner = schema.get("additionalProperties", True)
        return f"object of {_schema_words(inner if isinstance(inner, dict) else {})} by name"
    return "text" if kind == "string" else str(kind)
