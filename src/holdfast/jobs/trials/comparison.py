"""Run the original code and the new code from one savepoint over the same input, and say what differs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from holdfast.config.checks import whole
from holdfast.config.spark_defaults import FORMAT_KEY, PROVIDER_KEY, RETAIN_KEY
from holdfast.errors import HoldfastError, Unavailable
from holdfast.extras import require_package
from holdfast.formats.logs.offset_log import PROVIDER
from holdfast.formats.savepoint.manifest import Manifest
from holdfast.jobs.loader import require_job_file
from holdfast.jobs.processes.protocol import Message, TrialCommitted, TrialDefined
from holdfast.jobs.state_home import SANDBOXES, state_home
from holdfast.jobs.trials.output_diff import Outputs, compare_outputs
from holdfast.jobs.trials.state_diff import States, compare_states
from holdfast.jobs.trials.trial import TrialOutcome, TrialSpec, run_trial
from holdfast.json_shapes import JsonShape, in_json, json_as
from holdfast.savepoints.access import opened
from holdfast.savepoints.restoring import Operation, Restored, RestorePlan, plan_restore, restore
from holdfast.storage import open_storage
from holdfast.storage.local import LocalStorage
from holdfast.storage.port import Storage
from holdfast.storage.sandbox import sandbox

MOST_BATCHES: Final = 20
SAMPLES: Final = 5
# The folder of the run that takes the input as it comes.
FIRST: Final = "original"

Tell = Callable[[int, int, str], None]


@dataclass(frozen=True, slots=True)
class Compared(JsonShape):
    """The verdict on two runs over the same input.

    Attributes:
        savepoint: Where both began.
        original: The original code.
        new: The new code.
        batches: The batches that both have run.
        input_rows: The rows that they have read.
        outputs: What they have put out.
        states: What they have kept.
        fork: The checkpoint that was made for the new code, where one was asked for.
    """

    savepoint: str
    original: str
    new: str
    batches: tuple[int, ...]
    input_rows: int
    outputs: Outputs
    states: States = field(metadata=json_as("state"))
    fork: Restored | None

    @property
    @in_json
    def equal(self) -> bool:
        """Whether outputs and final state are the same."""
        return self.outputs.equal and self.states.equal


def compare(
    savepoint: str | os.PathLike[str],
    *,
    original: str,
    new: str,
    checkpoint: str | os.PathLike[str] | None = None,
    batches: int = MOST_BATCHES,
    samples: int = SAMPLES,
    query: str | None = None,
    overrides: Mapping[str, str] | None = None,
    conf: Mapping[str, str] | None = None,
    home: str | Path | None = None,
    tell: Tell | None = None,
) -> Compared:
    """Run two versions of a query from a savepoint over the same input, and compare outputs and state.

    The original takes the input behind the savepoint as it comes; the new code is then given the same batches
    with the same offsets and the same time, one by one. Neither writes to its sink. Each side is a process of
    its own with a Spark of its own, and all of it happens in a sandbox below the state home.

    Cost: two starts of Spark, and one of a query for each batch of the new code, which loads its state anew.

    Args:
        savepoint: The savepoint's address.
        original: The code that the savepoint belongs to: `FILE.py` or `FILE.py:JOB`.
        new: The other code.
        checkpoint: Where to make a fork for the new code once both have run, whatever the verdict.
        batches: So many batches at most.
        samples: How many rows and keys of each difference to show.
        query: Which of a job's queries, where that cannot be told from the savepoint.
        overrides: Settings and parameters of both jobs, as `--set` takes them.
        conf: Spark settings that win over those of both jobs.
        home: The state home.
        tell: Called with steps done, steps in all, and what is being done.

    Raises:
        NotFound: There is no such savepoint, job file or job.
        Corrupt: The savepoint is damaged.
        Conflict: Something is at `checkpoint`.
        Unavailable: There is no input behind the savepoint.
        Unsupported: A source cannot be read beside the query that reads it.
        Failed: One of the two failed; the error says which.
    """
    whole(batches, "batches", least=1)
    whole(samples, "samples", least=0)
    say = tell or (lambda _done, _total, _note: None)
    catalog, savepoint_id = opened(savepoint)
    target = None if checkpoint is None else open_storage(checkpoint)
    wanted = None
    if target is not None:
        wanted = plan_restore(catalog, savepoint_id, target, Operation.FORK)
    require_package("pyspark")
    for side, file in (("original", original), ("new", new)):
        with _told_of(side):
            require_job_file(file)
    place = state_home(home)
    with sandbox(place / SANDBOXES, "compare", os.urandom(6).hex()) as folder:
        say(0, 0, "forking")
        plan = plan_restore(catalog, savepoint_id, _side(folder, FIRST), Operation.FORK, in_files=True)
        run = _Runs(catalog, place, folder, plan, batches, query, dict(overrides or {}), dict(conf or {}))
        one = run.original(original, say)
        other = run.repeated("new", new, len(one.batches), say)
        first = FIRST
        if one.watermarks > 1:
            # A restart changes what such a query takes for late, so both are restarted before each batch.
            first = "again"
            run.repeated(first, original, len(one.batches), say)
        ran = tuple(batch.batch_id for batch in other.batches)
        say(len(ran), len(ran), "comparing")
        outputs = compare_outputs(_side(folder, f"{first}-output"), _side(folder, "new-output"), ran, samples)
        states = compare_states(_side(folder, first), _side(folder, "new"), ran[-1], samples)
    fork = None
    if wanted is not None and target is not None:
        fork = restore(catalog, target, wanted)
    rows = sum(batch.input_rows for batch in one.batches)
    return Compared(plan.savepoint, original, new, ran, rows, outputs, states, fork)


@dataclass(frozen=True, slots=True)
class _Runs:
    """The runs of one comparison, each on a fork of its own in a folder of the sandbox."""

    catalog: Storage
    home: Path
    folder: Path
    plan: RestorePlan
    most: int
    query: str | None
    overrides: Mapping[str, str]
    conf: Mapping[str, str]

    def original(self, target: str, say: Tell) -> TrialOutcome:
        """Take the input as it comes."""
        outcome = self._run(FIRST, target, say, self.most, None)
        if not outcome.batches:
            raise Unavailable(
                "there is no input behind the savepoint, so there is nothing to compare",
                where=self.plan.savepoint,
                found=f"batch {self.plan.manifest.batch_id} is the newest that there is input for",
                hint="wait for input, or take an older batch with `holdfast savepoint take --batch`",
            )
        return outcome

    def repeated(self, name: str, target: str, batches: int, say: Tell) -> TrialOutcome:
        """Run the batches that the original has run."""
        return self._run(name, target, say, batches, FIRST)

    def _run(self, name: str, target: str, say: Tell, most: int, repeat: str | None) -> TrialOutcome:
        say(0, most, f"{name}: forking")
        fork = _side(self.folder, name)
        restore(self.catalog, fork, replace(self.plan, checkpoint=fork.uri))
        done = 0

        def hear(message: Message) -> None:
            nonlocal done
            done += isinstance(message, TrialCommitted)
            say(done, most, f"{name}: {'starting Spark' if isinstance(message, TrialDefined) else 'running'}")

        spec = TrialSpec(
            target=target,
            home=str(self.home),
            checkpoint=str(self.folder / name),
            origin=self.plan.manifest.checkpoint,
            log=str(self.folder / f"{name}.log"),
            most=most,
            query=self.query,
            output=str(self.folder / f"{name}-output"),
            repeat=None if repeat is None else str(self.folder / repeat),
            overrides=self.overrides,
            conf={**trial_conf(self.plan.manifest, self.folder / "spark", most), **self.conf},
        )
        say(0, most, f"{name}: starting")
        with _told_of("new" if name == "new" else "original"):
            return run_trial(spec, hear)


@contextmanager
def _told_of(side: str) -> Iterator[None]:
    """Within the block an error says which code it is of."""
    try:
        yield
    except HoldfastError as error:
        raise type(error)(f"the {side} code: {error.fact}", **error.facts()) from error


def trial_conf(manifest: Manifest, local: Path, batches: int) -> dict[str, str]:
    """What Spark needs to run a query on a savepoint's state, in a sandbox.

    Args:
        manifest: The savepoint.
        local: Where Spark and its stores keep what is of no use afterwards.
        batches: How many batches are run at most; all of them are kept.
    """
    formats = [operator["format_version"] for operator in manifest.fields.get("operators") or ()]
    # Fixed for the query by its checkpoint, and what the session says of format and backend must go with it.
    provider = (manifest.fields.get("confs") or {}).get(PROVIDER)
    return {
        **({FORMAT_KEY: str(max(formats))} if formats else {}),
        **({PROVIDER_KEY: str(provider)} if provider and formats else {}),
        RETAIN_KEY: str(max(100, batches + 2)),
        "spark.sql.streaming.numRecentProgressUpdates": str(batches + 10),
        # The lists of files are needed once more, however old they get meanwhile.
        "spark.sql.streaming.fileSource.log.deletion": "false",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.local.dir": str(local),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }


def _side(place: Path, name: str) -> LocalStorage:
    return LocalStorage(place / name)
