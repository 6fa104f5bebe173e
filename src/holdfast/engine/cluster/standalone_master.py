"""What the master of a standalone cluster knows: its workers, and the cores that each session was given."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException
from typing import TYPE_CHECKING, Any, Final

from holdfast.config.units import MIB
from holdfast.engine.cluster.spark_env import of_spark_env
from holdfast.json_shapes import JsonShape

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SCHEME: Final = "spark://"
_PATIENCE_S: Final = 10.0
_ALIVE: Final = "ALIVE"


@dataclass(frozen=True, slots=True)
class ClusterWorker(JsonShape):
    """A worker of a standalone cluster that is alive.

    Attributes:
        host: Its machine.
        cores: The cores that it offers.
        cores_used: Those that some session has.
        memory_bytes: The memory that it offers to the heaps of executors.
    """

    host: str
    cores: int
    cores_used: int
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class MasterState:
    """What a master says.

    Attributes:
        workers: Its workers that are alive.
        granted: The cores that the session was given; None where the master does not know it.
    """

    workers: tuple[ClusterWorker, ...]
    granted: int | None

    @property
    def cores(self) -> int:
        """The cores of all workers."""
        return sum(worker.cores for worker in self.workers)


def master_state(spark: SparkSession, master: str) -> MasterState | None:
    """Ask the master that leads; None where none answers, as where its page is closed to us.

    The master's address does not tell where its page is, so it is asked for that over Spark's own protocol.
    """
    context: Any = spark.sparkContext
    for address in master.removeprefix(_SCHEME).split(","):
        host, _, port = address.rpartition(":")
        page = _page_port(spark, host, port)
        if page is None:
            continue
        document = _document(f"http://{host}:{page}/json/")
        if document is not None and document.get("status") == _ALIVE:
            return state_in(document, str(context.applicationId))
    return None


def state_in(document: Mapping[str, Any], application: str) -> MasterState:
    """What the document of a master's page says, as the session with this id sees it."""
    workers = tuple(
        ClusterWorker(
            str(worker["host"]), int(worker["cores"]), int(worker["coresused"]), int(worker["memory"]) * MIB
        )
        for worker in document["workers"]
        if worker["state"] == _ALIVE
    )
    granted = [int(app["cores"]) for app in document["activeapps"] if app["id"] == application]
    return MasterState(workers, granted[0] if granted else None)


def _page_port(spark: SparkSession, host: str, port: str) -> int | None:
    """The port of a master's page. Not in Spark's API; its REST gateway asks in the same way."""
    from py4j.protocol import Py4JError

    jvm: Any = spark._jvm

    def single(name: str) -> Any:
        return jvm.java.lang.Class.forName(name).getField("MODULE$").get(None)

    try:
        endpoint = jvm.org.apache.spark.rpc.RpcAddress(host, int(port))
        rpc = of_spark_env(spark, "rpcEnv", "org.apache.spark.rpc.RpcEnv")
        asked = rpc.setupEndpointRef(endpoint, "Master")
        request = single("org.apache.spark.deploy.master.MasterMessages$BoundPortsRequest$")
        return int(asked.askSync(request, single("scala.reflect.ClassTag$").Any()).webUIPort())
    except (Py4JError, ValueError, TypeError):
        return None


def _document(url: str) -> Mapping[str, Any] | None:
    # The master's own page: no proxy that the environment names knows the way to it.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=_PATIENCE_S) as answer:
            document = json.load(answer)
    except (OSError, ValueError, HTTPException):
        return None
    return document if isinstance(document, dict) and "activeapps" in document else None
