"""What a public function takes and returns has a public name, so that people can annotate with it."""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Any, get_args

import pytest
import python_catalogue

import holdfast as hf
from holdfast.advice.advice import Topic, TopicName
from holdfast.changes.reshaping import _NAMES, BackendName
from holdfast.config.backend import _BLOCK_COMPRESSIONS, PROFILES, BlockCodec, DiskProfile
from holdfast.engine.session.jars import EXTRAS, Extra

# Parts of public classes that Holdfast calls itself, which documentation does not show to people.
INTERNAL = {
    "CheckpointReport.external": "the parts of an address; `provider` and `database` are for people",
    "Sink.start": "the trigger OneBatch runs one batch again after a restore",
    "Sink.plan": "as for Sink.start",
}


@functools.cache
def imported(module: str) -> dict[str, tuple[str, str]]:
    """The names that a module imports, those for type checkers included, with where they come from."""
    tree = ast.parse(inspect.getsource(importlib.import_module(module)))
    return {
        alias.asname or alias.name: (node.module or "", alias.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


@functools.cache
def resolved(name: str, module: str) -> Any:
    """The value of a name in a module, or None for one that is not Holdfast's."""
    try:
        return getattr(importlib.import_module(module), name)
    except AttributeError:
        origin, own = imported(module).get(name, ("", ""))
        return resolved(own, origin) if origin.startswith("holdfast") else None


def classes_in(annotation: Any, module: str) -> Iterator[type]:
    """The classes of Holdfast in an annotation; an alias is followed."""
    if annotation is inspect.Signature.empty:
        return
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    for node in ast.walk(ast.parse(text, mode="eval")):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
            yield from classes_in(node.value, module)
        if isinstance(node, ast.Name):
            value = resolved(node.id, module)
            for part in (value, *getattr(value, "__args__", ())):
                if inspect.isclass(part) and part.__module__.partition(".")[0] == "holdfast":
                    yield part


def functions_of(value: Any) -> Iterator[tuple[str, Any]]:
    """A function, or the public methods and properties of a class, those it inherits from us included."""
    if inspect.isfunction(value):
        yield value.__name__, value
    for base in value.__mro__ if inspect.isclass(value) else ():
        for name, member in vars(base).items() if base.__module__.startswith("holdfast.") else ():
            function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
            if not name.startswith("_") and inspect.isfunction(function):
                yield f"{base.__name__}.{name}", inspect.unwrap(function)


def unnamed(values: list[Any]) -> Iterator[str]:
    """Each function with a class in its signature that is not among the public values."""
    for value in values:
        for name, function in functions_of(value):
            signature = inspect.signature(function)
            annotations = [signature.return_annotation]
            annotations += [parameter.annotation for parameter in signature.parameters.values()]
            for annotation in annotations if name not in INTERNAL else ():
                for kind in classes_in(annotation, function.__module__):
                    if kind not in values:
                        yield f"{name}: {kind.__module__}.{kind.__qualname__}"


def test_every_class_in_a_public_signature_has_a_public_name() -> None:
    values = [public.value for _, public in python_catalogue.public_names()]
    callables = [value for value in values if not isinstance(value, ModuleType)]
    assert sorted(set(unnamed(callables))) == []


def test_a_class_without_a_public_name_is_found() -> None:
    values = [public.value for _, public in python_catalogue.public_names()]
    callables = [value for value in values if inspect.isfunction(value) or inspect.isclass(value)]
    callables.remove(hf.LintReport)
    assert list(unnamed(callables)) == ["lint: holdfast.advice.findings.LintReport"]


def test_every_internal_part_is_there() -> None:
    values = [public.value for _, public in python_catalogue.public_names()]
    named = {name for value in values for name, _ in functions_of(value)}
    assert INTERNAL.keys() <= named


@pytest.mark.parametrize(
    ("typed", "accepted"),
    [
        (BackendName, _NAMES),
        (BlockCodec, _BLOCK_COMPRESSIONS),
        (DiskProfile, PROFILES),
        (Extra, EXTRAS),
        (TopicName, [topic.value for topic in Topic]),
    ],
)
def test_an_editor_offers_the_words_that_are_accepted(typed: Any, accepted: Iterable[str]) -> None:
    assert sorted(get_args(typed)) == sorted(accepted)
