"""The models of Holdfast's own resources, and their OpenAPI description."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import is_dataclass
from enum import Enum
from types import UnionType, new_class
from typing import Annotated, Any, Final, Union, get_args, get_origin

from fastapi import FastAPI
from pydantic import BaseModel, ConfigDict, Field

from holdfast import model
from holdfast.checkpoints import checkpoint
from holdfast.jobs import recovery
from holdfast.jobs.registry.client import JobDetails, JobStatus
from holdfast.jobs.registry.registry import Attempt
from holdfast.json_shapes import json_fields

_MODELS: Final[dict[type, type[BaseModel]]] = {}
_PROBLEM: Final = "Problem"


class Shape(BaseModel):
    """The immutable base class of all response models.

    `class JobBody(Shape, of=JobStatus, schema="Job")` has the fields of the JSON of `JobStatus` and its own
    fields. Its name in the OpenAPI document is `Job`; without `schema`, the name is that of the class.
    """

    model_config = ConfigDict(frozen=True)

    def __init_subclass__(cls, *, of: type | None = None, schema: str | None = None, **rest: Any) -> None:
        """Name the model after `schema`, and add the fields of `of`, before pydantic collects the fields."""
        super().__init_subclass__(**rest)
        if schema is not None:
            cls.__name__ = cls.__qualname__ = schema
        if of is None:
            return
        own = dict(cls.__annotations__)
        cls.__annotations__.clear()
        cls.__annotations__.update({name: kind for name, kind in _annotations(of).items() if name not in own})
        cls.__annotations__.update(own)
        _MODELS[of] = cls


class Measured(Shape):
    """The base class of models that also pass on unknown fields, such as new measurements."""

    model_config = ConfigDict(frozen=True, extra="allow")


def _annotations(shape: type) -> dict[str, Any]:
    return {
        field.name: Annotated[
            _type_of(field.type),
            Field(description=field.description or None),
        ]
        for field in json_fields(shape)
    }


def _type_of(kind: Any) -> Any:
    """Return the JSON type for a Python type."""
    origin, parts = get_origin(kind), get_args(kind)
    if is_dataclass(kind):
        return _model_of(kind)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return str
    if origin in (Union, UnionType):
        return Union[tuple(map(_type_of, parts))]  # noqa: UP007 - a dynamic number of types
    if origin in (tuple, list):
        return list[tuple(_type_of(part) for part in parts if part is not ...)]  # type: ignore[misc]
    if origin in (dict, Mapping):
        return dict[parts[0], _type_of(parts[1])]  # type: ignore[valid-type,misc]
    return kind


def _model_of(shape: Any) -> type[BaseModel]:
    """Return the model of a dataclass: the declared one, or a generated one of the same name."""
    if shape not in _MODELS:
        about = (shape.__doc__ or "").partition("\n")[0]
        new_class(shape.__name__, (Shape,), {"of": shape}, lambda names: names.update(__doc__=about))
    return _MODELS[shape]


class ErrorBody(Shape, schema=_PROBLEM):
    """An error, with the same fields as on the command line."""

    error: str = Field(description="The fact, in one sentence.")
    kind: str = Field(
        description="The class of the error, with the next step: `invalid` fix the request, `not-found` check"
        " the address, `conflict` plan again, `unavailable` try again, `corrupt` restore,"
        " `unsupported` change version or feature, `failed` fix the job, `internal` report a bug;"
        " `unauthorized` send a token."
    )
    exit_code: int | None = Field(description="The exit code that the command line would return.")
    code: str | None = Field(description="The stable code of the error; `holdfast explain CODE` explains it.")
    where: str | None = Field(description="The file, setting or address that it is about.")
    found: str | None = Field(description="The value found.")
    expected: str | None = Field(description="The values allowed.")
    hint: str | None = Field(description="The next command or step.")


class JobBody(Shape, of=JobStatus, schema="Job"):
    """A job of the state home."""


class Jobs(Shape):
    """All jobs, the most recently started first."""

    jobs: list[JobBody] = Field(description="The jobs.")


class Query(Shape, of=model.QueryStarted):
    """A query of a job, as its newest driver started it."""


class FailureBody(Measured, of=model.Failure, schema="Failure"):
    """The reason why a driver ended."""


class AttemptBody(Measured, of=Attempt, schema="Attempt"):
    """One driver of a job, from its start to its end."""


class KeyedStateBody(Shape, of=model.KeyedState, schema="KeyedState"):
    """A state of a keyed operator after a batch."""


class KeyedProgressBody(Shape, of=model.KeyedProgress, schema="KeyedProgress"):
    """The metrics of a keyed operator in one batch; an unknown total is null."""


class OperatorProgressBody(Measured, of=model.OperatorProgress, schema="OperatorProgress"):
    """The metrics of a stateful operator in one batch."""


class HeavyKeyBody(Shape, of=model.HeavyKey, schema="HeavyKey"):
    """A key among the most frequent ones."""


class Skew(Shape, of=model.SkewReport):
    """The distribution of rows over their keys."""


class BatchBody(Measured, of=model.BatchProgress, schema="Batch"):
    """A committed batch, as the driver reported it."""


class Batches(Shape):
    """Batches, oldest first."""

    batches: list[BatchBody] = Field(description="The batches.")


class SavepointNoteBody(Shape, of=model.SavepointNote, schema="SavepointNote"):
    """The result of a savepoint that a supervisor tried to take of its job."""


class RecoveryBody(Shape, of=recovery.RecoveryTimes, schema="Recovery"):
    """The phases of a job's recovery."""


class JobDetailsBody(JobBody, of=JobDetails, schema="JobDetails"):
    """All data about one job."""


class Asked(Shape):
    """A job to which a request was sent; the job handles it after this answer."""

    job: str = Field(description="The job's name.")
    asked: str = Field(description="`stop` or `cancel`.")


class CheckpointOperator(Measured, of=checkpoint.StatefulOperator):
    """A stateful operator of a checkpoint."""


class CheckpointBody(Shape, of=checkpoint.CheckpointReport, schema="Checkpoint"):
    """A query's checkpoint at its newest committed batch, read from its files."""


class BatchFailureBody(Shape, of=checkpoint.BatchFailure, schema="BatchFailure"):
    """A driver that failed before a batch was committed."""


class BatchFiles(Shape, of=checkpoint.CommittedBatch):
    """The files that a committed batch added to a checkpoint."""

    size_bytes: int = Field(description="The bytes of state after the batch.")


class CheckpointHistory(Shape):
    """The committed batches in a checkpoint, oldest first."""

    checkpoint: str = Field(description="The checkpoint's address.")
    batches: list[BatchFiles] = Field(description="The batches.")


class WatchedSkew(Skew):
    """The distribution of a query's rows over their keys."""

    query: str = Field(description="The sink's name.")


class JobSkew(Shape):
    """The key skew in the newest batches of a job."""

    reports: list[WatchedSkew] = Field(description="A report for each query and watched name.")


_BEARER: Final = {
    "type": "http",
    "scheme": "bearer",
    "description": "Required if the server was started with a token.",
}
# Invalid input is answered like every other invalid request.
_NEVER: Final = "422"
_UNUSED: Final = ("HTTPValidationError", "ValidationError")
_SCHEMAS: Final = "#/components/schemas"


def problems(descriptions: Mapping[int, str]) -> dict[int | str, dict[str, Any]]:
    """Return the descriptions of error codes for the OpenAPI document.

    Otherwise FastAPI would create an unused validator for each code of each resource, which takes half of the
    server's start time.
    """
    content = {"application/json": {"schema": {"$ref": f"{_SCHEMAS}/{_PROBLEM}"}}}
    return {code: {"description": text, "content": content} for code, text in descriptions.items()}


def describe(made: FastAPI) -> None:
    """Serve an OpenAPI document that lists only the declared answers."""
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
        schema = ErrorBody.model_json_schema(mode="serialization", ref_template=_SCHEMAS + "/{model}")
        schemas = {**components.get("schemas", {}), _PROBLEM: schema}
        components["schemas"] = dict(sorted(schemas.items()))
        components["securitySchemes"] = {"bearer": _BEARER}
        description["security"] = [{}, {"bearer": []}]
        made.openapi_schema = description
        return description

    made.openapi = described  # type: ignore[method-assign] # FastAPI's documented way
