"""The state store providers whose files are known here, by the full names of their classes.

The last part of a class's name says nothing: other vendors have providers of the same one, with files of
another kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from holdfast.config.spark_defaults import (
    CASSANDRA_PROVIDER,
    EXTERNAL_PROVIDERS,
    MEMORY_PROVIDER,
    READ_BY_SPARK_ALONE,
    REDIS_PROVIDER,
    ROCKSDB_PROVIDER,
)
from holdfast.errors import Unsupported
from holdfast.formats.logs.batch_logs import PROVIDER

# As people know them.
PROVIDERS: Final[Mapping[str, str]] = {
    provider: provider.rpartition(".")[2] for provider in (ROCKSDB_PROVIDER, MEMORY_PROVIDER)
}
# The databases that keep state outside the cluster, as people know them.
DATABASES: Final[Mapping[str, str]] = {REDIS_PROVIDER: "Redis", CASSANDRA_PROVIDER: "Cassandra"}
# What an offset log is given where state of a database is shown or saved as files. Spark passes over it, and
# the next batch that it plans has none of it.
_PROVIDER: Final = "holdfast.stateStore.providerClass"
_DATABASE: Final = "holdfast.stateStore.database"
_PREFIX: Final = "holdfast.stateStore.prefix"
# The settings without that.
NO_NOTE: Final[Mapping[str, None]] = dict.fromkeys((_PROVIDER, _DATABASE, _PREFIX))


@dataclass(frozen=True, slots=True)
class ExternalState:
    """The database of state that is presented here as files of the memory provider.

    Attributes:
        provider: The class of the provider that keeps it in a database.
        database: The database's address, such as `redis://redis.example:6379/0` or
            `cassandra://cassandra.example:9042/holdfast`.
        prefix: What the names of its stores begin with.
    """

    provider: str
    database: str
    prefix: str

    @property
    def kind(self) -> str:
        """The kind of database: `Redis` or `Cassandra`."""
        return DATABASES[self.provider]

    def noted(self, confs: Mapping[str, str]) -> dict[str, str]:
        """The settings of a batch whose state is in files by now."""
        return {
            **confs,
            PROVIDER: MEMORY_PROVIDER,
            _PROVIDER: self.provider,
            _DATABASE: self.database,
            _PREFIX: self.prefix,
        }

    def pinned(self, confs: Mapping[str, str]) -> dict[str, str]:
        """The settings of a batch whose state is in the database again."""
        kept = {key: value for key, value in confs.items() if key not in NO_NOTE}
        return {**kept, PROVIDER: self.provider}


def external_state(confs: Mapping[str, str]) -> ExternalState | None:
    """Return the database of a batch's state; None for files."""
    provider = confs.get(_PROVIDER)
    if provider is None or provider_class(confs) != MEMORY_PROVIDER:
        return None
    return ExternalState(provider, confs.get(_DATABASE, ""), confs.get(_PREFIX, ""))


def provider_name(provider: str) -> str:
    """A provider's short name if it is one of Spark's or of Holdfast's, else that of its class."""
    known = provider in PROVIDERS or provider in EXTERNAL_PROVIDERS
    return provider.rpartition(".")[2] if known else provider


def provider_class(confs: Mapping[str, str]) -> str:
    """The class that a batch was fixed to; Spark takes the memory provider where none was noted."""
    return confs.get(PROVIDER, MEMORY_PROVIDER)


def check_read(provider: str, where: str) -> None:
    """See that there is a client in Python for where a provider keeps state.

    Args:
        provider: Its class.
        where: The checkpoint, for messages.

    Raises:
        Unsupported: There is none.
    """
    if provider in READ_BY_SPARK_ALONE:
        raise Unsupported(
            "the state of this checkpoint is in a database that only Spark reads",
            code="HF-E7072",
            where=where,
            found=provider,
            hint="its query can go on; one that needs savepoints, or commands that read state, has to start"
            " anew on RocksDB or Redis",
        )


def known_provider(confs: Mapping[str, str], where: str) -> str:
    """The class that a batch was fixed to.

    Args:
        confs: The settings in the batch's offset log.
        where: The checkpoint, for messages.

    Raises:
        Unsupported: Its files are not known here.
    """
    provider = provider_class(confs)
    check_read(provider, where)
    if provider in EXTERNAL_PROVIDERS:
        raise Unsupported(
            "this cannot be done to a checkpoint whose state is in a database",
            code="HF-E7073",
            where=where,
            found=provider,
            hint="take a savepoint, which has the state in files, and do it to that",
        )
    if provider not in PROVIDERS:
        raise Unsupported(
            "the state of this provider cannot be read from files",
            code="HF-E7074",
            where=where,
            found=provider,
            expected=" or ".join(PROVIDERS),
            hint="its vendor's own tools know its files",
        )
    return provider
