"""Measure the duration of a recovery by performing one in a sandbox."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from holdfast.clock import now_ms
from holdfast.config.units import Duration, exact_duration, parse_duration
from holdfast.errors import HoldfastError, Invalid, NotFound
from holdfast.extras import require_package
from holdfast.jobs.loader import require_job_file
from holdfast.jobs.processes.protocol import TrialDefined
from holdfast.jobs.state_home import SANDBOXES, state_home
from holdfast.jobs.trials.comparison import trial_conf
from holdfast.jobs.trials.trial import TrialOutcome, TrialSpec, run_trial
from holdfast.json_shapes import NOT_IN_JSON, JsonShape, in_json, json_spread
from holdfast.quantities import rounded_duration
from holdfast.savepoints.address import StateAddress
from holdfast.savepoints.catalog import Drill, drills, has_grown, listed, note, usual_ms
from holdfast.savepoints.restoring import RestoreKind, plan_restore, restore
from holdfast.storage import open_storage
from holdfast.storage.atomic_swap import sandbox
from holdfast.storage.local import LocalStorage
from holdfast.storage.port import Storage

LONGEST_MS: Final = 300_000

Tell = Callable[[int, int, str], None]


@dataclass(frozen=True, slots=True)
class DrillReport(JsonShape):
    """A drill, compared with earlier ones.

    Attributes:
        drill: The drill.
        earlier: Earlier drills of the same query with the same job, oldest first.
        max_ms: The maximum duration of a recovery.
        problem: The error if the drill could not be recorded.

    Example:
        report: hf.DrillReport = hf.drill("savepoints@daily")
        assert report.ok and report.drill.recovery_ms <= report.max_ms
    """

    drill: Drill = field(metadata=json_spread())
    earlier: tuple[Drill, ...]
    max_ms: int
    problem: str | None = field(metadata=NOT_IN_JSON)

    @property
    @in_json
    def ok(self) -> bool:
        """True if the recovery took no longer than allowed."""
        return self.drill.recovery_ms <= self.max_ms

    @property
    @in_json
    def grown(self) -> bool:
        """True if it took much longer than before."""
        return has_grown(self.earlier, self.drill)

    @property
    @in_json
    def warnings(self) -> tuple[str, ...]:
        """The warnings to print."""
        said = []
        if not self.ok:
            said.append(f"recovery takes longer than {exact_duration(self.max_ms)}")
        usual = usual_ms(self.earlier, self.drill)
        if self.grown and usual is not None:
            said.append(
                f"recovery takes {self.drill.recovery_ms / max(usual, 1):.1f} times as long as before"
                f" (median of the last drills: {rounded_duration(usual)})"
            )
        if self.drill.job is None:
            said.append("without --job this is not a full recovery: Spark and the job were not started")
        if self.drill.empty:
            said.append("there is no input after the savepoint, so the first batch was empty")
        if self.problem is not None:
            said.append(f"the drill could not be recorded: {self.problem}")
        return tuple(said)


def drill(
    savepoint: str | os.PathLike[str],
    *,
    job: str | None = None,
    query: str | None = None,
    overrides: Mapping[str, str] | None = None,
    conf: Mapping[str, str] | None = None,
    longest: Duration = LONGEST_MS,
    home: str | Path | None = None,
    tell: Tell | None = None,
) -> DrillReport:
    """Restore a savepoint in a sandbox, run its job there to the first committed batch, and measure it.

    The savepoint is not changed, the job's sink is not written to, and the sandbox is removed.

    Cost: that of a recovery. The first batch reads as much as the job's trigger allows.

    Args:
        savepoint: The savepoint's address, or a catalog's address for its newest savepoint.
        job: The job: `FILE.py` or `FILE.py:JOB`. Without it files are only verified and copied.
        query: The query of a job with several, if the savepoint does not identify it.
        overrides: Settings and parameters of the job, as in `--set`.
        conf: Spark settings that override the job's own.
        longest: The maximum duration of a recovery: `"5m"`, or a number of milliseconds.
        home: The state home, which contains the sandbox.
        tell: Called with the number of finished steps, the number of all steps, and the current step.

    Raises:
        NotFound: The savepoint does not exist, or the catalog has none.
        Corrupt: The savepoint is damaged, so a recovery would fail.
        Invalid: An argument is not valid.
        Unsupported: A source allows no second reader.
        Failed: The job failed.

    Example:
        drilled = hf.drill("savepoints@daily", longest="5m")  # with job="visits.py", also starts the job
        assert drilled.ok
        print(drilled.drill.recovery_ms, drilled.warnings)
    """
    max_ms = parse_duration(longest, "longest")
    if job is not None:
        require_package("pyspark")
        require_job_file(job)
    catalog, savepoint_id = newest(os.fspath(savepoint))
    own = state_home(home)
    say = tell or (lambda _done, _total, _note: None)
    with sandbox(own / SANDBOXES, "drill", os.urandom(6).hex()) as place:
        target = LocalStorage(place / "checkpoint")
        say(0, 3, "proving")
        began = time.monotonic()
        plan = plan_restore(catalog, savepoint_id, target, RestoreKind.RESTORE, in_files=True)
        proved = time.monotonic()
        say(1, 3, "copying")
        restore(catalog, target, plan)
        phases = {"verify": _ms(began, proved), "copy": _ms(proved, time.monotonic())}
        outcome = None
        if job is not None:
            say(2, 3, "starting the job")
            spec = TrialSpec(
                target=job,
                home=str(own),
                checkpoint=str(place / "checkpoint"),
                origin=plan.manifest.checkpoint,
                log=str(place / "log"),
                most=1,
                query=query,
                or_empty=True,
                overrides=dict(overrides or {}),
                conf={**trial_conf(plan.manifest, place / "spark", 1), **(conf or {})},
            )
            outcome = run_trial(
                spec,
                lambda message: say(
                    2,
                    3,
                    "starting Spark" if isinstance(message, TrialDefined) else "running to the first batch",
                ),
            )
            phases |= _phases(outcome)
    found = Drill(
        at_ms=now_ms(),
        savepoint=plan.savepoint,
        query_id=plan.manifest.query_id,
        size_bytes=plan.manifest.size_bytes,
        job=None if outcome is None else outcome.job,
        empty=outcome is not None and outcome.empty,
        phases_ms=phases,
        load_ms=None if outcome is None else outcome.batches[0].load_ms,
    )
    return _note_drill(catalog, found, max_ms)


def newest(address: str) -> tuple[Storage, str]:
    """Return the catalog and id of a savepoint, or of a catalog's newest savepoint.

    Raises:
        Invalid: The address is invalid, or matches several savepoints.
        NotFound: The catalog has no savepoint, or none with the label.
    """
    found = StateAddress.resolve(address, or_directory=True)
    try:
        return found.open_savepoint()
    except Invalid:
        storage = open_storage(found.text, "savepoint")
    savepoint_ids = [savepoint.savepoint_id for savepoint in listed(storage)]
    if not savepoint_ids:
        raise NotFound(
            "the directory has no savepoint",
            code="HF-E3050",
            where=storage.uri,
            hint="take a savepoint with `holdfast savepoint take CHECKPOINT DIR`",
        )
    return storage, savepoint_ids[-1]


def _phases(outcome: TrialOutcome) -> dict[str, int]:
    """Return the phases of the job's start."""
    at, first = outcome.steps_s, outcome.batches[0]
    return {
        "job file": _ms(at["launched"], at["defined"]),
        "Spark": _ms(at["defined"], at["session"]),
        "plan": _ms(at["session"], first.began_s),
        "first batch": first.work_ms,
    }


def _note_drill(catalog: Storage, found: Drill, max_ms: int) -> DrillReport:
    earlier = tuple(drill for drill in drills(catalog) if drill.is_like(found))
    problem = None
    try:
        note(catalog, found, os.urandom(4))
    except HoldfastError as error:
        problem = error.fact
    return DrillReport(found, earlier, max_ms, problem)


def _ms(since_s: float, until_s: float) -> int:
    return max(round((until_s - since_s) * 1000), 0)
