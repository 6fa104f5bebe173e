"""A process that tells its events as lines of JSON, and what it has told so far."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from running_job import until


class TellingProcess:
    """Starts a program and listens to it."""

    def __init__(self, command: Sequence[str], environ: Mapping[str, str] | None = None) -> None:
        self.process = subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True)
        self.events: list[dict[str, Any]] = []
        self._reader = threading.Thread(target=self._listen, daemon=True)
        self._reader.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.events.append(json.loads(line))

    def heard(self, kind: str) -> list[dict[str, Any]]:
        return [each for each in list(self.events) if each["event"] == kind]

    def await_event(self, kind: str, count: int = 1) -> dict[str, Any]:
        """Wait for the `count`-th event of a kind; the end of the process ends the wait."""

        def heard() -> bool:
            silent = not self._reader.is_alive()
            if len(self.heard(kind)) >= count:
                return True
            ended = f"it ended with {self.process.poll()} before event {kind} number {count}: {self.events}"
            assert not silent, ended
            return False

        until(heard, f"event {kind} number {count} in {self.events}")
        return self.heard(kind)[count - 1]

    def close_pipe(self) -> None:
        """Read to the end, which is there once nobody has the pipe any more."""
        self._reader.join()
        if self.process.stdout is not None:
            self.process.stdout.close()
