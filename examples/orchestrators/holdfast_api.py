"""A client of Holdfast's REST API for schedulers: it starts an operation and waits for its result.

It needs Python's standard library only, and no Holdfast where the scheduler runs. Each operation has an id
that follows from the scheduler's run, so a repeated task continues the operation that the first one started.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen


class OperationFailed(RuntimeError):
    """An operation that Holdfast refused, or that failed."""


class Holdfast:
    """The REST API of `holdfast serve` or of a job's supervisor.

    Args:
        url: Its address, such as `http://jobs.internal:8081`.
        token: The token of the server; None for a server on the same machine without one.
        timeout_s: How long to wait for an operation. It continues in the server after that.
    """

    def __init__(self, url: str, token: str | None = None, timeout_s: float = 3600) -> None:
        self.url = f"{url.rstrip('/')}/api/v1"
        self.token = token
        self.timeout_s = timeout_s

    def take_savepoint(self, job: str, run: str, label: str | None = None) -> list[str]:
        """Take a savepoint of each query of a job, and return their addresses."""
        result = self.operate(f"/jobs/{job}/savepoints", {"label": label}, run)
        return [savepoint["savepoint"] for savepoint in result["savepoints"]]

    def verify(self, savepoint: str, run: str) -> None:
        """Read every byte of a savepoint; raise if it is not as it was taken."""
        result = self.operate("/savepoints/verify", {"savepoint": savepoint}, run)
        if not result["ok"]:
            raise OperationFailed(f"{savepoint} is damaged: {json.dumps(result)}")

    def restart(self, job: str, run: str) -> None:
        """Replace the driver of a running job between two batches, with the job file as it is now."""
        self.operate(f"/jobs/{job}/restart", {}, run)

    def operate(self, path: str, body: Mapping[str, Any], run: str) -> Mapping[str, Any]:
        """Start an operation, or continue the one of an earlier try of the same run; return its result.

        Args:
            path: The resource that starts it.
            body: The request.
            run: What is the same for every try of a task, and different for every other task and run.
        """
        started = time.monotonic()
        operation = self._start(path, body, run)
        while operation["state"] not in {"completed", "failed"}:
            if time.monotonic() - started > self.timeout_s:
                raise TimeoutError(
                    f"operation {operation['operation_id']} has not ended; a retry waits for it"
                )
            time.sleep(0.5)
            operation = self._ask(f"/operations/{operation['operation_id']}")
        if operation["state"] == "failed":
            raise OperationFailed(_message(operation["error"]))
        result: Mapping[str, Any] = operation["result"]
        return result

    def _start(self, path: str, body: Mapping[str, Any], run: str) -> Mapping[str, Any]:
        """Start the operation of a run. After a failure in an earlier try it is a new one."""
        number = 0
        while True:
            key = uuid.uuid5(uuid.NAMESPACE_URL, f"{self.url}{path} {run} {number}").hex
            operation = self._ask(path, {**body, "operation": key})
            if operation["state"] != "failed":
                return operation
            number += 1

    def _ask(self, path: str, body: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
        headers = {"content-type": "application/json"}
        if self.token:
            headers["authorization"] = f"Bearer {self.token}"
        data = None if body is None else json.dumps(body).encode()
        try:
            with urlopen(Request(f"{self.url}{path}", data, headers), timeout=60) as answer:  # noqa: S310
                document: Mapping[str, Any] = json.load(answer)
                return document
        except HTTPError as error:
            raise OperationFailed(_message(json.load(error))) from error


def _message(error: Mapping[str, Any]) -> str:
    """Return an error as one line, with its code, what was found and expected, and the next step."""
    details = (
        f"{key}: {error[key]}" for key in ("where", "found", "expected", "hint", "code") if error.get(key)
    )
    return "; ".join((str(error["error"]), *details))
