"""No name that people depend on changes by accident."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from public_surface import WRITTEN, names_in_code, names_in_what_is_made, render

import holdfast as hf


@pytest.mark.slow
def test_every_public_name_is_the_one_that_was_promised() -> None:
    """A change that is meant: `python tests/support/public_surface.py`, and a line in the changelog."""
    found = json.loads(render(names_in_code()))
    promised = promised_names()
    assert promised.keys() - found.keys() == {"files", "json of verbs"}
    assert found == {part: promised[part] for part in found}


@pytest.mark.slow
def test_every_name_in_what_is_printed_and_written_is_the_one_that_was_promised() -> None:
    found = json.loads(render(names_in_what_is_made()))
    assert found == {part: promised_names()[part] for part in ("files", "json of verbs")}


def promised_names() -> dict[str, Any]:
    promised: dict[str, Any] = json.loads(WRITTEN.read_text(encoding="utf-8"))
    return promised


def _public_callables() -> Iterator[tuple[str, Any]]:
    for name in hf.__all__:
        value = getattr(hf, name)
        yield name, value
        for inner, part in vars(value).items() if inspect.isclass(value) else ():
            function = part.fget if isinstance(part, property) else getattr(part, "__func__", part)
            if not inner.startswith("_") and inspect.isfunction(function):
                yield f"{name}.{inner}", function


def test_every_public_name_is_documented_with_all_of_its_arguments() -> None:
    """Private functions need no docstring: these are the ones that ruff no longer asks for."""
    missing = []
    for name, value in _public_callables():
        text = inspect.getdoc(value) or ""
        arguments = inspect.signature(value).parameters if inspect.isfunction(value) else ()
        if not text:
            missing.append(name)
        elif "Args:" in text:
            described = re.findall(r"^ +\*{0,2}(\w+)\b", text.partition("Args:")[2], re.MULTILINE)
            missing += [f"{name}({each})" for each in arguments if each not in ("self", "cls", *described)]
    assert missing == []
