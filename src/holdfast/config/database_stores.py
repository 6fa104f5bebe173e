"""The backends with state in a database: Redis, Cassandra and TiKV."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar, Final, Literal, TypeAlias, get_args

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
    """Check that a value is a host and a port, and return it.

    Raises:
        Invalid: The value is not `HOST:PORT`.
    """
    match = _ADDRESS.fullmatch(value) if isinstance(value, str) else None
    if match is None or not 0 < int(match["port"] or 1) < 1 << 16:
        # The value may be a URL with a password.
        found = "a URL" if isinstance(value, str) and "://" in value else None
        raise refused(setting, value, f'host and port, such as "{example}"', found=found)
    return str(value)


def text(value: object, setting: str) -> str:
    """Check that a value is non-empty text, and return it.

    Raises:
        Invalid: The value is empty or not text.
    """
    if not isinstance(value, str) or not value:
        raise refused(setting, value, "a non-empty string")
    return value


def secret(value: object, setting: str) -> str:
    """Check that a secret is non-empty text, and return it; no error shows the value.

    Raises:
        Invalid: The value is empty or not text.
    """
    if not isinstance(value, str) or not value:
        raise refused(setting, value, "a non-empty string", found="an empty or non-string value")
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
    """A field of a database backend.

    Attributes:
        name: The name of the field.
        key: The Spark setting that the field sets, without the prefix `EXTERNAL`.
        why: The explanation of the field.
        check: The function that returns the value to store, or raises an error.
        secret: Whether the value must never be shown.
        variable: The environment variable with the value to use if the field is None.
    """

    name: str
    key: str
    why: str
    check: Check
    secret: bool = False
    variable: str | None = None


class _DatabaseStore:
    """The base class of the database backends; its fields follow those of the subclass."""

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
        """Return the Spark settings of this store, except the passwords, which `secrets` returns.

        The first start pins the provider class in the offset log.
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
        """Return the settings with passwords, which are set in a running session, not on a command line."""
        environ = os.environ if environ is None else environ
        values = {
            f"{EXTERNAL}.{own.key}": getattr(self, own.name) or environ.get(own.variable or "")
            for own in self._own_fields
            if own.secret
        }
        return {key: value for key, value in values.items() if value}

    def knobs(self) -> tuple[SettingReport, ...]:
        """Return the explanation of every field, in order."""
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
            shown("prefix", self.prefix, "prefix", "The prefix of all names in the database."),
            shown(
                "retain",
                self.retain,
                "retain",
                "The number of versions kept before the newest; each takes the space of its changes.",
            ),
            shown(
                "cache",
                cache,
                "cacheBytes",
                "The amount of state that an executor caches on its heap.",
            ),
            shown(
                "patience",
                patience,
                "patienceMillis",
                "The time for which a task retries if the database does not answer.",
            ),
        )


def _login_fields(product: str, variable: str, user: str) -> tuple[_Field, ...]:
    """Return the fields of user, password and TLS, which Redis and Cassandra have."""
    return (
        _Field("user", f"{product}.user", user, optional(text)),
        _Field(
            "password",
            f"{product}.password",
            f"If not set, the value of {variable} in the driver's environment.",
            optional(secret),
            secret=True,
            variable=variable,
        ),
        _Field("tls", f"{product}.tls", "Whether the connection is encrypted.", flag),
        _Field(
            "trust_store",
            f"{product}.trustStore",
            "A key store on each executor with the server's certificate authority; by default Java's own.",
            optional(text),
        ),
        _Field(
            "trust_store_password",
            f"{product}.trustStorePassword",
            "The password of that file.",
            optional(secret),
            secret=True,
        ),
    )


@dataclass(frozen=True, slots=True)
class Redis(_DatabaseStore):
    """A backend with state in Redis, which outlives the cluster and can be read by other services.

    As the backend of a job, it supports Spark's own operators: aggregates, deduplication, session windows and
    stream-stream joins. The session adds Holdfast's jar and downloads the client, Jedis. Keyed operators use
    it with `process(…, blobs=hf.Redis(…))`, in addition to RocksDB.

    The first start of a checkpoint pins the kind of store in its offset log. The address of the database can
    change with each start, as long as it has the state.

    Args:
        address: Host and port.
        database: The number of the database on the server.
        user: The user's name, if the server requires one.
        password: The password; by default HOLDFAST_REDIS_PASSWORD of the driver's environment. It is never
            printed and never on a command line.
        tls: True to use TLS.
        trust_store: A key store file on each executor with the server's certificate authority; by default
            Java's.
        trust_store_password: The password of the trust store.
        prefix: The prefix of all keys.
        retain: The number of versions to keep before the newest, for reads and savepoints.
        cache: The amount of state that an executor caches in memory.
        patience: The time for which a task retries if the server does not answer, before it fails.

    Raises:
        Invalid: A value is not allowed.

    Example:
        backend = hf.Redis("redis.example:6379", user="shop", tls=True, cache="512m")
        assert backend.address == "redis.example:6379"
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


# Names that need no quotes in CQL.
_KEYSPACE: Final = re.compile(r"[a-z][a-z0-9_]{0,47}")


def _contact_points(value: object, setting: str) -> str:
    points = value.split(",") if isinstance(value, str) else [value]
    for point in points:
        _host_and_port(point.strip() if isinstance(point, str) else point, setting, "cassandra.example:9042")
    return str(value)


def _keyspace(value: object, setting: str) -> str:
    if not isinstance(value, str) or not _KEYSPACE.fullmatch(value):
        raise refused(
            setting, value, "a lower-case letter and up to 47 lower-case letters, digits or underscores"
        )
    return value


Consistency: TypeAlias = Literal["LOCAL_QUORUM", "QUORUM"]


@dataclass(frozen=True, slots=True)
class Cassandra(_DatabaseStore):
    """A backend with replicated state in Cassandra, which outlives the cluster and can be read by services.

    As the backend of a job, it supports Spark's own operators: aggregates, deduplication, session windows and
    stream-stream joins. The session adds Holdfast's jar and downloads Cassandra's driver for Java. Keyed
    operators use it with `process(…, blobs=hf.Cassandra(…))`, in addition to RocksDB.

    The first start of a checkpoint pins the kind of store in its offset log. The address of the database can
    change with each start, as long as it has the state.

    Args:
        contact_points: Host and port of one or more nodes, separated by commas. The driver finds the other
            nodes.
        local_datacenter: The data center whose nodes are queried; that of the contact points by default.
        keyspace: The keyspace of the tables. Missing tables are created.
        user: The user's name, if the server requires one.
        password: The password; by default HOLDFAST_CASSANDRA_PASSWORD of the driver's environment. It is
            never printed and never on a command line.
        tls: True to use TLS.
        trust_store: A key store file on each executor with the server's certificate authority; by default
            Java's.
        trust_store_password: The password of the trust store.
        replication: The number of copies in the local data center, for creating the keyspace. By default a
            missing keyspace is an error.
        consistency: LOCAL_QUORUM, or QUORUM if executors in several data centers share one job.
        prefix: The prefix of all store names.
        retain: The number of versions to keep before the newest, for reads and savepoints.
        cache: The amount of state that an executor caches in memory.
        patience: The time for which a task retries if the server does not answer, before it fails.

    Raises:
        Invalid: A value is not allowed.

    Example:
        backend = hf.Cassandra("db1.example:9042,db2.example:9042", keyspace="shop", replication=3)
        assert backend.consistency == "LOCAL_QUORUM"
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
    consistency: Consistency = "LOCAL_QUORUM"
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
            "The data center whose nodes are queried; by default that of the contact points.",
            optional(text),
        ),
        _Field("keyspace", "cassandra.keyspace", "The keyspace of the tables.", _keyspace),
        *_login_fields("cassandra", CASSANDRA_PASSWORD_VARIABLE, "For a server that requires one."),
        _Field(
            "replication",
            "cassandra.replication",
            "The number of copies in the local data center, for creating the keyspace.",
            optional(partial(whole, least=1, most=100)),
        ),
        _Field(
            "consistency",
            "cassandra.consistency",
            "The nodes of which a majority must answer: those of the data center, or all.",
            partial(one_of, allowed=get_args(Consistency)),
        ),
    )


def _addresses(value: object, setting: str) -> str:
    if not isinstance(value, str):
        raise refused(setting, value, 'host and port of each PD, such as "pd1.example:2379,pd2.example:2379"')
    return ",".join(_host_and_port(one.strip(), setting, "pd.example:2379") for one in value.split(","))


@dataclass(frozen=True, slots=True)
class TiKV(_DatabaseStore):
    """A backend with state in TiKV, which outlives the Spark cluster and scales with the TiKV cluster.

    It supports Spark's own operators: aggregates, deduplication, session windows and stream-stream joins. The
    session adds Holdfast's jar and downloads TiKV's client. State is stored through RawKV, API version 1, so
    the TiKV cluster must be used by RawKV clients and not by TiDB.

    This backend was tested with the mock store of TiKV's authors but not with a real cluster; test yours with
    `scripts/try-tikv.sh`. Commands that read state do not support its checkpoints.

    The first start of a checkpoint pins the kind of store in its offset log. The address of the cluster can
    change with each start, as long as it has the state.

    Args:
        pd: Host and port of each placement driver, separated by commas.
        authority: A PEM file on driver and executors with the certificate authority of the servers. It turns
            TLS on; TiKV's client then also requires `certificate` and `key`.
        certificate: A PEM file on driver and executors with the client certificate.
        key: A PEM file on driver and executors with the key of that certificate, in PKCS 8.
        prefix: The prefix of all keys.
        retain: The number of versions to keep before the newest.
        cache: The amount of state that an executor caches in memory.
        patience: The time for which a task retries if the cluster does not answer, before it fails.

    Raises:
        Invalid: A value is not allowed.

    Example:
        backend = hf.TiKV("pd1.example:2379,pd2.example:2379", prefix="shop")
        assert backend.retain == 10
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
        _Field(
            "pd",
            "tikv.pd",
            "The placement drivers, from which executors learn where data is stored.",
            _addresses,
        ),
        _Field(
            "authority",
            "tikv.authority",
            "A PEM file on driver and executors with the servers' certificate authority; turns TLS on.",
            optional(text),
        ),
        _Field(
            "certificate",
            "tikv.certificate",
            "The client certificate of driver and executors.",
            optional(text),
        ),
        _Field("key", "tikv.key", "The key of that certificate, in PKCS 8.", optional(text)),
    )

    def __post_init__(self) -> None:
        _DatabaseStore.__post_init__(self)
        files = (self.authority, self.certificate, self.key)
        if None in files and any(files):
            raise Invalid(
                "TLS to TiKV needs three files",
                code="HF-E2159",
                hint="give all three files, or none",
                where="TiKV(authority=…, certificate=…, key=…)",
                found=", ".join(file for file in files if file),
                expected="authority, certificate and key, or none of them",
            )
