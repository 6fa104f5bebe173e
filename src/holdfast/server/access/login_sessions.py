"""Sessions of browsers: each has a value of its own that nobody can work out, and ends when it is told to."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

KEPT_S: Final = 12 * 3600
MOST: Final = 1000


class Sessions:
    """The sessions of one server; they end with it.

    The server keeps digests only, so that its memory holds nothing that lets anybody in. To be used from the
    event loop alone.

    Args:
        login_code: What opens one session and no second one; None where there is no such thing.
        clock: Seconds that never go back.
    """

    def __init__(self, login_code: str | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._login_code = None if login_code is None else _digest(login_code)
        self._until: OrderedDict[bytes, float] = OrderedDict()

    def open(self) -> str:
        """Begin a session; the value is for the browser alone. The oldest of too many ends."""
        value = secrets.token_urlsafe(32)
        self._until[_digest(value)] = self._clock() + KEPT_S
        while len(self._until) > MOST:
            self._until.popitem(last=False)
        return value

    def knows(self, value: str) -> bool:
        """Whether a value is that of a session which has not ended."""
        digest = _digest(value)
        until = self._until.get(digest)
        if until is not None and until <= self._clock():
            del self._until[digest]
            return False
        return until is not None

    def end(self, value: str) -> None:
        """End a session: its value lets nobody in any more."""
        self._until.pop(_digest(value), None)

    def redeem(self, code: str) -> bool:
        """Whether this is the login code, which is good for one time."""
        if self._login_code is None or not secrets.compare_digest(_digest(code), self._login_code):
            return False
        self._login_code = None
        return True


def _digest(value: str) -> bytes:
    return hashlib.sha256(value.encode("utf-8", "surrogatepass")).digest()
