"""State in Cassandra: how a job says where it is."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from holdfast.config.checks import Check, check_fields, flag, one_of, optional, refused, whole
from holdfast.config.job.external_store import (
    EXTERNAL,
    STORE_CHECKS,
    Knobs,
    address,
    external_conf,
    secret,
    text,
)
from holdfast.config.setting_report import SettingReport, shown
from holdfast.config.spark_defaults import CASSANDRA_PROVIDER
from holdfast.config.units import Duration, Size

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


_CHECKS: Final[Mapping[str, Check]] = {
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
        check_fields(self, "Cassandra", _CHECKS)

    def spark_conf(self) -> dict[str, str]:
        """Give the Spark settings of this store, without any password: `secrets` has those.

        Pinned in the offset log by the first start: the provider class.
        """
        conf = {
            **external_conf(CASSANDRA_PROVIDER, self),
            f"{EXTERNAL}.cassandra.contactPoints": self.contact_points,
            f"{EXTERNAL}.cassandra.keyspace": self.keyspace,
            f"{EXTERNAL}.cassandra.tls": shown(self.tls),
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
            knobs.shown(
                "contact_points",
                self.contact_points,
                f"{ours}.contactPoints",
                "Every executor connects to one of them and finds the other nodes.",
            ),
            knobs.shown(
                "local_datacenter",
                self.local_datacenter,
                f"{ours}.localDatacenter",
                "Whose nodes are asked; else that of the contact points.",
            ),
            knobs.shown("keyspace", self.keyspace, f"{ours}.keyspace", "Where the tables are."),
            knobs.shown("user", self.user, f"{ours}.user", "For a server that asks for one."),
            knobs.hidden("password", self.password, f"{ours}.password", variable),
            knobs.shown("tls", self.tls, f"{ours}.tls", "Whether the connection is encrypted."),
            knobs.shown(
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
            knobs.shown(
                "replication",
                self.replication,
                f"{ours}.replication",
                "Copies in the local data center, if the keyspace has to be made.",
            ),
            knobs.shown(
                "consistency",
                self.consistency,
                f"{ours}.consistency",
                "Of which nodes a majority has to answer: those of the data center, or all.",
            ),
            *knobs.common(self),
        )
