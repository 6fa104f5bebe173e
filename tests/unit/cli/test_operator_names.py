"""One name for one operator: every place that shows the operators of a checkpoint shows the same ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from command import Holdfast

from golden import golden_on_disk
from holdfast.at_rest.state_reader import StateReader
from holdfast.checkpoints.checkpoint import read
from holdfast.checkpoints.state.states import OperatorShape, StoreShape
from holdfast.cli import check
from holdfast.engine.queries.watch import committed_batch
from holdfast.errors import Invalid
from holdfast.formats.operators import KEYED_VARIABLES, OPERATORS, operator_kind, operator_names, state_name
from holdfast.model import Effect, Try, UpgradeReport, Verdict
from holdfast.observe.files import file_samples, look
from holdfast.observe.job_metrics import JobTotals, operator_label, shown_kind
from holdfast.savepoints.verdicts import Sizes, compare_states, with_names
from holdfast.storage.local import LocalStorage

pytestmark = pytest.mark.slow

Shown = Callable[[Holdfast, str], str]


@dataclass(frozen=True)
class Case:
    """A checkpoint with one operator, and what everybody is to call it."""

    golden: str
    name: str
    kind: str
    spark_name: str
    states: tuple[str, ...]


CASES = (
    Case("4.2/aggregate-rocksdb", "aggregate", "aggregation", "stateStoreSave", ("aggregate",)),
    Case(
        "4.2/dedupe-changelog",
        "dedupe",
        "deduplication within watermark",
        "dedupeWithinWatermark",
        ("dedupe",),
    ),
    Case("4.2/join-format2", "join", "stream-stream join", "symmetricHashJoin", ("left", "right")),
    Case(
        "4.2/session-rocksdb",
        "sessions",
        "session window aggregation",
        "sessionWindowStateStoreSaveExec",
        ("sessions",),
    ),
    Case("4.2/limit-memory", "limit", "limit", "globalLimit", ("limit",)),
    Case(
        "4.2/state-format2",
        "processor",
        "transformWithState",
        "transformWithStateInPandasExec",
        ("amounts", "count"),
    ),
    # Holdfast's keyed state: with the note that has its user's name, and of a query that left none.
    Case(
        "written/everything", "everything", "keyed state", "transformWithStateInPySparkExec", ("everything",)
    ),
    Case(
        "4.2/keyed-format2", "operator-0", "keyed state", "transformWithStateInPySparkExec", ("operator-0",)
    ),
    # Spark before 4.0 noted no name; the state tells.
    Case("3.5/aggregate-rocksdb", "aggregate", "aggregation", "stateStoreSave", ("aggregate",)),
)


def verb(*words: str) -> Shown:
    def shown(holdfast: Holdfast, place: str) -> str:
        said = holdfast(*words, place)
        assert said.returncode == 0, said.stderr
        return said.stdout

    return shown


def savepoint(*words: str) -> Shown:
    def shown(holdfast: Holdfast, place: str) -> str:
        return verb("savepoint", *words)(holdfast, verb("savepoint", "take", place)(holdfast, "sp").strip())

    return shown


def state_diff(holdfast: Holdfast, place: str) -> str:
    before = read(LocalStorage(Path(place))).committed[-2]
    return verb("state", "diff", f"{place}@{before}")(holdfast, place)


def metrics(_: Holdfast, place: str) -> str:
    return str(file_samples("job", "query", look(LocalStorage(Path(place)), 0)))


# Where operators are shown, and whether that place says too what they do.
PLACES: dict[str, tuple[Shown, bool]] = {
    "checkpoint show": (verb("checkpoint", "show", "--partitions"), True),
    "state list": (verb("state", "list"), False),
    "state diff": (state_diff, False),
    "skew": (verb("skew"), True),
    "savepoint show": (savepoint("show"), True),
    "savepoint verify": (savepoint("verify", "--deep"), False),
    "metrics": (metrics, False),
}


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case.golden))
@pytest.mark.parametrize("where", PLACES)
def test_every_place_has_the_same_name(holdfast: Holdfast, tmp_path: Path, case: Case, where: str) -> None:
    place = str(golden_on_disk(case.golden, tmp_path / "ck"))
    shown, says_kind = PLACES[where]
    text = shown(holdfast, place)
    assert case.name in text
    assert not says_kind or case.kind in text
    physical = {name for kind in OPERATORS for name in kind.names} - {case.name, case.kind}
    # The store of a metric is the store's own name.
    physical |= set() if where == "metrics" else {"keyWithIndexToValue", "keyToNumValues"}
    assert not [name for name in physical if name in text]


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case.golden))
def test_json_has_sparks_name_beside_it(tmp_path: Path, case: Case) -> None:
    storage = LocalStorage(golden_on_disk(case.golden, tmp_path / "ck"))
    [operator] = read(storage).as_dict()["operators"]
    [listed] = [found.as_dict() for found in StateReader(storage).operators]
    names = {"display_name": case.name, "operator_kind": case.kind, "spark_name": case.spark_name}
    assert {field: operator[field] for field in names} == {field: listed[field] for field in names} == names
    # What they were called before stays for who has programs.
    assert (operator["name"], listed["operator"], listed["kind"]) == (
        case.spark_name,
        case.name,
        case.spark_name,
    )
    kept = operator["state_names"]
    assert kept == (list(case.states) if case.name != "join" else ["left", "right"])


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case.golden))
def test_a_state_is_known_by_every_spelling(tmp_path: Path, case: Case) -> None:
    reader = StateReader(LocalStorage(golden_on_disk(case.golden, tmp_path / "ck")))
    state = case.states[0]
    for word in (case.name, "0", case.kind, case.spark_name):
        if not word:
            continue
        assert reader.pick(f"{word}.{state}")[1].name == state
        assert reader.pick(state, word)[1].name == state
        if len(case.states) == 1:
            assert reader.pick(word)[1].name == state
    if case.kind not in ("keyed state", "transformWithState"):
        stored = {"join": "left-keyWithIndexToValue"}.get(case.name, "default")
        assert reader.pick(stored)[1].name == state


def test_a_batch_of_a_running_query_has_the_names_of_its_checkpoint() -> None:
    kinds = ("stateStoreSave", "symmetricHashJoin", "stateStoreSave", "transformWithStateInPySparkExec")
    progress = {
        "batchId": 1,
        "durationMs": {"addBatch": 1},
        "stateOperators": [{"operatorName": name} for name in kinds],
    }
    batch = committed_batch("q", progress, 0)
    assert batch is not None
    shown = [(operator_label(at, one), shown_kind(one)) for at, one in enumerate(batch.operators)]
    assert shown == [
        ("0 aggregate_0", "aggregation"),
        ("1 join", "stream-stream join"),
        ("2 aggregate_2", "aggregation"),
        ("3 processor", "transformWithState"),
    ]
    assert [one.name for one in batch.operators] == list(kinds)
    # A counter that an older Holdfast kept under Spark's name goes on under the new one.
    totals = JobTotals({("holdfast_state_rows_updated_total", ("q", "1 symmetricHashJoin")): 7.0})
    totals.add(batch)
    counted = {labels[1]: value for (name, labels), value in totals.values.items() if "updated" in name}
    assert counted["1 join"] == 7.0
    assert "1 symmetricHashJoin" not in counted


def test_two_of_one_name_have_their_numbers() -> None:
    spark = {
        0: "stateStoreSave",
        1: "stateStoreSave",
        2: "transformWithStateInPySparkExec",
        3: "somethingNew",
    }
    names = operator_names(spark, {2: "aggregate"})
    assert {number: name.display_name for number, name in names.items()} == {
        0: "aggregate_0",
        1: "aggregate_1",
        2: "aggregate_2",
        3: "somethingNew",
    }
    assert (names[2].user_name, names[2].operator_kind) == ("aggregate", "keyed state")
    assert names[3].operator_kind == "somethingNew"


@pytest.mark.parametrize(
    ("spark_name", "label", "shown"),
    [
        ("stateStoreSave", "default", "aggregate"),
        ("symmetricHashJoin", "left-keyWithIndexToValue", "left"),
        ("symmetricHashJoin", "right-keyToNumValues", "right counts"),
        ("transformWithStateExec", "$eventTimers_keyToTimestamp", "event_timers"),
        ("transformWithStateExec", "$eventTimers_timestampToKey", "event_timers by time"),
        ("transformWithStateExec", "$rowCounter_amounts", "amounts lengths"),
        ("transformWithStateExec", "amounts", "amounts"),
    ],
)
def test_states_of_spark_have_plain_names(spark_name: str, label: str, shown: str) -> None:
    assert state_name(operator_names({0: spark_name})[0], label) == shown
    assert operator_kind(spark_name) is not None
    assert "$" not in "".join(KEYED_VARIABLES)


def test_a_key_without_a_state_is_answered_with_the_states(holdfast: Holdfast, tmp_path: Path) -> None:
    golden_on_disk("4.2/join-format2", tmp_path / "ck")
    said = holdfast("state", "get", "./ck", "c1")
    assert said.returncode == Invalid.exit_code
    assert "join.left, join.right" in said.stderr
    assert "state get … join.left c1" in said.stderr
    assert "there is no state" not in said.stderr
    gone = holdfast("state", "get", "./ck", "join.left", "nobody")
    assert gone.returncode == 3
    assert gone.stderr.startswith("error: key not found in this state")


def shape(number: int, kind: str, *stores: str) -> OperatorShape:
    return OperatorShape(number, kind, tuple(StoreShape(name, ()) for name in stores), {}, {})


def test_verdicts_are_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    old = [shape(0, "stateStoreSave", "default"), shape(1, "symmetricHashJoin", "left-keyWithIndexToValue")]
    new = [shape(0, "dedupe", "default"), shape(1, "symmetricHashJoin", "left-keyWithIndexToValue")]
    states = with_names(compare_states(old, new, Sizes({}, {})), old, new)
    check.show_verdict(UpgradeReport("job.py", "sp", None, 4, states, (), Try(True, False), None))
    said = capsys.readouterr().out
    rows = [" ".join(line.split()) for line in said.splitlines()]
    assert "0 aggregate aggregation aggregate refused – –" in rows
    assert "1 join stream-stream join left kept – –" in rows
    assert any("it was aggregation and is deduplication" in row for row in rows)
    assert rows[-1] == "the query would not start (batch 4)"
    assert not [word for word in ("stateStoreSave", "MAP", "fails", "INCOMPATIBLE") if word in said]
    # Programs have what they had.
    assert [(state.operator, state.state, state.verdict.value) for state in states] == [
        ("0 stateStoreSave", "default", "INCOMPATIBLE"),
        ("1 symmetricHashJoin", "left-keyWithIndexToValue", "MAP"),
    ]


def test_the_guide_explains_every_word_of_a_check() -> None:
    guide = (Path(__file__).parents[3] / "docs" / "guides" / "upgrades.md").read_text()
    for verdict in Verdict:
        assert f"| {verdict.word} | `{verdict.value}` |" in guide
        assert verdict.means
    assert all(effect.word for effect in Effect)
