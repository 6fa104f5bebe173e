"""The process that brings a checkpoint into other partitions, beside the supervisor that asked for it.

It may start Spark, which a supervisor has none of. It holds a lock while it lives, and ends with who asked.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

from holdfast.errors import HoldfastError
from holdfast.jobs.background.worker import error_of
from holdfast.jobs.operations.rescale_spec import RescaleSpec, life_of
from holdfast.jobs.processes.channel import Channel
from holdfast.jobs.processes.driver import ENVIRONMENT, log_to
from holdfast.savepoints.savepoint_api import rescale_between_drivers


def run(spec: RescaleSpec, channel: Channel) -> None:
    """Make the new checkpoints one after the other; every ending is reported."""

    def tell(done: int, total: int, what: str) -> None:
        channel.send("progress", done=done, total=total, what=what)

    try:
        for each in spec.moves:
            made = rescale_between_drivers(
                each.checkpoint, each.made, partitions=each.partitions, master=spec.master, tell=tell
            )
            channel.send("made", query=each.query, batch=made.batch_id, rows=made.rows)
    except HoldfastError as error:
        channel.send("refused", error=error.as_dict())
    except Exception as error:  # whatever it is, the supervisor has to learn of it
        channel.send("refused", error=error_of(error).as_dict())
    else:
        channel.send("done")


def _die_with(channel: Channel) -> None:
    for _ in channel.messages():
        pass
    os.killpg(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Run as a child of a supervisor."""
    spec = RescaleSpec.from_text(os.environ.pop(ENVIRONMENT))
    channel = Channel.inherited()
    log_to(spec.log)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    life = life_of(Path(spec.home), spec.job)
    if not life.take():
        channel.send("busy")
        return
    threading.Thread(target=_die_with, args=(channel,), name="holdfast-orders", daemon=True).start()
    run(spec, channel)
    sys.stdout.flush()
    os.killpg(os.getpid(), signal.SIGKILL)  # Spark's JVM with it: there is nothing left to tidy


if __name__ == "__main__":
    main()
