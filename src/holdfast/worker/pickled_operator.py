"""An operator as Spark pickles it: as bytes that only a task reads.

Before the first batch Spark starts a process that declares the state variables, and the query waits for it.
That process needs neither Arrow nor the job's code, so it does not load them.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from holdfast.worker.state.spark_store import declare_state

if TYPE_CHECKING:
    from holdfast.worker.operator import Dispatcher, TaskOperator
    from holdfast.worker.state.group_numbers import Numbering

_DECLARING: Final = "pyspark.sql.streaming.transform_with_state_driver_worker"


class PickledOperator:
    """The function that is given to Spark; in a task it is a `Dispatcher`."""

    def __init__(self, operator: TaskOperator) -> None:
        self._operator = operator

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Numbering, bytes]]:
        from pyspark.cloudpickle import dumps

        written: bytes = dumps(self._operator)  # type: ignore[no-untyped-call]  # it carries no types
        return unpickled, (self._operator.lane.layout.numbering, written)

    def __call__(self, *_: Any) -> Iterator[Any]:
        """Do nothing: Spark calls the unpickled function."""
        return iter(())


class StateDeclaration:
    """The function in the process that declares the state variables."""

    def __init__(self, numbering: Numbering) -> None:
        self._numbering = numbering

    def __call__(self, client: Any, _mode: Any, _key: Any, _rows: Any) -> Iterator[Any]:
        """Declare the state variables."""
        declare_state(client, self._numbering)
        return iter(())


def unpickled(numbering: Numbering, operator: bytes) -> StateDeclaration | Dispatcher:
    """Return the function for this process.

    Args:
        numbering: The numbering of the operator's key groups.
        operator: The pickled operator.
    """
    program = vars(sys.modules["__main__"]).get("__spec__")
    if program is not None and program.name == _DECLARING:
        return StateDeclaration(numbering)
    from holdfast.worker.operator import Dispatcher, expect

    dispatcher = Dispatcher(pickle.loads(operator))  # noqa: S301 - Spark has read it from the driver
    expect(dispatcher)
    return dispatcher
