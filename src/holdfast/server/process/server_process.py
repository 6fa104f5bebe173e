"""The process of a server next to a job, so that it cannot exhaust the resources of the job's supervisor.

The process ends with the supervisor, to which it is connected by a channel. Requested operations are kept in
the state home.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from holdfast.config.checks import without_secrets
from holdfast.errors import HoldfastError
from holdfast.jobs.background import error_of, give_way
from holdfast.jobs.processes.protocol import (
    DESCRIPTOR,
    Channel,
    CloseServer,
    Message,
    Refused,
    Serve,
    ServerFailed,
    ServerStarted,
    not_for,
)
from holdfast.json_shapes import json_value
from holdfast.server.server_settings import ServerSettings

COMMAND: Final = (sys.executable, "-m", "holdfast.server.process.server_process")
# Linux ends the process with the highest score first when memory runs out; a driver has 0.
_OUT_OF_MEMORY_SCORE: Final = "500"


class ServerProcess:
    """A running server process and the channel to it.

    Args:
        home: The state home.
        settings: The server's settings.
        listening: The listening socket; it stays open in this process, so that clients wait for a restarted
            server.
    """

    def __init__(self, home: Path, settings: ServerSettings, listening: socket.socket) -> None:
        self._channel, theirs = Channel.pair()
        environment = without_secrets(os.environ)
        try:
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                COMMAND,
                env={**environment, DESCRIPTOR: str(theirs.fileno())},
                pass_fds=(theirs.fileno(), listening.fileno()),
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # only the supervisor receives Ctrl-C
            )
        except BaseException:
            self._channel.close()
            raise
        finally:
            theirs.close()
        # Sent over the channel, so that the token is not in a process list.
        self._channel.send(Serve(str(home), listening.fileno(), json_value(settings)))

    def messages(self) -> Iterator[Message]:
        """Yield the messages of the process until it ends."""
        return self._channel.messages()

    def close(self) -> None:
        """Stop the server after its operations are done."""
        self._channel.send(CloseServer())

    def kill(self) -> None:
        """Kill the server and its children."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def reap(self) -> str:
        """Wait for the end of the process, and return a description of the end."""
        self.kill()
        code = self._process.wait()
        self._channel.close()
        return f"signal {-code}" if code < 0 else f"exit code {code}"


def _settings(plain: Mapping[str, Any]) -> ServerSettings:
    paths = {key: None if plain[key] is None else Path(plain[key]) for key in ("tls_cert", "tls_key")}
    lists = {key: tuple(plain[key]) for key in ("roots", "checkpoints")}
    return ServerSettings(**{**plain, **paths, **lists})


def _first_to_go() -> None:
    """Lower the priority, and make this process the first to be killed if memory runs out."""
    give_way()
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_OUT_OF_MEMORY_SCORE, encoding="ascii")


def _end(close: Callable[[], None]) -> None:
    try:
        close()
    finally:
        sys.stdout.flush()
        os.killpg(os.getpid(), signal.SIGKILL)  # including operations that have not ended


def main() -> None:
    """Serve for a supervisor, until it closes the server or ends."""
    _first_to_go()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    channel = Channel.inherited()
    messages = channel.messages()
    try:
        order = next(messages, None)
        if order is None:
            return
        if not isinstance(order, Serve):
            raise not_for("a server", order)
        from holdfast.server.process.serving import Serving

        listening = socket.socket(fileno=order.listening)
        listening.set_inheritable(False)
        serving = Serving(Path(order.home), _settings(order.settings), listening)
        serving.start()
    except HoldfastError as error:
        channel.send(Refused(error))
        return
    except Exception as error:  # the supervisor reports every error
        channel.send(ServerFailed(error_of(error)))
        return
    channel.send(ServerStarted())
    try:
        for message in messages:
            if isinstance(message, CloseServer):
                threading.Thread(target=_end, args=(serving.close_gently,), daemon=True).start()
    finally:
        os.killpg(os.getpid(), signal.SIGKILL)  # the supervisor has ended, and a new one may need the port


if __name__ == "__main__":
    main()
