"""Calls and settings that advice names, as they are typed."""

from __future__ import annotations

from holdfast.config.locations import place_word


def rescale(uri: str, partitions: int) -> str:
    """The call that makes a checkpoint with another number of partitions."""
    return f"holdfast rescale {place_word(uri)} NEW --partitions {partitions} --stopped"


def migrate(uri: str, backend: str) -> str:
    """The call that moves state to another backend."""
    database = {
        "redis": " --database redis://HOST:6379/0",
        "cassandra": " --database cassandra://HOST:9042/KEYSPACE",
    }.get(backend, "")
    return f"holdfast state migrate {place_word(uri)} NEW --backend {backend}{database} --stopped"


def conf(key: str, value: str) -> str:
    """A setting of the session."""
    return f'spark.conf.set("{key}", "{value}")'


def trigger(interval_ms: int) -> str:
    """The trigger of a query."""
    seconds, rest = divmod(interval_ms, 1000)
    text = f"{interval_ms} milliseconds" if rest else f"{seconds} second{'' if seconds == 1 else 's'}"
    return f'.trigger(processingTime="{text}")'
