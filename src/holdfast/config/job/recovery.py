"""What a supervisor may do about a damaged checkpoint, as a setting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, get_args

from holdfast.config.checks import check_fields, optional
from holdfast.config.setting_report import SettingReport, kept, shown, shown_duration
from holdfast.config.units import Duration, optional_ms, parse_duration
from holdfast.errors import Invalid

Fallback = Literal["batch", "savepoint"]
FALLBACKS: Final = get_args(Fallback)


@dataclass(frozen=True, slots=True)
class Recovery:
    """How a supervisor looks at a checkpoint before it starts a failed job again, and what it may do then.

    Args:
        fallback: Where to go back to if the checkpoint is damaged: the newest `batch` in it that is whole, or
            the newest whole `savepoint`. None, the default, leaves the job failed and everything as it is.
        verify: How long looking at it may take before each restart; what has not been looked at by then is
            taken for whole. Kept in milliseconds. None does not look, and so never goes back.
    """

    fallback: Fallback | None = None
    verify: Duration | None = "1m"

    def __post_init__(self) -> None:
        if self.fallback is not None and self.fallback not in FALLBACKS:
            raise Invalid(
                "there is no such way back",
                where="recovery(fallback=…)",
                found=repr(self.fallback),
                expected="None, " + " or ".join(repr(fallback) for fallback in FALLBACKS),
            )
        check_fields(self, "recovery", {"verify": optional(parse_duration)})
        if self.verify is None and self.fallback is not None:
            raise Invalid(
                "a job that is to go back from a damaged checkpoint has to look for damage",
                where="recovery(verify=…)",
                found="None",
                expected="a time, such as '1m'",
            )

    @property
    def verify_ms(self) -> int | None:
        """How long looking at the checkpoint may take, in milliseconds."""
        return optional_ms(self.verify)

    def knobs(self) -> tuple[SettingReport, ...]:
        """Explain every field."""
        limit = shown_duration(self.verify_ms)
        return (
            kept(
                "recovery.fallback",
                shown(self.fallback),
                self.fallback or "",
                "Where the supervisor goes back to if a checkpoint is damaged; by default it stops.",
            ),
            kept(
                "recovery.verify",
                limit,
                "" if self.verify is None else limit,
                "How long the checkpoint is looked at before each restart after a failure.",
            ),
        )


def recovery(*, fallback: Fallback | None = None, verify: Duration | None = "1m") -> Recovery:
    """Say what a job's supervisor may do about a damaged checkpoint. See `Recovery`."""
    return Recovery(fallback, verify)
