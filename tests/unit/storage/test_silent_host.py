"""A host that accepts a connection and never answers is an error after a time, not a wait for ever."""

from __future__ import annotations

import socket

import pytest

from holdfast.errors import Unavailable
from holdfast.storage import open_storage, remote


def test_a_namenode_that_never_answers_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("requests")
    monkeypatch.setattr(remote, "_PATIENCE_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        storage = open_storage(f"webhdfs://127.0.0.1:{silent.getsockname()[1]}/checkpoints/orders")
        with pytest.raises(Unavailable, match="the storage does not do what it was asked") as caught:
            storage.list("")
    assert "timed out" in (caught.value.found or "").lower() or "Timeout" in (caught.value.found or "")
