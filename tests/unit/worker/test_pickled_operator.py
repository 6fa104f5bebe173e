"""An operator in a process that only declares its state: nothing of the job, and no Arrow, is loaded."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.testing import Harness
from holdfast.worker.operator import Dispatcher
from holdfast.worker.pickled_operator import PickledOperator

cloudpickle = pytest.importorskip("pyspark.cloudpickle")

DECLARING = "pyspark.sql.streaming.transform_with_state_driver_worker"
LOOK = """
import importlib.machinery, pickle, sys
sys.modules["__main__"].__spec__ = importlib.machinery.ModuleSpec(sys.argv[1], None)
print(type(pickle.loads(sys.stdin.buffer.read())).__name__)
print(sorted({"pyarrow", "numpy", "holdfast.worker.operator"} & set(sys.modules)))
"""


class Visits(hf.Keyed):
    visits = hf.value(int, default=0)

    def on_event(self, event: hf.Event, state: Any, ctx: hf.Context) -> dict[str, Any]:
        state.visits += 1
        return {"key": event.key, "visits": state.visits}


def pickled() -> bytes:
    harness = Harness(Visits(), events="key long", by="key", output="key long, visits int")
    written: bytes = cloudpickle.dumps(PickledOperator(harness._operator))
    return written


@pytest.mark.parametrize(
    ("program", "found", "loaded"),
    [
        (DECLARING, "StateDeclaration", []),
        ("pyspark.daemon", "Dispatcher", ["holdfast.worker.operator", "numpy", "pyarrow"]),
    ],
)
def test_what_a_process_loads(program: str, found: str, loaded: list[str]) -> None:
    found_here = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    done = subprocess.run(
        [sys.executable, "-c", LOOK, program],
        input=pickled(),
        capture_output=True,
        check=False,
        env=found_here,
    )
    assert done.stdout.decode().splitlines() == [found, str(loaded)], done.stderr.decode()


def test_in_a_task_it_is_the_operator_itself() -> None:
    dispatcher = pickle.loads(pickled())
    assert isinstance(dispatcher, Dispatcher)
    assert dispatcher._operator.lane.layout.states[0].name == "visits"
