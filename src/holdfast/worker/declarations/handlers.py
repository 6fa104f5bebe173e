"""The handlers of a processor class: which there are, and whether they fit the streams."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from holdfast.errors import Invalid
from holdfast.worker.declarations.base_classes import Keyed, KeyedTable
from holdfast.worker.declarations.declaration import accepts

# What follows `on_` in names that mean something else than a stream.
_NOT_STREAMS: Final = (
    "batch", "broadcast", "end", "event", "key", "restore", "start", "timer", "timers"
)  # fmt: skip
_INHERITED: Final = (Keyed.on_start, KeyedTable.combine)
_EVENT: Final = ("event", "state", "ctx")
ARGUMENTS: Final[Mapping[str, tuple[str, ...]]] = {
    "on_event": _EVENT,
    "on_key": ("key", "events", "state", "ctx"),
    "on_timer": ("timer", "state", "ctx"),
    "on_start": ("ctx",),
    "on_batch": ("events", "state"),
    "on_timers": ("timers", "state"),
    "combine": ("events",),
    "on_broadcast": ("row", "rows", "ctx"),
    "on_end": ("state", "ctx"),
    "merge": ("state", "part"),
    "on_restore": ("state", "ctx"),
}
KEYED: Final = ("on_event", "on_key", "on_timer", "on_start", "on_end", "merge", "on_restore")
TABLE: Final = ("on_batch", "on_timers", "combine")
_BOTH: Final = ("on_broadcast",)


def handlers_of(processor: object) -> dict[str, Callable[..., Any]]:
    """The `on_…` methods of a processor, `combine` and `merge`, by name; without those of the base class."""
    own = type(processor)
    names = [name for name in dir(own) if name.startswith("on_") or name in ("combine", "merge")]
    defined = [name for name in names if getattr(own, name) not in _INHERITED]
    return {name: getattr(processor, name) for name in defined if callable(getattr(processor, name))}


def stream_names(processor: object) -> tuple[str, ...]:
    """The streams that a processor has handlers for by name, in the order of their definition."""
    order: dict[str, None] = {}
    for base in reversed(type(processor).__mro__):
        order.update(dict.fromkeys(vars(base)))
    named = handlers_of(processor)
    return tuple(name[3:] for name in order if name in named and _is_stream(name))


def event_handlers(processor: object, streams: Sequence[str], *, table: bool) -> tuple[str, ...]:
    """Choose the method that takes each stream's events, in the order of the streams.

    Raises:
        Invalid: One is missing, there are two for one stream, one has no stream, or takes other
            arguments than it will be called with.
    """
    where = type(processor).__qualname__
    _check_streams(streams, where)
    present = handlers_of(processor)
    _check_family(present, where, table=table)
    named = [name for name in present if _is_stream(name)]
    if len(streams) > 1:
        chosen = _connected(present, named, streams, where)
        arguments = ARGUMENTS["on_batch"] if table else _EVENT
    else:
        chosen = _single(present, named, where, table=table)
        arguments = ARGUMENTS[chosen[0]]
    for name in chosen:
        _check_call(present[name], name, arguments, where, generator=not table)
    for name in ((TABLE if table else KEYED) + _BOTH)[1:]:
        if name in present and name not in chosen:
            generator = name in ("on_timer", "on_end")
            _check_call(present[name], name, ARGUMENTS[name], where, generator=generator)
    if "merge" in present:
        _check_merge(present, chosen, where)
    return chosen


def _check_merge(present: Mapping[str, Callable[..., Any]], chosen: Sequence[str], where: str) -> None:
    """Refuse a processor whose rows would depend on whether its keys are split."""
    if tuple(chosen) != ("on_event",):
        raise Invalid(
            "states are merged where the events of one stream are taken one by one",
            where=f"{where}.merge",
            found=", ".join(chosen),
            expected="on_event",
            hint="define on_event in place of the others, or leave merge out",
        )
    if inspect.isgeneratorfunction(present["on_event"]):
        raise no_rows("on_event", "a generator", f"{where}.on_event")


def no_rows(handler: str, found: str, where: str | None = None) -> Invalid:
    """Rows of a handler that would depend on how the events of a hot key were divided."""
    return Invalid(
        f"{handler} of a processor with merge gives no rows, whether keys are split or not",
        where=where,
        found=found,
        hint="give them in on_end, once a batch for each key that has events",
    )


def _is_stream(name: str) -> bool:
    return name.startswith("on_") and name[3:] not in _NOT_STREAMS


def _check_streams(streams: Sequence[str], where: str) -> None:
    if not streams:
        raise Invalid(
            "a processor needs a stream",
            where=where,
            hint="hand over a stream with events, as in hf.keyed(df, by=…)",
        )
    for name in streams:
        if len(streams) > 1 and name in _NOT_STREAMS:
            raise Invalid(
                "this name of a stream is taken by another handler",
                where=where,
                found=f'"{name}"',
                expected="a name other than " + ", ".join(_NOT_STREAMS),
                hint=f'give the stream another name: name="{name}s"',
            )
        if len(streams) > 1 and not name.isidentifier():
            raise Invalid(
                "no method can be named after this stream",
                where=where,
                found=repr(name),
                expected="letters, digits and underscores, not beginning with a digit",
                hint='give it such a name, as in name="orders"',
            )
        if list(streams).count(name) > 1:
            raise Invalid(
                "two streams have one name",
                where=where,
                found=f'"{name}" twice',
                hint="give one of them another with name=…",
            )


def _check_family(present: Mapping[str, object], where: str, *, table: bool) -> None:
    """Refuse handlers of the other base class: they would never be called."""
    strange = KEYED if table else TABLE
    for name in strange:
        if name in present:
            base, other = ("hf.KeyedTable", "hf.Keyed") if table else ("hf.Keyed", "hf.KeyedTable")
            raise Invalid(
                f"{name} is never called on a {base}",
                where=f"{where}.{name}",
                hint=f"inherit from {other}, or rename the method",
            )


def _connected(
    present: Mapping[str, object], named: Sequence[str], streams: Sequence[str], where: str
) -> tuple[str, ...]:
    wanted = tuple(f"on_{stream}" for stream in streams)
    for name in ("on_event", "on_key", "on_batch", "combine"):
        if name in present:
            raise Invalid(
                f"connected streams have a handler each, and {name} is of none",
                where=f"{where}.{name}",
                expected=", ".join(wanted),
                hint=f"rename {name} to {wanted[0]}, and define the others",
            )
    missing = [name for name in wanted if name not in present]
    superfluous = [name for name in named if name not in wanted]
    if missing or superfluous:
        raise Invalid(
            "handlers and streams do not match",
            where=where,
            found=", ".join(named) or "no handler",
            expected=", ".join(wanted),
            hint=" and ".join(
                [f"add {', '.join(missing)}"] * bool(missing)
                + [f"connect a stream for {', '.join(superfluous)}, or rename it"] * bool(superfluous)
            ),
        )
    return wanted


def _single(
    present: Mapping[str, object], named: Sequence[str], where: str, *, table: bool
) -> tuple[str, ...]:
    allowed = ("on_batch",) if table else ("on_event", "on_key")
    chosen = tuple(name for name in allowed if name in present)
    if len(chosen) > 1:
        raise Invalid(
            "a processor has on_event or on_key, not both",
            where=where,
            hint="on_key gets all events of a key at once, so what on_event does can go there",
        )
    if not chosen:
        hint = f"rename {named[0]}, or connect a second stream" if named else f"define {allowed[0]}"
        raise Invalid(
            "a processor needs a handler for events",
            where=where,
            found=", ".join(named) or "none",
            expected=" or ".join(_shape(name, ARGUMENTS[name]) for name in allowed),
            hint=hint,
        )
    if named:
        raise Invalid(
            "a handler has no stream",
            where=f"{where}.{named[0]}",
            found="one stream",
            expected=chosen[0],
            hint=f"connect a stream named {named[0][3:]}, or rename the method",
        )
    return chosen


def _check_call(
    method: Callable[..., Any], name: str, arguments: Sequence[str], where: str, *, generator: bool
) -> None:
    if not accepts(method, len(arguments)):
        raise Invalid(
            "a handler takes other arguments than it is called with",
            where=f"{where}.{name}",
            found=f"{name}{_signature(method)}",
            expected=_shape(name, arguments),
            hint=f"write def {_shape(name, arguments)}",
        )
    if inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method):
        raise Invalid("a handler cannot be async", where=f"{where}.{name}", hint="write def, without async")
    if not generator and inspect.isgeneratorfunction(method):
        raise Invalid(
            f"{name} cannot be a generator",
            where=f"{where}.{name}",
            hint="its body would never run"
            if name in ("on_start", "on_broadcast", "merge", "on_restore")
            else "return one pyarrow.Table, or None",
        )


def _signature(method: Callable[..., Any]) -> str:
    names = list(inspect.signature(method).parameters)
    return f"({', '.join(['self', *names])})"


def _shape(name: str, arguments: Sequence[str]) -> str:
    return f"{name}({', '.join(['self', *arguments])})"
