"""The process of a trial: load the job file, build its queries, and run one in the sandbox."""

from __future__ import annotations

import signal
import sys
import traceback
from typing import TYPE_CHECKING

from holdfast.clock import now_ms
from holdfast.errors import HoldfastError
from holdfast.jobs import failures
from holdfast.jobs.loader import load_job
from holdfast.jobs.processes.driver import log_to, session_of, sinks_of
from holdfast.jobs.processes.protocol import (
    Channel,
    JobFailed,
    Refused,
    TrialCommitted,
    TrialDefined,
    TrialDone,
    TrialSession,
    die_with_peer,
)
from holdfast.jobs.trials.trial import TrialSpec
from holdfast.storage import open_storage

if TYPE_CHECKING:
    from holdfast.model import TrialBatch


def run(spec: TrialSpec, channel: Channel) -> None:
    """Run a trial; every ending is reported."""
    from holdfast.stream.trials import QueryFailed

    try:
        _run(spec, channel)
    except HoldfastError as error:
        channel.send(Refused(error))
    except QueryFailed as error:
        sys.stderr.write(error.text)
        channel.send(JobFailed(failures.from_text(error.text, label="query")))
    except Exception as error:  # a person's function may raise anything
        detail = traceback.format_exc()
        sys.stderr.write(detail)
        channel.send(JobFailed(failures.from_exception(error, detail, label=failures.START)))


def _run(spec: TrialSpec, channel: Channel) -> None:
    from holdfast.stream.trials import Trial, chosen

    job = load_job(spec.target).with_overrides(spec.overrides)
    channel.send(TrialDefined(job.name))
    spark = session_of(job, spec.conf, spec.home)
    channel.send(TrialSession(spark.version))
    sink = chosen(sinks_of(job(spark)), spec.query, spec.origin)
    trial = Trial.of(sink, spec.checkpoint, spec.output)
    done: list[TrialBatch] = []
    empty = False
    batches = trial.run(spec.most) if spec.repeat is None else trial.repeat(open_storage(spec.repeat))
    for batch in batches:
        done.append(batch)
        channel.send(TrialCommitted(batch.batch_id, batch.input_rows))
    if not done and spec.or_empty:
        done, empty = [trial.run_empty(now_ms())], True
    channel.send(TrialDone(tuple(done), trial.watermarks, empty))


def main() -> None:
    """Run as a child of `run_trial`."""
    spec = TrialSpec.inherited()
    channel = Channel.inherited()
    log_to(spec.log)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with_peer(channel)  # nobody needs what a trial does without who asked for it
    run(spec, channel)


if __name__ == "__main__":
    main()
