"""The messages between a supervisor and its children, and the channel that carries them.

A line has the message's `kind` and its fields. An unknown kind and missing or unknown fields are refused:
both ends run the same version, so they are programming errors.

Either side sees the other's death as the end of the stream, at once and without a timer.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from typing import TYPE_CHECKING, Any, Final, get_args

from holdfast.config.alert_settings import Alerts
from holdfast.config.policies import Autoscale, Recovery, RestartStrategy
from holdfast.errors import HoldfastError, Internal, error_from
from holdfast.jobs.definition import Periodic, strategy_fields, strategy_from_fields
from holdfast.model import BatchProgress, Failure, QueryStarted, TrialBatch
from holdfast.plain_values import READ, from_plain, wrong_fields

if TYPE_CHECKING:
    from typing_extensions import Self


_ERROR: Final = {READ: error_from}


@dataclass(frozen=True, slots=True)
class Message:
    """A message in either direction."""


# From a driver to its supervisor.


@dataclass(frozen=True, slots=True)
class JobDefined(Message):
    """The job file was loaded; the fields are those that a supervisor needs."""

    name: str
    checkpoint: str
    on_cancel: str
    timeout_ms: int | None
    tolerable_failures: int
    restart: RestartStrategy = field(metadata={READ: strategy_from_fields})
    record: bool = True
    savepoints: Periodic | None = None
    alerts: Alerts = field(default_factory=Alerts)
    recovery: Recovery = field(default_factory=Recovery)
    savepoint_catalog: str | None = None
    standby: bool = False
    autoscale: Autoscale | None = None


@dataclass(frozen=True, slots=True)
class Warmed(Message):
    """A standby driver is ready.

    Attributes:
        took_ms: The time from the order to warm up.
        memory_bytes: The resident memory of the driver and its child processes.
        batches: The number of batches without rows that it ran, of all queries.
        note: The reason why it ran none or not all of them; None if it ran all.
        java_pid: The process id of the JVM.
        scratch: As in `SessionStarted`.
    """

    took_ms: int
    memory_bytes: int
    batches: int
    note: str | None = None
    java_pid: int | None = None
    scratch: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Built(Message):
    """A standby driver has called the job's function; `failed` is the error of the function, if any."""

    failed: str | None = None


@dataclass(frozen=True, slots=True)
class SessionStarted(Message):
    """The Spark session has started.

    Attributes:
        spark: The version of Spark.
        java_pid: The process id of the JVM.
        slots: The number of tasks that can run at the same time.
        scratch: The directories for temporary files that a JVM on this machine deletes when it ends by
            itself; empty on a cluster.
    """

    spark: str
    java_pid: int
    slots: int
    scratch: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ClusterFound(Message):
    """The session's resources on its cluster: a line of text, and the fields of `ClusterFit`."""

    text: str
    facts: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CheckpointsRestored(Message):
    """The checkpoints of these queries were restored: `query`, and the fields of the restore."""

    queries: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class BatchesRepeated(Message):
    """The lost batches of a query were run again, up to `last`; `promise` is the level of its sink."""

    query: str
    last: int | None
    promise: str


@dataclass(frozen=True, slots=True)
class QueriesStarted(Message):
    """All queries were started. `databases` are the addresses that the job's code names for its state."""

    queries: tuple[QueryStarted, ...]
    databases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Caution(Message):
    """A warning that does not stop the job; `query` is None for the whole job."""

    query: str | None
    text: str


@dataclass(frozen=True, slots=True)
class Busy(Message):
    """A query began or ended a batch."""

    query: str
    busy: bool


@dataclass(frozen=True, slots=True)
class BatchCommitted(Message):
    """A query committed a batch."""

    batch: BatchProgress


@dataclass(frozen=True, slots=True)
class Mended(Message):
    """A query was restarted because its sink already had the first batch; the batch was finished."""

    query: str


@dataclass(frozen=True, slots=True)
class Finished(Message):
    """All queries ended by themselves. The last message."""


@dataclass(frozen=True, slots=True)
class DriverStopped(Message):
    """All queries ended because the supervisor requested a stop. The last message."""


@dataclass(frozen=True, slots=True)
class JobFailed(Message):
    """The job failed, and another driver may succeed. The last message."""

    failure: Failure
    at_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Refused(Message):
    """The child refuses its task, and a restart would not help. The last message."""

    error: HoldfastError = field(metadata=_ERROR)


LAST_MESSAGES: Final = (Finished, DriverStopped, JobFailed, Refused)


# From a supervisor to its driver.


@dataclass(frozen=True, slots=True)
class Go(Message):
    """Start the queries.

    Attributes:
        log: The file for standard error; None leaves it unchanged.
        restore: True if checkpoints are restored from savepoints first.
        repeat: The damaged checkpoints whose batches are run again, by query.
        term: The token of the leader's term; None for a job with a single supervisor.
        election: The election address.
        machine: The name of this machine.
        scratch: The `scratch` of the previous driver, whose JVM was killed; its working copies of keyed state
            are continued.
    """

    log: str | None
    restore: bool
    repeat: Mapping[str, str]
    term: int | None
    election: str
    machine: str
    scratch: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Warm(Message):
    """Start the Spark session, run batches without rows, and wait for `Go`.

    Attributes:
        log: The file for standard error.
    """

    log: str


@dataclass(frozen=True, slots=True)
class Build(Message):
    """Call the job's function; `Go` follows when the checkpoint is free and was verified."""


@dataclass(frozen=True, slots=True)
class Lead(Message):
    """The end of the leader's term, by `clock.steady_s`."""

    until_s: float


@dataclass(frozen=True, slots=True)
class Stop(Message):
    """Stop after each query has finished its batch."""


# From the process of a trial. It also sends `JobFailed` and `Refused`.


@dataclass(frozen=True, slots=True)
class TrialDefined(Message):
    """The job file was loaded."""

    name: str


@dataclass(frozen=True, slots=True)
class TrialSession(Message):
    """The Spark session has started."""

    spark: str


@dataclass(frozen=True, slots=True)
class TrialCommitted(Message):
    """The query committed a batch in its sandbox."""

    batch_id: int
    input_rows: int


@dataclass(frozen=True, slots=True)
class TrialDone(Message):
    """The trial ended. The last message; the fields are those of `TrialOutcome`."""

    batches: tuple[TrialBatch, ...]
    watermarks: int
    empty: bool


# From the process of a rescale. It also sends `Refused`.


@dataclass(frozen=True, slots=True)
class RescaleProgress(Message):
    """The progress of writing a checkpoint."""

    done: int
    total: int
    what: str


@dataclass(frozen=True, slots=True)
class RescaleDone(Message):
    """All new checkpoints are written. The last message."""


# Between a supervisor and the process of its server. The server also sends `Refused`.


@dataclass(frozen=True, slots=True)
class Serve(Message):
    """Start the server of a state home.

    Attributes:
        home: The path of the state home.
        listening: The descriptor of the listening socket, which the child has inherited.
        settings: The fields of `ServerSettings` as plain values.
    """

    home: str
    listening: int
    settings: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CloseServer(Message):
    """Answer pending requests, then end."""


@dataclass(frozen=True, slots=True)
class ServerStarted(Message):
    """The server accepts connections."""


@dataclass(frozen=True, slots=True)
class ServerFailed(Message):
    """The server did not start; a further attempt may succeed. The last message."""

    error: HoldfastError = field(metadata=_ERROR)


KINDS: Final[Mapping[str, type[Message]]] = {
    "defined": JobDefined,
    "warmed": Warmed,
    "built": Built,
    "session": SessionStarted,
    "cluster": ClusterFound,
    "restored": CheckpointsRestored,
    "repeated": BatchesRepeated,
    "started": QueriesStarted,
    "caution": Caution,
    "busy": Busy,
    "batch": BatchCommitted,
    "mended": Mended,
    "finished": Finished,
    "stopped": DriverStopped,
    "failed": JobFailed,
    "refused": Refused,
    "go": Go,
    "warm": Warm,
    "build": Build,
    "lead": Lead,
    "stop": Stop,
    "trial-defined": TrialDefined,
    "trial-session": TrialSession,
    "trial-batch": TrialCommitted,
    "trial-done": TrialDone,
    "rescale-progress": RescaleProgress,
    "rescale-done": RescaleDone,
    "serve": Serve,
    "close-server": CloseServer,
    "serving": ServerStarted,
    "server-failed": ServerFailed,
}
_KIND_OF: Final = {message_type: kind for kind, message_type in KINDS.items()}


def kind_of(message: Message) -> str:
    """Return the `kind` of a message."""
    return _KIND_OF[type(message)]


def not_for(receiver: str, message: Message) -> Internal:
    """Return the error of a process that has received a message meant for a different one."""
    return Internal(
        f"{receiver} received an unexpected message",
        code="HF-E9017",
        found=kind_of(message),
        hint="please report this",
    )


def encode(message: Message) -> bytes:
    """Return a message as a line of JSON, without the newline."""
    values = {item.name: getattr(message, item.name) for item in fields(message)}
    return json.dumps({"kind": kind_of(message), **values}, default=_plain).encode()


def decode(line: bytes) -> Message:
    """Parse a line that `encode` wrote.

    Raises:
        Internal: The line is not a message, its kind is unknown, or its fields do not fit its kind.
    """
    try:
        values = json.loads(line)
        kind = str(values.pop("kind"))
    except (ValueError, AttributeError, KeyError, TypeError, RecursionError) as error:
        raise Internal(
            "a process sent a line that is not a message",
            code="HF-E9018",
            found=repr(line[:200]),
            hint="please report this",
        ) from error
    return message_of(kind, values)


def message_of(kind: str, values: Mapping[str, Any]) -> Message:
    """Return a message from its kind and its fields as plain values.

    Raises:
        Internal: The kind is unknown, or the fields do not fit it.
    """
    message_type = KINDS.get(kind)
    if message_type is None:
        raise Internal(
            "a process sent a message of an unknown kind",
            code="HF-E9019",
            found=kind,
            expected=", ".join(KINDS),
            hint="please report this",
        )
    wrong = wrong_fields(message_type, values)
    if wrong:
        raise Internal(
            f"a process sent a message `{kind}` with wrong fields",
            code="HF-E9020",
            found=", ".join(wrong),
            expected=", ".join(item.name for item in fields(message_type)) or "no fields",
            hint="please report this",
        )
    try:
        return from_plain(message_type, values)
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        raise Internal(
            f"a process sent a message `{kind}` that cannot be read",
            code="HF-E9021",
            found=f"{type(error).__name__}: {error}",
            hint="please report this",
        ) from error


def _plain(value: Any) -> Any:
    if isinstance(value, HoldfastError):
        return value.as_dict()
    if isinstance(value, get_args(RestartStrategy)):
        return strategy_fields(value)
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} cannot be encoded as JSON")


DESCRIPTOR = "HOLDFAST_CHANNEL"


class Channel:
    """One end of the channel between a supervisor and a child.

    Sending never raises for a closed peer; receiving shows the end of the stream.
    """

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._pending = b""

    @classmethod
    def pair(cls) -> tuple[Channel, socket.socket]:
        """Return a supervisor's end, and the socket to hand to the child process."""
        ours, theirs = socket.socketpair()
        return cls(ours), theirs

    @classmethod
    def inherited(cls) -> Channel:
        """Return the child's end, from the descriptor that it inherited."""
        end = socket.socket(fileno=int(os.environ.pop(DESCRIPTOR)))
        # Were the JVM to inherit it, the supervisor would not see this process die.
        end.set_inheritable(False)
        return cls(end)

    def fileno(self) -> int:
        """Return the descriptor, for a selector."""
        return self._end.fileno()

    def send(self, message: Message) -> bool:
        """Send a message; False if the peer has closed."""
        try:
            self._end.sendall(encode(message) + b"\n")
        except OSError:
            return False
        return True

    def receive(self) -> list[Message] | None:
        """Wait for bytes and return the messages they complete; None at the end of the stream.

        Raises:
            Internal: The peer sent data that is not a message.
        """
        try:
            data = self._end.recv(65536)
        except OSError:
            return None
        if not data:
            return None
        *lines, self._pending = (self._pending + data).split(b"\n")
        return [decode(line) for line in lines if line]

    def messages(self) -> Iterator[Message]:
        """Yield messages as they arrive, until the stream ends.

        Raises:
            Internal: The peer sent data that is not a message.
        """
        while (batch := self.receive()) is not None:
            yield from batch

    def close(self) -> None:
        """Close the channel."""
        self._end.close()


def die_with_peer(channel: Channel) -> None:
    """Start a thread that kills this process group when the peer process exits."""

    def listen() -> None:
        try:
            for _ in channel.messages():
                pass
        finally:
            os.killpg(os.getpid(), signal.SIGKILL)

    threading.Thread(target=listen, name="holdfast-orders", daemon=True).start()


ENVIRONMENT: Final = "HOLDFAST_DRIVER"


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """The instructions for every child process.

    Attributes:
        target: The job file, and the job in it.
        home: The state home.
    """

    target: str
    home: str

    def as_text(self) -> str:
        """Return the instructions as text for the child's environment."""
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Parse what `as_text` wrote."""
        return from_plain(cls, json.loads(text))

    @classmethod
    def inherited(cls) -> Self:
        """Return the instructions of this process from its parent."""
        return cls.from_text(os.environ.pop(ENVIRONMENT))
