"""State in Redis, Cassandra or TiKV, as a job declares it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar, Final

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
CASSANDRA_PASSWORD_VARIABLE: Final = "HOLDFAST_CASSANDRA_PASSWORD"  # noqa: S105 - the name of a variable

_ADDRESS: Final = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^\s:/@\[\]]+)(?::(?P<port>\d{1,5}))?")
_PREFIX: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")


def _host_and_port(value: object, setting: str, example: str = "redis.example:6379") -> str:
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


_STORE_CHECKS: Final[Mapping[str, Check]] = {
    "prefix": _prefix,
    "retain": partial(whole, least=1, most=10_000),
    "cache": parse_size,
    "patience": parse_duration,
}


@dataclass(frozen=True, slots=True)
class _Field:
    """A setting of one database.

    Attributes:
        name: The name of the field.
        key: The Spark setting that it becomes, after `EXTERNAL`.
        why: The explanation.
        check: Returns the value as it is stored, or refuses it.
        secret: True if nothing may show the value.
        variable: The environment variable that has the value if the field is None.
    """

    name: str
    key: str
    why: str
    check: Check
    secret: bool = False
    variable: str | None = None


class _DatabaseStore:
    """The settings of a database: a frozen dataclass with the fields of every database after its own."""

    __slots__ = ()

    prefix: str
    retain: int
    cache: Size
    patience: Duration

    _provider: ClassVar[str]
    _own_fields: ClassVar[tuple[_Field, ...]]

    def __post_init__(self) -> None:
        check_fields(
            self, type(self).__name__, {**{own.name: own.check for own in self._own_fields}, **_STORE_CHECKS}
        )

    def spark_conf(self) -> dict[str, str]:
        """Give the Spark settings of this store, without any password: `secrets` has those.

        Pinned in the offset log by the first start: the provider class.
        """
        settings = {
            f"{EXTERNAL}.{own.key}": format_setting(value)
            for own in self._own_fields
            if not own.secret and (value := getattr(self, own.name)) is not None
        }
        return {
            PROVIDER_KEY: self._provider,
            FORMAT_KEY: "1",
            ROW_CHECKSUM_KEY: "false",
            f"{EXTERNAL}.prefix": self.prefix,
            f"{EXTERNAL}.retain": str(self.retain),
            f"{EXTERNAL}.cacheBytes": str(parse_size(self.cache)),
            f"{EXTERNAL}.patienceMillis": str(parse_duration(self.patience)),
            **settings,
        }

    def secrets(self, environ: Mapping[str, str] | None = None) -> dict[str, str]:
        """Give the settings that belong in no command line; a session sets them once it runs."""
        environ = os.environ if environ is None else environ
        values = {
            f"{EXTERNAL}.{own.key}": getattr(self, own.name) or environ.get(own.variable or "")
            for own in self._own_fields
            if own.secret
        }
        return {key: value for key, value in values.items() if value}

    def knobs(self) -> tuple[SettingReport, ...]:
        """Tell what each field becomes, in the order of the fields."""
        conf = self.spark_conf()

        def shown(name: str, value: object, key: str, why: str) -> SettingReport:
            full = f"{EXTERNAL}.{key}"
            becomes = f"{full} = {conf[full]}" if full in conf else f"{full}, not set"
            return SettingReport(name, format_setting(value), SettingOutcome.SPARK, becomes, why)

        def hidden(name: str, value: object, key: str, why: str) -> SettingReport:
            word = "set" if value else "not set"
            return SettingReport(name, word, SettingOutcome.SPARK, f"{EXTERNAL}.{key}, never shown", why)

        cache, patience = exact_size(parse_size(self.cache)), exact_duration(parse_duration(self.patience))
        return (
            *(
                (hidden if own.secret else shown)(own.name, getattr(self, own.name), own.key, own.why)
                for own in self._own_fields
            ),
            shown("prefix", self.prefix, "prefix", "What all names in the database begin with."),
            shown(
                "retain",
                self.retain,
                "retain",
                "Versions before the newest that are kept; each costs what it changed.",
            ),
            shown(
                "cache",
                cache,
                "cacheBytes",
                "State that an executor holds on its heap, so that it need not ask again.",
            ),
            shown(
                "patience",
                patience,
                "patienceMillis",
                "How long a task asks again where the database does not answer.",
            ),
        )


def _login_fields(product: str, variable: str, user: str) -> tuple[_Field, ...]:
    """Return the fields of user, password and TLS, which Redis and Cassandra have."""
    return (
        _Field("user", f"{product}.user", user, optional(text)),
        _Field(
            "password",
            f"{product}.password",
            f"Where it is not set, {variable} in the driver's environment says it.",
            optional(secret),
            secret=True,
            variable=variable,
        ),
        _Field("tls", f"{product}.tls", "Whether the connection is encrypted.", flag),
        _Field(
            "trust_store",
            f"{product}.trustStore",
            "A key store on each executor with the server's certificate authority; else Java's own.",
            optional(text),
        ),
        _Field(
            "trust_store_password",
            f"{product}.trustStorePassword",
            "What opens that file.",
            optional(secret),
            secret=True,
        ),
    )


@dataclass(frozen=True, slots=True)
class Redis(_DatabaseStore):
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

    _provider = REDIS_PROVIDER
    _own_fields = (
        _Field("address", "redis.address", "Every executor connects to it.", _host_and_port),
        _Field(
            "database", "redis.database", "One of the server's numbered databases.", partial(whole, least=0)
        ),
        *_login_fields("redis", REDIS_PASSWORD_VARIABLE, "For a server with access lists."),
    )


# What needs no quotes in CQL.
_KEYSPACE: Final = re.compile(r"[a-z][a-z0-9_]{0,47}")


def _contact_points(value: object, setting: str) -> str:
    points = value.split(",") if isinstance(value, str) else [value]
    for point in points:
        _host_and_port(point.strip() if isinstance(point, str) else point, setting, "cassandra.example:9042")
    return str(value)


def _keyspace(value: object, setting: str) -> str:
    if not isinstance(value, str) or not _KEYSPACE.fullmatch(value):
        raise refused(setting, value, "a letter and up to 47 letters, digits or underscores, in lower case")
    return value


@dataclass(frozen=True, slots=True)
class Cassandra(_DatabaseStore):
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

    _provider = CASSANDRA_PROVIDER
    _own_fields = (
        _Field(
            "contact_points",
            "cassandra.contactPoints",
            "Every executor connects to one of them and finds the other nodes.",
            _contact_points,
        ),
        _Field(
            "local_datacenter",
            "cassandra.localDatacenter",
            "Whose nodes are asked; else that of the contact points.",
            optional(text),
        ),
        _Field("keyspace", "cassandra.keyspace", "Where the tables are.", _keyspace),
        *_login_fields("cassandra", CASSANDRA_PASSWORD_VARIABLE, "For a server that asks for one."),
        _Field(
            "replication",
            "cassandra.replication",
            "Copies in the local data center, if the keyspace has to be made.",
            optional(partial(whole, least=1, most=100)),
        ),
        _Field(
            "consistency",
            "cassandra.consistency",
            "Of which nodes a majority has to answer: those of the data center, or all.",
            partial(one_of, allowed=("LOCAL_QUORUM", "QUORUM")),
        ),
    )


def _addresses(value: object, setting: str) -> str:
    if not isinstance(value, str):
        raise refused(setting, value, 'host and port of each PD, such as "pd1.example:2379,pd2.example:2379"')
    return ",".join(_host_and_port(one.strip(), setting, "pd.example:2379") for one in value.split(","))


@dataclass(frozen=True, slots=True)
class TiKV(_DatabaseStore):
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

    _provider = TIKV_PROVIDER
    _own_fields = (
        _Field("pd", "tikv.pd", "Every executor asks one of them where the data is.", _addresses),
        _Field(
            "authority",
            "tikv.authority",
            "A PEM file on driver and executors with the servers' authority; it turns TLS on.",
            optional(text),
        ),
        _Field(
            "certificate", "tikv.certificate", "What driver and executors show the servers.", optional(text)
        ),
        _Field("key", "tikv.key", "The file of that certificate's key, in PKCS 8.", optional(text)),
    )

    def __post_init__(self) -> None:
        _DatabaseStore.__post_init__(self)
        files = (self.authority, self.certificate, self.key)
        if None in files and any(files):
            raise Invalid(
                "TLS to TiKV needs three files",
                code="HF-E2159",
                where="TiKV(authority=…, certificate=…, key=…)",
                found=", ".join(file for file in files if file),
                expected="authority, certificate and key, or none of them",
            )
