"""The address of a checkpoint as Spark has to be told it, and as Spark writes it into paths."""

from __future__ import annotations

from functools import cache
from typing import Final
from urllib.parse import urlsplit

from holdfast.errors import Unavailable
from holdfast.storage.remote import CHECK, HDFS_OVER_HTTP, connect, in_a_line

# With high availability a NameNode's default is its own address; the name that stands for all is beside it.
_DEFAULT: Final = "fs.defaultFS"
_ONE_OF_SEVERAL: Final = "dfs.ha.namenode.id"
_NAME_OF_ALL: Final = "dfs.nameservice.id"
# What a NameNode answers of a setting that it does not have.
_NO_SUCH_SETTING: Final = 404
_PATIENCE_S: Final = 30


def hadoop_address(uri: str) -> str:
    """A canonical URI as Spark's own Hadoop client takes it.

    A local path has one slash. HDFS over HTTP (`webhdfs:`) is for verbs alone: Spark's jars leave out a class
    that this client needs, so that it fails at its first answer. There the NameNode is asked for its native
    address. Any other address stays.

    Cost: nothing, and for `webhdfs:` two small requests the first time.

    Raises:
        Unsupported: The library for `webhdfs:` is not installed.
        Unavailable: The NameNode does not say what its native address is.
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
            "the NameNode does not say under which address Spark reaches it",
            where=uri,
            found=f"{address!r} at its page /conf",
            expected="hdfs://…",
            hint="name the place as Spark does, hdfs://…, for which verbs need Hadoop's native client",
        )
    return f"{address.rstrip('/')}{parts.path}"


@cache
def _setting(host: str, name: str) -> str | None:
    """A setting of a NameNode's, by its own page of them; None where it has none of that name."""
    page = f"{HDFS_OVER_HTTP}://{host}/conf"
    filesystem = connect(HDFS_OVER_HTTP, host, page)
    try:
        address = f"{filesystem.url.partition(f'/{HDFS_OVER_HTTP}/')[0]}/conf"
        answer = filesystem.session.get(
            address, params={"name": name}, headers={"Accept": "application/json"}, timeout=_PATIENCE_S
        )
        if answer.status_code == _NO_SUCH_SETTING:
            return None
        answer.raise_for_status()
        return str(answer.json()["property"]["value"])
    except Exception as error:  # each library raises what it likes
        raise Unavailable(
            "the NameNode does not say how it is set up", where=page, found=in_a_line(error), hint=CHECK
        ) from error
