"""What a processor's code names, itself and in what it calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from inspect import getattr_static
from types import CodeType, FunctionType, ModuleType
from typing import Any


def names_any(handlers: Iterable[Callable[..., Any]], owner: type, words: frozenset[str]) -> bool:
    """Whether one of these words is a name, or a whole text, in the code of the handlers.

    Other methods of the class count where they are named, and functions of the same package and what a
    decorator has wrapped. What is reached in another way, as a function that the instance holds, is not seen.
    A handler that is not written in Python is said to name them all.

    Args:
        handlers: Methods of a processor.
        owner: Its class.
        words: What is looked for.
    """
    waiting: list[Any] = [getattr(each, "__func__", each) for each in handlers]
    if not all(isinstance(each, FunctionType) for each in waiting):
        return True
    seen: set[FunctionType] = set()
    while waiting:
        function = waiting.pop()
        if function in seen:
            continue
        seen.add(function)
        named = frozenset(_named(function.__code__))
        if named & words:
            return True
        waiting += _called(function, named, owner)
    return False


def _named(code: CodeType) -> Iterator[str]:
    """The names and texts in code, and in the functions that are made in it."""
    yield from code.co_names
    for each in code.co_consts:
        if isinstance(each, str):
            yield each
        elif isinstance(each, CodeType):
            yield from _named(each)


def _called(function: FunctionType, named: Iterable[str], owner: type) -> Iterator[FunctionType]:
    """The functions behind these names, as far as they can be told."""
    home = owner.__module__.partition(".")[0]
    yield from (each for each in map(_content, function.__closure__ or ()) if isinstance(each, FunctionType))
    around = [function.__globals__.get(name) for name in named]
    modules = [each for each in around if isinstance(each, ModuleType)]
    outside = [*around, *(getattr(module, name, None) for module in modules for name in named)]
    for each in outside:
        if isinstance(each, FunctionType) and each.__module__.partition(".")[0] == home:
            yield each
    for name in named:
        method = getattr_static(owner, name, None)
        method = method.fget if isinstance(method, property) else getattr(method, "__func__", method)
        if isinstance(method, FunctionType):
            yield method


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # a name that is not bound yet
        return None
