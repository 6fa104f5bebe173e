"""A server on a separate thread, with the executor of its operations."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import uvicorn
from fastapi import FastAPI

from holdfast.clock import now_ms
from holdfast.errors import Invalid
from holdfast.jobs.background import give_way
from holdfast.jobs.operation_executor import OperationExecutor
from holdfast.jobs.plain_watch import PlainWatch
from holdfast.jobs.registry.served_addresses import ServedAddresses
from holdfast.jobs.state_home import StateHome
from holdfast.server.app import app
from holdfast.server.control_plane import ControlPlane
from holdfast.server.process.connections import LARGEST_HEAD, Acceptor, Bounds, Connection, bounds
from holdfast.server.server_settings import ServerSettings

_START_S: Final = 15.0
_END_S: Final = 5
_IDLE_S: Final = 30
_LAST_S: Final = 3600.0
_HEARD_S: Final = 10.0
_LOOK_S: Final = 0.1


class Serving:
    """A server of a state home on a low-priority thread.

    Args:
        home: The state home.
        settings: The server's settings.
        listening: The socket from `listen` for these settings.
        within: The limits of connections; by default derived from the number of files that this process may
            open.

    Raises:
        Invalid: The certificate cannot be used.
    """

    def __init__(
        self,
        home: Path,
        settings: ServerSettings,
        listening: socket.socket,
        within: Bounds | None = None,
    ) -> None:
        self._socket = listening
        self.port = int(self._socket.getsockname()[1])
        self.url = settings.url(self.port)
        try:
            made = app(home, settings)
            self._server = _Server(_config(made, settings), within or bounds())
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            self._socket.close()
            raise Invalid(
                "the server cannot be set up",
                code="HF-E2278",
                where=self.url,
                found=str(error),
                hint="give a certificate chain with --tls-cert and its key with --tls-key, both as PEM",
            ) from error
        self._served = ServedAddresses(home, settings.checkpoints)
        self._executor = OperationExecutor(StateHome(home), now_ms)
        self._plane: ControlPlane = made.state.plane
        self._plane.wake = self._executor.wake
        self._watch = PlainWatch(self._plane.control, home, now_ms) if settings.checkpoints else None
        self._thread = threading.Thread(target=self._run, name="holdfast-server", daemon=True)

    def start(self) -> None:
        """Start answering requests."""
        self._served.publish()
        self._executor.start()
        self._thread.start()
        self._server.answers.wait(_START_S)
        if self._watch is not None:
            self._watch.start()

    def close_gently(self) -> None:
        """Finish the requested operations, give clients some seconds to read the results, then stop.

        For example, the savepoint of a job that is stopped with one is taken after the job has ended.
        """
        self._executor.settle(_LAST_S)
        deadline = time.monotonic() + _HEARD_S
        since = now_ms() - int(_HEARD_S * 1000)
        while time.monotonic() < deadline:
            if set(self._executor.ended_since(since)) <= self._plane.told:
                break
            time.sleep(_LOOK_S)
        self.close()

    def close(self) -> None:
        """Stop the server; running requests have a few seconds to end."""
        self._served.withdraw()
        if self._watch is not None:
            self._watch.close()
        self._executor.close()
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join(2 * _END_S)
        with suppress(OSError):
            self._socket.close()

    def _run(self) -> None:
        give_way()
        asyncio.run(self._server.serve(sockets=[self._socket]))


class _Server(uvicorn.Server):
    """A uvicorn server that limits its connections, and sets `answers` once it accepts them."""

    def __init__(self, config: uvicorn.Config, within: Bounds) -> None:
        super().__init__(config)
        self._within = within
        self.answers = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections through an `Acceptor`, which enforces limits that uvicorn does not have."""
        await self.lifespan.startup()
        tls = self.config.ssl
        self.servers: list[Any] = [
            Acceptor(listening, self._connection, tls, self._within) for listening in sockets or ()
        ]
        self.started = True
        self.answers.set()

    def _connection(self, lost: Callable[[Connection], None]) -> Connection:
        state = self.lifespan.state
        return Connection(lost, config=self.config, server_state=self.server_state, app_state=state)


def _config(made: FastAPI, settings: ServerSettings) -> uvicorn.Config:
    # Invalid HTTP is answered but not logged, because it does not concern the job.
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    config = uvicorn.Config(
        made,
        log_config=None,
        access_log=False,
        ssl_certfile=settings.tls_cert,
        ssl_keyfile=settings.tls_key,
        server_header=False,
        timeout_keep_alive=_IDLE_S,
        timeout_graceful_shutdown=_END_S,
        h11_max_incomplete_event_size=LARGEST_HEAD,
        lifespan="off",
        http="h11",
        ws="none",
    )
    config.load()
    return config
