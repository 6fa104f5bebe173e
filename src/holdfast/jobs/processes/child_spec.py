"""What a child process is asked to do, in its environment."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from holdfast.plain_values import from_plain

if TYPE_CHECKING:
    from typing_extensions import Self

ENVIRONMENT: Final = "HOLDFAST_DRIVER"


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """What every child process is told.

    Attributes:
        target: The job file, and the job in it.
        home: The state home.
    """

    target: str
    home: str

    def as_text(self) -> str:
        """For the child's environment."""
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> Self:
        """What `as_text` wrote."""
        return from_plain(cls, json.loads(text))

    @classmethod
    def inherited(cls) -> Self:
        """What this process was told by the one that started it."""
        return cls.from_text(os.environ.pop(ENVIRONMENT))
