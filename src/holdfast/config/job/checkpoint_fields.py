"""The fields of a checkpoint's settings: what each may be, and the Spark settings that they become."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from holdfast.config.checks import Check, check_fields, check_periodic, flag, one_of, optional, whole
from holdfast.config.locations import canonical_uri, parse_storage
from holdfast.config.setting_report import shown
from holdfast.config.spark_defaults import (
    CHANGELOG_KEY,
    COMPRESSION_KEY,
    RETAIN_KEY,
    UNLOAD_KEY,
)
from holdfast.config.units import Duration, optional_ms, parse_duration

MODES: Final = ("exactly_once", "at_least_once")
ON_CANCEL: Final = ("retain", "delete")
CODECS: Final = ("lz4", "lzf", "snappy", "zstd")

# On a restart Spark reads the last batch and the one before it.
LEAST_RETAINED: Final = 2

_MAKER: Final = "Checkpoint"
_CHECKS: Final[Mapping[str, Check]] = {
    "storage": lambda value, _: parse_storage(value, f"{_MAKER}(storage)"),
    "interval": optional(parse_duration),
    "min_pause": optional(partial(parse_duration, allow_zero=True)),
    "timeout": optional(parse_duration),
    "aligned_timeout": optional(partial(parse_duration, allow_zero=True)),
    "tolerable_failures": partial(whole, least=0),
    "max_concurrent": partial(whole, least=1),
    "mode": partial(one_of, allowed=MODES),
    "unaligned": flag,
    "on_cancel": partial(one_of, allowed=ON_CANCEL),
    "retain": partial(whole, least=LEAST_RETAINED),
    "incremental": flag,
    "compression": partial(one_of, allowed=CODECS),
    "local_recovery": flag,
    "savepoints": optional(parse_storage),
    "savepoint_every": optional(parse_duration),
    "savepoints_retained": partial(whole, least=1),
    "record": flag,
}


@dataclass(frozen=True, slots=True)
class CheckpointFields:
    """What a checkpoint's settings are; people make a `Checkpoint`, where each field is described."""

    storage: str | os.PathLike[str]
    interval: Duration | None = None
    min_pause: Duration | None = None
    timeout: Duration | None = None
    tolerable_failures: int = 0
    max_concurrent: int = 1
    mode: str = "exactly_once"
    unaligned: bool = False
    aligned_timeout: Duration | None = None
    on_cancel: str = "retain"
    retain: int = 100
    incremental: bool = True
    compression: str = "lz4"
    local_recovery: bool = True
    savepoints: str | os.PathLike[str] | None = None
    savepoint_every: Duration | None = None
    savepoints_retained: int = 5
    record: bool = True

    def __post_init__(self) -> None:
        check_fields(self, _MAKER, _CHECKS)
        if self.savepoint_every is not None:
            check_periodic(_MAKER, self.savepoints, self.savepoint_every)

    @property
    def interval_ms(self) -> int | None:
        """The interval in milliseconds, if one is set."""
        return optional_ms(self.interval)

    @property
    def min_pause_ms(self) -> int | None:
        """The least pause in milliseconds, if one is set."""
        return optional_ms(self.min_pause)

    @property
    def timeout_ms(self) -> int | None:
        """The longest time a batch may take, in milliseconds, if there is one."""
        return optional_ms(self.timeout)

    @property
    def aligned_timeout_ms(self) -> int | None:
        """The aligned timeout in milliseconds, if one is set."""
        return optional_ms(self.aligned_timeout)

    @property
    def savepoint_every_ms(self) -> int | None:
        """The time between savepoints in milliseconds, if the supervisor takes some."""
        return optional_ms(self.savepoint_every)

    @property
    def is_local(self) -> bool:
        """Whether it lies in the file system of the machine and not in a shared one."""
        return canonical_uri(str(self.storage), Path("/")).startswith("file:")

    def spark_conf(self) -> dict[str, str]:
        """Give the Spark settings that the checkpoint asks for.

        Of these only `spark.sql.streaming.stateStore.compression.codec` is pinned: Spark keeps in the
        offset log what the first start set, and uses that. The changelog setting speaks to RocksDB
        alone; the memory backend always writes changes.
        """
        return {
            RETAIN_KEY: str(self.retain),
            CHANGELOG_KEY: shown(self.incremental),
            COMPRESSION_KEY: self.compression,
            UNLOAD_KEY: shown(not self.local_recovery),
        }
