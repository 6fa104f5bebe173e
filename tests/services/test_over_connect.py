"""What works over Spark Connect, and what is refused with a sentence, against a real server.

The expected rows are worked out by hand from the seven rows of `over_connect.FILES`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from command import answer_of
from grid import WHOLE

pytestmark = [pytest.mark.services, pytest.mark.spark]

SCRIPT = Path(__file__).parent / "jobs" / "over_connect.py"

# Cases that share a folder, in the order of their calls.
SHORT = (
    ("dedupe",),
    ("guard", "configure"),
)
LONG = (
    ("keyed_with_a_note", "split_aggregate"),
    ("watch",),
    ("keyed_with_other_groups", "keyed_in_a_database", "split_join", "guard_of_a_sink"),
    ("bootstrap", "lint_of_a_plan", "real_time_to_a_table", "continuous"),
    ("keyed", "keyed_again", "check"),
    (
        "all_arrived",
        "windowed",
        "join_within",
        "enrich",
        "sessions",
        "skew_watch",
        "skew_of_a_table",
    ),
    ("operate", "broadcast", "running", "parquet", "adopted", "batch_function", "ledger"),
    ("ledger_of_a_later_owner", "guard_of_a_query"),
    ("watch_of_keyed_state",),
)

WORKS: dict[str, Any] = {
    "dedupe": [["ann", 1], ["bob", 10]],
    "watch": [3, 3],  # the rows of the second file; three customers
    "watch_of_keyed_state": ["visits", 4, 0],
    "keyed": [["ann", 1], ["ann", 2], ["ann", 3], ["bob", 1]],
    "keyed_again": [["ann", 1], ["ann", 2], ["ann", 3], ["ann", 4], ["bob", 1], ["bob", 2], ["cid", 1]],
    "enrich": [
        ["ann", 1, "A"], ["ann", 2, "A"], ["ann", 3, "A"], ["ann", 4, "A"],
        ["bob", 10, "B"], ["bob", 20, "B"], ["cid", 100, None],
    ],
    "split_aggregate": [["ann", 6], ["bob", 10]],
    "skew_watch": [["ann", 1], ["bob", 1], ["cid", 1]],
    "skew_of_a_table": [["ann"], 7],
    "operate": [[1], [2], [3], [10]],
    "broadcast": [["ann", 2], ["ann", 4], ["ann", 6], ["bob", 30]],
    # Two of ann's rows have one time, and each total has all rows up to its time.
    "running": [["ann", 1, 1], ["ann", 2, 6], ["ann", 3, 6], ["bob", 10, 10]],
    "parquet": [["ann", 1], ["ann", 2], ["ann", 3], ["bob", 10]],
    "adopted": ["parquet", "exactly once"],
    "batch_function": [["ann", 1], ["ann", 2], ["ann", 3], ["bob", 10]],
    "ledger": [[["ann", 1], ["ann", 2], ["ann", 3], ["bob", 10]], True],
}  # fmt: skip
OVER_CONNECT = "Spark Connect does not support"
REFUSED = {
    "keyed_with_a_note": ("Invalid", "key_groups differs from the checkpoint"),
    "keyed_with_other_groups": ("Unsupported", OVER_CONNECT),
    "keyed_in_a_database": ("Unsupported", OVER_CONNECT),
    "split_join": ("Unsupported", OVER_CONNECT),
    "guard": ("Unsupported", "cannot be guarded from a client"),
    "guard_of_a_sink": ("Unsupported", "cannot be guarded from a client"),
    "guard_of_a_query": ("Unsupported", "cannot be guarded from a client"),
    "configure": ("Unsupported", "cannot configure a Spark Connect session"),
    "check": ("Unsupported", OVER_CONNECT),
    "bootstrap": ("Unsupported", OVER_CONNECT),
    "lint_of_a_plan": ("Unsupported", OVER_CONNECT),
    "real_time_to_a_table": ("Unsupported", "real-time mode does not support the sink"),
    "continuous": ("Unsupported", "continuous processing is not supported"),
}


@pytest.fixture(scope="module")
def answers(connect_server: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What each case gave, of the short form or of all."""
    groups = [*SHORT, *LONG] if WHOLE else list(SHORT)
    folder = tmp_path_factory.mktemp("over-connect")
    asked = {"address": connect_server, "folder": str(folder), "groups": groups}
    found: dict[str, Any] = answer_of(SCRIPT, asked, folder / "home")
    return found


@pytest.mark.parametrize("case", [case for group in SHORT for case in group])
def test_works_or_is_refused_by_name(answers: dict[str, Any], case: str) -> None:
    _judge(answers, case)


@pytest.mark.parametrize("case", [case for group in LONG for case in group])
def test_the_long_form_works_or_is_refused_by_name(answers: dict[str, Any], case: str) -> None:
    _judge(answers, case)


def _judge(answers: dict[str, Any], case: str) -> None:
    found = answers[case]
    if case in REFUSED:
        kind, fact = REFUSED[case]
        assert (found.get("kind"), found.get("module")) == (kind, "holdfast.errors"), found
        assert fact in found["fact"]
        assert found["hint"]
    elif case == "ledger_of_a_later_owner":
        assert "has a different owner" in found["text"]
    elif case in WORKS:
        assert found.get("rows") == WORKS[case], found
    else:
        assert "rows" in found, found
