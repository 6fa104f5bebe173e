"""What Spark's store holds in place of a blob that is kept elsewhere: its name, size and digest."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

import xxhash

from holdfast.errors import Corrupt

# A blob begins with the fingerprint of its form, of eight bytes too, which is a hash and never this.
MAGIC: Final = b"\0HF-BLOB"
_HEAD: Final = struct.Struct("<8sQ16s")
_DAMAGED: Final = "restore a savepoint, or roll the checkpoint back: see `holdfast checkpoint verify`"


@dataclass(frozen=True, slots=True)
class BlobName:
    """A blob that is kept elsewhere.

    Attributes:
        key: Its name there, which is never given twice.
        size_bytes: Its size.
        digest: The hash of its bytes.
    """

    key: str
    size_bytes: int
    digest: bytes

    @classmethod
    def of(cls, key: str, blob: bytes) -> BlobName:
        """The name of these bytes."""
        return cls(key, len(blob), xxhash.xxh3_128_digest(blob))

    def encode(self) -> bytes:
        """As it is stored."""
        return _HEAD.pack(MAGIC, self.size_bytes, self.digest) + self.key.encode()

    @classmethod
    def decode(cls, data: bytes) -> BlobName:
        """Read back what `encode` wrote.

        Raises:
            Corrupt: It is cut short, or its key is no text.
        """
        try:
            _, size_bytes, digest = _HEAD.unpack_from(data)
            return cls(data[_HEAD.size :].decode(), size_bytes, digest)
        except (struct.error, UnicodeDecodeError) as error:
            raise Corrupt("the name of a blob cannot be read", found=str(error), hint=_DAMAGED) from error

    def checked(self, blob: bytes | None, group: int, where: str, product: str) -> bytes:
        """The blob as it was fetched from a database, if it is the one that was written.

        Raises:
            Corrupt: It is gone, or has other bytes.
        """
        if blob is None:
            fact, found = f"a blob of keyed state is gone from {product}", "nothing"
        elif len(blob) == self.size_bytes and xxhash.xxh3_128_digest(blob) == self.digest:
            return blob
        else:
            fact, found = (
                f"a blob of keyed state is damaged in {product}",
                f"{len(blob)} bytes with another digest",
            )
        raise Corrupt(
            fact,
            where=f"{where}, key group {group}, key {self.key}",
            found=found,
            expected=f"{self.size_bytes} bytes",
            hint=f"bring back the data that {product} had, from its files, a replica or a backup, or start "
            "the query with a new checkpoint; a batch that is no longer retained has lost its blobs",
        )


def is_name(data: bytes) -> bool:
    """Whether this is the name of a blob, and not a blob."""
    return data[: len(MAGIC)] == MAGIC
