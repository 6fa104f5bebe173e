"""What every kind of storage keeps to."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from cloud_emulators import REMOTE, empty_directory

from holdfast.errors import Conflict, NotFound
from holdfast.storage import open_storage
from holdfast.storage.local import LocalStorage
from holdfast.storage.memory import MemoryStorage
from holdfast.storage.port import Storage
from holdfast.testing.failing_storage import FaultyStorage

Make = Callable[[], Storage]


@pytest.fixture(params=["local", "memory", "faulty", "fsspec local", "fsspec memory", *REMOTE])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """Makes storages of one kind, each at a place of its own."""
    count = iter(range(100))
    if request.param in REMOTE:
        server = request.getfixturevalue(REMOTE[request.param])
        return lambda: open_storage(f"{empty_directory(request.param, server)}/a/checkpoint")

    def remote(protocol: str) -> Storage:
        fsspec = pytest.importorskip("fsspec", reason="comes with the extras s3 and hdfs")
        from holdfast.storage.remote import RemoteStorage

        if protocol == "file":
            root = tmp_path / f"remote-{next(count)}"
            return RemoteStorage(f"file://{root}", fsspec.filesystem("file"))
        return RemoteStorage(f"memory://{uuid.uuid4()}/ck", fsspec.filesystem("memory"))

    kinds: dict[str, Make] = {
        "local": lambda: LocalStorage(tmp_path / f"local-{next(count)}"),
        "memory": MemoryStorage,
        "faulty": lambda: FaultyStorage(MemoryStorage()),
        "fsspec local": lambda: remote("file"),
        "fsspec memory": lambda: remote("memory"),
    }
    return kinds[request.param]


@pytest.fixture
def storage(make: Make) -> Storage:
    return make()


def test_what_was_written_is_read(storage: Storage) -> None:
    storage.write("state/0/1.zip", b"abc")
    assert storage.read("state/0/1.zip") == b"abc"
    assert storage.size("state/0/1.zip") == 3


@pytest.mark.parametrize(
    ("start", "length", "expected"),
    [
        (0, 2, b"ab"),
        (2, None, b"cdef"),
        (2, 2, b"cd"),
        (4, 10, b"ef"),
        (6, None, b""),
        (9, 4, b""),
        (0, 0, b""),
    ],
)
def test_a_part_of_a_file(storage: Storage, start: int, length: int | None, expected: bytes) -> None:
    storage.write("file", b"abcdef")
    assert storage.read("file", start, length) == expected


def test_an_empty_file_is_a_file(storage: Storage) -> None:
    storage.write("empty", b"")
    assert storage.read("empty") == b""
    assert storage.size("empty") == 0


@pytest.mark.parametrize("path", ["nothing", "nowhere/nothing", "file/below"])
def test_what_is_not_there(storage: Storage, path: str) -> None:
    storage.write("file", b"x")
    with pytest.raises(NotFound) as error:
        storage.read(path)
    assert error.value.where is not None
    assert error.value.where.startswith(storage.uri)
    assert error.value.where.endswith(path)
    assert storage.size(path) is None


def test_a_listing_names_files_and_folders(storage: Storage) -> None:
    for path in ("a", ".hidden", "sub/b", "sub/deeper/c", "subway"):
        storage.write(path, path.encode())
    assert sorted(storage.list().names) == [".hidden", "a", "sub", "subway"]
    assert sorted(storage.list("sub").names) == ["b", "deeper"]
    assert storage.list("sub").size("b") == len("sub/b")
    assert storage.list().size("sub") is None
    assert storage.list().size("nothing") is None


def test_what_cannot_be_listed_is_empty(storage: Storage) -> None:
    storage.write("file", b"x")
    assert list(storage.list("nowhere").names) == []
    assert list(storage.list("file").names) == []


def test_a_folder_is_no_file(storage: Storage) -> None:
    storage.write("sub/b", b"x")
    assert storage.size("sub") is None


def test_a_file_is_not_replaced_unless_asked(storage: Storage) -> None:
    storage.write("file", b"old")
    with pytest.raises(Conflict):
        storage.write("file", b"new")
    assert storage.read("file") == b"old"
    storage.write("file", b"new", replace=True)
    assert storage.read("file") == b"new"


def test_a_write_leaves_nothing_beside_it(storage: Storage) -> None:
    storage.write("folder/file", b"x")
    storage.write("folder/file", b"y", replace=True)
    with pytest.raises(Conflict):
        storage.write("folder/file", b"z")
    assert list(storage.list("folder").names) == ["file"]


def test_a_copy_here(storage: Storage) -> None:
    storage.write("a", b"abc")
    storage.copy("a", "folder/b")
    assert storage.read("folder/b") == b"abc"
    assert storage.read("a") == b"abc"


def test_a_copy_outlives_its_source(storage: Storage) -> None:
    storage.write("a", b"abc")
    storage.copy("a", "b")
    storage.write("a", b"changed", replace=True)
    storage.delete("a")
    assert storage.read("b") == b"abc"


def test_a_copy_from_elsewhere(make: Make) -> None:
    here, there, memory = make(), make(), MemoryStorage({"m": b"from memory"})
    there.write("a", b"abc")
    here.copy("a", "b", origin=there)
    here.copy("m", "c", origin=memory)
    assert (here.read("b"), here.read("c")) == (b"abc", b"from memory")


def test_a_copy_replaces_nothing_and_needs_a_source(storage: Storage) -> None:
    storage.write("a", b"abc")
    storage.write("b", b"there before")
    with pytest.raises(Conflict):
        storage.copy("a", "b")
    with pytest.raises(NotFound):
        storage.copy("nothing", "c")
    assert storage.read("b") == b"there before"
    assert storage.size("c") is None


def test_a_delete(storage: Storage) -> None:
    storage.write("folder/a", b"abc")
    storage.delete("folder/a")
    storage.delete("folder/a")
    storage.delete("nowhere/a")
    assert storage.size("folder/a") is None


@pytest.mark.parametrize("make", ["s3"], indirect=True)
def test_what_another_process_writes_is_read(make: Make) -> None:
    """Its own listings are the newest thing that it knows, and say nothing of the file or of its size."""
    import fsspec

    from holdfast.storage.remote import RemoteStorage

    storage = make()
    other = RemoteStorage(storage.uri, fsspec.filesystem("s3", skip_instance_cache=True))
    storage.write("job/claim", b"{}")
    assert list(storage.list("job").names) == ["claim"]
    other.write("job/beat", b"first")
    assert storage.read("job/beat") == b"first"
    storage.list("job")
    other.write("job/beat", b"second and longer", replace=True)
    assert storage.read("job/beat", 0, 10) == b"second and"
    assert storage.read("job/beat") == b"second and longer"


def test_of_two_writers_one_wins(make: Make, request: pytest.FixtureRequest) -> None:
    if "fsspec" in request.node.callspec.id:
        pytest.skip("only stores with conditional writes tell two writers apart")
    storage = make()
    outcomes: list[str] = []
    gate = threading.Barrier(4)

    def write(text: str) -> None:
        gate.wait()
        try:
            storage.write("file", text.encode())
            outcomes.append(text)
        except Conflict:
            return

    writers = [threading.Thread(target=write, args=(text,)) for text in "abcd"]
    for each in writers:
        each.start()
    for each in writers:
        each.join()
    assert len(outcomes) == 1
    assert storage.read("file") == outcomes[0].encode()
