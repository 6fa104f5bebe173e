"""Compare the plans of two queries, and derive the effect on the state of the first.

Spark compares an operator's state schema, but not its input. A new filter after a source, a changed watermark
delay or a different source directory is accepted without an error, although the state then has a different
meaning.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from typing import Final

from holdfast.formats.logs.notes import PlanSource, PlanStep, QueryPlan
from holdfast.model import Effect, PlanChange

# Since this release Spark continues in the state-checkpoint format that a checkpoint's commits have.
_KEEPS_FORMAT: Final = (4, 3)
_WORDS: Final = {
    "EventTimeWatermark": "watermark",
    "Filter": "filter",
    "Aggregate": "aggregation",
    "Deduplicate": "deduplication",
    "DeduplicateWithinWatermark": "deduplication",
    "Join": "join",
    "Project": "columns",
    "Sort": "order",
    "Union": "union",
}
# How fast a source is read, and where it would begin if it had no position yet.
_PACE: Final = frozenset(
    option.lower()
    for option in (
        "maxFilesPerTrigger",
        "maxBytesPerTrigger",
        "maxOffsetsPerTrigger",
        "minOffsetsPerTrigger",
        "maxTriggerDelay",
        "latestFirst",
        "maxFileAge",
        "maxCachedFiles",
        "discardCachedInputRatio",
        "minPartitions",
        "kafkaConsumer.pollTimeoutMs",
        "fetchOffset.numRetries",
        "fetchOffset.retryIntervalMs",
        "rowsPerSecond",
        "rampUpTime",
        "numPartitions",
    )
)
_START: Final = frozenset(
    option.lower()
    for option in (
        "startingOffsets",
        "startingOffsetsByTimestamp",
        "startingTimestamp",
        "startingVersion",
        "startTimestamp",
    )
)
_SOURCE_PATH: Final = re.compile(r"source (\S+), path")
_BEGUN: Final = "the query continues from the checkpoint's offsets; only its first start uses this option"
_FED: Final = "existing rows of state were computed without this change, and Spark does not detect it"
_WRITTEN: Final = "the step comes after all stateful operators"


def without_operators(changes: Sequence[PlanChange]) -> tuple[PlanChange, ...]:
    """Return changes of a plan whose stateful steps are not Spark operators, as affecting any state."""
    return tuple(replace(change, operator_id=None, affects=None) for change in changes)


def compare_plans(old: QueryPlan, new: QueryPlan) -> tuple[PlanChange, ...]:
    """Return every difference with its effect, sources first."""
    return (
        *_sources(old.sources, new.sources),
        *_steps(old.steps, new.steps),
        *_ends(old, new),
    )


def moved_sources(
    changes: Sequence[PlanChange], read_last: Callable[[str], Sequence[str]]
) -> tuple[PlanChange, ...]:
    """Return the changes, with file sources marked as failing if their new directory cannot work.

    At its start Spark requests the last batch again from each version 1 source, and fails if the directory
    does not contain the files of that batch.

    Args:
        changes: The result of `compare_plans`.
        read_last: Returns the files that the last batch read from a source, by its name.
    """
    return tuple(_moved(change, read_last) for change in changes)


def _moved(change: PlanChange, read_last: Callable[[str], Sequence[str]]) -> PlanChange:
    found = _SOURCE_PATH.fullmatch(change.what)
    if found is None or change.after is None or any(wildcard in change.after for wildcard in "*?[{"):
        return change
    folder = f"{_plain(change.after)}/"
    outside = [file for file in read_last(found[1]) if not _plain(file).startswith(folder)]
    if not outside:
        return change
    why = f"Spark expects {outside[0]} in it and fails: IllegalArgumentException: Wrong basePath"
    return replace(change, effect=Effect.FAILS, why=why)


def _plain(address: str) -> str:
    """Return a path without the optional `file:` prefix of a local path."""
    return address.removeprefix("file:").replace("///", "/", 1).rstrip("/")


def pinned_changes(fixed: Mapping[str, str], given: Mapping[str, str]) -> tuple[PlanChange, ...]:
    """Return settings that a checkpoint pins and that the new code sets differently."""
    return tuple(
        PlanChange(
            f"setting {key}",
            fixed[key],
            given[key],
            Effect.IGNORED,
            "the checkpoint pins this setting; the code's value is not used",
        )
        for key in sorted(fixed)
        if key in given and given[key].lower() != fixed[key].lower()
    )


def format_change(
    saved: int | None, given: int, *, adopted: bool = False, spark: tuple[int, int] = (4, 2)
) -> tuple[PlanChange, ...]:
    """Return the change of the state-checkpoint format; empty if it is the same.

    Args:
        saved: The format of the savepoint's state; None without state.
        given: The format that the new code requests.
        adopted: True if the launcher of the code uses the format of the checkpoint.
        spark: The release of Spark.
    """
    if saved is None or saved == given:
        return ()
    what = "state-checkpoint format"
    if spark >= _KEEPS_FORMAT:
        release = f"{spark[0]}.{spark[1]}"
        why = f"Spark {release} keeps the format of the checkpoint; the code's value is not used"
        return (PlanChange(what, str(saved), str(given), Effect.IGNORED, why),)
    error = "CANNOT_LOAD_STATE_STORE" if saved > given else "CANNOT_WRITE_STATE_STORE.CANNOT_COMMIT"
    why = (
        f"{error}: state must keep the format that it was written in; set spark.sql.streaming"
        f'.stateStore.checkpointFormatVersion="{saved}"'
    )
    if adopted:
        why = f"`holdfast run` keeps the format of the checkpoint; plain Spark would fail with {why}"
    effect = Effect.IGNORED if adopted else Effect.FAILS
    return (PlanChange(what, str(saved), str(given), effect, why),)


def _sources(old: Sequence[PlanSource], new: Sequence[PlanSource]) -> Iterator[PlanChange]:
    if sorted(map(_address, old)) == sorted(map(_address, new)) and _order(old) != _order(new):
        named = all(not source.name.isdigit() for source in (*old, *new))
        if not named:
            yield PlanChange(
                "source order",
                "; ".join(map(_address, old)),
                "; ".join(map(_address, new)),
                Effect.MEANING,
                "Spark identifies unnamed sources by their order: each gets the offsets of another one",
            )
            return
    before, after = ({source.name: source for source in some} for some in (old, new))
    for name in [*before, *(name for name in after if name not in before)]:
        yield from _source(name, before.get(name), after.get(name))


def _source(name: str, old: PlanSource | None, new: PlanSource | None) -> Iterator[PlanChange]:
    if old is None or new is None:
        why = "Spark rejects a changed number of sources unless all sources are named"
        shown = [None if source is None else _address(source) for source in (old, new)]
        yield PlanChange(f"source {name}", shown[0], shown[1], Effect.MEANING, why)
        return
    if old.kind.lower() != new.kind.lower():
        why = "a source of a different type cannot use these offsets"
        yield PlanChange(f"source {name}", _address(old), _address(new), Effect.MEANING, why)
        return
    before, after = ({key.lower(): value for key, value in one.options.items()} for one in (old, new))
    for key in sorted({*before, *after}):
        if before.get(key) != after.get(key):
            effect, why = _option(key)
            yield PlanChange(f"source {name}, {key}", before.get(key), after.get(key), effect, why)
    for column in [*old.columns, *(column for column in new.columns if column not in old.columns)]:
        was, is_ = old.columns.get(column), new.columns.get(column)
        if was != is_:
            effect = Effect.NONE if was is None else Effect.MEANING
            why = "an added column alone changes nothing" if was is None else _FED
            yield PlanChange(f"source {name}, column {column}", was, is_, effect, why)


def _option(key: str) -> tuple[Effect, str]:
    if key in _PACE:
        return Effect.NONE, "it only sets how fast the source is read"
    if key in _START:
        return Effect.IGNORED, _BEGUN
    return Effect.MEANING, "the offsets in the checkpoint refer to the data that was read before"


def _steps(old: Sequence[PlanStep], new: Sequence[PlanStep]) -> Iterator[PlanChange]:
    kinds: list[PlanStep] = []
    before, after = ([_class_of(step, kinds) for step in some] for some in (old, new))
    matcher = SequenceMatcher(None, before, after, autojunk=False)
    for tag, first, last, start, end in matcher.get_opcodes():
        if tag != "equal":
            yield from _paired(old, range(first, last), new, range(start, end))


def _class_of(step: PlanStep, known: list[PlanStep]) -> int:
    for at, other in enumerate(known):
        if other.same_as(step):
            return at
    known.append(step)
    return len(known) - 1


def _paired(
    old: Sequence[PlanStep], gone: range, new: Sequence[PlanStep], came: range
) -> Iterator[PlanChange]:
    left = list(came)
    for at in gone:
        partner = next((candidate for candidate in left if new[candidate].kind == old[at].kind), None)
        effect = _effect(old, at)
        if partner is not None:
            left.remove(partner)
            effect = max(effect, _effect(new, partner), key=_RANK.index)
        change = _step(old[at], None if partner is None else new[partner], effect)
        yield replace(change, operator_id=_operator(old, at), affects=_operators_above(old, at + 1))
    for at in left:
        change = _step(None, new[at], _effect(new, at))
        yield replace(change, operator_id=_operator(new, at), affects=_operators_above(old, gone.stop))


def _operator(steps: Sequence[PlanStep], at: int) -> int | None:
    """Return Spark's number of a stateful step: Spark counts them from the last step of the query."""
    return sum(step.stateful for step in steps[:at]) if steps[at].stateful else None


def _operators_above(steps: Sequence[PlanStep], end: int) -> tuple[int, ...]:
    """Return Spark's numbers of the stateful operators among the last steps, which the rows reach later."""
    return tuple(range(sum(step.stateful for step in steps[:end])))


_RANK: Final = (Effect.OUTPUT, Effect.MEANING)


def _effect(steps: Sequence[PlanStep], at: int) -> Effect:
    """Return the effect of a change of this step; after all state, only the output changes."""
    first = next((number for number, step in enumerate(steps) if step.stateful), len(steps))
    return Effect.OUTPUT if at < first else Effect.MEANING


def _step(old: PlanStep | None, new: PlanStep | None, effect: Effect) -> PlanChange:
    kind = (old or new).kind  # type: ignore[union-attr]  # one of them is there
    return PlanChange(
        _WORDS.get(kind, kind),
        None if old is None else old.text,
        None if new is None else new.text,
        effect,
        _WRITTEN if effect is Effect.OUTPUT else _FED,
    )


def _ends(old: QueryPlan, new: QueryPlan) -> Iterator[PlanChange]:
    if old.sink is not None and new.sink is not None:
        one, other = old.sink, new.sink
        if (one.kind, one.target) != (other.kind, other.target):
            why = "existing output stays in the old sink; the new sink gets the next batches"
            yield PlanChange(
                "sink", _place(one.kind, one.target), _place(other.kind, other.target), Effect.OUTPUT, why
            )
        if one.mode != other.mode:
            yield PlanChange("output mode", one.mode, other.mode, Effect.OUTPUT, "the state does not change")
    if old.trigger != new.trigger:
        yield PlanChange("trigger", old.trigger, new.trigger, Effect.NONE, "batches start at different times")


def _place(kind: str, target: str | None) -> str:
    return kind if target is None else f"{kind} {target}"


def _address(source: PlanSource) -> str:
    """Return the identity of a source: type and options, without rate limits and start positions."""
    told = [
        f"{key}={value}"
        for key, value in sorted((key.lower(), value) for key, value in source.options.items())
        if key not in _PACE and key not in _START
    ]
    return " ".join([source.kind.lower(), *told])


def _order(sources: Sequence[PlanSource]) -> list[str]:
    return [_address(source) for source in sources]
