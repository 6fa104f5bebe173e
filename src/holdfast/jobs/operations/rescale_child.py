"""The process that repartitions the checkpoints of a job for its supervisor.

It may start Spark, which a supervisor never does. It holds a lock while it lives, and ends with its parent.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from holdfast.errors import Conflict, HoldfastError
from holdfast.jobs.background.worker import error_of
from holdfast.jobs.operations.rescale_spec import RescaleSpec, life_of
from holdfast.jobs.processes.channel import Channel, die_with_peer
from holdfast.jobs.processes.driver import log_to
from holdfast.jobs.processes.protocol import Refused, RescaleDone, RescaleProgress
from holdfast.savepoints.savepoint_api import rescale_between_drivers


def run(spec: RescaleSpec, channel: Channel) -> None:
    """Make the new checkpoints one after the other; every ending is reported."""

    def tell(done: int, total: int, what: str) -> None:
        channel.send(RescaleProgress(done, total, what))

    try:
        for move in spec.moves:
            rescale_between_drivers(
                move.checkpoint,
                move.made,
                partitions=move.partitions,
                master=spec.master,
                home=spec.home,
                tell=tell,
            )
    except HoldfastError as error:
        channel.send(Refused(error))
    except Exception as error:  # whatever it is, the supervisor has to learn of it
        channel.send(Refused(error_of(error)))
    else:
        channel.send(RescaleDone())


def main() -> None:
    """Run as a child of a supervisor."""
    spec = RescaleSpec.inherited()
    channel = Channel.inherited()
    log_to(spec.log)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    life = life_of(Path(spec.home), spec.job)
    if not life.take():
        channel.send(Refused(Conflict("an earlier rescale of the job has not ended yet", hint="ask again")))
        return
    die_with_peer(channel)
    run(spec, channel)
    sys.stdout.flush()
    os.killpg(os.getpid(), signal.SIGKILL)  # Spark's JVM with it: there is nothing left to tidy


if __name__ == "__main__":
    main()
