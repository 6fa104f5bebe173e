"""Attack: a checkpoint names a host of the attacker's as the database of its state.

The victim has the password of a real database in the environment and looks at the checkpoint. The script
prints `refused` if no verb connects to the named host, else what the host received, and exits with 1.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from contextlib import closing
from pathlib import Path

PASSWORD = "s3cret-of-the-operator"
PROVIDERS = {
    "redis": "holdfast.state.RedisStateStoreProvider",
    "cassandra": "holdfast.state.CassandraStateStoreProvider",
}
VICTIM = {
    "HOLDFAST_REDIS_PASSWORD": PASSWORD,
    "HOLDFAST_CASSANDRA_USER": "operator",
    "HOLDFAST_CASSANDRA_PASSWORD": PASSWORD,
}
SHOW = ("checkpoint", "show", "{checkpoint}")
TAKE = ("savepoint", "take", "{checkpoint}", "{folder}/savepoints")
# Kind of database, verb, environment: the victim has passwords and no addresses, or neither.
ATTACKS: tuple[tuple[str, tuple[str, ...], dict[str, str]], ...] = (
    ("redis", SHOW, VICTIM),
    ("redis", TAKE, VICTIM),
    ("redis", SHOW, {}),
    ("cassandra", SHOW, VICTIM),
)


def main() -> int:
    """Make every attack."""
    received: list[str] = []
    with tempfile.TemporaryDirectory() as name, closing(socket.create_server(("127.0.0.1", 0))) as listener:
        threading.Thread(target=listen, args=(listener, received), daemon=True).start()
        port = listener.getsockname()[1]
        problems: list[str] = []
        for kind, verb, environment in ATTACKS:
            checkpoint = Path(name) / kind
            address = f"{kind}://127.0.0.1:{port}/{'shop' if kind == 'cassandra' else 0}"
            plant(checkpoint, PROVIDERS[kind], address)
            problems += run(verb, checkpoint, environment)
    if received or problems:
        print("\n".join([*(f"the host received {what}" for what in received), *problems]))  # noqa: T201
        return 1
    print("refused")  # noqa: T201
    return 0


def plant(checkpoint: Path, provider: str, address: str) -> None:
    """Write a checkpoint with one committed batch, whose state is said to be at an address."""
    settings = {"spark.sql.streaming.stateStore.providerClass": provider}
    batch = {"batchWatermarkMs": 0, "batchTimestampMs": 1, "conf": settings}
    store = {"database": address, "store": "holdfast:{query/0/0/default/1}"}
    files = {
        "metadata": json.dumps({"id": "3b1c5a52-7f0c-4f5e-9d51-1b1de9f0a001"}),
        "offsets/0": f"v1\n{json.dumps(batch)}\n-",
        "commits/0": 'v1\n{"nextBatchWatermarkMs":0}',
        "state/0/0/external.json": json.dumps(store),
    }
    for path, text in files.items():
        file = checkpoint / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def run(verb: tuple[str, ...], checkpoint: Path, environment: dict[str, str]) -> list[str]:
    """Run a verb as the victim; returns what is wrong with its answer."""
    words = [word.format(checkpoint=checkpoint, folder=checkpoint.parent) for word in verb]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    beside = Path(sys.executable).with_name("holdfast")
    command = str(beside) if beside.exists() else shutil.which("holdfast") or "holdfast"
    done = subprocess.run(
        [command, *words],
        env={**clean, **environment},
        cwd=checkpoint.parent,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if "refused to connect" in done.stderr and done.returncode == 2:
        return []
    return [f"holdfast {' '.join(words[:2])} ended with {done.returncode}: {done.stderr.strip()}"]


def listen(listener: socket.socket, received: list[str]) -> None:
    """Record what the first bytes of every connection are, and end it."""
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with closing(connection):
            connection.settimeout(5)
            try:
                received.append(repr(connection.recv(4096)))
            except OSError as error:
                received.append(f"a connection ({error})")


if __name__ == "__main__":
    sys.exit(main())
