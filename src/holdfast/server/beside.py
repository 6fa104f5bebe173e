"""The server beside a job: it is loaded and run on a thread, and the job goes on whatever becomes of it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast.errors import HoldfastError
from holdfast.jobs.aside import error_of, give_way
from holdfast.server.listening import listen
from holdfast.server.settings import ServerSettings

if TYPE_CHECKING:
    from holdfast.server.serving import Serving

_END_S: Final = 10.0


class Beside:
    """Serves a state home while a job runs.

    Args:
        home: The state home.
        settings: How it is reached.
        failed: Called where the server cannot be loaded or started; on a thread of its own.

    Raises:
        Conflict: The port is taken.
        Invalid: The address is none of this machine's.
    """

    def __init__(self, home: Path, settings: ServerSettings, failed: Callable[[HoldfastError], None]) -> None:
        self._listening: socket.socket = listen(settings)
        self.url = settings.url(int(self._listening.getsockname()[1]))
        self._home = home
        self._settings = settings
        self._failed = failed
        self._serving: Serving | None = None
        self._loader = threading.Thread(target=self._load, name="holdfast-server-start", daemon=True)

    def start(self) -> None:
        """Begin; returns at once."""
        self._loader.start()

    def close(self) -> None:
        """End; what was asked for is done first, and told to who asks."""
        self._loader.join(_END_S)
        if self._serving is not None:
            self._serving.close_gently()
        self._listening.close()

    def _load(self) -> None:
        give_way()
        try:
            from holdfast.server.serving import Serving  # noqa: PLC0415 - takes a second, which no job waits for

            self._serving = Serving(self._home, self._settings, self._listening)
            self._serving.start()
        except Exception as error:  # whatever it is, the job must not learn of it
            self._failed(error_of(error))
