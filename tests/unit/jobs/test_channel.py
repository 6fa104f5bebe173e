from __future__ import annotations

from holdfast.jobs.processes.channel import Channel


def test_messages_are_whole_however_the_bytes_come() -> None:
    ours, theirs = Channel.pair()
    theirs.sendall(b'{"kind": "a"}\n{"kind"')
    assert ours.receive() == [{"kind": "a"}]
    theirs.sendall(b': "b"}\n')
    assert ours.receive() == [{"kind": "b"}]
    theirs.close()
    assert ours.receive() is None
    assert ours.send("anybody") is False
    ours.close()
