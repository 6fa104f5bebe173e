"""Storage behind fsspec: S3, HDFS and others, and their addresses for Spark.

A connection uses the configuration of its library: the environment, `~/.aws` or the Hadoop configuration.
Spark's own settings are not read, because they require a JVM.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, partial
from typing import Any, Final
from urllib.parse import urlsplit

from holdfast.errors import HoldfastError, Unavailable, Unsupported
from holdfast.storage.port import Names, Storage, file_exists, full, go_on, no_file

# fsspec's name of a scheme, if it differs, and the extra that installs its library.
_PROTOCOL = {"s3a": "s3", "abfss": "abfs"}
_EXTRA = {"s3": "s3", "hdfs": "hdfs", "webhdfs": "hdfs", "gs": "gcs", "abfs": "azure"}
HDFS_OVER_HTTP: Final = "webhdfs"
# The timeout for an answer of a NameNode or DataNode.
_PATIENCE_S: Final = 30
# The number of times a read is sent: a NameNode under load closes connections without an answer.
_READS: Final = 3
_S3: Final = "s3"
_GCS: Final = "gs"
_AZURE: Final = "abfs"
# Object stores that can reject the second of two writers of an object.
_CONDITIONAL: Final = (_S3, _GCS, _AZURE)
# The metadata of an object with the id of the write that created it. Azure accepts only names of identifiers.
_MARK: Final = "holdfast-write"
_MARK_ON_AZURE: Final = "holdfast_write"
_AZURE_HOST: Final = ".dfs.core.windows.net"
# The error of HDFS for a path that continues below a file.
_BELOW_A_FILE: Final = "(is not a directory)"
CHECK: Final = "check the address, the credentials and the network"


class RemoteStorage:
    """A directory accessed through fsspec.

    Object stores write a file atomically. On S3, Google Cloud Storage and Azure at most one of several
    `write`s without `replace` succeeds, by a conditional request; elsewhere the existence of the file is
    checked first, so two simultaneous writers may both succeed. The answer to a successful request may be
    lost, after which the library repeats the request; each write has a unique mark in the metadata of its
    object, by which the object is identified.

    On HDFS a file is written next to its target and renamed. Over HTTP (`webhdfs:`) that replaces a file
    atomically, and only one of two writers succeeds. HDFS's native client (`hdfs:`) cannot rename onto a
    file, so a replaced file is missing for a moment.

    Args:
        uri: A canonical URI.
        filesystem: The fsspec file system; by default that of the URI's scheme.

    Raises:
        Unsupported: The library for this scheme is not installed.
    """

    def __init__(self, uri: str, filesystem: Any = None) -> None:
        self._uri = uri.rstrip("/")
        parts = urlsplit(self._uri)
        protocol = _PROTOCOL.get(parts.scheme, parts.scheme)
        self._fs = filesystem if filesystem is not None else connect(protocol, parts.netloc, self._uri)
        # For HDFS the host belongs to the connection; for object stores the bucket is part of the object's
        # name.
        self._renames = protocol in ("hdfs", HDFS_OVER_HTTP, "file")
        self._protocol = protocol
        # On Azure the part of the host before `@` is the container.
        self._root = parts.path if self._renames else f"{parts.netloc.partition('@')[0]}{parts.path}"

    @property
    def uri(self) -> str:
        """See `Storage`."""
        return self._uri

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        """See `Storage`."""
        go_on()
        with self._asking(path):
            if start == 0 and length is None:
                # In one request: for several concurrent ones the library first requests the size.
                one = {"max_concurrency": 1} if self._protocol == _S3 else {}
                return bytes(self._fs.cat_file(self._at(path), **one))
            size = int(self._fs.info(self._at(path))["size"])
            end = size if length is None else start + length
            if start >= min(end, size):
                return b""
            return bytes(self._fs.cat_file(self._at(path), start=start, end=min(end, size)))

    def list(self, path: str = "") -> Names:
        """See `Storage`."""
        folder = self._at(path).rstrip("/")
        with self._asking(path):
            self._fs.invalidate_cache()
            try:
                entries = self._fs.ls(folder, detail=True)
            except OSError as error:
                if _nothing_there(error):
                    return Names({})
                raise
            sizes = {
                name: int(entry["size"] or 0) if entry["type"] == "file" else None
                for entry in entries
                # A file lists itself; an object store may have an empty object for the directory.
                if (name := entry["name"].rstrip("/").rpartition("/")[2]) and not _same(entry["name"], folder)
            }
        return Names(sizes)

    def size(self, path: str) -> int | None:
        """See `Storage`."""
        with self._asking(path):
            self._fs.invalidate_cache()
            try:
                found = self._fs.info(self._at(path))
            except OSError as error:
                if _nothing_there(error):
                    return None
                raise
            return int(found["size"]) if found["type"] == "file" else None

    def write(self, path: str, data: bytes, *, replace: bool = False) -> None:
        """See `Storage`."""
        with self._asking(path):
            if not replace and self.size(path) is not None:
                raise FileExistsError
            self._put(path, data, replace=replace)

    def require_exclusive_writes(self, path: str) -> None:
        """Check that the storage rejects a second write of a new file; see `Storage`.

        Only object stores are checked: some that are compatible with S3 ignore the condition of a write.
        """
        if self._protocol not in _CONDITIONAL:
            return
        with self._asking(path):
            try:
                self._put(path, b"1", replace=False)
                try:
                    self._put(path, b"2", replace=False)
                except FileExistsError:
                    return
            finally:
                with suppress(FileNotFoundError):
                    self._fs.rm_file(self._at(path))
        raise Unsupported(
            "the object store ignores the condition of a write, so two processes could hold one lease",
            code="HF-E7103",
            where=self._uri,
            found="a second write replaced the object that the first had created",
            expected="an object store that rejects the second write",
            hint="update the object store or its gateway, or use a different store for checkpoints and"
            " elections",
        )

    def copy(self, source: str, target: str, *, origin: Storage | None = None) -> None:
        """See `Storage`."""
        giver = self if origin is None else origin
        if not isinstance(giver, RemoteStorage) or giver._fs is not self._fs or self._renames:
            self.write(target, giver.read(source))
            return
        if self.size(target) is not None:
            raise file_exists(self._uri, target)
        address = giver._at(source)
        with self._asking(source):
            self._fs.cp_file(address, self._at(target))

    def delete(self, path: str) -> None:
        """See `Storage`."""
        with self._asking(path), suppress(FileNotFoundError):
            self._fs.rm_file(self._at(path))

    def _put(self, path: str, data: bytes, *, replace: bool) -> None:
        """Write a file; if several writers create the same file concurrently, only one succeeds."""
        target = self._at(path)
        if self._protocol in _CONDITIONAL:
            self._put_marked(target, data, "overwrite" if replace else "create")
            return
        if not self._renames:
            self._fs.pipe_file(target, data, mode="overwrite" if replace else "create")
            return
        folder, _, name = target.rpartition("/")
        self._fs.makedirs(folder, exist_ok=True)
        # Two writers must not rename each other's temporary file.
        beside = f"{folder}/.{name}.{uuid.uuid4().hex}.tmp"
        self._fs.pipe_file(beside, data)
        try:
            self._move(beside, path, replace=replace)
        except BaseException:
            self._fs.rm_file(beside)
            raise

    def _put_marked(self, target: str, data: bytes, mode: str) -> None:
        """Write an object with a mark; after a rejected repeat, check whether the first request succeeded.

        The library repeats a successful request whose answer was lost. The second request then fails on the
        object of the first one, or on a finished upload.
        """
        mark = uuid.uuid4().hex
        try:
            self._put_object(target, data, mode, mark)
        except Exception as error:
            there = None
            with suppress(Exception):  # the result is unknown, so the first error is raised
                there = self._mark_of(target)
            if there == mark:
                return
            if mode == "create" and there is not None:
                raise FileExistsError from error  # stores report it with messages unknown to the library
            raise

    def _put_object(self, target: str, data: bytes, mode: str, mark: str) -> None:
        if self._protocol == _S3:
            self._fs.pipe_file(target, data, mode=mode, Metadata={_MARK: mark})
        elif self._protocol == _GCS:
            self._fs.pipe_file(target, data, mode=mode, metadata={_MARK: mark})
        else:
            from fsspec.asyn import sync

            sync(self._fs.loop, self._upload, target, data, mode == "overwrite", mark)

    async def _upload(self, target: str, data: bytes, overwrite: bool, mark: str) -> None:
        """Write a blob on Azure; the library's own call has no argument for metadata."""
        container, blob, _ = self._fs.split_path(target)
        async with self._fs.service_client.get_blob_client(container=container, blob=blob) as client:
            metadata = {"is_directory": "false", _MARK_ON_AZURE: mark}
            await client.upload_blob(data, overwrite=overwrite, metadata=metadata)

    def _mark_of(self, target: str) -> str:
        """Return the mark of an object; empty for an object that a different program has written."""
        if self._protocol == _S3:
            return str(self._fs.metadata(target, refresh=True).get(_MARK, ""))
        self._fs.invalidate_cache()
        metadata = self._fs.info(target).get("metadata") or {}
        return str(metadata.get(_MARK if self._protocol == _GCS else _MARK_ON_AZURE, ""))

    def _move(self, beside: str, path: str, *, replace: bool) -> None:
        target = self._at(path)
        if self._protocol == HDFS_OVER_HTTP:
            # fsspec's own rename does not request overwriting, and does not report if nothing was renamed.
            how = "OVERWRITE" if replace else "NONE"
            try:
                self._fs._call("RENAME", method="put", path=beside, destination=target, renameoptions=how)
            except RuntimeError as error:
                if not replace and self.size(path) is not None:
                    raise FileExistsError from error
                raise
            return
        if self._protocol == "hdfs" and replace and self.size(path) is not None:
            self._fs.rm_file(target)
        self._fs.mv(beside, target)

    def _at(self, path: str) -> str:
        return f"{self._root.rstrip('/')}/{path}" if path else self._root

    @contextmanager
    def _asking(self, path: str) -> Iterator[None]:
        """Raise Holdfast errors in place of the library's errors about a path."""
        try:
            yield
        except HoldfastError:
            raise
        except FileExistsError as error:
            raise file_exists(self._uri, path) from error
        except Exception as error:  # each library raises its own exceptions
            if _nothing_there(error) or isinstance(error, IsADirectoryError):
                raise no_file(self._uri, path) from error
            raise Unavailable(
                "a file or directory cannot be read or written",
                code="HF-E5048",
                where=full(self._uri, path),
                found=in_a_line(error),
                hint=CHECK,
            ) from error


def _nothing_there(error: Exception) -> bool:
    if isinstance(error, PermissionError):
        return _BELOW_A_FILE in str(error)
    return isinstance(error, (FileNotFoundError, NotADirectoryError))


def _same(name: str, folder: str) -> bool:
    return bool(name.strip("/") == folder.strip("/"))


def _options(protocol: str, host: str) -> dict[str, Any]:
    if protocol == "hdfs":
        return {"host": host or "default"}
    if protocol == HDFS_OVER_HTTP:
        name, _, port = host.rpartition(":")
        return {"host": name, "port": int(port)} if name and port.isdigit() else {"host": host, "port": 9870}
    # Without the cache, writes of other processes are visible immediately.
    options: dict[str, Any] = {"use_listings_cache": False}
    account = host.partition("@")[2]
    if protocol == _AZURE and account:
        options["account_name"] = account.partition(".")[0]
        if not account.endswith(_AZURE_HOST):
            options["account_host"] = account.replace(".dfs.", ".blob.", 1)
    return options


def connect(protocol: str, host: str, uri: str) -> Any:
    """Return the fsspec file system for a scheme and host.

    Raises:
        Unsupported: The library for this scheme is not installed.
        Unavailable: The file system cannot be reached.
    """
    try:
        import fsspec

        filesystem = fsspec.filesystem(protocol, **_options(protocol, host))
        if protocol == HDFS_OVER_HTTP:
            session = filesystem.session
            session.request = partial(_request, partial(type(session).request, session))
        return filesystem
    except ImportError as error:
        extra = _EXTRA.get(protocol)
        raise Unsupported(
            "the library for this storage is not installed",
            code="HF-E7104",
            where=uri,
            found=str(error).splitlines()[0],
            hint=f"run `pip install 'holdfast[{extra}]'`"
            if extra
            else f"install the fsspec library for {protocol}: addresses",
        ) from error
    except Exception as error:
        raise Unavailable(
            "the storage cannot be reached", code="HF-E5050", where=uri, found=in_a_line(error), hint=CHECK
        ) from error


def _request(send: Callable[..., Any], method: str, url: str, **keywords: Any) -> Any:
    """Send a request with a timeout, which fsspec does not set; repeat a read after a broken connection.

    A change is not repeated, because it may have succeeded.
    """
    from requests.exceptions import ConnectionError as ConnectionBroke

    keywords.setdefault("timeout", _PATIENCE_S)
    for _ in range(_READS - 1 if method.upper() == "GET" else 0):
        with suppress(ConnectionBroke):
            return send(method, url, **keywords)
    return send(method, url, **keywords)


def in_a_line(error: Exception) -> str:
    """Return an error's class and the first line of its message."""
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"


# With high availability, a NameNode's default is its own address; the name for all NameNodes is a separate
# setting.
_DEFAULT: Final = "fs.defaultFS"
_ONE_OF_SEVERAL: Final = "dfs.ha.namenode.id"
_NAME_OF_ALL: Final = "dfs.nameservice.id"
# The answer of a NameNode for a setting that it does not have.
_NO_SUCH_SETTING: Final = 404


def hadoop_address(uri: str) -> str:
    """Return a canonical URI in the form that Spark's Hadoop client accepts.

    A local path gets one slash. HDFS over HTTP (`webhdfs:`) is supported only by Holdfast's own commands:
    Spark's jars lack a class that this client needs, so it fails at its first answer. For `webhdfs:` the
    NameNode is asked for its native address, which takes two small requests the first time. Any other address
    is returned unchanged.

    Raises:
        Unsupported: The library for `webhdfs:` is not installed.
        Unavailable: The NameNode does not report its native address.
    """
    if not uri.startswith(f"{HDFS_OVER_HTTP}:"):
        return f"file:{uri.removeprefix('file://')}" if uri.startswith("file:///") else uri
    parts = urlsplit(uri)
    if _setting(parts.netloc, _ONE_OF_SEVERAL) is None:
        address = _setting(parts.netloc, _DEFAULT) or ""
    else:
        address = f"hdfs://{_setting(parts.netloc, _NAME_OF_ALL) or ''}"
    if not urlsplit(address).netloc or not address.startswith("hdfs://"):
        raise Unavailable(
            "the NameNode does not report its RPC address",
            code="HF-E5051",
            where=uri,
            found=f"{address!r} on its page /conf",
            expected="hdfs://…",
            hint="use the hdfs:// address that Spark uses; for this address, commands need Hadoop's native"
            " client",
        )
    return f"{address.rstrip('/')}{parts.path}"


@cache
def _setting(host: str, name: str) -> str | None:
    """Return a setting of a NameNode, read from its web page, or None if it has no such setting."""
    page = f"{HDFS_OVER_HTTP}://{host}/conf"
    filesystem = connect(HDFS_OVER_HTTP, host, page)
    try:
        address = f"{filesystem.url.partition(f'/{HDFS_OVER_HTTP}/')[0]}/conf"
        answer = filesystem.session.get(
            address, params={"name": name}, headers={"Accept": "application/json"}
        )
        if answer.status_code == _NO_SUCH_SETTING:
            return None
        answer.raise_for_status()
        return str(answer.json()["property"]["value"])
    except Exception as error:  # each library raises its own exceptions
        raise Unavailable(
            "the NameNode's configuration cannot be read",
            code="HF-E5052",
            where=page,
            found=in_a_line(error),
            hint=CHECK,
        ) from error
