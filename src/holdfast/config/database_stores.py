"""State in Redis, Cassandra or TiKV, as a job declares it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol

from holdfast.config.checks import Check, check_fields, flag, one_of, optional, refused, whole
from holdfast.config.setting_report import SettingOutcome, SettingReport, format_setting
from holdfast.config.spark_defaults import (
    CASSANDRA_PROVIDER,
    FORMAT_KEY,
    PROVIDER_KEY,
    REDIS_PROVIDER,
    ROW_CHECKSUM_KEY,
    STATE_STORE,
    TIKV_PROVIDER,
)
from holdfast.config.units import Duration, Size, exact_duration, exact_size, parse_duration, parse_size
from holdfast.errors import Invalid

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
    """The settings of every database."""

    @property
    def prefix(self) -> str:
        """The prefix of all names in it."""

    @property
    def retain(self) -> int:
        """The number of versions that it keeps before the newest."""

    @property
    def cache(self) -> Size:
        """The amount of state that an executor caches."""

    @property
    def patience(self) -> Duration:
        """The time for which requests are retried."""


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

    def report(self, name: str, value: object, key: str, why: str) -> SettingReport:
        """Report a field that may be shown."""
        full = f"{EXTERNAL}.{key}"
        becomes = f"{full} = {self.conf[full]}" if full in self.conf else f"{full}, not set"
        return SettingReport(name, format_setting(value), SettingOutcome.SPARK, becomes, why)

    @staticmethod
    def hidden(name: str, value: str | None, key: str, why: str) -> SettingReport:
        """The report of a secret."""
        word = "set" if value else "not set"
        return SettingReport(name, word, SettingOutcome.SPARK, f"{EXTERNAL}.{key}, never shown", why)

    def common(self, store: ExternalSettings) -> tuple[SettingReport, ...]:
        """The reports of the fields that every database has."""
        return (
            self.report("prefix", store.prefix, "prefix", "What all names in the database begin with."),
            self.report(
                "retain",
                store.retain,
                "retain",
                "Versions before the newest that are kept; each costs what it changed.",
            ),
            self.report(
                "cache",
                exact_size(parse_size(store.cache)),
                "cacheBytes",
                "State that an executor holds on its heap, so that it need not ask again.",
            ),
            self.report(
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
            f"{EXTERNAL}.redis.tls": format_setting(self.tls),
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
            knobs.report("address", self.address, "redis.address", "Every executor connects to it."),
            knobs.report(
                "database", self.database, "redis.database", "One of the server's numbered databases."
            ),
            knobs.report("user", self.user, "redis.user", "For a server with access lists."),
            knobs.hidden(
                "password",
                self.password,
                "redis.password",
                f"Where it is not set, {REDIS_PASSWORD_VARIABLE} in the driver's environment says it.",
            ),
            knobs.report("tls", self.tls, "redis.tls", "Whether the connection is encrypted."),
            knobs.report(
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


CASSANDRA_PASSWORD_VARIABLE: Final = "HOLDFAST_CASSANDRA_PASSWORD"  # noqa: S105 - the name of a variable

# What needs no quotes in CQL.
_KEYSPACE: Final = re.compile(r"[a-z][a-z0-9_]{0,47}")


def _contact_points(value: object, setting: str) -> str:
    points = value.split(",") if isinstance(value, str) else [value]
    for point in points:
        address(point.strip() if isinstance(point, str) else point, setting, "cassandra.example:9042")
    return str(value)


def _keyspace(value: object, setting: str) -> str:
    if not isinstance(value, str) or not _KEYSPACE.fullmatch(value):
        raise refused(setting, value, "a letter and up to 47 letters, digits or underscores, in lower case")
    return value


_CASSANDRA_CHECKS: Final[Mapping[str, Check]] = {
    "contact_points": _contact_points,
    "local_datacenter": optional(text),
    "keyspace": _keyspace,
    "user": optional(text),
    "password": optional(secret),
    "tls": flag,
    "trust_store": optional(text),
    "trust_store_password": optional(secret),
    "replication": optional(partial(whole, least=1, most=100)),
    "consistency": partial(one_of, allowed=("LOCAL_QUORUM", "QUORUM")),
    **STORE_CHECKS,
}


@dataclass(frozen=True, slots=True)
class Cassandra:
    """State in Cassandra: it outlives the cluster, is kept in several copies, and other services can read it.

    As the backend of a job it serves Spark's own operators: aggregates, deduplication, session windows and
    stream-stream joins. The session brings Holdfast's jar and fetches Cassandra's driver for Java.
    Holdfast's keyed operators take it by themselves, as `process(…, blobs=hf.Cassandra(…))`, over RocksDB.

    The first start of a checkpoint pins the kind of store in its offset log. Where the database is can change
    with each start, as long as it has the state.

    Args:
        contact_points: Host and port of one node or several, with commas between them. The driver finds the
            others.
        local_datacenter: The data center whose nodes are asked; that of the contact points by default.
        keyspace: Where the tables are. They are made where they are missing.
        user: The user's name, where the server asks for one.
        password: The password; by default what HOLDFAST_CASSANDRA_PASSWORD says in the driver. It is never
            printed, and it is in no command line.
        tls: Whether to speak TLS.
        trust_store: A key store on each executor with the server's certificate authority; Java's own by
            default.
        trust_store_password: The password of that file.
        replication: In how many copies the local data center keeps the keyspace, if it has to be made. By
            default a keyspace that is missing is an error.
        consistency: LOCAL_QUORUM, or QUORUM where executors in several data centers share one job.
        prefix: What all names of stores begin with.
        retain: The number of versions that the database keeps before the newest, for reads and savepoints.
        cache: How much of the state an executor holds in memory, so that it need not ask again.
        patience: How long a task asks again where the server does not answer, before it fails.

    Raises:
        Invalid: A value that does not fit, with what is allowed.
    """

    contact_points: str = "127.0.0.1:9042"
    local_datacenter: str | None = None
    keyspace: str = "holdfast"
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: bool = False
    trust_store: str | None = None
    trust_store_password: str | None = field(default=None, repr=False)
    replication: int | None = None
    consistency: str = "LOCAL_QUORUM"
    prefix: str = "holdfast"
    retain: int = 10
    cache: Size = "256m"
    patience: Duration = "1m"

    def __post_init__(self) -> None:
        check_fields(self, "Cassandra", _CASSANDRA_CHECKS)

    def spark_conf(self) -> dict[str, str]:
        """Give the Spark settings of this store, without any password: `secrets` has those.

        Pinned in the offset log by the first start: the provider class.
        """
        conf = {
            **external_conf(CASSANDRA_PROVIDER, self),
            f"{EXTERNAL}.cassandra.contactPoints": self.contact_points,
            f"{EXTERNAL}.cassandra.keyspace": self.keyspace,
            f"{EXTERNAL}.cassandra.tls": format_setting(self.tls),
            f"{EXTERNAL}.cassandra.consistency": self.consistency,
        }
        chosen = {
            "localDatacenter": self.local_datacenter,
            "user": self.user,
            "trustStore": self.trust_store,
            "replication": None if self.replication is None else str(self.replication),
        }
        given = {f"{EXTERNAL}.cassandra.{key}": value for key, value in chosen.items() if value is not None}
        return {**conf, **given}

    def secrets(self, environ: Mapping[str, str] | None = None) -> dict[str, str]:
        """Give the settings that belong in no command line; a session sets them once it runs."""
        environ = os.environ if environ is None else environ
        given = {
            f"{EXTERNAL}.cassandra.password": self.password or environ.get(CASSANDRA_PASSWORD_VARIABLE),
            f"{EXTERNAL}.cassandra.trustStorePassword": self.trust_store_password,
        }
        return {key: value for key, value in given.items() if value}

    def knobs(self) -> tuple[SettingReport, ...]:
        """Tell what each field becomes, in the order of the fields."""
        knobs = Knobs(self.spark_conf())
        ours = "cassandra"
        variable = f"Where it is not set, {CASSANDRA_PASSWORD_VARIABLE} in the driver's environment says it."
        return (
            knobs.report(
                "contact_points",
                self.contact_points,
                f"{ours}.contactPoints",
                "Every executor connects to one of them and finds the other nodes.",
            ),
            knobs.report(
                "local_datacenter",
                self.local_datacenter,
                f"{ours}.localDatacenter",
                "Whose nodes are asked; else that of the contact points.",
            ),
            knobs.report("keyspace", self.keyspace, f"{ours}.keyspace", "Where the tables are."),
            knobs.report("user", self.user, f"{ours}.user", "For a server that asks for one."),
            knobs.hidden("password", self.password, f"{ours}.password", variable),
            knobs.report("tls", self.tls, f"{ours}.tls", "Whether the connection is encrypted."),
            knobs.report(
                "trust_store",
                self.trust_store,
                f"{ours}.trustStore",
                "A key store on each executor with the server's certificate authority; else Java's own.",
            ),
            knobs.hidden(
                "trust_store_password",
                self.trust_store_password,
                f"{ours}.trustStorePassword",
                "What opens that file.",
            ),
            knobs.report(
                "replication",
                self.replication,
                f"{ours}.replication",
                "Copies in the local data center, if the keyspace has to be made.",
            ),
            knobs.report(
                "consistency",
                self.consistency,
                f"{ours}.consistency",
                "Of which nodes a majority has to answer: those of the data center, or all.",
            ),
            *knobs.common(self),
        )


def _addresses(value: object, setting: str) -> str:
    if not isinstance(value, str):
        raise refused(setting, value, 'host and port of each PD, such as "pd1.example:2379,pd2.example:2379"')
    return ",".join(address(one.strip(), setting, "pd.example:2379") for one in value.split(","))


_TIKV_CHECKS: Final[Mapping[str, Check]] = {
    "pd": _addresses,
    "authority": optional(text),
    "certificate": optional(text),
    "key": optional(text),
    **STORE_CHECKS,
}


@dataclass(frozen=True, slots=True)
class TiKV:
    """State in TiKV: it outlives the cluster, and grows with TiKV's.

    It serves Spark's own operators: aggregates, deduplication, session windows and stream-stream joins. The
    session brings Holdfast's jar and fetches TiKV's client. State is kept by RawKV in API version 1, so the
    cluster has to be one of RawKV clients, and not one that holds the tables of TiDB.

    It was run against the mock store of TiKV's authors, never against a real cluster: try your own with
    `scripts/try-tikv.sh`. Commands that read state refuse its checkpoints.

    The first start of a checkpoint pins the kind of store in its offset log. Where the cluster is can change
    with each start, as long as it has the state.

    Args:
        pd: Host and port of each placement driver, with commas between.
        authority: A PEM file on driver and executors with the certificate authority of the servers. With it
            TLS is spoken, and TiKV's client then needs the other two files as well.
        certificate: A PEM file on driver and executors with the certificate that is shown to them.
        key: A PEM file on driver and executors with the key of that certificate, in PKCS 8.
        prefix: What all keys begin with.
        retain: The number of versions that the database keeps before the newest.
        cache: How much of the state an executor holds in memory, so that it need not ask again.
        patience: How long a task asks again where the cluster does not answer, before it fails.

    Raises:
        Invalid: A value that does not fit, with what is allowed.
    """

    pd: str = "127.0.0.1:2379"
    authority: str | None = None
    certificate: str | None = None
    key: str | None = None
    prefix: str = "holdfast"
    retain: int = 10
    cache: Size = "256m"
    patience: Duration = "1m"

    def __post_init__(self) -> None:
        check_fields(self, "TiKV", _TIKV_CHECKS)
        files = (self.authority, self.certificate, self.key)
        if None in files and any(files):
            raise Invalid(
                "TLS to TiKV needs three files",
                where="TiKV(authority=…, certificate=…, key=…)",
                found=", ".join(file for file in files if file),
                expected="authority, certificate and key, or none of them",
            )

    def spark_conf(self) -> dict[str, str]:
        """Give the Spark settings of this store.

        Pinned in the offset log by the first start: the provider class.
        """
        conf = {
            **external_conf(TIKV_PROVIDER, self),
            f"{EXTERNAL}.tikv.pd": self.pd,
        }
        for name in ("authority", "certificate", "key"):
            if (file := getattr(self, name)) is not None:
                conf[f"{EXTERNAL}.tikv.{name}"] = file
        return conf

    def secrets(self, environ: Mapping[str, str] | None = None) -> dict[str, str]:  # noqa: ARG002 - as of Redis
        """Give the settings that belong in no command line: there are none, keys are named by their files."""
        return {}

    def knobs(self) -> tuple[SettingReport, ...]:
        """Tell what each field becomes, in the order of the fields."""
        knobs = Knobs(self.spark_conf())
        return (
            knobs.report("pd", self.pd, "tikv.pd", "Every executor asks one of them where the data is."),
            knobs.report(
                "authority",
                self.authority,
                "tikv.authority",
                "A PEM file on driver and executors with the servers' authority; it turns TLS on.",
            ),
            knobs.report(
                "certificate",
                self.certificate,
                "tikv.certificate",
                "What driver and executors show the servers.",
            ),
            knobs.report("key", self.key, "tikv.key", "The file of that certificate's key, in PKCS 8."),
            *knobs.common(self),
        )
