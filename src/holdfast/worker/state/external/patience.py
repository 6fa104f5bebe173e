"""Asking a database again where no answer comes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from holdfast.errors import HoldfastError

# Between two tries: twice as long each time, up to so long.
_FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 1.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a database is asked again.

    Attributes:
        patience_ms: For so long.
        clock: Seconds that pass.
        pause: Waits for so many seconds.
    """

    patience_ms: int
    clock: Callable[[], float]
    pause: Callable[[float], None]

    def ask(
        self,
        question: Callable[[], T],
        failures: tuple[type[Exception], ...],
        *,
        refusal: Callable[[Exception], HoldfastError | None],
        silent: Callable[[Exception], HoldfastError],
        before_pause: Callable[[Exception, float], None] = lambda _, __: None,
    ) -> T:
        """The answer to a question that may be asked twice.

        Args:
            question: Asks it.
            failures: What it raises where asking again may help.
            refusal: The error for a failure that asking again does not change, None for any other.
            silent: The error for a failure once patience has ended.
            before_pause: Told a failure that has neither, and how many seconds are waited now.

        Raises:
            HoldfastError: As `refusal`, `silent` and the question say.
        """
        until = self.clock() + self.patience_ms / 1000
        wait = _FIRST_PAUSE_S
        while True:
            try:
                return question()
            except HoldfastError:
                raise
            except failures as error:
                refused = refusal(error)
                if refused is not None:
                    raise refused from error
                if self.clock() + wait > until:
                    raise silent(error) from error
                before_pause(error, wait)
            self.pause(wait)
            wait = min(2 * wait, LONGEST_PAUSE_S)
