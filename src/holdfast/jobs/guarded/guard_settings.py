"""What `hf.guard` is told, checked."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast.config.checks import Check, check_fields, check_periodic, group_name, optional, whole
from holdfast.config.job.high_availability import Leading
from holdfast.config.locations import canonical_uri, local_path, parse_storage
from holdfast.config.units import Duration, optional_ms, parse_duration
from holdfast.errors import Invalid
from holdfast.jobs.definition import Periodic

if TYPE_CHECKING:
    from holdfast.config.job.alert_settings import Alerts
    from holdfast.config.job.trigger import OneBatch, Trigger
    from holdfast.observe.alerting import AlertEvent

_OWNER: Final = "hf.guard"


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardSettings:
    """The settings of a guard; `hf.guard` says what each is.

    Raises:
        Invalid: One cannot be right.
    """

    checkpoint: str | os.PathLike[str] | None
    name: str | None
    trigger: Trigger | OneBatch | None
    verify: Duration | None
    wait: Duration
    lease: Duration | None
    lease_at: str | os.PathLike[str] | None
    grace: Duration
    savepoints: str | os.PathLike[str] | None
    savepoint_every: Duration | None
    savepoints_retained: int
    alerts: Alerts | None
    port: int | None
    host: str
    otlp: str | None
    on_alert: Callable[[AlertEvent], None] | None
    consumer_group: str | None
    home: str | Path | None

    def __post_init__(self) -> None:
        check_fields(self, _OWNER, _CHECKS)
        check_periodic(_OWNER, self.savepoints, self.savepoint_every)
        self.leading("s3a://bucket/checkpoint")

    @property
    def verify_ms(self) -> int | None:
        """How long to look whether the checkpoint is whole; None for not at all."""
        return optional_ms(self.verify)

    @property
    def wait_s(self) -> float:
        """How long to wait for a former owner."""
        return parse_duration(self.wait, allow_zero=True) / 1000

    @property
    def grace_s(self) -> float:
        """How long a batch may take after the order to stop."""
        return parse_duration(self.grace, allow_zero=True) / 1000

    @property
    def periodic(self) -> Periodic | None:
        """The savepoints that are taken; None for none."""
        if self.savepoints is None or self.savepoint_every is None:
            return None
        catalog = canonical_uri(parse_storage(self.savepoints, "savepoints"), Path.cwd())
        return Periodic(catalog, parse_duration(self.savepoint_every), self.savepoints_retained)

    def leading(self, checkpoint: str) -> Leading | None:
        """Where the lease of a checkpoint is kept; None where the lock of the local disk is enough.

        Args:
            checkpoint: The checkpoint, as a canonical URI.
        """
        address = None if self.lease_at is None else os.fspath(self.lease_at)
        if self.lease is None or (address is None and local_path(checkpoint) is not None):
            return None
        beside = checkpoint.rstrip("/").rpartition("/")[0]
        if address is None and beside.endswith(":/"):
            raise Invalid(
                "there is no place for a lease beside the checkpoint",
                where=checkpoint,
                found="a whole bucket",
                hint="put the checkpoint into a folder, or name a place: lease_at=…",
            )
        return Leading.of(address or beside, self.lease, Path.cwd(), Path.cwd())


_CHECKS: Final[dict[str, Check]] = {
    "checkpoint": optional(parse_storage),
    "verify": optional(parse_duration),
    "wait": partial(parse_duration, allow_zero=True),
    "lease": optional(parse_duration),
    "grace": partial(parse_duration, allow_zero=True),
    "savepoints": optional(parse_storage),
    "savepoint_every": optional(parse_duration),
    "savepoints_retained": partial(whole, least=1),
    "consumer_group": optional(group_name),
}
