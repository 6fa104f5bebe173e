"""What every kind of test shares."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import guard_time
import pytest
from command import Holdfast, command_in
from grid import WHOLE, dealt, is_proof_only
from small_session import small_session
from state_clients import state_jars

from holdfast.ownership import checkpoint_guard

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest_plugins = ["drawn_examples", "forked_cli", "proof_report", "required", "spark_settings"]

# Readline, which pytest loads, gives the processes of its workers the size of a terminal that is not there.
for size in ("COLUMNS", "LINES"):
    os.environ.pop(size, None)
# A shell lets what it starts in the background ignore Ctrl-C, `nohup` the end of a terminal; so would
# all that tests start.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Fixtures that start servers. Unit tests have no use for any of them.
SERVERS = (
    "cassandra_server",
    "cloud_emulators",
    "connect_server",
    "flink_client",
    "hdfs_cluster",
    "kafka_broker",
    "ledger_processes",
    "mysql_server",
    "postgres_server",
    "redis_server",
    "s3_gateway",
    "standalone_cluster",
    "state_databases",
    "tikv_server",
    "yarn_cluster",
    "zookeeper_server",
)


def pytest_configure(config: pytest.Config) -> None:
    """Load what starts servers, unless unit tests alone are asked for."""
    unit = Path(__file__).parent / "unit"
    asked = [Path(config.invocation_params.dir, word.partition("::")[0]) for word in config.args]
    if not all(place.resolve().is_relative_to(unit) for place in asked):
        for name in SERVERS:
            config.pluginmanager.import_plugin(name)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the long form to `make proof`: see `proof.txt`. Deal what is slow to all workers."""
    if not WHOLE:
        for item in items:
            if is_proof_only(item.nodeid):
                item.add_marker(pytest.mark.skip(reason="a part of the long form: `make proof`"))
    workers = getattr(config, "workerinput", {}).get("workercount", 1)
    if workers > 1:
        items[:] = dealt(items, workers)


def pytest_collection_finish() -> None:
    """Spare the collector of garbage what stays to the end: all modules, and all tests."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A state home of the test's own."""
    return tmp_path / "home"


@pytest.fixture
def holdfast(tmp_path: Path, home: Path) -> Holdfast:
    """Run the command in an empty directory."""
    return command_in(tmp_path, home)


@pytest.fixture
def guards_wait_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the guard of a checkpoint waits for in this process has passed at once."""
    monkeypatch.setattr(checkpoint_guard, "MACHINE_TIMING", guard_time.passing_time())


@pytest.fixture
def holdfast_at_once(tmp_path: Path, home: Path) -> Holdfast:
    """The same for the checkpoint of a query that does not run: watching it takes no time."""
    return command_in(tmp_path, home, guard_time.PROGRAM)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The one session of all tests, as Holdfast makes it, on two cores."""
    from holdfast.config.spark_defaults import LOCAL_FILES
    from holdfast.engine.session.session import session

    place = tmp_path_factory.mktemp("spark")
    started = session(
        "holdfast-tests",
        master="local[2]",
        home=place / "home",
        conf={
            **small_session("1g"),
            **state_jars(),
            "spark.sql.warehouse.dir": str(place / "warehouse"),
        },
    )
    for key, value in LOCAL_FILES.items():
        started.conf.set(key, value)
    started.sparkContext.setLogLevel("ERROR")
    yield started
    started.stop()
