"""The page of the Python reference: every public name in groups, from signatures and docstrings."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from types import ModuleType
from typing import Any, Final

import holdfast as hf

# Each group with its names, in the order of the page.
_GROUPS: Final = """
Jobs:
    job Job jobs every available_now real_time no_restart fixed_delay exponential failure_rate
    recovery autoscale Checkpoint Memory RocksDB Redis Cassandra TiKV session configure state_jar seconds
    minutes hours days FlinkSettings Every AvailableNow RealTime TriggerArguments NoRestart
    FixedDelay Exponential FailureRate Recovery Autoscale
    SettingReport
Streams:
    windowed sessions dedupe join_within enrich running watermarked late_rows split_hot skew
    SplitStream WindowedStream
Keyed state:
    keyed Keyed KeyedTable StateTable value list map reducing aggregating Aggregate add least
    greatest ttl Ttl broadcast operate Operator union_list explain State ListState MapState
    ReducingState AggregatingState Context Event Timer BroadcastStream ProcessorExplanation
    KeyedStream
Sinks:
    sink Sink Promise BufferedSink ledger Ledger adopt without_repeats RepeatFilter
    committed_files QueryPlan BatchRecord SinkOwner Transaction PromiseLevel SinkBuilder
    DeltaSink
Watching:
    watch Watch guard Guard Alerts BatchProgress Alert AlertEvent MetricSample
State at rest:
    checkpoint OpenCheckpoint health Health state StatesAtRest StateRows checkpoints shared
    HeavyKeys KeyExplanation KeyHistory WhatIf StateEntry KeyState NamedOperator NamedState
    OperatorName
Changes:
    change Change migrate plan_migrate MigrationPlan Migrated evolve plan_evolve EvolutionPlan
    Evolved bootstrap Bootstrapped drop_expired edit plan_edit undo plan_undo erase plan_erase
    offsets plan_offsets move_offsets OffsetPlan OffsetsMoved ToOffset ToRecord ToVersion
    SkipRecords RenameTopic Translate SyncPoint StepsPlan ChangeReport EditPlan EditReport
    EditedRow UndoPlan UndoReport ErasePlan Certificate SearchReport LocationReport OffsetChange
    SourcePositions StateContent release plan_release Release ReplacedCheckpoint
Savepoints:
    savepoints drill DrillReport
Judging:
    check check_spark UpgradeReport compare lint cost forecast_cost Prices advise AdviceReport
    CostReport LintReport Finding CostForecast ComparisonReport SparkReport
Errors:
    HoldfastError Invalid NotFound Conflict Corrupt Unavailable Unsupported Failed Internal
    ForkWarning ObjectStoreWarning WatermarkWarning explain_code known_codes CodeExplanation
"""
_OPENING: Final = """\
Every public name, by what one does with it: `import holdfast as hf`. The examples run in the tests, in a
directory with the checkpoint `checkpoints/visits`, its savepoint `savepoints@daily`, the storage
`pipeline-storage` of a declarative pipeline, the checkpoint
`checkpoints/orders` of a query that reads the Kafka topics `orders` and `refunds`, and the stream `events`
with the columns `customer`, `drink`, `amount` and `ts`; those of `hf.jobs` with the running job `visits`.
"""
_SECTION: Final = re.compile(r"^(Args|Attributes|Returns|Yields|Raises|Example):$")
_ENTRY: Final = re.compile(r"^    (\*{0,2}\w[\w, ]*): (.*)$")
_WIDTH: Final = 100
_STARS: Final[Mapping[Any, str]] = {
    inspect.Parameter.VAR_POSITIONAL: "*",
    inspect.Parameter.VAR_KEYWORD: "**",
}


@dataclass(frozen=True, slots=True)
class PublicName:
    """A public name.

    Attributes:
        name: The name as it is written, with `hf.` before it.
        value: The function, class or module.
    """

    name: str
    value: Any

    @property
    def docstring(self) -> str:
        """Its docstring; empty where it has none of its own."""
        own = self.value.__doc__ or ""
        return inspect.cleandoc(own)

    @property
    def example(self) -> str | None:
        """The code of its example; None without one."""
        return dict(_sections(self.docstring)).get("Example")


def groups() -> dict[str, list[str]]:
    """Each group with its names."""
    found: dict[str, list[str]] = {}
    for line in _GROUPS.strip().splitlines():
        if line.endswith(":"):
            names = found.setdefault(line[:-1], [])
        else:
            names += line.split()
    return found


def public_names() -> Iterator[tuple[str, PublicName]]:
    """Every public name with its group, those of modules below their module."""
    for group, names in groups().items():
        for name in names:
            value = getattr(hf, name)
            yield group, PublicName(f"hf.{name}", value)
            if isinstance(value, ModuleType):
                for inner in value.__all__:
                    yield group, PublicName(f"hf.{name}.{inner}", getattr(value, inner))


def python_page(note: str) -> str:
    """The page."""
    parts = ["# Python\n", note, _OPENING]
    last = ""
    for group, public in public_names():
        if group != last:
            parts.append(f"## {group}\n")
            last = group
        parts.append(_entry(public))
    return "\n".join(parts)


def _entry(public: PublicName) -> str:
    lines = [f"### {public.name}\n"]
    signature = _signature(public)
    if signature is not None:
        lines.append(f"```text\n{signature}\n```\n")
    lines += [_section(name, text) for name, text in _sections(public.docstring)]
    if inspect.isclass(public.value):
        lines += _methods(public.value)
    return "\n".join(lines)


def _methods(kind: type) -> list[str]:
    """Return the methods and properties that a class defines itself, each with its first line."""
    rows = []
    for name, member in vars(kind).items():
        if name.startswith("_") or name == "as_dict":
            continue
        function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
        if not inspect.isfunction(function):
            continue
        first = inspect.cleandoc(function.__doc__ or "").partition("\n\n")[0]
        shown = name if isinstance(member, property) else f"{name}{_arguments(function, bound=True)}"
        rows.append(f"- `{shown}`: {' '.join(first.split())}")
    return ["\n".join(rows) + "\n"] if rows else []


def _arguments(function: Any, *, bound: bool) -> str:
    names = []
    for position, parameter in enumerate(inspect.signature(function).parameters.values()):
        if bound and position == 0 and parameter.name in ("self", "cls"):
            continue
        star = _STARS.get(parameter.kind, "")
        names.append(f"{star}{parameter.name}" + ("" if parameter.default is parameter.empty else "=…"))
    return f"({', '.join(names)})"


def _signature(public: PublicName) -> str | None:
    """Return the call with types and defaults; None of what nobody calls: a module, an error, an enum."""
    value = public.value
    if isinstance(value, ModuleType) or getattr(value, "_is_protocol", False):
        return None
    if inspect.isclass(value) and issubclass(value, (Exception, Enum, dict)):
        return None
    signature = inspect.signature(value)
    parameters = [_parameter(parameter) for parameter in signature.parameters.values()]
    kinds = [parameter.kind for parameter in signature.parameters.values()]
    if inspect.Parameter.KEYWORD_ONLY in kinds and inspect.Parameter.VAR_POSITIONAL not in kinds:
        parameters.insert(kinds.index(inspect.Parameter.KEYWORD_ONLY), "*")
    gives = signature.return_annotation
    arrow = "" if inspect.isclass(value) or gives is signature.empty else f" -> {_type(gives)}"
    short = f"{public.name}({', '.join(parameters)}){arrow}"
    if len(short) <= _WIDTH:
        return short
    inner = "".join(f"    {parameter},\n" for parameter in parameters)
    return f"{public.name}(\n{inner}){arrow}"


def _parameter(parameter: inspect.Parameter) -> str:
    star = _STARS.get(parameter.kind, "")
    text = f"{star}{parameter.name}"
    typed = parameter.annotation is not parameter.empty
    if typed:
        text += f": {_type(parameter.annotation)}"
    if parameter.default is parameter.empty:
        return text
    equals = " = " if typed else "="
    return text + equals + _default(parameter.default)


def _default(value: Any) -> str:
    if inspect.isfunction(value) or inspect.isclass(value):
        return str(value.__name__)
    text = repr(value)
    return "…" if text.startswith("<") or " object at " in text else text


def _type(annotation: Any) -> str:
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return re.sub(r"\b(?:[a-z_]+\.)+(?=[A-Z])", "", text).strip("'")


def _sections(docstring: str) -> list[tuple[str, str]]:
    """Return the parts of a docstring: the text before the first section under an empty name."""
    sections: list[tuple[str, list[str]]] = [("", [])]
    for line in docstring.splitlines():
        heading = _SECTION.match(line)
        if heading is None:
            sections[-1][1].append(line)
        else:
            sections.append((heading[1], []))
    return [
        (name, textwrap.dedent("\n".join(lines)).strip() if name == "Example" else "\n".join(lines).rstrip())
        for name, lines in sections
    ]


def _section(name: str, text: str) -> str:
    if not name:
        return f"{text.strip()}\n"
    if name == "Example":
        return f"```python\n{text.strip()}\n```\n"
    entries: list[str] = []
    for line in text.splitlines():
        entry = _ENTRY.match(line)
        if entry is not None:
            entries.append(f"- `{entry[1]}`: {entry[2]}")
        elif line.strip() and entries:
            entries[-1] += f" {line.strip()}"
        elif line.strip():
            entries.append(line.strip())
    title = {"Args": "Arguments", "Raises": "Raises", "Attributes": "Attributes"}.get(name, name)
    return f"**{title}**\n\n" + "\n".join(entries) + "\n"
