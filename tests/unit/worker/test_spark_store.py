"""The store of a task, through Spark's own client, on a model of the server with which Spark answers it."""

from __future__ import annotations

import socket
import struct
import threading
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest
from pyspark.sql.streaming.proto import StateMessage_pb2 as messages
from pyspark.sql.streaming.stateful_processor_api_client import StatefulProcessorApiClient
from pyspark.sql.types import LongType, StructType

from holdfast.formats.key_groups import Meta
from holdfast.worker.state.group_numbers import EVEN
from holdfast.worker.state.spark_store import PipelinedStore
from holdfast.worker.state.store import GroupBlobs, Write

# The rows of a list in one answer; a longer list takes more requests.
ROWS = 2
_OK, _NOTHING = 0, 2


class StateServer:
    """Answers the requests of one client, one after the other, from values and lists of rows by key."""

    def __init__(self) -> None:
        self.values: dict[tuple[bytes, str], bytes] = {}
        self.lists: defaultdict[tuple[bytes, str], list[bytes]] = defaultdict(list)
        self._key = b""
        self._reading: dict[str, list[bytes]] = {}

    def serve(self, file: IO[bytes]) -> None:
        """Answer until the client closes the connection."""
        while head := file.read(8):
            _, size = struct.unpack("!ii", head)
            answer = self._answer(messages.StateRequest.FromString(file.read(size))).SerializeToString()
            file.write(struct.pack("!i", len(answer)) + answer)
            file.flush()

    def _answer(self, request: Any) -> Any:
        if request.HasField("implicitGroupingKeyRequest"):
            self._key = request.implicitGroupingKeyRequest.setImplicitKey.key
        elif request.stateVariableRequest.HasField("valueStateCall"):
            return self._of_value(request.stateVariableRequest.valueStateCall)
        elif request.stateVariableRequest.HasField("listStateCall"):
            return self._of_list(request.stateVariableRequest.listStateCall)
        return messages.StateResponse(statusCode=_OK)

    def _of_value(self, call: Any) -> Any:
        at = (self._key, call.stateName)
        if call.HasField("valueStateUpdate"):
            self.values[at] = call.valueStateUpdate.value
        elif at not in self.values:
            return messages.StateResponse(statusCode=_NOTHING)
        return messages.StateResponse(statusCode=_OK, value=self.values[at])

    def _of_list(self, call: Any) -> Any:
        rows = self.lists[self._key, call.stateName]
        if call.HasField("listStateGet"):
            left = self._reading.setdefault(call.listStateGet.iteratorId, list(rows))
            page, left[:ROWS] = left[:ROWS], []
            status = _OK if page else _NOTHING
            return messages.StateResponseWithListGet(
                statusCode=status, value=page, requireNextFetch=bool(left)
            )
        if call.HasField("appendValue"):
            rows.append(call.appendValue.value)
        else:
            rows[:] = call.listStatePut.value
        return messages.StateResponse(statusCode=_OK)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PipelinedStore]:
    """A store whose server has no state yet."""
    monkeypatch.chdir(tmp_path)
    address = "socket"  # a path of a socket has at most 107 bytes
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(address)
        listening.listen()
        client: Any = StatefulProcessorApiClient(address, StructType().add("group", LongType()))
        connection, _ = listening.accept()
    with connection, connection.makefile("rwb") as file:
        server = threading.Thread(target=StateServer().serve, args=(file,))
        server.start()
        yield PipelinedStore(client, EVEN)
        client.sockfile.close()
        client._client_socket.close()
        server.join()


def meta_of(token: int) -> Meta:
    return Meta(8, token.to_bytes(8, "big"), b"formform")


@pytest.mark.parametrize("count", range(6))
def test_all_blobs_of_a_group_are_read_however_many_answers_they_take(
    store: PipelinedStore, count: int
) -> None:
    base = [b"base %d" % number for number in range(count)]
    store.write([Write(3, meta_of(1), None, base=base, forms=b"{}")])
    for number in range(count):
        store.write([Write(3, meta_of(2 + number), meta_of(1), append=b"change %d" % number)])
    log = [b"change %d" % number for number in range(count)]
    assert store.load(3) == GroupBlobs(b"{}", base, log)
    assert store.load(4) == GroupBlobs(None, [], [])
    # A new base replaces both.
    store.write([Write(3, meta_of(9), meta_of(1), base=[b"new"])])
    assert store.load(3) == GroupBlobs(b"{}", [b"new"], [])


def test_each_of_many_groups_has_its_own_record_and_blobs(store: PipelinedStore) -> None:
    """The requests are more than the answers that fit into a socket's buffer."""
    groups = range(0, 600, 2)
    store.write(Write(group, meta_of(group), None, append=b"of %d" % group) for group in groups)
    every = list(range(600))
    assert store.metas(every) == [None if group % 2 else meta_of(group) for group in every]
    assert [store.load(group).log for group in every[-4:]] == [[b"of 596"], [], [b"of 598"], []]
