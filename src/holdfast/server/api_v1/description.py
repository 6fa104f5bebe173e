"""The OpenAPI description of our own resources, as it is served."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from fastapi import FastAPI

from holdfast.server.api_v1.models import Problem

_BEARER: Final = {
    "type": "http",
    "scheme": "bearer",
    "description": "Needed where the server was started with a token.",
}
# What does not fit is answered as every other wrong request is.
_NEVER: Final = "422"
_UNUSED: Final = ("HTTPValidationError", "ValidationError")
_SCHEMAS: Final = "#/components/schemas"


def problems(descriptions: Mapping[int, str]) -> dict[int | str, dict[str, Any]]:
    """What is wrong where one of these codes is answered, for the description alone.

    FastAPI would make a validator for each code of each resource, though nothing validates them: half of the
    time that the server takes to start.
    """
    content = {"application/json": {"schema": {"$ref": f"{_SCHEMAS}/{Problem.__name__}"}}}
    return {code: {"description": text, "content": content} for code, text in descriptions.items()}


def describe(made: FastAPI) -> None:
    """Serve a description that says what is answered, and nothing that is not."""
    generated = made.openapi

    def described() -> dict[str, Any]:
        if made.openapi_schema is not None:
            return made.openapi_schema
        description = generated()
        for path in description["paths"].values():
            for operation in path.values():
                operation["responses"].pop(_NEVER, None)
        components = description.setdefault("components", {})
        for name in _UNUSED:
            components.get("schemas", {}).pop(name, None)
        schema = Problem.model_json_schema(mode="serialization", ref_template=_SCHEMAS + "/{model}")
        schemas = {**components.get("schemas", {}), Problem.__name__: schema}
        components["schemas"] = dict(sorted(schemas.items()))
        components["securitySchemes"] = {"bearer": _BEARER}
        description["security"] = [{}, {"bearer": []}]
        made.openapi_schema = description
        return description

    made.openapi = described  # type: ignore[method-assign] # this is how FastAPI wants it done
