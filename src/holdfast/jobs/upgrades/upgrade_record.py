"""The durable record of a job's upgrade, from which a later process continues it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Final

from holdfast.errors import Corrupt
from holdfast.jobs.run_record import RunRecord
from holdfast.jobs.state_home import StateHome
from holdfast.json_shapes import JsonShape
from holdfast.plain_values import from_known
from holdfast.storage.file_lock import FileLock

_FILE: Final = "upgrade.json"
_LOCK: Final = "upgrade.lock"
_WHAT: Final = "the record of an upgrade"


class UpgradeMode(str, Enum):
    """The state with which new code starts."""

    SAVEPOINT = "savepoint"
    LAST_STATE = "last-state"
    STATELESS = "stateless"


class UpgradeOutcome(str, Enum):
    """The end of an upgrade."""

    UPGRADED = "upgraded"
    WENT_BACK = "went back"


@dataclass(frozen=True, slots=True)
class UpgradeStep(JsonShape):
    """A step of an upgrade that was carried out.

    Attributes:
        step: The name of the step: `check`, `stop`, `savepoint`, `convert`, `start`, `watch`; on the way
            back `stop-new`, `put-back`, `start-old`.
        text: What it did.
        took_ms: The time that it took.

    Example:
        def log(step: hf.jobs.UpgradeStep) -> None:
            print(f"{step.step}: {step.text} ({step.took_ms} ms)")
    """

    step: str
    text: str
    took_ms: int


@dataclass(frozen=True, slots=True)
class Goals:
    """The conditions under which new code counts as healthy.

    Attributes:
        batches: The number of batches that each query has to commit.
        within_ms: The time for that.
        idle_ms: The time without a planned batch after which a query counts as idle.
    """

    batches: int
    within_ms: int
    idle_ms: int


@dataclass(frozen=True, slots=True)
class EvolveArguments:
    """A caller's arguments for the conversion of state, as `hf.evolve` takes them.

    Attributes:
        initial: Initial values of new columns.
        rename: New names by old ones.
        drop: Columns and operators whose state is discarded.
        merge: True to merge rows that get the same key.
    """

    initial: Mapping[str, str] = field(default_factory=dict)
    rename: Mapping[str, str] = field(default_factory=dict)
    drop: tuple[str, ...] = ()
    merge: bool = False

    @property
    def any(self) -> bool:
        """True if there is one."""
        return self != EvolveArguments()


@dataclass(frozen=True, slots=True)
class UpgradeRecord:
    """An upgrade and what is done of it.

    Attributes:
        upgrade_id: A random id.
        job: The job's name.
        mode: The state with which the new code starts.
        checkpoint: The job's checkpoint.
        queries: The checkpoint of each query.
        catalogs: The directory for the savepoint of each query.
        former: How the job ran before.
        wanted: How it is to run.
        ran: True if it ran when the upgrade began.
        converts: The queries whose state is converted for the new code.
        wishes: The arguments of the conversion.
        returns: The queries whose batches the old code can repeat with the same input.
        goals: The conditions under which the new code counts as healthy.
        alerts: The alerts that fired before, as rule and labels.
        steps: The steps that are done.
        facts: Further values that a later process needs, by step.
        reason: The reason for going back; None while the upgrade goes forward.
        outcome: The end; None until then.
    """

    upgrade_id: str
    job: str
    mode: UpgradeMode
    checkpoint: str
    queries: Mapping[str, str]
    catalogs: Mapping[str, str]
    former: RunRecord
    wanted: RunRecord
    ran: bool
    converts: tuple[str, ...]
    wishes: EvolveArguments
    returns: tuple[str, ...]
    goals: Goals
    alerts: tuple[str, ...] = ()
    steps: tuple[UpgradeStep, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    reason: str | None = None
    outcome: UpgradeOutcome | None = None

    def did(self, step: str) -> bool:
        """Return True if a step is done."""
        return any(done.step == step for done in self.steps)

    def with_step(self, step: str, text: str, took_ms: int, **facts: Any) -> UpgradeRecord:
        """Return the record with one more step that is done, and its values."""
        done = (*self.steps, UpgradeStep(step, text, took_ms))
        return replace(self, steps=done, facts={**self.facts, **facts})

    def with_facts(self, **facts: Any) -> UpgradeRecord:
        """Return the record with further values."""
        return replace(self, facts={**self.facts, **facts})


class UpgradeFile:
    """The newest upgrade of a job in the state home, and the lock of the process that carries it out.

    Args:
        home: The state home.
        job: The job's name.
    """

    def __init__(self, home: StateHome, job: str) -> None:
        self._home = home
        self._job = job
        self.lock = FileLock(home.job(job) / _LOCK)

    def read(self) -> UpgradeRecord | None:
        """Return the newest upgrade; None if the job was never upgraded.

        Raises:
            Corrupt: The record is damaged.
        """
        fields = self._home.read_json(self._job, _FILE, _WHAT)
        if fields is None:
            return None
        try:
            return from_known(UpgradeRecord, fields)
        except (TypeError, ValueError, AttributeError) as error:
            raise Corrupt(
                "the record of an upgrade is damaged",
                code="HF-E6063",
                where=str(self._home.job(self._job) / _FILE),
                found=str(error),
                hint="see with `holdfast status` whether the job runs, then delete the file",
            ) from error

    def unfinished(self) -> UpgradeRecord | None:
        """Return the newest upgrade if it has not ended."""
        record = self.read()
        return record if record is not None and record.outcome is None else None

    def write(self, record: UpgradeRecord) -> None:
        """Replace the record; after a kill the old or the new one is there."""
        self._home.write_json(self._job, _FILE, record)
