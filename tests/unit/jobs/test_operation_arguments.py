"""The arguments of operations as the log holds them, and what is refused."""

from __future__ import annotations

import json
from dataclasses import MISSING, fields
from typing import Any

import pytest

from holdfast.errors import Unsupported
from holdfast.jobs.operation_executor import VERBS
from holdfast.jobs.pending_rescale import VERB as RESCALE
from holdfast.jobs.registry import operation_log as module

EXAMPLES: dict[str, module.Arguments] = {
    "savepoint": module.TakeSavepoint("file:/s", "now", ("visits", "late"), deep=True, running=True),
    "stop": module.TakeSavepoint("file:/s"),
    "dispose": module.Dispose(("file:/s/1", "file:/s/2")),
    "checkpoint": module.AwaitCheckpoint(),
    "rescale": module.Rescale({"visits": 4}, {"visits": 2}),
    "restart": module.Restart(),
    "verify": module.Verify("file:/s/1", deep=True),
    "diff": module.Diff("file:/s/1", "file:/s/2", 3, files=True),
    "fork": module.MakeCheckpoint("file:/s/1", "file:/c"),
    "restore": module.MakeCheckpoint("file:/s/1", "file:/c"),
}


def test_every_kind_has_arguments_and_an_example() -> None:
    assert {*VERBS, RESCALE, module.RESTART} == set(module.KINDS)
    assert {verb: type(example) for verb, example in EXAMPLES.items()} == module.KINDS


@pytest.mark.parametrize("verb", sorted(module.KINDS))
def test_arguments_are_read_back_as_they_were(verb: str) -> None:
    assert module.decode(verb, json.loads(json.dumps(EXAMPLES[verb].as_dict()))) == EXAMPLES[verb]


@pytest.mark.parametrize(
    ("verb", "written", "expected"),
    [
        ("savepoint", {"catalog": "c"}, module.TakeSavepoint("c")),
        ("savepoint", {"catalog": "c", "running": True}, module.TakeSavepoint("c", running=True)),
        (
            "savepoint",
            {"catalog": "c", "label": None, "queries": ["q"], "deep": False},
            module.TakeSavepoint("c", queries=("q",)),
        ),
        ("stop", {"catalog": "c", "label": "x"}, module.TakeSavepoint("c", "x")),
        ("checkpoint", {}, module.AwaitCheckpoint()),
        ("rescale", {"partitions": {"q": 2}}, module.Rescale({"q": 2})),
        ("verify", {"savepoint": "s"}, module.Verify("s")),
        ("diff", {"first": "a", "second": "b"}, module.Diff("a", "b", samples=5, files=False)),
    ],
)
def test_what_earlier_versions_have_written_is_read(
    verb: str, written: dict[str, Any], expected: module.Arguments
) -> None:
    assert module.decode(verb, written) == expected


@pytest.mark.parametrize("verb", sorted(module.KINDS))
def test_missing_and_unknown_arguments_are_refused(verb: str) -> None:
    values = EXAMPLES[verb].as_dict()
    with pytest.raises(Unsupported) as refused:
        module.decode(verb, {**values, "nonsense": 1})
    assert refused.value.found == "unknown nonsense"
    for item in fields(module.KINDS[verb]):
        if item.default is MISSING and item.default_factory is MISSING:
            with pytest.raises(Unsupported) as refused:
                module.decode(verb, {name: values[name] for name in values if name != item.name})
            assert refused.value.found == f"no {item.name}"


@pytest.mark.parametrize(
    ("verb", "values"),
    [("teleport", {}), ("dispose", {"savepoints": 3}), ("rescale", {"partitions": 4})],
)
def test_an_unknown_kind_and_values_that_do_not_fit_are_refused(verb: str, values: dict[str, Any]) -> None:
    with pytest.raises(Unsupported, match="does not support the requested operation"):
        module.decode(verb, values)
