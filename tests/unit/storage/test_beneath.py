"""Below the root of a storage on a local disk no link is followed, and no pipe is waited for."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.errors import Corrupt, NotFound
from holdfast.storage import local
from holdfast.storage.atomic_swap import in_bulk
from holdfast.storage.local import LocalStorage

SECRET = b"of the operator"


@pytest.fixture(params=["one call", "directory by directory"])
def storage(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalStorage:
    """A storage whose neighbour is a directory with a secret, on a kernel with openat2 and on one without."""
    if request.param == "directory by directory":
        monkeypatch.setattr(local, "_resolver", lambda: None)
    elif local._resolver() is None:
        pytest.skip("this kernel has no openat2")
    (tmp_path / "private").mkdir()
    (tmp_path / "private/secret").write_bytes(SECRET)
    (tmp_path / "root/real").mkdir(parents=True)
    (tmp_path / "root/real/file").write_bytes(b"1")
    return LocalStorage(tmp_path / "root")


OPERATIONS: dict[str, Callable[[LocalStorage, str], object]] = {
    "read": lambda storage, path: storage.read(path),
    "read a part": lambda storage, path: storage.read(path, 1, 2),
    "copy from": lambda storage, path: storage.copy(path, "copied"),
    "copy from elsewhere": lambda storage, path: LocalStorage(storage.file_of("real")).copy(
        path, "copied", origin=storage
    ),
}
BELOW_A_LINK: dict[str, Callable[[LocalStorage, str], object]] = {
    **OPERATIONS,
    "write": lambda storage, path: storage.write(path, b"mine"),
    "replace": lambda storage, path: storage.write(path, b"mine", replace=True),
    "write deeper": lambda storage, path: storage.write(f"{path}/deeper/still", b"mine"),
    "copy to": lambda storage, path: storage.copy("real/file", path),
    "delete": lambda storage, path: storage.delete(path),
}


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("target", ["../private/secret", "real/file", "nowhere", "link"])
def test_a_linked_file_is_not_read(storage: LocalStorage, operation: str, target: str) -> None:
    storage.file_of("link").symlink_to(target)
    with pytest.raises(Corrupt, match="refused to follow a symbolic link") as caught:
        OPERATIONS[operation](storage, "link")
    assert caught.value.where == f"{storage.uri}/link"
    assert "of the operator" not in str(caught.value)
    assert storage.size("link") is None
    assert list(storage.file_of("").rglob("copied")) == []


@pytest.mark.parametrize("operation", BELOW_A_LINK)
def test_nothing_below_a_linked_directory_is_touched(storage: LocalStorage, operation: str) -> None:
    storage.file_of("folder").symlink_to("../private")
    before = sorted(storage.file_of("folder").iterdir())
    with pytest.raises(Corrupt, match="refused to follow a symbolic link") as caught:
        BELOW_A_LINK[operation](storage, "folder/secret")
    assert caught.value.where == f"{storage.uri}/folder"
    assert sorted(storage.file_of("folder").iterdir()) == before
    assert storage.file_of("folder/secret").read_bytes() == SECRET


def test_a_linked_directory_is_not_listed(storage: LocalStorage) -> None:
    storage.file_of("folder").symlink_to("../private")
    for path in ("folder", "folder/below"):
        with pytest.raises(Corrupt, match="refused to follow a symbolic link"):
            storage.list(path).names  # noqa: B018 - asking is what is tried
    assert sorted(storage.list().names) == ["folder", "real"]


def test_a_link_itself_is_replaced_and_deleted(storage: LocalStorage) -> None:
    storage.file_of("link").symlink_to("../private/secret")
    storage.write("link", b"mine", replace=True)
    assert storage.read("link") == b"mine"
    storage.delete("link")
    storage.file_of("link").symlink_to("../private/secret")
    storage.delete("link")
    assert list(storage.list().names) == ["real"]
    assert (storage.file_of("..") / "private/secret").read_bytes() == SECRET


def test_the_root_may_be_a_link_and_be_below_links(storage: LocalStorage, tmp_path: Path) -> None:
    (tmp_path / "way").symlink_to(tmp_path)
    (tmp_path / "way/again").symlink_to("root")
    through = LocalStorage(tmp_path / "way/again")
    through.write("real/other", b"2")
    with in_bulk(through) as quick:
        quick.copy("real/other", "new/third")
    assert storage.read("new/third") == through.read("real/other") == b"2"
    assert sorted(through.list("real").names) == ["file", "other"]
    assert through.size("real/other") == 1
    through.delete("real/other")
    assert list(storage.list("real").names) == ["file"]
    with pytest.raises(NotFound):
        through.read("real/other")


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("kind", ["FIFO", "socket"])
def test_a_special_file_is_refused_at_once(storage: LocalStorage, operation: str, kind: str) -> None:
    special = storage.file_of("special")
    if kind == "FIFO":
        os.mkfifo(special)
    else:
        with socket.socket(socket.AF_UNIX) as one:
            here = Path.cwd()
            os.chdir(special.parent)  # the path of a socket is short
            try:
                one.bind(special.name)
            finally:
                os.chdir(here)
    with pytest.raises(Corrupt, match="refused to read a special file") as caught:
        OPERATIONS[operation](storage, "special")
    assert caught.value.found == f"a {kind}"
    assert storage.size("special") is None
    with pytest.raises(Corrupt, match="refused to read a special file"):
        storage.list("special").names  # noqa: B018 - asking is what is tried
    assert list(storage.file_of("").rglob("copied")) == []


@pytest.mark.parametrize("operation", ["read", "read a part"])
def test_a_directory_is_no_file(storage: LocalStorage, operation: str) -> None:
    with pytest.raises(NotFound):
        OPERATIONS[operation](storage, "real")


def test_a_name_with_a_nul_is_not_cut_at_it(storage: LocalStorage) -> None:
    with pytest.raises(ValueError, match="null"):
        storage.read("real/file\0.json")
