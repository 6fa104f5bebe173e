"""The server next to a job: a separate process that is restarted if it dies, without effect on the job."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from holdfast.errors import HoldfastError, Internal, Unavailable
from holdfast.jobs.processes.protocol import Refused, ServerFailed
from holdfast.server.process.listening import listen
from holdfast.server.process.server_process import ServerProcess
from holdfast.server.server_settings import ServerSettings

_FIRST_PAUSE_S: Final = 0.5
_LONGEST_PAUSE_S: Final = 30.0
# A server that ran for this time was stable, so the next one starts without a longer wait.
_WELL_S: Final = 60.0
# Operations may take as long as a server waits for them, see `Serving.close_gently`.
_LAST_S: Final = 3700.0


class EmbeddedServer:
    """A server of a state home, in a separate process next to a job.

    Args:
        home: The state home.
        settings: The server's settings.
        failed: The callback for a server that cannot be started or has died; called on a separate thread.

    Raises:
        Conflict: The port is in use.
        Invalid: The address is not one of this machine.
    """

    def __init__(self, home: Path, settings: ServerSettings, failed: Callable[[HoldfastError], None]) -> None:
        self._listening: socket.socket = listen(settings)
        self.url = settings.url(int(self._listening.getsockname()[1]))
        self._home = home
        self._settings = settings
        self._failed = failed
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._server: ServerProcess | None = None
        self._keeper = threading.Thread(target=self._keep, name="holdfast-server", daemon=True)

    def start(self) -> None:
        """Start the server without waiting for it."""
        self._keeper.start()

    def close(self) -> None:
        """Stop the server after its operations are done."""
        self._closing.set()
        try:
            with self._lock:
                if self._server is not None:
                    self._server.close()
            self._keeper.join(_LAST_S)
        finally:
            with self._lock:
                if self._server is not None:
                    self._server.kill()
            self._listening.close()

    def _keep(self) -> None:
        pause = _FIRST_PAUSE_S
        while not self._closing.is_set():
            began = time.monotonic()
            if not self._serve():
                return
            if time.monotonic() - began > _WELL_S:
                pause = _FIRST_PAUSE_S
            self._closing.wait(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    def _serve(self) -> bool:
        """Serve until the server ends; return True if it is to be restarted."""
        server: ServerProcess | None = None
        why: HoldfastError | None = None
        again = True
        try:
            with self._lock:
                if self._closing.is_set():
                    return False
                self._server = server = ServerProcess(self._home, self._settings, self._listening)
            for message in server.messages():
                if isinstance(message, (Refused, ServerFailed)):
                    why, again = message.error, isinstance(message, ServerFailed)
        except Internal as error:  # a line that is not a message
            why = error
        except OSError as error:
            found = error.strerror or str(error)
            why = Unavailable(
                "the server cannot be started",
                code="HF-E5042",
                found=found,
                hint="no action is needed; the start is retried",
            )
        ending = self._collected(server)
        if self._closing.is_set():
            return False
        self._failed(
            why
            or Unavailable(
                "the server process ended unexpectedly and is restarted",
                code="HF-E5043",
                found=ending,
                hint="no action is needed; if the error occurs again, please report it",
            )
        )
        return again

    def _collected(self, server: ServerProcess | None) -> str:
        if server is None:
            return "no process"
        ending = server.reap()
        with self._lock:
            self._server = None
        return ending
