"""The state store of a transformWithState task, as a worker reaches it over its socket.

Spark's client waits for the answer to each request. The server answers in order, so this store sends many
requests before it reads the first answer, which takes a fraction of the time.
"""

from __future__ import annotations

import json
import pickle
import struct
import uuid
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from holdfast.errors import Internal
from holdfast.formats.key_groups import BASE, FORMS, LOG, META, Meta
from holdfast.worker.state.store import GroupBlobs, Write

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle
    from pyspark.sql.streaming.stateful_processor_api_client import StatefulProcessorApiClient

    from holdfast.worker.state.group_numbers import Numbering

SCHEMA = "b binary"
# The same schema in the form that Spark's client sends after parsing the text.
SCHEMA_JSON = json.dumps(
    {"fields": [{"metadata": {}, "name": "b", "nullable": True, "type": "binary"}], "type": "struct"}
)
VALUES = (META, FORMS)
LISTS = (BASE, LOG)

_HEAD = struct.Struct("!ii")
# The number of unread answers that fit into a socket's buffer; with more, both sides would block.
_AHEAD = 256
_OK, _NOTHING = 0, 2


def declare_state(client: StatefulProcessorApiClient, numbering: Numbering) -> None:
    """Declare the state variables to Spark before the first batch."""
    from pyspark.sql.streaming.stateful_processor_api_client import StatefulProcessorHandleState

    client.set_handle_state(StatefulProcessorHandleState.PRE_INIT)
    PipelinedStore(client, numbering).declare()


class PipelinedStore:
    """A store that sends requests before it reads the answers, through the socket of Spark's own client."""

    def __init__(self, client: StatefulProcessorApiClient, numbering: Numbering) -> None:
        from pyspark.sql.streaming.proto import StateMessage_pb2

        self._messages: Any = StateMessage_pb2
        self._client: Any = client
        self._numbering = numbering
        # The number of requests whose answers have not been read.
        self._unread = 0

    def declare(self) -> None:
        """Declare the state variables to Spark; call it once per task, before all other requests."""
        calls = [{"getValueState": self._variable_of(name)} for name in VALUES]
        calls += [{"getListState": self._variable_of(name)} for name in LISTS]
        made = [self._messages.StatefulProcessorCall(**call) for call in calls]
        self._send([self._framed(self._messages.StateRequest(statefulProcessorCall=call)) for call in made])
        self._unread += len(made)
        self._read_answers()

    def _variable_of(self, name: str) -> Any:
        return self._messages.StateCallCommand(stateName=name, schema=SCHEMA_JSON)

    def metas(self, groups: Sequence[int]) -> list[Meta | None]:
        """Return the records of groups; None for a group without state."""
        found: list[Meta | None] = []
        for start in range(0, len(groups), _AHEAD // 2):
            some = groups[start : start + _AHEAD // 2]
            self._send([request for group in some for request in (self._key(group), self._get(META))])
            for _ in some:
                self._receive()
                data = self._value()
                found.append(None if data is None else Meta.decode(data))
        return found

    def load(self, group: int) -> GroupBlobs:
        """Return all blobs of a group; allowed during a write."""
        self._read_answers()
        self._send([self._key(group), self._get(FORMS)])
        self._receive()
        forms = self._value()
        return GroupBlobs(forms, self._list(BASE), self._list(LOG))

    def write(self, writes: Iterable[Write]) -> None:
        """Write groups, and set or delete each group's timer as its record requires."""
        for write in writes:
            requests = [self._key(write.group), *self._requests(write)]
            if self._unread + len(requests) > _AHEAD:
                self._read_answers()
            self._send(requests)
            self._unread += len(requests)
        self._read_answers()

    def _requests(self, write: Write) -> list[bytes]:
        made = [self._put(META, write.meta.encode())]
        if write.forms is not None:
            made.append(self._put(FORMS, write.forms))
        if write.base is not None:
            made.append(self._put_list(BASE, write.base))
            made.append(self._clear_list(LOG))
        if write.append is not None:
            made.append(self._append(LOG, write.append))
        gone, fresh = write.timer_moves
        if gone is not None:
            made.append(self._timer(delete=self._messages.DeleteTimer(expiryTimestampMs=gone)))
        if fresh is not None:
            made.append(self._timer(register=self._messages.RegisterTimer(expiryTimestampMs=fresh)))
        return made

    # Requests as bytes

    def _variable(self, **call: Any) -> bytes:
        request = self._messages.StateVariableRequest(**call)
        return self._framed(self._messages.StateRequest(stateVariableRequest=request))

    def _key(self, group: int) -> bytes:
        key = self._messages.SetImplicitKey(key=pickle.dumps((self._numbering.number_of(group),), 5))
        request = self._messages.ImplicitGroupingKeyRequest(setImplicitKey=key)
        return self._framed(self._messages.StateRequest(implicitGroupingKeyRequest=request))

    def _value_call(self, name: str, **call: Any) -> bytes:
        return self._variable(valueStateCall=self._messages.ValueStateCall(stateName=name, **call))

    def _list_call(self, name: str, **call: Any) -> bytes:
        return self._variable(listStateCall=self._messages.ListStateCall(stateName=name, **call))

    def _get(self, name: str) -> bytes:
        return self._value_call(name, get=self._messages.Get())

    def _put(self, name: str, data: bytes) -> bytes:
        return self._value_call(name, valueStateUpdate=self._messages.ValueStateUpdate(value=_row(data)))

    def _append(self, name: str, data: bytes) -> bytes:
        return self._list_call(name, appendValue=self._messages.AppendValue(value=_row(data)))

    def _put_list(self, name: str, items: Sequence[bytes]) -> bytes:
        if not items:
            return self._clear_list(name)
        put = self._messages.ListStatePut(value=[_row(item) for item in items], fetchWithArrow=False)
        return self._list_call(name, listStatePut=put)

    def _clear_list(self, name: str) -> bytes:
        return self._list_call(name, clear=self._messages.Clear())

    def _timer(self, **move: Any) -> bytes:
        command = self._messages.TimerStateCallCommand(**move)
        call = self._messages.StatefulProcessorCall(timerStateCall=command)
        return self._framed(self._messages.StateRequest(statefulProcessorCall=call))

    @staticmethod
    def _framed(message: Any) -> bytes:
        data: bytes = message.SerializeToString()
        return _HEAD.pack(0, len(data)) + data

    # The wire

    def _send(self, requests: Sequence[bytes]) -> None:
        self._client.sockfile.write(b"".join(requests))
        self._client.sockfile.flush()

    def _receive(self) -> tuple[int, bytes]:
        status, error, value = self._client._receive_proto_message()
        _check(status, error)
        return status, value

    def _read_answers(self) -> None:
        while self._unread:
            self._unread -= 1
            self._receive()

    def _value(self) -> bytes | None:
        status, value = self._receive()
        return bytes(pickle.loads(value)[0]) if status == _OK and value else None  # noqa: S301 - Spark's server

    def _list(self, name: str) -> list[bytes]:
        request = self._list_call(
            name, listStateGet=self._messages.ListStateGet(iteratorId=str(uuid.uuid4()))
        )
        items: list[bytes] = []
        more = True
        while more:
            self._send([request])
            status, error, values, more = self._client._receive_proto_message_with_list_get()
            _check(status, error)
            if status == _NOTHING:
                break
            items += [bytes(pickle.loads(value)[0]) for value in values]  # noqa: S301 - Spark's server
        return items


class PlainStore:
    """A store that uses the public handle of a StatefulProcessor, one group at a time.

    It is used for unknown versions of Spark: it is slower, but needs only documented calls. Spark sets the
    current group before each call.
    """

    def __init__(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._values = {name: handle.getValueState(name, SCHEMA) for name in VALUES}
        self._lists = {name: handle.getListState(name, SCHEMA) for name in LISTS}

    def metas(self, groups: Sequence[int]) -> list[Meta | None]:
        """Return the record of the current group."""
        (_,) = groups
        found = self._values[META].get()
        return [None if found is None else Meta.decode(bytes(found[0]))]

    def load(self, group: int) -> GroupBlobs:  # noqa: ARG002 - Spark has set it
        """Return all blobs of the current group."""
        forms = self._values[FORMS].get()
        base, log = ([bytes(row[0]) for row in self._lists[name].get()] for name in LISTS)
        return GroupBlobs(None if forms is None else bytes(forms[0]), base, log)

    def write(self, writes: Iterable[Write]) -> None:
        """Write the current group."""
        for write in writes:
            self._values[META].update((write.meta.encode(),))
            if write.forms is not None:
                self._values[FORMS].update((write.forms,))
            if write.base is not None:
                self._lists[LOG].clear()
                if write.base:
                    self._lists[BASE].put([(blob,) for blob in write.base])
                else:
                    self._lists[BASE].clear()
            if write.append is not None:
                self._lists[LOG].appendValue((write.append,))
            gone, fresh = write.timer_moves
            if gone is not None:
                self._handle.deleteTimer(gone)
            if fresh is not None:
                self._handle.registerTimer(fresh)


def _check(status: int, error: object) -> None:
    if status not in (_OK, _NOTHING):
        raise Internal(
            "Spark's state store rejected a request",
            code="HF-E9036",
            found=f"status {status}: {error}",
            hint="report this error with the executor's log; a retried task may succeed",
        )


def _row(data: bytes) -> bytes:
    return pickle.dumps((data,), 5)
