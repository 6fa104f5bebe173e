from __future__ import annotations

import pytest

from holdfast.errors import Internal
from holdfast.jobs.processes.protocol import Channel, DriverStopped, Finished, Mended


def test_messages_are_whole_however_the_bytes_come() -> None:
    ours, theirs = Channel.pair()
    theirs.sendall(b'{"kind": "stopped"}\n{"kind"')
    assert ours.receive() == [DriverStopped()]
    theirs.sendall(b': "mended", "query": "q"}\n')
    assert ours.receive() == [Mended("q")]
    theirs.close()
    assert ours.receive() is None
    assert ours.send(Finished()) is False
    ours.close()


def test_a_line_that_is_no_message_is_refused() -> None:
    ours, theirs = Channel.pair()
    theirs.sendall(b'{"kind": "anybody"}\n')
    with pytest.raises(Internal, match="unknown kind"):
        ours.receive()
    theirs.close()
    ours.close()
