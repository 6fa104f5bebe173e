"""What a processor's code names, itself and in what it calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any


def names_any(handlers: Iterable[Callable[..., Any]], owner: type, words: frozenset[str]) -> bool:
    """Whether one of these words is a name, or a whole text, in the code of the handlers.

    What they call by name counts too: methods of the class and its bases, functions, and what a decorator
    has wrapped; of another package's functions only the code itself. What is reached in another way, as a
    function that the instance holds, is not seen. A handler that is not written in Python is said to name
    them all.

    Args:
        handlers: Methods of a processor.
        owner: Its class.
        words: What is looked for.
    """
    waiting: list[Any] = [getattr(handler, "__func__", handler) for handler in handlers]
    if not all(isinstance(function, FunctionType) for function in waiting):
        return True
    homes = {_package(base) for base in owner.__mro__}
    seen: set[FunctionType] = set()
    while waiting:
        function = waiting.pop()
        if function in seen:
            continue
        seen.add(function)
        named = frozenset(_named(function.__code__))
        if named & words:
            return True
        if _package(function) in homes:
            waiting += _called(function, named, owner)
    return False


def _package(thing: Any) -> str:
    return str(thing.__module__).partition(".")[0]


def _named(code: CodeType) -> Iterator[str]:
    """The names and texts in code, and in the functions that are made in it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, str):
            yield constant
        elif isinstance(constant, CodeType):
            yield from _named(constant)


def _called(function: FunctionType, named: Iterable[str], owner: type) -> Iterator[FunctionType]:
    """The functions behind these names, as far as they can be told."""
    around = [function.__globals__.get(name) for name in named]
    modules = [thing for thing in around if isinstance(thing, ModuleType)]
    members = [vars(base).get(name) for base in owner.__mro__ for name in named]
    reachable = [
        *map(_content, function.__closure__ or ()),
        *around,
        *(vars(module).get(name) for module in modules for name in named),
        *(
            member.fget if isinstance(member, property) else getattr(member, "__func__", member)
            for member in members
        ),
    ]
    yield from (thing for thing in reachable if isinstance(thing, FunctionType))


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # a name that is not bound yet
        return None
