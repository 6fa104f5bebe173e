from __future__ import annotations

import os
import socket
import stat
import sys
from contextlib import closing
from pathlib import Path

import pytest

from holdfast.errors import Invalid
from holdfast.server.access import local_peer
from holdfast.server.access.guard import secured
from holdfast.server.access.local_peer import LocalPeer, find_socket, uid_of
from holdfast.server.server_settings import ServerSettings

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"


def row(local: str, remote: str, state: str, uid: int, inode: int) -> str:
    queues = "00000000:00000000 00:00000000 00000000"
    return f"   0: {local} {remote} {state} {queues}  {uid}  0 {inode} 1 0 20 4 30\n"


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """The kernel's tables, as they are written by hand. 8081 is 0x1F91, 50000 is 0xC350."""
    made = tmp_path / "tcp", tmp_path / "tcp6"
    for table in made:
        table.write_text(HEAD)
    monkeypatch.setattr(local_peer, "TABLES", made)
    return made


LITTLE = pytest.mark.skipif(sys.byteorder != "little", reason="the rows are those of a little-endian machine")
OURS, THEIRS = ("127.0.0.1", 8081), ("127.0.0.1", 50000)
SERVER, CLIENT = "0100007F:1F91", "0100007F:C350"
SERVER6 = "0000000000000000FFFF00000100007F:1F91"
CLIENT6 = "0000000000000000FFFF00000100007F:C350"


@LITTLE
def test_the_row_of_the_other_end_tells(tables: tuple[Path, Path]) -> None:
    own = row(SERVER, CLIENT, "01", 1000, 7)
    tables[0].write_text(HEAD + own)
    assert uid_of(THEIRS, OURS) is None
    tables[0].write_text(HEAD + own + row(CLIENT, SERVER, "01", 1001, 8))
    assert uid_of(THEIRS, OURS) == 1001
    # Java's sockets are of IPv6, also where they speak to 127.0.0.1.
    tables[0].write_text(HEAD + own)
    tables[1].write_text(HEAD + row(CLIENT6, SERVER6, "01", 1002, 8))
    assert uid_of(THEIRS, OURS) == 1002
    assert uid_of(("::ffff:127.0.0.1", 50000), ("::ffff:127.0.0.1", 8081)) == 1002
    one = "00000000000000000000000001000000"
    tables[1].write_text(HEAD + row(f"{one}:C350", f"{one}:1F91", "01", 1003, 8))
    assert uid_of(("::1", 50000), ("::1", 8081)) == 1003
    tables[1].unlink()
    assert uid_of(("::1", 50000), ("::1", 8081)) is None


@LITTLE
@pytest.mark.parametrize(
    ("state", "inode", "known"),
    [
        ("01", 8, True),
        ("04", 8, True),  # closed for sending, after the request
        ("05", 8, True),
        ("02", 8, False),  # another one that wants to connect from the same port
        ("06", 0, False),  # closed: the kernel writes 0 for its user, which is root
        ("01", 0, False),
        ("05", 0, False),
        ("08", 8, False),
    ],
)
def test_a_socket_that_nobody_has_is_nobodys(
    tables: tuple[Path, Path], state: str, inode: int, known: bool
) -> None:
    tables[0].write_text(HEAD + row(CLIENT, SERVER, state, 0, inode))
    assert uid_of(THEIRS, OURS) == (0 if known else None)


class Transport:
    def __init__(self, connection: socket.socket | None) -> None:
        self.connection = connection

    def get_extra_info(self, name: str) -> socket.socket | None:
        assert name == "socket"
        return self.connection


@pytest.mark.skipif(not local_peer.can_tell(), reason="this machine does not tell whose a connection is")
@pytest.mark.parametrize(
    ("family", "host"),
    [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"), (socket.AF_INET6, "::ffff:127.0.0.1")],
)
def test_a_real_connection_is_ones_own_while_it_lives(family: socket.AddressFamily, host: str) -> None:
    with socket.socket(family) as listening:
        try:
            listening.bind((host, 0))
        except OSError:
            pytest.skip("this machine has no IPv6")
        listening.listen()
        client = socket.create_connection(listening.getsockname()[:2])
        accepted, _ = listening.accept()
        with accepted:
            assert LocalPeer(Transport(accepted)).trusted
            client.close()
            assert not LocalPeer(Transport(accepted)).trusted
        assert not LocalPeer(Transport(accepted)).trusted
    assert not LocalPeer(Transport(None)).trusted


linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="sock_diag is Linux's")


@linux
def test_the_kernel_is_asked_for_one_socket_and_not_for_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_peer, "TABLES", (tmp_path / "nowhere",))
    with socket.create_server(("127.0.0.1", 0)) as listening, closing(socket.socket()) as client:
        client.connect(listening.getsockname())
        accepted, _ = listening.accept()
        with accepted:
            assert LocalPeer(Transport(accepted)).trusted


@linux
def test_where_no_connection_has_these_ends_the_listening_socket_is_not_taken_for_one() -> None:
    host = b"\x7f\0\0\x01"
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = (host, int(listening.getsockname()[1]))
        with socket.create_connection(listening.getsockname()) as client:
            port = int(client.getsockname()[1])
            found = find_socket((host, port), server)
            assert found is not None
            assert (found.state, found.uid) == (1, os.geteuid())
            assert found.inode == os.fstat(client.fileno()).st_ino
            assert find_socket(server, (b"\x7f\0\0\x02", port)) is None
            client.shutdown(socket.SHUT_WR)
            found = find_socket((host, port), server)
            assert found is not None
            assert found.state in (4, 5)  # whether the other end has said that it knows
        closed = find_socket((host, port), server)
        assert closed is None or closed.inode == 0


def test_where_nobody_tells_the_state_home_has_a_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = ServerSettings()
    if local_peer.can_tell():
        assert secured(given, tmp_path) is given
        assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(local_peer, "TABLES", (tmp_path / "nowhere",))
    former = os.umask(0)
    try:
        first, second = secured(given, tmp_path), secured(given, tmp_path)
    finally:
        os.umask(former)
    [file] = tmp_path.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert first.token == second.token == file.read_text().strip()
    assert first.login_code != second.login_code
    assert str(first.token) not in repr(first)
    file.chmod(0o644)
    secured(given, tmp_path)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    own = ServerSettings(token="a-token-that-is-long-enough")
    assert secured(own, tmp_path) is own
    another = file.stat().st_uid + 1
    monkeypatch.setattr(os, "geteuid", lambda: another)
    with pytest.raises(Invalid, match="a different user"):
        secured(given, tmp_path)
