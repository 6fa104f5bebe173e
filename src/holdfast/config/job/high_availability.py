"""Where several supervisors of one job elect their leader, as a setting."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast.config.locations import canonical_uri, parse_storage
from holdfast.config.units import Duration, exact_duration, parse_duration
from holdfast.errors import Invalid

DEFAULT_LEASE: Final = "10s"
# Shorter ones do not survive a pause of the machine.
SHORTEST_MS: Final = 1000
ZOOKEEPER: Final = "zookeeper://"
OFF: Final = ("", "none")
# Leases in the state home itself, where that is on a disk that all candidates share.
HOME: Final = "home"
LEASES: Final = "leases"


@dataclass(frozen=True, slots=True)
class Leading:
    """Where elections are held, and for how long a leader is elected.

    Args:
        address: `zookeeper://host:port,host:port/path`, or the URI of a directory that all candidates share,
            on a disk or in an object store.
        lease_ms: A leader that gives no sign of life for so long has another one take over.
    """

    address: str
    lease_ms: int

    @classmethod
    def of(cls, address: str | None, lease: Duration | None, cwd: Path, home: Path) -> Leading | None:
        """Read the setting; None if there is to be one supervisor alone.

        Args:
            address: As above; a path is taken from `cwd`, and `home` is a directory in the state home.
            lease: The lease; ten seconds by default.
            cwd: An absolute directory.
            home: The state home.

        Raises:
            Invalid: The address or the lease cannot be right.
        """
        lease_ms = parse_duration(DEFAULT_LEASE if lease is None else lease, "lease")
        if lease_ms < SHORTEST_MS:
            raise Invalid(
                "the lease is too short",
                where="lease",
                found=exact_duration(lease_ms),
                expected=f"{exact_duration(SHORTEST_MS)} or more",
            )
        text = (address or "").strip()
        if text.lower() in OFF:
            return None
        if text == HOME:
            text = canonical_uri(str(home / LEASES), cwd)
        elif not text.startswith(ZOOKEEPER):
            text = canonical_uri(parse_storage(text, "ha"), cwd)
        return cls(text, lease_ms)
