"""State in a database outside the cluster: what a job says of any, and of Redis."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol

from holdfast.config.checks import Check, check_fields, flag, optional, refused, whole
from holdfast.config.setting_report import SettingOutcome, SettingReport, shown
from holdfast.config.spark_defaults import (
    FORMAT_KEY,
    PROVIDER_KEY,
    REDIS_PROVIDER,
    ROW_CHECKSUM_KEY,
    STATE_STORE,
)
from holdfast.config.units import Duration, Size, exact_duration, exact_size, parse_duration, parse_size

EXTERNAL: Final = f"{STATE_STORE}.holdfast"
REDIS_PASSWORD_VARIABLE: Final = "HOLDFAST_REDIS_PASSWORD"  # noqa: S105 - the name of a variable

_ADDRESS: Final = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^\s:/@\[\]]+)(?::(?P<port>\d{1,5}))?")
_PREFIX: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")


def address(value: object, setting: str, example: str = "redis.example:6379") -> str:
    """Return host and port.

    Raises:
        Invalid: It is anything else.
    """
    match = _ADDRESS.fullmatch(value) if isinstance(value, str) else None
    if match is None or not 0 < int(match["port"] or 1) < 1 << 16:
        # It may be a URL with a password in it.
        found = "a URL" if isinstance(value, str) and "://" in value else None
        raise refused(setting, value, f'host and port, such as "{example}"', found=found)
    return str(value)


def text(value: object, setting: str) -> str:
    """Return a text.

    Raises:
        Invalid: It is empty, or no text.
    """
    if not isinstance(value, str) or not value:
        raise refused(setting, value, "a text that is not empty")
    return value


def secret(value: object, setting: str) -> str:
    """Return a text that no error shows.

    Raises:
        Invalid: It is empty, or no text.
    """
    if not isinstance(value, str) or not value:
        raise refused(setting, value, "a text that is not empty", found="something else")
    return value


def _prefix(value: object, setting: str) -> str:
    if not isinstance(value, str) or not _PREFIX.fullmatch(value):
        raise refused(setting, value, "1 to 64 letters, digits, dots, dashes or underscores")
    return value


STORE_CHECKS: Final[Mapping[str, Check]] = {
    "prefix": _prefix,
    "retain": partial(whole, least=1, most=10_000),
    "cache": parse_size,
    "patience": parse_duration,
}


class ExternalSettings(Protocol):
    """What is said of every database."""

    @property
    def prefix(self) -> str:
        """What all names in it begin with."""

    @property
    def retain(self) -> int:
        """How many versions before the newest it keeps."""

    @property
    def cache(self) -> Size:
        """How much of the state an executor holds."""

    @property
    def patience(self) -> Duration:
        """How long it is asked again."""


def external_conf(provider: str, store: ExternalSettings) -> dict[str, str]:
    """The Spark settings that every database has."""
    return {
        PROVIDER_KEY: provider,
        FORMAT_KEY: "1",
        ROW_CHECKSUM_KEY: "false",
        f"{EXTERNAL}.prefix": store.prefix,
        f"{EXTERNAL}.retain": str(store.retain),
        f"{EXTERNAL}.cacheBytes": str(parse_size(store.cache)),
        f"{EXTERNAL}.patienceMillis": str(parse_duration(store.patience)),
    }


@dataclass(frozen=True, slots=True)
class Knobs:
    """Reports of what fields become.

    Attributes:
        conf: The Spark settings that they are.
    """

    conf: Mapping[str, str]

    def shown(self, name: str, value: object, key: str, why: str) -> SettingReport:
        """The report of a field that may be seen."""
        full = f"{EXTERNAL}.{key}"
        becomes = f"{full} = {self.conf[full]}" if full in self.conf else f"{full}, not set"
        return SettingReport(name, shown(value), SettingOutcome.SPARK, becomes, why)

    @staticmethod
    def hidden(name: str, value: str | None, key: str, why: str) -> SettingReport:
        """The report of a secret."""
        word = "set" if value else "not set"
        return SettingReport(name, word, SettingOutcome.SPARK, f"{EXTERNAL}.{key}, never shown", why)

    def common(self, store: ExternalSettings) -> tuple[SettingReport, ...]:
        """The reports of the fields that every database has."""
        return (
            self.shown("prefix", store.prefix, "prefix", "What all names in the database begin with."),
            self.shown(
                "retain",
                store.retain,
                "retain",
                "Versions before the newest that are kept; each costs what it changed.",
            ),
            self.shown(
                "cache",
                exact_size(parse_size(store.cache)),
                "cacheBytes",
                "State that an executor holds on its heap, so that it need not ask again.",
            ),
            self.shown(
                "patience",
                exact_duration(parse_duration(store.patience)),
                "patienceMillis",
                "How long a task asks again where the database does not answer.",
            ),
        )


_CHECKS: Final[Mapping[str, Check]] = {
    "address": address,
    "database": partial(whole, least=0),
    "user": optional(text),
    "password": optional(secret),
    "tls": flag,
    "trust_store": optional(text),
    "trust_store_password": optional(secret),
    **STORE_CHECKS,
}


@dataclass(frozen=True, slots=True)
class Redis:
    """State in Redis: it outlives the cluster, and other services can read it.

    As the backend of a job it serves Spark's own operators: aggregates, deduplication, session windows and
    stream-stream joins. The session brings Holdfast's jar and fetches the client, Jedis. Holdfast's keyed
    operators take it by themselves, as `process(…, blobs=hf.Redis(…))`, over RocksDB.

    The first start of a checkpoint pins the kind of store in its offset log. Where the database is can change
    with each start, as long as it has the state.

    Args:
        address: Host and port.
        database: Which of the server's databases.
        user: The user's name, where the server asks for one.
        password: The password; by default what HOLDFAST_REDIS_PASSWORD says in the driver. It is never
            printed, and it is in no command line.
        tls: Whether to speak TLS.
        trust_store: A key store on each executor with the server's certificate authority; Java's own by
            default.
        trust_store_password: The password of that file.
        prefix: What all keys begin with.
        retain: The number of versions that the database keeps before the newest, for reads and savepoints.
        cache: How much of the state an executor holds in memory, so that it need not ask again.
        patience: How long a task asks again where the server does not answer, before it fails.

    Raises:
        Invalid: A value that does not fit, with what is allowed.
    """

    address: str = "127.0.0.1:6379"
    database: int = 0
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: bool = False
    trust_store: str | None = None
    trust_store_password: str | None = field(default=None, repr=False)
    prefix: str = "holdfast"
    retain: int = 10
    cache: Size = "256m"
    patience: Duration = "1m"

    def __post_init__(self) -> None:
        check_fields(self, "Redis", _CHECKS)

    def spark_conf(self) -> dict[str, str]:
        """Give the Spark settings of this store, without any password: `secrets` has those.

        Pinned in the offset log by the first start: the provider class.
        """
        conf = {
            **external_conf(REDIS_PROVIDER, self),
            f"{EXTERNAL}.redis.address": self.address,
            f"{EXTERNAL}.redis.database": str(self.database),
            f"{EXTERNAL}.redis.tls": shown(self.tls),
        }
        if self.user is not None:
            conf[f"{EXTERNAL}.redis.user"] = self.user
        if self.trust_store is not None:
            conf[f"{EXTERNAL}.redis.trustStore"] = self.trust_store
        return conf

    def secrets(self, environ: Mapping[str, str] | None = None) -> dict[str, str]:
        """Give the settings that belong in no command line; a session sets them once it runs."""
        environ = os.environ if environ is None else environ
        given = {
            f"{EXTERNAL}.redis.password": self.password or environ.get(REDIS_PASSWORD_VARIABLE),
            f"{EXTERNAL}.redis.trustStorePassword": self.trust_store_password,
        }
        return {key: value for key, value in given.items() if value}

    def knobs(self) -> tuple[SettingReport, ...]:
        """Tell what each field becomes, in the order of the fields."""
        knobs = Knobs(self.spark_conf())
        return (
            knobs.shown("address", self.address, "redis.address", "Every executor connects to it."),
            knobs.shown(
                "database", self.database, "redis.database", "One of the server's numbered databases."
            ),
            knobs.shown("user", self.user, "redis.user", "For a server with access lists."),
            knobs.hidden(
                "password",
                self.password,
                "redis.password",
                f"Where it is not set, {REDIS_PASSWORD_VARIABLE} in the driver's environment says it.",
            ),
            knobs.shown("tls", self.tls, "redis.tls", "Whether the connection is encrypted."),
            knobs.shown(
                "trust_store",
                self.trust_store,
                "redis.trustStore",
                "A key store on each executor with the server's certificate authority; else Java's own.",
            ),
            knobs.hidden(
                "trust_store_password",
                self.trust_store_password,
                "redis.trustStorePassword",
                "What opens that file.",
            ),
            *knobs.common(self),
        )
