"""Every field of JSON that verbs print and REST answers, with its type and description."""

from __future__ import annotations

import tempfile
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, is_dataclass
from enum import Enum
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin

from holdfast.advice.advice import AdviceReport
from holdfast.advice.codes import CodeExplanation
from holdfast.advice.cost_report import CostReport
from holdfast.advice.findings import LintReport
from holdfast.advice.plan_forecast import Forecast
from holdfast.at_rest.insight import HeavyKeys, KeyExplanation, KeyHistory, WhatIf
from holdfast.at_rest.model import KeyState, NamedOperator
from holdfast.changes.bootstrap import Bootstrapped, BootstrapPlan
from holdfast.changes.edit.editing import EditPlan
from holdfast.changes.edit.request import Audit
from holdfast.changes.edit.undoing import UndoPlan
from holdfast.changes.erase.certificate import Certificate, ErasePlan
from holdfast.changes.evolving import EvolutionPlan, Evolved
from holdfast.changes.offsets.moving import OffsetPlan, OffsetsMoved
from holdfast.changes.offsets.positions import Positions
from holdfast.changes.partitions import Rescaled, RescalePlan
from holdfast.changes.reshaping import Migrated, MigrationPlan
from holdfast.checkpoints.checkpoint import Batch, Checkpoint
from holdfast.checkpoints.record import Noting, WrittenBy
from holdfast.checkpoints.state.contents import StoreShares
from holdfast.checkpoints.verification.file_checks import Verification
from holdfast.config.policies import Leading
from holdfast.config.settings import ResolvedSetting
from holdfast.demo.show import DemoResult
from holdfast.demo.starter.writing import Starter
from holdfast.demo.tour.steps import Toured
from holdfast.engine.session.doctor import Check, ClusterExamination, Examination
from holdfast.formats.manifest import LabelChange, RecordedState, SavedFile
from holdfast.jobs.health import Health
from holdfast.jobs.loader import JobExplained
from holdfast.jobs.recovery import Prediction, RecoveryTimes
from holdfast.jobs.registry.client import JobDetails, JobStatus
from holdfast.jobs.reports import QuerySizing
from holdfast.jobs.trials.comparison import Compared
from holdfast.jobs.trials.drill import Drilled
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
    """A document, or a line, that a verb prints.

    Attributes:
        when: When it is this one.
        shapes: The dataclasses whose fields it has.
        own: Its other fields, with their types and descriptions.
    """

    when: str = ""
    shapes: tuple[type, ...] = ()
    own: Mapping[str, tuple[Any, str]] = field(default_factory=dict)

    def fields(self) -> dict[str, JsonField]:
        """All fields by name; the last one of a name counts."""
        found = {name: JsonField(name, kind, says) for name, (kind, says) in self.own.items()}
        inherited = {described.name: described for shape in self.shapes for described in json_fields(shape)}
        return inherited | found


@dataclass(frozen=True)
class StoppedSavepoint:
    """A savepoint of a query that was stopped.

    Attributes:
        query: The sink's name.
        taken: The savepoint.
        content: Whether row counts and digests of its states are `recorded`, or still `pending`.
    """

    query: str
    taken: Taken = field(metadata=json_spread())
    content: str = ""


@dataclass(frozen=True)
class WatchedSkew:
    """How the keys that a query watches were spread.

    Attributes:
        query: The sink's name.
        report: The report.
    """

    query: str
    report: SkewReport = field(metadata=json_spread())


DRY_RUN = {"dry_run": (bool, "Whether nothing was changed: with `--dry-run`.")}
EVENT = {"event": (str, "What has happened."), "text": (str, "That in a sentence.")}
BATCH = {
    "batch_id": (int, "The batch whose state it is."),
}
CONTENT = {
    "content": (str, "Whether row counts and digests of its states are `recorded`, or still `pending`.")
}
PLAN = "With `--dry-run`"
ERROR = Answer(
    "Where a verb fails",
    own={
        "error": (str, "The fact, in one sentence."),
        "kind": (str, "The kind of the error: see [Errors](errors.md)."),
        "exit_code": (int, "The exit code of the verb."),
        "code": (str | None, "The stable code of the error: see `holdfast explain CODE`."),
        "where": (str | None, "The file, setting or address that it is about."),
        "found": (str | None, "The value found."),
        "expected": (str | None, "The values allowed."),
        "hint": (str | None, "The next command or step."),
    },
)
SERVING = Answer(
    "Once it answers over HTTP",
    own={
        "event": (str, "`serving`."),
        "url": (str, "The address."),
        "home": (str, "The state home."),
        "warning": (str, "What is not safe about it; left out where nothing is."),
        "login": (
            str,
            "An address that opens one session of a browser, once; left out where none is needed.",
        ),
    },
)
STATE_DIFF = (
    Answer("Key by key", (StatesDifference,)),
    Answer("With `--files`", (Difference,)),
)


def plan_and_result(plan: type, result: type) -> tuple[Answer, Answer]:
    """The two answers of a verb that can be asked what it would do."""
    return Answer(PLAN, (plan,), DRY_RUN), Answer("Once it is done", (result,))


def changed(plan: type, verb: str) -> tuple[Answer, Answer]:
    """The answers of a verb that makes a savepoint of another one."""
    own = {
        verb: (str, "The savepoint that it was made of."),
        "change": (Audit, "What the manifest of the new savepoint says of the change."),
    }
    return Answer(PLAN, (plan,), DRY_RUN), Answer("Once it is done", (plan, Taken), own)


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
                    "The savepoint that each query would go on from, by its name.",
                ),
                "leading": (Leading | None, "Where the supervisor that leads is elected."),
                "settings": (list[ResolvedSetting], "Holdfast's own settings, and where each came from."),
            },
        ),
        Answer(
            "A line for each event, with its facts: those of `batch` and `recovered` are in "
            "[BatchProgress](#batchprogress) and [RecoveryTimes](#recoverytimes)",
            own=EVENT | {"job": (str, "The job.")},
        ),
        SERVING,
        Answer("Where it cannot answer over HTTP", own={"event": (str, "`not-served`."), **ERROR.own}),
    ),
    "serve": (SERVING,),
    "list": (Answer(own={"jobs": (list[JobStatus], "The jobs, the most recently started first.")}),),
    "status": (
        Answer(
            "Once",
            (JobDetails,),
            {
                "prediction": (
                    Prediction | None,
                    "How long the next recovery will take; null without a past.",
                ),
                "alerts": (list[Alert], "The alerts that fire."),
                "sizing": (
                    list[QuerySizing],
                    "What each query has and needs, and how its state grows.",
                ),
                "lag": (list[Lag], "How far each query is behind each partition of its topics."),
            },
        ),
        Answer("With `--watch`, a line when the state changes", (JobStatus,), EVENT),
        Answer("With `--watch`, a line for each batch", (BatchProgress,), EVENT),
        Answer("With `--watch`, a line for each alert: `alert` or `cleared`", (Alert,), EVENT),
    ),
    "stop": (
        Answer(
            shapes=(JobStatus,),
            own=DRY_RUN | {"savepoints": (list[StoppedSavepoint], "With `--savepoint`: one for each query.")},
        ),
    ),
    "cancel": (
        Answer(
            shapes=(JobStatus,),
            own=DRY_RUN | {"deletes_checkpoint": (bool, "Whether its checkpoint is deleted.")},
        ),
    ),
    "watch": (
        Answer(
            "A line when something was noted",
            (Noting,),
            {"event": (str, "`noted`."), "checkpoint": (str, "The checkpoint.")},
        ),
        Answer("A line when an alert begins or is over", (AlertEvent,), {"text": EVENT["text"]}),
        Answer(
            "With `--metrics-port`, once it answers",
            own={name: SERVING.own[name] for name in ("event", "url")},
        ),
        Answer(
            "A line when something fails and is tried again", own={"event": (str, "`error`."), **ERROR.own}
        ),
    ),
    "restore": plan_and_result(RestorePlan, Restored),
    "fork": (*plan_and_result(RestorePlan, Restored), Answer("With `--compare`", (Compared,))),
    "drill": (Answer(shapes=(Drilled,)),),
    "rescale": plan_and_result(RescalePlan, Rescaled),
    "offsets show": (Answer(shapes=(Positions,)),),
    "offsets set": plan_and_result(OffsetPlan, OffsetsMoved),
    "offsets skip": plan_and_result(OffsetPlan, OffsetsMoved),
    "offsets translate": plan_and_result(OffsetPlan, OffsetsMoved),
    "check": (
        Answer("Against a savepoint or checkpoint", (UpgradeReport,)),
        Answer("With `--spark`", (SparkReport,)),
    ),
    "check-spark": (Answer(shapes=(SparkReport,)),),
    "compare": (Answer(shapes=(Compared,)),),
    "evolve": plan_and_result(EvolutionPlan, Evolved),
    "lint": (Answer(shapes=(LintReport,)),),
    "cost": (Answer(shapes=(CostReport,)), Answer("of a plan", shapes=(Forecast,))),
    "advise": (Answer(shapes=(AdviceReport,)),),
    "explain": (Answer(shapes=(CodeExplanation,)),),
    "skew": (
        Answer(
            "Of a job",
            own={
                "job": (str, "The job."),
                "watched": (list[WatchedSkew], "A report for each query and watched name."),
            },
        ),
        Answer(
            "Of a checkpoint",
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
                "ttl_ms": (int | None, "The time to live that was asked about."),
                "watermark_ms": (int | None, "The delay of the watermark that was asked about."),
                "states": (list[WhatIf], "The states under that rule."),
            }
        ),
    ),
    "doctor": (
        Answer(
            shapes=(Examination,),
            own={
                "deep": (Check, "With `--deep`: what came of a small stateful query."),
                "cluster": (ClusterExamination, "With `--master`: what a session has found there."),
                "job": (JobExplained, "With a job: its settings."),
                "checkpoints": (
                    list[WrittenBy],
                    "Which Spark wrote the checkpoints that were named, and those of the home's jobs.",
                ),
                "unread": (list[dict[str, Any]], "Errors of checkpoints of jobs that could not be read."),
                "health": (list[Health], "The health of the checkpoints and savepoints that were named."),
            },
        ),
    ),
    "completion": (
        Answer(own={"shell": (str, "The shell."), "script": (str, "The script that it is to run.")}),
    ),
    "bench": (
        Answer(
            "In a checkout only; what a bench measures is its own",
            own={
                "machine": (dict[str, Any], "Where it was measured."),
                "benches": (list[dict[str, Any]], "The results."),
                "broken_off": (bool, "Whether it was broken off; the exit code is 130 then."),
                "so_far": (list[dict[str, Any]], "What was timed of the bench that was not at its end."),
            },
        ),
    ),
    "checkpoint show": (Answer(shapes=(Checkpoint,)),),
    "checkpoint history": (
        Answer(
            own={
                "checkpoint": (str, "The checkpoint."),
                "batches": (list[Batch], "Its committed batches, oldest first."),
            }
        ),
    ),
    "checkpoint verify": (Answer(shapes=(Verification,)),),
    "alerts list": (
        Answer(
            own={
                "alerts": (list[Alert], "The alerts that stand, the firing ones first."),
                "events": (list[NotedEvent], "What has happened to alerts, oldest first."),
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
        Answer("With `--to`", own=DRY_RUN | {"files": (list[str], "The files that are written.")}),
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
            own={"file": (str, "The file that was written."), "rows": (int, "How many rows it has.")},
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
            | {"usage": (CheckpointUsage | None, "Who may be using the checkpoint, if one was named.")},
        ),
        Answer("Once it is done", (Certificate,)),
    ),
    "state migrate": plan_and_result(MigrationPlan, Migrated),
    "state bootstrap": plan_and_result(BootstrapPlan, Bootstrapped),
    "savepoint take": (
        Answer(PLAN, (TakePlan,), DRY_RUN),
        Answer("Once it is taken", (Taken,), CONTENT),
        Answer("With `--every`, a line each time", (PeriodicTake,)),
    ),
    "savepoint list": (Answer(own={"savepoints": (list[Listed], "The savepoints, oldest first.")}),),
    "savepoint show": (
        Answer(
            "The manifest as it was written, and what was noted since",
            own={
                "format": (int, "The version of its format."),
                "holdfast": (str, "The version of Holdfast that took it."),
                "id": (str, "Its id."),
                "label": (str | None, "What a person calls it."),
                "created_ms": (int, "When it was taken, in epoch milliseconds."),
                "checkpoint": (str, "Where it was taken from."),
                "query_id": (str, "The query."),
                "batch": (int, "The committed batch that it holds."),
                "planned_ms": (int, "When that batch was planned, in epoch milliseconds."),
                "watermark_ms": (int | None, "The watermark of the next batch."),
                "spark_at_least": (str | None, "The lowest Spark that fixes these settings."),
                "provider": (str | None, "The class of the state store."),
                "confs": (dict[str, str], "The settings that the checkpoint has fixed."),
                "sources": (list[dict[str, Any]], "The query's sources, with their offsets."),
                "operators": (
                    list[dict[str, Any]],
                    "Its stateful operators, with stores, schemas and content.",
                ),
                "keyed": (dict[str, Any], "What is noted of Holdfast's keyed operators, by file."),
                "size_bytes": (int, "The bytes of all its files."),
                "new_bytes": (int, "The bytes that the catalog did not hold before."),
                "change": (Audit, "What an edit or an undo changed; left out where there was none."),
                "erasures": (list[dict[str, Any]], "What was erased from it; left out where nothing was."),
                "expired_dropped": (dict[str, Any], "What had expired and was dropped; left out otherwise."),
                "files": (list[SavedFile], "Its files."),
                **CONTENT,
                "states": (
                    list[RecordedState] | None,
                    "What was recorded of each state; null while pending.",
                ),
                "labels": (list[LabelChange], "The changes of its label, oldest first."),
            },
        ),
    ),
    "savepoint verify": (Answer(shapes=(Proof,)),),
    "savepoint digest": (
        Answer("Of one savepoint", (Digested,), DRY_RUN),
        Answer(
            "Of a directory",
            own=DRY_RUN | {"savepoints": (list[Digested], "Those whose digests were pending.")},
        ),
    ),
    "savepoint label": (Answer(shapes=(LabelChange,), own=DRY_RUN),),
    "savepoint diff": STATE_DIFF,
    "savepoint delete": (Answer(shapes=(Removal,), own=DRY_RUN),),
    "savepoint gc": (Answer(shapes=(Removal,), own=DRY_RUN),),
}


def answers_of_rest() -> dict[str, Any]:
    """The OpenAPI description of our own resources."""
    from holdfast.server.app import app

    with tempfile.TemporaryDirectory() as home:
        described: dict[str, Any] = app(Path(home)).openapi()
    return described


def shapes_in(kind: Any) -> Iterator[type]:
    """The dataclasses in a type."""
    if is_dataclass(kind):
        yield kind  # type: ignore[misc]
    for part in get_args(kind):
        yield from shapes_in(part)


def all_shapes() -> list[type]:
    """Every dataclass that is a part of an answer, by name."""
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
    """The page: verbs, then the objects within their answers, then REST."""
    titles = _titles()
    text = (
        "Every verb prints JSON with `--json`: one document, or one line for each event. Fields are only\n"
        "added.\n"
        "Times are epoch milliseconds and end in `_ms`, as durations in milliseconds do; sizes are bytes.\n"
    )
    parts = [
        "# JSON\n",
        note,
        text,
        _table(ERROR.when, ERROR.fields(), titles),
        "## Verbs\n",
    ]
    for verb, answers in sorted(VERBS.items()):
        parts.append(f"### holdfast {verb}\n")
        parts += [_table(answer.when, answer.fields(), titles) for answer in answers]
    parts.append("## Objects within answers\n")
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
    """A type in words."""
    origin, parts = get_origin(kind), [part for part in get_args(kind) if part is not ...]
    if kind in titles:
        return f"[{titles[kind]}](#{titles[kind].lower().replace(' ', '-')})"
    if isinstance(kind, type) and issubclass(kind, Enum):
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
    """Each resource with what it answers, then the fields of the answers."""
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
    yield "\n".join(["| Resource | What it is | Answer |", "|---|---|---|", *rows]) + "\n"
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
    """The schemas that a schema names, and those that these name."""
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
    """A schema in words."""
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
