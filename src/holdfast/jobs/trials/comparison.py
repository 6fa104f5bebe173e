"""Run old and new code from one savepoint over the same input, and compare their output."""

from __future__ import annotations

import hashlib
import io
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdfast.config.checks import whole
from holdfast.config.spark_defaults import FORMAT_KEY, PROVIDER_KEY, RETAIN_KEY
from holdfast.errors import HoldfastError, Unavailable
from holdfast.extras import require_package
from holdfast.formats.logs.batch_logs import PROVIDER
from holdfast.formats.manifest import Manifest
from holdfast.formats.rows.plain import plain
from holdfast.jobs.loader import require_job_file
from holdfast.jobs.processes.protocol import Message, TrialCommitted, TrialDefined
from holdfast.jobs.state_home import SANDBOXES, state_home
from holdfast.jobs.trials.state_diff import FinalStates, compare_states
from holdfast.jobs.trials.trial import TrialOutcome, TrialSpec, run_trial
from holdfast.json_shapes import JsonShape, in_json, in_json_as, json_as
from holdfast.savepoints.address import StateAddress
from holdfast.savepoints.restoring import Restored, RestoreKind, RestorePlan, plan_restore, restore
from holdfast.storage import open_storage
from holdfast.storage.atomic_swap import sandbox
from holdfast.storage.local import LocalStorage
from holdfast.storage.port import Storage

if TYPE_CHECKING:
    import pyarrow as pa


# So many rows of a batch are compared with each other at a time; each takes some hundred bytes meanwhile.
ROWS_AT_ONCE: Final = 2_000_000
_PIECE: Final = 8192


@dataclass(frozen=True, slots=True)
class RowSample:
    """Rows that only one of two runs has output in a batch.

    Attributes:
        batch_id: The batch.
        count: The surplus of the row in this run.
        row: The row, by column.
    """

    batch_id: int
    count: int
    row: Mapping[str, Any] = field(metadata=json_as(convert=plain))


@dataclass(frozen=True, slots=True)
class BatchOutput:
    """One batch of both runs.

    Attributes:
        batch_id: The batch.
        original_rows: The number of rows that the original has output.
        new_rows: The number of rows that the new code has output.
        missing: The rows of the original that the new code has not output.
        extra: The rows of the new code that the original has not output.
    """

    batch_id: int
    original_rows: int
    new_rows: int
    missing: int
    extra: int


@dataclass(frozen=True, slots=True)
class Outputs:
    """The verdict on the outputs.

    Attributes:
        original_columns: Names and types of the original's columns.
        new_columns: Names and types of the new code's.
        batches: Each batch.
        same_rows: True if both runs have the same rows over all batches, possibly in different batches.
        missing: Samples of rows that only the original has output.
        extra: Samples of rows that only the new code has output.
    """

    original_columns: tuple[str, ...]
    new_columns: tuple[str, ...]
    batches: tuple[BatchOutput, ...]
    same_rows: bool
    missing: tuple[RowSample, ...] = field(metadata=json_as("missing_samples"))
    extra: tuple[RowSample, ...] = field(metadata=json_as("extra_samples"))

    @property
    @in_json
    def equal(self) -> bool:
        """True if the columns are equal and each batch has the same rows."""
        same = all(batch.missing == batch.extra == 0 for batch in self.batches)
        return same and self.original_columns == self.new_columns

    @property
    @in_json
    def original_rows(self) -> int:
        """The number of rows that the original has output."""
        return sum(batch.original_rows for batch in self.batches)

    @property
    @in_json
    def new_rows(self) -> int:
        """The number of rows that the new code has output."""
        return sum(batch.new_rows for batch in self.batches)

    @property
    @in_json_as("missing")
    def missing_rows(self) -> int:
        """The number of rows that only the original has output, summed over the batches."""
        return sum(batch.missing for batch in self.batches)

    @property
    @in_json_as("extra")
    def extra_rows(self) -> int:
        """The number of rows that only the new code has output, summed over the batches."""
        return sum(batch.extra for batch in self.batches)


@dataclass(slots=True)
class _Side:
    """The rows of one batch of one run."""

    storage: Storage
    folder: str
    schema: pa.Schema | None = None
    rows: int = 0
    files: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, storage: Storage, batch_id: int) -> _Side:
        import pyarrow.parquet as pq

        side = cls(storage, str(batch_id))
        for name in sorted(storage.list(side.folder).names):
            if not name.endswith(".parquet") or name.startswith((".", "_")):
                continue
            read = pq.ParquetFile(io.BytesIO(storage.read(f"{side.folder}/{name}")))
            side.schema = read.schema_arrow
            side.rows += read.metadata.num_rows
            side.files.append(name)
        return side

    @property
    def columns(self) -> tuple[str, ...]:
        """Names and types."""
        return () if self.schema is None else tuple(f"{field.name} {field.type}" for field in self.schema)

    def read(self, names: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Read the rows with these columns."""
        import pyarrow.parquet as pq

        for name in self.files:
            file = pq.ParquetFile(io.BytesIO(self.storage.read(f"{self.folder}/{name}")))
            for piece in file.iter_batches(_PIECE, columns=list(names)):
                yield from piece.to_pylist()


def compare_outputs(original: Storage, new: Storage, batches: Iterable[int], samples: int) -> Outputs:
    """Compare the rows of each batch.

    If the columns differ, only the common ones are compared. Values are equal if they print alike: numbers
    have no tolerance, and 0.0 equals -0.0.

    Cost: both outputs are read twice; of a batch, up to `ROWS_AT_ONCE` row hashes are in memory.

    Args:
        original: The directory of the original's rows: Parquet files in one directory per batch.
        new: The same for the new code.
        batches: The batches.
        samples: The number of different rows to show of each side.
    """
    compared: list[BatchOutput] = []
    columns: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    missing: list[RowSample] = []
    extra: list[RowSample] = []
    overall: Counter[bytes] = Counter()
    for batch_id in batches:
        one, other = _Side.of(original, batch_id), _Side.of(new, batch_id)
        columns = (one.columns or columns[0], other.columns or columns[1])
        difference = _difference(one, other)
        overall.update(difference)
        compared.append(
            BatchOutput(
                batch_id,
                one.rows,
                other.rows,
                sum(count for count in difference.values() if count > 0),
                -sum(count for count in difference.values() if count < 0),
            )
        )
        names = _shared(one, other)
        missing += _samples(one, names, batch_id, _some(difference, samples - len(missing), 1))
        extra += _samples(other, names, batch_id, _some(difference, samples - len(extra), -1))
    same = not any(overall.values())
    return Outputs(*columns, tuple(compared), same, tuple(missing), tuple(extra))


def _difference(one: _Side, other: _Side) -> Counter[bytes]:
    """Return the surplus of the first side, by row hash."""
    names = _shared(one, other)
    found: Counter[bytes] = Counter()
    passes = -(-max(one.rows, other.rows, 1) // ROWS_AT_ONCE)
    for part in range(passes):
        counts: Counter[bytes] = Counter()
        for side, sign in ((one, 1), (other, -1)):
            for row in side.read(names):
                key = _hash(row, names)
                if key[0] % passes == part:
                    counts[key] += sign
        found.update({key: count for key, count in counts.items() if count})
    return found


def _shared(one: _Side, other: _Side) -> list[str]:
    if one.schema is None or other.schema is None:
        return []
    return [name for name in one.schema.names if name in other.schema.names]


def _some(difference: Counter[bytes], most: int, sign: int) -> dict[bytes, int]:
    wanted = sorted(key for key, count in difference.items() if count * sign > 0)
    return {key: abs(difference[key]) for key in wanted[: max(most, 0)]}


def _samples(
    side: _Side, names: Sequence[str], batch_id: int, wanted: dict[bytes, int]
) -> Iterator[RowSample]:
    for row in side.read(names) if wanted else ():
        count = wanted.pop(_hash(row, names), None)
        if count is not None:
            yield RowSample(batch_id, count, row)


def _hash(row: Mapping[str, Any], names: Sequence[str]) -> bytes:
    text = repr([_plain(row[name]) for name in names])
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _plain(value: Any) -> Any:
    """Return a value whose printed form is equal for equal values; maps (lists of pairs) are sorted."""
    if isinstance(value, float):
        return value + 0.0
    if isinstance(value, dict):
        return [(name, _plain(part)) for name, part in value.items()]
    if isinstance(value, list):
        pairs = [_plain(pair) for pair in value]
        return sorted(pairs, key=repr) if value and all(isinstance(part, tuple) for part in value) else pairs
    if isinstance(value, tuple):
        return tuple(_plain(part) for part in value)
    return value


MOST_BATCHES: Final = 20
SAMPLES: Final = 5
# The folder of the run that takes the input as it comes.
FIRST: Final = "original"

Tell = Callable[[int, int, str], None]


@dataclass(frozen=True, slots=True)
class ComparisonReport(JsonShape):
    """The verdict on two runs over the same input.

    Attributes:
        savepoint: The savepoint that both started from.
        original: The original code.
        new: The new code.
        batches: The number of batches that both have run.
        input_rows: The number of rows that they have read.
        outputs: The comparison of the outputs.
        states: The comparison of the states.
        fork: The checkpoint created for the new code, if requested.

    Example:
        def test_new_code_has_the_same_results():
            report: hf.ComparisonReport = hf.compare("savepoints@daily", original="old.py", new="new.py")
            assert report.equal, report.outputs
    """

    savepoint: str
    original: str
    new: str
    batches: tuple[int, ...]
    input_rows: int
    outputs: Outputs
    states: FinalStates = field(metadata=json_as("state"))
    fork: Restored | None

    @property
    @in_json
    def equal(self) -> bool:
        """True if outputs and final state are equal."""
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
) -> ComparisonReport:
    """Run two versions of a query from a savepoint over the same input, and compare outputs and state.

    The original reads the input that follows the savepoint; the new code then runs the same batches with the
    same offsets and time, one by one. Neither writes to its sink. Each runs in its own process with its own
    Spark, in a sandbox below the state home.

    Cost: two starts of Spark, and one start of a query per batch of the new code, which reloads its state.

    Args:
        savepoint: The savepoint's address.
        original: The code that the savepoint belongs to: `FILE.py` or `FILE.py:JOB`.
        new: The new code.
        checkpoint: The address for a fork for the new code, created after both runs, whatever the verdict.
        batches: The maximum number of batches.
        samples: The number of rows and keys of each difference to show.
        query: The query of a job with several, if the savepoint does not identify it.
        overrides: Settings and parameters of both jobs, as in `--set`.
        conf: Spark settings that override those of both jobs.
        home: The state home.
        tell: Called with steps done, steps in all, and the current step.

    Raises:
        NotFound: The savepoint, job file or job does not exist.
        Corrupt: The savepoint is damaged.
        Conflict: `checkpoint` exists already.
        Unavailable: There is no input after the savepoint.
        Unsupported: A source allows no second reader.
        Failed: One of the two versions failed; the error says which.

    Example:
        def test_new_code_has_the_same_results():
            report = hf.compare("savepoints@daily", original="visits.py", new="new/visits.py", batches=5)
            assert report.equal, report.outputs
    """
    whole(batches, "batches", least=1)
    whole(samples, "samples", least=0)
    say = tell or (lambda _done, _total, _note: None)
    catalog, savepoint_id = StateAddress.resolve(savepoint).open_savepoint()
    target = None if checkpoint is None else open_storage(checkpoint)
    wanted = None
    if target is not None:
        wanted = plan_restore(catalog, savepoint_id, target, RestoreKind.FORK)
    require_package("pyspark")
    for side, file in (("original", original), ("new", new)):
        with _told_of(side):
            require_job_file(file)
    place = state_home(home)
    with sandbox(place / SANDBOXES, "compare", os.urandom(6).hex()) as folder:
        say(0, 0, "forking")
        plan = plan_restore(catalog, savepoint_id, _side(folder, FIRST), RestoreKind.FORK, in_files=True)
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
    return ComparisonReport(plan.savepoint, original, new, ran, rows, outputs, states, fork)


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
        """Run the original on the input that follows the savepoint."""
        outcome = self._run(FIRST, target, say, self.most, None)
        if not outcome.batches:
            raise Unavailable(
                "the outputs cannot be compared, because there is no input after the savepoint",
                code="HF-E5030",
                where=self.plan.savepoint,
                found=f"batch {self.plan.manifest.batch_id} is the last batch with input",
                hint="wait for input, or compare from a savepoint of an older batch, taken with"
                " `holdfast savepoint take CHECKPOINT DIR --batch N`",
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
    """Prefix errors raised in the block with the side of the code."""
    try:
        yield
    except HoldfastError as error:
        raise type(error)(f"the {side} code: {error.fact}", **error.facts()) from error


def trial_conf(manifest: Manifest, local: Path, batches: int) -> dict[str, str]:
    """Return Spark's settings for running a query on a savepoint's state, in a sandbox.

    Args:
        manifest: The savepoint.
        local: The directory for Spark's temporary files.
        batches: The maximum number of batches; all of them are kept.
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
