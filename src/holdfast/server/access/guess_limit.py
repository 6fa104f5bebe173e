"""Limits guesses at the token: a few are free, then each waits longer, by address."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from holdfast.server.server_settings import ip_address

FREE_GUESSES: Final = 5
LONGEST_WAIT_S: Final = 60.0
# So many wrong guesses from everywhere within so long, and nobody has free ones any more.
MOST_GUESSES: Final = 100
WINDOW_S: Final = 60.0
# An address that has been quiet for so long begins anew.
_FORGET_S: Final = 900.0
_MOST_PEERS: Final = 4096
_REPEATS_KNOWN: Final = 8


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a guess was.

    Attributes:
        right: Whether it is the token.
        wait_s: How long nothing of this address is looked at; 0 where it was looked at.
    """

    right: bool
    wait_s: float = 0.0


@dataclass(slots=True)
class _Peer:
    wrong: int = 0
    last: float = 0.0
    until: float = 0.0
    recent: deque[bytes] = field(default_factory=lambda: deque(maxlen=_REPEATS_KNOWN))


class GuessLimit:
    """Holds guesses against the token, and slows down who guesses.

    An address that has guessed wrong too often is not listened to for a while, right or wrong; every other
    address is. The same wrong token once more tells nobody anything and does not count: a script that was
    left with an old token does not shut out its neighbours. To be used from the event loop alone.

    Args:
        token: The token.
        clock: Seconds that never go back.
    """

    def __init__(self, token: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._key = secrets.token_bytes(32)
        self._token = self._digest(token)
        self._peers: OrderedDict[str, _Peer] = OrderedDict()
        self._wrong: deque[float] = deque(maxlen=MOST_GUESSES)

    def judge(self, address: str, guess: str) -> Verdict:
        """What a guess from an address is."""
        now = self._clock()
        name = _network(address)
        peer = self._peers.get(name)
        if peer is not None and now - peer.last > _FORGET_S:
            del self._peers[name]
            peer = None
        digest = self._digest(guess)
        if peer is not None:
            if any(hmac.compare_digest(digest, known) for known in peer.recent):
                return Verdict(right=False)
            if now < peer.until:
                return Verdict(right=False, wait_s=peer.until - now)
        if hmac.compare_digest(digest, self._token):
            return Verdict(right=True)
        self._note(name, digest, now)
        return Verdict(right=False)

    def _note(self, name: str, digest: bytes, now: float) -> None:
        many = len(self._wrong) == MOST_GUESSES and now - self._wrong[0] < WINDOW_S
        self._wrong.append(now)
        peer = self._peers.setdefault(name, _Peer())
        self._peers.move_to_end(name)
        while len(self._peers) > _MOST_PEERS:
            self._peers.popitem(last=False)
        peer.wrong += 1
        peer.last = now
        peer.recent.append(digest)
        counted = peer.wrong if many else peer.wrong - FREE_GUESSES
        if counted > 0:
            peer.until = now + min(LONGEST_WAIT_S, 2.0 ** min(counted - 1, 10))

    def _digest(self, text: str) -> bytes:
        return hmac.new(self._key, text.encode("utf-8", "surrogatepass"), hashlib.sha256).digest()


def _network(address: str) -> str:
    """The network that guesses are counted by: with IPv6 everybody has 2⁶⁴ addresses."""
    known = ip_address(address.partition("%")[0])
    if isinstance(known, ipaddress.IPv6Address):
        return str(known.ipv4_mapped or ipaddress.ip_network((known, 64), strict=False))
    return address if known is None else str(known)
