"""Sessions of browsers: each has a value of its own that nobody can work out, and ends when it is told to."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

KEPT_S: Final = 12 * 3600
MOST: Final = 1000


class Sessions:
    """The sessions of one server; they end with it.

    A session is for the user who has begun it: a browser shows its cookie to every port of a host, so a page
    of another user of this machine gets it too. The server keeps digests only, so that its memory holds
    nothing that lets anybody in. To be used from the event loop alone.

    Args:
        login_code: What opens one session and no second one; None where there is no such thing.
        clock: Seconds that never go back.
    """

    def __init__(self, login_code: str | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._login_code = None if login_code is None else _digest(login_code)
        self._open: OrderedDict[bytes, _Session] = OrderedDict()

    def open(self, user: int | None = None) -> str:
        """Begin a session; the value is for the browser alone. The oldest of too many ends.

        Args:
            user: The number of the user of this machine who begins it; None for one who comes from elsewhere,
                or of whom the kernel does not tell.
        """
        value = secrets.token_urlsafe(32)
        self._open[_digest(value)] = _Session(user, self._clock() + KEPT_S)
        while len(self._open) > MOST:
            self._open.popitem(last=False)
        return value

    def knows(self, value: str, user: int | None = None) -> bool:
        """Return True if a value belongs to an open session of this user."""
        digest = _digest(value)
        session = self._open.get(digest)
        if session is not None and session.until <= self._clock():
            del self._open[digest]
            return False
        return session is not None and session.user == user

    def end(self, value: str) -> None:
        """End a session: its value lets nobody in any more."""
        self._open.pop(_digest(value), None)

    def redeem(self, code: str) -> bool:
        """Whether this is the login code, which is good for one time."""
        if self._login_code is None or not secrets.compare_digest(_digest(code), self._login_code):
            return False
        self._login_code = None
        return True


@dataclass(frozen=True, slots=True)
class _Session:
    user: int | None
    until: float


def _digest(value: str) -> bytes:
    return hashlib.sha256(value.encode("utf-8", "surrogatepass")).digest()
