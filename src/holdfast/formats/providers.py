"""The state store providers whose files are known here, by the full names of their classes.

The last part of a class's name says nothing: other vendors have providers of the same one, with files of
another kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from holdfast.config.spark_defaults import MEMORY_PROVIDER, ROCKSDB_PROVIDER
from holdfast.errors import Unsupported
from holdfast.formats.logs.offset_log import PROVIDER

# As people know them.
PROVIDERS: Final[Mapping[str, str]] = {
    provider: provider.rpartition(".")[2] for provider in (ROCKSDB_PROVIDER, MEMORY_PROVIDER)
}


def provider_class(confs: Mapping[str, str]) -> str:
    """The class that a batch was fixed to; Spark takes the memory provider where none was noted."""
    return confs.get(PROVIDER, MEMORY_PROVIDER)


def known_provider(confs: Mapping[str, str], where: str) -> str:
    """The class that a batch was fixed to.

    Args:
        confs: The settings in the batch's offset log.
        where: The checkpoint, for messages.

    Raises:
        Unsupported: Its files are not known here.
    """
    provider = provider_class(confs)
    if provider not in PROVIDERS:
        raise Unsupported(
            "the state of this provider cannot be read from files",
            where=where,
            found=provider,
            expected=" or ".join(PROVIDERS),
            hint="its vendor's own tools know its files",
        )
    return provider
