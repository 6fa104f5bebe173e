"""A job over Spark with several supervisors, each with a state home of its own, and what it has written.

The leader is killed, frozen with its driver, frozen and let go on, or cut off from the elections. What the
sink holds at the end is compared with a model of the input.

In the short form one leader is killed, elected in ZooKeeper, and one is frozen, elected by a lease.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from grid import WHOLE
from process_table import in_group
from running_job import JOBS, RunningJob, freeze, running, until
from small_day import SmallDay, found_in_files
from tcp_proxy import TcpProxy
from zookeeper_server import Server

from holdfast.checkpoints.checkpoint import read
from holdfast.jobs.registry.operation_log import Operations, Rescale
from holdfast.jobs.registry.registry import Registry
from holdfast.jobs.state_home import StateHome
from holdfast.ownership.process_identity import myself
from holdfast.storage import open_storage

pytestmark = [pytest.mark.fault, pytest.mark.spark]

LEASE = "3s"
# Its output is the same however files are cut into batches, and its sink is Spark's own, without a ledger.
JOB = JOBS / "windows.py:windows"
COLUMNS = ("begin", "account", "orders", "amount")
LONG = pytest.mark.skipif(not WHOLE, reason="starts Spark several times; HOLDFAST_GRID=all runs it")


@dataclass(frozen=True, slots=True)
class Shop:
    """The input, the output, and two supervisors that have only the checkpoint and elections in common."""

    folder: Path
    day: SmallDay
    environ: pytest.MonkeyPatch
    # Where each of the two finds the elections.
    addresses: tuple[str, str]
    cut: Callable[[], None]
    mend: Callable[[], None]

    @contextmanager
    def supervisor(self, number: int, *options: str) -> Iterator[RunningJob]:
        self.environ.setenv("HOLDFAST_HA", self.addresses[number])
        self.environ.setenv("HOLDFAST_LEASE", LEASE)
        with running(JOB, self.folder, home=self.folder / f"home-{number}", options=options) as made:
            yield made

    @contextmanager
    def leader_and_standby(self, *options: str) -> Iterator[tuple[RunningJob, RunningJob]]:
        with self.supervisor(0, *options) as leader:
            leader.await_event("leading")
            with self.supervisor(1, *options) as standby:
                standby.await_event("standby")
                leader.await_event("batch")
                yield leader, standby

    def check_exact(self) -> None:
        assert found_in_files(self.folder / "out" / "windows", *COLUMNS) == self.day.windows()


@pytest.fixture
def shop(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    """The shop over elections of the kind that the test is run with."""
    day = SmallDay.make(9)
    day.write(tmp_path / "day")
    (tmp_path / "out").mkdir()
    with ExitStack() as stack:
        if request.param == "zookeeper":
            server: Server = request.getfixturevalue("zookeeper_server")
            proxy = TcpProxy(server.port)
            stack.callback(proxy.close)
            path = f"holdfast-{tmp_path.name}-{os.getpid()}"
            addresses = (f"zookeeper://127.0.0.1:{proxy.port}/{path}", server.address(path))
            yield Shop(tmp_path, day, monkeypatch, addresses, proxy.cut, proxy.mend)
        else:
            place, away = tmp_path / "leases", tmp_path / "unmounted"

            def cut() -> None:
                place.rename(away)

            def mend() -> None:
                away.rename(place)

            yield Shop(tmp_path, day, monkeypatch, (str(place), str(place)), cut, mend)


def kinds(fast: str) -> pytest.MarkDecorator:
    """Both kinds of elections; one of them also where time is short."""
    services = pytest.mark.services
    marks: dict[str, list[Any]] = {"lease": [], "zookeeper": [services]}
    values = [pytest.param(kind, marks=m if kind == fast else [*m, LONG]) for kind, m in marks.items()]
    return pytest.mark.parametrize("shop", values, indirect=True)


def let_go_on(job: RunningJob, driver: int) -> None:
    """Thaw a supervisor and what is left of its driver, at the same moment as far as that can be done."""
    with suppress(ProcessLookupError):
        os.killpg(driver, signal.SIGCONT)
    os.kill(job.pid, signal.SIGCONT)


@kinds("zookeeper")
def test_a_killed_leader(shop: Shop) -> None:
    with shop.leader_and_standby() as (leader, standby):
        driver, holder = leader.driver(), myself(leader.pid)
        leader.kill()
        ended = standby.ended()
        assert ended.code == 0, ended.words
        assert ended.only("recovered")["cause"] == f"resources: {holder} does not lead any more"
        assert not in_group(driver)
    shop.check_exact()


@kinds("lease")
@pytest.mark.parametrize("moment", ["begun", "decided"])
def test_a_leader_killed_while_it_rescales(shop: Shop, moment: str) -> None:
    with shop.leader_and_standby() as (leader, standby):
        home = StateHome(shop.folder / "home-0")
        registry = Registry(home.registry)
        (job,) = registry.jobs()
        (query,) = registry.queries(job.name)
        operation, place = os.urandom(16).hex(), Path(query.checkpoint.removeprefix("file://"))
        Operations(home).ask(operation, "rescale", job.name, Rescale({query.name: 3}), 0)
        registry.request(job.name, "rescale", 0)
        made, former = f"{place.name}.rescale-{operation[:12]}", f"{place.name}.before-{operation[:12]}"
        reached = {
            "begun": (place.parent / made).exists,
            "decided": lambda: any(place.parent.glob(f"{made}.t*")) or (place.parent / former).exists(),
        }
        until(reached[moment], "the rescale is under way")
        leader.kill()
        ended = standby.ended()
        assert ended.code == 0, ended.words
    shop.check_exact()
    (operator,) = read(open_storage(query.checkpoint)).operators
    is_rescaled = (place.parent / former).exists()
    assert is_rescaled or moment == "begun"
    assert (operator.partitions == 3) == is_rescaled
    assert not any(place.parent.glob(f"{made}*"))


@kinds("lease")
@pytest.mark.parametrize("warm", [False, pytest.param(True, marks=LONG)])
def test_a_leader_frozen_with_its_driver_and_its_jvm(shop: Shop, warm: bool) -> None:
    with shop.leader_and_standby(*(["--standby"] if warm else [])) as (leader, standby):
        driver = leader.driver()
        freeze(driver)
        # Frozen before: the job is short, and would end before the other supervisor's driver is warm.
        ready = standby.await_event("standby-ready")["pid"] if warm else None
        os.kill(leader.pid, signal.SIGSTOP)
        standby.await_event("running")
        assert ready is None or ready == standby.driver(2)
        # It held the checkpoint until the new leader ended it.
        until(lambda: not in_group(driver), "the frozen driver is ended")
        os.kill(leader.pid, signal.SIGCONT)
        leader.await_event("deposed")
        ended = standby.ended()
        assert ended.code == 0, ended.words
        # It learns that the job has ended, though the two have no registry in common.
        late = leader.ended()
        assert (late.code, late.kinds[-1]) == (0, "ended"), late.words
    shop.check_exact()


@kinds("none")
def test_a_frozen_leader_goes_on_while_the_next_one_works(shop: Shop) -> None:
    with shop.leader_and_standby() as (leader, standby):
        driver = leader.driver()
        freeze(driver)
        os.kill(leader.pid, signal.SIGSTOP)
        standby.await_event("leading")
        let_go_on(leader, driver)
        ended = standby.ended()
        assert ended.code == 0, ended.words
        assert leader.ended().code == 0
        # Frozen and thawed between two looks, it has started nothing.
        assert len([each for each in leader.events if each.get("event") == "starting"]) == 1
    shop.check_exact()


@kinds("zookeeper")
def test_a_leader_that_is_cut_off_from_the_elections(shop: Shop) -> None:
    with shop.leader_and_standby() as (leader, standby):
        driver = leader.driver()
        shop.cut()
        # It ends its driver before its lease is over, whoever leads by then.
        leader.await_event("deposed")
        until(lambda: not in_group(driver), "the driver is gone")
        if shop.addresses[0] != shop.addresses[1]:
            standby.await_event("running")
        shop.mend()
        codes = [leader.ended().code, standby.ended().code]
        assert codes == [0, 0]
    shop.check_exact()
