"""What a partition keeps through new forms of its state, lost copies, and timers that have moved."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from holdfast.errors import Unsupported
from holdfast.worker.declarations.state_descriptors import State, StateKind, Ttl
from holdfast.worker.interface import DUE_EVENT, TIMERS, Moment, Outcome
from holdfast.worker.state import group_tables, pass_changes, tables
from holdfast.worker.state import upkeep as folding
from holdfast.worker.state.key_index import Keys
from holdfast.worker.state.layout import ROWS, Layout, Period, form_of
from holdfast.worker.state.local_copies import Copies
from holdfast.worker.state.partition import Partition
from holdfast.worker.state.store import MemoryStore
from holdfast.worker.state.tables import empty_run

KEYS = pa.schema([pa.field("who", pa.string())])
MOMENT = Moment(0, None, None)
OLD = (State(StateKind.VALUE, pa.int32(), "total"),)
NEW = (State(StateKind.VALUE, pa.int64(), "total"), State(StateKind.VALUE, pa.string(), "name"))
NAMES = ("a", "b")
NOTHING = pa.table({})
TOKENS = count(1)


def task(
    store: MemoryStore,
    states: Sequence[State],
    folder: Path | None = None,
    *,
    timers: bool = False,
    moment: Moment = MOMENT,
    groups: int = 1,
) -> Partition:
    """A task over all groups, opened."""
    form = form_of(states, KEYS, timers=timers)
    made = Partition(
        Layout("op", groups, tuple(states), form, ("who",)),
        store,
        token=lambda: next(TOKENS).to_bytes(8, "big"),
        copies=None if folder is None else Copies(folder, form.fingerprint, str(next(TOKENS))),
    )
    made.open(range(groups), moment)
    return made


def keys_of(made: Partition, names: Sequence[str] = NAMES) -> Keys:
    # An ASCII character fills the highest bits of the hash, which give the group.
    h = np.array([ord(name) << 57 for name in names], np.uint64)
    rows = made.rows().batch.schema
    return made.touch([(h, pa.table({"who": list(names)}))], empty_run(rows))


def put(made: Partition, names: Sequence[str], moment: Moment = MOMENT, **columns: Any) -> None:
    """Write columns of keys, and end the task."""
    changed = {name.replace("_", ":", 1): column for name, column in columns.items()}
    made.keep(keys_of(made, names), Outcome(changed, {}, NOTHING))
    made.write(moment)
    made.close()


def totals(made: Partition) -> list[int | None]:
    found: list[int | None] = keys_of(made).stored("s:total").to_pylist()
    return found


def test_a_group_that_was_only_read_keeps_its_former_form_when_it_is_written(tmp_path: Path) -> None:
    store = MemoryStore()
    put(task(store, OLD), ["a", "b"], s_total=pa.array([1, 2], pa.int32()))
    # A new version reads the group, changes nothing, and leaves a copy of it in today's form.
    reading = task(store, NEW, tmp_path)
    assert totals(reading) == [1, 2]
    reading.write(MOMENT)
    reading.close()
    put(task(store, NEW, tmp_path), ["a"], s_total=pa.array([10], pa.int64()))
    # Whoever has no copy finds blobs of both forms.
    assert totals(task(store, NEW)) == [10, 2]


def test_a_group_that_is_folded_after_others_keeps_its_former_form(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each of two batches folds one of three groups, and the third one gets a change in today's form."""
    monkeypatch.setattr(folding, "FOLD_BUDGET", 1)
    store, names = MemoryStore(), ["0", "A", "a"]  # of the groups 1, 2 and 3
    put(task(store, OLD, groups=4), names, s_total=pa.array([1, 2, 3], pa.int32()))
    task(store, OLD, groups=4).fold([1, 2, 3], MOMENT)
    reading = task(store, NEW, tmp_path, groups=4)
    reading.write(MOMENT)
    reading.close()
    put(task(store, NEW, tmp_path, groups=4), names[:1], s_name=pa.array(["x"]))
    assert [len(store.load(group).log) for group in (1, 2, 3)] == [1, 0, 0]
    # A task without a working copy reads the base of the former version and the change.
    cold = keys_of(task(store, NEW, groups=4), names)
    assert cold.stored("s:total").to_pylist() == [1, 2, 3]
    assert cold.stored("s:name").to_pylist() == ["x", None, None]


def test_forms_of_three_versions_are_read_in_one_group(tmp_path: Path) -> None:
    store = MemoryStore()
    newest = (State(StateKind.VALUE, pa.decimal128(38, 0), "sum", was="total"), NEW[1])
    put(task(store, OLD), ["a", "b"], s_total=pa.array([1, 2], pa.int32()))
    put(task(store, NEW, tmp_path), ["a"], s_total=pa.array([10], pa.int64()))
    last = task(store, newest, tmp_path)
    assert [int(each) for each in keys_of(last).stored("s:sum").to_pylist()] == [10, 2]
    last.write(MOMENT)
    last.close()
    put(task(store, newest, tmp_path), ["b"], s_name=pa.array(["x"]))
    cold = keys_of(task(store, newest))
    assert [int(each) for each in cold.stored("s:sum").to_pylist()] == [10, 2]
    assert cold.stored("s:name").to_pylist() == [None, "x"]
    # A new base is in today's form alone.
    folding = task(store, newest)
    folding.fold([0], MOMENT)
    assert len(store.load(0).base) == 1
    assert [int(each) for each in keys_of(task(store, newest)).stored("s:sum").to_pylist()] == [10, 2]


def test_values_keep_their_age_in_a_new_form() -> None:
    """Without it, a wider type or a new name would let values live as long again, or for ever."""
    ttl = Ttl(1_000, clock="processing")
    store = MemoryStore()
    old = (State(StateKind.VALUE, pa.int32(), "total", ttl=ttl),)
    stamps = pa.array([100, None], pa.int64())
    put(task(store, old), NAMES, s_total=pa.array([1, None], pa.int32()), t_total=stamps)
    for name, was in (("total", None), ("sum", "total")):
        new = (State(StateKind.VALUE, pa.int64(), name, ttl=ttl, was=was),)
        read = keys_of(task(store, new))
        assert read.stored(f"s:{name}").to_pylist() == [1, None]
        assert read.stored(f"t:{name}").to_pylist() == [100, None]


@pytest.mark.parametrize(
    ("on_disable", "values", "stamps"),
    [("drop_expired", [None, 2, None], [None, 5_000, None]), ("keep", [1, 2, None], [5_000, 5_000, None])],
)
def test_values_that_expired_before_their_ttl_was_removed_stay_away_when_it_is_restored(
    on_disable: Any, values: list[int | None], stamps: list[int | None]
) -> None:
    """The TTL of 1 s was removed at 2 s, where the first value had expired, and restored at 5 s."""
    store, names = MemoryStore(), ("a", "b", "c")
    ttl = Ttl(1_000, clock="processing", on_disable=on_disable)
    versions = [
        (State(StateKind.VALUE, pa.int32(), "total", ttl=ttl),),
        (State(StateKind.VALUE, pa.int32(), "total"),),
        (State(StateKind.VALUE, pa.int64(), "total", ttl=ttl),),
    ]
    written = pa.array([900, 1_500, None], pa.int64())
    put(task(store, versions[0]), names, s_total=pa.array([1, 2, None], pa.int32()), t_total=written)
    forms = [form_of(states, KEYS, timers=False) for states in versions]
    periods = tuple(
        Period(form.fingerprint.hex(), since_ms, form.states)
        for form, since_ms in zip(forms, (0, 2_000, 5_000), strict=True)
    )
    layout = Layout("op", 1, versions[2], forms[2], ("who",), periods=periods)
    today = Partition(layout, store, token=lambda: next(TOKENS).to_bytes(8, "big"))
    today.open([0], Moment(5_500, None, None))
    read = keys_of(today, names)
    assert read.stored("s:total").to_pylist() == values
    assert read.stored("t:total").to_pylist() == stamps


def set_timer(store: MemoryStore, name: str, at: int, moment: Moment) -> None:
    made = task(store, OLD, timers=True, moment=moment)
    outcome = {TIMERS: pa.array([f"e{at}"]), DUE_EVENT: pa.array([at], pa.int64())}
    made.keep(keys_of(made, [name]), Outcome(outcome, {}, NOTHING))
    made.write(moment)


def test_a_timer_that_was_moved_wakes_its_group_at_its_new_time_and_once_in_vain_at_most() -> None:
    store = MemoryStore()
    set_timer(store, "a", 100, Moment(0, 0, 0))
    set_timer(store, "a", 200, Moment(0, 10, 1))
    moment = Moment(0, 150, 2)
    for group in store.waking(150, 0):
        made = task(store, OLD, timers=True, moment=moment)
        assert group == 0
        assert len(made.due(moment)) == 0
        made.write(moment)
    # Spark forgets a timer once it has fired, so the store must know of the next one by now.
    (meta,) = store.metas([0])
    assert meta is not None
    assert (meta.wake_event, store.waking(199, 0), store.waking(200, 0)) == (200, [], [0])


def test_a_group_that_wakes_in_vain_is_no_other_version_of_itself(tmp_path: Path) -> None:
    store = MemoryStore()
    set_timer(store, "a", 100, Moment(0, 0, 0))
    set_timer(store, "a", 200, Moment(0, 10, 1))
    for turn in range(2):
        made = task(store, OLD, tmp_path, timers=True, moment=Moment(0, 150 + turn, 2))
        made.write(Moment(0, 150 + turn, 2))
        loaded = made.tally.loaded_groups
        made.close()
        assert loaded == (1 if turn == 0 else 0)
        assert made.tally.base_bytes == 0  # nothing is folded


def test_a_copy_of_a_task_that_was_not_committed_is_not_believed(tmp_path: Path) -> None:
    store = MemoryStore()
    put(task(store, OLD, tmp_path), ["a", "b"], s_total=pa.array([1, 2], pa.int32()))
    put(task(store.snapshot(), OLD, tmp_path), ["a"], s_total=pa.array([-1], pa.int32()))
    assert totals(task(store, OLD, tmp_path)) == [1, 2]


def test_a_store_that_went_back_or_lost_the_group_is_believed(tmp_path: Path) -> None:
    store = MemoryStore()
    put(task(store, OLD, tmp_path), ["a"], s_total=pa.array([1], pa.int32()))
    before = store.snapshot()
    put(task(store, OLD, tmp_path), ["a"], s_total=pa.array([2], pa.int32()))
    assert totals(task(before, OLD, tmp_path)) == [1, None]
    assert totals(task(MemoryStore(), OLD, tmp_path)) == [None, None]


def test_a_log_is_folded_and_holds_the_same(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(folding, "FOLD_CHANGES", 3)
    store = MemoryStore()
    logs = []
    for step in range(8):
        put(task(store, OLD, tmp_path), ["ab"[step % 2]], s_total=pa.array([step], pa.int32()))
        logs.append(len(store.load(0).log))
        assert totals(task(store, OLD)) == [step - step % 2, step - 1 + step % 2 if step else None]
    assert logs == [1, 2, 3, 0, 1, 2, 3, 0]


TEXTS = (State(StateKind.VALUE, pa.string(), "note"), State(StateKind.LIST, pa.string(), "notes"))


def append(made: Partition, name: str, text: str) -> None:
    """Append to the list `notes` of a key."""
    keys = keys_of(made, [name])
    rows = pa.table({"position": [0], "slot": [0], "dead": [False], "v": [text]})
    slots = pa.array([1], pa.int64())
    made.keep(keys, Outcome({"n:notes": slots}, {"notes": rows}, NOTHING))
    made.write(MOMENT)


def test_a_value_that_is_too_large_is_refused_by_the_name_of_its_state_and_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tables, "SEGMENT_BYTES", 1 << 20)
    monkeypatch.setattr(pass_changes, "SEGMENT_BYTES", 1 << 20)
    store = MemoryStore()
    fits = "x" * 1_000_000
    put(task(store, TEXTS), ["a", "b"], s_note=pa.array([fits, fits]))
    with pytest.raises(Unsupported, match="the state of a key is too large") as refused:
        put(task(store, TEXTS), ["a", "b"], s_note=pa.array(["short", "x" * 1_200_000]))
    assert refused.value.where == "operator op, state note, key who='b'"
    assert refused.value.found == "1.1 MiB"
    append(task(store, TEXTS), "a", fits)
    with pytest.raises(Unsupported, match="an element of keyed state is too large") as refused:
        append(task(store, TEXTS), "b", "x" * 1_200_000)
    assert refused.value.where == "operator op, state notes, key who='b'"
    # Nothing of the batches that were refused is in the store.
    assert keys_of(task(store, TEXTS)).stored("s:note").to_pylist() == [fits, fits]


def test_a_group_of_many_bytes_is_written_and_read_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    for room in (tables, pass_changes):
        monkeypatch.setattr(room, "SEGMENT_BYTES", 5_000)
    monkeypatch.setattr(group_tables, "MOST_AT_ONCE", 9_000)
    store = MemoryStore()
    names = [chr(number) for number in range(65, 85)]
    texts = [name * 1_500 for name in names]
    put(task(store, TEXTS), names, s_note=pa.array(texts))
    task(store, TEXTS).fold([0], MOMENT)
    assert len(store.load(0).base) > 5
    put(task(store, TEXTS), names[:2], s_note=pa.array(["new", None]))
    cold = task(store, TEXTS)
    assert keys_of(cold, names).stored("s:note").to_pylist() == ["new", None, *texts[2:]]
    assert max(run.batch.nbytes for run in cold._levels[ROWS].runs()) <= 5_000
