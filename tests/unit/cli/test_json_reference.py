"""Every field of JSON is described, and what verbs print is what is described."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from typing import Any, get_args, get_origin

import public_surface
import pytest
from json_catalogue import ERROR, VERBS, Answer, all_shapes, answers_of_rest

from holdfast.json_shapes import JsonField, JsonShape, json_fields

WRITTEN: Mapping[str, Any] = json.loads(public_surface.WRITTEN.read_text(encoding="utf-8"))


def test_every_verb_with_json_is_in_the_reference() -> None:
    told = {
        words.removeprefix("holdfast ")
        for words, options in WRITTEN["command line"].items()
        if any(option.startswith("--json") for option in options)
    }
    assert told == set(VERBS)


@pytest.mark.parametrize("call", sorted(WRITTEN["json of verbs"]))
@pytest.mark.slow
def test_every_field_that_a_verb_prints_is_described(call: str) -> None:
    """What they print is read from real runs, which `test_public_surface` holds equal to this list."""
    answers = [*VERBS[verb_of(call)], ERROR]
    undescribed = [
        path
        for path in WRITTEN["json of verbs"][call]
        if not any(is_described(path, answer) for answer in answers)
    ]
    assert undescribed == []


def verb_of(call: str) -> str:
    words = call.split()
    return words[0] if words[0] in VERBS else " ".join(words[:2])


def is_described(path: str, answer: Answer) -> bool:
    """Whether a path such as `operators[].states[].rows` leads to a field of an answer."""
    name, *rest = path.replace("[]", "").split(".")
    described = answer.fields().get(name)
    return described is not None and leads_on(described.type, rest)


def leads_on(kind: Any, rest: list[str]) -> bool:
    if not rest or kind is Any:
        return True
    if is_dataclass(kind):
        fields = {described.name: described.type for described in json_fields(kind)}  # type: ignore[arg-type]
        return rest[0] in fields and leads_on(fields[rest[0]], rest[1:])
    parts = [part for part in get_args(kind) if part is not ...]
    if get_origin(kind) in (dict, Mapping):
        return leads_on(parts[1], rest[1:])
    return any(leads_on(part, rest) for part in parts)


@pytest.mark.slow
def test_every_field_has_a_description() -> None:
    shapes = {*all_shapes(), *declared_shapes()}
    assert [
        f"{shape.__name__}.{described.name}"
        for shape in shapes
        for described in json_fields(shape)
        if not described.description
    ] == []
    assert all(
        described.description
        for answers in VERBS.values()
        for answer in answers
        for described in answer.fields().values()
    )


def declared_shapes() -> Iterator[type]:
    for file in sorted(public_surface.SOURCE.rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        for owner in ast.walk(ast.parse(text if JsonShape.__name__ in text else "")):
            bases = owner.bases if isinstance(owner, ast.ClassDef) else ()
            if any(isinstance(base, ast.Name) and base.id == JsonShape.__name__ for base in bases):
                assert isinstance(owner, ast.ClassDef)
                yield public_surface.class_in(file, owner.name)


def test_every_field_that_verbs_write_out_is_described() -> None:
    """Of verbs that need Spark too: the names in what they hand to `emit_json`."""
    described = {
        name for answers in VERBS.values() for answer in answers for name in answer.fields()
    } | ERROR.fields().keys()
    written = {
        name
        for file in (public_surface.SOURCE / "cli").glob("*.py")
        for call in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call) and getattr(call.func, "attr", "") == "emit_json"
        for name in public_surface.literal_names(call)
    }
    assert written - described == set()


@pytest.mark.slow
def test_every_field_of_rest_has_a_description() -> None:
    schemas = answers_of_rest()["components"]["schemas"]
    assert [
        f"{name}.{field}"
        for name, schema in schemas.items()
        for field, value in schema.get("properties", {}).items()
        if not value.get("description")
    ] == []


def test_a_field_without_words_is_found() -> None:
    answer = Answer(own={"known": (dict[str, int], "A field."), "rows": (list[int], "Rows.")})
    assert isinstance(answer.fields()["known"], JsonField)
    assert is_described("known.anything", answer)
    assert is_described("rows[]", answer)
    assert not is_described("unknown", answer)
    assert not is_described("rows[].name", answer)
