"""Storage, leases, savepoints and restores on S3 behind a network that loses, repeats and cuts requests.

Whatever happens to a request, nothing that was carried out is taken for failed, and what a verb says is there
is there.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from grid import WHOLE
from lease_candidates import LEASE_S, Candidates
from lossy_proxy import CUT, DELAY, LOSE, REFUSE, REPEAT, LossyProxy
from s3_gateway import ACCESS, SECRET, Gateway

from golden import golden_files, without_checksums
from holdfast import checkpoints, savepoints
from holdfast.checkpoints.state.contents import contents
from holdfast.errors import Conflict, HoldfastError, NotFound, Unavailable
from holdfast.storage import open_storage
from holdfast.storage.remote import RemoteStorage

pytestmark = pytest.mark.services

ROUGH = {LOSE: 0.06, REPEAT: 0.06, REFUSE: 0.06, CUT: 0.06, DELAY: 0.1}
# Of a take with its thousand requests.
UNEASY = {what: share / 6 for what, share in ROUGH.items()}
SEEDS = range(10) if WHOLE else range(1)


class Network:
    """A bucket, reached through the proxy and beside it."""

    def __init__(self, gateway: Gateway, seed: int) -> None:
        import s3fs  # type: ignore[import-untyped]

        self.proxy = LossyProxy(int(gateway.endpoint.rpartition(":")[2]), seed)
        self.bucket = gateway.bucket()
        self.fs = s3fs.S3FileSystem(
            key=ACCESS, secret=SECRET, endpoint_url=self.proxy.url, skip_instance_cache=True
        )

    def storage(self, folder: str = "place") -> RemoteStorage:
        return RemoteStorage(f"{self.bucket}/{folder}".replace("s3:", "s3a:"), self.fs)

    def direct(self, folder: str = "place") -> Any:
        return open_storage(f"{self.bucket}/{folder}")


@pytest.fixture(params=SEEDS)
def network(request: pytest.FixtureRequest, s3_gateway: Gateway) -> Iterator[Network]:
    made = Network(s3_gateway, request.param)
    yield made
    made.proxy.close()


@pytest.fixture
def calm(s3_gateway: Gateway) -> Iterator[Network]:
    """Nothing happens but what the test asks for."""
    made = Network(s3_gateway, 0)
    yield made
    made.proxy.close()


@pytest.mark.parametrize("what", [LOSE, REPEAT, REFUSE])
@pytest.mark.parametrize("replace", [False, True])
def test_a_write_whose_answer_is_lost_is_done_once(calm: Network, what: str, replace: bool) -> None:
    storage = calm.storage()
    if replace:
        storage.write("file", b"old")
    calm.proxy.once(what, "PUT", "/place/file")
    storage.write("file", b"mine", replace=replace)
    assert calm.proxy.happened == {what: 1}
    assert calm.direct().read("file") == b"mine"
    with pytest.raises(Conflict):
        storage.write("file", b"other")


def test_another_ones_file_is_not_taken_for_ones_own(calm: Network) -> None:
    """Both write the same bytes, and the other one comes between the look and the put."""
    storage = calm.storage()
    size = storage.size
    storage.size = lambda path: (size(path), calm.direct().write("file", b"same"))[0]  # type: ignore[method-assign]
    with pytest.raises(Conflict):
        storage.write("file", b"same")


class Model:
    """A storage, and what is to be in it; a step that nobody knows the end of is looked at directly."""

    def __init__(self, network: Network) -> None:
        self.storage, self.direct = network.storage(), network.direct()
        self.held: dict[str, bytes] = {}

    def step(self, verb: str, name: str, data: bytes) -> None:
        wanted = {**self.held, **({name: data} if name not in self.held or verb == "replace" else {})}
        before = self.held.get(name)
        try:
            if verb in ("write", "replace"):
                with suppress(Conflict):
                    self.storage.write(name, data, replace=verb == "replace")
                    assert wanted[name] == data, "a file was replaced, and nobody had asked for that"
            elif verb == "delete":
                wanted = {path: held for path, held in self.held.items() if path != name}
                self.storage.delete(name)
            elif verb == "list":
                wanted = self.held
                assert sorted(self.storage.list().names) == sorted(self.held)
            elif before is None:
                wanted = self.held
                with pytest.raises(NotFound):
                    self.storage.read(name)
            elif verb == "read":
                assert self.storage.read(name) == before
            else:
                wanted = {**self.held, f"{name}-copy": before}
                with suppress(Conflict):
                    self.storage.copy(name, f"{name}-copy")
                if f"{name}-copy" in self.held:
                    wanted = self.held
        except Unavailable:
            found = self.found()
            assert found in (self.held, wanted)
            wanted = found
        self.held = wanted

    def found(self) -> dict[str, bytes]:
        return {name: self.direct.read(name) for name in self.direct.list().names}


def test_a_storage_keeps_to_its_model_whatever_happens(network: Network) -> None:
    """A write that is not known to have been done may have been done, and nothing else."""
    network.proxy.often = ROUGH
    model, chance = Model(network), random.Random(1)
    for number in range(40):
        verb = chance.choice(["write", "write", "replace", "read", "delete", "list", "copy"])
        model.step(verb, f"f{chance.randrange(6)}", f"{number}".encode())
    assert model.found() == model.held
    assert network.proxy.happened


def test_one_leads_whatever_happens_to_requests(network: Network) -> None:
    candidates = Candidates(network.storage("leases"))
    network.proxy.often = ROUGH
    running = {number: candidates.one() for number in range(3)}
    terms: dict[int, Any] = {}
    tokens: list[int] = []
    for _ in range(30):
        for number, election in running.items():
            with suppress(HoldfastError):
                if number in terms:
                    terms[number] = election.renew(terms[number])
                elif (term := election.campaign()) is not None:
                    terms[number] = term
                    tokens.append(term.token)
        now = {number: election._now() for number, election in running.items()}
        terms = {number: term for number, term in terms.items() if now[number] < term.until_s}
        assert len(terms) <= 1, "two count on a lease at once"
        candidates.passes(LEASE_S / 8)
    assert tokens == sorted(set(tokens))
    assert tokens


@pytest.fixture
def through(network: Network, monkeypatch: pytest.MonkeyPatch) -> Iterator[Network]:
    """Verbs reach the bucket through the proxy."""
    from holdfast.storage import remote

    real = remote.connect
    monkeypatch.setattr(remote, "connect", lambda *_: network.fs)
    yield network
    monkeypatch.setattr(remote, "connect", real)


def made(network: Network) -> str:
    storage = network.storage("ck")
    for path, data in without_checksums(golden_files("4.2/aggregate-memory")).items():
        storage.write(path, data)
    return f"{network.bucket}/ck"


def test_a_take_and_a_restore_are_whole_or_unknown(through: Network) -> None:
    network = through
    source, catalog = made(network), f"{network.bucket}/sp"
    held = contents(open_storage(source), checkpoints.read(source).batch_id)
    network.proxy.often = UNEASY
    for number in range(2):
        with suppress(Unavailable):
            taken = savepoints.take(source, catalog)
            savepoints.restore(taken.uri, f"{network.bucket}/back-{number}")
    network.proxy.often = {}
    # Whatever a take has said: each savepoint that is listed is whole, and so is each checkpoint.
    listed = list(savepoints.list(catalog))
    assert listed
    for savepoint in listed:
        assert savepoints.verify(f"{catalog}/{savepoint.savepoint_id}", deep=True).problems == ()
    for number in range(2):
        target = f"{network.bucket}/back-{number}"
        if open_storage(target).size("metadata") is None:
            continue
        assert checkpoints.verify(target).problems == ()
        assert contents(open_storage(target), checkpoints.read(target).batch_id) == held
    assert network.proxy.happened


def test_a_take_that_does_not_hear_of_its_manifest_has_been_taken(
    calm: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    from holdfast.storage import remote

    monkeypatch.setattr(remote, "connect", lambda *_: calm.fs)
    source, catalog = made(calm), f"{calm.bucket}/sp"
    calm.proxy.once(LOSE, "PUT", "manifest")
    taken = savepoints.take(source, catalog)
    assert calm.proxy.happened == {LOSE: 1}
    assert [each.savepoint_id for each in savepoints.list(catalog)] == [taken.manifest.savepoint_id]
    assert savepoints.verify(taken.uri, deep=True).problems == ()
