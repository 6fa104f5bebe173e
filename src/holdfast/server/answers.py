"""Responses of both APIs: JSON, and errors in the format of the path."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import Enum
from typing import Any, Final
from urllib.parse import parse_qs

from starlette.responses import Response

from holdfast.errors import HoldfastError, Internal, Invalid
from holdfast.extras import missing_package

OWN: Final = "/api/"
JSON_SUFFIX: Final = ".json"
RETRY_AFTER_S: Final = "5"


class Form(Enum):
    """The format of an answer, which depends on the client."""

    PAGE = "page"
    WORDS = "words"
    JSON = "json"


class Json(Response):
    """A JSON response with Flink's content type."""

    media_type = "application/json; charset=UTF-8"

    def render(self, content: Any) -> bytes:
        """Return the value as bytes."""
        return json.dumps(content, ensure_ascii=False, separators=(",", ":"), default=str).encode(
            "utf-8", "surrogatepass"
        )


def is_own(path: str) -> bool:
    """Return whether a path belongs to Holdfast's own resources and thus uses its error format."""
    return path.startswith(OWN) or path in ("/api", "/login", "/login/once", "/logout") or is_page(path)


def is_page(path: str) -> bool:
    """Return whether a path belongs to the dashboard."""
    return path in ("/", "/ui") or path.startswith("/ui/")


def form_of(path: str, headers: Mapping[str, str]) -> Form:
    """Return the format that a request's Accept header asks for."""
    wanted = {part.split(";")[0].strip().lower() for part in headers.get("accept", "").split(",")}
    if path.endswith(JSON_SUFFIX):
        return Form.JSON
    if "text/html" in wanted:
        return Form.PAGE
    return Form.JSON if "application/json" in wanted else Form.WORDS


def wants_page(path: str, headers: Mapping[str, str]) -> bool:
    """Return whether a request is for a page of the dashboard and not for its data."""
    return is_page(path) and form_of(path, headers) is Form.PAGE


def problem(path: str, error: HoldfastError) -> Json:
    """Return an error in the format of a path's resources."""
    code = error.http_status
    answer = Json(error.as_dict(), code) if is_own(path) else flink_problem(code, str(error))
    if code == 503:
        answer.headers["retry-after"] = RETRY_AFTER_S
    return answer


def refusal(
    path: str,
    status: int,
    kind: str,
    fact: str,
    hint: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Json:
    """Return a refusal for access or size, which has no error class of its own."""
    if is_own(path):
        facts = {"code": None, "where": path, "found": None, "expected": None, "hint": hint}
        answer = Json({"error": fact, "kind": kind, "exit_code": None, **facts}, status)
    else:
        answer = flink_problem(status, fact if hint is None else f"{fact}\nhint: {hint}")
    answer.headers.update(headers or {})
    return answer


def form_fields(body: bytes, most: int) -> dict[str, list[str]]:
    """Return the fields of a submitted form.

    Raises:
        Invalid: The form has more than `most` fields.
    """
    try:
        return parse_qs(body.decode("utf-8", "replace"), max_num_fields=most)
    except ValueError as error:
        raise Invalid(
            "the form has too many fields",
            code="HF-E2265",
            expected=f"at most {most} fields",
            hint="send a form with fewer fields, or use the resources below /api/v1",
        ) from error


def flink_problem(status: int, *texts: str) -> Json:
    """Return an error in Flink's format; an internal error has two entries."""
    if status == 500 and len(texts) == 1:
        texts = (
            "Internal server error.",
            f"<Exception on server side:\n{texts[0]}\nEnd of exception on server side>",
        )
    return Json({"errors": list(texts)}, status)


def as_error(error: Exception) -> HoldfastError:
    """Convert any exception to a `HoldfastError`."""
    if isinstance(error, HoldfastError):
        return error
    return missing_package(error) or Internal(
        "internal error",
        code="HF-E9016",
        found=type(error).__name__,
        hint="please report this, with the traceback in the log of the server",
    )
