"""The state store providers that Holdfast can read, by the full names of their classes.

The last part of a class name is not sufficient: other vendors have providers with the same name and different
files.
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

# The displayed names.
PROVIDERS: Final[Mapping[str, str]] = {
    provider: provider.rpartition(".")[2] for provider in (ROCKSDB_PROVIDER, MEMORY_PROVIDER)
}
# The databases that store state outside the cluster, with their displayed names.
DATABASES: Final[Mapping[str, str]] = {REDIS_PROVIDER: "Redis", CASSANDRA_PROVIDER: "Cassandra"}
# The settings added to an offset log when state in a database is shown or saved as files. Spark ignores them,
# and the next batch that it plans has none of them.
_PROVIDER: Final = "holdfast.stateStore.providerClass"
_DATABASE: Final = "holdfast.stateStore.database"
_PREFIX: Final = "holdfast.stateStore.prefix"
# The settings without the added ones.
NO_NOTE: Final[Mapping[str, None]] = dict.fromkeys((_PROVIDER, _DATABASE, _PREFIX))


@dataclass(frozen=True, slots=True)
class ExternalState:
    """A database with state, shown as files of the memory provider.

    Attributes:
        provider: The class of the provider that stores state in the database.
        database: The address of the database, such as `redis://redis.example:6379/0` or
            `cassandra://cassandra.example:9042/holdfast`.
        prefix: The prefix of the names of the stores.
    """

    provider: str
    database: str
    prefix: str

    @property
    def kind(self) -> str:
        """Return the kind of database: `Redis` or `Cassandra`."""
        return DATABASES[self.provider]

    def noted(self, confs: Mapping[str, str]) -> dict[str, str]:
        """Return the settings of a batch with the state shown as files."""
        return {
            **confs,
            PROVIDER: MEMORY_PROVIDER,
            _PROVIDER: self.provider,
            _DATABASE: self.database,
            _PREFIX: self.prefix,
        }

    def pinned(self, confs: Mapping[str, str]) -> dict[str, str]:
        """Return the settings of a batch with the state in the database again."""
        kept = {key: value for key, value in confs.items() if key not in NO_NOTE}
        return {**kept, PROVIDER: self.provider}


def external_state(confs: Mapping[str, str]) -> ExternalState | None:
    """Return the database of a batch's state, or None for state in files."""
    provider = confs.get(_PROVIDER)
    if provider is None or provider_class(confs) != MEMORY_PROVIDER:
        return None
    return ExternalState(provider, confs.get(_DATABASE, ""), confs.get(_PREFIX, ""))


def provider_name(provider: str) -> str:
    """Return the short name of a provider of Spark or Holdfast, or the class name of any other provider."""
    known = provider in PROVIDERS or provider in EXTERNAL_PROVIDERS
    return provider.rpartition(".")[2] if known else provider


def provider_class(confs: Mapping[str, str]) -> str:
    """Return the provider class of a batch; if none is recorded, it is Spark's memory provider."""
    return confs.get(PROVIDER, MEMORY_PROVIDER)


def check_read(provider: str, where: str) -> None:
    """Check that Holdfast can read the state of a provider.

    Args:
        provider: The class of the provider.
        where: The checkpoint, for error messages.

    Raises:
        Unsupported: Only Spark can read the state of the provider.
    """
    if provider in READ_BY_SPARK_ALONE:
        raise Unsupported(
            (
                "the state of the checkpoint cannot be read, because it is in a database that only"
                " Spark supports"
            ),
            code="HF-E7072",
            where=where,
            found=provider,
            hint="the query can continue; for savepoints and commands that read state, start a new "
            "checkpoint on RocksDB or Redis",
        )


def known_provider(confs: Mapping[str, str], where: str) -> str:
    """Return the provider class of a batch, after checking that Holdfast can read its files.

    Args:
        confs: The settings in the batch's offset log.
        where: The checkpoint, for error messages.

    Raises:
        Unsupported: The provider is unknown, or stores its state in a database.
    """
    provider = provider_class(confs)
    check_read(provider, where)
    if provider in EXTERNAL_PROVIDERS:
        raise Unsupported(
            "this operation does not support a checkpoint with state in a database",
            code="HF-E7073",
            where=where,
            found=provider,
            hint="take a savepoint, which has the state in files, and run the command on the savepoint",
        )
    if provider not in PROVIDERS:
        raise Unsupported(
            "unknown state store provider, so Holdfast cannot read the state",
            code="HF-E7074",
            where=where,
            found=provider,
            expected=" or ".join(PROVIDERS),
            hint="read this state with the tools of the provider's vendor",
        )
    return provider
