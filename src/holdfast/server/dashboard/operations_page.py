"""Operations as the pages show them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from holdfast.jobs.registry.operation_log import Operation, OperationState
from holdfast.server.control_plane import ControlPlane
from holdfast.server.dashboard import number_format
from holdfast.server.dashboard.alerts_page import standing
from holdfast.server.dashboard.views import Health, OperationLine, OperationView, view_of

_HEALTH: Final = {
    OperationState.ASKED: Health.BUSY,
    OperationState.RUNNING: Health.BUSY,
    OperationState.COMPLETED: Health.OVER,
    OperationState.FAILED: Health.BAD,
}


def operation_lines(plane: ControlPlane, job: str, limit: int) -> tuple[OperationLine, ...]:
    """The newest operations of a job, the newest first."""
    newest = plane.operations.newest(job, limit)
    return tuple(operation_line(operation, plane.clock()) for operation in newest)


def operation_view(plane: ControlPlane, operation_id: str) -> OperationView:
    """One operation in full.

    Raises:
        NotFound: There is none.
    """
    operation = plane.operations.get(operation_id)
    firing = sum(alert.phase == "firing" for alert in standing(plane))
    return OperationView(
        plane.clock(), operation_line(operation, plane.clock()), operation.arguments, operation.result, firing
    )


def operation_line(operation: Operation, now_ms: int) -> OperationLine:
    """An operation in a list."""
    progress = operation.progress or {}
    began = operation.started_ms or operation.asked_ms
    health = _HEALTH[operation.state]
    if health is Health.OVER and _is_bad(operation):
        health = Health.WARN
    return view_of(
        OperationLine,
        operation,
        operation=operation.operation_id,
        about=_about(operation),
        state=operation.state.value,
        health=health,
        took_ms=(operation.ended_ms or now_ms) - began if operation.started_ms else None,
        done=progress.get("done"),
        total=progress.get("total"),
        what=progress.get("what"),
        outcome=None if operation.result is None else outcome(operation.verb, operation.result),
    )


def _is_bad(operation: Operation) -> bool:
    """Whether what came of it needs somebody's attention."""
    return operation.verb == "verify" and not (operation.result or {}).get("ok", True)


def _about(operation: Operation) -> str | None:
    given = operation.arguments
    if operation.verb == "diff":
        return f"{short_address(given['first'])} and {short_address(given['second'])}"
    if operation.verb == "dispose":
        return ", ".join(short_address(address) for address in given["savepoints"])
    if "savepoint" in given:
        return short_address(given["savepoint"])
    return given.get("label")


def outcome(verb: str, result: Mapping[str, Any]) -> str:
    """What came of an operation, in a sentence."""
    if verb in ("savepoint", "stop"):
        made = result.get("savepoints") or []
        told = ", ".join(
            f"batch {savepoint['batch']}, {number_format.size(savepoint['bytes'])}" for savepoint in made
        )
        return f"taken: {told}" if made else "stopped"
    if verb in ("restore", "fork"):
        return f"a checkpoint at {result.get('checkpoint')}"
    if verb == "verify":
        problems = result.get("problems") or []
        content = {"compared": "whole, its rows compared", "pending": "whole; its digests are pending"}
        whole = content.get(str(result.get("content")), "whole")
        return whole if result.get("ok") else f"damaged: {len(problems)} problems"
    if verb == "dispose":
        return "deleted"
    if verb == "diff":
        counted = {name: _sum(result, name) for name in ("added", "removed", "changed")}
        told = ", ".join(
            f"{number_format.count(number)} {name}" for name, number in counted.items() if number
        )
        return "the same" if result.get("same") else told or "different"
    return "done"


def _sum(result: Mapping[str, Any], name: str) -> int:
    return sum(state.get(name) or 0 for state in result.get("states") or ())


def short_address(address: str) -> str:
    """The last part of an address."""
    return address.rstrip("/").rpartition("/")[2]
