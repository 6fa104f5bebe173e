"""A Redis Cluster of three servers, and a primary with a replica watched by a Sentinel, on loopback."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from loopback import free_ports
from redis_server import PATIENCE_S, RedisServer
from required import require


def until(what: str, is_so: Callable[[], bool]) -> None:
    """Wait until something is so."""
    end = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < end, f"not so after {PATIENCE_S} s: {what}"
        time.sleep(0.05)


@contextmanager
def servers(folder: Path, *settings: tuple[str, ...]) -> Iterator[list[RedisServer]]:
    """A server for each of these settings."""
    require("redis", "redis-client")
    with ExitStack() as ends:
        made = []
        for number, words in enumerate(settings):
            home = folder / f"redis-{number}"
            home.mkdir(parents=True)
            made.append(RedisServer(home, *words))
            ends.callback(made[-1].stop)
        yield made


def is_ready(node: RedisServer) -> bool:
    """True if a node knows who has each slot."""
    return "cluster_state:ok" in node.ask("CLUSTER", "INFO")


@contextmanager
def redis_cluster(folder: Path) -> Iterator[list[RedisServer]]:
    """A cluster of three primaries with a third of the slots each."""
    ports = free_ports(3)
    settings = [("--cluster-enabled", "yes", "--cluster-port", str(port)) for port in ports]
    with servers(folder, *settings) as nodes:
        for node, slots in zip(nodes, (("0", "5460"), ("5461", "10922"), ("10923", "16383")), strict=True):
            node.ask("CLUSTER", "ADDSLOTSRANGE", *slots)
        for node, port in zip(nodes, ports, strict=True):
            nodes[0].ask("CLUSTER", "MEET", "127.0.0.1", str(node.port), str(port))
        until("the cluster is ready", lambda: all(is_ready(node) for node in nodes))
        yield nodes


class Watched:
    """A primary, its replica, and the Sentinel that watches them."""

    def __init__(self, folder: Path, primary: RedisServer, replica: RedisServer) -> None:
        self.primary, self.replica = primary, replica
        replica.ask("REPLICAOF", "127.0.0.1", str(primary.port))
        until("the replica follows", lambda: "master_link_status:up" in replica.ask("INFO", "replication"))
        (self.port,) = free_ports(1)
        file = folder / "sentinel.conf"
        file.write_text(
            f"port {self.port}\nbind 127.0.0.1\ndir {folder}\n"
            f"sentinel monitor shop 127.0.0.1 {primary.port} 1\n"
            "sentinel down-after-milliseconds shop 1000\nsentinel failover-timeout shop 5000\n"
        )
        with (folder / "sentinel.log").open("ab") as log:
            self.process = subprocess.Popen(["redis-server", str(file), "--sentinel"], stdout=log, stderr=log)
        until("the Sentinel knows the replica", lambda: str(replica.port) in self.ask("REPLICAS", "shop"))

    @property
    def address(self) -> str:
        """As `hf.Redis` takes it."""
        return f"127.0.0.1:{self.port}"

    def ask(self, *words: str) -> str:
        """Ask the Sentinel."""
        command = ["redis-cli", "-h", "127.0.0.1", "-p", str(self.port), "SENTINEL", *words]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout

    def await_failover(self) -> None:
        """Wait until the replica is the primary."""
        until(
            "the replica is the primary",
            lambda: str(self.replica.port) in self.ask("GET-MASTER-ADDR-BY-NAME", "shop"),
        )


@contextmanager
def redis_sentinel(folder: Path) -> Iterator[Watched]:
    """A primary with a replica and a Sentinel."""
    with servers(folder, (), ()) as (primary, replica):
        watched = Watched(folder, primary, replica)
        try:
            yield watched
        finally:
            watched.process.terminate()
            watched.process.wait(PATIENCE_S)
