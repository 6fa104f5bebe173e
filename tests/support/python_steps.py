"""The work of a call as a number of steps, which does not depend on how fast or busy the machine is."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def steps_of(call: Callable[[], object]) -> int:
    """Count the bytecode instructions that a call executes in modules of Holdfast."""
    steps = 0

    def in_frame(_frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal steps
        steps += event == "opcode"
        return in_frame

    def of_call(frame: FrameType, _event: str, _argument: Any) -> Any:
        if not str(frame.f_globals.get("__name__")).startswith("holdfast."):
            return None
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        return in_frame

    before = sys.gettrace()
    sys.settrace(of_call)
    try:
        call()
    finally:
        sys.settrace(before)
    return steps
