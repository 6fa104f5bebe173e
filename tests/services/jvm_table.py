"""A store of Holdfast's in an external database, as the state stores of Spark use it, for tests in Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import holdfast as hf

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class ExternalError(Exception):
    """What the state stores throw for people."""


def tikv_place(spark: SparkSession, address: str, answer_ms: int = 5000, tls: Sequence[str] = ()) -> Any:
    """Where a TiKV is, as the JVM has it; TLS takes the files of authority, certificate and key."""
    jvm: Any = spark._jvm
    files = jvm.java.util.ArrayList()
    for file in tls:
        files.add(file)
    return jvm.holdfast.state.TiKvPlace(
        address, jvm.scala.jdk.javaapi.CollectionConverters.asScala(files).toSeq(), answer_ms
    )


class JvmTable:
    """One store; keys and values are bytes.

    Args:
        spark: The session whose JVM has Holdfast's jar.
        table: The JVM's object.
    """

    def __init__(self, spark: SparkSession, table: Any) -> None:
        self._jvm: Any = spark._jvm
        self._table = table

    @classmethod
    def redis(cls, spark: SparkSession, port: int, name: str, patience_ms: int = 10_000) -> JvmTable:
        """A store in Redis."""
        jvm: Any = spark._jvm
        nothing = jvm.scala.Option.empty()
        place = jvm.holdfast.state.RedisPlace(
            "127.0.0.1", port, 0, nothing, nothing, False, nothing, min(patience_ms, 5000) or 1000
        )
        return cls(spark, jvm.holdfast.state.RedisTable(place, name, patience_ms))

    @classmethod
    def cassandra(cls, spark: SparkSession, port: int, name: str, patience_ms: int = 10_000) -> JvmTable:
        """A store in Cassandra, in a keyspace that is made where it is missing."""
        return cls.cassandra_as(spark, hf.Cassandra(f"127.0.0.1:{port}", replication=1), name, patience_ms)

    @classmethod
    def cassandra_as(
        cls, spark: SparkSession, settings: hf.Cassandra, name: str, patience_ms: int = 10_000
    ) -> JvmTable:
        """A store in Cassandra as a session's settings say."""
        jvm: Any = spark._jvm
        option = jvm.scala.Option.apply
        trust = settings.trust_store
        place = jvm.holdfast.state.CassandraPlace(
            settings.contact_points,
            option(settings.local_datacenter),
            settings.keyspace,
            option(settings.user),
            option(settings.password),
            settings.tls,
            option(None if trust is None else jvm.scala.Tuple2(trust, option(settings.trust_store_password))),
            option(settings.replication),
            settings.consistency,
            min(patience_ms, 5000) or 1000,
        )
        return cls(spark, jvm.holdfast.state.CassandraTable(place, name, patience_ms))

    @classmethod
    def tikv(
        cls,
        spark: SparkSession,
        address: str,
        name: str,
        patience_ms: int = 10_000,
        *,
        answer_ms: int | None = None,
        tls: Sequence[str] = (),
    ) -> JvmTable:
        """A store in TiKV."""
        jvm: Any = spark._jvm
        place = tikv_place(spark, address, answer_ms or min(patience_ms, 5000) or 200, tls)
        return cls(spark, jvm.holdfast.state.TiKvTable(place, name, patience_ms))

    @classmethod
    def of(
        cls, kind: str, spark: SparkSession, address: str, name: str, patience_ms: int = 10_000
    ) -> JvmTable:
        """A store in the database of this name."""
        if kind == "tikv":
            return cls.tikv(spark, address, name, patience_ms)
        made: JvmTable = getattr(cls, kind)(spark, int(address.rpartition(":")[2]), name, patience_ms)
        return made

    def begin(self, version: int, run: str) -> Any:
        """An attempt to make the next version."""
        return self._told(lambda: self._table.begin(version, run))

    def stage(self, attempt: Any, changes: Mapping[bytes, bytes | None]) -> None:
        """Bring changes to the database."""
        entries = self._jvm.java.util.ArrayList()
        for field, value in changes.items():
            entries.add(self._jvm.holdfast.state.Entry(field, value))
        scala = self._jvm.scala.jdk.javaapi.CollectionConverters
        self._told(lambda: self._table.stage(attempt, scala.asScala(entries.iterator())))

    def commit(self, attempt: Any, run: str) -> int:
        """Make them the next version."""
        return int(self._told(lambda: self._table.commit(attempt, run)))

    def discard(self, attempt: Any) -> None:
        """Give an attempt up."""
        self._told(lambda: self._table.discard(attempt))

    def read(self, version: int, fields: Sequence[bytes], attempt: Any = None) -> list[bytes | None]:
        """Values at a version."""
        asked = self._arrays(fields)
        found = self._told(lambda: self._table.read(version, self._option(attempt), asked))
        return [None if found[i] is None else bytes(found[i]) for i in range(len(fields))]

    def scan(self, version: int, attempt: Any = None) -> dict[bytes, bytes]:
        """All fields at a version."""
        return self._entries(lambda: self._table.scan(version, self._option(attempt)))

    def changes(self, version: int) -> dict[bytes, bytes | None]:
        """What a version has changed."""
        return self._entries(lambda: self._table.changes(version))

    def clean(self, retain: int) -> None:
        """Forget old versions."""
        self._told(lambda: self._table.clean(retain))

    def check(self) -> None:
        """See that all is there."""
        self._told(self._table.check)

    def size(self) -> int:
        """How many fields there are."""
        return int(self._table.size())

    def close(self) -> None:
        """End the connection."""
        self._table.close()

    def _arrays(self, fields: Sequence[bytes]) -> Any:
        kind = self._jvm.java.lang.Class.forName("[B")
        array = self._jvm.java.lang.reflect.Array.newInstance(kind, len(fields))
        for i, field in enumerate(fields):
            array[i] = field
        return array

    def _option(self, value: Any) -> Any:
        return self._jvm.scala.Option.apply(value)

    def _entries(self, ask: Callable[[], Any]) -> dict[bytes, Any]:
        def listed() -> Any:
            java = self._jvm.scala.jdk.javaapi.CollectionConverters.asJava(ask())
            found = []
            while java.hasNext():
                entry = java.next()
                value = entry.value()
                found.append((bytes(entry.field()), None if value is None else bytes(value)))
            return found

        found = self._told(listed)
        assert len({field for field, _ in found}) == len(found), "a field came twice"
        return dict(found)

    @staticmethod
    def _told(ask: Callable[[], Any]) -> Any:
        from py4j.protocol import Py4JJavaError

        try:
            return ask()
        except Py4JJavaError as error:
            thrown = error.java_exception
            if thrown.getClass().getName() != "holdfast.state.ExternalStateException":
                raise
            raise ExternalError(str(thrown.getMessage())) from error
