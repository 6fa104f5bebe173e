"""Migrations of state to a different backend, number of partitions or format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from holdfast.changes.engine import ChangePlan, StateAtRest, StateReport, carry_out, state_at_rest
from holdfast.changes.layouts import StatesMoved, by_files, moved
from holdfast.changes.rewriting import MEMORY, ROCKSDB, StateShape
from holdfast.changes.working_copy import SharedWork, WorkingCopy, on_executors
from holdfast.checkpoints.checkpoint import ProgressCallback, read
from holdfast.checkpoints.state.contents import StateContent
from holdfast.checkpoints.state.states import operator_states
from holdfast.config.checks import whole
from holdfast.errors import Internal, Invalid, Unsupported
from holdfast.external.databases import address_of
from holdfast.external.named_addresses import name_database
from holdfast.external.view import with_state
from holdfast.formats.logs.batch_logs import of_spark_4
from holdfast.formats.operators import is_processor
from holdfast.formats.providers import DATABASES, ExternalState
from holdfast.formats.text import PARTITIONS
from holdfast.json_shapes import NOT_IN_JSON, JsonShape, in_json, json_as, json_spread
from holdfast.layout import DEFAULT_STORE
from holdfast.ownership.checkpoint_guard import CheckpointGuard
from holdfast.ownership.usage import CheckpointUsage
from holdfast.quantities import counted
from holdfast.savepoints.access import ChangeSource, move_of, source_guard, source_usage
from holdfast.savepoints.address import Address
from holdfast.savepoints.external_stores import outside, refuse_unfit
from holdfast.savepoints.planning import changing
from holdfast.savepoints.restoring import RestoreKind
from holdfast.savepoints.view import workplace
from holdfast.storage.port import Storage

if TYPE_CHECKING:
    from holdfast.at_rest.keyed_reader import KeyedContent


# The providers of the databases, by the names of the backends.
_OUTSIDE: Final = {name.lower(): provider for provider, name in DATABASES.items()}
BackendName: TypeAlias = Literal["rocksdb", "memory", "hashmap", "redis", "cassandra"]
# Other names of Spark's store on the heap.
_NAMES: Final = {ROCKSDB: ROCKSDB, MEMORY: MEMORY, "hashmap": MEMORY, **{name: name for name in _OUTSIDE}}
_PREFIX: Final = "holdfast"


@dataclass(frozen=True, slots=True)
class MigrationPlan(ChangePlan, JsonShape):
    """The plan of a migration.

    Attributes:
        before: The present layout of the state.
        partitions_before: The present number of partitions of each operator, except operators whose whole
            state is in one task.
        after: The new layout of the state.
        size_bytes: The present size of the state in bytes.
        key_groups_before: The present number of key groups of each keyed operator, by name.
        key_groups: The new number of key groups; None leaves it unchanged.
        has_formats: Whether the Spark that wrote the state has a setting for the state-checkpoint format.
        usage: The evidence of queries that may be using the checkpoint, if collected; a person must confirm
            that none is.

    Example:
        plan = hf.plan_migrate("checkpoints/visits", state_format=1)
        assert plan.state_format_before == 2
        assert plan.checkpoint.endswith("checkpoints/visits-migrated")
    """

    before: StateShape = field(metadata=NOT_IN_JSON)
    partitions_before: tuple[int, ...]
    after: StateShape = field(metadata=json_spread())
    size_bytes: int
    key_groups_before: Mapping[str, int]
    key_groups: int | None = None
    has_formats: bool = field(default=True, metadata=NOT_IN_JSON)
    usage: CheckpointUsage | None = None

    @property
    @in_json
    def operation(self) -> RestoreKind:
        """The operation: `migrate`."""
        return RestoreKind.MIGRATE

    @property
    @in_json
    def backend_before(self) -> str:
        """The present backend: `rocksdb`, `memory`, `redis` or `cassandra`."""
        return self.before.backend

    @property
    @in_json
    def state_format_before(self) -> int:
        """The present state-checkpoint format."""
        return self.before.state_format


@dataclass(frozen=True, slots=True)
class Migrated(StateReport, JsonShape):
    """A checkpoint whose state was migrated.

    Attributes:
        size_bytes: The size of the state after the migration, in bytes.
        keyed: The content of the keyed operators, which is the same before and after, if keys were moved to
            different groups. `before` and `after` then describe the stored rows of the new groups.

    Example:
        migrated = hf.migrate("savepoints@daily", "checkpoints/visits-8", partitions=8)
        assert migrated.plan.partitions_before == (2,)
        assert migrated.before == migrated.after  # the same rows of each state
    """

    plan: MigrationPlan = field(metadata=json_spread())
    before: tuple[StateContent, ...] = field(metadata=json_as("states_before"))
    size_bytes: int = field(metadata=json_as("bytes_after"))
    keyed: tuple[KeyedContent, ...] = ()


def migrate(
    source: Address,
    checkpoint: Address | None = None,
    *,
    backend: BackendName | None = None,
    partitions: int | None = None,
    state_format: int | None = None,
    key_groups: int | None = None,
    database: str | None = None,
    master: str | None = None,
    stopped: bool = False,
    home: Address | None = None,
    tell: ProgressCallback | None = None,
) -> Migrated:
    """Create a checkpoint with the same state in a different backend, number of partitions, or format.

    The changes can be combined. Spark alone cannot change the backend or the number of partitions of a
    checkpoint. The rows of every state are counted and hashed before and after, independent of the backend's
    framing; if they differ, nothing is created. The source stays unchanged. The query continues after the
    same batch, so the batch ids in its sink have no gap. Do not run a query on the old checkpoint afterwards.

    Cost: reads all state three times and writes it once, at about 100,000 rows per second on one core,
    without Spark or a JVM.

    Args:
        source: A checkpoint that no query uses, or a savepoint.
        checkpoint: The new checkpoint, a directory that does not exist; by default next to the old
            checkpoint, with the suffix `-migrated`.
        backend: `rocksdb`; `memory` (also `hashmap`), Spark's store on the heap; `redis`; or `cassandra`. By
            default unchanged.
        partitions: The new number of partitions; by default unchanged.
        state_format: The state-checkpoint format of RocksDB: 1, or 2 with a unique name for each file. By
            default unchanged, or 2 if the state is on the heap. Start the query with the same value in
            `spark.sql.streaming.stateStore.checkpointFormatVersion`.
        key_groups: The new number of key groups of keyed operators, which only a migration can change. Start
            the job with the same number. By default unchanged.
        database: The address for `redis` and `cassandra`, such as `redis://redis.example:6379/0` or
            `cassandra://cassandra.example:9042/holdfast`; by default the present database of the state. The
            state gets its own stores there.
        master: As in `hf.savepoints.rescale`. Only `key_groups` is changed on this machine.
        stopped: True to confirm that no query uses the checkpoint. The confirmation is required for a
            checkpoint, not for a savepoint. The checkpoint is also watched for several seconds to two
            minutes.
        home: The state home, which may have an integrity record of the checkpoint; by default that of the
            settings.
        tell: The progress callback, called with the work done, the total, and the current step.

    Raises:
        NotFound: The checkpoint or savepoint does not exist.
        Conflict: The target exists, a batch of the checkpoint is uncommitted, a query uses the checkpoint, or
            the confirmation is missing.
        Corrupt: The source is damaged.
        Invalid: The query has no state, no change was requested, or an argument is not valid.
        Unsupported: The backend does not support the state, or state cannot be moved to it.
        Unavailable: The database or a storage does not answer, an executor does not see it, or the Spark job
            failed.

    Example:
        migrated = hf.migrate("savepoints@daily", "checkpoints/visits-memory", backend="memory")
        assert migrated.rows == 10
        assert hf.state("checkpoints/visits-memory").get("aggregate", "c1").value["count"] == 12
    """
    given, target, plan = _planned(
        source, checkpoint, backend, partitions, state_format, key_groups, database, home
    )
    with (
        source_guard(given, "state migrate", stopped=stopped, tell=tell) as guard,
        workplace(target, "migrate") as work,
        on_executors(target, work, "migrate", master) as shared,
    ):
        return apply_migration(given, target, plan, work, tell=tell, guard=guard, shared=shared)


def plan_migrate(
    source: Address,
    checkpoint: Address | None = None,
    *,
    backend: BackendName | None = None,
    partitions: int | None = None,
    state_format: int | None = None,
    key_groups: int | None = None,
    database: str | None = None,
) -> MigrationPlan:
    """Plan a migration. Changes nothing and reads no rows.

    The arguments are those of `migrate`.

    Raises:
        As for `migrate`.

    Example:
        plan = hf.plan_migrate("checkpoints/visits", backend="memory", partitions=4)
        assert (plan.backend_before, plan.partitions_before) == ("rocksdb", (2,))
        print(plan.checkpoint, plan.size_bytes)
    """
    given, _, plan = _planned(source, checkpoint, backend, partitions, state_format, key_groups, database)
    return replace(plan, usage=source_usage(given))


@dataclass(frozen=True, slots=True)
class MoveToLayout:
    """The step that moves state to a different backend, number of partitions or key groups, or format.

    Attributes:
        plan: The plan of the migration.
    """

    plan: MigrationPlan
    name: str = "layout"

    def apply(
        self, work: WorkingCopy, folder: Path, tell: ProgressCallback | None
    ) -> tuple[StatesMoved, tuple[KeyedContent, ...]]:
        """See `Step`; rows, and keys that change their group, are counted and hashed before and after."""
        keyed = _regrouped(work.checkpoint, self.plan, folder / "groups", tell)
        return moved(work, self.plan, by_files(self.plan.after, folder / "stores", tell), tell), keyed


def apply_migration(
    source: ChangeSource,
    target: Storage,
    plan: MigrationPlan,
    folder: Path,
    *,
    tell: ProgressCallback | None = None,
    guard: CheckpointGuard | None = None,
    shared: SharedWork | None = None,
) -> Migrated:
    """Create the planned checkpoint.

    Raises:
        As for `carry_out`.
    """
    purpose = changing("nothing was migrated", "state migrate")
    [(states, keyed)] = carry_out(
        source,
        target,
        plan,
        [MoveToLayout(plan)],
        RestoreKind.MIGRATE,
        purpose,
        folder,
        guard=guard,
        tell=tell,
        shared=shared,
    )
    size_bytes = read(with_state(target)).size_bytes
    return Migrated(plan, plan.batch_id, states.before, states.after, size_bytes, keyed)


def _regrouped(
    checkpoint: Storage, plan: MigrationPlan, folder: Path, tell: ProgressCallback | None
) -> tuple[KeyedContent, ...]:
    """Move keys to different groups, in a separate batch, and check that their state is unchanged."""
    if plan.key_groups is None:
        return ()
    from holdfast.at_rest.keyed_reader import keyed_contents
    from holdfast.changes.keyed.group_writer import regroup

    before = keyed_contents(checkpoint)
    regroup(checkpoint, plan.key_groups, folder, tell=tell)
    after = keyed_contents(checkpoint)
    lost = next((old for old, new in zip(before, after, strict=True) if old != new), None)
    if lost is not None:
        raise Internal(
            "verification failed, so nothing was written: the state of some keys has changed",
            code="HF-E9013",
            where=plan.source,
            found=f"operator {lost.operator}, {counted(lost.keys, 'key')}",
            hint="please report this; the source is unchanged",
        )
    return after


def planned_migration(
    source: ChangeSource,
    target: Storage,
    backend: str | None = None,
    partitions: int | None = None,
    state_format: int | None = None,
    key_groups: int | None = None,
    database: str | None = None,
) -> MigrationPlan:
    """Plan a migration from its source and target; see `migrate`."""
    wanted = _backend(backend)
    state = state_at_rest(source, target, RestoreKind.MIGRATE)
    before = state.shape
    rocksdb = before.rocksdb if wanted is None else wanted == ROCKSDB
    external = _external(wanted or before.backend, before, database, source.uri)
    after = StateShape(
        rocksdb=rocksdb,
        partitions=before.partitions if partitions is None else partitions,
        state_format=_format(
            state_format, before, rocksdb=rocksdb, spark_4=of_spark_4(state.found.confs), where=source.uri
        ),
        external=external,
    )
    _refuse_impossible(state, after)
    after = replace(after, external=outside(external, None, source.uri))
    return MigrationPlan(
        *state.common(target),
        before=before,
        partitions_before=state.partitions,
        after=after,
        size_bytes=state.found.size_bytes,
        key_groups_before=_key_groups(state.view, source.uri, key_groups),
        key_groups=key_groups,
        has_formats=of_spark_4(state.found.confs),
    )


def _external(backend: str, before: StateShape, database: str | None, where: str) -> ExternalState | None:
    """Return the database for the state; None for a backend in files."""
    provider = _OUTSIDE.get(backend)
    if provider is None:
        if database is None:
            return None
        raise Invalid(
            "--database was given without a database backend",
            code="HF-E2106",
            where=where,
            found=f"backend {backend}",
            hint=f"remove --database, or give --backend {' or '.join(_OUTSIDE)}",
        )
    known = ExternalState(provider, "", _PREFIX)
    if before.external is not None:
        same = before.external.provider == provider
        known = before.external if same else replace(known, prefix=before.external.prefix or _PREFIX)
    if database is not None:
        address = address_of(provider, database)
        name_database(address)
        return replace(known, database=address)
    if not known.database:
        raise Invalid(
            f"the address of the {known.kind} database is missing",
            code="HF-E2107",
            where=where,
            hint="give the address with --database",
        )
    return known


def _key_groups(view: Storage, uri: str, wanted: int | None) -> dict[str, int]:
    """Return the number of key groups of each keyed operator; empty if it does not change."""
    if wanted is None:
        return {}
    from holdfast.at_rest.keyed_operators import keyed_operators

    found = {operator.name: operator.key_groups for operator in keyed_operators(view)}
    if not found:
        raise Invalid(
            "the query has no keyed state of Holdfast, and so no key groups",
            code="HF-E2108",
            where=uri,
            hint="remove --key-groups; use --partitions for other queries",
        )
    return found


def _planned(
    source: Address,
    checkpoint: Address | None,
    backend: str | None,
    partitions: int | None,
    state_format: int | None,
    key_groups: int | None,
    database: str | None,
    home: Address | None = None,
) -> tuple[ChangeSource, Storage, MigrationPlan]:
    if (backend, partitions, state_format, key_groups, database) == (None, None, None, None, None):
        raise Invalid(
            "no change was requested",
            code="HF-E2109",
            hint="give --backend, --partitions, --key-groups or --state-format",
        )
    if partitions is not None:
        whole(partitions, "partitions", least=1, most=PARTITIONS)
    if key_groups is not None:
        whole(key_groups, "key_groups", least=1)
    _backend(backend)
    given, target = move_of(source, checkpoint, "migrated", home)
    plan = planned_migration(given, target, backend, partitions, state_format, key_groups, database)
    return given, target, plan


def _backend(name: str | None) -> str | None:
    if name is None:
        return None
    text = str(name)  # a store object, such as `hf.Memory()`, is refused with its text
    if text.lower() in _NAMES:
        return _NAMES[text.lower()]
    raise Unsupported(
        f"state cannot be moved to the backend {text!r}",
        code="HF-E7030",
        expected=f"{ROCKSDB}, {MEMORY} (hashmap), {' or '.join(_OUTSIDE)}",
        hint="move the state with the tools of that backend",
    )


def _format(wanted: int | None, before: StateShape, *, rocksdb: bool, spark_4: bool, where: str) -> int:
    highest = 2 if rocksdb and spark_4 else 1
    if wanted is None:
        return before.state_format if rocksdb and before.rocksdb else highest
    whole(wanted, "state_format", least=1)
    if wanted <= highest:
        return wanted
    if rocksdb and wanted == 2:
        raise Unsupported(
            "the Spark that wrote this checkpoint does not support the requested state-checkpoint format",
            code="HF-E7031",
            where=where,
            found="format 2, which needs Spark 4.0",
            expected="format 1",
            hint="remove --state-format",
        )
    raise Invalid(
        "the backend does not support the requested state-checkpoint format",
        code="HF-E2110",
        found=f"format {wanted}",
        expected="format 1 or 2" if rocksdb else "format 1, the only format of the memory backend",
        hint="remove --state-format",
    )


def _refuse_impossible(state: StateAtRest, after: StateShape) -> None:
    heap = "the memory backend" if after.external is None else after.external.kind
    for operator in operator_states(state.view, state.batch_id):
        families = {
            codec.name.family for codec in operator.declared_codecs() if codec.name.family != DEFAULT_STORE
        }
        if not after.rocksdb and (families or is_processor(operator.name)):
            why = (
                "transformWithState, which Holdfast's keyed state uses, needs RocksDB"
                if is_processor(operator.name)
                else "the stores of the operator have column families, which need RocksDB"
            )
            raise Unsupported(
                f"{heap} cannot hold the state of an operator: {why}",
                code="HF-E7032",
                where=state.source.uri,
                found=f"operator {operator.named.label}",
                expected=ROCKSDB,
                hint="remove --backend, or move the state to rocksdb",
            )
        if after.external is not None:
            refuse_unfit(operator, after.external)
        if operator.values.avro and state.shape.rocksdb != after.rocksdb:
            raise Unsupported(
                "state rows in Avro encoding cannot be moved to a different backend",
                code="HF-E7033",
                where=state.source.uri,
                found=f"operator {operator.named.label}",
                hint="remove --backend",
            )
    if state.moving(after.partitions):
        state.refuse_uncertain()
        unplaced = state.unplaced(after.partitions)
        if unplaced is not None:
            raise unplaced
