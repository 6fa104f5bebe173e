"""The OpenAPI description of our own resources, as it is served."""

from __future__ import annotations

from typing import Any, Final

from fastapi import FastAPI

_BEARER: Final = {
    "type": "http",
    "scheme": "bearer",
    "description": "Needed where the server was started with a token.",
}
# What does not fit is answered as every other wrong request is.
_NEVER: Final = "422"
_UNUSED: Final = ("HTTPValidationError", "ValidationError")


def describe(made: FastAPI) -> None:
    """Serve a description that says what is answered, and nothing that is not."""
    generated = made.openapi

    def described() -> dict[str, Any]:
        if made.openapi_schema is not None:
            return made.openapi_schema
        found = generated()
        for path in found["paths"].values():
            for operation in path.values():
                operation["responses"].pop(_NEVER, None)
        components = found.setdefault("components", {})
        for name in _UNUSED:
            components.get("schemas", {}).pop(name, None)
        components["securitySchemes"] = {"bearer": _BEARER}
        found["security"] = [{}, {"bearer": []}]
        made.openapi_schema = found
        return found

    made.openapi = described  # type: ignore[method-assign] # this is how FastAPI wants it done
