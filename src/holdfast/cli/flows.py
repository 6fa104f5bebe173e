"""Verbs that take one checkpoint, called for each flow of a declarative pipeline."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

import typer

import holdfast as hf
from holdfast.cli import next_step, output
from holdfast.cli.arguments import is_address
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.checkpoints import Flow

Verb = TypeVar("Verb", bound=Callable[..., None])
# Changes the arguments of a verb for one flow.
Adapt = Callable[[dict[str, Any], "Flow"], None]


def each_flow(argument: str, adapt: Adapt | None = None) -> Callable[[Verb], Verb]:
    """Return a decorator that calls a verb for each flow if its argument is the storage of a pipeline.

    The verb is called with the newest checkpoint of each flow. An error of one flow does not keep the verb
    from the others; the exit code is the highest of all calls. With --json one document has all results.

    Args:
        argument: The name of the verb's argument.
        adapt: Changes other arguments of the call for a flow.
    """

    def decorate(verb: Verb) -> Verb:
        @wraps(verb)
        def call(**given: Any) -> None:
            flows = flows_at(given[argument])
            if not flows:
                return verb(**given)
            results: list[dict[str, Any]] = []
            code = 0
            with next_step.silent():
                for number, flow in enumerate(flows):
                    asked = {**given, argument: flow.checkpoint}
                    if adapt is not None:
                        adapt(asked, flow)
                    if given["json"]:
                        with output.collected() as documents:
                            code = max(code, _run(verb, asked, flow))
                        results.append({**flow.as_dict(), "result": documents[-1] if documents else None})
                    else:
                        if number:
                            output.line()
                        show_flow(flow)
                        code = max(code, _run(verb, asked, flow))
            if given["json"]:
                output.emit_json({"pipeline": flows[0].storage, "flows": results})
            if code:
                raise typer.Exit(code)
            return None

        return cast("Verb", call)

    return decorate


def flows_at(given: str | None) -> tuple[Flow, ...]:
    """Return the flows of a pipeline's storage; none for any other argument of a verb."""
    if given is None or not is_address(given):
        return ()
    try:
        return hf.checkpoints.flows(given)
    except HoldfastError:
        return ()  # the verb reports the error in its own terms


def show_flow(flow: Flow) -> None:
    """Print the heading of a flow."""
    unstarted = "" if flow.started else ": no run since its full refresh"
    output.line(f"flow {flow.name} of table {flow.table}, version {flow.version}{unstarted}")


def _run(verb: Callable[..., None], given: dict[str, Any], flow: Flow) -> int:
    """Call a verb and return its exit code; an error is reported."""
    if not flow.started:
        return 0
    try:
        verb(**given)
    except HoldfastError as error:
        output.report_error(error, as_json=given["json"])
        return error.exit_code
    except typer.Exit as end:
        return end.exit_code
    return 0
