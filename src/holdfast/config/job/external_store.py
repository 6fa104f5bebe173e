"""State in a database outside the cluster, which other services can read: how a job says where it is."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

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


def address(value: object, setting: str) -> str:
    """Host and port, as they are."""
    match = _ADDRESS.fullmatch(value) if isinstance(value, str) else None
    if match is None or not 0 < int(match["port"] or 1) < 1 << 16:
        # It may be a URL with a password in it.
        found = "a URL" if isinstance(value, str) and "://" in value else None
        raise refused(setting, value, 'host and port, such as "redis.example:6379"', found=found)
    return str(value)


def text(value: object, setting: str) -> str:
    """Any text that is not empty."""
    if not isinstance(value, str) or not value:
        raise refused(setting, value, "a text that is not empty")
    return value


def _secret(value: object, setting: str) -> str:
    if not isinstance(value, str) or not value:
        raise refused(setting, value, "a text that is not empty", found="something else")
    return value


def prefix(value: object, setting: str) -> str:
    """What the keys of all stores begin with."""
    if not isinstance(value, str) or not _PREFIX.fullmatch(value):
        raise refused(setting, value, "1 to 64 letters, digits, dots, dashes or underscores")
    return value


_CHECKS: Final[Mapping[str, Check]] = {
    "address": address,
    "database": partial(whole, least=0),
    "user": optional(text),
    "password": optional(_secret),
    "tls": flag,
    "trust_store": optional(text),
    "trust_store_password": optional(_secret),
    "prefix": prefix,
    "retain": partial(whole, least=1, most=10_000),
    "cache": parse_size,
    "patience": parse_duration,
}


@dataclass(frozen=True, slots=True)
class Redis:
    """State in Redis: it outlives the cluster, and other services can read it.

    It serves Spark's own operators: aggregates, deduplication, session windows and stream-stream joins. The
    session brings Holdfast's jar and fetches the client, Jedis.

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
        retain: How many batches can be taken back: versions that the database keeps before the newest.
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
            PROVIDER_KEY: REDIS_PROVIDER,
            FORMAT_KEY: "1",
            ROW_CHECKSUM_KEY: "false",
            f"{EXTERNAL}.redis.address": self.address,
            f"{EXTERNAL}.redis.database": str(self.database),
            f"{EXTERNAL}.redis.tls": shown(self.tls),
            f"{EXTERNAL}.prefix": self.prefix,
            f"{EXTERNAL}.retain": str(self.retain),
            f"{EXTERNAL}.cacheBytes": str(parse_size(self.cache)),
            f"{EXTERNAL}.patienceMillis": str(parse_duration(self.patience)),
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
        conf = self.spark_conf()

        def knob(name: str, value: object, key: str, why: str) -> SettingReport:
            full = f"{EXTERNAL}.{key}"
            becomes = f"{full} = {conf[full]}" if full in conf else f"{full}, not set"
            return SettingReport(name, shown(value), SettingOutcome.SPARK, becomes, why)

        def hidden(name: str, value: str | None, key: str, why: str) -> SettingReport:
            word = "set" if value else "not set"
            return SettingReport(name, word, SettingOutcome.SPARK, f"{EXTERNAL}.{key}, never shown", why)

        return (
            knob("address", self.address, "redis.address", "Every executor connects to it."),
            knob("database", self.database, "redis.database", "One of the server's numbered databases."),
            knob("user", self.user, "redis.user", "For a server with access lists."),
            hidden(
                "password",
                self.password,
                "redis.password",
                f"Where it is not set, {REDIS_PASSWORD_VARIABLE} in the driver's environment says it.",
            ),
            knob("tls", self.tls, "redis.tls", "Whether the connection is encrypted."),
            knob(
                "trust_store",
                self.trust_store,
                "redis.trustStore",
                "A key store on each executor with the server's certificate authority; else Java's own.",
            ),
            hidden(
                "trust_store_password",
                self.trust_store_password,
                "redis.trustStorePassword",
                "What opens that file.",
            ),
            knob("prefix", self.prefix, "prefix", "What all keys in the database begin with."),
            knob(
                "retain", self.retain, "retain", "Batches that can be taken back; each costs what it changed."
            ),
            knob(
                "cache",
                exact_size(parse_size(self.cache)),
                "cacheBytes",
                "State that an executor holds on its heap, so that it need not ask again.",
            ),
            knob(
                "patience",
                exact_duration(parse_duration(self.patience)),
                "patienceMillis",
                "How long a task asks again where the server does not answer.",
            ),
        )
