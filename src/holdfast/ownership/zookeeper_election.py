"""Elections in ZooKeeper: an ephemeral node for the leader, and a counter for the tokens.

Both are written in one transaction, so that a term cannot begin without its token, and an expired session
cannot get a token. The lease is the session's timeout as granted by the servers.

A renewal is also a write, because a server that is disconnected from the others still answers reads, while
the others let the session expire and elect a different leader.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urlsplit

from holdfast.config.policies import ZOOKEEPER
from holdfast.errors import HoldfastError, Invalid, Unavailable, Unsupported
from holdfast.ownership.election import (
    COUNTED,
    ElectionState,
    Incumbent,
    LeadershipLost,
    Now,
    Term,
    Wall,
    terms_missing,
)
from holdfast.ownership.process_identity import ProcessIdentity, myself

if TYPE_CHECKING:
    from kazoo.client import KazooClient


_CONNECT_S: Final = 10.0
_ANY_VERSION: Final = -1

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Ensemble:
    """The address of ZooKeeper, and the node below which Holdfast keeps its nodes."""

    hosts: str
    root: str

    @classmethod
    def of(cls, address: str) -> Ensemble:
        """Parse an address such as `zookeeper://host:port,host:port/path`.

        Raises:
            Invalid: The address has no host or no path.
        """
        parts = urlsplit(address)
        root = "/" + parts.path.strip("/")
        if not parts.netloc or root == "/":
            raise Invalid(
                "invalid ZooKeeper address",
                code="HF-E2245",
                found=address,
                expected="zookeeper://host:port,host:port/path",
                hint="give the servers, and the path of the ZooKeeper node for the elections",
            )
        return cls(parts.netloc, root)

    def __str__(self) -> str:
        return f"{ZOOKEEPER}{self.hosts}{self.root}"


class ZooKeeperElection:
    """A candidate in the elections of one job.

    Args:
        ensemble: The address of the elections.
        job: The job's name.
        lease_s: The requested session timeout in seconds; a server grants at least 2 and at most 20 times its
            `tickTime`.
        now: The function that returns seconds on a monotonic clock.
        wall: The function that returns seconds since 1970.
    """

    def __init__(self, ensemble: Ensemble, job: str, lease_s: float, now: Now, wall: Wall) -> None:
        self._ensemble = ensemble
        self._leader = f"{ensemble.root}/{job}/leader"
        self._counter = f"{ensemble.root}/{job}/token"
        self._record = f"{ensemble.root}/{job}/record"
        self._place_id = f"{ensemble.root}/{job}/place-id"
        self._job = job
        self._wanted_s = lease_s
        self._now = now
        self._wall = wall
        self._client: KazooClient | None = None
        # The newest term that this candidate has seen.
        self._known: int | None = None
        self._saw_life = False

    @property
    def address(self) -> str:
        """See `Election`."""
        return str(self._ensemble)

    @property
    def lease_s(self) -> float:
        """See `Election`. Once there is a session, this is the granted timeout."""
        granted = 0 if self._client is None else int(self._client._session_timeout)
        return granted / 1000 if granted else self._wanted_s

    @property
    def saw_life(self) -> bool:
        """See `Election`. ZooKeeper removes the node of an owner that has ended."""
        return self._saw_life

    def campaign(self) -> Term | None:
        """See `Election`."""
        term = self._ask(self._campaign)
        self._saw_life = term is None
        return term

    def renew(self, term: Term) -> Term:
        """See `Election`."""

        def renew(talk: _Talk) -> Term:
            began = self._now()
            self._require_held(talk, term)
            newest, version = self._newest(talk)
            confirmed = talk.client.transaction()
            confirmed.check(self._leader, _ANY_VERSION)
            confirmed.check(self._counter, version)
            failed = any(isinstance(answer, Exception) for answer in talk.wait(confirmed.commit_async()))
            if failed or newest != term.token:
                raise self._lost(term, None if newest == term.token else newest)
            return Term(term.token, began + COUNTED * self.lease_s)

        return self._ask(renew)

    def look(self) -> ElectionState:
        """See `Election`."""
        return self._ask(self._look)

    def incumbent(self) -> Incumbent | None:
        """See `Election`."""
        holder = self.look().holder
        return None if holder is None else Incumbent(holder, self.lease_s)

    def write_record(self, term: Term, record: bytes) -> None:
        """See `Election`."""
        self._ask(lambda talk: self._write_record(talk, term, record))

    def resign(self, term: Term) -> None:
        """See `Election`."""

        def resign(talk: _Talk) -> None:
            if self._read_leader(talk) == (True, term.token):
                talk.wait(talk.client.delete_async(self._leader))

        with suppress(HoldfastError):
            self._ask(resign)

    def close(self) -> None:
        """See `Election`."""
        if self._client is not None:
            with suppress(Exception):  # errors no longer matter
                self._client.stop()
                self._client.close()
            self._client = None

    def _campaign(self, talk: _Talk) -> Term | None:
        from kazoo.exceptions import BadVersionError, NodeExistsError

        began = self._now()
        held = self._read_leader(talk)
        if held is not None:
            mine, token = held
            # A transaction whose answer was lost may have made this session the leader.
            return Term(token, began + COUNTED * self.lease_s) if mine else None
        newest, version = self._newest(talk)
        token = (int(self._wall()) if newest is None else newest) + 1
        both = talk.client.transaction()
        both.create(self._leader, self._claim(token), ephemeral=True)
        both.set_data(self._counter, str(token).encode(), version=version)
        failed = [answer for answer in talk.wait(both.commit_async()) if isinstance(answer, Exception)]
        if not failed:
            self._known = token
            return Term(token, began + COUNTED * self.lease_s)
        # The other errors of a failed transaction only report that it was rolled back.
        if any(isinstance(answer, (NodeExistsError, BadVersionError)) for answer in failed):
            return None
        raise failed[0]

    def _newest(self, talk: _Talk) -> tuple[int | None, int]:
        """Return the token of the newest term and the counter's version; an older term is an error."""
        talk.wait(talk.client.ensure_path_async(self._counter))
        text, stat = talk.wait(talk.client.get_async(self._counter))
        newest = int(text) if text else None
        if self._known is not None and (newest is None or newest < self._known):
            raise terms_missing(f"{self.address}/{self._job}", self._known, newest)
        self._known = newest
        return newest, int(stat.version)

    def _look(self, talk: _Talk) -> ElectionState:
        newest, _ = self._newest(talk)
        leader = talk.read(self._leader)
        claim: dict[str, Any] = {} if leader is None else json.loads(leader)
        written = talk.read(self._record)
        # The token is in the first line, because a record and its term are written together.
        token, _, record = (None, None, None) if written is None else written.partition(b"\n")
        place_id = (
            "" if newest is None else talk.made_once(self._place_id, uuid.uuid4().hex.encode()).decode()
        )
        return ElectionState(
            place_id,
            newest,
            claim.get("holder"),
            record,
            None if token is None else int(token),
            ProcessIdentity.parse(claim.get("process")),
        )

    def _write_record(self, talk: _Talk, term: Term, record: bytes) -> None:
        """Write the record in one transaction with a check of the counter."""
        self._require_held(talk, term)
        newest, version = self._newest(talk)
        if newest == term.token:
            talk.wait(talk.client.ensure_path_async(self._record))
            both = talk.client.transaction()
            both.check(self._counter, version)
            both.set_data(self._record, b"%d\n%b" % (term.token, record))
            if not any(isinstance(answer, Exception) for answer in talk.wait(both.commit_async())):
                return
        self._require_held(talk, term)
        raise Unavailable(
            "ZooKeeper did not write the leader's record",
            code="HF-E5036",
            where=f"{self.address}/{self._job}",
            hint="no action is needed; the next renewal of the lease writes the record again",
        )

    def _require_held(self, talk: _Talk, term: Term) -> None:
        held = self._read_leader(talk)
        if held != (True, term.token):
            raise self._lost(term, None if held is None else held[1])

    def _lost(self, term: Term, found: int | None) -> LeadershipLost:
        return LeadershipLost(
            f"this supervisor has lost the leadership of job {self._job!r}",
            code="HF-E4048",
            hint=f"see the leader of the job with `holdfast status {self._job}`",
            where=f"{self.address}/{self._job}",
            found="no leader" if found is None else f"term {found}",
            expected=f"term {term.token}",
        )

    def _read_leader(self, talk: _Talk) -> tuple[bool, int] | None:
        """Return whether this session is the leader, and the leader's token; None if there is no leader."""
        from kazoo.exceptions import NoNodeError

        try:
            data, stat = talk.wait(talk.client.get_async(self._leader))
        except NoNodeError:
            return None
        session = talk.client.client_id[0] if talk.client.client_id else None
        token = int(json.loads(data)["token"])
        self._known = max(token, self._known or 0)
        return stat.ephemeralOwner == session, token

    def _claim(self, token: int) -> bytes:
        claim = {"token": token, "holder": myself(), "process": asdict(ProcessIdentity.own())}
        return json.dumps(claim).encode()

    def _ask(self, talk: Callable[[_Talk], _T]) -> _T:
        """Call ZooKeeper, and convert its errors to Holdfast's errors."""
        try:
            return talk(_Talk(self._connected(), self._wanted_s))
        except HoldfastError:
            raise
        except Exception as error:
            raise Unavailable(
                "ZooKeeper does not answer",
                code="HF-E5037",
                where=self.address,
                found=f"{type(error).__name__}: {error}".rstrip(": "),
                hint="check that ZooKeeper runs and is reachable from this machine; requests are retried",
            ) from error

    def _connected(self) -> KazooClient:
        """Return the client after starting it if needed; the client reconnects automatically."""
        if self._client is None:
            client = _client(self._ensemble.hosts, self._wanted_s)
            client.start(timeout=_CONNECT_S)  # stops the client again if ZooKeeper cannot be reached
            self._client = client
        if not self._client.connected:
            # A request would wait for the connection and be executed at an unknown time.
            raise ConnectionError("the connection is lost")
        return self._client


@dataclass(frozen=True, slots=True)
class _Talk:
    """A client with a time limit for each answer."""

    client: Any
    patience_s: float

    def wait(self, answer: Any) -> Any:
        return answer.get(timeout=self.patience_s)

    def read(self, path: str) -> bytes | None:
        """Return the content of a node; None if it is missing or empty."""
        from kazoo.exceptions import NoNodeError

        try:
            data, _ = self.wait(self.client.get_async(path))
        except NoNodeError:
            return None
        return data or None

    def made_once(self, path: str, data: bytes) -> bytes:
        """Return the content of a node, after creating the node with this content if it is missing."""
        from kazoo.exceptions import NodeExistsError

        there = self.read(path)
        if there is not None:
            return there
        try:
            self.wait(self.client.create_async(path, data, makepath=True))
        except NodeExistsError:
            return self.read(path) or data
        return data


def _client(hosts: str, lease_s: float) -> KazooClient:
    try:
        from kazoo.client import KazooClient
    except ImportError as error:
        raise Unsupported(
            "the Python library for ZooKeeper is not installed",
            code="HF-E7094",
            found=str(error),
            hint="run `pip install 'holdfast[zookeeper]'`",
        ) from error
    # Kazoo's log messages are for programmers; relevant errors are raised.
    quiet = logging.getLogger("holdfast.zookeeper")
    quiet.addHandler(logging.NullHandler())
    quiet.propagate = False
    return KazooClient(hosts, timeout=lease_s, logger=quiet)
